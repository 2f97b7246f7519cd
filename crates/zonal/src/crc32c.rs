//! CRC32C, the Castagnoli polynomial (RFC 3720, appendix B.4), of our formats and of NVMe/TCP's
//! digests; and the CRC32 of Ethernet (ISO-HDLC), which zonefs has in its super block.
//!
//! By the crate crc-fast, which uses the widest instructions that the processor has: with AVX-512
//! it takes 92 ns for 4 KiB, with SSE4.2 188 ns.

use crc_fast::{CrcAlgorithm, Digest, checksum};

/// The checksum of `data`.
pub fn crc32c(data: &[u8]) -> u32 {
    narrow(checksum(CrcAlgorithm::Crc32Iscsi, data))
}

/// The CRC32 of Ethernet of `data`.
pub fn crc32(data: &[u8]) -> u32 {
    narrow(checksum(CrcAlgorithm::Crc32IsoHdlc, data))
}

/// The checksum of data whose checksum is `crc` with `data` behind it.
pub fn crc32c_append(crc: u32, data: &[u8]) -> u32 {
    let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, (!crc).into());
    digest.update(data);
    narrow(digest.finalize())
}

#[expect(clippy::cast_possible_truncation, reason = "the upper half is zero")]
const fn narrow(crc: u64) -> u32 {
    crc as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720, and the check value that catalogues of CRCs give.
    #[test]
    fn crc32c_matches_rfc3720_vectors() {
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let ascending: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&ascending), 0x46dd_794e);
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
    }

    #[test]
    fn crc32c_of_parts_equals_whole() {
        let data: Vec<u8> = (0..9000_u32).map(|at| (at * 7919).to_le_bytes()[1]).collect();
        for at in [0, 1, 15, 64, 4096, 8999, 9000] {
            let (front, back) = data.split_at(at);
            assert_eq!(crc32c_append(crc32c(front), back), crc32c(&data), "{at}");
        }
        assert_eq!(crc32c(&[]), 0);
    }
}
