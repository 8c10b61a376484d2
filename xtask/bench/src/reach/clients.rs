//! Hosts that submit as others do: a doorbell for each command or for each batch, and a buffer from
//! a pool that is larger than the caches.

use anyhow::Result;

use super::footprint::{huge_kib, smaps};
use super::{Reach, Row, shown};
use crate::ours::{Ours, Setup};
use crate::{SIZE, SIZE_MIB};

const DEPTHS: [u16; 4] = [1, 32, 128, 192];
const RINGS: [&str; 2] = ["command", "batch"];
/// Larger than the last-level cache of the machines that this is measured on.
const BUFFERS: &str = "256MiB";

pub(super) fn clients(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let mut rows = of_medium(reach, &Setup::new("null", "1TiB"))?;
    rows.extend(of_medium(reach, &Setup::new("ram", SIZE))?);
    Ok(rows)
}

/// A row for each way to ring and each depth, all interleaved.
fn of_medium(reach: &Reach<'_>, setup: &Setup) -> Result<Vec<Row>> {
    let cases: Vec<(&str, u16)> = RINGS
        .iter()
        .flat_map(|ring| DEPTHS.map(|depth| (*ring, depth)))
        .collect();
    let ours = Ours::start(reach.workspace, setup, reach.args.cpus.pair())?;
    let mut medium = setup.kind.to_owned();
    if setup.kind == "ram" {
        ours.fill(SIZE_MIB)?;
        let is_huge = huge_kib(&smaps(ours.pid())?) / 1024 >= SIZE_MIB / 2;
        medium += &format!(" of {SIZE}");
        medium += if is_huge {
            ", huge pages"
        } else {
            ", 4 KiB pages"
        };
    }
    let compared = reach.compare(cases.len(), |case| {
        let (ring, depth) = cases[case];
        let time = reach.time();
        ours.sample(&format!(
            "--qd {depth} --ring {ring} --buffers {BUFFERS} --time {time}"
        ))
    })?;
    ours.stop()?;
    let rows = cases
        .iter()
        .zip(&compared.cases)
        .map(|((ring, depth), of)| {
            Row::new(
                &format!("{medium}: 4 KiB random read, QD{depth}, a doorbell for each {ring}"),
                "",
                format!(
                    "{:.2} M IOPS {} (reactor {}, p50 {}, buffers of {BUFFERS})",
                    of.iops / 1e6,
                    compared.placement,
                    shown(of.reactor_ns, 0, "ns"),
                    shown(of.p50_us, 1, "us"),
                ),
                None,
            )
        });
    Ok(rows.collect())
}
