//! NVMe structures: commands, completions, Identify data, zone reports, status codes.
//!
//! They are independent of the transport: NVMe/TCP carries them in capsules, passthrough of Linux
//! in an ioctl. The methods convert 0's based values to counts, and `FFFF_FFFFh` for "no limit" to
//! `None`.
//!
//! Sections and figures are of the NVM Express Base Specification 2.0 (Base), the NVM Command Set
//! Specification 1.0 (NVM) and the Zoned Namespace Command Set Specification 1.1 (ZNS).

pub mod command;
pub mod decode;
pub mod identify;
pub mod status;
pub mod zone;

pub use command::{CompletionEntry, Opcode, SubmissionEntry};
pub use status::NvmeStatus;

/// NSID: namespace identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nsid(u32);

impl Nsid {
    /// No namespace, in commands for the controller.
    pub const NONE: Self = Self(0);
    /// Every namespace.
    pub const ALL: Self = Self(u32::MAX);

    /// Wraps a raw number.
    pub const fn new(raw: u32) -> Self {
        Self(raw)
    }

    /// The raw number.
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl std::fmt::Display for Nsid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// I/O command sets (Base, figure 290).
pub mod command_set {
    /// NVM: plain blocks.
    pub const NVM: u8 = 0;
    /// Zoned namespaces.
    pub const ZNS: u8 = 2;
}

/// `text` as an ASCII field, padded with spaces.
///
/// # Panics
/// If `text` is longer than the field or is not ASCII.
pub fn ascii<const N: usize>(text: &str) -> [u8; N] {
    assert!(text.len() <= N && text.is_ascii(), "{text:?} fits in {N} bytes of ASCII");
    let mut field = [b' '; N];
    field[..text.len()].copy_from_slice(text.as_bytes());
    field
}

/// `text` as a UTF-8 field, padded with zeroes, such as an NQN.
///
/// # Panics
/// If `text` leaves no room for a zero.
pub fn name<const N: usize>(text: &str) -> [u8; N] {
    assert!(text.len() < N, "{text:?} and a zero fit in {N} bytes");
    let mut field = [0; N];
    field[..text.len()].copy_from_slice(text.as_bytes());
    field
}

/// The text of a field that is padded with zeroes or spaces; `None` if it is not UTF-8.
pub fn text(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0).unwrap_or(field.len());
    std::str::from_utf8(&field[..end]).ok().map(|text| text.trim_end_matches(' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_fields_round_trip() {
        assert_eq!(&ascii::<6>("abc"), b"abc   ");
        assert_eq!(&name::<6>("abc"), b"abc\0\0\0");
        assert_eq!(text(&ascii::<6>("abc")), Some("abc"));
        assert_eq!(text(&name::<6>("abc")), Some("abc"));
        assert_eq!(text(&[0xff, 0]), None);
    }
}
