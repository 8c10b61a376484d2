//! Commands on the file of a trace.

pub mod file;
mod plot;
pub mod replay;
