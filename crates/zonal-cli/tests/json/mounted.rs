//! The JSON of commands that mount, or that query a mount.

use std::fs;

use serde_json::Value;

use super::{Place, names};

/// The schemas that this file tests.
pub(crate) const COMMANDS: [&str; 6] = ["df", "ls", "mount", "reclaim", "stats", "umount"];

/// Unmounts at the end of a test, also of one that fails.
impl Drop for Place {
    fn drop(&mut self) {
        for dir in ["furrow", "zonefs"] {
            if self.path().join(dir).join(".zonal").exists() {
                let _ = self.output(&format!("umount --lazy {dir}"));
            }
        }
    }
}

#[test]
fn json_of_mount_commands_matches_schemas() {
    if !rustix::process::geteuid().is_root() || fs::File::open("/dev/fuse").is_err() {
        println!("SKIP: mounting needs root and /dev/fuse");
        return;
    }
    let mut place = Place::new();
    for (dir, shape) in [("furrow", "--zones 60"), ("zonefs", "--zones 8 --conventional 1")] {
        fs::create_dir(place.path().join(dir)).unwrap();
        place.must("create", &format!("create {dir}.zns --zone-size 1MiB {shape}"));
    }
    place.must("mkfs", "mkfs furrow.zns");
    place.must("mkzonefs", "mkzonefs zonefs.zns");
    place.shown.clear();
    place
        .must("mount", "mount furrow.zns furrow --log furrow.log -o threads=3,metrics=127.0.0.1:0");
    place.must("mount", "mount zonefs.zns zonefs --log zonefs.log");
    let file = place.path().join("furrow/file");
    fs::write(&file, vec![1; (5 << 20) + 300_000]).unwrap();
    fs::File::open(&file).unwrap().sync_all().unwrap();
    let known = names::rows();
    for dir in ["furrow", "zonefs"] {
        let documents = place.must("stats", &format!("stats {dir}"));
        let fields = documents[0].as_object().unwrap();
        let unknown: Vec<_> = fields.keys().filter(|name| !known.contains_key(*name)).collect();
        assert!(unknown.is_empty(), "docs/json.md says nothing of {unknown:?}, of {dir}");
        assert_eq!(fields["type"], dir);
    }
    place.must("reclaim", "reclaim furrow --until 50");
    place.quiet("reclaim furrow --pause");
    refused(&mut place);
    place.must("umount", "umount furrow");
    place.must("umount", "umount zonefs");
    // Zones that reclaim is emptying exist only for a moment.
    place.assert_all_shown(&["#/$defs/VictimZone"]);
}

/// An error that the daemon of a mount reports has its parts, too.
fn refused(place: &mut Place) {
    let output = place.output("mount furrow.zns zonefs");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    let document: Value = serde_json::from_str(text.lines().last().unwrap()).expect(&text);
    place.compare("error", &document);
    let hint = document["error"]["hint"].as_str().unwrap();
    assert!(hint.contains("zonal umount"), "{text}");
}
