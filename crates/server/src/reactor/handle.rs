//! The handle of a reactor: the rest of the program sends messages to its thread.

use std::io;
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, anyhow};
use api::config::Controller;
use controller::counters::{Counted, ReactorCounters};
use controller::flight::TraceSpec;
use controller::inspect::{CompletionView, ControllerView};
use controller::subsystem::OperatorRequest;
use controller::{ConfigError, ControllerConfig};
use engine::{ControllerSlot, EngineId, Mail, Mode, MoveError, SubsystemSlot};
use machine::clock::Clock;
use machine::cpu;
use media::{Duty, Medium, ZoneLoss, ZoneLossError};
use memory::{Bell, Counter, EventFd};
use nvme_spec::Status;
use port::ChannelId;

use super::lines::Vectors;
use super::looks::LookAsked;
use super::presence::Presence;
use super::run::Reactor;
use super::subsystems::{NewSubsystem, View};
use super::tenants::TenantNews;
use crate::keep::timing::checkpoints::{Ask, Asked};
use crate::looks::{Taken, Wanted};

/// Capacity of a reactor's mailbox.
const MAILBOX_LEN: usize = 256;
/// Longest time for an answer: removing a controller drains its commands within 4 s, and saving a
/// record is given up after 5 s.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before retrying a message to a full mailbox.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Channel for an answer.
pub(super) type Answer<T> = mpsc::SyncSender<T>;

/// Message to a reactor.
#[derive(Debug)]
pub(super) enum Message {
    /// Addresses of all reactors, by number.
    Peers(Vec<Address>),
    /// Mail from another reactor.
    Mail(EngineId, Mail),
    /// Interrupt lines for the queues of another reactor's controller.
    Lines(EngineId, ControllerSlot, Vectors),
    /// Open a channel to a medium under an identifier, unless it is open.
    OpenChannel(Arc<Medium>, ChannelId, Answer<io::Result<()>>),
    /// Change the timing parameters of a medium.
    Retune(
        ChannelId,
        Box<model::Parameters>,
        Answer<Result<(), model::ParameterError>>,
    ),
    /// Change the state of a lost zone, and notify its hosts.
    LoseZone(ChannelId, u32, ZoneLoss, Answer<Result<(), ZoneLossError>>),
    /// Take a snapshot of a timing model's state.
    Snapshot(ChannelId, Asked),
    /// Close a medium's channel.
    CloseChannel(Arc<Medium>, Answer<()>),
    /// Take over one duty of a drive's completion queues, for the channels on all reactors.
    OpenRelay(Arc<Medium>, Duty, Answer<io::Result<()>>),
    /// Give up all duties for a drive.
    CloseRelays(Arc<Medium>, Answer<()>),
    /// Add a subsystem, without controllers.
    AddSubsystem(
        Box<NewSubsystem>,
        Answer<Result<SubsystemSlot, ConfigError>>,
    ),
    /// Remove a subsystem without controllers.
    EndSubsystem(SubsystemSlot, Answer<bool>),
    /// Add a controller.
    AddController(Box<NewController>, Answer<anyhow::Result<ControllerSlot>>),
    /// Detach the host of a controller and remove the controller.
    RemoveController(ControllerSlot, Answer<()>),
    /// Set the reactors for queues that the controller's hosts create from now on.
    Spread(ControllerSlot, Vec<EngineId>, Answer<()>),
    /// Move a queue of a controller.
    Move(ControllerSlot, u16, EngineId, Answer<Result<(), MoveError>>),
    /// Report which reactor serves each queue of a controller.
    Residences(ControllerSlot, Answer<Vec<(u16, EngineId)>>),
    /// Pass an operator's request to a subsystem.
    Request(SubsystemSlot, OperatorRequest, Answer<Result<u32, Status>>),
    /// Report the state of a subsystem.
    View(SubsystemSlot, Answer<View>),
    /// Report whether a record of a subsystem was saved.
    Kept(SubsystemSlot, u64, bool),
    /// Update tenants and assignments.
    Tenants(Vec<TenantNews>, Answer<()>),
    /// Report the controller's part of an inspection.
    InspectController(ControllerSlot, usize, Answer<Option<ControllerView>>),
    /// Report the state of a completion queue of that reactor's controller, if it lives here.
    InspectLane(
        EngineId,
        ControllerSlot,
        u16,
        usize,
        Answer<Option<CompletionView>>,
    ),
    /// Report the state of media.
    Look(LookAsked),
    /// Report the counters of all controllers.
    Counts(Answer<Vec<(ControllerSlot, Counted)>>),
    /// Start or stop tracing the commands of a controller.
    Trace(ControllerSlot, Option<TraceSpec>, Option<Answer<()>>),
    /// Apply the live keys of a controller's configuration.
    Configure(ControllerSlot, Arc<Controller>, Answer<()>),
    /// Answer, to show that the thread handles messages.
    Answer(Answer<()>),
    /// End the thread.
    Stop,
}

