//! Chooses the open zone that a writer gets, and decides when to open another one.
//!
//! A drive lets only some zones be active at once. A [`Budget`] divides them: each large file gets
//! a zone of its own; small files and overwritten blocks get the zone of their [lifetime
//! class](super::life), and so do the blocks that reclaim moves. No zone is reserved for a use that
//! does not occur: large files may have all zones, or all but one once reclaim moves blocks, until
//! a class needs its share; then the class takes over the file's zone that has gone unwritten for
//! longest. No zone is given up before it is full, and as a last resort a user's write may use the
//! room of every open zone.

use std::collections::BTreeMap;

use super::life::CLASSES;
use super::lifetime::WriteLifetime;

/// The data that a zone is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// New data of a file that is large, or becomes large, by the file's number.
    File(u64),
    /// Other data, by lifetime class: small files and overwritten blocks.
    Class(u8),
    /// Other data of a file with a hint. It shares the zones of classes.
    Hinted(WriteLifetime),
    /// Blocks that reclaim moves, by lifetime class.
    Moved(u8),
}

/// How many zones may be open, and how many of them each use can claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Open zones, for everything together.
    pub open: usize,
    /// Zones that classes of written data can claim.
    pub classes: u8,
    /// Zones that classes of moved data can claim. 0: it shares the zones of written data.
    pub moved: u8,
}

impl Budget {
    /// The division of `open` zones:
    ///
    /// | open | classes | moved | files at least |
    /// | --- | --- | --- | --- |
    /// | 1 | 1, shared with moved data | 0 | 0 |
    /// | 2 | 1 | 1 | 0 |
    /// | 3 | 1 | 2 | 0 |
    /// | 4, 5 | 2 | 2 | 0, 1 |
    /// | 6 to 11 | 3 | 3 | 0 to 5 |
    /// | 12 and more | 4 | 4 | 4 and more |
    ///
    /// By trial with the model at 0.90, Zipf and hot/cold: 2 zones 3.68 and 3.36, 3 zones
    /// 3.51 and 2.89, 4 zones 3.18 and 2.78, 6 zones 3.08 and 2.54, 8 for classes 3.00 and 2.55.
    pub const fn of(open: usize) -> Self {
        let (classes, moved) = match open {
            0 | 1 => (1, 0),
            2 => (1, 1),
            3 => (1, 2),
            4 | 5 => (2, 2),
            6..=11 => (3, 3),
            12.. => (CLASSES, CLASSES),
        };
        let open = if open == 0 { 1 } else { open };
        Self { open, classes, moved }
    }

    /// The target after classes that share a zone are merged.
    pub fn merged(&self, target: Target) -> Target {
        let merged = |class: u8, zones: u8| class.min(CLASSES - 1) * zones / CLASSES;
        match target {
            Target::File(_) => target,
            Target::Class(class) => Target::Class(merged(class, self.classes)),
            // One zone for none and short, one for medium, and one for long and extreme.
            Target::Hinted(hint) if self.classes == 3 => Target::Class(hint.class().min(2)),
            Target::Hinted(hint) => Target::Class(merged(hint.class(), self.classes)),
            Target::Moved(class) if self.moved == 0 => Target::Class(merged(class, self.classes)),
            Target::Moved(class) => Target::Moved(merged(class, self.moved)),
        }
    }
}

/// Data that lies in one zone as far as possible, since it will die at one time: a file, or the
/// live blocks of a file in a victim. Data that is cut at the end of a zone leaves room in two
/// zones when it dies, and less in each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Locality {
    /// Blocks of it that are still to be written; 0 if a cut does not matter.
    pub blocks: u64,
    /// The zone of the blocks before them.
    pub near: Option<u32>,
}

/// Whether another empty zone may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// It may.
    Empty,
    /// It may not: there is none, or the rest is kept for others.
    Exhausted,
}

/// Whether the age of data tells when it will die.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ages {
    /// Old data lives long.
    #[default]
    Tell,
    /// Old data is as likely to die as any other: so the classes of moved data say nothing.
    Nothing,
}

/// The zone that a writer gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    /// This open zone.
    Zone(u32),
    /// An empty zone, to be [opened](Streams::open).
    Open,
    /// Nothing: no zone is open, and none can be opened.
    Nothing,
}

