//! `nvmirage fidelity --target`: the points of one drive behind a transport, as their host sees
//! them.
//!
//! The transport's own time is measured with the same commands on a namespace of a null medium
//! behind the same controller: over the same connections, on the same reactor, in turn with the
//! drive's. A drive that takes less than its transport cannot be shown by any
//! `transport_allowance`; the report states by how much.

use std::thread::sleep;

use anyhow::ensure;
use api::config::{MAX_ALLOWANCE, Size};
use driver::bus::place::Place;
use driver::io::Namespace;
use driver::program::{Ran, Target};
use load::Host;
use model::Parameters;
use model::preset::Preset;
use nvme_spec::opcode::Csi;
use serde::Serialize;
use simulate::points::{self, Command, Measured, Phase};
use terminal::table::{Align, Table};
use terminal::units;

use super::measure::{Drive, median, spread_pct};
use super::real::{self, REST, Seat};
use super::shown::name_of;

/// Bound between two clock readings of the host: a turn of its loop may send or receive all data
/// of the commands in flight, up to 2 MiB.
const STALL_NS: u64 = 2_000_000;
/// Commands that measure the transport of one command at a time.
const ALONE: usize = 1000;
/// Minimum size of the null medium: far more than any command.
const NULL_BYTES: u64 = 64 << 20;

/// Where the drive is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Behind<'a> {
    pub(super) place: &'a Place,
    pub(super) nsid: u32,
    /// Namespace of a null medium behind the same controller.
    pub(super) null_nsid: Option<u32>,
}

/// The complete report.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    nvmirage: &'static str,
    target: String,
    preset: String,
    /// Runs of each point; where the command was interrupted, the most of one.
    runs: u32,
    points: Vec<Row>,
}

/// One point: medians of its commands' times, and of those the medians of the runs. Others on the
/// way or on the machine delay some commands by milliseconds, which would be most of a mean.
#[derive(Clone, Debug, Serialize)]
struct Row {
    op: &'static str,
    block_size: u32,
    queue_depth: u16,
    workers: u16,
    /// Time in virtual time.
    virtual_ns_p50: f64,
    /// Time as the host sees it, with the transport.
    seen_ns_p50: f64,
    /// `seen_ns_p50` relative to virtual time.
    error_pct: f64,
    /// Standard deviation of the runs' times, relative to their mean.
    spread_pct: f64,
    #[serde(flatten)]
    transport: Option<Transport>,
    /// Commands of all runs, on both drives, that do not count, as the host stalled.
    excluded_commands: u64,
    /// The runs' times.
    runs_ns: Vec<f64>,
}

/// The transport's part of a point.
#[derive(Clone, Copy, Debug, Serialize)]
struct Transport {
    /// Time of the same commands on the null medium, as many in flight.
    transport_ns_p50: f64,
    /// Time of one of them at a time.
    transport_alone_ns_p50: f64,
    /// `seen_ns_p50` less the time that the transport adds in this loop.
    net_ns: f64,
    /// `net_ns` relative to virtual time.
    net_error_pct: f64,
    /// How much of the transport no allowance hides, of virtual time; `None` over vfio-user, which
    /// has no allowance.
    unhidden_pct: Option<f64>,
}

/// One run of a point: times of a command.
struct Run {
    seen_ns: f64,
    /// On the null medium: in the same loop, and alone.
    null_ns: Option<[f64; 2]>,
    /// Commands that do not count.
    excluded: u64,
}

/// The host of a drive and of a null medium beside it.
struct Rig {
    seat: Seat,
    drive: Target,
    null: Option<Namespace>,
}

/// Measures all points of `drive`. `progress` receives the numbers of finished runs and commands,
/// and returns whether to continue.
pub(super) fn run(
    drive: &Drive<'_>,
    preset: &Preset,
    behind: Behind<'_>,
    runs: u32,
    mut progress: impl FnMut(u64, u64) -> bool,
) -> anyhow::Result<Report> {
    let mut rig = Rig::new(drive, preset, behind)?;
    let measured = &drive.points.measured;
    let mut all: Vec<Vec<Run>> = measured.iter().map(|_| Vec::new()).collect();
    'all: for number in 0..runs {
        for (measured, runs) in measured.iter().zip(&mut all) {
            runs.push(rig.run(measured)?);
            let commands: usize = measured.program.workers.iter().map(Vec::len).sum();
            if !progress(number.into(), commands as u64) {
                break 'all;
            }
        }
    }
    rig.seat.host.leave_measured()?;
    let rows = measured
        .iter()
        .zip(&all)
        .filter(|(_, runs)| !runs.is_empty());
    let is_tcp = matches!(behind.place, Place::NvmeTcp(_));
    let rows = rows.map(|(measured, runs)| Row::of(drive, measured, runs, is_tcp));
    let most = all.iter().map(Vec::len).max().unwrap_or_default();
    Ok(Report {
        nvmirage: env!("CARGO_PKG_VERSION"),
        target: behind.place.to_string(),
        preset: preset.full_name(),
        runs: u32::try_from(most)?,
        points: rows.collect::<anyhow::Result<_>>()?,
    })
}

