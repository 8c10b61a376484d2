//! A reactor as the rest of the program sees it: a thread that takes messages.

use std::{
    io,
    os::unix::net::UnixListener,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, anyhow};
use controller::{
    ControllerConfig,
    namespace::Namespace,
    port::ChannelId,
};
use engine::{ControllerSlot, Mode};
use media::Medium;
use memory::{Bell, EventFd};

use super::run::Reactor;
use crate::clock::Clock;

/// Messages that may wait for a reactor.
const MAILBOX_LEN: usize = 64;
/// How long a reactor may take to answer: a removal drains commands, which is bounded by 4 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);

/// Where an answer goes.
pub(super) type Answer<T> = mpsc::SyncSender<T>;

/// What a reactor is told to do.
#[derive(Debug)]
pub(super) enum Message {
    /// Open a channel to a medium, or find the one that is open.
    OpenChannel(Arc<Medium>, Answer<io::Result<ChannelId>>),
    /// Close a medium's channel.
    CloseChannel(Arc<Medium>, Answer<()>),
    /// Serve a controller.
    AddController(Box<NewController>, Answer<anyhow::Result<ControllerSlot>>),
    /// Give a controller other namespaces.
    SetNamespaces(ControllerSlot, Vec<Namespace>, Answer<()>),
    /// Detach the host of a controller and serve it no longer.
    RemoveController(ControllerSlot, Answer<()>),
    /// End the thread.
    Stop,
}

/// A controller to serve.
#[derive(Debug)]
pub(crate) struct NewController {
    /// What it is.
    pub(crate) config: ControllerConfig,
    /// Where hosts reach it.
    pub(crate) listener: transport::vfio_user::Listener,
    /// Set while a host is attached.
    pub(crate) attached: Arc<AtomicBool>,
}

/// A running reactor.
#[derive(Debug)]
pub(crate) struct ReactorHandle {
    sender: memory::mailbox::Sender<Message>,
    bell: Arc<Bell>,
    wake: EventFd,
    mode: Mode,
    thread: Option<JoinHandle<()>>,
}

impl ReactorHandle {
    /// Starts a reactor, pinned to `cpu` where one is named.
    pub(crate) fn start(index: usize, cpu: Option<u32>, mode: Mode) -> anyhow::Result<Self> {
        let (sender, receiver) = memory::mailbox::channel(MAILBOX_LEN);
        let bell = Arc::new(Bell::new());
        let wake = EventFd::new()?;
        let mut reactor = Reactor::new(mode, Clock::new(), receiver, bell.clone(), wake.try_clone()?)?;
        let (started, pinned) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("reactor {index}"))
            .spawn(move || {
                let pinning = cpu.map_or(Ok(()), pin);
                let works = pinning.is_ok();
                // the starter waits for exactly this message
                let _ = started.send(pinning);
                if works {
                    reactor.run();
                }
            })?;
        pinned
            .recv()
            .context("a reactor ended while it started")?
            .with_context(|| {
                format!("reactor {index} cannot be pinned to CPU {}: remove `cpu` or name one of those this process may use", cpu.unwrap_or_default())
            })?;
        Ok(ReactorHandle {
            sender,
            bell,
            wake,
            mode,
            thread: Some(thread),
        })
    }

    /// How it waits for work.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    fn send(&mut self, message: Message) -> anyhow::Result<()> {
        self.sender
            .try_send(message)
            .map_err(|_| anyhow!("the reactor does not take messages"))?;
        if self.bell.ring() {
            self.wake.signal()?;
        }
        Ok(())
    }

    fn ask<T>(&mut self, message: impl FnOnce(Answer<T>) -> Message) -> anyhow::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.send(message(answer))?;
        answered
            .recv_timeout(ANSWER_TIMEOUT)
            .context("the reactor did not answer within 10 s")
    }

    /// Opens a channel to a medium, or finds the one that is open.
    pub(crate) fn open_channel(&mut self, medium: Arc<Medium>) -> anyhow::Result<ChannelId> {
        Ok(self.ask(|answer| Message::OpenChannel(medium, answer))??)
    }

    /// Closes a medium's channel; no controller uses it any more.
    pub(crate) fn close_channel(&mut self, medium: Arc<Medium>) -> anyhow::Result<()> {
        self.ask(|answer| Message::CloseChannel(medium, answer))
    }

    /// Serves a controller.
    pub(crate) fn add_controller(&mut self, new: NewController) -> anyhow::Result<ControllerSlot> {
        self.ask(|answer| Message::AddController(Box::new(new), answer))?
    }

    /// Gives a controller other namespaces.
    pub(crate) fn set_namespaces(
        &mut self,
        slot: ControllerSlot,
        namespaces: Vec<Namespace>,
    ) -> anyhow::Result<()> {
        self.ask(|answer| Message::SetNamespaces(slot, namespaces, answer))
    }

    /// Detaches a controller's host and serves it no longer.
    pub(crate) fn remove_controller(&mut self, slot: ControllerSlot) -> anyhow::Result<()> {
        self.ask(|answer| Message::RemoveController(slot, answer))
    }
}

impl Drop for ReactorHandle {
    fn drop(&mut self) {
        if self.send(Message::Stop).is_ok()
            && let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a reactor panicked; what it served is gone");
        }
    }
}

fn pin(cpu: u32) -> io::Result<()> {
    let mut set = rustix::thread::CpuSet::new();
    let cpu = cpu as usize;
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    set.set(cpu);
    Ok(rustix::thread::sched_setaffinity(None, &set)?)
}
