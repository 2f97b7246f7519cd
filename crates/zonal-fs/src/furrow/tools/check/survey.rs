//! The survey, the first pass: checks each row by itself and among the rows of its inode, and sums
//! up all rows.
//!
//! The rows of an inode come together, the inode first, so the survey holds one inode, and counts
//! for each zone. It collects facts for later passes where this is not enough. A row that breaks a
//! rule is reported and counts for nothing. If rows are lost, the survey reports no difference that
//! they may explain.

mod places;
mod sums;

use std::collections::BTreeSet;

use zonal::{Zone, ZoneCond};
use zonal_placement::learned::{CONTEXTS, ROWS};

use crate::furrow::format::row::{
    EntryRow, ExtentRow, INODE_BYTES, InodeRow, Place, Row, TotalsRow, ZoneRow, entry_bytes,
    extent_bytes, map_bytes, shared_map_bytes, xattr_bytes,
};
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::invariant::{self as rule, Invariant, Problems};
use crate::furrow::metadata::directory::names::{NameKey, names_bytes};
use crate::furrow::metadata::directory::row::directory_entry;
use crate::furrow::metadata::inode::row::inode_of;
use crate::furrow::metadata::state::sums::{is_sane, learned_of};
use crate::furrow::table::key::{KeySpan, RowKind};
use crate::furrow::tools::check::links::{LinkSums, Linked, is_entry};
use crate::furrow::tools::check::lost::LostRows;
use crate::furrow::tools::check::names::LargeDirectory;
use crate::furrow::tools::check::orphans::Orphans;
use crate::furrow::tools::check::pass::{Item, RowSource};
use crate::furrow::tools::check::reach::Reach;
use crate::furrow::tools::check::{Drive, place_text};
use crate::furrow::zones::{Role, ZoneSlot};
use crate::rules;
use crate::vfs::{FileKind, Ino, Result};

/// Most names of a directory without an index that the survey compares in memory.
const NAMES_MAX: usize = 1 << 16;

/// Counts of a zone.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ZoneCount {
    /// Live blocks.
    pub(super) live: u64,
    /// The block behind the last live one.
    pub(super) end: u32,
    /// Runs of blocks of map rows and shared extents.
    pub(super) runs: u64,
    /// Back-references.
    pub(super) records: u64,
    owner_bytes: u64,
}

/// Totals over all rows, to compare with the row of totals.
#[derive(Debug, Default)]
pub(super) struct SurveyTotals {
    pub(super) inodes: u64,
    pub(super) live: u64,
    preallocated: u64,
    row_bytes: u64,
    place_bytes: u64,
    pub(super) unlinked: u64,
    pub(super) directories: u64,
    /// Shared extents.
    pub(super) shared: u64,
    /// Map rows that name a shared extent.
    pub(super) sharers: u64,
    /// Runs of blocks.
    pub(super) runs: u64,
}

/// The inode whose rows the pass reads now.
#[derive(Default)]
struct Current {
    ino: u64,
    /// `None` without a valid row of the inode.
    linked: Option<Linked>,
    row: Option<InodeRow>,
    /// Its row is lost, so its other rows cannot be judged.
    is_unknown: bool,
    /// Blocks or entries.
    count: u64,
    /// The block behind the last map entry.
    map_end: u64,
    xattrs: BTreeSet<Box<[u8]>>,
    names: BTreeSet<Box<[u8]>>,
    is_large: bool,
}

impl Current {
    fn of_kind(&self, kind: FileKind) -> Option<&InodeRow> {
        let linked = self.linked.filter(|linked| linked.kind == kind);
        linked.and(self.row.as_ref())
    }
}

/// The tree of entries and inodes.
pub(super) struct SurveyedTree {
    /// Without a root nothing is reachable, and links are not compared.
    has_root: bool,
    directories: u64,
    links: LinkSums,
    reach: Reach,
    large: Vec<LargeDirectory>,
}

