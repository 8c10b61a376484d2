//! `[[reactor]]`: a serving thread.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Span;
use super::object::object;

/// Wait policy of a reactor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Poll without sleeping.
    Poll,
    /// Spin for a while after work, then sleep.
    #[default]
    Adaptive,
    /// Sleep as soon as there is no work.
    Interrupt,
}

impl Mode {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Poll => "poll",
            Mode::Adaptive => "adaptive",
            Mode::Interrupt => "interrupt",
        }
    }
}

object! {
    /// Serving thread.
    pub struct Reactor(ReactorKeys, "reactor") {
        /// CPU that the reactor is pinned to, 0 to 4095; the process must be allowed to use it.
        /// Default: not pinned.
        cpu: Option<u32> | unset => Restart;
        /// Wait policy: `poll`, `adaptive` or `interrupt`. Default: `adaptive`.
        mode: Mode = Mode::default() => Restart;
        /// Longest time that an adaptive reactor spins after work before it sleeps, less than 1s.
        /// The reactor spins only for as long as spinning has recently paid. Only for `mode =
        /// "adaptive"`. Default: `50us`.
        spin: Span = Span(Duration::from_micros(50)) => Restart;
        /// CPU budget for spinning in adaptive mode, in percent of one CPU: 1 to 100. Default: 100.
        budget: u32 = 100 => Restart;
    }
}

impl Default for Reactor {
    fn default() -> Self {
        let written = ReactorKeys::default();
        written.complete().expect("no key is required")
    }
}
