//! Traces that were recorded: their analysis, and their replay.

pub(crate) mod reading;
pub(crate) mod replay;
