//! A connection that has not chosen an export.
//!
//! ```text
//! Open --STARTTLS--> Open, awaits a ClientHello --whole, a place--> Shaking --done--> Open
//! ```
//!
//! Through TLS it negotiates again: whatever was agreed before, anyone on the way may have written.
//! One that waits for a place looks a few times a second, and is not watched meanwhile.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

use memory::guest::socket::Parts;
use nbd::{Agreed, Fault, Negotiation, Outcome};
use port::time::Time;
use tls::Session;

use super::end::End;
use super::input::Input;
use super::offer::{Offer, Offers};
use super::tls::Tls;
use super::{failed, is_later};
use crate::secure::{HANDSHAKE, Handshake, HandshakePlace, Origin, Stream, has_hello, peek};

/// How long a client may take to choose.
const CHOOSE_NS: u64 = 10_000_000_000;
/// How often one looks for the rest of its ClientHello, and for a place.
const RETRY_NS: u64 = 100_000_000;
/// Bytes of the input: the longest option, and what came behind it.
const INPUT: usize = 2 * nbd::MAX_OPTION;
/// Bytes of answers that wait, above which no option is taken.
const WAITING: usize = 64 << 10;
/// Receives in one poll.
const RECEIVES: usize = 8;
/// Characters of a name that the log has.
const NAME: usize = 64;

/// Result of a poll.
#[derive(Debug)]
pub enum Progress {
    /// It waits for more.
    Waits,
    /// It is over.
    Ended(End),
    /// It gets another descriptor: it is not to be watched before [`Newcomer::go_on`].
    Moves,
    /// It has chosen: see [`Newcomer::arrive`].
    Chosen,
}

#[derive(Debug)]
enum Wire {
    Open(Stream),
    Shaking(Handshake),
}

/// Result of [`Newcomer::go_on`].
#[derive(Debug)]
enum Next {
    Shake(HandshakePlace),
    Secured(Session),
}

/// A handshake that is to come.
#[derive(Clone, Copy, Debug)]
enum Hello {
    /// None of it has come.
    None,
    /// It is not whole, or has no place: when it looks again.
    Waits(Time),
}

