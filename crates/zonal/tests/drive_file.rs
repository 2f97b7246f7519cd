//! Drive files on a real host: kill −9, locks, reading along, space, scale.
//!
//! kill −9 of a real process that writes to a drive file, many times over, at any moment. After
//! each kill the drive must hold everything that returned: the same run on a drive in memory gives
//! the expected content.
//!
//! `SEED=n` replays a sequence of operations; the machine decides when the kills come.

#![expect(clippy::unwrap_used, reason = "a test")]

mod devices;

use std::fs::OpenOptions;
use std::io::{Read, Write};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::file::{CreateOptions, Overwrite};
use zonal::{
    ByteCount, DeviceError, FileDrive, GeometrySpec, LbaCount, MemoryDrive, OpenMode, Profile,
    Rules, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZonedDevice, repeat,
};

const KILLS: u32 = 40;

/// No implicit closes: the order in which zones were used is forgotten with the process.
fn shape() -> GeometrySpec {
    let small = Profile::Small.geometry();
    GeometrySpec { block_count: LbaCount::new(6 * small.zone_size.get()), ..small }
}

/// Operation number `index` of the run of `seed`, whatever happened before.
fn operate(device: &dyn ZonedDevice, seed: u64, index: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed ^ index.wrapping_mul(0x9e37_79b9));
    let zone = ZoneId::new(rng.random_range(0..6));
    let outcome = match rng.random_range(0..100) {
        0..=79 => {
            let data: Vec<u8> =
                (0..4096 * rng.random_range(1..=16)).map(|_| rng.random()).collect();
            device.append(zone, &data).map(drop)
        }
        80..=84 => device.flush(),
        85..=89 => device.manage(Select::One(zone), ZoneAction::Reset),
        90..=91 => device.manage(Select::One(zone), ZoneAction::Finish),
        92..=95 => device.manage(Select::One(zone), ZoneAction::Open),
        _ => device.manage(Select::One(zone), ZoneAction::Close),
    };
    match outcome {
        Ok(())
        | Err(
            DeviceError::ZoneFull { .. }
            | DeviceError::CrossesZone { .. }
            | DeviceError::Transition { .. },
        ) => {}
        Err(error) => panic!("operation {index} of SEED={seed}: {error}"),
    }
}

/// The process that is killed: operates for ever, and writes one byte for each operation that
/// returned.
fn be_killed(path: &Path, seed: u64) -> ! {
    let drive = FileDrive::open(path, OpenMode::ReadWrite).unwrap();
    let mut done = OpenOptions::new().append(true).open(path.with_extension("done")).unwrap();
    for index in done.metadata().unwrap().len().. {
        operate(&drive, seed, index);
        done.write_all(&[1]).unwrap();
    }
    unreachable!("the loop has no end")
}

fn content(device: &dyn ZonedDevice) -> (Vec<Zone>, Vec<u8>) {
    let geometry = device.geometry();
    let len = geometry.bytes(geometry.block_count()).get();
    let mut bytes = vec![0; usize::try_from(len).unwrap()];
    device.read(zonal::Lba::ZERO, &mut bytes).unwrap();
    (device.report_all().unwrap(), bytes)
}

#[test]
fn kill_loses_nothing_that_returned() {
    let seed = repeat::seed(1);
    if let Some(path) = std::env::var_os("ZONAL_TEST_DRIVE") {
        be_killed(Path::new(&path), seed);
    }
    let dir = devices::scratch();
    let path = dir.path().join("drive.zns");
    let (rules, uuid, overwrite) = (Rules::Zns, [7; 16], Overwrite::Refuse);
    let geometry = shape();
    FileDrive::create(&path, &CreateOptions { geometry, rules, uuid, overwrite }).unwrap();
    let done = path.with_extension("done");
    std::fs::write(&done, []).unwrap();
    let (model, mut modelled) = (MemoryDrive::new(geometry).unwrap(), 0);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for kill in 0..KILLS {
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "kill_loses_nothing_that_returned", "--nocapture"])
            .env("ZONAL_TEST_DRIVE", &path)
            .env("SEED", seed.to_string())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for_more(&mut child, &done, modelled + rng.random_range(1..400));
        child.kill().unwrap();
        child.wait().unwrap();

        let returned = done.metadata().unwrap().len();
        while modelled < returned {
            operate(&model, seed, modelled);
            modelled += 1;
        }
        let drive = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
        let (found, modelled_content) = (content(&drive), content(&model));
        if let Some((zone, undo)) = only_opened(&found, &modelled_content) {
            // An append opens its zone first, and was stopped before its data.
            drive.manage(Select::One(zone), undo).unwrap();
        } else if found != modelled_content {
            // The operation that was under way has happened, wholly.
            operate(&model, seed, modelled);
            modelled += 1;
            OpenOptions::new().append(true).open(&done).unwrap().write_all(&[1]).unwrap();
            let (zones, bytes) = content(&model);
            let zone = found.0.iter().zip(&zones).find(|(found, modelled)| found != modelled);
            let byte = found.1.iter().zip(&bytes).position(|(found, modelled)| found != modelled);
            assert!(
                zone.is_none() && byte.is_none(),
                "kill {kill} after {returned}, SEED={seed}: zone {zone:?}, byte {byte:?}"
            );
        }
    }
    println!("{KILLS} kills in {modelled} operations");
}

