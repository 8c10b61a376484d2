//! A disk of a back end, as a guest with a virtio-blk driver uses it.

mod requests;
mod session;

use std::collections::VecDeque;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use memory::Buffer;

use self::session::{Inflight, Session};
use crate::event::Event;
use crate::guest::Guest;
use crate::protocol::{config, status};
use crate::raw::Raw;
use crate::request::{Layout, Request, divide};
use crate::ring::{DESCRIPTOR_LEN, Ring, Segment};

/// How memory is announced to the back end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Slots {
    /// SET_MEM_TABLE: all regions at each start.
    Table,
    /// ADD_MEM_REG: each region once in a connection.
    Add,
}

/// What a front end negotiates. A wish that the back end does not offer is an error.
#[derive(Debug, Clone)]
pub struct Options {
    /// Queues, 1 to 256.
    pub queues: u16,
    /// Descriptors of each queue.
    pub size: u16,
    /// Packed virtqueues.
    pub is_packed: bool,
    /// Event indexes.
    pub event_idx: bool,
    /// Indirect descriptors, used by the requests that name no layout.
    pub is_indirect: bool,
    /// Bytes of guest memory.
    pub memory_len: usize,
    /// Regions that the memory is divided into, 1 to 8.
    pub regions: usize,
    /// How they are announced.
    pub slots: Slots,
    /// A record of the requests in flight that outlives the back end.
    pub inflight: bool,
    /// Ask for replies to the messages for which QEMU does.
    pub need_reply: bool,
    /// Feature bits that are not acknowledged, whatever else asks for them.
    pub without: u64,
    /// How long the back end may take to answer a message.
    pub bound: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            queues: 1,
            size: 128,
            is_packed: false,
            event_idx: true,
            is_indirect: true,
            memory_len: 16 << 20,
            regions: 1,
            slots: Slots::Add,
            inflight: false,
            need_reply: true,
            without: 0,
            bound: crate::BOUND,
        }
    }
}

impl Options {
    fn check(&self) -> Result<()> {
        ensure!(
            (1..=256).contains(&self.queues),
            "{} queues: 1 to 256",
            self.queues
        );
        ensure!(
            (1..=8).contains(&self.regions),
            "{} regions: 1 to 8",
            self.regions
        );
        Ok(())
    }
}

/// A request that the device completed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// Number that [`Disk::submit`] returned.
    pub token: u64,
    /// Status byte; [`status::UNWRITTEN`] if the device wrote none.
    pub status: u8,
    /// Bytes that the device wrote, as it reports.
    pub written: u32,
    /// Bytes before the status.
    pub data: Vec<u8>,
}

/// A request in flight.
#[derive(Debug)]
struct Pending {
    token: u64,
    /// Segments that the device reads, and the indirect table: kept until it is done.
    _read: Vec<Piece>,
    written: Vec<Piece>,
}

/// A part of a buffer.
#[derive(Debug)]
struct Piece {
    buffer: Buffer,
    at: usize,
    len: usize,
}

/// A queue with its event descriptors.
#[derive(Debug)]
pub struct Queue {
    /// The driver's side.
    pub ring: Ring,
    /// Notifications of the device.
    pub kick: Event,
    /// Interrupts.
    pub call: Event,
    /// Errors that the back end reports.
    pub error: Event,
    /// Notifications sent, and interrupts seen by [`Disk::wait`].
    pub kicks: u64,
    /// See `kicks`.
    pub calls: u64,
    pending: Vec<Option<Pending>>,
    done: VecDeque<Completion>,
}

impl Queue {
    fn new(guest: &Guest, options: &Options) -> Result<Self> {
        let event = || Event::new().context("cannot create an eventfd");
        Ok(Self {
            ring: Ring::new(guest, options.size, options.is_packed, options.event_idx)?,
            kick: event()?,
            call: event()?,
            error: event()?,
            kicks: 0,
            calls: 0,
            pending: (0..options.size).map(|_| None).collect(),
            done: VecDeque::new(),
        })
    }

