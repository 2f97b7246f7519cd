//! Zoned SCSI and SATA disks: the formats of commands and answers.

pub mod ata;
pub mod cdb;
pub mod inquiry;
pub mod number;
pub mod sense;
pub mod zones;
