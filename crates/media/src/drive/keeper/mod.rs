//! Who has the drive: everything about it that may take time happens here, on a thread of its own.
//!
//! The keeper owns the device. It makes and deletes queue pairs, shows the drive hosts' memory and
//! takes that back, and opens the drive anew where it was lost. Channels ask by [`Job`]s and are
//! told by [`News`]; neither side waits for the other.
//!
//! Invariants:
//! - A queue pair is a channel's or the keeper's. One that comes back is given up: what is in
//!   flight in it is over when the channel is told [`News::Over`], because the drive has deleted
//!   the queue, or was reset, or is lost.
//! - A drive that is lost is opened anew once a second. What it then says of itself must be what it
//!   said before.
//! - Memory is shared region by region ([`super::windows`]).
//!
//! What it does NOT do: it touches no command. A vfio-user server that stands still cannot be kept
//! from what it was asked for before: see decision 24.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender};
use std::sync::{Arc, Weak};
use std::time::Duration;

use driver::bus::Bus;
use driver::{Device, DriverError, QueuePair, Shutdown};
use memory::{Bell, Buffer, EventFd, Iova, Lent, ViewPins};
use port::DriveReport;

use super::clock::Clock;
use super::counts::Counting;
use super::erase;
use super::facts::Facts;
use super::relay::{Duty, Order, Sleeper};
use super::report::{self, ShownPage};
use super::warden::{Tell, Warden};
use super::windows::{Window, Windows};

mod client;
mod relays;
mod wakes;

use relays::{Made, Relays};
use wakes::connect;

use self::client::Client;

/// The keeper's time. Memory that is asked for is shared after one, so that one that is mapped for
/// a moment alone, as a firmware does, is not.
pub(super) const TICK: Duration = Duration::from_millis(250);
/// Ticks between two tries to open a drive that is lost.
const RETRY_TICKS: u32 = 4;
/// Ticks between two looks at the drive's health: 10 s.
pub(super) const REPORT_TICKS: u32 = 40;
/// Bound on a command of the keeper's own that takes drives seconds.
pub(super) const SLOW_TIMEOUT: Duration = Duration::from_secs(20);
/// Ticks that the drive has for commands in memory that their host has taken back, before their
/// queue is deleted: half of those after which that host gets its answer in any case.
const TAKEN_BACK_TICKS: u32 = 8;
/// Commands of a queue pair in a tick from which on a reactor that does not sleep has much to do:
/// an interrupt for each is more than it costs to switch them off, and on again.
pub(super) const BUSY_COMMANDS: u32 = 256;
/// Buffers of a queue pair for data that the drive cannot reach, and bytes of each.
pub(super) const BOUNCES: u16 = 32;
pub(super) const BOUNCE_BYTES: u32 = 64 << 10;

/// A queue pair with the memory that its commands may use. That goes with it, because a drive may
/// write there as long as it has the queue.
pub(super) struct Queue<B: Bus> {
    pub(super) pair: QueuePair<B>,
    pub(super) bounce: Vec<Buffer>,
    /// A page that stays zero.
    pub(super) zeros: Buffer,
    pub(super) wakes: Wakes,
    /// Its completions are brought by a relay: who sleeps says so here.
    pub(super) bell: Option<Arc<Bell>>,
}

/// Whether completions of a queue pair wake its channel's reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wakes {
    /// Its interrupt does that, where it is asked for.
    Can,
    /// It does.
    Does,
    /// The drive has no interrupt for it.
    Cannot,
}