impl Rig {
    /// Connects, and prepares the drive for its points.
    fn new(drive: &Drive<'_>, preset: &Preset, behind: Behind<'_>) -> anyhow::Result<Self> {
        let needs = drive.points.needs();
        let mut host = real::host_at(behind.place, needs)?;
        let namespace = namespace(&mut host, drive, preset, behind)?;
        let null = behind.null_nsid.map(|nsid| host.device().namespace(nsid));
        let null = null.transpose()?;
        let drive_target = Target::Blocks(namespace);
        let mut seat = Seat::new(host, drive_target, needs, STALL_NS)?;
        if let Some(null) = &null {
            check_null(&mut seat, null)?;
        }
        seat.run(&resets(drive))?;
        seat.run(&drive.points.prepare)?;
        Ok(Self {
            seat,
            drive: drive_target,
            null,
        })
    }

    /// Runs a point once on both drives.
    fn run(&mut self, measured: &Measured) -> anyhow::Result<Run> {
        let seat = &mut self.seat;
        sleep(REST);
        if !measured.before.workers.is_empty() {
            seat.run(&measured.before)?;
            sleep(REST);
        }
        let mut excluded = 0;
        let mut time = |target: Target, phase: &Phase| {
            let ran = seat.run_on(target, phase, None)?;
            excluded += stalled(&ran);
            typical(&ran)
        };
        let null_ns = match self.null {
            None => None,
            Some(null) => {
                let all = on_null(&measured.program, null.len());
                let null = Target::Blocks(null);
                Some([time(null, &all)?, time(null, &alone(&all))?])
            }
        };
        let seen_ns = time(self.drive, &measured.program)?;
        Ok(Run {
            seen_ns,
            null_ns,
            excluded,
        })
    }
}

/// The namespace of the drive, which must fit its points.
fn namespace(
    host: &mut Host,
    drive: &Drive<'_>,
    preset: &Preset,
    behind: Behind<'_>,
) -> anyhow::Result<Namespace> {
    let Behind { place, nsid, .. } = behind;
    let name = preset.full_name();
    let csi = host.command_set(nsid)?;
    let wanted = match drive.parameters {
        Parameters::Zones(_) => Csi::ZONED_NAMESPACE,
        Parameters::Kv(_) => Csi::KEY_VALUE,
        Parameters::Nvm(_) | Parameters::Flash(_) => Csi::NVM,
    };
    let why = "is of another kind than the preset: name the preset that the server has";
    ensure!(csi == wanted, "namespace {nsid} of {place} {why}");
    let namespace = host.device().namespace(nsid)?;
    let needed = drive.points.size_bytes;
    ensure!(
        namespace.len() >= needed,
        "namespace {nsid} of {place} has {}, and the points of {name} need {}: serve the drive with that size",
        Size(namespace.len()),
        Size(needed)
    );
    if let Parameters::Zones(zones) = &drive.parameters {
        let common = host.device().zones(nsid)?;
        let len = common.blocks.saturating_mul(namespace.block_len.into());
        ensure!(
            len == zones.zone_size_bytes,
            "namespace {nsid} of {place} has zones of {}, and {name} of {}: {why}",
            Size(len),
            Size(zones.zone_size_bytes)
        );
    }
    Ok(namespace)
}

/// Rejects a namespace that keeps data. A null medium with `timing` keeps none, and cannot be told
/// from one without: its time would be the transport's.
fn check_null(seat: &mut Seat, null: &Namespace) -> anyhow::Result<()> {
    ensure!(
        null.len() >= NULL_BYTES,
        "--null-nsid {}: the namespace has {}: serve a null medium of {} or more",
        null.nsid,
        Size(null.len()),
        Size(NULL_BYTES)
    );
    ensure!(
        !seat.keeps(null)?,
        "--null-nsid {}: the namespace keeps data: name one of a null medium",
        null.nsid
    );
    Ok(())
}

