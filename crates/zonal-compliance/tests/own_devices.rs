//! Our devices and layers follow every rule that can be tried on them.

#![expect(clippy::unwrap_used, reason = "a test")]

use std::collections::BTreeSet;
use std::sync::Arc;

use tempfile::TempDir;
use zonal::file::{CreateOptions, Overwrite};
use zonal::layer::concat::Concat;
use zonal::layer::limited::{Limited, ZoneLimits};
use zonal::layer::po2::PowerOfTwo;
use zonal::layer::slice::{Slice, ZoneRange};
use zonal::{
    BlockSize, FileDrive, GeometrySpec, LbaCount, MemoryDrive, OpenMode, Rules, ZoneId, ZoneKind,
    ZoneRuns, ZonedDevice,
};
use zonal_compliance::{Interface, Report, Scope, Target, check};

fn target(device: &dyn ZonedDevice, rules: Rules) -> Target<'_> {
    let transfer = LbaCount::new(1 << 20);
    let interface = Interface::Library;
    Target { name: "a device", device, interface, rules, transfer, filters: None }
}

fn base() -> GeometrySpec {
    GeometrySpec {
        block_size: BlockSize::B4096,
        block_count: LbaCount::new(16 * 24),
        zone_size: LbaCount::new(24),
        zone_capacity: LbaCount::new(24),
        conventional_zones: ZoneRuns::NONE,
        sequential_kind: ZoneKind::SequentialRequired,
        max_open: Some(3),
        max_active: Some(5),
        max_append: LbaCount::new(4),
    }
}

fn whole(device: &dyn ZonedDevice) -> Scope {
    let last = ZoneId::new(device.geometry().zone_count() - 1);
    Scope::Zones { first: ZoneId::ZERO, last }
}

fn report(device: &dyn ZonedDevice, rules: Rules, scope: Scope) -> Report {
    check(&target(device, rules), scope, &mut |_, _| {}).unwrap()
}

fn assert_compliant(name: &str, report: &Report) {
    let broken: Vec<_> = report.outcomes.iter().filter(|one| one.verdict == "fail").collect();
    assert!(broken.is_empty(), "{name}: {broken:#?}");
}

fn memory(spec: GeometrySpec) -> MemoryDrive {
    MemoryDrive::new(spec).unwrap()
}

fn file(rules: Rules) -> (FileDrive, TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.zns");
    let (geometry, uuid, overwrite) = (base(), [7; 16], Overwrite::Refuse);
    FileDrive::create(&path, &CreateOptions { geometry, rules, uuid, overwrite }).unwrap();
    (FileDrive::open(&path, OpenMode::ReadWrite).unwrap(), dir)
}

/// Tries each rule of such zones in memory, in a file and on layers.
#[test]
fn preferred_zones_break_no_rule() {
    let sequential_kind = ZoneKind::SequentialPreferred;
    let conventional_zones = ZoneRuns::leading(2);
    let spec = GeometrySpec {
        sequential_kind,
        conventional_zones,
        max_open: None,
        max_active: None,
        ..base()
    };
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("drive.zns");
    let options = CreateOptions {
        geometry: spec,
        rules: Rules::Zbc,
        uuid: [7; 16],
        overwrite: Overwrite::Refuse,
    };
    FileDrive::create(&path, &options).unwrap();
    let devices: [(&str, Box<dyn ZonedDevice>); 3] = [
        ("mem", Box::new(memory(spec))),
        ("file", Box::new(FileDrive::open(&path, OpenMode::ReadWrite).unwrap())),
        ("po2:mem", Box::new(PowerOfTwo::new(memory(spec)).unwrap())),
    ];
    for (name, device) in devices {
        let report = report(&*device, Rules::Zbc, whole(&*device));
        assert_compliant(name, &report);
        let tried = report.outcomes.iter().filter(|one| one.rule_name.starts_with("preferred."));
        let passed = tried.clone().filter(|one| one.verdict == "pass").count();
        assert_eq!((tried.count(), passed), (13, 13), "{name}");
    }
}

/// A drive whose zones take writes at the pointer only is no host-aware one.
#[test]
fn rules_of_preferred_zones_find_required_ones() {
    /// Says that its zones are preferred.
    struct Pretender(MemoryDrive, zonal::Geometry);
    impl ZonedDevice for Pretender {
        zonal::pass_on!(0: read, write, append, manage, flush, deallocate);
        fn geometry(&self) -> &zonal::Geometry {
            &self.1
        }
        fn report(
            &self,
            first: ZoneId,
            zones: &mut Vec<zonal::Zone>,
            limit: usize,
        ) -> zonal::error::Result<()> {
            let before = zones.len();
            self.0.report(first, zones, limit)?;
            for zone in &mut zones[before..] {
                zone.kind = self.1.kind(zone.id);
            }
            Ok(())
        }
    }
    let spec = GeometrySpec { max_open: None, max_active: None, ..base() };
    let sequential_kind = ZoneKind::SequentialPreferred;
    let shown = zonal::Geometry::new(GeometrySpec { sequential_kind, ..spec }).unwrap();
    let device = Pretender(MemoryDrive::with_rules(spec, Rules::Zbc).unwrap(), shown);
    let report = report(&device, Rules::Zbc, whole(&device));
    let verdict = |name: &str| {
        let mut outcomes = report.outcomes.iter();
        outcomes.find(|one| one.rule_name == format!("preferred.{name}")).unwrap().verdict
    };
    for name in ["below", "kept", "above", "hole", "full", "last", "closed", "marked", "empty"] {
        assert_eq!(verdict(name), "fail", "{name}");
    }
    for name in ["pointer", "sequential", "limits"] {
        assert_eq!(verdict(name), "pass", "{name}");
    }
}