    /// Requests that the device has not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.pending.iter().flatten().count()
    }

    /// Publishes what was added and notifies the device if it wants that.
    ///
    /// # Errors
    /// The eventfd's counter is full.
    pub fn publish(&mut self) -> Result<()> {
        if self.ring.publish() {
            self.kicks += 1;
            self.kick.signal().context("cannot notify the device")?;
        }
        Ok(())
    }

    /// Takes all used chains from the ring.
    fn collect(&mut self) -> Result<()> {
        while let Some(used) = self.ring.pop()? {
            let pending = self.pending.get_mut(usize::from(used.id));
            let pending = pending.and_then(Option::take);
            let pending = pending.with_context(|| format!("chain {} has no request", used.id))?;
            let room: usize = pending.written.iter().map(|piece| piece.len).sum();
            ensure!(
                used.written as usize <= room,
                "the device wrote {} bytes where there is room for {room}",
                used.written
            );
            let mut data = Vec::new();
            for piece in &pending.written {
                let from = data.len();
                data.resize(from + piece.len, 0);
                piece.buffer.read_into(piece.at, &mut data[from..]);
            }
            self.done.push_back(Completion {
                token: pending.token,
                status: data.pop().unwrap_or(status::UNWRITTEN),
                written: used.written,
                data,
            });
        }
        Ok(())
    }
}

/// A disk.
#[derive(Debug)]
pub struct Disk {
    path: PathBuf,
    options: Options,
    session: Session,
    guest: Guest,
    queues: Vec<Queue>,
    features: u64,
    inflight: Option<Inflight>,
    next_token: u64,
}

impl Disk {
    /// Connects to the back end's socket and starts all queues.
    ///
    /// # Errors
    /// There is no back end for [`crate::BOUND`], it lacks something that `options` ask for, or it
    /// answers wrongly.
    pub fn connect(path: &Path, options: Options) -> Result<Self> {
        options.check()?;
        let guest = Guest::new(options.memory_len, options.regions)?;
        let queues: Result<Vec<_>> = (0..options.queues)
            .map(|_| Queue::new(&guest, &options))
            .collect();
        let queues = queues?;
        let mut session = Session::open(path, &options, &queues)?;
        session.reset_device()?;
        let mut disk = Self {
            path: path.to_owned(),
            features: session.select(&options)?,
            session,
            options,
            guest,
            queues,
            inflight: None,
            next_token: 0,
        };
        disk.restart()?;
        Ok(disk)
    }

    /// Starts stopped queues: behind everything that was used, as QEMU does when a VM goes on.
    ///
    /// # Errors
    /// The back end answers wrongly.
    pub fn restart(&mut self) -> Result<()> {
        let bases: Vec<_> = self.queues.iter().map(|it| it.ring.used_base()).collect();
        self.restart_at(&bases)
    }

    /// Starts stopped queues at bases.
    ///
    /// # Errors
    /// The back end answers wrongly.
    pub fn restart_at(&mut self, bases: &[u32]) -> Result<()> {
        let (options, queues) = (&self.options, &self.queues);
        self.session.start(
            self.features,
            &self.guest,
            options,
            queues,
            bases,
            &mut self.inflight,
        )
    }

    /// Stops the queues: the base of each, as the back end returns it. What it completed until then
    /// is still polled.
    ///
    /// # Errors
    /// The back end answers wrongly.
    pub fn stop(&mut self) -> Result<Vec<u32>> {
        let bases = self.session.stop(self.queues.len())?;
        for queue in &mut self.queues {
            queue.collect()?;
        }
        Ok(bases)
    }

