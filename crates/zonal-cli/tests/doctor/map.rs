//! `zonal map`: a mount and its drive give the same map, and users without rights get none.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;

use serde_json::{Deserializer, Value};

use super::Place;

/// User and group of nobody.
const NOBODY: u32 = 65_534;

impl Place {
    fn zones(&self, line: &str) -> Vec<Value> {
        let output = self.run(line);
        assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        Deserializer::from_slice(&output.stdout).into_iter().map(Result::unwrap).collect()
    }
}

/// Bytes of each path in each zone.
fn bytes(zones: &[Value]) -> BTreeMap<(u64, String), u64> {
    let mut all = BTreeMap::new();
    for zone in zones {
        for file in zone["contents"].as_array().unwrap() {
            let path = file["path"].as_str().unwrap().to_owned();
            all.insert((zone["zone"].as_u64().unwrap(), path), file["bytes"].as_u64().unwrap());
        }
    }
    all
}

#[test]
fn map_of_mount_and_of_its_drive_are_equal() {
    let Some(place) = Place::mountable() else { return };
    place.make();
    place.mount("rw");
    fs::create_dir(place.path("mnt/a b")).unwrap();
    fs::write(place.path("mnt/a b/big"), vec![7; 5 << 20]).unwrap();
    for number in 0..30 {
        fs::write(place.path(&format!("mnt/{number}")), [number; 100]).unwrap();
    }
    let live = bytes(&place.zones("map mnt --json"));
    let sums = |path: &str| live.iter().filter(|((_, p), _)| p == path).map(|(_, b)| b).sum();
    let [big, small]: [u64; 2] = ["/a b/big", "/17"].map(sums);
    assert_eq!((big, small), (5 << 20, 4096), "{live:?}");
    // One zone, and one file, say the same as the whole.
    let ((zone, _), _) = live.first_key_value().unwrap();
    let one = bytes(&place.zones(&format!("map mnt --zone {zone} --json")));
    assert_eq!(
        one,
        live.iter().filter(|((z, _), _)| z == zone).map(|(k, v)| (k.clone(), *v)).collect()
    );
    let file = place.run("map mnt/17");
    let text = String::from_utf8(file.stdout).unwrap();
    assert!(text.ends_with("4 KiB in 1 extent in 1 zone\n"), "{text}");
    place.must("map drive.zns --html page.html");
    let page = fs::read_to_string(place.path("page.html")).unwrap();
    assert!(page.contains("/a b/big") && page.contains("<canvas"));
    place.must("umount mnt");
    assert_eq!(bytes(&place.zones("map drive.zns --json")), live);
}

#[test]
fn map_of_zonefs_shows_zone_of_file() {
    let place = Place::new();
    place.must("create drive.zns --zones 40 --zone-size 1MiB");
    place.must("mkzonefs drive.zns");
    fs::write(place.path("block"), [1; 4096]).unwrap();
    place.must("append drive.zns --zone 5 --input block --force");
    let found = bytes(&place.zones("map drive.zns --json"));
    assert_eq!(found, BTreeMap::from([((5, "/seq/4".to_owned()), 4096)]));
}

#[test]
fn map_is_for_readers_of_file_and_for_owner_of_mount() {
    let Some(place) = Place::mountable() else { return };
    place.make();
    place.mount("rw,allow_other");
    for (name, mode) in [("open", 0o644), ("secret", 0o600)] {
        fs::write(place.path(&format!("mnt/{name}")), "words").unwrap();
        let mode = fs::Permissions::from_mode(mode);
        fs::set_permissions(place.path(&format!("mnt/{name}")), mode).unwrap();
    }
    for (what, may) in [("mnt/open", true), ("mnt/secret", false), ("mnt", false)] {
        let mut command = place.command(&format!("map {what}"));
        let output = command.uid(NOBODY).gid(NOBODY).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.success(), may, "{what}: {errors}");
    }
}

#[test]
fn map_of_other_things_is_refused() {
    let place = Place::new();
    place.make();
    for what in [".", "nothing", "drive.zns:/nothing", "drive.zns --zone 40"] {
        let output = place.run(&format!("map {what}"));
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && errors.starts_with("zonal: "), "{what}: {errors}");
    }
}
