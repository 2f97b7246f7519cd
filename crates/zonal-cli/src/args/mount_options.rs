//! The options of `zonal mount -o`: the one list from which help, manual page and completions come.
//!
//! The code that takes an option defines its effect: `zonal_fuse::options` and the `options.rs` of
//! each file system. The tests here compare those sources with the list.

use clap::builder::PossibleValue;

/// The argument of `zonal mount` that takes a list of them.
pub(crate) const ID: &str = "options";

/// Which mounts have an option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Of {
    /// Mounts of both file systems.
    Both,
    /// Mounts of Furrow.
    Furrow,
    /// Mounts of zonefs.
    Zonefs,
    /// Every mount accepts and ignores it: mount(8) or systemd acts on it, or it always holds.
    Others,
}

impl Of {
    /// All of them, with the heading of their options.
    pub(crate) const ALL: [(Self, &'static str); 4] = [
        (Self::Both, "Mount options of both file systems"),
        (Self::Furrow, "Mount options of Furrow"),
        (Self::Zonefs, "Mount options of zonefs"),
        (Self::Others, "Accepted, for mount(8) and systemd to act on"),
    ];
}

/// Whether `remount` changes an option of an existing mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Remount {
    /// It changes the mount.
    Changes,
    /// It is refused unless it says what already holds.
    Refused,
}

/// An option of a mount.
pub(crate) struct MountOption {
    pub(crate) of: Of,
    /// What completions insert: the option, up to its value.
    pub(crate) name: &'static str,
    /// The kind of value; empty where there is none.
    pub(crate) value: &'static str,
    /// Where the option holds by default, or its default value; empty if it is off by default.
    pub(crate) default: &'static str,
    /// Whether `remount` changes it.
    pub(crate) remount: Remount,
    /// The effect of the option, as help texts describe it.
    pub(crate) help: &'static str,
}

/// An option without a default that a remount refuses.
const fn of(of: Of, name: &'static str, value: &'static str, help: &'static str) -> MountOption {
    MountOption { of, name, value, default: "", remount: Remount::Refused, help }
}

impl MountOption {
    /// The same option with a default.
    const fn by_default(self, default: &'static str) -> Self {
        Self { default, ..self }
    }

    /// The same option where a remount changes it.
    const fn remountable(self) -> Self {
        Self { remount: Remount::Changes, ..self }
    }

    /// The option as a user writes it, with the kind of value.
    pub(crate) fn form(&self) -> String {
        format!("{}{}", self.name, self.value)
    }

    /// The effect and the default of the option, as help texts print them.
    pub(crate) fn help(&self) -> String {
        match self.default {
            "" => self.help.to_owned(),
            "yes" => format!("{} [default]", self.help),
            other => format!("{} [default: {other}]", self.help),
        }
    }
}

