//! A host that has no space left below a drive file.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::backing::{Backing, HostFile};
use super::super::format::{self, Description, Layout};
use super::super::{CreateOptions, FileDrive, OpenMode, Overwrite};
use crate::error::Errno;
use crate::{
    DeviceError, Geometry, LbaCount, Profile, Rules, Select, ZoneAction, ZoneCond, ZoneId,
    ZonedDevice,
};

/// A file whose host can be full: then it takes half of each write to the data area.
struct Filling {
    file: HostFile,
    data_at: u64,
    full: Arc<AtomicBool>,
}

impl Backing for Filling {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if offset >= self.data_at && self.full.load(Ordering::Relaxed) {
            self.file.write_at(offset, &data[..data.len() / 2])?;
            return Err(Errno::NOSPC.into());
        }
        self.file.write_at(offset, data)
    }
    fn write_durable_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.file.write_durable_at(offset, data)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.zero(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.punch(offset, len)
    }
}

fn description() -> Description {
    let geometry = Geometry::new(Profile::Small.geometry()).unwrap();
    Description { geometry, rules: Rules::Zns, uuid: [4; 16], journal_len: format::JOURNAL_LEN }
}

fn create(path: &Path) {
    let geometry = *description().geometry.spec();
    let overwrite = Overwrite::Refuse;
    let options = CreateOptions { geometry, rules: Rules::Zns, uuid: [4; 16], overwrite };
    FileDrive::create(path, &options).unwrap();
}

#[test]
fn host_full_is_reported_and_spares_zone_condition() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.zns");
    create(&path);
    let full = Arc::new(AtomicBool::new(false));
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let data_at = Layout::new(&description()).data_at;
    let backing = Box::new(Filling { file: HostFile(file), data_at, full: Arc::clone(&full) });
    let drive = FileDrive::open_on(backing, &path, OpenMode::ReadWrite, Some([1; 16])).unwrap();
    let [empty, closed, open] = [1, 2, 3].map(ZoneId::new);
    drive.append(closed, &[2; 8192]).unwrap();
    drive.manage(Select::One(closed), ZoneAction::Close).unwrap();
    drive.append(open, &[3; 8192]).unwrap();
    let before = drive.report_all().unwrap();
    assert_eq!(before[2].cond, ZoneCond::Closed);

    full.store(true, Ordering::Relaxed);
    let whole = vec![7; 768 << 10];
    for zone in [empty, closed, open] {
        let error = drive.append(zone, &[7; 8192]).unwrap_err();
        assert!(matches!(error, DeviceError::NoSpace { .. }), "{error}");
        assert_eq!(error.errno(), Errno::NOSPC);
    }
    let start = drive.geometry().zone_start(empty);
    assert!(matches!(drive.write(start, &whole), Err(DeviceError::NoSpace { .. })));
    assert_eq!(drive.report_all().unwrap(), before);
    drive.flush().unwrap();

    full.store(false, Ordering::Relaxed);
    assert_eq!(drive.append(open, &[4; 4096]).unwrap(), before[3].start + LbaCount::new(2));
    drive.write(start, &whole).unwrap();
    let mut back = vec![0; 3 * 4096];
    drive.read(before[3].start, &mut back).unwrap();
    assert!(back == [[3; 4096], [3; 4096], [4; 4096]].concat());
}

#[test]
fn drive_creation_allocates_its_tables() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.zns");
    create(&path);
    let taken = path.metadata().unwrap().blocks() * 512;
    let data_at = Layout::new(&description()).data_at;
    assert!(taken >= data_at, "{taken} bytes of {data_at}");
}