/// Resets of all zones that the points use, which another run may have written; nothing for a drive
/// without zones.
fn resets(drive: &Drive<'_>) -> Phase {
    let Parameters::Zones(zones) = &drive.parameters else {
        return Phase::none();
    };
    let starts = (0..drive.points.size_bytes).step_by(zones.zone_size_bytes as usize);
    Phase {
        depth: 1,
        workers: vec![starts.map(|offset| Command::ResetZone { offset }).collect()],
    }
}

/// The same commands for a null medium of `len` bytes, which has no zones.
fn on_null(program: &Phase, len: u64) -> Phase {
    let command = |command: &Command| match *command {
        Command::Read { offset, len: bytes } => Command::Read {
            offset: within(offset, bytes, len),
            len: bytes,
        },
        Command::Write { offset, len: bytes } => Command::Write {
            offset: within(offset, bytes, len),
            len: bytes,
        },
        other => other,
    };
    let of_worker = |commands: &Vec<Command>| commands.iter().map(command).collect();
    Phase {
        depth: program.depth,
        workers: program.workers.iter().map(of_worker).collect(),
    }
}

/// An offset of a command of `bytes` on a medium of `len` bytes. Both are whole numbers of pages.
fn within(offset: u64, bytes: u32, len: u64) -> u64 {
    offset % (len - u64::from(bytes) + 4096) / 4096 * 4096
}

/// The first commands of one worker, one at a time.
fn alone(phase: &Phase) -> Phase {
    let first = phase.workers.first();
    let commands = first.map_or(&[][..], |all| &all[..all.len().min(ALONE)]);
    Phase {
        depth: 1,
        workers: vec![commands.to_vec()],
    }
}

/// Median of the times of the commands that count.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn typical(ran: &Ran) -> anyhow::Result<f64> {
    let all = ran.latencies_ns.iter().flatten().flatten();
    let all: Vec<f64> = all.map(|ns| *ns as f64).collect();
    let why = "the machine did not let this process run during a whole point: give it a CPU";
    ensure!(!all.is_empty(), why);
    Ok(median(all))
}

/// Commands that do not count.
fn stalled(ran: &Ran) -> u64 {
    let all = ran.latencies_ns.iter().flatten();
    all.filter(|ns| ns.is_none()).count() as u64
}

/// Part of the transport's time of one command at a time that adds to the median command in this
/// loop, as [`Drive::way_ns`] has it of the mean one. The mean does not tell the median where
/// commands are fast or slow, as with a buffer or many in flight.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn way_ns(
    drive: &Drive<'_>,
    measured: &Measured,
    alone_ns: f64,
    virtual_ns: f64,
) -> anyhow::Result<f64> {
    if drive.adds_all(measured) {
        return Ok(alone_ns);
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "it is small"
    )]
    let delay = alone_ns.round() as u64;
    let (slow, _) = points::measure(&drive.parameters, &drive.points, measured, delay)?;
    Ok(typical(&slow)? + delay as f64 - virtual_ns)
}

/// Longest allowance.
fn max_allowance_ns() -> f64 {
    MAX_ALLOWANCE.as_secs_f64() * 1e9
}

/// How much more `ns` is than `of_ns`, in percent.
fn above_pct(ns: f64, of_ns: f64) -> f64 {
    (ns / of_ns - 1.0) * 100.0
}

impl Transport {
    fn of([all_ns, alone_ns]: [f64; 2], net_ns: f64, virtual_ns: f64, is_tcp: bool) -> Self {
        let hidden_ns = virtual_ns.min(max_allowance_ns());
        let unhidden_ns = (all_ns - hidden_ns).max(0.0);
        Self {
            transport_ns_p50: all_ns,
            transport_alone_ns_p50: alone_ns,
            net_ns,
            net_error_pct: above_pct(net_ns, virtual_ns),
            unhidden_pct: is_tcp.then_some(unhidden_ns / virtual_ns * 100.0),
        }
    }
}

