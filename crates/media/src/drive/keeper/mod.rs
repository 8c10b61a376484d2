//! The keeper of a drive: performs everything on the drive that may take time, on its own thread.
//!
//! The keeper owns the device. It creates and deletes queue pairs, maps hosts' memory for the drive
//! and unmaps it, and reopens the drive after a loss. Channels send [`Job`]s and receive [`News`];
//! neither side waits for the other.
//!
//! Invariants:
//! - A queue pair belongs to a channel or to the keeper. The keeper abandons a queue pair that a
//!   channel returns: its commands in flight are over when the channel receives [`News::Over`],
//!   because the drive has deleted the queue, or was reset ([`ends`]), or is lost. A target over a
//!   network that is lost may execute them until it notices the end of its connections.
//! - The keeper tries to reopen a lost drive once a second. It must then be the same namespace of
//!   the same drive, with no lower limits ([`Facts::holds`]). A drive that a former process of the
//!   server had is a lost one that is reopened at once: no command reaches it before that, and so
//!   none before it was reset.
//! - Memory is shared region by region ([`super::windows`]).
//!
//! Not included: the keeper handles no I/O command. A stalled vfio-user server may still execute
//! earlier requests when it continues: see decision 24.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use driver::bus::Bus;
use driver::{Device, DriverError, Shutdown};
use memory::{Iova, Lent};
use port::DriveReport;

use super::clock::Clock;
use super::counts::Counting;
use super::facts::Facts;
use super::message::{Job, News};
use super::op::HANG_TICKS;
use super::queue::Queue;
use super::report::{self, ShownPage};
use super::warden::{Tell, Warden};
use super::windows::{Windows, is_silence};

mod client;
mod ends;
mod relays;
mod wakes;

use self::client::Client;
use self::relays::Relays;
use self::wakes::connect;

/// Ticks between two attempts to reopen a lost drive.
const RETRY_TICKS: u32 = 4;
/// Ticks between two health reports: 10 s.
pub(super) const REPORT_TICKS: u32 = 40;
/// Ticks after the start of a process in which it tries in each tick to reopen a drive that the
/// process before it had: as long as commands wait for it.
const AWAITED_TICKS: u32 = HANG_TICKS;
/// Ticks that the drive has for commands in memory that their host has unmapped, before their queue
/// is deleted: half the time after which that host gets its answer in any case.
const TAKEN_BACK_TICKS: u32 = 8;

/// Function that reopens a lost drive.
pub type Reopen<B> = Box<dyn FnMut() -> Result<Device<B>, DriverError> + Send>;

/// The keeper of a drive.
pub struct Keeper<B: Bus> {
    name: String,
    facts: Arc<Facts>,
    device: Option<Device<B>>,
    /// Whether a former process of this server had the drive, and no attempt to open it has failed.
    is_awaited: bool,
    /// Dropped when no command of a former process is at the drive any more.
    fence: Option<Sender<()>>,
    reopen: Reopen<B>,
    /// Has another process close what it keeps of the drive.
    release: Option<Box<dyn Fn() + Send>>,
    jobs: Receiver<Job<B>>,
    ticks: Arc<AtomicU32>,
    clients: Vec<Client<B>>,
    relays: Relays<B>,
    windows: Windows,
    /// For a drive whose mappings the keeper can remove whatever the drive does: the warden, until
    /// it gets a thread, and the channel to it.
    warden: Option<Warden<B>>,
    tell_warden: Option<Tell<B>>,
    /// Requested memory, and the time of the request.
    asked: VecDeque<(u32, Weak<Lent>)>,
    now: u32,
    /// Time of the next attempt to reopen a lost drive.
    retry_at: u32,
    /// The last reason for which it could not be reopened.
    why_away: String,
    /// Time up to which a drive of a former process is tried in each tick.
    retries_until: u32,
    /// Log pages of the drive that hosts may read.
    shown: Vec<ShownPage>,
    /// The latest health report, and the time of the next.
    report: Arc<DriveReport>,
    report_at: u32,
    /// The last reason for which there was none.
    why_mute: String,
    counting: Arc<Counting>,
}

