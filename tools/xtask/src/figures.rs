//! `cargo xtask bench report`: the tables of `docs/performance.md`, `docs/performance/` and the
//! README, printed from `bench/results/`, so that no figure is typed by hand.
//!
//! A document asks for a table with a pair of comments; the text between them is replaced:
//!
//! ```text
//! <!-- results: fuse.json, files; unit: µs; variants: Furrow | ext4 -->
//! <!-- end -->
//! ```
//!
//! It names a file and the subject of its runs, whose commands and commits follow the table. A
//! unit, the start of names, and variants choose among the figures; variants also give their order.
//! A text with figures from several files has a template in `bench/tables/`, whose cells name file,
//! subject, figure and variant, and a unit if need be. `median of` and `ratio of` before the file
//! leave out the rest of the figure:
//!
//! ```text
//! <!-- figures: results.txt -->
//! <!-- end -->
//!
//! | create | {fuse.json; files; create and close; Furrow} |
//! A create takes {ratio of fuse.json; files; create and close; Furrow} times as long.
//! ```

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use bench_support::{Figure, Results, Run, digits, median, table};

use crate::printed::{Printed, files_of};

pub(crate) const RESULTS: &str = "bench/results";
const TEMPLATES: &str = "bench/tables";
const TABLE: &str = "<!-- results: ";
const TEMPLATE: &str = "<!-- figures: ";
const CLOSE: &str = "<!-- end -->";

/// Writes the tables into the documents.
pub(crate) fn refresh(root: &Path) -> Result<()> {
    printed(root)?.refresh()
}

/// Fails with the documents that differ from the results.
pub(crate) fn compare(root: &Path) -> Result<()> {
    printed(root)?.compare()
}

fn printed(root: &Path) -> Result<Printed<impl Fn(&str) -> Result<String>>> {
    let mut documents = files_of(&root.join("docs/performance"))?;
    documents.extend(["docs/performance.md", "README.md"].map(|path| root.join(path)));
    Ok(Printed {
        documents,
        render: move |text: &str| render(text, root),
        source: RESULTS,
        command: "cargo xtask bench report",
    })
}

fn results(root: &Path, file: &str) -> Result<Results> {
    let path = root.join(RESULTS).join(file);
    Results::read(&path).with_context(|| path.display().to_string())
}

fn render(text: &str, root: &Path) -> Result<String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = [TABLE, TEMPLATE].iter().filter_map(|open| rest.find(open)).min() {
        let (before, from) = rest.split_at(at);
        let (request, after) = from.split_once(" -->\n").context("a comment does not end")?;
        let (_, after) = after.split_once(CLOSE).with_context(|| format!("no `{CLOSE}`"))?;
        let printed = match request.strip_prefix(TEMPLATE) {
            Some(file) => {
                let path = root.join(TEMPLATES).join(file);
                let template = fs::read_to_string(&path);
                filled(&template.with_context(|| path.display().to_string())?, root)?
            }
            None => one(&request[TABLE.len()..], root)?,
        };
        out.extend([before, request, " -->\n", &printed, CLOSE]);
        rest = after;
    }
    Ok(out + rest)
}

/// The table of one subject.
fn one(request: &str, root: &Path) -> Result<String> {
    let mut parts = request.split("; ");
    let place = parts.next().unwrap_or_default();
    let (file, subject) = place.split_once(", ").context("a table needs a file and a subject")?;
    let results = results(root, file)?;
    let runs = results.runs.iter().filter(|run| run.subject == subject);
    let mut figures: Vec<&Figure> = runs.flat_map(|run| &run.results).collect();
    for part in parts {
        match part.split_once(": ") {
            Some(("unit", unit)) => figures.retain(|figure| figure.unit == unit),
            Some(("name", start)) => figures.retain(|figure| figure.name.starts_with(start)),
            Some(("variants", wanted)) => {
                let wanted: Vec<&str> = wanted.split(" | ").collect();
                let place = |figure: &&Figure| wanted.iter().position(|of| *of == figure.variant);
                figures = in_order(&figures, &wanted, place);
            }
            _ => anyhow::bail!("{part} is neither `unit:` nor `name:` nor `variants:`"),
        }
    }
    ensure!(!figures.is_empty(), "no figures for `{request}`");
    let runs = results.runs.iter().filter(|run| run.subject == subject);
    let shown: Vec<(&Run, Vec<&Figure>)> = runs
        .map(|run| {
            let of_run = run.results.iter().filter(|of| figures.contains(of));
            (run, of_run.collect::<Vec<_>>())
        })
        .filter(|(_, figures)| !figures.is_empty())
        .collect();
    Ok(format!("{}\n{}", table(&figures), sources(&shown)))
}

