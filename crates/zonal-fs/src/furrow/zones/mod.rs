//! Zones of the drive: the use of each, and which one is written next.
//!
//! Accounts under the state lock, without I/O; [`place`](crate::furrow::write::place) does the I/O.
//! [`allocation`] chooses the zone of a write, [`victims`] the zone that reclaim empties. A zone
//! goes Free → Open → Sealed → Free; metadata takes zones straight from Free and gives them back.
//! Each writer leaves free zones to those that must come after it (F4): a user write leaves the
//! zones that [metadata needs](Zones::kept_for_metadata) and one for reclaim, and is not admitted
//! before metadata has these. Reclaim leaves the zones of metadata and those that admitted writes
//! have reserved. If there are no others, reclaim and the write-back of a commit use the zones of
//! metadata beyond the next commit's, which gives back more. As a last resort reclaim writes
//! to open zones of users, in room that no write has reserved.

pub(super) mod allocation;
pub(super) mod backrefs;
mod generations;
mod metadata;
mod resets;
pub(super) mod victims;

use std::collections::{BTreeMap, BTreeSet};

use zonal::ZoneCond;
use zonal::retry::Retries;
use zonal_placement::streams::Streams;
use zonal_placement::victims::Victims;

use crate::furrow::drive::layout::ZoneLimits;
use crate::furrow::format::ZoneGeneration;
use crate::furrow::zones::allocation::OpenRoom;
use crate::furrow::zones::backrefs::{EncodedRecords, Records};

/// Free zones that metadata keeps in addition to its own, however many these are.
pub(super) const SPARE_ZONES_MIN: usize = 4;

/// Free zones for metadata alone, which not even reclaim takes: a recovery writes the rows of the
/// journal and a manifest to one pair. Then the zones of the journal are free, and it begins again.
pub(super) const RECOVERY_ZONES: usize = 2;

/// The use of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// Superblock log: never anything else.
    Super,
    /// Journal, parts of the table, manifests.
    Meta,
    /// Empty, to be taken.
    Free,
    /// Data is written to it.
    Open(Stream),
    /// Holds data; not written again before a reset.
    Sealed,
    /// No data lives in it; reset once a commit has made that durable.
    PendingReset,
    /// Failed: its live blocks may be readable, but it is never reset.
    Failed,
}

impl Role {
    /// The word for it in a dump.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Super => "superblock",
            Self::Meta => "metadata",
            Self::Free => "free",
            Self::Open(Stream::User) => "open",
            Self::Open(Stream::Reclaim) => "open-reclaim",
            Self::Sealed => "data",
            Self::PendingReset => "pending-reset",
            Self::Failed => "failed",
        }
    }
}

/// The kind of data that a zone takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stream {
    /// Files.
    User,
    /// Reclaim.
    Reclaim,
}

/// Whether a zone of this condition can no longer be written.
pub(super) const fn is_dead(cond: Option<ZoneCond>) -> bool {
    matches!(cond, Some(ZoneCond::ReadOnly | ZoneCond::Offline))
}

/// Origin of the blocks of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Origin {
    /// All are new data.
    Written,
    /// Reclaim has moved some to it.
    Moved,
}

/// Whether back-references name the owners of all live blocks of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Listed {
    /// All: each was recorded since the zone was empty.
    Yes,
    /// Perhaps not all.
    No,
    /// All that a scan of the maps could find.
    Searched,
    /// Likewise, but the device has refused to read some of the maps.
    SearchedInPart,
}

/// A zone.
#[derive(Clone, Debug)]
pub(super) struct ZoneSlot {
    pub(super) role: Role,
    /// Blocks that can be written.
    pub(super) capacity: u32,
    /// Blocks allocated, whether or not the device has written them yet.
    pub(super) written: u32,
    /// Live blocks.
    pub(super) live: u32,
    /// The block after the last one that was live since the reset.
    pub(super) end: u32,
    /// Blocks allocated that are neither live yet nor given up.
    pub(super) in_flight: u32,
    /// The data clock at the last write: the age of a victim.
    pub(super) last_write: u64,
    /// The data clock when its first block was written, or the mean of that where reclaim
    /// has moved blocks to it.
    pub(super) born: u64,
    /// Where its blocks come from.
    pub(super) origin: Origin,
    /// Sealed with room left: the drive still counts it as active.
    pub(super) is_unfinished: bool,
    /// Place of the next row of back-references.
    pub(super) next_owners: u32,
    /// Bytes of its rows of back-references.
    pub(super) owner_bytes: u32,
    /// Whether back-references, in rows and in memory, name all live blocks.
    pub(super) listed: Listed,
    /// Back-references that no row has yet.
    pub(super) records: Records,
    /// It is offline, or no row names the owners of its blocks: reclaim cannot empty it.
    pub(super) unreadable: bool,
    /// Resets since the mount: tells a block from one that lay there before.
    pub(super) resets: u32,
    /// Its generation, as rows name it.
    pub(super) generation: u8,
}

