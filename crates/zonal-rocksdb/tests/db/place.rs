//! A drive file, and the programs that use it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use zonal::file::{CreateOptions, FileDrive, OpenMode, Overwrite};
use zonal::profile::Changes;
use zonal::{Rules, SystemClock};
use zonal_fs::furrow::{self, CheckOptions, DataCheck, MkfsOptions, MountOptions};
use zonal_fs::volume::{Volume, VolumeOptions};
use zonal_fs::zonefs;

/// The library; `None` where it cannot be used, after saying why.
pub(crate) fn library() -> Option<PathBuf> {
    for program in ["db_bench", "ldb"] {
        if Command::new(program).arg("--help").output().is_err() {
            println!("SKIP: there is no {program} (rocksdb-tools)");
            return None;
        }
    }
    // Beside the tests: cargo builds the library for them.
    let test = std::env::current_exe().unwrap();
    Some(test.parent().unwrap().join("libzonal_rocksdb.so"))
}

/// What a program prints that succeeds.
pub(crate) fn output(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {:?}\n{error}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// Makes a drive file.
fn create(path: &Path, shape: &str) {
    let options = CreateOptions {
        geometry: shape.parse::<Changes>().unwrap().geometry().unwrap(),
        rules: Rules::Zns,
        uuid: [1; 16],
        overwrite: Overwrite::Replace,
    };
    FileDrive::create(path, &options).unwrap();
}

pub(crate) struct Place {
    folder: TempDir,
    library: PathBuf,
}

impl Place {
    /// A drive of this shape with Furrow on it.
    pub(crate) fn new(shape: &str) -> Option<Self> {
        let library = library()?;
        let place = Self { folder: tempfile::tempdir().unwrap(), library };
        std::fs::create_dir(place.path("memory")).unwrap();
        place.make_again(shape);
        Some(place)
    }

    /// A new drive in the place of what was there.
    pub(crate) fn make_again(&self, shape: &str) {
        create(&self.drive(), shape);
        let options = MkfsOptions { uuid: [7; 16], ..MkfsOptions::default() };
        let clock = SystemClock::new();
        furrow::mkfs(Arc::new(self.open_drive()), &clock, &options, &mut |_| ()).unwrap();
    }

    /// A drive with an empty zonefs beside the other one.
    pub(crate) fn make_zonefs(&self, name: &str) {
        create(&self.path(name), "zone=4M,zones=16");
        let drive = FileDrive::open(self.path(name), OpenMode::ReadWrite).unwrap();
        zonefs::mkfs(&drive, &zonefs::MkfsOptions::default(), &mut |_| ()).unwrap();
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn drive(&self) -> PathBuf {
        self.path("drive.zns")
    }

    pub(crate) fn open_drive(&self) -> FileDrive {
        FileDrive::open(self.drive(), OpenMode::ReadWrite).unwrap()
    }

    pub(crate) fn uri(&self) -> String {
        self.uri_through("", &format!("unsynced={}", self.path("memory").display()))
    }

    pub(crate) fn uri_through(&self, layer: &str, options: &str) -> String {
        format!("zonal://{layer}{}?{options}", self.drive().display())
    }

    pub(crate) fn is_memory_empty(&self) -> bool {
        std::fs::read_dir(self.path("memory")).unwrap().next().is_none()
    }

    fn program(&self, name: &str, uri: &str) -> Command {
        let mut command = Command::new(name);
        command.env("LD_PRELOAD", &self.library).arg(format!("--fs_uri={uri}")).arg("--db=/kv");
        command
    }

    pub(crate) fn db_bench(&self) -> Command {
        self.db_bench_at(&self.uri())
    }

    pub(crate) fn db_bench_at(&self, uri: &str) -> Command {
        self.program("db_bench", uri)
    }

    pub(crate) fn ldb(&self) -> Command {
        self.program("ldb", &self.uri())
    }

    /// Checks the file system, with all data.
    pub(crate) fn check(&self) {
        let options = CheckOptions { data: DataCheck::Read, memory: MountOptions::MEMORY.get() };
        let report = furrow::check(Arc::new(self.open_drive()), options, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{:?} {:?}", report.problems, report.losses);
    }

    pub(crate) fn mount(&self) -> Volume {
        let clock = Arc::new(SystemClock::new());
        Volume::mount(Arc::new(self.open_drive()), clock, &VolumeOptions::default()).unwrap()
    }

    /// Keys of the store, which `ldb` finds consistent.
    pub(crate) fn count_keys(&self) -> u64 {
        let text = output(self.ldb().arg("checkconsistency"));
        assert!(text.contains("OK"), "{text}");
        let text = output(self.ldb().args(["dump", "--count_only"]));
        let count = text.lines().find_map(|line| line.strip_prefix("Keys in range: "));
        count.unwrap_or_else(|| panic!("{text}")).trim().parse().unwrap()
    }
}

/// The largest number of operations that a run has reported to have finished.
pub(crate) fn finished(text: &str) -> u64 {
    let reports = text.split(['\r', '\n']);
    let numbers = reports.filter_map(|line| {
        let (_, rest) = line.split_once("finished ")?;
        rest.split_once(" ops")?.0.trim().parse().ok()
    });
    numbers.max().unwrap_or(0)
}
