//! An executable specification of an NVMe controller: what Base 2.1, NVM 1.1 and
//! PCIe Transport 1.1 demand, as tests that a controller passes or fails.
//!
//! Reading order: [`chapters`] (what is tested), [`Bench`] (what a test works
//! on), [`wire`] (bytes as the specification numbers them), [`run`] (the tests,
//! one after the other).
//!
//! Invariants: what is expected is typed from the specification, never taken
//! from the crates under test; each test starts from a controller that was reset
//! and enabled, and leaves nothing behind but what it wrote to the drive; a
//! controller that hangs, lies or vanishes makes tests fail and never hangs or
//! panics them.
//!
//! "Not supported" is what the controller reports, by its registers and by Identify: one that
//! claims something and does not have it fails. "Not applicable" is a test of another transport
//! than the controller's ([`chapters::Scope`]): it is not run, since it would test the bus.
//!
//! Not included: measurement, load, and tests of properties that no host can see.
#![forbid(unsafe_code)]

pub mod bench;
pub mod chapters;
mod run;
pub mod verdict;
pub mod wire;

pub use bench::{Bench, Options};
pub use chapters::{CHAPTERS, Chapter, Test};
pub use run::{Outcome, Selection, UnknownName, run};
pub use verdict::{Miss, Verdict};
