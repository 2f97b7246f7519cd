//! Slow devices: a slow call delays only the commands that depend on it.

use std::sync::{Arc, Condvar, Mutex};

use zonal::error::Result;
use zonal::nvme::decode::{
    BlockRange, Durability, ReportCount, ReportForm, SendTarget, ZoneReceive, ZoneSend,
    ZoneSendAction,
};
use zonal::nvme::{Nsid, Opcode, SubmissionEntry, status};
use zonal::spec::Stack;
use zonal::{Lba, LbaCount, Select, Zone, ZoneAction, ZoneFailure, ZoneId, ZonedDevice};
use zonal_nvme::Namespace;
use zonal_nvme::extension::ExtensionSize;
use zonal_nvme::subsystem::Hosts;
use zonal_nvme::wire::event::Event;

use crate::initiator::{Host, Move, Style};
use crate::zones::listen;
use crate::{NQN, ONE, serve, serve_namespaces, stack};

const SHAPE: &str = "mem:zone=3M,zones=8,open=3,active=5";

/// A call that can be stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Report,
    Manage(ZoneId),
}

/// A device that stops in one kind of call until it may go on.
struct Gate {
    below: Arc<dyn ZonedDevice>,
    /// The call that is stopped, and how many wait in it.
    state: Mutex<(Option<Call>, u32)>,
    changed: Condvar,
}

impl Gate {
    fn around(stack: Stack) -> (Arc<Self>, Stack) {
        let gate = Self { below: stack.device, state: Mutex::default(), changed: Condvar::new() };
        let gate = Arc::new(gate);
        let device: Arc<dyn ZonedDevice> = gate.clone();
        (gate, Stack { device, ..stack })
    }

    fn stop(&self, call: Call) -> Stopped<'_> {
        self.state.lock().unwrap().0 = Some(call);
        Stopped(self)
    }

    /// Waits until a call is stopped.
    fn wait(&self) {
        drop(self.changed.wait_while(self.state.lock().unwrap(), |(_, count)| *count == 0));
    }

    fn pass(&self, call: Call) {
        let mut state = self.state.lock().unwrap();
        state.1 += 1;
        if state.0 == Some(call) {
            self.changed.notify_all();
        }
        let is_stopped = |state: &mut (Option<Call>, u32)| state.0 == Some(call);
        self.changed.wait_while(state, is_stopped).unwrap().1 -= 1;
    }
}

/// A call goes on when this is dropped, also by a test that fails.
struct Stopped<'a>(&'a Gate);

impl Drop for Stopped<'_> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap().0 = None;
        self.0.changed.notify_all();
    }
}

impl ZonedDevice for Gate {
    zonal::pass_on!(below: geometry, read, write, append, flush);

    fn report(&self, first: ZoneId, zones: &mut Vec<Zone>, limit: usize) -> Result<()> {
        self.pass(Call::Report);
        self.below.report(first, zones, limit)
    }

    fn manage(&self, zones: Select, action: ZoneAction) -> Result<()> {
        if let Select::One(zone) = zones {
            self.pass(Call::Manage(zone));
        }
        self.below.manage(zones, action)
    }
}

fn write(zone: u64) -> SubmissionEntry {
    let (blocks, durability) = (LbaCount::new(1), Durability::Volatile);
    BlockRange { first: Lba::new(zone * 768), blocks, durability }.encode(Opcode::WRITE, ONE)
}

#[test]
fn event_slow_report_delays_no_other_queue() {
    let (gate, stack) = Gate::around(stack(SHAPE));
    let failing = stack.failing.clone().unwrap();
    let (server, address, _) = serve(vec![stack], Hosts::All);
    let mut host = Host::connect(address, NQN, Style::PLAIN);
    let mut queue = host.queue(1).unwrap();
    let id = listen(&mut host);
    failing.fail_zone(ZoneId::new(3), ZoneFailure::ReadOnly).unwrap();
    let stopped = gate.stop(Call::Report);
    let refused = queue.command(write(3), &Move::Send(&[1; 4096]));
    assert_eq!(refused.err(), Some(status::ZONE_READ_ONLY));
    // After any command, the admin queue looks for events, unless it has done so already: then this
    // command waits for the report.
    let alive = SubmissionEntry::new(Opcode::KEEP_ALIVE, Nsid::NONE);
    host.admin.send(alive, &Move::Nothing);
    gate.wait();
    // A command that fails, since the error log belongs to the controller too.
    let refused = queue.command(write(3), &Move::Send(&[1; 4096]));
    assert_eq!(refused.err(), Some(status::ZONE_READ_ONLY));
    drop(stopped);
    let completions = [host.admin.next_completion(), host.admin.next_completion()];
    let event = completions.iter().find(|completion| completion.id.get() == id).unwrap();
    assert_eq!(Event::decode(event.result.get()), Some(Event::ZonesChanged(ONE)));
    server.stop().unwrap();
}

#[test]
fn controller_slow_report_delays_no_other_host() {
    let (gate, stack) = Gate::around(stack(SHAPE));
    let (server, address, _) = serve(vec![stack], Hosts::All);
    let host = Host::connect(address, NQN, Style::PLAIN);
    std::thread::scope(|scope| {
        let stopped = gate.stop(Call::Report);
        let other = scope.spawn(|| Host::connect(address, NQN, Style::PLAIN));
        gate.wait();
        let mut queue = host.queue(1).unwrap();
        queue.command(write(0), &Move::Send(&[1; 4096])).unwrap();
        drop(stopped);
        other.join().unwrap();
    });
    server.stop().unwrap();
}

#[test]
fn reset_slow_delays_no_other_zone_with_extensions() {
    let (gate, stack) = Gate::around(stack(SHAPE));
    let namespace = Namespace::new(stack, "x", [1; 16]).unwrap();
    let namespace = namespace.with_extensions(ExtensionSize::from_bytes(64).unwrap());
    let (server, address, _) = serve_namespaces(vec![namespace], Hosts::All);
    let host = Host::connect(address, NQN, Style::PLAIN);
    let (mut slow, mut other) = (host.queue(1).unwrap(), host.queue(2).unwrap());
    let reset = |zone: u64| {
        let action = ZoneSendAction::Manage(ZoneAction::Reset);
        ZoneSend { action, zones: SendTarget::Start(Lba::new(zone * 768)) }.encode(ONE)
    };
    let stopped = gate.stop(Call::Manage(ZoneId::new(1)));
    let id = slow.send(reset(1), &Move::Nothing);
    gate.wait();
    other.command(reset(2), &Move::Nothing).unwrap();
    let (first, bytes, form, count) =
        (Lba::ZERO, 4096, ReportForm::Extended, ReportCount::Reported);
    let report = ZoneReceive { first, bytes, form, only: None, count }.encode(ONE);
    other.command(report, &Move::Receive(bytes)).unwrap();
    drop(stopped);
    assert_eq!(slow.wait_for(id).0.status(), status::SUCCESS);
    server.stop().unwrap();
}