/// The one zone that is open but has no new data, if nothing else differs, and the action that
/// undoes it.
fn only_opened(
    (found, found_bytes): &(Vec<Zone>, Vec<u8>),
    (modelled, modelled_bytes): &(Vec<Zone>, Vec<u8>),
) -> Option<(ZoneId, ZoneAction)> {
    let mut differing = found.iter().zip(modelled).filter(|(found, modelled)| found != modelled);
    let (zone, model) = differing.next()?;
    let is_alone = differing.next().is_none() && found_bytes == modelled_bytes;
    let opened = Zone { cond: ZoneCond::ImplicitOpen, ..*model };
    let undo = match model.cond {
        ZoneCond::Empty => ZoneAction::Reset,
        ZoneCond::Closed => ZoneAction::Close,
        _ => return None,
    };
    (is_alone && *zone == opened).then_some((zone.id, undo))
}

/// Waits until the process has noted `count` operations.
fn wait_for_more(child: &mut Child, done: &Path, count: u64) {
    while done.metadata().unwrap().len() < count {
        assert!(child.try_wait().unwrap().is_none(), "it ended by itself");
        std::thread::yield_now();
    }
}

#[test]
fn locked_readers_and_writer_exclude_each_other() {
    let dir = devices::scratch();
    let path = dir.path().join("drive.zns");
    let (rules, uuid, overwrite) = (Rules::Zns, [7; 16], Overwrite::Refuse);
    let options = CreateOptions { geometry: shape(), rules, uuid, overwrite };
    FileDrive::create(&path, &options).unwrap();
    let open = |mode| FileDrive::open(&path, mode);
    let writer = open(OpenMode::ReadWrite).unwrap();
    assert!(matches!(open(OpenMode::ReadLocked), Err(DeviceError::Locked { .. })));
    drop(writer);
    let readers = [(); 2].map(|()| open(OpenMode::ReadLocked).unwrap());
    assert!(matches!(open(OpenMode::ReadWrite), Err(DeviceError::Locked { .. })));
    assert!(open(OpenMode::ReadOnly).is_ok());
    let refused = readers[0].append(ZoneId::new(2), &[1; 4096]);
    assert!(matches!(refused, Err(DeviceError::OpenedReadOnly)), "{refused:?}");
    drop(readers);
    open(OpenMode::ReadWrite).unwrap();
}

