//! The report of a mount: the content of `stats` in the control directory.

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
    /// Time of the report by the daemon's monotonic clock.
    pub at_ns: u64,
    /// Settings and counters by their names.
    #[serde(flatten)]
    pub named: BTreeMap<String, Value>,
    /// Current use of space; only for Furrow.
    pub live: Option<Live>,
    /// Latencies since mount.
    pub operations: Vec<Latency>,
    /// Latencies of the last minute, or since mount if that is shorter.
    pub operations_minute: Vec<Latency>,
}

impl Report {
    /// A counter by name; 0 if there is none.
    pub fn counter(&self, name: &str) -> u64 {
        self.named.get(name).and_then(Value::as_u64).unwrap_or(0)
    }

    /// A setting by name; empty if there is none.
    pub fn setting(&self, name: &str) -> &str {
        self.named.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Latencies of one operation in the last minute, if there were any.
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
