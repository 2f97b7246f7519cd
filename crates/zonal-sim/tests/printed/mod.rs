//! Pages of docs/performance that tests print.

use std::path::Path;

/// Writes the page with `WRITE_PAGE=1`, and fails if the page differs from `printed`.
#[track_caller]
pub(crate) fn compare(page: &str, printed: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/performance").join(page);
    if std::env::var_os("WRITE_PAGE").is_some() {
        std::fs::write(&path, printed).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), printed, "WRITE_PAGE=1 prints it anew");
}
