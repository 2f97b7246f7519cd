//! Finds the headers of a store: for the build scripts of the plugins, and for code that decides
//! whether the plugins can be built.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// The headers of a store.
#[derive(Clone, Copy)]
pub(crate) struct Headers {
    /// The name of its library, and of its folder of headers.
    pub(crate) store: &'static str,
    /// The header that has to be there.
    pub(crate) header: &'static str,
    /// Debian's package of them.
    pub(crate) package: &'static str,
    /// The plugin that is compiled with them.
    pub(crate) plugin: &'static str,
}

/// The headers of all stores.
pub(crate) const ALL: [Headers; 2] = [
    Headers {
        store: "rocksdb",
        header: "file_system.h",
        package: "librocksdb-dev",
        plugin: "zonal-rocksdb",
    },
    Headers {
        store: "leveldb",
        header: "env.h",
        package: "libleveldb-dev",
        plugin: "zonal-leveldb",
    },
];

impl Headers {
    /// The environment variable that names another place.
    pub(crate) fn variable(&self) -> String {
        format!("{}_INCLUDE_DIR", self.store.to_uppercase())
    }

    /// The folder to include them from: the one that was `asked` for, or one of the system's. The
    /// error is a message for the person who builds.
    pub(crate) fn find(&self, asked: Option<OsString>) -> Result<PathBuf, String> {
        let Self { store, header, package, plugin } = self;
        let file = Path::new(store).join(header);
        let has = |place: &PathBuf| place.join(&file).is_file();
        if let Some(place) = asked {
            let (place, variable) = (PathBuf::from(place), self.variable());
            let why = format!("{variable}={} has no {}", place.display(), file.display());
            return Some(place).filter(has).ok_or(why);
        }
        let places = ["/usr/local/include", "/usr/include"].map(PathBuf::from);
        places.into_iter().find(has).ok_or_else(|| {
            format!(
                "there is no {}: apt-get install {package}, or set {} to where it is, \
                 or leave {plugin} out: cargo build --workspace --exclude {plugin}",
                file.display(),
                self.variable()
            )
        })
    }
}