impl<B: Bus> Keeper<B> {
    pub(super) fn new(
        name: String,
        facts: Arc<Facts>,
        device: Option<Device<B>>,
        reopen: Reopen<B>,
        (jobs, ticks): (Receiver<Job<B>>, Arc<AtomicU32>),
        counting: Arc<Counting>,
    ) -> Self {
        Keeper {
            name,
            facts,
            is_awaited: device.is_none(),
            fence: None,
            device,
            reopen,
            release: None,
            jobs,
            ticks,
            clients: Vec::new(),
            relays: Relays::default(),
            windows: Windows::default(),
            warden: None,
            tell_warden: None,
            asked: VecDeque::new(),
            now: 0,
            retry_at: 0,
            why_away: String::new(),
            retries_until: 0,
            shown: Vec::new(),
            report: Arc::default(),
            report_at: 0,
            why_mute: String::new(),
            counting,
        }
    }

    /// Makes these log pages of the drive readable for hosts.
    #[must_use]
    pub fn showing(mut self, pages: Vec<ShownPage>) -> Self {
        self.shown = pages;
        self
    }

    /// The warden, which unmaps memory while the keeper waits for the drive; `None` if the bus
    /// cannot do that. To be run on a thread.
    pub(super) fn take_warden(&mut self) -> Option<Warden<B>> {
        self.warden.take()
    }

    /// Unmaps memory with a [`Warden`], where the drive's bus can revoke it.
    #[must_use]
    pub(super) fn with_warden(mut self, can_revoke: bool) -> Self {
        if can_revoke {
            (self.tell_warden, self.warden) = Some(Warden::new()).unzip();
        }
        self
    }

    /// Drops `fence` when no command of a former process is at the drive any more: it was reset, or
    /// its server has ended.
    #[must_use]
    pub(super) fn fenced(mut self, fence: Sender<()>) -> Self {
        self.fence = Some(fence);
        self
    }

    /// A drive that is lost is released by its other processes, too: the kernel resets it, or
    /// removes it, when all have closed it.
    #[must_use]
    pub(super) fn released_by(mut self, release: Box<dyn Fn() + Send>) -> Self {
        self.release = Some(release);
        self
    }

    /// The clock, which runs while [`Self::run`] is busy: to be run on another thread.
    pub(super) fn clock(&self) -> Clock {
        Clock(Arc::downgrade(&self.ticks))
    }

