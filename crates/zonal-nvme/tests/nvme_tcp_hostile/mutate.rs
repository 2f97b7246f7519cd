//! Mistakes: in the order of PDUs, and in their bytes.

use zerocopy::IntoBytes;
use zonal::nvme::SubmissionEntry;
use zonal_nvme::tcp::pdu::{self, COMMON_BYTES, ConnectionParams, PduType};

/// The generator of `SplitMix64`.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub fn byte(&mut self) -> u8 {
        self.next().to_le_bytes()[0]
    }

    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % limit as u64).unwrap()
    }
}

/// PDUs are repeated, left out, exchanged, cut, or have one field changed. The first two, which
/// begin and connect, are mostly left alone: else nothing else would be reached.
pub fn pdus(random: &mut Random, pdus: &mut Vec<Vec<u8>>) {
    for _ in 0..=random.below(3) {
        let first = if random.below(10) == 0 { 0 } else { 2 };
        if pdus.len() <= first + 1 {
            return;
        }
        let at = first + random.below(pdus.len() - first);
        let other = first + random.below(pdus.len() - first);
        match random.below(8) {
            0 => {
                let again = pdus[at].clone();
                pdus.insert(other, again);
            }
            1 => drop(pdus.remove(at)),
            2 => pdus.swap(at, other),
            3 => {
                let length = random.below(pdus[at].len());
                pdus[at].truncate(length);
            }
            4 => *field(random, &mut pdus[at]) = random.byte(),
            5 => *field(random, &mut pdus[at]) ^= 1 << random.below(8),
            6 => *field(random, &mut pdus[at]) = [0, 0xff, 0x7f, 0x80][random.below(4)],
            // The length of the PDU and of its parts.
            _ => {
                let at = &mut pdus[at];
                let place = [2, 3, 4, 5, 6, 7, 12, 16, 17, 40][random.below(10)];
                if let Some(byte) = at.get_mut(place) {
                    *byte = random.byte();
                }
            }
        }
    }
}

/// A byte of the header.
fn field<'a>(random: &mut Random, pdu: &'a mut Vec<u8>) -> &'a mut u8 {
    if pdu.is_empty() {
        pdu.push(0);
    }
    let place = random.below(pdu.len().min(72));
    &mut pdu[place]
}

/// Sometimes, a few bytes anywhere are changed, come in between or are missing.
pub fn bytes(random: &mut Random, bytes: &mut Vec<u8>) {
    if random.below(4) > 0 || bytes.is_empty() {
        return;
    }
    for _ in 0..=random.below(4) {
        let at = random.below(bytes.len());
        match random.below(4) {
            0 => bytes[at] = random.byte(),
            1 => bytes.insert(at, random.byte()),
            2 if bytes.len() > 1 => drop(bytes.remove(at)),
            _ => bytes.truncate(at.max(1)),
        }
    }
}

/// A command without data, as a PDU.
pub fn capsule(entry: &SubmissionEntry) -> Vec<u8> {
    let mut header = [0; COMMON_BYTES + 64];
    header[COMMON_BYTES..].copy_from_slice(entry.as_bytes());
    let mut pdu = Vec::new();
    pdu::put(&mut pdu, PduType::CapsuleCmd, 0, &header, &[], ConnectionParams::default());
    pdu
}
