//! Clients of other projects: QEMU, libnbd, nbdkit, fio, nbd-client.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use zonal::BlockSize;
use zonal_nbd::server::MEMORY_MAX;
use zonal_nbd::{Address, Tls};

use crate::disk::TestDisk;
use crate::{Served, serve_with, settings};

const SIZE: u64 = 64 << 20;

/// A server that programs reach, and a folder for their files.
pub(crate) struct Reached {
    pub(crate) served: Served,
    pub(crate) dir: TempDir,
}

impl Reached {
    pub(crate) fn new(block_size: BlockSize, tls: Option<Tls>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut settings = settings(MEMORY_MAX, tls);
        settings.addresses.push(Address::Unix(dir.path().join("socket")));
        let disk = TestDisk::new(block_size, SIZE >> block_size.shift());
        Self { served: serve_with(disk, settings), dir }
    }

    /// The URI of the export over TCP; `scheme` is nbd or nbds.
    pub(crate) fn tcp(&self, scheme: &str) -> String {
        let Address::Tcp(address) = &self.served.address else { unreachable!("the first address") };
        format!("{scheme}://localhost:{}/disk", address.port())
    }

    /// The URI of the export over the Unix socket.
    fn unix(&self) -> String {
        format!("nbd+unix:///disk?socket={}", self.dir.path().join("socket").display())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// Whether a program is installed, after saying so if it is not.
pub(crate) fn has(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(name).is_file());
    if !found {
        println!("SKIP: {name} is not installed");
    }
    found
}

/// The output of a program, both streams, if it ended well; panics with the output otherwise.
pub(crate) fn run(program: &str, arguments: &[&str]) -> String {
    let mut command = Command::new(program);
    let output = command.args(arguments).stdin(Stdio::null()).output().unwrap();
    let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.push_str(&String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
    text
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A file of the size of the disk: data, with holes between.
fn sparse_file(path: &Path) -> Vec<u8> {
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut content = vec![0; usize::try_from(SIZE).unwrap()];
    for piece in content.chunks_mut(1 << 20).step_by(3) {
        rng.fill(&mut piece[..700 << 10]);
    }
    fs::write(path, &content).unwrap();
    content
}

#[test]
fn qemu_io_reads_what_it_writes() {
    if !has("qemu-io") {
        return;
    }
    for block_size in [BlockSize::B512, BlockSize::B4096] {
        let reached = Reached::new(block_size, None);
        for uri in [reached.tcp("nbd"), reached.unix()] {
            let said = run(
                "qemu-io",
                &[
                    "-f",
                    "raw",
                    "-c",
                    "write -P 0x5a 0 1M",
                    "-c",
                    "write -f -P 0x33 64k 64k",
                    "-c",
                    "write -z 128k 64k",
                    "-c",
                    "discard 192k 64k",
                    "-c",
                    "flush",
                    "-c",
                    "read -P 0x5a 0 64k",
                    "-c",
                    "read -P 0x33 64k 64k",
                    "-c",
                    "read -P 0 128k 128k",
                    "-c",
                    "read -P 0x5a 256k 768k",
                    "-c",
                    "aio_write -P 9 2M 8M",
                    "-c",
                    "aio_write -P 8 16M 8M",
                    "-c",
                    "aio_flush",
                    "-c",
                    "read -P 9 2M 8M",
                    "-c",
                    "read -P 8 16M 8M",
                    "-c",
                    "length",
                    "-c",
                    "map",
                    &uri,
                ],
            );
            assert!(!said.contains("failed") && said.contains("64 MiB"), "{said}");
        }
        assert!(reached.served.disk.flushes.load(Ordering::Relaxed) > 0);
    }
}

#[test]
fn qemu_img_copies_compares_and_maps() {
    if !has("qemu-img") {
        return;
    }
    let reached = Reached::new(BlockSize::B4096, None);
    let (from, to) = (reached.file("from"), reached.file("to"));
    let content = sparse_file(&from);
    let uri = reached.unix();
    let convert = ["convert", "-f", "raw", "-O", "raw"];
    let there = ["-n", "--target-is-zero", text(&from), &uri];
    run("qemu-img", &[&convert[..], &there].concat());
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&from), &uri]);
    let map = run("qemu-img", &["map", "-f", "raw", "--output=json", &uri]);
    assert!(map.matches("\"data\": true").count() >= 22, "{map}");
    assert!(map.matches("\"zero\": true").count() >= 21, "{map}");
    run("qemu-img", &[&convert[..], &[&reached.tcp("nbd"), text(&to)]].concat());
    assert!(fs::read(&to).unwrap() == content);
}

