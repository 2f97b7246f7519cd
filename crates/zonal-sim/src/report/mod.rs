//! What came out: tables, which become CSV and JSON, and pictures of them.
//!
//! | file | question |
//! | --- | --- |
//! | here | tables and their CSV |
//! | [`chart`] | the content of a picture: axes, series, bars |
//! | [`draw`] | how is it drawn? |
//! | [`zbdbench`] | which CSV does zbdbench write of a real drive? |
//! | [`page`] | how do many become one page? |
//!
//! All of it is a function of its input: the same tables give the same bytes (S1).

pub mod chart;
pub mod draw;
pub mod page;
pub mod zbdbench;

use serde::Serialize;

pub use chart::{Axis, Bars, Chart, Form, Picture, Range, Scale, Series};

/// A cell of a table.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(untagged)]
pub enum Cell {
    /// A number.
    Number(f64),
    /// A word.
    Text(String),
    /// Nothing: not measured, or not possible.
    Empty,
}

/// NaN and infinities (a ratio to nothing) become empty cells, which a chart leaves out.
impl From<f64> for Cell {
    fn from(number: f64) -> Self {
        if number.is_finite() { Self::Number(number) } else { Self::Empty }
    }
}

impl From<u32> for Cell {
    fn from(number: u32) -> Self {
        Self::Number(f64::from(number))
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<Option<f64>> for Cell {
    fn from(number: Option<f64>) -> Self {
        number.map_or(Self::Empty, Self::from)
    }
}

/// Rows under named columns; a column's name ends with its unit.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Table {
    /// The table's name, also the name of its file without extension.
    pub name: String,
    /// Columns.
    pub columns: Vec<String>,
    /// Rows, each as long as `columns`.
    pub rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table without rows.
    pub fn new(name: &str, columns: &[&str]) -> Self {
        let columns = columns.iter().map(|column| (*column).to_owned()).collect();
        Self { name: name.to_owned(), columns, rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: Vec<Cell>) {
        assert_eq!(cells.len(), self.columns.len(), "a cell for every column of {}", self.name);
        self.rows.push(cells);
    }

    /// The table as CSV (RFC 4180, but lines end with a line feed). Numbers are the shortest that
    /// are read back the same; NaN, as of a ratio to nothing, is an empty cell.
    pub fn csv(&self) -> String {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let cell = |cell: &Cell| match cell {
            Cell::Number(number) if number.is_finite() => number.to_string(),
            Cell::Text(word) => word.clone(),
            Cell::Number(_) | Cell::Empty => String::new(),
        };
        writer.write_record(&self.columns).expect("memory takes all");
        for row in &self.rows {
            writer.write_record(row.iter().map(cell)).expect("a cell for every column");
        }
        String::from_utf8(writer.into_inner().expect("memory takes all")).expect("from texts")
    }

    /// A column's numbers beside another's, where both are numbers.
    pub fn points(&self, x: &str, y: &str) -> Vec<(f64, f64)> {
        let at = |name: &str| self.columns.iter().position(|column| column == name);
        let (Some(x), Some(y)) = (at(x), at(y)) else { return Vec::new() };
        let pair = |row: &Vec<Cell>| match (&row[x], &row[y]) {
            (Cell::Number(x), Cell::Number(y)) => Some((*x, *y)),
            _ => None,
        };
        self.rows.iter().filter_map(pair).collect()
    }
}

/// A number for people: four significant digits at most, no exponent, no trailing zeroes.
pub fn number(value: f64) -> String {
    if !value.is_finite() {
        return "–".into();
    }
    let size = value.abs();
    let digits = match size {
        _ if size >= 100.0 => 0,
        _ if size >= 10.0 => 1,
        _ if size >= 1.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.digits$}");
    if !text.contains('.') {
        return text;
    }
    let short = text.trim_end_matches('0').trim_end_matches('.');
    if short == "-0" { "0".into() } else { short.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_writes_csv_and_json() {
        let mut table = Table::new("t", &["a", "b_mb_s", "c"]);
        table.row(vec!["x, \"y\"".into(), 0.1.into(), 3_u32.into()]);
        table.row(vec![Cell::Empty, f64::NAN.into(), (1.0 / 3.0).into()]);
        assert_eq!(table.csv(), "a,b_mb_s,c\n\"x, \"\"y\"\"\",0.1,3\n,,0.3333333333333333\n");
        assert_eq!(table.points("b_mb_s", "c"), [(0.1, 3.0)]);
        assert_eq!(table.points("b_mb_s", "d"), []);
        let json = serde_json::to_string(&table.rows[1]).expect("JSON");
        assert_eq!(json, "[null,null,0.3333333333333333]");
    }

    #[test]
    fn numbers_are_formatted_for_people() {
        for (value, text) in [
            (0.0, "0"),
            (-0.0001, "0"),
            (1.0, "1"),
            (3.456, "3.46"),
            (12.34, "12.3"),
            (100.0, "100"),
            (1086.4, "1086"),
            (0.0123, "0.012"),
            (f64::NAN, "–"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
