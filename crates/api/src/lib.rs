//! What the program's parts say to each other and to its users: configurations.
//!
//! A key has one name, one unit and one default here, for the configuration file, the control API
//! and the command line. There is no HTTP, thread or clock.
#![forbid(unsafe_code)]

pub mod config;
