//! Layers: a device that wraps a device. They stack in any order.

pub mod delay;
pub mod fault;
pub mod meter;
pub mod po2;
pub mod record;
pub mod trace;
