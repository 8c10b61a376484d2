//! The state of the timing of media, over a restart: how the pages of a modelled drive lie, and how
//! worn it is.
//!
//! It lies in a [`file`] of its own for each medium. At a clean stop that is written as the drive
//! is then; while the drive works, [`checkpoints`] is the thread that asks for its state now and
//! then, and writes it. After a crash the last one that was written counts, however old it is: what
//! a drive is like decides how long commands take, and nothing about their bytes.

pub(crate) mod checkpoints;
pub(crate) mod file;
