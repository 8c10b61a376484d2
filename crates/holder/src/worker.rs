//! The worker's side: a server process that a holder has started.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::MemfdFlags;
use rustix::io::Errno;
use rustix::net::SocketType;
use vfio_user::relayed::Inbox;

use crate::wire::{self, Malformed, Message, Received, field, kind};

/// The environment variable that a worker has: its standard input is the socket of its holder.
pub(crate) const VARIABLE: &str = "NVMIRAGE_HOLDER";
/// How long a holder may take for a reply.
const PATIENCE: Timespec = Timespec {
    tv_sec: 5,
    tv_nsec: 0,
};

/// Why a request to the holder failed.
#[derive(Debug, thiserror::Error)]
pub enum HolderError {
    /// The holder has gone, or its socket failed.
    #[error("the holder cannot be asked: {0}")]
    Io(#[from] io::Error),
    /// It has gone.
    #[error("the holder has ended")]
    Ended,
    /// It does not answer.
    #[error("the holder gave no reply within {} s", PATIENCE.tv_sec)]
    Silent,
    /// It sent what is no reply.
    #[error("the holder sent a wrong reply: {0}")]
    Malformed(#[from] Malformed),
    /// It refuses, and says why.
    #[error("{0}")]
    Refused(String),
    /// The reply has not what it must have.
    #[error("the holder's reply lacks something: it is of another version")]
    Incomplete,
    /// The environment speaks of a holder that there is not.
    #[error("{VARIABLE} is set, but standard input is no socket of a holder: remove the variable")]
    Variable,
}

/// A worker's description of its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its version, for people.
    pub version: &'static str,
    /// The oldest format of a controller's state that it reads.
    pub reads_from: u32,
    /// The format that it writes.
    pub writes: u32,
}

/// The end of the worker before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Before {
    /// Cause of its end.
    pub cause: String,
    /// When: the time of CLOCK_MONOTONIC.
    pub ended: Duration,
}

/// The holder of this process.
#[derive(Debug)]
pub struct Holder {
    socket: OwnedFd,
    /// The number of the last request.
    asked: Mutex<u32>,
    generation: u64,
    before: Option<Before>,
}

impl Holder {
    /// The holder that started this process, if one did. Its socket is standard input, which has
    /// nothing to read afterwards. Call it before the process has threads.
    ///
    /// It waits until this worker is wanted: a holder starts one before the last one ends.
    ///
    /// # Errors
    /// [`HolderError`]; [`HolderError::Ended`] is no fault: it was not wanted.
    pub fn of_environment(program: &Program) -> Result<Option<Self>, HolderError> {
        if std::env::var_os(VARIABLE).is_none() {
            return Ok(None);
        }
        let socket = io::stdin().as_fd().try_clone_to_owned()?;
        if rustix::net::sockopt::socket_type(&socket) != Ok(SocketType::SEQPACKET) {
            return Err(HolderError::Variable);
        }
        // The holder waits for signals with them blocked, and a child inherits that.
        SigSet::empty().thread_set_mask().map_err(io::Error::from)?;
        let nothing = File::open("/dev/null")?;
        rustix::stdio::dup2_stdin(&nothing).map_err(io::Error::from)?;
        Self::greet(socket, program).map(Some)
    }

    fn greet(socket: OwnedFd, program: &Program) -> Result<Self, HolderError> {
        let mut holder = Self {
            socket,
            asked: Mutex::new(0),
            generation: 0,
            before: None,
        };
        let [from, to] = [program.reads_from, program.writes].map(|it| u64::from(it).to_le_bytes());
        let fields: [(u16, &[u8]); 3] = [
            (field::READS_FROM, &from),
            (field::WRITES, &to),
            (field::VERSION, program.version.as_bytes()),
        ];
        let hello = holder.ask_for(kind::HELLO, &fields, &[], None)?;
        let generation = hello.number_in(field::GENERATION)?;
        holder.generation = generation.ok_or(HolderError::Incomplete)?;
        let ended = hello.number_in(field::ENDED)?;
        holder.before = hello.text(field::CAUSE).zip(ended).map(|(cause, ended)| {
            let ended = Duration::from_nanos(ended);
            Before { cause, ended }
        });
        Ok(holder)
    }

