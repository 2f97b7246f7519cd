//! What only a controller of NVMe over Fabrics has on the wire. What a drive's own namespace has as
//! well is in [`zonal::nvme`].
//!
//! Sections and figures are those of the specifications that [`zonal::nvme`] names.

pub mod event;
pub mod fabrics;
pub mod feature;
pub mod log;
