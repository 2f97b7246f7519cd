//! Tests of specifications: the devices that they open, and the errors of bad ones.

use super::*;
use crate::layer::meter::OpKind;
use proptest::prelude::*;

fn stack(spec: &str) -> Result<Stack> {
    open_stack(spec, OpenMode::ReadWrite, Arc::new(ManualClock::new(0)))
}

#[test]
fn open_error_becomes_io_error_with_device_errno() {
    let errno = |spec: &str| io::Error::from(stack(spec).err().unwrap());
    assert_eq!(errno("/nowhere/at/all").raw_os_error(), Some(2));
    let unclear = errno("mem:zone=3");
    assert_eq!((unclear.raw_os_error(), unclear.kind()), (None, io::ErrorKind::InvalidInput));
    assert!(unclear.to_string().contains("mem:zone=3"), "{unclear}");
}

#[test]
fn layers_stack_from_left_to_right() {
    let dir = tempfile::tempdir().unwrap();
    let trace = dir.path().join("trace");
    let spec =
        format!("meter:trace({},data):po2:fault():meter:mem:zone=3M,zones=4", trace.display());
    let stack = stack(&spec).unwrap();
    assert_eq!(stack.device.geometry().zone_size().get(), 1024);
    stack.device.write(crate::Lba::ZERO, &[1; 4096]).unwrap();
    assert_eq!(stack.counters.len(), 2);
    for counters in &stack.counters {
        assert_eq!(counters.of(OpKind::Write).count, 1);
    }
    drop(stack.device);
    assert!(trace.metadata().unwrap().len() > 4096);
}

#[test]
fn members_are_split_outside_of_parentheses() {
    let members = |text| split_members(text).collect::<Vec<_>>();
    assert_eq!(members("a"), ["a"]);
    assert_eq!(members("a,b:c,"), ["a", "b:c", ""]);
    assert_eq!(members("fault(x,nth=3):a,(mem:b=1,c=2)"), ["fault(x,nth=3):a", "mem:b=1,c=2"]);
    assert_eq!(members("(a)(b),((a,b))"), ["(a)(b)", "(a,b)"]);
}

#[test]
fn slices_and_members_nest_in_any_order() {
    let zones = |spec: &str| stack(spec).expect(spec).device.geometry().zone_count();
    assert_eq!(zones("slice(3-7):mem:zones=10"), 5);
    assert_eq!(zones("slice(3-,open=2,active=3):mem:zones=10"), 7);
    assert_eq!(zones("po2:concat(mem:zones=10,meter:mem:zones=3)"), 13);
    assert_eq!(zones("concat(slice(0-1):mem:,slice(5-7):concat(mem:zones=4,mem:zones=6))"), 5);
    assert_eq!(zones("slice(2-4):concat(fault(write,nth=3):mem:zones=2,(mem:zones=8,open=4))"), 3);
    let meters = stack("meter:concat(meter:mem:zones=2,meter:mem:zones=2)").unwrap().counters;
    assert_eq!(meters.len(), 3);
}

#[test]
fn zones_of_members_can_be_failed() {
    let stack = stack("slice(1-6):concat(mem:zones=4,mem:zones=4)").unwrap();
    let (zone, failing) = (crate::ZoneId::new(4), stack.failing.unwrap());
    failing.fail_zone(zone, crate::ZoneFailure::Offline).unwrap();
    let conds = stack.device.report_all().unwrap();
    let offline: Vec<_> =
        conds.iter().filter(|zone| zone.cond == crate::ZoneCond::Offline).collect();
    assert!(matches!(offline[..], [found] if found.id == zone), "{offline:?}");
    let beyond = crate::ZoneId::new(6);
    let refused = failing.fail_zone(beyond, crate::ZoneFailure::Offline).unwrap_err();
    assert!(matches!(refused, DeviceError::NoSuchZone { zone } if zone == beyond));
}

#[test]
fn zones_below_layers_can_be_failed() {
    // The first sequential zone is zone 3 below.
    let stack = stack("po2:meter:mem:zone=3M,zones=6,conventional=3").unwrap();
    let zone = crate::ZoneId::new(2);
    stack.failing.unwrap().fail_zone(zone, crate::ZoneFailure::Offline).unwrap();
    assert_eq!(stack.device.zone(zone).unwrap().cond, crate::ZoneCond::Offline);
}

