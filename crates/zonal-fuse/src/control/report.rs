//! Everything that is counted in a mount, as `stats` in the control directory has it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use zonal_fs::furrow::Live;

use crate::latency::Latency;

/// Everything that is counted in a mount. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default)]
pub struct Report {
    /// Type of the file system.
    #[serde(rename = "type")]
    pub kind: String,
    /// When: the daemon's clock, which never goes back.
    pub at_ns: u64,
    /// Settings and counters by their names.
    #[serde(flatten)]
    pub named: BTreeMap<String, Value>,
    /// The picture of now; only of Furrow.
    pub live: Option<Live>,
    /// How long operations took since mount.
    pub operations: Vec<Latency>,
    /// The same of the last minute, or since the mount if that is less.
    pub operations_minute: Vec<Latency>,
}

impl Report {
    /// A counter; 0 if there is none of that name.
    pub fn counter(&self, name: &str) -> u64 {
        self.named.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// A setting; empty if there is none of that name.
    pub fn setting(&self, name: &str) -> &str {
        self.named.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// How long operations of one kind took in the last minute, if there were any.
    pub fn minute_of(&self, operation: &str) -> Option<&Latency> {
        self.operations_minute.iter().find(|latency| latency.operation == operation)
    }

    /// Seconds since an earlier report; `None` if no time has passed.
    #[expect(clippy::cast_precision_loss, reason = "for rates")]
    pub fn seconds_since(&self, before: &Self) -> Option<f64> {
        let ns = self.at_ns.checked_sub(before.at_ns).filter(|ns| *ns > 0)?;
        Some(ns as f64 / 1e9)
    }
}
