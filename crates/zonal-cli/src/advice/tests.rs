//! Advice by the command that gives it, and the options that messages name.

use std::fs;
use std::path::{Path, PathBuf};

use clap::Parser as _;
use zonal::{Lba, ZoneId};

use super::*;

fn options_of(command: &str) -> Options {
    Options::of(command.split(' '))
}

fn not_at_write_pointer() -> DeviceError {
    DeviceError::NotAtWritePointer { zone: ZoneId::new(1), wp: Lba::new(7), lba: Lba::new(9) }
}

#[test]
fn advice_follows_cause_of_error() {
    let error = anyhow::Error::new(not_at_write_pointer()).context("writing to drive.zns");
    assert!(chain(&error).starts_with("writing to drive.zns: write at 9"));
    let advice = advice(&error, &options_of("write")).unwrap();
    assert_eq!(advice, "--lba 7, or `zonal append`, which finds the place itself");
}

#[test]
fn advice_quotes_paths_for_shell() {
    let path = PathBuf::from("/a b/c");
    let quoted = |error: anyhow::Error, command: &str| {
        let advice = best_advice(&error).unwrap();
        assert!(advice.contains(command), "{advice}");
    };
    let device = DeviceError::NoZones { path: path.clone() };
    quoted(device.into(), "`zonal create '/a b/c' --zone-size 256MiB`");
    quoted(ServeError::Dead { point: path }.into(), "`zonal umount '/a b/c'`");
}

#[test]
fn advice_follows_cause_of_refused_mount() {
    let advice = |error: ServeError| best_advice(&error.into()).unwrap();
    let mount = |source| ServeError::Mount { point: "/mnt".into(), source };
    let said = "fusermount3: option allow_other only allowed if 'user_allow_other' is set in /etc/fuse.conf";
    let denied = io::ErrorKind::PermissionDenied;
    let cases = [
        (mount(io::Error::new(denied, said)), "user_allow_other into /etc/fuse.conf"),
        (mount(io::Error::new(io::ErrorKind::NotFound, "fusermount3: gone")), "package fuse3"),
        (mount(io::Error::new(denied, "fusermount3: not in PATH")), "package fuse3"),
        (mount(denied.into()), "a mount point that this user may"),
        (mount(io::ErrorKind::NotFound.into()), "check the path"),
        (ServeError::FuseDenied, "ls -l /dev/fuse"),
    ];
    for (error, part) in cases {
        let text = error.to_string();
        let advice = advice(error);
        assert!(advice.contains(part) && !advice.contains("owner of the file"), "{text}: {advice}");
    }
}

#[test]
fn advice_omits_options_missing_from_command() {
    let check = |error: anyhow::Error, command: &str, wanted: Option<&str>| {
        assert_eq!(advice(&error, &options_of(command)).as_deref(), wanted, "{command}");
    };
    let exists = || io::Error::new(io::ErrorKind::AlreadyExists, "exists").into();
    check(exists(), "create", Some("another name, or --force to replace it"));
    check(exists(), "man", Some("another name"));
    let occupied = || FsError::Occupied { what: "xfs".into() }.into();
    check(occupied(), "mkfs", Some("--force to overwrite it: what it holds is lost"));
    check(occupied(), "mount", None);
    let elsewhere = not_at_write_pointer().into();
    check(elsewhere, "mount", Some("`zonal append`, which finds the place itself"));
    check(ublk::Error::Taken { id: 3 }.into(), "serve nvme-tcp", None);
}

/// Each cause gets the advice that fits it, and none where that would mislead.
#[test]
fn advice_fits_cause_and_misleads_nobody() {
    let check = |error: anyhow::Error, command: &str, wanted: &str| {
        let found = advice(&error, &options_of(command)).unwrap_or_default();
        assert_eq!(found, wanted, "{command}: {error:#}");
    };
    let io = |what: &str, errno: Errno| DeviceError::Io { what: what.into(), source: errno.into() };
    let damaged = || FsError::Corrupt { what: "journal", why: "torn".into() };
    check(damaged().into(), "mount", "`zonal check DEVICE` lists what is wrong");
    check(damaged().into(), "check", "");
    check(
        io("opening a.zns", Errno::NOENT).into(),
        "info",
        "check the path, or `zonal create FILE` makes a drive",
    );
    check(io("creating /none/a.zns", Errno::NOENT).into(), "create", "check the path");
    check(io("opening a.zns", Errno::NOENT).into(), "create", "check the path");
    let held = io("opening a.zns", Errno::NOENT);
    let held = anyhow::Error::new(held).context("writing the trace");
    check(held, "read", "check the path, or `zonal create FILE` makes a drive");
    let too_large = |by| DeviceError::FileTooLarge {
        path: "a.zns".into(),
        needed: zonal::ByteCount::new(2),
        limit: zonal::ByteCount::new(1),
        by,
    };
    let process = "`ulimit -f unlimited` first, or a smaller --size";
    check(too_large(FileLimit::Process).into(), "create", process);
    let host = "a file system that takes larger files, such as XFS, or a smaller --size";
    check(too_large(FileLimit::FileSystem).into(), "create", host);
}

