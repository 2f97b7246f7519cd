//! Ceph: it has every acknowledged object with its content, and BlueStore's check finds no error,
//! after the OSD was killed and after the daemon of the mount was.

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::place::Place;
use crate::server::wait_for_end;
use crate::{find, page, text};

/// Objects that are acknowledged before the daemon of the mount is killed.
const OBJECTS: usize = 40;

#[test]
#[ignore = "needs root and Ceph; run by cargo xtask test"]
fn ceph_keeps_acknowledged_objects() {
    let Some(programs) = find("ceph-osd") else { return };
    let Some(place) = Place::unmade("data") else { return };
    let cluster = Cluster { place, programs: programs.parent().unwrap().to_path_buf() };
    let blocks = page::blocks("ceph.md");
    let [make, start, fill, kill, end] = &blocks[..] else { panic!("{blocks:?}") };
    // Another cluster may listen on the port of the page.
    let start = start.replace(":6789", &format!(":{}", free_port()));
    cluster.run(make);
    cluster.run(&start);
    cluster.run(fill);
    let told = cluster.run(kill);
    assert!(told.contains("fsck success"), "{told}");

    let acknowledged = cluster.lose_the_mount();
    cluster.place.mount("");
    let told = cluster.run("ceph-bluestore-tool fsck --deep yes --path data/osd");
    assert!(told.contains("fsck success"), "{told}");
    cluster.run("ceph-mon -i a; ceph-osd -i 0");
    for object in &acknowledged {
        let told = cluster.run(&format!("rados -p objects get {object} -"));
        assert_eq!(told, format!("content of {object}\n"));
    }
    let told = cluster.run(end);
    assert!(told.contains(": clean, "), "{told}");
}

/// A port without a listener. The kernel gives ports from 32,768 on to connections, so another test
/// could take one of those before the cluster does.
fn free_port() -> u16 {
    let first = 20_000 + u16::try_from(std::process::id() % 10_000).unwrap();
    let mut ports = first..32_768;
    ports.find(|&port| TcpListener::bind(("127.0.0.1", port)).is_ok()).unwrap()
}

/// Shows the last lines of the output of the commands and of the servers' logs if the test fails.
struct ShownAtPanic<'a>(&'a Place);

impl Drop for ShownAtPanic<'_> {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            return;
        }
        for name in ["logs/mon.a.log", "logs/osd.0.log", "told"] {
            let text = fs::read(self.0.path(name)).unwrap_or_default();
            let text = String::from_utf8_lossy(&text);
            let lines: Vec<&str> = text.lines().collect();
            let last = lines.len().saturating_sub(30);
            eprintln!("the end of {name}:\n{}", lines[last..].join("\n"));
        }
    }
}

struct Cluster {
    place: Place,
    programs: PathBuf,
}

impl Cluster {
    /// Runs commands as the page does. Their output goes to a file: the servers keep it open, so a
    /// pipe would have no end.
    fn run(&self, commands: &str) -> String {
        let told = self.place.path("told");
        let mut shell = Command::new("sh");
        self.configure(&mut shell);
        let commands = format!("exec > told 2>&1\n{commands}");
        let _shown = ShownAtPanic(&self.place);
        page::run_block(&commands, &self.place.path(""), &[&self.programs], shell);
        fs::read_to_string(&told).unwrap()
    }

    fn configure(&self, command: &mut Command) {
        command.env("CEPH_CONF", self.place.path("ceph.conf"));
    }

    /// Kills the daemon of the mount while objects are written, and ends the cluster. Returns the
    /// acknowledged objects.
    fn lose_the_mount(&self) -> Vec<String> {
        let put = "for n in $(seq 100000); do
                       echo content of o$n | \"$1\" -p objects put o$n - && echo o$n || exit
                   done";
        let mut shell = Command::new("setsid");
        shell.args(["sh", "-c", put, "sh", text(&self.programs.join("rados"))]);
        self.configure(&mut shell);
        shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut writer = shell.spawn().unwrap();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let mut lines = lines.map_while(Result::ok);
        let mut acknowledged: Vec<String> = lines.by_ref().take(OBJECTS).collect();
        self.place.kill_daemon();
        self.end_servers();
        // `rados` waits for an OSD for ever; `setsid` made the shell the leader of its group.
        let group = Pid::from_raw(writer.id().cast_signed()).unwrap();
        rustix::process::kill_process_group(group, Signal::KILL).unwrap();
        acknowledged.extend(lines);
        writer.wait().unwrap();
        assert!(acknowledged.len() >= OBJECTS, "{acknowledged:?}");
        self.place.clear();
        acknowledged
    }

    /// Kills the servers that still run.
    fn end_servers(&self) {
        for name in ["osd.0", "mon.a"] {
            let file = self.place.path("run").join(format!("{name}.pid"));
            let Ok(number) = fs::read_to_string(&file) else { continue };
            let Some(pid) = number.trim().parse().ok().and_then(Pid::from_raw) else { continue };
            let Ok(process) = pidfd_open(pid, PidfdFlags::empty()) else { continue };
            // Another process may have the number of a server that has ended.
            let command = format!("/proc/{}/cmdline", pid.as_raw_nonzero());
            if fs::read_to_string(command).is_ok_and(|command| command.contains("ceph-")) {
                let _ = pidfd_send_signal(&process, Signal::KILL);
                wait_for_end(&process);
            }
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        self.end_servers();
    }
}
