//! The configuration of a mount, and its options as mount(8) spells them.

use std::net::{Ipv4Addr, SocketAddr};
use std::num::NonZeroU16;
use std::path::{Path, PathBuf};

use rustix::mount::MountFlags;
use serde::{Deserialize, Serialize};
use zonal::size;
use zonal_fs::options::Taken;
use zonal_fs::{furrow, zonefs};

use crate::ServeError;
use crate::error::Result;

pub use zonal_fs::furrow::AtimePolicy;
pub use zonal_fs::vfs::Access;
pub use zonal_fuse_transport::mount::Audience;

/// The effect of write(2) on the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteCache {
    /// Each write(2) reaches the file system before it returns.
    #[default]
    Through,
    /// The kernel collects writes and sends them later (`writeback`).
    Back,
}

/// The effect of a direct write on the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DirectWrites {
    /// It drops the pages: a later buffered read fetches them.
    #[default]
    Bypass,
    /// It fills the pages, so that a later buffered read finds them in memory (`warm-cache`). Only
    /// in sequential zone files, where no byte is written twice.
    Cache,
}

/// How asynchronous direct reads (libaio, `io_uring`) of a writable zonefs come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AsyncDirect {
    /// In parallel, by a hidden mount, if root mounts and the kernel allows it (from Linux 6.9 on).
    #[default]
    Together,
    /// One after the other for each program, as its writes (`noasync-dio`).
    InTurn,
}

impl AsyncDirect {
    /// Name for statistics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Together => "together",
            Self::InTurn => "in turn",
        }
    }
}

/// How requests come from the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TransportChoice {
    /// Over `io_uring` if the kernel offers it, else by `/dev/fuse`.
    #[default]
    Fastest,
    /// By `/dev/fuse` (`nouring`).
    Device,
    /// Over `io_uring`; if the kernel does not offer it, the mount fails (`uring`).
    Rings,
}

bitflags::bitflags! {
    /// Restrictions that the kernel enforces.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(try_from = "String", into = "String")]
    pub struct Restrict: u32 {
        /// Device nodes do not work (`nodev`).
        const NODEV = 1;
        /// Setuid and setgid have no effect (`nosuid`).
        const NOSUID = 2;
        /// No program can be run (`noexec`).
        const NOEXEC = 4;
        /// Every write is synchronous (`sync`).
        const SYNC = 8;
        /// Every change of a directory is synchronous (`dirsync`).
        const DIRSYNC = 16;
        /// Symbolic links are not followed (`nosymfollow`).
        const NOSYMFOLLOW = 32;
        /// Access times of directories do not move (`nodiratime`).
        const NODIRATIME = 64;
        /// The mount table shows `lazytime`. It has no effect: times are committed like all
        /// changes.
        const LAZYTIME = 128;
        /// Restrictions that a remount changes.
        const CHANGEABLE = Self::NODEV.bits() | Self::NOSUID.bits() | Self::NOEXEC.bits()
            | Self::SYNC.bits() | Self::NOSYMFOLLOW.bits();
    }
}

impl TryFrom<String> for Restrict {
    type Error = bitflags::parser::ParseError;

    fn try_from(names: String) -> std::result::Result<Self, Self::Error> {
        bitflags::parser::from_str_strict(&names)
    }
}

impl From<Restrict> for String {
    fn from(flags: Restrict) -> Self {
        let mut names = Self::new();
        bitflags::parser::to_writer_strict(&flags, &mut names).expect("a string takes all");
        names
    }
}

