//! Features of a controller (Base, section 5.27): identifiers, and the values that need decoding.

use zonal::nvme::{Nsid, Opcode, SubmissionEntry};

/// Feature identifiers (Base, figure 316).
pub mod id {
    /// Arbitration.
    pub const ARBITRATION: u8 = 0x01;
    /// Power Management.
    pub const POWER: u8 = 0x02;
    /// Temperature Threshold.
    pub const TEMPERATURE: u8 = 0x04;
    /// Error Recovery.
    pub const ERROR_RECOVERY: u8 = 0x05;
    /// Volatile Write Cache.
    pub const WRITE_CACHE: u8 = 0x06;
    /// Number of Queues.
    pub const QUEUES: u8 = 0x07;
    /// Write Atomicity Normal.
    pub const WRITE_ATOMICITY: u8 = 0x0a;
    /// Asynchronous Event Configuration.
    pub const ASYNC_EVENTS: u8 = 0x0b;
    /// Keep Alive Timer.
    pub const KEEP_ALIVE: u8 = 0x0f;
    /// I/O Command Set Profile.
    pub const COMMAND_SET_PROFILE: u8 = 0x19;
    /// Host Identifier.
    pub const HOST_ID: u8 = 0x81;
}

/// Get Features, SEL: which value of a feature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Select {
    /// The current value.
    Current,
    /// The default value.
    Default,
    /// The saved value.
    Saved,
    /// Its capabilities instead of a value.
    Supported,
}

/// Set Features.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SetFeature {
    /// FID: see [`id`].
    pub id: u8,
    /// SV: whether to save the value.
    pub lifetime: Lifetime,
    /// Dword 11.
    pub value: u32,
}

/// How long a feature keeps its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until the controller is reset.
    UntilReset,
    /// Across resets and power cycles.
    Saved,
}

impl SetFeature {
    const SAVE: u32 = 1 << 31;

    /// Decodes the dwords.
    #[expect(clippy::cast_possible_truncation, reason = "a byte")]
    pub const fn decode(entry: &SubmissionEntry) -> Self {
        let dword10 = entry.dword(10);
        let saved = dword10 & Self::SAVE != 0;
        let lifetime = if saved { Lifetime::Saved } else { Lifetime::UntilReset };
        Self { id: dword10 as u8, lifetime, value: entry.dword(11) }
    }

    /// Encodes the command.
    pub fn encode(&self) -> SubmissionEntry {
        let mut entry = SubmissionEntry::new(Opcode::SET_FEATURES, Nsid::NONE);
        let saved = match self.lifetime {
            Lifetime::UntilReset => 0,
            Lifetime::Saved => Self::SAVE,
        };
        entry.set_dword(10, u32::from(self.id) | saved);
        entry.set_dword(11, self.value);
        entry
    }
}

/// Decodes Get Features: FID and SEL.
#[expect(clippy::cast_possible_truncation, reason = "a byte")]
pub const fn decode_get(entry: &SubmissionEntry) -> (u8, Select) {
    let select = match entry.dword(10) >> 8 & 7 {
        0 => Select::Current,
        1 => Select::Default,
        2 => Select::Saved,
        _ => Select::Supported,
    };
    (entry.dword(10) as u8, select)
}

/// Encodes a Get Features for the current value.
pub fn get(id: u8) -> SubmissionEntry {
    let mut entry = SubmissionEntry::new(Opcode::GET_FEATURES, Nsid::NONE);
    entry.set_dword(10, id.into());
    entry
}

/// Numbers of I/O queues, as Set Features and its result carry them: submission queues in the low
/// half, completion queues in the high, both 0's based (Base, figures 330 and 331).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueCounts {
    /// NSQR or NSQA.
    pub submission: u32,
    /// NCQR or NCQA.
    pub completion: u32,
}

impl QueueCounts {
    /// From dword 11 or the result.
    pub const fn decode(value: u32) -> Self {
        Self { submission: (value & 0xffff) + 1, completion: (value >> 16) + 1 }
    }

    /// As the result or dword 11.
    pub const fn encode(self) -> u32 {
        (self.submission.saturating_sub(1) & 0xffff) | self.completion.saturating_sub(1) << 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_round_trip() {
        let queues = QueueCounts { submission: 4, completion: 65_536 };
        assert_eq!(queues.encode(), 0xffff_0003);
        assert_eq!(QueueCounts::decode(queues.encode()), queues);
        let (value, lifetime) = (queues.encode(), Lifetime::Saved);
        let set = SetFeature { id: id::QUEUES, lifetime, value };
        assert_eq!(SetFeature::decode(&set.encode()), set);
        assert_eq!(decode_get(&get(id::HOST_ID)), (id::HOST_ID, Select::Current));
    }
}