#[test]
fn drive_has_one_writer_and_observers() {
    let dir = devices::scratch();
    let path = dir.path().join("drive.zns");
    let (rules, uuid, overwrite) = (Rules::Zns, [7; 16], Overwrite::Refuse);
    let options = CreateOptions { geometry: shape(), rules, uuid, overwrite };
    FileDrive::create(&path, &options).unwrap();
    let writer = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    let second = FileDrive::open(&path, OpenMode::ReadWrite);
    assert!(matches!(second.err(), Some(DeviceError::Locked { path: found, by }) if found == path
        && by.is_none_or(|by| by == std::process::id())));
    let replace = CreateOptions { overwrite: Overwrite::Replace, ..options };
    assert!(matches!(FileDrive::create(&path, &replace), Err(DeviceError::Locked { .. })));
    assert!(matches!(FileDrive::create(&path, &options), Err(DeviceError::Io { .. })));

    let reader = FileDrive::open(&path, OpenMode::ReadOnly).unwrap();
    for block in 1..=5 {
        let at = writer.append(ZoneId::new(2), &[block; 4096]).unwrap();
        assert_eq!(reader.report_all().unwrap(), writer.report_all().unwrap());
        let mut found = [0; 4096];
        reader.read(at, &mut found).unwrap();
        assert_eq!(found, [block; 4096]);
    }
    let zone = ZoneId::new(2);
    for refused in [
        reader.append(zone, &[1; 4096]).map(drop),
        reader.write(zonal::Lba::ZERO, &[1; 4096]),
        reader.manage(Select::One(zone), ZoneAction::Reset),
    ] {
        assert!(matches!(refused, Err(DeviceError::OpenedReadOnly)), "{refused:?}");
    }
    drop(writer);
    FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    let mut magic = [0; 8];
    std::fs::File::open(&path).unwrap().read_exact(&mut magic).unwrap();
    assert_eq!(&magic, b"ZONALDRV");
}

/// The states are as they were after an orderly end too, failed zones included.
#[test]
fn drive_reopens_as_left() {
    let dir = devices::scratch();
    let path = dir.path().join("drive.zns");
    let (rules, uuid, overwrite) = (Rules::Zbc, [8; 16], Overwrite::Refuse);
    FileDrive::create(&path, &CreateOptions { geometry: shape(), rules, uuid, overwrite }).unwrap();
    let drive = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    for index in 0..500 {
        operate(&drive, 3, index);
    }
    drive.fail_zone(ZoneId::new(1), zonal::ZoneFailure::ReadOnly).unwrap();
    drive.fail_zone(ZoneId::new(2), zonal::ZoneFailure::Offline).unwrap();
    let left = drive.report_all().unwrap();
    drop(drive);
    let drive = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    assert_eq!(drive.report_all().unwrap(), left);
    assert_eq!((drive.rules(), drive.uuid()), (rules, uuid));
    let refused = drive.append(ZoneId::new(1), &[0; 4096]);
    assert!(matches!(refused, Err(DeviceError::ZoneReadOnly { .. })), "{refused:?}");
    let offline = drive.geometry().zone_start(ZoneId::new(2));
    let refused = drive.read(offline, &mut [0; 4096]);
    assert!(matches!(refused, Err(DeviceError::ZoneOffline { .. })), "{refused:?}");
}

#[test]
fn reset_frees_space_once_flushed() {
    use std::os::unix::fs::MetadataExt;
    let (drive, dir) = devices::file(shape());
    let taken = || dir.path().join("drive.zns").metadata().unwrap().blocks() * 512;
    let before = taken();
    drive.write(zonal::Lba::ZERO, &vec![1; 512 * 1024]).unwrap();
    drive.flush().unwrap();
    assert!(taken() >= before + 512 * 1024);
    drive.manage(Select::One(ZoneId::ZERO), ZoneAction::Reset).unwrap();
    drive.flush().unwrap();
    assert!(taken() < before + 64 * 1024, "{} bytes are still taken", taken() - before);
}

/// The disk of the zonefs talk: 55,880 zones, 15 TB.
#[test]
fn file_of_15_tb_drive_is_small_and_opens_at_once() {
    use std::os::unix::fs::MetadataExt;
    let text = "profile=smr,zones=55880,conventional=524";
    let spec = text.parse::<zonal::profile::Changes>().unwrap().geometry().unwrap();
    let (drive, dir) = devices::file(spec);
    let zones = drive.report_all().unwrap();
    assert_eq!(zones.len(), 55_880);
    let last = zones.last().unwrap();
    drive.append(last.id, &[3; 4096]).unwrap();
    let mut found = [0; 4096];
    drive.read(last.start, &mut found).unwrap();
    assert_eq!(found, [3; 4096]);
    let taken = dir.path().join("drive.zns").metadata().unwrap().blocks() * 512;
    assert!(taken < 8 << 20, "{taken} bytes");
}

/// Bytes of a piece in the tests below.
const PIECE: ByteCount = ByteCount::new(1 << 20);

fn in_pieces(overwrite: Overwrite) -> CreateOptions {
    let geometry = GeometrySpec { block_count: LbaCount::new(2048), ..shape() };
    CreateOptions { geometry, rules: Rules::Zns, uuid: [9; 16], overwrite }
}

