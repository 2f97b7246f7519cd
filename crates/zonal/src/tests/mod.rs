//! Shared parts of the tests of several modules.

pub(crate) mod preferred_shadow;
