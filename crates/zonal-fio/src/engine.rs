//! The functions that fio calls, except the ones about zones, and the table in which it finds them.
//!
//! fio calls for a job from the thread of that job. Before, it calls `get_file_size` and asks for
//! the zones of the files from its main thread; the jobs may be processes that it forks afterwards.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::ptr;

use crate::abi::{Direction, File, Layout, Thread, Unit};
use crate::drives::{self, Access, Drive};
use crate::edge;
use crate::error::{Error, Result};
use crate::job::{JOBS, Job, opened, with_job};
use crate::zones;

const NAME: &CStr = c"zonal";

/// `enum fio_ioengine_flags`, in all releases of the table: it wants aligned buffers like raw
/// devices; fio is to leave the files alone, neither extend them nor look for their disk; a trim is
/// done when `queue` returns.
const FLAGS: usize = 1 << 1 | 1 << 2 | 1 << 3 | 1 << 4 | 1 << 9 | 1 << 14;

/// `enum fio_q_status`.
const COMPLETED: c_int = 0;
const QUEUED: c_int = 1;

/// `struct ioengine_ops` of a release, field by field.
pub(crate) fn table(layout: &Layout) -> Vec<*const c_void> {
    let none = ptr::null::<c_void>();
    let version = usize::try_from(layout.version).expect("versions count from 1");
    // Two integers of 32 bits, the version at the lower address.
    let numbers =
        if cfg!(target_endian = "little") { FLAGS << 32 | version } else { version << 32 | FLAGS };
    let details = if layout.version < 36 {
        details_of_unit as *const c_void
    } else {
        details as *const c_void
    };
    let mut fields = vec![none, none, NAME.as_ptr().cast(), ptr::without_provenance(numbers)];
    // dlhandle, setup; then post_init, prep.
    fields.extend([none, none, init as *const c_void, none, none]);
    fields.extend([queue as *const c_void, commit as *const c_void, getevents as *const c_void]);
    fields.extend([event as *const c_void, details]);
    if layout.version < 39 {
        // cancel.
        fields.push(none);
    }
    fields.extend([cleanup as *const c_void, open_file as *const c_void]);
    // invalidate comes between.
    fields.extend([close_file as *const c_void, none, unlink_file as *const c_void]);
    fields.push(get_file_size as *const c_void);
    // prepopulate_file, terminate, iomem_alloc, iomem_free; io_u_free at the end.
    fields.extend([none, none, none, none, io_u_init as *const c_void, none]);
    fields.extend([zones::get_zoned_model as *const c_void, zones::report_zones as *const c_void]);
    fields.push(zones::reset_wp as *const c_void);
    if layout.version >= 37 {
        fields.push(zones::move_zone_wp as *const c_void);
    }
    fields.push(zones::get_max_open_zones as *const c_void);
    if layout.version >= 33 {
        fields.push(zones::get_max_active_zones as *const c_void);
    }
    if layout.version >= 32 {
        // fdp_fetch_ruhs at the end.
        fields.extend([zones::finish_zone as *const c_void, none]);
    }
    // option_struct_size, options.
    fields.extend([none, none]);
    fields
}

/// fio calls it before anything else for a file, and before it forks jobs.
extern "C" fn get_file_size(thread: Thread, file: File) -> c_int {
    edge::number(|| {
        let spec = file.name().ok_or(Error::Name)?;
        let drive = drives::look(&spec, Access::Read)?;
        drives::will_be_opened(thread, &spec);
        let geometry = drive.device().geometry();
        file.set_size(geometry.bytes(geometry.block_count()).get());
        Ok(0)
    })
}

fn access(thread: Thread) -> Access {
    if thread.writes() { Access::Write } else { Access::Read }
}

/// A job begins, and opens its devices. An error from here ends the job, and in the end fio; fio
/// says nothing about a file that cannot be opened.
extern "C" fn init(thread: Thread) -> c_int {
    let opened = edge::number(|| {
        let drives = drives::named(thread)
            .iter()
            .map(|spec| drives::open(spec, access(thread)))
            .collect::<Result<Vec<_>>>()?;
        with_job(thread, |job| job.hold(drives));
        Ok(0)
    });
    -opened
}

extern "C" fn open_file(thread: Thread, file: File) -> c_int {
    edge::number(|| {
        let spec = file.name().ok_or(Error::Name)?;
        let drive = drives::open(&spec, access(thread))?;
        with_job(thread, |job| job.open(file, drive));
        Ok(0)
    })
}

/// The drive stays open: fio closes files between the phases of a job.
extern "C" fn close_file(_thread: Thread, _file: File) -> c_int {
    0
}

extern "C" fn unlink_file(_thread: Thread, _file: File) -> c_int {
    -edge::number(|| Err(Error::Unlink))
}

