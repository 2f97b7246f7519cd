//! Devices of the kernel without Zonal's additions: every request goes to the kernel as it is, and
//! every failure comes back. It serves programs that test a device.
//!
//! [`crate::BlockDrive`], [`crate::PassthroughDrive`] and [`crate::ScsiDrive`] check requests
//! before they send them, read zeroes where nothing is written, and make appends of writes.

pub use crate::block::raw::RawBlock;
pub use crate::passthrough::raw::RawNamespace;
pub use crate::scsi::raw::RawScsi;
