//! Furrow: a POSIX file system on zones alone.
//!
//! Everything on the drive is written once and in order. A read goes from `ops` to `file` (file
//! block → zone and block, in memory) to `data` (device, checksums). A write goes to a buffer, or
//! straight to a data zone if it is large, and changes rows in memory; a commit makes all changes
//! before it durable together. What each file answers:
//!
//! | file | question |
//! | --- | --- |
//! | `format/` | what do the bytes on the drive mean? |
//! | [`options`] | how is it mounted? |
//! | [`layout`] | where is everything, and how many zones are reserved? |
//! | [`state`], [`place`], [`extent`], [`shared`], [`known`], [`small`] | what is in memory of files and their blocks? |
//! | [`loading`], [`missing`], [`evict`], [`held`] | how is metadata loaded and evicted? |
//! | [`names`], [`index`] | how is a name found in a large directory? |
//! | [`records`], [`owners`], [`search`] | which file does a block of a zone belong to? |
//! | [`alloc`], [`target`], [`grants`], [`victims`] | what is each zone used for, which one is written next, which one is a victim? |
//! | [`ops`], [`inode`], [`dir`], [`mod@read`], [`mod@file`], [`chunk`], [`buffer`] | what does each POSIX action do? |
//! | [`data`], [`verify`], [`io`] | how do blocks get to the drive and back? |
//! | [`commit`], [`journal`], [`superlog`], [`rows`] | what makes changes durable? |
//! | [`recover`], [`replay`], [`fresh`], [`sums`], [`load`], [`losses`], [`remake`], [`resume`] | how does a mount recover the state? |
//! | [`mod@table`] | how are rows stored in sorted order? |
//! | [`space`] | what can files fill, and what does metadata keep? |
//! | [`reclaim`], [`reap`] | how is space freed? |
//! | [`step`] | what is done in the background, and when? |
//! | `sync` | which locks does all this take, and how does a test decide who gets them? |
//! | [`stats`], [`meters`] | what does a mount do and hold, in numbers? |
//! | [`paths`] | where does a file lie, for a message about it? |
//! | `mkfs`, [`mod@division`], `check`, `dump` | the tools |

mod admission;
mod alloc;
mod bell;
mod buckets;
mod buffer;
mod check;
mod chunk;
mod commit;
mod committer;
mod copy;
mod data;
mod dir;
mod division;
mod dump;
mod evict;
mod extent;
mod file;
pub mod format;
mod fresh;
mod grants;
mod held;
mod index;
mod inode;
mod invariant;
mod io;
mod journal;
mod known;
pub mod layout;
mod load;
mod loading;
mod log;
mod losses;
mod lost_blocks;
mod meters;
mod missing;
mod mkfs;
mod moves;
mod moving;
mod names;
mod ops;
mod options;
mod owners;
mod pace;
mod paths;
mod pins;
mod place;
mod planted;
mod read;
mod reap;
mod reclaim;
mod records;
mod recover;
mod remake;
mod replay;
mod resets;
mod resume;
mod rows;
#[cfg(feature = "testing")]
pub mod sample;
mod search;
mod shared;
mod small;
mod space;
mod state;
pub mod stats;
mod step;
mod sums;
mod superlog;
#[cfg(not(feature = "testing"))]
mod sync;
#[cfg(feature = "testing")]
pub mod sync;
pub mod table;
mod target;
mod tree;
mod turns;
mod upkeep;
mod verify;
mod victims;
mod writer;
mod xattrs;

use std::sync::Arc;

use zonal::{ByteCount, Clock, ZonedDevice};

pub use self::check::{CheckOptions, CheckPhase, CheckProgress, CheckReport, DataCheck, check};
pub use self::division::{Division, division, plan};
pub use self::dump::{DumpWhat, dump};
#[doc(hidden)]
pub use self::evict::Eviction;
pub use self::invariant::{INVARIANTS, Invariant, Problem};
pub use self::losses::Loss;
pub use self::mkfs::{MkfsOptions, MkfsReport, Owner, mkfs};
pub use self::options::{AtimePolicy, MountOptions, ZonePick};
#[cfg(feature = "testing")]
pub use self::planted::{Planted, PlantedBug};
pub use self::stats::{Live, Stats};
pub use self::step::{StepProgress, Work};
pub(crate) use self::superlog::{forget, label_of};
pub use crate::mkfs::{Overwrite, Progress};

