//! A reactor as the rest of the program sees it: a thread that takes messages.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use controller::counters::{Counted, ReactorCounters};
use controller::flight::TraceSpec;
use controller::inspect::{CompletionView, ControllerView};
use controller::subsystem::OperatorRequest;
use controller::{ConfigError, ControllerConfig};
use engine::{ControllerSlot, EngineId, Mail, Mode, MoveError, SubsystemSlot};
use media::{Duty, Medium, ZoneLoss, ZoneLossError};
use memory::{Bell, Counter, EventFd};
use nvme_spec::Status;
use port::ChannelId;

use super::lines::Vectors;
use super::looks::LookAsked;
use super::presence::Presence;
use super::run::Reactor;
use super::subsystems::{NewSubsystem, View};
use crate::clock::Clock;
use crate::cpu;
use crate::keep::timing::checkpoints::{Ask, Asked};
use crate::observe::{Taken, Wanted};
use crate::supervisor::TenantNews;

/// Messages that may wait for a reactor.
const MAILBOX_LEN: usize = 256;
/// How long a reactor may take to answer: a removal drains commands, which is bounded by 4 s, and
/// what is to be kept is given up after 5 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Between two tries to put a message into a full mailbox.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Where an answer goes.
pub(super) type Answer<T> = mpsc::SyncSender<T>;

/// What a reactor is told to do.
#[derive(Debug)]
pub(super) enum Message {
    /// How other reactors are reached, each by its number.
    Peers(Vec<Address>),
    /// From another reactor.
    Mail(EngineId, Mail),
    /// From another reactor: how queues of that controller of its interrupt their host.
    Lines(EngineId, ControllerSlot, Vectors),
    /// Open a channel to a medium under that id, unless it is open.
    OpenChannel(Arc<Medium>, ChannelId, Answer<io::Result<()>>),
    /// Gives a medium with timing other parameters.
    Retune(
        ChannelId,
        Box<model::Parameters>,
        Answer<Result<(), model::ParameterError>>,
    ),
    /// Give up a zone of a medium, and tell the hosts that have it.
    LoseZone(ChannelId, u32, ZoneLoss, Answer<Result<(), ZoneLossError>>),
    /// Take the state of the timing of a medium.
    Snapshot(ChannelId, Asked),
    /// Close a medium's channel.
    CloseChannel(Arc<Medium>, Answer<()>),
    /// Do a part of what there is to do for completions of a drive's channels, wherever they are.
    OpenRelay(Arc<Medium>, Duty, Answer<io::Result<()>>),
    /// Do so no longer.
    CloseRelays(Arc<Medium>, Answer<()>),
    /// Serve a subsystem, without controllers yet.
    AddSubsystem(
        Box<NewSubsystem>,
        Answer<Result<SubsystemSlot, ConfigError>>,
    ),
    /// Serve a subsystem that has no controllers no longer.
    EndSubsystem(SubsystemSlot, Answer<bool>),
    /// Serve a controller.
    AddController(Box<NewController>, Answer<anyhow::Result<ControllerSlot>>),
    /// Detach the host of a controller and serve it no longer.
    RemoveController(ControllerSlot, Answer<()>),
    /// Where the queues of a controller are to live that hosts make from now on.
    Spread(ControllerSlot, Vec<EngineId>, Answer<()>),
    /// Move a queue of a controller.
    Move(ControllerSlot, u16, EngineId, Answer<Result<(), MoveError>>),
    /// Tell where the queues of a controller live.
    Residences(ControllerSlot, Answer<Vec<(u16, EngineId)>>),
    /// Have a subsystem do what its operator asks.
    Request(SubsystemSlot, OperatorRequest, Answer<Result<u32, Status>>),
    /// Tell how a subsystem is now.
    View(SubsystemSlot, Answer<View>),
    /// A record of a subsystem is kept, or could not be.
    Kept(SubsystemSlot, u64, bool),
    /// What there is of tenants.
    Tenants(Vec<TenantNews>, Answer<()>),
    /// Tell what a controller knows of its queues.
    InspectController(ControllerSlot, usize, Answer<Option<ControllerView>>),
    /// Tell what stands in a completion queue of a controller of that reactor, if it lives here.
    InspectLane(
        EngineId,
        ControllerSlot,
        u16,
        usize,
        Answer<Option<CompletionView>>,
    ),
    /// Tell what media are like.
    Look(LookAsked),
    /// Tell what every controller has counted.
    Counts(Answer<Vec<(ControllerSlot, Counted)>>),
    /// Every command of a controller is left for a trace from now on, or none any more.
    Trace(ControllerSlot, Option<TraceSpec>, Option<Answer<()>>),
    /// Of so many commands of a controller the times of one are taken from now on.
    Sample(ControllerSlot, u32, Answer<()>),
    /// Tell that the thread takes messages.
    Answer(Answer<()>),
    /// End the thread.
    Stop,
}

