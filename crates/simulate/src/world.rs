//! The clock of a simulation, and who acts when.
//!
//! At every instant everything happens that can: the drive does what is due, hosts see what it has posted and submit more, the engine
//! fetches that. A turn takes no time. When nothing is left to do, the clock jumps to the next instant at which something
//! is: on the drive, or because a host waits for it.

use controller::config::{ControllerConfig, DoorbellMode};
use controller::namespace::Namespace;
use controller::port::{Channel, ChannelId};
use controller::subsystem::{Subsystem, SubsystemConfig};
use controller::time::Time;
use controller::{Controller, config};
use driver::{Device, Doorbells, Options};
use engine::{Engine, Mode};
use media::{MAX_DEPTH, Medium, MediumKind, MediumSpec, ZoneSpec};
use memory::{Buffer, DoorbellPages};
use model::{Flash, Parameters};
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::bus::Virtual;
use crate::fio::TRANSFER_MAX;
use crate::host::{BLOCK, Data, Finished, HostCost, NEVER};
use crate::job::{Job, Stream, seed_of};
use crate::tally::{Figures, JobTally, Series};
use crate::trace::{Arrival, Trace};
use crate::zones::{self, Table};
use crate::{Error, Plan, Progress, Ran, Workload, host};

type Host = host::Host<Virtual>;

/// When a simulation begins. Later than anything that bringing the controller up takes, so that this does not show in it.
const START_NS: u64 = 1_000_000_000;
/// Instants between two reports of progress.
const INSTANTS_PER_REPORT: u64 = 1 << 16;
/// Turns at one instant after which it is not going on any more: far more than commands can be in flight.
const TURNS_MAX: u64 = 1 << 24;
/// Bytes of a page.
const PAGE: usize = 4096;

/// Queue pairs that begin together.
struct Group {
    hosts: std::ops::Range<usize>,
}

/// Everything there is.
pub(crate) struct World<'a> {
    device: Device<Virtual>,
    hosts: Vec<Host>,
    groups: Vec<Group>,
    /// The first one that has not begun.
    next_group: usize,
    plan: &'a Plan,
    now: u64,
    /// Commands that the drive was told of, and those that it fetched and posted.
    told: u64,
    fetched: u64,
    posted: u64,
    jobs: Vec<JobTally>,
    begun: Vec<u64>,
    ended: Vec<u64>,
    series: Series,
    /// What the drive had done when measuring began.
    before: Option<Figures>,
    turns: u64,
    instants: u64,
    /// The earliest time at which a host has something to do by itself.
    wake: u64,
    /// What the data pointers of all commands point to.
    _data: [Buffer; 2],
}

/// What hosts need of memory beside queues.
fn memory_len(queues: &[u16]) -> usize {
    let rings = |depth: &u16| (usize::from(*depth) + 1) * (64 + 16 + 16) + 4 * PAGE;
    queues.iter().map(rings).sum::<usize>() + TRANSFER_MAX as usize + (4 << 20)
}

fn controller_config(queues: u16) -> ControllerConfig {
    ControllerConfig {
        name: "simulated".into(),
        vendor_id: config::DEFAULT_VENDOR_ID,
        device_id: config::DEFAULT_DEVICE_ID,
        serial: "SIMULATED".into(),
        model_number: "nvmirage simulated".into(),
        firmware_revision: "1".into(),
        subnqn: "nqn.2024-01.org.nvmirage:simulated".into(),
        queues,
        queue_depth: config::MAX_QUEUE_DEPTH,
        max_transfer: TRANSFER_MAX as u32,
        doorbells: DoorbellMode::Mapped,
        intx: false,
    }
}

/// Sizes up to which a drive is prepared by doing every page operation.
const PLAYED_MAX: u64 = 64 << 30;

