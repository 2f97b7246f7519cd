//! The limit of the machine: the same bytes moved with no zoned device in between. For a drive in
//! memory that is copying memory; for a drive in a file, reading and writing a plain file in its
//! directory. A device has no limit, because this machine has no other medium of its kind to
//! measure.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use zonal::workload::Pattern;

use crate::clock;
use crate::device::Base;

/// The medium on which the limit is measured.
pub(super) enum Limit {
    Memory,
    /// A file that no directory lists any more.
    File(File),
    None,
}

impl Limit {
    /// The limit for the medium of a device.
    pub(super) fn of(base: &Base) -> Result<Self> {
        match base {
            Base::Memory => Ok(Self::Memory),
            Base::File(path) => plain_file(path).map(Self::File),
            Base::Device | Base::Simulated(_) => Ok(Self::None),
        }
    }

    /// Its name in results.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Memory => "memcpy",
            Self::File(_) => "plain file",
            Self::None => "none",
        }
    }

    /// Operations in a second by `threads` threads, each with `span` bytes of its own. 0 without a
    /// limit.
    pub(super) fn measure(
        &self,
        pattern: Pattern,
        bytes: usize,
        threads: u32,
        span: usize,
        time: Duration,
    ) -> Result<f64> {
        let start = clock::now();
        let run = |thread: u32| -> Result<u64> {
            let span = span / bytes * bytes;
            match self {
                Self::None => Ok(0),
                Self::Memory => {
                    let mut memory = vec![1; span];
                    repeat(pattern, bytes, span, time, |at, buffer, is_write| {
                        let part = &mut memory[at..at + bytes];
                        let (from, to) = if is_write { (buffer, part) } else { (part, buffer) };
                        to.copy_from_slice(from);
                        Ok(())
                    })
                }
                Self::File(file) => {
                    let base = u64::from(thread) * span as u64;
                    file.write_all_at(&vec![1; span], base).context("filling the plain file")?;
                    repeat(pattern, bytes, span, time, |at, buffer, is_write| {
                        let at = base + at as u64;
                        if is_write {
                            file.write_all_at(buffer, at).context("writing the plain file")
                        } else {
                            file.read_exact_at(buffer, at).context("reading the plain file")
                        }
                    })
                }
            }
        };
        let done: Result<Vec<u64>> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..threads).map(|thread| scope.spawn(move || run(thread))).collect();
            let join = |thread: std::thread::ScopedJoinHandle<'_, Result<u64>>| {
                thread.join().expect("the limit does not panic")
            };
            threads.into_iter().map(join).collect()
        });
        let seconds = start.elapsed().as_secs_f64().min(time.as_secs_f64());
        Ok(crate::output::per_second(done?.into_iter().sum(), seconds))
    }
}

/// A new file without a name in the directory of a drive file, so on the same disk.
fn plain_file(drive: &Path) -> Result<File> {
    let mut path = drive.as_os_str().to_owned();
    path.push(format!(".limit-{}", std::process::id()));
    let path = PathBuf::from(path);
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .with_context(|| format!("creating {}", path.display()))?;
    std::fs::remove_file(&path).with_context(|| format!("removing {}", path.display()))?;
    Ok(file)
}

/// Repeats an operation for `time`, at offsets of `pattern`; returns how often.
fn repeat(
    pattern: Pattern,
    bytes: usize,
    span: usize,
    time: Duration,
    mut operate: impl FnMut(usize, &mut [u8], bool) -> Result<()>,
) -> Result<u64> {
    let is_write = pattern.writes();
    let mut random = ChaCha8Rng::seed_from_u64(1);
    let mut buffer = vec![2; bytes];
    let (start, mut done, mut next) = (clock::now(), 0_u64, 0);
    loop {
        let at = match pattern {
            Pattern::RandomRead => random.random_range(0..span / bytes) * bytes,
            Pattern::Write | Pattern::Append | Pattern::Read => next,
        };
        operate(at, &mut buffer, is_write)?;
        std::hint::black_box(&mut buffer);
        next = (next + bytes) % span;
        done += 1;
        if done.is_multiple_of(64) && start.elapsed() >= time {
            return Ok(done);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn limit_is_measured_where_device_is() {
        assert!(matches!(Limit::of(&Base::Memory), Ok(Limit::Memory)));
        for base in [Base::Simulated(Arc::default()), Base::Device] {
            assert!(matches!(Limit::of(&base), Ok(Limit::None)));
        }
    }

    #[test]
    fn limit_plain_file_avoids_existing_name() {
        let folder = tempfile::tempdir().unwrap();
        let taken = folder.path().join("drive:1.zns.limit");
        std::fs::write(&taken, "somebody's").unwrap();
        let limit = Limit::of(&Base::File(folder.path().join("drive:1.zns"))).unwrap();
        for pattern in [Pattern::Write, Pattern::RandomRead] {
            let time = Duration::from_millis(1);
            assert!(limit.measure(pattern, 4096, 2, 1 << 20, time).unwrap() > 0.0);
        }
        assert_eq!(std::fs::read(taken).unwrap(), b"somebody's");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