impl ZoneSlot {
    pub(super) fn new(role: Role, capacity: u32) -> Self {
        Self {
            role,
            capacity,
            written: 0,
            live: 0,
            end: 0,
            in_flight: 0,
            last_write: 0,
            born: 0,
            origin: Origin::Written,
            is_unfinished: false,
            next_owners: 0,
            owner_bytes: 0,
            listed: Listed::Yes,
            records: Records::default(),
            unreadable: false,
            resets: 0,
            generation: 0,
        }
    }

    /// Blocks that can still be given out.
    pub(super) fn remaining(&self) -> u32 {
        self.capacity - self.written
    }

    /// The first blocks whose write has ended: a write before them may be under way otherwise.
    pub(super) fn readable(&self) -> u32 {
        if self.in_flight == 0 { self.end } else { 0 }
    }
}

/// All zones.
#[derive(Debug)]
pub(super) struct Zones {
    slots: Vec<ZoneSlot>,
    /// Empty zones of the data drive. The next one taken is the first from [`turn`](Self::turn)
    /// on, and after the last zone comes the first.
    free: BTreeSet<u32>,
    /// Empty zones of the metadata drive.
    aside: BTreeSet<u32>,
    /// The zone after the one taken last, or 0 where zones are not taken in turn.
    turn: u32,
    /// Blocks of all free zones of the data drive.
    free_blocks: u64,
    /// How many of these metadata can take.
    free_for_metadata: usize,
    /// Sealed zones in which nothing lives.
    emptied: BTreeSet<u32>,
    /// How many are [`Role::PendingReset`].
    pending: usize,
    /// Those of them that may be reset now.
    resets: BTreeSet<u32>,
    /// Of the pending ones, zones that the drive has refused to reset.
    refused_resets: BTreeSet<u32>,
    /// When the worker tries these again.
    reset_retries: Retries<u32>,
    /// Zones whose data or owners the device has refused to read.
    pub(super) unread: Retries<u32>,
    /// Zones of journal and table.
    meta: u64,
    /// Blocks that can be written in open zones.
    room: OpenRoom,
    streams: Streams,
    victims: Victims,
    pub(super) limits: ZoneLimits,
    /// Blocks that data can use: all of working zones, the live ones of failed zones.
    usable: u64,
    /// Zones whose row is to be written.
    changed: BTreeSet<u32>,
    /// Zones that have back-references in memory.
    recorded: BTreeSet<u32>,
    /// Those of them that the next batch writes.
    encoded: BTreeMap<u32, EncodedRecords>,
    /// Generations of zones that have remap tables, and how many each.
    remapped: BTreeMap<ZoneGeneration, u32>,
}

impl Zones {
    /// Zones with their roles, from which the free ones follow.
    pub(super) fn new(slots: Vec<ZoneSlot>, limits: ZoneLimits) -> Self {
        let mut zones = Self {
            free: BTreeSet::new(),
            aside: BTreeSet::new(),
            turn: 0,
            free_blocks: 0,
            free_for_metadata: 0,
            emptied: BTreeSet::new(),
            pending: 0,
            resets: BTreeSet::new(),
            refused_resets: BTreeSet::new(),
            reset_retries: Retries::default(),
            unread: Retries::default(),
            meta: 0,
            room: OpenRoom::default(),
            streams: Streams::new(limits.budget, limits.zone_blocks.into()),
            victims: Victims::new(slots.len()),
            limits,
            usable: 0,
            changed: BTreeSet::new(),
            recorded: BTreeSet::new(),
            encoded: BTreeMap::new(),
            remapped: BTreeMap::new(),
            slots,
        };
        for zone in zones.ids() {
            zones.meta += u64::from(zones.slot(zone).role == Role::Meta);
            let slot = zones.slot(zone);
            let takes_data = zone < zones.limits.data_zones;
            if takes_data && !matches!(slot.role, Role::Super | Role::Failed) {
                zones.usable += u64::from(slot.capacity);
            }
        }
        // All at once: there can be a million.
        zones.free = zones.ids().filter(|&zone| zones.slot(zone).role == Role::Free).collect();
        zones.aside = zones.free.split_off(&zones.limits.data_zones);
        let fits = |&zone: &u32| zones.fits_metadata(zone);
        zones.aside = zones.aside.iter().copied().filter(fits).collect();
        zones.free_blocks =
            zones.free.iter().map(|&zone| u64::from(zones.slot(zone).capacity)).sum();
        zones.free_for_metadata =
            zones.free.iter().filter(|&&zone| zones.fits_metadata(zone)).count();
        zones
    }

