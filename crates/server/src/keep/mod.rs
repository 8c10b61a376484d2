//! Persistence of state that differs from the configuration.
//!
//! The configuration defines a subsystem's initial state. Later changes by hosts and operators are
//! in a file of the subsystem, its [`sidecar`]. [`merge`] combines both when the subsystem is
//! served, and the [`keeper`] thread writes the file whenever a reactor hands out a record. Without
//! changes, no file is written.
//!
//! The state of timing models is saved separately, in [`timing`], and the contents of media in
//! memory in [`memory`]. Both are files that one process [owns](owned) at a time. [`presence`]
//! knows which files of media have been there.

pub(crate) mod claim;
pub(crate) mod keeper;
pub(crate) mod memory;
pub(crate) mod merge;
pub(crate) mod owned;
pub(crate) mod presence;
pub(crate) mod sidecar;
pub(crate) mod timing;
