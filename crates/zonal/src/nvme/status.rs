//! Status of a completed command (Base, section 3.3.3.2): status code type and status code.

/// An NVMe status: type and code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct NvmeStatus {
    /// Status Code Type: 0 generic, 1 command specific, 2 media and data integrity.
    pub kind: u8,
    /// Status Code.
    pub code: u8,
}

impl NvmeStatus {
    const fn generic(code: u8) -> Self {
        Self { kind: 0, code }
    }

    const fn specific(code: u8) -> Self {
        Self { kind: 1, code }
    }

    const fn media(code: u8) -> Self {
        Self { kind: 2, code }
    }

    /// The status field of a completion, with phase tag 0 (Base, figure 92). A failure has the
    /// DNR bit (do not retry), unless a retry may succeed.
    pub const fn field(self) -> u16 {
        let code = (self.kind as u16 & 7) << 8 | self.code as u16;
        let retry = self.is_success() || self.is_transient();
        (code | if retry { 0 } else { 1 << 14 }) << 1
    }

    /// The status in the field of a completion.
    pub const fn from_field(field: u16) -> Self {
        let code = field >> 1;
        Self { kind: (code >> 8 & 7) as u8, code: (code & 0xff) as u8 }
    }

    /// Whether the command succeeded.
    pub const fn is_success(self) -> bool {
        self.kind == 0 && self.code == 0
    }

    /// The name of the status, if an operation on a device can end with it.
    pub const fn name(self) -> Option<&'static str> {
        Some(match self {
            SUCCESS => "success",
            INVALID_FIELD => "invalid field",
            INTERNAL => "internal error",
            WRITE_PROTECTED => "write protected",
            LBA_OUT_OF_RANGE => "block out of range",
            CAPACITY_EXCEEDED => "capacity exceeded",
            NOT_READY => "not ready",
            ZONE_BOUNDARY => "zone boundary crossed",
            ZONE_FULL => "zone full",
            ZONE_READ_ONLY => "zone read-only",
            ZONE_OFFLINE => "zone offline",
            ZONE_INVALID_WRITE => "not at the write pointer",
            TOO_MANY_ACTIVE => "too many active zones",
            TOO_MANY_OPEN => "too many open zones",
            INVALID_TRANSITION => "invalid transition",
            UNRECOVERED_READ => "unrecovered read error",
            _ => return None,
        })
    }

    const fn is_transient(self) -> bool {
        self.kind == 0 && matches!(self.code, 0x22 | 0x82)
    }
}

/// Success.
pub const SUCCESS: NvmeStatus = NvmeStatus::generic(0x00);
/// Invalid Command Opcode.
pub const INVALID_OPCODE: NvmeStatus = NvmeStatus::generic(0x01);
/// Invalid Field in Command.
pub const INVALID_FIELD: NvmeStatus = NvmeStatus::generic(0x02);
/// Command ID Conflict: a command with this identifier is outstanding.
pub const ID_CONFLICT: NvmeStatus = NvmeStatus::generic(0x03);
/// Internal Error.
pub const INTERNAL: NvmeStatus = NvmeStatus::generic(0x06);
/// Invalid Namespace or Format.
pub const INVALID_NAMESPACE: NvmeStatus = NvmeStatus::generic(0x0b);
/// Command Sequence Error.
pub const SEQUENCE: NvmeStatus = NvmeStatus::generic(0x0c);
/// Data SGL Length Invalid: the length differs from the data of the command.
pub const SGL_LENGTH: NvmeStatus = NvmeStatus::generic(0x0f);
/// SGL Descriptor Type Invalid.
pub const SGL_TYPE: NvmeStatus = NvmeStatus::generic(0x11);
/// SGL Offset Invalid: outside of the capsule.
pub const SGL_OFFSET: NvmeStatus = NvmeStatus::generic(0x16);
/// The namespace or device is write protected.
pub const WRITE_PROTECTED: NvmeStatus = NvmeStatus::generic(0x20);
/// Transient Transport Error: a retry may succeed.
pub const TRANSIENT_TRANSPORT: NvmeStatus = NvmeStatus::generic(0x22);
/// Blocks beyond the namespace's end.
pub const LBA_OUT_OF_RANGE: NvmeStatus = NvmeStatus::generic(0x80);
/// The namespace has no space left to store the data of a write.
pub const CAPACITY_EXCEEDED: NvmeStatus = NvmeStatus::generic(0x81);
/// The namespace is not ready.
pub const NOT_READY: NvmeStatus = NvmeStatus::generic(0x82);
/// Asynchronous Event Request Limit Exceeded.
pub const EVENT_LIMIT: NvmeStatus = NvmeStatus::specific(0x05);
/// Invalid Log Page.
pub const INVALID_LOG_PAGE: NvmeStatus = NvmeStatus::specific(0x09);
/// The feature cannot be saved.
pub const FEATURE_NOT_SAVEABLE: NvmeStatus = NvmeStatus::specific(0x0d);
/// The feature cannot be changed.
pub const FEATURE_NOT_CHANGEABLE: NvmeStatus = NvmeStatus::specific(0x0e);
/// Connect Incompatible Format.
pub const CONNECT_FORMAT: NvmeStatus = NvmeStatus::specific(0x80);
/// Connect Controller Busy.
pub const CONNECT_BUSY: NvmeStatus = NvmeStatus::specific(0x81);
/// Connect Invalid Parameters; the result says which.
pub const CONNECT_PARAMETERS: NvmeStatus = NvmeStatus::specific(0x82);
/// Connect Invalid Host: it is not allowed to connect.
pub const CONNECT_HOST: NvmeStatus = NvmeStatus::specific(0x84);
/// The access crosses a zone's boundary.
pub const ZONE_BOUNDARY: NvmeStatus = NvmeStatus::specific(0xb8);
/// The zone is Full.
pub const ZONE_FULL: NvmeStatus = NvmeStatus::specific(0xb9);
/// The zone is ReadOnly.
pub const ZONE_READ_ONLY: NvmeStatus = NvmeStatus::specific(0xba);
/// The zone is Offline.
pub const ZONE_OFFLINE: NvmeStatus = NvmeStatus::specific(0xbb);
/// The write is not at the write pointer.
pub const ZONE_INVALID_WRITE: NvmeStatus = NvmeStatus::specific(0xbc);
/// Too many active zones.
pub const TOO_MANY_ACTIVE: NvmeStatus = NvmeStatus::specific(0xbd);
/// Too many open zones.
pub const TOO_MANY_OPEN: NvmeStatus = NvmeStatus::specific(0xbe);
/// Invalid Zone State Transition.
pub const INVALID_TRANSITION: NvmeStatus = NvmeStatus::specific(0xbf);
/// Unrecovered Read Error.
pub const UNRECOVERED_READ: NvmeStatus = NvmeStatus::media(0x81);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_field_has_code_and_dnr_above_phase() {
        assert_eq!(SUCCESS.field(), 0);
        assert_eq!(ZONE_INVALID_WRITE.field(), 0x41bc << 1);
        assert_eq!(TRANSIENT_TRANSPORT.field(), 0x22 << 1);
        for status in [SUCCESS, ZONE_FULL, UNRECOVERED_READ, TRANSIENT_TRANSPORT, CONNECT_HOST] {
            assert_eq!(NvmeStatus::from_field(status.field()), status);
        }
    }
}
