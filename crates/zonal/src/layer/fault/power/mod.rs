//! The effect of a power cut: it takes away a part of the unflushed changes, as a drive with a
//! volatile cache loses them.
//!
//! Changes go to the device below at once, one at a time, and their old content is remembered until
//! the next flush. A cut puts the zones below into a state that D4 allows. Each sequential zone,
//! independently of the others, keeps a prefix of its writes, resets and finishes since the flush:
//! a reset may be undone, and the zone has its old data and write pointer again. A conventional
//! zone keeps any blocks. Each overwritten block of a sequential write preferred zone is as before
//! or as now. No zone stays open, and no more zones are active than may be. Zones that are
//! read-only or offline stay as they are.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use crate::error::Result;
use crate::layer::record::pick;
use crate::{Lba, LbaCount, Select, Zone, ZoneAction, ZoneCond, ZoneId, ZoneKind, ZonedDevice};

/// States that are drawn before the newest one is taken, which is always possible.
const DRAWS_MAX: u32 = 64;

/// A change of a zone.
#[derive(Clone, Copy)]
pub(super) enum ZoneChange {
    /// Blocks from an address on are written or deallocated.
    Write(ZoneId, Lba, LbaCount),
    /// Blocks are appended.
    Append(ZoneId),
    /// An action.
    Manage(ZoneId, ZoneAction),
}

impl ZoneChange {
    const fn zone(self) -> ZoneId {
        match self {
            Self::Write(zone, ..) | Self::Append(zone) | Self::Manage(zone, _) => zone,
        }
    }
}

/// Everything since the last flush.
#[derive(Default)]
pub(super) struct Unflushed {
    /// Sequential zones that were changed.
    zones: BTreeMap<ZoneId, Timeline>,
    /// Old content of blocks that were overwritten: any of conventional zones, durable ones of
    /// sequential write preferred zones.
    blocks: BTreeMap<Lba, Vec<u8>>,
    /// Whether the cut has been.
    is_cut: bool,
}

/// The lives of a zone, from the one at the last flush to the current one: a reset begins the next.
struct Timeline(Vec<ZoneLife>);

struct ZoneLife {
    /// Blocks that survive in any case.
    durable: LbaCount,
    /// Blocks written.
    written: LbaCount,
    finish: Finish,
    /// Whether it was written non-sequentially before the last flush.
    non_sequential: bool,
    /// Its content, once it is over.
    content: Vec<u8>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Finish {
    /// Not finished, or full of data.
    None,
    /// Finished since the last flush.
    Unflushed,
    /// Full at the last flush.
    Durable,
}

/// A state that a cut can leave a zone in.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Left {
    /// Which life.
    life: usize,
    written: LbaCount,
    is_finished: bool,
}

impl ZoneLife {
    fn at_flush(zone: &Zone) -> Self {
        let written = zone.written().unwrap_or(LbaCount::ZERO);
        let finish = if zone.cond == ZoneCond::Full { Finish::Durable } else { Finish::None };
        let non_sequential = zone.non_sequential;
        Self { durable: written, written, finish, non_sequential, content: Vec::new() }
    }

    fn new() -> Self {
        Self {
            durable: LbaCount::ZERO,
            written: LbaCount::ZERO,
            finish: Finish::None,
            non_sequential: false,
            content: Vec::new(),
        }
    }

    /// How many states it can be left in.
    fn states(&self) -> u64 {
        match self.finish {
            Finish::Durable => 1,
            Finish::None => (self.written - self.durable).get() + 1,
            Finish::Unflushed => (self.written - self.durable).get() + 2,
        }
    }
}

impl Timeline {
    fn current(&mut self) -> &mut ZoneLife {
        self.0.last_mut().expect("a timeline begins with a life")
    }

    /// How many of the blocks that a write is for were durable at the last flush, and would be
    /// overwritten.
    fn durable_blocks(
        &self,
        below: &dyn ZonedDevice,
        lba: Lba,
        blocks: LbaCount,
    ) -> Option<LbaCount> {
        let [life] = self.0.as_slice() else { return None };
        let offset = below.geometry().locate(lba).1;
        let durable = life.durable.saturating_sub(offset).min(blocks);
        let is_preferred = below.geometry().sequential_kind() == ZoneKind::SequentialPreferred;
        (is_preferred && durable > LbaCount::ZERO).then_some(durable)
    }

    fn states(&self) -> u64 {
        self.0.iter().map(ZoneLife::states).sum()
    }

    /// State number `at`, in the order in which they came.
    fn state(&self, mut at: u64) -> Left {
        for (life, found) in self.0.iter().enumerate() {
            let count = found.states();
            if at < count {
                let is_last = at + 1 == count;
                let is_finished = is_last && found.finish != Finish::None;
                let written =
                    if is_last { found.written } else { found.durable + LbaCount::new(at) };
                return Left { life, written, is_finished };
            }
            at -= count;
        }
        unreachable!("a number below states()")
    }

    fn newest(&self) -> Left {
        self.state(self.states() - 1)
    }
}

