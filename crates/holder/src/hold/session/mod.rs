//! One host: its connection, the worker's end of it, and the requests that have no reply yet.
//!
//! Invariants:
//! - The host gets one reply for each request, in whole, and none twice.
//! - A worker gets each request at least once: those without a reply go to the next worker, in
//!   their order. Requests for which the host wants no reply are given with one, which goes no
//!   further.
//! - Requests that set up the host are remembered in the order of the requests. Replies come in
//!   another one, because that to a DMA_UNMAP waits for commands.
//! - A host makes this keep a bounded number of requests and of bytes, and waits beyond.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use vfio_user::relayed::{Arrival, KEEP, PART, RESUME, RESUMED, Resume, is_between};
use vfio_user::{Command, Connection, ConnectionError, Header, Message, Parting};

use super::known::{Fds, Known, Lesson};
use super::stricken;

/// Requests without a reply at most; a server lets as many wait.
const MAX_PENDING: usize = 64;
/// Bytes of such requests, above which no more are read.
const MAX_PENDING_LEN: usize = 4 << 20;
/// Messages that one look reads from each side.
const MAX_MESSAGES: usize = 16;

/// A request without a reply.
#[derive(Debug)]
struct Pending {
    /// The host's header.
    header: Header,
    /// Its number between holder and worker.
    id: u16,
    body: Vec<u8>,
    fds: Fds,
    /// The host has its reply; an earlier request that sets up the host has none yet.
    is_granted: bool,
}

/// The worker's side.
#[derive(Debug)]
enum Worker {
    /// There is none now.
    None,
    /// It learns of the host: these messages are left, the last one first.
    Learning(Connection, Vec<Lesson>),
    /// It serves.
    Serving(Connection),
    /// There is none any more: every request is answered here.
    Stricken,
}

/// Outcome of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    /// It goes on.
    Goes,
    /// The worker's end was closed without a word.
    WorkerGone,
    /// The worker sends what is no message: it is to be replaced.
    WorkerBroken,
    /// The worker has ended the connection, or the host has.
    Over,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    host: Connection,
    /// The host's process, where it is known.
    pub(super) process: Option<u32>,
    worker: Worker,
    pending: VecDeque<Pending>,
    pending_len: usize,
    /// The requests before this one were given to the worker.
    given: usize,
    last_id: u16,
    known: Known,
    /// The last worker ended by its own fault.
    crashed: bool,
}

impl Session {
    pub(super) fn new(arrival: Arrival) -> io::Result<Self> {
        Ok(Self {
            host: Connection::new(arrival.stream)?,
            process: arrival.process,
            worker: Worker::None,
            pending: VecDeque::new(),
            pending_len: 0,
            given: 0,
            last_id: 0,
            known: Known::default(),
            crashed: false,
        })
    }

    /// Whether another worker must go on with it: a host is attached.
    pub(super) fn is_resumed(&self) -> bool {
        self.known.kept.is_some()
    }

    /// A worker takes it, whose end is `ours`.
    pub(super) fn give_to(&mut self, ours: UnixStream) -> io::Result<()> {
        let connection = Connection::new(ours)?;
        self.given = 0;
        self.worker = if self.is_resumed() {
            Worker::Learning(connection, self.known.lessons())
        } else {
            Worker::Serving(connection)
        };
        Ok(())
    }

    /// The worker has died: what it had sent counts.
    pub(super) fn lose_worker(&mut self, crashed: bool) -> Fate {
        self.crashed = crashed;
        if let Worker::Serving(worker) = &self.worker {
            // A process that it leaves with its end cannot send more.
            let _ = shutdown(worker.as_fd(), Shutdown::Read);
        }
        let fate = loop {
            match self.hear_worker() {
                Ok(0) => break Fate::Goes,
                Ok(_) => {}
                Err(Fate::WorkerGone | Fate::WorkerBroken) => break Fate::Goes,
                Err(fate) => break fate,
            }
        };
        self.worker = Worker::None;
        fate
    }

    /// There is no worker any more: the host's requests are answered so that its machine lives.
    pub(super) fn strike(&mut self) {
        self.worker = Worker::Stricken;
    }

    /// Relays the messages that have arrived, in both directions.
    pub(super) fn look(&mut self) -> Fate {
        match self.carry() {
            Ok(()) => Fate::Goes,
            Err(fate) => fate,
        }
    }

    fn carry(&mut self) -> Result<(), Fate> {
        self.host.flush().map_err(of_host)?;
        self.hear_worker()?;
        self.hear_host()?;
        match &mut self.worker {
            Worker::None => Ok(()),
            Worker::Learning(..) => self.teach(),
            Worker::Serving(_) => self.give(),
            Worker::Stricken => self.answer(),
        }
    }

