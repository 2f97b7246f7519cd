//! Mount options of Furrow, and their spelling in mount(8).

use std::num::NonZeroU32;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use zonal::{ByteCount, ZonedDevice, size};
use zonal_placement::life::Evidence;
#[cfg(feature = "testing")]
use zonal_placement::model::Rules;
#[cfg(not(feature = "testing"))]
use zonal_placement::{streams::Budget, victim::Policy, victims::Victims};

use crate::furrow::planted::Planted;
use crate::options::Taken;
use crate::vfs::Access;

/// When a read moves the access time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AtimePolicy {
    /// If it is not later than the last change, or a day old (Linux `relatime`).
    #[default]
    Relative,
    /// Never (`noatime`).
    Never,
    /// At every read (`strictatime`).
    Always,
}

/// Whether a write costs time because of the place where the one before has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Seeks {
    /// As on flash: no.
    Free,
    /// As on a disk: the head moves there, so writes leave in long runs.
    Cost,
}

/// Rules by which Furrow places data, and compares victims while no writer waits.
#[cfg(feature = "testing")]
pub(super) type Placement = Rules;

/// The only rules outside of tests: by predicted life.
#[cfg(not(feature = "testing"))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement;

#[cfg(not(feature = "testing"))]
#[expect(clippy::unused_self, reason = "it takes the place of `Rules`, which decides by it")]
impl Placement {
    /// How many zones to keep open if `open` may be.
    pub(super) fn budget(self, open: usize) -> Budget {
        Budget::of(open)
    }

    /// How to compare these victims.
    pub(super) fn victim(self, victims: &Victims) -> Policy {
        victims.policy()
    }
}

/// Options of a mount. Serde leaves out the options that Furrow shares with other file systems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MountOptions {
    /// Whether to write. `ReadOnly` writes nothing at all, not even recovery.
    #[serde(skip)]
    pub access: Access,
    /// When to move access times.
    #[serde(skip)]
    pub atime: AtimePolicy,
    /// Memory for all that the mount holds, about. With less than
    /// [`MEMORY_MIN`](Self::MEMORY_MIN) it works slowly.
    #[serde(with = "bytes")]
    pub memory: ByteCount,
    /// Open data zones, at most; `None` for as many as the drive allows.
    pub max_open_zones: Option<NonZeroU32>,
    /// Whether to spare the head of a disk; `None` to ask the drive whether it rotates.
    pub rotational: Option<bool>,
    /// Age in seconds at which the worker commits changes.
    pub commit_seconds: NonZeroU32,
    /// Whether Furrow follows the write-lifetime hints of programs.
    pub follows_hints: bool,
    /// Whether Furrow predicts the life of data from that of similar files. For tests only.
    #[cfg(feature = "testing")]
    #[serde(skip)]
    pub learns_lives: bool,
    /// Rules of placement, to compare others with ours. For tests only.
    #[cfg(feature = "testing")]
    #[serde(skip)]
    pub placement: Rules,
    /// A mistake to make on purpose. For tests of tests only.
    #[serde(skip)]
    pub planted: Planted,
    /// When to evict metadata that was read. For tests only.
    #[serde(skip)]
    pub eviction: Eviction,
}

impl Default for MountOptions {
    fn default() -> Self {
        Self {
            access: Access::default(),
            atime: AtimePolicy::default(),
            memory: Self::MEMORY,
            max_open_zones: None,
            rotational: None,
            commit_seconds: Self::COMMIT_SECONDS,
            follows_hints: true,
            #[cfg(feature = "testing")]
            learns_lives: true,
            #[cfg(feature = "testing")]
            placement: Rules::default(),
            planted: Planted::default(),
            eviction: Eviction::default(),
        }
    }
}

impl MountOptions {
    /// The default of `memory`.
    pub const MEMORY: ByteCount = ByteCount::new(256 << 20);

    /// The least memory that makes sense.
    pub const MEMORY_MIN: ByteCount = ByteCount::new(64 << 20);

    /// The default of `commit_seconds` in a library, whose user can sync.
    pub const COMMIT_SECONDS: NonZeroU32 = NonZeroU32::new(5).expect("it is not 0");

    /// The default of `commit_seconds` in a mount: sync(1) does not reach all of them.
    pub const COMMIT_SECONDS_OF_MOUNT: NonZeroU32 = NonZeroU32::new(1).expect("it is not 0");

    /// The largest `commit_seconds` that makes sense.
    const COMMIT_SECONDS_MAX: u32 = 3600;

