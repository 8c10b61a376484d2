//! Text output of the demo.

use std::fmt::Write as _;

use api::config::Mode;
use terminal::table::{Align, Table};
use terminal::units;

use super::Findings;
use super::vm::Seen;
use crate::identity::Identity;
use crate::job::COLUMNS;

const NEXT: &str = "\
What to try next:
  nvmirage serve --media ram:size=8GiB --listen vfio-user:/tmp/nvme.sock
      Serve a drive, then, in another terminal:
  nvmirage bench --target vfio-user:/tmp/nvme.sock --destroy-data --rw randrw --qd 1,32 --verify
      Measure it, and check every byte
  nvmirage qemu-args nvme0
      What to add to QEMU's command line, to give it to a guest
  nvmirage demo --vm
      Boot a Debian guest on such a drive
";

fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Poll => "polling",
        Mode::Adaptive => "adaptive",
        Mode::Interrupt => "by interrupts",
    }
}

/// Processes and their CPUs.
pub(super) fn started(server: u32, mode: Mode, cpus: Option<(u32, u32)>) -> String {
    let mode = mode_name(mode);
    match cpus {
        Some((a, b)) => {
            format!("server: process {server}, {mode} on CPU {a}; host: this process, on CPU {b}")
        }
        None => format!("server: process {server}, {mode}; host: this process, on the same CPU"),
    }
}

/// The drive's identity.
pub(super) fn identified(name: &str, identity: &Identity) -> String {
    let controller = &identity.controller;
    let sizes: Vec<String> = identity
        .namespaces
        .iter()
        .map(|n| format!("{} in blocks of {} B", units::bytes(n.bytes), n.block_size))
        .collect();
    format!(
        "{name} drive: model {}, serial {}, NVMe {}, {}",
        controller.model_number,
        controller.serial_number,
        controller.version,
        sizes.join(", ")
    )
}

/// Result of the verification.
pub(super) fn checked(name: &str, bytes: u64) -> String {
    format!(
        "{name} drive: wrote and read back {}, every byte as it was written",
        units::bytes(bytes)
    )
}

/// The table, and suggestions for next steps.
pub(super) fn findings(findings: &Findings) -> String {
    let mut columns = vec![("drive", Align::Left), ("job", Align::Left)];
    columns.extend(COLUMNS);
    let mut table = Table::new(&columns);
    for drive in &findings.drives {
        for job in &drive.jobs {
            let mut cells = vec![drive.name.to_owned(), job.title()];
            cells.extend(job.cells());
            table.row(cells);
        }
    }
    let mut text = format!("\n{table}\n");
    let _ = writeln!(
        text,
        "Every byte that was checked came back as it was written; doorbells {}.",
        findings.doorbells
    );
    if findings.cpus.is_none() {
        text.push_str("Server and host shared one CPU: with two, it is faster by far.\n");
    }
    text.push('\n');
    text.push_str(NEXT);
    text
}

/// Result of the guest.
pub(super) fn seen(seen: &Seen) -> String {
    let mut text = format!("\n`nvme list` in the guest:\n{}\n", seen.nvme_list);
    for (drive, fio) in &seen.fio {
        let _ = write!(
            text,
            "\nfio in a file system on {drive}, every block verified by its CRC:\n{fio}\n"
        );
    }
    let _ = writeln!(
        text,
        "\nAll {} steps passed: found, formatted, mounted, filled, verified, checked; no complaint in the kernel's log.",
        seen.steps.len()
    );
    text
}
