//! Furrow: a POSIX file system on zones alone.
//!
//! Everything on the drive is written once and in order. [`Furrow`] is a composition of parts that
//! own their fields, the lowest first: [`Drive`], [`Tree`], [`Writer`], [`Log`], [`Truncator`],
//! [`Reclaimer`], [`Throttle`] and [`Worker`]. A part calls those below it and none above. A read
//! goes from `ops` to the tree (file block → zone and block, in memory) and from there to the
//! drive. A write puts blocks into the buffer, or places a large run in a data zone at once, and
//! changes metadata in memory; a commit makes all changes before it durable together.
//!
//! A room may use the rooms that its last column names; `all above` are the rooms of the rows
//! above:
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `format` | the meaning of the bytes on the drive | |
//! | `invariant` | names of the rules that `check` checks | |
//! | `planted` | mistakes that tests of tests make | |
//! | `sync` | the locks, and how a test decides which thread gets them | |
//! | `memory` | bytes of memory that collections take | |
//! | `options` | mount options | all above |
//! | `drive` | blocks and zones of the device, checksums, read pins | all above |
//! | `zones` | the use of each zone, the next one to be written, the victims | all above |
//! | `table` | rows in sorted runs | all above |
//! | `metadata` | inodes, maps and directories in memory, and changed rows | all above |
//! | `space` | how many blocks and zones each writer may use | all above |
//! | `tree` | metadata behind its locks, loaded from the table as needed | all above |
//! | `stats` | figures of the work and the content of a mount | all above |
//! | `meters` | measurements of a mount | all above |
//! | `write` | writing data to zones: the write buffer, reservations, placement | all above |
//! | `log` | commits, journal, superblocks, and the upkeep of the table | all above |
//! | `truncate` | truncation and deletion in steps | all above |
//! | `recovery` | reading the state of the last commit at mount | all above |
//! | `reclaim` | moving blocks out of victims, and the throttle of writers | all above |
//! | `worker` | work in the background, in steps | all above |
//! | `ops` | the POSIX actions | all above |
//! | `tools` | mkfs, check, dump | all above |
//! | `sample` | small drives for tests | all above |
//!
//! `cargo xtask check` compares this with the paths in the source. `pub(super)` in a file of a room
//! keeps an item inside that room; a room shows the others `pub(in crate::furrow)`.
//!
//! # Locks
//!
//! A thread takes locks in this order, from the top; it may leave out any of them. A lock in one
//! row is never taken while another one of the same row is held.
//!
//! | lock | guards | held during device I/O |
//! | --- | --- | --- |
//! | `Throttle::making_room` | the turn of the writer that makes room | yes |
//! | `Reclaimer::reclaiming` | turns of threads that move blocks | yes |
//! | `Reclaimer::scanning` | the scan for back-references | yes |
//! | `Log::stepping` | changes of the table's levels | yes |
//! | `Log::commit_turns` | the turn of the thread that commits for all | yes |
//! | `Log::committer` | superblock, journal, manifest | yes |
//! | `Writer::flushing` | the turn of the thread that empties the buffer | yes |
//! | `Tree::buffering` | blocks that come into the buffer | only in the last pass of a commit |
//! | `Log::pairs` | the zones that parts and manifests are written to | yes |
//! | `Writer::resetting` | resets of zones | yes |
//! | `Drive::placing` | writes under way | yes |
//! | `Tree::changing` | changes of the tree, held off while a batch is taken | no |
//! | `Tree::state` | [`State`](metadata::State) | no |
//! | layers of the table's view, `Reclaimer::underway` | rows for readers, victims under way | no |
//! | other locks of [`Drive`] | unflushed writes, unfinished zones | yes |
//!
//! A method that needs the state locked takes `&State` or `&mut State`, of which only a guard of
//! [`Tree`] gives a reference. Below `metadata`, where that type is unknown, it takes
//! [`UnderLock`](sync::UnderLock), which only the state is.

mod drive;
pub mod format;
mod invariant;
mod log;
mod memory;
mod metadata;
mod meters;
mod ops;
mod options;
mod planted;
mod reclaim;
mod recovery;
#[cfg(feature = "testing")]
pub mod sample;
mod space;
pub mod stats;
#[cfg(not(feature = "testing"))]
mod sync;
#[cfg(feature = "testing")]
pub mod sync;
pub mod table;
mod tools;
mod tree;
mod truncate;
mod worker;
mod write;
mod zones;