/// What a channel asks for.
pub(super) enum Job<B: Bus> {
    /// A queue pair for a new channel, in which so many commands may be in flight.
    Open {
        channel: u32,
        depth: u16,
        news: Sender<News<B>>,
        wake: EventFd,
    },
    /// Another one: something is wrong with this one.
    Replace {
        channel: u32,
        queue: Box<Queue<B>>,
        why: String,
    },
    /// None any more. What hosts lent for commands in flight is kept until the queue is gone.
    Close {
        channel: u32,
        queue: Option<Box<Queue<B>>>,
        pins: ViewPins,
    },
    /// That the drive gives commands up, so that its other ones need not end. There is no answer
    /// but theirs.
    Abort { qid: u16, cids: Vec<u16> },
    /// Interrupts of its queue pairs, from now on: its reactor wants to sleep, or the one that
    /// polls them for it.
    Wake { channel: u32 },
    /// No more interrupts of its queue pair, until it asks for them again: who polls that has much
    /// to do, and does not sleep.
    Quiet { channel: u32 },
    /// Another reactor does a part of what there is to do for completions of channels that are
    /// opened from now on.
    OpenRelay {
        duty: Duty,
        orders: Sender<Order<B>>,
        its: Sleeper,
    },
    /// It does so no longer for a channel.
    Returned { channel: u32, duty: Duty },
    /// Nor for any.
    CloseRelay { duty: Duty },
    /// That the drive reaches this memory.
    Share(Vec<Weak<Lent>>),
    /// That these bytes, which are whole blocks, read as zeros; the answer is whether they do.
    Erase {
        offset: u64,
        len: u64,
        answer: SyncSender<Result<(), String>>,
    },
    /// Everything onto the media; the answer is whether that was done.
    Flush(SyncSender<Result<(), String>>),
}

/// What a channel is told.
pub(super) enum News<B: Bus> {
    /// Its queue pair.
    Queue(Box<Queue<B>>),
    /// The one that it has is of no use any more: it is to give it back.
    Ended,
    /// The commands of the one that it gave back are over.
    Over,
    /// A host wants memory back where the drive may have commands: their queue pair is to be given
    /// back.
    TakenBack,
    /// Whether its queue pair wakes it now.
    Wakes(Wakes),
    /// Where the drive finds hosts' memory now.
    Windows(Arc<[Window]>),
    /// What the drive says of itself now.
    Report(Arc<DriveReport>),
}

/// How a drive that is lost is opened again.
pub type Reopen<B> = Box<dyn FnMut() -> Result<Device<B>, DriverError> + Send>;

/// The drive's keeper.
pub struct Keeper<B: Bus> {
    name: String,
    facts: Arc<Facts>,
    device: Option<Device<B>>,
    reopen: Reopen<B>,
    jobs: Receiver<Job<B>>,
    ticks: Arc<AtomicU32>,
    clients: Vec<Client<B>>,
    relays: Relays<B>,
    windows: Windows,
    /// Where memory can be taken from the drive whatever it does: who does so, until it has a
    /// thread, and how it is told.
    warden: Option<Warden<B>>,
    tell_warden: Option<Tell<B>>,
    /// Memory that was asked for, and when.
    asked: VecDeque<(u32, Weak<Lent>)>,
    now: u32,
    /// When a lost drive is opened next.
    retry_at: u32,
    /// Log pages of the drive that hosts may read.
    shown: Vec<ShownPage>,
    /// What it said last, and when it is asked next; `None`: it did not answer, and is not asked
    /// again before it is opened anew.
    report: Arc<DriveReport>,
    report_at: Option<u32>,
    counting: Arc<Counting>,
}

impl<B: Bus> Keeper<B> {
    pub(super) fn new(
        name: String,
        facts: Arc<Facts>,
        device: Device<B>,
        reopen: Reopen<B>,
        (jobs, ticks): (Receiver<Job<B>>, Arc<AtomicU32>),
        counting: Arc<Counting>,
    ) -> Self {
        let (tell_warden, warden) = if device.bus().can_revoke() {
            Some(Warden::new()).unzip()
        } else {
            (None, None)
        };
        Keeper {
            name,
            facts,
            device: Some(device),
            reopen,
            jobs,
            ticks,
            clients: Vec::new(),
            relays: Relays::default(),
            windows: Windows::default(),
            warden,
            tell_warden,
            asked: VecDeque::new(),
            now: 0,
            retry_at: 0,
            shown: Vec::new(),
            report: Arc::default(),
            report_at: Some(0),
            counting,
        }
    }

