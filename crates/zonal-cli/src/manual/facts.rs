//! The facts of a manual page that the arguments of its command do not show: `man/commands`.
//!
//! A line that is not indented names a command; the lines below it are its facts. The first word is
//! the kind of fact; `##` divides a fact from its description.

const TEXT: &str = include_str!("../../man/commands");

/// The facts of a command.
#[derive(Default)]
pub(super) struct CommandFacts {
    /// The words that call it.
    pub(super) command: &'static str,
    /// Other names of it, with links to its page.
    pub(super) names: Vec<&'static str>,
    /// How the user calls these.
    pub(super) forms: Vec<&'static str>,
    /// More paragraphs of the description.
    pub(super) more: Vec<&'static str>,
    /// Exit codes and their meanings, if they are not the usual ones.
    pub(super) exits: Vec<Described>,
    /// Files that it uses or makes.
    pub(super) files: Vec<Described>,
    pub(super) examples: Vec<Described>,
    /// Pages to read next.
    pub(super) see: Vec<&'static str>,
}

/// A fact with its description.
pub(super) struct Described {
    pub(super) fact: &'static str,
    pub(super) text: &'static str,
}

impl CommandFacts {
    /// The facts of all commands.
    pub(super) fn all() -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for line in TEXT.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            match (line.strip_prefix("  "), all.last_mut()) {
                (None, _) => all.push(Self { command: line, ..Self::default() }),
                (Some(fact), Some(facts)) => facts.add(fact),
                (Some(fact), None) => panic!("man/commands: {fact:?} is of no command"),
            }
        }
        all
    }

    fn add(&mut self, line: &'static str) {
        let (kind, rest) = line.split_once(' ').unwrap_or((line, ""));
        match kind {
            "name" => self.names.push(rest),
            "form" => self.forms.push(rest),
            "more" => self.more.push(rest),
            "exit" => self.exits.push(said(rest)),
            "file" => self.files.push(said(rest)),
            "device" => self.add_device(),
            "example" => self.examples.push(said(rest)),
            "see" => self.see.extend(rest.split(' ')),
            other => panic!("man/commands: {other:?} is no kind of fact"),
        }
    }

    /// The files of a command that opens a device.
    fn add_device(&mut self) {
        const DEVICES: [Described; 3] = [
            Described { fact: "drive.zns", text: "A drive file, such as `zonal create` makes." },
            Described { fact: "/dev/nvmeXnY, /dev/sdX", text: "A zoned block device." },
            Described {
                fact: "/dev/ngXnY",
                text: "A zoned NVMe namespace, also one whose zone size Linux refuses.",
            },
        ];
        self.files.extend(DEVICES);
        self.see.push("zonal-devices(7)");
    }
}

fn said(line: &'static str) -> Described {
    match line.split_once(" ## ") {
        Some((fact, text)) => Described { fact, text },
        None => panic!("man/commands: {line:?} has no ` ## `"),
    }
}
