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
//! | [`commit`], [`journal`], [`superlog`], [`conventional`], [`rows`] | what makes changes durable? |
//! | [`recover`], [`replay`], [`fresh`], [`sums`], [`load`], [`losses`], [`remake`], [`resume`] | how does a mount recover the state? |
//! | [`mod@table`] | how are rows stored in sorted order? |
//! | [`space`] | what can files fill, and what does metadata keep? |
//! | [`reclaim`], [`reap`] | how is space freed? |
//! | [`step`] | what is done in the background, and when? |
//! | `sync` | which locks does all this take, and how does a test decide who gets them? |
//! | [`stats`], [`meters`] | what does a mount do and hold, in numbers? |
//! | [`paths`] | where does a file lie, for a message about it? |
//! | `mkfs`, [`mod@division`], `check`, `dump` | the tools |

mod alloc;
mod buckets;
mod buffer;
mod check;
mod chunk;
mod commit;
mod committer;
mod conventional;
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
mod place;
mod planted;
mod read;
mod reap;
mod reclaim;
mod records;
mod recover;
mod remake;
mod replay;
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
mod turns;
mod verify;
mod victims;
mod xattrs;

use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, PoisonError};

use std::time::Duration;

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
#[cfg(not(feature = "testing"))]
use self::planted::PlantedBug;
#[cfg(feature = "testing")]
pub use self::planted::{Planted, PlantedBug};
pub use self::stats::{Live, Stats};
pub use self::step::{StepProgress, Work};
pub(crate) use self::superlog::{forget, label_of};
pub use crate::mkfs::{Overwrite, Progress};

use self::committer::{CommitTurns, Committer};
use self::invariant::Problems;
use self::io::Drive;
use self::layout::Layout;
use self::meters::Meters;
use self::resume::RecoveryFacts;
use self::search::Search;
use self::space::Space;
use self::state::State;
use self::step::Steps;
use self::superlog::SuperLog;
use self::sync::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use self::table::pairs::Pairs;
use self::table::view::View;
use self::turns::Turns;
use crate::FsError;
use crate::vfs::{Ino, Result, Timestamp};

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
    drive: Drive,
    clock: Arc<dyn Clock>,
    options: MountOptions,
    state: RwLock<State>,
    /// How often the state was locked.
    #[cfg(test)]
    takings: AtomicU64,
    /// Bytes of memory that what was read may take.
    held_max: usize,
    /// Held by a change of the tree, and by a commit as long as the tree must not change. Taken
    /// before the state. See [`write_state`](Self::write_state).
    changing: Mutex<()>,
    /// Whether a commit holds it.
    is_held_off: AtomicBool,
    uuid: [u8; 16],
    /// The rows on the drive, for readers.
    view: Arc<View>,
    committer: Mutex<Committer>,
    /// Who commits. Taken before the committer.
    commit_turns: CommitTurns,
    /// Where parts and manifests are written. Taken after the committer, before the state.
    pairs: Mutex<Pairs>,
    /// One changes the levels of the table at a time. Taken before the committer.
    stepping: Mutex<()>,
    /// Who moves blocks out of victims, a step at a time: one, or some at once.
    reclaiming: Turns,
    /// One searches for owners at a time; the search under way. Taken before the state.
    searching: Mutex<Option<Search>>,
    /// One empties the write buffer at a time, so that no block is written twice: the file whose turn
    /// is next. Taken before the state.
    flushing: Mutex<Ino>,
    /// Locked for reading by every thread that writes data to the drive, as long as it does. A
    /// thread that locks it for writing has waited for all writes under way. No lock is taken after
    /// it.
    placing: RwLock<()>,
    /// Held by operations that put blocks into the buffer, and by a commit as long as none may come.
    /// Taken before [`changing`](Self::changing).
    buffering: Mutex<()>,
    /// Held by a writer that makes room, one at a time; others wait, and take nothing of that room. Taken
    /// before [`reclaiming`](Self::reclaiming).
    making_room: Turns,
    steps: Steps,
    /// How many do or wait.
    short_of_room: AtomicU32,
    /// Steps of removing what was cut off files.
    reaped: AtomicU64,
    /// Readers of each zone.
    pins: Box<[AtomicU32]>,
    /// How many threads wait for a zone without readers.
    idle_waiters: AtomicU32,
    idle_turn: Mutex<()>,
    became_idle: Condvar,
    /// How long a thread that needs a zone waits for its readers.
    read_patience: Duration,
    /// A thread has waited that long, and no read has ended since.
    reads_hang: AtomicBool,
    /// The last batch that is durable.
    durable_batch: AtomicU64,
    /// When the last batch was taken.
    last_commit_ns: AtomicU64,
    /// After shutdown, or on a read-only mount.
    read_only: AtomicBool,
    space: Space,
    losses: Vec<Loss>,
    meters: Meters,
}

