//! Points in real time: a modelled drive on a reactor with its own CPU, and a host on another CPU.
//! A null drive on the same reactor measures the path to a drive and back.
//!
//! Host and reactor are threads of this process that communicate only over a vfio-user socket and
//! shared memory, as a host in another process would. The drive's bytes are in memory and are
//! copied as usual, except for a drive that forgets them ([`Bytes`]).
//!
//! If the host reads its clock more than [`STALL_NS`] after the previous time, or a turn of the
//! reactor exceeds its own bound, the machine kept a thread from running. The affected commands, or
//! the whole run, do not count; the report says how many were excluded.

use std::time::Duration;

use anyhow::{Context, ensure};
use api::config::{self, Config, Initial, Listen, MediumKeys, MediumKind, Size, Timing, Zoned};
use driver::Doorbells;
use driver::bus::place::Place;
use driver::io::Namespace;
use driver::key_value::{Dialect, Keys};
use driver::program::{Ran, Target, Worker};
use load::placement::{Pair, Placement};
use load::{Host, Needs, Queue};
use machine::cpu;
use machine::files::read_text;
use memory::Buffer;
use model::Parameters;
use model::preset::Preset;
use simulate::points::{Command, KEYS_MAX, Measured, Phase, PointOp, Points};
use tempfile::TempDir;
use terminal::interrupt::Interrupt;

/// Bound between two clock readings of the host; a turn of its loop takes a microsecond at most.
pub(super) const STALL_NS: u64 = 20_000;
/// Time between phases, in which the drive writes its buffer out.
pub(super) const REST: Duration = Duration::from_millis(5);
/// Commands that measure the path to the null drive, and the number where its percentiles are
/// shown.
const BASELINE: u64 = 1000;
const BASELINE_SHOWN: u64 = 50_000;
/// Step between the null drive's offsets: far from the previous one, and reaches all in the end.
const STRIDE: u64 = 104_729;
/// Maximum length of a course.
pub(super) const COURSE_NS: u64 = load::program::COURSE_NS;
/// Attempts at a run that the machine disturbs; the last one counts as it is.
const TRIES: u32 = 5;
/// Size of the null drive in bytes.
const NULL_BYTES: u64 = 1 << 30;

/// Ends a server, with an error where it could not write everything it has to.
pub type Stop = Box<dyn FnOnce() -> anyhow::Result<()>>;
/// Serves a configuration in this process, until it is stopped or dropped.
pub type Serve = fn(Config) -> anyhow::Result<Stop>;

/// The CPUs of host and reactor, and how a drive is served.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setup {
    pub(super) host: u32,
    pub(super) server: u32,
    pub(super) serve: Serve,
}

/// Whether the drive keeps what is written to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bytes {
    /// In memory.
    Kept,
    /// Dropped: nothing reads it, and the drive may be larger than memory.
    Forgotten,
}

/// One run of a point.
#[derive(Clone, Debug)]
pub(super) struct Run {
    /// Mean time of a command.
    pub(super) raw_ns: f64,
    /// Mean time of a command on the null drive, one command at a time.
    pub(super) baseline_ns: f64,
    /// Time of each command, in order, if one worker has one in flight.
    pub(super) latencies_ns: Vec<Option<u64>>,
    /// Times of the null drive's commands, sorted, where there are many of them: see
    /// [`shows_null`].
    pub(super) null_ns: Vec<u64>,
    /// Commands per second.
    pub(super) rate: f64,
    pub(super) placement: Placement,
}

/// Excluded commands and runs.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Excluded {
    pub(super) commands: u64,
    pub(super) host_stalls: u64,
    pub(super) host_stalled_ns: u64,
    pub(super) runs: u64,
}

/// A drive with its host.
pub(super) struct Seat {
    pub(super) host: Host,
    queues: Vec<Queue>,
    buffer: Buffer,
    target: Target,
    /// Bound between two clock readings of the host.
    stall_ns: u64,
}

impl Seat {
    /// Connects to the drive of this program at `listen`.
    fn connect(
        listen: &Listen,
        target: Option<Target>,
        needs: (u32, u16, u16),
    ) -> anyhow::Result<Self> {
        let socket = listen.path().context("a measured drive has a socket")?;
        let mut host = host_at(&Place::VfioUser(socket.to_owned()), needs)?;
        let target = match target {
            Some(target) => target,
            None => Target::Blocks(host.device().namespace(1)?),
        };
        Self::new(host, target, needs, STALL_NS)
    }

    /// Creates a queue for each worker, and a buffer, from the bytes of a command, the number of
    /// workers, and the commands that each has in flight.
    pub(super) fn new(
        mut host: Host,
        target: Target,
        (bytes, workers, depth): (u32, u16, u16),
        stall_ns: u64,
    ) -> anyhow::Result<Self> {
        let device = host.device();
        let queues = (0..workers).map(|_| device.create_queue_pair(depth, false));
        let queues = queues.collect::<Result<_, _>>()?;
        let buffer = device.alloc(page_aligned(bytes) as usize)?;
        Ok(Seat {
            host,
            queues,
            buffer,
            target,
            stall_ns,
        })
    }

