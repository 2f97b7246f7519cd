//! Sequential write preferred zones: every kind of device and every stack of layers against an
//! array with a pointer, and the part of the contract that holds for them, too.

#![expect(
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    reason = "a test of small devices"
)]

mod contract;
mod devices;

use contract::CHECKS;
use devices::{DEVICES, preferred_shapes};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::{
    DeviceError as E, Io, Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind,
    ZonedDevice, repeat,
};

/// Parts of the contract that preferred zones break: they take writes anywhere, and follow ZBC's
/// actions.
const OF_REQUIRED_ZONES: [&str; 4] = [
    "writes go to the pointer only",
    "a zone fills up to its capacity",
    "actions follow the state machine",
    "a request that fails stops no other",
];

#[test]
fn preferred_devices_keep_rest_of_contract() {
    let names: Vec<&str> = CHECKS.iter().map(|(what, _)| *what).collect();
    assert!(OF_REQUIRED_ZONES.iter().all(|what| names.contains(what)));
    for (shape, spec) in preferred_shapes() {
        for (name, make) in DEVICES {
            for (what, check) in CHECKS {
                if !OF_REQUIRED_ZONES.contains(what) {
                    let device = make(spec);
                    let name = format!("{name} of shape {shape:?}");
                    contract::run(&*device.device, &name, what, *check);
                }
            }
        }
    }
}

/// A zone as it has to be.
struct Model {
    zone: Zone,
    /// A stamp for each block.
    blocks: Vec<u8>,
}

impl Model {
    fn is_conventional(&self) -> bool {
        self.zone.kind == ZoneKind::Conventional
    }

    fn pointer(&self) -> u64 {
        self.zone.written().unwrap_or(LbaCount::ZERO).get()
    }

    fn set(&mut self, cond: ZoneCond, pointer: u64) {
        (self.zone.cond, self.zone.wp) = (cond, Some(self.zone.start + LbaCount::new(pointer)));
    }

    /// Applies a write that fits.
    fn write(&mut self, offset: u64, stamps: &[u8]) {
        let (at, end) = (offset as usize, offset + stamps.len() as u64);
        self.blocks[at..end as usize].copy_from_slice(stamps);
        if self.is_conventional() {
            return;
        }
        self.zone.non_sequential |= offset != self.pointer();
        let pointer = self.pointer().max(end);
        let cond = match self.zone.cond {
            _ if pointer == self.zone.capacity.get() => ZoneCond::Full,
            ZoneCond::ExplicitOpen => ZoneCond::ExplicitOpen,
            _ => ZoneCond::ImplicitOpen,
        };
        self.set(cond, pointer);
    }

    fn manage(&mut self, action: ZoneAction) -> Result<(), ()> {
        let pointer = self.pointer();
        match (action, self.zone.cond) {
            _ if self.is_conventional() => return Err(()),
            (ZoneAction::Open | ZoneAction::Close, ZoneCond::Full)
            | (ZoneAction::Close, ZoneCond::Empty) => {}
            (ZoneAction::Open, _) => self.set(ZoneCond::ExplicitOpen, pointer),
            (ZoneAction::Close, _) if pointer == 0 => self.set(ZoneCond::Empty, 0),
            (ZoneAction::Close, _) => self.set(ZoneCond::Closed, pointer),
            (ZoneAction::Finish, _) => self.set(ZoneCond::Full, self.zone.capacity.get()),
            (ZoneAction::Reset, _) => {
                self.set(ZoneCond::Empty, 0);
                self.zone.non_sequential = false;
                self.blocks.fill(0);
            }
        }
        Ok(())
    }
}

struct Run<'a> {
    device: &'a dyn ZonedDevice,
    models: Vec<Model>,
    stamp: u8,
}