/// The drive: it holds no bytes.
fn drive(parameters: &Parameters, size: u64, plan: &Plan) -> Result<Arc<Medium>, Error> {
    let null = MediumKind::Null { size };
    let kind = match parameters {
        Parameters::Zones(zones) => MediumKind::Zoned {
            of: Box::new(null),
            zones: ZoneSpec {
                zone_size: zones.zone_size_bytes,
                zone_capacity: zones.zone_capacity_bytes,
                max_open: 0,
                max_active: 0,
                descriptor_extension: 0,
                append_limit: 0,
                random: None,
            },
        },
        _ => null,
    };
    let mut medium = Medium::open(&MediumSpec { kind })?;
    if !plan.prepared {
        Medium::set_timing(&mut medium, parameters.clone())?;
        return Ok(medium);
    }
    let Parameters::Flash(flash) = parameters else {
        return Err(Error::NotPrepared {
            kind: parameters.kind().name(),
        });
    };
    let drive = match size <= PLAYED_MAX {
        true => {
            let mut drive = Flash::new(flash)?;
            drive.precondition(plan.seed);
            drive
        }
        false => Flash::seeded(flash, plan.seed)?.0,
    };
    let mut state = Vec::new();
    drive.save(&mut state);
    Medium::restore_timing(&mut medium, parameters.clone(), &state)?;
    Ok(medium)
}

/// A controller with one namespace, all of `medium`, brought up by a driver.
fn bring_up(medium: &Arc<Medium>, size: u64, queues: &[u16]) -> Result<Device<Virtual>, Error> {
    let count = u16::try_from(queues.len()).unwrap_or(u16::MAX);
    if count > config::MAX_IO_QUEUES {
        return Err(Error::Workers {
            count: queues.len(),
        });
    }
    let config = controller_config(count);
    let pages = DoorbellPages::new(config.doorbell_slots()).map_err(Error::Memory)?;
    let pages = Arc::new(pages);
    let namespace = Namespace {
        nsid: 1,
        channel: ChannelId(0),
        start: 0,
        blocks: size / BLOCK,
        lba_shift: BLOCK.ilog2() as u8,
        nguid: [1; 16],
        eui64: [1; 8],
        traits: medium.traits(),
        restrictions: None,
        set: medium.set(),
    };
    let mut subsystem = Subsystem::new(SubsystemConfig::with_namespaces(1, [namespace]))?;
    let controller = Controller::new(config, pages.clone(), &mut subsystem)?;
    let mut engine = Engine::new(Mode::Poll, Time(0));
    let drive = medium.channel(MAX_DEPTH).map_err(Error::Channel)?;
    let added = engine.add_channel(ChannelId(0), drive, MAX_DEPTH.into());
    assert!(added.is_ok(), "it is the only one");
    let subsystem = engine.add_subsystem(subsystem);
    let slot = engine.add_controller(controller, subsystem);
    let options = Options {
        memory_len: memory_len(queues),
        doorbells: Doorbells::Mapped,
        // Data pointers are made here.
        transfer_len_max: PAGE as u32,
        all_command_sets: medium.set().is_some(),
        ..Options::default()
    };
    let mut device = Device::open(Virtual::new(engine, slot, pages), &options)?;
    device.enable()?;
    Ok(device)
}

/// Memory that the commands of all hosts share, with the list of its pages.
fn shared_data(device: &Device<Virtual>) -> Result<(Data, [Buffer; 2]), Error> {
    let buffer = device.alloc(TRANSFER_MAX as usize)?;
    let list = device.alloc(PAGE)?;
    let first = device.iova(&buffer).0;
    let pages = TRANSFER_MAX / PAGE as u64;
    for (at, page) in (1..pages).enumerate() {
        list.write_from(at * 8, &(first + page * PAGE as u64).to_le_bytes());
    }
    let data = Data {
        buffer: first,
        list: device.iova(&list).0,
    };
    Ok((data, [buffer, list]))
}

/// What the world is filled with.
enum Work<'a> {
    Job(usize, &'a Job, u16),
    Trace(Vec<Arrival>),
}

/// Every queue pair with its depth, the groups that they begin in, and the jobs.
type Filling<'a> = (Vec<(u16, Work<'a>)>, Vec<Group>, Vec<JobTally>);

