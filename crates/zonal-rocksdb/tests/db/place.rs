//! A drive file, and the programs that use it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use tempfile::TempDir;
use zonal::OpenMode;
use zonal::file::{CreateOptions, FileDrive, Overwrite};
use zonal::profile::Changes;
use zonal::{Clock, Rules, SystemClock};
use zonal_fs::furrow::{self, CheckOptions, DataCheck, MkfsOptions, MountOptions};
use zonal_fs::vfs::{Access, FileKind};
use zonal_fs::volume::{Volume, VolumeOptions};
use zonal_fs::zonefs;
use zonal_rocksdb::zonal_kv::zones::ZoneStore;

/// The library; `None`, after a message, where it cannot be used.
pub(crate) fn library() -> Option<PathBuf> {
    for program in ["db_bench", "ldb"] {
        if Command::new(program).arg("--help").output().is_err() {
            println!("SKIP: there is no {program} (rocksdb-tools)");
            return None;
        }
    }
    // Next to the tests: cargo builds the library for them.
    let test = std::env::current_exe().unwrap();
    Some(test.parent().unwrap().join("libzonal_rocksdb.so"))
}

/// The output of a program, which has to succeed.
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

/// The file system on the drive: the same contract holds for both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Furrow,
    Zonefs,
}

impl Kind {
    pub(crate) const ALL: [Self; 2] = [Self::Furrow, Self::Zonefs];
}

pub(crate) struct Place {
    kind: Kind,
    folder: TempDir,
    library: PathBuf,
}

impl Place {
    /// A drive of this shape with an empty file system.
    pub(crate) fn new(kind: Kind, shape: &str) -> Option<Self> {
        let library = library()?;
        println!("{kind:?}");
        let place = Self { kind, folder: tempfile::tempdir().unwrap(), library };
        std::fs::create_dir(place.path("memory")).unwrap();
        place.make_again(shape);
        Some(place)
    }

    /// Replaces the drive by a new one.
    pub(crate) fn make_again(&self, shape: &str) {
        create(&self.drive(), shape);
        let (drive, uuid) = (self.open_drive(), [7; 16]);
        match self.kind {
            Kind::Furrow => {
                let options = MkfsOptions { uuid, ..MkfsOptions::default() };
                furrow::mkfs(Arc::new(drive), &SystemClock::new(), &options, &mut |_| ()).unwrap();
            }
            Kind::Zonefs => {
                let options = zonefs::MkfsOptions { uuid, ..zonefs::MkfsOptions::default() };
                zonefs::mkfs(&drive, &options, &mut |_| ()).unwrap();
            }
        }
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

    /// Compiles a program of this folder, with the library.
    pub(crate) fn compile(&self, source: &str) -> PathBuf {
        let program = self.path("compiled");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
        let mut compile = Command::new("c++");
        compile.args(["-std=c++20", "-O1", "-Wall", "-Wextra", "-Werror", "-o"]).arg(&program);
        compile.arg(source).arg("-L").arg(self.library.parent().unwrap());
        if let Some(headers) = std::env::var_os("ROCKSDB_INCLUDE_DIR") {
            compile.arg("-isystem").arg(headers);
        }
        if let Some(folder) = std::env::var_os("ROCKSDB_LIB_DIR") {
            compile.arg("-L").arg(folder);
        }
        // The last option keeps a library of which nothing is called by name.
        output(compile.args(["-Wl,--no-as-needed", "-lzonal_rocksdb", "-lrocksdb"]));
        program
    }

    /// A compiled program, which finds the library.
    pub(crate) fn compiled(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        let own = self.library.parent().map(PathBuf::from);
        let folders = own.into_iter().chain(std::env::var_os("ROCKSDB_LIB_DIR").map(PathBuf::from));
        command.env("LD_LIBRARY_PATH", std::env::join_paths(folders).unwrap());
        command
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
        match self.kind {
            Kind::Furrow => self.check_furrow(),
            Kind::Zonefs => self.check_zones(),
        }
    }

    /// Every file can be read, and every zone is free or has bytes of a file.
    fn check_zones(&self) {
        let volume = self.mount();
        let mut paths = vec![PathBuf::from("/")];
        let mut blocks = 0;
        while let Some(path) = paths.pop() {
            for entry in volume.read_dir(&path).unwrap() {
                let entry = entry.unwrap();
                let path = path.join(&entry.name);
                if entry.kind == FileKind::Directory {
                    paths.push(path);
                    continue;
                }
                let size = volume.metadata(&path).unwrap().size;
                assert_eq!(volume.read(&path).unwrap().len() as u64, size);
                blocks += size / 4096;
            }
        }
        let space = volume.space().unwrap();
        assert!(space.blocks_free + blocks <= space.blocks, "{space:?}, {blocks} in files");
        volume.close().unwrap();
    }

    fn check_furrow(&self) {
        let options = CheckOptions { data: DataCheck::Read, memory: MountOptions::MEMORY.get() };
        let report = furrow::check(Arc::new(self.open_drive()), options, &mut |_| ()).unwrap();
        assert!(report.is_clean(), "{:?} {:?}", report.problems, report.losses);
    }

    pub(crate) fn mount(&self) -> Volume {
        let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());
        let (drive, options) = (Arc::new(self.open_drive()), VolumeOptions::default());
        match self.kind {
            Kind::Furrow => Volume::mount(drive, clock, &options).unwrap(),
            Kind::Zonefs => Volume::new(
                Arc::new(ZoneStore::mount(drive, clock, Access::ReadWrite).unwrap()),
                &options,
            ),
        }
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
