//! A client that has chosen an export: its controller, its connection and its requests.
//!
//! It ends with its connection, or with its controller, which no one resets but the operator. A
//! namespace that is formatted otherwise or taken away ends it: its client knows another size.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use controller::Controller;
use memory::guest::socket::receive_with;
use memory::{Access, ClientMappings, DmaMap, HostMemory, Iova};
use nbd::{EXTENDED_REQUEST_LEN, Request};
use nvme_spec::registers::CommandSetSelected;
use port::time::Time;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::counters::Counters;
use super::end::End;
use super::input::Input;
use super::judge::Agreed;
use super::newcomer::Arrival;
use super::slots::SLOTS_LEN;
use super::work::Work;
use super::{QUEUE_DEPTH, failed, is_later};
use crate::host::{ADMIN_LEN, BASE, Failed, Opening, QID, Rings, rings_len};
use crate::secure::Stream;

/// Bytes of the input: many requests, or a request and data behind it.
const INPUT: usize = 64 << 10;
/// Minimum number of bytes of data that are received straight to their slot.
const DIRECT: usize = 4096;
/// Receives in one poll.
const RECEIVES: usize = 8;
/// How often it is looked at whether a client has left whose bytes wait.
const LOOK_NS: u64 = 1_000_000_000;
/// How long a client may send no more of the data of a request, or read none of its replies.
const STALL_NS: u64 = 120_000_000_000;

/// Result of a poll.
#[derive(Debug)]
pub struct Polled {
    /// It did something: there may be more.
    pub worked: bool,
    /// The client has ended: it is to be dropped, and its controller reset.
    pub ended: Option<End>,
}

/// See the module.
#[derive(Debug)]
pub struct Client {
    stream: Stream,
    name: String,
    /// The map whose view the controller has. That view keeps the memory mapped for as long as the
    /// controller or a medium uses it, also behind the end of the client.
    _map: DmaMap,
    _mappings: ClientMappings,
    opening: Opening,
    input: Input,
    work: Work,
    /// Since when data of a request do not come.
    starved: Option<Time>,
    /// Since when the socket takes nothing.
    blocked: Option<Time>,
    changes: u64,
    /// It takes no bytes before something completes or is sent.
    is_stopped: bool,
    /// When it is looked at meanwhile whether the client has left.
    looks_at: Time,
    /// The end that the next poll returns.
    end: Option<End>,
}

impl Client {
    /// A client, and its controller, which was just made and has no other host.
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors. The arrival is dropped.
    pub fn new(arrival: Arrival, controller: &mut Controller, now: Time) -> io::Result<Self> {
        let Arrival {
            stream,
            offer,
            agreed,
            left,
        } = arrival;
        let none = || io::Error::from(io::ErrorKind::OutOfMemory);
        let entries = u32::from(QUEUE_DEPTH);
        let memory = HostMemory::new(ADMIN_LEN + rings_len(entries) + SLOTS_LEN)?;
        let rings = Rings::new(QID, entries, entries, &memory).ok_or_else(none)?;
        let mut mappings = ClientMappings::new();
        let mapping = mappings
            .map(memory.fd().try_clone_to_owned()?)
            .map_err(io::Error::other)?;
        let mut map = DmaMap::new(1);
        let whole = Some((mapping, 0));
        map.map(Iova(BASE), memory.len() as u64, Access::READ_WRITE, whole)
            .map_err(io::Error::other)?;
        controller.set_view(map.view(), mappings.lost());
        controller.set_inside();
        let opening =
            Opening::begin(controller, &memory, CommandSetSelected::NVM, now).ok_or_else(none)?;
        let name = offer.export.name.clone();
        let max_transfer = controller.config().max_transfer.into();
        let agreed = Agreed {
            has_chunks: agreed.structured,
            is_extended: agreed.extended,
            has_allocation: agreed.allocation,
        };
        let work = Work::new(memory, rings, offer, agreed, max_transfer);
        Ok(Self {
            stream,
            name,
            _map: map,
            _mappings: mappings,
            opening,
            input: Input::new(INPUT, &left),
            work: work.ok_or_else(none)?,
            starved: None,
            blocked: None,
            changes: 0,
            is_stopped: false,
            looks_at: now,
            end: None,
        })
    }

    /// Name of its export.
    #[must_use]
    pub fn export(&self) -> &str {
        &self.name
    }

