//! The thread that looks after a block device: commands of the kernel about it wait, for requests
//! that a reactor serves among others.
//!
//! ```text
//! waits for a namespace -> device found or added -> at the reactor -> live -> left or deleted
//!            ^-------------------------- its session has ended <-------'
//!                         ^--- another process has not taken over <--- quiet
//! ```

use std::collections::BTreeSet;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow, bail};
use reactor::devices::Devices as Reactor;
use reactor::message::NewDevice;
use transport::ublk::{End, News};
use ublk::path_of_disk;

use super::device::{Devices, Found, Wanted, is_taken};

/// How long the first attempt may take until a controller is created without its result.
const FIRST: Duration = Duration::from_secs(30);
/// How long a session may take to fetch.
const FETCH: Duration = Duration::from_secs(15);
/// Pause before the next look for a namespace, or the next attempt.
const RETRY: Duration = Duration::from_secs(1);
/// How long a device may take to be left or deleted.
const LEAVE: Duration = Duration::from_secs(40);
/// How long requests in flight may take where a disk is left to the next server.
const QUIET: Duration = Duration::from_secs(5);
/// Pause between two commands to quiesce a disk.
const SETTLE: Duration = Duration::from_millis(2);

/// Outcome for the device when its thread ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::supervisor) enum Leave {
    /// It is deleted.
    Delete,
    /// It is deleted, unless it is in use and its drive outlives the server: then it waits for the
    /// next server.
    Keep,
}

/// State of a device.
#[derive(Clone, Debug, Default)]
pub(in crate::supervisor) struct View {
    /// Path of the disk, while it is served.
    pub(in crate::supervisor) disk: Option<String>,
    /// In words.
    pub(in crate::supervisor) state: String,
}

#[derive(Debug, Default)]
struct Shared {
    view: Mutex<(View, Option<u32>)>,
    leave: Mutex<Option<Leave>>,
    /// See [`Start::lasting`].
    lasting: Mutex<BTreeSet<String>>,
    quiet: Mutex<Option<Quiet>>,
}

/// The device is to have no request here, as another process is about to take it over.
#[derive(Debug, Default)]
struct Quiet {
    /// Where the outcome goes, until it is known.
    outcome: Option<SyncSender<Result<(), String>>>,
}

/// How a keeper begins.
#[derive(Debug)]
pub(super) struct Start {
    /// The namespaces whose devices outlive this process: see [`Wanted::lasts`].
    pub(super) lasting: BTreeSet<String>,
    /// Nothing is done before [`Keeper::resume`].
    pub(super) is_quiet: bool,
}

/// A device and its thread.
#[derive(Debug)]
pub(in crate::supervisor) struct Keeper {
    shared: Arc<Shared>,
    news: Sender<News>,
    /// The thread ends when this does.
    ended: Receiver<()>,
    thread: Option<JoinHandle<()>>,
}

/// The thread's own.
struct Work {
    name: String,
    devices: Devices,
    reactor: Reactor,
    wanted: Wanted,
    shared: Arc<Shared>,
    sender: Sender<News>,
    news: Receiver<News>,
    /// The kernel can quiesce the device that is served.
    can_be_quiet: bool,
    /// The device whose requests wait in the kernel.
    quiet: Option<u32>,
}

/// How a disk has ended.
enum Ended {
    /// Its session has.
    Session(String),
    /// It is quiet: its requests wait in the kernel.
    Quiet,
    /// The server asks for it.
    Asked(Leave),
}

impl Keeper {
    /// Makes the device of a controller that its reactor has, or takes it over. Without a namespace
    /// the device comes when there is one.
    ///
    /// # Errors
    /// There is no driver, or it refuses the device.
    pub(super) fn start(
        name: &str,
        reactor: Reactor,
        wanted: Wanted,
        start: Start,
    ) -> anyhow::Result<Self> {
        let devices = Devices::open()?;
        let Start { lasting, is_quiet } = start;
        let shared = Arc::new(Shared {
            lasting: Mutex::new(lasting),
            quiet: Mutex::new(is_quiet.then(Quiet::default)),
            ..Shared::default()
        });
        let (sender, news) = channel();
        let (first, result) = sync_channel(1);
        let first = (!is_quiet).then_some(first);
        let (end, ended) = sync_channel::<()>(0);
        let work = Work {
            name: name.to_owned(),
            devices,
            reactor,
            wanted,
            shared: shared.clone(),
            sender: sender.clone(),
            news,
            can_be_quiet: false,
            quiet: None,
        };
        let thread = std::thread::Builder::new()
            .name("nvmirage-ublk".to_owned())
            .spawn(move || {
                let _end = end;
                work.run(first);
            })
            .context("cannot start a thread")?;
        let keeper = Self {
            shared,
            news: sender,
            ended,
            thread: Some(thread),
        };
        if is_quiet {
            return Ok(keeper);
        }
        match result.recv_timeout(FIRST) {
            Ok(Ok(())) | Err(RecvTimeoutError::Timeout) => Ok(keeper),
            Ok(Err(error)) => Err(error),
            Err(RecvTimeoutError::Disconnected) => bail!("the thread of a block device ended"),
        }
    }

