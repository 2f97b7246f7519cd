//! `libzonal_rocksdb.so`: a RocksDB `FileSystem` on a zoned drive.
//!
//! The C++ of `shim/` implements RocksDB's interfaces and calls [`zonal_kv`], which does all the
//! work. Loaded into a program, by `LD_PRELOAD` or by linking, it registers the scheme `zonal://`
//! with RocksDB. Durability and errors: [`zonal_kv`] and `docs/guide/applications/rocksdb.md`.
//!
//! It is built against RocksDB's headers, and without them not at all: see `build.rs`.

#![allow(unsafe_code, reason = "C++ is called")]

#[doc(no_inline)]
pub use zonal_kv;

pub mod env {
    //! For RocksDB's C interface.

    use std::ffi::{c_char, c_void};

    unsafe extern "C" {
        fn zonal_rocksdb_make_env(uri: *const c_char, error: *mut *mut c_char) -> *mut c_void;
    }

    /// Makes a `rocksdb_env_t` on the drive that `uri` names, for RocksDB's C interface; the caller
    /// frees it with `rocksdb_env_destroy`. If this fails, it returns NULL and sets `error` to the
    /// message, which the caller frees with free(3).
    ///
    /// # Safety
    ///
    /// `uri` ends in a zero byte, and `error` is valid for writing. The program must use the
    /// RocksDB with which this library is linked.
    #[unsafe(no_mangle)]
    pub unsafe extern "C" fn zonal_rocksdb_env_create(
        uri: *const c_char,
        error: *mut *mut c_char,
    ) -> *mut c_void {
        // SAFETY: the caller says so; no exception leaves it.
        unsafe { zonal_rocksdb_make_env(uri, error) }
    }
}