    /// Reads the socket, gives commands to the controller and sends replies. Due when the
    /// connection is readable, or writable where that is wanted, at [`Self::next_deadline`], and
    /// after a turn while it works.
    pub fn poll(&mut self, controller: &mut Controller, now: Time) -> Polled {
        match self.serve(controller, now) {
            Ok(worked) => Polled {
                worked,
                ended: None,
            },
            Err(end) => Polled {
                worked: true,
                ended: Some(end),
            },
        }
    }

    fn serve(&mut self, controller: &mut Controller, now: Time) -> Result<bool, End> {
        if let Some(end) = self.end.take() {
            return Err(end);
        }
        let opened = self.follow(controller, now)?;
        if !self.opening.is_open() {
            // No event says that the controller is ready.
            return Ok(true);
        }
        // Replies leave first: the client waits for them.
        let mut worked = self.complete()?;
        worked |= self.send(now)?;
        worked |= self.receive()?;
        self.note_waiting(now);
        worked |= self.work.rings.ring(controller);
        if self.work.is_closing && self.work.is_idle() && self.work.out.is_empty() {
            self.stream.shut();
            return Err(End::Closed);
        }
        self.check(now)?;
        Ok(worked || opened)
    }

    /// Takes completions and sends replies. Due after each turn of the controller that worked. True
    /// where there was something: it is to be polled again.
    pub fn drain(&mut self, controller: &mut Controller, now: Time) -> bool {
        if !self.opening.is_open() {
            return true;
        }
        let done = self.complete().and_then(|done| Ok(done | self.send(now)?));
        let worked = done.unwrap_or_else(|end| {
            self.end = Some(end);
            true
        });
        worked | self.work.rings.ring(controller)
    }

    /// Whether [`Self::drain`] would find something, seen without the controller. The I/O queue is
    /// looked at only with `io`.
    #[must_use]
    pub fn has_posted(&self, io: bool) -> bool {
        self.opening.has_completion() || io && self.work.rings.has_completion()
    }

    /// Whether commands are at the controller.
    #[must_use]
    pub fn has_io_in_flight(&self) -> bool {
        !self.opening.is_open() || !self.work.is_idle()
    }

    /// Its connection, and whether that is to be polled for reading and for writing. Where requests
    /// wait in the socket, it is not to be polled for reading: it is readable all the time.
    #[must_use]
    pub fn connection(&self) -> (BorrowedFd<'_>, [bool; 2]) {
        (
            self.stream.as_fd(),
            [!self.is_stopped, self.blocked.is_some()],
        )
    }

