//! QEMU on a disk over NBD: the commands of the page; a clone has the image that was installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::{find, page};

/// Ends the programs of the page if a command of it fails.
struct Ended<'a>(&'a Path);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        for (file, program) in [("vm.pid", "qemu-system"), ("server.pid", "zonal")] {
            let Ok(pid) = fs::read_to_string(self.0.join(file)) else { continue };
            // Another process may have the number of a program that has ended.
            let command = format!("/proc/{}/cmdline", pid.trim());
            if fs::read_to_string(command).is_ok_and(|command| command.contains(program)) {
                let _ = Command::new("kill").args(["-KILL", pid.trim()]).status();
            }
        }
    }
}

#[test]
#[ignore = "needs QEMU; run by cargo xtask test"]
fn qemu_page_commands_work() {
    for program in ["qemu-system-x86_64", "qemu-img", "mke2fs"] {
        if find(program).is_none() {
            return;
        }
    }
    let place = tempfile::tempdir().unwrap();
    let _ended = Ended(place.path());
    // The server keeps the output of its shell open, so a pipe would have no end.
    let run = |commands: &str| {
        let commands = format!("exec > told 2>&1\n{commands}");
        page::run_block(&commands, place.path(), &[], Command::new("sh"));
        fs::read_to_string(place.path().join("told")).unwrap()
    };
    let blocks = page::blocks("qemu.md");
    let [make, install, start, copy, end] = &blocks[..] else { panic!("{blocks:?}") };
    run(make);
    let told = run(install);
    assert!(told.contains("guest: 1 GiB, thin"), "{told}");
    run(start);
    let told = run(copy);
    assert!(told.contains("second"), "{told}");
    let told = run(end);
    assert!(told.contains(": clean, "), "{told}");

    // The clone has the image; zeroes follow it up to the size of the disk.
    run("zonal serve nbd --unix second.sock drive.zns//second & echo $! > server.pid
         while ! test -S second.sock; do sleep 0.1; done
         qemu-img compare -f raw -F raw image.raw 'nbd+unix:///second?socket=second.sock'
         kill \"$(cat server.pid)\"
         while pgrep -F server.pid > /dev/null; do sleep 0.1; done");
}