/// Every option.
pub(crate) const OPTIONS: &[MountOption] = &[
    of(Of::Both, "ro", "", "Read-only").remountable(),
    of(Of::Both, "rw", "", "Read-write").by_default("yes").remountable(),
    of(
        Of::Both,
        "relatime",
        "",
        "Reads update access times older than a day or than the last change",
    )
    .by_default("yes"),
    of(Of::Both, "atime", "", "Another name of relatime"),
    of(Of::Both, "noatime", "", "Reads update no access times"),
    of(Of::Both, "strictatime", "", "The first read after each open updates the access time"),
    of(Of::Both, "nodiratime", "", "Reads update no access times of directories"),
    of(Of::Both, "diratime", "", "Access times of directories are as those of files")
        .by_default("yes"),
    of(
        Of::Both,
        "lazytime",
        "",
        "Shown in the mount table, without another effect: every commit writes times",
    ),
    of(Of::Both, "nolazytime", "", "Without lazytime").by_default("yes"),
    of(Of::Both, "nodev", "", "Device nodes do not work").by_default("for users").remountable(),
    of(Of::Both, "dev", "", "Device nodes work").by_default("for root").remountable(),
    of(Of::Both, "nosuid", "", "Setuid and setgid bits have no effect")
        .by_default("for users")
        .remountable(),
    of(Of::Both, "suid", "", "Setuid and setgid bits have their effect")
        .by_default("for root")
        .remountable(),
    of(Of::Both, "noexec", "", "Programs cannot be run").remountable(),
    of(Of::Both, "exec", "", "Programs can be run").by_default("yes").remountable(),
    of(Of::Both, "nosymfollow", "", "Symbolic links are not followed").remountable(),
    of(Of::Both, "symfollow", "", "Symbolic links are followed").by_default("yes").remountable(),
    of(Of::Both, "sync", "", "Every write is synchronous").remountable(),
    of(Of::Both, "async", "", "Writes are not synchronous").by_default("yes").remountable(),
    of(Of::Both, "dirsync", "", "Every change of a directory is synchronous"),
    of(Of::Both, "allow_other", "", "All users may use the mount").by_default("for root"),
    of(Of::Both, "threads=", "N", "Server threads, at most 256, and so the queue depth")
        .by_default("by device"),
    of(Of::Both, "metrics=", "PORT", "Serve Prometheus metrics on 127.0.0.1, or at ADDRESS:PORT"),
    of(Of::Both, "uring", "", "Requests come over io_uring; fail to mount without it"),
    of(
        Of::Both,
        "nouring",
        "",
        "Requests come over /dev/fuse, even where the kernel offers io_uring",
    ),
    of(
        Of::Both,
        "remount",
        "",
        "Change an existing mount; options that are not named keep their values",
    ),
    of(
        Of::Furrow,
        "writeback",
        "",
        "The kernel collects small writes for up to 4 seconds and sends them together",
    ),
    of(Of::Furrow, "commit=", "SECONDS", "Age at which changes are made durable, 1 to 3600")
        .by_default("1"),
    of(Of::Furrow, "memory=", "SIZE", "Memory limit of the mount, at least 64 MiB")
        .by_default("256MiB"),
    of(Of::Furrow, "max_open_zones=", "N", "Limit of zones that data is written to at once")
        .by_default("by drive"),
    of(Of::Furrow, "metadata=", "DEVICE", "The metadata drive; `missing` with ro where it is lost")
        .by_default("by UUID"),
    of(Of::Both, "rotational", "", "Spare the head of a disk: write in long runs")
        .by_default("by drive"),
    of(Of::Both, "norotational", "", "Write as to flash, where a jump costs nothing"),
    of(Of::Furrow, "nolifetime", "", "Ignore lifetime hints of programs").remountable(),
    of(Of::Furrow, "lifetime", "", "Use lifetime hints of programs to place data")
        .by_default("yes")
        .remountable(),
    of(Of::Zonefs, "errors=remount-ro", "", "A failed write makes all files read-only")
        .by_default("yes")
        .remountable(),
    of(Of::Zonefs, "errors=zone-ro", "", "A failed write makes that file read-only").remountable(),
    of(
        Of::Zonefs,
        "errors=zone-offline",
        "",
        "A failed write makes that file unreadable and unwritable",
    )
    .remountable(),
    of(
        Of::Zonefs,
        "errors=repair",
        "",
        "A failed write sets the size of the file to the write pointer",
    )
    .remountable(),
    of(
        Of::Zonefs,
        "explicit-open",
        "",
        "Opening a file for writing opens its zone; EBUSY at the open limit",
    )
    .remountable(),
    of(Of::Zonefs, "implicit-open", "", "Opening a file leaves its zone as it is")
        .by_default("yes")
        .remountable(),
    of(Of::Zonefs, "warm-cache", "", "Direct writes also fill the page cache"),
    of(Of::Zonefs, "nowarm-cache", "", "Direct writes leave nothing in the page cache")
        .by_default("yes"),
    of(Of::Zonefs, "noasync-dio", "", "Asynchronous direct reads of a program run one at a time"),
    of(Of::Others, "defaults", "", "No option"),
    of(Of::Others, "auto", "", "`mount -a` mounts it"),
    of(Of::Others, "noauto", "", "`mount -a` does not mount it"),
    of(Of::Others, "user", "", "Any user may mount it"),
    of(Of::Others, "nouser", "", "Only root may mount it"),
    of(Of::Others, "users", "", "Any user may mount and unmount it"),
    of(Of::Others, "group", "", "Members of the group of the device may mount it"),
    of(Of::Others, "owner", "", "The owner of the device may mount it"),
    of(Of::Others, "user=", "NAME", "The user who mounted it"),
    of(Of::Others, "_netdev", "", "It needs the network"),
    of(Of::Others, "nofail", "", "The machine boots without it too"),
    of(Of::Others, "default_permissions", "", "The kernel checks permissions: it always does"),
    of(Of::Others, "nostrictatime", "", "Without strictatime"),
    of(Of::Others, "norelatime", "", "Ignored: relatime holds unless another option is given"),
    of(Of::Others, "mand", "", "Ignored"),
    of(Of::Others, "nomand", "", "Ignored"),
    of(Of::Others, "iversion", "", "Ignored"),
    of(Of::Others, "noiversion", "", "Ignored"),
    of(Of::Others, "silent", "", "Ignored"),
    of(Of::Others, "loud", "", "Ignored"),
    of(Of::Others, "comment=", "TEXT", "A comment"),
    of(Of::Others, "uhelper=", "NAME", "The program that umount(8) calls"),
    of(Of::Others, "x-", "NAME", "An option of systemd or of another program"),
    of(Of::Others, "X-", "NAME", "The same, which mount(8) does not record"),
];

