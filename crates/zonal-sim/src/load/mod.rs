//! The workload of the host: a stream of requests, generated or read from a trace.
//!
//! | file | question |
//! | --- | --- |
//! | `address.rs` | which address is written next: anywhere, in order, hot or cold? |
//! | `files.rs` | how does a host write files that live for different times? |
//! | `zones.rs` | how does a host write zones, or logs in zones, several at once? |
//!
//! Generators are endless. Their requests lie inside the user capacity and never cross its end.

mod address;
mod files;
mod zones;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

pub use crate::request::{Op, Request, Workload};

use crate::config::{Config, Layout, Pattern};
use crate::error::{Result, refused};
use crate::size::Size;
use crate::trace::Replay;

/// The workload of a config, for a drive of this layout. The same config gives the same requests.
///
/// ```
/// use zonal_sim::Config;
/// use zonal_sim::load::{self, Op};
///
/// let config = Config::default();
/// let mut workload = load::build(&config, &config.layout()?)?;
/// let mut batch = Vec::with_capacity(64);
/// workload.fill(&mut batch)?;
/// assert_eq!(batch.len(), 64);
/// assert!(batch.iter().all(|request| request.op == Op::Write && request.bytes == 4096));
/// # Ok::<(), zonal_sim::SimError>(())
/// ```
pub fn build(config: &Config, layout: &Layout) -> Result<Box<dyn Workload>> {
    let (workload, rng) = (&config.workload, generator(config.seed));
    let space = || Space::new(config, layout);
    Ok(match workload.kind {
        Pattern::Uniform => Box::new(address::Random::new(space()?, address::Uniform, rng)),
        Pattern::Sequential => Box::new(address::Sequential::new(space()?)),
        Pattern::Zipf => {
            let zipf = address::Zipf::new(space()?, workload.theta, config.handles());
            Box::new(address::Random::new(space()?, zipf, rng))
        }
        Pattern::HotCold => {
            let (part, share) = (workload.hot_part, workload.hot_share);
            let classes = address::HotCold::new(space()?, part, share, config.handles());
            Box::new(address::Random::new(space()?, classes, rng))
        }
        Pattern::Mixed => Box::new(address::Mixed::new(space()?, workload.read_share, rng)),
        Pattern::Files => Box::new(files::Files::new(config, layout, rng)?),
        Pattern::Zones | Pattern::Log => Box::new(zones::Zones::new(config, layout, rng)?),
        Pattern::Trace => Box::new(Replay::open(config, layout)?),
    })
}

/// The generator of a workload's randomness: not the one that a drive's victims come from.
fn generator(seed: u64) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(1);
    rng
}

/// The user capacity as places for one write each. A rest behind the last place stays unused.
#[derive(Clone, Copy, Debug)]
struct Space {
    places: u32,
    io: u32,
}

impl Space {
    fn new(config: &Config, layout: &Layout) -> Result<Self> {
        let (io, user) = (config.workload.io, layout.user_bytes());
        let places = u32::try_from(user / io.0).unwrap_or(0);
        let io_bytes = u32::try_from(io.0).unwrap_or(0);
        if places == 0 || io_bytes == 0 {
            let allowed = format!(
                "from 512B to the user capacity of {}, of which it is a 2^32th",
                Size(user)
            );
            return Err(refused("workload.io", io, &allowed));
        }
        Ok(Self { places, io: io_bytes })
    }

    fn request(self, place: u32, op: Op, handle: u8) -> Request {
        let offset = u64::from(place) * u64::from(self.io);
        Request { at_ns: 0, offset, bytes: self.io, op, handle }
    }
}

#[cfg(test)]
mod tests;
