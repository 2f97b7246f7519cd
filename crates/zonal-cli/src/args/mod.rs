//! The command line: every subcommand, option and default, and the texts of `--help`.
//!
//! `cmd/` implements the subcommands, one file each.

pub(crate) mod compliance;
pub(crate) mod disk;
pub(crate) mod doctor;
pub(crate) mod features;
pub(crate) mod files;
pub(crate) mod map;
pub(crate) mod mount_options;
pub(crate) mod schemas;
pub(crate) mod serve;
pub(crate) mod sim;
pub(crate) mod simulated;
mod suggested;
pub(crate) mod sweep;
pub(crate) mod trace;

use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use zonal::{ByteCount, Profile, ZoneRuns, size};
use zonal_fs::furrow::{DumpWhat, Overwrite};

use features::Features;
use suggested::Suggested;

/// Zoned storage in user space: emulated zoned drives, and file systems on zoned drives.
///
/// A DEVICE is the path of a drive file or of a real drive, or a specification, as listed below.
#[derive(Parser)]
#[command(name = "zonal", version, max_term_width = 100)]
#[command(after_long_help = crate::device::help())]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every subcommand.
#[derive(Args, Clone)]
pub(crate) struct Global {
    /// Print JSON; failures too, as a line on standard error
    #[arg(long, global = true, help_heading = "Common options")]
    pub(crate) json: bool,
    /// Log more: -v the actions of the command, -vv each step
    #[arg(short, long, global = true, action = clap::ArgAction::Count, help_heading = "Common options")]
    pub(crate) verbose: u8,
    /// Log to this file
    #[arg(long, global = true, value_name = "FILE", help_heading = "Common options")]
    pub(crate) log: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Try Zonal: make a drive and a file system, do real work on it, verify every byte
    Quickstart(Quickstart),
    /// Create an emulated zoned drive in a sparse file or on a conventional disk
    Create(Create),
    /// Print the geometry of a device and the file system on it
    Info(Info),
    /// Report the zones of a device
    Zones(Zones),
    /// Open, close, finish or reset zones, or make them fail
    #[command(subcommand)]
    Zone(ZoneCommand),
    /// Read blocks
    Read(Read),
    /// Write blocks at an address
    Write(Write),
    /// Append blocks to a zone and print their address
    Append(Append),
    /// Measure a device and compare it with the limit of the machine
    Bench(Bench),
    /// Check whether a device follows the rules of its specification
    Compliance(compliance::Compliance),
    /// Find out why a drive is invisible, slow, read-only, full or stuck
    Doctor(doctor::Doctor),
    /// Show which zones a file lies in and which files a zone holds
    Map(map::Map),
    /// Make a Furrow file system
    Mkfs(Mkfs),
    /// Make a zonefs file system, in which every zone is a file
    Mkzonefs(Mkzonefs),
    /// Make and change ordinary disks inside a Furrow file system
    #[command(subcommand)]
    Disk(disk::DiskCommand),
    /// Mount a Furrow or zonefs file system
    Mount(Mount),
    /// Export devices over NVMe/TCP or as ublk block devices, and disks over NBD
    #[command(subcommand)]
    Serve(serve::ServeCommand),
    /// Print statistics of a mounted file system: space, zones, traffic, latencies
    Stats(Stats),
    /// Watch a mounted file system or a drive live on the terminal
    Top(Top),
    /// Reclaim zones of a mounted Furrow ahead of need, or pause reclaim
    Reclaim(Reclaim),
    /// Unmount a file system and wait until its device is clean and released
    Umount(Umount),
    /// Check a Furrow file system that is not mounted
    Check(Check),
    /// Print structures of a Furrow file system that is not mounted, one line of JSON each
    Dump(Dump),
    /// List files of a drive that is not mounted
    #[command(disable_help_flag = true)]
    Ls(files::List),
    /// Copy files to and from a drive that is not mounted, and between drives
    Cp(files::Copy),
    /// Print contents of files of a drive that is not mounted
    Cat(files::Cat),
    /// Print the attributes of files of a drive that is not mounted
    Stat(files::Stat),
    /// Remove files of a drive that is not mounted
    Rm(files::Remove),
    /// Move or rename a file of a drive that is not mounted
    Mv(files::Rename),
    /// Link a file of a drive that is not mounted
    Ln(files::Link),
    /// Make directories on a drive that is not mounted
    Mkdir(files::MakeDir),
    /// Print the free space of file systems that are not mounted
    Df(files::Space),
    /// Print and replay recorded traces
    #[command(subcommand)]
    Trace(TraceCommand),
    /// Simulate SSDs: conventional, zoned and FDP drives on the same flash
    #[command(subcommand)]
    Sim(sim::SimCommand),
    /// Print the completion script for a shell
    Completions(Completions),
    /// Write the manual pages
    Man(Man),
    /// Write a JSON Schema of what each command prints with --json
    Schemas(schemas::Schemas),
}

