//! Hosts of an NVMe/TCP target, over socket pairs and a controller with a RAM medium.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod apart;
mod authentication;
mod concatenation;
mod connect;
mod data;
mod discovery;
mod driver;
mod host;
mod hostile;
mod life;
mod recorded;
mod rig;
mod secure;
mod stalls;
