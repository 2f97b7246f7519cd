//! Tests of the table: against a model, with rows as in real loads.

pub(super) mod model;
pub(super) mod sample;