/// See the module.
#[derive(Debug)]
pub struct Newcomer {
    wire: Wire,
    /// Its client has asked for TLS.
    hello: Option<Hello>,
    next: Option<Next>,
    tls: Option<Arc<Tls>>,
    from: Origin,
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
        Self::begin(fd, offers, None, Origin::User(0), now)
    }

    /// A connection that was accepted, by which nothing can be chosen before a handshake of TLS.
    /// `from` is its address, where it has one.
    ///
    /// # Errors
    /// It cannot be made non-blocking.
    pub fn with_tls(
        fd: OwnedFd,
        offers: Arc<Offers>,
        tls: Arc<Tls>,
        from: Option<IpAddr>,
        now: Time,
    ) -> io::Result<Self> {
        let from = match from {
            Some(address) => address.into(),
            None => {
                let user = rustix::net::sockopt::socket_peercred(&fd);
                Origin::User(user.map_or(u32::MAX, |user| user.uid.as_raw()))
            }
        };
        Self::begin(fd, offers, Some(tls), from, now)
    }

    fn begin(
        fd: OwnedFd,
        offers: Arc<Offers>,
        tls: Option<Arc<Tls>>,
        from: Origin,
        now: Time,
    ) -> io::Result<Self> {
        rustix::io::ioctl_fionbio(&fd, true)?;
        // Not every socket has them. A client that vanishes is noticed after two minutes.
        let _ = rustix::net::sockopt::set_tcp_nodelay(&fd, true);
        let _ = keep_alive(&fd);
        let negotiation = Negotiation::new(match &tls {
            Some(_) => nbd::Tls::Required,
            None => nbd::Tls::Unavailable,
        });
        Ok(Self {
            wire: Wire::Open(Stream::Plain(fd)),
            hello: None,
            next: None,
            tls,
            from,
            offers,
            negotiation,
            input: Input::new(INPUT, &[]),
            out: Negotiation::GREETING.to_vec(),
            gone: 0,
            outcome: None,
            is_silent: true,
            deadline: now + CHOOSE_NS,
        })
    }

    /// Reads and answers options, and follows a handshake.
    pub fn poll(&mut self, now: Time) -> Progress {
        match self.step(now) {
            Err(end) => Progress::Ended(end),
            Ok(Progress::Waits) if now >= self.deadline => Progress::Ended(End::Silent),
            Ok(progress) => progress,
        }
    }

    fn step(&mut self, now: Time) -> Result<Progress, End> {
        let stream = match &mut self.wire {
            Wire::Open(stream) => stream,
            Wire::Shaking(handshake) => {
                let session = handshake.poll(now)?;
                return Ok(self.moves(session.map(Next::Secured)));
            }
        };
        if let Some(hello) = self.hello {
            let place = await_hello(stream, hello, self.tls.as_deref(), self.from)?;
            if matches!(place, Awaited::Waits) {
                self.hello = Some(Hello::Waits(now + RETRY_NS));
            }
            let next = match place {
                Awaited::Place(place) => Some(Next::Shake(place)),
                Awaited::Waits | Awaited::Nothing => None,
            };
            return Ok(self.moves(next));
        }
        self.negotiate()?;
        match self.outcome {
            Some(outcome) if self.out.is_empty() => match outcome {
                Outcome::Transmission(_) => Ok(Progress::Chosen),
                Outcome::Abort => {
                    self.shut();
                    Err(End::Left)
                }
                Outcome::StartTls => {
                    self.outcome = None;
                    self.hello = Some(Hello::None);
                    self.step(now)
                }
            },
            _ => Ok(Progress::Waits),
        }
    }

    fn moves(&mut self, next: Option<Next>) -> Progress {
        self.next = next;
        match self.next {
            Some(_) => Progress::Moves,
            None => Progress::Waits,
        }
    }

    /// Goes on after [`Progress::Moves`]. Its descriptor is another one then.
    ///
    /// # Errors
    /// It is over.
    pub fn go_on(mut self, now: Time) -> Result<Self, End> {
        match (self.next.take(), self.wire, &self.tls) {
            (Some(Next::Secured(session)), Wire::Shaking(_), _) => Ok(Self {
                wire: Wire::Open(Stream::secured(session)),
                negotiation: self.negotiation.through_tls(),
                next: None,
                ..self
            }),
            (Some(Next::Shake(place)), Wire::Open(Stream::Plain(fd)), Some(tls)) => {
                let handshake = tls.begin(fd, place, now).map_err(End::Io)?;
                Ok(Self {
                    wire: Wire::Shaking(handshake),
                    hello: None,
                    next: None,
                    ..self
                })
            }
            _ => unreachable!("it does not move"),
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
            let Wire::Open(stream) = &mut self.wire else {
                return Ok(());
            };
            // Bytes left in the socket are an event again, and the rest of a record is none.
            received += 1;
            if received > RECEIVES && !stream.has_pending() {
                return Ok(());
            }
            match self.input.receive(stream) {
                Ok(0) => return Err(End::Closed),
                Ok(_) => self.is_silent = false,
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
    }

    fn send(&mut self) -> Result<(), End> {
        let Wire::Open(stream) = &mut self.wire else {
            return Ok(());
        };
        while self.gone < self.out.len() {
            let mut parts = Parts::behind(self.gone);
            parts.add(&self.out);
            match stream.send(&parts) {
                Ok(sent) => self.gone += sent,
                Err(error) if is_later(&error) => return Ok(()),
                Err(error) => return Err(failed(error)),
            }
        }
        self.out.clear();
        self.gone = 0;
        Ok(())
    }

    /// Ends what is sent.
    fn shut(&mut self) {
        if let Wire::Open(stream) = &mut self.wire {
            stream.shut();
        }
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
        let other = match (&self.wire, self.hello) {
            (Wire::Shaking(handshake), _) => handshake.deadline(),
            (_, Some(Hello::Waits(again))) => again,
            _ => self.deadline,
        };
        self.deadline.min(other)
    }

    /// Whether it reads what comes: not while answers wait that are many, or the last ones, nor
    /// while it waits for a place.
    #[must_use]
    pub fn wants_read(&self) -> bool {
        let waits = matches!(self.hello, Some(Hello::Waits(_)));
        !waits && self.outcome.is_none() && self.out.len() - self.gone < WAITING
    }

    /// Whether it waits for the socket to take answers.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.out.is_empty()
    }

    /// Whether its bytes go through TLS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        matches!(self.wire, Wire::Open(Stream::Tls(_)))
    }

    /// The name of the key that it offered, after a failed handshake: some characters of it.
    /// Anyone can say so.
    #[must_use]
    pub fn offered(&self) -> Option<String> {
        let Wire::Shaking(handshake) = &self.wire else {
            return None;
        };
        let name = String::from_utf8_lossy(handshake.identity());
        let name: String = name.chars().take(NAME).collect();
        (!name.is_empty()).then_some(name)
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
        let (Some(Outcome::Transmission(agreed)), Wire::Open(stream)) = (self.outcome, self.wire)
        else {
            unreachable!("it has not chosen");
        };
        Arrival {
            offer: self.offers.get(agreed.export),
            stream,
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
        match &self.wire {
            Wire::Open(stream) => stream.as_fd(),
            Wire::Shaking(handshake) => handshake.as_fd(),
        }
    }
}

/// Result of a look for a ClientHello.
enum Awaited {
    /// Nothing has come.
    Nothing,
    /// It is not whole, or there is no place.
    Waits,
    Place(HandshakePlace),
}

/// Looks for a whole ClientHello behind STARTTLS, and for a place.
///
/// # Errors
/// Something else has come.
fn await_hello(
    stream: &Stream,
    hello: Hello,
    tls: Option<&Tls>,
    from: Origin,
) -> Result<Awaited, End> {
    if matches!(hello, Hello::None) {
        let mut byte = [0];
        match peek(stream, &mut byte)? {
            0 => return Ok(Awaited::Nothing),
            // An option in clear would be read as if it came encrypted.
            _ if byte[0] != HANDSHAKE => return Err(Fault::ClearBytes.into()),
            _ => {}
        }
    }
    // In this order one without a place calls the system for nothing.
    match tls.and_then(|tls| tls.place(from)) {
        Some(place) if has_hello(stream)? => Ok(Awaited::Place(place)),
        _ => Ok(Awaited::Waits),
    }
}

/// A client that has chosen an export.
#[derive(Debug)]
pub struct Arrival {
    pub(super) stream: Stream,
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

    /// Whether it has come through TLS.
    #[must_use]
    pub fn is_secured(&self) -> bool {
        matches!(self.stream, Stream::Tls(_))
    }
}