/// Every queue pair with its depth, the groups that they begin in, and the names of the jobs.
fn work(plan: &Plan, size: u64) -> Result<Filling<'_>, Error> {
    let mut all = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut names = Vec::new();
    match &plan.workload {
        Workload::Jobs(jobs) => {
            for (number, job) in jobs.iter().enumerate() {
                let first = all.len();
                all.extend(
                    (0..job.workers).map(|worker| (job.depth, Work::Job(number, job, worker))),
                );
                names.push(JobTally::of_job(job));
                match groups.last_mut() {
                    Some(group) if !job.after_others => group.hosts.end = all.len(),
                    _ => groups.push(Group {
                        hosts: first..all.len(),
                    }),
                }
            }
        }
        Workload::Trace(trace) => {
            let queues = by_queue(trace, plan.wrap, size)?;
            all.extend(
                queues
                    .into_iter()
                    .map(|arrivals| (plan.trace_depth, Work::Trace(arrivals))),
            );
            names.push(JobTally::new("trace"));
            groups.push(Group {
                hosts: 0..all.len(),
            });
        }
    }
    Ok((all, groups, names))
}

/// The arrivals of each queue that has some.
fn by_queue(trace: &Trace, wrap: bool, size: u64) -> Result<Vec<Vec<Arrival>>, Error> {
    let mut queues: Vec<(u16, Vec<Arrival>)> = Vec::new();
    for arrival in &trace.arrivals {
        let mut arrival = *arrival;
        let op = &mut arrival.op;
        let data = matches!(op.kind, crate::job::Kind::Read | crate::job::Kind::Write);
        if data && op.len > TRANSFER_MAX {
            return Err(Error::TooLarge { len: op.len });
        }
        if op.offset.saturating_add(op.len) > size {
            if !wrap || op.len > size {
                return Err(Error::BeyondEnd {
                    offset: op.offset,
                    len: op.len,
                    size,
                });
            }
            op.offset = (op.offset % size).min(size - op.len);
        }
        match queues.binary_search_by_key(&arrival.queue, |(queue, _)| *queue) {
            Ok(at) => queues[at].1.push(arrival),
            Err(at) => queues.insert(at, (arrival.queue, vec![arrival])),
        }
    }
    Ok(queues.into_iter().map(|(_, arrivals)| arrivals).collect())
}

impl<'a> World<'a> {
    /// A world around a drive of `size` bytes.
    pub(crate) fn new(parameters: &Parameters, size: u64, plan: &'a Plan) -> Result<Self, Error> {
        let size = size / BLOCK * BLOCK;
        let (work, groups, jobs) = work(plan, size)?;
        let depths: Vec<u16> = work.iter().map(|(depth, _)| *depth).collect();
        let medium = drive(parameters, size, plan)?;
        let mut device = bring_up(&medium, size, &depths)?;
        let zones = Table::of(parameters, size);
        if let Workload::Jobs(jobs) = &plan.workload {
            zones::check(jobs, size, zones.is_some())?;
        }
        let namespace = device.namespace(1)?;
        let (data, buffers) = shared_data(&device)?;
        let mut hosts = Vec::new();
        for (depth, work) in work {
            let queue = device.create_queue_pair(depth, false)?;
            let ranges = device.alloc((usize::from(depth) * 16).next_multiple_of(PAGE))?;
            let memory = (data.clone(), ranges);
            hosts.push(match work {
                Work::Job(number, job, worker) => {
                    let seed = seed_of(plan.seed, number, worker);
                    let stream = match &zones {
                        Some(zones) if job.zoned => {
                            Stream::on_zones(job, worker, size, seed, zones.clone())?
                        }
                        _ => Stream::new(job, worker, size, seed)?,
                    };
                    Host::of_job(
                        queue,
                        namespace,
                        memory,
                        plan.cost,
                        (number, job, stream, seed),
                    )
                }
                Work::Trace(arrivals) => {
                    Host::of_trace(queue, namespace, memory, plan.cost, arrivals)
                }
            });
        }
        device.bus().start();
        let done = device.bus().drive(Figures::of);
        Ok(Self {
            device,
            hosts,
            groups,
            next_group: 0,
            plan,
            now: START_NS,
            told: 0,
            fetched: 0,
            posted: 0,
            begun: vec![NEVER; jobs.len()],
            ended: vec![0; jobs.len()],
            jobs,
            series: Series::new(plan.interval_ns, done),
            before: None,
            turns: 0,
            instants: 0,
            wake: NEVER,
            _data: buffers,
        })
    }

