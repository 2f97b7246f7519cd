//! 04xx: swap space. No file system on FUSE can hold it, so the kernel always refuses, and the
//! files must not suffer from the attempt.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use rustix::fs::OFlags;

use crate::drive::{Drive, PLAIN, SEPARATE, find, must, output, text};
use crate::io::{Aligned, append, assert_content, read_at, size, write_at};

fn run(program: &Path, file: &Path) -> Output {
    output(Command::new(program).arg(file))
}

fn only_for_the_owner(file: &Path) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(file, fs::Permissions::from_mode(0o600)).unwrap();
}

#[test]
fn t0400_swap_on_a_conventional_file() {
    let (Some(mkswap), Some(swapon)) = (find("mkswap"), find("swapon")) else { return };
    let Some(drive) = Drive::mounted(&PLAIN, SEPARATE) else { return };
    let file = drive.cnv(0);
    only_for_the_owner(&file);
    must(&run(&mkswap, &file));
    let before = read_at(&file, OFlags::DIRECT, 0, 8192).unwrap();
    assert_eq!(&before[4086..4096], b"SWAPSPACE2");
    let refused = run(&swapon, &file);
    assert!(!refused.status.success(), "FUSE has no swap files: {}", text(&refused));
    assert!(*read_at(&file, OFlags::DIRECT, 0, 8192).unwrap() == *before);
    assert_eq!(write_at(&file, OFlags::DIRECT, 0, 4096), Ok(4096));
}

#[test]
fn t0401_swap_on_a_sequential_file() {
    let (Some(mkswap), Some(swapon)) = (find("mkswap"), find("swapon")) else { return };
    let Some(drive) = Drive::mounted(&PLAIN, SEPARATE) else { return };
    let file = drive.seq(0);
    append(&file, 1 << 20).unwrap();
    only_for_the_owner(&file);
    // mkswap writes through the page cache.
    assert!(!run(&mkswap, &file).status.success());
    assert_content(&file, 1 << 20);
    // Swap space made elsewhere and copied here.
    let (image, copy) = (drive.outside("swap"), drive.seq(1));
    fs::write(&image, vec![0; 1 << 20]).unwrap();
    only_for_the_owner(&image);
    must(&run(&mkswap, &image));
    let mut data = Aligned::new(1 << 20);
    data.copy_from_slice(&fs::read(&image).unwrap());
    let written = rustix::io::pwrite(crate::io::open_direct(&copy), &data, 0);
    assert_eq!(written, Ok(1 << 20));
    only_for_the_owner(&copy);
    assert!(!run(&swapon, &copy).status.success());
    assert_eq!(size(&copy), 1 << 20);
    assert!(*read_at(&copy, OFlags::DIRECT, 0, 1 << 20).unwrap() == *data);
}
