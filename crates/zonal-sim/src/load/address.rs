//! Writes that choose an address each: anywhere, in order, hot or cold.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;

use super::{Op, Request, Space, Workload};
use crate::error::Result;

/// Chooses the place of the next write.
pub(super) trait Pick: Send {
    /// The place and its handle.
    fn pick(&mut self, space: Space, rng: &mut ChaCha8Rng) -> (u32, u8);
}

/// Every place alike.
pub(super) struct Uniform;

impl Pick for Uniform {
    fn pick(&mut self, space: Space, rng: &mut ChaCha8Rng) -> (u32, u8) {
        (rng.random_range(0..space.places), 0)
    }
}

/// Few places often: the k-th most frequent one with a probability of 1 / k^theta.
pub(super) struct Zipf {
    law: rand_distr::Zipf<f64>,
    spread: Spread,
    handles: u8,
}

impl Zipf {
    pub(super) fn new(space: Space, theta: f64, handles: u8) -> Self {
        let law = rand_distr::Zipf::new(f64::from(space.places), theta)
            .expect("checked: at least one place, and theta is positive");
        Self { law, spread: Spread::new(space.places), handles }
    }
}

impl Pick for Zipf {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a rank from 1 to the number of places, and a handle"
    )]
    fn pick(&mut self, space: Space, rng: &mut ChaCha8Rng) -> (u32, u8) {
        let rank = rng.sample(self.law);
        let place = self.spread.place((rank as u32 - 1).min(space.places - 1));
        let handle = if self.handles == 1 {
            0
        } else {
            // Equal steps of the rank's logarithm: about equally many writes for theta near 1.
            let step = rank.ln() / f64::from(space.places).ln().max(1.0) * f64::from(self.handles);
            (step as u8).min(self.handles - 1)
        };
        (place, handle)
    }
}

/// Two classes of places, each alike in itself. The hot one has handle 0, the cold one 1.
pub(super) struct HotCold {
    hot: u32,
    /// Of 2^32 writes, how many are hot.
    share: u64,
    spread: Spread,
    cold_handle: u8,
}

impl HotCold {
    pub(super) fn new(space: Space, part: f64, share: f64, handles: u8) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "shares of 32-bit counts"
        )]
        let of = |all: f64, part: f64| (all * part).round() as u64;
        let hot = u32::try_from(of(f64::from(space.places), part)).expect("a part of a u32").max(1);
        // Without a cold place every write is hot.
        let share = if hot == space.places { 1.0 } else { share };
        let spread = Spread::new(space.places);
        Self { hot, share: of(2_f64.powi(32), share), spread, cold_handle: u8::from(handles > 1) }
    }
}

impl Pick for HotCold {
    fn pick(&mut self, space: Space, rng: &mut ChaCha8Rng) -> (u32, u8) {
        let (rank, handle) = if u64::from(rng.random::<u32>()) < self.share {
            (rng.random_range(0..self.hot), 0)
        } else {
            (rng.random_range(self.hot..space.places), self.cold_handle)
        };
        (self.spread.place(rank), handle)
    }
}

/// A permutation of places: neighbours by rank are scattered over the addresses, as hot data is on
/// a drive.
#[derive(Clone, Copy, Debug)]
struct Spread {
    places: u64,
    factor: u64,
}

impl Spread {
    fn new(places: u32) -> Self {
        let places = u64::from(places);
        // From the golden section on: the first number without a common divisor.
        let golden = places * 618 / 1000;
        let factor = (golden.max(1)..=places + 1).find(|factor| coprime(*factor, places));
        Self { places, factor: factor.expect("places + 1 has no divisor of places") }
    }

    fn place(self, rank: u32) -> u32 {
        let place = u64::from(rank) * self.factor % self.places;
        u32::try_from(place).expect("less than the places, which are a u32")
    }
}

fn coprime(mut a: u64, mut b: u64) -> bool {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a == 1
}

/// Uniform reads and writes.
pub(super) struct Mixed {
    space: Space,
    /// Of 2^32 requests, how many are reads.
    reads: u64,
    rng: ChaCha8Rng,
}

impl Mixed {
    pub(super) fn new(space: Space, read_share: f64, rng: ChaCha8Rng) -> Self {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share of 2^32"
        )]
        let reads = (2_f64.powi(32) * read_share).round() as u64;
        Self { space, reads, rng }
    }
}

impl Workload for Mixed {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        let room = batch.capacity();
        batch.clear();
        batch.extend((0..room).map(|_| {
            let read = u64::from(self.rng.random::<u32>()) < self.reads;
            let place = self.rng.random_range(0..self.space.places);
            self.space.request(place, if read { Op::Read } else { Op::Write }, 0)
        }));
        Ok(())
    }
}

/// Writes at places that a [`Pick`] chooses.
pub(super) struct Random<P> {
    space: Space,
    pick: P,
    rng: ChaCha8Rng,
}

impl<P> Random<P> {
    pub(super) fn new(space: Space, pick: P, rng: ChaCha8Rng) -> Self {
        Self { space, pick, rng }
    }
}

impl<P: Pick> Workload for Random<P> {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        let room = batch.capacity();
        batch.clear();
        batch.extend((0..room).map(|_| {
            let (place, handle) = self.pick.pick(self.space, &mut self.rng);
            self.space.request(place, Op::Write, handle)
        }));
        Ok(())
    }
}

/// Sequential places, from the first again after the last.
pub(super) struct Sequential {
    space: Space,
    next: u32,
}

impl Sequential {
    pub(super) fn new(space: Space) -> Self {
        Self { space, next: 0 }
    }
}

impl Workload for Sequential {
    fn fill(&mut self, batch: &mut Vec<Request>) -> Result<()> {
        let room = batch.capacity();
        batch.clear();
        batch.extend((0..room).map(|_| {
            let place = self.next;
            self.next = if place + 1 == self.space.places { 0 } else { place + 1 };
            self.space.request(place, Op::Write, 0)
        }));
        Ok(())
    }
}
