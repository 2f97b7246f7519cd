//! How far is the NVMe/TCP target from what TCP on this machine allows?
//!
//! Run it with `cargo bench -p zonal-nvme --bench nvme_tcp`; words after `--` choose rows by part of
//! their name. Servers are processes of their own; the host is this one, with one connection. All
//! take turns within each round, so that what else the machine does meets all of them. Figures are
//! medians of the rounds: operations per second and bytes per second by the clock, and processor time
//! of the server alone, in user space and kernel, per operation; and the medians of the ratios of the
//! rounds.
//!
//! - The limit is a server that sends and receives the same PDUs of the same sizes, from and to the
//!   same buffer, and does nothing else ([`limit`]).
//! - The last row is of a device whose calls take 100 µs: how many reads are done in the time of one if 32
//!   are outstanding.
//! - For 128 KiB there is also a stream in one direction, without requests, as iperf has it.

#![expect(clippy::print_stdout, reason = "it is its result")]
#![expect(clippy::cast_precision_loss, reason = "figures for people")]
#![allow(
    clippy::unwrap_used,
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "shared with tests"
)]

mod host;
#[path = "../../tests/nvme_tcp/initiator.rs"]
mod initiator;
mod limit;

use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use zonal::layer::delay::Delay;
use zonal::spec::{Stack, open_stack};
use zonal::{Clock, OpenMode};
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::tcp::{MEMORY_MAX, Server};
use zonal_nvme::{Namespace, Subsystem};

use host::{Op, Work};

const ROUNDS: usize = 9;
const NQN: &str = "nqn.2026-11.localhost:bench";
/// Room for the longest turn.
const DEVICE: &str = "mem:zone=32M,zones=9";
/// How long each call takes of the device that takes time.
const LATENCY: Duration = Duration::from_micros(100);
/// Which server this process is to be.
const SERVE: &str = "ZONAL_BENCH_SERVE";

fn main() {
    match env::var(SERVE).as_deref() {
        Ok("limit") => return limit::serve(),
        Ok(_) => return serve(),
        Err(_) => {}
    }
    let words: Vec<String> = env::args().skip(1).filter(|word| !word.starts_with('-')).collect();
    let servers = [Process::start("limit"), Process::start("nvme")];
    for (name, work) in WORKS {
        if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
            measure(&servers, name, work);
        }
    }
    let name = "depth 32 beside depth 1";
    if words.is_empty() || words.iter().any(|word| name.contains(word.as_str())) {
        measure_depth(name);
    }
}

/// Reads one at a time and 32 at a time, in turns, from a server in this process: so what the device is
/// asked can be counted.
fn measure_depth(name: &str) {
    let stack = open_stack(DEVICE, OpenMode::ReadWrite, Arc::new(Machine)).unwrap();
    let device = Arc::new(Delay::new(Arc::clone(&stack.device), LATENCY));
    let server = start(Stack { device: device.clone(), ..stack });
    let address = server.addresses()[0];
    let works = [(1, 512), (32, 16_384)].map(|(depth, count)| Work {
        op: Op::Read,
        bytes: 4 << 10,
        depth,
        count,
    });
    let mut walls = [Vec::new(), Vec::new()];
    let (mut times, mut together) = (walls.clone(), Vec::new());
    for round in 0..=ROUNDS {
        for (work, (walls, times)) in works.into_iter().zip(walls.iter_mut().zip(&mut times)) {
            let mut turn = host::Turn::prepare(address, host::Way::PDUs, work);
            device.clear();
            let before = (Machine.monotonic_ns(), nanoseconds(ClockId::ProcessCPUTime));
            turn.run();
            let wall = Machine.monotonic_ns() - before.0;
            let time = nanoseconds(ClockId::ProcessCPUTime) - before.1;
            // The first round warms up.
            if round == 0 {
                continue;
            }
            walls.push(wall as f64 / f64::from(work.count));
            times.push(time as f64 / f64::from(work.count));
            if work.depth > 1 {
                together.push(device.requests() as f64 / device.rounds() as f64);
            }
        }
    }
    let mut ratios: Vec<f64> = walls[0].iter().zip(&walls[1]).map(|(one, all)| one / all).collect();
    ratios.sort_by(f64::total_cmp);
    let [one, all] = walls.map(|walls| median(walls) / 1e3);
    let [one_time, all_time] = times.map(|times| median(times) / 1e3);
    let [least, most] = [ratios[0], ratios[ratios.len() - 1]];
    println!(
        "{name}: {one:.1} and {all:.2} µs an operation, of both sides' processor time {one_time:.1} and {all_time:.2}, {:.1} in a batch, ratio {:.1} ({least:.1} to {most:.1})",
        median(together),
        ratios[ratios.len() / 2],
    );
    server.stop().unwrap();
}