    /// Reads what the host asks.
    fn hear_host(&mut self) -> Result<(), Fate> {
        for _ in 0..MAX_MESSAGES {
            // The replies to requests that are refused are bounded, too.
            if !self.reads_host() || self.host.wants_write() {
                break;
            }
            let is_host = self.is_resumed();
            let Some(message) = self.host.receive().map_err(of_host)? else {
                break;
            };
            let Message {
                header,
                body,
                fds,
                fds_truncated,
            } = message;
            if header.is_reply() {
                // A server asks a host nothing.
                continue;
            }
            let loses_fds = fds_truncated
                && matches!(header.command, Command::DMA_MAP | Command::DEVICE_SET_IRQS);
            let refused = match header.command {
                _ if loses_fds => Some(Errno::INVAL),
                command if is_between(command) => Some(unknown(&header, is_host)),
                command if !self.known.has_room(command, body) => Some(Errno::NOSPC),
                _ => None,
            };
            if let Some(errno) = refused {
                let errno = errno.raw_os_error().unsigned_abs();
                self.host.reply_error(&header, errno).map_err(of_host)?;
                continue;
            }
            let body = body.to_vec();
            self.pending_len += body.len();
            let id = self.next_id();
            self.pending.push_back(Pending {
                header,
                id,
                body,
                fds,
                is_granted: false,
            });
        }
        Ok(())
    }

    /// A number that no request without a reply has.
    fn next_id(&mut self) -> u16 {
        loop {
            self.last_id = self.last_id.wrapping_add(1);
            if self
                .pending
                .iter()
                .all(|request| request.id != self.last_id)
            {
                return self.last_id;
            }
        }
    }

    fn reads_host(&self) -> bool {
        self.pending.len() < MAX_PENDING && self.pending_len < MAX_PENDING_LEN
    }

    /// Tells a worker of a host that a former one had.
    fn teach(&mut self) -> Result<(), Fate> {
        let Worker::Learning(worker, lessons) = &mut self.worker else {
            return Ok(());
        };
        while !worker.wants_write() {
            let Some(lesson) = lessons.pop() else {
                let end = Header::posted(0, RESUMED);
                worker.send(&end, &[], &[]).map_err(of_worker)?;
                let Worker::Learning(worker, _) = std::mem::replace(&mut self.worker, Worker::None)
                else {
                    return Ok(());
                };
                self.worker = Worker::Serving(worker);
                return self.give();
            };
            if let Some((command, body, fds)) = self.known.lesson(lesson) {
                let header = Header::posted(0, command);
                worker.send(&header, &[body], &fds).map_err(of_worker)?;
            }
        }
        worker.flush().map_err(of_worker)?;
        Ok(())
    }

    /// The first message to a worker that goes on with a host.
    pub(super) fn begin_lessons(&mut self) -> Result<(), Fate> {
        let (Worker::Learning(worker, _), Some(kept)) = (&mut self.worker, &self.known.kept) else {
            return Ok(());
        };
        let mut body = Vec::new();
        let resume = Resume {
            doorbells_sent: self.known.doorbells_sent.into(),
            crashed: self.crashed.into(),
        };
        resume.encode(&mut body);
        let fds = [kept[0].as_fd(), kept[1].as_fd()];
        let header = Header::posted(0, RESUME);
        worker.send(&header, &[&body], &fds).map_err(of_worker)
    }

    /// Gives the worker the requests that it does not have.
    fn give(&mut self) -> Result<(), Fate> {
        let Worker::Serving(worker) = &mut self.worker else {
            return Ok(());
        };
        worker.flush().map_err(of_worker)?;
        while let Some(next) = self.pending.get(self.given)
            && !worker.wants_write()
        {
            let header = next.header.asking(next.id);
            let fds: ArrayVec<BorrowedFd<'_>, { vfio_user::MAX_FDS }> =
                next.fds.iter().map(AsFd::as_fd).collect();
            worker
                .send(&header, &[&next.body], &fds)
                .map_err(of_worker)?;
            self.given += 1;
        }
        Ok(())
    }