#[test]
fn conventional_zones_can_be_anywhere() {
    let kinds = |spec: &str| {
        let zones = stack(spec).unwrap().device.report_all().unwrap();
        let is_conventional = |kind| kind == crate::ZoneKind::Conventional;
        let letter = |kind| if is_conventional(kind) { 'c' } else { 's' };
        zones.iter().map(|zone| letter(zone.kind)).collect::<String>()
    };
    for (spec, expected) in [
        ("mem:zones=6,conventional=2,open=3", "ccssss"),
        ("mem:zones=6,conventional=2-2,open=3", "sscsss"),
        ("mem:conventional=0,2-3,5,zones=7", "csccscs"),
        ("slice(1-4):mem:conventional=0,2-3,5,zones=7", "sccs"),
        ("concat((slice(4-):mem:conventional=0,5,zones=6),(mem:conventional=1,zones=3))", "sccss"),
        ("po2:mem:zone=3M,zones=9,conventional=2-5", "sscccsss"),
    ] {
        assert_eq!(kinds(spec), expected, "{spec}");
    }
}

#[test]
fn memory_device_opened_read_only_takes_no_writes() {
    for mode in [OpenMode::ReadOnly, OpenMode::ReadLocked] {
        let clock = Arc::new(ManualClock::new(0));
        let Stack { device, failing, .. } =
            open_stack("meter:mem:zone=3M,zones=4", mode, clock).unwrap();
        let (zone, block) = (crate::ZoneId::new(1), [1; 4096]);
        for refused in [
            device.write(crate::Lba::ZERO, &block),
            device.append(zone, &block).map(drop),
            device.manage(crate::Select::One(zone), crate::ZoneAction::Finish),
        ] {
            assert!(matches!(refused, Err(DeviceError::OpenedReadOnly)), "{refused:?}");
        }
        device.flush().unwrap();
        assert_eq!(device.zone(zone).unwrap().cond, crate::ZoneCond::Empty);
        assert!(failing.is_none());
    }
}

#[test]
fn spec_errors_are_named() {
    for (spec, what) in [
        ("", "a device is missing"),
        ("po2:", "a device is missing"),
        ("file:", "a device is missing"),
        ("mem:zoen=3M", "\"zoen\""),
        ("mem:zone=3", "zone of 3 bytes"),
        ("trace:mem:", "trace needs arguments in parentheses: trace(FILE):DEVICE"),
        ("trace(x:mem:", "not closed"),
        ("trace(x)mem:", "comes :DEVICE"),
        ("trace():mem:", "needs a file"),
        ("trace(x,dta):mem:", "not \"dta\""),
        ("po2(3):mem:", "takes no arguments: po2:DEVICE"),
        ("p02:mem:", "none of file, mem, po2, slice, concat, meter, trace, delay, fault"),
        ("fault(explode):mem:", "fault(explode)"),
        ("delay(1s):mem:", "a number of microseconds, not \"1s\""),
        ("slice:mem:", "slice needs arguments in parentheses: slice(FIRST-LAST)"),
        ("slice(3):mem:", "slice takes zones, as in 4-7 or 4-, not \"3\""),
        ("slice(a-7):mem:", "slice takes zones, as in 4-7 or 4-, not \"a-7\""),
        ("slice(-7):mem:", "slice takes zones, as in 4-7 or 4-, not \"-7\""),
        ("slice(3-7,opne=2):mem:", "slice has options open=N and active=N, not \"opne=2\""),
        ("slice(3-7,open=many):mem:", "slice has options open=N and active=N"),
        ("slice(7-3):mem:zones=10", "a slice from zone 7 to zone 3"),
        ("slice(3-10):mem:zones=10", "a slice with zone 10 of a drive of 10 zones"),
        ("slice(3-,open=0):mem:zones=10", "limit of 0"),
        ("slice(3-,open=9):mem:zones=10,open=8", "limit of open zones of 9 on a drive with 8"),
        ("concat:mem:", "concat needs drives in parentheses: concat(DEVICE,...)"),
        ("concat(mem:,mem:", "not closed"),
        ("concat(mem:)mem:", "nothing may follow the last parenthesis"),
        ("concat()", "a device is missing"),
        ("concat(mem:,)", "a device is missing"),
        (
            "concat((mem:zones=9,zone=3M),mem:zone=4M)",
            "member 2 of a concat has zones of 4 MiB, the first one of 3 MiB",
        ),
        ("concat((mem:block=512,zone=3M),mem:zone=3M)", "member 2 of a concat has blocks of 4096"),
        (
            "concat(mem:zone=3M,(mem:zone=3M,capacity=2M))",
            "member 2 of a concat has a zone capacity of 2 MiB, the first one of 3 MiB",
        ),
        ("concat(mem:profile=smr,mem:)", "member 1 of a concat has a smaller last zone"),
        ("mem:conventional=0-3,2", "zone 2 after zone 3"),
        ("mem:zones=9,conventional=0-3,9", "conventional zones 0-3,9 of 9 zones"),
        ("concat(mem:,po2(1):mem:)", "po2 takes no arguments"),
    ] {
        let error = stack(spec).err().expect(spec).to_string();
        assert!(error.contains(what), "{spec}: {error}");
    }
    let mut deep = "mem:".to_owned();
    (0..9).for_each(|_| deep = format!("concat({deep})"));
    for (spec, what) in
        [(&*deep, "over 8 levels of concat"), ("/nowhere/drive.zns", "opening /nowhere/drive.zns")]
    {
        let error = stack(spec).err().expect(spec).to_string();
        assert!(error.contains(what), "{spec}: {error}");
    }
}

