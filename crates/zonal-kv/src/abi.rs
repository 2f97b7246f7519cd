//! The C interface: `include/zonal_kv.h`.
//!
//! Every function returns 0 or an errno; [`zkv_last_error`] then has the message, for the calling
//! thread. No panic leaves it. Safety: the caller has to pass handles that an open function
//! returned and that are not closed, buffers and strings of the given length, and addresses that
//! are valid for writing the result. Several threads may use a handle at once, but closing it has
//! to be its last use.

#![allow(clippy::missing_safety_doc, reason = "one contract for all functions, stated above")]

use std::ffi::{c_char, c_int};
use std::path::Path;
use std::sync::{Arc, Once};

use zonal_fs::vfs::FileKind;
use zonal_fs::volume::{OpenFlags, WriteLifetime};

use crate::edge::{self, Text};
use crate::{Error, Result, Store, StoreFile};

/// A handle of an open drive.
pub struct Handle(Arc<Store>);

/// Attributes of a path.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Stat {
    /// Number of the inode.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Last change, seconds since 1970.
    pub mtime: u64,
    /// Names.
    pub links: u64,
    /// 1 for a directory, 0 for anything else.
    pub is_directory: u32,
}

/// The message of the last call of this thread that failed; valid until the next one fails.
#[unsafe(no_mangle)]
pub extern "C" fn zkv_last_error() -> *const c_char {
    edge::last_error()
}

/// Sends warnings, such as those about a failing drive, to standard error: the program has no other
/// log for them.
fn log_to_stderr() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let log = tracing_subscriber::fmt().with_writer(std::io::stderr).with_ansi(false);
        // The program may have a log of its own, if it is written in Rust.
        let _ = log.with_max_level(tracing::Level::WARN).try_init();
    });
}

/// Opens the drive that `uri` names, or returns the open store of that drive in this process.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_open(uri: Text, store: *mut *mut Handle) -> c_int {
    edge::status(|| {
        // SAFETY: the caller's part of the contract.
        let uri = unsafe { edge::bytes(uri.data, uri.len) }?;
        let uri = std::str::from_utf8(uri).map_err(|_| Error::argument("the URI is not UTF-8"))?;
        log_to_stderr();
        let opened = Handle(Store::open(uri)?);
        // SAFETY: the caller's part of the contract.
        unsafe { edge::give(opened, store) };
        Ok(())
    })
}

/// Releases a handle. Releasing the last one closes the drive.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_close(store: *mut Handle) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| unsafe { edge::take(store) }?.0.release())
}

/// Closes all stores at the end of the process.
#[unsafe(no_mangle)]
pub extern "C" fn zkv_close_all() {
    edge::status(|| {
        Store::close_all();
        Ok(())
    });
}

/// Runs `action` on a store.
unsafe fn on_store(store: *const Handle, action: impl FnOnce(&Arc<Store>) -> Result<()>) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| action(&unsafe { edge::borrow(store) }?.0))
}

/// Runs `action` on a path of a store.
unsafe fn on_path(
    store: *const Handle,
    path: Text,
    action: impl FnOnce(&Store, &Path) -> Result<()>,
) -> c_int {
    // SAFETY: the caller's part of the contract.
    let act = |store: &Arc<Store>| action(store, unsafe { edge::path(path) }?);
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, act) }
}

/// Whether files take writes anywhere. 0: at their end alone, as on zonefs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_overwrites(store: *const Handle, answer: *mut u32) -> c_int {
    let ask = |store: &Arc<Store>| {
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(u32::from(store.overwrites()), answer) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, ask) }
}

/// Makes everything durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_sync(store: *const Handle) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, |store| store.sync()) }
}

/// Bytes that a file takes at least: of a block, or on zonefs of a zone.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_unit(store: *const Handle, bytes: *mut u64) -> c_int {
    let ask = |store: &Arc<Store>| {
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(store.unit()?.get(), bytes) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, ask) }
}

/// Bytes that files can still fill.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_free_bytes(store: *const Handle, bytes: *mut u64) -> c_int {
    let free = |store: &Arc<Store>| {
        let space = store.space()?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(space.blocks_free * u64::from(space.block_size), bytes) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, free) }
}

/// Attributes of the file or directory at a path.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_stat_path(store: *const Handle, path: Text, stat: *mut Stat) -> c_int {
    let ask = |store: &Arc<Store>| {
        // SAFETY: the caller's part of the contract.
        let attr = store.metadata(unsafe { edge::path(path) }?)?;
        let found = Stat {
            ino: attr.ino.get(),
            size: attr.size,
            mtime: u64::try_from(attr.mtime.secs()).unwrap_or(0),
            links: attr.nlink.into(),
            is_directory: u32::from(attr.kind == FileKind::Directory),
        };
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(found, stat) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, ask) }
}

/// The names in a directory, each followed by a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_list(
    store: *const Handle,
    path: Text,
    names: *mut *mut u8,
    len: *mut usize,
) -> c_int {
    let list = |store: &Arc<Store>| {
        let mut bytes = Vec::new();
        // SAFETY: the caller's part of the contract.
        for entry in store.list(unsafe { edge::path(path) }?)? {
            bytes.extend_from_slice(entry.name.as_encoded_bytes());
            bytes.push(0);
        }
        let bytes = bytes.into_boxed_slice();
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(bytes.len(), len) };
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(Box::into_raw(bytes).cast(), names) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, list) }
}

