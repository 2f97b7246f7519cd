//! The manual page of a command, section by section, as roff with the macros of man(7).

use clap::{Arg, ArgAction, Command};
use roff::{Inline, Roff, bold, italic, roman};

use super::facts::{CommandFacts, Described};
use crate::args::mount_options::{self, Of, Remount};
use crate::device;

/// The heading of the options that every command has.
const COMMON: &str = "Common options";

/// The words that call the command.
pub(super) fn path(command: &Command) -> &str {
    command.get_bin_name().unwrap_or(command.get_name())
}

/// The name of the page: these words with hyphens between them.
pub(super) fn title(command: &Command) -> String {
    path(command).replace(' ', "-")
}

/// The page.
pub(super) fn text(command: &Command, facts: &CommandFacts) -> String {
    let mut page = Roff::new();
    let title = title(command);
    let (heading, version) = (title.to_uppercase(), concat!("Zonal ", env!("CARGO_PKG_VERSION")));
    // No date: a page is the same whenever it is made.
    page.control("TH", [&*escaped(&heading), "1", "\"\"", version, "Zonal manual"]);
    name(&mut page, command, facts);
    synopsis(&mut page, command, facts);
    description(&mut page, command, facts);
    options(&mut page, command);
    if command.has_subcommands() {
        commands(&mut page, command);
    }
    match &*title {
        "zonal" => devices(&mut page),
        "zonal-mount" => mount(&mut page),
        _ => {}
    }
    exit_status(&mut page, facts);
    section(&mut page, "FILES");
    all_tagged(&mut page, &facts.files);
    examples(&mut page, facts);
    see_also(&mut page, command, facts);
    page.render()
}

fn section(page: &mut Roff, name: &str) {
    // Arguments of macros that hold a space are put into quotes.
    page.control("SH", [name]);
}

fn name(page: &mut Roff, command: &Command, facts: &CommandFacts) {
    section(page, "NAME");
    let names = [&[&*title(command)], &*facts.names].concat().join(", ");
    let about = command.get_about().map(ToString::to_string).unwrap_or_default();
    page.text([roman(format!("{names} - {}", plain(&about)))]);
}

fn synopsis(page: &mut Roff, command: &Command, facts: &CommandFacts) {
    section(page, "SYNOPSIS");
    page.control("SY", [&*escaped(path(command))]);
    let groups: Vec<Vec<&Arg>> = command
        .get_groups()
        .filter(|group| group.is_required_set())
        .map(|group| group.get_args().filter_map(|id| argument(command, id.as_str())).collect())
        .collect();
    let is_free = |arg: &&Arg| !groups.iter().flatten().any(|one| one.get_id() == arg.get_id());
    let positionals = command.get_positionals().filter(|arg| !arg.is_hide_set());
    for arg in options_of(command).chain(positionals).filter(is_free) {
        in_synopsis(page, arg);
    }
    for group in &groups {
        let forms: Vec<Vec<Inline>> = group.iter().map(|arg| form(arg)).collect();
        page.text([&[roman("{")], &*forms.join(&roman(" | ")), &[roman("}")]].concat());
    }
    if command.has_subcommands() {
        page.text([italic("COMMAND")]);
    }
    page.control("YS", []);
    for called in &facts.forms {
        let (program, rest) = called.split_once(' ').unwrap_or((called, ""));
        page.control("SY", [&*escaped(program)]);
        page.text([roman(rest)]);
        page.control("YS", []);
    }
}

/// An argument of the synopsis, in brackets if it can be left out.
fn in_synopsis(page: &mut Roff, arg: &Arg) {
    let form = form(arg);
    if arg.is_required_set() {
        page.text(form);
    } else {
        page.text([&[roman("[")], &*form, &[roman("]")]].concat());
    }
}

/// An argument as it is written, by its long name if it has one.
fn form(arg: &Arg) -> Vec<Inline> {
    let named = match (arg.get_long(), arg.get_short()) {
        (Some(long), _) => format!("--{long}"),
        (None, Some(short)) => format!("-{short}"),
        (None, None) => return value(arg),
    };
    let value = value(arg);
    let is_apart = arg.get_action().takes_values() && !arg.is_require_equals_set();
    let space = if is_apart { " " } else { "" };
    [&[bold(named), roman(space)], &*value].concat()
}