use std::sync::Arc;

use zonal::{ByteCount, Clock};

pub use self::drive::drives::Drives;
pub use self::drive::layout;
pub(crate) use self::drive::part::label_of;
pub use self::drive::part::{Part, PartKind, part_of};
pub use self::invariant::{INVARIANTS, Invariant, Problem};
#[doc(hidden)]
pub use self::options::Eviction;
use self::options::Seeks;
pub use self::options::{AtimePolicy, MountOptions};
#[cfg(feature = "testing")]
pub use self::planted::{Planted, PlantedBug};
pub use self::recovery::losses::Loss;
pub use self::stats::{Live, Stats};
pub use self::tools::check::{
    CheckOptions, CheckPhase, CheckProgress, CheckReport, DataCheck, check,
};
pub use self::tools::division::{Division, division, plan};
pub use self::tools::dump::{DumpWhat, dump};
pub use self::tools::mkfs::{MkfsOptions, MkfsReport, Owner, mkfs};
pub use self::tree::bell::StepProgress;
pub use self::worker::Work;
pub use crate::mkfs::{Overwrite, Progress};

use self::drive::Drive;
use self::drive::layout::Layout;
use self::invariant::Problems;
use self::log::Log;
use self::log::committer::Committer;
use self::log::superblock_log::SuperLog;
use self::meters::Meters;
use self::reclaim::Reclaimer;
use self::reclaim::throttle::Throttle;
use self::recovery::LoadedDrive;
use self::recovery::resume::{Recovery, RecoveryFacts};
use self::space::Space;
use self::table::view::View;
use self::tree::{Tree, TreeParts};
use self::truncate::Truncator;
use self::worker::Worker;
use self::write::Writer;
use crate::FsError;
use crate::vfs::{FileSystem, Result, Timestamp};

pub use crate::vfs::Access;

/// First bytes of the blocks with which zones of metadata begin: superblocks, batches, manifests,
/// leaves and indexes of parts.
pub(crate) const METADATA_MAGICS: [&[u8]; 5] = [
    &format::superblock::MAGIC,
    &format::record::RecordKind::Batch.magic(),
    &format::record::RecordKind::Manifest.magic(),
    &table::part::LEAF_MAGIC,
    &table::part::INDEX_MAGIC,
];

