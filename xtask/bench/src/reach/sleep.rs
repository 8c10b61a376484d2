//! Reactors that sleep: their cost while hosts are idle, and the time they take to wake up.

use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::{Reach, Row, shown};
use crate::ours::{Ours, Setup, output};
use crate::process::{Running, cpu_time, spawn_on};

/// How long an idle server is watched.
const WATCHED: Duration = Duration::from_secs(5);
/// How long it has had to become idle.
const SETTLED: Duration = Duration::from_secs(2);
/// How long attaching to all controllers may take.
const ATTACHED: Duration = Duration::from_secs(60);

fn sleeping(doorbells: &'static str, controllers: usize) -> Setup {
    Setup {
        mode: "adaptive",
        doorbells,
        controllers,
        queues: 8,
        ..Setup::new("null", "1GiB")
    }
}

fn others(ours: &Ours<'_>, controllers: usize) -> Option<String> {
    let targets: Vec<String> = (1..controllers).map(|number| ours.target(number)).collect();
    (!targets.is_empty()).then(|| targets.join(","))
}

/// A host that is attached to all controllers, has a queue pair of each, and does nothing.
pub(super) fn attach(
    reach: &Reach<'_>,
    ours: &Ours<'_>,
    controllers: usize,
    more: &[&str],
) -> Result<Running> {
    let mut command = reach.workspace.command(&reach.workspace.program())?;
    command
        .args([
            "bench",
            "--target",
            &ours.target(0),
            "--pause",
            "60min",
            "--time",
            "60min",
        ])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if let Some(others) = others(ours, controllers) {
        command.args(["--idle-at", &others]);
    }
    let mut host = spawn_on(reach.args.cpus.host_cpu, &mut command)?;
    let deadline = Instant::now() + ATTACHED;
    loop {
        let mut ls = reach.workspace.command(&reach.workspace.program())?;
        if attached(ls.args(["ls", "--json", "--control", &ours.control()]))? == controllers {
            return Ok(host);
        }
        ensure!(host.0.try_wait()?.is_none(), "the idle host has ended");
        ensure!(
            Instant::now() < deadline,
            "the idle host has not attached in time"
        );
        thread::sleep(Duration::from_millis(100));
    }
}

fn attached(ls: &mut Command) -> Result<usize> {
    let inventory = output(ls)?;
    let controllers = inventory["controllers"]
        .as_array()
        .context("no controllers")?;
    Ok(controllers.iter().filter(|c| c["attached"] == true).count())
}

/// The part of a processor that an idle server takes.
fn idle_part(reach: &Reach<'_>, setup: &Setup) -> Result<f64> {
    let ours = Ours::start(reach.workspace, setup, reach.args.cpus.pair())?;
    let number = setup.controllers;
    let host = attach(
        reach,
        &ours,
        number,
        &["--idle-queues", &number.to_string()],
    )?;
    thread::sleep(SETTLED);
    let (before, since) = (cpu_time(ours.pid())?, Instant::now());
    thread::sleep(WATCHED);
    let spent = cpu_time(ours.pid())? - before;
    let part = spent.as_secs_f64() / since.elapsed().as_secs_f64();
    drop(host);
    ours.stop()?;
    Ok(part)
}

/// Microseconds of first commands after a second of idleness: the median, and the longest.
fn first_command(reach: &Reach<'_>, setup: &Setup) -> Result<(f64, f64)> {
    let ours = Ours::start(reach.workspace, setup, reach.args.cpus.pair())?;
    let number = setup.controllers;
    let idle_at =
        others(&ours, number).map_or(String::new(), |others| format!(" --idle-at {others}"));
    let seconds = reach.args.rounds.max(5) + 1;
    let job = ours.job(&format!(
        "--qd 1 --pause 1s --time {seconds}s --idle-queues {}{idle_at}",
        number - 1
    ))?;
    ours.stop()?;
    let micros = |name: &str| job["latency_ns"][name].as_f64().map(|ns| ns / 1000.0);
    micros("p50")
        .zip(micros("max"))
        .context("a job has no latency")
}

pub(super) fn unmapped(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let setup = sleeping("unmapped", 100);
    let part = idle_part(reach, &setup)?;
    let (first, longest) = first_command(reach, &setup)?;
    let wake = reach.floor()?["eventfd_wake_ns"]
        .as_f64()
        .context("no floor")?
        / 1000.0;
    Ok(vec![
        Row::new(
            "adaptive, unmapped, 100 controllers attached and idle: CPU",
            "<= 1 % of one core",
            format!("{:.2} %", part * 100.0),
            Some(part / 0.01),
        ),
        Row::new(
            "first command there after 1 s of idleness",
            "<= 50 us + an eventfd's wake-up",
            format!("{first:.1} us (longest {longest:.0}), wake-up {wake:.1} us"),
            Some(first / (50.0 + wake)),
        ),
    ])
}

pub(super) fn mapped(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let setup = sleeping("mapped", 1);
    let part = idle_part(reach, &setup)?;
    let (first, longest) = first_command(reach, &setup)?;
    Ok(vec![
        Row::new(
            "adaptive, mapped, idle: CPU",
            "<= 5 % of one core",
            format!("{:.2} %", part * 100.0),
            Some(part / 0.05),
        ),
        Row::new(
            "first command there after 1 s of idleness",
            "<= 1 ms",
            format!("{first:.1} us (longest {longest:.0})"),
            Some(first / 1000.0),
        ),
    ])
}

fn against_poll(reach: &Reach<'_>, doorbells: &'static str) -> Result<Row> {
    let compared = reach.compare(2, |case| {
        let setup = Setup {
            mode: if case == 0 { "adaptive" } else { "poll" },
            ..sleeping(doorbells, 1)
        };
        let ours = Ours::start(reach.workspace, &setup, reach.args.cpus.pair())?;
        let sample = ours.sample(&format!("--qd 1 --time {}", reach.time()))?;
        ours.stop()?;
        Ok(sample)
    })?;
    let mean = |case: usize| shown(Some(compared.cases[case].mean_us * 1000.0), 0, "ns");
    Ok(Row::new(
        &format!("adaptive under steady QD1 load, {doorbells}: latency"),
        "<= 1.1 x poll mode",
        format!("{}, poll {} {}", mean(0), mean(1), compared.placement),
        compared.ratio(|s| Some(s.mean_us)),
    ))
}

pub(super) fn adaptive(reach: &Reach<'_>) -> Result<Vec<Row>> {
    ["mapped", "unmapped"]
        .into_iter()
        .map(|doorbells| against_poll(reach, doorbells))
        .collect()
}
