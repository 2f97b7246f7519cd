//! `libzonal_fio.so`: an I/O engine of fio, `ioengine=external:libzonal_fio.so`.
//!
//! `filename` is a device specification, with each colon as `\:`. fio's zone mode, `zonemode=zbd`,
//! gets the zones from the engine, so it works on drives in memory and in files, and with zone
//! sizes that are no powers of two. `docs/guide/lab/fio.md` says how it is used.
//!
//! fio has no stable interface for engines: structures differ between releases, and a library can
//! announce one version only. So [`abi`] has a table of releases. [`get_ioengine`] asks the running
//! fio for its version, and gives no engine to a release that is not in the table.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `error` | what fails, with the numbers that fio gets | |
//! | `edge` | messages, errors and panics between fio and Rust | `error` |
//! | `abi` | the structures of fio, for each release that we know | `edge` |
//! | `pool` | threads that perform requests | all above |
//! | `drives` | the open devices of the process | all above |
//! | `job` | the jobs, and their requests in flight | all above |
//! | `zones` | the calls of fio for zones | all above |
//! | `engine` | the other calls of fio, and the table in which it finds all | all above |

#![cfg(target_pointer_width = "64")]
#![allow(unsafe_code, reason = "fio calls, and its structures are read and written")]

pub mod abi;
mod drives;
mod edge;
mod engine;
mod error;
mod job;
mod pool;
mod zones;

use std::ffi::c_void;
use std::ptr;
use std::sync::atomic::{AtomicPtr, Ordering};

/// The engine's table of functions, in the form of the running fio.
static ENGINE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// fio asks for the engine.
///
/// # Safety
///
/// `engine` is valid for writing.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn get_ioengine(engine: *mut *mut c_void) {
    let mut table = ENGINE.load(Ordering::Acquire);
    if table.is_null() {
        match abi::running() {
            Ok(layout) => {
                drives::loaded();
                table = Box::leak(engine::table(layout).into_boxed_slice()).as_mut_ptr().cast();
                ENGINE.store(table, Ordering::Release);
            }
            Err(error) => edge::say(&error.to_string()),
        }
    }
    // SAFETY: the caller says so.
    unsafe { engine.write(table) };
}
