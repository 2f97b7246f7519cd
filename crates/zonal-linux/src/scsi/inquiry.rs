//! The answers of a drive about itself: INQUIRY, READ CAPACITY(16), MODE SENSE(10).
//!
//! SPC-5, "Standard INQUIRY data" and "Vital product data parameters"; SBC-4, "Block Limits VPD
//! page", "Block Device Characteristics VPD page", "READ CAPACITY(16) parameter data" and "Caching
//! mode page"; ZBC-2, "Zoned Block Device Characteristics VPD page". Drives leave out fields that
//! their version of a specification does not have: missing bytes are zero.

use super::number::ByteOrder::HighFirst;
use super::number::padded;

/// Standard INQUIRY data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inquiry {
    /// PERIPHERAL QUALIFIER and PERIPHERAL DEVICE TYPE, byte 0.
    pub device_type: u8,
    /// T10 VENDOR IDENTIFICATION: `ATA` for a disk behind a translation.
    pub vendor: [u8; 8],
    /// PRODUCT IDENTIFICATION.
    pub product: [u8; 16],
}

impl Inquiry {
    /// Bytes that every drive returns.
    pub const BYTES: usize = 36;
    /// Device type of a direct access block device: also of host-aware drives.
    pub const DISK: u8 = 0x00;
    /// Device type of a host-managed zoned block device.
    pub const HOST_MANAGED: u8 = 0x14;

    /// Decodes an answer.
    pub fn decode(answer: &[u8]) -> Self {
        let bytes: [u8; Self::BYTES] = padded(answer);
        Self {
            device_type: bytes[0],
            vendor: padded(&bytes[8..16]),
            product: padded(&bytes[16..32]),
        }
    }

    /// Encodes an answer.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        // VERSION: SPC-5. RESPONSE DATA FORMAT: 2. ADDITIONAL LENGTH: what follows byte 4.
        (bytes[0], bytes[2], bytes[3], bytes[4]) = (self.device_type, 7, 2, 31);
        bytes[8..16].copy_from_slice(&self.vendor);
        bytes[16..32].copy_from_slice(&self.product);
        bytes
    }
}

/// Page codes of vital product data.
pub mod page {
    /// Supported pages.
    pub const SUPPORTED: u8 = 0x00;
    /// Unit serial number.
    pub const SERIAL: u8 = 0x80;
    /// Device identification.
    pub const IDENTIFICATION: u8 = 0x83;
    /// ATA information (SAT-5).
    pub const ATA_INFORMATION: u8 = 0x89;
    /// Block limits.
    pub const LIMITS: u8 = 0xb0;
    /// Block device characteristics.
    pub const CHARACTERISTICS: u8 = 0xb1;
    /// Zoned block device characteristics.
    pub const ZONED: u8 = 0xb6;
}

/// The content of a page of vital product data, without the header of four bytes; `None` if the
/// answer is another page.
pub fn content_of(page: u8, answer: &[u8]) -> Option<&[u8]> {
    let (header, rest) = answer.split_at_checked(4)?;
    let len = usize::from(HighFirst.u16(&header[2..]));
    (header[1] == page).then(|| &rest[..rest.len().min(len)])
}

/// A page of vital product data.
///
/// # Panics
/// If the content has more than 65535 bytes.
pub fn encode_page(device_type: u8, page: u8, content: &[u8]) -> Vec<u8> {
    let len = u16::try_from(content.len()).expect("a page has at most 65535 bytes");
    let mut answer = vec![device_type, page, 0, 0];
    HighFirst.store(len.into(), &mut answer[2..]);
    answer.extend(content);
    answer
}

/// The text of a field that is padded with spaces, by some drives with zeroes; `None` if it is
/// empty or cannot be printed.
pub fn text(field: &[u8]) -> Option<String> {
    let text = str::from_utf8(field).ok()?.trim_matches([' ', '\0']);
    let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
    (!text.is_empty() && is_printable).then(|| text.to_owned())
}

