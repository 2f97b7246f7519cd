//! The cost of Furrow as a library, on a drive that costs nearly nothing.
//!
//! Run it with `cargo bench -p zonal-fs --bench furrow`; words after `--` choose subjects by the
//! beginning of their name. `--json FILE` puts the figures into a file, such as
//! `bench/results/furrow.json`; `--before FILE`, which may be repeated, prints the figures of
//! another commit next to them. `--large` adds ten million files and a file of 64 GiB; `metadata`
//! then has one of 64 GiB alone, which takes an hour or two of a processor and prints its progress.
//! `--rounds N` is how often times are measured, `--zone-mib N` how large the zones of `pace` are,
//! `--percent N` the only live share that `placement` looks at, and how much of the space for files
//! `pace` fills.
//!
//! Counts (bytes, operations) come out the same each time, since one thread makes them with a clock
//! of its own. Times are the median of the rounds, with the least and the greatest.
//!
//! | subject | question |
//! | --- | --- |
//! | `costs` | how much processor time and how many instructions does one operation take? |
//! | `names` | how many names are made, found and deleted in a second? |
//! | `overwrites` | how many blocks, with reclaim and metadata included? |
//! | `unlink` | how long do other calls wait while a large file is deleted? |
//! | `commit` | how many bytes does an fsync write, and how long does it take? |
//! | `depth` | how much more does a drive of 100 µs do if 32 reads are asked of it at once? |
//! | `pauses` | how long does a call wait for others, at worst? |
//! | `pace` | how long does a write take while reclaim keeps pace on a nearly full drive? |
//! | `files`, `extents` | how much do mount, unmount and memory cost, by files and by extents? |
//! | `check` | how much does a check cost, by files and by extents? |
//! | `metadata` | how many bytes of metadata for each byte of data? |
//! | `disk-rate`, `disk-flush`, `disk-size` | what do a disk's writes, flushes and metadata cost? |
//! | `placement-model`, `placement-furrow` | how many blocks does reclaim move, by policy? |
//! | `placement-files` | how many for whole files, by how well their lives are known? |
//! | `placement-whole` | how many if any file is as likely to be deleted as any other? |

#![expect(clippy::print_stdout, reason = "it is its result")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]

mod commit;
mod costs;
mod depth;
mod disk;
mod drive;
mod metadata;
mod names;
mod pace;
mod pauses;
mod placement;
mod report;
mod scale;
mod volume;

use std::env;

use bench_support::Report;

/// Measures one subject.
type Measure = fn(&Args, &mut Report);

/// The options of a run.
pub(crate) struct Args {
    rounds: usize,
    zone_mib: u64,
    percent: Option<u64>,
    is_large: bool,
    words: Vec<String>,
}

impl Args {
    fn wants(&self, subject: &str) -> bool {
        self.words.is_empty() || self.words.iter().any(|word| subject.starts_with(word.as_str()))
    }
}

fn parse(given: Vec<String>) -> Args {
    let mut args =
        Args { rounds: 5, zone_mib: 256, percent: None, is_large: false, words: Vec::new() };
    let mut given = given.into_iter();
    while let Some(arg) = given.next() {
        let mut number = |what| {
            let text = given.next().unwrap_or_else(|| panic!("{arg} needs {what}"));
            text.parse::<u64>().unwrap_or_else(|_| panic!("{arg} needs {what}, not {text}"))
        };
        match arg.as_str() {
            "--rounds" => {
                args.rounds = usize::try_from(number("a number of rounds")).expect("a few");
            }
            "--zone-mib" => args.zone_mib = number("a number of MiB"),
            "--percent" => args.percent = Some(number("a percentage")),
            "--large" => args.is_large = true,
            word => args.words.push(word.to_owned()),
        }
    }
    args
}

fn main() {
    if scale::is_child() || costs::is_counted() {
        return;
    }
    let mut arguments = env::args().skip(1).collect();
    let command = "cargo bench -p zonal-fs --bench furrow";
    let mut report = Report::begin(command, &mut arguments);
    let args = parse(arguments);
    let subjects: [(&str, Measure); 19] = [
        ("costs", costs::costs),
        ("names", names::names),
        ("overwrites", names::overwrites),
        ("unlink", pauses::unlink),
        ("commit", commit::commit),
        ("depth", depth::depth),
        ("pauses", pauses::pauses),
        ("pace", pace::pace),
        ("files", scale::files),
        ("extents", scale::extents),
        ("check", scale::checks),
        ("metadata", metadata::metadata),
        ("disk-rate", disk::rate),
        ("disk-flush", disk::flush),
        ("disk-size", disk::size),
        ("placement-model", placement::on_the_model),
        ("placement-furrow", placement::in_the_file_system),
        ("placement-files", placement::files),
        ("placement-whole", placement::whole_files),
    ];
    for (name, measure) in subjects {
        if args.wants(name) {
            report.subject(name, args.rounds);
            measure(&args, &mut report);
        }
    }
    report.end();
}
