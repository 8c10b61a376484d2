//! Traces that were recorded: their analysis, and their replay.

pub mod reading;
pub mod replay;
