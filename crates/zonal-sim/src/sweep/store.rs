//! The CSV of a sweep: the rows that it holds, and the rows that a sweep appends.
//!
//! A row begins with the number of its run, of how many, and digests of its sweep and config. A
//! file that does not hold the first runs of its sweep, in order, is refused.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use zonal::output::{self, Existing};

use super::Sweep;
use crate::error::{Result, SimError};

/// A CSV that rows are appended to.
pub(super) struct Store {
    path: PathBuf,
    file: File,
}

impl Store {
    /// Opens or makes a file, and locks it against other sweeps.
    pub(super) fn open(path: &Path, sweep: &Sweep) -> Result<Self> {
        let failed = io_error(path);
        let file = output::open(path, Existing::Resume, &[]).map_err(&failed)?;
        if file.try_lock().is_err() {
            return Err(SimError::sweep(path, 0, "another sweep is writing it"));
        }
        let mut store = Self { path: path.to_owned(), file };
        if store.file.metadata().map_err(&failed)?.len() == 0 {
            store.append(&sweep.columns())?;
        }
        Ok(store)
    }

    /// Counts the runs in the file. A file with other rows is refused and stays as it is; a row
    /// that a stopped sweep left torn is removed.
    pub(super) fn resume(&mut self, sweep: &Sweep) -> Result<usize> {
        let failed = io_error(&self.path);
        let mut text = Vec::new();
        self.file.seek(SeekFrom::Start(0)).map_err(&failed)?;
        self.file.read_to_end(&mut text).map_err(&failed)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let rows = parse(&self.path, &text[..whole])?;
        let Some((head, rows)) = rows.split_first() else {
            if !line(&sweep.columns()).starts_with(&text) {
                return Err(SimError::sweep(&self.path, 1, "this is no CSV of a sweep"));
            }
            self.file.set_len(0).map_err(&failed)?;
            self.append(&sweep.columns())?;
            return Ok(0);
        };
        if *head != sweep.columns() {
            return Err(SimError::sweep(&self.path, 1, "the columns are those of another sweep"));
        }
        for (at, row) in rows.iter().enumerate() {
            let line = at as u64 + 2;
            let Some(run) = sweep.runs.get(at) else {
                return Err(SimError::sweep(&self.path, line, "more runs than belong here"));
            };
            let expected = sweep.head(run);
            if row[..expected.len()] != expected {
                let what = format!(
                    "run {} of sweep {}, where run {} of sweep {} belongs: take another file",
                    row[0], row[2], expected[0], expected[2]
                );
                return Err(SimError::sweep(&self.path, line, &what));
            }
        }
        if whole < text.len() {
            self.file.set_len(whole as u64).map_err(&failed)?;
        }
        Ok(rows.len())
    }

    /// Appends a row at once: a sweep that is stopped leaves whole rows, or one torn at the end.
    pub(super) fn append(&mut self, row: &[String]) -> Result<()> {
        let line = line(row);
        self.file.write_all(&line).map_err(io_error(&self.path))
    }
}

/// The rows of a CSV, the columns first.
pub(super) fn read(path: &Path) -> Result<Vec<Vec<String>>> {
    parse(path, &std::fs::read(path).map_err(io_error(path))?)
}

/// The rows of a CSV; all are as long as the first.
fn parse(path: &Path, text: &[u8]) -> Result<Vec<Vec<String>>> {
    let mut reader = csv::ReaderBuilder::new().has_headers(false).from_reader(text);
    reader
        .records()
        .map(|record| match record {
            Ok(record) => Ok(record.iter().map(str::to_owned).collect()),
            Err(error) => {
                let line = error.position().map_or(0, csv::Position::line);
                Err(SimError::sweep(path, line, &error.to_string()))
            }
        })
        .collect()
}

fn line(row: &[String]) -> Vec<u8> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(row).expect("a vector takes all");
    writer.into_inner().expect("a vector takes all")
}

fn io_error(path: &Path) -> impl Fn(io::Error) -> SimError + use<> {
    let path = path.display().to_string();
    move |source| SimError::Io { path: path.clone(), source }
}
