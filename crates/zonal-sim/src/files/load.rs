//! The operations: files are created until the drive is filled to `workload.fill`; then some are
//! overwritten in part, others deleted and replaced, at the same live size.
//!
//! A part of the files is hot (`workload.hot_part` of the bytes) and gets its share of the writes
//! (`workload.hot_share`). Half of the bytes written are overwrites of `workload.io` bytes inside
//! files, as of databases; half are new files that take the place of deleted ones. After each 256th
//! of the user capacity everything is synced. These shares are assumed.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution, LogNormal};

use super::{BLOCK_BYTES, FileOp, Life};
use crate::config::Config;
use crate::error::{Result, refused};
use crate::size::Size;

/// Median size of a file, in bytes, and sigma of its logarithm. Assumed: photos, objects and
/// tables rather than the many tiny files of a home directory, which a file system may keep inside
/// its metadata.
const SIZE_MEDIAN: f64 = 262_144.0;
const SIZE_SIGMA: f64 = 1.2;

/// A file takes at most this part of the user capacity.
const SIZE_PART: u64 = 256;

/// Syncs while the whole user capacity is written once.
const SYNCS: u64 = 256;

/// A file that lives.
#[derive(Clone, Copy)]
struct LiveFile {
    number: u32,
    bytes: u64,
}

/// Files of one life.
#[derive(Default)]
struct Class {
    files: Vec<LiveFile>,
    /// Bytes they take, and the target.
    bytes: u64,
    target: u64,
}

/// A source of operations. It is endless.
pub struct FileLoad {
    random: ChaCha8Rng,
    /// Short-lived and long-lived files.
    classes: [Class; 2],
    sizes: LogNormal<f64>,
    size_max: u64,
    io: u64,
    hot_share: f64,
    next: u32,
    filled: bool,
    /// Overwritten bytes minus created ones, since all was filled.
    balance: i64,
    sync_bytes: u64,
    unsynced: u64,
}

