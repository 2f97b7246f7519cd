//! The page-mapped layer against a map that only knows where each unit was put: random writes,
//! trims and steps of GC in any order. Every unit is found where it was put last, and no slot has
//! two.

use std::collections::BTreeMap;

use proptest::prelude::*;
use zonal_sim::ftl::{PageMapped, Slot, Translation, Unit, Work};
use zonal_sim::{Config, Size};

/// A drive of 24 superblocks of `units` units.
fn config(kind: &str, gc: &str, units: u32) -> Config {
    Config::parse(&format!(
        "[flash]\nchannels = 1\ndies_per_channel = 1\nplanes = 1\npage = 4096\n\
         pages_per_program = 1\nprograms_per_block = {units}\nsuperblocks = 24\n\
         [drive]\nkind = \"{kind}\"\nop = 1.0\n[gc]\nlow_water = 3\n{gc}"
    ))
    .expect("the config is right")
}

/// One thing that happens to a drive.
#[derive(Clone, Debug)]
enum Step {
    /// The host writes some units by one handle.
    Place(u32, u8, u32),
    /// The host trims units.
    Trim(u32, u32),
    /// The layer is asked for work.
    Work,
    /// The oldest copy or erase is done.
    Answer,
    /// The newest is.
    AnswerLast,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        8 => (any::<u32>(), 0..4_u8, 1..12_u32)
            .prop_map(|(unit, handle, count)| Step::Place(unit, handle, count)),
        1 => (any::<u32>(), 0..20_u32).prop_map(|(unit, count)| Step::Trim(unit, count)),
        6 => Just(Step::Work),
        3 => Just(Step::Answer),
        3 => Just(Step::AnswerLast),
    ];
    prop::collection::vec(step, 1..3000)
}

/// Drives a layer and knows where everything must be.
struct Model {
    layer: PageMapped,
    /// Unit → slot.
    places: BTreeMap<Unit, Slot>,
    /// Slots used since their superblock was erased, with the unit put there.
    used: BTreeMap<Slot, Unit>,
    /// Steps that `work` gave out.
    under_way: Vec<Work>,
}

impl Model {
    fn new(config: &Config) -> Self {
        let layer = PageMapped::new(config).expect("the config is right");
        Self { layer, places: BTreeMap::new(), used: BTreeMap::new(), under_way: Vec::new() }
    }

    fn put(&mut self, unit: Unit, slot: Slot) {
        assert_eq!(self.used.insert(slot, unit), None, "slot {slot} was erased before its use");
        self.places.insert(unit, slot);
    }

    fn work(&mut self) -> bool {
        let work = self.layer.work();
        match work {
            Some(Work::Copy { unit, from }) => {
                assert_eq!(self.used.get(&from), Some(&unit), "slot {from} holds unit {unit}");
            }
            Some(Work::Erase(block)) => {
                let b = self.layer.layout().block_units;
                let slots = block * b..(block + 1) * b;
                assert!(self.places.values().all(|slot| !slots.contains(slot)), "all was moved");
                let copies = self
                    .under_way
                    .iter()
                    .filter(|work| matches!(work, Work::Copy { from, .. } if slots.contains(from)));
                assert_eq!(copies.count(), 0, "every copy is answered before the erase");
            }
            None => {}
        }
        self.under_way.extend(work);
        work.is_some()
    }

    fn answer(&mut self, at: usize) {
        match self.under_way.remove(at) {
            Work::Copy { unit, from } => {
                let current = self.places.get(&unit) == Some(&from);
                let to = self.layer.moved(unit, from);
                assert_eq!(to.is_some(), current, "only what still lies there is moved");
                if let Some(slot) = to {
                    self.put(unit, slot);
                }
            }
            Work::Erase(block) => {
                let b = self.layer.layout().block_units;
                self.used.retain(|slot, _| slot / b != block);
                self.layer.erased(block);
            }
        }
    }

    /// Works until the layer has nothing to do.
    fn settle(&mut self) {
        while !self.under_way.is_empty() || self.work() {
            if !self.under_way.is_empty() {
                self.answer(0);
            }
        }
    }

    fn step(&mut self, step: &Step) {
        let units = self.layer.layout().user_units;
        match *step {
            Step::Place(unit, handle, count) => {
                for at in 0..count {
                    let unit = unit.wrapping_add(at * 7919) % units;
                    let slot = self.layer.place(unit, handle).unwrap_or_else(|| {
                        self.settle();
                        self.layer.place(unit, handle).expect("room after GC came to its end")
                    });
                    self.put(unit, slot);
                }
            }
            Step::Trim(first, count) => {
                let first = first % units;
                let count = count.min(units - first);
                self.layer.trim(first, count);
                self.places.retain(|unit, _| !(first..first + count).contains(unit));
            }
            Step::Work => {
                self.work();
            }
            Step::Answer if !self.under_way.is_empty() => self.answer(0),
            Step::AnswerLast if !self.under_way.is_empty() => {
                self.answer(self.under_way.len() - 1);
            }
            Step::Answer | Step::AnswerLast => {}
        }
        assert_eq!(self.layer.mapped() as usize, self.places.len());
    }

