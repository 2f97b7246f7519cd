//! Blocks that are moved, by policy, workload and live share: on the model, which is the policy
//! alone, and in the file system, with all its metadata. One thread and a clock that the work
//! moves: the same figures each time.

use std::collections::BTreeMap;

use bench_support::Report;
use zonal_fs::furrow::{MountOptions, Stats};
use zonal_fs::vfs::{Caller, FileSystem, Ino, WriteFlags, XattrMode};
use zonal_placement::life::class_of;
use zonal_placement::model::{Model, Rules};

use crate::Args;
use crate::metadata::{Paced, Zipf, scattered};

use crate::volume::{BLOCK, Dice, create_directory, create_file, fill, overwrite};

const ZONES: u32 = 1024;
const ZONE_BLOCKS: u32 = 256;
const ALL: u64 = ZONES as u64 * ZONE_BLOCKS as u64;

/// Open zones of a drive with 14 active ones.
const OPEN: usize = 9;

/// Turns of the drive; the second half counts.
const TURNS: u64 = 4;

/// Which block is written next.
struct Workload {
    name: &'static str,
    zipf: Option<Zipf>,
    /// The least write amplification of any policy that does not know the next write, by live
    /// share.
    limit: fn(f64) -> f64,
}

impl Workload {
    fn all(blocks: u64) -> Vec<Self> {
        let zipf = || Some(Zipf::new(0.99, blocks));
        vec![
            Self { name: "uniform", zipf: None, limit: uniform },
            Self { name: "Zipf 0.99", zipf: zipf(), limit: zipf_limit },
            Self { name: "hot/cold 90/10", zipf: None, limit: hot_cold_limit },
            Self { name: "drifting Zipf", zipf: zipf(), limit: zipf_limit },
        ]
    }

    fn block(&self, dice: &mut Dice, blocks: u64, nth: u64) -> u64 {
        match (self.name, &self.zipf) {
            ("hot/cold 90/10", _) => {
                let hot = blocks / 10;
                if dice.below(10) < 9 { dice.below(hot) } else { hot + dice.below(blocks - hot) }
            }
            // Each rank moves to another block once in ten turns of the drive, each at a time of
            // its own.
            ("drifting Zipf", Some(zipf)) => {
                const INTERVAL: u64 = 10 * ALL;
                let rank = zipf.rank(dice);
                let moves = (nth + scattered(rank + 1) % INTERVAL) / INTERVAL;
                scattered(rank + moves * blocks) % blocks
            }
            (_, Some(zipf)) => zipf.block(dice, blocks),
            (_, None) => dice.below(blocks),
        }
    }
}

/// Write amplification of large zones with a live share `u` and uniform writes: 1 / (1 − p),
/// where u = (p − 1) / ln p.
fn uniform(u: f64) -> f64 {
    let (mut below, mut above) = (0.0_f64, 1.0_f64);
    for _ in 0..100 {
        let p = f64::midpoint(below, above);
        if (p - 1.0) / p.ln() < u { below = p } else { above = p }
    }
    1.0 / (1.0 - below)
}

/// Write amplification of classes of blocks, each written uniformly in zones of its own. The spare
/// room goes to the classes in small steps, each to the class that gains most.
fn separated(classes: &[(f64, f64)], u: f64) -> f64 {
    const STEPS: usize = 2000;
    let step = (1.0 - u) / STEPS as f64;
    let cost = |part: f64, share: f64, spare: f64| {
        let live = part * u;
        if spare > 0.0 { share * uniform(live / (live + spare)) } else { share * 1e6 }
    };
    let mut spare = vec![0.0; classes.len()];
    let gain = |class: usize, spare: f64| {
        let (part, share) = classes[class];
        cost(part, share, spare) - cost(part, share, spare + step)
    };
    let mut gains: Vec<f64> = (0..classes.len()).map(|class| gain(class, 0.0)).collect();
    for _ in 0..STEPS {
        let best = (0..classes.len()).max_by(|&a, &b| gains[a].total_cmp(&gains[b]));
        let best = best.expect("there are classes");
        spare[best] += step;
        gains[best] = gain(best, spare[best]);
    }
    classes.iter().zip(spare).map(|(&(part, share), spare)| cost(part, share, spare)).sum()
}