#[test]
fn libnbd_tools_list_map_and_copy() {
    if !has("nbdinfo") || !has("nbdcopy") {
        return;
    }
    let reached = Reached::new(BlockSize::B4096, None);
    let (from, to) = (reached.file("from"), reached.file("to"));
    let content = sparse_file(&from);
    let uri = reached.unix();
    run("nbdcopy", &["--connections=4", "--requests=64", text(&from), &uri]);
    let map = run("nbdinfo", &["--map", &uri]);
    assert!(map.contains("hole,zero") && map.lines().count() > 40, "{map}");
    run("nbdcopy", &["--connections=4", &reached.tcp("nbd"), text(&to)]);
    assert!(fs::read(&to).unwrap() == content);
    let all = run("nbdinfo", &["--list", &uri]);
    for part in [
        "newstyle-fixed without TLS, using structured packets",
        "export=\"disk\"",
        "description: of a test",
        "export-size: 67108864",
        "base:allocation",
        "can_multi_conn: true",
        "can_fast_zero: true",
        "can_fua: true",
        "can_df: true",
        "block_size_minimum: 4096",
        "block_size_maximum: 33554432",
    ] {
        assert!(all.contains(part), "no {part:?} in {all}");
    }
}

#[test]
fn nbdsh_gets_errors_and_status_as_the_protocol_has_them() {
    // The nbdsh of Debian's Python, even if another Python comes first in the path.
    if !has("nbdsh") {
        return;
    }
    let reached = Reached::new(BlockSize::B4096, None);
    let script = r#"
def refused(number, action):
    try:
        action()
    except nbd.Error as error:
        assert error.errno == number, error
    else:
        assert False, "it was not refused"
h.pwrite(b"x" * 65536, 4096, nbd.CMD_FLAG_FUA)
assert h.pread(65536, 4096) == b"x" * 65536
chunks = []
note = lambda data, at, kind, error: chunks.append((at, len(data), kind))
h.pread_structured(1 << 20, 0, note)
assert sorted(chunks) == [(0, 4096, 2), (4096, 65536, 1), (69632, 978944, 2)], chunks
chunks.clear()
h.pread_structured(1 << 20, 0, note, nbd.CMD_FLAG_DF)
assert chunks == [(0, 1 << 20, 1)], chunks
h.zero(8192, 4096, nbd.CMD_FLAG_NO_HOLE)
h.zero(4096, 16384, nbd.CMD_FLAG_FAST_ZERO)
h.trim(4096, 24576)
entries = []
h.block_status(40960, 0, lambda name, at, list, error: entries.extend(list))
assert entries == [4096, 3, 8192, 2, 4096, 0, 4096, 3, 4096, 0, 4096, 3, 12288, 0], entries
h.set_strict_mode(0)
refused("EINVAL", lambda: h.pread(512, 512))
refused("EINVAL", lambda: h.pread(4096, 64 << 20))
refused("ENOSPC", lambda: h.pwrite(b"y" * 4096, 64 << 20))
refused("EINVAL", lambda: h.trim(4096, 64 << 20))
refused("ENOTSUP", lambda: h.zero(4096, 0, nbd.CMD_FLAG_FAST_ZERO | nbd.CMD_FLAG_NO_HOLE))
h.flush()
h.shutdown()
"#;
    let arguments = ["-m", "nbd", "--base-allocation", "-u", &reached.unix(), "-c", script];
    run("/usr/bin/python3", &arguments);
}

#[test]
fn fio_verifies_what_it_writes() {
    if !has("fio") {
        return;
    }
    let reached = Reached::new(BlockSize::B4096, None);
    let uri = format!("--uri={}", reached.unix());
    let said = run(
        "fio",
        &[
            "--name=disk",
            "--ioengine=nbd",
            &uri,
            "--rw=randrw",
            "--bsrange=4k-128k",
            "--ba=4k",
            "--bs_unaligned=0",
            "--iodepth=32",
            "--size=64m",
            "--verify=crc32c",
            "--do_verify=1",
            "--fsync=50",
            "--randseed=1",
            "--norandommap=0",
            "--verify_state_save=0",
            "--serialize_overlap=1",
            "--verify_fatal=1",
            "--directory=/",
        ],
    );
    assert!(said.contains("err= 0"), "{said}");
}

#[test]
fn nbdkit_passes_requests_on() {
    if !has("nbdkit") || !has("nbdcopy") {
        return;
    }
    let reached = Reached::new(BlockSize::B512, None);
    let (from, to) = (reached.file("from"), reached.file("to"));
    let content = sparse_file(&from);
    let uri = format!("uri={}", reached.unix());
    let copies = format!("nbdcopy {} \"$uri\" && nbdcopy \"$uri\" {}", text(&from), text(&to));
    run("nbdkit", &["-U", "-", "nbd", &uri, "shared=true", "--run", &copies]);
    assert!(fs::read(&to).unwrap() == content);
}

#[test]
fn nbd_client_lists_exports() {
    if !has("nbd-client") {
        return;
    }
    let reached = Reached::new(BlockSize::B512, None);
    let Address::Tcp(address) = &reached.served.address else { unreachable!("the first address") };
    let port = address.port().to_string();
    let said = run("nbd-client", &["-l", "127.0.0.1", &port]);
    assert!(said.lines().any(|line| line.starts_with("disk")), "{said}");
}