/// A controller to serve.
#[derive(Debug)]
pub(crate) struct NewController {
    /// What it is.
    pub(crate) config: ControllerConfig,
    /// Its subsystem.
    pub(crate) subsystem: SubsystemSlot,
    /// Where hosts reach it.
    pub(crate) listener: transport::vfio_user::Listener,
    /// Whether a host is attached.
    pub(crate) presence: Arc<Presence>,
    /// Counts doorbells that come as messages.
    pub(crate) doorbell_messages: Arc<Counter>,
    /// Of so many of its I/O commands the times of one are taken; 0: of none.
    pub(crate) sample: u32,
}

/// Where a reactor takes messages.
#[derive(Clone, Debug)]
pub(super) struct Address(Arc<Mailbox>);

#[derive(Debug)]
struct Mailbox {
    /// Senders take turns; the reactor takes no lock.
    sender: Mutex<memory::mailbox::Sender<Message>>,
    bell: Arc<Bell>,
    wake: EventFd,
}

impl Address {
    pub(super) fn new(
        sender: memory::mailbox::Sender<Message>,
        bell: Arc<Bell>,
        wake: EventFd,
    ) -> Self {
        Address(Arc::new(Mailbox {
            sender: Mutex::new(sender),
            bell,
            wake,
        }))
    }

    /// Of a reactor that never looks into its mailbox, which is kept for it.
    #[cfg(test)]
    pub(super) fn of_nobody() -> (Self, impl Sized) {
        let (sender, mailbox) = memory::mailbox::channel::<Message>(MAILBOX_LEN);
        let wake = EventFd::new().unwrap();
        (Address::new(sender, Arc::new(Bell::new()), wake), mailbox)
    }

    pub(super) fn try_send(&self, message: Message) -> Result<(), Message> {
        let mailbox = &self.0;
        let mut sender = mailbox
            .sender
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        sender.try_send(message)?;
        drop(sender);
        if mailbox.bell.ring()
            && let Err(error) = mailbox.wake.signal()
        {
            tracing::error!("a reactor cannot be woken: {error}");
        }
        Ok(())
    }

    /// Sends; waits for room where there is none, for as long as a reactor may take to answer.
    ///
    /// # Errors
    /// The message, when there was none.
    pub(super) fn tell(&self, message: Message) -> Result<(), Message> {
        self.tell_until(Instant::now() + ANSWER_TIMEOUT, message)
    }

    /// The same, until then.
    pub(super) fn tell_until(
        &self,
        deadline: Instant,
        mut message: Message,
    ) -> Result<(), Message> {
        while let Err(back) = self.try_send(message) {
            if Instant::now() >= deadline {
                return Err(back);
            }
            message = back;
            std::thread::sleep(FULL_PAUSE);
        }
        Ok(())
    }
}

/// A way to see whether a reactor answers, for any thread.
#[derive(Clone, Debug)]
pub(crate) struct Pulse(Address);

impl Pulse {
    /// Asks it to answer; `None` where it takes no messages, as its mailbox is full.
    pub(crate) fn ask(&self) -> Option<mpsc::Receiver<()>> {
        let (answer, answered) = mpsc::sync_channel(1);
        let sent = self.0.try_send(Message::Answer(answer));
        sent.is_ok().then_some(answered)
    }

    /// Of a reactor that never looks into its mailbox, which is kept for it.
    #[cfg(test)]
    pub(crate) fn of_nobody() -> (Self, impl Sized) {
        let (address, mailbox) = Address::of_nobody();
        (Pulse(address), mailbox)
    }
}

/// A running reactor.
#[derive(Debug)]
pub(crate) struct ReactorHandle {
    address: Address,
    mode: Mode,
    counters: Arc<ReactorCounters>,
    thread: Option<JoinHandle<()>>,
}

