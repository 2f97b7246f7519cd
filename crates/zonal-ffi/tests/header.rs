//! The header is the one that the source makes. `ZONAL_HEADER=write cargo test -p zonal-ffi --test
//! header` writes it.

use std::fs;
use std::path::Path;

#[test]
fn header_equals_one_made_from_source() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).expect("cbindgen.toml");
    let mut builder = cbindgen::Builder::new().with_config(config);
    let files =
        ["edge", "types", "device", "batch", "format", "volume", "names", "file", "attributes"];
    for file in files {
        builder = builder.with_src(here.join(format!("src/{file}.rs")));
    }
    let mut made = Vec::new();
    builder.generate().expect("the source is C's").write(&mut made);
    let made = String::from_utf8(made).expect("the header is text");
    let path = here.join("include/zonal.h");
    if std::env::var_os("ZONAL_HEADER").is_some_and(|value| value == "write") {
        fs::write(&path, &made).expect("the header can be written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(kept == made, "include/zonal.h is not that of the source: see the top of this test");
}