    /// Whether a namespace of the same controller keeps written data; overwrites two blocks.
    pub(super) fn keeps(&mut self, namespace: &Namespace) -> anyhow::Result<bool> {
        let queue = &mut self.queues[0];
        self.host.keeps_data(queue, namespace, namespace.len())
    }

    pub(super) fn run(&mut self, phase: &Phase) -> anyhow::Result<Ran> {
        self.run_on(self.target, phase, None)
    }

    /// Runs the phase on `target`; with `interrupt`, until that is set and no longer than
    /// [`COURSE_NS`].
    pub(super) fn run_on(
        &mut self,
        target: Target,
        phase: &Phase,
        interrupt: Option<&Interrupt>,
    ) -> anyhow::Result<Ran> {
        let buffer = &self.buffer;
        let workers = self.queues.iter_mut().zip(&phase.workers);
        let workers = workers.map(|(queue, commands)| Worker {
            queue,
            buffer,
            depth: phase.depth,
            commands,
        });
        let mut workers: Vec<_> = workers.collect();
        let clock = self.host.clock();
        Ok(load::program::run(
            &clock,
            &mut workers,
            &target,
            self.stall_ns,
            interrupt,
        )?)
    }
}

fn page_aligned(bytes: u32) -> u32 {
    bytes.max(4096).next_multiple_of(4096)
}

/// A host of the drive at `place`, with memory for a [`Seat`] of these needs.
pub(super) fn host_at(
    place: &Place,
    (bytes, workers, depth): (u32, u16, u16),
) -> anyhow::Result<Host> {
    let needs = Needs {
        queues: workers,
        ..Needs::of(depth, page_aligned(bytes))
    };
    Host::connect_to_all_sets(place, Doorbells::Auto, needs)
}

/// A drive and a null drive, served by a reactor of this process.
pub(super) struct Rig {
    stop: Stop,
    drive: Seat,
    null: Seat,
    pair: Pair,
    pub(super) excluded: Excluded,
    _folder: TempDir,
}

impl Rig {
    /// Serves a drive of `preset` and prepares it for its points. Pins the calling thread to the
    /// host's CPU.
    pub(super) fn new(
        preset: &Preset,
        parameters: &Parameters,
        points: &Points,
        cpus: Setup,
        bytes: Bytes,
    ) -> anyhow::Result<Self> {
        let folder = TempDir::with_prefix("nvmirage-").context("cannot make a folder")?;
        let config = configuration(&folder, preset, parameters, points, (cpus.server, bytes));
        let listen = |at: usize| config.controller[at].listen.clone();
        let (drive, null) = (listen(0), listen(1));
        config.read_presets(read_text);
        let problems = config.validate();
        ensure!(problems.is_empty(), "{problems:?}");
        let stop = (cpus.serve)(config)?;
        cpu::pin_or_say(cpus.host)?;
        let target = match parameters {
            Parameters::Kv(_) => Some(Target::Keys(Keys {
                nsid: 1,
                dialect: Dialect::Samsung,
            })),
            _ => None,
        };
        let needs = points.needs();
        let mut rig = Rig {
            drive: Seat::connect(&drive, target, needs)?,
            null: Seat::connect(&null, None, (needs.0, 1, 1))?,
            pair: Pair::new(Some(cpus.host), Some(cpus.server))?,
            stop,
            excluded: Excluded::default(),
            _folder: folder,
        };
        rig.drive.run(&points.prepare)?;
        Ok(rig)
    }

    /// Runs a point once, and again if the machine disturbs it.
    pub(super) fn run(&mut self, measured: &Measured) -> anyhow::Result<Run> {
        let mut tries = 0;
        loop {
            tries += 1;
            let before = self.pair.look();
            let (run, is_disturbed) = self.try_run(measured, before)?;
            if !is_disturbed || tries == TRIES {
                return Ok(run);
            }
            self.excluded.runs += 1;
        }
    }

    /// Runs a program once without repetition, for its course over time, until `interrupt` is set
    /// and no longer than [`COURSE_NS`].
    pub(super) fn run_once(
        &mut self,
        measured: &Measured,
        interrupt: &Interrupt,
    ) -> anyhow::Result<Ran> {
        std::thread::sleep(REST);
        let target = self.drive.target;
        self.drive
            .run_on(target, &measured.program, Some(interrupt))
    }

