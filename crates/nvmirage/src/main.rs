//! nvmirage: NVMe drives made in software.
#![forbid(unsafe_code)]
#![allow(unused)]
mod config;
mod identity;
fn main() {}
