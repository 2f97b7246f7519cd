//! The plugins for key-value stores are built against headers of their stores, and not at all
//! without: then the rest of the workspace is built.

use std::env::var_os;
use std::path::Path;

use crate::headers::{ALL, Headers};
use crate::tools::{CPP_COMPILER, has};

/// A plugin that cannot be built here.
pub struct Absent {
    /// Its crate.
    pub plugin: &'static str,
    /// Why not.
    pub why: String,
}

/// All that cannot be built here.
pub fn absent(root: &Path) -> Vec<Absent> {
    let has_compiler = var_os("CXX").is_some() || has(CPP_COMPILER, root);
    let compiler = format!("there is no C++ compiler: apt-get install {}", CPP_COMPILER.1);
    let of = |headers: Headers| {
        let why = headers.find(var_os(headers.variable())).err();
        let why = why.or_else(|| (!has_compiler).then(|| compiler.clone()))?;
        Some(Absent { plugin: headers.plugin, why })
    };
    ALL.into_iter().filter_map(of).collect()
}

/// Options of cargo for the whole workspace, as far as it can be built here.
pub fn workspace(root: &Path) -> Vec<String> {
    let excluded = absent(root).into_iter().map(|absent| format!("--exclude={}", absent.plugin));
    ["--workspace".to_owned()].into_iter().chain(excluded).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn headers_are_found_only_where_asked_for() {
        let place = tempfile::tempdir().unwrap();
        let asked = || Some(place.path().as_os_str().to_owned());
        for headers in ALL {
            let why = headers.find(asked()).unwrap_err();
            assert!(why.contains(&headers.variable()), "{why}");
            let folder = place.path().join(headers.store);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join(headers.header), "").unwrap();
            assert_eq!(headers.find(asked()).unwrap(), place.path());
        }
    }

    #[test]
    fn plugin_without_headers_names_their_package() {
        for (headers, package) in ALL.into_iter().zip(["librocksdb-dev", "libleveldb-dev"]) {
            let nowhere = Headers { header: "a-header-of-no-one.h", ..headers };
            let why = nowhere.find(None).unwrap_err();
            assert!(why.contains(&format!("apt-get install {package}")), "{why}");
            assert!(why.contains(&format!("--exclude {}", headers.plugin)), "{why}");
        }
    }
}