impl Row {
    fn of(
        drive: &Drive<'_>,
        measured: &Measured,
        runs: &[Run],
        is_tcp: bool,
    ) -> anyhow::Result<Self> {
        let point = measured.point;
        let (each, _) = points::measure(&drive.parameters, &drive.points, measured, 0)?;
        let virtual_ns = typical(&each)?;
        let runs_ns: Vec<f64> = runs.iter().map(|run| run.seen_ns).collect();
        let seen_ns = median(runs_ns.clone());
        let null = |at: usize| -> Option<f64> {
            let all = runs.iter().map(|run| run.null_ns.map(|both| both[at]));
            all.collect::<Option<Vec<f64>>>().map(median)
        };
        let transport = match (null(0), null(1)) {
            (Some(loop_ns), Some(alone_ns)) => {
                let net_ns = seen_ns - way_ns(drive, measured, alone_ns, virtual_ns)?;
                let times = [loop_ns, alone_ns];
                Some(Transport::of(times, net_ns, virtual_ns, is_tcp))
            }
            _ => None,
        };
        Ok(Self {
            op: point.op.name(),
            block_size: point.block_size,
            queue_depth: point.queue_depth,
            workers: point.workers,
            virtual_ns_p50: virtual_ns,
            seen_ns_p50: seen_ns,
            error_pct: above_pct(seen_ns, virtual_ns),
            spread_pct: spread_pct(&runs_ns),
            transport,
            excluded_commands: runs.iter().map(|run| run.excluded).sum(),
            runs_ns,
        })
    }
}

impl Report {
    pub(super) fn in_words(&self) -> String {
        let mut table = Table::new(&[
            ("commands", Align::Left),
            ("virtual", Align::Right),
            ("seen", Align::Right),
            ("error", Align::Right),
            ("spread", Align::Right),
            ("excluded", Align::Right),
            ("transport", Align::Right),
            ("net", Align::Right),
            ("net error", Align::Right),
            ("cannot be hidden", Align::Right),
        ]);
        let percent = |value: f64| format!("{value:+.1} %");
        for row in &self.points {
            let of_transport = |show: &dyn Fn(&Transport) -> String| {
                row.transport.as_ref().map_or("-".to_owned(), show)
            };
            table.row(vec![
                name_of(row.op, row.block_size, (row.queue_depth, row.workers)),
                units::nanoseconds(row.virtual_ns_p50),
                units::nanoseconds(row.seen_ns_p50),
                percent(row.error_pct),
                format!("{:.1} %", row.spread_pct),
                row.excluded_commands.to_string(),
                of_transport(&|it| units::nanoseconds(it.transport_ns_p50)),
                of_transport(&|it| units::nanoseconds(it.net_ns)),
                of_transport(&|it| percent(it.net_error_pct)),
                of_transport(&|it| match it.unhidden_pct {
                    None => "-".to_owned(),
                    Some(none) if none <= 0.0 => "none".to_owned(),
                    Some(some) => percent(some),
                }),
            ]);
        }
        let least = self.points.iter().map(|row| row.runs_ns.len()).min();
        let least = least.unwrap_or_default();
        let runs = match self.runs {
            most if least == most as usize => most.to_string(),
            most => format!("interrupted: {least} to {most}"),
        };
        let mut text = format!(
            "{} over {}: {runs} runs of each point, medians\n{table}",
            self.preset, self.target
        );
        text.push_str(&self.advice());
        text
    }

