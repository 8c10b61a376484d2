//! The server: threads, descriptors, and the control API.
//!
//! It owns everything that is served. Only this crate uses axum and tokio. It does no work per
//! command of a host: that is in the crates below.
#![forbid(unsafe_code)]

mod control;
mod events;
pub mod identity;
mod interrupt;
mod keep;
pub mod logging;

mod observe;
pub mod partition;
pub mod process;

mod reconcile;
pub mod saved;
mod service;
mod supervisor;
pub mod survival;
mod trace;
mod trouble;

pub use control::{dashboard, dashboard_address, proxy};
pub use controller::state::{
    FORMAT_VERSION as STATE_FORMAT, OLDEST_VERSION as OLDEST_STATE_FORMAT,
};
pub use keep::timing::file::StateFile;
pub use supervisor::{Source, check_tls, spec_of};