/// The options of these mounts.
pub(crate) fn options_of(of: Of) -> impl Iterator<Item = &'static MountOption> {
    OPTIONS.iter().filter(move |option| option.of == of)
}

/// The end of `zonal mount --help`.
pub(crate) fn help() -> String {
    let width = OPTIONS.iter().map(|option| option.form().len()).max().unwrap_or(0);
    let mut groups = Vec::new();
    for (of, heading) in Of::ALL {
        let line = |option: &MountOption| format!("  {:width$}  {}", option.form(), option.help());
        let lines: Vec<String> = options_of(of).map(line).collect();
        groups.push(format!("{heading}:\n{}", lines.join("\n")));
    }
    let remount = OPTIONS.iter().filter(|option| option.remount == Remount::Changes);
    let names = remount.map(|option| option.name).collect::<Vec<_>>();
    groups.push(format!("A remount changes:\n{}", wrapped(&names)));
    groups.push("Manual pages: furrow(5), zonefs(5)".to_owned());
    groups.join("\n\n")
}

/// Words in lines of at most 80 columns.
fn wrapped(words: &[&str]) -> String {
    let mut lines = vec![String::new()];
    for word in words {
        match lines.last_mut() {
            Some(line) if line.len() + word.len() < 80 => line.extend(["  ", *word]),
            Some(_) | None => lines.push(format!("  {word}")),
        }
    }
    lines.join("\n")
}

/// The table of the guide: `docs/guide/operate/mount-options.md`.
#[cfg(test)]
fn markdown() -> String {
    let row = |option: &MountOption| {
        let of = match option.of {
            Of::Both => "both",
            Of::Furrow => "Furrow",
            Of::Zonefs => "zonefs",
            Of::Others => "-",
        };
        let remount = match (option.of, option.remount) {
            (Of::Others, _) => "-",
            (_, Remount::Changes) => "yes",
            (_, Remount::Refused) => "no",
        };
        let (form, default, help) = (option.form(), option.default, option.help);
        format!("| `{form}` | {of} | {default} | {remount} | {help} |\n")
    };
    let rows = OPTIONS.iter().map(row).collect::<Vec<_>>().concat();
    format!(
        "| option | mounts of | default | remount | what it does |\n| --- | --- | --- | --- | --- |\n{rows}"
    )
}

/// The options as completion scripts list them.
pub(crate) fn completions() -> Vec<PossibleValue> {
    let value = |option: &MountOption| PossibleValue::new(option.name).help(option.help());
    OPTIONS.iter().map(value).collect()
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

    #[test]
    fn guide_has_table_of_mount_options() {
        let page = include_str!("../../../../docs/guide/operate/mount-options.md");
        let table = markdown();
        assert!(
            page.contains(&format!("\n\n{table}\n")),
            "docs/guide/operate/mount-options.md should have:\n{table}"
        );
        assert_eq!(page.matches("| option |").count(), 1, "it has one table of options");
    }

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

    /// Whether a mount of either file system knows `text`, even if it refuses the value.
    fn is_known(text: &str) -> bool {
        let refused = |error: &ServeError| error.to_string().contains("not known");
        let mut config = MountConfig::new("/srv/drive.zns", Path::new("/mnt"));
        furrow::MountOptions::default().take(text) != Taken::No
            || zonefs::MountOptions::default().take(text) != Taken::No
            || !config.apply(text).is_err_and(|error| refused(&error))
    }

    /// The quoted words in the sources that take options.
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
    fn mount_options_accepted_are_all_listed() {
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
    fn mount_options_listed_are_accepted_by_their_mounts() {
        for option in OPTIONS {
            let text = example(option);
            let (mut furrow, mut zonefs) =
                (furrow::MountOptions::default(), zonefs::MountOptions::default());
            let taken = (furrow.take(&text), zonefs.take(&text));
            let mut config = MountConfig::new("/srv/drive.zns", Path::new("/mnt"));
            let by_all = match config.apply(&text) {
                Ok(()) => true,
                // An existing mount takes it: `cmd/mount/remount.rs`.
                Err(_) => text == "remount",
            };
            let is_taken = match option.of {
                Of::Both => by_all || taken == (Taken::Yes, Taken::Yes),
                Of::Others => by_all,
                Of::Furrow => by_all || taken.0 == Taken::Yes,
                Of::Zonefs => by_all || taken.1 == Taken::Yes,
            };
            assert!(is_taken, "{text}: {taken:?}");
        }
    }

    #[test]
    fn mount_options_are_in_help_manual_and_completions() {
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