/// The unique name in the content of the device identification page, as Linux writes it in `wwid`:
/// an NAA designator before an EUI-64, both of the logical unit.
pub fn unique_name(content: &[u8]) -> Option<String> {
    const EUI64: u8 = 2;
    const NAA: u8 = 3;
    /// CODE SET of bytes that are no text.
    const BINARY: u8 = 1;
    let (mut rest, mut eui, mut naa) = (content, None, None);
    while let [code_set, kind, _, len, after @ ..] = rest {
        let (name, behind) = after.split_at(after.len().min(usize::from(*len)));
        rest = behind;
        let hex = || name.iter().fold(String::new(), |text, byte| format!("{text}{byte:02x}"));
        // ASSOCIATION, bits 4 and 5, is 0 for the logical unit.
        match (code_set & 0xf, kind & 0x3f) {
            (BINARY, EUI64) if !name.is_empty() => eui = eui.or_else(|| Some(hex())),
            (BINARY, NAA) if !name.is_empty() => naa = naa.or_else(|| Some(hex())),
            _ => {}
        }
    }
    naa.map(|name| format!("naa.{name}")).or_else(|| eui.map(|name| format!("eui.{name}")))
}

/// Block limits, page B0h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// MAXIMUM TRANSFER LENGTH, in logical blocks; `None`: not reported.
    pub transfer_max: Option<u32>,
}

impl BlockLimits {
    /// Decodes the content of the page.
    pub fn decode(content: &[u8]) -> Self {
        let bytes: [u8; 60] = padded(content);
        Self { transfer_max: Some(HighFirst.u32(&bytes[4..8])).filter(|blocks| *blocks > 0) }
    }

    /// Encodes the content.
    pub fn encode(self) -> [u8; 60] {
        let mut bytes = [0; 60];
        HighFirst.store(self.transfer_max.unwrap_or(0).into(), &mut bytes[4..8]);
        bytes
    }
}

/// Block device characteristics, page B1h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Characteristics {
    /// MEDIUM ROTATION RATE, in turns a minute; 0: not reported, 1: nothing turns.
    pub rotation_rate: u16,
    /// ZONED, two bits: 1 host-aware, 2 managed by the drive, 0 all else.
    pub zoned: u8,
}

impl Characteristics {
    /// ZONED of a host-aware drive.
    pub const HOST_AWARE: u8 = 1;

    /// Decodes the content of the page.
    pub fn decode(content: &[u8]) -> Self {
        let bytes: [u8; 60] = padded(content);
        Self { rotation_rate: HighFirst.u16(&bytes[..2]), zoned: bytes[4] >> 4 & 3 }
    }

    /// Encodes the content.
    pub fn encode(self) -> [u8; 60] {
        let mut bytes = [0; 60];
        HighFirst.store(self.rotation_rate.into(), &mut bytes[..2]);
        bytes[4] = (self.zoned & 3) << 4;
        bytes
    }
}

/// Zoned block device characteristics, page B6h.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonedCharacteristics {
    /// URSWRZ: whether reads beyond the write pointer are allowed.
    pub unrestricted_reads: bool,
    /// OPTIMAL NUMBER OF OPEN SEQUENTIAL WRITE PREFERRED ZONES; `None`: not reported.
    pub optimal_open: Option<u32>,
    /// MAXIMUM NUMBER OF OPEN SEQUENTIAL WRITE REQUIRED ZONES; `None`: no limit.
    pub max_open: Option<u32>,
    /// ZONE ALIGNMENT METHOD, four bits: 8 for zones that start at multiples of the granularity.
    pub alignment: u8,
    /// ZONE STARTING LBA GRANULARITY, in logical blocks; 0: not reported.
    pub granularity: u64,
}

impl ZonedCharacteristics {
    /// Decodes the content of the page.
    pub fn decode(content: &[u8]) -> Self {
        let bytes: [u8; 60] = padded(content);
        let limit = |at: usize| {
            let limit = HighFirst.u32(&bytes[at..at + 4]);
            (limit != 0 && limit != u32::MAX).then_some(limit)
        };
        Self {
            unrestricted_reads: bytes[0] & 1 != 0,
            optimal_open: limit(4),
            max_open: limit(12),
            alignment: bytes[19] & 0xf,
            granularity: HighFirst.u64(&bytes[20..28]),
        }
    }

    /// Encodes the content.
    pub fn encode(&self) -> [u8; 60] {
        let mut bytes = [0; 60];
        bytes[0] = self.unrestricted_reads.into();
        for (at, limit) in [(4, self.optimal_open), (8, None), (12, self.max_open)] {
            HighFirst.store(limit.unwrap_or(u32::MAX).into(), &mut bytes[at..at + 4]);
        }
        bytes[19] = self.alignment & 0xf;
        HighFirst.store(self.granularity, &mut bytes[20..28]);
        bytes
    }
}

