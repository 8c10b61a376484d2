//! Connections to an entrance with TLS that are not known to be a host's.
//!
//! ```text
//! Silent --first byte of an ICReq--> Newcomer
//!    \--of a ClientHello--> Waiting --whole, a place--> Shaking --done--> Newcomer
//! ```
//!
//! Both kinds of hosts come to one port: the first byte tells which kind one is (TCP 1.1, 3.6.1).
//! One that waits is not watched and looks a few times a second, so that whatever it sends costs
//! little. Only one that has sent a whole ClientHello gets a place: its key is looked for at once.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use authentication::TlsIdentity;
use port::time::Time;
use tls::Session;

use super::TargetConfig;
use super::connection::End;
use super::newcomer::{Newcomer, keep_alive};
use crate::secure::{HANDSHAKE, Handshake, HandshakePlace, has_hello, peek};

/// How long a connection may be silent or wait for a place, from its accept.
const WAIT_NS: u64 = 10_000_000_000;
/// How often one that waits looks for the rest of its hello, and for a place.
const RETRY_NS: u64 = 100_000_000;

#[derive(Debug)]
enum Stage {
    /// Nothing has come.
    Silent,
    /// A ClientHello has begun, which is not whole or has no place: when it looks again.
    Waiting(Time),
}

#[derive(Debug)]
enum Way {
    Socket(OwnedFd, Stage),
    Shaking(Handshake),
}

/// See the module.
#[derive(Debug)]
pub struct Greeting {
    way: Way,
    config: Arc<TargetConfig>,
    from: SocketAddr,
    since: Time,
    /// Name of the host by its own account, after a failed handshake.
    host: Option<String>,
}

/// Next step of a greeting: see [`Greeting::go_on`].
#[derive(Debug)]
pub struct Next(Step);

#[derive(Debug)]
enum Step {
    Plain,
    Shake(HandshakePlace),
    Secured(Session),
}

/// Result of a greeting.
#[derive(Debug)]
pub enum Greeted {
    /// Its handshake has begun.
    Greeting(Greeting),
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
            way: Way::Socket(stream, Stage::Silent),
            config,
            from,
            since: now,
            host: None,
        })
    }

    /// Looks how far it is. `None`: it waits, with the same descriptor. Due when its descriptor is
    /// readable and [`Self::wants_read`], and at [`Self::deadline`].
    ///
    /// # Errors
    /// It is over.
    pub fn poll(&mut self, now: Time) -> Result<Option<Next>, End> {
        let until = self.since + WAIT_NS;
        let (socket, stage) = match &mut self.way {
            Way::Socket(socket, stage) => (socket, stage),
            Way::Shaking(handshake) => {
                let polled = handshake.poll(now);
                if polled.is_err() {
                    let offered = TlsIdentity::parse(handshake.identity());
                    self.host = offered.map(|it| it.hostnqn().to_owned());
                }
                return Ok(polled?.map(|session| Next(Step::Secured(session))));
            }
        };
        if matches!(stage, Stage::Silent) {
            let mut byte = [0];
            match (peek(&*socket, &mut byte)?, &self.config.tls) {
                (0, _) if now < until => return Ok(None),
                (0, _) => return Err(End::Silent),
                (_, Some(_)) if byte[0] == HANDSHAKE => {}
                _ => return Ok(Some(Next(Step::Plain))),
            }
        }
        if now >= until {
            return Err(End::Silent);
        }
        // In this order one without a place calls the system for nothing.
        let tls = self.config.tls.as_ref();
        if let Some(place) = tls.and_then(|tls| tls.place(self.from.ip()))
            && has_hello(&*socket)?
        {
            return Ok(Some(Next(Step::Shake(place))));
        }
        *stage = Stage::Waiting(now + RETRY_NS);
        Ok(None)
    }

    /// Goes on. Its descriptor is another one then, or another kind's: it is not watched meanwhile.
    ///
    /// # Errors
    /// It is over.
    pub fn go_on(self, next: Next, now: Time) -> Result<Greeted, End> {
        let Self {
            way,
            config,
            from,
            since,
            ..
        } = self;
        let newcomer = match (next.0, way, &config.tls) {
            (Step::Secured(session), ..) => Newcomer::secured(session, config, now)?,
            (Step::Shake(place), Way::Socket(socket, _), Some(tls)) => {
                let handshake = tls.begin(socket, place, now).map_err(End::Io)?;
                return Ok(Greeted::Greeting(Self {
                    way: Way::Shaking(handshake),
                    config,
                    from,
                    since,
                    host: None,
                }));
            }
            (_, Way::Socket(socket, _), _) => {
                Newcomer::new(socket, config, since).map_err(End::Io)?
            }
            (_, Way::Shaking(_), _) => return Err(End::Silent),
        };
        Ok(Greeted::Newcomer(Box::new(newcomer)))
    }

    /// When it must be polled.
    #[must_use]
    pub fn deadline(&self) -> Time {
        match &self.way {
            Way::Socket(_, Stage::Silent) => self.since + WAIT_NS,
            Way::Socket(_, Stage::Waiting(again)) => *again,
            Way::Shaking(handshake) => handshake.deadline(),
        }
    }

    /// Whether it is to be polled for reading. One that waits has bytes already: it is not to be
    /// watched at all, since its end would wake its poller again and again.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        !matches!(self.way, Way::Socket(_, Stage::Waiting(_)))
    }

    /// Whether its handshake is in progress.
    #[must_use]
    pub fn is_shaking(&self) -> bool {
        matches!(self.way, Way::Shaking(_))
    }

    /// The host that it says to be, where its key is refused. Anyone can say so.
    #[must_use]
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Where it comes from.
    #[must_use]
    pub fn from(&self) -> SocketAddr {
        self.from
    }
}

impl AsFd for Greeting {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.way {
            Way::Socket(socket, _) => socket.as_fd(),
            Way::Shaking(handshake) => handshake.as_fd(),
        }
    }
}
