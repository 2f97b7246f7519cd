//! Mounts that this process serves, with a drive that a test can hold or let panic.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, mpsc};
use std::thread::{self, JoinHandle};

use zonal::spec::Stack;
use zonal::{Clock, DeviceError, FileDrive, Lba, OpenMode, SystemClock, ZoneId, ZonedDevice};
use zonal_fs::furrow::{Furrow, MountOptions};
use zonal_fuse::control::Control;
use zonal_fuse::latency::Latencies;
use zonal_fuse::{MountConfig, MountContent};

use crate::Place;

/// Whether writes wait.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn close(&self) {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = true;
    }

    fn open(&self) {
        *self.is_closed.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let closed = self.is_closed.lock().unwrap_or_else(PoisonError::into_inner);
        drop(self.changed.wait_while(closed, |closed| *closed));
    }
}

struct Held {
    below: FileDrive,
    gate: Arc<Gate>,
    panics: Arc<AtomicBool>,
}

impl Held {
    fn pass(&self) {
        self.gate.pass();
        assert!(!self.panics.load(Ordering::SeqCst), "a write that panics");
    }
}

impl ZonedDevice for Held {
    zonal::pass_on!(below: geometry, report, manage, flush);

    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<(), DeviceError> {
        self.below.read(lba, buffer)
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<(), DeviceError> {
        self.pass();
        self.below.write(lba, data)
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba, DeviceError> {
        self.pass();
        self.below.append(zone, data)
    }
}

/// A mount of this process. Dropped, it lets the drive go on and ends.
struct Served {
    place: Place,
    gate: Arc<Gate>,
    panics: Arc<AtomicBool>,
    server: Option<JoinHandle<()>>,
}

impl Served {
    fn start() -> Option<Self> {
        let place = Place::mountable()?;
        place.make();
        let (gate, panics) = (Arc::new(Gate::default()), Arc::new(AtomicBool::new(false)));
        let below = FileDrive::open(place.path("drive.zns"), OpenMode::ReadWrite).unwrap();
        let held = Held { below, gate: Arc::clone(&gate), panics: Arc::clone(&panics) };
        let device: Arc<dyn ZonedDevice> = Arc::new(held);
        let (point, source) = (place.path("mnt"), place.path("drive.zns"));
        let (sender, receiver) = mpsc::channel();
        let server = thread::spawn(move || {
            serve(&device, &point, source.to_str().unwrap(), &sender);
        });
        receiver.recv().expect("the mount is ready");
        Some(Self { place, gate, panics, server: Some(server) })
    }
}

fn serve(device: &Arc<dyn ZonedDevice>, point: &Path, source: &str, ready: &mpsc::Sender<()>) {
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
    let options = MountOptions::default();
    let fs = Arc::new(Furrow::mount(Arc::clone(device), Arc::clone(&clock), options).unwrap());
    let config = MountConfig::new(source, point);
    let latencies = Arc::new(Latencies::new(Arc::clone(&clock)));
    let stack = Stack::of_device(Arc::clone(device));
    let control =
        Control::new(Arc::clone(&fs), &stack, config.clone(), Arc::clone(&latencies), &*clock);
    let content = MountContent { fs, control: Some(Arc::new(control)), latencies };
    // After a panic the file system cannot be closed cleanly.
    let _ = zonal_fuse::serve(content, &config, |_| ready.send(()).unwrap());
}

impl Drop for Served {
    fn drop(&mut self) {
        self.gate.open();
        let point = self.place.path("mnt");
        let _ = zonal_fuse::unmount::detach(&point, rustix::mount::UnmountFlags::DETACH);
        if let Some(server) = self.server.take() {
            let _ = server.join();
        }
    }
}

#[test]
fn hung_drive_is_named() {
    let Some(served) = Served::start() else { return };
    let point = served.place.path("mnt");
    fs::write(point.join("before"), "before").unwrap();
    fs::File::open(point.join("before")).unwrap().sync_all().unwrap();
    served.gate.close();
    let file = point.join("file");
    let writer = thread::spawn(move || {
        fs::write(&file, vec![1; 4 << 20]).unwrap();
        fs::File::open(&file).unwrap().sync_all().unwrap();
    });
    zonal::wait::wait_until(|| {
        let stats = fs::read_to_string(point.join(".zonal/stats")).unwrap();
        let stats: serde_json::Value = serde_json::from_str(&stats).unwrap();
        stats["live"]["space"]["in_flight_blocks"].as_u64() > Some(0)
    });
    served.place.names("mnt", "a hung drive");
    served.gate.open();
    writer.join().unwrap();
    served.place.is_well("mnt");
}

#[test]
fn panicked_mount_is_named() {
    let Some(served) = Served::start() else { return };
    served.panics.store(true, Ordering::SeqCst);
    let path = served.place.path("mnt/file");
    let written =
        fs::write(&path, vec![1; 1 << 20]).and_then(|()| fs::File::open(&path)?.sync_all());
    assert!(written.is_err());
    served.place.names("mnt", "its daemon has panicked: a write that panics");
}
