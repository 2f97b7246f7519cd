//! Ordinary disks that `zonal serve nbd` serves to Linux's own client: its limits, zeroes and
//! discards, file systems over several connections, and a server that is killed.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Lines, Read};
use std::ops::Range;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use memmap2::MmapMut;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::fs::OFlags;

use super::drive_with_disk::{DriveWithDisk, FILL};
use super::export::{bytes_written, queue_attribute, wait_for};
use super::plain_fs::PlainFs;
use super::side;
use xtask::run;
use xtask::tally::Tally;

/// The block device of the kernel's client.
const NODE: &str = "/dev/nbd0";

/// How a program hands its connections to the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// By `ioctl`: the program lives as long as the connections.
    Ioctl,
    /// By a message to the driver: the program ends at once.
    Netlink,
}

impl Way {
    /// `nbd-client`, and how it names the device: with a message, some take no path.
    fn client(self) -> (Command, &'static str) {
        let mut command = Command::new("nbd-client");
        match self {
            Self::Ioctl => {
                command.arg("-nonetlink");
                (command, NODE)
            }
            Self::Netlink => (command, "nbd0"),
        }
    }
}

/// All checks of this file.
pub(super) fn checks(tally: &mut Tally) {
    for block_size in [4096, 512] {
        let name = format!("NBD: what the kernel knows of a disk, with blocks of {block_size}");
        tally.check(&name, || attributes(block_size));
    }
    tally.check("NBD: ext4 over one connection", || {
        file_system(PlainFs::Ext4, Client { block_size: 512, way: Way::Ioctl, connections: 1 })
    });
    tally.check("NBD: XFS over four connections", || {
        file_system(PlainFs::Xfs, Client { block_size: 4096, way: Way::Netlink, connections: 4 })
    });
    tally.check("NBD: servers are killed while fio writes", killed);
}

/// A file system on the disk `one` of any drive.
pub(super) fn ext4_over(drive: &str) -> Result<()> {
    let client = Client { block_size: 4096, way: Way::Netlink, connections: 2 };
    let attached = Attached::start(&format!("{drive}//one"), client)?;
    let exercised = PlainFs::Ext4.exercise(Path::new(NODE), FILL / 4, || Ok(()))?;
    exercised.verify(Path::new(NODE))?;
    attached.end()
}

/// How a client comes.
#[derive(Clone, Copy)]
struct Client {
    /// The block size that the client passes to the kernel. It does not ask the server.
    block_size: u32,
    way: Way,
    connections: u32,
}

/// A server, and the kernel's client of it. Both end with this.
struct Attached {
    server: Child,
    /// Kept, since it may have more to say.
    _output: Lines<BufReader<ChildStdout>>,
    way: Way,
}

impl Attached {
    /// Serves a disk, and attaches it.
    fn start(disk: &str, client: Client) -> Result<Self> {
        let Client { block_size, way, connections } = client;
        run::quietly(Command::new("modprobe").arg("nbd"))?;
        let mut serve = Command::new(side::ZONAL);
        serve.args(["serve", "nbd", "--listen=127.0.0.1:0", disk]).stdout(Stdio::piped());
        let mut server = serve.spawn()?;
        let mut output = BufReader::new(server.stdout.take().context("its output")?).lines();
        let line = output.next().transpose()?.unwrap_or_default();
        let attached = Self { server, _output: output, way };
        let place =
            line.split_once(" is nbd://127.0.0.1:").and_then(|(_, rest)| rest.split_once('/'));
        let (port, name) =
            place.with_context(|| format!("zonal serve nbd {disk} said {line:?}"))?;
        let (mut client, device) = way.client();
        client.args(["-name", name, "-block-size", &block_size.to_string()]);
        // Not `-C`: 3.27 dies of it.
        client.args(["-connections", &connections.to_string(), "127.0.0.1", port, device]);
        run::quietly(&mut client)?;
        wait_for(|| Ok(size()? > 0))?;
        Ok(attached)
    }

    /// Detaches the disk, and ends the server, which has to end well.
    fn end(mut self) -> Result<()> {
        self.detach()?;
        run::quietly(Command::new("kill").arg(self.server.id().to_string()))?;
        let ended = self.server.wait()?;
        ensure!(ended.success(), "the server ended with {ended}");
        Ok(())
    }

    fn detach(&self) -> Result<()> {
        let (mut client, device) = self.way.client();
        run::quietly(client.args(["-d", device]))?;
        wait_for(|| Ok(size()? == 0))
    }

