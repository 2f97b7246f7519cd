//! Rows that lie, one at a time: each must be found, with memory for all and with memory for next
//! to nothing.

use std::collections::BTreeSet;
use std::sync::Arc;

use zerocopy::byteorder::little_endian::{U16, U32, U64};
use zonal::{ManualClock, ZonedDevice};

use super::*;
use crate::furrow::Furrow;
use crate::furrow::MountOptions;
use crate::furrow::format::row::{
    CopySpace, EntryRow, InodeRow, LearnedRow, Place, Row, SharedPlace, ZonePlace, decode, encode,
};
use crate::furrow::format::{ZoneGeneration, remap};
use crate::furrow::sample::formatted;
use crate::furrow::table::key::{Key, KeySpan, RowKind};
use crate::furrow::table::memtable::Memtable;
use crate::vfs::{Allocate, Caller, FileKind, FileSystem, Ino, NewInode, WriteFlags};

const BLOCK: u64 = 4096;

/// A drive with something of everything, and the numbers of `home`, `one`, `copy` and `big`.
fn sample() -> (Arc<dyn ZonedDevice>, [Ino; 4]) {
    let (drive, clock): (_, Arc<ManualClock>) = formatted(64, 64);
    let fs = Furrow::mount(drive.clone(), clock, MountOptions::default()).unwrap();
    let new = NewInode { kind: FileKind::Regular, perm: 0o600, rdev: 0, target: b"" };
    let create = |parent, name: &[u8], kind| {
        fs.create(&Caller::ROOT, parent, name, &NewInode { kind, ..new }).unwrap().ino
    };
    let home = create(Ino::ROOT, b"home", FileKind::Directory);
    let [one, copy] = [&b"one"[..], b"copy"].map(|name| create(home, name, FileKind::Regular));
    // Large for zones as small as these.
    let big = create(Ino::ROOT, b"big", FileKind::Directory);
    for number in 0..40 {
        create(big, format!("{number}").as_bytes(), FileKind::Regular);
    }
    fs.write(one, 0, &vec![7; 150 * 4096], WriteFlags::empty()).unwrap();
    fs.copy_range((one, 0), (copy, 0), 20 * BLOCK, WriteFlags::empty()).unwrap();
    for hole in (40..90).step_by(2) {
        fs.fallocate(one, Allocate::Punch, hole * BLOCK, BLOCK).unwrap();
    }
    fs.fallocate(copy, Allocate::Extend, 1 << 20, 1 << 20).unwrap();
    fs.setxattr(&Caller::ROOT, one, b"user.a", b"1", crate::vfs::XattrMode::Any).unwrap();
    fs.shutdown().unwrap();
    (drive, [home, one, copy, big])
}

/// Which rules are broken after some rows were put in the place of others.
fn broken(
    drive: &Arc<dyn ZonedDevice>,
    memory: u64,
    lie: &dyn Fn(&Rows<'_>) -> Lies,
) -> BTreeSet<&'static str> {
    let drive = Drive::of(&drive.clone().into()).unwrap();
    let mut problems = Problems::default();
    let opened = recovery::open(&drive, Planted::default(), &mut problems).unwrap();
    let mut rows = Memtable::default();
    for (key, value) in lie(&Rows { drive: &drive, opened: &opened }) {
        rows.insert(key, value);
    }
    opened.table.view.add_unwritten(rows);
    let options = CheckOptions { data: DataCheck::Read, memory };
    let report = check_rows(&drive, &opened, &options, problems, &mut |_| ()).unwrap();
    report.problems.iter().map(|problem| problem.invariant.id).collect()
}

type Lies = Vec<(Key, Option<Box<[u8]>>)>;

/// A name, the rules that the rows break, and the rows.
type Case<'a> = (&'a str, &'a [&'a str], &'a dyn Fn(&Rows<'_>) -> Lies);

struct Rows<'a> {
    drive: &'a Drive,
    opened: &'a Opened,
}

impl Rows<'_> {
    fn all(&self, kind: RowKind, owner: u64) -> Vec<(Key, Box<[u8]>)> {
        let range = KeySpan::new(Key::new(kind, owner, 0), Key::new(kind, owner, u64::MAX));
        self.opened.table.view.rows(self.drive, range, 10_000).unwrap().rows
    }

    fn first(&self, kind: RowKind, owner: u64) -> (Key, Box<[u8]>) {
        self.all(kind, owner).swap_remove(0)
    }

    fn inode(&self, ino: Ino, change: impl Fn(&mut InodeRow)) -> (Key, Option<Box<[u8]>>) {
        let (key, value) = self.first(RowKind::Inode, ino.get());
        let Ok(Row::Inode(mut row, target)) = decode(key, &value) else { panic!("an inode") };
        change(&mut row);
        (key, Some(encode(&Row::Inode(row, target))))
    }

    fn entry(
        &self,
        parent: Ino,
        name: &[u8],
        change: impl Fn(&mut EntryRow),
    ) -> (Key, Option<Box<[u8]>>) {
        let is_it = |(key, value): &(Key, Box<[u8]>)| matches!(decode(*key, value), Ok(Row::Entry(_, found)) if found == name);
        let (key, value) = self.all(RowKind::Entry, parent.get()).into_iter().find(is_it).unwrap();
        let Ok(Row::Entry(mut row, _)) = decode(key, &value) else { panic!("an entry") };
        change(&mut row);
        (key, Some(encode(&Row::Entry(row, name))))
    }
}

