//! One page of HTML that holds everything: pictures inside, no script, nothing to load.

use std::fmt;

use maud::{DOCTYPE, Markup, PreEscaped, html};
use serde::{Deserialize, Serialize};

use super::{Axis, Bars, Cell, Picture, Table, draw, number};

/// How a figure of ours was obtained.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Basis {
    /// A constant of the model was fitted so that it comes out.
    Calibrated,
    /// Predicted, under one of several readings of how it was measured: the one that is named.
    Reading,
    /// Predicted by the model, with no constant fitted to it.
    Predicted,
    /// It is a product of a few numbers, without simulation.
    Arithmetic,
}

impl Basis {
    /// In words, for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Reading => "predicted, for this reading",
            Self::Predicted => "predicted",
            Self::Arithmetic => "arithmetic",
        }
    }
}

/// How a published value was taken from where it was published.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Origin {
    /// Its text has the value.
    Printed,
    /// Computed from values that its text has.
    Computed,
    /// Read off a picture, so rough.
    Picture,
    /// Its raw data has the value.
    Data,
}

impl Origin {
    const fn words(self) -> &'static str {
        match self {
            Self::Printed => "printed",
            Self::Computed => "computed from printed values",
            Self::Picture => "read off a picture",
            Self::Data => "raw data",
        }
    }
}

/// By how much ours differs from a published value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Deviation {
    /// Ours is larger by this much.
    #[serde(rename = "amount")]
    pub value: f64,
    /// Of what.
    #[serde(rename = "amount_unit")]
    pub unit: DeviationUnit,
}

/// The unit of a deviation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum DeviationUnit {
    /// Percent of the published value.
    Percent,
    /// Percentage points: the values are percentages themselves.
    Points,
}

impl Deviation {
    /// Beyond this it is marked.
    const FAR: f64 = 10.0;

    /// Of our value from a published one, both in `unit`.
    pub fn new(published: f64, ours: f64, unit: &str) -> Self {
        if unit == "%" {
            Self { value: ours - published, unit: DeviationUnit::Points }
        } else {
            Self { value: 100.0 * (ours / published - 1.0), unit: DeviationUnit::Percent }
        }
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            DeviationUnit::Percent => "%",
            DeviationUnit::Points => "points",
        };
        write!(formatter, "{:+.1} {unit}", self.value)
    }
}

/// A published value beside ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Claim {
    /// What of.
    pub what: String,
    /// As published, in words.
    pub published: String,
    /// The number in those words.
    pub value: f64,
    /// Ours.
    pub ours: f64,
    /// Of both.
    pub unit: String,
    /// By how much ours differs.
    #[serde(rename = "deviation")]
    pub error: Deviation,
    /// How ours came about.
    pub basis: Basis,
    /// Where in the document theirs is.
    pub place: String,
    /// How theirs was taken from there.
    pub origin: Origin,
    /// Where one misses: why. Otherwise what else is to be known.
    pub note: String,
}

/// Values that one document published together, beside ours, all in one unit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PublishedChart {
    /// The title of the chart.
    pub title: String,
    /// Where it was published.
    pub document: String,
    /// The document's address, if one is known.
    pub url: Option<String>,
    /// Its values.
    pub claims: Vec<Claim>,
}

impl PublishedChart {
    /// Both values of each claim side by side.
    pub fn picture(&self) -> Picture {
        let unit = self.claims.first().map_or("", |claim| &claim.unit);
        let group = |claim: &Claim| (claim.what.clone(), vec![claim.value, claim.ours]);
        Picture::Bars(Bars {
            title: self.title.clone(),
            y: Axis::linear(unit),
            names: vec!["published".into(), "ours".into()],
            groups: self.claims.iter().map(group).collect(),
            ranges: Vec::new(),
        })
    }

    /// The values as a table of this name.
    pub fn table(&self, name: &str) -> Table {
        let columns =
            ["what", "unit", "published", "ours", "error", "error_unit", "basis", "origin"];
        let mut table = Table::new(name, &columns);
        for claim in &self.claims {
            let error_unit = match claim.error.unit {
                DeviationUnit::Percent => "percent",
                DeviationUnit::Points => "points",
            };
            table.row(vec![
                claim.what.as_str().into(),
                claim.unit.as_str().into(),
                claim.value.into(),
                claim.ours.into(),
                claim.error.value.into(),
                error_unit.into(),
                claim.basis.words().into(),
                claim.origin.words().into(),
            ]);
        }
        table
    }
}