impl ReactorHandle {
    /// Starts a reactor, pinned to `cpu` where one is named.
    pub(crate) fn start(index: usize, cpu: Option<u32>, mode: Mode) -> anyhow::Result<Self> {
        let (sender, receiver) = memory::mailbox::channel(MAILBOX_LEN);
        let bell = Arc::new(Bell::new());
        let wake = EventFd::new()?;
        let (its_bell, its_wake) = (bell.clone(), wake.clone());
        let address = Address::new(sender, bell, wake);
        let its_address = address.clone();
        let counters = Arc::<ReactorCounters>::default();
        let its_counters = counters.clone();
        let (started, start) = mpsc::sync_channel(1);
        let thread = std::thread::Builder::new()
            .name(format!("reactor {index}"))
            .spawn(move || {
                // made on its own thread: what it polls with stays there
                let made = cpu.map_or(Ok(()), cpu::pin).and_then(|()| {
                    let clock = Clock::of_process();
                    let (bell, wake) = (its_bell, its_wake);
                    let id = EngineId(index as u16);
                    Reactor::new(
                        id,
                        mode,
                        clock,
                        receiver,
                        its_address,
                        bell,
                        wake,
                        its_counters,
                    )
                });
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
            address,
            mode,
            counters,
            thread: Some(thread),
        })
    }

    /// How it waits for work.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// What it has done so far.
    pub(crate) fn counters(&self) -> &ReactorCounters {
        &self.counters
    }

    /// Where it takes messages.
    pub(super) fn address(&self) -> Address {
        self.address.clone()
    }

    /// How any thread sees whether it answers.
    pub(crate) fn pulse(&self) -> Pulse {
        Pulse(self.address.clone())
    }

    fn send(&self, message: Message) -> anyhow::Result<()> {
        let sent = self.address.tell(message);
        sent.map_err(|_| anyhow!("the reactor does not take messages"))
    }

    fn ask<T>(&self, message: impl FnOnce(Answer<T>) -> Message) -> anyhow::Result<T> {
        let (answer, answered) = mpsc::sync_channel(1);
        self.send(message(answer))?;
        answered
            .recv_timeout(ANSWER_TIMEOUT)
            .context("the reactor did not respond within 10 s")
    }

    /// Tells it how the others are reached: each by its place in this list.
    pub(crate) fn meet(&self, all: &[ReactorHandle]) -> anyhow::Result<()> {
        let all = all.iter().map(|reactor| reactor.address.clone());
        self.send(Message::Peers(all.collect()))
    }

    /// Gives a medium with timing that is open here other parameters.
    ///
    /// # Errors
    /// Those that make no drive of this shape; a reactor that does not answer.
    pub(crate) fn retune(
        &self,
        channel: ChannelId,
        timing: model::Parameters,
    ) -> anyhow::Result<()> {
        let timing = Box::new(timing);
        Ok(self.ask(|answer| Message::Retune(channel, timing, answer))??)
    }

    /// Gives up a zone of a medium that is open here; its hosts are told.
    pub(crate) fn lose_zone(
        &self,
        channel: ChannelId,
        zone: u32,
        to: ZoneLoss,
    ) -> anyhow::Result<Result<(), ZoneLossError>> {
        self.ask(|answer| Message::LoseZone(channel, zone, to, answer))
    }

    /// How the state of the timing of a medium that is open here is asked for, from any thread.
    pub(crate) fn asks_for_state(&self, channel: ChannelId) -> Ask {
        let address = self.address.clone();
        Box::new(move |asked| {
            let sent = address.tell(Message::Snapshot(channel, asked));
            sent.map_err(|_| anyhow!("the reactor does not take messages"))
        })
    }

    /// Opens a channel to a medium under that id, unless it is open.
    pub(crate) fn open_channel(&self, medium: Arc<Medium>, id: ChannelId) -> anyhow::Result<()> {
        Ok(self.ask(|answer| Message::OpenChannel(medium, id, answer))??)
    }

    /// Where the queues of a controller are to live that hosts make from now on: reactors by their
    /// numbers.
    pub(crate) fn spread(&self, slot: ControllerSlot, over: &[usize]) -> anyhow::Result<()> {
        let over = over.iter().map(|reactor| EngineId(*reactor as u16));
        self.ask(|answer| Message::Spread(slot, over.collect(), answer))
    }

    /// Moves a queue of a controller to another reactor.
    pub(crate) fn move_queue(
        &self,
        slot: ControllerSlot,
        cqid: u16,
        to: usize,
    ) -> anyhow::Result<Result<(), MoveError>> {
        self.ask(|answer| Message::Move(slot, cqid, EngineId(to as u16), answer))
    }

    /// The completion queues of a controller with the reactor that serves each.
    pub(crate) fn residences(&self, slot: ControllerSlot) -> anyhow::Result<Vec<(u16, usize)>> {
        let all = self.ask(|answer| Message::Residences(slot, answer))?;
        Ok(all.into_iter().map(|(id, at)| (id, at.0.into())).collect())
    }

    /// What every controller has counted that it serves.
    pub(crate) fn counts(&self) -> anyhow::Result<Vec<(ControllerSlot, Counted)>> {
        self.ask(Message::Counts)
    }

