//! The driver against our own controller in process, and against a scripted vfio-user server.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod adopt;
mod in_process;
mod rig;
mod server;
mod vfio_user_bus;
mod workload;