fn variants<'a>((_, figures): &(&Run, Vec<&'a Figure>)) -> BTreeSet<&'a str> {
    figures.iter().map(|figure| figure.variant.as_str()).collect()
}

/// Where the figures of a table come from: a line for each run.
fn sources(runs: &[(&Run, Vec<&Figure>)]) -> String {
    let by_variant = runs.iter().any(|run| variants(run) != variants(&runs[0]));
    let line = |(nth, run): (usize, &(&Run, Vec<&Figure>))| {
        let which: Vec<&str> = if by_variant {
            variants(run)
                .into_iter()
                .map(|name| if name.is_empty() { "now" } else { name })
                .collect()
        } else if nth > 0 {
            run.1.iter().map(|of| of.name.as_str()).collect::<BTreeSet<_>>().into_iter().collect()
        } else {
            Vec::new()
        };
        let which =
            if which.is_empty() { String::new() } else { format!("{}: ", which.join("; ")) };
        let Run { command, commit, date, load, rounds, .. } = run.0;
        format!("*{which}`{command}`; commit {commit}; {date}; load {load}; rounds: {rounds}*\n")
    };
    runs.iter().enumerate().map(line).collect::<Vec<_>>().join("\n")
}

/// The figures of wanted variants: rows keep their order, and columns get that of the request.
fn in_order<'a>(
    figures: &[&'a Figure],
    wanted: &[&str],
    place: impl Fn(&&Figure) -> Option<usize>,
) -> Vec<&'a Figure> {
    let mut names: Vec<(&str, &str)> = Vec::new();
    for figure in figures {
        let row = (figure.name.as_str(), figure.unit.as_str());
        if !names.contains(&row) {
            names.push(row);
        }
    }
    let mut found: Vec<(usize, &Figure)> = Vec::new();
    for (nth, row) in names.iter().enumerate() {
        let of_row = figures.iter().filter(|of| (of.name.as_str(), of.unit.as_str()) == *row);
        found.extend(of_row.filter(|of| place(of).is_some()).map(|of| (nth, *of)));
    }
    found.sort_by_key(|(nth, figure)| (*nth, place(figure).unwrap_or(wanted.len())));
    found.into_iter().map(|(_, figure)| figure).collect()
}

/// A template with its figures.
fn filled(template: &str, root: &Path) -> Result<String> {
    let mut out = String::new();
    let mut rest = template;
    while let Some((before, from)) = rest.split_once('{') {
        let (request, after) = from.split_once('}').context("a `{` is not closed")?;
        out.extend([before, &cell(request, root).with_context(|| request.to_owned())?]);
        rest = after;
    }
    Ok(out + rest)
}