#[test]
fn advice_on_drive_in_use_follows_its_user() {
    let words = |line: &str| line.split(' ').map(str::to_owned).collect::<Vec<_>>();
    for (place, by, line, wanted) in [
        (
            Some("/mnt"),
            Some(7),
            "zonal mount a.zns /mnt",
            "it is mounted at /mnt: `zonal umount /mnt`",
        ),
        (None, Some(7), "/usr/bin/zonal serve nbd a.zns//root", "`kill 7` ends `zonal serve nbd`"),
        (None, Some(7), "zonal serve ublk a.zns", "`kill 7` ends `zonal serve ublk`"),
        (None, Some(7), "zonal cp x a.zns:/", "wait until zonal ends, which is process 7"),
        (None, Some(7), "fio --ioengine=zonal", "wait until fio ends, which is process 7"),
        (None, Some(7), "zonal mount a.zns /mnt", "is it mounted? `zonal umount DIR`"),
        (None, None, "", "is it mounted? `zonal umount DIR`"),
    ] {
        let found = of_locked(place.map(PathBuf::from), by, &words(line));
        assert!(found.starts_with(wanted), "{line}: {found}");
    }
}

#[test]
fn suggestions_for_unknown_subcommands_destroy_nothing() {
    for line in ["format", "mkf", "mkzonef", "rn", "creat", "zone rest", "zone offlin", "disk r"] {
        let words = std::iter::once("zonal").chain(line.split(' '));
        let error = Cli::try_parse_from(words).err().unwrap();
        let said = without_danger(error).render().to_string();
        assert!(said.contains("unrecognized subcommand"), "{line}: {said}");
        let named = |name: &&str| said.contains(&format!("'{name}'"));
        assert_eq!(DESTRUCTIVE.iter().find(|name| named(name)), None, "{line}: {said}");
    }
    let error = Cli::try_parse_from(["zonal", "inf"]).err().unwrap();
    assert!(without_danger(error).render().to_string().contains("'info'"));
}

#[test]
fn options_find_command_behind_global_options() {
    let options = options_of("--json --log x.log sim --verbose sweep a --out mkfs");
    assert!(options.have_all_of("--out, --json") && !options.have_all_of("--force"));
}

#[test]
fn error_chain_omits_repeated_cause() {
    let source = io::Error::new(io::ErrorKind::NotFound, "gone");
    let error = DeviceError::Io { what: "opening a.zns".into(), source };
    let error = anyhow::Error::new(error).context("opening a.zns");
    assert_eq!(chain(&error), "opening a.zns: gone");
}

/// The commands that print the messages of a source file, which `file` names below `src`.
fn commands_of(file: &str) -> Vec<&str> {
    let name = file.strip_prefix("cmd/").unwrap_or(file).trim_end_matches(".rs");
    match name.trim_end_matches("/mod") {
        "block" => vec!["read", "write", "append"],
        "shell" => vec!["completions", "man"],
        "division" => vec!["mkfs"],
        "disk" => vec!["disk resize"],
        "log" | "notify" => vec!["mount"],
        "files/names" => vec!["rm", "mv", "ln", "mkdir"],
        "serve" => vec!["serve nvme-tcp"],
        "serve/nbd" => vec!["serve nbd"],
        "serve/ublk" => vec!["serve ublk"],
        "sim/experiment" => vec!["sim experiment", "sim reproduce"],
        "quickstart/report" => vec!["quickstart", "zones"],
        _ if name.starts_with("files/copy/") => vec!["cp"],
        _ => vec![name.split('/').next().unwrap()],
    }
}

