//! `nvmirage trace replay`: submits the commands of a trace to another drive.

use driver::Doorbells;
use driver::bus::place::Place;
use load::trace::reading;
use load::trace::replay::{self, Drive, Replayed, Settings, Speed};
use load::{Host, Needs};
use terminal::interrupt::Interrupt;
use terminal::table::{Align, Table};
use terminal::units;

use super::file::Source;
use crate::cli::as_host::AsHost;
use crate::cli::wait::WaitArg;
use crate::line::Line;

const EXAMPLES: &str = "\
Examples:
  nvmirage trace replay vm1.trace --target vfio-user:/tmp/test.sock --destroy-data
      At the recorded times; data on the drive is overwritten
  nvmirage trace replay vm1.trace --target vfio-user:/tmp/test.sock --reads-only --speed max
      Only commands that change nothing, as fast as the drive completes
  nvmirage trace replay vm1.trace --target vfio-user:/tmp/test.sock --destroy-data --speed 0.5 --from 10s --within 5s
      Five seconds of it, at half speed";

/// Maximum data memory shared with the drive; if more were needed, fewer commands are in flight.
const MEMORY: u64 = 1 << 30;
/// Maximum number of queue pairs.
const MOST_QUEUES: u16 = 16;
/// Maximum bytes of one command: each queue pair has room for one.
const TRANSFER_MAX: u32 = (MEMORY / MOST_QUEUES as u64) as u32;

/// Replay a trace on a drive of any vendor
///
/// Replays reads, writes (with generated data), flushes, Write Zeroes and deallocations; appends
/// and zone changes where the drive has zones; stores, retrievals, deletions and existence checks
/// where it has keys. Each command is submitted at its recorded time, or a scaled one, on as many
/// queue pairs as were recorded, up to those the drive has. Commands that ended with an error, or
/// that need data a trace does not have, are left out and counted.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct Replay {
    #[command(flatten)]
    source: Source,

    /// Address of the drive: a server's socket, a subsystem behind a target, or a PCI function
    /// bound to vfio-pci
    #[arg(long, value_name = "vfio-user:PATH|nvme-tcp:HOST:PORT/NQN|pci:ADDRESS")]
    target: Place,

    /// Speed relative to the recording; max submits as fast as the drive completes
    #[arg(long, value_name = "TIMES|max", default_value = "1")]
    speed: Speed,

    /// Maximum queue depth per queue pair
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    qd: u16,

    /// Allow data to be overwritten; required by a trace with writes, unless --reads-only
    #[arg(long, alias = "write", conflicts_with = "reads_only")]
    destroy_data: bool,

    /// Skip commands that change data
    #[arg(long)]
    reads_only: bool,

    /// Wrap offsets beyond the end of a namespace
    #[arg(long)]
    wrap: bool,

    /// Namespace of the drive that takes all commands. Default: the one with the recorded
    /// identifier
    #[arg(long, value_name = "N")]
    to_nsid: Option<u32>,

    /// Print JSON
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    wait: WaitArg,

    #[command(flatten)]
    as_host: AsHost,
}

impl Replay {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        self.as_host.assume(Some(&self.target))?;
        let loaded = self.source.load()?;
        anyhow::ensure!(
            loaded.damaged.is_none(),
            "cannot replay a damaged trace: record it again; `nvmirage trace export` extracts the intact part"
        );
        let transfer_len = replay::transfer_len(&loaded.records, TRANSFER_MAX);
        let needs = needs(self.qd, transfer_len).waiting(self.wait.get());
        let mut host = Host::connect_to_all_sets(&self.target, Doorbells::Auto, needs)?;
        let target = Drive::describe(&mut host)?;
        let settings = Settings {
            speed: self.speed,
            write: self.destroy_data,
            reads_only: self.reads_only,
            wrap: self.wrap,
            nsid: self.to_nsid,
        };
        let target = replay::Target {
            queues: target.queues.min(MOST_QUEUES),
            transfer_len: target.transfer_len.min(transfer_len),
            ..target
        };
        let plan = replay::plan(&loaded.records, &target, &settings)?;
        drop(loaded);
        let interrupt = Interrupt::install()?;
        let depth = depth(self.qd, transfer_len, plan.queues);
        let drive = Drive::prepare(&mut host, &plan, depth)?;
        let bar = Line::of_commands("replay", plan.commands());
        let replayed = replay::run(drive, &plan, &interrupt, &mut |count| bar.reached(count));
        bar.clear();
        let replayed = replayed?;
        host.leave()?;
        if self.json {
            terminal::print_json(&replayed)?
        } else {
            terminal::print(&shown(&replayed))?
        }
        let failed: u64 = replayed.errors.iter().map(|(_, count)| count).sum();
        anyhow::ensure!(failed == 0, "{failed} commands ended with an error");
        anyhow::ensure!(!replayed.interrupted, "it was interrupted");
        Ok(())
    }
}

