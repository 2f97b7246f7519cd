//! Processes that serve the measured mounts: this program, run again.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::mount::{UnmountFlags, unmount};
use zonal::file::{CreateOptions, Overwrite};
use zonal::layer::delay::Delay;
use zonal::profile::Changes;
use zonal::{FileDrive, OpenMode, Rules, SystemClock, ZonedDevice, spec};
use zonal_fs::furrow::{self, Furrow};
use zonal_fs::vfs::FileSystem;
use zonal_fs::zonefs::{self, ZoneFs};
use zonal_fuse::latency::Latencies;
use zonal_fuse::options::DirectWrites;
use zonal_fuse::{MountConfig, MountContent};

use crate::ceiling;
use crate::content::Log;

/// Which daemon this process is to be: its target and mount point.
const SERVE: &str = "ZONAL_BENCH_SERVE";

/// The drive of zonefs, and that of Furrow.
const ZONES: &str = "zone=32M,zones=9";
const FURROW: &str = "zone=96M,size=4G,open=14,active=28";

/// How long each call takes of a drive that takes time.
const LATENCY: Duration = Duration::from_micros(100);

/// A process that serves a mount, ended with it.
pub(crate) struct Daemon {
    child: Child,
    pub(crate) point: PathBuf,
}

impl Daemon {
    /// Serves `what`, a word that [`serve`] knows, below `dir`.
    pub(crate) fn start(what: &str, dir: &Path) -> Self {
        let point = dir.join(format!("mnt-{}", what.trim_end_matches(':')));
        fs::create_dir(&point).expect("a mount point");
        let mut child = Command::new(env::current_exe().expect("a program knows its path"))
            .env(SERVE, format!("{what}\n{}", point.display()))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        let ready = lines.by_ref().map_while(Result::ok).any(|line| line == "READY");
        assert!(ready, "{what} did not start");
        Self { child, point }
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // Nothing is lost with it.
        let _ = unmount(&self.point, UnmountFlags::DETACH | UnmountFlags::FORCE);
        let _ = self.child.wait();
    }
}

/// Whether this process is a daemon; if so, its work is done by then.
pub(crate) fn is_asked_for() -> bool {
    let Some(what) = env::var_os(SERVE) else { return false };
    let what = what.into_string().expect("we have set it");
    let (what, point) = what.split_once('\n').expect("we have set it");
    serve(what, Path::new(point));
    true
}

fn serve(what: &str, point: &Path) {
    if what.starts_with("ceiling") {
        let log = || Log::create(&point.with_extension("log")).expect("a log");
        let log = (what == "ceiling-log").then(log);
        return ceiling::serve(point, log).expect("it serves");
    }
    let mut config = MountConfig::new(what, point);
    let fs: Arc<dyn FileSystem> = if what.starts_with("furrow") {
        let options = match what {
            "furrow-back" => "nouring,writeback",
            "furrow-rings" => "uring",
            "furrow-many" | "furrow-slow-many" => "nouring,threads=34",
            _ => "nouring",
        };
        config.apply(options).expect("an option");
        let mut device = file(FURROW, &point.with_extension("drive"));
        if what.starts_with("furrow-slow") {
            device = Arc::new(Delay::new(device, LATENCY));
        }
        let (clock, options) = (SystemClock::new(), furrow::MkfsOptions::default());
        furrow::mkfs(Arc::clone(&device), &clock, &options, &mut |_| ()).expect("formatted");
        let options = furrow::MountOptions::default();
        Arc::new(Furrow::mount(device, Arc::new(clock), options).expect("mounted"))
    } else {
        "zonefs".clone_into(&mut config.kind);
        config.apply("nouring").expect("an option");
        if what == "warm" {
            config.direct_writes = DirectWrites::Cache;
        }
        let drive = point.with_extension("drive");
        Arc::new(zonefs(zones(if what == "warm" { "mem:" } else { what }, &drive)))
    };
    let latencies = Arc::new(Latencies::new(Arc::new(SystemClock::new())));
    let content = MountContent { fs, control: None, latencies };
    zonal_fuse::serve(content, &config, |_| println!("READY")).expect("it serves");
}

/// A new zonefs.
pub(crate) fn zonefs(device: Arc<dyn ZonedDevice>) -> ZoneFs {
    zonefs::mkfs(&*device, &zonefs::MkfsOptions::default(), &mut |_| ()).expect("formatted");
    let clock = Arc::new(SystemClock::new());
    ZoneFs::mount(device, clock, zonefs::MountOptions::default()).expect("mounted")
}

/// A drive for zonefs, in memory (`mem:`) or in a file next to `path` that `what` names.
pub(crate) fn zones(what: &str, path: &Path) -> Arc<dyn ZonedDevice> {
    if what == "mem:" {
        let clock = Arc::new(SystemClock::new());
        return spec::open(&format!("mem:{ZONES}"), OpenMode::ReadWrite, clock).expect("a device");
    }
    file(ZONES, &path.with_extension(what.replace(' ', "-")))
}

/// A new drive file.
fn file(shape: &str, path: &Path) -> Arc<dyn ZonedDevice> {
    let shape: Changes = shape.parse().expect("a shape");
    let options = CreateOptions {
        geometry: shape.geometry().expect("a possible shape"),
        rules: Rules::Zns,
        uuid: [1; 16],
        overwrite: Overwrite::Refuse,
    };
    FileDrive::create(path, &options).expect("a drive file");
    Arc::new(FileDrive::open(path, OpenMode::ReadWrite).expect("a device"))
}
