//! How far is the NVMe/TCP target from what TCP on this machine allows?
//!
//! Run it with `cargo bench -p zonal-nvme --bench nvme_tcp`; words after `--` choose rows by part
//! of their name. Servers are processes of their own; the host is this one, with one connection.
//! All take turns within each round, so that other load of the machine meets all of them. Figures
//! are medians of the rounds: operations per second and bytes per second by the clock, and
//! processor time of the server alone, in user space and kernel, per operation; and the medians of
//! the ratios of the rounds.
//!
//! - The limit is a server that sends and receives the same PDUs of the same sizes, from and to the
//!   same buffer, and does nothing else ([`limit`]).
//! - The last row is of a device whose calls take 100 µs: how many reads are done in the time of
//!   one if 32 are outstanding.
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
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use bench_support::{KEEP_FREED, Machine, Report, WarmUp, interleave, threads_ns, timed};
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
/// How long each call of the slow device takes.
const LATENCY: Duration = Duration::from_micros(100);
/// Which server this process is to be.
const SERVE: &str = "ZONAL_BENCH_SERVE";

fn main() {
    match env::var(SERVE).as_deref() {
        Ok("limit") => return limit::serve(),
        Ok(_) => return serve(),
        Err(_) => {}
    }
    let mut words = env::args().skip(1).collect();
    let mut report = Report::begin("cargo bench -p zonal-nvme --bench nvme_tcp", &mut words);
    let is_wanted =
        |name: &str| words.is_empty() || words.iter().any(|word| name.contains(word.as_str()));
    let servers = [Process::start("limit"), Process::start("nvme")];
    report.subject("one connection", ROUNDS);
    for (name, work) in WORKS.into_iter().filter(|(name, _)| is_wanted(name)) {
        measure(&mut report, &servers, name, work);
    }
    if is_wanted(DEPTH) {
        report.subject("depth of NVMe/TCP", ROUNDS);
        measure_depth(&mut report);
    }
    report.end();
}

/// The row of a device whose calls take time.
const DEPTH: &str = "depth 32 beside depth 1";

/// Reads one at a time and 32 at a time, in turns, from a server in this process: so the requests
/// to the device can be counted.
fn measure_depth(report: &mut Report) {
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
    // µs by the clock, µs of both sides' processor time, and requests at the device at once.
    let turns = interleave(ROUNDS, works.len(), WarmUp::Round, |at| {
        let mut turn = host::Turn::prepare(address, host::Way::PDUs, works[at]);
        device.clear();
        let (took, ()) = timed(|| turn.run());
        let each = |seconds: f64| seconds * 1e6 / f64::from(works[at].count);
        let together = device.requests() as f64 / device.rounds() as f64;
        Some([each(took.wall), each(took.processor), together])
    });
    let of = |at: usize, which: usize| -> Vec<f64> {
        turns[at].iter().map(|turn: &[f64; 3]| turn[which]).collect()
    };
    let ratios: Vec<f64> = of(0, 0).iter().zip(of(1, 0)).map(|(one, all)| one / all).collect();
    report.add("a read, one at a time", "µs", &of(0, 0));
    report.add("a read, 32 at a time", "µs", &of(1, 0));
    report.add("a read, one at a time: processor time of both sides", "µs", &of(0, 1));
    report.add("a read, 32 at a time: processor time of both sides", "µs", &of(1, 1));
    report.add("32 at a time: at the device at once", "", &of(1, 2));
    report.add(DEPTH, "×", &ratios);
    server.stop().unwrap();
}

const WORKS: [(&str, Work); 4] = [
    ("read of 4 KiB, depth 32", Work { op: Op::Read, bytes: 4 << 10, depth: 32, count: 16_384 }),
    ("write of 4 KiB, depth 32", Work { op: Op::Write, bytes: 4 << 10, depth: 32, count: 16_384 }),
    ("read of 128 KiB, depth 8", Work { op: Op::Read, bytes: 128 << 10, depth: 8, count: 2048 }),
    ("write of 128 KiB, depth 8", Work { op: Op::Write, bytes: 128 << 10, depth: 8, count: 2048 }),
];

/// The targets that take turns: a server, and how the host speaks to it.
const TARGETS: [(&str, usize, host::Way); 4] = [
    ("the limit", 0, host::Way::PDUs),
    ("a stream", 0, host::Way::Stream),
    ("NVMe/TCP", 1, host::Way::PDUs),
    ("NVMe/TCP, digests", 1, host::Way::Digests),
];

fn measure(report: &mut Report, servers: &[Process; 2], name: &str, work: Work) {
    // Nanoseconds of an operation by the clock, and of the server's processor time.
    let turns = interleave(ROUNDS, TARGETS.len(), WarmUp::Round, |at| {
        let (_, server, way) = TARGETS[at];
        if way == host::Way::Stream && work.bytes < 128 << 10 {
            return None;
        }
        let server = &servers[server];
        let mut turn = host::Turn::prepare(server.address, way, work);
        let before = (threads_ns(server.child.id()), Machine.monotonic_ns());
        turn.run();
        let wall = Machine.monotonic_ns() - before.1;
        let time = server.processor_ns_since(&before.0);
        drop(turn);
        Some([wall, time].map(|ns| ns as f64 / f64::from(work.count)))
    });
    // Both as rates, so that more is better and ratios to the limit are below 1.
    let rates = |at: usize, which: usize| -> Vec<f64> {
        turns[at].iter().map(|turn: &[f64; 2]| 1e9 / turn[which]).collect()
    };
    for (at, (target, ..)) in TARGETS.iter().enumerate() {
        let (clock, core) = (rates(at, 0), rates(at, 1));
        report.add_beside((name, target), "operations per second", &clock, &rates(0, 0));
        report.add_beside((name, target), "operations per second and core", &core, &rates(0, 1));
        let bytes: Vec<f64> = clock.iter().map(|rate| rate * work.bytes as f64 / 1e9).collect();
        report.add_variant((name, target), "GB/s", &bytes);
        let time: Vec<f64> = core.iter().map(|rate| 1e6 / rate).collect();
        report.add_variant((name, target), "µs of the server", &time);
    }
}

/// A server in a process of its own.
struct Process {
    child: Child,
    address: SocketAddr,
}

impl Process {
    fn start(what: &str) -> Self {
        let mut child = Command::new(env::current_exe().expect("a program knows its path"))
            .env(SERVE, what)
            .envs(KEEP_FREED)
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

    /// Processor time of its threads since `before`.
    fn processor_ns_since(&self, before: &BTreeMap<PathBuf, u64>) -> u64 {
        let used = |(path, now)| now - before.get(&path).copied().unwrap_or(0);
        threads_ns(self.child.id()).into_iter().map(used).sum()
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
