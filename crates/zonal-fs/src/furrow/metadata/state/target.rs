//! Placement targets: whether a block goes to its file's own zone, or to blocks that should live as
//! long.
//!
//! This collects the facts that memory has; [`zonal_placement`] makes a target of them. A wrong
//! target costs write amplification, and nothing else.

use zonal_placement::life::{LifeFacts, class_of, predict};
use zonal_placement::sharing::{Size, target_of};
use zonal_placement::streams::{Locality, Target};

use crate::furrow::format::BLOCK_BYTES;
use crate::furrow::metadata::map::place::{MapEntry, Owner};
use crate::furrow::metadata::{Inode, State};
use crate::furrow::options::Seeks;
use crate::furrow::table::key::RowKind;
use crate::lifetime::{LIFETIME_XATTR, WriteLifetime};
use crate::vfs::Ino;

/// A write is published in steps of at most this: a FUSE request's worth.
pub(in crate::furrow) const CHUNK_BYTES: u64 = 1 << 20;

/// A file that is longer than a zone divided by this gets a zone of its own: smaller ones gain
/// nothing by it (measured for zoned XFS's placement: with files of up to a quarter zone no better
/// than one stream).
const OWN_ZONE_SHARE: u64 = 4;

/// The same where empty zones are scarce. A shorter file would leave a part of its zone that other
/// files have to fill anyway, and if it began in a shared zone, it would lie in two.
const OWN_ZONE_SHARE_SCARCE: u64 = 2;

/// Empty zones are scarce below the capacity divided by this.
const SCARCE_SHARE: u64 = 8;

/// A file of more than 1 MiB is expected to grow on, if nothing is known of files like it and empty
/// zones are not scarce.
const GROWN_BLOCKS: u64 = CHUNK_BYTES / BLOCK_BYTES as u64;

/// Up to this length, less than 64 KiB, a file may be complete, even if files like it are large.
const BEGUN_BLOCKS: u64 = 15;

/// Blocks that have gathered leave the buffer in multiples of this number.
const GATHER_STEP: u64 = 64;

/// The size that files like this one lead us to expect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expected {
    /// No file like it has been deleted yet.
    Unknown,
    /// Too small for zones of their own.
    Small,
    /// Large enough.
    Large,
}

/// How a block is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::furrow) enum WrittenAs {
    /// By write-back of the buffer: alone, or with few others.
    Buffered,
    /// Past the buffer, with others.
    Straight {
        /// The write ends before this block of the file.
        up_to: u64,
        /// The write consists of full steps: so more is expected.
        is_full: bool,
    },
}

impl State {
    /// The target of a block that is written to a file.
    pub(in crate::furrow) fn target_of(&self, ino: Ino, block: u64, written: WrittenAs) -> Target {
        let capacity = self.zones.usable();
        let Some(inode) = self.inodes.peek(ino) else {
            return Target::Class(class_of(None, capacity));
        };
        let evidence = self.zones.limits.evidence;
        let hint = if evidence.hints { hint_of(inode) } else { WriteLifetime::None };
        let (up_to, grows_on) = match written {
            WrittenAs::Buffered => (block + 1, false),
            WrittenAs::Straight { up_to, is_full } => (up_to, is_full),
        };
        let length = inode.block_end();
        let context = inode.context.filter(|_| evidence.learned);
        let learned = context.and_then(|context| self.learned.life(context));
        let (expected, own_from) = self.own_from(inode);
        let is_large = (grows_on && expected != Expected::Small) || up_to.max(length) > own_from;
        let size = if is_large { Size::Large } else { Size::Small };
        let facts = LifeFacts { hint, last_life: self.life_of(inode, block), learned };
        target_of(ino.get(), size, facts, capacity)
    }

    /// The expected size of a file, and the number of blocks above which it gets a zone of its own.
    fn own_from(&self, inode: &Inode) -> (Expected, u64) {
        let is_scarce = self.is_scarce();
        let share = if is_scarce { OWN_ZONE_SHARE_SCARCE } else { OWN_ZONE_SHARE };
        let least = u64::from(self.zones.zone_blocks()) / share;
        match self.learned_size(inode) {
            Some(blocks) if blocks > least => (Expected::Large, least.min(BEGUN_BLOCKS)),
            Some(_) => (Expected::Small, least),
            None if is_scarce => (Expected::Unknown, least),
            None => (Expected::Unknown, least.min(GROWN_BLOCKS)),
        }
    }