    fn kill(&mut self) -> Result<()> {
        self.server.kill()?;
        self.server.wait().map(drop).context("waiting for the killed server")
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        // All has ended already, if nothing went wrong.
        let _ = self.server.kill();
        let _ = self.server.wait();
        if Path::new("/sys/block/nbd0/pid").exists() {
            let (mut client, device) = self.way.client();
            let _ = run::quietly(client.args(["-d", device]));
        }
    }
}

/// Bytes of the disk; 0 while nothing is attached.
fn size() -> Result<u64> {
    let size = run::quietly(Command::new("blockdev").args(["--getsize64", NODE]))?;
    size.trim().parse().with_context(|| format!("{size:?} is no size"))
}

/// The limits that the kernel takes from the handshake, zeroes without data, and discards.
fn attributes(block_size: u32) -> Result<()> {
    let drive = DriveWithDisk::new(4096)?;
    let client = Client { block_size, way: Way::Ioctl, connections: 1 };
    let attached = Attached::start(&drive.disk(), client)?;
    let node = Path::new(NODE);
    ensure!(size()? == 320 << 20, "the disk has {} bytes", size()?);
    let logical = block_size.to_string();
    for (attribute, expected) in [
        ("write_cache", "write back"),
        ("fua", "1"),
        ("zoned", "none"),
        ("logical_block_size", &*logical),
    ] {
        let found = queue_attribute(node, attribute)?;
        ensure!(found == expected, "{attribute} is {found}, not {expected}");
    }
    for attribute in ["discard_max_hw_bytes", "write_zeroes_max_bytes"] {
        ensure!(queue_attribute(node, attribute)? != "0", "{attribute} is 0");
    }
    let ones = vec![1; 8 << 20];
    let file = File::options().write(true).open(node)?;
    file.write_all_at(&ones, 0)?;
    file.sync_all()?;
    drop(file);
    run_on_node("blkdiscard", &["--zeroout", "--offset=1M", "--length=1M"])?;
    run_on_node("fallocate", &["--punch-hole", "--offset=3M", "--length=1M"])?;
    run_on_node("fallocate", &["--zero-range", "--offset=5M", "--length=1M"])?;
    run_on_node("blkdiscard", &["--force", "--offset=7M"])?;
    let mut found = vec![0; 8 << 20];
    File::open(node)?.read_exact(&mut found)?;
    for (mib, part) in found.chunks(1 << 20).enumerate() {
        let expected = u8::from(mib % 2 == 0);
        let other = part.iter().position(|&byte| byte != expected);
        ensure!(other.is_none(), "byte {other:?} of MiB {mib} is not {expected}");
    }
    attached.end()?;
    drive.check()
}

fn run_on_node(program: &str, options: &[&str]) -> Result<()> {
    run::quietly(Command::new(program).args(options).arg(NODE)).map(drop)
}

/// A file system whose files survive a change of servers.
fn file_system(kind: PlainFs, client: Client) -> Result<()> {
    let drive = DriveWithDisk::new(4096)?;
    let attached = Attached::start(&drive.disk(), client)?;
    let exercised = kind.exercise(Path::new(NODE), FILL, || Ok(()))?;
    attached.end()?;
    let attached = Attached::start(&drive.disk(), client)?;
    exercised.verify(Path::new(NODE))?;
    attached.end()?;
    drive.check()
}

/// Requests fail when the server is killed, and the next server has all durable data.
fn killed() -> Result<()> {
    let seed = std::env::var("SEED").unwrap_or_else(|_| "7".to_owned());
    println!("SEED={seed}");
    let drive = DriveWithDisk::new(4096)?;
    let mut blocks = Blocks::new(seed.parse()?)?;
    let client = Client { block_size: 4096, way: Way::Ioctl, connections: 2 };
    for _ in 0..3 {
        let mut attached = Attached::start(&drive.disk(), client)?;
        blocks.verify().context("after another server was killed")?;
        blocks.write()?;
        killed_while_writing(&mut attached)?;
        // The client ends by itself.
        wait_for(|| Ok(size()? == 0))?;
    }
    let attached = Attached::start(&drive.disk(), client)?;
    blocks.verify()?;
    attached.end()?;
    drive.check()
}

