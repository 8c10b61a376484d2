//! TLS of an entrance: the keys of its hosts, and the thread that does handshakes.
//!
//! A handshake computes for a millisecond or more, in which a reactor would serve no other host.
//! At most [`HANDSHAKES`] are in progress, of one address at most [`OF_ADDRESS`]; a connection
//! beyond them waits until there is a place, or its time is over.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use authentication::{TlsIdentity, TlsPsk};
use nvme_spec::discovery::WELL_KNOWN_DISCOVERY_NQN;
use port::time::Time;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tls::{Failed, Found, Lookup, Offer, Psk, Server, Session};
use zeroize::Zeroizing;

use super::access::Access;
use super::connection::End;
use super::generated::GeneratedKeys;
use super::places::{Place, Places};

/// Handshakes in progress at most, of all entrances.
const HANDSHAKES: usize = 64;
/// Of them those of one address. A host connects its queues one after another (Linux).
const OF_ADDRESS: usize = 4;
/// How long a handshake may take from its ClientHello: a round trip, and some milliseconds of the
/// host.
const SHAKE_NS: u64 = 3_000_000_000;
/// How often the thread looks for connections that are abandoned.
const LOOK_NS: i64 = 100_000_000;

/// A place among the handshakes in progress.
pub(super) type HandshakePlace = Place<IpAddr>;

/// A way to the thread that does handshakes.
#[derive(Clone, Debug)]
pub struct Handshakes {
    jobs: SyncSender<Job>,
    places: Arc<Places<IpAddr>>,
    /// Wakes the thread.
    bell: Arc<OwnedFd>,
}

/// What the thread runs.
#[derive(Debug)]
pub struct Handshaker {
    jobs: Receiver<Job>,
    bell: Arc<OwnedFd>,
}

/// Why a handshake failed, and the host that the offered name is of.
type Refused = (Failed, Option<String>);

/// A handshake of the thread's.
#[derive(Debug)]
struct Job {
    session: Session,
    waits_for_write: bool,
    answer: SyncSender<Result<Session, Refused>>,
    /// Is readable when there is an answer. It is the only reference when none is waited for.
    bell: Arc<OwnedFd>,
    _place: HandshakePlace,
}

fn bell() -> io::Result<Arc<OwnedFd>> {
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    Ok(Arc::new(eventfd(0, flags)?))
}

fn ring(bell: &OwnedFd) {
    // A bell that has rung is not read yet.
    let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
}

/// A way to a thread, and what the thread is to run.
///
/// # Errors
/// There are no more descriptors.
pub fn handshakes() -> io::Result<(Handshakes, Handshaker)> {
    let (jobs, received) = sync_channel(HANDSHAKES);
    let bell = bell()?;
    let handshakes = Handshakes {
        jobs,
        places: Arc::default(),
        bell: bell.clone(),
    };
    let jobs = received;
    Ok((handshakes, Handshaker { jobs, bell }))
}

impl Handshaker {
    /// Does handshakes until nothing can ask for one.
    pub fn run(self) {
        let mut active: Vec<Job> = Vec::with_capacity(HANDSHAKES);
        loop {
            if active.is_empty() {
                match self.jobs.recv() {
                    Ok(job) => active.push(job),
                    Err(_) => return,
                }
            }
            let _ = rustix::io::read(&self.bell, &mut [0; 8]);
            active.extend(self.jobs.try_iter());
            let mut waiting = Vec::with_capacity(active.len());
            waiting.extend(active.into_iter().filter_map(Job::step));
            active = waiting;
            if !active.is_empty() {
                self.wait(&active);
            }
        }
    }

    fn wait(&self, active: &[Job]) {
        let mut polled = vec![PollFd::new(&*self.bell, PollFlags::IN)];
        for job in active {
            let flags = if job.waits_for_write {
                PollFlags::OUT
            } else {
                PollFlags::IN
            };
            polled.push(PollFd::new(&job.session, flags));
        }
        let timeout = Timespec {
            tv_sec: 0,
            tv_nsec: LOOK_NS,
        };
        // After a failure, too, each is looked at.
        let _ = poll(&mut polled, Some(&timeout));
    }
}

impl Job {
    /// Goes on; `None` when it is over.
    fn step(mut self) -> Option<Self> {
        if Arc::strong_count(&self.bell) == 1 {
            return None;
        }
        let result = match self.session.handshake() {
            Ok(tls::Progress::WaitsForRead) => {
                self.waits_for_write = false;
                return Some(self);
            }
            Ok(tls::Progress::WaitsForWrite) => {
                self.waits_for_write = true;
                return Some(self);
            }
            Ok(tls::Progress::Done) => Ok(self.session),
            Err(failed) => {
                let offered = TlsIdentity::parse(self.session.identity());
                Err((failed, offered.map(|it| it.hostnqn().to_owned())))
            }
        };
        let _ = self.answer.try_send(result);
        ring(&self.bell);
        None
    }
}

