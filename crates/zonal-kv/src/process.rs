//! The number of this process, without a system call: every read of a file asks for it.

use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, Ordering};

use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};

/// Bytes that are mapped: a page of any machine that Linux runs on.
const PAGE: usize = 64 << 10;

/// A number that the kernel sets to 0 in a copy of the process (`MADV_WIPEONFORK`, madvise(2)).
static NUMBER: AtomicPtr<AtomicI32> = AtomicPtr::new(ptr::null_mut());

/// Number of this process. A copy made by fork(2) has another one.
pub(crate) fn process() -> i32 {
    let Some(number) = number() else { return getpid() };
    match number.load(Ordering::Relaxed) {
        0 => {
            let process = getpid();
            number.store(process, Ordering::Relaxed);
            process
        }
        process => process,
    }
}

fn getpid() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// The number, in a page of its own; `None` on a kernel that cannot wipe it.
fn number() -> Option<&'static AtomicI32> {
    let known = NUMBER.load(Ordering::Acquire);
    // SAFETY: a page in `NUMBER` is never unmapped, and zeroes are a valid number.
    unsafe { known.as_ref() }.or_else(map_number)
}

#[cold]
fn map_number() -> Option<&'static AtomicI32> {
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: the kernel chooses a place where nothing else is.
    let page =
        unsafe { mmap_anonymous(ptr::null_mut(), PAGE, protection, MapFlags::PRIVATE) }.ok()?;
    // SAFETY: the page is ours and holds only zeroes.
    let wiped = unsafe { madvise(page, PAGE, Advice::LinuxWipeOnFork) };
    let new = page.cast();
    let put = || NUMBER.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire);
    let found = wiped.is_ok().then(|| put().map_or_else(|first| first, |_| new));
    if found != Some(new) {
        // SAFETY: no other thread has this page.
        let _ = unsafe { munmap(page, PAGE) };
    }
    // SAFETY: see `number`.
    found.and_then(|found| unsafe { found.as_ref() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn process_number_is_that_of_the_kernel() {
        assert_eq!((process(), process()), (getpid(), getpid()));
        assert!(number().is_some(), "this kernel wipes pages at fork");
    }
}
