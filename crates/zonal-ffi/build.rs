//! The name under which programs look for the shared library, whatever its file is called.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libzonal.so.0");
}
