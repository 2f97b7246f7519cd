//! `libzonal_leveldb.so`: LevelDB's `Env` on a zoned drive.
//!
//! LevelDB takes its files from `leveldb::Env::Default()`, unless a program brings an `Env` of its
//! own. Loaded by `LD_PRELOAD`, this library has that function too, and is found first: where the
//! environment variable `ZONAL_LEVELDB` names a drive, all files are there. The C++ of `shim/`
//! calls [`zonal_kv`], which does all the work. Durability and errors: [`zonal_kv`] and
//! `docs/guide/applications/leveldb.md`.
//!
//! It is built against LevelDB's headers, and without them not at all: see `build.rs`.

#![allow(unsafe_code, reason = "C++ is called")]

#[doc(no_inline)]
pub use zonal_kv;

pub mod env {
    //! The function of LevelDB that this library has in its place.

    use std::ffi::c_void;

    unsafe extern "C" {
        fn zonal_leveldb_default_env() -> *mut c_void;
    }

    /// `leveldb::Env::Default()`, under the name that C++ compilers on Linux give it.
    #[unsafe(export_name = "_ZN7leveldb3Env7DefaultEv")]
    pub extern "C" fn default_env() -> *mut c_void {
        // SAFETY: it has no arguments, and no exception leaves it.
        unsafe { zonal_leveldb_default_env() }
    }
}