/// The kind of value that an argument has; nothing for a flag.
fn value(arg: &Arg) -> Vec<Inline> {
    let Some(range) = arg.get_num_args().filter(clap::builder::ValueRange::takes_values) else {
        let is_counted = matches!(arg.get_action(), ArgAction::Count);
        return if is_counted { vec![roman("...")] } else { Vec::new() };
    };
    let names = arg.get_value_names().unwrap_or_default().join(" ");
    let mut value = vec![italic(names)];
    if range.max_values() > 1 || matches!(arg.get_action(), ArgAction::Append) {
        value.push(roman(" ..."));
    }
    let equals = if arg.is_require_equals_set() { "=" } else { "" };
    if !arg.is_positional() && range.min_values() == 0 {
        return [&[roman(format!("[{equals}"))], &*value, &[roman("]")]].concat();
    }
    value.insert(0, roman(equals));
    value
}

fn argument<'a>(command: &'a Command, id: &str) -> Option<&'a Arg> {
    command.get_arguments().find(|arg| arg.get_id() == id)
}

/// Options, those of every command last.
fn options_of(command: &Command) -> impl Iterator<Item = &Arg> {
    let is_common = |arg: &&Arg| arg.get_help_heading() == Some(COMMON);
    let is_option = |arg: &&Arg| !arg.is_positional() && !arg.is_hide_set() && !is_question(arg);
    let options = move || command.get_arguments().filter(is_option);
    options().filter(move |arg| !is_common(arg)).chain(options().filter(is_common))
}

/// Whether an option makes the command print something about itself instead.
fn is_question(arg: &Arg) -> bool {
    use ArgAction::{Help, HelpLong, HelpShort, Version};
    matches!(arg.get_action(), Help | HelpLong | HelpShort | Version)
}

fn description(page: &mut Roff, command: &Command, facts: &CommandFacts) {
    section(page, "DESCRIPTION");
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    for (at, paragraph) in about.split("\n\n").chain(facts.more.iter().copied()).enumerate() {
        if at > 0 {
            page.control("PP", []);
        }
        page.text(words(&sentence(paragraph)));
    }
}

fn options(page: &mut Roff, command: &Command) {
    section(page, "OPTIONS");
    let positionals = command.get_positionals().filter(|arg| !arg.is_hide_set());
    let questions = command.get_arguments().filter(|arg| is_question(arg));
    for arg in positionals.chain(options_of(command)).chain(questions) {
        let long = form(arg);
        let head = match (arg.get_short(), arg.get_long()) {
            (Some(short), Some(_)) => [&[bold(format!("-{short}")), roman(", ")], &*long].concat(),
            _ => long,
        };
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string);
        let mut text = sentence(&help.unwrap_or_default());
        let defaults: Vec<_> =
            arg.get_default_values().iter().map(|value| value.to_string_lossy()).collect();
        let takes_value = arg.get_action().takes_values();
        if takes_value && !defaults.concat().is_empty() && !arg.is_hide_default_value_set() {
            text = format!("{text} The default is {}.", defaults.join(","));
        }
        tagged(page, head, &text);
        possible_values(page, arg);
    }
}

/// The values that an argument may have, where these are few.
fn possible_values(page: &mut Roff, arg: &Arg) {
    if arg.is_hide_possible_values_set() || !arg.get_action().takes_values() {
        return;
    }
    let values = arg.get_possible_values();
    let (said, plain): (Vec<_>, Vec<_>) =
        values.iter().partition(|value| value.get_help().is_some());
    if !plain.is_empty() {
        let names: Vec<_> = plain.iter().map(|value| value.get_name()).collect();
        page.control("IP", []);
        page.text([roman(format!("One of: {}.", names.join(", ")))]);
    }
    if !said.is_empty() {
        page.control("RS", []);
        for value in said {
            let help = value.get_help().map(ToString::to_string).unwrap_or_default();
            tagged(page, vec![bold(value.get_name())], &sentence(&help));
        }
        page.control("RE", []);
    }
}

fn commands(page: &mut Roff, command: &Command) {
    section(page, "COMMANDS");
    for below in command.get_subcommands().filter(|below| !below.is_hide_set()) {
        let about = below.get_about().map(ToString::to_string).unwrap_or_default();
        let title = vec![bold(title(below)), roman("(1)")];
        tagged(page, title, &sentence(&about));
    }
    page.control("PP", []);
    let rest = path(command).strip_prefix("zonal").unwrap_or_default();
    page.text(words(&format!("`zonal help{rest} COMMAND` prints what the command takes.")));
}

