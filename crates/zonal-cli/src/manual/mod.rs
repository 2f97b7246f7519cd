//! The manual: a page for each command, and pages of sections 5 and 7.
//!
//! A command's page consists of its arguments (`page.rs`) and of facts that these do not show:
//! other names, files, examples (`facts.rs`, from `man/commands`). `man/` has the other pages as
//! they are.

mod facts;
mod page;

use clap::{Command, CommandFactory};

use crate::args::Cli;
use facts::CommandFacts;

/// A manual page as roff.
pub(crate) struct Page {
    /// The name of its file, which ends in the section.
    pub(crate) name: String,
    pub(crate) text: String,
}

/// Pages that are written by hand.
const WRITTEN: [(&str, &str); 3] = [
    ("furrow.5", include_str!("../../man/furrow.5")),
    ("zonefs.5", include_str!("../../man/zonefs.5")),
    ("zonal-devices.7", include_str!("../../man/zonal-devices.7")),
];

/// Every page.
pub(crate) fn pages() -> Vec<Page> {
    let written = |(name, text): (&str, &str)| Page { name: name.into(), text: text.into() };
    let mut pages: Vec<Page> = WRITTEN.into_iter().map(written).collect();
    add(&mut pages, &command(), &CommandFacts::all());
    pages
}

/// The command line as the pages describe it.
fn command() -> Command {
    let mut command = without_help(Cli::command());
    command.build();
    command
}

/// Without the subcommand `help`, at any depth.
fn without_help(command: Command) -> Command {
    command.disable_help_subcommand(true).mut_subcommands(without_help)
}

fn add(pages: &mut Vec<Page>, command: &Command, facts: &[CommandFacts]) {
    let below: Vec<&Command> =
        command.get_subcommands().filter(|below| !below.is_hide_set()).collect();
    let title = page::title(command);
    let path = page::path(command);
    let nothing = CommandFacts::default();
    let of_it = facts.iter().find(|facts| facts.command == path).unwrap_or(&nothing);
    pages.push(Page { name: format!("{title}.1"), text: page::text(command, of_it) });
    for command in below {
        add(pages, command, facts);
    }
}

/// The text of a page, without fonts and macros.
#[cfg(test)]
pub(crate) fn said(page: &Page) -> String {
    let line = |line: &str| match line.strip_prefix('.').and_then(|line| line.split_once(' ')) {
        // Macros that alternate fonts join their words without spaces.
        Some(("BI" | "BR" | "IR" | "IB" | "RB" | "RI", words)) => tests::words(words).concat(),
        Some((_, words)) => words.to_owned(),
        None => line.to_owned(),
    };
    let text = page.text.lines().map(line).collect::<Vec<_>>().join("\n");
    let fonts = ["\\fB", "\\fI", "\\fR", "\\&"];
    let text = fonts.iter().fold(text, |text, font| text.replace(font, ""));
    text.replace("\\-", "-").replace("\\*(Aq", "'")
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::device;

    const SECTIONS: [&str; 8] = [
        "NAME",
        "SYNOPSIS",
        "DESCRIPTION",
        "OPTIONS",
        "EXIT STATUS",
        "FILES",
        "EXAMPLES",
        "SEE ALSO",
    ];

    #[test]
    fn manual_pages_have_every_section() {
        for page in pages() {
            let is_command = page.name.ends_with(".1");
            for section in SECTIONS {
                // Files and devices end with no status.
                let is_there = page.text.replace('"', "").contains(&format!("\n.SH {section}\n"));
                assert!(
                    is_there || (!is_command && section == "EXIT STATUS"),
                    "{}: no {section}",
                    page.name
                );
            }
            let of = |section: &str| page.text.matches(&format!("\n.SH {section}")).count();
            assert_eq!(of("NAME"), 1, "{}", page.name);
        }
    }

    /// The lines of the examples that call the command.
    fn examples(page: &Page) -> Vec<String> {
        let text = said(page);
        let Some((_, examples)) = text.split_once("\nEXAMPLES\n") else { return Vec::new() };
        let (examples, _) = examples.split_once("\nSEE ALSO\n").unwrap_or((examples, ""));
        examples.lines().filter(|line| line.starts_with("zonal ")).map(Into::into).collect()
    }

    /// The words of a line, up to a pipe.
    pub(super) fn words(line: &str) -> Vec<String> {
        let mut words = vec![String::new()];
        let mut quote = None;
        for letter in line.chars() {
            match letter {
                '"' | '\'' if quote == Some(letter) => quote = None,
                '"' | '\'' if quote.is_none() => quote = Some(letter),
                '|' | '>' | '<' | '&' if quote.is_none() => break,
                ' ' if quote.is_none() => words.push(String::new()),
                other => words.last_mut().unwrap().push(other),
            }
        }
        words.retain(|word| !word.is_empty());
        words
    }

    #[test]
    fn manual_examples_are_accepted_by_parser() {
        for page in pages() {
            let lines = examples(&page);
            assert!(!lines.is_empty(), "{} has no example", page.name);
            for line in lines {
                let refused = Cli::try_parse_from(words(&line)).err();
                // clap also returns help as an error, with the exit code of success.
                if let Some(error) = refused.filter(|error| error.exit_code() != 0) {
                    panic!("{}: {line}\n{error}", page.name);
                }
            }
        }
    }

    #[test]
    fn manual_facts_match_commands() {
        let facts = CommandFacts::all();
        for page in pages().iter().filter(|page| page.name.ends_with(".1")) {
            let is_it = |facts: &CommandFacts| page.name == facts.command.replace(' ', "-") + ".1";
            assert!(facts.iter().any(is_it), "man/commands says nothing of {}", page.name);
        }
    }

    #[test]
    fn manual_references_name_existing_pages() {
        let pages = pages();
        for page in &pages {
            let text = said(page);
            for word in text.split([' ', ',', '\n']).filter(|word| word.starts_with("zonal-")) {
                if let Some((name, rest)) = word.split_once('(') {
                    let name = format!("{name}.{}", &rest[..1]);
                    assert!(pages.iter().any(|page| page.name == name), "{}: {name}", page.name);
                }
            }
        }
    }

    #[test]
    fn manual_devices_page_has_every_scheme() {
        let pages = pages();
        let page = pages.iter().find(|page| page.name == "zonal-devices.7").unwrap();
        for scheme in device::openers().schemes() {
            assert!(said(page).contains(scheme.form), "{}", scheme.form);
        }
    }
}
