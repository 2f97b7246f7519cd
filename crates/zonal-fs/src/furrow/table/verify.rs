//! Verification of the table's parts: reads both copies of every leaf and compares each part with
//! its pointer in the manifest. Holds one part in memory at a time.

use super::key::Key;
use super::levels::{Levels, Part};
use super::merge::Cursor;
use super::part::PartReader;
use super::store::DriveCopies;
use crate::furrow::drive::Drive;
use crate::furrow::invariant::{self as rule, Problems};

/// Reads all parts in both copies. Calls `progress` with the bytes done and the bytes in all.
pub(in crate::furrow) fn check_levels(
    drive: &Drive,
    uuid: [u8; 16],
    levels: &Levels,
    problems: &mut Problems,
    progress: &mut dyn FnMut(u64, u64),
) {
    let (mut done, total) = (0, levels.bytes());
    for part in levels.parts() {
        progress(done, total);
        done += u64::from(part.summary.bytes);
        let number = part.summary.number;
        let source = DriveCopies { drive, at: part.at };
        let reader = match PartReader::open(&part.summary, uuid, source) {
            Ok(reader) => reader,
            Err(error) => {
                problems.add(rule::PARTS, error.to_string());
                continue;
            }
        };
        (0..2).for_each(|copy| reader.verify_copy(copy));
        for bad in reader.bad_copies() {
            let at = part.at[bad.copy];
            let (section, why) = (bad.section, bad.why);
            let what = format!(
                "{section} of part {number}, copy at zone {} block {}: {why}",
                at.zone, at.block
            );
            problems.add(rule::PARTS, what);
        }
        check_counts(part, reader, problems);
    }
    for run in &levels.upper {
        let rows: u64 = run.parts.iter().map(|part| u64::from(part.summary.rows)).sum();
        let is_swept = levels.spans_since(run.born).next().is_none();
        if run.rows_left > rows || run.parts.is_empty() || is_swept {
            let what = format!("a run with {} of {rows} rows left", run.rows_left);
            problems.add(rule::LEVELS, what);
        }
    }
    // The last level has tombstones only in parts with a lost range.
    let deletes = |part: &&Part| part.summary.tombstones > 0 && part.summary.lost == 0;
    if let Some(part) = levels.last.iter().find(deletes) {
        let number = part.summary.number;
        problems.add(rule::LEVELS, format!("part {number} of the last level deletes rows"));
    }
}

/// Compares the rows of a part with its summary.
fn check_counts(part: &Part, reader: PartReader<DriveCopies<'_>>, problems: &mut Problems) {
    let summary = &part.summary;
    let count = || {
        let mut cursor = reader.cursor_from(Key::MIN)?;
        let (mut rows, mut tombstones, mut last) = (0, 0, Key::MIN);
        while let Some((key, value)) = cursor.peek() {
            rows += 1;
            tombstones += u32::from(value.is_none());
            last = key;
            cursor.advance()?;
        }
        Ok::<_, super::part::PartError>((rows, tombstones, last))
    };
    // `verify_copy` has reported unreadable sections.
    let Ok(found) = count() else { return };
    let is_last = found.2 == summary.last || summary.lost > 0;
    if (found.0, found.1) != (summary.rows, summary.tombstones) || !is_last {
        let what = format!(
            "part {} has {} rows, {} deleted, up to {:?}; the manifest says {}, {}, {:?}",
            summary.number,
            found.0,
            found.1,
            found.2,
            summary.rows,
            summary.tombstones,
            summary.last
        );
        problems.add(rule::LEVELS, what);
    }
}