/// `file; subject; name; variant`, and a unit where several have the same name and variant.
fn cell(request: &str, root: &Path) -> Result<String> {
    let parts: Vec<&str> = request.split("; ").collect();
    let (file, subject, name, variant, unit) = match parts[..] {
        [file, subject, name] => (file, subject, name, "", None),
        [file, subject, name, variant] => (file, subject, name, variant, None),
        [file, subject, name, variant, unit] => (file, subject, name, variant, Some(unit)),
        _ => anyhow::bail!("it needs a file, a subject and a name"),
    };
    let (part, file) = file.rsplit_once(" of ").map_or((None, file), |(part, of)| (Some(part), of));
    let results = results(root, file)?;
    let runs = results.runs.iter().filter(|run| run.subject == subject);
    let mut found = runs.flat_map(|run| &run.results).filter(|figure| {
        figure.name == name
            && figure.variant == variant
            && unit.is_none_or(|unit| figure.unit == unit)
    });
    let figure = found.next().context("there is no such figure")?;
    ensure!(found.next().is_none(), "there are several: name the unit too");
    match part {
        None => Ok(figure.text()),
        Some("median") => Ok(digits(median(&figure.samples))),
        Some("ratio") => figure.ratio.map(digits).context("it has no ratio"),
        Some(other) => anyhow::bail!("{other} is neither `median` nor `ratio`"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory with results and a template.
    fn root() -> tempfile::TempDir {
        let figures = |name: &str, values: [(&str, f64); 2]| {
            values.map(|(variant, value)| Figure {
                name: name.into(),
                variant: variant.into(),
                unit: "µs".into(),
                samples: vec![value],
                ratio: (variant == "b").then_some(value / 4.0),
            })
        };
        let results =
            [figures("read", [("a", 1.0), ("b", 2.0)]), figures("write", [("b", 4.0), ("a", 3.0)])];
        let run = Run {
            subject: "s".into(),
            results: results.concat(),
            command: "measure".into(),
            commit: "c0ffee".into(),
            date: "2026-11-24".into(),
            load: "2".into(),
            rounds: 1,
            ..Run::default()
        };
        let dir = tempfile::tempdir().expect("a directory");
        for (path, text) in [
            ("bench/results/x.json", Results { runs: vec![run] }.to_json()),
            (
                "bench/tables/t.txt",
                "{x.json; s; read; b}, {median of x.json; s; read; b}, {ratio of x.json; s; read; b}\n"
                    .to_owned(),
            ),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().expect("it is below")).expect("a directory");
            fs::write(path, text).expect("written");
        }
        dir
    }

    #[test]
    fn table_between_markers_is_replaced_and_stays() {
        let root = root();
        let text = "x\n<!-- results: x.json, s; variants: b | a -->\nold\n<!-- end -->\ny\n";
        let expected = "x\n<!-- results: x.json, s; variants: b | a -->\n\
            | µs | b | a |\n| --- | --- | --- |\n| read | 2 (0.5) | 1 |\n| write | 4 (1) | 3 |\n\n\
            *`measure`; commit c0ffee; 2026-11-24; load 2; rounds: 1*\n<!-- end -->\ny\n";
        let new = render(text, root.path()).expect("it names figures that there are");
        assert_eq!(new, expected);
        assert_eq!(render(&new, root.path()).expect("again"), expected);
    }

    #[test]
    fn template_is_filled_with_figures() {
        let text = "<!-- figures: t.txt -->\nold\n<!-- end -->";
        let new = render(text, root().path()).expect("it names figures that there are");
        assert_eq!(new, "<!-- figures: t.txt -->\n2 (0.5), 2, 0.5\n<!-- end -->");
    }

    #[test]
    fn request_without_figures_is_refused() {
        let root = root();
        for request in ["x.json, t", "y.json, s", "x.json, s; unit: s", "x.json, s; units: µs"] {
            let text = format!("<!-- results: {request} -->\n<!-- end -->");
            assert!(render(&text, root.path()).is_err(), "{request}");
        }
        assert!(render("<!-- results: x.json, s -->\n", root.path()).is_err());
        assert!(render("<!-- figures: u.txt -->\n<!-- end -->\n", root.path()).is_err());
        for request in
            ["x.json; s; read; c", "ratio of x.json; s; read; a", "of x.json; s; read; a"]
        {
            assert!(cell(request, root.path()).is_err(), "{request}");
        }
    }

    #[test]
    fn document_that_differs_from_the_results_is_named() {
        let root = root();
        let page = root.path().join("docs/performance/p.md");
        fs::create_dir_all(page.parent().expect("it is below")).expect("a directory");
        for without in ["docs/performance.md", "README.md"] {
            fs::write(root.path().join(without), "no table\n").expect("written");
        }
        fs::write(&page, "<!-- results: x.json, s -->\n<!-- end -->\n").expect("written");
        let error = compare(root.path()).expect_err("the table is missing").to_string();
        assert!(error.contains("p.md") && !error.contains("performance.md"), "{error}");
        refresh(root.path()).expect("written");
        compare(root.path()).expect("it is as printed");
    }
}