impl SurveyedTree {
    /// Directories whose names need passes of their own.
    pub(super) fn large(&self) -> impl Iterator<Item = u64> {
        self.large.iter().map(|large| large.ino.get())
    }

    /// Checks links, reachability and names by further passes.
    pub(super) fn check(
        self,
        source: &mut RowSource<'_>,
        key: NameKey,
        memory: u64,
        lost: &LostRows,
        problems: &mut Problems,
    ) -> Result<()> {
        if self.has_root {
            let count = problems.count();
            self.links.check(source, memory, lost, problems)?;
            if !lost.touch_inodes() {
                let directories = (problems.count() == count).then_some(self.directories);
                self.reach.check(source, directories, problems)?;
            }
        }
        let mut large = self.large.iter().filter(|large| !lost.touch_inode(large.ino.get()));
        large.try_for_each(|large| large.check(source, key, memory, problems))
    }
}

/// Result of the survey.
pub(super) struct Surveyed {
    pub(super) found: SurveyTotals,
    pub(super) zones: Vec<ZoneCount>,
    pub(super) zone_rows: Vec<Option<ZoneRow>>,
    pub(super) tree: SurveyedTree,
    pub(super) lost: LostRows,
    /// Problems of rows, which then were left out of all sums.
    pub(super) rows: Problems,
    /// Counts and sums that differ. They say nothing if rows were left out.
    pub(super) sums: Problems,
    /// Other problems.
    pub(super) others: Problems,
}

pub(super) struct Survey<'a> {
    drive: &'a Drive,
    slots: &'a [ZoneSlot],
    report: &'a [Zone],
    problems: Problems,
    sums: Problems,
    others: Problems,
    found: SurveyTotals,
    zones: Vec<ZoneCount>,
    zone_rows: Vec<Option<ZoneRow>>,
    totals: Option<TotalsRow>,
    orphans: Orphans<'a>,
    current: Current,
    has_root: bool,
    links: LinkSums,
    reach: Reach,
    large: Vec<LargeDirectory>,
    lost: LostRows,
    /// Numbers of remap tables.
    moved: BTreeSet<u64>,
    /// Some remap tables are lost.
    has_lost_remaps: bool,
}

impl<'a> Survey<'a> {
    pub(super) fn new(
        source: &RowSource<'a>,
        slots: &'a [ZoneSlot],
        report: &'a [Zone],
        memory: u64,
    ) -> Self {
        Self {
            drive: source.drive,
            slots,
            report,
            problems: Problems::default(),
            sums: Problems::default(),
            others: Problems::default(),
            found: SurveyTotals::default(),
            zones: vec![ZoneCount::default(); slots.len()],
            zone_rows: vec![None; slots.len()],
            totals: None,
            orphans: Orphans::new(source.drive, source.view),
            current: Current::default(),
            has_root: false,
            links: LinkSums::new(),
            reach: Reach::new(memory),
            large: Vec::new(),
            lost: LostRows::default(),
            moved: BTreeSet::new(),
            has_lost_remaps: source.view.has_lost_remaps(),
        }
    }

