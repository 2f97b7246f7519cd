//! Tests of a drive in a file: what its host may do to it.

mod full_host;
mod power_cut;
