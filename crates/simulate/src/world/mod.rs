//! The clock of a simulation, and the order of events.
//!
//! At every instant everything happens that can: the drive completes what is due, hosts see the
//! completions and submit more, the engine fetches that. A turn takes no time. When nothing is left
//! to do, the clock jumps to the next instant with an event: on the drive, or because a host waits
//! for it.

mod bring_up;
mod work;

use std::ops::ControlFlow;

use bring_up::{PAGE, bring_up, drive, shared_data};
use driver::Device;
use memory::Buffer;
use model::Parameters;
use port::Channel;
use work::{Work, check_kinds, telling, work};

use crate::bus::Virtual;
use crate::host::{ASIDE_LEN, BLOCK, Finished, HostCost, Means, NEVER};
use crate::stream::{Stream, seed_of};
use crate::tally::{Figures, JobTally, Series};
use crate::zones::{self, Table};
use crate::{Error, Plan, Progress, Ran, Workload, host};

type Host = host::Host<Virtual>;

/// Start of a simulation. Later than the end of the controller's bring-up, which therefore has no
/// influence.
const START_NS: u64 = 1_000_000_000;
/// Instants between two reports of progress.
const INSTANTS_PER_REPORT: u64 = 1 << 16;
/// Number of turns at one instant after which the simulation counts as stuck: far more than
/// commands can be in flight.
const TURNS_MAX: u64 = 1 << 24;

/// Queue pairs that begin together.
struct Group {
    hosts: std::ops::Range<usize>,
}

/// State of the simulation.
pub(crate) struct World<'a> {
    device: Device<Virtual>,
    hosts: Vec<Host>,
    groups: Vec<Group>,
    /// Index of the first group that has not begun.
    next_group: usize,
    plan: &'a Plan,
    now: u64,
    /// Commands announced to the drive, and those that it fetched and posted.
    told: u64,
    fetched: u64,
    posted: u64,
    jobs: Vec<JobTally>,
    begun: Vec<u64>,
    ended: Vec<u64>,
    series: Series,
    /// The drive's counters at the start of the measurement.
    before: Option<Figures>,
    turns: u64,
    instants: u64,
    /// Earliest time at which a host acts by itself.
    wake: u64,
    /// Whether the end of one job may end others.
    exits: bool,
    /// Completion time of each arrival, if requested; all arrivals use one queue.
    done: Vec<u64>,
    /// The memory of all data pointers.
    _data: [Buffer; 2],
}

impl<'a> World<'a> {
    /// A world with a drive of `size` bytes.
    pub(crate) fn new(parameters: &Parameters, size: u64, plan: &'a Plan) -> Result<Self, Error> {
        // Otherwise keys and values would have to be stored.
        let is_told = matches!(parameters, Parameters::Kv(_));
        Self::with_drive(parameters, size, plan, is_told)
    }

    /// The same; `is_told`: the drive's hosts choose its model's operations.
    fn with_drive(
        parameters: &Parameters,
        size: u64,
        plan: &'a Plan,
        is_told: bool,
    ) -> Result<Self, Error> {
        let size = size / BLOCK * BLOCK;
        check_kinds(plan, parameters)?;
        let telling = is_told.then(|| telling(parameters, plan));
        let (work, groups, jobs) = work(plan, size)?;
        let depths: Vec<u16> = work.iter().map(|(depth, _)| *depth).collect();
        let medium = drive(parameters, size, (plan, is_told))?;
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
            let aside = usize::from(depth) * ASIDE_LEN;
            let means = Means {
                data: data.clone(),
                aside: device.alloc(aside.next_multiple_of(PAGE))?,
                telling: telling.clone(),
                cost: plan.cost,
            };
            hosts.push(match work {
                Work::Job(number, job, worker) => {
                    let seed = seed_of(plan.seed, number, worker);
                    let stream = match &zones {
                        Some(zones) if job.zoned => {
                            Stream::on_zones(job, worker, size, seed, zones.clone())?
                        }
                        _ => Stream::new(job, worker, size, seed)?,
                    };
                    Host::of_job(queue, namespace, means, (number, job, stream, seed))
                }
                Work::Trace(arrivals) => Host::of_trace(queue, namespace, means, arrivals),
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
            exits: matches!(&plan.workload, Workload::Jobs(jobs) if jobs.iter().any(|job| job.exit_all)),
            done: Vec::new(),
            _data: buffers,
        })
    }

    /// Submits the arrivals of one queue to a fresh drive, each at its time. Returns the completion
    /// time of each, from the same start; 0: never.
    pub(crate) fn replay(
        parameters: &Parameters,
        size: u64,
        plan: &'a Plan,
    ) -> Result<Vec<u64>, Error> {
        let mut world = Self::with_drive(parameters, size, plan, true)?;
        if let Workload::Trace(trace) = &plan.workload {
            world.done = vec![START_NS; trace.arrivals.len()];
        }
        world.go_on(u64::MAX, &mut |_| ControlFlow::Continue(()))?;
        Ok(world.done.iter().map(|at| at - START_NS).collect())
    }