#[test]
fn check_finds_sample_drive_clean() {
    let (drive, _) = sample();
    for memory in [CheckOptions::MEMORY, 0] {
        let found = broken(&drive, memory, &|_| Vec::new());
        assert_eq!(found, BTreeSet::new(), "with {memory} bytes");
    }
}

#[test]
fn check_finds_bad_links() {
    let (drive, [home, one, _, big]) = sample();
    let set = |number: u32| U32::new(number);
    let name = |parent, name| move |rows: &Rows<'_>| rows.entry(parent, name, |_| ());
    let cases: [Case<'_>; 12] = [
        ("a file with a link too many", &["C15"], &|rows| {
            vec![rows.inode(one, |row| row.nlink = set(2))]
        }),
        ("a file with none", &["C15"], &|rows| vec![rows.inode(one, |row| row.nlink = set(0))]),
        ("a directory with a link too many", &["C15"], &|rows| {
            vec![rows.inode(home, |row| row.nlink = set(3))]
        }),
        ("an entry that is gone", &["C15", "C16"], &|rows| {
            vec![(name(home, b"one")(rows).0, None)]
        }),
        ("an inode that is gone", &["C12", "C17", "C23"], &|rows| {
            vec![(rows.first(RowKind::Inode, one.get()).0, None)]
        }),
        ("an entry of another kind", &["C12", "C15"], &|rows| {
            vec![rows.entry(home, b"one", |row| row.kind = 3)]
        }),
        ("an entry to another inode", &["C15", "C16"], &|rows| {
            vec![rows.entry(home, b"one", |row| row.ino = U64::new(one.get() + 1))]
        }),
        ("a directory that names another parent", &["C14"], &|rows| {
            vec![rows.inode(home, |row| row.parent = U64::new(big.get()))]
        }),
        ("a directory in itself", &["C16"], &|rows| {
            let entry = rows.entry(Ino::ROOT, b"home", |_| ());
            let own = Key::new(RowKind::Entry, home.get(), 5);
            let next = rows.inode(home, |row| {
                row.parent = U64::new(home.get());
                row.next = U64::new(10);
                row.nlink = set(3);
            });
            let root = rows.inode(Ino::ROOT, |row| row.nlink = set(3));
            vec![(entry.0, None), (own, entry.1), next, root]
        }),
        ("a root that is no directory", &["C11", "C12"], &|rows| {
            vec![rows.inode(Ino::ROOT, |row| row.kind = 1)]
        }),
        ("a cookie that was not given yet", &["C13", "C15"], &|rows| {
            let (key, value) = name(home, b"one")(rows);
            vec![(key, None), (Key::new(RowKind::Entry, home.get(), 1 << 40), value)]
        }),
        ("a name that is there twice", &["C12"], &|rows| {
            let (key, _) = name(home, b"one")(rows);
            let (_, copy) = name(home, b"copy")(rows);
            vec![(key, copy)]
        }),
    ];
    try_all(&drive, &cases);
}