    /// Runs the keeper until the drive has no more users, then shuts the drive down. The [`Clock`],
    /// which runs with the same `tick`, provides the time.
    pub fn run(mut self, tick: Duration) {
        if self.is_awaited {
            self.open_again();
            // Before a channel is there, so that its hosts find the report.
            self.look_at_health();
        }
        loop {
            let job = self.jobs.recv_timeout(tick);
            self.set_time(self.ticks.load(Ordering::Relaxed));
            match job {
                Ok(job) => self.handle(job),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if let Some(mut device) = self.device.take()
            && let Err(error) = device.shutdown(Shutdown::Normal)
        {
            tracing::debug!(drive = self.name, "a drive was not shut down: {error}");
        }
    }

    /// Does the work of one tick, a quarter of a second, for callers without a thread.
    pub fn look(&mut self, now: u32) {
        if let Some(warden) = &mut self.warden {
            warden.look(now);
        }
        while let Ok(job) = self.jobs.try_recv() {
            self.handle(job);
        }
        self.ticks.store(now, Ordering::Relaxed);
        self.set_time(now);
    }

    /// Gives the drive turns of its own, if it runs on this thread.
    #[cfg(test)]
    pub(super) fn turn_drive(&self) {
        let device = self.device.as_ref().expect("it is not lost");
        (0..4).for_each(|_| device.bus().turn());
    }

    /// Disables the drive, as another driver would.
    #[cfg(test)]
    pub(super) fn disable_drive(&self) {
        let device = self.device.as_ref().expect("it is not lost");
        let written = device.bus().write32(nvme_spec::registers::CC, 0);
        written.expect("its registers are there");
    }

    /// The drive's bus.
    #[cfg(test)]
    pub(super) fn bus(&self) -> &B {
        self.device.as_ref().expect("it is not lost").bus()
    }

    /// The drive's clock in nanoseconds.
    #[cfg(test)]
    pub(super) fn drive_time(&self) -> u64 {
        self.device.as_ref().expect("it is not lost").bus().now_ns()
    }

    /// The windows as sent to channels.
    #[cfg(test)]
    pub(super) fn shared(&self) -> Arc<[super::windows::Window]> {
        self.windows.table()
    }

    /// Sets the tick, and does the work that is due.
    fn set_time(&mut self, now: u32) {
        if now == self.now {
            return;
        }
        self.now = now;
        match &self.device {
            // Polling channels detect a loss themselves; sleeping ones do not.
            Some(device) => {
                if let Err(error) = device.bus().check_alive() {
                    self.lose(&error.to_string());
                }
            }
            None if now >= self.retry_at => self.open_again(),
            None => {}
        }
        self.close_windows();
        self.open_windows();
        if self.windows.is_kept_from_host(now, TAKEN_BACK_TICKS) {
            self.tell_all(|| News::TakenBack);
        }
        self.look_at_health();
    }

    fn handle(&mut self, job: Job<B>) {
        match job {
            Job::Open {
                channel,
                depth,
                news,
                wake,
            } => {
                self.clients.push(Client {
                    channel,
                    depth,
                    news,
                    wake,
                    is_served: false,
                    vector: None,
                    sleeps: false,
                });
                self.tell_windows();
                self.tell_all(|| News::Report(self.report.clone()));
                self.serve();
            }
            Job::Replace {
                channel,
                queue,
                why,
            } => self.replace(channel, *queue, &why),
            Job::Close {
                channel,
                queue,
                pins,
            } => {
                self.clients.retain(|client| client.channel != channel);
                if let Some(queue) = queue {
                    self.part_with(channel, *queue, Some(pins));
                }
            }
            Job::OpenRelay { duty, orders, its } => self.open_relay(duty, orders, its),
            Job::Returned { channel, duty } => self.returned(channel, duty),
            Job::CloseRelay { duty } => self.close_relay(duty),
            Job::Wake { channel } => self.wake(channel),
            Job::Quiet { channel } => self.quiet(channel),
            Job::Abort { qid, cids } => self.abort(qid, &cids),
            Job::Share(regions) => {
                let now = self.now;
                self.asked
                    .extend(regions.into_iter().map(|lent| (now, lent)));
            }
            Job::Erase {
                offset,
                len,
                answer,
            } => {
                let _ = answer.try_send(self.erase(offset, len));
            }
            Job::Flush(answer) => {
                // The caller may have stopped waiting.
                let _ = answer.try_send(self.flush());
            }
        }
    }

    /// Creates a queue pair for every channel without one, as soon as the drive has one free.
    fn serve(&mut self) {
        if self.relays.is_parting() {
            return;
        }
        for at in 0..self.clients.len() {
            if self.clients[at].is_served {
                continue;
            }
            let Some(device) = &mut self.device else {
                return;
            };
            let client = &mut self.clients[at];
            match client.make_queue(device, &mut self.relays) {
                Ok(mut queue) => {
                    client.is_served = true;
                    client.vector = queue.pair.interrupt_vector();
                    if client.sleeps
                        && let Some(wakes) = connect(device, client, &self.relays)
                    {
                        queue.wakes = wakes;
                    }
                    client.tell(News::Queue(Box::new(queue)));
                }
                Err(error) => return self.lose(&format!("it makes no queue: {error}")),
            }
        }
    }

    /// Asks the drive to abort commands. If it does not, their channel abandons their queue.
    fn abort(&mut self, qid: u16, cids: &[u16]) {
        tracing::info!(
            drive = self.name,
            queue = qid,
            commands = cids.len(),
            "a drive is asked to abort what it does not answer"
        );
        for cid in cids {
            let device = self.device.as_mut();
            if let Some(Err(error)) = device.map(|device| device.post_abort(qid, *cid)) {
                tracing::debug!(drive = self.name, "it cannot be asked: {error}");
                return;
            }
        }
    }

    /// Gives up a queue pair: its commands end, and the channel gets a new one.
    fn replace(&mut self, channel: u32, queue: Queue<B>, why: &str) {
        tracing::warn!(
            drive = self.name,
            queue = queue.pair.qid(),
            "a queue of a drive is abandoned, its commands end as interrupted: {why}"
        );
        Counting::add(&self.counting.queues_given_up, 1);
        self.part_with(channel, queue, None);
    }

    /// Whether the drive accepts admin commands. This avoids waiting for the timeout of an admin
    /// command: a drive whose server stalls is lost; a drive with a fatal error, or one that
    /// another driver has reset, is reset.
    fn is_in_order(&mut self) -> bool {
        let Some(device) = &self.device else {
            return false;
        };
        match device.status() {
            Ok(status) if status.rdy() => return true,
            Ok(_) => self.reset("it was disabled by another program"),
            Err(error @ DriverError::ControllerFatal { .. }) => self.reset(&error.to_string()),
            Err(error) => self.lose(&error.to_string()),
        }
        false
    }

    /// Resets the drive; if that fails, the drive is lost.
    fn reset(&mut self, why: &str) {
        let Some(device) = &mut self.device else {
            return;
        };
        tracing::warn!(drive = self.name, "a drive is reset: {why}");
        match device.reset() {
            Ok(()) => {
                Counting::add(&self.counting.resets, 1);
                self.tell_all(|| News::Ended);
            }
            Err(error) => self.lose(&format!("it cannot be reset: {error}")),
        }
    }

    /// Marks the drive as lost.
    pub(super) fn lose(&mut self, why: &str) {
        tracing::error!(
            drive = self.name,
            "a drive is lost: {why}; it is tried again every second"
        );
        self.take_everything_back();
        self.counting.lost();
        // First the others, so that it is closed here.
        if let Some(release) = &self.release {
            release();
        }
        self.device = None;
        self.retry_at = self.now + RETRY_TICKS;
        self.tell_windows();
        self.tell_all(|| News::Ended);
    }

    /// Unmaps all host memory from a drive that is about to be lost, if that is possible without
    /// the drive.
    fn take_everything_back(&mut self) {
        let Some(device) = &self.device else { return };
        let bus = device.bus();
        let unshare = |at, len| bus.unshare(at, len).is_ok();
        // The mappings of a server that is gone have gone with it.
        let gone = |_, _| true;
        let left = match bus.check_alive() {
            _ if bus.can_revoke() => self.windows.forget(Some(&unshare)),
            Err(DriverError::Gone) => self.windows.forget(Some(&gone)),
            _ => self.windows.forget(None),
        };
        if left > 0 {
            tracing::error!(
                drive = self.name,
                "what the drive was asked for before may still be done to {left} bytes of hosts' memory: end its server"
            );
        }
    }

    fn open_again(&mut self) {
        self.retry_at = self.now + RETRY_TICKS;
        let opened = (self.reopen)().and_then(|mut device| {
            let facts = Facts::learn(&mut device, Some(self.facts.nsid))?;
            self.facts.holds(&facts).map_err(|what| {
                DriverError::Unsupported(format!(
                    "it has another {what}: bring the former drive back, or restart the server"
                ))
            })?;
            Ok(device)
        });
        // Without a server nothing executes the commands of the last process. One that closes the
        // connection may still do so.
        let has_passed = opened
            .as_ref()
            .map_or_else(DriverError::is_without_server, |_| true);
        if has_passed {
            self.fence = None;
        }
        match opened {
            Ok(device) => {
                self.why_away.clear();
                if std::mem::take(&mut self.is_awaited) {
                    tracing::info!(drive = self.name, "a drive of the last process continues");
                } else {
                    tracing::info!(drive = self.name, "a drive is back");
                }
                let (bus, mut silent) = (device.bus(), None);
                let open = self.windows.open_again(|lent, at| {
                    if silent.is_some() {
                        return false;
                    }
                    let shared = bus.lend(lent, Iova(at));
                    silent = shared
                        .as_ref()
                        .err()
                        .filter(|e| is_silence(e))
                        .map(ToString::to_string);
                    shared.is_ok()
                });
                if let Some(tell) = &self.tell_warden {
                    open.iter()
                        .for_each(|opening| tell.opened(device.shared_bus(), opening));
                }
                self.device = Some(device);
                if let Some(why) = silent {
                    return self.lose(&why);
                }
                self.counting.is_there.store(true, Ordering::Relaxed);
                self.report_at = self.now;
                self.tell_windows();
                self.serve();
            }
            Err(error) if self.is_awaited => {
                self.is_awaited = false;
                self.retries_until = self.now + AWAITED_TICKS;
                self.retry_at = self.now + 1;
                self.counting.lost();
                tracing::error!(
                    drive = self.name,
                    "a drive that the last process had is lost: {error}; it is tried again for 4 s, and then every second"
                );
            }
            Err(error) => {
                if self.now < self.retries_until {
                    self.retry_at = self.now + 1;
                }
                // Each reason once: a drive may be away for days.
                let why = error.to_string();
                if why != self.why_away {
                    tracing::warn!(drive = self.name, "a drive is not back: {why}");
                    self.why_away = why;
                }
            }
        }
    }

    /// Maps requested memory that still exists. A drive that does not answer is lost: each further
    /// region would wait for as long, and all users of the drive with it.
    fn open_windows(&mut self) {
        let (mut changed, mut silent) = (false, None);
        // Regions may end before they are shared; while the drive is lost, only this removal
        // happens.
        self.asked.retain(|(_, lent)| lent.strong_count() > 0);
        let Some(device) = &self.device else { return };
        while silent.is_none()
            && let Some((since, lent)) = self.asked.pop_front()
        {
            if since == self.now {
                self.asked.push_front((since, lent));
                break;
            }
            let name = &self.name;
            let opened = self.windows.open(&lent, |region, at| {
                let (_, bytes) = region.as_raw();
                let shared = device.bus().lend(region, Iova(at));
                match &shared {
                    Ok(()) => {
                        tracing::debug!(drive = name, bytes, "a drive reaches memory of a host")
                    }
                    Err(error) if is_silence(error) => silent = Some(error.to_string()),
                    Err(error) => tracing::info!(
                        drive = name,
                        bytes,
                        "memory of a host is not shared with a drive, its data is copied: {error}"
                    ),
                }
                shared.is_ok()
            });
            if let Some((opening, tell)) = opened.as_ref().zip(self.tell_warden.as_ref()) {
                tell.opened(device.shared_bus(), opening);
            }
            changed |= opened.is_some();
        }
        match silent {
            Some(why) => self.lose(&why),
            None if changed => self.tell_windows(),
            None => {}
        }
    }

    /// Unmaps memory that no view and no command uses any more.
    fn close_windows(&mut self) {
        let device = self.device.as_ref();
        // A lost drive has no open windows.
        let unshare = |at, len| device.map_or(Ok(()), |device| device.bus().unshare(at, len));
        if let Err(error) = self.windows.close_unused(unshare) {
            self.lose(&format!("it does not give memory back: {error}"));
        }
    }

    /// Reads the drive's health report, if it is due.
    fn look_at_health(&mut self) {
        if self.now < self.report_at {
            return;
        }
        self.report_at = self.now + REPORT_TICKS;
        if !self.is_in_order() {
            return;
        }
        let Some(device) = &mut self.device else {
            return;
        };
        match report::ask(device, &self.shown) {
            Ok(report) if report == *self.report => {}
            Ok(report) => {
                self.counting.reported(&report);
                self.report = Arc::new(report);
                self.tell_all(|| News::Report(self.report.clone()));
            }
            Err(DriverError::Gone) => self.lose("its server is gone"),
            // Its users have waited as long as the keeper has, and would again.
            Err(error @ DriverError::Timeout { .. }) => self.lose(&error.to_string()),
            Err(error) => {
                let why = error.to_string();
                if why != self.why_mute {
                    tracing::warn!(
                        drive = self.name,
                        "a drive does not report its health: {why}"
                    );
                    self.why_mute = why;
                }
            }
        }
    }

    fn tell_windows(&self) {
        let windows = self.windows.table();
        self.tell_all(|| News::Windows(windows.clone()));
    }

    fn tell_all(&self, news: impl Fn() -> News<B>) {
        self.clients.iter().for_each(|client| client.tell(news()));
    }
}
