//! Compiles the shim against LevelDB's headers.

#[path = "../zonal-kv/build/shim.rs"]
mod shim;

fn main() {
    shim::compile(&["shim/env.cc"]);
}