#[derive(Args)]
pub(crate) struct Quickstart {
    /// Directory tree to copy [default: part of the Rust toolchain or of /usr/share]
    #[arg(long, value_name = "DIR")]
    pub(crate) dir: Option<PathBuf>,
    /// Directory for the drive file and the mount point; if it is not empty, a new directory in it
    /// [default: a new one in /var/tmp]
    #[arg(long, value_name = "DIR")]
    pub(crate) place: Option<PathBuf>,
    /// Zone capacity of the drive, at most its zone size of 96 MiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) zone_capacity: Option<ByteCount>,
    /// Use the file system as a library instead of mounting it
    #[arg(long)]
    pub(crate) no_mount: bool,
}

#[derive(Args)]
pub(crate) struct Create {
    /// File to create; or a conventional disk or partition, which gets virtual zones
    pub(crate) file: PathBuf,
    /// Kind of drive; the options below change single properties [default: zns; on a disk, zones of
    /// 256 MiB without limits]
    #[arg(long, value_parser = profile())]
    pub(crate) profile: Option<Profile>,
    /// Size of the drive [default: the profile's; on a disk, all zones that fit]
    #[arg(long, value_parser = size::parse)]
    pub(crate) size: Option<ByteCount>,
    /// Make a directory of files of this size, whole MiB, instead of one file [default: one file;
    /// where files of the host's file system end below it, files as long as it takes]
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) piece_size: Option<ByteCount>,
    /// Number of zones, instead of a size
    #[arg(long, value_name = "COUNT", conflicts_with = "size")]
    pub(crate) zones: Option<u32>,
    /// Zone size: start of a zone to start of the next, in whole blocks
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) zone_size: Option<ByteCount>,
    /// Zone capacity: the writable part of a zone
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) zone_capacity: Option<ByteCount>,
    /// Block size: 512 or 4096
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) block_size: Option<ByteCount>,
    /// Conventional zones: how many at the start of the drive, or which ones, such as `0-3,100-103`
    #[arg(long, value_name = "ZONES")]
    pub(crate) conventional: Option<ZoneRuns>,
    /// Maximum number of open zones, 0 for no limit
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_open: Option<u32>,
    /// Maximum number of active zones, 0 for no limit
    #[arg(long, value_name = "COUNT")]
    pub(crate) max_active: Option<u32>,
    /// Largest zone append
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) max_append: Option<ByteCount>,
    /// UUID of the drive [default: random]
    #[arg(long)]
    pub(crate) uuid: Option<uuid::Uuid>,
    /// Overwrite an existing file, or the contents of a disk
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// The profiles by name, so that help and errors list them.
fn profile() -> impl TypedValueParser<Value = Profile> {
    PossibleValuesParser::new(Profile::ALL.map(Profile::name)).try_map(|name| name.parse())
}

#[derive(Args)]
pub(crate) struct Info {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
}

#[derive(Args)]
pub(crate) struct Zones {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Draw a map of all zones instead of a table
    #[arg(long)]
    pub(crate) map: bool,
    /// Width of the map in characters [default: the terminal's]
    #[arg(long, requires = "map")]
    pub(crate) width: Option<u16>,
    /// First zone
    #[arg(long, value_name = "ZONE", default_value_t = 0, conflicts_with = "map")]
    pub(crate) first: u32,
    /// Number of zones [default: all]
    #[arg(long, conflicts_with = "map")]
    pub(crate) count: Option<u32>,
}

