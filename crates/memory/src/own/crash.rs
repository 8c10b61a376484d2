//! Deaths of the process, for tests: at the store that a test names, everything on the stack is
//! unwound, and what lies in a state file stays as it is.
//!
//! Points are between the stores whose order matters ([`super::state::ordered`]), and where a test
//! adds some (where a medium acts, say). They are counted in each thread.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

thread_local! {
    /// Points that are passed before the one at which the process dies.
    static LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
}

/// The process has died.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death;

/// A point at which the process can die.
pub fn point() {
    LEFT.with(|left| match left.get().checked_sub(1) {
        Some(fewer) => left.set(fewer),
        None => {
            left.set(u64::MAX);
            resume_unwind(Box::new(Death));
        }
    });
}

/// The process dies here, where it runs in [`run`].
pub fn die() {
    LEFT.set(u64::MAX);
    resume_unwind(Box::new(Death));
}

/// Runs `act` in a process that dies at the point behind the first `points`, and says how many it
/// has passed.
///
/// # Errors
/// It has died.
pub fn run<T>(points: u64, act: impl FnOnce() -> T) -> Result<(T, u64), Death> {
    LEFT.set(points);
    let result = catch_unwind(AssertUnwindSafe(act));
    let left = LEFT.replace(u64::MAX);
    match result {
        Ok(value) => Ok((value, points - left)),
        Err(cause) if cause.is::<Death>() => Err(Death),
        Err(cause) => resume_unwind(cause),
    }
}
