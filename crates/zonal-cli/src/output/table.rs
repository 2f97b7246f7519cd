//! Tables and lists of properties, as aligned text.

use std::fmt::Write;

/// Columns of text; the first columns are left-aligned, the others right-aligned.
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    left: usize,
}

impl Table {
    /// A table whose first `left` columns are left-aligned, the rest right-aligned.
    pub(crate) fn new(left: usize, heads: &[&str]) -> Self {
        Self { rows: vec![heads.iter().map(|head| (*head).to_owned()).collect()], left }
    }

    /// Adds a row.
    pub(crate) fn row(&mut self, cells: Vec<String>) {
        self.rows.push(cells);
    }

    /// The text, without spaces at the ends of lines.
    pub(crate) fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            self.rows
                .iter()
                .filter_map(|row| row.get(column))
                .map(|cell| cell.chars().count())
                .max()
        };
        let widths: Vec<usize> = (0..columns).map(|column| width(column).unwrap_or(0)).collect();
        let mut text = String::new();
        for row in &self.rows {
            let mut line = String::new();
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let (before, after) = if column < self.left { ("", &*pad) } else { (&*pad, "") };
                let gap = if column == 0 { "" } else { "  " };
                line.extend([gap, before, cell, after]);
            }
            text.push_str(line.trim_end());
            text.push('\n');
        }
        text
    }
}

/// `name  value` lines with the values aligned.
pub(crate) fn properties(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for (name, value) in pairs {
        writeln!(text, "{name:width$}  {value}").expect("a string takes all");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_columns_are_aligned() {
        let mut table = Table::new(1, &["zone", "size"]);
        table.row(vec!["a".into(), "1".into()]);
        table.row(vec!["lengthy".into(), "12345".into()]);
        assert_eq!(table.text(), "zone      size\na            1\nlengthy  12345\n");
    }

    #[test]
    fn properties_are_aligned() {
        let pairs = [("a", "1".to_owned()), ("long", "2".to_owned())];
        assert_eq!(properties(&pairs), "a     1\nlong  2\n");
    }
}