    /// What media that are open here are like: of each what is wanted, `None` where it is not here
    /// any more.
    pub(crate) fn look(
        &self,
        media: Vec<(ChannelId, Wanted)>,
    ) -> anyhow::Result<Vec<Option<Taken>>> {
        self.ask(|answer| Message::Look(LookAsked { media, answer }))
    }

    /// Has a controller's commands left for a trace from now on, or no more.
    pub(crate) fn trace(
        &self,
        slot: ControllerSlot,
        spec: Option<TraceSpec>,
    ) -> anyhow::Result<()> {
        self.ask(|answer| Message::Trace(slot, spec, Some(answer)))
    }

    /// Of so many commands of a controller has the times of one taken from now on; 0: of none.
    pub(crate) fn sample(&self, slot: ControllerSlot, sample: u32) -> anyhow::Result<()> {
        self.ask(|answer| Message::Sample(slot, sample, answer))
    }

    /// How a controller's commands are left for a trace no more, from any thread. Its slot may be
    /// another controller's later on: this is called before.
    pub(crate) fn ends_trace(&self, slot: ControllerSlot) -> Box<dyn FnOnce() + Send> {
        let address = self.address.clone();
        Box::new(move || {
            if address.tell(Message::Trace(slot, None, None)).is_err() {
                tracing::error!("a reactor does not take messages: a trace costs on");
            }
        })
    }

    /// Waits until it has read what was sent to it before.
    pub(crate) fn answer(&self) -> anyhow::Result<()> {
        self.ask(Message::Answer)
    }

    /// Tells it of tenants, and of what is theirs.
    pub(crate) fn tell_tenants(&self, news: Vec<TenantNews>) -> anyhow::Result<()> {
        self.ask(|answer| Message::Tenants(news, answer))
    }

    /// Closes a medium's channel; no controller uses it any more.
    pub(crate) fn close_channel(&self, medium: Arc<Medium>) -> anyhow::Result<()> {
        self.ask(|answer| Message::CloseChannel(medium, answer))
    }

    /// Has it do a part of what there is to do for completions of a drive's channels that are
    /// opened after this.
    pub(crate) fn open_relay(&self, medium: Arc<Medium>, duty: Duty) -> anyhow::Result<()> {
        Ok(self.ask(|answer| Message::OpenRelay(medium, duty, answer))??)
    }

    /// Has it do so no longer; the channels are closed.
    pub(crate) fn close_relays(&self, medium: Arc<Medium>) -> anyhow::Result<()> {
        self.ask(|answer| Message::CloseRelays(medium, answer))
    }

    /// Serves a subsystem, without controllers yet.
    pub(crate) fn add_subsystem(&self, new: NewSubsystem) -> anyhow::Result<SubsystemSlot> {
        Ok(self.ask(|answer| Message::AddSubsystem(Box::new(new), answer))??)
    }

    /// Serves a subsystem that has no controllers no longer; whether what was changed of it is
    /// kept.
    pub(crate) fn end_subsystem(&self, slot: SubsystemSlot) -> anyhow::Result<bool> {
        self.ask(|answer| Message::EndSubsystem(slot, answer))
    }

    /// Has a subsystem do what its operator asks; hosts that it concerns have noticed when this
    /// returns.
    pub(crate) fn request(
        &self,
        slot: SubsystemSlot,
        request: OperatorRequest,
    ) -> anyhow::Result<Result<u32, Status>> {
        self.ask(|answer| Message::Request(slot, request, answer))
    }

    /// How a subsystem is now.
    pub(crate) fn view(&self, slot: SubsystemSlot) -> anyhow::Result<View> {
        self.ask(|answer| Message::View(slot, answer))
    }

    /// Serves a controller.
    pub(crate) fn add_controller(&self, new: NewController) -> anyhow::Result<ControllerSlot> {
        self.ask(|answer| Message::AddController(Box::new(new), answer))?
    }

    /// Begins what [`Self::remove_controller`], which is called later, waits for.
    pub(crate) fn begin_to_remove(&self, slot: ControllerSlot) -> anyhow::Result<()> {
        let (answer, _) = mpsc::sync_channel(1);
        self.send(Message::RemoveController(slot, answer))
    }

    /// Detaches a controller's host and serves it no longer.
    pub(crate) fn remove_controller(&self, slot: ControllerSlot) -> anyhow::Result<()> {
        self.ask(|answer| Message::RemoveController(slot, answer))
    }
}

impl Drop for ReactorHandle {
    fn drop(&mut self) {
        if self.send(Message::Stop).is_ok()
            && let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("a reactor panicked; its controllers are no longer served");
        }
    }
}
