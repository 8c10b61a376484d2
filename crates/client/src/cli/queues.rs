//! `nvmirage queues`: shows a controller's queues and the commands in flight.

use std::io::{self, IsTerminal};
use std::thread;
use std::time::Duration;

use api::config::Span;
use api::{CompletionQueue, Protocol, QueuesReport, SubmissionQueue};
use terminal::table::{Align, Table};
use terminal::{hangup, units};

use super::parse::{self, Control};
use super::{UsageError, live};
use crate::requests;

const EXAMPLES: &str = "\
Examples:
  nvmirage queues vm1
      Every queue of a controller: positions, doorbells, and the oldest commands in flight
  nvmirage queues vm1 --commands 1024 --stuck-after 100ms
      All commands; those in flight for 100 ms or more are marked
  nvmirage queues vm1 --watch
      Refresh every second
  nvmirage queues vm1 --json | jq '.queues[].submission_queues[].commands[] | select(.stuck)'
      The commands that are stuck";

/// Clears the terminal and moves the cursor to its first line (ECMA-48, ED and CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// Show the queues of a controller and the commands in flight
///
/// CQ is a completion queue and SQ a submission queue that completes into it; queue 0 is the admin
/// queue. Head and tail are the values that the server has read; doorbell, shadow and EventIdx are
/// the current values in memory, which the host may have changed. `waiting` commands are in the
/// ring; commands in `flight` were fetched and have not completed. Each host over NVMe/TCP,
/// each NBD client, vhost-user-blk front end and block device of ublk has queues of its own in the
/// server's memory; a command is there when its data have arrived.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub struct QueuesCommand {
    /// Name of the controller
    #[arg(add = live::controllers())]
    controller: String,

    /// Number of commands to show per submission queue, oldest first, up to 1024
    #[arg(long, value_name = "COUNT", default_value_t = 16, value_parser = clap::value_parser!(u16).range(0..=1024))]
    commands: u16,

    /// Age from which a command counts as stuck
    #[arg(long, value_name = "TIME", default_value = "1s")]
    stuck_after: Span,

    /// Refresh the output at an interval; default: one second
    #[arg(long, value_name = "TIME", num_args = 0..=1, default_missing_value = "1s", require_equals = true)]
    watch: Option<Span>,

    /// Only one host over NVMe/TCP, NBD, vhost-user-blk or ublk, by its controller identifier in
    /// `nvmirage hosts`; default: up to 16 hosts
    #[arg(long, value_name = "ID", value_parser = parse::cntlid)]
    cntlid: Option<u16>,

    #[command(flatten)]
    control: Control,

    /// Print JSON
    #[arg(long, conflicts_with = "watch")]
    json: bool,
}

impl QueuesCommand {
    /// Runs the command, and prints its result.
    ///
    /// # Errors
    /// For the user: what failed, and why.
    pub fn run(self) -> anyhow::Result<()> {
        let socket = self.control.to_read()?;
        let commands = self.commands.into();
        let ask = (&*self.controller, commands, self.stuck_after, self.cntlid);
        let look = || requests::queues(&socket, ask.0, ask.1, ask.2, ask.3);
        if self.json {
            return terminal::print_json(&look()?);
        }
        let Some(Span(interval)) = self.watch else {
            return terminal::print(&shown(&look()?));
        };
        if interval < SHORTEST {
            let at_least = Span(SHORTEST);
            return Err(UsageError(format!("--watch: write at least {at_least}")).into());
        }
        let before = if io::stdout().is_terminal() {
            CLEAR
        } else {
            ""
        };
        hangup::end_with_reader()?;
        loop {
            let text = shown(&look()?);
            terminal::print(&format!("{before}{text}\n"))?;
            thread::sleep(interval);
        }
    }
}

/// Minimum refresh interval.
const SHORTEST: Duration = Duration::from_millis(100);

fn shown(report: &QueuesReport) -> String {
    let mut parts = Vec::new();
    if report.has_many_hosts() {
        if report.hosts.is_empty() {
            parts.push("no host is connected\n".to_owned());
        }
        for host in &report.hosts {
            let who = match (&host.export, host.protocol) {
                (Some(disk), Protocol::VhostUserBlk) => {
                    format!("vhost-user-blk front end of {}", disk.escape_debug())
                }
                (Some(disk), Protocol::Ublk) => {
                    format!("block device of {}", disk.escape_debug())
                }
                (Some(export), _) => format!("NBD client of {}", export.escape_debug()),
                (None, _) => host.nqn.escape_debug().to_string(),
            };
            let made = made(host.queues.len());
            parts.push(format!("host {:#x} {who}: {made}\n", host.cntlid));
            add(&mut parts, host.admin.iter().chain(&host.queues));
        }
        if report.hosts_left_out > 0 {
            let count = report.hosts_left_out;
            parts.push(format!(
                "{count} more hosts: --cntlid shows one of `nvmirage hosts`\n"
            ));
        }
    } else {
        let made = made(report.queues.len());
        parts.push(format!("doorbells are {}; {made}\n", report.doorbells));
        add(&mut parts, report.admin.iter().chain(&report.queues));
    }
    parts.retain(|part| !part.is_empty());
    parts.join("\n")
}

