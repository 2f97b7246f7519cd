//! Reads the fields of a request from its bytes, one after the other.

use zerocopy::{FromBytes, Immutable, KnownLayout};

/// The bytes of a request do not fit its opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The mistake.
    pub what: &'static str,
}

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.what)
    }
}

impl std::error::Error for Malformed {}

/// The bytes of a request that are not read yet.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    /// The next structure, at any alignment.
    pub(crate) fn take<T: FromBytes + Immutable + KnownLayout>(&mut self) -> Result<T, Malformed> {
        let too_short = |_| Malformed { what: "shorter than its structure" };
        let (value, rest) = T::read_from_prefix(self.0).map_err(too_short)?;
        self.0 = rest;
        Ok(value)
    }

    /// Text up to a zero byte. It may be empty.
    pub(crate) fn text(&mut self) -> Result<&'a [u8], Malformed> {
        let end = self.0.iter().position(|byte| *byte == 0);
        let end = end.ok_or(Malformed { what: "text without an end" })?;
        let (text, rest) = self.0.split_at(end);
        self.0 = &rest[1..];
        Ok(text)
    }

    /// A name: text that is neither empty nor contains a slash.
    pub(crate) fn name(&mut self) -> Result<&'a [u8], Malformed> {
        let name = self.text()?;
        if name.is_empty() || name.contains(&b'/') {
            return Err(Malformed { what: "not a name" });
        }
        Ok(name)
    }

    /// The next `len` bytes.
    pub(crate) fn bytes(&mut self, len: u32) -> Result<&'a [u8], Malformed> {
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        let too_short = Malformed { what: "shorter than its data" };
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(too_short)?;
        self.0 = rest;
        Ok(bytes)
    }
}