    /// Takes an option if it is one that only Furrow has: `memory=SIZE`, `max_open_zones=N`,
    /// `commit=SECONDS`, `rotational`, `norotational`, `nolifetime` or `lifetime`.
    ///
    /// ```
    /// use zonal_fs::furrow::MountOptions;
    /// use zonal_fs::options::Taken;
    /// let mut options = MountOptions::default();
    /// assert_eq!(options.take("memory=1GiB"), Taken::Yes);
    /// assert_eq!(options.memory.get(), 1 << 30);
    /// assert_eq!(options.take("memory=1KiB"), Taken::Bad);
    /// assert_eq!(options.take("max_open_zones=8"), Taken::Yes);
    /// assert_eq!(options.take("nolifetime"), Taken::Yes);
    /// assert_eq!(options.take("noatime"), Taken::No);
    /// ```
    pub fn take(&mut self, option: &str) -> Taken {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        let taken = match name {
            "memory" => {
                let memory = size::parse(value).ok().filter(|memory| *memory >= Self::MEMORY_MIN);
                memory.map(|memory| self.memory = memory)
            }
            "max_open_zones" => value.parse().ok().map(|zones| self.max_open_zones = Some(zones)),
            "commit" => {
                let seconds = value.parse().ok();
                let sensible = |seconds: &NonZeroU32| seconds.get() <= Self::COMMIT_SECONDS_MAX;
                seconds.filter(sensible).map(|seconds| self.commit_seconds = seconds)
            }
            "rotational" => option.eq("rotational").then(|| self.rotational = Some(true)),
            "norotational" => option.eq("norotational").then(|| self.rotational = Some(false)),
            "nolifetime" => option.eq("nolifetime").then(|| self.follows_hints = false),
            "lifetime" => option.eq("lifetime").then(|| self.follows_hints = true),
            _ => return Taken::No,
        };
        taken.map_or(Taken::Bad, |()| Taken::Yes)
    }

    /// Whether a remount can change these options to `new`. Of the options that only Furrow has, it
    /// changes `lifetime` alone.
    ///
    /// ```
    /// use zonal_fs::furrow::MountOptions;
    /// let (now, mut new) = (MountOptions::default(), MountOptions::default());
    /// new.take("nolifetime");
    /// assert!(now.can_become(&new));
    /// new.take("memory=1GiB");
    /// assert!(!now.can_become(&new));
    /// ```
    pub fn can_become(&self, new: &Self) -> bool {
        let Self { access, atime, follows_hints, .. } = *new;
        *new == Self { access, atime, follows_hints, ..*self }
    }

    /// Age of the last commit at which the next one is due: the next tick comes up to a second
    /// later, in a mount up to half a second.
    pub(super) fn commit_age(&self) -> Duration {
        let age = Duration::from_secs(self.commit_seconds.get().into());
        (age / 2).max(age.saturating_sub(Duration::from_secs(1)))
    }

    /// The evidence from which Furrow predicts the life of data.
    pub(super) fn evidence(&self) -> Evidence {
        #[cfg(feature = "testing")]
        let learned = self.learns_lives;
        #[cfg(not(feature = "testing"))]
        let learned = true;
        Evidence { hints: self.follows_hints, learned }
    }

    /// The rules of placement.
    #[cfg_attr(not(feature = "testing"), expect(clippy::unused_self, reason = "one way only"))]
    pub(super) fn placement(&self) -> Placement {
        #[cfg(feature = "testing")]
        return self.placement;
        #[cfg(not(feature = "testing"))]
        Placement
    }

    /// How the mount divides its memory.
    pub(super) fn memory_budget(&self, seeks: Seeks) -> MemoryBudget {
        MemoryBudget::of(self.memory.get(), seeks)
    }

    /// What a jump costs on a device, unless the option says otherwise.
    pub(super) fn seeks(&self, device: &dyn ZonedDevice) -> Seeks {
        if self.rotational.unwrap_or_else(|| device.rotates()) { Seeks::Cost } else { Seeks::Free }
    }
}

/// A number of bytes as a plain number.
mod bytes {
    use serde::{Deserialize, Deserializer, Serializer};
    use zonal::ByteCount;

    #[expect(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
    pub(super) fn serialize<S: Serializer>(bytes: &ByteCount, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_u64(bytes.get())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<ByteCount, D::Error> {
        u64::deserialize(from).map(ByteCount::new)
    }
}

/// When to evict metadata that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// When there is too much of it.
    #[default]
    ByNeed,
    /// All of it that may go, each time that a thread locks the state. For tests only: an operation
    /// that relies on metadata being resident without a look under the same lock does not find it.
    /// And truncation removes few map entries in a step, so that small files take several.
    AtEveryLock,
}

impl Eviction {
    pub(super) fn is_at_every_lock(self) -> bool {
        self == Self::AtEveryLock
    }
}

