//! The timing models against a second reading of their definition.
//!
//! The book's page *Timing models, exactly* says when a command is done, to the nanosecond.
//! `python/` is written from that page and shares nothing with the crate `model`; this crate feeds
//! both the same random commands, as JSON, and tells the first difference. The README beside it has
//! the rule by which stalled commands are tried again.
//!
//! Not included: whether the page describes a real drive.

pub mod compare;
pub mod document;
pub mod drive;
pub mod points;
pub mod python;
pub mod vectors;
