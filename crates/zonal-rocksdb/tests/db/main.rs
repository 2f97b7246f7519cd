//! Debian's own `db_bench` and `ldb` on a drive file, with the library loaded into them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

mod cuts;
mod ends;
mod page;
mod place;

use std::path::Path;
use std::process::Command;

use crate::place::{Kind, Place, library, output};

const RUN: [&str; 8] = [
    "--num=20000",
    "--value_size=400",
    "--threads=1",
    "--write_buffer_size=2097152",
    "--target_file_size_base=1048576",
    "--use_direct_io_for_flush_and_compaction=1",
    "--use_direct_reads=1",
    "--compression_type=none",
];

#[test]
fn db_bench_and_ldb_run_unmodified_on_drive() {
    Kind::ALL.into_iter().for_each(run_unmodified);
}

fn run_unmodified(kind: Kind) {
    let Some(place) = Place::new(kind, "zone=4M,zones=128") else { return };
    let load = "--benchmarks=fillrandom,overwrite,readrandom,verifychecksum,levelstats";
    let text = output(place.db_bench().args(RUN).arg(load));
    let ended = ["fillrandom ", "overwrite ", "readrandom ", "verifychecksum "];
    assert!(ended.iter().all(|name| text.contains(name)), "{text}");
    // A second process finds the store, with buffered reads and writes this time.
    let both = ["--benchmarks=readwhilewriting", "--use_existing_db=1", "--num=20000"];
    let few = ["--threads=2", "--reads=3000", "--value_size=400", "--compression_type=none"];
    let text = output(place.db_bench().args(both).args(few));
    assert!(text.contains("readwhilewriting "), "{text}");
    let text = output(place.ldb().arg("checkconsistency"));
    assert!(text.contains("OK"), "{text}");
    let text = output(place.ldb().args(["scan", "--hex", "--max_keys=3"]));
    assert_eq!(text.lines().filter(|line| line.starts_with("0x")).count(), 3, "{text}");
    place.check();
    let volume = place.mount();
    let names: Vec<_> = volume.read_dir("/kv").unwrap().map(|e| e.unwrap().name).collect();
    for name in ["CURRENT", "IDENTITY", "LOCK", "LOG"] {
        assert!(names.iter().any(|found| found == name), "{names:?}");
    }
    let log = String::from_utf8(volume.read("/kv/LOG").unwrap()).unwrap();
    assert!(log.contains("RocksDB version"), "{log}");
    let table = names.iter().find(|name| name.to_string_lossy().ends_with(".sst")).unwrap();
    let table = volume.open(std::path::Path::new("/kv").join(table)).unwrap();
    if kind == Kind::Furrow {
        let hint = table.write_lifetime().unwrap();
        assert_ne!(hint, zonal_fs::volume::WriteLifetime::None);
    }
    assert!(place.is_memory_empty(), "a store that was closed leaves nothing in memory");
}

#[test]
fn memory_drive_is_formatted_for_process() {
    let Some(library) = library() else { return };
    for uri in [
        "zonal://sim:?format=1",
        "zonal://po2:mem:zone=3M,zones=64?format=1&memory=64M",
        "zonal://po2:mem:zone=3M,zones=64?format=zonefs",
    ] {
        let mut command = Command::new("db_bench");
        command.env("LD_PRELOAD", &library).args([
            "--db=/kv",
            "--num=1000",
            "--benchmarks=fillseq",
        ]);
        let text = output(command.arg(format!("--fs_uri={uri}")));
        assert!(text.contains("fillseq "), "{text}");
    }
}

#[test]
fn counts_file_of_address_counts_written_bytes() {
    Kind::ALL.into_iter().for_each(count_bytes);
}

