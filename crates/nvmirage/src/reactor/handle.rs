//! A reactor as the rest of the program sees it: a thread that takes messages.

use std::{
    io,
    sync::{Arc, atomic::AtomicBool, mpsc},
    thread::JoinHandle,
    time::Duration,
};

use anyhow::{Context, anyhow};
use controller::{ControllerConfig, port::ChannelId, subsystem::SubsystemConfig};
use engine::{ControllerSlot, Mode};
use media::Medium;
use memory::{Bell, EventFd};

use super::run::Reactor;
use crate::{clock::Clock, cpu};

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
    /// Its subsystem, which has no other controller.
    pub(crate) subsystem: SubsystemConfig,
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
        let (its_bell, its_wake) = (bell.clone(), wake.try_clone()?);
        let (started, start) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("reactor {index}"))
            .spawn(move || {
                // made on its own thread: what it polls with stays there
                let made = cpu
                    .map_or(Ok(()), cpu::pin)
                    .and_then(|()| Reactor::new(mode, Clock::new(), receiver, its_bell, its_wake));
                match made {
                    Ok(mut reactor) => {
                        // the starter waits for exactly this message
                        let _ = started.send(Ok(()));
                        reactor.run();
                    }
                    Err(error) => {
                        let _ = started.send(Err(error));
                    }
                }
            })?;
        start
            .recv()
            .context("a reactor ended while it started")?
            .with_context(|| match cpu {
                Some(cpu) => format!(
                    "reactor {index} cannot start on CPU {cpu}: remove `cpu`, or name one that this process may use"
                ),
                None => format!("reactor {index} cannot start"),
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
