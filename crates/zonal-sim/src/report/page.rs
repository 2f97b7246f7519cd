//! One page of HTML that holds everything: pictures inside, no script, nothing to load.

use std::fmt::Write;

use serde::{Deserialize, Serialize};

use super::{Cell, Table, escape, number, svg};
use crate::report::Picture;

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
    const fn word(self) -> &'static str {
        match self {
            Self::Calibrated => "calibrated",
            Self::Reading => "predicted, for this reading",
            Self::Predicted => "predicted",
            Self::Arithmetic => "arithmetic",
        }
    }
}

/// Whether a published value was read where it was published.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// It was, here.
    Read(String),
    /// It is quoted from memory of this, and was not found again.
    Unverified(String),
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
    /// How ours came about.
    pub basis: Basis,
    /// Where theirs is from.
    #[serde(rename = "published_in")]
    pub source: Source,
    /// Where one misses: why. Otherwise what else is to be known.
    pub note: String,
}

impl Claim {
    /// The difference in percent of the published value; of percentages, in points.
    pub fn difference(&self) -> f64 {
        if self.unit == "%" {
            self.ours - self.value
        } else {
            100.0 * (self.ours / self.value - 1.0)
        }
    }

    /// The same in words.
    pub fn difference_text(&self) -> String {
        let unit = if self.unit == "%" { "points" } else { "%" };
        format!("{:+.1} {unit}", self.difference())
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
    /// Published values beside ours.
    pub claims: Vec<Claim>,
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
body{font:16px/1.5 system-ui,sans-serif;color:#222;background:#fff;max-width:900px;margin:2em auto;\
padding:0 1em}h1,h2{line-height:1.2}h2{margin-top:2em;border-top:1px solid #ccc;padding-top:.8em}\
svg{max-width:100%;height:auto;display:block;margin:1em 0}\
table{border-collapse:collapse;font-size:14px;margin:1em 0;display:block;overflow-x:auto}\
th,td{padding:.3em .6em;border-bottom:1px solid #ddd;text-align:left;vertical-align:top}\
th{border-bottom:2px solid #888}td.n,th.n{text-align:right;font-variant-numeric:tabular-nums}\
pre{background:#f5f5f5;padding:.8em;overflow-x:auto;font-size:13px}summary{cursor:pointer}\
.far{font-weight:600;color:#a33000}";

impl Page {
    /// The page as HTML.
    pub fn html(&self) -> String {
        let title = escape(&self.title);
        let mut html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width\">\n<title>{title}</title>\n\
             <style>{STYLE}</style>\n</head>\n<body>\n<h1>{title}</h1>\n"
        );
        paragraphs(&mut html, &self.text);
        let all: Vec<&Claim> = self.sections.iter().flat_map(|section| &section.claims).collect();
        if !all.is_empty() {
            html.push_str("<h2>Published values and ours</h2>\n");
            claims(&mut html, &all);
        }
        for section in &self.sections {
            section.write(&mut html);
        }
        html.push_str("</body>\n</html>\n");
        html
    }
}

impl Section {
    fn write(&self, html: &mut String) {
        let (name, title) = (escape(&self.name), escape(&self.title));
        put(html, format_args!("<h2 id=\"{name}\">{title}</h2>\n"));
        paragraphs(html, &self.text);
        for picture in &self.pictures {
            html.push_str(&svg::draw(picture));
        }
        for table in &self.tables {
            let name = escape(&table.name);
            put(html, format_args!("<details><summary>Numbers: {name}</summary>\n"));
            rows(html, table);
            html.push_str("</details>\n");
        }
        if !self.config.is_empty() {
            let config = escape(&self.config);
            put(
                html,
                format_args!("<details><summary>Config</summary><pre>{config}</pre></details>\n"),
            );
        }
    }
}

fn put(html: &mut String, part: std::fmt::Arguments<'_>) {
    html.write_fmt(part).expect("a string takes all");
}

fn paragraphs(html: &mut String, text: &[String]) {
    for paragraph in text {
        put(html, format_args!("<p>{}</p>\n", escape(paragraph)));
    }
}

fn claims(html: &mut String, claims: &[&Claim]) {
    html.push_str(
        "<table>\n<tr><th>what</th><th>published</th><th class=\"n\">ours</th>\
         <th class=\"n\">difference</th><th>ours is</th><th>published in</th><th>note</th></tr>\n",
    );
    for claim in claims {
        // Beyond a tenth: said, not hidden.
        let far = if claim.difference().abs() > 10.0 { "n far" } else { "n" };
        let source = match &claim.source {
            Source::Read(source) => escape(source),
            Source::Unverified(source) => {
                format!("{}; <em>from memory, not verified</em>", escape(source))
            }
        };
        put(
            html,
            format_args!(
                "<tr><td>{}</td><td>{}</td><td class=\"n\">{} {}</td><td class=\"{far}\">{}</td>\
                 <td>{}</td><td>{source}</td><td>{}</td></tr>\n",
                escape(&claim.what),
                escape(&claim.published),
                number(claim.ours),
                escape(&claim.unit),
                claim.difference_text(),
                claim.basis.word(),
                escape(&claim.note),
            ),
        );
    }
    html.push_str("</table>\n");
}

fn rows(html: &mut String, table: &Table) {
    html.push_str("<table>\n<tr>");
    for column in &table.columns {
        put(html, format_args!("<th>{}</th>", escape(column)));
    }
    html.push_str("</tr>\n");
    for row in &table.rows {
        html.push_str("<tr>");
        for cell in row {
            match cell {
                Cell::Number(value) => {
                    put(html, format_args!("<td class=\"n\">{}</td>", number(*value)));
                }
                Cell::Text(text) => put(html, format_args!("<td>{}</td>", escape(text))),
                Cell::Empty => html.push_str("<td></td>"),
            }
        }
        html.push_str("</tr>\n");
    }
    html.push_str("</table>\n");
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
            basis: Basis::Predicted,
            source: Source::Unverified("a paper".into()),
            note: String::new(),
        }
    }

    #[test]
    fn differences_are_relative_or_in_points() {
        assert_eq!(claim("MB/s", 200.0, 210.0).difference_text(), "+5.0 %");
        assert_eq!(claim("%", 50.0, 47.0).difference_text(), "-3.0 points");
    }

    #[test]
    fn page_holds_everything_and_escapes_it() {
        let mut table = Table::new("numbers", &["a&b", "c"]);
        table.row(vec!["<script>".into(), Cell::Empty]);
        let chart = Chart {
            title: "picture".into(),
            x: Axis::linear("x"),
            y: Axis::linear("y"),
            series: Vec::new(),
        };
        let section = Section {
            name: "one".into(),
            title: "Why?".into(),
            text: vec!["Because 1 < 2.".into()],
            pictures: vec![Picture::Chart(chart)],
            claims: vec![claim("x", 4.6, 4.5), claim("x", 4.6, 9.0)],
            tables: vec![table],
            config: "name = \"<b>\"".into(),
        };
        let page = Page { title: "T".into(), text: Vec::new(), sections: vec![section] };
        let html = page.html();
        for part in [
            "<svg ",
            "throughput &lt;of&gt; a drive",
            "Because 1 &lt; 2.",
            "&lt;script&gt;",
            "a&amp;b",
            "name = &quot;&lt;b&gt;&quot;",
            "not verified",
        ] {
            assert!(html.contains(part), "{part}");
        }
        assert_eq!(html.matches("n far").count(), 1, "only what is far off is marked");
        assert!(!html.contains("<script"), "nothing runs");
        assert!(
            !html.contains("http://") || html.matches("http").count() == 1,
            "nothing is loaded"
        );
        assert_eq!(html, page.html());
    }
}