/// An open zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenZone {
    /// Its number.
    pub zone: u32,
    /// The data that it is written for.
    pub target: Target,
    /// The lifetime class of its data, before classes that share a zone are merged; `None` for a
    /// file's zone.
    pub class: Option<u8>,
    /// The hint of the file that it was opened for; none if that file has the zone alone.
    pub hint: WriteLifetime,
    /// When it was written last.
    used: u64,
    /// Blocks written since it was opened or changed its use.
    blocks: u64,
}

/// The open zones.
#[derive(Clone, Debug)]
pub struct Streams {
    budget: Budget,
    /// Blocks of a zone.
    zone_blocks: u64,
    open: Vec<OpenZone>,
    /// The zone of each file that shares one because no more zones can be opened.
    guests: BTreeMap<u64, u32>,
    /// Reclaim has moved blocks. From then on one zone is kept for it.
    has_moved: bool,
    /// Moved data needs another zone, and may claim one as soon as one is closed.
    is_refused: bool,
    /// Zones that are not written any more and that the drive still counts as active, each with its
    /// last entry.
    busy: BTreeMap<u32, OpenZone>,
    ages: Ages,
}

impl Streams {
    /// No zone is open yet.
    pub fn new(budget: Budget, zone_blocks: u64) -> Self {
        Self {
            budget,
            zone_blocks,
            open: Vec::new(),
            guests: BTreeMap::new(),
            has_moved: false,
            is_refused: false,
            busy: BTreeMap::new(),
            ages: Ages::Tell,
        }
    }

    /// The open zones, in no order.
    pub fn zones(&self) -> &[OpenZone] {
        &self.open
    }

    /// The open zone of a large file.
    pub fn zone_of(&self, file: u64) -> Option<u32> {
        let own = self.open.iter().find(|open| open.target == Target::File(file));
        own.map(|open| open.zone)
    }

    /// The division of the zones.
    pub fn budget(&self) -> Budget {
        self.budget
    }

    /// Sets whether the age of data tells when it will die.
    pub fn set_ages(&mut self, ages: Ages) {
        self.ages = ages;
    }

    /// Chooses the zone that a writer gets. The caller has [closed](Self::close) full zones; `room`
    /// says how many blocks can be written to an open one.
    pub fn choose(
        &self,
        target: Target,
        locality: Locality,
        supply: Supply,
        now: u64,
        room: impl Fn(u32) -> u64,
    ) -> Choice {
        let target = self.budget.merged(target);
        if let Some(zone) = self.fitting(target, locality, &room) {
            return Choice::Zone(zone);
        }
        if let Some(zone) = self.own(target, &room) {
            if supply == Supply::Exhausted || !self.may_add(target) {
                return Choice::Zone(zone);
            }
            let left =
                |open: &OpenZone| self.is_left(open, now) && room(open.zone) >= locality.blocks;
            return self.least_used(left).map_or(Choice::Open, Choice::Zone);
        }
        if let Target::File(_) = target
            && let Some(done) = self.least_used(|open| self.is_done(open, now))
        {
            return Choice::Zone(done);
        }
        if supply == Supply::Empty && self.open.len() + self.busy.len() < self.limit(target) {
            return Choice::Open;
        }
        let shared = self.with_room(target, locality, &room);
        let shared = shared.or_else(|| self.claim(target)).or_else(|| self.nearest(target));
        let shared = shared.or_else(|| match target {
            Target::File(_) | Target::Class(_) | Target::Hinted(_) => {
                let written = self.least_used(|open| is_written(open.target));
                // As a last resort any zone with room.
                written.or_else(|| self.least_used(|_| true))
            }
            // Writers have taken all zones before reclaim wanted one. It gets the next zone that is
            // closed, which is likely the fullest one.
            Target::Moved(_) if supply == Supply::Empty && self.open.len() >= self.budget.open => {
                let written = self.open.iter().filter(|open| is_written(open.target));
                written.map(|open| open.zone).min_by_key(|&zone| (room(zone), zone))
            }
            // Reclaim never takes the room that users' writes count on.
            Target::Moved(_) => None,
        });
        match shared {
            Some(zone) => Choice::Zone(zone),
            // A writer does not wait for a zone that is about to be full.
            None if supply == Supply::Empty => Choice::Open,
            None => Choice::Nothing,
        }
    }

    /// Notes that an empty zone was opened for `wanted`.
    pub fn open(&mut self, zone: u32, wanted: Target, now: u64) {
        let target = self.budget.merged(wanted);
        self.is_refused &= is_written(target);
        let (class, hint) = lives_of(wanted);
        self.open.push(OpenZone { zone, target, class, hint, used: now, blocks: 0 });
    }

