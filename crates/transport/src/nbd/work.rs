//! Requests become commands, and completions replies.
//!
//! ```text
//! request --judged--> pieces, one slot each --data there--> command --completion--> reply
//!     \--refused---------------------------------------------------------------------/
//! ```
//!
//! Requests get their pieces in the order in which they came: where there is no slot, the requests
//! behind wait in the socket. So each gets its slots at last, as the ones before need none of the
//! ones behind.
//!
//! A part of a block is read and then written by Compare and Write, fused: it is tried again where
//! another writer was faster, and changes no byte beside its own.

use std::collections::VecDeque;
use std::io;

use memory::HostMemory;
use nbd::{Errno, Head, Reply, Style};
use nvme_spec::command::DsmRange;
use nvme_spec::{Cqe, Status};
use port::allocation::Run;
use zerocopy::IntoBytes as _;

use super::counters::Counters;
use super::end::End;
use super::entry::Entries;
use super::extents::{Extent, Extents};
use super::judge::{Agreed, judge};
use super::offer::{MAX_DATA, Offer};
use super::output::Output;
use super::requests::{Kind, Order, Request, Requests};
use super::slots::{LARGE_LEN, SMALL_LEN, Slots, Task, Use};
use super::split::{Piece, Rest};
use super::status::error;
use super::{LARGE, QUEUE_DEPTH, SMALL};
use crate::host::{PAGE, Rings};
use crate::secure::Stream;

/// Requests of a client at the same time. More wait in the socket.
const REQUESTS: u16 = 128;
/// Command identifier of the second one of two: this, beside the slot's.
const SECOND: u16 = 1 << 15;
/// How often the part of a block is tried again. Each time another writer was faster, so only one
/// that has all the luck of the machine against it gets here.
const RETRIES: u32 = 10_000;
/// Blocks of one Write Zeroes: what its field has room for.
const ZEROED: u64 = 1 << 16;
/// Blocks of one query for allocated blocks.
const QUERIED: u64 = (1 << 32) - 1;
/// Blocks of one range of Dataset Management.
const DEALLOCATED: u64 = 1 << 31;

// The submission queue has room for the commands of all slots.
const _: () = assert!(2 * SMALL + LARGE < QUEUE_DEPTH as usize);

/// Data that come.
#[derive(Clone, Copy, Debug)]
pub(super) struct Receiving {
    slot: u16,
    /// Where the next byte goes.
    pub(super) at: usize,
    /// Bytes that are to come.
    pub(super) left: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) memory: HostMemory,
    pub(super) rings: Rings,
    slots: Slots,
    requests: Requests,
    pub(super) out: Output,
    offer: Offer,
    agreed: Agreed,
    style: Style,
    /// Bytes of a command's blocks at most.
    chunk: u64,
    /// The request that gets pieces, and what it has none for.
    current: Option<(u16, Rest)>,
    pub(super) receiving: Option<Receiving>,
    /// Bytes of data that come and are left out.
    pub(super) skipping: u64,
    /// Reads with more pieces than slots, in order. Only the first one is being sent.
    streams: VecDeque<u16>,
    /// It has begun: no other reply can be sent before its end.
    has_begun: bool,
    /// Replies that wait for that.
    waiting: VecDeque<u16>,
    /// Parts of blocks of which another part is being written, in order.
    parts: VecDeque<u16>,
    /// The client has asked for the end.
    pub(super) is_closing: bool,
    pub(super) counters: Counters,
}

impl Work {
    /// For an export. `None`: there is no memory.
    pub(super) fn new(
        memory: HostMemory,
        rings: Rings,
        offer: Offer,
        agreed: Agreed,
        max_transfer: u64,
    ) -> Option<Self> {
        let style = match agreed {
            Agreed {
                is_extended: true, ..
            } => Style::Extended,
            Agreed {
                has_chunks: true, ..
            } => Style::Structured,
            _ => Style::Simple,
        };
        Some(Self {
            slots: Slots::new(&memory)?,
            memory,
            rings,
            requests: Requests::new(REQUESTS),
            out: Output::new(SMALL + LARGE + 2 * usize::from(REQUESTS)),
            offer,
            agreed,
            style,
            chunk: max_transfer.min(LARGE_LEN as u64),
            current: None,
            receiving: None,
            skipping: 0,
            streams: VecDeque::with_capacity(REQUESTS.into()),
            has_begun: false,
            waiting: VecDeque::with_capacity(REQUESTS.into()),
            parts: VecDeque::with_capacity(SMALL),
            is_closing: false,
            counters: Counters::default(),
        })
    }

    pub(super) fn offer(&self) -> &Offer {
        &self.offer
    }

