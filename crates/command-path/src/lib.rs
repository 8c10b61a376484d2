//! A reactor's turn over the media of the program: the one place where the generic code of
//! `engine` and `controller` becomes machine code for `media::Channel`.
//!
//! The release profile compiles this crate as one unit, so that inlining on the command path does
//! not depend on how the other crates are divided for a parallel build.
//!
//! Invariant: a reactor takes its turns only by [`turn`]. `Engine::turn` called elsewhere would be
//! compiled there again, by that crate's rules. This crate has no logic of its own.

#![forbid(unsafe_code)]
#![deny(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    clippy::disallowed_macros
)]

use controller::Interrupt;
use engine::{ControllerSlot, EngineId, Interrupts, Turn};
use port::time::Time;

/// The engine of a reactor, over every kind of medium.
pub type Engine = engine::Engine<media::Channel>;

/// Takes one turn (`Engine::turn`). An interrupt is raised at most once per completion queue and
/// turn, so the calls through `dyn` cost a command nothing.
#[inline(never)]
pub fn turn(engine: &mut Engine, now: Time, interrupts: &mut dyn Interrupts) -> Turn {
    engine.turn(now, Through(interrupts))
}

/// Passes interrupts on.
struct Through<'a>(&'a mut dyn Interrupts);

impl Interrupts for Through<'_> {
    fn raise(&mut self, controller: ControllerSlot, interrupt: Interrupt) {
        self.0.raise(controller, interrupt);
    }

    fn raise_for(&mut self, home: EngineId, controller: ControllerSlot, vector: u16) -> bool {
        self.0.raise_for(home, controller, vector)
    }
}