/// fio calls it once for each request that may be in flight.
extern "C" fn io_u_init(thread: Thread, _unit: Unit) -> c_int {
    with_job(thread, Job::deepen);
    0
}

extern "C" fn queue(thread: Thread, unit: Unit) -> c_int {
    let queued = edge::guard(|| {
        let drive = opened(thread, unit.file()).ok_or(Error::NotOpen)?;
        match unit.direction() {
            Direction::Trim => trim(thread, unit, &drive).map(|()| COMPLETED),
            Direction::Read | Direction::Write | Direction::Sync => {
                with_job(thread, |job| job.queue(drive, unit));
                Ok(QUEUED)
            }
        }
    });
    queued.unwrap_or_else(|error| {
        // Of requests that are not in flight fio prints the number of the error alone. `reset_wp`
        // has said why fio's own trim has failed.
        if !matches!(error, Error::Trim(_)) {
            edge::say(&error.to_string());
        }
        unit.fail(error.errno());
        COMPLETED
    })
}

/// In zone mode fio resets the zone, by our function, and keeps its own account of it.
fn trim(thread: Thread, unit: Unit, drive: &Drive) -> Result<()> {
    /// `zbd.h`: `int zbd_do_io_u_trim(struct thread_data *, struct io_u *)`.
    type Trim = unsafe extern "C" fn(Thread, Unit) -> c_int;
    if !unit.file().has_zones() {
        return zones::trim(drive, unit.offset(), unit.length());
    }
    let name = "zbd_do_io_u_trim";
    let trim = edge::symbol(c"zbd_do_io_u_trim").ok_or(Error::Absent(name))?;
    // SAFETY: it is declared so in all releases of the table.
    let trim: Trim = unsafe { std::mem::transmute(trim) };
    // SAFETY: fio has given both.
    match unsafe { trim(thread, unit) } {
        // No write pointer: fio has done nothing.
        0 => zones::trim(drive, unit.offset(), unit.length()),
        errno if errno < 0 => Err(Error::Trim(-errno)),
        _ => Ok(()),
    }
}

extern "C" fn commit(thread: Thread) -> c_int {
    edge::number(|| {
        with_job(thread, Job::commit);
        Ok(0)
    })
}

/// fio gives a time only with a minimum of zero requests, and then it is zero.
extern "C" fn getevents(thread: Thread, min: c_uint, max: c_uint, _time: *const c_void) -> c_int {
    edge::number(|| {
        let count = with_job(thread, |job| job.reap(min as usize, max as usize))?;
        Ok(c_int::try_from(count).unwrap_or(c_int::MAX))
    })
}

extern "C" fn event(thread: Thread, index: c_int) -> Unit {
    let index = usize::try_from(index).unwrap_or(usize::MAX);
    with_job(thread, |job| job.reaped(index)).unwrap_or(Unit::NONE)
}

/// The text that fio prints below its own line about a failed request. fio frees it.
extern "C" fn details(thread: Thread, unit: Unit) -> *mut c_char {
    text_of(with_job(thread, |job| job.take_failure(unit)))
}

/// The same, in releases that do not say whose request it is: of this thread's jobs.
extern "C" fn details_of_unit(unit: Unit) -> *mut c_char {
    let find =
        |jobs: &mut BTreeMap<Thread, Job>| jobs.values_mut().find_map(|job| job.take_failure(unit));
    text_of(JOBS.with_borrow_mut(find))
}

fn text_of(text: Option<String>) -> *mut c_char {
    let text = text.unwrap_or_else(|| "the request failed".to_owned());
    let text = CString::new(text).unwrap_or_default();
    // SAFETY: it ends in a zero byte.
    unsafe { libc::strdup(text.as_ptr()) }
}

extern "C" fn cleanup(thread: Thread) {
    drop(JOBS.with_borrow_mut(|jobs| jobs.remove(&thread)));
    drives::release();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi;

    /// `offsetof` and `sizeof`, as a C compiler printed them for each release.
    #[test]
    fn engine_table_layout_matches_each_release() {
        for (name, cleanup_at, limit_at, size) in [
            ("fio-3.28", 120, 240, 264),
            ("fio-3.33", 120, 240, 264),
            ("fio-3.34", 120, 240, 280),
            ("fio-3.36", 120, 240, 288),
            ("fio-3.39", 120, 240, 288),
            ("fio-3.40", 120, 248, 296),
            ("fio-3.41", 112, 240, 288),
            ("fio-3.42", 112, 240, 288),
        ] {
            let fields = table(&abi::release(name).unwrap());
            assert_eq!(fields.len() * 8, size, "{name}");
            assert_eq!(fields[9], queue as *const c_void, "{name}");
            assert_eq!(fields[cleanup_at / 8], cleanup as *const c_void, "{name}");
            let limit = zones::get_max_open_zones as *const c_void;
            assert_eq!(fields[limit_at / 8], limit, "{name}");
        }
    }
}
