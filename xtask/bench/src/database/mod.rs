//! `cargo xtask bench database`: a database on a modelled drive of this machine itself.
//!
//! PostgreSQL and MariaDB, one after the other, on ext4 on a loop device on a mounted drive, whose
//! latency and bandwidth are changed while it is served. Both do sysbench's `oltp_read_write`.
//! Transactions a second by bandwidth and by latency, and what the database asks of its drive over
//! time, in the form of figure 8 of the NVMeVirt paper (FAST'23); smaller, as the machine is.
//!
//! What it does not do: keep anything. The drive is in memory, and all of it is gone at the end. It
//! needs root, to mount.

pub(super) mod drive;
mod engine;
mod forgetful;
mod plot;
mod results;
mod watch;

use std::fs;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde_json::{Value, json};
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use self::drive::Drive;
use self::engine::{Engine, Load, Running};
use self::forgetful::Forgetful;
use self::results::{Point, Run};
use self::watch::Watch;

const NAMES: [&str; 2] = ["postgresql", "mariadb"];

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct DatabaseArgs {
    /// Only these
    #[arg(long, value_delimiter = ',', default_values = NAMES, value_parser = NAMES)]
    only: Vec<String>,
    /// Bandwidths of the drive, each way, in MiB/s
    #[arg(long, value_delimiter = ',', default_value = "32,64,125,250,500,1000", value_parser = clap::value_parser!(u64).range(32..=4000))]
    bandwidths: Vec<u64>,
    /// Its latencies for 4 KiB, in microseconds, at the largest bandwidth
    #[arg(long, value_delimiter = ',', default_value = "8,32,512,2048", value_parser = clap::value_parser!(u64).range(4..=1_000_000))]
    latencies: Vec<u64>,
    /// Seconds of each point
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often all points are measured, one after the other
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Connections
    #[arg(long, default_value_t = 24, value_parser = clap::value_parser!(u32).range(1..=80))]
    threads: u32,
    /// Rows of each of the ten tables
    #[arg(long, default_value_t = 40_000, value_parser = clap::value_parser!(u32).range(100..=500_000))]
    rows: u32,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// The latency while bandwidths are changed: at 32 MiB/s, the least, 4 KiB take 122 us.
const LATENCY_US: u64 = 128;

/// Measures, and writes the results and a plot for each database.
///
/// # Errors
/// We are not root, a database is not installed or fails, or somebody interrupts us.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &DatabaseArgs) -> Result<()> {
    fs::create_dir_all(workspace.logs())?;
    let mut all = Vec::new();
    for name in NAMES
        .into_iter()
        .filter(|name| args.only.iter().any(|o| o == name))
    {
        let (version, points) =
            measure(workspace, interrupt, args, name).with_context(|| name.to_owned())?;
        let plot = workspace.logs().join(format!("database-{name}.svg"));
        fs::write(&plot, plot::svg(&version, &points))
            .with_context(|| format!("cannot write {}", plot.display()))?;
        if !args.json {
            print!("{}", results::table(&version, &points));
            println!("{}", plot.display());
        }
        let points: Vec<Value> = points.iter().map(Point::in_json).collect();
        all.push(json!({ "database": name, "version": version, "points": points }));
    }
    let json = json!({
        "threads": args.threads,
        "rows": args.rows,
        "seconds": args.seconds,
        "rounds": args.rounds,
        "databases": all,
    });
    let file = workspace.logs().join("database.json");
    fs::write(&file, format!("{json:#}\n"))?;
    if args.json {
        println!("{json:#}")
    } else {
        println!("{} has all of it", file.display())
    }
    Ok(())
}

/// The points in their order: bandwidths at one latency, then latencies at the largest bandwidth.
fn points(args: &DatabaseArgs) -> Vec<(u64, u64)> {
    let most = args.bandwidths.iter().copied().max().unwrap_or(1000);
    let of_bandwidth = args.bandwidths.iter().map(|mib_s| (*mib_s, LATENCY_US));
    let of_latency = args.latencies.iter().map(|us| (most, *us));
    let mut points: Vec<_> = of_bandwidth.chain(of_latency).collect();
    let all = points.clone();
    let mut at = 0;
    points.retain(|point| {
        at += 1;
        !all[..at - 1].contains(point)
    });
    points
}

fn measure(
    workspace: &Workspace,
    interrupt: &Interrupt,
    args: &DatabaseArgs,
    name: &str,
) -> Result<(String, Vec<Point>)> {
    let engine = Engine::find(name)?;
    let load = Load {
        threads: args.threads,
        rows: args.rows,
        seconds: args.seconds,
    };
    let drive = Drive::start(workspace)?;
    eprintln!("{}: loading", engine.version());
    let running = engine.start(drive.data(), drive.dir())?;
    running.prepare(&load)?;
    let empty = |(bandwidth_mib_s, latency_us)| Point {
        bandwidth_mib_s,
        latency_us,
        runs: Vec::new(),
    };
    let mut points: Vec<Point> = points(args).into_iter().map(empty).collect();
    for round in 1..=args.rounds {
        for point in &mut points {
            ensure!(!interrupt.is_set(), "interrupted");
            let run = run_once(&drive, &running, &load, point)?;
            eprintln!(
                "round {round} of {}: {} MiB/s, {} us: {:.0} transactions/s",
                args.rounds, point.bandwidth_mib_s, point.latency_us, run.done.transactions_per_s
            );
            point.runs.push(run);
        }
    }
    // its last writes need not be slow
    drive.set(4000, 4)?;
    running.stop(Duration::from_secs(60))?;
    drive.stop()?;
    Ok((engine.version().to_owned(), points))
}

/// Sets the drive as a point has it, and runs the load once.
fn run_once(drive: &Drive, running: &Running<'_>, load: &Load, point: &Point) -> Result<Run> {
    drive.set(point.bandwidth_mib_s, point.latency_us)?;
    drive.sync()?;
    let watch = Watch::start(drive.stat());
    let forgetful = Forgetful::start(drive.data().to_owned());
    let outcome = running.run(load);
    forgetful.stop();
    let moments = watch.stop();
    Ok(Run {
        done: outcome?,
        moments,
    })
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: DatabaseArgs,
    }

    #[test]
    fn a_point_is_measured_once() {
        let line = ["x", "--bandwidths", "64,1000", "--latencies", "8,128,512"];
        let args = Line::parse_from(line).args;
        let expected = [(64, 128), (1000, 128), (1000, 8), (1000, 512)];
        assert_eq!(points(&args), expected);
    }
}
