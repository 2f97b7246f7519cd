//! Files: several are written at once, each as a whole, and their lifetimes differ by orders of
//! magnitude. It is the workload that streams and FDP are made for.
//!
//! A file belongs to a class by its expected life, and its handle is that of its class. When it
//! dies, the host writes it again in place, or deletes it with TRIM and gives its room to others.
//! Sizes and lives are random; a life is a number of places that the host writes meanwhile. When
//! files would take more than `workload.fill` of the capacity, the host deletes the next ones to
//! die early.

use std::collections::{BTreeMap, VecDeque};

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use rand_distr::{Exp1, LogNormal};

use super::{Op, Request, Space, Workload};
use crate::config::{Config, Layout};
use crate::error::{Result, refused};
use crate::size::Size;

/// Classes of lives. Each is written at the same rate.
const CLASSES: u8 = 4;

/// A life is so many times that of the class before, on average. Assumed.
const LIFE_RATIO: f64 = 8.0;

/// Files that are written at once. Assumed.
const WRITERS: usize = 8;

/// Median and sigma of sizes in bytes, of files up to large ones (Agrawal et al., "Generating
/// realistic impressions for file-system benchmarking", FAST 2009: log-normal, mu 9.48).
const SIZE_MU: f64 = 9.48;
const SIZE_SIGMA: f64 = 2.46;

/// Largest file: this part of the capacity, so that writing it takes less time than the shortest
/// lives, and this many bytes.
const SIZE_PART: u32 = 4096;
const SIZE_MAX: u32 = 1 << 30;

/// Places of the drive: `first..first + count`.
#[derive(Clone, Copy, Debug)]
struct PlaceRange {
    first: u32,
    count: u32,
}

#[derive(Clone, Debug)]
struct PlacedFile {
    class: u8,
    extents: Vec<PlaceRange>,
    places: u32,
}

/// A file that is being written: `done` places of extent `extent`.
struct Writer {
    file: PlacedFile,
    extent: usize,
    done: u32,
}

/// The generator.
pub(super) struct Files {
    space: Space,
    handles: u8,
    /// Places that files may take, and do take.
    limit: u32,
    used: u32,
    /// Free places: first → count. Neighbours are joined.
    free: BTreeMap<u32, u32>,
    /// Where the search for room goes on.
    cursor: u32,
    /// Mean life of the shortest class, in places written.
    life: f64,
    /// Files by when they die, in places written, and by number.
    live: BTreeMap<(u64, u64), PlacedFile>,
    made: u64,
    rewrites: VecDeque<PlacedFile>,
    writers: Vec<Writer>,
    trims: Vec<Request>,
    written: u64,
    sizes: LogNormal<f64>,
    rng: ChaCha8Rng,
}