    /// Whether requests have extended headers.
    pub(super) fn is_extended(&self) -> bool {
        self.agreed.is_extended
    }

    /// Whether it takes another request now.
    pub(super) fn takes_request(&self) -> bool {
        // Also replies without data wait in memory, where the client does not read.
        let has_room = !self.requests.is_full() && self.out.len() < usize::from(REQUESTS);
        self.current.is_none() && has_room && !self.is_closing
    }

    /// Whether it takes no bytes before something completes or is sent.
    pub(super) fn is_stopped(&self) -> bool {
        self.receiving.is_none() && self.skipping == 0 && !self.takes_request()
    }

    /// Whether all requests are answered.
    pub(super) fn is_idle(&self) -> bool {
        self.requests.is_empty()
    }

    /// Takes a request. There is room for one.
    pub(super) fn begin(&mut self, asked: &nbd::Request) {
        if asked.command == nbd::Command::DISC {
            self.is_closing = true;
            return;
        }
        self.counters.requests += 1;
        let judged = judge(asked, &self.offer, self.agreed);
        let judged = judged.and_then(|kind| Ok((kind, self.order(kind, asked)?)));
        let refused = judged.err().unwrap_or(Errno::NONE);
        let (kind, order) = judged.unwrap_or((Kind::Flush, Order::Together));
        let index = self.requests.add(Request {
            kind,
            reply: Reply {
                style: self.style,
                cookie: asked.cookie,
                offset: asked.offset,
            },
            len: asked.len,
            fua: asked.flags.fua(),
            order,
            left: 0,
            is_whole: false,
            error: refused,
            error_at: None,
            held: None,
        });
        let Some(index) = index else {
            return;
        };
        if judged.is_err() {
            self.skipping = asked.payload(self.agreed.is_extended);
            return self.finish(index);
        }
        let mut rest = match kind {
            Kind::Flush => Rest::new(0, 1),
            _ => Rest::new(asked.offset, asked.len),
        };
        match kind {
            Kind::Trim => rest.shrink(self.offer.lba_shift),
            // A hint: the rest of a longer one is read when it is asked for.
            Kind::Cache => rest.end = rest.end.min(rest.at.saturating_add(MAX_DATA.into())),
            _ => {}
        }
        if rest.is_empty() {
            return self.finish(index);
        }
        if order == Order::Stream {
            self.streams.push_back(index);
        }
        self.current = Some((index, rest));
        self.advance();
    }

    /// When the data of a read are sent.
    fn order(&self, kind: Kind, asked: &nbd::Request) -> Result<Order, Errno> {
        if kind != Kind::Read || self.agreed.has_chunks && !asked.flags.df() {
            return Ok(Order::Chunks);
        }
        let skip = asked.offset & ((1 << self.offer.lba_shift) - 1);
        if (skip + asked.len).div_ceil(self.chunk) <= LARGE as u64 {
            Ok(Order::Together)
        } else if self.agreed.has_chunks {
            Err(Errno::OVERFLOW)
        } else {
            Ok(Order::Stream)
        }
    }

    /// Makes pieces of the current request, as far as there are slots. One whose data are to come
    /// is the last one for now.
    pub(super) fn advance(&mut self) {
        while self.receiving.is_none()
            && let Some((index, mut rest)) = self.current
        {
            let shift = self.offer.lba_shift;
            let Some(request) = self.requests.get_mut(index) else {
                return;
            };
            let piece = match request.kind {
                Kind::Read | Kind::Cache => rest.read(shift, self.chunk),
                Kind::Write => rest.write(shift, self.chunk),
                Kind::Zero { .. } => rest.write(shift, ZEROED << shift),
                Kind::Trim => rest.write(shift, DEALLOCATED << shift),
                Kind::Flush => rest.all(),
                Kind::Status { .. } => {
                    let piece = rest.read(shift, QUERIED << shift);
                    // The client asks again for what no query has room for.
                    rest.at = rest.end;
                    piece
                }
            };
            let data = match request.kind {
                Kind::Read | Kind::Cache | Kind::Write => piece.blocks << shift,
                Kind::Status { .. } => SMALL_LEN as u64,
                Kind::Zero { .. } | Kind::Trim | Kind::Flush => 0,
            };
            let task = Task {
                request: index,
                piece,
                is: Use::Receiving,
                retries: 0,
                next: None,
            };
            let Some(slot) = self.slots.take(data, task) else {
                return;
            };
            request.left += 1;
            request.is_whole = rest.is_empty();
            let (kind, order) = (request.kind, request.order);
            let before = match (kind, order, &mut request.held) {
                (Kind::Read, Order::Together | Order::Stream, Some((_, last))) => {
                    Some(std::mem::replace(last, slot))
                }
                (Kind::Read, Order::Together | Order::Stream, held) => {
                    *held = Some((slot, slot));
                    None
                }
                _ => None,
            };
            if let Some(before) = before.and_then(|before| self.slots.get_mut(before)) {
                before.next = Some(slot);
            }
            self.current = (!rest.is_empty()).then_some((index, rest));
            self.start(slot, kind, &piece);
        }
    }