    /// How many blocks files like this one have had.
    fn learned_size(&self, inode: &Inode) -> Option<u64> {
        let context = inode.context.filter(|_| self.zones.limits.evidence.learned)?;
        self.learned.size(context)
    }

    /// Whether few zones are empty.
    fn is_scarce(&self) -> bool {
        self.zones.free_blocks() < self.zones.usable() / SCARCE_SHARE
    }

    /// The number of blocks above which a file of unknown size gets a zone of its own. Up to there
    /// its blocks gather in the buffer, so that its beginning does not lie among other files.
    /// `None` if its blocks do not gather.
    fn gathers_up_to(&self, inode: &Inode) -> Option<u64> {
        let (expected, own_from) = self.own_from(inode);
        (expected == Expected::Unknown && !self.is_scarce()).then_some(own_from)
    }

    /// Whether a write of any length goes through the buffer. So does one that continues buffered
    /// blocks of the file, one that begins inside the last block, which would leave two blocks
    /// there anyway, and one to a file that is completely in the buffer and may turn out to be
    /// large. On a disk all do.
    pub(in crate::furrow) fn gathers(&self, ino: Ino, offset: u64) -> bool {
        if self.zones.limits.seeks == Seeks::Cost {
            return true;
        }
        let Some(inode) = self.inodes.peek(ino) else { return false };
        let Ok(file) = inode.file() else { return false };
        let (block, length) = (BLOCK_BYTES as u64, inode.block_end());
        let is_behind =
            offset.checked_sub(1).is_some_and(|last| file.dirty.contains_key(&(last / block)));
        if offset == inode.size && (is_behind || !offset.is_multiple_of(block)) {
            return true;
        }
        let is_buffered = offset <= inode.size && file.dirty.len() as u64 >= length;
        is_buffered && self.gathers_up_to(inode).is_some_and(|most| length <= most)
    }

    /// The block up to which the file leaves the buffer: if its buffered end is long enough for a
    /// write of its own, or fills the zone of the file. A file that goes on, by short writes or
    /// inside its last block, leaves in steps of 256 KiB, so that its extents are long. On a disk
    /// all stay until the buffer is full, so that runs are long.
    pub(in crate::furrow) fn gathered(&self, ino: Ino) -> Option<u64> {
        if self.zones.limits.seeks == Seeks::Cost {
            return None;
        }
        let inode = self.inodes.peek(ino)?;
        let file = inode.file().ok().filter(|file| !file.dirty.is_empty())?;
        let own = self.zones.zone_of_file(ino.get()).map(|zone| self.zones.slot(zone));
        let room = own.map_or(u64::MAX, |own| own.remaining().into());
        let worth = self.gathers_up_to(inode).map_or(GROWN_BLOCKS, |most| most + 1);
        let end = inode.size / BLOCK_BYTES as u64;
        let first = end.checked_sub(worth.min(room))?;
        let is_run = file.dirty.contains_key(&first)
            && file.dirty.range(first..end).count() as u64 == end - first;
        let rest = end % GATHER_STEP;
        let goes_on = rest <= BEGUN_BLOCKS || !inode.size.is_multiple_of(BLOCK_BYTES as u64);
        let is_full = end - first >= room;
        is_run.then_some(if goes_on && !is_full && end - first > rest { end - rest } else { end })
    }

    /// The blocks that should lie in one zone with a write: the file's blocks before it, the rest
    /// of the write and, where more is expected, as many again or as many as files like it have. A
    /// file that is longer than a zone lies in several anyway.
    pub(in crate::furrow) fn locality_of(
        &self,
        ino: Ino,
        first: u64,
        written: WrittenAs,
    ) -> Locality {
        let WrittenAs::Straight { up_to, is_full } = written else { return Locality::default() };
        let zone_blocks = u64::from(self.zones.zone_blocks());
        if up_to > zone_blocks {
            return Locality::default();
        }
        let mut blocks = up_to.saturating_sub(first);
        if is_full {
            let like_it = self.inodes.peek(ino).and_then(|inode| self.learned_size(inode));
            let like_it = like_it.filter(|&size| size <= zone_blocks).unwrap_or_default();
            blocks = (2 * blocks).max(like_it.saturating_sub(first));
        }
        let file = self.inodes.peek_file(ino);
        let before = file.and_then(|file| file.covering(first.checked_sub(1)?));
        let near = before.and_then(|(_, entry)| self.maps.shared.zone_of(&entry));
        Locality { blocks, near }
    }