    pub(super) fn put(&mut self, item: Item<'_>) {
        let (key, row, bytes) = match item {
            Item::Row(key, row, bytes) => (key, row, bytes),
            Item::Bad(why) => return self.problems.add(rule::ROWS, why),
            Item::Lost(span) => return self.lost.add(span),
        };
        let is_of_inode = key.kind().group() == RowKind::Inode.group();
        if !is_of_inode {
            self.end_inode();
        } else if key.owner() != self.current.ino {
            self.end_inode();
            self.current.ino = key.owner();
            self.current.is_unknown =
                key.kind() != RowKind::Inode && self.lost.cover_inode(key.owner());
        }
        match row {
            Row::Totals(row) => self.totals = Some(row),
            Row::Zone(row) => self.put_zone(key.owner(), row),
            // The base of the state has checked these.
            Row::Orphan | Row::Discard(_) => {}
            Row::Learned(row) => {
                if key.owner() >= u64::from(ROWS) || !learned_of(row).is_sane() {
                    self.others.add(rule::LEARNED, format!("row {}", key.owner()));
                }
            }
            Row::Inode(row, target) => self.begin_inode(key.owner(), &row, target),
            _ if self.current.is_unknown => {}
            Row::Xattr(name, value) => self.put_xattr(name, value),
            Row::Map(blocks, place) => self.put_map(key.at(), blocks, &place),
            Row::Name(cookies) => {
                let cookies: Vec<u64> = cookies.iter().map(|cookie| cookie.get()).collect();
                self.put_name(key.at(), &cookies);
            }
            Row::Entry(row, name) => self.put_entry(key.at(), &row, name),
            Row::Extent(row, crcs) => self.put_extent(key.owner(), &row, crcs.len()),
            Row::Backrefs(records) => self.put_backrefs(key, &records, bytes),
            Row::Remap(row, tail) => self.put_remap(key, &row, tail),
        }
    }

    fn put_zone(&mut self, zone: u64, row: ZoneRow) {
        let known = usize::try_from(zone).ok().filter(|&zone| zone < self.slots.len());
        match known.filter(|&zone| is_sane(&row, &self.slots[zone])) {
            Some(zone) => self.zone_rows[zone] = Some(row),
            None => {
                let what = format!("zone {zone} states {} live blocks up to {}", row.live, row.end);
                self.problems.add(rule::ZONE_ROWS, what);
            }
        }
    }

    fn begin_inode(&mut self, raw: u64, row: &InodeRow, target: &[u8]) {
        let next = self.totals.map_or(u64::MAX, |totals| totals.next_ino.get());
        let ino = Ino::new(raw);
        if raw == 0 || raw >= next {
            let what = format!("there is an inode {raw}; the next inode is {next}");
            return self.problems.add_of(rule::INODES, ino, what);
        }
        let inode = match inode_of(row, target) {
            Ok(inode) => inode,
            Err((broken, why)) => {
                return self.problems.add_of(broken, ino, format!("inode {raw} has {why}"));
            }
        };
        let (kind, nlink, parent) = (inode.kind, inode.nlink, row.parent.get());
        if row.context > CONTEXTS {
            let what = format!("inode {raw} has context {}", row.context);
            self.others.add_of(rule::LEARNED, ino, what);
        }
        let (end, cut) = (blocks_of(row), row.truncate_from().filter(|_| nlink > 0));
        if let Some(cut) = cut.filter(|cut| *cut < end) {
            let what =
                format!("a truncation frees blocks of inode {raw} from {cut} on, and it has {end}");
            self.others.add_of(rule::SIZES, ino, what);
        }
        if ino == Ino::ROOT {
            self.has_root = kind == FileKind::Directory && parent == raw;
        }
        let bytes =
            if kind == FileKind::Symlink { INODE_BYTES + target.len() } else { INODE_BYTES };
        self.found.row_bytes += bytes as u64;
        self.found.inodes += 1;
        self.found.unlinked += u64::from(nlink == 0);
        self.current.linked = Some(Linked { ino, kind, nlink, parent, subdirectories: 0 });
        self.current.row = Some(*row);
        self.current.is_large = kind == FileKind::Directory && row.indexed != 0;
        let is_orphan = nlink == 0 || row.truncate_from().is_some();
        if self.lost.touch(KeySpan::BASE) {
            return;
        }
        match (self.is_listed(raw), is_orphan) {
            (true, false) => self.add_idle_orphan(raw),
            (false, true) => {
                let what = format!("inode {raw} is not in the list");
                self.sums.add_of(rule::ORPHANS, ino, what);
            }
            (true, true) | (false, false) => {}
        }
    }

