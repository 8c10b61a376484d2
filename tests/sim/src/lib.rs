//! Hosts, controllers, reactors and media in virtual time: a simulation that follows from one seed.
//!
//! The controllers and engines are the real ones. Their callers are simulated:
//! hosts, which create queues and submit at random depth, verify all data, and reset, delete,
//! unmap, abort, sleep and die in between; the reactor's loop, cut into steps; the transport; and
//! media with latencies. One thread takes the steps in the order of virtual time, so that a seed
//! repeats a run exactly.
//!
//! - [`scenario`]: what a seed makes;
//! - [`world`]: who acts next, and what must be true in the end; [`operator`]: moves and changes of
//!   namespaces;
//! - [`host`]: hosts, and what they check;
//! - [`ledger`] and [`stamp`]: which values a block may have, and what a block holds; [`zones`]:
//!   the same of zones, and [`reservations`] of those;
//! - [`reactor`], [`seat`], [`wire`]: the program's loop and its transport, without threads and
//!   sockets;
//! - `kill`: the process dies, and another one goes on from what it left;
//! - [`medium`]: a medium that is slow, full, fails or hangs.
//!
//! It does NOT find races of loads and stores within a step: loom does, for the sequences that
//! matter.

#![forbid(unsafe_code)]

pub mod around;
mod drive;
pub mod host;
mod kill;
pub mod ledger;
pub mod medium;
pub mod operator;
pub mod random;
pub mod reactor;
pub mod reservations;
pub mod scenario;
pub mod seat;
pub mod stamp;
pub mod wire;
pub mod world;
pub mod zones;

use std::fmt;

use around::{Failure, Tally};

/// Which simulation.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Its seed.
    pub seed: u64,
    /// I/O commands until it ends.
    pub commands: u64,
    /// Events of hosts are printed from this step on.
    pub trace_from: u64,
    /// The process dies now and then, and another one goes on.
    pub kills: bool,
    /// Hosts do more than in the first simulations, of which seeds are known.
    pub more: bool,
}

/// A simulation that went well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Events, counted.
    pub tally: Tally,
    /// Steps that it took.
    pub steps: u64,
    /// Virtual nanoseconds that it took.
    pub virtual_ns: u64,
    /// Sleeps of reactors.
    pub sleeps: u64,
    /// Second looks before a sleep that found something.
    pub second_looks: u64,
    /// Requests that hung.
    pub hung: u64,
}

/// A simulation that found something.
#[derive(Debug)]
pub struct Found {
    options: Options,
    step: u64,
    failure: Failure,
}

impl fmt::Display for Found {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options {
            seed,
            commands,
            kills,
            more,
            ..
        } = self.options;
        let kill = if kills { " --kill" } else { "" };
        let more = if more { " --more" } else { "" };
        writeln!(f, "seed {seed}, step {}: {}", self.step, self.failure)?;
        write!(
            f,
            "to repeat it: cargo xtask simulate --seed {seed} --commands {commands} --runs 1{kill}{more} --trace {}",
            self.step.saturating_sub(10_000)
        )
    }
}

/// Runs a simulation.
///
/// # Errors
/// What must not be has happened.
pub fn simulate(options: Options) -> Result<Report, Found> {
    let mut world = scenario::build(&options);
    let run = world.run(options.commands);
    if let Err(failure) = run {
        return Err(Found {
            options,
            step: world.steps,
            failure,
        });
    }
    let sum = |of: fn(&reactor::Counts) -> u64| world.reactors.iter().map(|r| of(&r.counts)).sum();
    let disks = world.media.iter().filter_map(|medium| medium.disk());
    Ok(Report {
        tally: world.tally,
        steps: world.steps,
        virtual_ns: world.now,
        sleeps: sum(|counts| counts.sleeps),
        second_looks: sum(|counts| counts.second_looks),
        hung: disks.map(|disk| disk.borrow().hung).sum(),
    })
}
