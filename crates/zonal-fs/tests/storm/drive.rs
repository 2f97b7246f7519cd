//! The simulated drive: a recorder of all changes, at whose calls threads take turns, with faults.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use zonal::image::Image;
use zonal::layer::record::Recorder;
use zonal::{DeviceError, Lba, LbaCount, Select, ZoneAction, ZoneFailure, ZoneId, ZonedDevice};
use zonal_fs::furrow::sync::pass;

use crate::node::mix;

type Result<T> = std::result::Result<T, DeviceError>;

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A call of any kind says EIO.
    Any,
    /// A flush does.
    Flush,
    /// A write does.
    Write,
    /// Writes find that the host has no space.
    HostIsFull,
    /// The zone of a write becomes read-only.
    ZoneFails,
    /// A read says EIO.
    Read,
    /// A read of about half of the zones does.
    ReadOfZones,
}

impl Fault {
    /// Whether only reads fail.
    pub(crate) fn is_of_reads(self) -> bool {
        matches!(self, Self::Read | Self::ReadOfZones)
    }
}

/// The calls, counted from when it is armed, at which something goes wrong.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    pub(crate) first: u64,
    pub(crate) calls: u64,
    /// Calls after which the same comes again.
    pub(crate) every: u64,
}

impl Plan {
    /// Whether it is about reads of a zone. Both copies of metadata often lie in neighbours.
    fn has_zone(&self, zone: ZoneId) -> bool {
        mix(self.first, u64::from(zone.get() / 4)).is_multiple_of(2)
    }
}

/// The drive.
pub(crate) struct Drive {
    pub(crate) recorder: Recorder,
    plan: Mutex<Option<Plan>>,
    /// Calls since it was armed, to which the plan applies.
    calls: AtomicU64,
    failed: Mutex<Vec<(ZoneId, usize)>>,
    /// How often each zone was reset.
    resets: Vec<AtomicU64>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Call {
    Read(ZoneId),
    Write(ZoneId),
    Flush,
    Manage,
}

impl Drive {
    pub(crate) fn new(image: Image) -> Self {
        let (plan, failed) = (Mutex::default(), Mutex::default());
        let resets = image.geometry().zones().map(|_| AtomicU64::new(0)).collect();
        Self { recorder: Recorder::new(image), plan, calls: AtomicU64::new(0), failed, resets }
    }

    /// Lets things go wrong from now on, or no more.
    pub(crate) fn arm(&self, plan: Option<Plan>) {
        *self.plan.lock().expect("no panic") = plan;
        self.calls.store(0, Ordering::Relaxed);
    }

    /// Zones that have failed, with the number of changes before that.
    pub(crate) fn failed(&self) -> Vec<(ZoneId, usize)> {
        self.failed.lock().expect("no panic").clone()
    }

    #[track_caller]
    fn attempt(&self, call: Call) -> Result<()> {
        pass();
        let plan = *self.plan.lock().expect("no panic");
        let Some(plan) = plan else { return Ok(()) };
        let Plan { fault, first, calls, every } = plan;
        let concerns = match fault {
            Fault::Any => true,
            Fault::Flush => call == Call::Flush,
            Fault::Write | Fault::HostIsFull | Fault::ZoneFails => matches!(call, Call::Write(_)),
            Fault::Read => matches!(call, Call::Read(_)),
            Fault::ReadOfZones => matches!(call, Call::Read(zone) if plan.has_zone(zone)),
        };
        if !concerns {
            return Ok(());
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        if !(first..first + calls).contains(&(number % every)) {
            return Ok(());
        }
        let what = "a simulated fault".to_owned();
        match (fault, call) {
            (Fault::HostIsFull, _) => Err(DeviceError::NoSpace { what }),
            (Fault::ZoneFails, Call::Write(zone)) => {
                self.fail_zone(zone);
                Ok(())
            }
            (
                Fault::Any
                | Fault::Flush
                | Fault::Write
                | Fault::ZoneFails
                | Fault::Read
                | Fault::ReadOfZones,
                _,
            ) => {
                let source = std::io::Error::from_raw_os_error(5);
                Err(DeviceError::Io { what, source })
            }
        }
    }

    fn resets(&self, zone: ZoneId) -> u64 {
        self.resets[zone.get() as usize].load(Ordering::Relaxed)
    }

    fn fail_zone(&self, zone: ZoneId) {
        let mut failed = self.failed.lock().expect("no panic");
        if failed.len() < 2 && self.recorder.fail_zone(zone, ZoneFailure::ReadOnly).is_ok() {
            failed.push((zone, self.recorder.len()));
        }
    }
}

impl ZonedDevice for Drive {
    zonal::pass_on!(recorder: geometry, report);

    /// A zone is not reset while it is read: the drive would give back anything.
    fn read(&self, lba: Lba, buffer: &mut [u8]) -> Result<()> {
        let zone = self.geometry().locate(lba).0;
        let before = self.resets(zone);
        self.attempt(Call::Read(zone))?;
        let outcome = self.recorder.read(lba, buffer);
        pass();
        assert_eq!(before, self.resets(zone), "{zone:?} was reset while it was read");
        outcome
    }

    fn write(&self, lba: Lba, data: &[u8]) -> Result<()> {
        self.attempt(Call::Write(self.geometry().locate(lba).0))?;
        let outcome = self.recorder.write(lba, data);
        pass();
        outcome
    }

    fn append(&self, zone: ZoneId, data: &[u8]) -> Result<Lba> {
        self.attempt(Call::Write(zone))?;
        let outcome = self.recorder.append(zone, data);
        pass();
        outcome
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        self.attempt(Call::Manage)?;
        let outcome = self.recorder.manage(zones, action);
        if action == ZoneAction::Reset
            && let Select::One(zone) = zones
        {
            self.resets[zone.get() as usize].fetch_add(1, Ordering::Relaxed);
        }
        pass();
        outcome
    }

    fn deallocate(&self, lba: Lba, blocks: LbaCount) -> Result<()> {
        self.attempt(Call::Manage)?;
        self.recorder.deallocate(lba, blocks)
    }

    fn flush(&self) -> Result<()> {
        self.attempt(Call::Flush)?;
        let outcome = self.recorder.flush();
        pass();
        outcome
    }
}
