//! Rows with a bar: what mediation adds, and what tenants get of a drive.

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::super::reach::{Row, shown};
use super::super::sample::{Sample, median};
use super::Mediated;
use super::served::{Served, Setup};

/// Commands that the modelled Optane does in a second, of 4 KiB: as published.
const OPTANE: (&str, u64) = ("optane-p4800x", 2048);
const FLASH: (&str, u64) = ("samsung-970-pro", 8192);

/// By the clock, in one thread: what a reactor does for a command beside what the drive's own
/// controller does for it.
pub(super) fn turns(mediated: &Mediated<'_>) -> Result<Vec<Row>> {
    let mut command = mediated.workspace.cargo(&[
        "run",
        "--release",
        "--quiet",
        "--package",
        "tests-counts",
        "--example",
        "mediation",
    ])?;
    let output = command.stderr(std::process::Stdio::inherit()).output()?;
    ensure!(output.status.success(), "the turns cannot be measured");
    let mut rows = Vec::new();
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        let of: Value = serde_json::from_str(line)?;
        let ns = |name: &str| of[name].as_f64().with_context(|| format!("no {name}"));
        let (batch, added) = (ns("batch")?, ns("added_ns")?);
        let bar = if batch > 1.0 { "<= 150 ns" } else { "" };
        rows.push(Row::new(
            &format!(
                "reactor's time that mediation adds to a read of a null drive, {batch:.0} in a batch"
            ),
            bar,
            format!(
                "{added:.0} ns: {:.0} mediated, {:.0} driven directly",
                ns("mediated_ns")?,
                ns("direct_ns")?
            ),
            (batch > 1.0).then(|| added / 150.0),
        ));
    }
    Ok(rows)
}

/// A host on a mediated controller, and one on the drive itself.
pub(super) fn added(mediated: &Mediated<'_>) -> Result<Vec<Row>> {
    let direct = Setup::direct("null");
    let setups = [direct.with(&[""]), direct];
    let mut rows = Vec::new();
    for depth in [1, 32] {
        let compared = mediated.compare(2, |case| {
            let served = Served::start(mediated, &setups[case])?;
            let sample = served.sample(&format!("--qd {depth} --time {}", mediated.time()))?;
            served.stop()?;
            Ok(sample)
        })?;
        let [with, without] = &compared.cases[..] else {
            anyhow::bail!("a case is missing");
        };
        if depth == 1 {
            let added = with.mean_us - without.mean_us;
            rows.push(Row::new(
                "latency that mediation adds at QD1, polled",
                "<= 1.5 us",
                format!(
                    "{added:.2} us: mean {:.2}, direct {:.2}; p99 {} and {}, CPUs {}",
                    with.mean_us,
                    without.mean_us,
                    shown(with.p99_us, 2, "us"),
                    shown(without.p99_us, 2, "us"),
                    compared.placement
                ),
                Some(added / 1.5),
            ));
            continue;
        }
        let added = with.reactor_ns.zip(without.reactor_ns).map(|(a, b)| a - b);
        rows.push(Row::new(
            "busy time of the reactor that mediation adds at QD32, a host on another processor",
            "",
            format!(
                "{}: {:.2} M/s, direct {:.2} M/s, CPUs {}",
                shown(added, 0, "ns"),
                with.iops / 1e6,
                without.iops / 1e6,
                compared.placement
            ),
            None,
        ));
    }
    Ok(rows)
}

/// What several hosts did at the same time: commands a second of each, the first one's first.
fn rates(job: &Value) -> Result<Vec<f64>> {
    let others = job["also"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let all = std::iter::once(job).chain(others);
    all.map(|one| one["iops"].as_f64().context("a job has no rate"))
        .collect()
}

impl Mediated<'_> {
    /// Each host's commands a second: medians of the rounds.
    fn shares(&self, setup: &Setup, args: &str) -> Result<Vec<f64>> {
        let mut rounds = Vec::new();
        for _ in 0..self.args.rounds {
            ensure!(!self.interrupt.is_set(), "interrupted");
            let served = Served::start(self, setup)?;
            let mut args = format!("{args} --time {}", self.time());
            if setup.hosts.len() > 1 {
                args += &format!(" --also {}", served.others());
            }
            rounds.push(rates(&served.job(&args)?)?);
            served.stop()?;
        }
        let of = |host: usize| median(rounds.iter().map(|round| round[host]).collect());
        (0..setup.hosts.len().max(1))
            .map(|host| of(host).context("no round"))
            .collect()
    }
}