/// A program's own device: the list of names, and so errors and help, has it too.
#[test]
fn openers_accept_schemes_of_program() {
    fn ram(text: &str, _: OpenMode) -> Result<Stack> {
        let zones = text.parse().map_err(|_| bad(text, "not a number of zones".into()))?;
        let changes = crate::profile::Changes { zones: Some(zones), ..Default::default() };
        Ok(MemoryDrive::new(changes.geometry()?)?.into())
    }
    const RAM: Scheme = Scheme {
        name: "ram",
        form: "ram:ZONES",
        help: "so many zones of memory",
        example: "ram:7",
        opener: Opener::Device(ram),
    };
    fn by_path(
        path: &Path,
        _: OpenMode,
    ) -> std::result::Result<Option<Arc<dyn ZonedDevice>>, DeviceError> {
        if path != Path::new("/dev/ours") {
            return Ok(None);
        }
        let drive = MemoryDrive::new(crate::Profile::Small.geometry())?;
        Ok(Some(Arc::new(drive)))
    }
    let openers = Openers::builtin().with_schemes(&[RAM]).with_paths(by_path);
    let open = |spec| openers.open(spec, OpenMode::ReadWrite, Arc::new(ManualClock::new(0)));
    assert_eq!(open("po2:ram:7").unwrap().device.geometry().zone_count(), 7);
    assert!(matches!(open("po2:/dev/ours").unwrap().base, Base::Device));
    assert!(matches!(open("file:/dev/ours").unwrap().base, Base::Device));
    let error = open("rom:7").err().unwrap().to_string();
    assert!(
        error.contains("none of file, mem, po2, slice, concat, meter, trace, delay, fault, ram"),
        "{error}"
    );
    assert!(open("ram:many").is_err());
}

#[test]
fn scheme_examples_belong_to_their_scheme() {
    for scheme in Openers::builtin().schemes() {
        assert!(scheme.form.starts_with(scheme.name), "{scheme:?}");
        assert!(scheme.example.starts_with(scheme.name), "{scheme:?}");
    }
}

proptest! {
    #[test]
    fn spec_parse_handles_any_text(
        text in "(po2:|meter:|fault\\([a-z,=0-9]*\\):|slice\\([0-9]-[0-9]?\\):|concat\\(|,|\\)|mem:|[a-z(),=:]{0,6}){0,6}",
    ) {
        // A file name would make files; without `trace` nothing can be made.
        prop_assume!(!text.contains("trace"));
        let _ = stack(&text);
    }
}
