//! Debian's own `db_bench` and `ldb` on a drive file, with the library loaded into them.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "this is test code")]

mod cuts;
mod ends;
mod place;

use std::path::Path;
use std::process::Command;

use crate::place::{Place, library, output};

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
    let Some(place) = Place::new("zone=4M,zones=64") else { return };
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
    // What is on the drive is Furrow, as a mount leaves it.
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
    let hint = table.write_lifetime().unwrap();
    assert_ne!(hint, zonal_fs::volume::WriteLifetime::None);
    assert!(place.is_memory_empty(), "a store that was closed leaves nothing in memory");
}

#[test]
fn memory_drive_is_formatted_for_process() {
    let Some(library) = library() else { return };
    for uri in ["zonal://sim:?format=1", "zonal://po2:mem:zone=3M,zones=64?format=1&memory=64M"] {
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
    let Some(place) = Place::new("zone=4M,zones=64") else { return };
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
    let Some(place) = Place::new("zone=4M,zones=64") else { return };
    let folder = library().unwrap().parent().unwrap().to_owned();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/c_interface.cc");
    let program = place.path("c_interface");
    let mut compile = Command::new("c++");
    compile.args(["-std=c++17", "-Wall", "-Wextra", "-Werror", source, "-o"]).arg(&program);
    compile.arg("-L").arg(&folder).args(["-lzonal_rocksdb", "-lrocksdb"]);
    output(&mut compile);
    let run = || {
        let mut command = Command::new(&program);
        command.env("LD_LIBRARY_PATH", &folder).arg(place.uri());
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
#[ignore = "makes bindings of RocksDB's headers; run by cargo xtask test --all"]
fn env_works_from_rust() {
    let Some(place) = Place::new("zone=4M,zones=64") else { return };
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
    let Some(place) = Place::new("zone=4M,zones=64") else { return };
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
    // Files on zonefs are for LevelDB.
    place.make_zonefs("zonefs.zns");
    let uri = format!("zonal://{}", place.path("zonefs.zns").display());
    refuses(&mut place.db_bench_at(&uri), "zonefs.zns holds a zonefs");
    refuses(&mut place.db_bench_at(&uri), "needs a drive with Furrow; LevelDB can use");
    refuses(&mut place.db_bench_at("zonal://mem:?format=zonefs"), "holds a zonefs");
    refuses(&mut place.db_bench_at("zonal://mem:?colour=blue"), "no option \"colour=blue\"");
}
