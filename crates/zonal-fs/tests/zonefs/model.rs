//! zonefs against a model of a page: random operations have the same answers and the same content.
//!
//! With limits on open and active zones, opened implicitly and explicitly, over remounts. A failure
//! prints the shortest sequence that still fails.

use std::collections::BTreeSet;
use std::sync::Arc;

use proptest::prelude::*;
use zonal::ZonedDevice;
use zonal_fs::vfs::{FileSystem, Ino, OpenFor, ReadFlags, WriteFlags};
use zonal_fs::zonefs::{ErrorPolicy, Group, MkfsOptions, MountOptions, OpenPolicy, ZoneFs};

use super::{APPEND, BLOCK, BLOCK_LEN, DIRECT, drive, format, mount, truncate};

const SHAPE: &str = "zone=60K,capacity=40K,zones=8,open=2,active=3";
const FILES: usize = 7;
const CAPACITY: usize = 10 * BLOCK_LEN;
const MAX_OPEN: usize = 2;
const MAX_ACTIVE: usize = 3;

#[derive(Clone, Debug)]
enum Op {
    Open(usize),
    Close(usize),
    Write { file: usize, at: At, len: usize, flags: WriteFlags },
    Read { file: usize, offset: u64, len: usize },
    ReadDirect { file: usize, offset: u64, len: usize },
    Truncate { file: usize, size: u64 },
    Remount,
}

/// Where a write goes, from the end of the file.
#[derive(Clone, Copy, Debug)]
enum At {
    End,
    Start,
    Beyond,
}

fn ops() -> impl Strategy<Value = Op> {
    let file = || 0..FILES;
    let len = || prop_oneof![6 => (1..6_usize).prop_map(|n| n * BLOCK_LEN), 1 => 1..9000_usize];
    let offset = || prop_oneof![(0..11_u64).prop_map(|n| n * BLOCK), 0..50_000_u64];
    let at = prop_oneof![8 => Just(At::End), 1 => Just(At::Start), 1 => Just(At::Beyond)];
    let flags = prop_oneof![5 => Just(DIRECT), 4 => Just(APPEND), 1 => Just(WriteFlags::empty())];
    let size = prop_oneof![
        3 => Just(0),
        3 => Just(CAPACITY as u64),
        1 => Just(CAPACITY as u64 + 1),
        1 => (0..10_u64).prop_map(|n| n * BLOCK),
    ];
    prop_oneof![
        4 => file().prop_map(Op::Open),
        3 => file().prop_map(Op::Close),
        12 => (file(), at, len(), flags)
            .prop_map(|(file, at, len, flags)| Op::Write { file, at, len, flags }),
        3 => (file(), offset(), len()).prop_map(|(file, offset, len)| Op::Read { file, offset, len }),
        3 => (file(), offset(), len())
            .prop_map(|(file, offset, len)| Op::ReadDirect { file, offset, len }),
        4 => (file(), size).prop_map(|(file, size)| Op::Truncate { file, size }),
        1 => Just(Op::Remount),
    ]
}

#[derive(Clone, Debug, Default)]
struct ModelFile {
    content: Vec<u8>,
    opens: u32,
    held: bool,
}

impl ModelFile {
    fn is_active(&self) -> bool {
        self.held || (1..CAPACITY).contains(&self.content.len())
    }
}

/// Errnos that an operation may have, or how much it did.
type Answer = Result<u64, BTreeSet<i32>>;

struct Model {
    files: Vec<ModelFile>,
    policy: OpenPolicy,
    /// Byte that the next write writes.
    next: u8,
}

fn refused<T>(errnos: impl IntoIterator<Item = i32>) -> Result<T, BTreeSet<i32>> {
    Err(errnos.into_iter().collect())
}

impl Model {
    fn active(&self) -> usize {
        self.files.iter().filter(|file| file.is_active()).count()
    }

    fn held(&self) -> usize {
        self.files.iter().filter(|file| file.held).count()
    }