    /// The device's present state.
    pub(in crate::supervisor) fn view(&self) -> View {
        lock(&self.shared.view).0.clone()
    }

    /// Whether a file system or a device on top of it has the disk alone.
    pub(in crate::supervisor) fn is_taken(&self) -> bool {
        let id = lock(&self.shared.view).1;
        id.is_some_and(is_taken)
    }

    /// See [`Start::lasting`].
    pub(super) fn set_lasting(&self, lasting: BTreeSet<String>) {
        *lock(&self.shared.lasting) = lasting;
    }

    /// Has the device complete its requests and take no others, which wait in the kernel for
    /// another process. The outcome comes later, with the reason where it cannot;
    /// [`Self::resume`] reverses it.
    pub(super) fn quiesce(&self) -> Receiver<Result<(), String>> {
        let (sender, outcome) = sync_channel(1);
        *lock(&self.shared.quiet) = Some(Quiet {
            outcome: Some(sender),
        });
        // Its thread may have ended.
        let _ = self.news.send(News::Asked);
        outcome
    }

    /// Serves the device again: no other process has taken it over.
    pub(super) fn resume(&self) {
        *lock(&self.shared.quiet) = None;
        // Its thread may have ended.
        let _ = self.news.send(News::Asked);
    }

    /// Asks for the end; [`Self::finish`] waits for it.
    pub(in crate::supervisor) fn ask(&self, leave: Leave) {
        lock(&self.shared.leave).get_or_insert(leave);
        // Its thread may have ended.
        let _ = self.news.send(News::Asked);
    }

    /// Waits until the device is left or deleted, as was asked, within a bound.
    ///
    /// # Errors
    /// It is late: its thread goes on.
    pub(in crate::supervisor) fn finish(mut self) -> anyhow::Result<()> {
        match self.ended.recv_timeout(LEAVE) {
            Err(RecvTimeoutError::Timeout) => bail!(
                "the kernel does not end a block device within {} s",
                LEAVE.as_secs()
            ),
            _ => {
                if let Some(thread) = self.thread.take() {
                    let joined = thread.join();
                    joined.map_err(|_| anyhow!("the thread of a block device panicked"))?;
                }
                Ok(())
            }
        }
    }
}

impl Work {
    fn run(mut self, mut first: Option<SyncSender<anyhow::Result<()>>>) {
        // The last failure that the log has.
        let mut told = String::new();
        while self.asked().is_none() {
            if lock(&self.shared.quiet).is_some() {
                // Without a device nothing is in flight.
                self.tell_quiet(Ok(()));
                self.wait(RETRY);
                continue;
            }
            let ended = match self.bring_up() {
                Ok(Some(id)) => {
                    told.clear();
                    if let Some(first) = first.take() {
                        // The creator may have ceased to wait.
                        let _ = first.send(Ok(()));
                    }
                    Some((id, self.attend(id)))
                }
                Ok(None) => None,
                Err(error) => {
                    let text = format!("{error:#}");
                    if let Some(first) = first.take()
                        && first.send(Err(error)).is_ok()
                    {
                        return;
                    }
                    if text != told {
                        tracing::error!(controller = self.name, "no block device: {text}");
                        told.clone_from(&text);
                    }
                    self.show(None, text);
                    None
                }
            };
            if let Some(first) = first.take() {
                let _ = first.send(Ok(()));
            }
            match ended {
                Some((id, Ended::Asked(leave))) => return self.leave(id, leave),
                Some((id, Ended::Quiet)) => {
                    self.quiet = Some(id);
                    continue;
                }
                Some((id, Ended::Session(why))) => {
                    tracing::warn!(
                        controller = self.name,
                        "{} is deleted: {why}",
                        path_of_disk(id)
                    );
                    self.show(None, why);
                    self.devices.delete(id);
                }
                None => {}
            }
            self.wait(RETRY);
        }
        if let Some(id) = self.quiet
            && self.asked() == Some(Leave::Delete)
        {
            tracing::warn!(
                controller = self.name,
                "{} is deleted while its requests wait: they fail",
                path_of_disk(id)
            );
            self.devices.delete(id);
        }
    }