/// READ CAPACITY(16) parameter data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// RETURNED LOGICAL BLOCK ADDRESS: the last block of the drive, or the last one of the
    /// conventional zones at its start.
    pub last: u64,
    /// LOGICAL BLOCK LENGTH IN BYTES.
    pub block_bytes: u32,
    /// LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT, four bits.
    pub physical_exponent: u8,
    /// LOWEST ALIGNED LOGICAL BLOCK ADDRESS: where a physical block begins.
    pub lowest_aligned: u16,
    /// `RC_BASIS`, two bits: 1 where [`last`](Self::last) is of the whole drive.
    pub basis: u8,
}

impl Capacity {
    /// Bytes of the answer.
    pub const BYTES: usize = 32;

    /// Decodes an answer; `None` if it is too short for all fields.
    pub fn decode(answer: &[u8]) -> Option<Self> {
        let bytes = answer.get(..16)?;
        Some(Self {
            last: HighFirst.u64(&bytes[..8]),
            block_bytes: HighFirst.u32(&bytes[8..12]),
            physical_exponent: bytes[13] & 0xf,
            lowest_aligned: HighFirst.u16(&bytes[14..16]) & 0x3fff,
            basis: bytes[12] >> 4 & 3,
        })
    }

    /// Encodes an answer.
    pub fn encode(&self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        HighFirst.store(self.last, &mut bytes[..8]);
        HighFirst.store(self.block_bytes.into(), &mut bytes[8..12]);
        (bytes[12], bytes[13]) = ((self.basis & 3) << 4, self.physical_exponent & 0xf);
        HighFirst.store((self.lowest_aligned & 0x3fff).into(), &mut bytes[14..16]);
        bytes
    }
}

/// Page code of the caching mode page.
pub const CACHING: u8 = 0x08;
/// Page code of the control mode page.
pub const CONTROL: u8 = 0x0a;

/// Whether a drive has a volatile write cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteCache {
    /// It has one.
    Volatile,
    /// It has none, or does not use it: completed writes are durable.
    None,
}

/// The caches of a drive, by its caching mode page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caching {
    /// WCE.
    pub write: WriteCache,
    /// Not RCD: whether it answers reads from its cache.
    pub reads: bool,
}

impl Caching {
    /// WCE, byte 2 of the page.
    const WRITE_CACHE_ENABLED: u8 = 1 << 2;
    /// RCD, byte 2 of the page.
    const READ_CACHE_DISABLED: u8 = 1;

    /// Decodes an answer to MODE SENSE(10); `None` if it has no caching mode page.
    pub fn decode(answer: &[u8]) -> Option<Self> {
        let flags = *mode_page(answer, CACHING)?.get(2)?;
        let write = match flags & Self::WRITE_CACHE_ENABLED {
            0 => WriteCache::None,
            _ => WriteCache::Volatile,
        };
        Some(Self { write, reads: flags & Self::READ_CACHE_DISABLED == 0 })
    }

    /// Encodes an answer to MODE SENSE(10).
    pub fn encode(self) -> Vec<u8> {
        let write = match self.write {
            WriteCache::Volatile => Self::WRITE_CACHE_ENABLED,
            WriteCache::None => 0,
        };
        let reads = if self.reads { 0 } else { Self::READ_CACHE_DISABLED };
        let mut answer = vec![0; 8 + 20];
        // MODE DATA LENGTH: what follows it.
        (answer[1], answer[8], answer[9], answer[10]) = (26, CACHING, 18, write | reads);
        answer
    }
}

/// WP, byte 3 of the header of an answer to MODE SENSE(10).
const WRITE_PROTECTED: u8 = 1 << 7;
/// SWP, byte 4 of the control mode page.
const SOFTWARE_WRITE_PROTECT: u8 = 1 << 3;

/// Whether a drive takes no writes, by an answer to MODE SENSE(10) with the control mode page: a
/// switch of the drive (WP), or a program (SWP) says so. `None` if it has no such page.
pub fn write_protected(answer: &[u8]) -> Option<bool> {
    let by_program = mode_page(answer, CONTROL)?.get(4)? & SOFTWARE_WRITE_PROTECT != 0;
    Some(by_program || answer[3] & WRITE_PROTECTED != 0)
}