const WORKS: [(&str, Work); 4] = [
    ("read of 4 KiB, depth 32", Work { op: Op::Read, bytes: 4 << 10, depth: 32, count: 16_384 }),
    ("write of 4 KiB, depth 32", Work { op: Op::Write, bytes: 4 << 10, depth: 32, count: 16_384 }),
    ("read of 128 KiB, depth 8", Work { op: Op::Read, bytes: 128 << 10, depth: 8, count: 2048 }),
    ("write of 128 KiB, depth 8", Work { op: Op::Write, bytes: 128 << 10, depth: 8, count: 2048 }),
];

/// What takes turns: a server, and how the host speaks to it.
const TARGETS: [(&str, usize, host::Way); 4] = [
    ("the limit", 0, host::Way::PDUs),
    ("a stream", 0, host::Way::Stream),
    ("NVMe/TCP", 1, host::Way::PDUs),
    ("NVMe/TCP, digests", 1, host::Way::Digests),
];

fn measure(servers: &[Process; 2], name: &str, work: Work) {
    let mut walls = TARGETS.map(|_| Vec::new());
    let mut times = walls.clone();
    for round in 0..=ROUNDS {
        for turn in 0..TARGETS.len() {
            let at = (round + turn) % TARGETS.len();
            let (_, server, way) = TARGETS[at];
            if way == host::Way::Stream && work.bytes < 128 << 10 {
                continue;
            }
            let server = &servers[server];
            let mut turn = host::Turn::prepare(server.address, way, work);
            let before = (server.processor_ns(), Machine.monotonic_ns());
            turn.run();
            let wall = Machine.monotonic_ns() - before.1;
            let time = server.processor_ns_since(&before.0);
            drop(turn);
            // The first round warms up.
            if round > 0 {
                walls[at].push(wall as f64 / f64::from(work.count));
                times[at].push(time as f64 / f64::from(work.count));
            }
        }
    }
    println!("{name}");
    for (at, (target, ..)) in TARGETS.iter().enumerate().filter(|(at, _)| !walls[*at].is_empty()) {
        let (wall, time) = (median(walls[at].clone()), median(times[at].clone()));
        let ratio =
            |of: &[Vec<f64>; 4]| median(of[0].iter().zip(&of[at]).map(|(a, b)| a / b).collect());
        println!(
            "    {target:18}{:9.0} op/s {:6.2} GB/s   server {:7.2} µs/op, {:9.0} op/s per core   ratio {:.2}, per core {:.2}",
            1e9 / wall,
            work.bytes as f64 / wall,
            time / 1e3,
            1e9 / time,
            ratio(&walls),
            ratio(&times),
        );
    }
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// A server in a process of its own.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(what: &str) -> Self {
        let limit = (1_u64 << 40).to_string();
        let mut child = Command::new(env::current_exe().expect("a program knows its path"))
            .env(SERVE, what)
            // Memory that a reset frees is kept: otherwise writes measure page faults.
            .env("MALLOC_TRIM_THRESHOLD_", &limit)
            .env("MALLOC_MMAP_THRESHOLD_", &limit)
            .env("MALLOC_TOP_PAD_", (64 << 20).to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("it runs once more");
        let mut line = String::new();
        let output = child.stdout.take().expect("it is piped");
        BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let address = line.trim().parse().expect("an address");
        Self { child, address }
    }

    /// Nanoseconds of processor time of each of its threads.
    fn processor_ns(&self) -> BTreeMap<PathBuf, u64> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id())).expect("it lives");
        let times = tasks.filter_map(|task| {
            let path = task.ok()?.path();
            // Some threads are of connections that are ending just now.
            let text = fs::read_to_string(path.join("schedstat")).ok()?;
            Some((path, text.split_whitespace().next()?.parse().ok()?))
        });
        times.collect()
    }

    /// What its threads have used since.
    fn processor_ns_since(&self, before: &BTreeMap<PathBuf, u64>) -> u64 {
        let used = |(path, now)| now - before.get(&path).copied().unwrap_or(0);
        self.processor_ns().into_iter().map(used).sum()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The target itself.
fn start(stack: Stack) -> Server {
    let namespace = Namespace::new(stack, DEVICE, [1; 16]).unwrap();
    let subsystem = Arc::new(Subsystem::new(NQN, vec![namespace], Hosts::All).unwrap());
    let anywhere = ["127.0.0.1:0".parse().unwrap()];
    Server::start(subsystem, &anywhere, MEMORY_MAX, Arc::new(Machine)).unwrap()
}

fn serve() {
    let stack = open_stack(DEVICE, OpenMode::ReadWrite, Arc::new(Machine)).unwrap();
    let server = start(stack);
    println!("{}", server.addresses()[0]);
    // Until the host ends this process.
    let _ = std::io::stdin().read_line(&mut String::new());
}

/// The clock of this machine.
struct Machine;

impl Clock for Machine {
    fn monotonic_ns(&self) -> u64 {
        nanoseconds(ClockId::Monotonic)
    }

    fn wall_ns(&self) -> i64 {
        i64::try_from(nanoseconds(ClockId::Realtime)).unwrap()
    }
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    let whole = u64::try_from(time.tv_sec).unwrap() * 1_000_000_000;
    whole + u64::try_from(time.tv_nsec).unwrap()
}