    /// How to go on.
    fn advice(&self) -> String {
        let alone = self
            .points
            .iter()
            .filter(|row| row.queue_depth * row.workers == 1);
        let over_tcp = |it: &&Transport| it.unhidden_pct.is_some();
        let transports = alone.filter_map(|row| row.transport.as_ref());
        let times = transports.filter(over_tcp).map(|it| it.transport_ns_p50);
        match times.min_by(f64::total_cmp) {
            Some(ns) => format!(
                "transport: the same commands on the null medium. timing.transport_allowance = \"{}ns\" of the drive takes the least of one at a time from each command.\n",
                ns.min(max_allowance_ns()).round()
            ),
            None if self.points.iter().any(|row| row.transport.is_some()) => String::new(),
            None => "The transport's part is unknown: add a namespace of a null medium to the controller, and name it with --null-nsid.\n".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(offset: u64, len: u32) -> Command {
        Command::Read { offset, len }
    }

    #[test]
    fn commands_fit_the_null_medium() {
        let program = Phase {
            depth: 8,
            workers: vec![vec![read(0, 4096), read(NULL_BYTES * 9 + 8192, 65_536)]; 2],
        };
        let all = on_null(&program, NULL_BYTES);
        assert_eq!((all.depth, all.workers.len()), (8, 2));
        for command in all.workers.iter().flatten() {
            let Command::Read { offset, len } = *command else {
                panic!("{command:?}");
            };
            assert!(offset.is_multiple_of(4096) && offset + u64::from(len) <= NULL_BYTES);
        }
        // The last place of a command, and the one behind it.
        assert_eq!(
            within(NULL_BYTES - 8192, 8192, NULL_BYTES),
            NULL_BYTES - 8192
        );
        assert_eq!(within(NULL_BYTES - 4096, 8192, NULL_BYTES), 0);
        let alone = alone(&all);
        assert_eq!(
            (alone.depth, &alone.workers),
            (1, &all.workers[..1].to_vec())
        );
    }

    #[test]
    fn a_transport_longer_than_the_drive_cannot_be_hidden() {
        // 30 us of transport, on drives of 10 us and 60 us.
        let fast = Transport::of([30e3, 30e3], 10.1e3, 10e3, true);
        let is = |of: &Transport, pct: f64| {
            let unhidden = of.unhidden_pct.unwrap();
            assert!((unhidden - pct).abs() < 1e-9, "{of:?}");
        };
        is(&fast, 200.0);
        assert!((fast.net_error_pct - 1.0).abs() < 1e-9, "{fast:?}");
        let slow = Transport::of([30e3, 30e3], 60e3, 60e3, true);
        is(&slow, 0.0);
        assert!(slow.net_error_pct == 0.0, "{slow:?}");
        // 12 ms, of which an allowance takes 10, on a drive of 20.
        is(&Transport::of([12e6, 12e6], 20e6, 20e6, true), 10.0);
        let near = Transport::of([30e3, 30e3], 10e3, 10e3, false);
        assert_eq!(near.unhidden_pct, None, "no allowance over vfio-user");
    }

    #[test]
    fn the_report_says_what_is_missing_and_what_to_subtract() {
        let row = |transport| Row {
            op: "read",
            block_size: 4096,
            queue_depth: 1,
            workers: 1,
            virtual_ns_p50: 10_000.0,
            seen_ns_p50: 40_000.0,
            error_pct: 300.0,
            spread_pct: 0.0,
            transport,
            excluded_commands: 77,
            runs_ns: vec![40_000.0],
        };
        let report = |rows: Vec<Row>| Report {
            nvmirage: "0",
            target: "nvme-tcp:[::1]:4420/nqn".to_owned(),
            preset: "optane-p4800x".to_owned(),
            runs: 1,
            points: rows,
        };
        let text = report(vec![row(None)]).in_words();
        assert!(
            text.contains("part is unknown") && text.contains("--null-nsid"),
            "{text}"
        );
        assert!(
            text.contains("1 runs of each") && text.contains(" 77 "),
            "{text}"
        );
        let of = |ns| Some(Transport::of([ns, ns], 40e3 - ns, 10e3, true));
        let text = report(vec![row(of(30_000.0)), row(of(29_000.4))]).in_words();
        assert!(text.contains("transport_allowance = \"29000ns\""), "{text}");
        assert!(text.contains("+200.0 %"), "{text}");
        let text = report(vec![row(of(12e6))]).in_words();
        assert!(text.contains("= \"10000000ns\""), "the maximum: {text}");
        let near = Transport::of([5e3, 5e3], 35e3, 10e3, false);
        let text = report(vec![row(Some(near))]).in_words();
        assert!(!text.contains("allowance"), "none over vfio-user: {text}");
        let mut more = row(None);
        more.runs_ns.push(41_000.0);
        let interrupted = Report {
            runs: 2,
            ..report(vec![more, row(None)])
        };
        let text = interrupted.in_words();
        assert!(text.contains("interrupted: 1 to 2 runs"), "{text}");
    }

    /// A host that sees each command as late as virtual time has it behind a delay, in the median.
    /// The mean command of this loop is later by another time.
    #[test]
    #[expect(clippy::cast_precision_loss, reason = "three digits are compared")]
    fn the_net_time_is_of_medians() {
        let preset = model::preset::presets().find(|it| it.full_name() == "samsung-970-pro@code");
        let drive = Drive::new(preset.unwrap(), "write 4096 qd16 ", false).unwrap();
        let [measured] = &drive.points.measured[..] else {
            panic!("one point");
        };
        let delay = 30_000;
        let measure = |delay| points::measure(&drive.parameters, &drive.points, measured, delay);
        let ((each, fast), (late, slow)) = (measure(0).unwrap(), measure(delay).unwrap());
        let run = Run {
            seen_ns: typical(&late).unwrap() + delay as f64,
            null_ns: Some([delay as f64; 2]),
            excluded: 3,
        };
        let shift = run.seen_ns - typical(&each).unwrap();
        let of_means = (slow.mean_ns() + delay) as f64 - fast.mean_ns() as f64;
        assert!((shift - of_means).abs() > 1_000.0, "{shift} {of_means}");
        let row = Row::of(&drive, measured, &[run], true).unwrap();
        let transport = row.transport.unwrap();
        assert!(transport.net_error_pct.abs() < 1e-6, "{transport:?}");
        assert_eq!(row.excluded_commands, 3);
    }
}