fn count_bytes(kind: Kind) {
    let Some(place) = Place::new(kind, "zone=4M,zones=64") else { return };
    let file = place.path("counts");
    let uri = format!("{}&counts={}", place.uri(), file.display());
    output(place.db_bench_at(&uri).args(["--benchmarks=fillseq", "--num=1000"]));
    let text = std::fs::read_to_string(file).unwrap();
    let numbers: Vec<u64> =
        text.split(|c: char| !c.is_ascii_digit()).flat_map(str::parse).collect();
    let [ns, user, reclaim, metadata] = numbers[..] else { panic!("{text}") };
    // At least the log has 1000 pairs of 116 bytes.
    assert!(ns > 0 && user >= 116_000 && metadata > 0 && reclaim == 0, "{text}");
}

#[test]
fn env_works_from_c() {
    Kind::ALL.into_iter().for_each(use_env);
}

fn use_env(kind: Kind) {
    let Some(place) = Place::new(kind, "zone=4M,zones=64") else { return };
    let program = place.compile("examples/c_interface.cc");
    let run = || {
        let mut command = place.compiled(&program);
        command.arg(place.uri());
        command
    };
    assert_eq!(output(&mut run()), "key is value\n");
    let drive = place.open_drive();
    let refused = run().output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && text.contains("in use"), "{text}");
    drop(drive);
    place.check();
}

#[test]
fn features_of_rocksdb_work_and_are_there_again() {
    for kind in Kind::ALL {
        let Some(place) = Place::new(kind, "zone=2M,zones=128,active=14,open=14") else { return };
        let program = place.compile("tests/db/features.cc");
        output(place.compiled(&program).arg(place.uri()));
        place.check();
    }
}

#[test]
#[ignore = "makes bindings of RocksDB's headers; run by cargo xtask test --all"]
fn env_works_from_rust() {
    let Some(place) = Place::new(Kind::Furrow, "zone=4M,zones=64") else { return };
    let folder = library().unwrap().parent().unwrap().to_owned();
    let rocksdb = output(Command::new("cc").arg("-print-file-name=librocksdb.so"));
    let example = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/rust"));
    let mut build = Command::new(env!("CARGO"));
    build.args(["build", "--quiet", "--locked", "--target-dir"]).arg(place.path("target"));
    build.env("ROCKSDB_LIB_DIR", Path::new(rocksdb.trim()).parent().unwrap());
    build.env("RUSTFLAGS", format!("-Lnative={}", folder.display())).current_dir(example);
    let built = build.output().unwrap();
    let said = String::from_utf8_lossy(&built.stderr);
    if let Some(lacking) =
        ["libclang", "failed to download"].iter().find(|what| said.contains(**what))
    {
        println!("SKIP: the crate rocksdb cannot be built: {lacking}");
        return;
    }
    assert!(built.status.success(), "{said}");
    let mut store = Command::new(place.path("target/debug/store"));
    store.env("LD_LIBRARY_PATH", &folder).arg(place.uri());
    assert_eq!(output(&mut store), "value\n");
    place.check();
}

#[test]
fn open_failure_is_refused_with_reason() {
    let Some(place) = Place::new(Kind::Furrow, "zone=4M,zones=64") else { return };
    let refuses = |command: &mut Command, why: &str| {
        let refused = command.arg("--benchmarks=fillseq").output().unwrap();
        let text = String::from_utf8_lossy(&refused.stderr);
        assert!(!refused.status.success() && text.contains(why), "{why}: {text}");
    };
    let drive = place.open_drive();
    refuses(&mut place.db_bench(), "in use");
    drop(drive);
    refuses(&mut place.db_bench_at("zonal:///nonexistent"), "No such file");
    refuses(&mut place.db_bench_at("zonal://mem:zone=4M,zones=64"), "no Furrow on the device");
    let few = "zonal://mem:zone=4M,zones=4?format=zonefs";
    refuses(&mut place.db_bench_at(few), "3 sequential zones; 6 are the least");
    refuses(&mut place.db_bench_at("zonal://mem:?colour=blue"), "no option \"colour=blue\"");
}
