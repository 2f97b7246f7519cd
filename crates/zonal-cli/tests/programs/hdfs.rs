//! HDFS on three drives: the example stores a file, removes a drive, waits until an empty one has
//! its replicas, and reads them back from that drive alone.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::place::Place;
use crate::text;

/// `EX_UNAVAILABLE`: Java or Hadoop's jars are missing.
const UNAVAILABLE: i32 = 69;

#[test]
#[ignore = "needs root, Java and minutes; run by cargo xtask test --all"]
fn hdfs_replicates_blocks_of_removed_drive() {
    let Some(place) = Place::unmade("mnt") else { return };
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let jars = root.join("../../target/tools/hadoop");
    let mut script = Command::new(root.join("examples/hdfs.sh"));
    script.arg("1024").env("ZONAL", env!("CARGO_BIN_EXE_zonal")).env("HADOOP_JARS", text(&jars));
    let output = script.env("TMPDIR", place.path("")).stdin(Stdio::null()).output().unwrap();
    let (told, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if output.status.code() == Some(UNAVAILABLE) {
        println!("SKIP: {}", errors.trim());
        return;
    }
    assert!(output.status.success(), "{}: {told}{errors}", output.status);
    println!("{told}");
    for step in
        ["every block has three replicas again: ", "read from the new drive alone, identical"]
    {
        assert!(told.contains(step), "{step}: {told}");
    }
    assert_eq!(told.matches(": clean, ").count(), 3, "{told}");
}
