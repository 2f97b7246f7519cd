//! A host that has no space left below a drive file.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

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

const PAGE: u64 = 4096;

/// A file of a host with few pages.
struct SmallHost {
    file: HostFile,
    taken: Mutex<BTreeSet<u64>>,
    pages: usize,
}

impl SmallHost {
    fn take(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut taken = self.taken.lock().unwrap();
        for page in offset / PAGE..(offset + len).div_ceil(PAGE) {
            if !taken.contains(&page) && taken.len() == self.pages {
                return Err(Errno::NOSPC.into());
            }
            taken.insert(page);
        }
        Ok(())
    }
}

impl Backing for SmallHost {
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_at(offset, buffer)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.take(offset, data.len() as u64)?;
        self.file.write_at(offset, data)
    }
    fn write_durable_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.write_at(offset, data)
    }
    fn sync(&self) -> io::Result<()> {
        self.file.sync()
    }
    fn zero(&self, offset: u64, len: u64) -> io::Result<()> {
        self.punch(offset, len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let pages = offset / PAGE..(offset + len) / PAGE;
        self.taken.lock().unwrap().retain(|page| !pages.contains(page));
        self.file.punch(offset, len)
    }
    fn free_space(&self) -> io::Result<u64> {
        Ok((self.pages - self.taken.lock().unwrap().len()) as u64 * PAGE)
    }
    fn allocate(&self, end: u64, len: u64) -> io::Result<()> {
        self.take(end, len)
    }
    fn cut(&self, end: u64) -> io::Result<()> {
        self.taken.lock().unwrap().retain(|page| *page < end.div_ceil(PAGE));
        Ok(())
    }
}

#[test]
fn reserve_lets_drive_write_until_reset_gives_space_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.zns");
    create(&path);
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    // The tables that a creation allocates, and less data than the drive holds.
    let pages = usize::try_from((Layout::new(&description()).data_at + (8 << 20)) / PAGE).unwrap();
    let host = SmallHost { file: HostFile(file), taken: Mutex::default(), pages };
    host.take(0, Layout::new(&description()).data_at).unwrap();
    let backing = Box::new(host);
    let drive = FileDrive::open_on(backing, &path, OpenMode::ReadWrite, Some([1; 16])).unwrap();
    let is_full = |outcome| match outcome {
        Ok(()) => false,
        Err(DeviceError::NoSpace { .. }) => true,
        Err(error) => panic!("{error}"),
    };
    drive.keep_reserve().unwrap();
    let block = [7; 4096];
    let append = |zone: ZoneId| match drive.append(zone, &block) {
        Ok(_) => Ok(()),
        Err(error) => Err(error),
    };
    let mut zones = drive.geometry().zones().filter(|zone| zone.get() > 1);
    let mut filled = vec![zones.next().unwrap()];
    while !is_full(append(filled[filled.len() - 1])) {
        let zone = drive.zone(filled[filled.len() - 1]).unwrap();
        if zone.cond == ZoneCond::Full {
            filled.push(zones.next().unwrap());
        }
    }
    let last = filled[filled.len() - 1];
    assert!(is_full(drive.keep_reserve()), "the reserve is all that is left");
    assert!(is_full(append(last)), "the reserve is not for this");
    drive.use_reserve().unwrap();
    append(last).unwrap();
    assert!(is_full(drive.keep_reserve()), "a part of it is used");
    append(last).unwrap();
    // A reset gives the space back once it is durable.
    drive.manage(Select::One(filled[0]), ZoneAction::Reset).unwrap();
    assert!(is_full(drive.keep_reserve()));
    drive.flush().unwrap();
    drive.keep_reserve().unwrap();
}

#[test]
fn reserve_lies_beyond_end_of_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.zns");
    create(&path);
    let len = path.metadata().unwrap().len();
    let taken = || path.metadata().unwrap().blocks() * 512;
    let before = taken();
    // The second process finds it.
    for _ in 0..2 {
        let drive = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
        drive.keep_reserve().unwrap();
        let spec = *drive.geometry().spec();
        let capacity = u64::from(drive.geometry().zone_count()) * spec.zone_capacity.get() * PAGE;
        assert!(taken() >= before + capacity / 16, "{} bytes", taken() - before);
    }
    assert_eq!(path.metadata().unwrap().len(), len);
    let drive = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    drive.use_reserve().unwrap();
    assert!(taken() <= before + PAGE, "{} bytes", taken() - before);
}
