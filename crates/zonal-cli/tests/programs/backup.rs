//! Backups by restic, borg and rsync: the commands of the page, on a drive file in place of a disk,
//! and on one that is full.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::place::Place;
use crate::{find, page, run, text, zonal};

/// The page's names of a disk, a mount point and the data.
const NAMES: [&str; 3] = ["/dev/disk/by-id/ata-NAME", "/mnt/backup", "/home"];

/// Runs blocks of the page in one shell, on the drive and the folders of the test.
fn run_as_on_page(place: &Place, blocks: &[&str]) -> String {
    let names = ["drive.zns", "mnt", "home"].map(|name| place.path(name));
    let mut script = blocks.join("\n");
    for (of_page, of_test) in NAMES.iter().zip(&names) {
        script = script.replace(of_page, text(of_test));
    }
    // The spare file of a disk is larger than the whole drive file.
    let script = script.replace("fallocate -l 4G", "fallocate -l 600M");
    let mut shell = Command::new("sh");
    shell.env("HOME", place.path("")).env("BORG_RELOCATED_REPO_ACCESS_IS_OK", "yes");
    page::run_block(&script, &place.path(""), &[], shell)
}

#[test]
#[ignore = "needs root, restic, borg and rsync; run by cargo xtask test"]
fn backup_page_commands_work_up_to_full_disk() {
    for program in ["restic", "borg", "rsync", "lsblk"] {
        if find(program).is_none() {
            return;
        }
    }
    let Some(place) = Place::unmade("mnt") else { return };
    let drive = place.path("drive.zns");
    zonal(&["create", text(&drive), "--profile", "smr", "--zones", "90", "--zone-size", "16M"]);
    let home = place.path("home");
    fs::create_dir(&home).unwrap();
    write_random(&home.join("photo"), 40);
    fs::write(home.join("letter"), "dear reader\n").unwrap();

    let blocks = page::blocks("backup.md");
    let [look, make, restic, borg, rsync, restic_full, borg_full, month, checks, restore] =
        &blocks[..]
    else {
        panic!("{blocks:?}")
    };
    // The machine of the test may have no disks, and something for the doctor to name.
    let told = run_as_on_page(&place, &["set +e", look, "true"]);
    assert!(told.contains("ZONED"), "{told}");
    run_as_on_page(&place, &[make]);
    let told = run_as_on_page(&place, &[restic, borg, rsync]);
    assert!(told.contains("snapshot") && told.contains("saved"), "{told}");

    // The next day does not fit.
    write_random(&home.join("photo"), 40);
    let fill = format!("cat /dev/zero > {}/ballast || true", text(&place.dir()));
    run_as_on_page(&place, &[&fill]);
    let [for_restic, for_borg] = [restic, borg].map(|block| block.lines().next().unwrap());
    let fails = |command: &str| {
        let command = format!("if {command}; then exit 9; fi");
        run_as_on_page(&place, &[for_restic, for_borg, &command])
    };
    let told = fails("restic backup /home");
    assert!(told.contains("no space left on device"), "{told}");
    let told = fails("borg create ::full /home");
    // borg finds out before it begins, or later.
    let refused = ["Insufficient free space", "No space left on device"];
    assert!(refused.iter().any(|words| told.contains(words)), "{told}");
    run_as_on_page(&place, &[for_restic, restic_full]);
    run_as_on_page(&place, &[for_borg, borg_full]);
    fs::remove_file(place.dir().join("ballast")).unwrap();

    run_as_on_page(&place, &[restic, borg, rsync]);
    let told = run_as_on_page(&place, &[month]);
    assert!(told.contains(": clean, "), "{told}");
    run_as_on_page(&place, &[for_restic, for_borg, checks, restore]);
    for restored in ["restored", "mnt/rsync/latest"] {
        let mut diff = Command::new("diff");
        let inside = if restored == "restored" { text(&home) } else { "" };
        run(diff.arg("-r").arg(&home).arg(format!("{}{inside}", text(&place.path(restored)))));
    }
    place.unmount();
    place.check();
}

fn write_random(path: &Path, mib: usize) {
    let mut head = Command::new("head");
    let file = fs::File::create(path).unwrap();
    assert!(
        head.args(["-c", &format!("{mib}M"), "/dev/urandom"])
            .stdout(file)
            .status()
            .unwrap()
            .success()
    );
}
