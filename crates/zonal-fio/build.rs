//! fio unloads an engine with each job that ends. Threads of ours, and drives that later jobs use,
//! may still be there: the library stays loaded until fio ends.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
}
