//! Compares Zonal with a real Linux kernel, in a virtual machine: `cargo xtask vm`.
//!
//! Debian's newest backported kernel with a few programs runs in QEMU, so the comparison does not
//! depend on the kernel of the host. The parts of the machine come from the host's Debian mirror
//! and are kept under `target/vm`.
//!
//! - [`host`] makes the machine's image and boots it: the program `kernel-tests`.
//! - [`guest`] runs in it, in subjects, each a few checks: the program `kernel-tests-guest`.
//! - `calls` makes random calls on a mounted zonefs; their answers are compared, ours with the
//!   kernel's.
//! - `drives` are the drives that every machine has.

#![deny(unsafe_code)]
#![expect(clippy::print_stdout, reason = "two command-line programs: their output is their result")]

mod calls;
mod drives;
pub mod guest;
pub mod host;