/// The program that made the page.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Program {
    /// Version of zonal.
    pub version: String,
    /// Commit of its sources, if they were a checkout when it was built.
    #[serde(rename = "source_commit")]
    pub commit: Option<String>,
}

impl fmt::Display for Program {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "zonal {}", self.version)?;
        match &self.commit {
            Some(commit) => write!(formatter, ", commit {commit}"),
            None => write!(formatter, ", built without a checkout: commit unknown"),
        }
    }
}

/// A part of the page: a question and what came out.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Section {
    /// Its name, as of its files.
    pub name: String,
    /// The question.
    pub title: String,
    /// Paragraphs before the pictures.
    pub text: Vec<String>,
    /// Pictures.
    pub pictures: Vec<Picture>,
    /// Published charts beside ours.
    pub charts: Vec<PublishedChart>,
    /// The numbers.
    pub tables: Vec<Table>,
    /// The config, as in its file.
    pub config: String,
}

/// The page.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// Paragraphs at its head.
    pub text: Vec<String>,
    /// Its parts.
    pub sections: Vec<Section>,
}

const STYLE: &str = "\
:root{color-scheme:light dark;--ink:#222;--paper:#fff;--line:#ccc;--far:#a33000}\
@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--paper:#16181c;--line:#444;--far:#ff9a70}}\
body{font:16px/1.5 system-ui,sans-serif;color:var(--ink);background:var(--paper);\
max-width:1000px;margin:2em auto;padding:0 1em}h1,h2{line-height:1.2}\
h2{margin-top:2em;border-top:1px solid var(--line);padding-top:.8em}\
figure{margin:1em 0}svg{max-width:100%;height:auto}\
table{border-collapse:collapse;font-size:14px;margin:1em 0;display:block;overflow-x:auto}\
th,td{padding:.3em .6em;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\
th{border-bottom-width:2px}.n{text-align:right;font-variant-numeric:tabular-nums}\
pre{padding:.8em;overflow-x:auto;font-size:13px;border:1px solid var(--line)}\
summary{cursor:pointer}.far{font-weight:600;color:var(--far)}";

impl Page {
    /// The page as HTML.
    pub fn html(&self) -> String {
        let charts: Vec<_> = self.sections.iter().flat_map(|section| &section.charts).collect();
        html! {
            (DOCTYPE)
            html lang="en" {
                head {
                    meta charset="utf-8"; meta name="viewport" content="width=device-width";
                    title { (self.title) } style { (PreEscaped(STYLE)) }
                }
                body {
                    h1 { (self.title) }
                    @for paragraph in &self.text { p { (paragraph) } }
                    nav { @for section in &self.sections {
                        a href={ "#" (section.name) } { (section.title) }
                        ul { @for (id, picture) in section.figures() {
                            li { a href={ "#" (id) } { (picture.title()) } }
                        } }
                    } }
                    @if !charts.is_empty() {
                        h2 { "Published values and ours" }
                        table {
                            tr { (Claim::heads()) }
                            @for chart in charts {
                                tr { th colspan="5" { (chart.title) } }
                                @for claim in &chart.claims { tr { (claim.cells()) } }
                            }
                        }
                    }
                    @for section in &self.sections { (section.markup()) }
                }
            }
        }
        .into_string()
    }
}

impl Section {
    /// The pictures in the order of the page, each with its name there.
    fn figures(&self) -> Vec<(String, Picture)> {
        let name = &self.name;
        let published = (1..).zip(self.charts.iter().map(PublishedChart::picture));
        let published = published.map(|(at, picture)| (format!("{name}-published-{at}"), picture));
        let own = (1..).zip(self.pictures.iter().cloned());
        published.chain(own.map(|(at, picture)| (format!("{name}-{at}"), picture))).collect()
    }

    fn markup(&self) -> Markup {
        let figures = self.figures();
        let drawn = figures.iter().map(|(id, picture)| {
            html! { figure id=(id) { (PreEscaped(draw::inline(picture))) } }
        });
        let mut drawn = drawn.collect::<Vec<_>>();
        let own = drawn.split_off(self.charts.len());
        html! {
            h2 id=(self.name) { (self.title) }
            @for paragraph in &self.text { p { (paragraph) } }
            @for (chart, figure) in self.charts.iter().zip(drawn) { (chart.markup(&figure)) }
            @for figure in own { (figure) }
            @for table in &self.tables {
                details { summary { "Numbers: " (table.name) } (numbers(table)) }
            }
            @if !self.config.is_empty() {
                details { summary { "Config" } pre { (self.config) } }
            }
        }
    }
}