    /// Begins with a piece.
    fn start(&mut self, slot: u16, kind: Kind, piece: &Piece) {
        let (at, is_part) = (self.slots.at(slot), piece.is_part(self.offer.lba_shift));
        match kind {
            Kind::Write => {
                let at = if is_part {
                    at + PAGE + piece.skip as usize
                } else {
                    at
                };
                let left = piece.len as usize;
                self.receiving = Some(Receiving { slot, at, left });
            }
            Kind::Zero { .. } if is_part => {
                let at = at + PAGE + piece.skip as usize;
                self.memory.clear(at, piece.len as usize);
                self.begin_part(slot);
            }
            Kind::Trim => {
                let range = DsmRange {
                    cattr: 0,
                    nlb: piece.blocks as u32,
                    slba: piece.slba,
                };
                self.memory.write(at, range.as_bytes());
                self.issue(slot, Use::Trim);
            }
            Kind::Status { is_one } => {
                let room = (SMALL_LEN / self.style.extent_len() as usize) as u16;
                let extents = Extents::new(piece, self.offer.lba_shift, room, is_one);
                self.issue(slot, Use::Status(extents));
            }
            _ => self.issue(slot, Use::Command),
        }
    }

    /// Some of the data that were to come are there.
    pub(super) fn received(&mut self, len: usize) {
        let Some(receiving) = &mut self.receiving else {
            return;
        };
        receiving.at += len;
        receiving.left -= len;
        if receiving.left > 0 {
            return;
        }
        let slot = receiving.slot;
        self.receiving = None;
        let shift = self.offer.lba_shift;
        let is_part = self
            .slots
            .get_mut(slot)
            .map(|task| task.piece.is_part(shift));
        if is_part == Some(true) {
            self.begin_part(slot);
        } else {
            self.issue(slot, Use::Command);
        }
        self.advance();
    }

    /// Begins to write a part of a block, or has it wait for another one of the same block.
    fn begin_part(&mut self, slot: u16) {
        self.counters.partial += 1;
        let Some(task) = self.slots.get_mut(slot) else {
            return;
        };
        let slba = task.piece.slba;
        if self.slots.has_part_of(slba) {
            self.parts.push_back(slot);
            return;
        }
        self.issue(slot, Use::ReadPart);
    }

    /// A part of a block is done, and the next one of the same block begins.
    fn part_done(&mut self, slot: u16, status: Status) -> Result<(), End> {
        let Some(task) = self.slots.get_mut(slot) else {
            return Ok(());
        };
        let slba = task.piece.slba;
        self.done(slot, status)?;
        let slots = &mut self.slots;
        let is_next = |slot: &u16| slots.get_mut(*slot).is_some_and(|it| it.piece.slba == slba);
        let next = self.parts.iter().position(is_next);
        if let Some(slot) = next.and_then(|at| self.parts.remove(at)) {
            self.issue(slot, Use::ReadPart);
        }
        Ok(())
    }

    /// Stores the command, or the two, that a slot is for now.
    fn issue(&mut self, slot: u16, is: Use) {
        let entries = Entries {
            nsid: self.offer.nsid,
            lba_shift: self.offer.lba_shift,
            cid: slot,
            at: self.slots.at(slot),
        };
        let Some(task) = self.slots.get_mut(slot) else {
            return;
        };
        task.is = is;
        let piece = task.piece;
        let Some(request) = self.requests.get_mut(task.request) else {
            return;
        };
        let sqe = match (is, request.kind) {
            (Use::Exchange(_), _) => {
                let [compare, write] = entries.exchange(&piece, request.fua, slot | SECOND);
                self.rings.store(&compare);
                write
            }
            (Use::Trim, _) => entries.deallocate(),
            (Use::Status(extents), _) => entries.allocation(extents.query()),
            (Use::ReadPart, _) | (_, Kind::Read | Kind::Cache) => entries.read(&piece),
            (_, Kind::Write) => entries.write(&piece, request.fua),
            (_, Kind::Zero { deallocates }) => entries.zero(&piece, request.fua, deallocates),
            // Also behind a trim whose request is to be stable.
            (_, Kind::Flush | Kind::Trim | Kind::Status { .. }) => entries.flush(),
        };
        self.rings.store(&sqe);
    }

