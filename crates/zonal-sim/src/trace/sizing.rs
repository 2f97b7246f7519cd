//! A drive as large as a trace: it has the over-provisioning that the user asked for, which on
//! another drive depends on how much of it the trace touches.

use std::path::Path;

use super::fit::Fitting;
use super::{Fit, Reader, Trace};
use crate::config::{Config, Kind};
use crate::error::{Result, SimError, within};
use crate::flash::Flash;
use crate::size::Size;

/// With fewer superblocks than this, the free and the open ones take a large part of the
/// over-provisioning. Assumed.
const SUPERBLOCKS_MIN: u64 = 512;

/// Bytes that a trace touches, in regions of 1 MiB that belong to one volume. Reads all of it.
pub fn touched_bytes(path: &Path, options: &Trace) -> Result<u64> {
    let mut reader = Reader::open(path, options)?;
    let mut fitting = Fitting::new(Fit::Compact, u64::MAX);
    while let Some(record) = reader.record()? {
        let (mut offset, mut left) = (record.offset, record.bytes);
        while left > 0 {
            let ((_, bytes), rest) = fitting.piece(record.volume, offset, left);
            offset += u64::from(bytes);
            left = rest;
        }
    }
    Ok(fitting.touched())
}

/// Gives a drive `user_bytes` for the host, and flash for that and a nominal over-provisioning of
/// `op`. Erase blocks become smaller or larger and erases faster or slower with them; the number of
/// superblocks stays about the same. A drive with too few of them gets fewer dies.
pub fn size_drive(config: &mut Config, user_bytes: u64, op: f64) -> Result<()> {
    within("--fit", op * 100.0, 0.0, 1e4)?;
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "saturates at more than any drive has, and is refused there"
    )]
    let raw_bytes = (user_bytes as f64 * (1.0 + op)).ceil() as u64;
    let flash = &mut config.flash;
    while raw_bytes / flash.stripe_bytes() < SUPERBLOCKS_MIN && flash.dies_per_channel > 1 {
        flash.dies_per_channel = flash.dies_per_channel.div_ceil(2);
    }
    while raw_bytes / flash.stripe_bytes() < SUPERBLOCKS_MIN && flash.channels > 1 {
        flash.channels = flash.channels.div_ceil(2);
    }
    let stripe = flash.stripe_bytes();
    let programs = (raw_bytes / (u64::from(flash.superblocks) * stripe)).clamp(1, 1 << 16);
    let (of_zone, spare) = match config.drive.kind {
        Kind::Zns => (u64::from(config.zones.superblocks), u64::from(config.zones.spare)),
        Kind::Conventional | Kind::Fdp => (1, 0),
    };
    let superblocks = raw_bytes.div_ceil(programs * stripe * of_zone) * of_zone + spare;
    let narrow = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    *flash = Flash { superblocks: narrow(superblocks), ..flash.shrunk(narrow(programs)) };
    config.zones.size = Size(0); // the capacity is another one now
    config.drive.user = Some(Size(user_bytes));
    config.drive.op = op;
    config.check().map_err(|error| of_fit(error, op))
}

/// An error about a drive that was sized for a nominal over-provisioning of `op`: it names `--fit`,
/// which the user gave, and not the field that follows from it.
pub fn of_fit(error: SimError, op: f64) -> SimError {
    let SimError::Field { field, value, allowed } = error else { return error };
    let percent = (op * 1e6).round() / 1e4;
    let allowed = match field {
        "drive.user" => {
            let more = (2.0 * percent).ceil().max(7.0);
            format!(
                "the trace takes {value}, and a drive of this size holds {allowed}; more \
                 over-provisioning leaves more, so try `--fit {more}%`"
            )
        }
        "flash.superblocks" => format!(
            "the drive would have {value} superblocks, and a drive has {allowed}; smaller erase \
             blocks or fewer dies make more of them, larger ones fewer"
        ),
        _ => return SimError::Field { field, value, allowed },
    };
    SimError::Field { field: "--fit", value: format!("{percent}%"), allowed }
}