/// Every file of Rust below a directory.
fn sources(dir: &Path, all: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, all);
        } else if path.extension().is_some_and(|ending| ending == "rs")
            && path.file_name().is_some_and(|name| name != "tests.rs")
        {
            all.push(path);
        }
    }
}

/// The string literals of a source file, without those in its comments and its tests.
fn texts(source: &str) -> Vec<String> {
    let source = source.split("#[cfg(test)]\nmod tests").next().unwrap();
    let lines = source.lines().filter(|line| !line.trim_start().starts_with("//"));
    let code = lines.collect::<Vec<_>>().join("\n").replace("'\"'", "").replace("\\\"", "");
    code.split('"').skip(1).step_by(2).map(|text| text.replace("\\\n", "")).collect()
}

/// The commands of ours that a text quotes, each with what follows its name.
fn quoted(text: &str) -> impl Iterator<Item = &str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter_map(|quoted| quoted.strip_prefix("zonal "))
}

#[test]
fn messages_name_only_options_of_their_command() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut checked = 0;
    for library in ["zonal", "zonal-fs", "zonal-fuse", "zonal-kv", "zonal-linux", "zonal-cli"] {
        let root = crates.join(library).join("src");
        let mut files = Vec::new();
        sources(&root, &mut files);
        for file in files {
            let name = file.strip_prefix(&root).unwrap().to_str().unwrap();
            for text in texts(&fs::read_to_string(&file).unwrap()) {
                for command in quoted(&text) {
                    let options = options_of(command);
                    // The options of a quoted command must be its own, not the printing command's.
                    let named = command.replace('`', "");
                    assert!(options.have_all_of(&named), "{name}: {text}");
                    checked += options_in(&named).count();
                }
                // Options of other programs, help, and the advice above, which the table chooses by
                // command.
                let first = text.split(' ').next().unwrap();
                let is_word = first.starts_with("--") && (first == text || first.contains('='));
                let is_other = text.trim_start().starts_with("nvme connect");
                let is_advice = name == "advice/mod.rs" || name.starts_with("args");
                if library != "zonal-cli" || is_word || is_other || is_advice {
                    continue;
                }
                let named: Vec<&str> = options_in(&text).collect();
                let commands = commands_of(name);
                let has = |option: &&str| {
                    commands.iter().any(|command| options_of(command).names.contains(*option))
                };
                assert!(named.iter().all(has), "{name}, of {commands:?}: {text}");
                checked += named.len();
            }
        }
    }
    assert!(checked > 12, "{checked} options are in messages");
}

/// The quoted messages in the headings of the page about symptoms.
fn symptoms() -> Vec<&'static str> {
    let page = include_str!("../../../../docs/guide/operate/troubleshooting.md");
    let headings = page.lines().filter_map(|line| line.strip_prefix("### "));
    headings.flat_map(|heading| heading.split('`').skip(1).step_by(2)).collect()
}

/// Whether a text of the code has these pieces, in this order.
fn has_all(text: &str, pieces: &[&str]) -> bool {
    pieces.iter().try_fold(text, |rest, piece| Some(rest.split_once(*piece)?.1)).is_some()
}

#[test]
fn troubleshooting_names_only_symptoms_that_the_code_has() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let mut files = Vec::new();
    for library in ["zonal", "zonal-fs", "zonal-fuse", "zonal-linux", "zonal-nvme", "zonal-cli"] {
        sources(&crates.join(library).join("src"), &mut files);
    }
    let code: Vec<String> = files.iter().map(|file| fs::read_to_string(file).unwrap()).collect();
    let messages: Vec<String> = code.iter().flat_map(|source| texts(source)).collect();
    let symptoms = symptoms();
    for symptom in &symptoms {
        let is_known = match symptom.strip_prefix('E') {
            Some(name) if name.chars().all(|letter| letter.is_ascii_uppercase()) => {
                let errno = format!("Errno::{name}");
                code.iter().any(|source| source.contains(&errno))
            }
            _ => {
                let pieces = symptom.split("...").map(str::trim).filter(|piece| piece.len() > 1);
                let pieces: Vec<&str> = pieces.collect();
                messages.iter().any(|message| has_all(message, &pieces))
            }
        };
        assert!(is_known, "no message is like {symptom:?}");
    }
    assert!(symptoms.len() > 30, "{symptoms:?}");
}