    fn insert_free(&mut self, zone: u32) {
        if !self.takes_data(zone) {
            if self.fits_metadata(zone) {
                self.aside.insert(zone);
            }
        } else if self.free.insert(zone) {
            self.free_blocks += u64::from(self.slot(zone).capacity);
            self.free_for_metadata += usize::from(self.fits_metadata(zone));
        }
    }

    /// Frees an open zone that nothing was written to.
    pub(super) fn free_untouched(&mut self, zone: u32) {
        self.update(zone, |slot| slot.role = Role::Free);
        self.insert_free(zone);
    }

    fn remove_free(&mut self, zone: u32) {
        self.aside.remove(&zone);
        if self.free.remove(&zone) {
            self.free_blocks -= u64::from(self.slot(zone).capacity);
            self.free_for_metadata -= usize::from(self.fits_metadata(zone));
        }
    }

    /// Takes a zone out of the empty ones, to write to it.
    pub(super) fn take_free(&mut self, zone: u32) {
        self.remove_free(zone);
        if self.takes_data(zone) {
            self.set_turn(zone + 1);
        }
    }

    /// Where zones are taken in turn, makes the first empty zone from this one on the next.
    pub(super) fn set_turn(&mut self, zone: u32) {
        if self.limits.in_turn {
            self.turn = zone;
        }
    }

    /// The free zone that a writer takes next, of those for which `may` holds.
    fn next_free(&self, may: impl Fn(u32) -> bool) -> Option<u32> {
        let in_turn = self.free.range(self.turn..).chain(self.free.range(..self.turn));
        in_turn.copied().find(|&zone| may(zone))
    }

    pub(super) fn ids(&self) -> std::ops::Range<u32> {
        0..u32::try_from(self.slots.len()).expect("zone numbers are u32")
    }

    pub(super) fn slot(&self, zone: u32) -> &ZoneSlot {
        &self.slots[zone as usize]
    }

    pub(super) fn slot_mut(&mut self, zone: u32) -> &mut ZoneSlot {
        &mut self.slots[zone as usize]
    }

    /// Changes the role or the written blocks of a zone that is or becomes open.
    pub(super) fn update(&mut self, zone: u32, change: impl FnOnce(&mut ZoneSlot)) {
        let others = self.room - OpenRoom::of(self.slot(zone));
        change(self.slot_mut(zone));
        self.room = others + OpenRoom::of(self.slot(zone));
    }

    /// All zones, with their numbers.
    pub(super) fn all(&self) -> impl Iterator<Item = (u32, &ZoneSlot)> {
        self.ids().zip(&self.slots)
    }

    /// The zone with this number, if there is one.
    pub(super) fn known(&self, zone: u32) -> Option<&ZoneSlot> {
        self.slots.get(zone as usize)
    }

    /// The zone with this number, if there is one.
    pub(super) fn known_mut(&mut self, zone: u32) -> Option<&mut ZoneSlot> {
        self.slots.get_mut(zone as usize)
    }

    /// Zones that have changed since the last call.
    pub(super) fn take_changed(&mut self) -> BTreeSet<u32> {
        std::mem::take(&mut self.changed)
    }

    /// Blocks of a zone of full capacity.
    pub(super) fn zone_blocks(&self) -> u32 {
        self.limits.zone_blocks
    }

    /// Blocks of the longest extent.
    pub(super) fn extent_max(&self) -> u32 {
        self.limits.extent_max
    }

    /// Blocks that data can use.
    pub(super) fn usable(&self) -> u64 {
        self.usable
    }

    /// Blocks of all free zones.
    pub(super) fn free_blocks(&self) -> u64 {
        self.free_blocks
    }

    /// Whether a commit gives back zones, now or once their readers have ended.
    pub(super) fn has_emptied(&self) -> bool {
        !self.emptied.is_empty()
    }

    /// Whether a commit would give back zones now.
    pub(super) fn has_idle_emptied(&self, idle: impl Fn(u32) -> bool) -> bool {
        self.emptied.iter().any(|&zone| idle(zone))
    }

    /// Changes a zone's role, and takes it out of the counts of its old one.
    fn leave_role(&mut self, zone: u32, role: Role) {
        let slot = self.slot_mut(zone);
        let before = std::mem::replace(&mut slot.role, role);
        self.meta -= u64::from(before == Role::Meta);
        self.pending -= usize::from(before == Role::PendingReset);
        self.resets.remove(&zone);
        self.refused_resets.remove(&zone);
    }

