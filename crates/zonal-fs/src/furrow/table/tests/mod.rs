//! Tests of the table: against a model, with rows like those of real loads.

pub(super) mod model;
pub(super) mod sample;
