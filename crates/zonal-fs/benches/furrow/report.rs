//! Figures of several rounds, and times of single calls.

use bench_support::Report;

/// Figures of one kind from several rounds, by name. `row: column` names a cell of a table.
#[derive(Default)]
pub(crate) struct Rounds(Vec<(String, &'static str, Vec<f64>)>);

impl Rounds {
    /// One more value of a figure.
    pub(crate) fn push(&mut self, name: &str, unit: &'static str, value: f64) {
        match self.0.iter_mut().find(|(known, _, _)| known == name) {
            Some((_, _, values)) => values.push(value),
            None => self.0.push((name.to_owned(), unit, vec![value])),
        }
    }

    /// Reports all of them.
    pub(crate) fn report(&self, report: &mut Report) {
        for (name, unit, values) in &self.0 {
            match name.split_once(": ") {
                Some(cell) => report.add_variant(cell, unit, values),
                None => report.add(name, unit, values),
            }
        }
    }
}

/// Times of single calls, in nanoseconds.
#[derive(Default)]
pub(crate) struct Latencies(Vec<u64>);

impl Latencies {
    pub(crate) fn push(&mut self, ns: u64) {
        self.0.push(ns);
    }

    /// The time that a share of the calls do not exceed, in µs.
    pub(crate) fn quantile_us(&mut self, share: f64) -> f64 {
        self.0.sort_unstable();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "an index")]
        let at = (self.0.len() as f64 * share) as usize;
        let ns = self.0.get(at.min(self.0.len().saturating_sub(1)));
        ns.map_or(f64::NAN, |&ns| ns as f64 / 1e3)
    }
}
