//! What hosts and operators change of a subsystem, over a restart.
//!
//! The configuration says how a subsystem is made; what is changed while it is served lives in a
//! file beside it, its [`sidecar`]. [`merge`] puts the two together when the subsystem is served,
//! and [`keeper`] is the thread that writes the file whenever a reactor hands out a record. Nothing
//! is written while nothing differs from the configuration.
//!
//! What the timing of media has come to be is kept apart from that, in [`timing`]; and media in
//! memory, over a clean stop, in [`memory`]. Both are files that one process [owns](owned) at a
//! time.

pub(crate) mod claim;
pub(crate) mod keeper;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod owned;
pub(crate) mod sidecar;
pub(crate) mod timing;
