//! The device that is checked, and by which interface it is reached.

use zonal::error::Result;
use zonal::nvme::decode::ReportCount;
use zonal::{Lba, LbaCount, Rules, Zone, ZoneCond, ZonedDevice};
use zonal_linux::raw::{RawNamespace, RawScsi};

/// By which interface a device is reached: it decides which requests can be made, and which errors
/// come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interface {
    /// A device of this process: a drive file, an emulated drive, layers.
    Library,
    /// A zoned block device of the kernel: no appends, an errno for each failure.
    Block,
    /// NVMe commands: every status is visible.
    Nvme,
    /// SCSI or ATA commands: no appends, and sense data for each failure.
    Scsi,
}

impl Interface {
    /// Its name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Library => "library",
            Self::Block => "block device",
            Self::Nvme => "NVMe commands",
            Self::Scsi => "SCSI commands",
        }
    }
}

/// A report of zones in one condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilteredReport {
    /// The number of zones that the header states.
    pub count: u64,
    /// The zones that are in the report.
    pub zones: Vec<Zone>,
}

/// Reports with a filter, for devices whose interface has them.
pub trait Filters {
    /// Reports zones in condition `only`, from the zone that holds `first` on, with room for `room`
    /// zones.
    fn filtered(
        &self,
        first: Lba,
        only: Option<ZoneCond>,
        count: ReportCount,
        room: usize,
    ) -> Result<FilteredReport>;
}

macro_rules! filters_of {
    ($($device:ty),+) => {$(
        impl Filters for $device {
            fn filtered(
                &self,
                first: Lba,
                only: Option<ZoneCond>,
                count: ReportCount,
                room: usize,
            ) -> Result<FilteredReport> {
                let (count, zones) = self.filtered_report(first, only, count, room)?;
                Ok(FilteredReport { count, zones })
            }
        }
    )+};
}
filters_of!(RawNamespace, RawScsi);

/// A device to be checked.
pub struct Target<'a> {
    /// As the command line names it.
    pub name: &'a str,
    /// The device.
    pub device: &'a dyn ZonedDevice,
    /// How it is reached.
    pub interface: Interface,
    /// Whose rules it follows where NVMe and SCSI differ.
    pub rules: Rules,
    /// Most blocks of one write.
    pub transfer: LbaCount,
    /// Filters of reports, where the interface has them.
    pub filters: Option<&'a dyn Filters>,
}