    /// Notes that blocks are written to an open zone. A zone that [`choose`](Self::choose) took
    /// from another use has this use from now on.
    pub fn note(&mut self, zone: u32, wanted: Target, blocks: u32, now: u64) {
        let target = self.budget.merged(wanted);
        self.has_moved |= !is_written(target);
        let has_own = self.own(target, |_| 0).is_some();
        let is_left = self.open.iter().any(|open| open.zone == zone && self.is_left(open, now));
        let takes_over = is_left || (self.claim(target) == Some(zone) && !has_own);
        let Some(open) = self.open.iter_mut().find(|open| open.zone == zone) else { return };
        open.used = now;
        if open.target != target {
            match target {
                Target::File(file) => {
                    self.guests.insert(file, zone);
                }
                Target::Class(_) | Target::Hinted(_) if takes_over => {
                    (open.class, open.hint) = lives_of(wanted);
                    open.target = target;
                    open.blocks = 0;
                }
                Target::Class(_) | Target::Hinted(_) => {}
                Target::Moved(_) => self.is_refused |= !has_own,
            }
        }
        open.blocks += u64::from(blocks);
    }

    /// Notes that a zone is not written any more, and not active.
    pub fn close(&mut self, zone: u32) {
        self.leave(zone);
        self.busy.remove(&zone);
    }

    /// Notes that a zone is not written any more. It stays active until it is
    /// [closed](Self::close).
    pub fn leave(&mut self, zone: u32) {
        if let Some(at) = self.open.iter().position(|open| open.zone == zone) {
            let left = self.open.remove(at);
            self.guests.retain(|_, guest| *guest != zone);
            self.busy.insert(zone, left);
        }
    }

    /// Takes back [`leave`](Self::leave): some of the data for the zone has not arrived.
    pub fn return_to(&mut self, zone: u32) {
        self.open.extend(self.busy.remove(&zone));
    }

    /// Whether a zone that was found partly written may be open for `target`.
    pub fn can_resume(&self, target: Target) -> bool {
        self.open.len() < self.limit(self.budget.merged(target))
    }

    /// The zone of a class with room for all of `whole`: the zone that has the blocks before it, or
    /// the zone that is nearest to being full, so that others keep their room for longer data.
    /// Moved data is better off in the zone of a neighbouring class than cut; farther away, it
    /// costs more than the cut, unless ages tell nothing.
    fn fitting(
        &self,
        target: Target,
        locality: Locality,
        room: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        if let Target::File(_) = target {
            return None;
        }
        let wanted = if locality.blocks > self.zone_blocks { 0 } else { locality.blocks };
        let distance = |open: &OpenZone| match (open.target, target) {
            (own, target) if own == target => Some(0),
            (Target::Moved(open), Target::Moved(class))
                if wanted > 0 && (self.ages == Ages::Nothing || open.abs_diff(class) <= 1) =>
            {
                Some(1)
            }
            _ => None,
        };
        let seen = self.open.iter().filter_map(|open| {
            let (distance, room) = (distance(open)?, room(open.zone));
            (room >= wanted).then_some((
                locality.near != Some(open.zone),
                distance,
                room,
                open.zone,
            ))
        });
        seen.min().map(|seen| seen.3)
    }

    /// The zone that is written for a target already; of several, the zone that is nearest to being
    /// full.
    fn own(&self, target: Target, room: impl Fn(u32) -> u64) -> Option<u32> {
        let own = self.open.iter().filter(|open| open.target == target);
        let own = own.map(|open| open.zone).min_by_key(|&zone| (room(zone), zone));
        own.or_else(|| match target {
            Target::File(file) => self.guests.get(&file).copied(),
            Target::Class(_) | Target::Hinted(_) | Target::Moved(_) => None,
        })
    }

    /// Whether a class may have another zone in addition to its own, for data that fits in none of
    /// these: a zone that no other class needs. Where ages tell nothing, each zone of reclaim is as
    /// good as any other for the blocks that it moves.
    fn may_add(&self, target: Target) -> bool {
        let is_wanted = |target: &Target| self.open.iter().all(|open| open.target != *target);
        let is_free = |kept: usize| self.open.len() + self.busy.len() + kept < self.limit(target);
        match target {
            Target::File(_) => false,
            Target::Class(_) | Target::Hinted(_) => {
                let classes = (0..self.budget.classes).map(Target::Class);
                let moved = (0..self.budget.moved).map(Target::Moved);
                is_free(classes.chain(moved).filter(is_wanted).count())
            }
            Target::Moved(_) => {
                let moved = self.open.iter().filter(|open| !is_written(open.target)).count();
                self.ages == Ages::Nothing && moved < self.budget.moved.into() && is_free(0)
            }
        }
    }

