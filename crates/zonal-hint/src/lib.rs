//! Carries write-lifetime hints of unmodified programs to Furrow:
//! `LD_PRELOAD=libzonal_hint.so PROGRAM`.
//!
//! Linux keeps the hint of `fcntl(fd, F_SET_RW_HINT, &hint)` in its own inode and never sends it to
//! a FUSE server. This library calls `fcntl` as before; if that succeeds on a file of a FUSE mount,
//! it also sets the hint as the file's attribute `user.zonal.lifetime`, which Furrow reads. Other
//! calls and other file systems see no difference.
//!
//! The kernel reads 8 bytes at the pointer. RocksDB before 9.3.1 points to an enum of 4 bytes, and
//! the call fails with `EINVAL` if the next 4 are not zero by chance (facebook/rocksdb pull request
//! 12595). All hints there are fit in 4 bytes: so the library reads only these, and passes 8 to the
//! kernel.
//!
//! The pointer is the program's, and may be wrong. So the kernel reads those 4 bytes for the
//! library. Where it cannot, it gets the program's own call and answers it: with `EFAULT`, or with
//! `EBADF` if the file is wrong too.
//!
//! A program that is linked statically, or makes the system call itself, is not reached.

#![cfg(target_endian = "little")]
#![allow(unsafe_code, reason = "functions of the C library are replaced and called")]

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Linux, `fcntl.h`: `F_LINUX_SPECIFIC_BASE` + 11, + 12 and + 14.
const F_GET_RW_HINT: c_int = 1035;
const F_SET_RW_HINT: c_int = 1036;
const F_SET_FILE_RW_HINT: c_int = 1038;

/// Words of the attribute by the numbers of `RWH_WRITE_LIFE_*`; none for 0 and 1, which take the
/// hint away.
const WORDS: [Option<&[u8]>; 6] =
    [None, None, Some(b"short"), Some(b"medium"), Some(b"long"), Some(b"extreme")];

const ATTRIBUTE: &CStr = c"user.zonal.lifetime";

/// `fcntl` with its third argument as one word. On Linux's x86-64, aarch64 and riscv64, a variadic
/// call passes one argument of a word in the same way.
type Fcntl = unsafe extern "C" fn(c_int, c_int, usize) -> c_int;

/// Replaces the C library's function.
///
/// # Safety
///
/// As for `fcntl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: usize) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller keeps the contract of fcntl, which is passed on.
    unsafe { call(&NEXT, c"fcntl", fd, command, argument) }
}

/// The same under the name that programs with 64-bit offsets use.
///
/// # Safety
///
/// As for `fcntl(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fcntl64(fd: c_int, command: c_int, argument: usize) -> c_int {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    // SAFETY: the caller keeps the contract of fcntl, which is passed on.
    unsafe { call(&NEXT, c"fcntl64", fd, command, argument) }
}

/// Calls the function that this library hides, and passes a hint to it as 8 bytes.
///
/// # Safety
///
/// As for `fcntl(2)`.
unsafe fn call(
    next: &AtomicUsize,
    name: &CStr,
    fd: c_int,
    command: c_int,
    argument: usize,
) -> c_int {
    let Some(next) = find(next, name) else {
        set_errno(libc::ENOSYS);
        return -1;
    };
    if !matches!(command, F_SET_RW_HINT | F_SET_FILE_RW_HINT) || argument == 0 {
        // SAFETY: the caller's promise is the contract of the hidden function too.
        return unsafe { next(fd, command, argument) };
    }
    let Some(hint) = read(argument) else {
        // SAFETY: as above. The kernel reads at the pointer, and refuses one that is wrong.
        let outcome = unsafe { next(fd, command, argument) };
        if outcome != -1 {
            // The kernel could read it, and only we were not allowed to.
            mirror_kept(next, fd);
        }
        return outcome;
    };
    let whole = u64::from(hint);
    // SAFETY: the pointer is to 8 bytes that live until the call returns.
    let outcome = unsafe { next(fd, command, &raw const whole as usize) };
    if outcome != -1 {
        mirror(fd, hint);
    }
    outcome
}

/// The 4 bytes at an address of this process; `None` if the kernel does not read them there. A
/// program's pointer may be wrong, and `EFAULT` is the answer to that, not a signal.
fn read(address: usize) -> Option<u32> {
    let errno = errno();
    let mut hint = 0_u32;
    let room = libc::iovec { iov_base: (&raw mut hint).cast(), iov_len: size_of::<u32>() };
    let place = libc::iovec { iov_base: address as *mut c_void, iov_len: size_of::<u32>() };
    // SAFETY: the function gives the number of this process.
    let own = unsafe { libc::getpid() };
    // SAFETY: `room` is 4 bytes that the kernel may write to. It checks `place` itself.
    let count = unsafe { libc::process_vm_readv(own, &raw const room, 1, &raw const place, 1, 0) };
    set_errno(errno);
    (count == size_of::<u32>().cast_signed()).then_some(hint)
}

/// Mirrors the hint that the kernel keeps for a file.
fn mirror_kept(next: Fcntl, fd: c_int) {
    let errno = errno();
    let mut hint = 0_u64;
    // SAFETY: the pointer is to 8 bytes that the kernel may write to until the call returns.
    let outcome = unsafe { next(fd, F_GET_RW_HINT, &raw mut hint as usize) };
    set_errno(errno);
    if outcome != -1
        && let Ok(hint) = u32::try_from(hint)
    {
        mirror(fd, hint);
    }
}

/// The function of this name that comes after this library's, found once.
fn find(next: &AtomicUsize, name: &CStr) -> Option<Fcntl> {
    let mut address = next.load(Ordering::Relaxed);
    if address == 0 {
        // SAFETY: the name ends with a zero byte.
        address = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) } as usize;
        next.store(address, Ordering::Relaxed);
    }
    if address == 0 {
        return None;
    }
    // SAFETY: the dynamic linker found this address under the name of a function of this type.
    Some(unsafe { std::mem::transmute::<usize, Fcntl>(address) })
}

/// Sets the attribute of a file of a FUSE mount. A failure changes nothing for the program: a hint
/// is no promise.
fn mirror(fd: c_int, hint: u32) {
    let errno = errno();
    if let Some(word) = WORDS.get(hint as usize)
        && is_fuse(fd)
    {
        match word {
            Some(word) => {
                let value = word.as_ptr().cast::<c_void>();
                // SAFETY: the name ends with a zero byte, and the value has this many bytes.
                unsafe { libc::fsetxattr(fd, ATTRIBUTE.as_ptr(), value, word.len(), 0) };
            }
            None => {
                // SAFETY: the name ends with a zero byte.
                unsafe { libc::fremovexattr(fd, ATTRIBUTE.as_ptr()) };
            }
        }
    }
    set_errno(errno);
}

fn is_fuse(fd: c_int) -> bool {
    let mut about = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: the pointer is to room for the answer.
    if unsafe { libc::fstatfs(fd, about.as_mut_ptr()) } != 0 {
        return false;
    }
    // SAFETY: the call succeeded, so all of it is there.
    let about = unsafe { about.assume_init() };
    // The type of `f_type` depends on the C library and the processor.
    i128::from(about.f_type) == i128::from(libc::FUSE_SUPER_MAGIC)
}

fn errno() -> c_int {
    // SAFETY: the C library gives each thread its own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is valid as long as the thread lives.
    unsafe { place.read() }
}

fn set_errno(errno: c_int) {
    // SAFETY: the C library gives each thread its own.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: it is valid as long as the thread lives.
    unsafe { place.write(errno) };
}