#[derive(Subcommand)]
pub(crate) enum ZoneCommand {
    /// Open zones explicitly
    Open(ZoneTarget),
    /// Close zones, which stay active
    Close(ZoneTarget),
    /// Finish zones: make them Full
    Finish(ZoneTarget),
    /// Reset zones: make them Empty; their data is lost
    Reset(ZoneTarget),
    /// Make zones of an emulated drive ReadOnly, permanently
    ReadOnly(FailTarget),
    /// Make zones of an emulated drive Offline, permanently: no reads, no writes
    Offline(FailTarget),
    /// Activate a realm of a hybrid drive in another zone domain; its zones must be empty
    Activate(RealmTarget),
}

/// Whether a command may change a device that holds a file system.
#[derive(Args, Clone, Copy)]
pub(crate) struct Force {
    /// Change the device although it holds a file system, which this can destroy
    #[arg(short, long)]
    force: bool,
}

impl Force {
    pub(crate) const fn overwrite(self) -> Overwrite {
        if self.force { Overwrite::Force } else { Overwrite::Refuse }
    }
}

#[derive(Args)]
pub(crate) struct RealmTarget {
    /// Device: the SCSI generic node of a drive with zone realms, or `sg:` and its serial number
    pub(crate) device: String,
    /// Realm, as `zonal info` lists them
    pub(crate) realm: u32,
    /// Zone domain in which the realm becomes active
    #[arg(long)]
    pub(crate) domain: u8,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Args)]
pub(crate) struct FailTarget {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Zones
    #[arg(required = true)]
    pub(crate) zones: Vec<u32>,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Args)]
#[command(group = clap::ArgGroup::new("which").required(true))]
pub(crate) struct ZoneTarget {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Zones
    #[arg(group = "which")]
    pub(crate) zones: Vec<u32>,
    /// All zones whose condition allows the action
    #[arg(long, group = "which")]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Args)]
pub(crate) struct Read {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// First block
    #[arg(long)]
    pub(crate) lba: u64,
    /// Number of blocks
    #[arg(long, visible_alias = "count", default_value_t = 1)]
    pub(crate) blocks: u64,
    /// File to write the data to; - is standard output [default: standard output]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args)]
pub(crate) struct Write {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// First block
    #[arg(long)]
    pub(crate) lba: u64,
    /// File with the data, padded with zeroes to whole blocks [default: standard input]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Args)]
pub(crate) struct Append {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Zone
    #[arg(long)]
    pub(crate) zone: u32,
    /// File with the data, padded with zeroes to whole blocks [default: standard input]
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Args)]
pub(crate) struct Bench {
    /// Device; `mem:` is a drive in memory
    #[arg(default_value = "mem:")]
    pub(crate) device: String,
    /// Operations to measure, one after the other
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = [Op::Write, Op::Append, Op::Read, Op::Randread])]
    pub(crate) op: Vec<Op>,
    /// Bytes per operation
    #[arg(long, value_name = "SIZE", value_delimiter = ',', default_value = "4KiB,128KiB", value_parser = size::parse)]
    pub(crate) block_size: Vec<ByteCount>,
    /// Number of threads, each with zones of its own
    #[arg(long, default_value_t = 1)]
    pub(crate) threads: u32,
    /// Seconds per measurement
    #[arg(long, default_value_t = 2.0)]
    pub(crate) seconds: f64,
    /// Operations in flight in each zone, on a simulated drive; a write has one
    #[arg(long, value_name = "COUNT", default_value_t = 1)]
    pub(crate) queue_depth: u32,
    /// Zones in use at once, on a simulated drive [default: one for each thread]
    #[arg(long, value_name = "COUNT")]
    pub(crate) zones: Option<u32>,
    /// Write 128 KiB at a time during the operations, so much a second, on a simulated drive
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    pub(crate) beside_writes: Option<ByteCount>,
    /// Reset full zones during the operations, on a simulated drive
    #[arg(long, conflicts_with = "beside_writes")]
    pub(crate) beside_resets: bool,
    /// Reset zones that hold data if there are too few empty ones, also on a device that holds a
    /// file system
    #[arg(short, long)]
    pub(crate) force: bool,
}

