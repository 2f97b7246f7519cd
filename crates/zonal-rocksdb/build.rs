//! Compiles the shim against RocksDB's headers.

#[path = "../zonal-kv/build/shim.rs"]
mod shim;

fn main() {
    shim::compile(&["shim/files.cc", "shim/plugin.cc"]);
}