    /// Stops the queues and resets the device; the rings are empty and start again. Requests in
    /// flight are dropped.
    ///
    /// # Errors
    /// The back end answers wrongly.
    pub fn reset(&mut self) -> Result<()> {
        self.stop()?;
        self.session.reset_device()?;
        for queue in &mut self.queues {
            queue.ring.reset();
            queue.pending.fill_with(|| None);
        }
        self.inflight = None;
        self.restart()
    }

    /// Connects again after the back end died: the same memory, rings and record of requests in
    /// flight, and bases behind everything that was used.
    ///
    /// # Errors
    /// As [`Self::connect`]; or the previous connection stays open for [`crate::BOUND`].
    pub fn reconnect(&mut self) -> Result<()> {
        // An end that still serves the rings could use more than is collected here.
        let is_closed = self.session.raw().is_closed(crate::BOUND)?;
        ensure!(is_closed, "the back end is connected; end it first");
        for queue in &mut self.queues {
            queue.collect()?;
        }
        self.session = Session::open(&self.path, &self.options, &self.queues)?;
        let features = self.session.select(&self.options)?;
        ensure!(
            features == self.features,
            "the back end's features changed from {:#x} to {features:#x}",
            self.features
        );
        self.restart()?;
        // QEMU does so, because a notification may have been lost with the previous back end.
        for queue in &mut self.queues {
            queue.kick.signal().context("cannot notify the device")?;
        }
        Ok(())
    }

    /// Makes a request available and notifies the device if it wants that: the request's number, or
    /// `None` when the ring is full.
    ///
    /// # Errors
    /// The guest memory is full, or the layout is indirect and that was not negotiated.
    pub fn submit(
        &mut self,
        queue: usize,
        request: &Request,
        layout: &Layout,
    ) -> Result<Option<u64>> {
        let token = self.add(queue, request, layout)?;
        self.queues[queue].publish()?;
        Ok(token)
    }