impl Unflushed {
    /// Whether the power is gone, so that nothing may be changed any more.
    pub(super) const fn is_cut(&self) -> bool {
        self.is_cut
    }

    /// Remembers the content that `change` is about to change.
    pub(super) fn before(&mut self, below: &dyn ZonedDevice, change: ZoneChange) -> Result<()> {
        let id = change.zone();
        if below.geometry().kind(id) == ZoneKind::Conventional {
            return match change {
                ZoneChange::Write(_, lba, blocks) => self.keep_blocks(below, lba, blocks),
                ZoneChange::Append(_) | ZoneChange::Manage(..) => Ok(()),
            };
        }
        let timeline = match self.zones.entry(id) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(new) => new.insert(Timeline(vec![ZoneLife::at_flush(&below.zone(id)?)])),
        };
        match change {
            ZoneChange::Manage(_, ZoneAction::Reset) => {
                let life = timeline.current();
                life.content = read(below, id, life.written)?;
                Ok(())
            }
            ZoneChange::Write(_, lba, blocks) => {
                let Some(blocks) = timeline.durable_blocks(below, lba, blocks) else {
                    return Ok(());
                };
                self.keep_blocks(below, lba, blocks)
            }
            ZoneChange::Append(_) | ZoneChange::Manage(..) => Ok(()),
        }
    }

    fn keep_blocks(&mut self, below: &dyn ZonedDevice, lba: Lba, blocks: LbaCount) -> Result<()> {
        let block_bytes = byte_len(below, LbaCount::new(1));
        let mut old = vec![0; byte_len(below, blocks)];
        below.read(lba, &mut old)?;
        for (at, block) in (lba.get()..).zip(old.chunks(block_bytes)) {
            self.blocks.entry(Lba::new(at)).or_insert_with(|| block.to_vec());
        }
        Ok(())
    }

    /// Notes the new state of a zone, whether the change succeeded or not.
    pub(super) fn after(&mut self, below: &dyn ZonedDevice, change: ZoneChange) {
        let Some(timeline) = self.zones.get_mut(&change.zone()) else { return };
        let Ok(zone) = below.zone(change.zone()) else { return };
        let was_reset = zone.cond == ZoneCond::Empty;
        match change {
            ZoneChange::Manage(_, ZoneAction::Reset) if was_reset => {
                timeline.0.push(ZoneLife::new());
            }
            ZoneChange::Manage(_, ZoneAction::Finish) => {
                let life = timeline.current();
                let is_new = zone.cond == ZoneCond::Full
                    && life.finish == Finish::None
                    && life.written < zone.capacity;
                if is_new {
                    life.finish = Finish::Unflushed;
                }
            }
            ZoneChange::Write(..) | ZoneChange::Append(_) => {
                let life = timeline.current();
                if life.finish == Finish::None {
                    life.written = zone.written().unwrap_or(life.written);
                }
            }
            ZoneChange::Manage(..) => {}
        }
    }

    /// Everything so far is durable.
    pub(super) fn flushed(&mut self) {
        *self = Self::default();
    }

    /// Cuts the power: leaves the device below in one of the states that are possible.
    pub(super) fn cut(&mut self, below: &dyn ZonedDevice, random: &mut ChaCha8Rng) -> Result<()> {
        self.is_cut = true;
        let random = &mut |limit: u64| random.next_u64() % limit;
        let zones = below.report_all()?;
        let is_lost =
            |id: &ZoneId| matches!(zones[id.index()].cond, ZoneCond::ReadOnly | ZoneCond::Offline);
        self.zones.retain(|id, _| !is_lost(id));
        self.blocks.retain(|&lba, _| !is_lost(&below.geometry().locate(lba).0));
        close_all(below)?;
        let limit = below.geometry().max_active().unwrap_or(u32::MAX);
        let left =
            (0..DRAWS_MAX).map(|_| self.draw(random)).find(|left| self.fits(limit, left, &zones));
        if let Some(left) = &left {
            self.rebuild(below, left, &zones)?;
        }
        // The data of a later life of a zone has not overwritten the blocks of the first one.
        let has_first_life = |id: &ZoneId| match (&left, self.zones.get(id)) {
            (Some(left), Some(_)) => left[id].life == 0,
            (None, Some(timeline)) => timeline.0.len() == 1,
            (_, None) => true,
        };
        self.restore_blocks(below, &has_first_life, random)?;
        close_all(below)
    }

    /// A state for each zone. Half of the time all zones but one keep everything or nothing,
    /// because that is where mistakes in ordering show.
    fn draw(&self, random: &mut dyn FnMut(u64) -> u64) -> BTreeMap<ZoneId, Left> {
        let count = self.zones.len() as u64;
        let lone = (count > 0 && random(2) == 0).then(|| random(count));
        let others_keep_all = random(2) == 0;
        let state = |(index, (&id, timeline)): (u64, (&ZoneId, &Timeline))| {
            let states = timeline.states();
            let at = match lone {
                Some(lone) if lone != index && others_keep_all => states - 1,
                Some(lone) if lone != index => 0,
                Some(_) | None => pick(states, random) as u64,
            };
            (id, timeline.state(at))
        };
        (0..).zip(&self.zones).map(state).collect()
    }

    /// Whether no more zones are active than may be, in the end and while zones are rebuilt.
    fn fits(&self, limit: u32, left: &BTreeMap<ZoneId, Left>, zones: &[Zone]) -> bool {
        let holds_some =
            |zone: &&Zone| zone.written().is_some_and(|blocks| blocks > LbaCount::ZERO);
        let kept = zones
            .iter()
            .filter(|zone| !self.is_rebuilt(zone.id, left))
            .filter(holds_some)
            .filter(|zone| zone.cond.is_active())
            .count();
        let rebuilt = left.iter().filter(|&(&id, _)| self.is_rebuilt(id, left));
        let (full, begun): (Vec<_>, Vec<_>) = rebuilt
            .filter(|(_, left)| left.written > LbaCount::ZERO)
            .partition(|(id, left)| left.is_full(&zones[id.index()]));
        // A zone is written before it is full, and then it is active.
        kept + begun.len().max(usize::from(!full.is_empty())) <= limit as usize
    }

    fn is_rebuilt(&self, id: ZoneId, left: &BTreeMap<ZoneId, Left>) -> bool {
        left.get(&id).is_some_and(|left| *left != self.zones[&id].newest())
    }

    /// Brings the zones below into the states of `left`.
    fn rebuild(
        &self,
        below: &dyn ZonedDevice,
        left: &BTreeMap<ZoneId, Left>,
        zones: &[Zone],
    ) -> Result<()> {
        let mut contents = Vec::new();
        for (&id, &left) in left.iter().filter(|&(&id, _)| self.is_rebuilt(id, left)) {
            let lives = &self.zones[&id].0;
            let content = if left.life + 1 == lives.len() {
                read(below, id, left.written)?
            } else {
                lives[left.life].content[..byte_len(below, left.written)].to_vec()
            };
            contents.push((id, left, content));
        }
        // All of them are empty before the first is written, and the full ones do not stay active.
        for (id, ..) in &contents {
            below.manage(Select::One(*id), ZoneAction::Reset)?;
        }
        contents.sort_by_key(|(id, left, _)| !left.is_full(&zones[id.index()]));
        let block_bytes = byte_len(below, LbaCount::new(1));
        for (id, left, mut content) in contents {
            if left.is_finished {
                // Unwritten blocks read as zeroes too.
                let last = content.iter().rposition(|&byte| byte != 0);
                content.truncate(last.map_or(0, |last| (last / block_bytes + 1) * block_bytes));
            }
            if !content.is_empty() {
                let start = below.geometry().zone_start(id);
                below.write(start, &content)?;
                // Once more makes it a zone that was written non-sequentially.
                if self.zones[&id].0[left.life].non_sequential {
                    below.write(start, &content[..block_bytes])?;
                }
            }
            if left.is_finished {
                below.manage(Select::One(id), ZoneAction::Finish)?;
            } else if below.zone(id)?.cond.is_open() {
                below.manage(Select::One(id), ZoneAction::Close)?;
            }
        }
        Ok(())
    }

    /// Puts back some of the blocks that were overwritten: none, each with even odds, or all.
    fn restore_blocks(
        &self,
        below: &dyn ZonedDevice,
        is_of: &dyn Fn(&ZoneId) -> bool,
        random: &mut dyn FnMut(u64) -> u64,
    ) -> Result<()> {
        let how = random(4);
        let is_of = |lba: Lba| is_of(&below.geometry().locate(lba).0);
        for (&lba, old) in self.blocks.iter().filter(|&(&lba, _)| is_of(lba)) {
            if how == 0 || (how < 3 && random(2) == 0) {
                below.write(lba, old)?;
            }
        }
        Ok(())
    }
}

impl Left {
    fn is_full(&self, zone: &Zone) -> bool {
        self.is_finished || self.written == zone.capacity
    }
}

/// The blocks of a zone from its start on.
fn read(below: &dyn ZonedDevice, id: ZoneId, blocks: LbaCount) -> Result<Vec<u8>> {
    let mut content = vec![0; byte_len(below, blocks)];
    below.read(below.geometry().zone_start(id), &mut content)?;
    Ok(content)
}

fn byte_len(below: &dyn ZonedDevice, blocks: LbaCount) -> usize {
    usize::try_from(below.geometry().bytes(blocks).get()).expect("a zone fits in memory")
}

/// The effect of a loss of power on open zones.
fn close_all(below: &dyn ZonedDevice) -> Result<()> {
    for zone in below.report_all()? {
        let one = Select::One(zone.id);
        if zone.cond.is_active() && zone.written() == Some(LbaCount::ZERO) {
            below.manage(one, ZoneAction::Reset)?;
        } else if zone.cond.is_open() {
            below.manage(one, ZoneAction::Close)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