impl Files {
    pub(super) fn new(config: &Config, layout: &Layout, rng: ChaCha8Rng) -> Result<Self> {
        let space = Space::new(config, layout)?;
        if space.places < SIZE_PART {
            let bytes = layout.user_bytes() / u64::from(SIZE_PART);
            let allowed = format!("for files, at most a 4096th of the capacity: {}", Size(bytes));
            return Err(refused("workload.io", config.workload.io, &allowed));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of a u32"
        )]
        let limit = (f64::from(space.places) * config.workload.fill) as u32;
        // The live places are the sum over classes of rate × life: lives follow from the fill.
        let lives: f64 = (0..CLASSES).map(|class| LIFE_RATIO.powi(class.into())).sum();
        let life = f64::from(limit) * f64::from(CLASSES) / lives;
        let mut files = Self {
            space,
            handles: config.handles(),
            limit,
            used: 0,
            free: BTreeMap::from([(0, space.places)]),
            cursor: 0,
            life,
            live: BTreeMap::new(),
            made: 0,
            rewrites: VecDeque::new(),
            writers: Vec::new(),
            trims: Vec::new(),
            written: 0,
            sizes: LogNormal::new(SIZE_MU, SIZE_SIGMA).expect("sigma is finite"),
            rng,
        };
        for _ in 0..WRITERS {
            let writer = files.begin();
            files.writers.push(writer);
        }
        Ok(files)
    }

    /// The next piece of one of the files being written.
    fn write(&mut self) -> Request {
        let index = self.rng.random_range(0..self.writers.len());
        let writer = &mut self.writers[index];
        let extent = writer.file.extents[writer.extent];
        let place = extent.first + writer.done;
        let class = u16::from(writer.file.class);
        writer.done += 1;
        if writer.done == extent.count {
            (writer.extent, writer.done) = (writer.extent + 1, 0);
        }
        self.written += 1;
        let handles = u16::from(self.handles.min(CLASSES));
        let handle = (class * handles / u16::from(CLASSES)).to_le_bytes()[0];
        if writer.extent == writer.file.extents.len() {
            let next = self.begin();
            let done = std::mem::replace(&mut self.writers[index], next);
            self.keep(done.file);
        }
        self.space.request(place, Op::Write, handle)
    }

    /// A file has been written: it lives for a while.
    fn keep(&mut self, file: PlacedFile) {
        let mean = self.life * LIFE_RATIO.powi(file.class.into());
        let lives: f64 = self.rng.sample::<f64, _>(Exp1) * mean;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a count of places, far below 2^53"
        )]
        let dies_at = self.written + lives as u64;
        self.made += 1;
        self.live.insert((dies_at, self.made), file);
    }

    /// The next file to be written: one that died and is written again, or a new one.
    fn begin(&mut self) -> Writer {
        while let Some(next) = self.live.first_entry().filter(|next| next.key().0 <= self.written) {
            let dead = next.remove();
            if self.rng.random() { self.rewrites.push_back(dead) } else { self.delete(&dead) }
        }
        let file = self.rewrites.pop_front().unwrap_or_else(|| self.create());
        Writer { file, extent: 0, done: 0 }
    }

    fn create(&mut self) -> PlacedFile {
        let io = f64::from(self.space.io);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "saturates, and is clamped below"
        )]
        let wanted = (self.rng.sample(self.sizes) / io).ceil() as u32;
        let most = (SIZE_MAX / self.space.io).min(self.space.places / SIZE_PART);
        let places = wanted.clamp(1, most.max(1));
        while self.used + places > self.limit {
            let (_, oldest) = self.live.pop_first().expect("files that are written take little");
            self.delete(&oldest);
        }
        self.used += places;
        let class = self.rng.random_range(0..CLASSES);
        PlacedFile { class, extents: self.allocate(places), places }
    }

    /// Takes free room from the cursor on, in as many pieces as it takes.
    fn allocate(&mut self, places: u32) -> Vec<PlaceRange> {
        let (mut left, mut extents) = (places, Vec::new());
        while left > 0 {
            let found = self.free.range(self.cursor..).next().or_else(|| self.free.iter().next());
            let (first, free) = found.map(|(first, count)| (*first, *count)).expect("limit ≤ all");
            self.free.remove(&first);
            let count = free.min(left);
            if count < free {
                self.free.insert(first + count, free - count);
            }
            extents.push(PlaceRange { first, count });
            left -= count;
            self.cursor = first + count;
        }
        extents
    }

    /// Gives back the room of a file, with TRIM.
    fn delete(&mut self, file: &PlacedFile) {
        self.used -= file.places;
        for extent in &file.extents {
            let trim = self.space.request(extent.first, Op::Trim, 0);
            let bytes = extent.count * self.space.io; // at most SIZE_MAX
            self.trims.push(Request { bytes, ..trim });
            let (mut first, mut count) = (extent.first, extent.count);
            let before = self.free.range(..first).next_back().map(|(at, count)| (*at, *count));
            if let Some((at, ahead)) = before.filter(|(at, count)| at + count == first) {
                self.free.remove(&at);
                (first, count) = (at, ahead + count);
            }
            if let Some(after) = self.free.remove(&(first + count)) {
                count += after;
            }
            self.free.insert(first, count);
        }
    }
}

impl Workload for Files {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        let room = batch.capacity();
        batch.clear();
        while batch.len() < room {
            let request = match self.trims.pop() {
                Some(trim) => trim,
                None => self.write(),
            };
            batch.push(request);
        }
        Ok(())
    }
}