/// Two tenants have what one host alone has of a drive with a rate of 550 K/s.
pub(super) fn rate(mediated: &Mediated<'_>) -> Result<Vec<Row>> {
    let drive = Setup::modelled(OPTANE.0, OPTANE.1);
    let alone = mediated.shares(&drive, "--qd 64")?[0];
    let equal = "--weight 100";
    let two = mediated.shares(&drive.with(&[equal, equal]), "--qd 32")?;
    let sum: f64 = two.iter().sum();
    Ok(vec![Row::new(
        "two tenants at QD32 on a modelled Optane: of what one host at QD64 has of it directly",
        "reported; >= 99 % in virtual time",
        format!(
            "{:.1} %: {:.0} K/s and {:.0} K/s of {:.0} K/s",
            100.0 * sum / alone,
            two[0] / 1e3,
            two[1] / 1e3,
            alone / 1e3
        ),
        Some(sum / alone),
    )])
}

pub(super) fn weights(mediated: &Mediated<'_>) -> Result<Vec<Row>> {
    let drive = Setup::modelled(OPTANE.0, OPTANE.1);
    let shares = mediated.shares(&drive.with(&["--weight 100", "--weight 300"]), "--qd 64")?;
    let ratio = shares[1] / shares[0];
    Ok(vec![Row::new(
        "weights 1:3, both saturating a modelled Optane at QD64",
        "reported; within 5 % of 3 in virtual time",
        format!(
            "{ratio:.3}: {:.0} K/s and {:.0} K/s",
            shares[0] / 1e3,
            shares[1] / 1e3
        ),
        Some(ratio / 3.0),
    )])
}

pub(super) fn caps(mediated: &Mediated<'_>) -> Result<Vec<Row>> {
    let drive = Setup::modelled(OPTANE.0, OPTANE.1);
    let mut rows = Vec::new();
    for cap in [1000_u32, 100_000] {
        let capped = format!("--iops {cap} --burst 1ms");
        let shares = mediated.shares(&drive.with(&[&capped, "--weight 100"]), "--qd 32")?;
        rows.push(Row::new(
            &format!("a cap of {cap} a second beside a host without one, QD32"),
            "reported; within 2 % in virtual time",
            format!("{:.0}/s; the other {:.0} K/s", shares[0], shares[1] / 1e3),
            Some(shares[0] / f64::from(cap)),
        ));
    }
    Ok(rows)
}

/// A tenant of the latency class, one command at a time, beside a neighbour with 128, and
/// alone.
pub(super) fn latency(mediated: &Mediated<'_>) -> Result<Vec<Row>> {
    let mut rows = Vec::new();
    for (name, size) in [OPTANE, FLASH] {
        let hosts = ["--class latency", "--weight 100"];
        let setup = Setup::modelled(name, size).with(&hosts);
        let compared = mediated.compare(2, |case| {
            let served = Served::start(mediated, &setup)?;
            let mut args = format!("--qd 1 --time {}", mediated.time());
            if case == 0 {
                args += &format!(" --also {} --also-qd 128", served.others());
            }
            let sample = served.sample(&args)?;
            served.stop()?;
            Ok(sample)
        })?;
        let p99 = |sample: &Sample| shown(sample.p99_us, 1, "us");
        rows.push(Row::new(
            &format!("latency class at QD1 beside QD128 on a modelled {name}: p99"),
            "reported; <= 2 x alone in virtual time",
            format!(
                "{}, alone {}",
                p99(&compared.cases[0]),
                p99(&compared.cases[1])
            ),
            compared.ratio(|sample| sample.p99_us),
        ));
    }
    Ok(rows)
}

/// The paper's figure 9.
pub(super) fn tenants(mediated: &Mediated<'_>) -> Result<Vec<Row>> {
    let drive = Setup::modelled(OPTANE.0, OPTANE.1);
    let mut rows = Vec::new();
    for depth in [1, 32] {
        for count in [1, 2, 4, 8] {
            let hosts = vec!["--weight 100"; count];
            let shares = mediated.shares(&drive.with(&hosts), &format!("--qd {depth}"))?;
            let total: f64 = shares.iter().sum();
            let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
            let most = shares.iter().copied().fold(0.0, f64::max);
            rows.push(Row::new(
                &format!("{count} equal tenants at QD{depth} on a modelled Optane: total, spread"),
                "reported; never falls, <= 3 % in virtual time",
                format!(
                    "{:.0} K/s, {:.1} %",
                    total / 1e3,
                    100.0 * (most - least) / most
                ),
                None,
            ));
        }
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_host_has_its_rate() {
        let job = json!({"iops": 3.0, "also": [{"iops": 2.0}, {"iops": 1.0}]});
        assert_eq!(rates(&job).unwrap(), [3.0, 2.0, 1.0]);
        assert_eq!(rates(&json!({"iops": 3.0})).unwrap(), [3.0]);
        assert!(rates(&json!({"iops": 3.0, "also": [{}]})).is_err());
    }
}
