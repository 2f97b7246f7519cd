//! The guide's table of mount options says which ones a remount changes: the test tries each row.

use std::path::Path;

use super::{Place, ZONAL, errors, run, text, zonal};

/// Options that may already hold, depending on the kernel.
const OF_THE_KERNEL: [&str; 3] = ["uring", "nouring", "noasync-dio"];

/// A row of the table.
struct Row {
    option: String,
    of: String,
    default: String,
    remount: String,
}

fn rows() -> Vec<Row> {
    let page = include_str!("../../../../docs/guide/operate/mount-options.md");
    let (_, table) = page.split_once("| option | mounts of |").unwrap();
    let rows = table.lines().skip(2).take_while(|line| line.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        let [option, of, default, remount, _] = cells[..] else { panic!("{line}") };
        Row {
            option: option.trim_matches('`').to_owned(),
            of: of.to_owned(),
            default: default.to_owned(),
            remount: remount.to_owned(),
        }
    };
    rows.map(row).collect()
}

/// The option with a value that does not hold yet.
fn with_value(option: &str) -> String {
    for (kind, value) in
        [("=SIZE", "=128MiB"), ("=N", "=2"), ("=SECONDS", "=7"), ("=PORT", "=9464")]
    {
        if let Some(name) = option.strip_suffix(kind) {
            return format!("{name}{value}");
        }
    }
    option.to_owned()
}

/// Tries the rows of these kinds of mounts on a mount, and returns how many it tried.
fn try_rows(place: &Place, kinds: &[&str]) -> usize {
    let (drive, dir) = (place.drive(), place.dir());
    let mut tried = 0;
    for Row { option, of, default, remount } in rows() {
        let is_skipped = option == "remount" || OF_THE_KERNEL.contains(&&*option);
        if !kinds.contains(&&*of) || is_skipped {
            continue;
        }
        let options = format!("remount,{}", with_value(&option));
        let output = run(Path::new(ZONAL), &["mount", "-o", &options, text(&drive), text(&dir)]);
        // A remount may repeat an option that already holds.
        let holds = ["yes", "for root"].contains(&&*default) || option == "atime";
        let is_allowed = match &*remount {
            "yes" => true,
            "no" => holds,
            other => panic!("{option}: {other:?} in the column about remounts"),
        };
        let said = errors(&output);
        assert_eq!(output.status.success(), is_allowed, "{options}: {said}");
        assert!(is_allowed || said.contains("cannot be changed"), "{options}: {said}");
        tried += 1;
    }
    tried
}

#[test]
fn remount_of_furrow_follows_table() {
    let Some(place) = Place::mountable() else { return };
    place.mount("threads=3");
    assert!(try_rows(&place, &["both", "Furrow"]) > 25);
}

#[test]
fn remount_of_zonefs_follows_table() {
    let Some(place) = Place::mountable() else { return };
    zonal(&["mkzonefs", text(&place.drive()), "--force"]);
    place.mount("rw");
    assert!(try_rows(&place, &["zonefs"]) > 7);
}

#[test]
fn remount_to_writable_keeps_counts_and_verbosity() {
    let Some(place) = Place::mountable() else { return };
    let (drive, dir, log) = (place.drive(), place.dir(), place.path("log"));
    let counts = place.path("counts.json");
    let options = ["--log", text(&log), "--counts", text(&counts), "-vv", "-o", "ro"];
    zonal(&[["mount", text(&drive), text(&dir)].as_slice(), &options].concat());
    zonal(&["mount", "-o", "remount,rw", text(&drive), text(&dir)]);
    let daemon = zonal_fuse::unmount::daemon_of(&dir).unwrap();
    let command = std::fs::read(format!("/proc/{daemon}/cmdline")).unwrap();
    let command: Vec<_> = command.split(|byte| *byte == 0).collect();
    assert_eq!(command.iter().filter(|word| **word == b"-v").count(), 2, "{command:?}");
    std::fs::write(dir.join("file"), vec![1; 1 << 20]).unwrap();
    place.umount();
    let counts: serde_json::Value =
        serde_json::from_slice(&std::fs::read(&counts).unwrap()).unwrap();
    let written = counts.to_string();
    assert!(written.contains("1048576"), "{written}");
}

#[test]
fn remount_to_writable_refuses_mount_in_foreground() {
    let Some(place) = Place::mountable() else { return };
    let (drive, dir) = (place.drive(), place.dir());
    let mut served = std::process::Command::new(ZONAL)
        .args(["mount", "--foreground", "-o", "ro", text(&drive), text(&dir)])
        .stdin(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let log = std::io::BufReader::new(served.stderr.take().unwrap());
    let mut lines = std::io::BufRead::lines(log);
    assert!(lines.by_ref().any(|line| line.unwrap().contains("mounted")), "it ended");
    let arguments = ["mount", "-o", "remount,rw", text(&drive), text(&dir)];
    let refused = errors(&run(Path::new(ZONAL), &arguments));
    let process = format!("process {} serves it in the foreground", served.id());
    assert!(refused.contains(&process), "{refused}");
    zonal(&["umount", text(&dir)]);
    drop(lines);
    assert!(served.wait().unwrap().success());
}