/// A mounted Furrow file system.
///
/// ```
/// use std::sync::Arc;
/// use zonal::{
///     BlockSize, GeometrySpec, LbaCount, ManualClock, MemoryDrive, ZoneKind, ZoneRuns,
/// };
/// use zonal_fs::furrow::{Furrow, MkfsOptions, MountOptions, mkfs};
/// use zonal_fs::vfs::{Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};
///
/// let drive = Arc::new(MemoryDrive::new(GeometrySpec {
///     block_size: BlockSize::B4096,
///     block_count: LbaCount::new(32 * 768),
///     zone_size: LbaCount::new(768), // 3 MiB
///     zone_capacity: LbaCount::new(768),
///     conventional_zones: ZoneRuns::NONE,
///     sequential_kind: ZoneKind::SequentialRequired,
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
    /// Mounts the file system of one drive, or of [two](Drives). Replays the journal and, unless
    /// read-only, gives it a clean end.
    pub fn mount(
        drives: impl Into<Drives>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<Self> {
        Self::mount_drives(&drives.into(), clock, options)
    }

    fn mount_drives(drives: &Drives, clock: Arc<dyn Clock>, options: MountOptions) -> Result<Self> {
        if drives.lacks_metadata() && options.access == Access::ReadWrite {
            let why = "it is missing: without it, mount for reading only".into();
            return Err(FsError::MetadataDrive { why });
        }
        let mut layout = Layout::new(drives)?;
        layout.limit(&options, options.seeks(&**drives.device()));
        let drive = Drive::new(Arc::clone(drives.device()), &layout).planted(options.planted);
        let drive = Arc::new(drive);
        let mut problems = Problems::default();
        let mut loaded = recovery::read_base(&drive, options.planted, &mut problems)?;
        refuse_broken(&problems, &loaded.table.view, options.access)?;
        tracing::debug!(batches = loaded.batches, "journal replayed");
        loaded.losses.find_paths(&drive, &loaded.table.view);
        loaded.losses.log();
        let mut facts = RecoveryFacts::of(&drive, &loaded, &problems);
        let superlog = SuperLog::resume(&drive, &loaded.found, options.planted)?;
        let fs = Self::compose(drive, clock, options, loaded, superlog);
        fs.check_root()?;
        if options.access == Access::ReadWrite {
            fs.drive.keep_reserve();
            Recovery::of(&fs.truncator).finish_recovery(&mut facts)?;
        }
        Ok(fs)
    }

    /// From now on counts the time in which threads hold the lock of the state exclusively.
    #[cfg(feature = "testing")]
    pub fn count_exclusive_time(&self, clock: Arc<dyn Clock>) {
        self.tree.count_exclusive_time(clock);
    }

    /// Nanoseconds of that time.
    #[cfg(feature = "testing")]
    pub fn exclusive_ns(&self) -> u64 {
        self.tree.exclusive_ns()
    }

    /// Composes the parts, the lowest first.
    fn compose(
        drive: Arc<Drive>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
        loaded: LoadedDrive,
        superlog: SuperLog,
    ) -> Self {
        let MountOptions { planted, eviction, access, .. } = options;
        let budget = options.memory_budget(drive.layout.seeks);
        let view = Arc::clone(&loaded.table.view);
        view.limit_cache(budget.leaves);
        let durable_record = loaded.journal.end.last;
        let committer = Committer {
            superblock: loaded.superblock,
            superlog,
            journal: loaded.journal,
            table: loaded.table,
            durable_record,
            trails_since_ns: None,
            is_unnamed: false,
            planted,
        };
        let mut state = loaded.state.with_options(planted, eviction);
        state.rows.remaps.restore(&view, budget.moved);
        let reserve = loaded.superblock.reserve_percent.get();
        let usable = state.zones.usable();
        let space = Space::new(&drive.layout, Arc::clone(&view), usable, reserve, planted);
        let (uuid, held_max) = (loaded.superblock.uuid, budget.held);
        let parts = TreeParts { state, drive, view, space, held_max, uuid, access };
        let tree = Arc::new(Tree::new(parts));
        let meters = Arc::new(Meters::new(clock.monotonic_ns()));
        let writer =
            Writer::new(Arc::clone(&tree), Arc::clone(&meters), Arc::clone(&clock), budget.buffer);
        let writer = Arc::new(writer);
        let log = Log::new(Arc::clone(&writer), Arc::clone(&clock), committer, &options);
        let log = Arc::new(log);
        let truncator = Arc::new(Truncator::new(Arc::clone(&log)));
        let reclaimer = Arc::new(Reclaimer::new(Arc::clone(&truncator), budget.victims));
        Self {
            throttle: Throttle::new(Arc::clone(&reclaimer)),
            worker: Worker::new(Arc::clone(&reclaimer)),
            drive: Arc::clone(&tree.drive),
            clock,
            options,
            tree,
            writer,
            log,
            truncator,
            reclaimer,
            meters,
            losses: loaded.losses.found,
        }
    }

    /// Data that the drive has lost, as found at mount: the first thousand ranges. The mount is
    /// writable despite losses, so that users can delete or replace damaged files.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// The UUID from mkfs.
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

    /// Whether it spares the head of a disk: by the option, or because the drive rotates.
    pub fn is_rotational(&self) -> bool {
        self.drive.layout.seeks == Seeks::Cost
    }

    /// The options that are in force.
    pub fn options(&self) -> MountOptions {
        let follows_hints = self.tree.read_state().zones.limits.evidence.hints;
        MountOptions { access: self.access(), follows_hints, ..self.options }
    }

    /// Changes the options that a remount can change: the evidence for predicted lives. Refuses a
    /// change of others.
    pub fn set_options(&self, options: &MountOptions) -> Result<()> {
        if !self.options.can_become(options) {
            return Err(FsError::Invalid {
                what: "an option that stays as it is until the unmount",
            });
        }
        self.tree.write_accounts().zones.limits.evidence = options.evidence();
        Ok(())
    }
}

/// Refuses a mount if a problem leaves the tree wrong; a single bad copy does not. If the newest
/// changes are missing, it allows only a read-only mount: a writable one would make their loss
/// final.
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
    if access == Access::ReadWrite && view.lacks_refused() {
        // Rebuilt rows would become durable.
        let why = "it is about sums, the root directory or remap tables: try again when \
                   it answers, or mount it for reading only";
        return Err(FsError::Refused { what: "metadata", why: why.into() });
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