    fn writing(&self) -> usize {
        self.files.iter().filter(|file| file.opens > 0).count()
    }

    /// The errors of the limits if a program opens the zone of a file.
    fn limits(&self, file: usize) -> BTreeSet<i32> {
        let file = &self.files[file];
        let mut errnos = BTreeSet::new();
        if !file.is_active() && self.active() == MAX_ACTIVE {
            errnos.insert(75);
        }
        if !file.held && self.held() == MAX_OPEN {
            errnos.insert(109);
        }
        errnos
    }

    fn open(&mut self, index: usize) -> Answer {
        if self.files[index].opens == 0 && self.policy == OpenPolicy::Explicit {
            if self.writing() == MAX_OPEN {
                return refused([16]);
            }
            if self.files[index].content.len() < CAPACITY {
                let errnos = self.limits(index);
                if !errnos.is_empty() {
                    return Err(errnos);
                }
                self.files[index].held = true;
            }
        }
        self.files[index].opens += 1;
        Ok(0)
    }

    fn close(&mut self, index: usize) {
        let file = &mut self.files[index];
        file.opens -= 1;
        if file.opens == 0 {
            file.held = false;
        }
    }

    fn write(&mut self, index: usize, offset: usize, len: usize, flags: WriteFlags) -> Answer {
        let size = self.files[index].content.len();
        let append = flags.contains(WriteFlags::APPEND);
        if !append && offset >= CAPACITY {
            return refused([27]);
        }
        if !flags.contains(WriteFlags::DIRECT) {
            return refused([5]);
        }
        if append && size == CAPACITY {
            return refused([27]);
        }
        let offset = if append { size } else { offset };
        let len = len.min(CAPACITY - offset);
        if !len.is_multiple_of(BLOCK_LEN) || offset != size {
            return refused([22]);
        }
        let errnos = self.limits(index);
        if !errnos.is_empty() {
            return Err(errnos);
        }
        let file = &mut self.files[index];
        file.content.resize(size + len, self.next);
        if file.content.len() == CAPACITY {
            file.held = false;
        }
        Ok(len as u64)
    }

    fn truncate(&mut self, index: usize, size: u64) -> Answer {
        let file = &mut self.files[index];
        if size > CAPACITY as u64 {
            return refused([27]);
        }
        if size != 0 && size != CAPACITY as u64 {
            return refused([1]);
        }
        if size != file.content.len() as u64 {
            file.content.resize(usize::try_from(size).expect("small"), 0);
            file.held &= size == 0;
        }
        Ok(size)
    }

    fn read(&self, index: usize, offset: u64, len: usize) -> &[u8] {
        let content = &self.files[index].content;
        let start = usize::try_from(offset).expect("small").min(content.len());
        &content[start..(start + len).min(content.len())]
    }

    /// `None` where parts of blocks are asked for.
    fn read_direct(&self, index: usize, offset: u64, len: usize) -> Option<&[u8]> {
        let read = self.read(index, offset, len);
        let whole = offset.is_multiple_of(BLOCK) && read.len().is_multiple_of(BLOCK_LEN);
        (read.is_empty() || whole).then_some(read)
    }
}

struct Pair {
    device: Arc<dyn ZonedDevice>,
    fs: ZoneFs,
    options: MountOptions,
    model: Model,
}

impl Pair {
    fn new(open: OpenPolicy, rotational: Option<bool>) -> Self {
        let device = drive(SHAPE);
        format(&*device, &MkfsOptions::default());
        // After an error that the model foresees, all goes on.
        let errors = ErrorPolicy::Repair;
        let options = MountOptions { errors, open, rotational, ..MountOptions::default() };
        let fs = mount(&device, options);
        let files = vec![ModelFile::default(); FILES];
        Self { device, fs, options, model: Model { files, policy: open, next: 0 } }
    }

    fn ino(&self, file: usize) -> Ino {
        let number = u32::try_from(file).expect("small");
        self.fs.file(Group::Sequential, number).expect("it is there")
    }