    /// Whether a file is so short that it can lie in one zone.
    pub(in crate::furrow) fn fits_a_zone(&self, owner: Owner) -> bool {
        let Owner::Entry(ino, _) = owner else { return false };
        let size = self.inodes.peek(ino).map(Inode::block_end);
        size.is_some_and(|blocks| blocks <= u64::from(self.zones.zone_blocks()))
    }

    /// The expected life of data that goes to an open zone, and the hint of the file that opened
    /// it. For a zone of one file, the expectation for that file, if its inode is in memory.
    pub(in crate::furrow) fn lives_of(&self, zone: u32) -> (WriteLifetime, WriteLifetime) {
        let open = self.zones.open_zones().iter().find(|open| open.zone == zone);
        let Some(open) = open else { return Default::default() };
        if let Some(class) = open.class {
            return (WriteLifetime::of_class(class), open.hint);
        }
        let Target::File(number) = open.target else { return Default::default() };
        let Some(inode) = self.inodes.peek(Ino::new(number)) else { return Default::default() };
        let evidence = self.zones.limits.evidence;
        let hint = if evidence.hints { hint_of(inode) } else { WriteLifetime::None };
        let context = inode.context.filter(|_| evidence.learned);
        let learned = context.and_then(|context| self.learned.life(context));
        let capacity = self.zones.usable();
        let life = predict(LifeFacts { hint, last_life: None, learned }, capacity);
        let class = life.map(|life| class_of(Some(life), capacity));
        (class.map_or(WriteLifetime::None, WriteLifetime::of_class), hint)
    }

    /// Learns the life of a file whose blocks from `block` on are about to die: files like it will
    /// live as long.
    pub(super) fn learn_life(&mut self, ino: Ino, block: u64) {
        let Some(inode) = self.inodes.peek(ino) else { return };
        let Some((context, life)) = inode.context.zip(self.life_of(inode, block)) else { return };
        let clock = self.rows.totals.data_clock();
        if let Some(row) = self.learned.note_life(context, ino.get(), clock, life) {
            self.rows.mark_base(RowKind::Learned, row.into(), 0);
        }
    }

    /// Learns the size of a deleted file: files like it will be as large.
    pub(in crate::furrow) fn learn_size(&mut self, ino: Ino) {
        let Some(inode) = self.inodes.peek(ino) else { return };
        let Some(context) = inode.context.filter(|_| inode.size > 0) else { return };
        let blocks = inode.block_end();
        if let Some(row) = self.learned.note_size(context, blocks) {
            self.rows.mark_base(RowKind::Learned, row.into(), 0);
        }
    }

    /// The age of a stored block.
    fn life_of(&self, inode: &Inode, block: u64) -> Option<u64> {
        let (start, entry) = inode.file().ok()?.covering(block)?;
        let (zone, first) = match &*entry {
            MapEntry::Preallocated { .. } => return None,
            MapEntry::At { zone, block, .. } => (*zone, *block),
            MapEntry::Shared { extent, skip, .. } => {
                let extent = self.maps.shared.peek(*extent)?;
                (extent.zone, extent.block + skip)
            }
        };
        let within = u32::try_from(block - start).ok()?;
        let birth = self.zones.known(zone)?.birth_of(first.saturating_add(within));
        Some(self.rows.totals.data_clock().saturating_sub(birth))
    }
}

/// The lifetime hint of a file.
fn hint_of(inode: &Inode) -> WriteLifetime {
    let value = inode.xattrs.get(LIFETIME_XATTR.as_bytes());
    value.and_then(WriteLifetime::from_name).unwrap_or_default()
}
