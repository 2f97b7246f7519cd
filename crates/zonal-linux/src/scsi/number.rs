//! Numbers in commands and answers: SCSI stores the highest byte first, ATA the lowest.

/// The order of the bytes of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByteOrder {
    /// The highest byte comes first: SCSI (SPC-5, "Bit and byte ordering").
    HighFirst,
    /// The lowest byte comes first: ATA (ACS-4, "Byte, word, doubleword, and quadword
    /// relationships").
    LowFirst,
}

impl ByteOrder {
    /// The number in these bytes; of more than eight, the low 64 bits.
    pub fn u64(self, bytes: &[u8]) -> u64 {
        let join = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        match self {
            Self::HighFirst => bytes.iter().fold(0, join),
            Self::LowFirst => bytes.iter().rev().fold(0, join),
        }
    }

    /// The low 32 bits of [`u64`](Self::u64).
    #[expect(clippy::cast_possible_truncation, reason = "the rest is not asked for")]
    pub fn u32(self, bytes: &[u8]) -> u32 {
        self.u64(bytes) as u32
    }

    /// The low 16 bits of [`u64`](Self::u64).
    #[expect(clippy::cast_possible_truncation, reason = "the rest is not asked for")]
    pub fn u16(self, bytes: &[u8]) -> u16 {
        self.u64(bytes) as u16
    }

    /// Stores the low bytes of `number`, as many as `bytes` has, but not more than eight.
    pub fn store(self, number: u64, bytes: &mut [u8]) {
        let low_first = number.to_le_bytes();
        match self {
            Self::HighFirst => {
                for (to, byte) in bytes.iter_mut().rev().zip(low_first) {
                    *to = byte;
                }
            }
            Self::LowFirst => {
                for (to, byte) in bytes.iter_mut().zip(low_first) {
                    *to = byte;
                }
            }
        }
    }
}

/// The first `N` bytes of an answer, with zeroes where it ends before: drives leave out fields that
/// their version of a specification does not have.
pub(super) fn padded<const N: usize>(answer: &[u8]) -> [u8; N] {
    let mut bytes = [0; N];
    let len = answer.len().min(N);
    bytes[..len].copy_from_slice(&answer[..len]);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_has_order_of_its_interface() {
        assert_eq!(ByteOrder::HighFirst.u32(&[1, 2, 3, 4]), 0x0102_0304);
        assert_eq!(ByteOrder::LowFirst.u32(&[1, 2, 3, 4]), 0x0403_0201);
        let mut bytes = [0xee; 3];
        ByteOrder::HighFirst.store(0x0a_0b0c, &mut bytes);
        assert_eq!(bytes, [0x0a, 0x0b, 0x0c]);
        ByteOrder::LowFirst.store(0xff_0a0b_0c0d, &mut bytes);
        assert_eq!(bytes, [0x0d, 0x0c, 0x0b], "the low bytes");
    }

    #[test]
    fn answer_too_short_ends_in_zeroes() {
        assert_eq!(padded::<4>(&[1, 2]), [1, 2, 0, 0]);
        assert_eq!(padded::<1>(&[1, 2]), [1]);
    }
}