    /// Number of this worker, from 1.
    #[must_use]
    pub fn generation(&self) -> u64 {
        self.generation
    }

    /// The end of the worker before, if there was one.
    #[must_use]
    pub fn before(&self) -> Option<&Before> {
        self.before.as_ref()
    }

    /// Has the holder listen at `path`, with the permissions `mode`; where it does already, its
    /// connections come here from now on.
    ///
    /// # Errors
    /// [`HolderError`]: mostly, that it cannot listen there.
    pub fn listen(&self, path: &Path, mode: u32) -> Result<Inbox, HolderError> {
        let path = (field::NAME, path.as_os_str().as_bytes());
        let mode = u64::from(mode).to_le_bytes();
        let reply = self.ask(kind::LISTEN, &[path, (field::MODE, &mode)], &[])?;
        let inbox = reply.fds.into_iter().next();
        Ok(Inbox::from_fd(inbox.ok_or(HolderError::Incomplete)?)?)
    }

    /// Has the holder close the socket at `path`.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn close(&self, path: &Path) -> Result<(), HolderError> {
        let path = (field::NAME, path.as_os_str().as_bytes());
        self.ask(kind::CLOSE, &[path], &[]).map(drop)
    }

    /// Has the holder keep a descriptor for the next worker.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn keep(&self, name: &str, fd: BorrowedFd<'_>) -> Result<(), HolderError> {
        let name = (field::NAME, name.as_bytes());
        self.ask(kind::KEEP, &[name], &[fd]).map(drop)
    }

    /// As [`Self::keep`], of a descriptor by which a device reaches memory of hosts: it is closed
    /// before the holder grants what hosts ask for while no worker follows.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn keep_device(&self, name: &str, fd: BorrowedFd<'_>) -> Result<(), HolderError> {
        let fields: [(u16, &[u8]); 2] = [(field::NAME, name.as_bytes()), (field::DEVICE, &[])];
        self.ask(kind::KEEP, &fields, &[fd]).map(drop)
    }

    /// The descriptor that a former worker has had kept under this name.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn fetch(&self, name: &str) -> Result<Option<OwnedFd>, HolderError> {
        let name = (field::NAME, name.as_bytes());
        let reply = self.ask(kind::FETCH, &[name], &[])?;
        Ok(reply.fds.into_iter().next())
    }

    /// Has the holder keep bytes for the next worker.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn keep_bytes(&self, name: &str, bytes: &[u8]) -> Result<(), HolderError> {
        let fd = rustix::fs::memfd_create(name, MemfdFlags::CLOEXEC).map_err(io::Error::from)?;
        let mut file = File::from(fd);
        file.write_all(bytes)?;
        self.keep(name, file.as_fd())
    }

    /// The bytes that a former worker has had kept under this name, `max` at most.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn fetch_bytes(&self, name: &str, max: u64) -> Result<Option<Vec<u8>>, HolderError> {
        let Some(fd) = self.fetch(name)? else {
            return Ok(None);
        };
        let mut file = File::from(fd);
        file.rewind()?;
        let mut bytes = Vec::new();
        file.take(max).read_to_end(&mut bytes)?;
        Ok(Some(bytes))
    }

    /// Has the holder forget what it keeps under this name.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn forget(&self, name: &str) -> Result<(), HolderError> {
        let name = (field::NAME, name.as_bytes());
        self.ask(kind::FORGET, &[name], &[]).map(drop)
    }

    /// This worker serves.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn ready(&self) -> Result<(), HolderError> {
        self.ask(kind::READY, &[], &[]).map(drop)
    }

    /// Tells the service manager, if there is one, of this worker's state: lines as of
    /// sd_notify(3). A worker that tells nothing for the time in `WATCHDOG_USEC` is replaced,
    /// unless it has told that it stops.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn notify(&self, state: &str) -> Result<(), HolderError> {
        let state = (field::STATE, state.as_bytes());
        self.ask(kind::NOTIFY, &[state], &[]).map(drop)
    }

    /// This worker ends by its own will: it is not to be replaced.
    ///
    /// # Errors
    /// [`HolderError`].
    pub fn bye(&self) -> Result<(), HolderError> {
        self.ask(kind::BYE, &[], &[]).map(drop)
    }

    /// Waits until the holder has ended.
    ///
    /// # Errors
    /// The system's.
    pub fn wait_for_end(&self) -> io::Result<()> {
        loop {
            let mut polled = [PollFd::new(&self.socket, PollFlags::empty())];
            match poll(&mut polled, None) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
    }

    /// Has the holder start another program, which waits to go on; its version.
    ///
    /// # Errors
    /// [`HolderError`]: mostly, that the program cannot go on where this one ends.
    pub fn upgrade(&self, program: &Path) -> Result<String, HolderError> {
        let path = (field::NAME, program.as_os_str().as_bytes());
        let reply = self.ask(kind::UPGRADE, &[path], &[])?;
        reply.text(field::VERSION).ok_or(HolderError::Incomplete)
    }

    /// This worker is quiet, and the program of [`Self::upgrade`] goes on. The holder ends this
    /// process: call this last.
    ///
    /// # Errors
    /// [`HolderError`]: this process goes on.
    pub fn hand_over(&self) -> Result<(), HolderError> {
        self.ask(kind::HAND_OVER, &[], &[]).map(drop)
    }

    fn ask(
        &self,
        kind: u16,
        fields: &[(u16, &[u8])],
        fds: &[BorrowedFd<'_>],
    ) -> Result<Message, HolderError> {
        self.ask_for(kind, fields, fds, Some(&PATIENCE))
    }

    /// A request whose reply may take `patience`; without one, as long as the holder lives.
    fn ask_for(
        &self,
        kind: u16,
        fields: &[(u16, &[u8])],
        fds: &[BorrowedFd<'_>],
        patience: Option<&Timespec>,
    ) -> Result<Message, HolderError> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        *asked += 1;
        let mut request = Message::new(kind, *asked);
        for (field, bytes) in fields {
            request = request.with(*field, bytes);
        }
        if request.encode().len() > wire::MAX_LEN {
            return Err(HolderError::Refused("a name is too long".into()));
        }
        while !wire::send(self.socket.as_fd(), &request, fds)? {
            self.wait(PollFlags::OUT, patience)?;
        }
        loop {
            match wire::receive(&self.socket)? {
                Received::Nothing => self.wait(PollFlags::IN, patience)?,
                Received::End => return Err(HolderError::Ended),
                Received::Message(reply) => {
                    let reply = reply?;
                    // Replies to requests that were waited for in vain come before.
                    if reply.number == *asked {
                        return match reply.text(field::REFUSED) {
                            Some(why) => Err(HolderError::Refused(why)),
                            None if reply.kind == kind | kind::REPLY => Ok(reply),
                            None => Err(HolderError::Incomplete),
                        };
                    }
                }
            }
        }
    }

    fn wait(&self, flags: PollFlags, patience: Option<&Timespec>) -> Result<(), HolderError> {
        loop {
            let mut polled = [PollFd::new(&self.socket, flags)];
            return match poll(&mut polled, patience) {
                Ok(0) => Err(HolderError::Silent),
                Ok(_) => Ok(()),
                Err(Errno::INTR) => continue,
                Err(errno) => Err(io::Error::from(errno).into()),
            };
        }
    }
}