    /// Grows where [`Self::connection`] has changed.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.changes
    }

    /// When it must be polled although nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let ready_by = self.opening.deadline();
        let stalled = self.starved.into_iter().chain(self.blocked);
        let looks = self.is_stopped.then_some(self.looks_at);
        let stalled = stalled.map(|since| since + STALL_NS);
        stalled.chain(ready_by).chain(looks).min()
    }

    /// Whether its namespace is what it was. Where not, it is to be polled at once: before lanes
    /// see the next change of that.
    #[inline]
    #[must_use]
    pub fn is_valid(&self, controller: &Controller) -> bool {
        !self.opening.is_open() || self.work.offer().is_valid(controller.namespaces())
    }

    /// Its counters.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.work.counters.clone()
    }

    /// Sees what the controller has become, and makes the I/O queue. True where something changed.
    fn follow(&mut self, controller: &mut Controller, now: Time) -> Result<bool, End> {
        let followed = self.opening.follow(controller, &self.work.rings, now);
        let changed = followed.map_err(|Failed| End::Controller)?;
        if self.is_valid(controller) {
            Ok(changed)
        } else {
            Err(End::Changed)
        }
    }

    /// Takes completions.
    fn complete(&mut self) -> Result<bool, End> {
        let mut worked = false;
        while let Some(cqe) = self.work.rings.take() {
            worked = true;
            self.work.complete(&cqe)?;
        }
        Ok(worked)
    }

    fn send(&mut self, now: Time) -> Result<bool, End> {
        let mut worked = false;
        while !self.work.out.is_empty() {
            let sent = self.work.send(&mut self.stream);
            match sent {
                Ok(_) => {
                    worked = true;
                    self.note_blocked(None);
                }
                Err(error) if is_later(&error) => {
                    let since = self.blocked.unwrap_or(now);
                    self.note_blocked(Some(since));
                    break;
                }
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(worked)
    }

    fn note_blocked(&mut self, since: Option<Time>) {
        self.changes += u64::from(since.is_some() != self.blocked.is_some());
        self.blocked = since;
    }

    fn receive(&mut self) -> Result<bool, End> {
        let mut worked = self.take_input()?;
        for _ in 0..RECEIVES {
            if self.work.is_stopped() {
                break;
            }
            let received = match &self.work.receiving {
                Some(receiving)
                    if receiving.left >= DIRECT
                        && self.input.is_empty()
                        && let Some(socket) = self.stream.plain() =>
                {
                    let (at, left) = (receiving.at, receiving.left);
                    let rest = self.input.room();
                    let asked = left + rest.len();
                    let received = receive_with(socket, &self.work.memory, at, left, rest);
                    received.map(|len| {
                        self.input.came(len.saturating_sub(left));
                        self.work.received(len.min(left));
                        (len, len < asked)
                    })
                }
                _ => {
                    let takes_all = self.stream.takes_all();
                    let received = self.input.receive(&mut self.stream);
                    received.map(|len| (len, takes_all && self.input.free() > 0))
                }
            };
            match received {
                Ok((0, _)) => return Err(End::Closed),
                Ok((len, is_drained)) => {
                    worked = true;
                    self.work.counters.received += len as u64;
                    self.starved = None;
                    self.take_input()?;
                    if is_drained {
                        break;
                    }
                }
                Err(error) if is_later(&error) => break,
                Err(error) => return Err(failed(error)),
            }
        }
        Ok(worked)
    }

    /// Takes requests and data from the input.
    fn take_input(&mut self) -> Result<bool, End> {
        let mut worked = false;
        self.work.advance();
        loop {
            let bytes = self.input.bytes();
            let taken = if let Some(receiving) = self.work.receiving {
                let len = receiving.left.min(bytes.len());
                self.work.memory.write(receiving.at, &bytes[..len]);
                self.work.received(len);
                len
            } else if self.work.skipping > 0 {
                let len = self.work.skipping.min(bytes.len() as u64);
                self.work.skipping -= len;
                len as usize
            } else if self.work.takes_request() {
                let is_extended = self.work.is_extended();
                match Request::parse(bytes, is_extended)? {
                    None => 0,
                    Some(request) => {
                        self.work.begin(&request);
                        if is_extended {
                            EXTENDED_REQUEST_LEN
                        } else {
                            nbd::REQUEST_LEN
                        }
                    }
                }
            } else {
                0
            };
            if taken == 0 {
                return Ok(worked);
            }
            worked = true;
            self.input.take(taken);
        }
    }

    /// Notes whether data of a request are to come, and whether it takes any bytes.
    fn note_waiting(&mut self, now: Time) {
        let is_stopped = self.work.is_stopped();
        self.changes += u64::from(is_stopped != self.is_stopped);
        if is_stopped && !self.is_stopped {
            self.looks_at = now + LOOK_NS;
        }
        self.is_stopped = is_stopped;
        let waits = self.work.receiving.is_some()
            || self.work.skipping > 0
            || !self.input.is_empty() && !self.work.is_stopped();
        self.starved = waits.then(|| self.starved.unwrap_or(now));
    }

    /// Looks for what has taken too long.
    fn check(&mut self, now: Time) -> Result<(), End> {
        if self.is_stopped && now >= self.looks_at {
            self.looks_at = now + LOOK_NS;
            // Its end is not received while no bytes are.
            if has_left(&self.stream) {
                return Err(End::Closed);
            }
        }
        let is_late = |since: Option<Time>| since.is_some_and(|since| now.since(since) >= STALL_NS);
        if is_late(self.blocked) {
            return Err(End::DoesNotRead);
        }
        if is_late(self.starved) {
            return Err(End::SlowData);
        }
        Ok(())
    }
}

/// Whether the other end of a connection has closed it.
fn has_left(fd: impl AsFd) -> bool {
    let mut polled = [PollFd::new(&fd, PollFlags::RDHUP)];
    let ended = PollFlags::RDHUP | PollFlags::HUP | PollFlags::ERR;
    poll(&mut polled, Some(&Timespec::default())).is_ok() && polled[0].revents().intersects(ended)
}