fn hot_cold_limit(u: f64) -> f64 {
    separated(&[(0.1, 0.9), (0.9, 0.1)], u)
}

/// Twelve classes of ranks, each three times as many as the one before, as of 235,930 blocks.
fn zipf_limit(u: f64) -> f64 {
    let items = 235_930_f64;
    let sum = |from: f64, to: f64| (to.powf(0.01) - from.powf(0.01)) / 0.01;
    let all = sum(1.0, items + 1.0);
    let mut classes = Vec::new();
    let mut from = 1.0;
    for class in 0..12 {
        let to = if class == 11 { items + 1.0 } else { (from * 2.8_f64).min(items) };
        classes.push(((to - from) / items, sum(from, to) / all));
        from = to;
    }
    separated(&classes, u)
}

fn percents(args: &Args) -> impl Iterator<Item = u64> {
    let only = args.percent;
    [80, 90, 95].into_iter().filter(move |percent| only.is_none_or(|only| only == *percent))
}

/// The policies alone.
pub(crate) fn on_the_model(args: &Args, report: &mut Report) {
    for percent in percents(args) {
        let share = percent as f64 / 100.0;
        let blocks = ALL * percent / 100;
        for workload in Workload::all(blocks) {
            let name = format!("{}, {percent} %", workload.name);
            add(report, (&name, "limit"), (workload.limit)(share));
            for rules in Rules::ALL {
                add(report, (&name, rules.name()), on_model(rules, &workload, blocks));
            }
        }
    }
}

/// The same in Furrow, which can place by each of them.
pub(crate) fn in_the_file_system(args: &Args, report: &mut Report) {
    for percent in percents(args) {
        for nth in 0..4 {
            for rules in Rules::ALL {
                in_furrow(report, rules, nth, percent);
            }
        }
    }
}

/// A figure of all these subjects, told as it comes, since all of them take minutes.
fn add(report: &mut Report, (name, variant): (&str, &str), blocks: f64) {
    println!("{name}, {variant}: {blocks:.3}");
    report.add_variant((name, variant), "blocks written for each", &[blocks]);
}

/// Whole files whose directories, hints or neither tell how long they will live.
pub(crate) fn files(_args: &Args, report: &mut Report) {
    for (name, blocks_max) in [("up to a quarter zone", 64), ("up to two zones", 512)] {
        for rules in Rules::ALL {
            churn(report, rules, (name, blocks_max), Lives::Unknown);
        }
        for lives in [Lives::Learned, Lives::OfDirectory, Lives::Known] {
            churn(report, Rules::ByLife, (name, blocks_max), lives);
        }
    }
}

fn on_model(rules: Rules, workload: &Workload, blocks: u64) -> f64 {
    let count = u32::try_from(blocks).expect("a small drive");
    let mut model = Model::new(rules, ZONES, ZONE_BLOCKS, OPEN, count);
    (0..count).for_each(|block| model.write(block));
    let mut dice = Dice(5);
    let mut before = (0, 0);
    for nth in 0..TURNS * ALL {
        if nth == TURNS * ALL / 2 {
            before = model.counts();
        }
        let block = workload.block(&mut dice, blocks, nth);
        model.write(u32::try_from(block).expect("a small drive"));
    }
    let after = model.counts();
    1.0 + (after.1 - before.1) as f64 / (after.0 - before.0) as f64
}

fn options(placement: Rules) -> MountOptions {
    MountOptions { placement, ..MountOptions::default() }
}

