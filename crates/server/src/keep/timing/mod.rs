//! Persistence of timing models: the placement of a drive's pages, and its wear.
//!
//! Each medium has a [`file`] of its own. A clean stop saves the current state; while the drive
//! works, the [`checkpoints`] thread saves it periodically. After a crash the last saved state is
//! used, whatever its age: it affects how long commands take, never their data.

pub(crate) mod checkpoints;
pub(crate) mod file;
