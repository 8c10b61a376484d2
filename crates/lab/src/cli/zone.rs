//! `nvmirage zone`: shows the zones of a drive.

use driver::Doorbells;
use driver::bus::place::Place;
use driver::zoned::Zone;
use load::{Host, Needs};
use nvme_spec::opcode::Csi;
use nvme_spec::zoned::ZoneState;
use serde::Serialize;
use terminal::table::{Align, Table};
use terminal::units;

use super::as_host::AsHost;
use super::wait::WaitArg;

/// Show the zones of a drive, over vfio-user, NVMe/TCP or on this machine
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage zone report --target vfio-user:/tmp/nvme.sock")]
pub struct ZoneCommand {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Report(Report),
}

/// Show the state, the write pointer and the capacity of each zone
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  nvmirage zone report --target vfio-user:/tmp/nvme.sock
  nvmirage zone report --target vfio-user:/tmp/nvme.sock --json | jq '.zones[] | select(.state != \"empty\")'

A controller serves one host at a time: while a guest has the drive this fails; --wait waits.")]
struct Report {
    /// Address of the drive: a server's socket, a subsystem behind a target, or a PCI function
    /// bound to vfio-pci
    #[arg(long, value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS")]
    target: Place,

    /// Namespace identifier
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    nsid: u32,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    wait: WaitArg,

    #[command(flatten)]
    as_host: AsHost,
}

/// A report, as `--json` prints it. Positions and lengths are in logical blocks.
#[derive(Debug, Serialize)]
struct Output {
    nsid: u32,
    /// Bytes.
    block_size: u32,
    /// From the start of a zone to the start of the next one.
    zone_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_open: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_active: Option<u64>,
    zones: Vec<ZoneOutput>,
}

#[derive(Debug, Serialize)]
struct ZoneOutput {
    start: u64,
    capacity: u64,
    /// Absent where it has no meaning: full, read-only and offline zones.
    #[serde(skip_serializing_if = "Option::is_none")]
    write_pointer: Option<u64>,
    state: &'static str,
}

impl From<&Zone> for ZoneOutput {
    fn from(zone: &Zone) -> Self {
        let is_written_no_more = matches!(
            zone.state,
            ZoneState::FULL | ZoneState::READ_ONLY | ZoneState::OFFLINE
        );
        ZoneOutput {
            start: zone.start,
            capacity: zone.capacity,
            write_pointer: (!is_written_no_more).then_some(zone.write_pointer),
            state: name(zone.state),
        }
    }
}

/// The word for a state, as in `blkzone report` of the same states.
fn name(state: ZoneState) -> &'static str {
    match state {
        ZoneState::EMPTY => "empty",
        ZoneState::IMPLICITLY_OPENED => "implicitly open",
        ZoneState::EXPLICITLY_OPENED => "explicitly open",
        ZoneState::CLOSED => "closed",
        ZoneState::FULL => "full",
        ZoneState::READ_ONLY => "read-only",
        ZoneState::OFFLINE => "offline",
        _ => "unknown",
    }
}

impl ZoneCommand {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        match self.what {
            What::Report(report) => report.run(),
        }
    }
}

impl Report {
    fn run(self) -> anyhow::Result<()> {
        self.as_host.assume(Some(&self.target))?;
        let needs = Needs::of(1, 64 << 10).waiting(self.wait.get());
        let mut host = Host::connect(&self.target, Doorbells::Auto, needs)?;
        let output = self.ask(&mut host)?;
        host.leave()?;
        if self.json {
            return terminal::print_json(&output);
        }
        terminal::print(&output.in_words())
    }

    fn ask(&self, host: &mut Host) -> anyhow::Result<Output> {
        let nsid = self.nsid;
        anyhow::ensure!(
            host.command_set(nsid)? == Csi::ZONED_NAMESPACE,
            "namespace {nsid} has no zones: `nvmirage identify` shows the namespaces of a drive"
        );
        let namespace = host.device().namespace(nsid)?;
        let mut queue = host.device().create_queue_pair(1, false)?;
        let (common, zones) = host.zones(&mut queue, &namespace)?;
        host.device().delete_queue_pair(queue)?;
        Ok(Output {
            nsid,
            block_size: namespace.block_len,
            zone_blocks: common.blocks,
            max_open: common.max_open,
            max_active: common.max_active,
            zones: zones.iter().map(ZoneOutput::from).collect(),
        })
    }
}

impl Output {
    fn in_words(&self) -> String {
        let columns = [
            ("zone", Align::Right),
            ("start", Align::Right),
            ("capacity", Align::Right),
            ("written", Align::Right),
            ("state", Align::Left),
        ];
        let mut table = Table::new(&columns);
        let bytes = |blocks: u64| units::bytes(blocks.saturating_mul(self.block_size.into()));
        for (number, zone) in self.zones.iter().enumerate() {
            let written = zone.write_pointer.map(|at| at.saturating_sub(zone.start));
            let written = match zone.state {
                "full" => Some(zone.capacity),
                _ => written,
            };
            table.row(vec![
                number.to_string(),
                zone.start.to_string(),
                bytes(zone.capacity),
                written.map_or("-".to_owned(), bytes),
                zone.state.to_owned(),
            ]);
        }
        table.to_string()
    }
}