    /// Has it show hosts these log pages of the drive.
    #[must_use]
    pub fn showing(mut self, pages: Vec<ShownPage>) -> Self {
        self.shown = pages;
        self
    }

    /// Who takes memory from the drive while the keeper waits for that; `None` where nobody can. To
    /// be run by a thread.
    pub(super) fn take_warden(&mut self) -> Option<Warden<B>> {
        self.warden.take()
    }

    /// What tells the time while [`Self::run`] does not come to that: to be run by another thread.
    pub(super) fn clock(&self) -> Clock {
        Clock(Arc::downgrade(&self.ticks))
    }

    /// Keeps the drive until nobody has it any more, and shuts it down. Its time goes on as its
    /// [`Clock`] says.
    pub fn run(mut self) {
        loop {
            let job = self.jobs.recv_timeout(TICK);
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

    /// Does what there is to do at a tick, for who has no thread for it: a quarter of a second
    /// each.
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

    /// Gives the drive turns of its own, where it runs on this thread.
    #[cfg(test)]
    pub(super) fn turn_drive(&self) {
        let device = self.device.as_ref().expect("it is not lost");
        (0..4).for_each(|_| device.bus().turn());
    }

    /// Disables the drive as somebody else would.
    #[cfg(test)]
    pub(super) fn disable_drive(&self) {
        let device = self.device.as_ref().expect("it is not lost");
        let written = device.bus().write32(nvme_spec::registers::CC, 0);
        written.expect("its registers are there");
    }

    /// What its clock says: ns.
    #[cfg(test)]
    pub(super) fn drive_time(&self) -> u64 {
        self.device.as_ref().expect("it is not lost").bus().now_ns()
    }

    /// The windows that channels are told of.
    #[cfg(test)]
    pub(super) fn shared(&self) -> Arc<[Window]> {
        self.windows.table()
    }

    /// It is that tick: does what is due.
    fn set_time(&mut self, now: u32) {
        if now == self.now {
            return;
        }
        self.now = now;
        match &self.device {
            // Channels find that out while they poll, and those that sleep do not.
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
                let erased = match &mut self.device {
                    Some(device) => erase::erase(device, &self.facts, offset, len),
                    None => Err("the drive is lost".to_owned()),
                };
                let _ = answer.try_send(erased);
            }
            Job::Flush(answer) => {
                // Who asked may have given up waiting.
                let _ = answer.try_send(self.flush());
            }
        }
    }

    /// Gives a queue pair to every channel that has none, as soon as the drive has one for it.
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
            match make_queue(device, client, &mut self.relays) {
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

    /// Asks the drive to abort commands. Where it does not, their queue is given up.
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

    /// A queue pair is given up: its commands end, and the channel gets another one.
    fn replace(&mut self, channel: u32, queue: Queue<B>, why: &str) {
        tracing::warn!(
            drive = self.name,
            queue = queue.pair.qid(),
            "a queue of a drive is abandoned, its commands end as interrupted: {why}"
        );
        Counting::add(&self.counting.queues_given_up, 1);
        self.part_with(channel, queue, None);
    }

    /// Deletes a queue pair. A drive that does not do that is reset, and one that cannot be reset
    /// is lost.
    fn delete(&mut self, queue: Queue<B>) {
        let Queue {
            pair,
            bounce,
            zeros,
            wakes: _,
            bell: _,
        } = queue;
        if self.is_in_order()
            && let Some(device) = &mut self.device
            && let Err(error) = device.delete_queue_pair(pair)
        {
            match error {
                DriverError::Gone => self.lose("its server is gone"),
                error => self.reset(&error.to_string()),
            }
        }
        // Not before: the drive may have written there.
        drop((bounce, zeros));
    }

    /// Whether the drive takes admin commands. One that never answers them costs nobody the seconds
    /// that they are waited for: where its server stands still, it is lost; where it has given up,
    /// or somebody else has reset it, it is reset.
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

    /// Resets the drive; one that cannot be reset is lost.
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

    /// The drive is of no use any more.
    pub(super) fn lose(&mut self, why: &str) {
        tracing::error!(
            drive = self.name,
            "a drive is lost: {why}; it is tried again every second"
        );
        self.take_everything_back();
        self.counting.lost();
        self.device = None;
        self.retry_at = self.now + RETRY_TICKS;
        self.tell_windows();
        self.tell_all(|| News::Ended);
    }

    /// A drive that is about to be lost reaches no host's memory any more, where that can be had
    /// without it.
    fn take_everything_back(&mut self) {
        let Some(device) = &self.device else { return };
        let bus = device.bus();
        let unshare = |at, len| bus.unshare(at, len).is_ok();
        // A server that is gone has taken what it had mapped with it.
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
            if facts == *self.facts {
                Ok(device)
            } else {
                Err(DriverError::Unsupported(
                    "it is another drive, or has another size: restart the server".to_owned(),
                ))
            }
        });
        match opened {
            Ok(device) => {
                tracing::info!(drive = self.name, "a drive is back");
                let bus = device.bus();
                let open = self
                    .windows
                    .open_again(|lent, at| bus.lend(lent, Iova(at)).is_ok());
                if let Some(tell) = &self.tell_warden {
                    open.iter()
                        .for_each(|opening| tell.opened(device.shared_bus(), opening));
                }
                self.device = Some(device);
                self.counting.is_there.store(true, Ordering::Relaxed);
                self.report_at = Some(self.now);
                self.tell_windows();
                self.serve();
            }
            Err(error) => tracing::debug!(drive = self.name, "a drive is not back: {error}"),
        }
    }

