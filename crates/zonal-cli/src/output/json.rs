//! JSON: one document per command, or one per line where there may be very many.

use anyhow::{Context, Result};
use serde::Serialize;

/// Prints a document, indented.
pub(crate) fn document(value: &impl Serialize) -> Result<()> {
    say!("{}", text(value)?);
    Ok(())
}

/// A document, indented, with the end of its last line.
pub(crate) fn text(value: &impl Serialize) -> Result<String> {
    Ok(serde_json::to_string_pretty(value).context("turning the result into JSON")? + "\n")
}

/// Prints a document on one line.
pub(crate) fn line(value: &impl Serialize) -> Result<()> {
    sayln!("{}", serde_json::to_string(value).context("turning the result into JSON")?);
    Ok(())
}