    /// Runs until the end of the plan's time, or until all is done.
    pub(crate) fn run(
        mut self,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Ran, Error> {
        let end = START_NS.saturating_add(self.plan.virtual_ns);
        let mut stopped = false;
        self.pass_to(START_NS);
        self.begin_group();
        loop {
            self.instant()?;
            self.begin_groups()?;
            let Some(next) = self.next_instant() else {
                break;
            };
            if next > end || stopped {
                break;
            }
            self.pass_to(next);
            self.instants += 1;
            if self.instants.is_multiple_of(INSTANTS_PER_REPORT) {
                stopped = progress(self.progress()).is_break();
            }
        }
        if !self.all_done() && !stopped {
            self.pass_to(end);
        }
        let ended = self.now;
        let figures = self.figures();
        self.series.end(ended - START_NS, figures);
        for host in self.hosts.iter().filter(|host| !host.is_done()) {
            self.ended[host.job] = ended;
        }
        self.drain()?;
        Ok(self.ran(ended, figures, stopped))
    }

    fn progress(&self) -> Progress {
        Progress {
            virtual_ns: self.now - START_NS,
            commands: self.posted,
        }
    }

    fn all_done(&self) -> bool {
        self.next_group == self.groups.len() && self.hosts.iter().all(host::Host::is_done)
    }

    fn figures(&self) -> Figures {
        self.device.bus().drive(Figures::of)
    }

    /// Moves the clock on, over the ends of intervals and of the warm-up.
    #[inline]
    fn pass_to(&mut self, next: u64) {
        let since = next - START_NS;
        if self.before.is_none() && since >= self.plan.warmup_ns {
            self.before = Some(self.figures());
        }
        if self.series.ends_by(since) {
            let figures = self.figures();
            self.series.end_by(since, figures);
        }
        self.now = next;
    }

    /// The next group begins, as long as all that began before it is done.
    fn begin_groups(&mut self) -> Result<(), Error> {
        while self.next_group < self.groups.len() && self.hosts_begun().all(host::Host::is_done) {
            self.begin_group();
            self.instant()?;
        }
        Ok(())
    }

    fn hosts_begun(&self) -> impl Iterator<Item = &Host> {
        let count = self.next_group.checked_sub(1);
        let count = count.map_or(0, |last| self.groups[last].hosts.end);
        self.hosts[..count].iter()
    }

    fn begin_group(&mut self) {
        let Some(group) = self.groups.get(self.next_group) else {
            return;
        };
        self.next_group += 1;
        for host in &mut self.hosts[group.hosts.clone()] {
            host.begin(self.now);
            self.begun[host.job] = self.begun[host.job].min(self.now);
        }
        self.wake = self.now;
    }

    /// When the clock stops next; never earlier than now.
    #[inline]
    fn next_instant(&self) -> Option<u64> {
        let due = self.device.bus().next_due().unwrap_or(NEVER);
        let next = due.min(self.wake);
        (next != NEVER).then_some(next)
    }

    /// Everything that happens at this instant.
    #[inline]
    fn instant(&mut self) -> Result<(), Error> {
        let mut turn_is_due = self.is_due();
        let mut turns = 0;
        loop {
            let mut worked = false;
            if turn_is_due {
                worked = self.turn();
                turns += 1;
            }
            let rung = self.step_hosts()?;
            // What the drive has no room for waits for the next instant, unless this turn has made some.
            let held = self.told - self.posted > u64::from(self.in_drive());
            turn_is_due = rung || worked && held || self.is_due();
            if !turn_is_due {
                return Ok(());
            }
            if turns > TURNS_MAX {
                return Err(self.stuck());
            }
        }
    }

    #[inline]
    fn is_due(&self) -> bool {
        let due = self.device.bus().next_due();
        due.is_some_and(|due| due <= self.now)
    }

    fn in_drive(&self) -> u32 {
        self.device.bus().drive(Channel::in_flight)
    }

    /// A turn of the engine; whether it found something to do.
    #[inline]
    fn turn(&mut self) -> bool {
        let turn = self.device.bus().turn_at(self.now);
        self.turns += 1;
        self.fetched += u64::from(turn.commands);
        self.posted += turn.completions;
        if turn.completions > 0 {
            for host in &mut self.hosts {
                host.look = host.in_flight() > 0;
            }
        }
        turn.worked
    }

    /// Whoever has something to do does it; whether the drive was told of commands.
    #[inline]
    fn step_hosts(&mut self) -> Result<bool, Error> {
        let World {
            hosts,
            jobs,
            ended,
            series,
            plan,
            now,
            ..
        } = self;
        let measured = plan.warmup_ns..=plan.virtual_ns;
        let (mut rung, mut was_aside, mut wake) = (0, false, NEVER);
        for host in hosts {
            if host.look || host.wake <= *now {
                let job = host.job;
                let tally = &mut jobs[job];
                let stepped = host.step(*now, |finished| {
                    note(&finished, &measured, tally, series);
                    ended[job] = ended[job].max(finished.at);
                })?;
                rung += u64::from(stepped.rung);
                was_aside |= stepped.was_aside;
            }
            wake = wake.min(host.wake);
        }
        self.wake = wake;
        self.told += rung;
        if was_aside {
            // Whether it found something shows in the turn that follows.
            let _ = self.device.bus().look_at_doorbells();
        }
        Ok(rung > 0)
    }

    /// Waits for what is in flight, which counts no more.
    fn drain(&mut self) -> Result<(), Error> {
        self.hosts.iter_mut().for_each(host::Host::end);
        self.next_group = self.groups.len();
        loop {
            self.instant()?;
            if self.hosts.iter().all(|host| host.in_flight() == 0) {
                return Ok(());
            }
            let next = self.next_instant().ok_or_else(|| self.stuck())?;
            self.now = next;
        }
    }

    #[cold]
    fn stuck(&self) -> Error {
        Error::Stuck {
            at_ns: self.now - START_NS,
            told: self.told,
            fetched: self.fetched,
            posted: self.posted,
        }
    }

    fn ran(self, ended: u64, figures: Figures, stopped: bool) -> Ran {
        let measured = START_NS + self.plan.warmup_ns;
        let times = self.begun.iter().zip(&self.ended).map(|(begun, last)| {
            let from = (*begun).max(measured);
            // One that goes on until the end has all of it.
            (*last).min(ended).saturating_sub(from)
        });
        let before = self.before.unwrap_or_default();
        Ran {
            elapsed_ns: ended.saturating_sub(measured),
            runtime_ns: times.collect(),
            jobs: self.jobs,
            points: self.series.points,
            drive: figures.since(&before),
            commands: self.posted,
            turns: self.turns,
            instants: self.instants,
            stopped,
        }
    }
}

/// Counts a command that is done, where it is to be.
#[inline]
fn note(
    finished: &Finished,
    measured: &std::ops::RangeInclusive<u64>,
    tally: &mut JobTally,
    series: &mut Series,
) {
    let at = finished.at - START_NS;
    if at > *measured.end() {
        return;
    }
    series.count(finished);
    if at >= *measured.start() {
        tally.count(finished);
    }
}

impl Plan {
    /// A plan with fio's jobs or a trace, for so long.
    #[must_use]
    pub fn new(workload: Workload, virtual_ns: u64, seed: u64) -> Self {
        Self {
            workload,
            virtual_ns,
            warmup_ns: 0,
            interval_ns: (virtual_ns / 100).max(1),
            seed,
            cost: HostCost::default(),
            wrap: false,
            trace_depth: 1023,
            prepared: false,
        }
    }
}
