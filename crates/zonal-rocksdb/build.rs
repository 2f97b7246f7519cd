//! Compiles the shim against RocksDB's headers, where they are installed. `ROCKSDB_INCLUDE_DIR` names
//! another place. Without them the library is built without its shim, and its tests skip.

use std::path::{Path, PathBuf};

fn main() {
    println!("cargo::rustc-check-cfg=cfg(has_rocksdb)");
    for file in ["build.rs", "shim", "../zonal-kv/include"] {
        println!("cargo::rerun-if-changed={file}");
    }
    println!("cargo::rerun-if-env-changed=ROCKSDB_INCLUDE_DIR");
    let asked = std::env::var_os("ROCKSDB_INCLUDE_DIR").map(PathBuf::from);
    let places = asked.into_iter().chain(["/usr/local/include", "/usr/include"].map(PathBuf::from));
    let header = Path::new("rocksdb/file_system.h");
    let Some(include) = places.into_iter().find(|place| place.join(header).is_file()) else {
        // Built again when they come.
        println!("cargo::rerun-if-changed=/usr/include/{}", header.display());
        return;
    };
    let mut build = cc::Build::new();
    // Headers from 11 on need it.
    build.cpp(true).std("c++20").warnings(true).extra_warnings(true);
    build.flag_if_supported("-Wno-unused-parameter");
    if include != Path::new("/usr/include") {
        // As those of the system: their warnings are not ours.
        build.flag("-isystem").flag(include.as_os_str());
    }
    build.include("../zonal-kv/include").files(["shim/files.cc", "shim/plugin.cc"]);
    // Nothing calls the registration: it would be left out.
    build.link_lib_modifier("+whole-archive");
    if let Err(error) = build.try_compile("zonal_rocksdb_shim") {
        println!("cargo::warning=libzonal_rocksdb is built without its shim: {error}");
        return;
    }
    println!("cargo::rustc-cfg=has_rocksdb");
    println!("cargo::rustc-link-lib=dylib=rocksdb");
}