/// How to mount.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MountConfig {
    /// Source in the mount table: the device spec, with an absolute path.
    pub source: String,
    /// Kind of file system, shown as `fuse.KIND` in the mount table.
    pub kind: String,
    /// The mount point. No other field depends on it.
    #[serde(skip)]
    pub mount_point: PathBuf,
    /// Reading and writing, or reading only.
    pub access: Access,
    /// When a read moves the access time. The file system needs it too.
    pub atime: AtimePolicy,
    /// Users of the mount: everyone if root mounts it, else only the owner.
    pub audience: Audience,
    /// Restrictions by the kernel. For an unprivileged user always `nodev` and `nosuid`.
    pub restrict: Restrict,
    /// The effect of write(2) on the page cache.
    pub write_cache: WriteCache,
    /// The effect of a direct write on the page cache.
    pub direct_writes: DirectWrites,
    /// How asynchronous direct reads of a zonefs come from the kernel.
    pub async_direct: AsyncDirect,
    /// How requests come from the kernel.
    pub transport: TransportChoice,
    /// The metadata drive of a Furrow, or `missing`; `None`: the one with its UUID, if it has one.
    pub metadata: Option<String>,
    /// Address of the metrics server for Prometheus; `None` for no server.
    pub metrics: Option<SocketAddr>,
    /// Serving threads, and thereby the largest queue depth of the device. `None`: enough for a
    /// device without latency.
    pub threads: Option<NonZeroU16>,
}

impl MountConfig {
    /// The default mount of `source` at `mount_point`, for the user who runs this process.
    pub fn new(source: &str, mount_point: &Path) -> Self {
        let root = rustix::process::geteuid().is_root();
        Self {
            source: source.to_owned(),
            kind: "furrow".to_owned(),
            mount_point: mount_point.to_owned(),
            access: Access::default(),
            atime: AtimePolicy::default(),
            audience: if root { Audience::Everyone } else { Audience::Owner },
            restrict: if root { Restrict::empty() } else { Restrict::NODEV | Restrict::NOSUID },
            write_cache: WriteCache::default(),
            direct_writes: DirectWrites::default(),
            async_direct: AsyncDirect::default(),
            transport: TransportChoice::default(),
            metadata: None,
            metrics: None,
            threads: None,
        }
    }

    /// Applies a comma-separated option string, as mount(8) and fstab give it. Options that only
    /// mount(8) itself acts on (`noauto`, `user`, `x-…`) are skipped, unknown ones refused.
    ///
    /// ```
    /// use zonal_fuse::options::{Access, MountConfig};
    ///
    /// let mut config = MountConfig::new("/srv/drive.zns", "/mnt".as_ref());
    /// config.apply("ro,nodev,nofail")?;
    /// assert_eq!(config.access, Access::ReadOnly);
    /// # Ok::<(), zonal_fuse::ServeError>(())
    /// ```
    pub fn apply(&mut self, options: &str) -> Result<()> {
        for option in options.split(',').filter(|option| !option.is_empty()) {
            self.apply_one(option)?;
        }
        Ok(())
    }

    /// Sizes the thread pool for a device with real latency: enough for a queue depth of 32. A
    /// number of threads that was given stays.
    pub fn use_blocking_device_threads(&mut self) {
        let count = u16::try_from(processors() + WAITING).ok().and_then(NonZeroU16::new);
        self.threads = self.threads.or(count);
    }

