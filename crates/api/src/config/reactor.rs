//! `[[reactor]]`: a serving thread.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Span;
use super::object::{Bounds, object};

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
        /// CPU that the reactor is pinned to; the process must be allowed to use it.
        cpu: Option<u32> | unset => Restart {
            bounds: Bounds::Whole(0, 4095),
            hint: "there is no such CPU",
            unset: "not pinned",
        };
        /// Wait policy: `poll` never sleeps, `adaptive` spins for a while after work and then
        /// sleeps, `interrupt` sleeps as soon as there is no work.
        mode: Mode = Mode::default() => Restart;
        /// Longest time that an adaptive reactor spins after work before it sleeps. The reactor
        /// spins only for as long as spinning has recently paid off. Only for `mode = "adaptive"`.
        spin: Span = Span(Duration::from_micros(50)) => Restart {
            bounds: Bounds::Below(1_000_000_000),
            hint: "for a reactor that never sleeps write mode = \"poll\"",
        };
        /// CPU budget for spinning in adaptive mode, in percent of one CPU.
        budget: u32 = 100 => Restart {
            bounds: Bounds::Whole(1, 100),
            hint: "in percent of a CPU; for a reactor that never spins write mode = \"interrupt\"",
        };
    }
}

impl Default for Reactor {
    fn default() -> Self {
        let written = ReactorKeys::default();
        written.complete().expect("no key is required")
    }
}

/// The numbers of `count` reactors, for an error about a number that none of them has.
pub fn reactors_in_words(count: usize) -> String {
    match count {
        0 | 1 => {
            "there is one reactor, 0; each `[[reactor]]` of the configuration adds one".to_owned()
        }
        _ => format!("the reactors are 0 to {}", count - 1),
    }
}