/// The same in the file system, as far as it can be filled.
fn in_furrow(report: &mut Report, rules: Rules, workload: usize, percent: u64) {
    let mut paced = Paced::with((ZONES.into(), 1), 10_000, options(rules));
    let file = create_file(&paced.fs, Ino::ROOT, "file");
    let sold = paced.fs.statfs().expect("it says").blocks_free;
    let blocks = (ALL * percent / 100).min(sold);
    if blocks < ALL * percent / 100 && percent > 90 {
        // The same as with the next lower share.
        return;
    }
    fill(&paced.fs, file, blocks * BLOCK);
    let workload = Workload::all(blocks).swap_remove(workload);
    let mut dice = Dice(5);
    let mut before = paced.fs.stats();
    for nth in 0..TURNS * ALL {
        if nth == TURNS * ALL / 2 {
            before = paced.fs.stats();
        }
        overwrite(&paced.fs, file, workload.block(&mut dice, blocks, nth));
        paced.step();
    }
    let after = paced.fs.stats();
    let user = (after.user_bytes - before.user_bytes) as f64;
    let name = format!("{}, {percent} %", workload.name);
    let data = 1.0 + (after.reclaim_bytes - before.reclaim_bytes) as f64 / user;
    let all = data + (after.meta_bytes - before.meta_bytes) as f64 / user;
    if rules == Rules::ByLife {
        let for_data = ALL - after.zones_metadata * u64::from(ZONE_BLOCKS);
        let share = blocks as f64 / for_data as f64;
        add(report, (&name, "limit at that share"), (workload.limit)(share));
    }
    add(report, (&name, rules.name()), data);
    add(report, (&format!("{name}, with metadata"), rules.name()), all);
}

/// How much of a file's life is known when it is made.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lives {
    /// Nothing.
    Unknown,
    /// How long files of its directory have lived.
    Learned,
    /// A hint says in which quarter of the directories it is.
    OfDirectory,
    /// A hint says which class of life it will have.
    Known,
}

impl Lives {
    fn name(self) -> &'static str {
        match self {
            Self::Unknown => "nothing known",
            Self::Learned => "learned",
            Self::OfDirectory => "hinted",
            Self::Known => "class known",
        }
    }

    /// The hint of a file that will live as long.
    fn hint(self, home: usize, life: u64) -> Option<&'static str> {
        const WORDS: [&str; 4] = ["short", "medium", "long", "extreme"];
        match self {
            Self::Unknown | Self::Learned => None,
            Self::OfDirectory => Some(WORDS[home / 12]),
            Self::Known => Some(WORDS[usize::from(class_of(Some(life), ALL))]),
        }
    }
}

/// Files of 48 directories come and go, and the file with the earliest time of death goes first.
/// Files of a directory live about equally long, in the last directory 300 times as long as in the
/// first.
fn churn(report: &mut Report, rules: Rules, (sizes, blocks_max): (&str, u64), lives: Lives) {
    let options = MountOptions { learns_lives: lives == Lives::Learned, ..options(rules) };
    let mut paced = Paced::with((ZONES.into(), 1), 200, options);
    let homes: Vec<Ino> =
        (0..48).map(|home| create_directory(&paced.fs, &format!("home-{home}"))).collect();
    let most = (paced.fs.statfs().expect("it says").blocks_free * 98 / 100).min(ALL * 90 / 100);
    let mut dice = Dice(6);
    // By the time of death: directory, number, blocks.
    let mut alive: BTreeMap<(u64, u64), (usize, u64)> = BTreeMap::new();
    let (mut held, mut written, mut number) = (0, 0, 0);
    let mut before = None;
    let data = vec![7; usize::try_from(blocks_max * BLOCK).expect("small")];
    while written < TURNS * ALL {
        if before.is_none() && written >= TURNS * ALL / 2 {
            before = Some(paced.fs.stats());
        }
        let blocks = 1 + dice.below(blocks_max);
        while held + blocks > most {
            let ((_, number), (home, blocks)) = alive.pop_first().expect("something lives");
            let name = format!("{number}");
            paced.fs.unlink(homes[home], name.as_bytes()).expect("deleted");
            held -= blocks;
        }
        let home = usize::try_from(dice.below(48)).expect("small");
        let file = create_file(&paced.fs, homes[home], &number.to_string());
        // Half to one and a half times as long as is usual in the directory.
        let usual = ALL as f64 / 100.0 * 300_f64.powf(home as f64 / 47.0);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a time")]
        let life = (usual * (0.5 + dice.share())) as u64;
        if let Some(hint) = lives.hint(home, life) {
            let attribute = (&b"user.zonal.lifetime"[..], hint.as_bytes());
            let set =
                paced.fs.setxattr(&Caller::ROOT, file, attribute.0, attribute.1, XattrMode::Any);
            set.expect("set");
        }
        let len = usize::try_from(blocks * BLOCK).expect("small");
        paced.fs.write(file, 0, &data[..len], WriteFlags::empty()).expect("written");
        alive.insert((written + life, number), (home, blocks));
        (held, written, number) = (held + blocks, written + blocks, number + 1);
        paced.step();
    }
    let (before, after) = (before.expect("half of it is over"), paced.fs.stats());
    let user = (after.user_bytes - before.user_bytes) as f64;
    let column = if lives == Lives::Unknown { rules.name() } else { lives.name() };
    let data = 1.0 + (after.reclaim_bytes - before.reclaim_bytes) as f64 / user;
    add(report, (&format!("files {sizes}"), column), data);
}

