//! The schedule of one reactor: its lanes, controllers and channels, and the time when it may
//! sleep.
//!
//! A reactor calls [`Engine::turn`] again and again. One turn serves the controllers that have
//! work, lets every hot lane fetch a batch, submits each channel once, reaps it, and raises at most
//! one interrupt per completion queue. When a turn finds nothing, [`Engine::idle`] decides whether
//! to spin or to sleep, and [`Engine::arm`] is the sequence that makes sleeping safe.
//!
//! Invariants:
//! - a lane with a command in flight is hot;
//! - a ticket of a lane that is gone completes nothing: a lane's key is never used again within
//!   2^15 lanes of its slot;
//! - no clock, descriptor or thread: the time of a turn is an argument, so the same code runs in
//!   virtual time.
//!
//! With tenants, it also decides which command may go to its medium now ([`tenants`]).
//!
//! Not included: this crate knows no sockets and no media.

#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

mod deliver;
mod inspect;
mod lanes;
mod mail;
mod members;
mod replace;
mod slot;
pub mod tenants;
mod turn;
pub mod wait;

pub use lanes::Moved;
pub use mail::{Mail, MoveError};
pub use slot::{ControllerSlot, EngineId, SubsystemSlot};
pub use turn::{Engine, Interrupts, Turn};
pub use wait::{Idle, Mode};
