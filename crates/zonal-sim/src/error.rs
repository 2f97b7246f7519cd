//! Errors of a simulation: an impossible config, an unreadable trace.

use std::path::Path;

/// An error of the simulator.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SimError {
    /// A field of a config is outside its range.
    #[error("{field} = {value} is not possible: {allowed}")]
    Field {
        /// The field's path, as in `drive.op`.
        field: &'static str,
        /// The refused value.
        value: String,
        /// The allowed values.
        allowed: String,
    },
    /// A config is no TOML, or has a field that does not exist.
    #[error("{what}")]
    Config {
        /// The parser's message, with the line.
        what: String,
    },
    /// A line of a trace cannot be read.
    #[error("{path}{}: {what}", at(*line))]
    Trace {
        /// The trace.
        path: String,
        /// The line, from 1; 0 for a recording, which has none.
        line: u64,
        /// The fault in the line.
        what: String,
    },
    /// The CSV does not belong to the sweep.
    #[error("{path}{}: {what}", at(*line))]
    Sweep {
        /// The file.
        path: String,
        /// The line, from 1; 0 for the whole file.
        line: u64,
        /// The fault in the line or file.
        what: String,
    },
    /// A file cannot be read or written.
    #[error("{path}: {source}")]
    Io {
        /// The file.
        path: String,
        /// Why.
        source: std::io::Error,
    },
}

impl SimError {
    /// Of the CSV of a sweep; line 0 stands for the whole file.
    pub(crate) fn sweep(path: &Path, line: u64, what: &str) -> Self {
        let path = path.display().to_string();
        Self::Sweep { path, line, what: what.to_owned() }
    }
}

/// A result of the simulator.
pub type Result<T> = std::result::Result<T, SimError>;

/// `, line 5`, or nothing.
fn at(line: u64) -> String {
    if line == 0 { String::new() } else { format!(", line {line}") }
}

/// Refuses a value outside `first..=last`.
pub(crate) fn within<T: PartialOrd + Copy + std::fmt::Display>(
    field: &'static str,
    value: T,
    first: T,
    last: T,
) -> Result<()> {
    if value >= first && value <= last {
        Ok(())
    } else {
        Err(refused(field, value, &format!("from {first} to {last}")))
    }
}

/// The error for an impossible value.
pub(crate) fn refused(field: &'static str, value: impl ToString + Copy, allowed: &str) -> SimError {
    SimError::Field { field, value: value.to_string(), allowed: allowed.to_owned() }
}
