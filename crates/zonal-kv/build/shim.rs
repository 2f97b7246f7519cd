//! For the build scripts of the plugins: compiles a shim against the headers of its store. Where
//! they are absent, or anything else fails, the build fails and says what to install: a plugin
//! without its shim would do nothing, and programs that load it would use the files of the host.

#[path = "headers.rs"]
mod headers;

use std::path::Path;

use headers::{ALL, Headers};

/// Compiles `files` into the plugin that has this build script.
pub(crate) fn compile(files: &[&str]) {
    for file in ["build.rs", "shim", "../zonal-kv/include", "../zonal-kv/build"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let plugin = env!("CARGO_PKG_NAME");
    let headers = ALL.iter().find(|headers| headers.plugin == plugin);
    let headers = headers.expect("each plugin has a store");
    if let Err(why) = try_compile(headers, files) {
        // Cargo shows these lines, and runs a failed script again every time, so it notices when
        // the headers are installed.
        for line in why.lines() {
            println!("cargo::error={line}");
        }
    }
}

fn try_compile(headers: &Headers, files: &[&str]) -> Result<(), String> {
    let (store, variable) = (headers.store, headers.variable());
    println!("cargo::rerun-if-env-changed={variable}");
    let include = headers.find(std::env::var_os(variable))?;
    // The files of a package may have any age. The folder's own time changes when files are added.
    println!("cargo::rerun-if-changed={}", include.join(store).display());
    let mut build = cc::Build::new();
    // RocksDB's headers from version 11 on need C++20.
    build.cpp(true).std("c++20").warnings(true).extra_warnings(true);
    build.flag_if_supported("-Wno-unused-parameter");
    if include != Path::new("/usr/include") {
        // Like the system's headers: we do not want warnings about them.
        build.flag("-isystem").flag(include.as_os_str());
    }
    build.include("../zonal-kv/include").files(files);
    // Nothing calls the registration, or the code that closes drives at exit: the linker would drop
    // them.
    build.link_lib_modifier("+whole-archive");
    build.try_compile(&format!("zonal_{store}_shim")).map_err(|error| {
        format!("the shim cannot be compiled (a C++ compiler is in Debian's package g++): {error}")
    })?;
    let library = format!("{}_LIB_DIR", store.to_uppercase());
    println!("cargo::rerun-if-env-changed={library}");
    if let Ok(folder) = std::env::var(library) {
        println!("cargo::rustc-link-search=native={folder}");
    }
    println!("cargo::rustc-link-lib=dylib={store}");
    Ok(())
}
