//! For the build scripts of the plugins: compiles a shim against the headers of its store, where they are
//! installed. `NAME_INCLUDE_DIR` names another place. Without them the library is built without its
//! shim, and its tests skip.

use std::path::{Path, PathBuf};

/// A shim.
pub(crate) struct Shim<'a> {
    /// The store: the name of its library, and of its folder of headers.
    pub(crate) store: &'a str,
    /// A header without which there is none.
    pub(crate) header: &'a str,
    /// What is compiled.
    pub(crate) files: &'a [&'a str],
}

/// Compiles it; `has_STORE` is set if it could be.
pub(crate) fn compile(shim: &Shim<'_>) {
    let store = shim.store;
    println!("cargo::rustc-check-cfg=cfg(has_{store})");
    for file in ["build.rs", "shim", "../zonal-kv/include", "../zonal-kv/build"] {
        println!("cargo::rerun-if-changed={file}");
    }
    let variable = format!("{}_INCLUDE_DIR", store.to_uppercase());
    println!("cargo::rerun-if-env-changed={variable}");
    let asked = std::env::var_os(variable).map(PathBuf::from);
    let places = asked.into_iter().chain(["/usr/local/include", "/usr/include"].map(PathBuf::from));
    let header = Path::new(store).join(shim.header);
    let Some(include) = places.into_iter().find(|place| place.join(&header).is_file()) else {
        // Built again when they come.
        println!("cargo::rerun-if-changed=/usr/include/{}", header.display());
        return;
    };
    let mut build = cc::Build::new();
    // RocksDB's headers from 11 on need it.
    build.cpp(true).std("c++20").warnings(true).extra_warnings(true);
    build.flag_if_supported("-Wno-unused-parameter");
    if include != Path::new("/usr/include") {
        // As those of the system: their warnings are not ours.
        build.flag("-isystem").flag(include.as_os_str());
    }
    build.include("../zonal-kv/include").files(shim.files);
    // Nothing calls the registration, or what closes drives at the end: they would be left out.
    build.link_lib_modifier("+whole-archive");
    if let Err(error) = build.try_compile(&format!("zonal_{store}_shim")) {
        println!("cargo::warning=libzonal_{store} is built without its shim: {error}");
        return;
    }
    println!("cargo::rustc-cfg=has_{store}");
    println!("cargo::rustc-link-lib=dylib={store}");
}
