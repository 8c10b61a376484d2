//! Messages to reactors, and the mailboxes that take them.

use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use api::config::Controller;
use controller::ControllerConfig;
use controller::counters::Counted;
use controller::flight::TraceSpec;
use controller::inspect::{CompletionView, ControllerView};
use engine::{ControllerSlot, EngineId, Mail, MoveError, SubsystemSlot};
use media::{Duty, Medium, ZoneLoss, ZoneLossError};
use memory::{Bell, Counter, EventFd};
use nvme_spec::Status;
use port::ChannelId;
use subsystem::{Allocated, ControllerRecord, OperatorRequest, Record, SubsystemConfig};
use transport::nbd;
use transport::nvme_tcp::{Access, Branch, DiscoveryLog, End, TargetConfig, Tls};
use transport::ublk::{Disk, News};
use transport::vfio_user::{Custody, Entrance};
use ublk::Device;

use super::answer::{Answer, Answered, answer};
use super::lines::Vectors;
use super::looks::LookAsked;
use super::network::NetworkCounts;
use super::presence::Presence;
use super::tenants::TenantNews;
use crate::snapshots::Asked;

/// A queue that is to move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Movable {
    /// The controller that is configured.
    pub controller: ControllerSlot,
    /// The queue's own controller: that one, or one of its hosts over NVMe/TCP. Such a host may
    /// leave, and its slot be another's: its queue is then gone.
    pub slot: ControllerSlot,
    /// Its completion queue.
    pub cqid: u16,
}

/// Capacity of a reactor's mailbox.
pub(crate) const MAILBOX_LEN: usize = 256;
/// Longest time for an answer: removing a controller drains its commands within 4 s, and saving a
/// record times out after 5 s.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Pause before retrying a message to a full mailbox.
const FULL_PAUSE: Duration = Duration::from_millis(1);

/// Message to a reactor.
#[derive(Debug)]
pub(crate) enum Message {
    /// Addresses of all reactors, by number.
    Peers(Vec<Address>),
    /// Mail from another reactor.
    Mail(EngineId, Mail),
    /// Interrupt lines for the queues of another reactor's controller.
    Lines(EngineId, ControllerSlot, Vectors),
    /// Serve a queue of a host over NVMe/TCP of that reactor's controller, whose lane lives here.
    Branch(EngineId, ControllerSlot, Box<Branch>),
    /// Send a queue of that reactor's controller back.
    Recall(EngineId, ControllerSlot, u16),
    /// A queue of a controller comes back from that reactor, and why it has ended, if it has.
    BranchBack(EngineId, ControllerSlot, Box<Branch>, Option<End>),
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
        Answer<Result<SubsystemSlot, subsystem::ConfigError>>,
    ),
    /// Remove a subsystem without controllers.
    EndSubsystem(SubsystemSlot, Answer<bool>),
    /// Add a controller.
    AddController(Box<NewController>, Answer<anyhow::Result<ControllerSlot>>),
    /// Detach the host of a controller and remove the controller.
    RemoveController(ControllerSlot, Answer<()>),
    /// End a controller's hosts over NVMe/TCP, NBD clients or front end whose controllers have
    /// these identifiers; the answer is those that were there.
    Disconnect(ControllerSlot, Vec<u16>, Answer<Vec<u16>>),
    /// Report the only namespace that the block device of a controller can have, with its name, or
    /// how many there are.
    OnlyNamespace(ControllerSlot, Answer<Result<(String, Disk), usize>>),
    /// Serve the block device of a controller.
    AttachDevice(ControllerSlot, Box<NewDevice>, Answer<Result<(), String>>),
    /// End all hosts over NVMe/TCP, all NBD clients and all front ends.
    DisconnectAll(Answer<()>),
    /// Report whether no connection over NVMe/TCP is to close.
    HasParted(Answer<bool>),
    /// Hosts over NVMe/TCP that may use a controller from now on.
    SetAccess(ControllerSlot, Access, Option<Tls>, Answer<()>),
    /// Have NBD clients of a controller that come from now on use this TLS.
    SetNbdTls(ControllerSlot, Arc<nbd::Tls>, Answer<()>),
    /// Set the reactors for queues that the controller's hosts create from now on.
    Spread(ControllerSlot, Vec<EngineId>, Answer<()>),
    /// Move a queue of a controller.
    Move(Movable, EngineId, Answer<Result<(), MoveError>>),
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
    /// Report the controllers of a controller's hosts over NVMe/TCP, NBD clients or front end, with
    /// their identifiers.
    Associations(ControllerSlot, Answer<Vec<(u16, ControllerSlot)>>),
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
    /// Report what the hosts over NVMe/TCP, NBD clients or front ends of each entrance have done.
    NetworkCounts(Answer<Vec<(ControllerSlot, NetworkCounts)>>),
    /// Start or stop tracing the commands of a controller.
    Trace(ControllerSlot, Option<TraceSpec>, Option<Answer<()>>),
    /// Apply the live keys of a controller's configuration.
    Configure(ControllerSlot, Arc<Controller>, Answer<()>),
    /// Report whether every controller that goes on from a former process has executed again what
    /// it may.
    HasReplayed(Answer<bool>),
    /// Let those controllers execute copies again.
    ReleaseCopies(Answer<()>),
    /// Let those controllers fetch commands.
    Release(Answer<()>),
    /// Have all controllers fetch no more commands, or go on.
    SetPaused(bool, Answer<()>),
    /// Report whether the queues here are paused and have no commands.
    IsDrained(Answer<bool>),
    /// Subsystems that hosts can reach over a network.
    Discovery(Arc<DiscoveryLog>),
    /// Answer, to show that the thread handles messages.
    Answer(Answer<()>),
    /// End the thread.
    Stop,
}

