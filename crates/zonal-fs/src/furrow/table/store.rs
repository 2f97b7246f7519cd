//! Parts on a drive.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;

use zonal::DeviceError;

use super::key::Key;
use super::levels::Part;
use super::lost::Remade;
use super::pairs::{MetaZones, Pairs};
use super::part::{PartError, PartSource, RefusedSections, Section};
use super::part_store::PartStore;
use crate::FsError;
use crate::furrow::drive::Drive;
use crate::furrow::format::{Address, BLOCK_BYTES};
use crate::furrow::sync::Mutex;
use crate::vfs::Result;

/// Both copies of a part on a drive. For a look at one copy, both addresses are that copy's.
#[derive(Clone, Copy)]
pub(in crate::furrow) struct DriveCopies<'a> {
    pub(in crate::furrow) drive: &'a Drive,
    pub(in crate::furrow) at: [Address; 2],
}

impl PartSource for DriveCopies<'_> {
    fn read(
        &self,
        copy: usize,
        offset: u64,
        buffer: &mut [u8],
    ) -> std::result::Result<(), DeviceError> {
        let skipped = u32::try_from(offset / BLOCK_BYTES as u64).unwrap_or(u32::MAX);
        let at = self.at[copy];
        self.drive.read(Address { block: at.block.saturating_add(skipped), ..at }, buffer)
    }
}

/// Where a step writes new parts.
pub(in crate::furrow) struct PartTarget<'a> {
    pub(in crate::furrow) pairs: &'a Mutex<Pairs>,
    pub(in crate::furrow) zones: RefCell<&'a mut dyn MetaZones>,
    pub(in crate::furrow) next_part: Cell<u64>,
    /// Bytes written so far, of one copy.
    pub(in crate::furrow) bytes: Cell<u64>,
    /// See [`PartStore::meanwhile`].
    pub(in crate::furrow) meanwhile: &'a dyn Fn(),
}

/// Gives the value of a row with the present places of its blocks, if these have moved.
type PlaceLookup<'a> = dyn Fn(Key, &[u8]) -> Option<Vec<u8>> + 'a;

/// Judges whether sections that the device has refused to read are lost.
pub(in crate::furrow) type Judge<'a> = dyn Fn(RefusedSections) -> Result<()> + 'a;

/// Remaps that a step applies to the rows that it writes.
#[derive(Clone, Copy)]
pub(in crate::furrow) struct AppliedRemaps<'a> {
    /// The value of a row with the present places of its blocks, if any were moved.
    pub(in crate::furrow) lookup: &'a PlaceLookup<'a>,
    /// `lookup` knows all remaps with a number below this one.
    pub(in crate::furrow) below: u64,
}

/// The parts on a drive, for one read or one step.
pub(in crate::furrow) struct DriveStore<'a> {
    pub(in crate::furrow) drive: &'a Drive,
    pub(in crate::furrow) uuid: [u8; 16],
    /// `None` for reads.
    pub(in crate::furrow) writer: Option<PartTarget<'a>>,
    /// Numbers of parts with a bad copy.
    pub(in crate::furrow) bad: RefCell<BTreeSet<u64>>,
    /// Part and section that neither copy gives.
    pub(in crate::furrow) lost: RefCell<BTreeSet<(u64, Section)>>,
    /// Sections of which the device has refused to read a copy.
    pub(in crate::furrow) refused: RefCell<RefusedSections>,
    /// The span of rows that the mount has rebuilt.
    pub(in crate::furrow) remade: Option<Remade>,
    /// Remaps to apply to the rows of new parts.
    pub(in crate::furrow) remaps: Option<AppliedRemaps<'a>>,
    /// Fails if refused sections may still be read later. `None` for reads.
    pub(in crate::furrow) judge: Option<&'a Judge<'a>>,
}

impl<'a> DriveStore<'a> {
    /// A store for reads.
    pub(in crate::furrow) fn new(drive: &'a Drive, uuid: [u8; 16]) -> Self {
        let (bad, lost, refused) = (RefCell::default(), RefCell::default(), RefCell::default());
        let (writer, remade, remaps, judge) = (None, None, None, None);
        Self { drive, uuid, writer, bad, lost, refused, remade, remaps, judge }
    }
}

impl<'a> PartStore for DriveStore<'a> {
    type Source = DriveCopies<'a>;

    fn source(&self, part: &Part) -> DriveCopies<'a> {
        DriveCopies { drive: self.drive, at: part.at }
    }

    fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    fn next_number(&self) -> u64 {
        let Some(writer) = &self.writer else { return 0 };
        let number = writer.next_part.get();
        writer.next_part.set(number + 1);
        number
    }

    fn write(&self, bytes: &[u8]) -> Result<[Address; 2]> {
        let Some(writer) = &self.writer else { return Err(FsError::ReadOnly) };
        let mut pairs = writer.pairs.lock().expect("no holder panicked");
        writer.bytes.set(writer.bytes.get() + bytes.len() as u64);
        pairs.write_part(self.drive, *writer.zones.borrow_mut(), bytes)
    }

    fn meanwhile(&self) {
        if let Some(writer) = &self.writer {
            (writer.meanwhile)();
        }
    }

    fn note_bad(&self, part: &Part) {
        self.bad.borrow_mut().insert(part.summary.number);
    }

    fn note_lost(&self, error: &PartError) {
        let section = (error.part, error.section);
        if error.is_refused() {
            self.refused.borrow_mut().entry(section).or_insert_with(|| error.clone());
        } else {
            self.lost.borrow_mut().insert(section);
        }
    }

    fn check_refused(&self) -> Result<()> {
        self.judge.map_or(Ok(()), |judge| judge(self.refused.take()))
    }

    fn moved_value(&self, key: Key, value: &[u8]) -> Option<Vec<u8>> {
        (self.remaps?.lookup)(key, value)
    }

    fn moved_below(&self) -> u64 {
        self.remaps.map_or(0, |remaps| remaps.below)
    }

    fn remade(&self) -> Option<Remade> {
        self.remade
    }
}
