//! The laboratory's commands: their arguments, and what they print.

pub mod bench;
pub mod calibrate;
pub mod clone;
mod complete;
pub mod conformance;
mod consent;
pub mod demo;
pub mod doctor;
pub mod drive;
pub mod explain;
pub mod fidelity;
pub mod floor;
pub mod identify;
pub mod kv;
mod picture;
pub mod precondition;
mod set;
pub mod simulate;
pub mod trace;
pub mod wait;
pub mod zone;

pub use complete::{presets, presets_and_kinds};
pub(crate) use terminal::error::UsageError;