/// Frees a list of names.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_free_list(names: *mut u8, len: usize) {
    if !names.is_null() {
        // SAFETY: it comes from `zkv_list`, with this length, and is used for the last time.
        drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(names, len)) });
    }
}

/// Removes a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_remove(store: *const Handle, path: Text) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_path(store, path, Store::remove_file) }
}

/// Makes a directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_create_dir(store: *const Handle, path: Text) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_path(store, path, Store::create_dir) }
}

/// Removes an empty directory.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_remove_dir(store: *const Handle, path: Text) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_path(store, path, Store::remove_dir) }
}

/// Moves an entry, and replaces a file at `to`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_rename(store: *const Handle, from: Text, to: Text) -> c_int {
    let rename = |store: &Arc<Store>| {
        // SAFETY: the caller's part of the contract.
        let (from, to) = (unsafe { edge::path(from) }?, unsafe { edge::path(to) }?);
        store.rename(from, to)
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, rename) }
}

/// Gives a file one more name.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_link(store: *const Handle, original: Text, link: Text) -> c_int {
    let make = |store: &Arc<Store>| {
        // SAFETY: the caller's part of the contract.
        let (original, link) = (unsafe { edge::path(original) }?, unsafe { edge::path(link) }?);
        store.hard_link(original, link)
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, make) }
}

/// Opens a file. `flags` are the bits of [`OpenFlags`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_open(
    store: *const Handle,
    path: Text,
    flags: u32,
    file: *mut *mut StoreFile,
) -> c_int {
    let open = |store: &Arc<Store>| {
        let flags = OpenFlags::from_bits(flags)
            .ok_or_else(|| Error::argument("a way of opening that does not exist"))?;
        // SAFETY: the caller's part of the contract.
        let opened = StoreFile::open(store, unsafe { edge::path(path) }?, flags)?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::give(opened, file) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_store(store, open) }
}

/// Closes a file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_close(file: *mut StoreFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| unsafe { edge::take(file) }?.close())
}

/// Runs `action` on a file.
unsafe fn on_file(file: *const StoreFile, action: impl FnOnce(&StoreFile) -> Result<()>) -> c_int {
    // SAFETY: the caller's part of the contract.
    edge::status(|| action(unsafe { edge::borrow(file) }?))
}

/// Reads up to `len` bytes from `offset` on; less only at the end of file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_read(
    file: *const StoreFile,
    offset: u64,
    buffer: *mut u8,
    len: usize,
    read: *mut usize,
) -> c_int {
    let fill = |file: &StoreFile| {
        // SAFETY: the caller's part of the contract.
        let count = file.read(unsafe { edge::buffer(buffer, len) }?, offset)?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(count, read) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, fill) }
}

/// The address of up to `len` bytes from `offset` on, valid until the file is closed; fewer bytes
/// only at the end of file. NULL if they are not side by side in memory: [`zkv_file_read`] copies
/// them.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_lend(
    file: *const StoreFile,
    offset: u64,
    len: usize,
    bytes: *mut *const u8,
    found: *mut usize,
) -> c_int {
    let lend = |file: &StoreFile| {
        let lent = file.lend(offset, len)?;
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(lent.map_or(std::ptr::null(), <[u8]>::as_ptr), bytes) };
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(lent.map_or(0, <[u8]>::len), found) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, lend) }
}

/// Writes at the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_append(
    file: *const StoreFile,
    data: *const u8,
    len: usize,
) -> c_int {
    // SAFETY: the caller's part of the contract.
    let append = |file: &StoreFile| file.append(unsafe { edge::bytes(data, len) }?);
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, append) }
}

/// Writes at `offset`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_write(
    file: *const StoreFile,
    data: *const u8,
    len: usize,
    offset: u64,
) -> c_int {
    // SAFETY: the caller's part of the contract.
    let write = |file: &StoreFile| file.write(unsafe { edge::bytes(data, len) }?, offset);
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, write) }
}

/// Sets the length.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_set_len(file: *const StoreFile, len: u64) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, |file| file.set_len(len)) }
}

/// Makes the file durable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_sync(file: *const StoreFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, StoreFile::sync) }
}

/// Sets the expected lifetime of the file's data, by its number in [`WriteLifetime::ALL`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_lifetime(file: *const StoreFile, lifetime: u32) -> c_int {
    let set = |file: &StoreFile| {
        let lifetime = WriteLifetime::ALL.get(lifetime as usize);
        let lifetime = lifetime.ok_or_else(|| Error::argument("no such lifetime"))?;
        file.set_write_lifetime(*lifetime)
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, set) }
}

/// Locks the file; EAGAIN if another handle has it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_lock(file: *const StoreFile) -> c_int {
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, StoreFile::try_lock) }
}

/// The length of the file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_size(file: *const StoreFile, size: *mut u64) -> c_int {
    let ask = |file: &StoreFile| {
        // SAFETY: the caller's part of the contract.
        unsafe { edge::put(file.size()?, size) };
        Ok(())
    };
    // SAFETY: the caller's part of the contract.
    unsafe { on_file(file, ask) }
}

/// A number that no other file of the drive ever gets; 0 for NULL.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn zkv_file_id(file: *const StoreFile) -> u64 {
    // SAFETY: the caller's part of the contract.
    unsafe { file.as_ref() }.map_or(0, StoreFile::id)
}
