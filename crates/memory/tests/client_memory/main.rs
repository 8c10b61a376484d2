//! Memory of a client, mapped, translated, lost; rings and doorbells in it. One program, so that
//! its mappings can be counted by name.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod client;
mod doorbells;
mod lent;
mod lost;
mod map;
mod mappings;
mod rings;
