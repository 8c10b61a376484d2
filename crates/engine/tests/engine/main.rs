//! The engine with real controllers and hosts in bytes.

mod common;
mod travel;
mod turns;