    /// How many zones may be open when one is opened for a target. Written data leaves one to
    /// reclaim once that has moved blocks, and then the next one if reclaim needs more.
    fn limit(&self, target: Target) -> usize {
        let moved = self.open.iter().filter(|open| !is_written(open.target)).count();
        let wants =
            (moved == 0 && self.has_moved) || (self.is_refused && moved < self.budget.moved.into());
        match target {
            Target::File(_) | Target::Class(_) | Target::Hinted(_)
                if self.budget.moved > 0 && wants =>
            {
                self.budget.open - 1
            }
            Target::File(_) | Target::Class(_) | Target::Hinted(_) | Target::Moved(_) => {
                self.budget.open
            }
        }
    }

    /// The file's zone with room for all of another file, and of these the one with the least room.
    fn with_room(
        &self,
        target: Target,
        locality: Locality,
        room: impl Fn(u32) -> u64,
    ) -> Option<u32> {
        let Target::File(_) = target else { return None };
        let wanted = locality.blocks.min(self.zone_blocks);
        let files = self.open.iter().filter(|open| is_file(open) && wanted > 0);
        let fits = files.map(|open| open.zone).filter(|&zone| room(zone) >= wanted);
        fits.min_by_key(|&zone| (room(zone), zone))
    }

    /// The zones of other files, of which the caller may give one up for a file that would lie in
    /// several zones because no more can be opened.
    pub fn zones_beside_cut(
        &self,
        target: Target,
        locality: Locality,
        room: impl Fn(u32) -> u64,
    ) -> impl Iterator<Item = u32> {
        let is_cut = matches!(target, Target::File(_))
            && locality.blocks > 0
            && self.open.len() + self.busy.len() >= self.limit(target)
            && self.own(target, |_| 0).is_none()
            && self.with_room(target, locality, room).is_none();
        let files = self.open.iter().filter(move |open| is_cut && is_file(open));
        files.map(|open| open.zone)
    }

    /// A file's zone that a class can claim, since files have more than their share. Reclaim claims
    /// none: room for users stays room for users.
    fn claim(&self, target: Target) -> Option<u32> {
        match target {
            Target::File(_) | Target::Moved(_) => None,
            Target::Class(_) | Target::Hinted(_) => {
                let files = self.open.iter().filter(|open| is_file(open)).count();
                let share = self.budget.open
                    - usize::from(self.budget.classes)
                    - usize::from(self.budget.moved);
                (files > share).then(|| self.least_used(is_file)).flatten()
            }
        }
    }

    /// The open zone of the same kind whose class is nearest.
    fn nearest(&self, target: Target) -> Option<u32> {
        let distance = |open: &OpenZone| match (open.target, target) {
            (Target::Class(open), Target::Class(wanted))
            | (Target::Moved(open), Target::Moved(wanted)) => Some(open.abs_diff(wanted)),
            // Zones of files are equally near: the one that has gone unwritten for longest.
            (Target::File(_), Target::File(_)) => Some(0),
            (Target::File(_) | Target::Class(_) | Target::Hinted(_) | Target::Moved(_), _) => None,
        };
        let near =
            self.open.iter().filter_map(|open| Some((distance(open)?, open.used, open.zone)));
        near.min().map(|(_, _, zone)| zone)
    }

    /// Whether a zone has little of a file that writes no more to it: others have written much
    /// since. The next file may go there.
    fn is_done(&self, open: &OpenZone, now: u64) -> bool {
        let rounds = self.zone_blocks * self.open.len() as u64;
        is_file(open)
            && open.blocks < self.zone_blocks / 4
            && now.saturating_sub(open.used) > rounds
    }

    /// Whether a file of any size has stopped writing to its zone: others have written very much
    /// since.
    fn is_left(&self, open: &OpenZone, now: u64) -> bool {
        let rounds = self.zone_blocks * self.open.len() as u64;
        is_file(open) && now.saturating_sub(open.used) > 4 * rounds
    }