    /// Flags of mount(2): restrictions that the kernel enforces.
    pub fn flags(&self) -> MountFlags {
        let mut flags = MountFlags::empty();
        for (restriction, flag) in [
            (Restrict::NODEV, MountFlags::NODEV),
            (Restrict::NOSUID, MountFlags::NOSUID),
            (Restrict::NOEXEC, MountFlags::NOEXEC),
            (Restrict::SYNC, MountFlags::SYNCHRONOUS),
            (Restrict::DIRSYNC, MountFlags::DIRSYNC),
            (Restrict::NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
            (Restrict::NODIRATIME, MountFlags::NODIRATIME),
            (Restrict::LAZYTIME, MountFlags::LAZYTIME),
        ] {
            flags.set(flag, self.restrict.contains(restriction));
        }
        flags.set(MountFlags::NOATIME, self.atime == AtimePolicy::Never);
        flags.set(MountFlags::STRICTATIME, self.atime == AtimePolicy::Always);
        flags.set(MountFlags::RDONLY, self.access == Access::ReadOnly);
        flags
    }

    fn apply_one(&mut self, option: &str) -> Result<()> {
        match option {
            "ro" => self.access = Access::ReadOnly,
            "rw" => self.access = Access::ReadWrite,
            "noatime" => self.atime = AtimePolicy::Never,
            "strictatime" => self.atime = AtimePolicy::Always,
            "atime" | "relatime" => self.atime = AtimePolicy::Relative,
            "nostrictatime" if self.atime == AtimePolicy::Always => {
                self.atime = AtimePolicy::Relative;
            }
            // Without another option the kernel moves access times as `relatime` says.
            "norelatime" | "nostrictatime" => {}
            "allow_other" => self.audience = Audience::Everyone,
            "writeback" => self.write_cache = WriteCache::Back,
            "warm-cache" => self.direct_writes = DirectWrites::Cache,
            "nowarm-cache" => self.direct_writes = DirectWrites::Bypass,
            "noasync-dio" => self.async_direct = AsyncDirect::InTurn,
            "uring" => self.transport = TransportChoice::Rings,
            "nouring" => self.transport = TransportChoice::Device,
            "nodev" => self.restrict |= Restrict::NODEV,
            "dev" => self.restrict -= Restrict::NODEV,
            "nosuid" => self.restrict |= Restrict::NOSUID,
            "suid" => self.restrict -= Restrict::NOSUID,
            "noexec" => self.restrict |= Restrict::NOEXEC,
            "exec" => self.restrict -= Restrict::NOEXEC,
            "sync" => self.restrict |= Restrict::SYNC,
            "async" => self.restrict -= Restrict::SYNC,
            "dirsync" => self.restrict |= Restrict::DIRSYNC,
            "nosymfollow" => self.restrict |= Restrict::NOSYMFOLLOW,
            "symfollow" => self.restrict -= Restrict::NOSYMFOLLOW,
            "nodiratime" => self.restrict |= Restrict::NODIRATIME,
            "diratime" => self.restrict -= Restrict::NODIRATIME,
            "lazytime" => self.restrict |= Restrict::LAZYTIME,
            "nolazytime" => self.restrict -= Restrict::LAZYTIME,
            "remount" => {
                return Err(ServeError::Option {
                    option: option.to_owned(),
                    why: "a mount cannot be changed while it is served; unmount it first",
                });
            }
            other if other.starts_with(METRICS) => {
                self.metrics = Some(metrics_address(other)?);
            }
            other if other.starts_with(METADATA) => {
                self.metadata = Some(other[METADATA.len()..].to_owned());
            }
            other if other.starts_with(THREADS) => self.threads = Some(threads(other)?),
            other if is_for_mount(other) => {}
            other => {
                let why = "not known; `zonal mount --help` and mount(8) list those that are";
                return Err(ServeError::Option { option: other.to_owned(), why });
            }
        }
        Ok(())
    }
}

/// The options of one kind of file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindOptions {
    /// Options of Furrow.
    Furrow(furrow::MountOptions),
    /// Options of zonefs.
    Zonefs(zonefs::MountOptions),
}

impl KindOptions {
    /// The default options of a mount of Furrow.
    pub fn furrow() -> Self {
        let commit_seconds = furrow::MountOptions::COMMIT_SECONDS_OF_MOUNT;
        Self::Furrow(furrow::MountOptions { commit_seconds, ..Default::default() })
    }

    /// The default options of a mount of zonefs.
    pub fn zonefs() -> Self {
        Self::Zonefs(zonefs::MountOptions::default())
    }

    /// Takes one option, if only this kind has it.
    pub fn take(&mut self, option: &str) -> Taken {
        match self {
            Self::Furrow(options) => options.take(option),
            Self::Zonefs(options) => options.take(option),
        }
    }

