//! LevelDB: the sequences of the zonefs talk at VAULT 2020, `fillrandom, readseq, readseq` and
//! `fillseq, readseq, readseq`, then random reads, alone and during writes, in every place in turn.
//!
//! `db_bench` of LevelDB is in no package: it is built from Debian's source package, for the
//! installed `libleveldb`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use xtask::run::quietly;
use xtask::tools::{LEVELDB_HEADERS, Packaged, require};

use crate::db_bench::benches;
use crate::place::{Cache, Engine, Hints, Made, Place, Shape};
use crate::sample::Sample;
use crate::{Bench, micros, step};

const PLACES: [Place; 5] = [
    Place::Ext4,
    Place::Zonefs,
    Place::Plugin(Hints::Followed),
    Place::Mount(Cache::Through, Hints::Followed),
    Place::Mount(Cache::Back, Hints::Followed),
];

/// Bytes of a key beyond LevelDB's 16, bytes of a value, and the name of the pair.
const SIZES: [(u32, u32, &str); 2] = [(0, 4096, "16 B/4 KiB"), (4, 800, "20 B/800 B")];

/// The part of each benchmark's name that follows the name of the fill.
const PHASES: [&str; 5] =
    ["", ": readseq", ": readseq again", ": readrandom", ": readwhilewriting"];

/// The source files of `db_bench`.
const SOURCES: [&str; 5] = [
    "benchmarks/db_bench.cc",
    "util/coding.cc",
    "util/crc32c.cc",
    "util/histogram.cc",
    "util/testutil.cc",
];

/// Its sources include a header of `GoogleTest`, although it calls nothing of it.
const GMOCK_HEADERS: Packaged = ("/usr/include/gmock/gmock.h", "libgmock-dev");

/// Measures every sequence.
pub(crate) fn measure(bench: &mut Bench) -> Result<()> {
    let program = match program(&bench.tools) {
        Ok(program) => program,
        Err(error) => {
            bench.skip("LevelDB", &format!("no db_bench: {error:#}"));
            return Ok(());
        }
    };
    let places = bench.possible("LevelDB", &PLACES);
    // Puts of 4 KiB; with small values as many bytes.
    let bytes = bench.choose(16 << 20, 96 << 20);
    for round in 1..=bench.rounds {
        for (prefix, value, sizes) in SIZES {
            let puts = bytes / u64::from(prefix + 16 + value);
            for fill in ["fillrandom", "fillseq"] {
                for &place in &places {
                    let load = Load { fill, prefix, value, puts, sizes };
                    step(round, place, &format!("LevelDB {fill} {sizes}"));
                    let samples = load.run(bench, &program, place, round)?;
                    bench.samples.0.extend(samples);
                }
            }
        }
    }
    Ok(())
}

/// One sequence.
struct Load {
    fill: &'static str,
    prefix: u32,
    value: u32,
    puts: u64,
    sizes: &'static str,
}

impl Load {
    fn run(&self, bench: &Bench, program: &Path, place: Place, round: u32) -> Result<Vec<Sample>> {
        // Zone files hold one table each: the same tables everywhere.
        let shape = Shape { zone: 16 << 20, zones: 128 };
        let made = Made::new(place, &bench.built, bench.scratch(), shape)?;
        let mut command = made.command(Engine::Level, program);
        let benchmarks = "readseq,readseq,readrandom,readwhilewriting";
        command.arg(format!("--benchmarks={},{benchmarks}", self.fill));
        command.arg(format!("--num={}", self.puts)).arg(format!("--value_size={}", self.value));
        command.arg(format!("--key_prefix={}", self.prefix)).arg("--compression_ratio=1");
        command.arg(format!("--write_buffer_size={}", shape.zone));
        command.arg(format!("--max_file_size={}", shape.zone - (1 << 20)));
        let (ended, daemon) = made.run(&mut command, bench.scratch())?;
        let found = benches(&ended.stdout);
        ensure!(found.len() == PHASES.len(), "db_bench printed {:?}", ended.stdout);
        let sample = |part: &str| Sample {
            workload: format!("LevelDB, {}", self.sizes),
            phase: format!("{}{part}", self.fill),
            place: place.name(),
            round,
            ..Sample::default()
        };
        let phases = PHASES.into_iter().zip(&found);
        let mut samples: Vec<Sample> = phases
            .map(|(name, bench)| Sample { ops_s: Some(bench.rate()), ..sample(name) })
            .collect();
        samples.push(Sample {
            cpu_us: Some(micros(ended.cpu + daemon.unwrap_or_default(), self.puts)),
            daemon_us: daemon.map(|daemon| micros(daemon, self.puts)),
            ..sample(": all of them")
        });
        Ok(samples)
    }
}

/// LevelDB's `db_bench`, built in `tools` when it is not there.
pub(crate) fn program(tools: &Path) -> Result<PathBuf> {
    let folder = tools.join("leveldb");
    let program = folder.join("db_bench");
    if program.exists() {
        return Ok(program);
    }
    require(&[LEVELDB_HEADERS, GMOCK_HEADERS])?;
    let source = source(&folder)?;
    let new = folder.join("db_bench.new");
    let mut compile = Command::new("c++");
    compile.current_dir(source).args(["-std=c++11", "-O2", "-DNDEBUG"]);
    compile.args(["-DLEVELDB_PLATFORM_POSIX=1", "-DLEVELDB_HAS_PORT_CONFIG_H=0"]);
    compile.args(["-I.", "-Iinclude"]).args(SOURCES).arg("-o").arg(&new);
    quietly(compile.args(["-lleveldb", "-lpthread"]))?;
    fs::rename(new, &program)?;
    Ok(program)
}

/// The source package that Debian has for this system, unpacked. The lists of packages are our own,
/// since the system's lists often name no sources.
fn source(folder: &Path) -> Result<PathBuf> {
    let (lists, parts) = (folder.join("lists"), folder.join("sources"));
    fs::create_dir_all(lists.join("partial"))?;
    fs::create_dir_all(&parts)?;
    let release = fs::read_to_string("/etc/os-release").context("/etc/os-release")?;
    let name = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    let name = name.context("this is no Debian")?;
    let text = format!(
        "Types: deb-src\nURIs: http://deb.debian.org/debian\nSuites: {name}\nComponents: main\n\
         Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg\n"
    );
    fs::write(parts.join("debian.sources"), text)?;
    for arguments in [&["update"][..], &["source", "leveldb"]] {
        let mut apt = Command::new("apt-get");
        apt.current_dir(folder).args(["-qq", "-oDir::Etc::SourceList=/dev/null"]);
        apt.arg(format!("-oDir::Etc::SourceParts={}", parts.display()));
        apt.arg(format!("-oDir::State::Lists={}", lists.display()));
        quietly(apt.args(arguments))?;
    }
    let found = fs::read_dir(folder)?.filter_map(Result::ok).map(|entry| entry.path());
    let mut found = found.filter(|path| path.join(SOURCES[0]).exists());
    found.next().context("the source package has no db_bench")
}