    /// Takes a completion.
    ///
    /// # Errors
    /// A read has failed whose reply had begun.
    pub(super) fn complete(&mut self, cqe: &Cqe) -> Result<(), End> {
        let (slot, is_second) = (cqe.cid & !SECOND, cqe.cid & SECOND != 0);
        let status = cqe.status.status();
        if status == Status::COMMAND_ABORT_REQUESTED {
            // The controller gives up a command that hangs, and no slot may be used again that a
            // medium may still have. Without its client none is.
            return Err(End::MediumHangs);
        }
        let Some(task) = self.slots.get_mut(slot) else {
            return Ok(());
        };
        match task.is {
            Use::Exchange(None) => task.is = Use::Exchange(Some((is_second, status))),
            Use::Exchange(Some((_, other))) => {
                let (compared, written) = if is_second {
                    (other, status)
                } else {
                    (status, other)
                };
                return self.exchanged(slot, compared, written);
            }
            Use::ReadPart if status.is_success() => {
                self.complete_block(slot);
                self.issue(slot, Use::Exchange(None));
            }
            Use::Trim if status.is_success() => {
                let request = task.request;
                if self.requests.get_mut(request).is_some_and(|it| it.fua) {
                    self.issue(slot, Use::Command);
                } else {
                    return self.done(slot, status);
                }
            }
            Use::Status(extents) => return self.described(slot, extents, cqe),
            Use::ReadPart => return self.part_done(slot, status),
            Use::Trim | Use::Command => return self.done(slot, status),
            Use::Receiving | Use::Held => {}
        }
        Ok(())
    }

    /// A query of a Block Status request has completed.
    fn described(&mut self, slot: u16, mut extents: Extents, cqe: &Cqe) -> Result<(), End> {
        let status = cqe.status.status();
        let run = match status {
            Status::SUCCESSFUL_COMPLETION => Run::of(cqe.dw0, cqe.dw1),
            // Some of the blocks cannot be read: a client is not to take them for zeroes.
            Status::UNRECOVERED_READ_ERROR => extents.rest(),
            _ => return self.done(slot, status),
        };
        let (place, style) = (self.slots.at(slot), self.style);
        let len = style.extent_len() as usize;
        let store = |(number, extent): (u16, Extent)| {
            let bytes = style.extent(extent.len, extent.state());
            let at = place + usize::from(number) * len;
            self.memory.write(at, &bytes);
        };
        extents.add(run).into_iter().for_each(store);
        if !extents.is_over() {
            self.issue(slot, Use::Status(extents));
            return Ok(());
        }
        let Some((number, last)) = extents.last() else {
            return Ok(());
        };
        store((number, last));
        let Some(task) = self.slots.get_mut(slot) else {
            return Ok(());
        };
        task.is = Use::Held;
        if let Some(request) = self.requests.remove(task.request) {
            let count = u32::from(number) + 1;
            let data = (place, count * style.extent_len());
            let head = request.reply.block_status(count);
            self.out.push(head, Some(data), Some(slot));
        }
        Ok(())
    }

    /// The bytes of a block beside the part that is written: as they were read.
    fn complete_block(&mut self, slot: u16) {
        let at = self.slots.at(slot);
        let Some(task) = self.slots.get_mut(slot) else {
            return;
        };
        let (skip, end) = (
            task.piece.skip as usize,
            task.piece.skip as usize + task.piece.len as usize,
        );
        let mut bytes = [0; PAGE];
        let block = &mut bytes[..1 << self.offer.lba_shift];
        self.memory.read(at, block);
        self.memory.write(at + PAGE, &block[..skip]);
        self.memory.write(at + PAGE + end, &block[end..]);
    }

    /// A block was compared with what was read, and written.
    fn exchanged(&mut self, slot: u16, compared: Status, written: Status) -> Result<(), End> {
        if compared == Status::COMPARE_FAILURE
            && let Some(task) = self.slots.get_mut(slot)
            && task.retries < RETRIES
        {
            task.retries += 1;
            self.counters.retried += 1;
            self.issue(slot, Use::ReadPart);
            return Ok(());
        }
        self.part_done(
            slot,
            if compared.is_success() {
                written
            } else {
                compared
            },
        )
    }