impl FileLoad {
    /// Operations for a drive of this user capacity, `workload.fill` of which files take.
    pub fn new(config: &Config, user_bytes: u64) -> Result<Self> {
        let workload = &config.workload;
        if !workload.io.0.is_multiple_of(BLOCK_BYTES) {
            return Err(refused("workload.io", workload.io, "a multiple of 4KiB"));
        }
        let size_max = user_bytes / SIZE_PART / BLOCK_BYTES * BLOCK_BYTES;
        if size_max < workload.io.0 {
            let allowed =
                format!("at most a {SIZE_PART}th of the user capacity, {}", { Size(size_max) });
            return Err(refused("workload.io", workload.io, &allowed));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "shares of a drive's bytes, below 2^52"
        )]
        let share = |part: f64| (user_bytes as f64 * workload.fill * part) as u64;
        let hot = Class { target: share(workload.hot_part), ..Class::default() };
        let cold = Class { target: share(1.0 - workload.hot_part), ..Class::default() };
        Ok(Self {
            random: ChaCha8Rng::seed_from_u64(config.seed),
            classes: [hot, cold],
            sizes: LogNormal::new(SIZE_MEDIAN.ln(), SIZE_SIGMA).expect("sigma is finite"),
            size_max,
            io: workload.io.0,
            hot_share: workload.hot_share,
            next: 0,
            filled: false,
            balance: 0,
            sync_bytes: (user_bytes / SYNCS).max(BLOCK_BYTES),
            unsynced: 0,
        })
    }

    /// Whether files take as many bytes as their target.
    pub const fn is_filled(&self) -> bool {
        self.filled
    }

    /// Bytes of all files.
    pub fn live_bytes(&self) -> u64 {
        self.classes.iter().map(|class| class.bytes).sum()
    }

    /// The next operation.
    pub fn next_op(&mut self) -> FileOp {
        if self.unsynced >= self.sync_bytes {
            self.unsynced = 0;
            return FileOp::Sync;
        }
        let op = if self.filled { self.change() } else { self.fill() };
        self.unsynced += op.bytes();
        op
    }

    /// A file of the class that is furthest below its target.
    fn fill(&mut self) -> FileOp {
        let done = |class: &Class| class.bytes * 1000 / class.target.max(1);
        let hot = done(&self.classes[0]) <= done(&self.classes[1]);
        let life = if hot { Life::Short } else { Life::Long };
        let op = self.create(life);
        self.filled = self.classes.iter().all(|class| class.bytes >= class.target);
        op
    }

    fn change(&mut self) -> FileOp {
        // A class that has too much gives some up; one that has too little gets a file.
        for life in [Life::Short, Life::Long] {
            let class = self.class(life);
            if class.bytes > class.target {
                return self.delete(life);
            }
        }
        let hot = self.random.random_bool(self.hot_share);
        let life = if hot { Life::Short } else { Life::Long };
        if self.balance > 0 || self.class(life).files.is_empty() {
            let op = self.create(life);
            self.balance -= i64::try_from(op.bytes()).expect("a file's size");
            op
        } else {
            self.overwrite(life)
        }
    }

    fn create(&mut self, life: Life) -> FileOp {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates")]
        let drawn = self.sizes.sample(&mut self.random) as u64;
        let bytes = drawn.min(self.size_max).next_multiple_of(BLOCK_BYTES).max(BLOCK_BYTES);
        let file = self.next;
        self.next += 1;
        let class = self.class_mut(life);
        class.files.push(LiveFile { number: file, bytes });
        class.bytes += bytes;
        FileOp::Create { file, bytes, life }
    }

    fn delete(&mut self, life: Life) -> FileOp {
        let at = self.any(life);
        let class = self.class_mut(life);
        let LiveFile { number, bytes } = class.files.swap_remove(at);
        class.bytes -= bytes;
        FileOp::Delete { file: number }
    }

    fn overwrite(&mut self, life: Life) -> FileOp {
        let at = self.any(life);
        let LiveFile { number, bytes: size } = self.class(life).files[at];
        let bytes = self.io.min(size);
        let places = (size - bytes) / BLOCK_BYTES;
        let offset = self.random.random_range(0..=places) * BLOCK_BYTES;
        self.balance += i64::try_from(bytes).expect("a file's size");
        FileOp::Overwrite { file: number, offset, bytes }
    }

    /// Any file of a class, each alike.
    fn any(&mut self, life: Life) -> usize {
        let count = self.class(life).files.len();
        self.random.random_range(0..count)
    }

    const fn class(&self, life: Life) -> &Class {
        &self.classes[life as usize]
    }

    const fn class_mut(&mut self, life: Life) -> &mut Class {
        &mut self.classes[life as usize]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    const USER: u64 = 256 << 20;

    fn load(seed: u64) -> FileLoad {
        FileLoad::new(&Config { seed, ..Config::default() }, USER).expect("a load")
    }

    #[test]
    #[expect(clippy::cast_precision_loss, reason = "shares")]
    fn operations_name_live_files_and_places_inside() {
        let mut load = load(1);
        let (mut files, mut live) = (BTreeMap::new(), 0);
        let (mut created, mut overwritten, mut hot) = (0_u64, 0, 0);
        for _ in 0..200_000 {
            let filled = load.is_filled();
            match load.next_op() {
                FileOp::Create { file, bytes, life } => {
                    assert!(bytes > 0 && bytes.is_multiple_of(BLOCK_BYTES) && bytes <= USER / 256);
                    assert_eq!(files.insert(file, (bytes, life)), None, "a new file");
                    live += bytes;
                    created += if filled { bytes } else { 0 };
                }
                FileOp::Overwrite { file, offset, bytes } => {
                    let (size, life) = files[&file];
                    assert!(offset + bytes <= size && bytes > 0);
                    overwritten += bytes;
                    hot += if life == Life::Short { bytes } else { 0 };
                }
                FileOp::Delete { file } => live -= files.remove(&file).expect("it lives").0,
                FileOp::Sync => {}
            }
            assert_eq!(live, load.live_bytes());
        }
        let fill = live as f64 / USER as f64;
        assert!((0.89..0.92).contains(&fill), "{fill} of the drive");
        let share = created as f64 / (created + overwritten) as f64;
        assert!((0.49..0.51).contains(&share), "{share} of the bytes are new files");
        let hot = hot as f64 / overwritten as f64;
        assert!((0.75..0.85).contains(&hot), "{hot} of the overwrites are of hot files");
    }

    #[test]
    fn operations_are_same_for_seed() {
        let ops = |seed| {
            let mut load = load(seed);
            (0..5_000).map(|_| load.next_op()).collect::<Vec<_>>()
        };
        assert_eq!(ops(4), ops(4));
        assert_ne!(ops(4), ops(5));
    }

    #[test]
    fn overwrite_larger_than_any_file_is_refused() {
        let error = FileLoad::new(&Config::default(), 512 << 10).err().expect("too small");
        assert!(error.to_string().contains("workload.io = 4KiB"), "{error}");
        let mut config = Config::default();
        config.workload.io = Size(5000);
        assert!(FileLoad::new(&config, USER).is_err());
    }
}
