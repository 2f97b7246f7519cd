//! `-o remount`: other options for what is mounted. What is not named stays as it is; on Linux a
//! remount of a zonefs that does not name `explicit-open` drops it.
//!
//! The kernel changes what is the mount's: `ro`, `nodev` and the like. The daemon changes what is the
//! file system's; it learns of it through the control directory. Which comes first: a mount that is read-only
//! takes no commands. What was mounted read-only is mounted anew to become writable: `anew.rs`.
//!
//! mount(8) comes here by the type in the mount table, such as `fuse.zonefs` or `fuseblk.furrow`,
//! so by a link such as `mount.fuse.zonefs`. Without one it starts `mount.fuse` of the package
//! fuse3, which looks for a program `zonefs`.

use std::num::NonZeroU32;
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{MountFlags, mount_remount};
use zonal::ByteCount;
use zonal_fs::furrow;
use zonal_fs::options::Taken;
use zonal_fs::vfs::Access;
use zonal_fs::zonefs::MountOptions;
use zonal_fuse::options::{AsyncDirect, Restrict, TransportChoice};
use zonal_fuse::{MountConfig, Transport};

use super::FsKind;
use super::anew;
use super::kind::bad;
use crate::args::{Global, Mount};
use crate::cmd::stats;

/// What to change.
struct Change {
    /// For the daemon.
    named: Vec<String>,
    /// The same as it is now, if the kernel refuses its part.
    undo: Vec<String>,
    /// For the kernel.
    flags: MountFlags,
    access: Access,
}

/// Whether these arguments ask for it.
pub(super) fn is_asked(args: &Mount) -> bool {
    items(args).any(|option| option == "remount")
}

fn items(args: &Mount) -> impl Iterator<Item = &str> {
    args.options.iter().flat_map(|options| options.split(','))
}

/// Changes the mount at the directory.
pub(super) fn run(global: &Global, args: &Mount) -> Result<()> {
    let dir = &args.dir;
    let kind = stats::text(dir, "type")?;
    let now = current(dir)?;
    let change = if kind == FsKind::Zonefs.name() {
        Change::of_zonefs(args, now)?
    } else {
        Change::of_furrow(args, now)?
    };
    let is_for_reading = stats::text(dir, "device_access").is_ok_and(|how| how == "read-only");
    if change.access == Access::ReadWrite && is_for_reading {
        let named = [change.named, restrictions(change.flags)].concat();
        return anew::run(global, args, &named)
            .with_context(|| format!("cannot remount {}", dir.display()));
    }
    change.apply(dir, now).with_context(|| format!("cannot remount {}", dir.display()))
}

/// Of statfs(2): symbolic links are not followed (`include/linux/statfs.h`).
const ST_NOSYMFOLLOW: StatVfsMountFlags = StatVfsMountFlags::from_bits_retain(0x2000);

/// Flags that stay until the unmount.
const FIXED: MountFlags = MountFlags::NOATIME
    .union(MountFlags::NODIRATIME)
    .union(MountFlags::RELATIME)
    .union(MountFlags::STRICTATIME)
    .union(MountFlags::LAZYTIME);