/// Zones, and the percentage of their blocks in use.
const WHOLE: [(u64, u64); 2] = [(96, 75), (1024, 91)];

/// Files of 16 KiB to 2 MiB, in each octave as many, in zones of 4 MiB: each is as likely to be
/// deleted next as any other. Bytes with metadata for each byte of files.
pub(crate) fn whole_files(_args: &Args, report: &mut Report) {
    for (zones, percent) in WHOLE {
        for rules in [Rules::TwoStreams, Rules::ByLife] {
            let name = format!("{percent} % of {zones} zones");
            add(report, (&name, rules.name()), any_age(rules, zones, percent));
        }
    }
}

fn any_age(rules: Rules, zones: u64, percent: u64) -> f64 {
    const ZONE_MIB: u64 = 4;
    let all = zones * ZONE_MIB * (1 << 20) / BLOCK;
    let mut paced = Paced::with((zones, ZONE_MIB), 200, options(rules));
    let mut dice = Dice(0);
    // Number and blocks.
    let mut alive: Vec<(u64, u64)> = Vec::new();
    let (mut held, mut written, mut number) = (0, 0, 0);
    let mut before = None;
    let data = vec![7; 2 << 20];
    while written < TURNS * all {
        if before.is_none() && written >= TURNS * all / 2 {
            before = Some(paced.fs.stats());
        }
        while held + 512 > all * percent / 100 {
            let chosen = dice.below(alive.len() as u64);
            let (old, blocks) = alive.swap_remove(usize::try_from(chosen).expect("small"));
            paced.fs.unlink(Ino::ROOT, old.to_string().as_bytes()).expect("deleted");
            held -= blocks;
        }
        let octave = 4 << dice.below(7);
        let blocks = octave + dice.below(octave);
        let file = create_file(&paced.fs, Ino::ROOT, &number.to_string());
        let len = usize::try_from(blocks * BLOCK).expect("small");
        for (at, part) in (0..).step_by(1 << 20).zip(data[..len].chunks(1 << 20)) {
            paced.fs.write(file, at, part, WriteFlags::empty()).expect("written");
        }
        alive.push((number, blocks));
        (held, written, number) = (held + blocks, written + blocks, number + 1);
        paced.step();
    }
    let (before, after) = (before.expect("half of it is over"), paced.fs.stats());
    let bytes = |of: &Stats| of.user_bytes + of.reclaim_bytes + of.meta_bytes;
    (bytes(&after) - bytes(&before)) as f64 / (after.user_bytes - before.user_bytes) as f64
}