/// A controller to serve.
#[derive(Debug)]
pub(crate) struct NewController {
    /// Its configuration.
    pub(crate) config: ControllerConfig,
    /// Its subsystem.
    pub(crate) subsystem: SubsystemSlot,
    /// Socket of its hosts.
    pub(crate) listener: transport::vfio_user::Listener,
    /// Whether a host is attached.
    pub(crate) presence: Arc<Presence>,
    /// Counter of doorbells that arrive as messages.
    pub(crate) doorbell_messages: Arc<Counter>,
    /// Its configuration file's keys, of which the reactor reads the live ones.
    pub(crate) keys: Arc<Controller>,
}

/// Mailbox of a reactor.
#[derive(Clone, Debug)]
pub(super) struct Address(Arc<Mailbox>);

#[derive(Debug)]
struct Mailbox {
    /// Shared by the senders under a lock; the reactor itself takes no lock.
    sender: Mutex<memory::sync::mailbox::Sender<Message>>,
    bell: Arc<Bell>,
    wake: EventFd,
}

impl Address {
    pub(super) fn new(
        sender: memory::sync::mailbox::Sender<Message>,
        bell: Arc<Bell>,
        wake: EventFd,
    ) -> Self {
        Address(Arc::new(Mailbox {
            sender: Mutex::new(sender),
            bell,
            wake,
        }))
    }

