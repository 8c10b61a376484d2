//! `nvmirage bench floor`: measures the limits of the machine itself.

use std::thread;

use anyhow::bail;
use load::floor::{Figures, measure};
use load::placement::{Pair, Placement};
use machine::cpu;
use serde::Serialize;
use terminal::table::{Align, Table};
use terminal::units;

const EXAMPLES: &str = "\
Examples:
  nvmirage bench floor
      Between two CPUs that this process may use
  nvmirage bench floor --cpus 0,8 --json
      Between those two

A command to a drive on another core moves a cache line there and one back, and a read copies its
data: no drive is faster than these.";

/// Measure this machine's lower bound on drive latency
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Floor {
    /// Two CPUs to measure between; default: two on different cores
    #[arg(long, value_name = "A,B", value_delimiter = ',', num_args = 1)]
    cpus: Vec<u32>,

    /// Measure only the distance of the CPUs, which takes a moment
    #[arg(long)]
    brief: bool,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Output of `--brief`.
#[derive(Debug, Serialize)]
struct Brief {
    cpus: [u32; 2],
    placement: Placement,
}

impl Floor {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let cpus = self.cpus()?;
        if self.brief {
            let placement = Pair::new(Some(cpus[0]), Some(cpus[1]))?.look();
            if self.json {
                return terminal::print_json(&Brief { cpus, placement });
            }
            return terminal::print(&format!("{}\n", placement.name()));
        }
        let _line = terminal::progress::waiting("measuring");
        let figures = thread::Builder::new()
            .name("floor".into())
            .spawn(move || measure(cpus))?
            .join()
            .map_err(|_| anyhow::anyhow!("the measuring thread panicked"))??;
        if self.json {
            return terminal::print_json(&figures);
        }
        terminal::print(&shown(&figures))
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
    let copies = &figures.copy_4k_ns;
    let missing = copies.huge_missing.as_deref().unwrap_or_default();
    let rows = [
        (
            "cache line, there and back",
            Some(figures.round_trip_ns),
            figures.placement.name(),
        ),
        (
            "queue entry and doorbell there, completion back",
            Some(figures.sqe_to_cqe_ns),
            "",
        ),
        (
            "thread on an eventfd, woken and heard of",
            Some(figures.eventfd_wake_ns),
            "",
        ),
        (
            "queue entry and completion on one CPU, 32 at a time",
            Some(figures.one_cpu_sqe_to_cqe_ns),
            "",
        ),
        ("copy of 4 KiB from random memory", Some(copies.plain), ""),
        ("  prefetched", Some(copies.prefetch), ""),
        ("  prefetched, on huge pages", copies.huge, missing),
    ];
    for (what, ns, note) in rows {
        let time = ns.map_or("-".to_owned(), units::nanoseconds);
        table.row(vec![what.into(), time, note.into()]);
    }
    format!("between CPU {a} and CPU {b}, the fastest of many short runs\n{table}")
}

#[cfg(test)]
mod tests {
    use load::floor::Copies;

    use super::*;

    #[test]
    fn two_different_cpus_are_asked_for() {
        let floor = |cpus: &[u32]| {
            Floor {
                cpus: cpus.to_vec(),
                brief: false,
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
        let mut figures = Figures {
            cpus: [0, 1],
            placement: Placement::Near,
            round_trip_ns: 130.0,
            sqe_to_cqe_ns: 210.0,
            one_cpu_sqe_to_cqe_ns: 8.0,
            copy_4k_ns: Copies {
                plain: 640.0,
                prefetch: 460.0,
                huge: Some(360.0),
                huge_missing: None,
            },
            eventfd_wake_ns: 9_000.0,
        };
        let text = shown(&figures);
        assert!(text.contains("between CPU 0 and CPU 1"), "{text}");
        assert!(text.contains("130 ns  near"), "{text}");
        assert!(
            text.contains("on huge pages") && text.contains("360 ns"),
            "{text}"
        );
        figures.copy_4k_ns.huge = None;
        figures.copy_4k_ns.huge_missing = Some("no memory".into());
        assert!(shown(&figures).contains("-  no memory"));
    }

    #[test]
    fn json_has_the_documented_keys() {
        let figures = Figures {
            cpus: [0, 1],
            placement: Placement::Far,
            round_trip_ns: 450.0,
            sqe_to_cqe_ns: 550.0,
            one_cpu_sqe_to_cqe_ns: 8.0,
            copy_4k_ns: Copies {
                plain: 640.0,
                prefetch: 460.0,
                huge: None,
                huge_missing: Some("why".into()),
            },
            eventfd_wake_ns: 9_000.0,
        };
        let json = serde_json::to_value(figures).unwrap();
        assert_eq!(json["placement"], "far");
        assert_eq!(json["round_trip_ns"], 450.0);
        assert_eq!(json["sqe_to_cqe_ns"], 550.0);
        let copies = &json["copy_4k_ns"];
        assert_eq!(
            (&copies["plain"], &copies["prefetch"]),
            (&640.0.into(), &460.0.into())
        );
        assert!(copies["huge"].is_null() && copies["huge_missing"] == "why");
    }
}