    /// Seals a zone that was taken for free and holds data after all, until a mount resumes it.
    pub(super) fn claim(&mut self, zone: u32) {
        self.remove_free(zone);
        self.slot_mut(zone).role = Role::Sealed;
        self.index(zone);
    }

    /// Takes a zone out of use that can no longer be written or reset.
    pub(super) fn fail(&mut self, zone: u32) {
        self.seal(zone);
        self.remove_free(zone);
        self.emptied.remove(&zone);
        let slot = self.slot_mut(zone);
        match slot.role {
            Role::Super | Role::Failed => {}
            Role::Meta | Role::Free | Role::Open(_) | Role::Sealed | Role::PendingReset => {
                let dead = u64::from(slot.capacity.saturating_sub(slot.live));
                if self.takes_data(zone) {
                    self.usable = self.usable.saturating_sub(dead);
                }
                self.leave_role(zone, Role::Failed);
            }
        }
        self.finished(zone);
        self.index(zone);
    }

    /// Frees a zone that was reset.
    pub(super) fn release(&mut self, zone: u32) {
        let slot = self.slot_mut(zone);
        assert!(slot.live == 0 && slot.in_flight == 0, "F3: nothing lives in a zone that is reset");
        slot.written = 0;
        slot.end = 0;
        slot.records = Records::default();
        slot.unreadable = false;
        slot.resets = slot.resets.wrapping_add(1);
        slot.origin = Origin::Written;
        self.unread.settle(zone);
        self.reset_retries.settle(zone);
        self.begin_generation(zone);
        self.finished(zone);
        self.leave_role(zone, Role::Free);
        self.insert_free(zone);
    }

    /// Takes the empty sealed zones that have no readers: they can be reset once the rows that say
    /// so are durable.
    pub(super) fn take_emptied(&mut self, idle: impl Fn(u32) -> bool) -> Vec<u32> {
        debug_assert_eq!(self.room, self.slots.iter().map(OpenRoom::of).sum(), "room is counted");
        self.seal_dead();
        let zones: Vec<u32> = self.emptied.iter().copied().filter(|&zone| idle(zone)).collect();
        for &zone in &zones {
            self.emptied.remove(&zone);
            self.slot_mut(zone).role = Role::PendingReset;
        }
        self.pending += zones.len();
        zones
    }

    /// Takes back the zones of [`take_emptied`](Self::take_emptied): the commit has failed.
    pub(super) fn put_back_emptied(&mut self, zones: &[u32]) {
        for &zone in zones {
            self.leave_role(zone, Role::Sealed);
            self.emptied.insert(zone);
        }
    }

    /// Sets the live blocks of a zone, as a mount finds them.
    pub(super) fn restore_live(&mut self, zone: u32, live: u32) {
        let slot = self.slot_mut(zone);
        slot.live = live;
        if slot.role == Role::Failed {
            self.usable += u64::from(live);
        }
        self.index(zone);
    }

    /// Counts a run of blocks as live.
    pub(super) fn add_live(&mut self, zone: u32, block: u32, blocks: u32) {
        self.emptied.remove(&zone);
        self.changed.insert(zone);
        let slot = self.slot_mut(zone);
        slot.live += blocks;
        slot.end = slot.end.max(block + blocks);
        if slot.role == Role::Failed {
            self.usable += u64::from(blocks);
        }
        self.index(zone);
    }

    /// Counts blocks as dead.
    pub(super) fn remove_live(&mut self, zone: u32, blocks: u32) {
        self.changed.insert(zone);
        let slot = self.slot_mut(zone);
        // The count may come from a drive, and be wrong.
        slot.live = slot.live.saturating_sub(blocks);
        if slot.role == Role::Failed {
            self.usable = self.usable.saturating_sub(blocks.into());
        }
        self.index(zone);
        self.note_emptied(zone);
    }

    pub(super) fn note_emptied(&mut self, zone: u32) {
        let slot = self.slot(zone);
        if slot.role == Role::Sealed && slot.live == 0 && slot.in_flight == 0 {
            self.emptied.insert(zone);
        }
    }
}

/// Urgency of reclaim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Urgency {
    /// No writer needs room yet: reclaim works where that costs little.
    Ahead,
    /// Reclaim runs ahead of the writers.
    Normal,
    /// A writer waits.
    Emergency,
    /// Free zones are not the aim: a read-only zone holds data that the next failure would destroy.
    /// Reclaim empties it if there is room, and it is never reset.
    Rescue,
}
