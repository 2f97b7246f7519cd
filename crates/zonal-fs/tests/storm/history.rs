//! All orders of the operations that explain their answers.
//!
//! Operations that ran side by side took effect in some order between their beginnings and their
//! ends. [`History`] goes through all orders that explain every answer; where operations did not
//! race there is one. A file system that comes back after a cut must show one of these states,
//! whole, not older than the last promise.

use std::collections::BTreeMap;

use zonal_fs::vfs::WriteFlags;

use crate::copying::{self, Progress};
use crate::model::{Op, Refusal, Reply, State};
use crate::splitting;

/// Whether calls of the drive may fail.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Health {
    #[default]
    Sound,
    Faulty,
}

/// An operation as it went.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    pub(crate) op: Op,
    pub(crate) reply: Option<Reply>,
    pub(crate) drive: Health,
}

/// An event of a round.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Begin(usize),
    End(usize),
    /// The process was killed, and the next mount showed this state.
    Kill(State),
    /// A clean end and the next mount.
    Remount,
}

/// A state that some order of the operations leads to.
struct Place {
    state: State,
    /// How far running operations have come, if they have begun to take effect.
    progress: BTreeMap<usize, Progress>,
    born: usize,
    died: usize,
    parents: Vec<usize>,
    leads_on: bool,
}

/// The promise of a call that returned.
#[derive(Clone, Copy)]
struct Promise {
    /// The event at which it returned.
    at: usize,
    /// The event at which it began: operations that ended before are durable.
    since: usize,
    /// An operation that is durable as well.
    with: Option<usize>,
}

impl Promise {
    /// Whether a place keeps it.
    fn is_kept(&self, place: &Place) -> bool {
        place.died > self.at
            || (place.died > self.since
                && self.with.is_none_or(|with| place.progress.get(&with) == Some(&Progress::Done)))
    }
}

/// More states at once than this are too many.
const ALIVE_MAX: usize = 2500;

/// Everything that happened, with all that it may have meant.
#[derive(Default)]
pub(crate) struct History {
    /// Bytes up to which a write is one operation on a full drive too.
    pub(crate) atomic: u64,
    pub(crate) records: Vec<Record>,
    /// With the number of changes of the drive before each.
    pub(crate) events: Vec<(usize, Event)>,
    places: Vec<Place>,
    promises: Vec<Promise>,
    /// There were too many orders to go through.
    pub(crate) is_vague: bool,
}

impl History {
    pub(crate) fn begin(&mut self, at: usize, op: Op, drive: Health) -> usize {
        self.records.push(Record { op, reply: None, drive });
        self.events.push((at, Event::Begin(self.records.len() - 1)));
        self.records.len() - 1
    }

    pub(crate) fn end(&mut self, at: usize, index: usize, reply: Reply, drive: Health) {
        self.records[index].reply = Some(reply);
        if drive == Health::Faulty {
            self.records[index].drive = drive;
        }
        self.events.push((at, Event::End(index)));
    }

    /// Goes through all orders. `Err`: the answers fit none.
    pub(crate) fn explain(&mut self) -> Result<(), String> {
        self.places = vec![Place {
            state: State::new(),
            progress: BTreeMap::new(),
            born: 0,
            died: usize::MAX,
            parents: Vec::new(),
            leads_on: false,
        }];
        let mut alive = vec![0];
        let mut begun: Vec<(usize, usize)> = Vec::new();
        for at in 0..self.events.len() {
            let event = self.events[at].1.clone();
            match event {
                Event::Begin(index) => {
                    begun.push((index, at));
                    self.expand(&mut alive, &begun, at);
                    if alive.len() > ALIVE_MAX {
                        self.is_vague = true;
                        return Ok(());
                    }
                }
                Event::End(index) => {
                    alive = self.settle(&alive, index, at);
                    if alive.is_empty() {
                        return Err(self.unexplained(&begun, index));
                    }
                    let since = begun.iter().find(|(of, _)| *of == index).map_or(at, |(_, at)| *at);
                    if self.records[index].promises() {
                        let is_write = matches!(self.records[index].op, Op::Write { .. });
                        let with = is_write.then_some(index);
                        self.promises.push(Promise { at, since, with });
                    }
                    begun.retain(|(of, _)| *of != index);
                }
                Event::Kill(found) => alive = self.kill(&found, at)?,
                Event::Remount => {
                    for place in &alive {
                        self.places[*place].state.forget_pins();
                    }
                    self.promises.push(Promise { at, since: at, with: None });
                }
            }
        }
        let mut leading = alive;
        while let Some(place) = leading.pop() {
            if !std::mem::replace(&mut self.places[place].leads_on, true) {
                leading.extend(&self.places[place].parents);
            }
        }
        Ok(())
    }

