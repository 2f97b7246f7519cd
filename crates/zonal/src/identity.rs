//! The identity that a device reports: enough to know the same drive again under another name.

use std::fmt;

/// The identity that a device reports; `None` for each part that it leaves out.
///
/// ```
/// use zonal::Identity;
/// let (model, unique) = (Some("Tape 9".into()), Some("eui.0102".into()));
/// let drive = Identity { model, unique, ..Identity::default() };
/// assert_eq!(drive.to_string(), "Tape 9, eui.0102");
/// assert_eq!(Identity::default().to_string(), "");
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// Its maker and its model.
    pub model: Option<String>,
    /// Its number among devices of that model.
    pub serial: Option<String>,
    /// A name that no other device has, as Linux writes it in `wwid`: `uuid.…`, `eui.…`,
    /// `naa.…`, `t10.…`.
    pub unique: Option<String>,
}

impl Identity {
    /// The identity of a device that has a UUID and nothing else.
    pub fn of_uuid(uuid: [u8; 16]) -> Self {
        Self { unique: Some(format!("uuid.{}", Hyphenated(uuid))), ..Self::default() }
    }

    /// Whether nothing is known.
    pub const fn is_empty(&self) -> bool {
        self.model.is_none() && self.serial.is_none() && self.unique.is_none()
    }
}

/// The known parts, in one line.
impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = [&self.model, &self.serial, &self.unique];
        for (number, part) in known.into_iter().flatten().enumerate() {
            let comma = if number == 0 { "" } else { ", " };
            write!(f, "{comma}{part}")?;
        }
        Ok(())
    }
}

/// A UUID as it is written.
struct Hyphenated([u8; 16]);

impl fmt::Display for Hyphenated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let hyphen = if matches!(at, 4 | 6 | 8 | 10) { "-" } else { "" };
            write!(f, "{hyphen}{byte:02x}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_uuid_has_usual_text() {
        let bytes = [
            0x6a, 0x2f, 0x4e, 0x8e, 0x0d, 0x5c, 0x4a, 0x53, 0x9c, 0x7d, 0x2f, 0x8a, 0x3b, 0x1c,
            0x9d, 0x01,
        ];
        let written = Identity::of_uuid(bytes).to_string();
        assert_eq!(written, "uuid.6a2f4e8e-0d5c-4a53-9c7d-2f8a3b1c9d01");
    }
}
