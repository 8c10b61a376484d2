//! The thread that does handshakes.
//!
//! A handshake computes for a millisecond or more, in which a reactor would serve no other host.
//! At most [`HANDSHAKES`] are in progress, of one [`Origin`] at most [`OF_ORIGIN`]; a connection
//! beyond them waits until there is a place, or its time is over.

use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use port::time::Time;
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tls::{Failed, Server, Session};

use super::places::{Place, Places};

/// Handshakes in progress at most, of all entrances.
const HANDSHAKES: usize = 64;
/// Of them those of one origin. A host connects its queues one after another (Linux).
const OF_ORIGIN: usize = 4;
/// How long a handshake may take from its ClientHello: a round trip, and some milliseconds of the
/// other side.
const SHAKE_NS: u64 = 3_000_000_000;
/// How often the thread looks for connections that are abandoned.
const LOOK_NS: i64 = 100_000_000;

/// Where connections come from that share the places of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Origin {
    Address(IpAddr),
    /// A user of this machine, at a UNIX socket.
    User(u32),
}

impl From<IpAddr> for Origin {
    /// One machine may have any address of an IPv6 network of 64 bits, which counts as one.
    fn from(address: IpAddr) -> Self {
        Self::Address(match address.to_canonical() {
            IpAddr::V6(address) => {
                Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into()
            }
            address => address,
        })
    }
}

/// A place among the handshakes in progress.
pub(crate) type HandshakePlace = Place<Origin>;

/// A way to the thread that does handshakes.
#[derive(Clone, Debug)]
pub struct Handshakes {
    jobs: SyncSender<Job>,
    places: Arc<Places<Origin>>,
    /// Wakes the thread.
    bell: Arc<OwnedFd>,
}

/// Work of the thread.
#[derive(Debug)]
pub struct Handshaker {
    jobs: Receiver<Job>,
    bell: Arc<OwnedFd>,
}

/// Why a handshake failed, and the name of a key that was offered.
type Refused = (Failed, Vec<u8>);

/// Why there is no session.
#[derive(Debug)]
pub(crate) enum NoSession {
    /// The handshake failed.
    Failed(Failed),
    /// It took too long.
    Late,
}

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
            Err(failed) => Err((failed, self.session.identity().to_vec())),
        };
        let _ = self.answer.try_send(result);
        ring(&self.bell);
        None
    }
}

impl Handshakes {
    /// A place for a handshake with this origin, where there is one.
    pub(crate) fn place(&self, origin: Origin) -> Option<HandshakePlace> {
        self.places.take(&origin, HANDSHAKES, OF_ORIGIN)
    }

    /// Begins a handshake.
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors.
    pub(crate) fn begin(
        &self,
        server: &Server,
        socket: OwnedFd,
        place: HandshakePlace,
        now: Time,
    ) -> io::Result<Handshake> {
        let bell = bell()?;
        let (answer, answered) = sync_channel(1);
        let job = Job {
            session: Session::accept(server, socket)?,
            waits_for_write: false,
            answer,
            bell: bell.clone(),
            _place: place,
        };
        // There is room for all that have a place.
        self.jobs
            .try_send(job)
            .map_err(|_| io::Error::other("the thread of handshakes has ended"))?;
        ring(&self.bell);
        Ok(Handshake {
            answered,
            bell,
            until: now + SHAKE_NS,
            identity: Vec::new(),
        })
    }
}

/// A connection whose handshake is in progress.
#[derive(Debug)]
pub(crate) struct Handshake {
    answered: Receiver<Result<Session, Refused>>,
    bell: Arc<OwnedFd>,
    until: Time,
    /// Name of a key that was offered, after a failure.
    identity: Vec<u8>,
}

impl Handshake {
    /// Whether it is complete: the session.
    ///
    /// # Errors
    /// It has failed, or timed out.
    pub(crate) fn poll(&mut self, now: Time) -> Result<Option<Session>, NoSession> {
        match self.answered.try_recv() {
            Ok(Ok(session)) => Ok(Some(session)),
            Ok(Err((failed, identity))) => {
                self.identity = identity;
                Err(NoSession::Failed(failed))
            }
            Err(_) if now >= self.until => Err(NoSession::Late),
            Err(_) => Ok(None),
        }
    }

    pub(crate) fn deadline(&self) -> Time {
        self.until
    }

    /// The name of a key that the other side offered, after a failure. Anyone can say so.
    pub(crate) fn identity(&self) -> &[u8] {
        &self.identity
    }
}

impl AsFd for Handshake {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }
}