    /// Shares memory that was asked for and is still there.
    fn open_windows(&mut self) {
        let mut changed = false;
        // What is gone before it was shared; while the drive is lost, that is all that happens to
        // them.
        self.asked.retain(|(_, lent)| lent.strong_count() > 0);
        let Some(device) = &self.device else { return };
        while let Some((since, lent)) = self.asked.pop_front() {
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
        if changed {
            self.tell_windows();
        }
    }

    /// Takes memory back that no view and no command has any more.
    fn close_windows(&mut self) {
        let device = self.device.as_ref();
        // Of a drive that is lost, nothing is open.
        let unshare = |at, len| device.map_or(Ok(()), |device| device.bus().unshare(at, len));
        if let Err(error) = self.windows.close_unused(unshare) {
            self.lose(&format!("it does not give memory back: {error}"));
        }
    }

    /// Asks the drive how it is, where that is due.
    fn look_at_health(&mut self) {
        if self.report_at.is_none_or(|at| self.now < at) {
            return;
        }
        self.report_at = Some(self.now + REPORT_TICKS);
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
            Err(error) => {
                self.report_at = None;
                tracing::warn!(
                    drive = self.name,
                    "a drive does not report its health, and is not polled for it again: {error}"
                );
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

    fn flush(&mut self) -> Result<(), String> {
        let Some(device) = &mut self.device else {
            return Err("the drive is lost".to_owned());
        };
        if !self.facts.volatile_cache {
            return Ok(());
        }
        let flushed = device.create_queue_pair(1, false).and_then(|mut pair| {
            pair.set_timeout(SLOW_TIMEOUT);
            let flushed = pair.flush(self.facts.nsid);
            device.delete_queue_pair(pair)?;
            flushed
        });
        flushed.map(drop).map_err(|error| error.to_string())
    }
}

fn make_queue<B: Bus>(
    device: &mut Device<B>,
    client: &Client<B>,
    relays: &mut Relays<B>,
) -> Result<Queue<B>, DriverError> {
    let bounce = (0..BOUNCES).map(|_| device.alloc(BOUNCE_BYTES as usize));
    let bounce = bounce.collect::<Result<Vec<_>, _>>()?;
    let zeros = device.alloc(4096)?;
    let depth = client.depth.min(device.depth_max());
    let Made { pair, wakes, bell } = relays.make_pair(device, client, depth)?;
    Ok(Queue {
        pair,
        bounce,
        zeros,
        wakes,
        bell,
    })
}
