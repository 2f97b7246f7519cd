//! The CSV of a sweep: what is in it already, what is appended, and how those of shards become
//! one.
//!
//! A row begins with the number of its run, of how many, and digests of its sweep and config. A
//! file that does not hold the first runs of its shard, in order, is another sweep's or shard's,
//! and is refused.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use zonal::output::{self, Existing};

use super::{Run, Sweep};
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

    /// How many of `runs` are in the file: their rows and nothing else may be there, or the file
    /// stays as it is. A row that was torn, when the sweep was stopped, is removed.
    pub(super) fn resume(&mut self, sweep: &Sweep, runs: &[&Run]) -> Result<usize> {
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
            let Some(run) = runs.get(at) else {
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

/// Joins the files of all shards of a sweep, in any order, into `out`, which must not exist.
/// Returns the number of runs. A run that is missing or there twice, and files of different
/// sweeps, are refused.
pub fn merge(parts: &[PathBuf], out: &Path) -> Result<usize> {
    let rows = joined(parts)?;
    let failed = io_error(out);
    let mut file = File::create_new(out).map_err(&failed)?;
    for row in &rows {
        file.write_all(&line(row)).map_err(&failed)?;
    }
    Ok(rows.len() - 1)
}

/// The columns, then all rows in order.
fn joined(parts: &[PathBuf]) -> Result<Vec<Vec<String>>> {
    let mut columns: Option<Vec<String>> = None;
    // Run → its row, and where it is from.
    let mut rows: BTreeMap<usize, (Vec<String>, &Path)> = BTreeMap::new();
    let mut sweep: Option<(String, String, &Path)> = None;
    for path in parts {
        let mut read = self::read(path)?.into_iter();
        let head = read.next().ok_or_else(|| SimError::sweep(path, 1, "there is nothing in it"))?;
        if head.len() < 5 || head[..4] != ["run", "runs", "sweep", "config"] {
            return Err(SimError::sweep(path, 1, "this is no CSV of a sweep"));
        }
        if *columns.get_or_insert_with(|| head.clone()) != head {
            return Err(SimError::sweep(path, 1, "the columns are those of another sweep"));
        }
        for (at, row) in read.enumerate() {
            let line = at as u64 + 2;
            let known =
                sweep.get_or_insert_with(|| (row[1].clone(), row[2].clone(), path.as_path()));
            if (&row[1], &row[2]) != (&known.0, &known.1) {
                let what =
                    format!("of sweep {}; that in {} is {}", row[2], known.2.display(), known.1);
                return Err(SimError::sweep(path, line, &what));
            }
            let number = row[0].parse().ok().filter(|number| *number > 0);
            let number =
                number.ok_or_else(|| SimError::sweep(path, line, "the run is no number"))?;
            if let Some((_, other)) = rows.insert(number, (row, path)) {
                let what = format!("run {number} is in {} too", other.display());
                return Err(SimError::sweep(path, line, &what));
            }
        }
    }
    let first = parts.first().map_or(Path::new(""), PathBuf::as_path);
    let runs = sweep.and_then(|(runs, _, _)| runs.parse::<usize>().ok());
    let runs =
        runs.ok_or_else(|| SimError::sweep(first, 1, "there is no run in any of the files"))?;
    if let Some(missing) = (1..=runs).find(|number| !rows.contains_key(number)) {
        let what =
            format!("{} of {runs} runs are there; the first missing is {missing}", { rows.len() });
        return Err(SimError::sweep(first, 0, &what));
    }
    if rows.len() > runs {
        return Err(SimError::sweep(first, 0, "there are more runs than the sweep has"));
    }
    Ok(columns.into_iter().chain(rows.into_values().map(|(row, _)| row)).collect())
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
