//! `nvmirage doctor`: checks this machine, and proposes CPUs for reactors and guests.

use std::path::{Path, PathBuf};

use api::config;
use machine::cpu;
use machine::files::read_text;
use machine::topology::Topology;
use terminal::table::{Align, Table};
use terminal::units;

use crate::doctor::{Asked, Guest, Level, Report};

const EXAMPLES: &str = "\
Examples:
  nvmirage doctor
      Possible improvements, and CPU placement for a guest with two virtual CPUs
  nvmirage doctor --config nvmirage.toml
      Also check the needs of a configuration: CPUs, drives, memory, descriptors, folders
  nvmirage doctor --vcpus 8 --reactors 2 --json | jq -r .libvirt
      Parts of a libvirt domain for a larger guest

The command changes nothing. The plan is for one guest: give other guests the remaining CPUs. Exit
status 1: at least one problem, which prevents operation. Advice improves speed or safety.";

/// Check this machine: problems, improvements, and CPU placement
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Doctor {
    /// Number of virtual CPUs of the guest
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=1024))]
    vcpus: u32,

    /// Number of reactors that serve the guest
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=64))]
    reactors: u32,

    /// Configuration to check the machine for
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,

    /// QEMU executable; default: the one on the PATH
    #[arg(long, value_name = "PATH")]
    qemu: Option<PathBuf>,

    /// Command line of a guest, to check whether its drive can reach its memory; guests running on
    /// this machine are checked anyway
    #[arg(long, value_name = "TEXT")]
    qemu_command_line: Option<String>,

    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Doctor {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let guest = Guest {
            reactors: self.reactors as usize,
            vcpus: self.vcpus as usize,
        };
        let asked = Asked {
            guest,
            config: self
                .config
                .as_deref()
                .map(|file| config::from_file(file, read_text))
                .transpose()?,
            qemu: self.qemu,
            command_line: self.qemu_command_line,
        };
        let report = Report::of(Path::new("/"), &cpu::usable()?, &asked)?;
        if self.json {
            terminal::print_json(&report)?
        } else {
            terminal::print(&shown(&report))?
        }
        let problems = report.problems();
        anyhow::ensure!(
            problems == 0,
            "{problems} problems; the lines above give the remedy of each"
        );
        Ok(())
    }
}

fn shown(report: &Report) -> String {
    let mut checks = Table::new(&[
        ("looked at", Align::Left),
        ("found", Align::Left),
        ("", Align::Left),
    ]);
    for check in &report.checks {
        let level = match check.level {
            Level::Ok => "ok".to_owned(),
            level => format!("{}: {}", level.name(), check.advice),
        };
        checks.row(vec![check.what.clone(), check.found.clone(), level]);
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

/// A row for each CPU with its task in the plan.
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
