//! Placement: into which zone a block goes, and which zone is emptied next. One policy for Furrow and for
//! models of it, as pure code: it knows no drive, reads no clock and draws no random numbers.
//!
//! | file | question |
//! | --- | --- |
//! | [`lifetime`] | what does a program say about the life of what it writes? |
//! | [`life`] | how long will a block live, and how old is it? |
//! | [`learned`] | how long has data of a kind lived, and how large are its files? |
//! | [`sharing`] | which files share a zone, and which have one of their own? |
//! | [`streams`] | which of the open zones does a writer get? |
//! | [`victims`] | which zone is emptied next? |
//! | [`pace`] | what does a write pay for reclaim? |
//! | [`model`] | what does a policy cost under a workload? |

pub mod learned;
pub mod life;
pub mod lifetime;
pub mod model;
pub mod pace;
pub mod sharing;
pub mod streams;
pub mod victims;