    /// As [`Self::submit`], without the notification: [`Queue::publish`] is still to be called.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub fn add(&mut self, queue: usize, request: &Request, layout: &Layout) -> Result<Option<u64>> {
        ensure!(
            !layout.is_indirect || self.options.is_indirect,
            "indirect descriptors were not negotiated; set Options::is_indirect"
        );
        let readable = request.readable();
        let mut read = self.allocate(readable.len(), &layout.readable, layout.skew)?;
        let mut from = 0;
        for piece in &read {
            let bytes = &readable[from..from + piece.len];
            piece.buffer.write_from(piece.at, bytes);
            from += piece.len;
        }
        let written = self.allocate(request.in_len() + 1, &layout.writable, layout.skew)?;
        if let Some(last) = written.last() {
            let at = last.at + last.len - 1;
            last.buffer.write_from(at, &[status::UNWRITTEN]);
        }
        let segments = |pieces: &[Piece], is_writable| -> Vec<Segment> {
            let segment = |piece: &Piece| Segment {
                address: self.guest.guest_address(&piece.buffer, piece.at),
                len: piece.len as u32,
                is_writable,
            };
            pieces.iter().map(segment).collect()
        };
        let mut chain = segments(&read, false);
        chain.extend(segments(&written, true));
        if layout.is_indirect {
            let bytes = self.queues[queue].ring.table(&chain);
            let table = self.guest.alloc(bytes.len(), DESCRIPTOR_LEN)?;
            table.write_from(0, &bytes);
            chain = vec![Segment {
                address: self.guest.guest_address(&table, 0),
                len: bytes.len() as u32,
                is_writable: false,
            }];
            read.push(Piece {
                buffer: table,
                at: 0,
                len: bytes.len(),
            });
        }
        let queue = &mut self.queues[queue];
        let Some(id) = queue.ring.add(&chain, layout.is_indirect) else {
            return Ok(None);
        };
        let token = self.next_token;
        self.next_token += 1;
        queue.pending[usize::from(id)] = Some(Pending {
            token,
            _read: read,
            written,
        });
        Ok(Some(token))
    }

    fn allocate(&self, len: usize, cuts: &[usize], skew: usize) -> Result<Vec<Piece>> {
        let pieces = divide(len, cuts).into_iter().map(|len| {
            let buffer = self.guest.alloc(len + skew, 64)?;
            Ok(Piece {
                buffer,
                at: skew,
                len,
            })
        });
        pieces.collect()
    }

    /// The next completed request of a queue, without waiting.
    ///
    /// # Errors
    /// The device broke a rule of the ring.
    pub fn poll(&mut self, queue: usize) -> Result<Option<Completion>> {
        let queue = &mut self.queues[queue];
        queue.collect()?;
        Ok(queue.done.pop_front())
    }

    /// Waits for an interrupt of a queue with completed requests; false when there is none within
    /// `timeout`.
    ///
    /// # Errors
    /// The system fails to wait.
    pub fn wait(&mut self, queue: usize, timeout: Duration) -> Result<bool> {
        let queue = &mut self.queues[queue];
        let deadline = Instant::now() + timeout;
        loop {
            queue.calls += queue.call.take();
            if !queue.done.is_empty() || queue.ring.arm() {
                return Ok(true);
            }
            let rest = deadline.saturating_duration_since(Instant::now());
            let is_called = queue.call.wait(rest).context("cannot wait")?;
            if !is_called {
                return Ok(false);
            }
        }
    }

    /// The configuration space, as it was read last: [`config::LEN`] bytes, or
    /// [`config::WHOLE_LEN`] of a device with zones or secure erase.
    #[must_use]
    pub fn config(&self) -> &[u8] {
        self.session.config()
    }

    /// Sectors of the disk.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&self.config()[config::CAPACITY..config::CAPACITY + 8]);
        u64::from_le_bytes(bytes)
    }

    /// Selects write-back (true) or write-through, and reads the configuration space again.
    ///
    /// # Errors
    /// The back end answers wrongly.
    pub fn set_writeback(&mut self, is_writeback: bool) -> Result<()> {
        self.session
            .write_config(config::WRITEBACK, &[is_writeback.into()])
    }

    /// Reads the configuration space again.
    ///
    /// # Errors
    /// The back end answers wrongly.
    pub fn read_config(&mut self) -> Result<()> {
        self.session.read_config()
    }

    /// Waits for the back end's message of a changed configuration space, reads it, and replies;
    /// false when none comes within `timeout`.
    ///
    /// # Errors
    /// The back end does not offer requests of its own, or sends another one.
    pub fn wait_config_change(&mut self, timeout: Duration) -> Result<bool> {
        self.session.wait_config_change(timeout)
    }

    /// The device status, where the back end offers it.
    ///
    /// # Errors
    /// It does not.
    pub fn status(&self) -> Result<u64> {
        self.session.get_status()
    }

    /// The connection, for messages as bytes. A reply has to be read before another call.
    #[must_use]
    pub fn raw(&self) -> &Raw {
        self.session.raw()
    }

    /// The record of requests in flight, as the back end created it, and its length in bytes.
    #[must_use]
    pub fn inflight(&self) -> Option<(&File, u64)> {
        self.inflight.as_ref().map(Inflight::parts)
    }

    /// The guest's memory.
    #[must_use]
    pub fn guest(&self) -> &Guest {
        &self.guest
    }

    /// A queue, also for tests that write its memory.
    ///
    /// # Panics
    /// There is no such queue.
    pub fn queue(&mut self, index: usize) -> &mut Queue {
        &mut self.queues[index]
    }

    /// What was negotiated.
    #[must_use]
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Feature bits acknowledged.
    #[must_use]
    pub fn features(&self) -> u64 {
        self.features
    }

    /// Feature bits offered.
    #[must_use]
    pub fn offered(&self) -> u64 {
        self.session.offered()
    }

    /// Whether a protocol feature was acknowledged.
    #[must_use]
    pub fn has_protocol_feature(&self, bit: u64) -> bool {
        self.session.has(bit)
    }
}
