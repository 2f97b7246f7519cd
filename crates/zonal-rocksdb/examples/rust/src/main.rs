//! A store on a zoned drive by the Rust crate `rocksdb`, linked with the RocksDB that the plugin
//! was built for:
//!
//! ```sh
//! export ROCKSDB_LIB_DIR=/usr/lib/x86_64-linux-gnu RUSTFLAGS=-Lnative=/usr/lib/zonal
//! export LD_LIBRARY_PATH=/usr/lib/zonal
//! cargo run -- zonal://drive.zns
//! ```

use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_void};

use rocksdb::{DB, Env, Options, WriteOptions};

#[link(name = "zonal_rocksdb")]
unsafe extern "C" {
    fn zonal_rocksdb_env_create(uri: *const c_char, error: *mut *mut c_char) -> *mut c_void;
}

/// The crate links to this function, which RocksDB has from version 8 on: this one is for Debian's
/// 7.8. A program that uses a `WriteBufferManager` needs the real one.
#[unsafe(no_mangle)]
extern "C" fn rocksdb_write_buffer_manager_destroy(_: *mut c_void) {}

fn main() -> Result<(), Box<dyn Error>> {
    let uri = std::env::args().nth(1).ok_or("usage: store zonal://DEVICE")?;
    let uri = CString::new(uri)?;
    let mut error = std::ptr::null_mut();
    // SAFETY: the address ends with a zero, and `error` lives until it returns.
    let env = unsafe { zonal_rocksdb_env_create(uri.as_ptr(), &raw mut error) };
    if env.is_null() {
        // SAFETY: without an Env there is a text, which ends with a zero.
        return Err(unsafe { CStr::from_ptr(error) }.to_string_lossy().into());
    }
    // SAFETY: it is a `rocksdb_env_t` of the same library, and it is given away here.
    let env = unsafe { Env::from_raw(env.cast()) };
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_env(&env);
    let store = DB::open(&options, "/store")?;
    let mut durably = WriteOptions::default();
    durably.set_sync(true);
    store.put_opt(b"key", b"value", &durably)?;
    let value = store.get(b"key")?.ok_or("it was just put")?;
    println!("{}", String::from_utf8_lossy(&value));
    Ok(())
}
