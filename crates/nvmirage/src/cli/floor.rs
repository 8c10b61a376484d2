//! `nvmirage bench floor`: what the machine itself allows.

use std::{sync::mpsc, thread};

use anyhow::{Context, bail};
use driver::{DriverError, floor};
use memory::HostMemory;
use serde::Serialize;

use super::bench::usable;
use crate::{
    clock::Clock,
    cpu,
    report::{
        self,
        table::{Align, Table},
        units,
    },
};

const EXAMPLES: &str = "\
Examples:
  nvmirage bench floor
      Between two CPUs that this process may use
  nvmirage bench floor --cpus 0,8 --json
      Between those two

A command to a drive on another core moves a cache line there and one back, and a read copies its data: no drive is
faster than these.";

/// A round trip of a cache line below this is one between cores that share a cache or lie on one die.
const NEAR_NS: f64 = 250.0;
/// Round trips, or copies, between two looks at the clock: short, so that some run undisturbed by other threads.
const ROUNDS: u32 = 4096;
/// How long each figure is measured; the fastest of its runs counts, as what disturbs only adds.
const TIME_NS: u64 = 300_000_000;
/// What is copied from: much more than caches hold.
const COPY_MEMORY_LEN: usize = 256 << 20;
/// Memory of rings and words.
const RING_MEMORY_LEN: usize = 1 << 20;

/// Measure the machine: what no drive can be faster than
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Floor {
    /// The two CPUs to measure between; default: two of different cores
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1)]
    cpus: Vec<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What was measured, in nanoseconds.
#[derive(Debug, Serialize)]
struct Figures {
    /// The CPU that calls, and copies; the one that answers.
    cpus: [u32; 2],
    /// `near` or `far`, by the round trip of a cache line.
    placement: &'static str,
    /// There and back.
    cache_line_round_trip_ns: f64,
    /// A submission entry and its doorbell there, a completion back.
    queue_entry_round_trip_ns: f64,
    /// From memory at random, with the next copies' memory prefetched, and without.
    copy_4k_prefetched_ns: f64,
    copy_4k_ns: f64,
}

impl Floor {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let cpus = self.cpus()?;
        let figures = thread::Builder::new()
            .name("floor".into())
            .spawn(move || measure(cpus))?
            .join()
            .map_err(|_| anyhow::anyhow!("the measuring thread panicked"))??;
        if self.json {
            return report::print_json(&figures);
        }
        report::print(&shown(&figures))
    }

    fn cpus(&self) -> anyhow::Result<[u32; 2]> {
        match *self.cpus.as_slice() {
            [] => match cpu::pair()? {
                Some((a, b)) => Ok([a, b]),
                None => bail!("this process may use only one CPU, and the floor lies between two"),
            },
            [a, b] if a != b => Ok([a, b]),
            _ => {
                Err(super::UsageError("--cpus: write two different CPUs, as in 0,1".into()).into())
            }
        }
    }
}

fn shown(figures: &Figures) -> String {
    let mut table = Table::new(&[
        ("floor", Align::Left),
        ("time", Align::Right),
        ("", Align::Left),
    ]);
    let [a, b] = figures.cpus;
    let rows = [
        (
            "cache line, there and back",
            figures.cache_line_round_trip_ns,
            figures.placement,
        ),
        (
            "queue entry and doorbell there, completion back",
            figures.queue_entry_round_trip_ns,
            "",
        ),
        (
            "copy of 4 KiB from random memory, prefetched",
            figures.copy_4k_prefetched_ns,
            "",
        ),
        ("copy of 4 KiB from random memory", figures.copy_4k_ns, ""),
    ];
    for (what, ns, note) in rows {
        table.row(vec![what.into(), units::nanoseconds(ns), note.into()]);
    }
    format!("between CPU {a} and CPU {b}, the fastest of many short runs\n{table}")
}