    /// A piece is done.
    fn done(&mut self, slot: u16, status: Status) -> Result<(), End> {
        let shift = self.offer.lba_shift;
        let place = self.slots.at(slot);
        let Some(task) = self.slots.get_mut(slot) else {
            return Ok(());
        };
        task.is = Use::Held;
        let (index, piece) = (task.request, task.piece);
        let Some(request) = self.requests.get_mut(index) else {
            return Ok(());
        };
        let at = (piece.slba << shift) + u64::from(piece.skip);
        request.left -= 1;
        if !status.is_success() && request.error == Errno::NONE {
            request.error = error(status, request.kind);
            request.error_at = (request.kind == Kind::Read).then_some(at);
        }
        let is_over = request.is_whole && request.left == 0;
        match (request.kind, request.order) {
            (Kind::Read, Order::Chunks) if status.is_success() => {
                let len = piece.len as u32;
                let is_last = is_over && request.error == Errno::NONE;
                let head = request.reply.data(at, len, is_last);
                let data = (place + piece.skip as usize, len);
                self.out.push(head, Some(data), Some(slot));
                if is_last {
                    self.requests.remove(index);
                } else if is_over {
                    self.finish(index);
                }
            }
            (Kind::Read, Order::Together) => {
                if is_over {
                    self.finish(index);
                }
            }
            (Kind::Read, Order::Stream) => return self.stream(index),
            _ => {
                self.slots.give_back(slot);
                if is_over {
                    self.finish(index);
                }
            }
        }
        Ok(())
    }

    /// Sends what can be sent of a read with more pieces than slots.
    fn stream(&mut self, mut index: u16) -> Result<(), End> {
        while self.streams.front() == Some(&index) {
            let Some(request) = self.requests.get_mut(index) else {
                return Ok(());
            };
            let request = *request;
            let has_failed = request.error != Errno::NONE;
            if has_failed && self.has_begun {
                return Err(End::ReadFailed);
            }
            while let Some((slot, piece)) = self.take_held(index) {
                if has_failed {
                    self.slots.give_back(slot);
                    continue;
                }
                let head = if self.has_begun {
                    Head::new()
                } else {
                    request
                        .reply
                        .data(request.reply.offset, request.len as u32, true)
                };
                self.has_begun = true;
                self.push_data(head, slot, &piece);
            }
            let is_over = request.is_whole && request.left == 0;
            if !is_over {
                return Ok(());
            }
            self.streams.pop_front();
            self.has_begun = false;
            if has_failed {
                self.finish(index);
            } else {
                self.requests.remove(index);
            }
            while let Some(waiting) = self.waiting.pop_front() {
                self.finish(waiting);
            }
            let Some(next) = self.streams.front() else {
                return Ok(());
            };
            index = *next;
        }
        Ok(())
    }

    /// Takes the first slot of a read whose data are there and not sent, with its piece.
    fn take_held(&mut self, index: u16) -> Option<(u16, Piece)> {
        let request = self.requests.get_mut(index)?;
        let (first, last) = request.held?;
        let task = self.slots.get_mut(first)?;
        if task.is != Use::Held {
            return None;
        }
        request.held = task.next.map(|next| (next, last));
        Some((first, task.piece))
    }

    fn push_data(&mut self, head: Head, slot: u16, piece: &Piece) {
        let at = self.slots.at(slot) + piece.skip as usize;
        self.out
            .push(head, Some((at, piece.len as u32)), Some(slot));
    }

    /// Answers a request that is over, now or when another reply has ended.
    fn finish(&mut self, index: u16) {
        if self.has_begun {
            self.waiting.push_back(index);
            return;
        }
        let Some(request) = self.requests.get_mut(index) else {
            return;
        };
        let (request, reply) = (*request, request.reply);
        let has_failed = request.error != Errno::NONE;
        let mut head = if has_failed {
            self.counters.failed += 1;
            reply.failed(request.error, request.error_at, "")
        } else if request.kind == Kind::Read && request.held.is_some() {
            reply.data(reply.offset, request.len as u32, true)
        } else {
            reply.done()
        };
        if has_failed || request.held.is_none() {
            self.out.push(std::mem::take(&mut head), None, None);
        }
        while let Some((slot, piece)) = self.take_held(index) {
            if has_failed {
                self.slots.give_back(slot);
            } else {
                self.push_data(std::mem::take(&mut head), slot, &piece);
            }
        }
        self.requests.remove(index);
    }

    /// Sends replies as far as the stream takes them: the number of bytes. The slots of those that
    /// have gone are free.
    ///
    /// # Errors
    /// As [`Output::send`].
    pub(super) fn send(&mut self, stream: &mut Stream) -> io::Result<usize> {
        let slots = &mut self.slots;
        let sent = self
            .out
            .send(stream, &self.memory, |slot| slots.give_back(slot))?;
        self.counters.sent += sent as u64;
        Ok(sent)
    }
}
