//! Layers: a device that wraps a device. They stack in any order.

pub mod fault;
pub mod record;