impl Furrow {
    /// Mounts a device. Replays what a power cut left and, unless read-only, gives the journal a
    /// clean end.
    pub fn mount(
        device: Arc<dyn ZonedDevice>,
        clock: Arc<dyn Clock>,
        options: MountOptions,
    ) -> Result<Self> {
        let mut layout = superlog::layout_of(&device)?;
        let division = options.division();
        layout.limit(&options);
        let drive = Drive::new(device, layout);
        let mut problems = Problems::default();
        let mut loaded = recover::read_base(&drive, options.planted, &mut problems)?;
        refuse_broken(&problems, &loaded.table.view, options.access)?;
        tracing::debug!(batches = loaded.batches, "journal replayed");
        loaded.losses.find_paths(&drive, &loaded.table.view);
        loaded.losses.log();
        let mut facts = RecoveryFacts::of(&drive, &loaded, &problems);
        let superlog = SuperLog::resume(&drive, &loaded.found, options.planted)?;
        let (zone_count, last_batch) = (loaded.state.zones.slots.len(), loaded.journal.end.last);
        let view = Arc::clone(&loaded.table.view);
        view.limit_cache(division.leaves);
        let committer = Committer {
            superblock: loaded.superblock,
            superlog,
            journal: loaded.journal,
            table: loaded.table,
            durable_record: last_batch,
            is_unnamed: false,
            planted: options.planted,
        };
        let (planted, eviction) = (options.planted, options.eviction);
        let mut state = State { planted, eviction, ..loaded.state };
        state.moving.restore(&view, division.moved);
        let reserve = loaded.superblock.reserve_percent.get();
        let usable = state.zones.usable();
        let space = Space::new(drive.layout, Arc::clone(&view), usable, reserve, planted);
        let fs = Self {
            drive,
            last_commit_ns: AtomicU64::new(clock.monotonic_ns()),
            meters: Meters::new(clock.monotonic_ns()),
            clock,
            options,
            state: RwLock::new(state),
            #[cfg(test)]
            takings: AtomicU64::new(0),
            held_max: division.held,
            changing: Mutex::new(()),
            is_held_off: AtomicBool::new(false),
            uuid: loaded.superblock.uuid,
            view,
            committer: Mutex::new(committer),
            commit_turns: CommitTurns::new(options.planted),
            pairs: Mutex::default(),
            stepping: Mutex::new(()),
            reclaiming: Turns::default(),
            searching: Mutex::new(None),
            flushing: Mutex::default(),
            placing: RwLock::default(),
            buffering: Mutex::default(),
            making_room: Turns::new(options.planted),
            steps: Steps::default(),
            short_of_room: AtomicU32::new(0),
            reaped: AtomicU64::new(0),
            idle_waiters: AtomicU32::new(0),
            idle_turn: Mutex::new(()),
            became_idle: Condvar::new(),
            read_patience: data::READ_PATIENCE,
            reads_hang: AtomicBool::new(false),
            pins: (0..zone_count).map(|_| AtomicU32::new(0)).collect(),
            durable_batch: AtomicU64::new(last_batch),
            read_only: AtomicBool::new(options.access == Access::ReadOnly),
            space,
            losses: loaded.losses.found,
        };
        fs.check_root()?;
        if options.access == Access::ReadWrite {
            fs.finish_recovery(&mut facts)?;
        }
        Ok(fs)
    }

