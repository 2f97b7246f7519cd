//! Structures that only a controller of NVMe over Fabrics needs. Structures that passthrough to a
//! drive needs as well are in [`zonal::nvme`].
//!
//! Sections and figures are of the specifications that [`zonal::nvme`] names.

pub mod event;
pub mod fabrics;
pub mod feature;
pub mod log;