/// Where the hosts of a controller come from.
#[derive(Debug)]
pub enum Way {
    /// One at a time, over vfio-user.
    VfioUser(Entrance),
    /// Over NVMe/TCP, each with a controller of its own that is made when it comes.
    NvmeTcp(Listening),
    /// Over NBD, each client with a controller of its own that is made when it has chosen a
    /// namespace.
    Nbd(NbdListening),
    /// Over vhost-user-blk, each front end with a controller of its own that is made when it comes.
    VhostUserBlk(VhostListening),
    /// By a block device of this machine, with a controller of its own that is made when the device
    /// is.
    Ublk,
}

/// A listening socket for hosts over NVMe/TCP.
#[derive(Debug)]
pub struct Listening {
    /// The socket, which does not block.
    pub listener: TcpListener,
    /// Configuration for its hosts.
    pub config: Arc<TargetConfig>,
    /// Most hosts at the same time.
    pub hosts: usize,
}

/// A listening socket for NBD clients.
#[derive(Debug)]
pub struct NbdListening {
    /// The socket, which does not block.
    pub listener: NbdListener,
    /// Maximum number of clients at the same time.
    pub clients: usize,
    /// TLS of all clients, where they come through that.
    pub tls: Option<Arc<nbd::Tls>>,
}

/// Socket at which NBD clients connect.
#[derive(Debug)]
pub enum NbdListener {
    /// Clients on this machine.
    Unix(UnixListener),
    /// Clients over a network.
    Tcp(TcpListener),
}

/// A listening socket for front ends of vhost-user-blk, one at a time.
#[derive(Debug)]
pub struct VhostListening {
    /// The socket, which does not block.
    pub listener: UnixListener,
    /// Rings that the device has: 1 to [`transport::vhost_user::RINGS`].
    pub rings: u16,
}

/// A block device of this machine to serve.
#[derive(Debug)]
pub struct NewDevice {
    /// The server's end.
    pub device: Device,
    /// Name of its namespace.
    pub name: String,
    /// Its namespace.
    pub disk: Disk,
    /// Where to say what becomes of it.
    pub news: Sender<News>,
}

/// A controller to serve.
#[derive(Debug)]
pub struct NewController {
    /// Its configuration.
    pub config: ControllerConfig,
    /// Its subsystem.
    pub subsystem: SubsystemSlot,
    /// Where its hosts come from.
    pub way: Way,
    /// Whether a host is attached.
    pub presence: Arc<Presence>,
    /// Counter of doorbells that arrive as messages.
    pub doorbell_messages: Arc<Counter>,
    /// Its configuration file's keys, of which the reactor reads the live ones.
    pub keys: Arc<Controller>,
    /// Its media, where hosts may move it to another server.
    pub custody: Option<Arc<dyn Custody>>,
}

/// Mailbox of a reactor.
#[derive(Clone, Debug)]
pub(crate) struct Address(Arc<Mailbox>);

#[derive(Debug)]
struct Mailbox {
    /// Shared by the senders under a lock; the reactor itself takes no lock.
    sender: Mutex<memory::sync::mailbox::Sender<Message>>,
    bell: Arc<Bell>,
    wake: EventFd,
}

impl Address {
    pub(crate) fn new(
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

    /// Address of a reactor whose mailbox is left to the caller, and the mailbox.
    #[cfg(any(test, feature = "testing"))]
    #[expect(clippy::unwrap_used, reason = "for tests")]
    pub(crate) fn unread() -> (Self, memory::sync::mailbox::Receiver<Message>) {
        let (sender, mailbox) = memory::sync::mailbox::channel::<Message>(MAILBOX_LEN);
        let wake = EventFd::new().unwrap();
        (Address::new(sender, Arc::new(Bell::new()), wake), mailbox)
    }

    pub(crate) fn try_send(&self, message: Message) -> Result<(), Message> {
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
    pub(crate) fn tell(&self, message: Message) -> Result<(), Message> {
        self.tell_until(Instant::now() + ANSWER_TIMEOUT, message)
    }

    /// The same, with another deadline.
    pub(crate) fn tell_until(
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
pub struct Pulse(pub(crate) Address);

impl Pulse {
    /// Asks for an answer; `None` if the reactor's mailbox is full.
    pub fn ask(&self) -> Option<Answered<()>> {
        let (answer, answered) = answer();
        let sent = self.0.try_send(Message::Answer(answer));
        sent.is_ok().then_some(answered)
    }

    /// Probe of a reactor that never reads its mailbox, and the mailbox.
    #[cfg(any(test, feature = "testing"))]
    pub fn unread() -> (Self, impl Sized) {
        let (address, mailbox) = Address::unread();
        (Pulse(address), mailbox)
    }
}

/// Called with whether a record was saved.
pub type Ended = Box<dyn FnOnce(bool) + Send>;

/// Saves the records of subsystems, without making the caller wait.
pub trait Keep: std::fmt::Debug + Send {
    /// Saves a record, and calls `ended` later.
    fn keep(&self, subsystem: &str, record: Record, ended: Ended);
}

/// A subsystem to serve.
#[derive(Debug)]
pub struct NewSubsystem {
    /// Its configuration.
    pub config: SubsystemConfig,
    /// Where its records are saved; `None`: not at all.
    pub keeper: Option<Box<dyn Keep>>,
}

/// State of a subsystem at one moment.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Its namespaces.
    pub namespaces: Vec<Allocated>,
    /// Its controllers, current and earlier ones.
    pub controllers: Vec<ControllerRecord>,
    /// Configured namespaces that are deleted.
    pub deleted: Vec<String>,
}