/// Each case must break these rules, with much memory and with little.
fn try_all(drive: &Arc<dyn ZonedDevice>, cases: &[Case<'_>]) {
    for (name, rules, lie) in cases {
        for memory in [CheckOptions::MEMORY, 0] {
            let found = broken(drive, memory, lie);
            let missing: Vec<_> = rules.iter().filter(|rule| !found.contains(*rule)).collect();
            assert!(missing.is_empty(), "{name}: {missing:?} of {rules:?} not in {found:?}");
        }
    }
}

#[test]
fn check_finds_bad_names() {
    let (drive, [home, _, _, big]) = sample();
    let cases: [Case<'_>; 5] = [
        ("a row of names that is gone", &["C34"], &|rows| {
            vec![(rows.first(RowKind::Name, big.get()).0, None)]
        }),
        ("one of another hash", &["C34"], &|rows| {
            let (key, value) = rows.first(RowKind::Name, big.get());
            vec![(Key::new(RowKind::Name, big.get(), key.at() + 1), Some(value))]
        }),
        ("one with another cookie", &["C34"], &|rows| {
            let (key, _) = rows.first(RowKind::Name, big.get());
            vec![(key, Some(encode(&Row::Name(&[U64::new(3), U64::new(4)]))))]
        }),
        ("one of a small directory", &["C34"], &|rows| {
            let (_, value) = rows.first(RowKind::Name, big.get());
            vec![(Key::new(RowKind::Name, home.get(), 9), Some(value))]
        }),
        ("a name of a large directory that is there twice", &["C12", "C34"], &|rows| {
            let (key, _) = rows.entry(big, b"7", |_| ());
            vec![(key, rows.entry(big, b"8", |_| ()).1)]
        }),
    ];
    try_all(&drive, &cases);
}

#[test]
fn check_finds_bad_blocks() {
    let (drive, [_, one, copy, _]) = sample();
    let alone = |rows: &Rows<'_>| piece_of(rows, one);
    let moved = |rows: &Rows<'_>, zone: u32, block: u32| {
        let (key, value) = alone(rows);
        let Ok(Row::Map(blocks, Place::Zone(old, crcs))) = decode(key, &value) else { panic!() };
        let zone = ZoneGeneration::new(zone, old.generation().generation());
        let place = ZonePlace::new(zone, block);
        (key, Some(encode(&Row::Map(blocks, Place::Zone(place, crcs)))))
    };
    let shared = |rows: &Rows<'_>, extent: u64, skip: u32| {
        let (key, value) = rows.first(RowKind::Map, copy.get());
        let Ok(Row::Map(blocks, Place::Shared(_, space))) = decode(key, &value) else { panic!() };
        let place = SharedPlace { extent: U64::new(extent), skip: U32::new(skip) };
        vec![(key, Some(encode(&Row::Map(blocks, Place::Shared(place, space)))))]
    };
    let extent = |rows: &Rows<'_>| rows.first(RowKind::Extent, 1);
    let cases: [Case<'_>; 13] = [
        ("space for a copy that no sum has", &["C29"], &|rows| {
            let (key, value) = rows.first(RowKind::Map, copy.get());
            let Ok(Row::Map(blocks, Place::Shared(place, _))) = decode(key, &value) else {
                panic!()
            };
            let place = Place::Shared(place, CopySpace::Preallocated);
            vec![(key, Some(encode(&Row::Map(blocks, place))))]
        }),
        ("a run in no zone", &["C20"], &|rows| vec![moved(rows, 99, 0)]),
        ("a run behind its zone", &["C20"], &|rows| vec![moved(rows, 20, 63)]),
        ("a run that was not written", &["C21"], &|rows| vec![moved(rows, 60, 0)]),
        ("a run among superblocks", &["C27"], &|rows| vec![moved(rows, 0, 0)]),
        ("a run on another one", &["C22"], &|rows| {
            let (_, value) = extent(rows);
            let Ok(Row::Extent(row, _)) = decode(Key::new(RowKind::Extent, 1, 0), &value) else {
                panic!()
            };
            vec![moved(rows, row.zone.get(), row.block.get())]
        }),
        ("a piece of an extent that is not there", &["C23", "C25"], &|rows| shared(rows, 77, 0)),
        ("a piece behind its extent", &["C23", "C25"], &|rows| shared(rows, 1, 1 << 20)),
        ("an extent that nobody has", &["C25"], &|rows| {
            let maps = [one, copy].map(|ino| rows.first(RowKind::Map, ino.get()));
            maps.into_iter().map(|(key, _)| (key, None)).collect()
        }),
        ("an extent that is gone", &["C23"], &|rows| vec![(extent(rows).0, None)]),
        ("rows of owners that are gone", &["C32", "C33"], &|rows| {
            let zone = rows
                .all(RowKind::Backrefs, 0)
                .into_iter()
                .chain((0..64).flat_map(|zone| rows.all(RowKind::Backrefs, zone)));
            zone.map(|(key, _)| (key, None)).collect()
        }),
        ("pieces that overlap", &["C24"], &|rows| {
            let (key, value) = alone(rows);
            vec![(Key::new(RowKind::Map, key.owner(), key.at() - 1), Some(value))]
        }),
        ("a map of a directory", &["C23"], &|rows| {
            let (_, value) = alone(rows);
            vec![(Key::new(RowKind::Map, Ino::ROOT.get(), 0), Some(value))]
        }),
    ];
    try_all(&drive, &cases);
}

/// The last piece of a file that it has for itself.
fn piece_of(rows: &Rows<'_>, ino: Ino) -> (Key, Box<[u8]>) {
    let maps = rows.all(RowKind::Map, ino.get());
    let is_alone = |(key, value): &(Key, Box<[u8]>)| {
        matches!(decode(*key, value), Ok(Row::Map(_, Place::Zone(..))))
    };
    maps.into_iter().rfind(is_alone).unwrap()
}

