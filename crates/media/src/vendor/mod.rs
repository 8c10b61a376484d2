//! Vendor commands of a medium, beside the NVM command set. The commands of one vendor are one file
//! here and one line in `vendors.rs`; the configuration, its checks, completion, the API
//! description and the book then know their word.
//!
//! The medium below executes everything else. Commands have a state of the medium, so one reactor
//! serves it; the state stays when another reactor takes over. Its [`numbers`] also stay when
//! another process does.

mod numbers;

use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::{Arc, PoisonError};
use std::{fmt, io};

use memory::{DmaView, Segment, StateFile};
use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::Csi;
use nvme_spec::{Sqe, Status};
use port::namespace::Namespace;
use port::set::{Asked, CommandSet};
use port::ticket::Ticket;
use port::{Added, ByteRange, Channel as Port, Done, Outcome, Request};

use self::numbers::Numbers;

/// Vendor commands, as the controller sees them.
trait Commands: fmt::Debug + Send + Sync {
    /// Examines a submission queue entry, and returns whether the command reads or changes data,
    /// and the direction and bytes of its data. `None`: the command is not one of these.
    ///
    /// # Errors
    /// The status that rejects the command.
    fn command(&self, sqe: &Sqe, namespace: &Namespace) -> Result<Option<Asked>, Status>;

    /// Name of a command; `None`: the command is not one of these.
    fn name(&self, opcode: u8) -> Option<&'static str>;

    /// Effects of a command, for the log of effects; `None`: the command is not one of these.
    fn effects(&self, opcode: u8) -> Option<CommandEffects>;

    /// Their state: `numbers` is empty for a new medium, and has what a former process of the
    /// server left otherwise.
    fn start(&self, numbers: Numbers) -> Box<dyn Execute>;
}

/// State of vendor commands, and their execution on the reactor's thread: it must not block.
trait Execute: fmt::Debug + Send {
    /// Executes a command: its submission queue entry, copied from the host once, the range of its
    /// namespace in the medium, and its data, at most as many bytes as [`Commands::command`]
    /// returned.
    fn execute(&mut self, sqe: &Sqe, namespace: ByteRange, data: &[Segment<'_>]) -> Outcome;

    /// Removes the state of a namespace, which was formatted or deleted.
    fn renew(&mut self, namespace: ByteRange);
}

macro_rules! declare {
    ($($(#[$doc:meta])+ $module:ident::$name:ident;)+) => {
        $(mod $module;)+

        /// Vendor commands that a medium can have.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Vendor {
            $($(#[$doc])+ $name),+
        }

        impl Vendor {
            fn commands(self) -> Box<dyn Commands> {
                match self {
                    $(Self::$name => Box::new($module::$name)),+
                }
            }
        }
    };
}

vendor_commands!(declare);

/// The command set of namespaces with them: NVM, and these commands.
#[derive(Debug)]
struct Extended(Box<dyn Commands>);

impl CommandSet for Extended {
    fn csi(&self) -> Csi {
        Csi::NVM
    }

    fn keeps_bytes(&self) -> bool {
        true
    }

    fn command(&self, sqe: &Sqe, namespace: &Namespace) -> Result<Option<Asked>, Status> {
        self.0.command(sqe, namespace)
    }

    fn opcode_name(&self, opcode: u8) -> Option<&'static str> {
        self.0.name(opcode)
    }

    fn effects(&self, opcode: u8) -> Option<CommandEffects> {
        self.0.effects(opcode)
    }
}

/// The vendor commands of a medium.
#[derive(Debug)]
pub(crate) struct VendorMedium {
    set: Arc<dyn CommandSet>,
    file: Arc<StateFile>,
    /// `None` while a channel has it.
    #[expect(clippy::disallowed_types, reason = "no command comes here")]
    state: std::sync::Mutex<Option<Box<dyn Execute>>>,
}

impl VendorMedium {
    /// Those of a new medium, or with what is in the file of a former process.
    ///
    /// # Errors
    /// The system's; the file is no such file.
    pub(crate) fn new(vendor: Vendor, former: Option<OwnedFd>) -> io::Result<Self> {
        let commands = vendor.commands();
        let file = match former {
            Some(former) => StateFile::open(former).map_err(io::Error::other)?,
            None => numbers::create()?,
        };
        Ok(VendorMedium {
            state: Some(commands.start(Numbers::of(&file)?)).into(),
            set: Arc::new(Extended(commands)),
            file,
        })
    }

    /// The file that has their state.
    pub(crate) fn file(&self) -> BorrowedFd<'_> {
        self.file.fd()
    }

    /// The command set of its namespaces.
    pub(crate) fn set(&self) -> Arc<dyn CommandSet> {
        Arc::clone(&self.set)
    }

    /// Creates the channel over `below`; `None` while there is another one.
    pub(crate) fn channel<C>(self: &Arc<Self>, below: C) -> Option<VendorChannel<C>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        Some(VendorChannel {
            state: Some(state.take()?),
            home: Arc::clone(self),
            below,
        })
    }
}

/// A reactor's handle on a medium with vendor commands.
#[derive(Debug)]
pub(crate) struct VendorChannel<C> {
    below: C,
    /// Present until the drop.
    state: Option<Box<dyn Execute>>,
    home: Arc<VendorMedium>,
}

impl<C> VendorChannel<C> {
    pub(crate) fn below(&self) -> &C {
        &self.below
    }

    pub(crate) fn below_mut(&mut self) -> &mut C {
        &mut self.below
    }

    fn state(&mut self) -> &mut dyn Execute {
        &mut **self.state.as_mut().expect("there until the drop")
    }
}

impl<C> Drop for VendorChannel<C> {
    fn drop(&mut self) {
        let mut home = self
            .home
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *home = self.state.take();
    }
}

// Not inlined: the channels of other kinds are dispatched beside it.
impl<C: Port> Port for VendorChannel<C> {
    #[inline(never)]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        match *request {
            Request::Command { sqe, extent, .. } => {
                Added::Done(ticket, self.state().execute(sqe, extent, segments))
            }
            Request::Renew { extent } => {
                self.state().renew(extent);
                Added::Done(ticket, Outcome::OK)
            }
            _ => self.below.add(ticket, request, segments, view),
        }
    }

    #[inline(never)]
    fn submit(&mut self) {
        self.below.submit();
    }

    #[inline(never)]
    fn reap(&mut self, done: &mut Vec<Done>) {
        self.below.reap(done);
    }

    #[inline(never)]
    fn in_flight(&self) -> u32 {
        self.below.in_flight()
    }

    #[inline(never)]
    fn is_full(&self, request: &Request<'_>) -> bool {
        let is_ours = matches!(request, Request::Command { .. } | Request::Renew { .. });
        !is_ours && self.below.is_full(request)
    }

    #[inline(never)]
    fn copies(&self) -> bool {
        self.below.copies()
    }

    #[inline(never)]
    fn expect(&self, offset: u64, len: u64) {
        self.below.expect(offset, len);
    }
}
