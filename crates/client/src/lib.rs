//! The client of the control API: its requests, and the commands that make them.
//!
//! It does NOT see the server: both know the types of `api`, and the API that lies between them.
#![forbid(unsafe_code)]

mod address;
pub mod cli;
mod connection;
pub mod exports;
pub mod requests;
mod top;
pub mod words;

pub use address::{Address, Intent};