    /// Reads what the worker answers; the number of messages.
    fn hear_worker(&mut self) -> Result<usize, Fate> {
        let mut heard = 0;
        while heard < MAX_MESSAGES && !self.host.wants_write() {
            let Worker::Serving(worker) = &mut self.worker else {
                break;
            };
            let Some(message) = worker.receive().map_err(of_worker)? else {
                break;
            };
            heard += 1;
            let header = message.header;
            match header.command {
                KEEP => {
                    let mut fds = message.fds.into_iter();
                    if let Some((state, doorbells)) = fds.next().zip(fds.next()) {
                        self.known.kept = Some([state, doorbells]);
                    }
                }
                PART => return Err(Fate::Over),
                _ if header.is_reply() => {
                    let mut pending = self.pending.iter().take(self.given);
                    let Some(at) = pending.position(|request| request.id == header.id) else {
                        tracing::debug!("a reply to no request: {}", header.command);
                        continue;
                    };
                    let fds: ArrayVec<BorrowedFd<'_>, { vfio_user::MAX_FDS }> =
                        message.fds.iter().map(AsFd::as_fd).collect();
                    let request = &mut self.pending[at];
                    if request.is_granted {
                        // A former worker has granted it.
                        continue;
                    }
                    if !request.header.no_reply() {
                        let mut reply = header;
                        reply.id = request.header.id;
                        let sent = self.host.send(&reply, &[message.body], &fds);
                        sent.map_err(of_host)?;
                    }
                    self.known.doorbells_sent |= !fds.is_empty();
                    if Known::learns(request.header.command) && !header.is_error() {
                        request.is_granted = true;
                    } else {
                        self.take_pending(at);
                    }
                    self.learn();
                }
                // A server asks a host nothing.
                _ => {}
            }
        }
        Ok(heard)
    }

    /// Remembers the requests that were granted, up to the first one without a reply.
    fn learn(&mut self) {
        loop {
            let mut given = self.pending.iter().take(self.given);
            let first = given.position(|request| Known::learns(request.header.command));
            let Some(at) = first.filter(|at| self.pending[*at].is_granted) else {
                return;
            };
            if let Some(request) = self.take_pending(at) {
                let command = request.header.command;
                self.known.learn(command, request.body, request.fds);
            }
        }
    }

    /// Takes a request that the worker was given.
    fn take_pending(&mut self, at: usize) -> Option<Pending> {
        let request = self.pending.remove(at)?;
        self.given -= 1;
        self.pending_len -= request.body.len();
        Some(request)
    }

    /// Answers for a worker that there is not.
    fn answer(&mut self) -> Result<(), Fate> {
        while !self.host.wants_write()
            && let Some(request) = self.pending.pop_front()
        {
            self.pending_len -= request.body.len();
            let Pending {
                header,
                body,
                is_granted,
                ..
            } = request;
            if is_granted {
                continue;
            }
            let answered = match stricken::answer(header.command, &body) {
                Ok(reply) => self.host.reply(&header, &[&reply], &[]),
                Err(errno) => self
                    .host
                    .reply_error(&header, errno.raw_os_error().unsigned_abs()),
            };
            answered.map_err(of_host)?;
        }
        Ok(())
    }

    /// The host's socket, and whether this would read and write it.
    pub(super) fn host_interest(&self) -> (BorrowedFd<'_>, bool, bool) {
        let writes = self.host.wants_write();
        (self.host.as_fd(), self.reads_host() && !writes, writes)
    }

    /// The worker's socket, and whether this would read and write it. A reply is read when the host
    /// takes it.
    pub(super) fn worker_interest(&self) -> Option<(BorrowedFd<'_>, bool, bool)> {
        match &self.worker {
            Worker::Learning(worker, _) => Some((worker.as_fd(), false, worker.wants_write())),
            Worker::Serving(worker) => {
                let reads = !self.host.wants_write();
                Some((worker.as_fd(), reads, worker.wants_write()))
            }
            Worker::None | Worker::Stricken => None,
        }
    }

    /// Ends it: the worker sees an end of file at once, and the host in order.
    pub(super) fn part(self) -> Parting {
        Parting::new(self.host)
    }
}

/// Why a server refuses a command that it does not know. `is_host`: after a VERSION.
fn unknown(header: &Header, is_host: bool) -> Errno {
    if header.is_command() && is_host {
        Errno::OPNOTSUPP
    } else {
        Errno::INVAL
    }
}

/// Meaning of an error of the host's connection.
fn of_host(error: ConnectionError) -> Fate {
    match error {
        ConnectionError::Closed => {}
        // The worker, which would say so, sees only that the host has gone.
        ConnectionError::FramingLost { .. } => {
            tracing::warn!("a host violated the protocol: {error}: restart the client");
        }
        error => tracing::debug!("a host's connection ends: {error}"),
    }
    Fate::Over
}

/// Meaning of an error of the worker's end.
fn of_worker(error: ConnectionError) -> Fate {
    match error {
        ConnectionError::Closed | ConnectionError::Io(_) => Fate::WorkerGone,
        error => {
            tracing::error!("the server's process sends what is no message: {error}");
            Fate::WorkerBroken
        }
    }
}