    /// Runs until the end of the plan's time, or until all work is done.
    pub(crate) fn run(
        mut self,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<Ran, Error> {
        let end = START_NS.saturating_add(self.plan.virtual_ns);
        let stopped = self.go_on(end, progress)?;
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

    /// Runs until `end`, or until all work is done; returns whether it was stopped.
    fn go_on(
        &mut self,
        end: u64,
        progress: &mut dyn FnMut(Progress) -> ControlFlow<()>,
    ) -> Result<bool, Error> {
        let mut stopped = false;
        self.pass_to(START_NS);
        self.begin_group();
        loop {
            self.instant()?;
            if self.exits {
                self.exit_groups();
            }
            self.begin_groups()?;
            let Some(next) = self.next_instant() else {
                return Ok(stopped);
            };
            if next > end || stopped {
                return Ok(stopped);
            }
            self.pass_to(next);
            self.instants += 1;
            if self.instants.is_multiple_of(INSTANTS_PER_REPORT) {
                stopped = progress(self.progress()).is_break();
            }
        }
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

    /// Advances the clock, over the ends of intervals and of the warm-up.
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

    /// Starts the next group once all earlier ones are done.
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

    /// Ends the jobs of reporting groups of which a worker is done, where that ends the group.
    fn exit_groups(&mut self) {
        let Workload::Jobs(jobs) = &self.plan.workload else {
            return;
        };
        let mut group = 0;
        let groups = jobs.iter().enumerate().map(|(number, job)| {
            group += usize::from(number > 0 && (job.new_group || job.after_others));
            group
        });
        let groups: Vec<usize> = groups.collect();
        let exits = |host: &&Host| jobs[host.job].exit_all && host.is_done();
        let ended: Vec<usize> = self
            .hosts
            .iter()
            .filter(exits)
            .map(|host| groups[host.job])
            .collect();
        for host in &mut self.hosts {
            if ended.contains(&groups[host.job]) && host.has_begun() {
                host.end();
            }
        }
        let wakes = self.hosts.iter().map(|host| host.wake);
        self.wake = wakes.min().unwrap_or(NEVER);
    }

    /// The next instant with an event; never earlier than now.
    #[inline]
    fn next_instant(&self) -> Option<u64> {
        let due = self.device.bus().next_due().unwrap_or(NEVER);
        let next = due.min(self.wake);
        (next != NEVER).then_some(next)
    }

    /// Performs all events of this instant.
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
            // Commands without room in the drive wait for the next instant, unless this turn has
            // made room.
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

    /// A turn of the engine; returns whether it had work.
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

    /// Lets all hosts act that have work; returns whether they announced commands to the drive.
    #[inline]
    fn step_hosts(&mut self) -> Result<bool, Error> {
        let World {
            hosts,
            jobs,
            ended,
            series,
            plan,
            now,
            done,
            ..
        } = self;
        let measured = plan.warmup_ns..=plan.virtual_ns;
        let (mut rung, mut was_aside, mut wake) = (0, false, NEVER);
        for host in hosts {
            if host.look || host.wake <= *now {
                let job = host.job;
                let tally = &mut jobs[job];
                let counts_from = host.counts_from;
                let stepped = host.step(*now, |finished| {
                    let counts = finished.at >= counts_from;
                    note(&finished, &measured, counts.then_some(&mut *tally), series);
                    if let Some(done) = done.get_mut(finished.number) {
                        *done = finished.at;
                    }
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
            // The following turn shows whether it found something.
            let _ = self.device.bus().look_at_doorbells();
        }
        Ok(rung > 0)
    }

    /// Waits for commands in flight, which do not count any more.
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
        let ramps = |number: usize| match &self.plan.workload {
            Workload::Jobs(jobs) => match &jobs[number] {
                job if job.ramp_ns > 0 => job.start_delay_ns.saturating_add(job.ramp_ns),
                _ => 0,
            },
            Workload::Trace(_) => 0,
        };
        let times = self.begun.iter().zip(&self.ended).enumerate();
        let times = times.map(|(number, (begun, last))| {
            let from = begun.saturating_add(ramps(number)).max(measured);
            // A job that runs until the end gets the whole time.
            (*last).min(ended).saturating_sub(from)
        });
        let before = self.before.unwrap_or_default();
        let unsubmitted = match &self.plan.workload {
            // all that was submitted is completed by now
            Workload::Trace(trace) => (trace.arrivals.len() as u64).saturating_sub(self.posted),
            Workload::Jobs(_) => 0,
        };
        Ran {
            unsubmitted,
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

/// Counts a completed command, if it is measured.
#[inline]
fn note(
    finished: &Finished,
    measured: &std::ops::RangeInclusive<u64>,
    tally: Option<&mut JobTally>,
    series: &mut Series,
) {
    let at = finished.at - START_NS;
    if at > *measured.end() {
        return;
    }
    series.count(finished);
    if at >= *measured.start()
        && let Some(tally) = tally
    {
        tally.count(finished);
    }
}

impl Plan {
    /// A plan with fio's jobs or a trace, for this duration.
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
            initial: model::Initial::Fresh,
            state: None,
        }
    }
}