/// The flags of the mount.
fn current(dir: &Path) -> Result<MountFlags> {
    let stat = statvfs(dir).with_context(|| format!("looking at {}", dir.display()))?;
    let mut flags = MountFlags::empty();
    for (theirs, ours) in [
        (StatVfsMountFlags::RDONLY, MountFlags::RDONLY),
        (StatVfsMountFlags::NOSUID, MountFlags::NOSUID),
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
        (ST_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
        (StatVfsMountFlags::SYNCHRONOUS, MountFlags::SYNCHRONOUS),
    ] {
        flags.set(ours, stat.f_flag.contains(theirs));
    }
    let is_strict = !flags.intersects(MountFlags::NOATIME | MountFlags::RELATIME);
    flags.set(MountFlags::STRICTATIME, is_strict);
    // statvfs(2) does not tell.
    let options = stats::text(dir, "mount_options").unwrap_or_default();
    flags.set(MountFlags::LAZYTIME, options.split(',').any(|option| option == "lazytime"));
    Ok(flags)
}

impl Change {
    fn of_zonefs(args: &Mount, now: MountFlags) -> Result<Self> {
        let (mut named, mut undo, mut config) = (Vec::new(), Vec::new(), config(args, now)?);
        for option in items(args).filter(|option| !is_repeated(option) && !is_about_atime(option)) {
            match MountOptions::default().take(option) {
                Taken::Yes => named.push(option.to_owned()),
                Taken::No => apply(&mut config, option)?,
                Taken::Bad => return Err(bad(FsKind::Zonefs, option)),
            }
        }
        let flags = flags(&config, now);
        match (now.contains(MountFlags::RDONLY), config.access) {
            (false, Access::ReadOnly) => {
                named.push("ro".to_owned());
                undo.push("rw".to_owned());
            }
            (true, Access::ReadWrite) => named.push("rw".to_owned()),
            (false, Access::ReadWrite) | (true, Access::ReadOnly) => {}
        }
        Ok(Self { named, undo, flags, access: config.access })
    }

    /// Where the device is open for writing, access is the kernel's alone.
    fn of_furrow(args: &Mount, now: MountFlags) -> Result<Self> {
        let mut config = config(args, now)?;
        let (before, mut named) = (furrow_options(&args.dir)?, Vec::new());
        for option in items(args).filter(|option| !is_repeated(option)) {
            let mut own = before;
            let stays = match own.take(option) {
                Taken::Yes => {
                    named.push(option.to_owned());
                    before.fixed_in(&own).is_none()
                }
                Taken::Bad => return Err(bad(FsKind::Furrow, option)),
                Taken::No => match option {
                    "noatime" => now.contains(MountFlags::NOATIME),
                    "relatime" => !now.contains(MountFlags::NOATIME),
                    _ => {
                        apply(&mut config, option)?;
                        true
                    }
                },
            };
            if !stays {
                return Err(unchangeable(option));
            }
        }
        let writes = config.access == Access::ReadWrite;
        if !writes && stats::text(&args.dir, "access")? == "read-only" {
            // It says nothing of what is only read.
            named.clear();
        }
        let ignores = stats::text(&args.dir, "lifetime")? == "ignored";
        let lifetime = if ignores { "nolifetime" } else { "lifetime" };
        let (undo, flags) = (vec![lifetime.to_owned()], flags(&config, now));
        Ok(Self { named, undo, flags, access: config.access })
    }

    fn apply(&self, dir: &Path, now: MountFlags) -> Result<()> {
        let was_read_only = now.contains(MountFlags::RDONLY);
        if !self.named.is_empty() {
            if was_read_only {
                // The file system itself stays read-only until the daemon has changed it.
                mount_remount(dir, self.flags - MountFlags::RDONLY, "")?;
            }
            if let Err(error) = command(dir, &self.named.join(",")) {
                if was_read_only {
                    mount_remount(dir, now, "")?;
                }
                return Err(error);
            }
        }
        let is_done = self.flags == now && (self.named.is_empty() || !was_read_only);
        if is_done {
            return Ok(());
        }
        if let Err(error) = mount_remount(dir, self.flags, "") {
            if !self.named.is_empty() && !self.undo.is_empty() {
                // A file is open for writing: it stays as it was.
                command(dir, &self.undo.join(","))?;
            }
            return Err(error.into());
        }
        Ok(())
    }
}

/// The options of a Furrow that are in force.
fn furrow_options(dir: &Path) -> Result<furrow::MountOptions> {
    let short = |number: u64| u32::try_from(number).unwrap_or(u32::MAX);
    let commit = short(stats::number(dir, "commit")?);
    // The counters have it only if the option was given.
    let max_open_zones = stats::number(dir, "max_open_zones").map_or(0, short);
    let mount = furrow::MountOptions::COMMIT_SECONDS_OF_MOUNT;
    Ok(furrow::MountOptions {
        memory: ByteCount::new(stats::number(dir, "memory")?),
        max_open_zones: NonZeroU32::new(max_open_zones),
        commit_seconds: NonZeroU32::new(commit).unwrap_or(mount),
        ..Default::default()
    })
}

/// The mount as it is, and as `--read-only` wants it.
fn config(args: &Mount, now: MountFlags) -> Result<MountConfig> {
    let mut config = MountConfig::new("", &args.dir);
    config.restrict = Restrict::empty();
    // What mount(8) repeats from fstab changes nothing.
    if let Ok(options) = stats::text(&args.dir, "mount_options") {
        config.apply(&options)?;
    }
    config.metrics = stats::text(&args.dir, "metrics").ok().and_then(|text| text.parse().ok());
    let threads = stats::number(&args.dir, "threads").ok();
    config.threads = threads.and_then(|threads| u16::try_from(threads).ok()?.try_into().ok());
    if let Ok(transport) = stats::text(&args.dir, "transport") {
        let is_rings = transport == Transport::Rings.name();
        config.transport = if is_rings { TransportChoice::Rings } else { TransportChoice::Device };
    }
    if stats::text(&args.dir, "async_direct_reads")
        .is_ok_and(|how| how == AsyncDirect::InTurn.name())
    {
        config.async_direct = AsyncDirect::InTurn;
    }
    for Restriction { flag, ours, .. } in RESTRICTIONS {
        config.restrict.set(ours, now.contains(flag));
    }
    let is_read_only = args.read_only || now.contains(MountFlags::RDONLY);
    config.access = if is_read_only { Access::ReadOnly } else { Access::ReadWrite };
    Ok(config)
}

/// The flags of the mount as it is to be.
fn flags(config: &MountConfig, now: MountFlags) -> MountFlags {
    let mut flags = now & FIXED;
    for Restriction { flag, ours, .. } in RESTRICTIONS {
        flags.set(flag, config.restrict.contains(ours));
    }
    flags.set(MountFlags::RDONLY, config.access == Access::ReadOnly);
    flags
}

/// Takes an option of every file system, if the kernel can change it under a mount.
fn apply(config: &mut MountConfig, option: &str) -> Result<()> {
    let before = config.clone();
    config.apply(option)?;
    let fixed = Restrict::DIRSYNC | Restrict::NODIRATIME | Restrict::LAZYTIME;
    let restrict = (config.restrict - fixed) | (before.restrict & fixed);
    let changeable = MountConfig { access: config.access, restrict, ..before };
    if *config == changeable { Ok(()) } else { Err(unchangeable(option)) }
}

fn unchangeable(option: &str) -> anyhow::Error {
    anyhow!("mount option {option:?}: it cannot be changed while it is mounted; unmount it first")
}

/// A restriction that the kernel can change under a mount.
struct Restriction {
    flag: MountFlags,
    ours: Restrict,
    /// The option for it, and that for its lack.
    options: [&'static str; 2],
}

const RESTRICTIONS: [Restriction; 5] = [
    Restriction { flag: MountFlags::NODEV, ours: Restrict::NODEV, options: ["nodev", "dev"] },
    Restriction { flag: MountFlags::NOSUID, ours: Restrict::NOSUID, options: ["nosuid", "suid"] },
    Restriction { flag: MountFlags::NOEXEC, ours: Restrict::NOEXEC, options: ["noexec", "exec"] },
    Restriction {
        flag: MountFlags::NOSYMFOLLOW,
        ours: Restrict::NOSYMFOLLOW,
        options: ["nosymfollow", "symfollow"],
    },
    Restriction { flag: MountFlags::SYNCHRONOUS, ours: Restrict::SYNC, options: ["sync", "async"] },
];

/// The options for these flags, and those for the lack of the others.
fn restrictions(flags: MountFlags) -> Vec<String> {
    let option = |Restriction { flag, options: [with, without], .. }| {
        if flags.contains(flag) { with.to_owned() } else { without.to_owned() }
    };
    RESTRICTIONS.into_iter().map(option).collect()
}

/// Options that mount(8) repeats from the mount table, where FUSE has put them.
fn is_repeated(option: &str) -> bool {
    const NAMES: [&str; 3] = ["remount", "", "allow_other"];
    const PREFIXES: [&str; 4] = ["user_id=", "group_id=", "max_read=", "blksize="];
    NAMES.contains(&option) || PREFIXES.iter().any(|prefix| option.starts_with(prefix))
}

/// Access times, which zonefs does not move.
fn is_about_atime(option: &str) -> bool {
    matches!(option, "relatime" | "noatime" | "strictatime")
}

/// Sends options to the daemon.
fn command(dir: &Path, options: &str) -> Result<()> {
    stats::command(dir, &format!("remount {options}"))
        .with_context(|| format!("sending the options to the daemon: {options}"))
}
