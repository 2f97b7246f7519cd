//! `zonal trace print`: lines for people, JSON, filters, and traces that are cut or damaged.
#![expect(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Bytes of a header and of a record, in `docs/format/trace.md`.
const HEADER: usize = 136;
const RECORD: usize = 48;

struct Place(TempDir);

impl Place {
    /// A trace of appends to zones 2 and 3, of which one fails, and of the end of zone 2.
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.path("words"), "one two").unwrap();
        place.must("create drive.zns --profile small");
        let names = ["one", "two", "three", "four"];
        for (name, line) in names.into_iter().zip([
            "append trace(one):drive.zns --zone 2 --input words",
            "zone finish trace(two):drive.zns 2",
            "append trace(three):drive.zns --zone 3 --input words",
            "append trace(four):drive.zns --zone 2 --input words",
        ]) {
            let done = place.zonal(line);
            assert_eq!(done.status.success(), name != "four", "{line}: {done:?}");
        }
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn zonal(&self, line: &str) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_zonal"));
        command.current_dir(self.0.path()).args(line.split(' ')).output().unwrap()
    }

    fn must(&self, line: &str) -> String {
        let done = self.zonal(line);
        assert!(done.status.success(), "{line}: {done:?}");
        String::from_utf8(done.stdout).unwrap()
    }

    /// Each line of the output as JSON.
    fn json(&self, line: &str) -> Vec<Value> {
        lines(&self.must(line))
    }
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn trace_print_has_line_per_operation() {
    let place = Place::new();
    let text = place.must("trace print one");
    let found = text.lines().find(|line| line.contains("append")).unwrap();
    let words: Vec<&str> = found.split_whitespace().collect();
    assert_eq!(words[1..], ["append", "2", "512", "1", "ok"], "{text}");
    assert!(text.contains("operation  count  failed"), "the sums follow: {text}");
    let text = place.must("trace print four");
    assert!(text.lines().any(|line| line.ends_with("zone full")), "{text}");
    let text = place.must("trace print two --op finish");
    let words: Vec<&str> = text.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(words[1..], ["finish", "2", "-", "-", "ok"], "{text}");
}

#[test]
fn trace_print_json_has_object_per_operation() {
    let place = Place::new();
    let found = place.json("trace print one --json");
    assert!(found.len() > 1, "{found:?}");
    for (number, line) in found.iter().enumerate() {
        assert_eq!(line["index"], number);
    }
    let append = found.iter().find(|line| line["operation"] == "append").unwrap();
    assert_eq!((&append["zone"], &append["lba"]), (&Value::from(2), &Value::from(512)));
    assert_eq!((&append["blocks"], &append["result"]), (&Value::from(1), &Value::from("ok")));
    let failed = place.json("trace print four --json --op append");
    assert_eq!((&failed[0]["lba"], &failed[0]["result"]), (&Value::Null, &"zone full".into()));
}

#[test]
fn trace_print_filters_by_zone_and_operation() {
    let place = Place::new();
    let all = place.json("trace print one --json");
    let appends = place.json("trace print one --json --op append");
    assert_eq!(appends.len(), 1);
    assert!(all.len() > appends.len(), "{all:?}");
    assert_eq!(place.json("trace print one --json --zone 2,3 --op append").len(), 1);
    assert_eq!(place.json("trace print one --json --zone 3 --op append").len(), 0);
    let unknown = place.zonal("trace print one --op appends");
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("append"), "{unknown:?}");
}

#[test]
fn trace_print_summary_prints_only_summary() {
    let place = Place::new();
    let text = place.must("trace print one --summary --op append");
    assert_eq!(text, "operation  count  failed   data\nappend         1       0  4 KiB\n");
    let document: Value =
        serde_json::from_str(&place.must("trace print four --summary --op append --json")).unwrap();
    let wanted = r#"{"operations":[{"operation":"append","operations":1,"failed":1,"bytes":0}],
        "cut":false}"#;
    assert_eq!(document, serde_json::from_str::<Value>(wanted).unwrap());
}

#[test]
fn trace_print_of_cut_trace_prints_up_to_cut() {
    let place = Place::new();
    let whole = fs::read(place.path("one")).unwrap();
    for len in 0..whole.len() {
        fs::write(place.path("cut"), &whole[..len]).unwrap();
        let done = place.zonal("trace print cut --json");
        let errors = String::from_utf8_lossy(&done.stderr);
        if len < HEADER {
            assert!(errors.contains("no header") && done.stdout.is_empty(), "{len}: {errors}");
            continue;
        }
        let (records, rest) = ((len - HEADER) / RECORD, (len - HEADER) % RECORD);
        assert_eq!(lines(std::str::from_utf8(&done.stdout).unwrap()).len(), records, "{len}");
        assert_eq!(done.status.success(), rest == 0, "{len}");
        let cut = format!("cut ends in the middle of operation {records}: the recording was");
        assert_eq!(errors.contains(&cut), rest != 0, "{len}: {errors}");
    }
}

#[test]
fn trace_print_ends_with_error_at_damaged_record() {
    let place = Place::new();
    let mut bytes = fs::read(place.path("one")).unwrap();
    bytes[HEADER + RECORD + 30] ^= 1;
    fs::write(place.path("damaged"), &bytes).unwrap();
    let done = place.zonal("trace print damaged");
    let (text, errors) =
        (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(!done.status.success() && errors.contains("operation 1 is damaged"), "{errors}");
    assert!(text.lines().nth(1).is_some_and(|line| line.trim_start().starts_with("0 ")), "{text}");
    assert!(text.contains("operation  count"), "what was read is summed up: {text}");
    let no_trace = place.zonal("trace print words");
    assert!(String::from_utf8_lossy(&no_trace.stderr).contains("not a trace"), "{no_trace:?}");
}