/// An operation that a benchmark measures.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Op {
    /// Write at the write pointer
    Write,
    /// Zone append
    Append,
    /// Sequential reads
    Read,
    /// Random reads
    Randread,
}

#[derive(Args)]
pub(crate) struct Mkfs {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Label of the file system
    #[arg(short = 'L', long, default_value = "")]
    pub(crate) label: String,
    /// UUID of the file system [default: a random one]
    #[arg(short = 'U', long)]
    pub(crate) uuid: Option<uuid::Uuid>,
    /// Part of the drive that files never get, so that reclaim stays cheap
    #[arg(long, value_name = "PERCENT", default_value_t = 7, value_parser = clap::value_parser!(u8).range(1..=50))]
    pub(crate) reserve: u8,
    /// Overwrite the contents of the device
    #[arg(short, long)]
    pub(crate) force: bool,
    /// Drive for the metadata, such as an SSD; the other one has a second copy
    #[arg(long, value_name = "DEVICE")]
    pub(crate) metadata: Option<String>,
    /// Only print how mkfs would divide the zones
    #[arg(long, conflicts_with = "force")]
    pub(crate) dry_run: bool,
}

#[derive(Args)]
pub(crate) struct Mkzonefs {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Label of the file system, at most 63 bytes
    #[arg(short = 'L', long, default_value = "")]
    pub(crate) label: String,
    /// UUID of the file system [default: a random one]
    #[arg(short = 'U', long)]
    pub(crate) uuid: Option<uuid::Uuid>,
    /// Comma-separated features: `aggr_cnv` joins neighbouring conventional zones into one file;
    /// `uid=N`, `gid=N` and `perm=OCTAL` set owner, group and permissions of all files
    #[arg(short = 'o', value_name = "FEATURES")]
    pub(crate) features: Vec<Features>,
    /// Overwrite the contents of the device
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Args)]
#[command(after_long_help = mount_options::help())]
pub(crate) struct Mount {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Mount point
    pub(crate) dir: PathBuf,
    /// Type of file system [default: that of the device]
    #[arg(short = 't', long = "type", value_name = "TYPE")]
    pub(crate) kind: Option<FsKind>,
    /// Mount read-only
    #[arg(short, long)]
    pub(crate) read_only: bool,
    /// Comma-separated mount options; `zonal mount --help` ends with the list
    #[arg(short, value_name = "OPTIONS", value_parser = Suggested(mount_options::completions), hide_possible_values = true)]
    pub(crate) options: Vec<String>,
    /// Stay in the foreground until unmounted
    #[arg(short, long)]
    pub(crate) foreground: bool,
    /// At the unmount, write to this file how many bytes the device got, as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) counts: Option<PathBuf>,
    /// Print nothing on success, as mount(8) expects
    #[arg(short, long)]
    pub(crate) quiet: bool,
}

/// A type of file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum FsKind {
    /// POSIX file system
    Furrow,
    /// Every zone a file
    Zonefs,
}

impl FsKind {
    /// Its name, as mount(8) has it.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Furrow => "furrow",
            Self::Zonefs => "zonefs",
        }
    }
}

#[derive(Args)]
pub(crate) struct Stats {
    /// Mount point, or the device that is mounted
    pub(crate) dir: PathBuf,
    /// Repeat at this interval, with rates, until interrupted [default: 2]
    #[arg(short, long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    pub(crate) watch: Option<f64>,
}

#[derive(Args)]
pub(crate) struct Top {
    /// Mount point or device to watch
    #[arg(value_name = "DIR|DEVICE")]
    pub(crate) what: String,
    /// Seconds between updates, from 0.1 to 60
    #[arg(short, long, value_name = "SECONDS", default_value_t = 1.0)]
    pub(crate) interval: f64,
}