use self::committer::Committer;
use self::invariant::Problems;
use self::io::Drive;
use self::layout::Layout;
use self::log::Log;
use self::meters::Meters;
use self::pace::Throttle;
use self::reap::Truncator;
use self::reclaim::Reclaimer;
use self::recover::Loaded;
use self::resume::{Recovery, RecoveryFacts};
use self::space::Space;
use self::state::State;
use self::step::Worker;
use self::superlog::SuperLog;
use self::table::view::View;
use self::tree::{Tree, TreeParts};
use self::writer::Writer;
use crate::FsError;
use crate::vfs::{Result, Timestamp};

pub use crate::vfs::Access;

/// A mounted Furrow file system.
///
/// ```
/// use std::sync::Arc;
/// use zonal::{BlockSize, GeometrySpec, LbaCount, ManualClock, MemoryDrive};
/// use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};
/// use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};
///
/// let drive = Arc::new(MemoryDrive::new(GeometrySpec {
///     block_size: BlockSize::B4096,
///     block_count: LbaCount::new(32 * 768),
///     zone_size: LbaCount::new(768), // 3 MiB
///     zone_capacity: LbaCount::new(768),
///     conventional_zones: 0,
///     max_open: Some(14),
///     max_active: Some(14),
///     max_append: LbaCount::new(64),
/// })?);
/// let clock = Arc::new(ManualClock::new(0));
/// mkfs(drive.clone(), &*clock, &MkfsOptions::default(), &mut |_| ())?;
/// let fs = Furrow::mount(drive, clock, MountOptions::default())?;
/// let file = NewInode { kind: FileKind::Regular, perm: 0o644, rdev: 0, target: b"" };
/// let ino = fs.create(&Caller::ROOT, Ino::ROOT, b"hello", &file)?.ino;
/// fs.write(ino, 0, b"world", WriteFlags::empty())?;
/// fs.sync()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Furrow {
    clock: Arc<dyn Clock>,
    options: MountOptions,
    drive: Arc<Drive>,
    tree: Arc<Tree>,
    writer: Arc<Writer>,
    log: Arc<Log>,
    truncator: Arc<Truncator>,
    reclaimer: Arc<Reclaimer>,
    throttle: Throttle,
    worker: Worker,
    meters: Arc<Meters>,
    losses: Vec<Loss>,
}

