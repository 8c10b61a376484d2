//! A connection before it is a host: from its accept to the reply to VERSION.
//!
//! Any process that can open the socket can connect. A caller becomes a host when it has sent a
//! VERSION that is supported here. Until then it costs a descriptor and a buffer, has no
//! controller, and is closed after a bound. A caller that finds the drive in use is rejected with
//! EBUSY, and the reply names the process that has the drive.
//!
//! It does not decide which caller is next, and it keeps no clock: times are arguments.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use controller::Controller;
use memory::DoorbellPages;
use port::time::Time;
use rustix::io::Errno;
use vfio_user::message::{Refusal, Version};
use vfio_user::relayed::{Arrival, Origin};
use vfio_user::{Command, Connection, HEADER_LEN, Header, Message, Parting};

use super::{Session, SessionConfig, SessionEnd, number};

/// How long a caller may take for its VERSION.
const SILENCE_NS: u64 = 3_000_000_000;
/// How long a caller waits while another host has the drive: a host that leaves and one that
/// arrives may overlap. QEMU waits 5 s for the reply.
const TURN_NS: u64 = 1_000_000_000;
/// Messages before VERSION that are refused in one poll.
const MAX_MESSAGES: u32 = 4;

/// See the module.
#[derive(Debug)]
pub struct Caller {
    connection: Connection,
    process: Option<u32>,
    stage: Stage,
    since: Time,
}

#[derive(Debug)]
enum Stage {
    /// It has not sent a VERSION.
    Silent,
    /// It has, and waits for the reply. Nothing more of it is read until then.
    Introduced { request: Header, reply: Version },
}

/// Why a caller must be dropped before it is a host.
#[derive(Debug, thiserror::Error)]
pub enum CallerEnd {
    /// The connection ended.
    #[error(transparent)]
    Ended(#[from] SessionEnd),
    /// It sent no VERSION in time.
    #[error("it sent no VERSION within {} s", SILENCE_NS / 1_000_000_000)]
    Silent,
    /// The drive did not become free in time: [`Caller::refuse`] replies to it.
    #[error("the drive has another host")]
    Waited,
}

/// A server's reply to a host's VERSION, or an errno.
pub(super) fn agree(body: &[u8]) -> Result<Version, Errno> {
    let proposal = Version::parse(body).map_err(|_| Errno::INVAL)?;
    proposal.answer().ok_or(Errno::INVAL)
}

impl Caller {
    /// Takes a connection that was accepted at `now`.
    ///
    /// # Errors
    /// When the socket cannot be made non-blocking.
    pub fn new(arrival: Arrival, now: Time) -> io::Result<Self> {
        let connection = match arrival.origin {
            Origin::Ours => Connection::new(arrival.stream)?,
            Origin::Relayed | Origin::Resumed => Connection::relayed(arrival.stream)?,
        };
        Ok(Self {
            process: arrival.process,
            connection,
            stage: Stage::Silent,
            since: now,
        })
    }

    /// Reads until a supported VERSION has arrived: messages before it are rejected. Due when the
    /// socket is readable, unless [`Self::is_introduced`], and at [`Self::deadline`]. `is_taken`:
    /// another host has the drive, and has not gone.
    ///
    /// # Errors
    /// [`CallerEnd`]: drop it, by [`Self::refuse`] or [`Self::part`].
    pub fn poll(&mut self, now: Time, is_taken: bool) -> Result<(), CallerEnd> {
        if !self.is_introduced() {
            self.listen(now)?;
        }
        match self.stage {
            _ if self.deadline(is_taken).is_none_or(|until| now < until) => Ok(()),
            Stage::Silent => Err(CallerEnd::Silent),
            Stage::Introduced { .. } => Err(CallerEnd::Waited),
        }
    }

    fn listen(&mut self, now: Time) -> Result<(), SessionEnd> {
        self.connection.flush()?;
        for _ in 0..MAX_MESSAGES {
            let Some(Message { header, body, .. }) = self.connection.receive()? else {
                break;
            };
            if header.is_reply() {
                continue;
            }
            let agreed = match header.command {
                Command::VERSION if header.is_command() => agree(body),
                _ => Err(Errno::INVAL),
            };
            match agreed {
                Ok(reply) => {
                    let request = header;
                    self.stage = Stage::Introduced { request, reply };
                    self.since = now;
                    break;
                }
                Err(errno) => self.connection.reply_error(&header, number(errno))?,
            }
        }
        Ok(())
    }

    /// Whether it becomes a host as soon as the drive is free.
    #[must_use]
    pub fn is_introduced(&self) -> bool {
        matches!(self.stage, Stage::Introduced { .. })
    }

    /// Its process, where this one can see it.
    #[must_use]
    pub fn process(&self) -> Option<u32> {
        self.process
    }

    /// When it has waited for too long. While a host is going, which has a bound of its own, the
    /// next one is not refused.
    #[must_use]
    pub fn deadline(&self, is_taken: bool) -> Option<Time> {
        match self.stage {
            Stage::Silent => Some(self.since + SILENCE_NS),
            Stage::Introduced { .. } => is_taken.then(|| self.since + TURN_NS),
        }
    }

    /// Makes a host of it, which `controller` serves: answers its VERSION.
    ///
    /// # Errors
    /// It has gone, has not introduced itself, or there are no more descriptors; it is dropped
    /// then.
    pub fn attach(
        self,
        doorbells: Arc<DoorbellPages>,
        config: SessionConfig,
        controller: &mut Controller,
    ) -> Result<Session, SessionEnd> {
        let Stage::Introduced { request, reply } = &self.stage else {
            return Err(SessionEnd::Io(io::ErrorKind::NotConnected.into()));
        };
        let (major, minor) = (reply.major, reply.minor);
        tracing::debug!(
            controller = config.name,
            "negotiated version {major}.{minor}"
        );
        let session = Session::new(self.connection, self.process, doorbells, config);
        let mut session = session.map_err(SessionEnd::Io)?;
        session.claim(controller);
        // Before the host knows that it is one.
        session.keep(controller)?;
        session.introduce(request, reply)?;
        Ok(session)
    }

    /// Refuses it: the drive has another host, with this process identifier where that is known.
    #[must_use]
    pub fn refuse(mut self, host: Option<u32>) -> Parting {
        if let Stage::Introduced { request, .. } = &self.stage
            && !request.no_reply()
        {
            let mut body = Vec::new();
            Refusal { host }.encode(&mut body);
            // a client's buffer may be as long as its request only
            if request.size as usize - HEADER_LEN < body.len() {
                body.clear();
            }
            let header = request.error_reply(number(Errno::BUSY));
            // it may have gone
            let _ = self.connection.send(&header, &[&body], &[]);
        }
        self.part()
    }

    /// Closes its connection.
    #[must_use]
    pub fn part(self) -> Parting {
        Parting::new(self.connection)
    }
}

impl AsFd for Caller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.connection.as_fd()
    }
}
