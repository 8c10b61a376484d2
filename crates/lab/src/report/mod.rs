//! Reports of measurements: what was measured where, and the progress meanwhile.

pub(crate) mod identity;
pub(crate) mod job;
pub(crate) mod line;