impl Furrow {
    /// Mounts a device. Replays what a power cut left and, unless read-only, gives the journal a
    /// clean end.
    pub fn mount(
        device: Arc<dyn ZonedDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<Self> {
        let mut layout = Layout::new(device.geometry())?;
        layout.limit(&options);
        let drive = Arc::new(Drive::new(device, layout).planted(options.planted));
        let mut problems = Problems::default();
        let mut loaded = recover::read_base(&drive, options.planted, &mut problems)?;
        refuse_broken(&problems, &loaded.table.view, options.access)?;
        tracing::debug!(batches = loaded.batches, "journal replayed");
        loaded.losses.find_paths(&drive, &loaded.table.view);
        loaded.losses.log();
        let mut facts = RecoveryFacts::of(&drive, &loaded, &problems);
        let superlog = SuperLog::resume(&drive, &loaded.found, options.planted)?;
        let losses = std::mem::take(&mut loaded.losses.found);
        let fs = Self::compose(drive, clock, options, (loaded, superlog, losses));
        fs.check_root()?;
        if options.access == Access::ReadWrite {
            let (drive, tree) = (&*fs.drive, &*fs.tree);
            let (writer, log, truncator) = (&*fs.writer, &*fs.log, &*fs.truncator);
            Recovery { drive, tree, writer, log, truncator }.finish_recovery(&mut facts)?;
        }
        Ok(fs)
    }

    /// Puts the parts together, the lowest first.
    fn compose(
        drive: Arc<Drive>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
        (loaded, superlog, losses): (Loaded, SuperLog, Vec<Loss>),
    ) -> Self {
        let MountOptions { planted, eviction, access, .. } = options;
        let division = options.division();
        let view = Arc::clone(&loaded.table.view);
        view.limit_cache(division.leaves);
        let durable_record = loaded.journal.end.last;
        let committer = Committer {
            superblock: loaded.superblock,
            superlog,
            journal: loaded.journal,
            table: loaded.table,
            durable_record,
            is_unnamed: false,
            planted,
        };
        let mut state = State { planted, eviction, ..loaded.state };
        state.moving.restore(&view, division.moved);
        let reserve = loaded.superblock.reserve_percent.get();
        let usable = state.zones.usable();
        let space = Space::new(drive.layout, Arc::clone(&view), usable, reserve, planted);
        let (uuid, held_max) = (loaded.superblock.uuid, division.held);
        let parts = TreeParts { state, drive, view, space, held_max, uuid, access };
        let tree = Arc::new(Tree::new(parts));
        let meters = Arc::new(Meters::new(clock.monotonic_ns()));
        let writer = Writer::new(Arc::clone(&tree), Arc::clone(&meters), division.buffer);
        let writer = Arc::new(writer);
        let log = Log::new(Arc::clone(&writer), Arc::clone(&clock), committer, &options);
        let log = Arc::new(log);
        let truncator = Arc::new(Truncator::new(Arc::clone(&log)));
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&truncator), division.victims));
        let parts = (Arc::clone(&truncator), Arc::clone(&reclaimer));
        Self {
            throttle: Throttle::new(parts.0.clone(), parts.1.clone(), Arc::clone(&clock), planted),
            worker: Worker::new(parts.0, parts.1),
            drive: Arc::clone(&tree.drive),
            clock,
            options,
            tree,
            writer,
            log,
            truncator,
            reclaimer,
            meters,
            losses,
        }
    }

    /// Data that the drive has lost, as found at mount: the first thousand ranges. The mount can
    /// write all the same, for else nobody could delete or replace the files that are damaged.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// The identity that mkfs gave it.
    pub fn uuid(&self) -> [u8; 16] {
        self.tree.uuid
    }

    /// Memory that the mount may use: see [`MountOptions::memory`].
    pub fn memory(&self) -> ByteCount {
        self.options.memory
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_ns(self.clock.wall_ns())
    }
}

/// Structures with a problem that leaves the tree wrong are not mounted; a bad copy of something
/// that has two is. Where the newest changes are missing, what is before them can be read: a mount
/// that writes would make their loss final.
fn refuse_broken(problems: &Problems, view: &View, access: Access) -> Result<()> {
    use invariant::{BATCHES, JOURNAL, MANIFESTS, NEWEST, PARTS, SUPERBLOCKS};
    let missing = [BATCHES, NEWEST];
    for problem in &problems.found {
        tracing::warn!(invariant = problem.invariant.id, "{}", problem.what);
    }
    if access == Access::ReadWrite
        && let Some(gap) =
            problems.found.iter().find(|problem| missing.contains(&problem.invariant))
    {
        let why = format!(
            "{} ({}): {}; a read-only mount shows what was there before it",
            gap.invariant.rule, gap.invariant.id, gap.what
        );
        let what = if gap.invariant == BATCHES { "journal" } else { "superblock" };
        return Err(FsError::Corrupt { what, why });
    }
    if access == Access::ReadWrite && view.is_remade_for_now() {
        // What was made anew would become durable.
        let why = "the device refuses to read sums or the root directory: try again when it \
                   answers, or mount it for reading only";
        return Err(FsError::Corrupt { what: "metadata", why: why.into() });
    }
    let tolerable = [SUPERBLOCKS, MANIFESTS, PARTS, JOURNAL, BATCHES, NEWEST];
    let mut broken =
        problems.found.iter().filter(|problem| !tolerable.contains(&problem.invariant));
    let Some(first) = broken.next() else { return Ok(()) };
    let others = broken.count() as u64 + problems.more;
    let why = format!(
        "{} ({}): {}; and {others} more: run `zonal check`",
        first.invariant.rule, first.invariant.id, first.what
    );
    Err(FsError::Corrupt { what: "metadata", why })
}