#[test]
fn check_finds_bad_remap_tables() {
    let (drive, [_, one, _, _]) = sample();
    let alone = |rows: &Rows<'_>| piece_of(rows, one);
    // Where the piece lies, in another zone and behind its end.
    let table = |rows: &Rows<'_>, zone: u32, block: u32, number: u64| {
        let (key, value) = alone(rows);
        let Ok(Row::Map(blocks, Place::Zone(place, _))) = decode(key, &value) else { panic!() };
        let run = remap::RemapRun { block: place.block.get(), blocks };
        let (row, tail) = remap::encode(ZoneGeneration::new(zone, 1), block, &[run]);
        let key = Key::new(RowKind::Remap, place.zone.get().into(), number);
        (key, Some(encode(&Row::Remap(row, &tail))))
    };
    let cases: [Case<'_>; 4] = [
        ("blocks moved to no zone", &["C36", "C20"], &|rows| vec![table(rows, 99, 0, 1)]),
        ("blocks moved behind a zone", &["C36", "C20"], &|rows| vec![table(rows, 20, 63, 1)]),
        ("a number of two tables", &["C36"], &|rows| {
            let (key, value) = table(rows, 20, 3, 1);
            let other = Key::new(RowKind::Remap, ZoneGeneration::new(7, 2).raw().into(), key.at());
            vec![(key, value.clone()), (other, value)]
        }),
        ("a piece in another generation", &["C36"], &|rows| {
            let (key, value) = alone(rows);
            let Ok(Row::Map(blocks, Place::Zone(old, crcs))) = decode(key, &value) else {
                panic!()
            };
            let old = old.generation();
            let zone = ZoneGeneration::new(old.zone(), old.generation() + 1);
            let place = ZonePlace::new(zone, 0);
            vec![(key, Some(encode(&Row::Map(blocks, Place::Zone(place, crcs)))))]
        }),
    ];
    try_all(&drive, &cases);
}

#[test]
fn check_finds_bad_totals() {
    let (drive, [_, one, _, _]) = sample();
    let totals = |rows: &Rows<'_>, change: &dyn Fn(&mut crate::furrow::format::row::TotalsRow)| {
        let (key, value) = rows.first(RowKind::Totals, 0);
        let Ok(Row::Totals(mut row)) = decode(key, &value) else { panic!() };
        change(&mut row);
        vec![(key, Some(encode(&Row::Totals(row))))]
    };
    let more = |number: &mut U64| *number = U64::new(number.get() + 1);
    let learned = |number: u64, life: u16| {
        let mut row = LearnedRow { lives: [U16::new(0); 64], sizes: [U16::new(0); 64] };
        row.lives[63] = U16::new(life);
        let key = Key::new(RowKind::Learned, number, 0);
        vec![(key, Some(encode(&Row::Learned(&row))))]
    };
    let zone = |rows: &Rows<'_>| {
        (0..64).find_map(|zone| rows.all(RowKind::Zone, zone).into_iter().next()).unwrap()
    };
    let cases: [Case<'_>; 15] = [
        ("a size before data", &["C26"], &|rows| {
            vec![rows.inode(one, |row| row.size = U64::new(149 * BLOCK))]
        }),
        ("a truncation of blocks before the size", &["C26"], &|rows| {
            vec![rows.inode(one, |row| row.next = U64::new(150))]
        }),
        ("an inode too many", &["C29"], &|rows| totals(rows, &|row| more(&mut row.inodes))),
        ("a block too many", &["C29"], &|rows| totals(rows, &|row| more(&mut row.live))),
        ("preallocated", &["C29"], &|rows| totals(rows, &|row| more(&mut row.preallocated))),
        ("bytes of rows", &["C29"], &|rows| totals(rows, &|row| more(&mut row.row_bytes))),
        ("bytes of places", &["C29"], &|rows| totals(rows, &|row| more(&mut row.place_bytes))),
        ("the next inode", &["C10"], &|rows| totals(rows, &|row| row.next_ino = U64::new(2))),
        ("an inode's count", &["C18"], &|rows| vec![rows.inode(one, |row| more(&mut row.count))]),
        ("a zone without a row", &["C28"], &|rows| vec![(zone(rows).0, None)]),
        ("an orphan that is none", &["C19"], &|_| {
            vec![(Key::new(RowKind::Orphan, one.get(), 0), Some(Box::default()))]
        }),
        ("a context that is none", &["C35"], &|rows| {
            vec![rows.inode(one, |row| row.context = U16::new(4097))]
        }),
        ("what was learned of a context that is none", &["C35"], &|_| learned(64, 0x1000)),
        ("a life that is impossible", &["C35"], &|_| learned(63, 1)),
        ("one that is not listed", &["C19"], &|rows| {
            vec![rows.inode(one, |row| row.next = U64::new(1000))]
        }),
    ];
    try_all(&drive, &cases);
}