    /// Reports once whether the device is quiet.
    fn tell_quiet(&self, outcome: Result<(), String>) {
        let mut quiet = lock(&self.shared.quiet);
        if let Some(sender) = quiet.as_mut().and_then(|quiet| quiet.outcome.take()) {
            // The asker may have ceased to wait.
            let _ = sender.send(outcome);
        }
    }

    /// Whether the device is to be quiet, and that was not answered.
    fn is_quiet_due(&self) -> bool {
        let quiet = lock(&self.shared.quiet);
        quiet.as_ref().is_some_and(|quiet| quiet.outcome.is_some())
    }

    fn asked(&self) -> Option<Leave> {
        *lock(&self.shared.leave)
    }

    fn show(&self, id: Option<u32>, state: impl Into<String>) {
        let view = View {
            disk: id.map(path_of_disk),
            state: state.into(),
        };
        *lock(&self.shared.view) = (view, id);
    }

    /// Waits for a while, or until something is asked.
    fn wait(&self, bound: Duration) {
        let until = Instant::now() + bound;
        while self.asked().is_none() {
            let left = until.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(left) {
                Ok(News::Asked) | Err(_) => return,
                // Of a session before.
                Ok(_) => {}
            }
        }
    }

    /// Has a disk served: its identifier. `None` where there is no namespace for it.
    fn bring_up(&mut self) -> anyhow::Result<Option<u32>> {
        let (name, disk) = match self.reactor.only_namespace()? {
            Ok(only) => only,
            Err(count) => {
                self.show(
                    None,
                    format!(
                        "waits for a namespace: the controller has {count} that a disk of Linux can express, and a block device has exactly one"
                    ),
                );
                return Ok(None);
            }
        };
        self.show(None, "is being made");
        self.wanted.lasts = lock(&self.shared.lasting).contains(&name);
        let Found {
            device,
            goes_on,
            sectors,
        } = self.devices.get(&disk, &self.wanted)?;
        self.can_be_quiet = device.info().flags.quiesce();
        let (id, wanted_sectors) = (device.info().dev_id, disk.sectors());
        let new = NewDevice {
            device,
            name,
            disk,
            news: self.sender.clone(),
        };
        let brought = self.attach(new).and_then(|resized| {
            self.devices.start(id, goes_on)?;
            Ok(resized)
        });
        let resized = match brought {
            Ok(resized) => resized,
            Err(error) => {
                // One that goes on waits for the next attempt: its users have data in it.
                if !goes_on {
                    self.devices.delete(id);
                }
                return Err(error);
            }
        };
        self.quiet = None;
        let wanted_sectors = resized.unwrap_or(wanted_sectors);
        let how = if goes_on { "goes on" } else { "is there" };
        tracing::info!(controller = self.name, "{} {how}", path_of_disk(id));
        self.show(Some(id), "is served");
        if sectors != wanted_sectors {
            self.resize(id, wanted_sectors);
        }
        Ok(Some(id))
    }