    /// Whether the list of orphans has an inode. Reports orphans before it, which have no inode.
    fn is_listed(&mut self, ino: u64) -> bool {
        while let Some(listed) = self.orphans.next_below(ino.saturating_add(1)) {
            if listed == ino {
                return true;
            }
            self.add_idle_orphan(listed);
        }
        false
    }

    fn add_idle_orphan(&mut self, ino: u64) {
        if self.lost.cover_inode(ino) {
            return;
        }
        let what = format!("inode {ino} is in the list, and nothing is to be done with it");
        self.sums.add_of(rule::ORPHANS, Ino::new(ino), what);
    }

    /// Compares the counts of an inode after its last row.
    fn end_inode(&mut self) {
        let Current { ino, linked, row, count, is_large, .. } = std::mem::take(&mut self.current);
        let (Some(linked), Some(row)) = (linked, row) else { return };
        let may_lack = self.lost.touch_inode(ino);
        if row.count.get() < count || row.count.get() != count && !may_lack {
            let what = format!("inode {ino} states {} and has {count}", row.count);
            self.sums.add_of(rule::COUNTS, linked.ino, what);
        }
        if linked.kind == FileKind::Directory {
            self.found.directories += u64::from(linked.nlink > 0);
            let own = if linked.nlink > 0 { 2 } else { 0 };
            let has = linked.subdirectories.saturating_add(own);
            if linked.nlink < has || linked.nlink != has && !may_lack {
                let what = format!("inode {ino} says {} links and has {has}", linked.nlink);
                self.problems.add_of(rule::LINKS, linked.ino, what);
            }
        }
        self.links.inode(&linked);
        if is_large {
            self.large.push(LargeDirectory { ino: linked.ino, is_indexed: row.indexed != 0 });
        }
    }

    fn put_xattr(&mut self, name: &[u8], value: &[u8]) {
        let ino = self.current.ino;
        let text = || format!("{} of inode {ino}", String::from_utf8_lossy(name));
        if self.current.linked.is_none() {
            let what = format!("{}, which does not exist", text());
            self.problems.add_of(rule::XATTRS, Ino::new(ino), what);
        } else if !self.current.xattrs.insert(name.into()) {
            let what = format!("{} is there twice", text());
            self.problems.add_of(rule::XATTRS, Ino::new(ino), what);
        } else {
            self.found.row_bytes += xattr_bytes(name, value);
        }
    }

    fn put_name(&mut self, hash: u64, cookies: &[u64]) {
        let ino = self.current.ino;
        let is_indexed =
            self.current.of_kind(FileKind::Directory).is_some_and(|row| row.indexed != 0);
        if !is_indexed || cookies.is_empty() {
            let what =
                format!("hash {hash:016x} of inode {ino} leads to {cookies:?}, and nothing has it");
            self.problems.add_of(rule::NAMES, Ino::new(ino), what);
        } else if !cookies.is_sorted_by(|one, next| one < next) {
            let what =
                format!("hash {hash:016x} of inode {ino} leads to {cookies:?}, not in order");
            self.problems.add_of(rule::NAMES, Ino::new(ino), what);
        }
        self.found.row_bytes += names_bytes(cookies.len());
    }

    fn put_entry(&mut self, cookie: u64, row: &EntryRow, name: &[u8]) {
        let parent = self.current.ino;
        let text = || format!("entry {:?} of inode {parent}", String::from_utf8_lossy(name));
        let entry = directory_entry(cookie, row);
        let (broken, what) = match (self.current.of_kind(FileKind::Directory), entry) {
            (None, _) => (rule::ENTRIES, format!("{} is in no directory", text())),
            (Some(directory), Some(entry)) if is_entry(cookie, name, row, directory.next.get()) => {
                if self.is_new_name(name) {
                    self.found.row_bytes += entry_bytes(name);
                    self.current.count += 1;
                    let child = entry.ino.get();
                    self.links.entry(parent, child, entry.kind);
                    if entry.kind == FileKind::Directory {
                        self.reach.edge(parent, child);
                        let linked = self.current.linked.as_mut();
                        linked.expect("it is a directory").subdirectories += 1;
                    }
                    return;
                }
                (rule::ENTRIES, format!("{} is there twice", text()))
            }
            (Some(directory), Some(_)) if cookie >= directory.next.get() => {
                (rule::COOKIES, format!("{} has cookie {cookie}", text()))
            }
            (Some(_), _) => {
                let (ino, kind) = (row.ino, row.kind);
                (rule::ENTRIES, format!("{} leads to inode {ino}, of kind {kind}", text()))
            }
        };
        self.problems.add_of(broken, Ino::new(parent), what);
    }

