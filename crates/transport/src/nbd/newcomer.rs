//! A connection that has not chosen an export.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use nbd::{Agreed, Negotiation, Outcome, Tls};
use port::time::Time;
use rustix::net::SendFlags;

use super::end::End;
use super::input::Input;
use super::offer::{Offer, Offers};
use super::{failed, is_later};

/// How long a client may take to choose.
const CHOOSE_NS: u64 = 10_000_000_000;
/// Bytes of the input: the longest option, and what came behind it.
const INPUT: usize = 2 * nbd::MAX_OPTION;
/// Bytes of answers that wait, above which no option is taken.
const WAITING: usize = 64 << 10;
/// Receives in one poll.
const RECEIVES: usize = 8;

/// What a poll has come to.
#[derive(Debug)]
pub enum Progress {
    /// It waits for more.
    Waits,
    /// It is over.
    Ended(End),
    /// It has chosen: see [`Newcomer::arrive`].
    Chosen,
}

/// See the module.
#[derive(Debug)]
pub struct Newcomer {
    fd: OwnedFd,
    offers: Arc<Offers>,
    negotiation: Negotiation,
    input: Input,
    out: Vec<u8>,
    /// Bytes of `out` that have gone.
    gone: usize,
    outcome: Option<Outcome>,
    is_silent: bool,
    deadline: Time,
}

impl Newcomer {
    /// A connection that was accepted, and what its client can choose.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub fn new(fd: OwnedFd, offers: Arc<Offers>, now: Time) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // Not every socket has them. A client that vanishes is noticed after two minutes.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        let _ = keep_alive(&fd);
        Ok(Self {
            fd,
            offers,
            negotiation: Negotiation::new(Tls::Unavailable),
            input: Input::new(INPUT, &[]),
            out: Negotiation::GREETING.to_vec(),
            gone: 0,
            outcome: None,
            is_silent: true,
            deadline: now + CHOOSE_NS,
        })
    }

    /// Reads and answers options.
    pub fn poll(&mut self, now: Time) -> Progress {
        let ended = self.negotiate().err();
        match (ended, self.outcome) {
            (Some(end), _) => Progress::Ended(end),
            (None, Some(outcome)) if self.out.is_empty() => match outcome {
                Outcome::Transmission(_) => Progress::Chosen,
                Outcome::Abort | Outcome::StartTls => Progress::Ended(End::Closed),
            },
            _ if now >= self.deadline => Progress::Ended(End::Silent),
            _ => Progress::Waits,
        }
    }

    fn negotiate(&mut self) -> Result<(), End> {
        let mut received = 0;
        loop {
            self.send()?;
            if self.outcome.is_some() || self.out.len() - self.gone >= WAITING {
                return Ok(());
            }
            let mut bytes = self.input.bytes();
            let before = bytes.len();
            let waiting = self.out.len();
            let step = self
                .negotiation
                .step(&mut bytes, self.offers.exports(), &mut self.out)?;
            let taken = before - bytes.len();
            self.input.take(taken);
            self.outcome = step;
            if taken > 0 || step.is_some() || self.out.len() > waiting {
                continue;
            }
            // What is left in the socket is an event again.
            received += 1;
            if received > RECEIVES {
                return Ok(());
            }
            match self.input.receive(self.fd.as_fd()) {
                Ok(0) => return Err(End::Closed),
                Ok(_) => self.is_silent = false,
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn send(&mut self) -> Result<(), End> {
        while self.gone < self.out.len() {
            let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
            match rustix::net::send(&self.fd, &self.out[self.gone..], flags) {
                Ok(sent) => self.gone += sent,
                Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(()),
                Err(rustix::io::Errno::PIPE | rustix::io::Errno::CONNRESET) => {
                    return Err(End::Closed);
                }
                Err(error) => return Err(End::Io(error.into())),
            }
        }
        self.out.clear();
        self.gone = 0;
        Ok(())
    }

    /// From now on it can choose an export, or none: there are as many clients as there may be.
    pub fn set_full(&mut self, is_full: bool) {
        self.negotiation.set_full(is_full);
    }

    /// Whether it was refused an export since the last call, as there are too many clients.
    pub fn take_refused(&mut self) -> bool {
        self.negotiation.take_refused()
    }

    /// When it must be polled although nothing happens.
    #[must_use]
    pub fn deadline(&self) -> Time {
        self.deadline
    }

    /// Whether it reads what comes: not while answers wait that are many, or the last ones.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        self.outcome.is_none() && self.out.len() - self.gone < WAITING
    }

    /// Whether it waits for the socket to take answers.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether nothing has come from it.
    #[must_use]
    pub fn is_silent(&self) -> bool {
        self.is_silent
    }

    /// The client that has chosen. After [`Progress::Chosen`].
    ///
    /// # Panics
    /// It has not chosen.
    #[must_use]
    pub fn arrive(self) -> Arrival {
        let Some(Outcome::Transmission(agreed)) = self.outcome else {
            unreachable!("it has not chosen");
        };
        Arrival {
            offer: self.offers.get(agreed.export),
            fd: self.fd,
            agreed,
            left: self.input.bytes().into(),
        }
    }
}

/// Has the system notice a client that has vanished.
fn keep_alive(fd: &OwnedFd) -> rustix::io::Result<()> {
    use std::time::Duration;

    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(fd, true)?;
    sockopt::set_tcp_keepidle(fd, Duration::from_secs(60))?;
    sockopt::set_tcp_keepintvl(fd, Duration::from_secs(10))?;
    sockopt::set_tcp_keepcnt(fd, 6)
}

impl AsFd for Newcomer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// A client that has chosen an export.
#[derive(Debug)]
pub struct Arrival {
    pub(super) fd: OwnedFd,
    pub(super) offer: Offer,
    pub(super) agreed: Agreed,
    /// Bytes that came behind its choice.
    pub(super) left: Box<[u8]>,
}

impl Arrival {
    /// Name of its export.
    #[must_use]
    pub fn export(&self) -> &str {
        &self.offer.export.name
    }
}
