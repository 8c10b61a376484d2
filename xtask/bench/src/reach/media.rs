//! Media alone: what a command costs the reactor, and how far from the floor it is.

use anyhow::{Context as _, Result};

use super::footprint::{huge_kib, smaps};
use super::{Reach, Row, shown};
use crate::ours::{Ours, Setup};
use crate::{SIZE, SIZE_MIB};

pub(super) fn null(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let setup = Setup::new("null", "1TiB");
    let depths = [128, 32, 1];
    let mut floors = Vec::new();
    let compared = reach.compare(depths.len(), |case| {
        let ours = Ours::start(reach.workspace, &setup, reach.args.cpus.pair())?;
        let sample = ours.sample(&format!("--qd {} --time {}", depths[case], reach.time()))?;
        ours.stop()?;
        if depths[case] == 1 {
            let floor = reach.floor()?;
            let ns = floor["sqe_to_cqe_ns"].as_f64().context("no floor")?;
            if floor["placement"] == sample.placement.as_str() {
                floors.push((sample.placement.clone(), sample.mean_us * 1000.0 - ns));
            }
        }
        Ok(sample)
    })?;
    let placement = compared.placement;
    let [deep, middle, alone] = &compared.cases[..] else {
        anyhow::bail!("a case is missing");
    };
    let over_floor = floors
        .iter()
        .filter(|(of, _)| of == placement)
        .map(|(_, ns)| *ns)
        .collect();
    let over_floor = crate::sample::median(over_floor);
    let bar = if placement == "near" { 90.0 } else { 110.0 };
    let wall = 1e9 / deep.iops;
    Ok(vec![
        Row::new(
            "null, random read, QD128: reactor time per command",
            "<= 90 ns near, <= 110 far",
            format!(
                "{} {placement} (wall {wall:.0} ns, on a processor {})",
                shown(deep.reactor_ns, 0, "ns"),
                shown(deep.server_ns, 0, "ns")
            ),
            deep.reactor_ns.map(|ns| ns / bar),
        ),
        Row::new(
            "null, random read, QD32: IOPS",
            ">= 7 M near",
            format!("{:.2} M {placement}", middle.iops / 1e6),
            Some(middle.iops / 7e6),
        ),
        Row::new(
            "null, QD1 round trip over the floor's",
            "<= + 250 ns",
            format!(
                "+ {} {placement} (mean {:.0} ns)",
                shown(over_floor, 0, "ns"),
                alone.mean_us * 1000.0
            ),
            over_floor.map(|ns| ns / 250.0),
        ),
    ])
}

pub(super) fn ram(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let setup = Setup::new("ram", SIZE);
    let mut huge = false;
    let compared = reach.compare(1, |_| {
        let ours = Ours::start(reach.workspace, &setup, reach.args.cpus.pair())?;
        ours.fill(SIZE_MIB)?;
        let sample = ours.sample(&format!("--qd 32 --time {}", reach.time()))?;
        huge = huge_kib(&smaps(ours.pid())?) / 1024 >= SIZE_MIB / 2;
        ours.stop()?;
        Ok(sample)
    })?;
    let of = &compared.cases[0];
    let (pages, bar) = if huge {
        ("huge pages", 450.0)
    } else {
        ("4 KiB pages", 560.0)
    };
    Ok(vec![Row::new(
        "ram, random read, QD32: reactor time per command",
        "<= 560 ns on 4 KiB pages, <= 450 on huge pages",
        format!(
            "{} on {pages} {} (on a processor {}, {:.2} M IOPS)",
            shown(of.reactor_ns, 0, "ns"),
            compared.placement,
            shown(of.server_ns, 0, "ns"),
            of.iops / 1e6
        ),
        of.reactor_ns.map(|ns| ns / bar),
    )])
}