    fn apply(&mut self, op: &Op) -> Result<(), TestCaseError> {
        match *op {
            Op::Open(file) => {
                let answer = self.fs.open(self.ino(file), OpenFor::Writing);
                same(&self.model.open(file), answer.map(|()| 0).map_err(|e| e.errno()))?;
            }
            Op::Close(file) if self.model.files[file].opens > 0 => {
                self.fs.close(self.ino(file), OpenFor::Writing);
                self.model.close(file);
            }
            Op::Close(_) => {}
            Op::Write { file, at, len, flags } => {
                self.model.next = self.model.next.wrapping_add(1);
                let size = self.model.files[file].content.len();
                let offset = match at {
                    At::End => size,
                    At::Start => 0,
                    At::Beyond => size + BLOCK_LEN,
                };
                let data = vec![self.model.next; len];
                let written = self.fs.write(self.ino(file), offset as u64, &data, flags);
                let answer = written.map(|written| written.len).map_err(|e| e.errno());
                same(&self.model.write(file, offset, len, flags), answer)?;
            }
            Op::Read { file, offset, len } => {
                let mut buffer = vec![0; len];
                let read = self.fs.read(self.ino(file), offset, &mut buffer);
                prop_assert_eq!(
                    &buffer[..read.expect("any range")],
                    self.model.read(file, offset, len)
                );
            }
            Op::ReadDirect { file, offset, len } => {
                let mut buffer = vec![0; len];
                let read =
                    self.fs.read_with(self.ino(file), offset, &mut buffer, ReadFlags::DIRECT);
                let read = read.map(|len| &buffer[..len]).map_err(|e| e.errno());
                prop_assert_eq!(read, self.model.read_direct(file, offset, len).ok_or(22));
            }
            Op::Truncate { file, size } => {
                let answer = truncate(&self.fs, self.ino(file), size);
                same(&self.model.truncate(file, size), answer)?;
            }
            Op::Remount => self.remount(),
        }
        self.compare()
    }

    fn remount(&mut self) {
        for file in 0..FILES {
            while self.model.files[file].opens > 0 {
                self.fs.close(self.ino(file), OpenFor::Writing);
                self.model.close(file);
            }
        }
        self.fs.shutdown().expect("nothing fails");
        self.fs = mount(&self.device, self.options);
    }

    /// Compares sizes, counts and the zones themselves.
    fn compare(&self) -> Result<(), TestCaseError> {
        for (number, file) in self.model.files.iter().enumerate() {
            let attr = self.fs.getattr(self.ino(number)).expect("it is there");
            prop_assert_eq!(attr.size, file.content.len() as u64, "size of {}", number);
        }
        let stats = self.fs.stats();
        prop_assert_eq!(stats.nr_wro_seq_files as usize, self.model.writing());
        prop_assert_eq!(stats.nr_active_seq_files as usize, self.model.active());
        let zones = self.device.report_all().expect("reported");
        let active = zones.iter().skip(1).filter(|zone| zone.cond.is_active()).count();
        prop_assert_eq!(active, self.model.active(), "zones that the device has active");
        Ok(())
    }
}

fn same(expected: &Answer, answer: Result<u64, i32>) -> Result<(), TestCaseError> {
    match (expected, answer) {
        (Ok(expected), Ok(answer)) => prop_assert_eq!(*expected, answer),
        (Err(errnos), Err(errno)) => prop_assert!(errnos.contains(&errno), "{errno}: {errnos:?}"),
        (expected, answer) => prop_assert!(false, "{expected:?} expected, {answer:?} answered"),
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn zonefs_matches_model(
        explicit in any::<bool>(),
        rotational in proptest::option::of(Just(true)),
        ops in proptest::collection::vec(ops(), 1..60),
    ) {
        let policy = if explicit { OpenPolicy::Explicit } else { OpenPolicy::Implicit };
        let mut pair = Pair::new(policy, rotational);
        for op in &ops {
            pair.apply(op)?;
        }
    }
}