    fn try_run(&mut self, measured: &Measured, before: Placement) -> anyhow::Result<(Run, bool)> {
        std::thread::sleep(REST);
        if !measured.before.workers.is_empty() {
            self.drive.run(&measured.before)?;
            std::thread::sleep(REST);
        }
        let stalls = self.drive.host.reactor_stalls()?;
        let baseline = self.null.run(&baseline(measured))?;
        let ran = self.drive.run(&measured.program)?;
        let is_disturbed = self.drive.host.reactor_stalls()? != stalls;
        let all: usize = ran.latencies_ns.iter().map(Vec::len).sum();
        let (raw_ns, count) = mean(&ran);
        self.excluded.commands += all as u64 - count;
        self.excluded.host_stalls += ran.stalls;
        self.excluded.host_stalled_ns += ran.stalled_ns;
        let alone = measured.point.workers == 1 && measured.point.queue_depth == 1;
        let run = Run {
            raw_ns,
            baseline_ns: mean(&baseline).0,
            null_ns: if shows_null(measured) {
                in_order(&baseline)
            } else {
                Vec::new()
            },
            latencies_ns: if alone {
                ran.latencies_ns.concat()
            } else {
                Vec::new()
            },
            #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
            rate: all as f64 * 1e9 / ran.elapsed_ns.max(1) as f64,
            placement: before.and(self.pair.look()),
        };
        // If a tenth of a run is excluded, the rest says little.
        Ok((run, is_disturbed || count * 10 < all as u64 * 9))
    }

    /// Detaches from the drives, and ends their reactor.
    pub(super) fn end(self) -> anyhow::Result<()> {
        let Rig {
            stop, drive, null, ..
        } = self;
        for seat in [drive, null] {
            seat.host.leave_measured()?;
        }
        stop()
    }
}

/// Whether the measurements at this point also show how much the path to a drive varies: writes of
/// 4 KiB, one at a time.
fn shows_null(measured: &Measured) -> bool {
    let point = &measured.point;
    let alone = point.workers == 1 && point.queue_depth == 1;
    alone && point.op == PointOp::Write && point.block_size == 4096
}

/// Times of the commands that count, sorted.
fn in_order(ran: &Ran) -> Vec<u64> {
    let mut all: Vec<u64> = ran
        .latencies_ns
        .iter()
        .flatten()
        .flatten()
        .copied()
        .collect();
    all.sort_unstable();
    all
}

/// Mean time of the commands that count, and their number.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn mean(ran: &Ran) -> (f64, u64) {
    let all = ran.latencies_ns.iter().flatten().flatten();
    let (sum, count) = all.fold((0, 0), |(sum, count): (u64, u64), ns| (sum + ns, count + 1));
    (sum as f64 / count.max(1) as f64, count)
}

/// The same commands for the null drive, one at a time and all over it.
fn baseline(measured: &Measured) -> Phase {
    let len = match measured.point.op {
        PointOp::Read | PointOp::Write | PointOp::Append => measured.point.block_size,
        // Values do not move on the null drive.
        PointOp::Store | PointOp::Retrieve | PointOp::StoreEight => 4096,
    };
    let places = NULL_BYTES / u64::from(len);
    let command = |at: u64| {
        let offset = at * STRIDE % places * u64::from(len);
        match measured.point.op {
            PointOp::Read | PointOp::Retrieve => Command::Read { offset, len },
            PointOp::Write | PointOp::Append | PointOp::Store | PointOp::StoreEight => {
                Command::Write { offset, len }
            }
        }
    };
    let count = if shows_null(measured) {
        BASELINE_SHOWN
    } else {
        BASELINE
    };
    Phase {
        depth: 1,
        workers: vec![(0..count).map(command).collect()],
    }
}

fn configuration(
    folder: &TempDir,
    preset: &Preset,
    parameters: &Parameters,
    points: &Points,
    (server, bytes): (u32, Bytes),
) -> Config {
    let kind = match (parameters, bytes) {
        (Parameters::Kv(_), _) => MediumKind::KeyValue,
        (_, Bytes::Kept) => MediumKind::Ram,
        (_, Bytes::Forgotten) => MediumKind::Null,
    };
    let mut drive = MediumKeys::new("drive".into(), kind);
    drive.size = Some(Size(points.size_bytes));
    let mut timing = Timing::of(preset.full_name());
    if matches!(parameters, Parameters::Flash(_)) {
        // The points write what they read, and are compared with points on a fresh drive.
        timing.initial = Some(Initial::Fresh);
    }
    drive.timing = Some(timing);
    match parameters {
        Parameters::Kv(_) => {
            drive.dialect = Some(config::Dialect::Samsung);
            drive.max_keys = Some(KEYS_MAX);
        }
        Parameters::Zones(zones) => {
            drive.zoned = Some(Zoned::new(zones.zone_size_bytes, zones.zone_capacity_bytes));
        }
        Parameters::Nvm(_) | Parameters::Flash(_) => {}
    }
    let null = config::Medium::null("null".into(), Size(NULL_BYTES));
    let names = ["drive", "null"];
    let namespace = |name: &str| config::Namespace::new(name.into(), name.into());
    let controller = |name: &str| {
        let listen = Listen::VfioUser(folder.path().join(name));
        let mut controller = config::Controller::new(name.into(), listen);
        controller.namespaces.push(name.into());
        controller
    };
    Config {
        state_dir: Some(folder.path().to_owned()),
        reactor: vec![config::Reactor {
            cpu: Some(server),
            mode: config::Mode::Poll,
            ..config::Reactor::default()
        }],
        media: vec![drive.into(), null],
        namespace: names.map(namespace).into(),
        controller: names.map(controller).into(),
        ..Config::default()
    }
}