/// Kills the server during many requests to blocks behind the ones that [`Blocks`] writes.
fn killed_while_writing(attached: &mut Attached) -> Result<()> {
    let (log, node) = ("/tmp/nbd-fio", Path::new(NODE));
    let (output, before) = (File::create(log)?, bytes_written(node)?);
    let file = direct(OFlags::empty())?;
    let mut fio = Command::new("fio");
    fio.args(["--name=job", "--rw=randwrite", "--bs=64k", "--direct=1", "--ioengine=libaio"]);
    fio.args(["--iodepth=32", "--offset=128M", "--size=128M", "--time_based", "--runtime=1h"]);
    fio.arg(format!("--filename={NODE}")).stdout(output.try_clone()?).stderr(output);
    let mut fio = fio.spawn()?;
    let waited =
        wait_for(|| Ok(fio.try_wait()?.is_some() || bytes_written(node)? >= before + (8 << 20)));
    let killed = waited.and_then(|()| attached.kill());
    if killed.is_err() {
        fio.kill()?;
    }
    let ended = fio.wait()?;
    killed?;
    let said = fs::read_to_string(log)?;
    ensure!(!ended.success() && said.contains("Input/output error"), "fio: {ended}\n{said}");
    ensure!(file.sync_all().is_err(), "a flush succeeded without a server");
    Ok(())
}

/// The disk, past the kernel's cache.
fn direct(more: OFlags) -> Result<File> {
    let flags = (OFlags::DIRECT | more).bits().cast_signed();
    File::options().read(true).write(true).custom_flags(flags).open(NODE).context("opening it")
}

/// Bytes of a block.
const BLOCK: usize = 4096;
/// How many are written.
const BLOCKS: usize = 16 << 10;
/// The most that are written at once.
const BLOCKS_AT_ONCE: usize = 64;

/// Blocks from the beginning of the disk on, each full of a number that says which block it is, and
/// which write it is from.
struct Blocks {
    random: ChaCha8Rng,
    buffer: MmapMut,
    writes: u64,
    states: Vec<State>,
}

/// The writes that a block may be from: `durable` to `last`, by number; 0 is none.
#[derive(Clone, Copy, Default)]
struct State {
    /// The last one.
    last: u64,
    /// The last one that is durable.
    durable: u64,
}

impl Blocks {
    fn new(seed: u64) -> Result<Self> {
        let buffer = MmapMut::map_anon(BLOCK * BLOCKS_AT_ONCE)?;
        let random = ChaCha8Rng::seed_from_u64(seed);
        Ok(Self { random, buffer, writes: 0, states: vec![State::default(); BLOCKS] })
    }

    /// Writes at random, with a flush now and then and some writes that are durable at once.
    fn write(&mut self) -> Result<()> {
        let (plain, durable) = (direct(OFlags::empty())?, direct(OFlags::DSYNC)?);
        for _ in 0..400 {
            let count = self.random.random_range(1..=BLOCKS_AT_ONCE);
            let first = self.random.random_range(0..=BLOCKS - count);
            self.writes += 1;
            for (block, bytes) in (first..).zip(self.buffer.chunks_mut(BLOCK)).take(count) {
                let number = self.writes << 32 | block as u64;
                bytes.chunks_mut(8).for_each(|word| word.copy_from_slice(&number.to_le_bytes()));
                self.states[block].last = self.writes;
            }
            let (at, data) = ((first * BLOCK) as u64, &self.buffer[..count * BLOCK]);
            match self.random.random_range(0..16) {
                0 | 1 => {
                    durable.write_all_at(data, at).context("a write that is durable at once")?;
                    self.make_durable(first..first + count);
                }
                2 => {
                    plain.write_all_at(data, at).context("a write")?;
                    plain.sync_data().context("a flush")?;
                    self.make_durable(0..BLOCKS);
                }
                _ => plain.write_all_at(data, at).context("a write")?,
            }
        }
        Ok(())
    }

    fn make_durable(&mut self, blocks: Range<usize>) {
        self.states[blocks].iter_mut().for_each(|state| state.durable = state.last);
    }

    /// Reads all blocks. Their content must not change from now on.
    fn verify(&mut self) -> Result<()> {
        let file = direct(OFlags::empty())?;
        for first in (0..BLOCKS).step_by(BLOCKS_AT_ONCE) {
            file.read_exact_at(&mut self.buffer, (first * BLOCK) as u64)?;
            for (block, bytes) in (first..).zip(self.buffer.chunks(BLOCK)) {
                let State { last, durable } = self.states[block];
                let found = write_of(bytes, block as u64);
                let found = found.with_context(|| format!("block {block} is mixed"))?;
                ensure!(
                    (durable..=last).contains(&found),
                    "block {block} is from write {found}; {durable} was durable, {last} the last"
                );
                self.states[block] = State { last: found, durable: found };
            }
        }
        Ok(())
    }
}

/// The write that a block is from, if all of it is from one.
fn write_of(bytes: &[u8], block: u64) -> Option<u64> {
    let mut words = bytes.chunks(8).map(|word| u64::from_le_bytes(word.try_into().expect("eight")));
    let first = words.next()?;
    let is_of_block = first == 0 || first & u64::from(u32::MAX) == block;
    (is_of_block && words.all(|word| word == first)).then_some(first >> 32)
}
