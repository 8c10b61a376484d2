//! `nvmirage doctor`: what this machine is like, and where reactors and guests belong on it.

use std::path::Path;

use crate::{
    cpu,
    doctor::{Guest, Report, Topology, Verdict},
    report::{
        self,
        table::{Align, Table},
        units,
    },
};

const EXAMPLES: &str = "\
Examples:
  nvmirage doctor
      What could be better here, and where to pin a guest of two processors
  nvmirage doctor --vcpus 8 --reactors 2 --json | jq -r .libvirt
      The parts of a libvirt domain for a larger one

Nothing is changed. The plan is for one guest: give others the CPUs that are left.";

/// Look at this machine: what slows drives down, and what to pin where
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(super) struct Doctor {
    /// Processors of the guest
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    vcpus: u32,

    /// Reactors that serve it
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    reactors: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    pub(super) fn run(self) -> anyhow::Result<()> {
        let guest = Guest {
            reactors: self.reactors as usize,
            vcpus: self.vcpus as usize,
        };
        let report = Report::of(Path::new("/"), &cpu::usable()?, &guest)?;
        if self.json {
            return report::print_json(&report);
        }
        report::print(&shown(&report))
    }
}

fn shown(report: &Report) -> String {
    let mut checks = Table::new(&[
        ("looked at", Align::Left),
        ("found", Align::Left),
        ("", Align::Left),
    ]);
    for check in &report.checks {
        let verdict = match check.verdict {
            Verdict::Good => "ok".to_owned(),
            Verdict::Slower => format!("slower: {}", check.advice),
            Verdict::Bad => format!("bad: {}", check.advice),
        };
        checks.row(vec![check.what.into(), check.found.clone(), verdict]);
    }
    let notes: String = report
        .plan
        .notes
        .iter()
        .map(|note| format!("note: {note}\n"))
        .collect();
    format!(
        "{}\n{checks}\n{}{notes}\nnvmirage's configuration:\n\n{}\nlibvirt's domain:\n\n{}\nthe guest's kernel command line (queues that it polls, no halt while it waits):\n\n{}\n",
        nodes(&report.topology),
        cpus(report),
        report.configuration,
        report.libvirt,
        report.guest_kernel
    )
}

fn nodes(topology: &Topology) -> Table {
    let mut table = Table::new(&[
        ("node", Align::Right),
        ("memory", Align::Right),
        ("huge pages free", Align::Left),
    ]);
    for node in &topology.nodes {
        let pages: Vec<String> = node
            .huge_pages
            .iter()
            .map(|p| {
                format!(
                    "{} of {} x {}",
                    p.free,
                    p.reserved,
                    units::bytes(p.page_bytes)
                )
            })
            .collect();
        table.row(vec![
            node.id.to_string(),
            units::bytes(node.memory_bytes),
            pages.join(", "),
        ]);
    }
    table
}

/// Every CPU, with what the plan has it do.
fn cpus(report: &Report) -> Table {
    let mut table = Table::new(&[
        ("cpu", Align::Right),
        ("node", Align::Right),
        ("socket", Align::Right),
        ("core", Align::Left),
        ("to do", Align::Left),
    ]);
    for cpu in &report.topology.cpus {
        let mut tasks = Vec::new();
        let named = |list: &[u32], name: &str| {
            let at = list.iter().enumerate().filter(|(_, id)| **id == cpu.id);
            at.map(|(at, _)| format!("{name} {at}")).collect::<Vec<_>>()
        };
        tasks.extend(named(&report.plan.reactors, "reactor"));
        tasks.extend(named(&report.plan.vcpus, "vcpu"));
        if report.plan.emulator.contains(&cpu.id) {
            tasks.push("emulator".into());
        }
        if !cpu.usable {
            tasks.push("not for this process".into());
        }
        if cpu.isolated {
            tasks.push("isolated".into());
        }
        let core: Vec<String> = cpu.core.iter().map(u32::to_string).collect();
        table.row(vec![
            cpu.id.to_string(),
            cpu.node.to_string(),
            cpu.package.to_string(),
            core.join(","),
            tasks.join(", "),
        ]);
    }
    table
}
