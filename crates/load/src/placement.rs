//! Distance of two CPUs: near ones share a cache or a die. On a virtual machine, the same two
//! virtual CPUs can be either and change within seconds, so the distance is measured around
//! everything that depends on it.

use std::sync::mpsc;
use std::thread;

use anyhow::Context;
use driver::{DriverError, floor};
use machine::clock::Clock;
use machine::cpu;
use memory::HostMemory;
use serde::Serialize;

/// Round trips of a cache line below this are between near CPUs.
pub const NEAR_NS: f64 = 250.0;
/// Round trips between two readings of the clock: few, so that some runs are undisturbed by other
/// threads.
const ROUNDS: u32 = 512;
/// Duration of a measurement: a server that polls on the other CPU occupies it for a few
/// milliseconds at a time.
const LOOK_NS: u64 = 30_000_000;
/// Memory of two words.
const MEMORY_LEN: usize = 1 << 16;

/// Distance of two CPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Placement {
    /// They share a cache or a die.
    Near,
    /// They do not.
    Far,
    /// One measurement near, the other far.
    Mixed,
    /// There is only one CPU, or measuring failed.
    Unknown,
}

impl Placement {
    /// The distance for a round trip of a cache line.
    pub fn of(round_trip_ns: f64) -> Self {
        if round_trip_ns < NEAR_NS {
            Placement::Near
        } else {
            Placement::Far
        }
    }

    /// The distance for two measurements, before and after.
    pub fn and(self, after: Self) -> Self {
        match (self, after) {
            (Placement::Unknown, _) | (_, Placement::Unknown) => Placement::Unknown,
            (before, after) if before == after => before,
            _ => Placement::Mixed,
        }
    }

    /// Its name in results.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Placement::Near => "near",
            Placement::Far => "far",
            Placement::Mixed => "mixed",
            Placement::Unknown => "unknown",
        }
    }
}

/// Two CPUs whose distance is measured.
pub struct Pair(Option<[u32; 2]>);

impl Pair {
    /// The CPUs of the host and the server. If the host is not pinned, or the server's CPU is
    /// unknown, the first CPU of another core is used.
    pub fn new(host: Option<u32>, server: Option<u32>) -> anyhow::Result<Self> {
        let cpus = match (host, server) {
            (Some(host), Some(server)) => (host != server).then_some([host, server]),
            (Some(host), None) => cpu::apart(host)?.map(|server| [host, server]),
            (None, Some(server)) => cpu::apart(server)?.map(|host| [host, server]),
            (None, None) => cpu::pair()?.map(|(a, b)| [a, b]),
        };
        Ok(Pair(cpus))
    }

    /// Measures the distance. A failure is reported as unknown, because the results of the job
    /// matter more.
    pub fn look(&self) -> Placement {
        let Some([host, server]) = self.0 else {
            return Placement::Unknown;
        };
        // on a separate thread, because the caller may be pinned to another CPU or not at all
        let looked = thread::scope(|scope| {
            let look = scope.spawn(move || round_trip_ns(host, server));
            look.join()
        });
        match looked {
            Ok(Ok(ns)) => Placement::of(ns),
            _ => Placement::Unknown,
        }
    }
}

/// The fastest round trip of a cache line between two CPUs; the calling thread stays on the first.
fn round_trip_ns(host: u32, server: u32) -> anyhow::Result<f64> {
    cpu::pin_or_say(host)?;
    let clock = Clock::new();
    let now = || clock.now().0;
    let memory = HostMemory::new(MEMORY_LEN).context("cannot make memory")?;
    let (line, other) = floor::cache_line(&memory)?;
    between(
        server,
        || other.serve(),
        line,
        |line| fastest(&clock, LOOK_NS, || line.measure(ROUNDS, &now)),
    )
}

/// Runs `answer` in a thread on `cpu` while `measure` runs; `answer` returns when `caller` is
/// dropped.
pub fn between<C, R>(
    cpu: u32,
    answer: impl FnOnce() + Send,
    mut caller: C,
    measure: impl FnOnce(&mut C) -> anyhow::Result<R>,
) -> anyhow::Result<R> {
    thread::scope(|scope| {
        let (pinned, is_pinned) = mpsc::sync_channel(1);
        scope.spawn(move || {
            let result = cpu::pin_or_say(cpu);
            let works = result.is_ok();
            // the receiver waits for exactly this message
            let _ = pinned.send(result);
            if works {
                answer();
            }
        });
        is_pinned.recv().context("the answering thread ended")??;
        let result = measure(&mut caller);
        drop(caller);
        result
    })
}

/// The fastest of the runs that fit into `time_ns`, because disturbances only add time.
pub fn fastest(
    clock: &Clock,
    time_ns: u64,
    mut measure: impl FnMut() -> Result<f64, DriverError>,
) -> anyhow::Result<f64> {
    let mut lowest = measure()?;
    let begun = clock.now();
    while clock.now().since(begun) < time_ns {
        lowest = lowest.min(measure()?);
    }
    Ok(lowest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_looks_that_differ_are_mixed() {
        use Placement::{Far, Mixed, Near, Unknown};
        assert_eq!(Placement::of(110.0), Near);
        assert_eq!(Placement::of(250.0), Far);
        assert_eq!(Near.and(Near), Near);
        assert_eq!(Near.and(Far), Mixed);
        assert_eq!(Far.and(Near), Mixed);
        assert_eq!(Far.and(Unknown), Unknown);
        assert_eq!(serde_json::to_value(Mixed).unwrap(), "mixed");
    }

    #[test]
    fn one_cpu_alone_has_no_placement() {
        assert_eq!(
            Pair::new(Some(0), Some(0)).unwrap().look(),
            Placement::Unknown
        );
        let pair = Pair::new(Some(0), Some(u32::MAX)).unwrap();
        assert_eq!(pair.look(), Placement::Unknown, "there is no such CPU");
    }
}