    /// Whether a directory has no entry of this name yet. A later pass compares those of large
    /// ones.
    fn is_new_name(&mut self, name: &[u8]) -> bool {
        let current = &mut self.current;
        if !current.is_large && current.names.len() == NAMES_MAX {
            current.is_large = true;
            current.names = BTreeSet::new();
        }
        current.is_large || current.names.insert(name.into())
    }

    /// Counts a run of live blocks; the error is the rule that it breaks.
    fn enter(
        &mut self,
        at: Address,
        blocks: usize,
        text: &dyn Fn() -> String,
    ) -> std::result::Result<(), Invariant> {
        let Address { zone, block } = at;
        let blocks = u32::try_from(blocks).map_err(|_| rule::EXTENTS)?;
        let slot = self.slots.get(zone as usize).ok_or(rule::EXTENTS)?;
        let end = block.checked_add(blocks).filter(|end| *end <= slot.capacity);
        let end = end.filter(|_| blocks > 0).ok_or(rule::EXTENTS)?;
        if matches!(slot.role, Role::Super | Role::Meta) {
            return Err(rule::META_ZONES);
        }
        let count = &mut self.zones[zone as usize];
        count.live += u64::from(blocks);
        count.end = count.end.max(end);
        count.runs += 1;
        self.found.live += u64::from(blocks);
        self.found.runs += 1;
        let report = &self.report[zone as usize];
        let written = report.written().filter(|_| report.cond != ZoneCond::Offline);
        if let Some(written) = written
            && u64::from(end) > written.get() / self.drive.layout.per_block
        {
            let written = written.get() / self.drive.layout.per_block;
            let what =
                format!("{} ends at block {end} of zone {zone}, written up to {written}", text());
            self.others.add(rule::WRITTEN, what);
        }
        Ok(())
    }

    fn put_map(&mut self, first: u64, blocks: u32, place: &Place<'_>) {
        let ino = self.current.ino;
        let limit = rules::FILE_SIZE_MAX.div_ceil(BLOCK_BYTES as u64);
        let end = first.checked_add(u64::from(blocks)).filter(|end| *end <= limit);
        let is_file = self.current.of_kind(FileKind::Regular).is_some();
        let checked = match end {
            _ if !is_file || blocks == 0 => Err(rule::MAPS),
            None => Err(rule::SIZES),
            Some(_) if self.current.map_end > first => Err(rule::MAP_ORDER),
            Some(end) => self.enter_place(ino, first, blocks, place).map(|bytes| (end, bytes)),
        };
        match checked {
            Ok((end, bytes)) => {
                self.current.map_end = end;
                self.current.count += u64::from(blocks);
                self.add_place_bytes(bytes);
                self.check_end(first, end, place);
            }
            Err(broken) => {
                let what = format!("inode {ino} block {first}: {}", place_text(blocks, place));
                self.problems.add_of(broken, Ino::new(ino), what);
            }
        }
    }

