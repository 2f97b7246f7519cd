//! The options of `zonal mount -o`: the one list from which help, manual page and completions come.
//!
//! What an option does is decided where it is taken: `zonal_fuse::options` and the `options.rs` of
//! each file system. The tests here compare their sources with the list.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, StringValueParser, TypedValueParser};
use clap::{Arg, Command};

/// Which mounts have an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Mounts of both file systems.
    Both,
    /// Mounts of Furrow.
    Furrow,
    /// Mounts of zonefs.
    Zonefs,
    /// Every mount takes it and does nothing: mount(8) or systemd acts on it, or it always holds.
    Others,
}

impl Of {
    /// All of them, with the heading of their options.
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Both, "Mount options of both file systems"),
        (Self::Furrow, "Mount options of Furrow"),
        (Self::Zonefs, "Mount options of zonefs"),
        (Self::Others, "Taken, for mount(8) and systemd to act on"),
    ];
}

/// An option of a mount.
pub(crate) struct MountOption {
    pub(crate) of: Of,
    /// What is completed: the option, up to its value.
    pub(crate) name: &'static str,
    /// The kind of value; empty where there is none.
    pub(crate) value: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
}

/// A line of the table.
const fn of(of: Of, name: &'static str, value: &'static str, help: &'static str) -> MountOption {
    MountOption { of, name, value, help }
}

/// Every option.
pub(crate) const OPTIONS: &[MountOption] = &[
    of(Of::Both, "ro", "", "Read only"),
    of(Of::Both, "rw", "", "Read and write: the default"),
    of(
        Of::Both,
        "relatime",
        "",
        "Reading moves access times once a day or after a change: the default",
    ),
    of(Of::Both, "atime", "", "The same as relatime"),
    of(Of::Both, "noatime", "", "Reading moves no access time"),
    of(Of::Both, "strictatime", "", "Every first read after an open moves the access time"),
    of(Of::Both, "nodev", "", "Device nodes do not work: the default for an ordinary user"),
    of(Of::Both, "dev", "", "Device nodes work: the default for root"),
    of(
        Of::Both,
        "nosuid",
        "",
        "Setuid and setgid have no effect: the default for an ordinary user",
    ),
    of(Of::Both, "suid", "", "Setuid and setgid have their effect: the default for root"),
    of(Of::Both, "noexec", "", "No program can be run"),
    of(Of::Both, "exec", "", "Programs can be run: the default"),
    of(Of::Both, "sync", "", "Every write is synchronous"),
    of(Of::Both, "async", "", "Writes are not synchronous: the default"),
    of(Of::Both, "dirsync", "", "Every change of a directory is synchronous"),
    of(Of::Both, "allow_other", "", "All users may use the mount: the default for root"),
    of(
        Of::Both,
        "threads=",
        "N",
        "Threads that answer requests, at most 256: so many can wait for a device",
    ),
    of(
        Of::Both,
        "metrics=",
        "PORT",
        "Serve metrics for Prometheus on this machine; with ADDRESS:PORT there",
    ),
    of(Of::Both, "uring", "", "Requests come by io_uring, or there is no mount"),
    of(
        Of::Both,
        "nouring",
        "",
        "Requests come by /dev/fuse. Without either, by io_uring where there is one",
    ),
    of(Of::Both, "remount", "", "Change the options of what is mounted; what is not named stays"),
    of(
        Of::Furrow,
        "writeback",
        "",
        "The kernel collects small writes up to four seconds and sends them together",
    ),
    of(
        Of::Furrow,
        "commit=",
        "SECONDS",
        "Age at which what was written is made durable, 1 to 3600; 1 by default",
    ),
    of(Of::Furrow, "memory=", "SIZE", "Memory of the mount, at least 64 MiB; 256 MiB by default"),
    of(
        Of::Furrow,
        "max_open_zones=",
        "N",
        "Zones that data is written to at once; by default what suits the drive",
    ),
    of(
        Of::Furrow,
        "zone_pick=lowest",
        "",
        "Of empty zones take the one with the lowest number: disks are fastest there",
    ),
    of(
        Of::Furrow,
        "zone_pick=oldest",
        "",
        "Of empty zones take the one reset longest ago: flash wears evenly",
    ),
    of(Of::Furrow, "nolifetime", "", "Ignore what programs say of the life of files"),
    of(Of::Furrow, "lifetime", "", "Follow what programs say of the life of files: the default"),
    of(
        Of::Zonefs,
        "errors=remount-ro",
        "",
        "After a failed write all files become read-only: the default",
    ),
    of(Of::Zonefs, "errors=zone-ro", "", "After a failed write that file becomes read-only"),
    of(
        Of::Zonefs,
        "errors=zone-offline",
        "",
        "After a failed write that file can be neither read nor written",
    ),
    of(
        Of::Zonefs,
        "errors=repair",
        "",
        "After a failed write the file's size becomes the write pointer",
    ),
    of(
        Of::Zonefs,
        "explicit-open",
        "",
        "Opening a file for writing opens its zone; EBUSY at the drive's limit",
    ),
    of(Of::Zonefs, "implicit-open", "", "Opening a file leaves its zone as it is: the default"),
    of(
        Of::Zonefs,
        "warm-cache",
        "",
        "Data of direct writes is also put into the page cache, for readers",
    ),
    of(
        Of::Zonefs,
        "nowarm-cache",
        "",
        "Direct writes leave nothing in the page cache: the default",
    ),
    of(
        Of::Zonefs,
        "noasync-dio",
        "",
        "Asynchronous direct reads of a program come one after the other",
    ),
    of(Of::Others, "defaults", "", "No option"),
    of(Of::Others, "auto", "", "mount -a mounts it"),
    of(Of::Others, "noauto", "", "mount -a does not mount it"),
    of(Of::Others, "user", "", "Ordinary users may mount it"),
    of(Of::Others, "nouser", "", "Only root may mount it"),
    of(Of::Others, "users", "", "Any user may mount and unmount it"),
    of(Of::Others, "group", "", "The group of the device may mount it"),
    of(Of::Others, "owner", "", "The owner of the device may mount it"),
    of(Of::Others, "user=", "NAME", "Who mounted it"),
    of(Of::Others, "_netdev", "", "It needs the network"),
    of(Of::Others, "nofail", "", "The machine starts without it too"),
    of(Of::Others, "default_permissions", "", "The kernel checks permissions: it always does"),
    of(Of::Others, "diratime", "", "Access times of directories as of files: the default"),
    of(Of::Others, "nodiratime", "", "Access times of directories do not move"),
    of(Of::Others, "nolazytime", "", "Not lazytime: the default"),
    of(Of::Others, "nostrictatime", "", "Not strictatime: the default"),
    of(Of::Others, "nosymfollow", "", "Symbolic links are not followed"),
    of(Of::Others, "symfollow", "", "Symbolic links are followed: the default"),
    of(
        Of::Others,
        "lazytime",
        "",
        "The mount table shows it; times are committed with everything else",
    ),
    of(Of::Others, "norelatime", "", "Not relatime, where the kernel has another default"),
    of(Of::Others, "mand", "", "Taken, and ignored"),
    of(Of::Others, "nomand", "", "Taken, and ignored"),
    of(Of::Others, "iversion", "", "Taken, and ignored"),
    of(Of::Others, "noiversion", "", "Taken, and ignored"),
    of(Of::Others, "silent", "", "Taken, and ignored"),
    of(Of::Others, "loud", "", "Taken, and ignored"),
    of(Of::Others, "comment=", "TEXT", "A comment"),
    of(Of::Others, "uhelper=", "NAME", "The program that umount(8) calls"),
    of(Of::Others, "x-", "NAME", "An option of systemd or of another program"),
    of(Of::Others, "X-", "NAME", "The same, which mount(8) does not record"),
];

