//! Checks of a machine, and a plan for placing reactors and guests on it.
//!
//! [`machine::topology`] reads the CPUs and nodes, [`snapshot`] everything else; [`checks`],
//! [`configured`] and [`block_devices`] judge what was read, [`plan`] chooses CPUs, [`libvirt`]
//! writes them down. Everything is read, nothing is changed. Files are found below a root, so that
//! tests bring machines of their own.

mod block_devices;
mod checks;
mod configured;
mod guest;
mod libvirt;
mod plan;
mod snapshot;

use std::path::{Path, PathBuf};

use api::config::{Config, MediumKind};
pub(crate) use checks::{Check, Level};
use machine::topology::Topology;
pub(crate) use plan::{Guest, Plan};
use serde::Serialize;
use snapshot::Snapshot;

/// Input beside the machine.
#[derive(Debug)]
pub(crate) struct Asked {
    /// The guest to place.
    pub(crate) guest: Guest,
    /// The configuration to serve.
    pub(crate) config: Option<Config>,
    /// The QEMU to use.
    pub(crate) qemu: Option<PathBuf>,
    /// The command line of the future guest.
    pub(crate) command_line: Option<String>,
}

/// The complete report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) topology: Topology,
    pub(crate) checks: Vec<Check>,
    pub(crate) plan: Plan,
    /// Elements for a libvirt domain.
    pub(crate) libvirt: String,
    /// Tables for nvmirage's configuration.
    pub(crate) configuration: String,
    /// Parameters for the guest's kernel command line.
    pub(crate) guest_kernel: String,
}

impl Report {
    /// Checks the machine whose files are below `root`, with the CPUs in `usable`.
    pub(crate) fn of(root: &Path, usable: &[u32], asked: &Asked) -> anyhow::Result<Self> {
        let topology = Topology::read(root, usable)?;
        let plan = Plan::new(&topology, &asked.guest)?;
        let config = asked.config.as_ref();
        let pci = config.map_or(Vec::new(), configured::pci);
        let machine = Snapshot::take(root, &plan.reactors, &pci, asked.qemu.as_deref());
        let is_file = |config: &Config| config.media.iter().any(|m| m.kind() == MediumKind::File);
        let mut checks = checks::all(&machine, &topology, config.is_none_or(is_file));
        let survives = config.is_some_and(|config| config.survival.enabled);
        for guest in &machine.guests {
            checks.extend(guest::all(&guest.called, &guest.args, survives));
        }
        if let Some(line) = &asked.command_line {
            let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
            checks.extend(guest::all("the command line", &words, survives));
        }
        if let Some(config) = config {
            checks.extend(configured::all(config, &machine, &topology));
        }
        Ok(Report {
            checks,
            libvirt: libvirt::domain(&plan),
            configuration: plan.configuration(),
            guest_kernel: format!(
                "nvme.poll_queues={} cpuidle_haltpoll.force=Y",
                asked.guest.vcpus
            ),
            topology,
            plan,
        })
    }

    /// Number of checks with problems.
    pub(crate) fn problems(&self) -> usize {
        let checks = self.checks.iter();
        checks.filter(|check| check.level == Level::Problem).count()
    }
}