    /// Gives a device to the reactor, and waits until its requests are fetched. The size of the
    /// namespace in sectors, where that has changed meanwhile.
    fn attach(&mut self, new: NewDevice) -> anyhow::Result<Option<u64>> {
        // News of a session before.
        while self.news.try_recv().is_ok() {}
        self.reactor.attach(new)?;
        let until = Instant::now() + FETCH;
        let mut resized = None;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.news.recv_timeout(left) {
                Ok(News::Fetched) => return Ok(resized),
                Ok(News::Ended(why)) => bail!("it could not be served: {why}"),
                Ok(News::Stopped) => bail!("it could not be served: {}", End::Stopped),
                Ok(News::Resized(sectors)) => resized = Some(sectors),
                Ok(News::Asked) => {}
                Err(_) => bail!("its reactor did not serve it within {} s", FETCH.as_secs()),
            }
        }
    }

    fn resize(&mut self, id: u32, sectors: u64) {
        match self.devices.resize(id, sectors) {
            Ok(()) => tracing::info!(
                controller = self.name,
                "{} has {sectors} sectors now",
                path_of_disk(id)
            ),
            Err(error) => tracing::warn!(
                controller = self.name,
                "{} has not {sectors} sectors: {error:#}",
                path_of_disk(id)
            ),
        }
    }

    /// Looks after a disk that is served, until it ends.
    fn attend(&mut self, id: u32) -> Ended {
        loop {
            if let Some(leave) = self.asked() {
                return Ended::Asked(leave);
            }
            if self.is_quiet_due() {
                match self.why_never_quiet() {
                    None => return self.quiesce(id),
                    Some(why) => self.tell_quiet(Err(why.to_owned())),
                }
            }
            match self.news.recv() {
                Ok(News::Resized(sectors)) => self.resize(id, sectors),
                Ok(News::Ended(why)) => return Ended::Session(why),
                Ok(News::Stopped) => return Ended::Session(End::Stopped.to_string()),
                Ok(News::Fetched | News::Asked) => {}
                // This thread has a sender itself.
                Err(_) => return Ended::Asked(Leave::Keep),
            }
        }
    }

    /// Why the device that is served cannot be quiet, if it cannot.
    fn why_never_quiet(&self) -> Option<&'static str> {
        if !self.lasts() {
            Some("it ends with its server, and its requests fail")
        } else if !self.can_be_quiet {
            Some("this kernel cannot quiesce a ublk disk (Linux 6.16 can)")
        } else {
            None
        }
    }

    /// Whether the device outlives this process.
    fn lasts(&self) -> bool {
        self.wanted.lasts && self.devices.are_privileged()
    }

    /// Has the requests of a disk wait in the kernel, and waits for those in flight. With the first
    /// command the driver begins to take tags away, so that there is no other way back than a
    /// takeover: it ends with the session, or where something is asked.
    fn quiesce(&mut self, id: u32) -> Ended {
        self.show(Some(id), "waits for another process to take over");
        loop {
            if let Some(leave) = self.asked() {
                return Ended::Asked(leave);
            }
            match self.settle(id) {
                None => {}
                Some(News::Stopped) => {
                    tracing::info!(
                        controller = self.name,
                        "{} is quiet: its requests wait for the next server",
                        path_of_disk(id)
                    );
                    self.tell_quiet(Ok(()));
                    return Ended::Quiet;
                }
                Some(News::Ended(why)) => {
                    self.tell_quiet(Err(why.clone()));
                    return Ended::Session(why);
                }
                Some(News::Resized(sectors)) => self.resize(id, sectors),
                Some(News::Fetched | News::Asked) => {}
            }
        }
    }

    /// A step of that: news that has come within a moment.
    fn settle(&mut self, id: u32) -> Option<News> {
        match self.devices.quiesce(id) {
            Ok(()) => {}
            // Its session may have ended, or has requests of all tags.
            Err(error) => tracing::debug!(controller = self.name, "{error}"),
        }
        self.news.recv_timeout(SETTLE).ok()
    }

    fn leave(mut self, id: u32, leave: Leave) {
        if leave == Leave::Delete || !self.lasts() {
            if leave == Leave::Keep && is_taken(id) {
                tracing::warn!(
                    controller = self.name,
                    "{} is in use and is deleted: it does not outlive the server",
                    path_of_disk(id)
                );
            }
            self.devices.end(id);
        } else if !self.devices.end_unless_used(id) {
            let is_quiet = self.can_be_quiet && self.become_quiet(id);
            tracing::info!(
                controller = self.name,
                "{} is in use: it waits for the next server{}",
                path_of_disk(id),
                if is_quiet {
                    ", which gets no request again"
                } else {
                    ""
                }
            );
        }
        self.show(None, "has ended");
    }

    /// As [`Self::quiesce`], within a bound, before the server ends.
    fn become_quiet(&mut self, id: u32) -> bool {
        let until = Instant::now() + QUIET;
        while Instant::now() < until {
            match self.settle(id) {
                Some(News::Stopped) => return true,
                Some(News::Ended(_)) => return false,
                _ => {}
            }
        }
        tracing::warn!(
            controller = self.name,
            "{} does not complete its requests within {} s: they are executed again",
            path_of_disk(id),
            QUIET.as_secs()
        );
        false
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
