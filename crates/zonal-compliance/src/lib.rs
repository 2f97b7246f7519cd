//! Whether a zoned device follows the rules of its specification.
//!
//! A room may use the rooms that its last column names; `cargo xtask check` compares the paths.
//!
//! | room | what it is | may use |
//! | --- | --- | --- |
//! | `target` | the device that is checked, and its interface | |
//! | `bench` | tries requests, notes them, and makes data that it can recognise | `target` |
//! | `rule` | a requirement, its clause, and the verdict of trying it | all above |
//! | `cases` | rules of the state machine: every operation in every condition | all above |
//! | `reports`, `filters`, `reads` | rules that only read | all above |
//! | `limits`, `appends`, `zones`, `all`, `conventional`, `preferred` | writing rules | all above |
//! | `check` | performs the rules and returns a [`Report`]: start here | all above |
//! | `power` | data after a power cut, in two runs | `target`, `bench`, `rule`, `check` |
//! | `html` | the report as a page | `check` |
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

pub use check::{Outcome, Report, Scope, Totals, check};
pub use limits::Limit;
pub use rule::{Level, Rule, Verdict};
pub use target::{FilteredReport, Filters, Interface, Target};