    fn least_used(&self, may: impl Fn(&OpenZone) -> bool) -> Option<u32> {
        let open = self.open.iter().filter(|open| may(open));
        open.min_by_key(|open| (open.used, open.zone)).map(|open| open.zone)
    }
}

/// Class and hint of the data for a target.
fn lives_of(wanted: Target) -> (Option<u8>, WriteLifetime) {
    match wanted {
        Target::File(_) => (None, WriteLifetime::None),
        Target::Class(class) | Target::Moved(class) => (Some(class), WriteLifetime::None),
        Target::Hinted(hint) => (Some(hint.class()), hint),
    }
}

fn is_file(open: &OpenZone) -> bool {
    matches!(open.target, Target::File(_))
}

/// Whether users write to zones of this target, and not reclaim.
fn is_written(target: Target) -> bool {
    match target {
        Target::File(_) | Target::Class(_) | Target::Hinted(_) => true,
        Target::Moved(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Zones that are filled as `streams` says, and the target of each block of each zone.
    struct Filled {
        streams: Streams,
        zones: Vec<Vec<Target>>,
        blocks: usize,
        clock: u64,
        most_open: usize,
    }

    impl Filled {
        fn new(open: usize, blocks: usize) -> Self {
            let streams = Streams::new(Budget::of(open), blocks as u64);
            Self { streams, zones: Vec::new(), blocks, clock: 0, most_open: 0 }
        }

        fn write(&mut self, target: Target, blocks: u32) {
            for _ in 0..blocks {
                self.clock += 1;
                let room = |zone: u32| (self.blocks - self.zones[zone as usize].len()) as u64;
                let locality = Locality::default();
                let supply = Supply::Empty;
                let zone = match self.streams.choose(target, locality, supply, self.clock, room) {
                    Choice::Zone(zone) => zone,
                    Choice::Open => {
                        let zone = u32::try_from(self.zones.len()).unwrap();
                        self.zones.push(Vec::new());
                        self.streams.open(zone, target, self.clock);
                        zone
                    }
                    Choice::Nothing => panic!("there are empty zones"),
                };
                self.most_open = self.most_open.max(self.streams.zones().len());
                self.streams.note(zone, target, 1, self.clock);
                self.zones[zone as usize].push(target);
                if self.zones[zone as usize].len() == self.blocks {
                    self.streams.close(zone);
                }
            }
        }

        /// Zones that hold one target alone.
        fn pure(&self) -> usize {
            let is_pure = |zone: &&Vec<Target>| zone.iter().all(|target| *target == zone[0]);
            self.zones.iter().filter(is_pure).count()
        }
    }

    #[test]
    fn streams_give_large_files_zone_each_while_there_are_some() {
        let mut filled = Filled::new(9, 96);
        for _ in 0..64 {
            (0..9).for_each(|file| filled.write(Target::File(file), 1));
        }
        assert_eq!((filled.zones.len(), filled.pure()), (9, 9));
        // Another file shares one, and stays there.
        filled.write(Target::File(9), 5);
        assert_eq!((filled.zones.len(), filled.pure()), (9, 8));
    }

    #[test]
    fn files_have_all_zones_until_reclaim_moves_data() {
        let mut filled = Filled::new(3, 96);
        (0..3).for_each(|file| filled.write(Target::File(file), 40));
        assert_eq!((filled.zones.len(), filled.pure()), (3, 3));
        // Reclaim shares one of them, and gets the next that is closed.
        filled.write(Target::Moved(0), 10);
        assert_eq!((filled.zones.len(), filled.pure()), (3, 2));
        filled.write(Target::File(1), 56);
        filled.write(Target::File(3), 1);
        assert_eq!(filled.zones.len(), 3, "a file shares one");
        filled.write(Target::Moved(0), 10);
        assert_eq!(filled.zones[3], [Target::Moved(0); 10]);
    }

    #[test]
    fn reclaim_keeps_its_zone_and_gains_share_when_full() {
        let mut filled = Filled::new(9, 96);
        filled.write(Target::Moved(0), 1);
        (0..20).for_each(|file| filled.write(Target::File(file), 10));
        filled.write(Target::Moved(0), 1);
        filled.write(Target::Moved(3), 1);
        let moved = |filled: &Filled| {
            let zones = filled.streams.zones().iter();
            zones.filter(|open| matches!(open.target, Target::Moved(_))).count()
        };
        assert_eq!(moved(&filled), 1);
        // A file's zone is full, and another file wants one: reclaim is first.
        filled.write(Target::File(0), 96);
        filled.write(Target::Moved(3), 1);
        assert_eq!(moved(&filled), 2);
    }

    #[test]
    fn class_claims_zone_of_file() {
        let mut filled = Filled::new(9, 96);
        (0..9).for_each(|file| filled.write(Target::File(file), 50));
        filled.write(Target::Class(2), 1);
        let targets = |filled: &Filled| {
            filled.streams.zones().iter().map(|open| open.target).collect::<Vec<_>>()
        };
        assert_eq!(targets(&filled)[0], Target::Class(1), "of three, and the least used zone");
        filled.write(Target::File(0), 1);
        assert!(!targets(&filled).contains(&Target::File(0)), "it shares another one");
    }

    #[test]
    fn small_file_follows_previous_one() {
        let mut filled = Filled::new(5, 100);
        filled.write(Target::File(1), 10);
        filled.write(Target::Class(2), 310);
        filled.write(Target::File(2), 10);
        assert_eq!(filled.zones[0].len(), 20);
        filled.write(Target::Class(2), 400);
        filled.write(Target::File(2), 90);
        filled.write(Target::File(3), 1);
        assert_eq!(filled.zones[0].len(), 100, "no small file any more");
    }

    /// The choice for `blocks` blocks of a target, with the room of each zone.
    fn choice(
        streams: &Streams,
        target: Target,
        (blocks, near): (u64, Option<u32>),
        room: &[u64],
    ) -> Choice {
        let locality = Locality { blocks, near };
        streams.choose(target, locality, Supply::Empty, 1, |zone| room[zone as usize])
    }

    #[test]
    fn grouped_data_goes_where_it_fits_rest_to_zone_end() {
        let mut streams = Streams::new(Budget::of(12), 100);
        let target = Target::Class(1);
        streams.open(0, target, 1);
        let choose = |streams: &Streams, blocks, near| {
            choice(streams, target, (blocks, near), &[30, 90, 50])
        };
        assert_eq!(choose(&streams, 30, None), Choice::Zone(0));
        assert_eq!(choose(&streams, 31, None), Choice::Open, "it would be cut");
        streams.open(1, target, 1);
        streams.open(2, Target::Moved(0), 1);
        assert_eq!(choose(&streams, 31, None), Choice::Zone(1), "not among what was moved");
        assert_eq!(choose(&streams, 10, None), Choice::Zone(0));
        assert_eq!(choose(&streams, 10, Some(1)), Choice::Zone(1), "the rest of it is there");
        assert_eq!(choose(&streams, 0, None), Choice::Zone(0));
    }

    #[test]
    fn file_goes_where_all_of_it_fits_if_none_opens() {
        let mut streams = Streams::new(Budget::of(3), 100);
        (0..3).for_each(|zone| streams.open(zone, Target::File(zone.into()), 1));
        let (file, room) = (Target::File(7), [10, 60, 40]);
        let choose = |blocks| choice(&streams, file, (blocks, None), &room);
        assert_eq!([40, 41].map(choose), [2, 1].map(Choice::Zone));
        let beside = |streams: &Streams, file, blocks| {
            let locality = Locality { blocks, near: None };
            let target = Target::File(file);
            let zones = streams.zones_beside_cut(target, locality, |zone| room[zone as usize]);
            zones.collect::<Vec<_>>()
        };
        assert_eq!(beside(&streams, 7, 60), []);
        assert_eq!(beside(&streams, 7, 61), [0, 1, 2]);
        assert_eq!(beside(&streams, 0, 90), [], "it goes on in its zone");
        streams.close(0);
        assert_eq!(beside(&streams, 7, 90), [], "it gets a zone of its own");
    }

    #[test]
    fn class_keeps_its_zone_against_grouped_data() {
        // Two classes of each kind, and no other zone.
        let mut streams = Streams::new(Budget::of(4), 100);
        streams.open(0, Target::Class(0), 1);
        let choose = |streams: &Streams, target| choice(streams, target, (40, None), &[30, 30, 90]);
        assert_eq!(choose(&streams, Target::Class(0)), Choice::Zone(0), "it is cut");
        assert_eq!(choose(&streams, Target::Class(3)), Choice::Open);
    }

    #[test]
    fn moved_data_prefers_next_class_to_being_cut() {
        let mut streams = Streams::new(Budget::of(12), 100);
        streams.open(0, Target::Moved(0), 1);
        streams.open(1, Target::Moved(1), 1);
        streams.open(2, Target::Moved(2), 1);
        streams.open(3, Target::Class(0), 1);
        let choose = |blocks| choice(&streams, Target::Moved(0), (blocks, None), &[30, 40, 90, 90]);
        assert_eq!([30, 40, 41].map(choose), [0, 1, 0].map(Choice::Zone));
    }

    #[test]
    fn moved_data_without_useful_ages_goes_where_it_fits() {
        let mut streams = Streams::new(Budget::of(12), 100);
        streams.open(0, Target::Moved(0), 1);
        streams.open(1, Target::Moved(3), 1);
        let choose = |streams: &Streams, blocks| {
            choice(streams, Target::Moved(0), (blocks, None), &[30, 60, 90, 90])
        };
        assert_eq!(choose(&streams, 60), Choice::Zone(0), "it is cut");
        streams.set_ages(Ages::Nothing);
        assert_eq!(
            [60, 61].map(|blocks| choose(&streams, blocks)),
            [Choice::Zone(1), Choice::Open]
        );
        // Reclaim opens no more zones than its share.
        streams.open(2, Target::Moved(1), 1);
        streams.open(3, Target::Moved(2), 1);
        assert_eq!(
            [90, 91].map(|blocks| choose(&streams, blocks)),
            [Choice::Zone(2), Choice::Zone(0)]
        );
        // Data that may be cut stays with its class.
        assert_eq!(choose(&streams, 0), Choice::Zone(0));
    }

    #[test]
    fn room_left_by_file_is_used_before_opening_zone() {
        let mut streams = Streams::new(Budget::of(12), 100);
        streams.open(0, Target::Class(0), 1);
        streams.open(1, Target::File(7), 1);
        streams.note(1, Target::File(7), 50, 1);
        let at = |now| {
            let locality = Locality { blocks: 40, near: None };
            let room = |zone: u32| if zone == 0 { 10 } else { 50 };
            streams.choose(Target::Class(0), locality, Supply::Empty, now, room)
        };
        assert_eq!([at(100), at(1000)], [Choice::Open, Choice::Zone(1)]);
        streams.note(1, Target::Class(0), 40, 1000);
        assert_eq!(streams.zones()[1].target, Target::Class(0));
    }

    #[test]
    fn budget_of_one_zone_shares_it() {
        let streams = Streams::new(Budget::of(1), 8);
        let choice =
            streams.choose(Target::Moved(1), Locality::default(), Supply::Exhausted, 0, |_| 0);
        assert_eq!(choice, Choice::Nothing);
        let mut filled = Filled::new(1, 8);
        for target in [Target::File(4), Target::Moved(3), Target::Class(0), Target::File(5)] {
            filled.write(target, 1);
        }
        assert_eq!(filled.zones.len(), 1);
    }

    fn target() -> impl Strategy<Value = Target> {
        prop_oneof![
            (0..20_u64).prop_map(Target::File),
            (0..CLASSES).prop_map(Target::Class),
            (0..CLASSES).prop_map(Target::Moved),
        ]
    }

    proptest! {
        #[test]
        fn streams_open_no_more_zones_than_allowed(
            open in 1..20_usize, writes in prop::collection::vec((target(), 1..20_u32), 1..300),
        ) {
            let mut filled = Filled::new(open, 32);
            for (target, blocks) in writes {
                filled.write(target, blocks);
            }
            prop_assert!(filled.most_open <= open, "{} of {open}", filled.most_open);
        }

        #[test]
        fn user_may_use_room_of_every_zone(
            zones in prop::collection::vec(target(), 1..9), file in any::<u64>(),
        ) {
            let mut streams = Streams::new(Budget::of(9), 32);
            for (zone, target) in (0..).zip(&zones) {
                streams.open(zone, *target, 1);
            }
            let choose = |streams: &Streams, target| {
                streams.choose(target, Locality::default(), Supply::Exhausted, 2, |_| 32)
            };
            // One after the other is full.
            for _ in &zones {
                let choice = choose(&streams, Target::File(file));
                let Choice::Zone(zone) = choice else { panic!("{choice:?}") };
                streams.note(zone, Target::File(file), 32, 2);
                streams.close(zone);
            }
            let choice = choose(&streams, Target::Class(0));
            prop_assert_eq!(choice, Choice::Nothing);
        }
    }
}