/// Bytes of a mount's memory by their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MemoryBudget {
    /// Inodes, entries and maps.
    pub(super) held: usize,
    /// Leaves of the table.
    pub(super) leaves: usize,
    /// A memtable. There are two while one of them is written as a run.
    pub(super) memtable: usize,
    /// The write buffer.
    pub(super) buffer: usize,
    /// The rows of a batch. Memory has them three times while a commit writes them.
    pub(super) batch: usize,
    /// The part of the table that a step is writing.
    pub(super) part: usize,
    /// Victims that reclaim empties at once, at most.
    pub(super) victims: usize,
    /// Remap tables.
    pub(super) moved: usize,
    /// Blocks that reads take ahead.
    pub(super) ahead: usize,
}

/// Memory of an empty mount: zones, threads, zstd.
const FIXED_BYTES: u64 = 8 << 20;

/// Memory of a step of reclaim: blocks as it has read them, and in the order in which it writes
/// them. On a disk with the gaps between them.
fn victim_bytes(seeks: Seeks) -> u64 {
    match seeks {
        Seeks::Free => 2 << 20,
        Seeks::Cost => 8 << 20,
    }
}

/// Memory for the read-ahead of a merge, in all runs together.
const MERGE_BYTES: u64 = 6 << 20;

fn narrow(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

impl MemoryBudget {
    fn of(memory: u64, seeks: Seeks) -> Self {
        let share = |parts: u64, max: u64| (memory / parts).min(max << 20);
        // Below `MEMORY_MIN` these take more than their share, so that all still works.
        let some = |parts, max| share(parts, max).max(1 << 20);
        let memtable = share(16, 32);
        let buffer = match seeks {
            Seeks::Free => some(16, 16),
            // Eight writers have runs of 7 MiB there, which take a disk four times as long as the
            // jumps between them.
            Seeks::Cost => share(4, 264).saturating_sub(8 << 20).max(1 << 20),
        };
        let (batch, part) = (some(32, 4), some(32, 8));
        let victims = match seeks {
            Seeks::Free => (memory / (64 << 20)).clamp(1, 4),
            // The head is at one of them.
            Seeks::Cost => 1,
        };
        let others = FIXED_BYTES + MERGE_BYTES + 2 * memtable + buffer + 3 * batch + part;
        let moved = share(32, 256);
        let ahead = match seeks {
            Seeks::Free => 0,
            // Windows of 2 MiB: a disk takes 9 ms for these, and 0.06 ms for the command.
            Seeks::Cost => share(32, 8),
        };
        let others = others + victims * victim_bytes(seeks) + moved + ahead;
        // A sixth of the rest is for the allocator's fragmentation.
        let rest = memory.saturating_sub(others);
        Self {
            held: narrow(rest / 2),
            leaves: narrow(rest / 3),
            memtable: narrow(memtable),
            buffer: narrow(buffer),
            batch: narrow(batch),
            part: narrow(part),
            victims: narrow(victims),
            moved: narrow(moved),
            ahead: narrow(ahead),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_shares_stay_within_total() {
        let seeks = [Seeks::Free, Seeks::Cost];
        for (mib, seeks) in [64_u64, 100, 256, 512, 4096]
            .into_iter()
            .flat_map(|mib| seeks.map(|seeks| (mib, seeks)))
        {
            let memory = mib << 20;
            let memory_budget = MemoryBudget::of(memory, seeks);
            let MemoryBudget { held, leaves, memtable, buffer, batch, part, victims, moved, ahead } =
                memory_budget;
            let shares = held + leaves + 2 * memtable + buffer + 3 * batch + part + moved + ahead;
            let shares = shares + victims * narrow(victim_bytes(seeks));
            assert!(
                shares as u64 + FIXED_BYTES + MERGE_BYTES < memory,
                "{mib} MiB: {memory_budget:?}"
            );
            let least = match seeks {
                Seeks::Free => memory / 8,
                Seeks::Cost => memory / 16,
            };
            assert!(held.min(leaves) as u64 > least, "{memory_budget:?}");
        }
    }

    #[test]
    fn memory_option_takes_sizes_of_commands() {
        let mut options = MountOptions::default();
        for (option, mib) in [("memory=64M", 64), ("memory=1.5GiB", 1536)] {
            assert_eq!(options.take(option), Taken::Yes);
            assert_eq!(options.memory.get(), mib << 20);
        }
        let bad = [
            "memory",
            "memory=",
            "memory=lots",
            "memory=63MiB",
            "memory=-1",
            "max_open_zones=0",
            "max_open_zones=many",
            "commit",
            "commit=0",
            "commit=3601",
            "commit=1.5",
            "nolifetime=1",
            "lifetime=",
        ];
        for bad in bad {
            assert_eq!(options.take(bad), Taken::Bad, "{bad}");
        }
        for other in ["", "ro", "mem=1G", "memory_max=1G", "zone_pick=lowest"] {
            assert_eq!(options.take(other), Taken::No, "{other}");
        }
        assert_eq!(options.memory.get(), 1536 << 20, "what is refused changes nothing");
    }
}
