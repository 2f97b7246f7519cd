//! Whether a zoned device follows the rules of its specification.
//!
//! - [`Target`]: the device, and by which interface it is reached. Start here.
//! - [`check`](check::check): performs the rules and returns a [`Report`].
//! - [`Rule`]: a requirement, its clause, and the function that tries it.
//! - `cases`: rules of the state machine, made from its table: every operation in every condition.
//! - `reports`, `filters`, `reads`: rules that only read; `limits`, `appends`, `zones`, `all`,
//!   `conventional`, `preferred`: rules that write.
//! - [`power`]: data after a power cut, in two runs.
//! - [`html`]: the report as a page.
//!
//! Rules that write do so only in the zones of a range; at the end [`check`](check::check) compares
//! the device's report of all other zones with its report before the first rule.

#![forbid(unsafe_code)]

mod all;
mod appends;
mod bench;
mod cases;
pub mod check;
mod conventional;
mod filters;
pub mod html;
mod limits;
pub mod power;
mod preferred;
mod reads;
mod reports;
pub mod rule;
mod target;
mod zones;

pub use check::{Limit, Outcome, Report, Scope, Totals, check};
pub use rule::{Level, Rule, Verdict};
pub use target::{FilteredReport, Filters, Interface, Target};