    /// Lets operations that have begun take effect in every order.
    fn expand(&mut self, alive: &mut Vec<usize>, begun: &[(usize, usize)], at: usize) {
        let key = |place: &Place| (place.state.hash, place.state.hidden, place.progress.clone());
        for &place in alive.iter() {
            self.look(place, begun);
        }
        let mut known: BTreeMap<_, usize> =
            alive.iter().map(|place| (key(&self.places[*place]), *place)).collect();
        let mut next = 0;
        while next < alive.len() {
            let from = alive[next];
            next += 1;
            for (index, _) in begun {
                for (state, progress) in self.steps(from, *index) {
                    let mut all = self.places[from].progress.clone();
                    all.insert(*index, progress);
                    let place = Place {
                        state,
                        progress: all,
                        born: at,
                        died: usize::MAX,
                        parents: vec![from],
                        leads_on: false,
                    };
                    self.places.push(place);
                    let number = self.places.len() - 1;
                    self.look(number, begun);
                    let key = key(&self.places[number]);
                    if let Some(&same) = known.get(&key) {
                        self.places.pop();
                        self.places[same].parents.push(from);
                    } else {
                        known.insert(key, number);
                        alive.push(number);
                    }
                }
            }
        }
    }

    /// Lets running operations that change nothing happen in a place, if their answers fit there:
    /// to wait would gain nothing.
    fn look(&mut self, place: usize, begun: &[(usize, usize)]) {
        for &(index, _) in begun {
            if self.records[index].op.only_looks() && !self.steps(place, index).is_empty() {
                self.places[place].progress.insert(index, Progress::Done);
            }
        }
    }

    /// The states after the next step of an operation, in accordance with its answer.
    fn steps(&self, from: usize, index: usize) -> Vec<(State, Progress)> {
        let place = &self.places[from];
        let Record { op, ref reply, .. } = self.records[index];
        let progress = place.progress.get(&index);
        if progress == Some(&Progress::Done) {
            return Vec::new();
        }
        if let Op::Copy { .. } = op {
            return copying::steps(&place.state, op, reply.as_ref(), progress);
        }
        let mut parts = splitting::steps(&place.state, op, reply.as_ref(), progress, self.atomic);
        if progress.is_none() {
            parts.extend(self.whole_step(place, index));
        }
        parts
    }

    /// The states after an operation that takes effect at once.
    fn whole_step(&self, place: &Place, index: usize) -> Vec<(State, Progress)> {
        let Record { op, ref reply, drive } = self.records[index];
        let mut state = place.state.clone();
        let made = if let Some(Reply::Ino(made)) = reply { *made } else { 0 };
        let outcome = state.perform(op, made);
        let before = (place.state.clone(), Progress::Done);
        match (outcome, reply) {
            // Its end was never seen, or names came and went while they were listed.
            (Ok(_), None) | (Ok(Reply::Names(_)), Some(Reply::Done)) => {
                vec![(state, Progress::Done)]
            }
            (Ok(outcome), Some(reply)) if outcome == *reply => vec![(state, Progress::Done)],
            // It has failed, before or after it took effect.
            (Ok(_), Some(Reply::Full | Reply::Broken(_))) if drive == Health::Faulty => {
                vec![before, (state, Progress::Done)]
            }
            (Err(Refusal), Some(Reply::Refused(_))) | (_, Some(Reply::Full | Reply::Broken(_))) => {
                vec![before]
            }
            _ => Vec::new(),
        }
    }

    /// Keeps the states in which an operation that ends has taken effect.
    fn settle(&mut self, alive: &[usize], index: usize, at: usize) -> Vec<usize> {
        let mut kept = Vec::new();
        for &place in alive {
            if self.places[place].progress.get(&index) == Some(&Progress::Done) {
                self.places[place].progress.remove(&index);
                kept.push(place);
            } else {
                self.places[place].died = at;
            }
        }
        kept
    }

    fn unexplained(&self, begun: &[(usize, usize)], index: usize) -> String {
        let racing = begun.iter().map(|(of, _)| format!("{:?}", self.records[*of]));
        format!(
            "no order explains the answer to {:?}; it ran beside\n    {}",
            self.records[index],
            racing.collect::<Vec<_>>().join("\n    ")
        )
    }

