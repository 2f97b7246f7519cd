//! fsx: random reads, writes, mappings and truncations of one file, each checked, in four profiles
//! and with several seeds.

use std::fs;
use std::ops::Range;
use std::process::Command;

use crate::mounted;
use crate::mounted::tools;

/// Operations that every file system must support.
const BASE: &str = "
flen = 262144
[weights]
close_open = 1
invalidate = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
fsync = 1
fdatasync = 1
";

/// The same with all that is optional.
const FALLOC: &str = "
flen = 1048576
[weights]
close_open = 1
invalidate = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 5
punch_hole = 5
sendfile = 5
posix_fadvise = 2
copy_file_range = 5
";

/// Whole blocks only. fsx does not align `posix_fallocate` and then asks for ranges of no length.
const ALIGNED: &str = "
flen = 4194304
[opsize]
align = 4096
max = 262144
[weights]
close_open = 1
invalidate = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 5
fsync = 1
punch_hole = 5
copy_file_range = 5
";

/// Requests larger than FUSE carries at once.
const BIG: &str = "
flen = 67108864
[opsize]
min = 1000000
max = 5000000
[weights]
close_open = 1
invalidate = 1
read = 10
write = 10
mapread = 10
mapwrite = 10
truncate = 2
fsync = 1
punch_hole = 5
copy_file_range = 5
";

#[test]
#[ignore = "needs root and external tools; run by cargo xtask test"]
fn fsx_every_profile_passes() {
    every_profile(0..1);
}

#[test]
#[ignore = "needs root, external tools and a minute; run by cargo xtask test --all"]
fn fsx_every_profile_passes_with_more_seeds() {
    every_profile(1..4);
}

/// Seeds, counted from the one of this run.
fn every_profile(seeds: Range<u64>) {
    let Some(program) = tools::find("fsx") else { return };
    let Some(mounted) = mounted::mount() else { return };
    let first = tools::seed();
    let profiles = [
        ("base", BASE, 5000),
        ("falloc", FALLOC, 5000),
        ("aligned", ALIGNED, 3000),
        ("big", BIG, 300),
    ];
    for (name, config, operations) in profiles {
        let file = mounted.outside("fsx.toml");
        fs::write(&file, config).unwrap();
        for seed in seeds.clone().map(|more| first + more) {
            let target = mounted.path(&format!("{name}-{seed}"));
            tools::run(
                Command::new(&program)
                    .arg("-f")
                    .arg(&file)
                    .args(["-N", &operations.to_string(), "-S", &seed.to_string()])
                    .arg("-P")
                    .arg(mounted.outside(""))
                    .arg(&target),
            );
            fs::remove_file(&target).unwrap();
        }
        println!("{name}: {} × {operations} operations", seeds.clone().count());
    }
}
