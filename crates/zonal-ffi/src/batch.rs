//! Several requests to a device in one call.

use std::ops::Range;

use rustix::io::Errno;
use zonal::{Io, Op};

use crate::device::ZonalDevice;
use crate::edge::{self, Failure, Outcome};
use crate::types::{ZONAL_IO_APPEND, ZONAL_IO_FLUSH, ZONAL_IO_READ, ZONAL_IO_WRITE, ZonalIo};

/// Performs `nr_ios` requests, in parallel as far as the device can, and returns how many of them
/// succeeded. Each gets a `result`: the return value of the single call. A request that fails stops
/// no other; `zonal_last_error` is about the first one that failed.
///
/// Writes to one zone are done in the order of the array. Appends go wherever their results say,
/// and other requests have no order: of blocks that the same batch writes, a read may give the old
/// or the new. A flush makes the requests before it durable, and the requests after it wait for it.
///
/// Errors, with which no request was performed: `-EINVAL` where a buffer of a read overlaps another
/// buffer of the batch, or the array itself. In a `result`: those of `zonal_read`, `zonal_write`,
/// `zonal_append` and `zonal_flush`; `-EINVAL` for an unknown `op` and for flags.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zonal_submit(
    device: *const ZonalDevice,
    ios: *mut ZonalIo,
    nr_ios: usize,
) -> i64 {
    edge::count(|| {
        // SAFETY: the caller's part of the contract.
        let device = unsafe { edge::borrow(device, "the device") }?;
        // SAFETY: the caller's part of the contract.
        let ios = unsafe { edge::array(ios, nr_ios, "the requests") }?;
        check_overlaps(ios)?;
        let mut outcomes = Vec::with_capacity(ios.len());
        let mut batch = Vec::with_capacity(ios.len());
        for io in &mut *ios {
            // Until it has another one, in case of a panic.
            io.result = -i64::from(Errno::IO.raw_os_error());
            // SAFETY: the caller's part of the contract; no buffer that is filled overlaps another.
            let op = unsafe { op(device, io) };
            outcomes.push(op.map(|op| batch.push(Io::new(op))));
        }
        device.device().submit(&mut batch);
        let mut performed = batch.into_iter();
        let mut succeeded = 0;
        let mut first_failure = None;
        for (io, outcome) in ios.iter_mut().zip(outcomes) {
            let at = outcome.and_then(|()| {
                let performed =
                    performed.next().expect("each request that is well formed is in it");
                Ok(performed.outcome()?)
            });
            match at {
                Ok(at) => {
                    io.result = match io.op {
                        ZONAL_IO_APPEND => device.byte(at).cast_signed(),
                        ZONAL_IO_FLUSH => 0,
                        _ => i64::try_from(io.count).expect("a buffer is smaller than memory"),
                    };
                    succeeded += 1;
                }
                Err(failure) => {
                    io.result = failure.code();
                    first_failure.get_or_insert(failure);
                }
            }
        }
        if let Some(failure) = first_failure {
            failure.remember();
        }
        Ok(succeeded)
    })
}

/// The operation that a request asks for.
///
/// # Safety
///
/// Its buffer is valid as long as the result is used: the buffer of a read is not accessed
/// otherwise meanwhile, the buffer of another request stays unchanged.
unsafe fn op<'a>(device: &ZonalDevice, io: &ZonalIo) -> Outcome<Op<'a>> {
    if io.flags != 0 {
        return Err(Failure::new(Errno::INVAL, "flags of a request, which has none"));
    }
    if matches!(io.op, ZONAL_IO_WRITE | ZONAL_IO_APPEND) {
        device.may_change()?;
    }
    Ok(match io.op {
        ZONAL_IO_READ => {
            // SAFETY: the caller says so.
            let buffer = unsafe { edge::buffer(io.buf, io.count) }?;
            Op::Read { lba: device.block(io.ofst)?, buffer }
        }
        ZONAL_IO_WRITE => {
            // SAFETY: the caller says so.
            let data = unsafe { edge::data(io.data, io.count) }?;
            Op::Write { lba: device.block(io.ofst)?, data }
        }
        ZONAL_IO_APPEND => {
            // SAFETY: the caller says so.
            let data = unsafe { edge::data(io.data, io.count) }?;
            Op::Append { zone: device.zone_at(io.ofst)?, data }
        }
        ZONAL_IO_FLUSH => Op::Flush,
        op => return Err(Failure::new(Errno::INVAL, format!("{op} is no request"))),
    })
}

/// Memory that a batch uses.
struct Span {
    bytes: Range<usize>,
    changes: Changes,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Changes {
    Yes,
    No,
}

/// Refuses a batch in which the buffer of a read shares memory with another buffer, or with the
/// array: Rust code that fills a buffer must have it alone.
fn check_overlaps(ios: &[ZonalIo]) -> Outcome<()> {
    let array = ios.as_ptr_range();
    let array = Span { bytes: array.start.addr()..array.end.addr(), changes: Changes::Yes };
    let buffers = ios.iter().filter_map(|io| {
        let (start, changes) = match io.op {
            ZONAL_IO_READ => (io.buf.addr(), Changes::Yes),
            ZONAL_IO_WRITE | ZONAL_IO_APPEND => (io.data.addr(), Changes::No),
            _ => return None,
        };
        // A buffer of no bytes overlaps nothing, and `op` refuses one that is NULL or too long.
        let end = start.checked_add(io.count)?;
        (start > 0 && end > start).then_some(Span { bytes: start..end, changes })
    });
    let mut spans: Vec<Span> = buffers.chain([array]).collect();
    spans.sort_by_key(|span| span.bytes.start);
    let (mut end, mut changed_end) = (0, 0);
    for Span { bytes, changes } in spans {
        let taken = if changes == Changes::Yes { end } else { changed_end };
        if bytes.start < taken {
            let text = "a buffer that a read fills overlaps another one of the batch";
            return Err(Failure::new(Errno::INVAL, text));
        }
        end = end.max(bytes.end);
        if changes == Changes::Yes {
            changed_end = changed_end.max(bytes.end);
        }
    }
    Ok(())
}