#[test]
fn own_devices_break_no_rule() {
    let gap = GeometrySpec { zone_capacity: LbaCount::new(17), ..base() };
    let shapes = [
        ("plain", base()),
        ("gap", gap),
        ("512", GeometrySpec { block_size: BlockSize::B512, ..gap }),
        ("runt", GeometrySpec { block_count: LbaCount::new(15 * 24 + 11), ..base() }),
        ("conventional", GeometrySpec { conventional_zones: ZoneRuns::leading(2), ..base() }),
        (
            "conventional anywhere",
            GeometrySpec { conventional_zones: "1,4-5,12-15".parse().unwrap(), ..base() },
        ),
        ("limits of one", GeometrySpec { max_open: Some(1), max_active: Some(1), ..base() }),
        ("open limit", GeometrySpec { max_active: None, ..base() }),
        ("active limit", GeometrySpec { max_open: None, ..base() }),
        ("no limits", GeometrySpec { max_open: None, max_active: None, ..base() }),
        ("equal limits", GeometrySpec { max_active: Some(3), ..base() }),
    ];
    let range = || ZoneRange { first: ZoneId::new(0), last: None };
    for (shape, spec) in shapes {
        let limits = ZoneLimits { open: spec.max_open, active: spec.max_active };
        let unlimited = GeometrySpec { max_open: None, max_active: None, ..spec };
        let part = |blocks: LbaCount, first: u32, last: u32| {
            let (first, last) = (ZoneId::new(first), ZoneId::new(last));
            let conventional_zones = spec.conventional_zones.within(first, last);
            memory(GeometrySpec { block_count: blocks, conventional_zones, ..spec })
        };
        let first = LbaCount::new(3 * 24);
        let rest = spec.block_count - first;
        let concat = Concat::new(vec![part(first, 0, 2), part(rest, 3, 15)]).unwrap();
        let devices: [(&str, Box<dyn ZonedDevice>); 6] = [
            ("mem", Box::new(memory(spec))),
            ("po2:mem", Box::new(PowerOfTwo::new(memory(spec)).unwrap())),
            ("slice:mem", Box::new(Slice::new(memory(spec), range()).unwrap())),
            ("concat", Box::new(concat)),
            ("limited:mem", Box::new(Limited::new(memory(unlimited), limits).unwrap())),
            ("shared", Box::new(Arc::new(memory(spec)))),
        ];
        for (name, device) in devices {
            let found = report(&*device, Rules::Zns, whole(&*device));
            assert_compliant(&format!("{name} of shape {shape}"), &found);
            assert!(found.totals.passed > 200, "{name} {shape}: {:?}", found.totals);
        }
    }
}

#[test]
fn drive_files_break_no_rule_of_either_set() {
    for rules in [Rules::Zns, Rules::Zbc] {
        let (drive, _dir) = file(rules);
        assert_compliant(&format!("{rules:?}"), &report(&drive, rules, whole(&drive)));
    }
}

#[test]
fn rules_have_names_of_their_own_and_are_enough() {
    let rules = zonal_compliance::check::rules(Rules::Zns);
    let mut names = BTreeSet::new();
    for rule in &rules {
        assert!(names.insert(rule.id.clone()), "{}", rule.id);
        assert!(rule.requires.ends_with('.') && !rule.clause.is_empty(), "{}", rule.id);
    }
    println!("{} rules", rules.len());
    assert!(rules.len() >= 200);
}

#[test]
fn check_read_only_writes_nothing() {
    let drive = memory(base());
    drive.append(ZoneId::new(2), &[7; 4096]).unwrap();
    let before = drive.report_all().unwrap();
    let found = report(&drive, Rules::Zns, Scope::ReadOnly);
    assert_compliant("read only", &found);
    assert_eq!(drive.report_all().unwrap(), before);
    assert!(found.limits.is_empty() && found.totals.passed > 25, "{:?}", found.totals);
}

#[test]
fn check_of_range_leaves_other_zones() {
    let drive = memory(GeometrySpec { max_open: None, max_active: None, ..base() });
    for zone in [0, 1, 9, 15] {
        drive.append(ZoneId::new(zone), &[7; 4096]).unwrap();
    }
    let before = drive.report_all().unwrap();
    let scope = Scope::Zones { first: ZoneId::new(3), last: ZoneId::new(8) };
    let found = report(&drive, Rules::Zns, scope);
    assert_compliant("a range", &found);
    assert_eq!(drive.report_all().unwrap(), before);
}