/// TLS of an entrance.
#[derive(Clone, Debug)]
pub struct Tls {
    server: Server,
    generated: Option<GeneratedKeys>,
    handshakes: Handshakes,
}

impl Tls {
    /// TLS with the keys of these hosts, for the subsystem and for the discovery subsystem.
    ///
    /// # Errors
    /// The system has no OpenSSL 3.
    pub fn new(
        access: &Access,
        subnqn: &str,
        discovery_nqn: &str,
        handshakes: Handshakes,
    ) -> io::Result<Self> {
        let access = access.clone();
        let generated = access.generated().cloned();
        let names = [subnqn, discovery_nqn, WELL_KNOWN_DISCOVERY_NQN].map(str::to_owned);
        let lookup = move |offer: &Offer<'_>| find(&access, &names, offer);
        let lookup: Lookup = Arc::new(lookup);
        Ok(Self {
            server: Server::new(lookup)?,
            generated,
            handshakes,
        })
    }

    /// A place for a handshake with this address, where there is one.
    pub(super) fn place(&self, address: IpAddr) -> Option<HandshakePlace> {
        let places = &self.handshakes.places;
        places.take(&network(address), HANDSHAKES, OF_ADDRESS)
    }

    /// Begins a handshake, by whose end old keys of hosts are not used any more.
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors.
    pub(super) fn begin(
        &self,
        socket: OwnedFd,
        place: HandshakePlace,
        now: Time,
    ) -> io::Result<Handshake> {
        if let Some(generated) = &self.generated {
            generated.begin(now);
        }
        let Handshakes { jobs, .. } = &self.handshakes;
        let bell = bell()?;
        let (answer, answered) = sync_channel(1);
        let job = Job {
            session: Session::accept(&self.server, socket)?,
            waits_for_write: false,
            answer,
            bell: bell.clone(),
            _place: place,
        };
        // There is room for all that have a place.
        jobs.try_send(job)
            .map_err(|_| io::Error::other("the thread of handshakes has ended"))?;
        ring(&self.handshakes.bell);
        Ok(Handshake {
            answered,
            bell,
            until: now + SHAKE_NS,
            host: None,
        })
    }
}

/// The network that counts as one address: one machine may have any address of an IPv6 network of
/// 64 bits.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => {
            Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
        }
        address => address,
    }
}

/// The key of a host that this name is of, if the host has it.
fn find(access: &Access, names: &[String], offer: &Offer<'_>) -> Found {
    let identity = TlsIdentity::parse(offer.identity);
    let identity = identity.filter(|identity| names.iter().any(|name| name == identity.subnqn()));
    let Some(identity) = identity else {
        return Found::Nothing;
    };
    if identity.is_generated() {
        return match access.find_generated(&identity) {
            Some(kept) if kept.psk.binds(offer.hello, offer.binder) => {
                Found::Psk(key_of(&kept.psk))
            }
            Some(_) => Found::AnotherKey,
            None => Found::Nothing,
        };
    }
    let Some(key) = access.tls_key(identity.hostnqn()) else {
        return Found::Nothing;
    };
    let psks = key.psks(&identity);
    if psks.is_empty() {
        return Found::AnotherKey;
    }
    let bound = psks.iter().find(|psk| psk.binds(offer.hello, offer.binder));
    match bound {
        Some(psk) => Found::Psk(key_of(psk)),
        None => Found::AnotherKey,
    }
}

fn key_of(psk: &TlsPsk) -> Psk {
    Psk {
        key: Zeroizing::new(psk.bytes().to_vec()),
        is_sha384: psk.is_sha384(),
    }
}

/// A connection whose handshake is in progress.
#[derive(Debug)]
pub(super) struct Handshake {
    answered: Receiver<Result<Session, Refused>>,
    bell: Arc<OwnedFd>,
    until: Time,
    /// Who says to be there, after a failure.
    host: Option<String>,
}

impl Handshake {
    /// Whether it is complete: the session.
    ///
    /// # Errors
    /// It has failed, or timed out.
    pub(super) fn poll(&mut self, now: Time) -> Result<Option<Session>, End> {
        match self.answered.try_recv() {
            Ok(Ok(session)) => Ok(Some(session)),
            Ok(Err((failed, host))) => {
                self.host = host;
                Err(failed.into())
            }
            Err(_) if now >= self.until => Err(End::Silent),
            Err(_) => Ok(None),
        }
    }

    pub(super) fn deadline(&self) -> Time {
        self.until
    }

    /// The host that the other side says to be, after a failure. Anyone can say so.
    pub(super) fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
