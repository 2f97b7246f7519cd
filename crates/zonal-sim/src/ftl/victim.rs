//! Which closed superblock GC takes next.

use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use zonal_placement::victim::{Candidate, Policy, choose};

use super::blocks::{Blocks, State};
use super::{Block, Victim};

impl Blocks {
    /// A victim, if any superblock is closed. `now`: units the host has written.
    pub(super) fn find_victim(
        &self,
        victim: Victim,
        now: u64,
        random: &mut ChaCha8Rng,
    ) -> Option<Block> {
        match victim {
            Victim::Greedy => self.find_emptiest(),
            Victim::CostBenefit => self.find_most_beneficial(now),
            Victim::Fifo => self.queue.front().copied(),
            Victim::Random => self.any_closed(random),
            Victim::Choices(d) => {
                let drawn = (0..d).filter_map(|_| self.any_closed(random));
                drawn.min_by_key(|block| self.rank(*block))
            }
            Victim::Windowed(window) => {
                let oldest = self.queue.iter().take(window as usize).copied();
                oldest.min_by_key(|block| self.rank(*block))
            }
        }
    }

    /// The closed superblock erased least, if it is behind the one erased most by more than `gap`.
    pub(super) fn find_rested(&self, gap: u32) -> Option<Block> {
        let closed = (0..self.count()).filter(|block| self.state(*block) == State::Closed);
        let block = closed.min_by_key(|block| self.erases[*block as usize])?;
        (self.erases_most - self.erases[block as usize] > gap).then_some(block)
    }

    /// The closed superblock with the highest cost-benefit; age since it was closed.
    fn find_most_beneficial(&self, now: u64) -> Option<Block> {
        let closed = (0..self.count()).filter(|block| self.state(*block) == State::Closed);
        let candidate = |block: Block| Candidate {
            live: self.valid(block),
            capacity: self.units(),
            age: now - self.closed_at[block as usize],
        };
        choose(Policy::CostBenefit, closed.map(|block| (block, candidate(block))))
    }

    /// Any closed superblock, each as likely as another.
    fn any_closed(&self, random: &mut ChaCha8Rng) -> Option<Block> {
        let closed = self.in_state(State::Closed);
        if closed == 0 {
            return None;
        }
        // Nearly all are closed when GC works, so nearly every draw is one.
        if closed > self.count() / 8 {
            loop {
                let block = random.random_range(0..self.count());
                if self.state(block) == State::Closed {
                    return Some(block);
                }
            }
        }
        let mut closed_ones = (0..self.count()).filter(|block| self.state(*block) == State::Closed);
        closed_ones.nth(random.random_range(0..closed) as usize)
    }
}