    fn check(&self) {
        for unit in 0..self.layer.layout().user_units {
            assert_eq!(self.layer.locate(unit), self.places.get(&unit).copied(), "unit {unit}");
        }
    }
}

/// How much of the flash the user does not get.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Room {
    Half,
    /// Only the room that a drive cannot do without.
    None,
}

fn choices() -> impl Strategy<Value = Config> {
    let victim = prop::sample::select(vec![
        "greedy",
        "cost-benefit",
        "fifo",
        "random",
        "d-choices:3",
        "windowed:4",
    ]);
    let kind = prop::sample::select(vec![
        ("conventional", "streams = 1"),
        ("conventional", "streams = 3"),
        ("fdp", "[fdp]\nhandles = 3\nisolation = \"initially\""),
        ("fdp", "[fdp]\nhandles = 3\nisolation = \"persistently\""),
    ]);
    let frontier = prop::sample::select(vec!["separate", "mixed"]);
    let gap = prop::sample::select(vec![0, 2]);
    let room = prop::sample::select(vec![Room::Half, Room::None]);
    (kind, victim, frontier, gap, 1..=70_u32, room).prop_map(
        |((kind, more), victim, frontier, gap, units, room)| {
            let gc = format!(
                "victim = \"{victim}\"\nfrontier = \"{frontier}\"\nwear_gap = {gap}\n{more}"
            );
            let mut config = config(kind, &gc, units);
            if room == Room::None {
                let layout = config.layout().expect("checked");
                let most = (layout.blocks - layout.kept_blocks) * units;
                config.drive.user = Some(Size(u64::from(most) * layout.unit));
                config.check().expect("this much is possible");
            }
            config
        },
    )
}

proptest! {
    #[test]
    fn ftl_finds_units_where_put_last(config in choices(), steps in steps()) {
        let mut model = Model::new(&config);
        for step in &steps {
            model.step(step);
        }
        model.check();
        model.settle();
        model.check();
        let counters = model.layer.counters();
        prop_assert_eq!(
            counters.erased,
            model.layer.erases().iter().map(|erases| u64::from(*erases)).sum::<u64>()
        );
    }

    #[test]
    fn counting_in_batches_equals_one_by_one(
        config in choices(),
        writes in prop::collection::vec((any::<u32>(), 0..4_u8, 1..200_u32), 1..60),
    ) {
        let mut batches = PageMapped::new(&config).expect("the config is right");
        let mut singles = PageMapped::new(&config).expect("the config is right");
        let users = batches.layout().user_units;
        for (first, handle, count) in writes {
            // Some units occur twice in a batch.
            let units: Vec<u32> =
                (0..count).map(|at| first.wrapping_add(at / 2 * 7919) % users).collect();
            batches.write(&units, handle);
            for unit in units {
                singles.write(&[unit], handle);
            }
        }
        prop_assert_eq!(batches.counters(), singles.counters());
        prop_assert_eq!(batches.erases(), singles.erases());
        for unit in 0..users {
            prop_assert_eq!(batches.locate(unit), singles.locate(unit));
        }
    }
}

#[test]
fn ftl_alternates_steps_and_counting() {
    let mut model = Model::new(&config("conventional", "victim = \"greedy\"", 64));
    let users = model.layer.layout().user_units;
    for round in 0..20_u32 {
        for at in 0..500_u32 {
            let unit = (at.wrapping_mul(2_654_435_761) ^ round) % users;
            model.step(&Step::Place(unit, 0, 1));
            model.step(&Step::Work);
            model.step(&Step::Answer);
        }
        model.settle();
        model.check();
        let units: Vec<u32> = (0..300).map(|at| (at * 31 + round) % users).collect();
        model.layer.write(&units, 0);
        // The model does not see where counting puts units: it starts anew from the layer's
        // answers.
        model.places =
            (0..users).filter_map(|unit| Some((unit, model.layer.locate(unit)?))).collect();
        let slots = model.places.iter().map(|(unit, slot)| (*slot, *unit));
        model.used = slots.collect();
    }
    assert!(model.layer.counters().moved > 0);
}

#[test]
fn wear_levelling_keeps_erase_counts_together() {
    let spread = |gap: u32| {
        let gc = format!("victim = \"greedy\"\nwear_gap = {gap}");
        let mut drive = PageMapped::new(&config("conventional", &gc, 64)).expect("checked");
        let users = drive.layout().user_units;
        let all: Vec<u32> = (0..users).collect();
        drive.write(&all, 0);
        // A tenth is overwritten again and again, the rest never.
        for round in 0..3000_u32 {
            let hot: Vec<u32> = (0..64).map(|at| (at * 5 + round * 7) % (users / 10)).collect();
            drive.write(&hot, 0);
        }
        let erases = drive.erases();
        erases.iter().max().expect("some") - erases.iter().min().expect("some")
    };
    assert!(spread(0) > 100, "{}", spread(0));
    // Twice the gap: a block may be overtaken while the least worn one waits for its turn.
    assert!(spread(5) <= 10, "{}", spread(5));
    assert!(spread(20) <= 40 && spread(20) > 10, "{}", spread(20));
}
