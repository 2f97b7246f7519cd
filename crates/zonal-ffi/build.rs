//! Sets the soname of the shared library, the name under which programs look for it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libzonal.so.0");
}
