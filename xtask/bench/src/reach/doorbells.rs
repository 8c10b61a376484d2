//! Doorbells that are messages: how many there are for a command, and what the shadow ones gain.

use anyhow::{Context as _, Result};

use super::{Reach, Row, shown};
use crate::ours::{Ours, Setup, sample};
use crate::sample::median;

pub(super) fn doorbells(reach: &Reach<'_>) -> Result<Vec<Row>> {
    let setup = Setup {
        doorbells: "unmapped",
        ..Setup::new("null", "1GiB")
    };
    let ours = Ours::start(reach.workspace, &setup, reach.args.cpus.pair())?;
    let mut messages = [Vec::new(), Vec::new()];
    let compared = reach.compare(2, |case| {
        let how = ["shadow", "trapped"][case];
        let job = ours.job(&format!(
            "--qd 32 --time {} --doorbells {how}",
            reach.time()
        ))?;
        let of_command = job["doorbell_messages_per_command"].as_f64();
        messages[case].push(of_command.context("a job has no messages")?);
        sample(&job)
    })?;
    ours.stop()?;
    let [shadow, trapped] = messages.map(median);
    let batch = compared.cases[1].batch;
    let of_batch = trapped.zip(batch).map(|(messages, batch)| messages * batch);
    Ok(vec![
        Row::new(
            "doorbell messages at QD32, trapped",
            "about 1 per batch of the host, beside its completion doorbells",
            format!(
                "{} a command, {} a batch of {}",
                shown(trapped, 2, ""),
                shown(of_batch, 2, ""),
                shown(batch, 1, "")
            ),
            of_batch,
        ),
        Row::new(
            "doorbell messages per command at QD32, shadow",
            "<= 0.1",
            shown(shadow, 4, "").trim_end().to_owned(),
            shadow.map(|messages| messages / 0.1),
        ),
        Row::new(
            "IOPS at QD32, shadow against trapped",
            ">= 3 x",
            format!(
                "{:.0} K, trapped {:.0} K {}",
                compared.cases[0].iops / 1e3,
                compared.cases[1].iops / 1e3,
                compared.placement
            ),
            compared.ratio(|s| Some(s.iops)),
        ),
    ])
}
