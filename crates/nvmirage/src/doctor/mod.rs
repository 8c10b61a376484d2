//! What a machine is like, and how to place reactors and guests on it.
//!
//! [`topology`] reads the CPUs and nodes, [`checks`] what the kernel allows, [`plan`] chooses CPUs, [`libvirt`] writes them
//! down. Everything is read, nothing is changed. Files are found below a root, so that tests bring machines of their own.

mod checks;
mod libvirt;
mod plan;
mod topology;

use std::path::Path;

use serde::Serialize;

pub(crate) use checks::{Check, Verdict};
pub(crate) use plan::{Guest, Plan};
pub(crate) use topology::Topology;

/// All there is to say.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    pub(crate) topology: Topology,
    pub(crate) checks: Vec<Check>,
    pub(crate) plan: Plan,
    /// For a libvirt domain.
    pub(crate) libvirt: String,
    /// For the configuration of nvmirage.
    pub(crate) configuration: String,
    /// For the guest's kernel command line.
    pub(crate) guest_kernel: String,
}

impl Report {
    /// Looks at the machine whose files lie below `root`, of which `usable` CPUs may be used.
    pub(crate) fn of(root: &Path, usable: &[u32], guest: &Guest) -> anyhow::Result<Self> {
        let topology = Topology::read(root, usable)?;
        let plan = Plan::new(&topology, guest)?;
        Ok(Report {
            checks: checks::all(root, &topology, &plan),
            libvirt: libvirt::domain(&plan),
            configuration: plan.configuration(),
            guest_kernel: format!("nvme.poll_queues={} cpuidle_haltpoll.force=Y", guest.vcpus),
            topology,
            plan,
        })
    }
}
