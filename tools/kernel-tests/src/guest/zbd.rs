//! fio's tests of zoned block devices, `t/zbd/test-zbd-support`, on drives that `zonal serve`
//! serves.
//!
//! They come with fio's source package; the fio that they test with is the guest's.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::export::{Export, Way};
use super::side;
use xtask::tally::Tally;

/// Where the host puts the scripts, if it could get them.
const SCRIPTS: &str = "/share/zbd";

/// Tests that these drives give nothing to do, and why.
const NOT_FOR_US: [(&str, &[u32]); 3] = [
    ("for SCSI", &[9, 10]),
    ("for devices without zones", &[42, 43, 49, 56]),
    ("for the bad blocks of null_blk", &[72, 73, 74, 75]),
];

/// A drive that the tests run on.
struct Drive {
    way: Way,
    name: &'static str,
    device: &'static str,
    /// Reasons for which tests do nothing on this drive, and the numbers of these tests.
    idle: &'static [(&'static str, &'static [u32])],
}

/// Of fewer than 129 zones, so that two tests are idle: one of them fails in fio itself, on
/// `null_blk` as well.
const DRIVES: [Drive; 2] = [
    Drive {
        way: Way::NvmeTcp,
        name: "over NVMe/TCP, an open limit",
        device: "mem:size=512M,zone=4M,capacity=3M,open=16,active=none",
        idle: &[
            ("for 129 zones and more", &[3, 4]),
            ("for conventional zones", &[14, 50, 51, 52, 53]),
            ("for an active limit", &[66, 67]),
        ],
    },
    Drive {
        way: Way::Ublk,
        name: "over ublk and `po2:`, conventional zones, both limits, a smaller last zone",
        device: "po2:mem:profile=smr,size=448M,zone=3M,conventional=22,open=8,active=12",
        idle: &[
            ("for 129 zones and more", &[3, 4]),
            ("for an open limit that is not below the active one", &[66, 67]),
            ("for no active limit", &[71]),
        ],
    },
];

/// All of them on one kind of export.
pub(super) fn over_nvme_tcp(tally: &mut Tally) {
    checks(&DRIVES[0], tally);
}

/// The same on the other.
pub(super) fn over_ublk(tally: &mut Tally) {
    checks(&DRIVES[1], tally);
}

fn checks(drive: &Drive, tally: &mut Tally) {
    let name = format!("fio's tests of zoned devices {}", drive.name);
    if Path::new(SCRIPTS).exists() {
        tally.check(&name, || drive.judge(&run_on(drive)?));
    } else {
        tally.skip(&name, "its source package cannot be had");
    }
}

/// How each test ended, by its number: `PASS`, `FAIL`, or `SKIP` and why.
type Outcome = BTreeMap<u32, String>;

fn run_on(drive: &Drive) -> Result<Outcome> {
    let name = drive.name;
    let place = PathBuf::from(format!("/tmp/zbd{}", side::next_number()));
    // They look for fio two folders above.
    let scripts = place.join("t/zbd");
    fs::create_dir_all(&scripts)?;
    for script in fs::read_dir(SCRIPTS)? {
        let script = script?;
        fs::copy(script.path(), scripts.join(script.file_name()))?;
    }
    symlink("/usr/bin/fio", place.join("fio"))?;
    let (export, disk) = Export::start(drive.way, drive.device)?;
    let mut tests = Command::new("bash")
        .args(["t/zbd/test-zbd-support", "-r"])
        .arg(disk)
        .current_dir(&place)
        .stdout(Stdio::piped())
        .spawn()
        .context("starting bash")?;
    let mut outcome = Outcome::new();
    let mut said = String::new();
    for line in BufReader::new(tests.stdout.take().context("their output")?).lines() {
        let line = line?;
        if let Some((number, how)) = result(&line) {
            println!("{name}: test {number}: {how}");
            if how.starts_with("FAIL") {
                println!("{}", log_end(&scripts, number));
            }
            outcome.insert(number, how);
        } else {
            said = said + &line + "\n";
        }
    }
    let ended = tests.wait()?;
    if outcome.is_empty() {
        println!("{name}: the script ran no test and ended with {ended}\n{said}");
    }
    fs::remove_dir_all(place)?;
    export.end()?;
    Ok(outcome)
}

/// The number and the end of `Running test 07 ... PASS`.
fn result(line: &str) -> Option<(u32, String)> {
    let (number, how) = line.strip_prefix("Running test ")?.split_once(" ... ")?;
    let words: Vec<&str> = how.split_whitespace().collect();
    Some((number.parse().ok()?, words.join(" ")))
}

/// The last that a test said.
fn log_end(scripts: &Path, number: u32) -> String {
    let log = scripts.join(format!("test-zbd-support.log.{number}"));
    let text = fs::read(log).unwrap_or_default();
    String::from_utf8_lossy(&text[text.len().saturating_sub(2000)..]).into_owned()
}

impl Drive {
    /// Every test of the script has run, and has passed unless it is known why it cannot.
    fn judge(&self, outcome: &Outcome) -> Result<()> {
        let skipped = |number: &u32| {
            let reasons = NOT_FOR_US.iter().chain(self.idle);
            reasons.flat_map(|(_, tests)| *tests).any(|test| test == number)
        };
        let count = outcome.values().filter(|how| *how == "PASS").count();
        println!("{}: {count} of {} passed", self.name, outcome.len());
        let last = outcome.keys().next_back().copied().unwrap_or(0);
        ensure!(last >= 75, "only {last} tests");
        let wrong: Vec<String> = (1..=last)
            .filter(|number| !skipped(number))
            .map(|number| (number, outcome.get(&number).map_or("did not run", String::as_str)))
            .filter(|(_, how)| *how != "PASS")
            .map(|(number, how)| format!("test {number}: {how}"))
            .collect();
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }
}
