//! Where the completion side of a drive is: one reactor for all of a command, or others for a part
//! of it.
//!
//! Reactors have a processor each and poll where there are as many beside the host's; otherwise all
//! of them, whichever the way, share the server's and sleep when they have nothing to do, so that
//! the ways are compared by the same rule.

use std::fmt::Write as _;

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_getaffinity};

/// The reactors, and those of them that the options of the drive name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Placement {
    /// The processor of each reactor.
    cpus: Vec<u32>,
    /// They share one, and sleep.
    shared: bool,
}

/// The processors that there are.
fn cpus() -> Result<Vec<u32>> {
    let set = sched_getaffinity(None).context("cannot see which processors there are")?;
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    Ok(cpus.map_while(|cpu| u32::try_from(cpu).ok()).collect())
}

/// A processor for one more, with a server and a host on these: the host's where there is no other.
///
/// # Errors
/// The system does not say which processors there are.
pub(super) fn free_cpu((server, host): (u32, u32)) -> Result<u32> {
    let other = cpus()?
        .into_iter()
        .find(|cpu| ![server, host].contains(cpu));
    Ok(other.unwrap_or(host))
}

impl Placement {
    /// The ways, by how many reactors they have.
    pub(super) const NAMES: [&'static str; 3] =
        ["one reactor", "two: completions apart", "three: heads, too"];

    /// One reactor that polls.
    pub(super) fn one(cpu: u32) -> Self {
        Self {
            cpus: vec![cpu],
            shared: false,
        }
    }

    /// A way, by its place in [`Self::NAMES`], with a server and a host on these processors.
    ///
    /// # Errors
    /// The system does not say which processors there are.
    pub(super) fn of(way: usize, (server, host): (u32, u32)) -> Result<Self> {
        let cpus = cpus()?;
        Ok(Self::among(&cpus, way, (server, host)))
    }

    fn among(cpus: &[u32], way: usize, (server, host): (u32, u32)) -> Self {
        let most = Self::NAMES.len() - 1;
        let beside = cpus.iter().filter(|cpu| ![server, host].contains(cpu));
        let others: Vec<u32> = beside.take(most).copied().collect();
        // The same for every way: with a processor less for the largest, none has its own.
        let shared = others.len() < most;
        let cpus = if shared {
            vec![server; way + 1]
        } else {
            [server].into_iter().chain(others).take(way + 1).collect()
        };
        Self { cpus, shared }
    }

    /// The reactors of a configuration.
    pub(super) fn reactors(&self) -> String {
        let mode = if self.shared { "interrupt" } else { "poll" };
        self.cpus.iter().fold(String::new(), |mut text, cpu| {
            let _ = write!(text, "[[reactor]]\ncpu = {cpu}\nmode = {mode:?}\n");
            text
        })
    }

    /// Options of `nvmirage create media` for the drive.
    pub(super) fn options(&self) -> &'static str {
        match self.cpus.len() {
            1 => "",
            2 => " --completions 1",
            _ => " --completions 1 --heads 2",
        }
    }

    /// How the reactors have their processors, for the heading of a table.
    pub(super) fn described(&self) -> &'static str {
        if self.shared {
            "reactors share one processor and sleep"
        } else {
            "reactors poll, on a processor each"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reactor_has_a_processor_or_none_has() {
        let four = Placement::among(&[0, 1, 2, 3], 2, (0, 1));
        assert_eq!(four.cpus, [0, 2, 3]);
        assert_eq!(four.options(), " --completions 1 --heads 2");
        assert!(four.reactors().contains("cpu = 3\nmode = \"poll\""));
        for way in 0..3 {
            let three = Placement::among(&[0, 1, 2], way, (0, 1));
            assert_eq!(three.cpus, vec![0; way + 1]);
            assert!(!three.reactors().contains("poll"));
        }
        assert_eq!(Placement::among(&[0, 1, 2, 3], 1, (2, 3)).cpus, [2, 0]);
        assert_eq!(Placement::one(4).options(), "");
    }
}