    /// The options of a Furrow that are not the default.
    fn unshown(&self) -> Vec<String> {
        let named = |is_on| if is_on { "rotational" } else { "norotational" }.to_owned();
        let options = match self {
            Self::Furrow(options) => options,
            Self::Zonefs(options) => return options.rotational.map(named).into_iter().collect(),
        };
        let furrow::MountOptions { memory, max_open_zones, rotational, commit_seconds, .. } =
            *options;
        let is_default = memory == furrow::MountOptions::MEMORY;
        let memory = (!is_default).then(|| format!("memory={}", size::exact(memory.get())));
        let zones = max_open_zones.map(|zones| format!("max_open_zones={zones}"));
        let is_default = commit_seconds == furrow::MountOptions::COMMIT_SECONDS_OF_MOUNT;
        let commit = (!is_default).then(|| format!("commit={commit_seconds}"));
        [memory, zones, rotational.map(named), commit].into_iter().flatten().collect()
    }
}

/// The options of a mount that are in force: the control directory shows them as JSON, and a
/// remount sends them back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Options {
    /// Access with which the daemon has opened the device.
    pub device: Access,
    /// The transport asked for: `mount` has the one in use.
    pub transport: TransportChoice,
    /// Options that every file system has. `access` is that of the file system. The
    /// [`CHANGEABLE`](Restrict::CHANGEABLE) flags of `restrict` are those at the beginning of the
    /// mount: a remount changes the kernel's flags instead.
    pub mount: MountConfig,
    /// Options of the kind of file system.
    pub kind: KindOptions,
}

impl Options {
    /// The options of a new mount.
    pub fn new(mount: MountConfig, kind: KindOptions) -> Self {
        Self { device: mount.access, transport: mount.transport, mount, kind }
    }

    /// Whether a mount with these options can change to `new`, as far as options go.
    ///
    /// ```
    /// use zonal_fuse::MountConfig;
    /// use zonal_fuse::options::{KindOptions, Options};
    ///
    /// let mount = MountConfig::new("/srv/drive.zns", "/mnt".as_ref());
    /// let now = Options::new(mount, KindOptions::furrow());
    /// let mut new = now.clone();
    /// new.mount.apply("ro,noexec")?;
    /// assert!(now.can_become(&new));
    /// new.mount.apply("writeback")?;
    /// assert!(!now.can_become(&new));
    /// # Ok::<(), zonal_fuse::ServeError>(())
    /// ```
    pub fn can_become(&self, new: &Self) -> bool {
        let mut changed = self.mount.clone();
        changed.access = new.mount.access;
        changed.restrict -= Restrict::CHANGEABLE;
        changed.restrict |= new.mount.restrict & Restrict::CHANGEABLE;
        changed.mount_point.clone_from(&new.mount.mount_point);
        let is_kind_changeable = match (&self.kind, &new.kind) {
            (KindOptions::Furrow(now), KindOptions::Furrow(new)) => now.can_become(new),
            (KindOptions::Zonefs(now), KindOptions::Zonefs(new)) => {
                now.rotational == new.rotational
            }
            (KindOptions::Furrow(_), KindOptions::Zonefs(_))
            | (KindOptions::Zonefs(_), KindOptions::Furrow(_)) => false,
        };
        is_kind_changeable && new.mount == changed
    }

