//! MariaDB with its RocksDB engine: all commits are there, and its tables are in order, after its
//! processes were killed, and after the daemon was.

use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use crate::numbers::Numbers;
use crate::place::Place;
use crate::server::{Server, as_user};
use crate::{await_success, find, run, text};

const SHAPE: [&str; 6] = ["--zones", "100", "--zone-size", "24MiB", "--zone-capacity", "20MiB"];

/// Small memtables and files, so that there are flushes and compactions.
const SMALL: &str = "--rocksdb-default-cf-options=write_buffer_size=2m;target_file_size_base=1m";

#[test]
#[ignore = "needs root, MariaDB and a minute; run by cargo xtask test --all"]
fn mariadb_keeps_commits_on_rocksdb() {
    let (Some(program), Some(install)) = (find("mariadbd"), find("mariadb-install-db")) else {
        return;
    };
    // Unpacked by `cargo xtask test`, or installed.
    let unpacked = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/tools/debian/usr");
    let is_unpacked = program.ancestors().any(|folder| folder.ends_with("tools"));
    let folder = if is_unpacked { unpacked.canonicalize().unwrap() } else { PathBuf::from("/usr") };
    if !folder.join("lib/mysql/plugin/ha_rocksdb.so").is_file() {
        println!("SKIP: mariadb-plugin-rocksdb is not installed");
        return;
    }
    let Some(place) = Place::new(&SHAPE) else { return };
    let base = Base { place, program, folder };
    let data = base.place.dir().join("data");
    let data = format!("--datadir={}", text(&data));
    let mut install = as_user(&install);
    install.args(["--no-defaults", "--auth-root-authentication-method=normal", "--skip-test-db"]);
    run(install.args([&data, &base.base()]));
    let server = base.start();
    base.sql(
        "CREATE DATABASE d; USE d; CREATE TABLE numbers (number int PRIMARY KEY);
         CREATE TABLE texts (number int PRIMARY KEY, text text, KEY (text(20)));
         INSERT INTO texts SELECT seq, repeat(md5(seq), 10) FROM seq_1_to_30000",
    );
    let last = base.kill_while_it_writes(server, Killed::Server, 0);
    let server = base.start();
    let last = base.kill_while_it_writes(server, Killed::Daemon, last);
    let server = base.start();
    base.check(last, last);
    server.ask_to_end(Signal::TERM);
    base.place.unmount();
    base.place.check();
}

#[derive(Clone, Copy)]
enum Killed {
    Server,
    Daemon,
}

struct Base {
    place: Place,
    program: PathBuf,
    folder: PathBuf,
}

impl Base {
    fn base(&self) -> String {
        format!("--basedir={}", text(&self.folder))
    }

    fn client(&self) -> String {
        let (client, socket) = (find("mariadb").unwrap(), self.place.path("socket"));
        format!("{} --no-defaults -S {} -n -N -B", text(&client), text(&socket))
    }

    fn start(&self) -> Server {
        let path = |option: &str, path: &Path| format!("--{option}={}", text(path));
        let data = self.place.dir().join("data");
        let paths = [
            path("basedir", &self.folder),
            path("plugin-dir", &self.folder.join("lib/mysql/plugin")),
            path("datadir", &data),
            path("pid-file", &data.join("pid")),
            path("socket", &self.place.path("socket")),
        ];
        let mut arguments = vec!["--no-defaults", "--skip-networking", "--skip-grant-tables"];
        arguments.extend(["--plugin-load-add=ha_rocksdb", "--default-storage-engine=RocksDB"]);
        arguments.push(SMALL);
        arguments.extend(paths.iter().map(String::as_str));
        let server = Server::start(&self.program, &arguments, &self.place.path("mariadb.log"));
        await_success(&format!("{} -e 'SELECT 1'", self.client()), &[]);
        server
    }

    fn sql(&self, statements: &str) -> String {
        let script = format!("exec {} -e \"$1\"", self.client());
        run(Command::new("sh").args(["-c", &script, "sh", statements]))
    }

    /// Kills while numbers are committed and texts are replaced, then checks the database.
    fn kill_while_it_writes(&self, server: Server, killed: Killed, last: u32) -> u32 {
        let client = format!("exec {} d", self.client());
        let mut numbers = Numbers::write(last, &client);
        let statement =
            "UPDATE texts SET text = repeat(md5(number + &), 10) WHERE number % 7 = & % 7;";
        let load = format!("seq 10000 | sed 's/.*/{statement}/' | {client}");
        let mut load = Command::new("sh").args(["-c", &load]).spawn().unwrap();
        numbers.wait_for(1500);
        if matches!(killed, Killed::Daemon) {
            self.place.kill_daemon();
        }
        server.kill();
        let acknowledged = numbers.end();
        load.wait().unwrap();
        match killed {
            Killed::Server => self.place.unmount(),
            Killed::Daemon => self.place.clear(),
        }
        self.place.mount("");
        let server = self.start();
        // The commit in progress may have succeeded.
        let found = self.check(acknowledged, acknowledged + 1);
        server.ask_to_end(Signal::TERM);
        found
    }

    /// Every number from 1 to one in this range is there, and the tables are in order.
    fn check(&self, least: u32, most: u32) -> u32 {
        let found = self.sql("SELECT count(*), max(number) FROM d.numbers");
        let (count, last) = found.trim().split_once('\t').unwrap();
        assert_eq!(count, last, "there are gaps");
        let last: u32 = last.parse().unwrap();
        assert!((least..=most).contains(&last), "{last} numbers, {least} were committed");
        let told = self.sql("CHECK TABLE d.numbers, d.texts EXTENDED");
        assert_eq!(told.matches("status\tOK").count(), 2, "{told}");
        assert_eq!(self.sql("SELECT count(*) FROM d.texts").trim(), "30000");
        last
    }
}