    /// Checks that a map row has no data beyond the end of its file, unless that waits to be freed.
    fn check_end(&mut self, first: u64, limit: u64, place: &Place<'_>) {
        let Some(row) = self.current.row.as_ref().filter(|row| row.nlink.get() > 0) else { return };
        let (end, cut) = (blocks_of(row), row.truncate_from().unwrap_or(u64::MAX));
        if *place != Place::Preallocated && first.max(end) < limit.min(cut) {
            let ino = self.current.ino;
            let what = format!("inode {ino} has {end} blocks and data up to block {limit}");
            self.others.add_of(rule::SIZES, Ino::new(ino), what);
        }
    }

    /// Counts the blocks of a map row, and returns the bytes of the row.
    fn enter_place(
        &mut self,
        ino: u64,
        first: u64,
        blocks: u32,
        place: &Place<'_>,
    ) -> std::result::Result<u64, Invariant> {
        match place {
            Place::Preallocated => {
                self.found.preallocated += u64::from(blocks);
                Ok(map_bytes(0))
            }
            Place::Zone(place, crcs) => {
                let text = || format!("inode {ino} block {first}");
                let at = place.address();
                let row = self.zone_rows.get(at.zone as usize).and_then(Option::as_ref);
                let generation = place.generation().generation();
                if row.map_or(self.has_lost_remaps, |row| row.generation != generation) {
                    return Err(rule::MOVED);
                }
                self.enter(at, crcs.len(), &text)?;
                Ok(map_bytes(blocks))
            }
            Place::Shared(_, space) => {
                self.found.preallocated += space.preallocated(blocks);
                self.found.sharers += 1;
                Ok(shared_map_bytes())
            }
        }
    }

    fn put_extent(&mut self, id: u64, row: &ExtentRow, blocks: usize) {
        let (zone, block) = (row.zone.get(), row.block.get());
        let next = self.totals.map_or(u64::MAX, |totals| totals.next_extent.get());
        let checked = if id != 0 && id < next { Ok(()) } else { Err(rule::EXTENTS) };
        let text = || format!("extent {id}");
        match checked.and_then(|()| self.enter(Address { zone, block }, blocks, &text)) {
            Ok(()) => {
                self.found.shared += 1;
                let blocks = u32::try_from(blocks).expect("inside a zone");
                self.add_place_bytes(extent_bytes(blocks));
            }
            Err(broken) => {
                let what = format!("extent {id} at zone {zone} block {block}, {blocks} blocks");
                self.problems.add(broken, what);
            }
        }
    }

    fn add_place_bytes(&mut self, bytes: u64) {
        self.found.row_bytes += bytes;
        self.found.place_bytes += bytes;
    }

    /// Compares the totals after the last row.
    pub(super) fn end(&mut self) {
        self.end_inode();
        while !self.lost.touch(KeySpan::BASE)
            && let Some(listed) = self.orphans.next_below(u64::MAX)
        {
            self.add_idle_orphan(listed);
        }
        for (zone, count) in self.zones.iter().enumerate() {
            if self.report[zone].cond == ZoneCond::Offline && count.live > 0 {
                let what = format!("zone {zone} is offline and held {} blocks", count.live);
                self.others.add(rule::ZONES, what);
            }
        }
        let may_have_root = self.lost.cover_inode(Ino::ROOT.get());
        if !self.has_root && !may_have_root {
            let what = "inode 1 is no directory, or not its own parent";
            self.problems.add(rule::ROOT, what.into());
        }
        self.has_root |= may_have_root;
        self.compare_zones();
        self.compare_totals();
    }

    pub(super) fn surveyed(self) -> Surveyed {
        let Self { found, zones, zone_rows, lost, sums, others, .. } = self;
        let (has_root, directories) = (self.has_root, found.directories);
        let (links, reach, large) = (self.links, self.reach, self.large);
        let tree = SurveyedTree { has_root, directories, links, reach, large };
        Surveyed { found, zones, zone_rows, tree, lost, rows: self.problems, sums, others }
    }
}

/// Blocks up to the end of a file.
fn blocks_of(row: &InodeRow) -> u64 {
    row.size.get().div_ceil(BLOCK_BYTES as u64)
}
