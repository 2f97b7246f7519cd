//! The native half of `import zonal`: devices, volumes and simulations for Python.
//!
//! The package is `python/zonal`: it wraps `RawFile` as a file of Python's `io`, and has the names
//! that programs use. This module, `zonal._zonal`, is the part that has to be Rust.
//!
//! | module | question |
//! | --- | --- |
//! | `device`, `batch` | how are zones read, written and managed? |
//! | `make` | how do drives and file systems come to be? |
//! | `volume`, `file` | how are files used without a mount? |
//! | `sim` | how does a simulation run, and how is it watched? |
//! | `edge` | how do errors, bytes and paths cross between Python and Rust? |
//!
//! Rules for all of it:
//!
//! - Places and lengths are bytes. A zone is named by its number.
//! - A failure raises `zonal.Error`, an `OSError` with `errno` and `strerror`.
//! - The interpreter's lock is free while a device works, and while a simulation runs.
//! - No misuse ends the interpreter: a closed handle answers `EBADF`, and a panic of Rust becomes
//!   `EIO`. All objects may be used from any thread.

#![forbid(unsafe_code)]
#![allow(clippy::needless_pass_by_value, reason = "arguments come from Python by value")]
#![allow(clippy::doc_markdown, reason = "Python shows these comments as they are")]

mod batch;
mod device;
mod edge;
mod file;
mod make;
mod sim;
mod volume;

use pyo3::prelude::*;

/// The native half of the package `zonal`.
#[pymodule]
mod _zonal {
    #[pymodule_export]
    use crate::batch::Io;
    #[pymodule_export]
    use crate::device::Device;
    #[pymodule_export]
    use crate::file::RawFile;
    #[pymodule_export]
    use crate::make::{create, mkfs};
    #[pymodule_export]
    use crate::sim::{config_text, configs, preset, run_config, run_experiment};
    #[pymodule_export]
    use crate::volume::Volume;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python has this name for it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
}
