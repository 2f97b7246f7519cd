//! The body of a journal record: where fresh data begins in each zone, then rows.
//!
//! Data is *fresh* if no flush came between it and the batch that refers to it. A power cut can
//! leave the batch without its fresh data. So the batch says where fresh data begins in each zone,
//! and replay reads the fresh data of the newest batch before it counts the batch.

use std::mem::size_of;

use zerocopy::byteorder::little_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// The start of fresh data in a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, KnownLayout, Immutable)]
#[repr(C)]
pub struct FreshZone {
    /// Zone.
    pub zone: U32,
    /// The first block that may not have been durable before the batch. Those before it were.
    pub block: U32,
}

const _: () = assert!(size_of::<FreshZone>() == 8);

/// Starts a body with these zones. The caller appends the rows.
pub fn put_fresh(body: &mut Vec<u8>, zones: &[FreshZone]) {
    let count = u32::try_from(zones.len()).expect("zone numbers are u32");
    body.extend_from_slice(&count.to_le_bytes());
    body.extend_from_slice(zones.as_bytes());
}

/// Splits a body into the zones with fresh data and the bytes of the rows.
pub fn take_fresh(body: &[u8]) -> Result<(&[FreshZone], &[u8]), String> {
    let short = || format!("a batch of {} bytes ends before its rows", body.len());
    let (count, rest) = U32::read_from_prefix(body).map_err(|_| short())?;
    <[FreshZone]>::ref_from_prefix_with_elems(rest, count.get() as usize).map_err(|_| short())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batch_body_round_trips_and_rejects_short_one() {
        let zones = [(3, 0), (70_000, 12)]
            .map(|(zone, block)| FreshZone { zone: U32::new(zone), block: U32::new(block) });
        for count in 0..=2 {
            let mut body = Vec::new();
            put_fresh(&mut body, &zones[..count]);
            let rows_at = body.len();
            body.extend_from_slice(b"rows");
            assert_eq!(take_fresh(&body), Ok((&zones[..count], &b"rows"[..])));
            for len in 0..rows_at {
                assert!(take_fresh(&body[..len]).is_err(), "{count}, {len} bytes");
            }
        }
        assert!(take_fresh(&[0xff; 40]).is_err(), "more than memory holds");
    }
}