impl Claim {
    /// The cells that every table of claims has.
    fn cells(&self) -> Markup {
        // Beyond a tenth: said, not hidden.
        let is_far = self.error.value.abs() > Deviation::FAR;
        html! {
            td { (self.what) } td { (self.published) } td.n { (number(self.ours)) " " (self.unit) }
            td.n.far[is_far] { (self.error) } td { (self.basis.words()) }
        }
    }

    /// Their heads.
    fn heads() -> Markup {
        html! { th { "what" } th { "published" } th.n { "ours" } th.n { "error" } th { "ours is" } }
    }
}

impl PublishedChart {
    fn markup(&self, figure: &Markup) -> Markup {
        html! {
            h3 { "Published: " (self.title) }
            p {
                "Source: " (self.document)
                @if let Some(url) = &self.url { " (" a href=(url) { (url) } ")" } "."
            }
            (figure)
            table {
                tr {
                    (Claim::heads())
                    th { "place in the source" } th { "published value is" } th { "note" }
                }
                @for claim in &self.claims { tr {
                    (claim.cells()) td { (claim.place) }
                    @if claim.origin == Origin::Picture { td { em { (claim.origin.words()) } } }
                    @else { td { (claim.origin.words()) } }
                    td { (claim.note) }
                } }
            }
        }
    }
}

fn numbers(table: &Table) -> Markup {
    html! { table {
        tr { @for column in &table.columns { th { (column) } } }
        @for row in &table.rows { tr { @for cell in row { @match cell {
            Cell::Number(value) => td.n { (number(*value)) },
            Cell::Text(text) => td { (text) },
            Cell::Empty => td {},
        } } } }
    } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{Axis, Chart};

    fn claim(unit: &str, value: f64, ours: f64) -> Claim {
        Claim {
            what: "throughput <of> a drive".into(),
            published: "4.6 times".into(),
            value,
            ours,
            unit: unit.into(),
            error: Deviation::new(value, ours, unit),
            basis: Basis::Predicted,
            place: "figure 1".into(),
            origin: Origin::Picture,
            note: String::new(),
        }
    }

    #[test]
    fn differences_are_relative_or_in_points() {
        assert_eq!(claim("MB/s", 200.0, 210.0).error.to_string(), "+5.0 %");
        assert_eq!(claim("%", 50.0, 47.0).error.to_string(), "-3.0 points");
    }

    #[test]
    fn page_holds_everything_and_escapes_it() {
        let mut table = Table::new("numbers", &["a&b", "c"]);
        table.row(vec!["<script>".into(), Cell::Empty]);
        let chart = Chart {
            title: "pic<ture".into(),
            x: Axis::linear("x"),
            y: Axis::linear("y"),
            series: Vec::new(),
        };
        let section = Section {
            name: "one".into(),
            title: "Why?".into(),
            text: vec!["Because 1 < 2.".into()],
            pictures: vec![Picture::Chart(chart)],
            charts: vec![PublishedChart {
                title: "A chart".into(),
                document: "a paper <of 2021>".into(),
                url: Some("https://example.org/a&b".into()),
                claims: vec![claim("x", 4.6, 4.5), claim("x", 4.6, 9.0)],
            }],
            tables: vec![table],
            config: "name = \"<b>\"".into(),
        };
        let page = Page { title: "T".into(), text: Vec::new(), sections: vec![section] };
        let html = page.html();
        for part in [
            "throughput &lt;of&gt; a drive",
            "Because 1 &lt; 2.",
            "&lt;script&gt;",
            "a&amp;b",
            "name = &quot;&lt;b&gt;&quot;",
            "<a href=\"#one-published-1\">A chart</a>",
            "<a href=\"#one-1\">pic&lt;ture</a>",
            "<figure id=\"one-1\"><svg ",
            "<em>read off a picture</em>",
            "a paper &lt;of 2021&gt; (<a href=\"https://example.org/a&amp;b\">",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(
            html.matches("n far").count(),
            2,
            "only what is far off is marked, in both tables"
        );
        assert_eq!(html.matches("<svg ").count(), 2, "one of the chart and one of the section");
        assert!(!html.contains("<script"), "nothing runs");
        assert!(!html.contains("src=") && !html.contains("<link"), "nothing is loaded");
        assert_eq!(html, page.html());
    }
}