impl MountOption {
    /// As it is written, with the kind of value.
    pub(crate) fn form(&self) -> String {
        format!("{}{}", self.name, self.value)
    }
}

/// The options of these mounts.
pub(crate) fn options_of(of: Of) -> impl Iterator<Item = &'static MountOption> {
    OPTIONS.iter().filter(move |option| option.of == of)
}

/// The end of `zonal mount --help`.
pub(crate) fn help() -> String {
    let width = OPTIONS.iter().map(|option| option.form().len()).max().unwrap_or(0);
    let mut groups = Vec::new();
    for (of, heading) in Of::ALL {
        let line = |option: &MountOption| format!("  {:width$}  {}", option.form(), option.help);
        let lines: Vec<String> = options_of(of).map(line).collect();
        groups.push(format!("{heading}:\n{}", lines.join("\n")));
    }
    groups.push("Manual pages: furrow(5), zonefs(5)".to_owned());
    groups.join("\n\n")
}

/// Takes any text, and names the options to what writes completions.
#[derive(Clone)]
pub(crate) struct OptionsParser;

impl TypedValueParser for OptionsParser {
    type Value = String;

    fn parse_ref(
        &self,
        command: &Command,
        arg: Option<&Arg>,
        value: &OsStr,
    ) -> Result<String, clap::Error> {
        StringValueParser::new().parse_ref(command, arg, value)
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        let value = |option: &MountOption| PossibleValue::new(option.name).help(option.help);
        Some(Box::new(OPTIONS.iter().map(value)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use clap::CommandFactory;
    use zonal_fs::options::Taken;
    use zonal_fs::{furrow, zonefs};
    use zonal_fuse::{MountConfig, ServeError};

    use super::*;
    use crate::args::Cli;
    use crate::manual;

    /// A value that an option takes.
    fn example(option: &MountOption) -> String {
        let value = match option.value {
            "SIZE" => "64MiB",
            "N" | "SECONDS" => "2",
            "PORT" => "9464",
            _ => "",
        };
        format!("{}{value}", option.name)
    }

    /// Whether a mount of either file system knows `text`, whatever it says of its value.
    fn is_known(text: &str) -> bool {
        let refused = |error: &ServeError| error.to_string().contains("not known");
        let mut config = MountConfig::new("/srv/drive.zns", Path::new("/mnt"));
        furrow::MountOptions::default().take(text) != Taken::No
            || zonefs::MountOptions::default().take(text) != Taken::No
            || !config.apply(text).is_err_and(|error| refused(&error))
    }

    /// What stands in quotes in the sources that take options.
    fn quoted() -> BTreeSet<String> {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut folders = vec![
            crates.join("zonal-fuse/src"),
            crates.join("zonal-fs/src/furrow"),
            crates.join("zonal-fs/src/zonefs"),
        ];
        let mut found = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.to_string_lossy().contains("options") {
                    let text = fs::read_to_string(path).unwrap();
                    let code = text.split("#[cfg(test)]").next().unwrap();
                    let code = code.lines().filter(|line| !line.trim_start().starts_with("//"));
                    for line in code {
                        found.extend(line.split('"').skip(1).step_by(2).map(ToOwned::to_owned));
                    }
                }
            }
        }
        let is_word = |text: &String| !text.is_empty() && !text.contains([' ', ',', '{']);
        found.into_iter().filter(is_word).collect()
    }

    #[test]
    fn every_option_that_a_mount_takes_is_listed() {
        let words = quoted();
        assert!(words.contains("writeback") && words.contains("explicit-open"), "{words:?}");
        for word in words.iter().filter(|word| is_known(word)) {
            let is_it = |option: &MountOption| {
                option.name == word
                    || option.name.strip_prefix(word).is_some_and(|rest| rest.starts_with('='))
            };
            assert!(OPTIONS.iter().any(is_it), "{word} is in no list");
        }
    }

    #[test]
    fn every_listed_option_is_taken_by_its_mounts() {
        for option in OPTIONS {
            let text = example(option);
            let (mut furrow, mut zonefs) =
                (furrow::MountOptions::default(), zonefs::MountOptions::default());
            let taken = (furrow.take(&text), zonefs.take(&text));
            let mut config = MountConfig::new("/srv/drive.zns", Path::new("/mnt"));
            let by_all = match config.apply(&text) {
                Ok(()) => true,
                // A mount that is there takes it: `cmd/mount/remount.rs`.
                Err(_) => text == "remount",
            };
            let is_taken = match option.of {
                Of::Both | Of::Others => by_all,
                Of::Furrow => by_all || taken.0 == Taken::Yes,
                Of::Zonefs => by_all || taken.1 == Taken::Yes,
            };
            assert!(is_taken, "{text}: {taken:?}");
        }
    }

    #[test]
    fn help_manual_and_completions_have_every_option() {
        let help = help();
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
        let pages = manual::pages();
        let page = |name: &str| {
            let page = pages.iter().find(|page| page.name == name).unwrap();
            let text = manual::said(page);
            text.split([' ', ',', '\n', ';']).map(ToOwned::to_owned).collect::<BTreeSet<_>>()
        };
        let (mount, furrow, zonefs) = (page("zonal-mount.1"), page("furrow.5"), page("zonefs.5"));
        let script = |shell: clap_complete::Shell| {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "zonal", &mut script);
            String::from_utf8(script).unwrap()
        };
        for option in OPTIONS {
            let form = option.form();
            assert!(help.contains(&format!("  {form} ")), "{form} is not in the help");
            assert!(mount.contains(&form), "{form} is not in zonal-mount(1)");
            let own = match option.of {
                Of::Furrow => vec![&furrow],
                Of::Zonefs => vec![&zonefs],
                Of::Both => vec![&furrow, &zonefs],
                Of::Others => vec![],
            };
            for page in own {
                assert!(page.contains(&form), "{form} is not in its page of section 5");
            }
        }
        for shell in
            [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish]
        {
            let script = script(shell);
            for option in OPTIONS {
                assert!(script.contains(option.name), "{} is not in {shell}'s", option.name);
            }
        }
    }
}