#[derive(Args)]
pub(crate) struct Reclaim {
    /// Mount point, or the device that is mounted
    pub(crate) dir: PathBuf,
    /// Stop when this share of the unused space can be written [default: go on as long as a zone is
    /// at most 95 % live]
    #[arg(long, value_name = "PERCENT", value_parser = clap::value_parser!(u8).range(1..=100))]
    pub(crate) until: Option<u8>,
    /// Pause background reclaim until --resume or the unmount; writers still reclaim while free
    /// space is short
    #[arg(long, conflicts_with_all = ["until", "resume"])]
    pub(crate) pause: bool,
    /// Resume background reclaim
    #[arg(long, conflicts_with = "until")]
    pub(crate) resume: bool,
}

#[derive(Args)]
pub(crate) struct Umount {
    /// Mount point, or the device that is mounted
    pub(crate) dir: PathBuf,
    /// Seconds to wait for a clean device
    #[arg(long, default_value_t = 600)]
    pub(crate) timeout: u64,
    /// Detach the mount now, even if it is busy; it ends when its last file is closed. Does not
    /// wait for a clean device
    #[arg(short, long)]
    pub(crate) lazy: bool,
    /// End the mount now, even if programs use it, its process hangs or only other mount
    /// namespaces have it: programs get errors. Does not wait for a clean device
    #[arg(short, long)]
    pub(crate) force: bool,
}

#[derive(Args)]
pub(crate) struct Check {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Also read all data and verify its checksums
    #[arg(long)]
    pub(crate) data: bool,
    /// Memory limit, in addition to some 100 MiB; less means more passes over the metadata
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256M")]
    pub(crate) memory: ByteCount,
}

#[derive(Args)]
pub(crate) struct Dump {
    /// Device: a path or a specification; see `zonal --help`
    pub(crate) device: String,
    /// Structures to print
    #[arg(value_parser = structure())]
    pub(crate) what: DumpWhat,
}

/// The structures by name, so that help and errors list them.
fn structure() -> impl TypedValueParser<Value = DumpWhat> {
    PossibleValuesParser::new(DumpWhat::ALL.map(|(name, _)| name)).try_map(|given| {
        let found = DumpWhat::ALL.into_iter().find(|(name, _)| *name == given);
        found.map(|(_, what)| what).ok_or("not a structure")
    })
}

#[derive(Subcommand)]
pub(crate) enum TraceCommand {
    /// Print the operations of a trace and the number of each kind
    Print(trace::Print),
    /// Repeat the operations of a trace and compare each result with the recorded one
    Replay(Replay),
}

#[derive(Args)]
pub(crate) struct Replay {
    /// Trace that a `trace(FILE):` layer recorded
    pub(crate) trace: PathBuf,
    /// Device of the same geometry, in the same state as when the recording began
    pub(crate) device: String,
    #[command(flatten)]
    pub(crate) force: Force,
}

#[derive(Args)]
pub(crate) struct Completions {
    /// Shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Args)]
pub(crate) struct Man {
    /// Directory for the pages
    pub(crate) dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn cli_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    /// Checks a command and those below it.
    fn helps_alike(command: &clap::Command, path: &[&str]) {
        let told = |line: Vec<&str>| match Cli::try_parse_from(line.iter()) {
            Err(error) if error.kind() == clap::error::ErrorKind::DisplayHelp => error.to_string(),
            Err(error) => panic!("{line:?}: {error}"),
            Ok(_) => panic!("{line:?} is no question"),
        };
        let asked = told([&["zonal", "help"], path].concat());
        assert_eq!(asked, told([&["zonal"], path, &["--help"]].concat()), "{path:?}");
        for below in command.get_subcommands().filter(|below| below.get_name() != "help") {
            helps_alike(below, &[path, &[below.get_name()]].concat());
        }
    }

    #[test]
    fn help_subcommand_equals_help_option() {
        let mut command = Cli::command();
        command.build();
        helps_alike(&command, &[]);
        let error = Cli::try_parse_from(["zonal", "help", "sparkle"]).err().unwrap();
        assert_eq!(error.exit_code(), 2);
    }

    #[test]
    fn create_parses_decimal_sizes() {
        let cli = Cli::try_parse_from(["zonal", "create", "x", "--size", "1.92TB"]).unwrap();
        let Command::Create(create) = cli.command else { panic!("not create") };
        assert_eq!(create.size, Some(ByteCount::new(1_920_000_000_000)));
    }
}
