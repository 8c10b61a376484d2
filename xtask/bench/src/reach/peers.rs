//! Against others on the same file: fio straight on it, and qemu-storage-daemon's export of one in
//! memory.

use anyhow::Result;
use guest_rig::Rig;

use super::{Reach, Row, shown};
use crate::interrupts::Arrivals;
use crate::ours::{Ours, Setup};
use crate::sample::Sample;
use crate::{SIZE, SIZE_MIB, fio, memory_dir, vhost, write_file};

/// Rounds at least: a disk of a virtual machine is of one speed for a second, and of another the
/// next.
const ROUNDS: usize = 9;

/// The drive's reactor and fio take turns on the same processor: on the one that takes the disk's
/// interrupts, where that is one of the two, and on the other.
pub(super) fn file(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let rig = Rig::prepare(&mut |_| {})?;
    let dir = tempfile::Builder::new()
        .prefix("bench-")
        .tempdir_in(&reach.workspace.target)?;
    let disk = dir.path().join("disk");
    let setup = Setup {
        path: Some(disk.clone()),
        ..Setup::new("file", SIZE)
    };
    let (one, other) = reach.args.cpus.pair();
    let ours = Ours::start(reach.workspace, &setup, (one, other))?;
    let before = Arrivals::now()?;
    ours.fill(SIZE_MIB)?;
    let taker = Arrivals::now()?.most_since(&before);
    ours.stop()?;
    let mut rows = Vec::new();
    for cpus in [(other, one), (one, other)] {
        let there = match taker {
            Some(taker) if taker == cpus.0 => "where the disk's interrupts arrive",
            _ => "elsewhere",
        };
        for depth in [32, 1] {
            let compared = reach.compare_often(2, ROUNDS, |case| {
                let mut sample = if case == 1 {
                    let job = fio::Job {
                        engine: "io_uring",
                        rw: "randread",
                        depth,
                        seconds: reach.args.seconds,
                    };
                    fio::measure(&rig, &disk, &job, cpus.0)?
                } else {
                    let ours = Ours::start(reach.workspace, &setup, cpus)?;
                    let sample = ours.sample(&format!("--qd {depth} --time {}", reach.time()))?;
                    ours.stop()?;
                    sample
                };
                // fio has no second thread to be near or far from, and a disk takes a hundred times
                // as long as the way between two processors
                sample.placement = "unknown".into();
                Ok(sample)
            })?;
            rows.push(against_fio(&compared.cases, depth, cpus.0, there)?);
        }
    }
    Ok(rows)
}

fn against_fio(cases: &[Sample], depth: u64, cpu: u32, there: &str) -> Result<Row> {
    let [ours, fio] = cases else {
        anyhow::bail!("a case is missing");
    };
    let later = ours.p50_us.zip(fio.p50_us).map(|(ours, fio)| ours - fio);
    let bar = if depth == 1 {
        ">= 0.97 x, p50 <= + 3 us"
    } else {
        ">= 0.97 x"
    };
    Ok(Row::new(
        &format!(
            "file against fio io_uring on it, both on CPU {cpu} ({there}), random read, QD{depth}: IOPS"
        ),
        bar,
        format!(
            "{:.1} K, fio {:.1} K, p50 {} later",
            ours.iops / 1e3,
            fio.iops / 1e3,
            shown(later, 1, "us")
        ),
        Some(ours.iops / fio.iops),
    ))
}

pub(super) fn vhost(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let rig = Rig::prepare(&mut |_| {})?;
    let dir = memory_dir()?;
    let file = dir.path().join("file");
    write_file(&file, SIZE_MIB)?;
    let setup = Setup {
        path: Some(file.clone()),
        mode: "adaptive",
        ..Setup::new("file", SIZE)
    };
    let mut rows = Vec::new();
    for depth in [1, 32] {
        let compared = reach.compare(2, |case| {
            let cpus = reach.args.cpus.pair();
            let mut sample = if case == 0 {
                let ours = Ours::start(reach.workspace, &setup, cpus)?;
                let sample = ours.sample(&format!("--qd {depth} --time {}", reach.time()))?;
                ours.stop()?;
                sample
            } else {
                let export = vhost::Export::start(&rig, &file, dir.path(), cpus)?;
                export.measure("randread", depth, reach.args.seconds)?
            };
            sample.placement = "unknown".into();
            Ok(sample)
        })?;
        let [ours, theirs] = &compared.cases[..] else {
            anyhow::bail!("a case is missing");
        };
        let bar = "<= 0.4 x";
        rows.push(Row::new(
            &format!("file in memory against vhost-user-blk, random read, QD{depth}: server's CPU per command"),
            bar,
            format!(
                "{}, theirs {}",
                shown(ours.server_ns, 0, "ns"),
                shown(theirs.server_ns, 0, "ns")
            ),
            compared.ratio(|s| s.server_ns),
        ));
        // their client tells percentiles of requests alone only
        let latency = |s: &Sample| match depth {
            1 => s.p50_us,
            _ => Some(s.mean_us),
        };
        rows.push(Row::new(
            &format!(
                "the same, {}",
                if depth == 1 { "p50" } else { "mean latency" }
            ),
            bar,
            format!(
                "{}, theirs {}",
                shown(latency(ours), 1, "us"),
                shown(latency(theirs), 1, "us")
            ),
            compared.ratio(latency),
        ));
    }
    Ok(rows)
}