    /// Address of a reactor that never reads its mailbox, and the mailbox.
    #[cfg(test)]
    pub(super) fn of_nobody() -> (Self, impl Sized) {
        let (sender, mailbox) = memory::sync::mailbox::channel::<Message>(MAILBOX_LEN);
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

    /// Sends a message. Waits for room, at most as long as a reactor may take to answer.
    ///
    /// # Errors
    /// The message, if the mailbox stayed full.
    pub(super) fn tell(&self, message: Message) -> Result<(), Message> {
        self.tell_until(Instant::now() + ANSWER_TIMEOUT, message)
    }

    /// The same, with another deadline.
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

/// A probe that any thread can use to see whether a reactor answers.
#[derive(Clone, Debug)]
pub(crate) struct Pulse(Address);

impl Pulse {
    /// Asks for an answer; `None` if the reactor's mailbox is full.
    pub(crate) fn ask(&self) -> Option<mpsc::Receiver<()>> {
        let (answer, answered) = mpsc::sync_channel(1);
        let sent = self.0.try_send(Message::Answer(answer));
        sent.is_ok().then_some(answered)
    }

    /// Probe of a reactor that never reads its mailbox, and the mailbox.
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
    /// Starts a reactor, pinned to `cpu` if one is given.
    pub(crate) fn start(index: usize, cpu: Option<u32>, mode: Mode) -> anyhow::Result<Self> {
        let (sender, receiver) = memory::sync::mailbox::channel(MAILBOX_LEN);
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
                // created on its own thread, because its poller must stay there
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

    /// Its wait policy.
    pub(crate) fn mode(&self) -> Mode {
        self.mode
    }

    /// Its counters.
    pub(crate) fn counters(&self) -> &ReactorCounters {
        &self.counters
    }

    /// Its mailbox.
    pub(super) fn address(&self) -> Address {
        self.address.clone()
    }

    /// A probe for any thread.
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

    /// Sends it the addresses of all reactors, in the order of this list.
    pub(crate) fn meet(&self, all: &[ReactorHandle]) -> anyhow::Result<()> {
        let all = all.iter().map(|reactor| reactor.address.clone());
        self.send(Message::Peers(all.collect()))
    }

    /// Changes the timing parameters of a medium that is open here.
    ///
    /// # Errors
    /// The parameters do not fit the drive's shape; the reactor does not answer.
    pub(crate) fn retune(
        &self,
        channel: ChannelId,
        timing: model::Parameters,
    ) -> anyhow::Result<()> {
        let timing = Box::new(timing);
        Ok(self.ask(|answer| Message::Retune(channel, timing, answer))??)
    }

    /// Changes the state of a lost zone on a medium that is open here, and notifies its hosts.
    pub(crate) fn lose_zone(
        &self,
        channel: ChannelId,
        zone: u32,
        to: ZoneLoss,
    ) -> anyhow::Result<Result<(), ZoneLossError>> {
        self.ask(|answer| Message::LoseZone(channel, zone, to, answer))
    }

    /// A function with which any thread can request the timing model's state of a medium that is
    /// open here.
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

    /// Sets the reactors for queues that the controller's hosts create from now on.
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

    /// The completion queues of a controller, each with the reactor that serves it.
    pub(crate) fn residences(&self, slot: ControllerSlot) -> anyhow::Result<Vec<(u16, usize)>> {
        let all = self.ask(|answer| Message::Residences(slot, answer))?;
        Ok(all.into_iter().map(|(id, at)| (id, at.0.into())).collect())
    }

    /// The counters of every controller on this reactor.
    pub(crate) fn counts(&self) -> anyhow::Result<Vec<(ControllerSlot, Counted)>> {
        self.ask(Message::Counts)
    }

    /// The requested state of media; `None` for a medium that is no longer open here.
    pub(crate) fn look(
        &self,
        media: Vec<(ChannelId, Wanted)>,
    ) -> anyhow::Result<Vec<Option<Taken>>> {
        self.ask(|answer| Message::Look(LookAsked { media, answer }))
    }

    /// Starts or stops tracing a controller's commands.
    pub(crate) fn trace(
        &self,
        slot: ControllerSlot,
        spec: Option<TraceSpec>,
    ) -> anyhow::Result<()> {
        self.ask(|answer| Message::Trace(slot, spec, Some(answer)))
    }

    /// Applies the live keys of a controller's configuration.
    pub(crate) fn configure(
        &self,
        slot: ControllerSlot,
        keys: Arc<Controller>,
    ) -> anyhow::Result<()> {
        self.ask(|answer| Message::Configure(slot, keys, answer))
    }

    /// A function with which any thread can stop tracing a controller. It must be called before the
    /// controller's slot is reused.
    pub(crate) fn ends_trace(&self, slot: ControllerSlot) -> Box<dyn FnOnce() + Send> {
        let address = self.address.clone();
        Box::new(move || {
            if address.tell(Message::Trace(slot, None, None)).is_err() {
                tracing::error!("a reactor does not take messages: a trace costs on");
            }
        })
    }

    /// Waits until the reactor has handled all earlier messages.
    pub(crate) fn answer(&self) -> anyhow::Result<()> {
        self.ask(Message::Answer)
    }

    /// Updates tenants and assignments.
    pub(crate) fn tell_tenants(&self, news: Vec<TenantNews>) -> anyhow::Result<()> {
        self.ask(|answer| Message::Tenants(news, answer))
    }

    /// Closes a medium's channel, which no controller uses any more.
    pub(crate) fn close_channel(&self, medium: Arc<Medium>) -> anyhow::Result<()> {
        self.ask(|answer| Message::CloseChannel(medium, answer))
    }

    /// Gives the reactor a duty for the completion queues of a drive, before channels are opened.
    pub(crate) fn open_relay(&self, medium: Arc<Medium>, duty: Duty) -> anyhow::Result<()> {
        Ok(self.ask(|answer| Message::OpenRelay(medium, duty, answer))??)
    }

    /// Takes the reactor's duties for a drive away, after channels are closed.
    pub(crate) fn close_relays(&self, medium: Arc<Medium>) -> anyhow::Result<()> {
        self.ask(|answer| Message::CloseRelays(medium, answer))
    }

    /// Adds a subsystem, without controllers.
    pub(crate) fn add_subsystem(&self, new: NewSubsystem) -> anyhow::Result<SubsystemSlot> {
        Ok(self.ask(|answer| Message::AddSubsystem(Box::new(new), answer))??)
    }

    /// Removes a subsystem without controllers. Returns whether its last changes were saved.
    pub(crate) fn end_subsystem(&self, slot: SubsystemSlot) -> anyhow::Result<bool> {
        self.ask(|answer| Message::EndSubsystem(slot, answer))
    }

    /// Passes an operator's request to a subsystem. When this returns, the hosts concerned have
    /// been notified.
    pub(crate) fn request(
        &self,
        slot: SubsystemSlot,
        request: OperatorRequest,
    ) -> anyhow::Result<Result<u32, Status>> {
        self.ask(|answer| Message::Request(slot, request, answer))
    }

    /// The current state of a subsystem.
    pub(crate) fn view(&self, slot: SubsystemSlot) -> anyhow::Result<View> {
        self.ask(|answer| Message::View(slot, answer))
    }

    /// Adds a controller.
    pub(crate) fn add_controller(&self, new: NewController) -> anyhow::Result<ControllerSlot> {
        self.ask(|answer| Message::AddController(Box::new(new), answer))?
    }

    /// Begins a removal; a later call of [`Self::remove_controller`] waits for its end.
    pub(crate) fn begin_to_remove(&self, slot: ControllerSlot) -> anyhow::Result<()> {
        let (answer, _) = mpsc::sync_channel(1);
        self.send(Message::RemoveController(slot, answer))
    }

    /// Detaches a controller's host and removes the controller.
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