/// An answer to MODE SENSE(10) with the control mode page. A protected drive sets SWP.
#[expect(clippy::fn_params_excessive_bools, reason = "it is the bit")]
pub fn encode_control(is_protected: bool) -> Vec<u8> {
    let mut answer = vec![0; 8 + 12];
    (answer[1], answer[8], answer[9]) = (18, CONTROL, 10);
    answer[12] = if is_protected { SOFTWARE_WRITE_PROTECT } else { 0 };
    answer
}

/// A mode page, behind the block descriptors of an answer to MODE SENSE(10).
fn mode_page(answer: &[u8], code: u8) -> Option<&[u8]> {
    // Bytes 6 and 7: BLOCK DESCRIPTOR LENGTH.
    let descriptors = usize::from(HighFirst.u16(answer.get(6..8)?));
    let page = answer.get(8 + descriptors..)?;
    // Bit 6 stands for a subpage.
    (page.first()? & 0x7f == code).then_some(page)
}

/// The answer to IDENTIFY DEVICE in the content of the ATA information page (SAT-5, "ATA
/// Information VPD page", bytes 60 to 571); `None` if it is not complete.
pub fn identify_data(content: &[u8]) -> Option<&[u8]> {
    content.get(56..568)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// SPC-5, "Standard INQUIRY data".
    #[test]
    fn inquiry_has_bytes_of_spc() {
        let mut bytes = [0; 36];
        bytes[..5].copy_from_slice(&[0x14, 0, 7, 2, 31]);
        bytes[8..32].copy_from_slice(b"ATA     HGST HSH721414AL");
        let found = Inquiry::decode(&bytes);
        assert_eq!(found.device_type, Inquiry::HOST_MANAGED);
        assert_eq!(text(&found.vendor).unwrap(), "ATA");
        assert_eq!(text(&found.product).unwrap(), "HGST HSH721414AL");
        assert_eq!(found.encode(), bytes);
        assert_eq!(text(b"   \0"), None);
        assert_eq!(text(b"a\nb"), None);
    }

    /// SPC-5, "Device Identification VPD page"; the designators are of a disk behind libata.
    #[test]
    fn unique_name_prefers_naa() {
        let mut content = vec![2, 0x01, 0, 3, b'A', b'T', b'A'];
        assert_eq!(unique_name(&content), None);
        content.extend([1, 0x02, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(unique_name(&content).unwrap(), "eui.0102030405060708");
        // Of a port.
        content.extend([0x61, 0x93, 0, 8, 9, 9, 9, 9, 9, 9, 9, 9]);
        content.extend([1, 0x03, 0, 8, 0x50, 0, 0xcc, 0xa2, 0x64, 0xd4, 0xa0, 0x39]);
        assert_eq!(unique_name(&content).unwrap(), "naa.5000cca264d4a039");
        let answer = encode_page(0x14, page::IDENTIFICATION, &content);
        assert_eq!(answer[..4], [0x14, 0x83, 0, u8::try_from(content.len()).unwrap()]);
        assert_eq!(content_of(page::IDENTIFICATION, &answer), Some(&content[..]));
        assert_eq!(content_of(page::SERIAL, &answer), None);
        assert_eq!(content_of(page::IDENTIFICATION, &answer[..3]), None);
    }

    /// SBC-4, "Block Limits VPD page" and "Block Device Characteristics VPD page"; ZBC-2, "Zoned
    /// Block Device Characteristics VPD page". Offsets there count the header.
    #[test]
    fn pages_of_block_devices_have_bytes_of_sbc_and_zbc() {
        let mut limits = [0; 60];
        limits[8 - 4..12 - 4].copy_from_slice(&[0, 0, 0x10, 0]);
        assert_eq!(BlockLimits::decode(&limits).transfer_max, Some(0x1000));
        assert_eq!(BlockLimits::decode(&limits).encode(), limits);
        assert_eq!(BlockLimits::decode(&[]).transfer_max, None);
        let mut turns = [0; 60];
        (turns[4 - 4], turns[5 - 4], turns[8 - 4]) = (0x1c, 0x20, 0x10);
        let found = Characteristics::decode(&turns);
        assert_eq!((found.rotation_rate, found.zoned), (7200, Characteristics::HOST_AWARE));
        assert_eq!(found.encode(), turns);
        let mut zoned = [0; 60];
        zoned[4 - 4] = 1;
        zoned[8 - 4..16 - 4].fill(0xff);
        zoned[16 - 4..20 - 4].copy_from_slice(&[0, 0, 0, 128]);
        zoned[23 - 4] = 8;
        zoned[24 - 4..32 - 4].copy_from_slice(&[0, 0, 0, 0, 0, 8, 0, 0]);
        let found = ZonedCharacteristics::decode(&zoned);
        let expected = ZonedCharacteristics {
            unrestricted_reads: true,
            optimal_open: None,
            max_open: Some(128),
            alignment: 8,
            granularity: 0x0008_0000,
        };
        assert_eq!(found, expected);
        assert_eq!(found.encode(), zoned);
    }

    /// SBC-4, "READ CAPACITY(16) parameter data".
    #[test]
    fn capacity_has_bytes_of_sbc() {
        let mut bytes = [0; 32];
        bytes[..16].copy_from_slice(&[0, 0, 0, 6, 0x5d, 0, 0, 0, 0, 0, 2, 0, 0x10, 3, 0x80, 0]);
        let found = Capacity::decode(&bytes).unwrap();
        let expected = Capacity {
            last: 0x0006_5d00_0000,
            block_bytes: 512,
            physical_exponent: 3,
            lowest_aligned: 0,
            basis: 1,
        };
        assert_eq!(found, expected);
        bytes[14] = 0;
        assert_eq!(found.encode(), bytes);
        assert_eq!(Capacity::decode(&bytes[..15]), None);
    }

    /// SPC-5, "Mode parameter header(10)"; SBC-4, "Caching mode page".
    #[test]
    fn caching_page_has_bytes_of_sbc() {
        let mut answer = vec![0, 26, 0, 0x10, 0, 0, 0, 0, 0x88, 18, 4];
        answer.resize(28, 0);
        let both = Caching { write: WriteCache::Volatile, reads: true };
        assert_eq!(Caching::decode(&answer), Some(both));
        answer[10] = 1;
        let none = Caching { write: WriteCache::None, reads: false };
        assert_eq!(Caching::decode(&answer), Some(none));
        // Behind a block descriptor.
        let mut behind = vec![0, 30, 0, 0, 0, 0, 0, 4, 9, 9, 9, 9, 8, 18, 4];
        assert_eq!(Caching::decode(&behind), Some(both));
        behind[12] = CONTROL;
        assert_eq!(Caching::decode(&behind), None);
        for caching in [both, none, Caching { reads: false, ..both }] {
            assert_eq!(Caching::decode(&caching.encode()), Some(caching));
        }
    }

    /// SPC-5, "Mode parameter header(10)" and "Control mode page".
    #[test]
    fn control_page_has_bytes_of_spc() {
        let mut answer = vec![0, 18, 0, 0, 0, 0, 0, 0, 0x0a, 10, 0x04, 0, 0x08];
        answer.resize(20, 0);
        assert_eq!(write_protected(&answer), Some(true), "SWP, with D_SENSE");
        answer[12] = 0;
        assert_eq!(write_protected(&answer), Some(false));
        answer[3] = 0x80;
        assert_eq!(write_protected(&answer), Some(true), "WP");
        assert_eq!(write_protected(&answer[..12]), None);
        for is_protected in [false, true] {
            assert_eq!(write_protected(&encode_control(is_protected)), Some(is_protected));
        }
    }

    /// SAT-5, "ATA Information VPD page": the offset counts the header of the page.
    #[test]
    fn ata_information_has_identify_data_at_byte_60() {
        let mut page = vec![0; 572];
        (page[60], page[571]) = (7, 9);
        let found = identify_data(&page[4..]).unwrap();
        assert_eq!((found.len(), found[0], found[511]), (512, 7, 9));
        assert_eq!(identify_data(&page[4..571]), None);
    }

    proptest! {
        #[test]
        fn answers_decode_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
            let inquiry = Inquiry::decode(&bytes);
            prop_assert_eq!(Inquiry::decode(&inquiry.encode()), inquiry);
            if let Some(capacity) = Capacity::decode(&bytes) {
                prop_assert_eq!(Capacity::decode(&capacity.encode()), Some(capacity));
            }
            let zoned = ZonedCharacteristics::decode(&bytes);
            prop_assert_eq!(ZonedCharacteristics::decode(&zoned.encode()), zoned);
            let _ = unique_name(&bytes);
            let _ = (Caching::decode(&bytes), write_protected(&bytes));
            let _ = content_of(bytes.first().copied().unwrap_or(0), &bytes);
        }
    }
}
