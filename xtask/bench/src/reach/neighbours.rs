//! Others on the same reactor: unused queues, one that is used now and then, a host that
//! stores what it pleases into its doorbells.

use anyhow::{Context as _, Result};

use super::{Reach, Row, shown};
use crate::ours::{Ours, Setup};
use crate::sample::median;

/// Controllers of nothing, on a reactor that polls.
fn server<'a>(reach: &Reach<'a>, controllers: usize, queues: u16) -> Result<Ours<'a>> {
    let setup = Setup {
        controllers,
        queues,
        ..Setup::new("null", "1GiB")
    };
    Ours::start(reach.workspace, &setup, reach.args.cpus.pair())
}

/// All targets but the first.
fn others(ours: &Ours<'_>, controllers: usize) -> String {
    let targets: Vec<String> = (1..controllers).map(|number| ours.target(number)).collect();
    targets.join(",")
}

/// One at a time: beside idle queues, and on a server that has nothing else.
fn idle(reach: &Reach<'_>, queues: u32, controllers: usize, bar: f64) -> Result<Vec<Row>> {
    let time = reach.time();
    let compared = reach.compare(2, |case| {
        let controllers = if case == 0 { controllers } else { 1 };
        let ours = server(reach, controllers, 64)?;
        let mut args = format!("--qd 1 --time {time}");
        if case == 0 {
            let others = others(&ours, controllers);
            args += &format!(" --idle-queues {queues} --idle-at {others}");
        }
        let sample = ours.sample(&args)?;
        ours.stop()?;
        Ok(sample)
    })?;
    let ratio = compared.ratio(|s| Some(s.mean_us));
    Ok(vec![Row::new(
        &format!("{queues} idle queues of {controllers} controllers beside one busy: QD1 latency"),
        &format!("<= {bar:.2} x without them"),
        format!(
            "{:.0} ns, without {:.0} {}",
            compared.cases[0].mean_us * 1000.0,
            compared.cases[1].mean_us * 1000.0,
            compared.placement
        ),
        ratio,
    )])
}

pub(super) fn idle_120(reach: &Reach<'_>) -> Result<Vec<Row>> {
    idle(reach, 120, 3, 1.10)
}

pub(super) fn idle_1000(reach: &Reach<'_>) -> Result<Vec<Row>> {
    idle(reach, 1000, 100, 1.25)
}

pub(super) fn cold(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let ours = server(reach, 3, 64)?;
    let others = others(&ours, 3);
    let mut colds = Vec::new();
    let mut worst = 0f64;
    for _ in 0..reach.args.rounds {
        let time = reach.time();
        let job = ours.job(&format!(
            "--qd 32 --time {time} --cold-every 10ms --idle-queues 120 --idle-at {others}"
        ))?;
        let latency = &job["cold"]["latency_ns"];
        let micros = |name: &str| latency[name].as_f64().map(|ns| ns / 1000.0);
        colds.push(micros("p50").context("the cold queue was not used")?);
        worst = worst.max(micros("p99").unwrap_or(0.0));
    }
    ours.stop()?;
    let cold = median(colds);
    Ok(vec![Row::new(
        "first command on a cold queue beside a busy one at QD32 and 120 idle",
        "<= 50 us",
        format!("{} (p99 at most {worst:.0} us)", shown(cold, 1, "us")),
        cold.map(|us| us / 50.0),
    )])
}

pub(super) fn storm(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let ours = server(reach, 2, 64)?;
    let target = ours.target(1);
    // a percentile of so short a latency is what the machine did in between
    let compared = reach.compare_often(2, 9, |case| {
        let stores = if case == 0 { "wild" } else { "valid" };
        ours.sample(&format!(
            "--qd 1 --time 3s --storm-at {target} --storm {stores}"
        ))
    })?;
    ours.stop()?;
    let p999 = |case: usize| shown(compared.cases[case].p999_us, 2, "us");
    Ok(vec![Row::new(
        "a host writes wild doorbells for 3 s: another's p99.9",
        "<= 1.2 x beside valid ones",
        format!(
            "{}, beside valid {} {}",
            p999(0),
            p999(1),
            compared.placement
        ),
        compared.ratio(|s| s.p999_us),
    )])
}
