//! Compiles the shim against LevelDB's headers.

#[path = "../zonal-kv/build/shim.rs"]
mod shim;

fn main() {
    shim::compile(&shim::Shim { store: "leveldb", header: "env.h", files: &["shim/env.cc"] });
}