    /// Options that hold until the unmount and that the mount table of the kernel does not show;
    /// without defaults.
    ///
    /// ```
    /// use zonal_fuse::MountConfig;
    /// use zonal_fuse::options::{KindOptions, Options};
    ///
    /// let mut mount = MountConfig::new("/srv/drive.zns", "/mnt".as_ref());
    /// mount.apply("noatime,writeback,noasync-dio,threads=3")?;
    /// let options = Options::new(mount, KindOptions::furrow());
    /// assert_eq!(options.unshown(), ["writeback", "noasync-dio", "threads=3"]);
    /// # Ok::<(), zonal_fuse::ServeError>(())
    /// ```
    pub fn unshown(&self) -> Vec<String> {
        let mount = &self.mount;
        let words = [
            (mount.write_cache == WriteCache::Back, "writeback"),
            (mount.direct_writes == DirectWrites::Cache, "warm-cache"),
            (mount.async_direct == AsyncDirect::InTurn, "noasync-dio"),
            (mount.transport == TransportChoice::Rings, "uring"),
        ];
        let words = words.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word.to_owned());
        let threads = mount.threads.map(|threads| format!("{THREADS}{threads}"));
        let metrics = mount.metrics.map(|address| format!("{METRICS}{address}"));
        let metadata = mount.metadata.as_ref().map(|drive| format!("{METADATA}{drive}"));
        let words = words.chain(threads).chain(metrics).chain(metadata);
        words.chain(self.kind.unshown()).collect()
    }
}

/// The option that names the metadata drive.
const METADATA: &str = "metadata=";

/// The option that names an address.
const METRICS: &str = "metrics=";

/// Threads that may wait for a device, in addition to one per processor.
const WAITING: usize = 32;

/// Number of processors, at most as many as more threads help.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).min(14)
}

/// The option that names a number of threads, and the largest.
const THREADS: &str = "threads=";
const THREADS_MAX: u16 = 256;

fn threads(option: &str) -> Result<NonZeroU16> {
    let count = option[THREADS.len()..].parse().ok();
    count.filter(|count: &NonZeroU16| count.get() <= THREADS_MAX).ok_or_else(|| {
        ServeError::Option { option: option.to_owned(), why: "write a number from 1 to 256" }
    })
}