fn made(queues: usize) -> String {
    match queues {
        0 => "its host has created no I/O queues".to_owned(),
        1 => "1 I/O completion queue".to_owned(),
        count => format!("{count} I/O completion queues"),
    }
}

/// Adds the queues of a host, and their commands.
fn add<'a>(parts: &mut Vec<String>, all: impl Iterator<Item = &'a CompletionQueue> + Clone) {
    let mut queues = Table::new(&[
        ("queue", Align::Left),
        ("on", Align::Right),
        ("size", Align::Right),
        ("head", Align::Right),
        ("tail", Align::Right),
        ("phase", Align::Right),
        ("doorbell", Align::Right),
        ("shadow", Align::Right),
        ("EventIdx", Align::Right),
        ("waiting", Align::Right),
        ("flight", Align::Right),
        ("state", Align::Left),
    ]);
    let mut notes = String::new();
    for cq in all.clone() {
        queues.row(completion(cq, &mut notes));
        for sq in &cq.submission_queues {
            queues.row(submission(sq, &mut notes));
        }
    }
    if !queues.is_empty() {
        parts.push(queues.to_string());
    }
    parts.push(notes);
    parts.push(commands(all));
}

fn completion(cq: &CompletionQueue, notes: &mut String) -> Vec<String> {
    let name = format!("CQ {}", cq.queue);
    let of = |value: Option<u32>| value.map_or(String::new(), |value| value.to_string());
    let ring = cq.ring.as_ref();
    let bell = ring.map(|ring| &ring.bell);
    if let Some(reason) = bell.and_then(|bell| bell.frozen.as_ref()) {
        *notes += &format!("{name} is frozen: {reason}\n");
    }
    let given_up = ring.map_or(0, |ring| ring.given_up);
    if given_up > 0 {
        *notes += &format!("{name}: a medium still holds {given_up} aborted commands\n");
    }
    let state = match ring {
        None => "moving",
        Some(ring) if ring.bell.frozen.is_some() => "frozen",
        Some(ring) if ring.stopped => "stopped",
        Some(ring) if ring.full => "full",
        Some(_) => "",
    };
    vec![
        name,
        cq.reactor.to_string(),
        of(ring.map(|ring| ring.size)),
        of(ring.map(|ring| ring.head)),
        of(ring.map(|ring| ring.tail)),
        of(ring.map(|ring| ring.phase.into())),
        of(bell.map(|bell| bell.doorbell)),
        of(bell.and_then(|bell| bell.shadow)),
        of(bell.and_then(|bell| bell.event_idx)),
        String::new(),
        String::new(),
        state.to_owned(),
    ]
}

fn submission(sq: &SubmissionQueue, notes: &mut String) -> Vec<String> {
    let name = format!("SQ {}", sq.queue);
    let of = |value: Option<u32>| value.map_or(String::new(), |value| value.to_string());
    if let Some(reason) = &sq.bell.frozen {
        *notes += &format!("{name} is frozen: {reason}\n");
    }
    let state = match sq {
        _ if sq.bell.frozen.is_some() => "frozen",
        _ if sq.deleting => "deleting",
        _ => sq.priority.as_deref().unwrap_or_default(),
    };
    vec![
        name,
        String::new(),
        sq.size.to_string(),
        sq.head.to_string(),
        sq.tail.to_string(),
        String::new(),
        sq.bell.doorbell.to_string(),
        of(sq.bell.shadow),
        of(sq.bell.event_idx),
        sq.waiting.to_string(),
        sq.in_flight.to_string(),
        state.to_owned(),
    ]
}

fn commands<'a>(all: impl Iterator<Item = &'a CompletionQueue>) -> String {
    let mut table = Table::new(&[
        ("queue", Align::Left),
        ("cid", Align::Right),
        ("command", Align::Left),
        ("nsid", Align::Right),
        ("LBA", Align::Right),
        ("bytes", Align::Right),
        ("FUA", Align::Left),
        ("at", Align::Left),
        ("age", Align::Right),
        ("", Align::Left),
    ]);
    let mut more = String::new();
    for sq in all.flat_map(|cq| &cq.submission_queues) {
        for one in &sq.commands {
            let age = one.age_ns.map(|ns| units::nanoseconds(ns as f64));
            table.row(vec![
                format!("SQ {}", one.queue),
                one.cid.to_string(),
                named(&one.command, one.opcode),
                one.nsid.to_string(),
                one.lba.map_or(String::new(), |lba| lba.to_string()),
                one.bytes.map_or(String::new(), bytes),
                if one.fua { "yes" } else { "" }.to_owned(),
                one.at.clone(),
                age.unwrap_or_default(),
                if one.stuck { "stuck" } else { "" }.to_owned(),
            ]);
        }
        if sq.left_out > 0 {
            let (count, queue) = (sq.left_out, sq.queue);
            more += &format!("{count} more of SQ {queue}: --commands shows up to 1024\n");
        }
    }
    if table.is_empty() {
        more
    } else {
        format!("{table}{more}")
    }
}

/// The name of a command, or its opcode if the specification has no name for it.
fn named(name: &str, opcode: u8) -> String {
    if name.starts_with("reserved") {
        format!("opcode {opcode:02x}h")
    } else {
        name.to_owned()
    }
}

fn bytes(count: u64) -> String {
    u32::try_from(count).map_or_else(|_| units::bytes(count), units::block)
}
