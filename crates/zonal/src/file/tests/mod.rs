//! Tests of a drive in a file whose host fails.

mod full_host;
mod power_cut;