/// The address of `metrics=PORT`, on this machine alone, or of `metrics=ADDRESS:PORT`.
fn metrics_address(option: &str) -> Result<SocketAddr> {
    let value = &option[METRICS.len()..];
    let port = value.parse().ok().map(|port| SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
    port.or_else(|| value.parse().ok()).ok_or_else(|| ServeError::Option {
        option: option.to_owned(),
        why: "write a port, or an address with a port such as 127.0.0.1:9464 or [::1]:9464",
    })
}

/// Whether an option is one of mount(8) itself, always holds here (`default_permissions`), or has
/// no effect in the kernel since Linux 5.15 (`mand`) or for FUSE (`iversion`).
fn is_for_mount(option: &str) -> bool {
    const SKIPPED: [&str; 17] = [
        "defaults",
        "auto",
        "noauto",
        "user",
        "nouser",
        "users",
        "group",
        "owner",
        "_netdev",
        "nofail",
        "default_permissions",
        "mand",
        "nomand",
        "iversion",
        "noiversion",
        "silent",
        "loud",
    ];
    const PREFIXES: [&str; 5] = ["x-", "X-", "comment=", "uhelper=", "user="];
    SKIPPED.contains(&option) || PREFIXES.iter().any(|prefix| option.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(options: &str) -> Result<MountConfig> {
        let mut config = MountConfig::new("/srv/drive", Path::new("/mnt"));
        config.apply(options)?;
        Ok(config)
    }

    #[test]
    fn mount_options_later_ones_win() {
        assert_eq!(config("ro,rw").unwrap().access, Access::ReadWrite);
        assert_eq!(config("rw,ro").unwrap().access, Access::ReadOnly);
        assert_eq!(config("noatime,relatime").unwrap().atime, AtimePolicy::Relative);
        let dev = config("nodev,nosuid,dev").unwrap().restrict;
        assert_eq!(dev & (Restrict::NODEV | Restrict::NOSUID), Restrict::NOSUID);
    }

    /// The general options of mount(8), with their flags of mount(2), and the options that undo
    /// them.
    #[test]
    fn mount_options_general_become_kernel_flags() {
        use rustix::mount::MountFlags as Flags;

        for (options, expected) in [
            ("", Flags::empty()),
            ("ro", Flags::RDONLY),
            ("nosuid,nodev,noexec", Flags::NOSUID | Flags::NODEV | Flags::NOEXEC),
            ("nosuid,nodev,noexec,suid,dev,exec", Flags::empty()),
            ("sync,dirsync", Flags::SYNCHRONOUS | Flags::DIRSYNC),
            ("sync,async", Flags::empty()),
            ("nosymfollow", Flags::NOSYMFOLLOW),
            ("nosymfollow,symfollow", Flags::empty()),
            ("lazytime", Flags::LAZYTIME),
            ("lazytime,nolazytime", Flags::empty()),
            ("nodiratime", Flags::NODIRATIME),
            ("nodiratime,diratime", Flags::empty()),
            ("noatime", Flags::NOATIME),
            ("noatime,atime", Flags::empty()),
            ("strictatime", Flags::STRICTATIME),
            ("strictatime,norelatime", Flags::STRICTATIME),
            ("strictatime,nostrictatime", Flags::empty()),
            ("strictatime,relatime", Flags::empty()),
            ("noatime,nostrictatime,norelatime", Flags::NOATIME),
            ("mand,nomand,iversion,noiversion,silent,loud", Flags::empty()),
        ] {
            let mut config = config("dev,suid").unwrap();
            config.apply(options).unwrap();
            assert_eq!(config.flags(), expected, "{options}");
        }
    }

    #[test]
    fn transport_is_fastest_unless_named() {
        let transport = |options| config(options).unwrap().transport;
        assert_eq!(transport(""), TransportChoice::Fastest);
        assert_eq!(transport("uring"), TransportChoice::Rings);
        assert_eq!(transport("uring,nouring"), TransportChoice::Device);
    }

    #[test]
    fn mount_options_of_fstab_are_skipped() {
        let plain = config("").unwrap();
        let fstab = "defaults,noauto,user=joe,users,owner,group,_netdev,nofail,x-systemd.automount,\
            X-mount.mkdir,comment=systemd.automount,uhelper=a";
        assert_eq!(config(fstab).unwrap(), plain);
    }

    #[test]
    fn threads_option_is_bounded_number() {
        let threads = |option: &str| config(option).map(|config| config.threads.unwrap().get());
        assert_eq!(config("").unwrap().threads, None);
        assert_eq!((threads("threads=1").unwrap(), threads("threads=256").unwrap()), (1, 256));
        let mut waits = config("").unwrap();
        waits.use_blocking_device_threads();
        assert!(waits.threads.is_some_and(|threads| threads.get() > 32));
        let mut given = config("threads=3").unwrap();
        given.use_blocking_device_threads();
        assert_eq!(given.threads, NonZeroU16::new(3));
        for bad in ["threads=", "threads=0", "threads=257", "threads=x", "threads"] {
            assert!(config(bad).unwrap_err().to_string().contains(bad), "{bad}");
        }
    }

    #[test]
    fn metrics_address_is_local_unless_named() {
        let address =
            |option: &str| config(option).map(|config| config.metrics.unwrap().to_string());
        assert_eq!(config("").unwrap().metrics, None);
        assert_eq!(address("metrics=9464").unwrap(), "127.0.0.1:9464");
        assert_eq!(address("ro,metrics=0.0.0.0:1").unwrap(), "0.0.0.0:1");
        assert_eq!(address("metrics=[::1]:9464").unwrap(), "[::1]:9464");
        for bad in ["metrics=", "metrics=65536", "metrics=:9464", "metrics=host:1", "metrics"] {
            let error = config(bad).unwrap_err();
            assert!(error.to_string().contains(bad), "{error}");
        }
    }

    #[test]
    fn mount_options_unknown_are_named() {
        let error = config("ro,sparkle=1").unwrap_err();
        assert!(error.to_string().contains("sparkle=1"), "{error}");
        assert!(config("remount,ro").is_err());
    }
}