/// Commands in flight per queue pair, up to `qd`, whose data fits into the memory of [`needs`].
fn depth(qd: u16, transfer_len: u32, queues: u16) -> u16 {
    let of_each = MEMORY / (u64::from(transfer_len) * u64::from(MOST_QUEUES));
    let all = of_each.max(1) * u64::from(MOST_QUEUES);
    let most = all / u64::from(queues.clamp(1, MOST_QUEUES));
    qd.min(u16::try_from(most).unwrap_or(u16::MAX))
}

/// Memory needs of the maximum number of queue pairs.
fn needs(qd: u16, transfer_len: u32) -> Needs {
    Needs {
        queues: MOST_QUEUES,
        ..Needs::of(depth(qd, transfer_len, MOST_QUEUES), transfer_len)
    }
}

fn shown(replayed: &Replayed) -> String {
    let Replayed {
        commands,
        elapsed_ns,
        recorded_ns,
        late,
        waited,
        kinds,
        errors,
        left_out,
        interrupted: _,
    } = replayed;
    let time = |ns: u64| units::nanoseconds(ns as f64);
    let mut text = format!(
        "{commands} commands in {}, recorded in {}\n",
        time(*elapsed_ns),
        time(*recorded_ns)
    );
    if let Some(late) = late {
        text += &format!(
            "submitted later than due: p50 {}, p99 {}, at most {}; {waited} found their queue full\n",
            time(late.p50_ns),
            time(late.p99_ns),
            time(late.max_ns)
        );
    }
    if let Some(said) = reading::said(left_out) {
        text += &format!("{said}\n");
    }
    let mut table = Table::new(&[
        ("command", Align::Left),
        ("count", Align::Right),
        ("errors", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
        ("recorded p50", Align::Right),
        ("p99", Align::Right),
        ("max", Align::Right),
    ]);
    for kind in kinds {
        let (now, then) = (&kind.latency, &kind.recorded);
        let times = [
            now.p50_ns,
            now.p99_ns,
            now.max_ns,
            then.p50_ns,
            then.p99_ns,
            then.max_ns,
        ];
        let mut row = vec![
            kind.command.clone(),
            kind.count.to_string(),
            kind.errors.to_string(),
        ];
        row.extend(times.map(time));
        table.row(row);
    }
    text += &format!("\n{table}");
    for (status, count) in errors {
        text += &format!("{count} ended with {status}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For any transfer size, fewer queue pairs do not have more commands than the memory holds.
    #[test]
    fn data_has_room_whatever_a_trace_says() {
        let lens = [4096, 12 << 10, 1 << 20, 40 << 20, 48 << 20, TRANSFER_MAX];
        for transfer_len in lens {
            for qd in [1, 8, 128, u16::MAX] {
                let needs = needs(qd, transfer_len);
                let all = u64::from(needs.queue_depth) * u64::from(needs.queues);
                assert!(all * u64::from(transfer_len) <= MEMORY, "{transfer_len}");
                for queues in 1..=MOST_QUEUES {
                    let depth = depth(qd, transfer_len, queues);
                    assert!((1..=qd).contains(&depth));
                    let used = u64::from(depth) * u64::from(queues);
                    assert!(used <= all, "{transfer_len}, {qd}, {queues}");
                }
            }
        }
    }
}