#[test]
fn drive_in_pieces_reopens_elsewhere_as_left() {
    let dir = devices::scratch();
    let (path, other) = (dir.path().join("drive.zns"), dir.path().join("moved"));
    FileDrive::create_in_pieces(&path, &in_pieces(Overwrite::Refuse), PIECE).unwrap();
    let lens: Vec<u64> = (0..)
        .map_while(|number| Some(path.join(number.to_string()).metadata().ok()?.len()))
        .collect();
    assert!(
        lens.len() > 7 && lens[..lens.len() - 1].iter().all(|len| *len == PIECE.get()),
        "{lens:?}"
    );
    let drive = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    for index in 0..500 {
        operate(&drive, 5, index);
    }
    let read = |drive: &FileDrive| {
        let mut all = vec![0; 2048 * 4096];
        drive.read(zonal::Lba::ZERO, &mut all).unwrap();
        all
    };
    let left = (drive.report_all().unwrap(), read(&drive));
    drop(drive);
    std::fs::rename(&path, &other).unwrap();
    let drive = FileDrive::open(&other, OpenMode::ReadWrite).unwrap();
    assert_eq!((drive.report_all().unwrap(), read(&drive)), left);
}

#[test]
fn drive_in_pieces_is_locked_and_replaced_as_a_file_is() {
    let dir = devices::scratch();
    let path = dir.path().join("drive.zns");
    let make = |overwrite| FileDrive::create_in_pieces(&path, &in_pieces(overwrite), PIECE);
    make(Overwrite::Refuse).unwrap();
    assert!(matches!(make(Overwrite::Refuse), Err(DeviceError::Io { .. })));
    let writer = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    writer.append(ZoneId::new(2), &[1; 4096]).unwrap();
    let second = FileDrive::open(&path, OpenMode::ReadWrite);
    assert!(matches!(second.err(), Some(DeviceError::Locked { .. })));
    assert!(matches!(make(Overwrite::Replace), Err(DeviceError::Locked { .. })));
    drop(writer);
    // One file in its place, and pieces in that file's place.
    FileDrive::create(&path, &in_pieces(Overwrite::Replace)).unwrap();
    let written = |path| FileDrive::open(path, OpenMode::ReadOnly).unwrap().zone(ZoneId::new(2));
    assert_eq!(written(&path).unwrap().written(), Some(LbaCount::ZERO));
    std::fs::remove_dir_all(&path).unwrap();
    FileDrive::create(&path, &in_pieces(Overwrite::Refuse)).unwrap();
    let writer = FileDrive::open(&path, OpenMode::ReadWrite).unwrap();
    assert!(matches!(make(Overwrite::Replace), Err(DeviceError::Locked { .. })));
    drop(writer);
    make(Overwrite::Replace).unwrap();
    assert!(path.is_dir());
    let names = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(names, 1, "nothing else is left");
}

#[test]
fn drive_with_missing_or_short_piece_is_refused() {
    let dir = devices::scratch();
    let path = dir.path().join("drive.zns");
    FileDrive::create_in_pieces(&path, &in_pieces(Overwrite::Refuse), PIECE).unwrap();
    let refused = |what: &str| {
        let error = FileDrive::open(&path, OpenMode::ReadOnly).err().expect(what);
        assert!(matches!(error, DeviceError::Malformed { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    };
    let piece = |number: u32| path.join(number.to_string());
    std::fs::File::options().write(true).open(piece(3)).unwrap().set_len(5).unwrap();
    refused("piece 3 has 5 bytes");
    std::fs::rename(piece(3), dir.path().join("3")).unwrap();
    refused("none is piece");
    std::fs::remove_file(piece(0)).unwrap();
    refused("no drive file in pieces");
}

#[test]
fn directory_that_is_no_drive_is_never_replaced() {
    let dir = devices::scratch();
    let path = dir.path().join("photos");
    std::fs::create_dir(&path).unwrap();
    std::fs::write(path.join("0"), "a picture").unwrap();
    for options in [Overwrite::Refuse, Overwrite::Replace].map(in_pieces) {
        assert!(FileDrive::create(&path, &options).is_err());
        assert!(FileDrive::create_in_pieces(&path, &options, PIECE).is_err());
    }
    assert_eq!(std::fs::read_to_string(path.join("0")).unwrap(), "a picture");
}