    /// Data that the drive has lost, as found at mount: the first thousand ranges. The mount can
    /// write all the same, for else nobody could delete or replace the files that are damaged.
    pub fn losses(&self) -> &[Loss] {
        &self.losses
    }

    /// The identity that mkfs gave it.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Memory that the mount may use: see [`MountOptions::memory`].
    pub fn memory(&self) -> ByteCount {
        self.options.memory
    }

    fn layout(&self) -> &Layout {
        &self.drive.layout
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_ns(self.clock.wall_ns())
    }

    #[cfg_attr(feature = "testing", track_caller)]
    fn read_state(&self) -> RwLockReadGuard<'_, State> {
        if self.options.eviction.is_at_every_lock() {
            drop(self.write_accounts());
        }
        #[cfg(test)]
        self.takings.fetch_add(1, Ordering::Relaxed);
        self.state.read().expect("no holder panicked")
    }

    /// The state, to change the tree. Waits while a commit holds off changes.
    #[cfg_attr(feature = "testing", track_caller)]
    fn write_state(&self) -> Changing<'_> {
        let turn = self.lock_changing();
        let state = self.write_accounts();
        if state.changed_count() >= step::CHANGES_MAX {
            self.wake_worker();
        }
        Changing { state, _turn: turn }
    }

    /// The state, to change what no row tells: room given out, users of an inode. And for a
    /// commit, which holds off all others.
    #[cfg_attr(feature = "testing", track_caller)]
    fn write_accounts(&self) -> RwLockWriteGuard<'_, State> {
        #[cfg(test)]
        self.takings.fetch_add(1, Ordering::Relaxed);
        let mut state = self.state.write().expect("no holder panicked");
        if self.options.eviction.is_at_every_lock() {
            state.evict_everything();
        }
        state
    }

    /// For who puts blocks into the buffer. Waits while a commit writes what is there.
    #[cfg_attr(feature = "testing", track_caller)]
    fn lock_buffering(&self) -> MutexGuard<'_, ()> {
        self.buffering.lock().expect("no holder panicked")
    }

    /// Holds off changes of the tree. Readers go on: so device I/O is possible meanwhile.
    #[cfg_attr(feature = "testing", track_caller)]
    fn hold_off_changes(&self) -> HoldingOff<'_> {
        let turn = self.lock_changing();
        self.is_held_off.store(true, Ordering::Release);
        HoldingOff { fs: self, _turn: turn }
    }

    /// It protects nothing itself: if a holder has panicked, readers who hold off changes go on.
    /// The state tells whether a change was under way.
    #[cfg_attr(feature = "testing", track_caller)]
    fn lock_changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether a change would have to wait for a commit.
    fn is_held_off(&self) -> bool {
        self.is_held_off.load(Ordering::Acquire)
    }

    fn is_read_only(&self) -> bool {
        self.read_only.load(Ordering::Acquire)
    }

    fn has_planted(&self, bug: PlantedBug) -> bool {
        self.options.planted.has(bug)
    }
}

/// The state, locked for a change of the tree. Unlocks the state first.
struct Changing<'a> {
    state: RwLockWriteGuard<'a, State>,
    _turn: MutexGuard<'a, ()>,
}

impl Deref for Changing<'_> {
    type Target = State;

    fn deref(&self) -> &State {
        &self.state
    }
}

impl DerefMut for Changing<'_> {
    fn deref_mut(&mut self) -> &mut State {
        &mut self.state
    }
}

/// As long as it lives, the tree does not change.
struct HoldingOff<'a> {
    fs: &'a Furrow,
    _turn: MutexGuard<'a, ()>,
}

impl Drop for HoldingOff<'_> {
    fn drop(&mut self) {
        self.fs.is_held_off.store(false, Ordering::Release);
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