fn devices(page: &mut Roff) {
    section(page, "DEVICES");
    page.text(words(
        "A DEVICE is one of these; layers stack, the outermost first. See zonal-devices(7).",
    ));
    let path = "A drive file, a zoned block device, an NVMe namespace (/dev/ngXnY).";
    tagged(page, vec![bold("PATH")], path);
    for scheme in device::openers().schemes() {
        tagged(page, vec![bold(scheme.form)], &sentence(scheme.help));
    }
}

fn mount(page: &mut Roff) {
    section(page, "MOUNT OPTIONS");
    page.text(words("furrow(5) and zonefs(5) say more about their options."));
    for (of, heading) in Of::ALL {
        page.control("SS", [heading]);
        for option in mount_options::options_of(of) {
            let mut form = vec![bold(option.name)];
            if !option.value.is_empty() {
                form.push(italic(option.value));
            }
            let mut help = sentence(&option.help());
            if option.remount == Remount::Changes {
                help += " A remount changes it.";
            }
            tagged(page, form, &help);
        }
    }
}

fn exit_status(page: &mut Roff, facts: &CommandFacts) {
    const USUAL: [Described; 3] = [
        Described { fact: "0", text: "Success." },
        Described { fact: "1", text: "It failed; standard error says why." },
        Described { fact: "2", text: "The arguments are not understood." },
    ];
    section(page, "EXIT STATUS");
    let exits = if facts.exits.is_empty() { &USUAL[..] } else { &facts.exits };
    all_tagged(page, exits);
}

fn examples(page: &mut Roff, facts: &CommandFacts) {
    section(page, "EXAMPLES");
    for said in &facts.examples {
        page.control("PP", []).text(words(&format!("{}:", said.text)));
        page.control("PP", []).control("RS", ["4"]).control("EX", []);
        page.text([roman(said.fact)]);
        page.control("EE", []).control("RE", []);
    }
}

fn see_also(page: &mut Roff, command: &Command, facts: &CommandFacts) {
    section(page, "SEE ALSO");
    let title = title(command);
    let mut pages: Vec<String> = facts.see.iter().map(|&page| page.to_owned()).collect();
    // Every page leads to those above it.
    let above = title.match_indices('-').map(|(at, _)| format!("{}(1)", &title[..at]));
    pages.extend(above.filter(|above| above == "zonal(1)" || is_group(above)));
    let mut text = Vec::new();
    for (at, page) in pages.iter().enumerate() {
        let (name, number) = page.split_at(page.find('(').unwrap_or(page.len()));
        let comma = if at + 1 < pages.len() { ", " } else { "" };
        text.extend([bold(name), roman(format!("{number}{comma}"))]);
    }
    page.text(text);
    page.control("PP", []);
    page.text([roman("Guides and formats: /usr/share/doc/zonal/docs")]);
}

/// Whether a page is of a command that has commands: `zonal-sim(1)`.
fn is_group(page: &str) -> bool {
    let name = page.trim_end_matches("(1)").trim_start_matches("zonal-");
    super::command().find_subcommand(name).is_some_and(Command::has_subcommands)
}

/// A paragraph for each fact, with the fact in front.
fn all_tagged(page: &mut Roff, facts: &[Described]) {
    for said in facts {
        tagged(page, vec![bold(said.fact)], said.text);
    }
}

/// A paragraph with a tag in front.
fn tagged(page: &mut Roff, tag: Vec<Inline>, text: &str) {
    page.control("TP", []).text(tag).text(words(text));
}

/// Text whose words between backquotes are bold.
fn words(text: &str) -> Vec<Inline> {
    let part = |(at, part): (usize, &str)| {
        if at % 2 == 1 { bold(part) } else { roman(part.replace('\n', " ")) }
    };
    let parts = text.split('`').enumerate().filter(|(_, part)| !part.is_empty());
    parts.map(part).collect()
}

/// Text without backquotes.
fn plain(text: &str) -> String {
    text.replace('`', "")
}

/// Text with a full stop at its end.
fn sentence(text: &str) -> String {
    let text = text.trim_end();
    let is_whole = text.is_empty() || text.ends_with(['.', ':', ']', ')']);
    if is_whole { text.to_owned() } else { format!("{text}.") }
}

/// An argument of a macro, which [`Roff::control`] takes as it is.
fn escaped(text: &str) -> String {
    text.replace('-', "\\-")
}
