//! Connections to an entrance with TLS that are not known to be a host's.
//!
//! ```text
//! Silent --first byte of an ICReq--> Newcomer
//!    \--of a ClientHello--> Waiting --a place--> Shaking --done--> Newcomer
//! ```
//!
//! Both kinds of hosts come to one port: the first byte tells which kind one is (TCP 1.1, 3.6.1).

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use port::time::Time;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::TargetConfig;
use super::connection::End;
use super::newcomer::{Newcomer, SECURE_NS, keep_alive};
use super::secure::Handshake;
#[cfg(doc)]
use super::secure::Handshakes;

/// Content type of a TLS record that has a message of a handshake.
const HANDSHAKE: u8 = 22;
/// How often a connection looks for a place.
const RETRY_NS: u64 = 10_000_000;

#[derive(Debug)]
enum Stage {
    /// Nothing has come.
    Silent(OwnedFd),
    /// There was no place for its handshake: when it looks again.
    Waiting(OwnedFd, Time),
    Shaking(Handshake),
}

/// See the module.
#[derive(Debug)]
pub struct Greeting {
    stage: Stage,
    config: Arc<TargetConfig>,
    from: SocketAddr,
    since: Time,
}

/// What a greeting has come to.
#[derive(Debug)]
pub enum Greeted {
    /// It waits for more, and so for another descriptor than before: watch it again.
    Waits(Greeting),
    /// It is one that has not sent a Connect command.
    Newcomer(Box<Newcomer>),
}

impl Greeting {
    /// Takes a connection that was accepted at `now`.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub fn new(
        stream: OwnedFd,
        from: SocketAddr,
        config: Arc<TargetConfig>,
        now: Time,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&stream, true)?;
        let _ = rustix::net::sockopt::set_tcp_nodelay(&stream, true);
        // A host without a keep alive timeout may vanish without a word. Not every socket has it.
        let _ = keep_alive(&stream);
        Ok(Self {
            stage: Stage::Silent(stream),
            config,
            from,
            since: now,
        })
    }

    /// Goes on. Due when its descriptor is readable and [`Self::wants_read`], and at
    /// [`Self::deadline`]; its descriptor is not to be watched meanwhile.
    ///
    /// # Errors
    /// It is over.
    pub fn poll(mut self, now: Time) -> Result<Greeted, End> {
        let until = self.since + SECURE_NS;
        let (socket, is_known) = match self.stage {
            Stage::Shaking(ref mut handshake) => {
                return Ok(match handshake.poll(now)? {
                    None => Greeted::Waits(self),
                    Some(session) => {
                        let newcomer = Newcomer::secured(session, self.config, self.since)?;
                        Greeted::Newcomer(Box::new(newcomer))
                    }
                });
            }
            Stage::Waiting(socket, _) => (socket, true),
            Stage::Silent(socket) => (socket, false),
        };
        // Of a connection that waits this finds its end.
        let first = first_byte(&socket)?;
        if now >= until {
            return Err(End::Silent);
        }
        let tls = self.config.tls.as_ref();
        let tls = tls.filter(|_| is_known || first == Some(HANDSHAKE));
        self.stage = match (first, tls) {
            (None, _) => Stage::Silent(socket),
            (Some(_), None) => {
                let newcomer = Newcomer::new(socket, self.config, self.since);
                return Ok(Greeted::Newcomer(Box::new(newcomer.map_err(End::Io)?)));
            }
            (Some(_), Some(tls)) => {
                let begun = tls.begin(socket, self.from.ip().to_canonical(), until);
                match begun.map_err(End::Io)? {
                    Ok(handshake) => Stage::Shaking(handshake),
                    Err(socket) => Stage::Waiting(socket, now + RETRY_NS),
                }
            }
        };
        Ok(Greeted::Waits(self))
    }

    /// When it must be polled.
    #[must_use]
    pub fn deadline(&self) -> Time {
        match &self.stage {
            Stage::Silent(_) => self.since + SECURE_NS,
            Stage::Waiting(_, again) => *again,
            Stage::Shaking(handshake) => handshake.deadline(),
        }
    }

    /// Whether it is to be polled for reading. One that waits for a place has bytes already.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        !matches!(self.stage, Stage::Waiting(..))
    }

    /// Where it comes from.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.from
    }
}

/// The first byte of a connection, which stays there.
fn first_byte(socket: &OwnedFd) -> Result<Option<u8>, End> {
    let mut byte = [0];
    match rustix::net::recv(socket, &mut byte, RecvFlags::PEEK | RecvFlags::DONTWAIT) {
        Ok((_, 0)) => Err(End::Closed),
        Ok(_) => Ok(Some(byte[0])),
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(Errno::CONNRESET | Errno::PIPE) => Err(End::Closed),
        Err(errno) => Err(End::Io(errno.into())),
    }
}

impl AsFd for Greeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.stage {
            Stage::Silent(socket) | Stage::Waiting(socket, _) => socket.as_fd(),
            Stage::Shaking(handshake) => handshake.as_fd(),
        }
    }
}
