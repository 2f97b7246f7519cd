//! PostgreSQL: all acknowledged commits are there, and every page and index is in order, after its
//! processes were killed, after the daemon was, and after the drive has lost power.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::Signal;

use crate::numbers::Numbers;
use crate::place::Place;
use crate::server::{Server, as_user};
use crate::{await_success, find, page, run, text};

const SHAPE: [&str; 6] = ["--zones", "60", "--zone-size", "24MiB", "--zone-capacity", "20MiB"];

/// How a run ends before its time.
#[derive(Clone, Copy, Debug)]
enum End {
    Server,
    Daemon,
    /// The write of the mount at which the drive loses power.
    Power(u32),
}

#[test]
#[ignore = "needs root and PostgreSQL; run by cargo xtask test"]
fn postgresql_keeps_commits() {
    survive(&[End::Server, End::Daemon, End::Power(400)]);
}

#[test]
#[ignore = "needs root, PostgreSQL and minutes; run by cargo xtask test --all"]
fn postgresql_keeps_commits_over_many_ends() {
    let later = |round: u32| [End::Power(37 + 211 * round), End::Daemon, End::Server];
    let ends: Vec<End> = (0..6).flat_map(later).collect();
    survive(&ends);
}

/// Starts PostgreSQL and ends it in each of these ways.
fn survive(ends: &[End]) {
    let Some(initdb) = find("initdb") else { return };
    let Some(place) = Place::new(&SHAPE) else { return };
    let base = Base { place, programs: initdb.parent().unwrap().to_path_buf() };
    let data = base.data();
    let data = text(&data);
    run(as_user(&initdb).args(["-D", data, "-U", "postgres", "-A", "trust", "--data-checksums"]));
    let server = base.start();
    base.client("pgbench", &["-q", "-i", "-s", "2", "postgres"]);
    base.sql("CREATE EXTENSION amcheck; CREATE TABLE numbers (number int PRIMARY KEY)");
    server.ask_to_end(Signal::INT);
    base.place.unmount();
    let mut last = 0;
    for &end in ends {
        last = base.run_until(end, last);
        println!("{end:?}: {last} commits");
    }
    base.place.mount("");
    let server = base.start();
    base.check(last, last);
    server.ask_to_end(Signal::INT);
    base.place.unmount();
    base.place.check();
}

struct Base {
    place: Place,
    programs: PathBuf,
}

impl Base {
    fn data(&self) -> PathBuf {
        self.place.dir().join("data")
    }

    fn start(&self) -> Server {
        let (data, socket) = (self.data(), self.place.path(""));
        // Shared memory in files of the cluster: the files of a killed server go with the drive.
        let settings = ["-c", "listen_addresses=", "-c", "dynamic_shared_memory_type=mmap"];
        let arguments = [&["-D", text(&data), "-k", text(&socket)], &settings[..]].concat();
        let log = self.place.path("postgresql.log");
        let server = Server::start(&self.programs.join("postgres"), &arguments, &log);
        await_success("\"$1\" -h \"$2\"", &[&self.program("pg_isready"), text(&socket)]);
        server
    }

    fn program(&self, name: &str) -> String {
        text(&self.programs.join(name)).to_owned()
    }

    fn command(&self, name: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.program(name));
        command.env("PGHOST", self.place.path("")).env("PGUSER", "postgres").args(arguments);
        command
    }

    fn client(&self, name: &str, arguments: &[&str]) -> String {
        run(&mut self.command(name, arguments))
    }

    fn sql(&self, statement: &str) -> String {
        let options = ["-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c"];
        self.client("psql", &[&options[..], &[statement, "postgres"]].concat())
    }

    /// Commits numbers from `last + 1` on until the end, then checks them. Returns the last number.
    fn run_until(&self, end: End, last: u32) -> u32 {
        match end {
            End::Power(write) => {
                self.place.mount(&format!("fault(write,nth={write},power-cut;seed={write}):"));
            }
            End::Server | End::Daemon => self.place.mount(""),
        }
        let server = self.start();
        let mut load = self.load();
        let mut numbers = Numbers::write(last, &self.number_client());
        match end {
            End::Power(_) => numbers.wait_for(usize::MAX),
            End::Server | End::Daemon => numbers.wait_for(150),
        }
        if matches!(end, End::Daemon) {
            self.place.kill_daemon();
        }
        server.kill();
        let acknowledged = numbers.end();
        load.wait().unwrap();
        match end {
            End::Server => self.place.unmount(),
            End::Daemon => self.place.clear(),
            End::Power(_) => self.place.unmount_by_force(),
        }
        self.place.mount("");
        let server = self.start();
        // The commit in progress may have succeeded.
        let found = self.check(acknowledged, acknowledged + 1);
        server.kill();
        self.place.unmount();
        // Not before: a batch that was being written may be in one copy only until the next mount.
        self.place.check();
        found
    }

    /// Transfers between accounts, for ever.
    fn load(&self) -> Child {
        let mut pgbench = self.command("pgbench", &["-n", "-c", "4", "-T", "600", "postgres"]);
        pgbench.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    /// The command that takes statements.
    fn number_client(&self) -> String {
        let (psql, host) = (self.program("psql"), self.place.path(""));
        let options = "-q -A -t -v ON_ERROR_STOP=1 -U postgres";
        format!("exec {psql} -h {} {options} postgres", text(&host))
    }

    /// Every number from 1 to one in this range is there, no transfer is half done, and every page
    /// and index is in order. Returns the last number.
    fn check(&self, least: u32, most: u32) -> u32 {
        let found = self.sql("SELECT count(*), coalesce(max(number), 0) FROM numbers");
        let (count, last) = found.trim().split_once('|').unwrap();
        assert_eq!(count, last, "there are gaps");
        let last: u32 = last.parse().unwrap();
        assert!((least..=most).contains(&last), "{last} numbers, {least} were committed");
        let sums = self.sql(
            "SELECT sum(abalance) FROM pgbench_accounts UNION ALL
             SELECT sum(bbalance) FROM pgbench_branches UNION ALL
             SELECT sum(tbalance) FROM pgbench_tellers UNION ALL
             SELECT coalesce(sum(delta), 0) FROM pgbench_history",
        );
        let sums: Vec<&str> = sums.lines().collect();
        assert!(sums.len() == 4 && sums.iter().all(|sum| sum == &sums[0]), "{sums:?}");
        self.client("pg_amcheck", &["--heapallindexed", "postgres"]);
        last
    }
}

#[test]
#[ignore = "needs root, PostgreSQL and SQLite; run by cargo xtask test"]
fn databases_page_commands_work() {
    let (Some(initdb), Some(sqlite)) = (find("initdb"), find("sqlite3")) else { return };
    let folders = [initdb.parent().unwrap(), sqlite.parent().unwrap()];
    let Some(place) = Place::unmade("data") else { return };
    let blocks = page::blocks("postgresql-sqlite.md");
    let [make, use_it, end] = &blocks[..] else { panic!("{blocks:?}") };
    // Here the user of the database is root's, under another name.
    let make = make.replace("-o postgres ", "");
    let shell = Path::new("sh");
    page::run_block(&make, &place.path(""), &folders, Command::new(shell));
    let told = page::run_block(use_it, &place.path(""), &folders, as_user(shell));
    assert!(told.contains("\nwal\nok\n"), "{told}");
    let told = page::run_block(end, &place.path(""), &folders, Command::new(shell));
    assert!(told.contains(": clean, "), "{told}");
}