impl Run<'_> {
    fn new(device: &dyn ZonedDevice) -> Run<'_> {
        let zones = device.report_all().unwrap();
        let model = |zone: Zone| Model { zone, blocks: vec![0; zone.size.get() as usize] };
        Run { device, models: zones.into_iter().map(model).collect(), stamp: 0 }
    }

    fn stamps(&mut self, count: u64) -> Vec<u8> {
        let next = |_| {
            self.stamp = self.stamp % 250 + 1;
            self.stamp
        };
        (0..count).map(next).collect()
    }

    fn data(&self, stamps: &[u8]) -> Vec<u8> {
        let block = self.device.geometry().block_size().bytes() as usize;
        stamps.iter().flat_map(|&stamp| vec![stamp; block]).collect()
    }

    fn step(&mut self, random: &mut ChaCha8Rng) {
        let index = random.random_range(0..self.models.len());
        let Zone { id, start, capacity, .. } = self.models[index].zone;
        let capacity = capacity.get();
        match random.random_range(0..16) {
            0..=6 => {
                let offset = random.random_range(0..capacity);
                let count = random.random_range(1..=capacity - offset + 1);
                let stamps = self.stamps(count);
                let (lba, data) = (start + LbaCount::new(offset), self.data(&stamps));
                let outcome = if random.random_bool(0.5) {
                    self.device.write(lba, &data)
                } else {
                    let mut batch = [Io::write(lba, &data)];
                    self.device.submit(&mut batch);
                    let [io] = batch;
                    io.outcome().map(drop)
                };
                if offset + count <= capacity {
                    outcome.unwrap();
                    self.models[index].write(offset, &stamps);
                } else {
                    let is_refused = matches!(
                        outcome,
                        Err(E::CrossesZone { .. } | E::OutOfRange { .. } | E::Gap { .. })
                    );
                    assert!(is_refused, "{offset}+{count}: {outcome:?}");
                }
            }
            7 | 8 => {
                let stamps = self.stamps(random.random_range(1..4));
                let outcome = self.device.append(id, &self.data(&stamps));
                let (model, count) = (&mut self.models[index], stamps.len() as u64);
                let pointer = model.pointer();
                match outcome {
                    Ok(lba) => {
                        assert_eq!(lba, start + LbaCount::new(pointer));
                        model.write(pointer, &stamps);
                    }
                    Err(E::Conventional { .. }) => assert!(model.is_conventional()),
                    Err(E::ZoneFull { .. }) => assert_eq!(model.zone.cond, ZoneCond::Full),
                    Err(E::CrossesZone { .. }) => assert!(pointer + count > capacity),
                    Err(other) => panic!("{other}"),
                }
            }
            9..=12 => {
                let action = ZoneAction::ALL[random.random_range(0..ZoneAction::ALL.len())];
                let outcome = self.device.manage(Select::One(id), action);
                let expected = self.models[index].manage(action);
                assert_eq!(outcome.map_err(drop), expected, "{} of {id}", action.name());
            }
            13 if random.random_bool(0.2) => {
                let action = ZoneAction::ALL[random.random_range(0..ZoneAction::ALL.len())];
                self.device.manage(Select::All, action).unwrap();
                for model in &mut self.models {
                    if zonal::state::selected_by_all(action, model.zone.cond) {
                        model.manage(action).unwrap();
                    }
                }
            }
            _ => self.device.flush().unwrap(),
        }
    }

    fn compare(&self) {
        let expected: Vec<Zone> = self.models.iter().map(|model| model.zone).collect();
        assert_eq!(self.device.report_all().unwrap(), expected);
        let stamps: Vec<u8> = self.models.iter().flat_map(|model| model.blocks.clone()).collect();
        let expected = self.data(&stamps);
        let mut found = vec![0xee; expected.len()];
        self.device.read(Lba::ZERO, &mut found).unwrap();
        assert!(found == expected, "other bytes");
    }
}

#[test]
fn preferred_devices_match_array_with_pointer() {
    let seed = repeat::seed(0);
    for (shape, spec) in preferred_shapes() {
        for (name, make) in DEVICES {
            println!("{name} of shape {shape:?}");
            let device = make(spec);
            let mut random = ChaCha8Rng::seed_from_u64(seed);
            let mut run = Run::new(&*device.device);
            for step in 0..200 {
                run.step(&mut random);
                if step % 4 == 0 {
                    run.compare();
                }
            }
            run.compare();
        }
    }
}

/// The limits that a host-aware drive does not have cannot be given to it, either.
#[test]
fn preferred_drive_takes_no_limits() {
    use zonal::layer::limited::{Limited, ZoneLimits};
    let drive = zonal::MemoryDrive::new(preferred_shapes()[0].1).unwrap();
    let refused = Limited::new(drive, ZoneLimits { open: Some(2), active: None });
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("sequential write preferred"), "{error}");
}

#[test]
fn concat_of_two_kinds_is_refused() {
    use zonal::layer::concat::Concat;
    let spec = preferred_shapes()[0].1;
    let required = zonal::GeometrySpec { sequential_kind: ZoneKind::SequentialRequired, ..spec };
    let members = [spec, required].map(|spec| zonal::MemoryDrive::new(spec).unwrap());
    let error = Concat::new(members.into()).err().unwrap().to_string();
    assert!(error.contains("sequential-preferred"), "{error}");
}

/// A file keeps the pointer and the flag of a zone written non-sequentially over a close, and a
/// hole reads as zeroes where old data lay.
#[test]
fn preferred_zone_in_file_is_there_after_reopening() {
    use zonal::OpenMode;
    use zonal::file::{CreateOptions, FileDrive, Overwrite};
    let dir = devices::scratch();
    let path = dir.path().join("drive.zns");
    let (rules, uuid, overwrite) = (zonal::Rules::Zbc, [7; 16], Overwrite::Refuse);
    let geometry = preferred_shapes()[0].1;
    FileDrive::create(&path, &CreateOptions { geometry, rules, uuid, overwrite }).unwrap();
    let open = || FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    let block = |stamp| vec![stamp; 4096];
    let drive = open();
    let zone = ZoneId::new(3);
    let at = |block| drive.geometry().zone_start(zone) + LbaCount::new(block);
    drive.write(at(0), &block(1).repeat(16)).unwrap();
    drive.manage(Select::One(zone), ZoneAction::Reset).unwrap();
    drive.write(at(5), &block(2)).unwrap();
    drive.write(at(1), &block(3)).unwrap();
    let (before, start) = (drive.zone(zone).unwrap(), at(0));
    assert_eq!(before.written().map(LbaCount::get), Some(6));
    assert!(before.non_sequential);
    drop(drive);
    let drive = open();
    assert_eq!(drive.zone(zone).unwrap(), before);
    assert_eq!(drive.geometry().kind(zone), ZoneKind::SequentialPreferred);
    let mut found = vec![0xee; 7 * 4096];
    drive.read(start, &mut found).unwrap();
    let stamps = [0, 3, 0, 0, 0, 2, 0].map(block).concat();
    assert!(found == stamps);
}
