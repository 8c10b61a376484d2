//! `cargo xtask bench mount`: what it costs to use a drive as a file of this machine.
//!
//! fio on a file in memory, which is what the machine itself takes; on a mounted drive that does
//! nothing; and on a loop device on that. The rounds are interleaved, and the table has medians.
//! What a mounted drive takes beyond the first line is added to every drive's own time.

use std::path::Path;

use anyhow::{Context, Result};
use clap::Args;
use guest_rig::{Rig, Server};
use serde_json::{Value, json};
use xtask_shared::process::Interrupt;
use xtask_shared::workspace::Workspace;

use super::database::drive::Loop;
use super::sample::{Results, Subject, Summary};
use super::{Cpus, fio, memory_dir, write_file};

/// What is measured.
#[derive(Debug, Args)]
pub(crate) struct MountArgs {
    /// Seconds for each figure
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=3600))]
    seconds: u32,
    /// How often everything is measured
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    #[command(flatten)]
    cpus: Cpus,
    /// Print JSON instead of a table
    #[arg(long)]
    json: bool,
}

/// fio's engine, and how many requests it keeps in flight.
const WAYS: [(&str, u64); 2] = [("psync", 1), ("io_uring", 32)];
/// Of the file in memory.
const FILE_MIB: u64 = 256;

/// Measures, and writes a table.
///
/// # Errors
/// A drive cannot be mounted, or fio cannot be had or fails. Where loop devices may not be made,
/// theirs are left out.
pub(super) fn run(workspace: &Workspace, interrupt: &Interrupt, args: &MountArgs) -> Result<()> {
    let rig = Rig::prepare(&mut |text| eprintln!("{text}"))?;
    let memory = memory_dir()?;
    let file = memory.path().join("file");
    write_file(&file, FILE_MIB)?;
    let dir = tempfile::Builder::new().prefix("nvmirage-").tempdir()?;
    let mounted = dir.path().join("drive");
    std::fs::create_dir(&mounted)?;
    let listen = format!("fuse:{}", mounted.display());
    let control = format!("unix:{}", dir.path().join("control").display());
    let server = Server::start(&[
        "--media",
        "null:size=1GiB",
        "--listen",
        &listen,
        "--control",
        &control,
    ])?;
    let mounted = mounted.join("ns1");
    let device = Loop::attach(&mounted);
    let mut subjects = vec![
        ("file in memory", file.as_path()),
        ("mounted file", &mounted),
    ];
    match &device {
        Ok(device) => subjects.push(("loop device on it", device.path())),
        Err(error) => eprintln!("no loop device: {error:#}"),
    }
    let results = measure(&rig, interrupt, args, &subjects);
    drop(device);
    server.stop(super::database::drive::STOP)?;
    report(workspace, args, &results?)
}

fn measure(
    rig: &Rig,
    interrupt: &Interrupt,
    args: &MountArgs,
    subjects: &[(&str, &Path)],
) -> Result<Results> {
    let mut results = Results::default();
    for round in 1..=args.rounds {
        eprintln!("round {round} of {}", args.rounds);
        for (name, path) in subjects {
            for (engine, depth) in WAYS {
                anyhow::ensure!(!interrupt.is_set(), "interrupted");
                let job = fio::Job {
                    engine,
                    rw: "randread",
                    depth,
                    seconds: args.seconds,
                };
                let sample = fio::measure(rig, path, &job, args.cpus.host_cpu)
                    .with_context(|| format!("{name}, {engine}"))?;
                results.add(Subject::new(name, engine, depth), sample);
            }
        }
    }
    Ok(results)
}

fn report(workspace: &Workspace, args: &MountArgs, results: &Results) -> Result<()> {
    let summaries: Vec<(&Subject, Summary)> = results
        .series
        .iter()
        .filter_map(|(subject, samples)| {
            Some((subject, Summary::of(&samples.iter().collect::<Vec<_>>())?))
        })
        .collect();
    let rows: Vec<Value> = summaries.iter().map(|(s, of)| in_json(s, of)).collect();
    let json = json!({ "block_size": 4096, "rw": "randread", "rows": rows });
    std::fs::create_dir_all(workspace.logs())?;
    std::fs::write(workspace.logs().join("mount.json"), format!("{json:#}\n"))?;
    if args.json {
        println!("{json:#}")
    } else {
        print!("{}", table(&summaries))
    }
    Ok(())
}

fn in_json(subject: &Subject, summary: &Summary) -> Value {
    let mut json = summary.in_json();
    json["subject"] = subject.name.clone().into();
    json["engine"] = subject.rw.clone().into();
    json["queue_depth"] = subject.queue_depth.into();
    json
}

/// As the book has it.
fn table(summaries: &[(&Subject, Summary)]) -> String {
    use std::fmt::Write as _;
    let mut text =
        "| 4 KiB random reads of a | IOPS | mean us | p50 us | p99 us |\n|---|---|---|---|---|\n"
            .to_owned();
    // fio tells percentiles in whole microseconds
    let some = |value: Option<f64>| value.map_or("-".to_owned(), |value| format!("{value:.0}"));
    for (subject, summary) in summaries {
        let of = &summary.median;
        let _ = writeln!(
            text,
            "| {}, `{}`, {} in flight | {:.0} | {:.1} | {} | {} |",
            subject.name,
            subject.rw,
            subject.queue_depth,
            of.iops,
            of.mean_us,
            some(of.p50_us),
            some(of.p99_us),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::super::sample::Sample;
    use super::*;

    #[test]
    fn a_row_has_medians() {
        let mut results = Results::default();
        for iops in [10.0, 30.0, 20.0] {
            let sample = Sample {
                iops,
                mean_us: iops / 2.0,
                p50_us: Some(4.0),
                ..Sample::default()
            };
            results.add(Subject::new("mounted file", "psync", 1), sample);
        }
        let (subject, samples) = &results.series[0];
        let all: Vec<_> = samples.iter().collect();
        let row = (subject, Summary::of(&all).unwrap());
        assert_eq!(in_json(subject, &row.1)["engine"], "psync");
        let table = table(&[row]);
        let last = table.lines().last().unwrap();
        assert_eq!(
            last,
            "| mounted file, `psync`, 1 in flight | 20 | 10.0 | 4 | - |"
        );
    }
}