    /// After a kill the tree is in a state of some moment after the last promise.
    fn kill(&mut self, found: &State, at: usize) -> Result<Vec<usize>, String> {
        let is_it = |place: &Place| {
            place.state.hash == found.hash
                && self.promises.iter().all(|promise| promise.is_kept(place))
        };
        let parents: Vec<usize> =
            (0..self.places.len()).filter(|place| is_it(&self.places[*place])).collect();
        let Some(parent) = parents.first() else {
            let near = self.places.iter().rev().take(3);
            let near = near.filter_map(|place| found.difference(&place.state));
            let near = near.collect::<Vec<_>>().join("\n    ");
            return Err(format!("a kill leaves what never was; from the newest on:\n    {near}"));
        };
        let mut state = self.places[*parent].state.clone();
        state.forget_pins();
        for place in &mut self.places {
            place.died = place.died.min(at);
        }
        self.places.push(Place {
            state,
            progress: BTreeMap::new(),
            born: at,
            died: usize::MAX,
            parents,
            leads_on: false,
        });
        Ok(vec![self.places.len() - 1])
    }

    /// Numbers of changes of the drive after which a call returned that had made something durable.
    pub(crate) fn promised_at(&self) -> Vec<usize> {
        let is_end =
            |event: &Event| matches!(event, Event::End(index) if self.records[*index].promises());
        self.events.iter().filter(|(_, event)| is_end(event)).map(|(at, _)| *at).collect()
    }

    /// Whether a cut after `cut` changes of the drive may leave this; else how it differs.
    pub(crate) fn check(&self, cut: usize, found: &State) -> Result<(), String> {
        if self.is_vague {
            return Ok(());
        }
        let limit = self.events.partition_point(|(at, _)| *at <= cut);
        let promises: Vec<Promise> =
            self.promises.iter().filter(|promise| promise.at < limit).copied().collect();
        let promised = promises.iter().map(|promise| promise.since).max().unwrap_or(0);
        let is_legal = |place: &&Place| {
            place.leads_on
                && place.born < limit
                && promises.iter().all(|promise| promise.is_kept(place))
        };
        let legal: Vec<&Place> = self.places.iter().filter(is_legal).collect();
        if legal.iter().any(|place| place.state.hash == found.hash) {
            return Ok(());
        }
        let mut near: Vec<String> = legal
            .iter()
            .map(|place| {
                let what = found.difference(&place.state).unwrap_or_else(|| "nothing?".into());
                format!("event {}: {what}", place.born)
            })
            .collect();
        near.sort_by_key(String::len);
        near.truncate(3);
        let near = near.join("\n    ");
        let events = self.told(promised.saturating_sub(40)..limit);
        Err(format!(
            "it is none of {} states that may be there; found, then each from the nearest on:\n    \
             {near}\n  since some time before the last promise:\n      {events}",
            legal.len()
        ))
    }

    /// Whether the tree may be in this state now, when nothing is lost.
    pub(crate) fn is_now(&self, found: &State) -> Result<(), String> {
        let alive = self.places.iter().filter(|place| place.died == usize::MAX);
        if self.is_vague {
            return Ok(());
        }
        let mut near = String::new();
        for place in alive {
            if place.state.hash == found.hash {
                return Ok(());
            }
            near = found.difference(&place.state).unwrap_or_default();
        }
        let events = self.told(0..self.events.len());
        Err(format!(
            "the tree is not what the operations made of it: {near}\n  at the end:\n      {events}"
        ))
    }

    /// Events in words, the last ones.
    fn told(&self, events: std::ops::Range<usize>) -> String {
        let events = self.events[events].iter().map(|(at, event)| match event {
            Event::Begin(index) => format!("{at}: begin {index} {:?}", self.records[*index].op),
            Event::End(index) => format!("{at}: end {index} {:?}", self.records[*index].reply),
            Event::Kill(_) => format!("{at}: kill"),
            Event::Remount => format!("{at}: remount"),
        });
        let events: Vec<String> = events.collect();
        events[events.len().saturating_sub(60)..].join("\n      ")
    }
}

impl Record {
    /// Whether it promises that earlier operations are durable.
    fn promises(&self) -> bool {
        let durable = match self.op {
            Op::Sync | Op::Fsync { .. } => true,
            Op::Write { flags, .. } => flags.contains(WriteFlags::DURABLE),
            _ => false,
        };
        durable && matches!(self.reply, Some(Reply::Done | Reply::At(_)))
    }
}
