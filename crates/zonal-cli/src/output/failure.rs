//! A failure, as the command prints it on standard error, and the exit code that goes with it.
//!
//! With `--json` a failure is one line of JSON on standard error, where nothing follows it:
//! standard output has only results.

use std::io::Write;
use std::sync::OnceLock;

use schemars::JsonSchema;
use serde::Serialize;

use super::Stderr;

/// Stands between a message and its advice.
pub(crate) const TRY: &str = "\n  try: ";

/// A failure, as `--json` prints it.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Failure {
    /// What failed.
    error: Facts,
}

/// The facts of a failure.
#[derive(Serialize, JsonSchema)]
struct Facts {
    /// What failed, on what, and why.
    message: String,
    /// The error number of Linux that fits it; null where none does.
    errno: Option<i32>,
    /// What to try; null if there is no advice.
    hint: Option<String>,
}

impl Failure {
    /// A failure with the error number that fits it, and what to try.
    pub(crate) const fn new(message: String, errno: Option<i32>, hint: Option<String>) -> Self {
        Self { error: Facts { message, errno, hint } }
    }

    /// Prints it.
    pub(crate) fn print(mut self) {
        let facts = &mut self.error;
        let line = if is_json_asked() {
            // The daemon of a mount reports a text, which has both.
            if let Some(at) = facts.message.find(TRY) {
                let tried = facts.message.split_off(at)[TRY.len()..].to_owned();
                facts.hint.get_or_insert(tried);
            }
            serde_json::to_string(&self).expect("texts and a number have a form")
        } else {
            let hint = facts.hint.as_ref().map(|hint| format!("{TRY}{hint}"));
            format!("zonal: {}{}", facts.message, hint.unwrap_or_default())
        };
        // One write, so that no other message stands within this one. A failure to write it has no
        // place to be reported.
        let _ = Stderr.write_all(format!("{line}\n").as_bytes());
    }
}

/// Whether the command line, which need not be valid, asks for JSON.
pub(crate) fn is_json_asked() -> bool {
    std::env::args_os().take_while(|argument| argument != "--").any(|argument| argument == "--json")
}

/// The exit code of a failure of the command that this process runs.
static CODE: OnceLock<u8> = OnceLock::new();

/// Notes the exit code of a failure.
pub(crate) fn note_code(code: u8) {
    CODE.get_or_init(|| code);
}

/// The exit code of a failure.
pub(crate) fn code() -> u8 {
    CODE.get().copied().unwrap_or(1)
}
