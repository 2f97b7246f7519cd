//! Compiles the shim against RocksDB's headers.

#[path = "../zonal-kv/build/shim.rs"]
mod shim;

fn main() {
    let files = &["shim/files.cc", "shim/plugin.cc"];
    shim::compile(&shim::Shim { store: "rocksdb", header: "file_system.h", files });
}