/// Measures everything; the calling thread stays on the first CPU.
fn measure(cpus: [u32; 2]) -> anyhow::Result<Figures> {
    let [caller, answerer] = cpus;
    pin(caller)?;
    let clock = Clock::new();
    let now = || clock.now().0;
    let rings = HostMemory::new(RING_MEMORY_LEN).context("cannot make memory")?;

    let (line, other) = floor::cache_line(&rings)?;
    let line_ns = between(
        answerer,
        &clock,
        || other.serve(),
        line,
        |line| line.measure(ROUNDS, &now),
    )?;
    let (entry, other) = floor::queue_entry(&rings)?;
    let entry_ns = between(
        answerer,
        &clock,
        || other.serve(),
        entry,
        |entry| entry.measure(ROUNDS, &now),
    )?;

    let memory = HostMemory::new(COPY_MEMORY_LEN + (1 << 20)).context("cannot make memory")?;
    let mut copies = floor::Copies::new(&memory, COPY_MEMORY_LEN)?;
    let prefetched_ns = fastest(&clock, || copies.measure(ROUNDS, true, &now))?;
    let copy_ns = fastest(&clock, || copies.measure(ROUNDS, false, &now))?;
    Ok(Figures {
        cpus,
        placement: if line_ns < NEAR_NS { "near" } else { "far" },
        cache_line_round_trip_ns: line_ns,
        queue_entry_round_trip_ns: entry_ns,
        copy_4k_prefetched_ns: prefetched_ns,
        copy_4k_ns: copy_ns,
    })
}

/// The fastest run between this thread and one on `cpu`, which answers until the caller's end is dropped.
fn between<C>(
    cpu: u32,
    clock: &Clock,
    answer: impl FnOnce() + Send,
    mut caller: C,
    mut measure: impl FnMut(&mut C) -> Result<f64, DriverError>,
) -> anyhow::Result<f64> {
    thread::scope(|scope| {
        let (pinned, is_pinned) = mpsc::sync_channel(1);
        scope.spawn(move || {
            let result = pin(cpu);
            let works = result.is_ok();
            // the receiver waits for exactly this message
            let _ = pinned.send(result);
            if works {
                answer();
            }
        });
        is_pinned.recv().context("the answering thread ended")??;
        let result = fastest(clock, || measure(&mut caller));
        // it returns when the other end is gone
        drop(caller);
        result
    })
}

/// The fastest of the runs that [`TIME_NS`] has room for.
fn fastest(
    clock: &Clock,
    mut measure: impl FnMut() -> Result<f64, DriverError>,
) -> anyhow::Result<f64> {
    let mut lowest = measure()?;
    let begun = clock.now();
    while clock.now().since(begun) < TIME_NS {
        lowest = lowest.min(measure()?);
    }
    Ok(lowest)
}

fn pin(cpu: u32) -> anyhow::Result<()> {
    cpu::pin(cpu)
        .with_context(|| format!("cannot run on CPU {cpu}; this process may use {}", usable()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_different_cpus_are_asked_for() {
        let floor = |cpus: &[u32]| {
            Floor {
                cpus: cpus.to_vec(),
                json: false,
            }
            .cpus()
        };
        assert_eq!(floor(&[3, 7]).unwrap(), [3, 7]);
        assert!(floor(&[3, 3]).is_err());
        assert!(floor(&[3]).is_err());
        assert!(floor(&[1, 2, 3]).is_err());
    }

    #[test]
    fn figures_are_in_the_table() {
        let text = shown(&Figures {
            cpus: [0, 1],
            placement: "near",
            cache_line_round_trip_ns: 130.0,
            queue_entry_round_trip_ns: 210.0,
            copy_4k_prefetched_ns: 90.0,
            copy_4k_ns: 250.0,
        });
        assert!(text.contains("between CPU 0 and CPU 1"), "{text}");
        assert!(text.contains("130 ns  near"), "{text}");
    }
}
