//! From a fetched command to a medium: parse, namespace, bounds, walk, add.
//!
//! Everything is repeated if a channel was full the first time: the command comes from the slot's
//! copy, and no address or data of the host is kept while it waits. So a waiting command delays no
//! unmap.

use std::collections::VecDeque;
use std::sync::Arc;

use memory::{DmaView, Hint, Near, Need, Segment};
use nvme_spec::command::DsmRange;
use nvme_spec::sqe::{Fuse, Psdt};
use nvme_spec::{NSID_ALL, Sqe, Status};
use port::namespace::{Namespace, NamespaceTable};
use port::prp::{self, Segments};
use port::ticket::{OwnerKey, Ticket};
use port::time::Time;
use port::{Added, ByteRange, Channel, ChannelId, Channels, Outcome, Request, status};
use subsystem::{DATA_LEN, Forward, UNNAMED};

use super::message::Copying;
use super::outcome::{Asked, Issued};
use super::watch::{self, Handed};
use super::{admission, restrictions};
use crate::command::{self, Blocks, Command, DeallocateRanges, Plain};
use crate::gate::{FlowId, Gate, Pass};
use crate::queue::Sq;
use crate::sgl;
use crate::state::SlotState;

/// Data for issuing beside the slot; assembled once per turn.
pub(super) struct Issuer<'t, C, G> {
    pub(super) key: OwnerKey,
    /// Whose name tickets of the subsystem carry.
    pub(super) home_key: OwnerKey,
    pub(super) view: &'t Arc<DmaView>,
    pub(super) namespaces: &'t NamespaceTable,
    pub(super) channels: &'t mut Channels<C>,
    pub(super) hint: &'t mut Hint,
    /// The region with the data of the last plain command.
    pub(super) near: Near<'t>,
    /// Bytes handed in this turn to channels that copy.
    pub(super) copied: u64,
    pub(super) segments: Segments<'t>,
    pub(super) ranges: &'t mut Vec<ByteRange>,
    pub(super) forwards: &'t mut VecDeque<Forward>,
    /// The name of the next command that needs one.
    pub(super) next_name: &'t mut u64,
    pub(super) mdts_bytes: u32,
    pub(super) write_through: bool,
    pub(super) copying: Copying,
    pub(super) is_inside: bool,
    pub(super) gate: G,
    /// The command that is issued is watched: the time.
    pub(super) clock: Option<fn() -> Time>,
    /// When it was handed to a channel.
    pub(super) handed: Option<Handed>,
    /// The first range of Dataset Management, of a command that is watched.
    pub(super) range: Option<(u64, u32)>,
}

/// The commands behind the one that is being issued.
#[derive(Clone, Copy)]
pub(super) struct Next<'q> {
    pub(super) sq: &'q Sq,
    /// Those that will be fetched in this turn.
    pub(super) left: u32,
    /// No announcement was made for them yet.
    pub(super) first: bool,
}

/// Bytes that are handed to channels that copy in one turn of a lane, and one command more: as many
/// as a batch of small commands has, so that a lane with large ones holds up the others for no
/// longer.
pub(super) const COPIED_PER_TURN: u64 = 128 << 10;

/// Weight of a byte that is copied by a channel with a clock of its own: it finds due work after 16
/// KiB.
const TIMED_WEIGHT: u64 = 8;

/// Weighted number of bytes that a channel copies.
#[inline]
pub(super) fn weighed<C: Channel>(channel: &C, bytes: u64) -> u64 {
    if channel.keeps_time() {
        bytes * TIMED_WEIGHT
    } else {
        bytes
    }
}

/// How many commands ahead of the one being issued are announced to a copying channel: memory
/// responds in the time of some copies of 4 KiB.
const AHEAD: u32 = 4;

/// Bytes above which it takes longer to find a command's data than to ask a channel whether it has
/// room.
const LONG_WALK: u32 = 8 << 10;

/// Length of a forwarded command's data, in bytes.
pub(super) fn data_len(command: &Command) -> u32 {
    match command {
        Command::ReservationRegister | Command::ReservationAcquire => 16,
        Command::ReservationRelease => 8,
        _ => 0,
    }
}

impl Next<'_> {
    /// Announces the next commands to the channel, as far as a glance shows.
    #[inline(never)]
    fn tell<C: Channel>(self, namespace: &Namespace, channel: &C) {
        let from = if self.first { 0 } else { AHEAD - 1 };
        for ahead in from..AHEAD.min(self.left) {
            let Some(words) = self.sq.glance(ahead, &command::PLAIN_WORDS) else {
                return;
            };
            let Some(plain) = command::plain(&words) else {
                continue;
            };
            let Blocks { slba, count } = plain.blocks;
            if plain.nsid == namespace.nsid
                && let Some(ByteRange { offset, len }) = namespace.bytes(slba, count.into())
            {
                channel.expect(offset, len);
            }
        }
    }
}

impl<'t, C: Channel, G: Gate> Issuer<'t, C, G> {
    /// Whether a fetched command may go, as far as it is known: its flow, if it has one.
    ///
    /// # Errors
    /// The flow that it waits for.
    #[inline]
    pub(super) fn may_pass(&mut self, nsid: u32) -> Result<Option<FlowId>, FlowId> {
        // A command for no namespace, or for all of them, is no flow's.
        let Some(namespace) = self.namespaces.get(nsid) else {
            return Ok(None);
        };
        match self.gate.pass(namespace) {
            Pass::Free => Ok(None),
            Pass::Go(flow) => Ok(Some(flow)),
            Pass::Wait(flow) => Err(flow),
        }
    }

    /// Issues `sqe`, the command in `slot`, which has the number `index`.
    pub(super) fn issue(&mut self, index: u16, slot: &mut SlotState, sqe: &Sqe) -> Issued {
        match self.dispatch(index, slot, sqe) {
            Ok(issued) => issued,
            Err(status) => Issued::Ended(status),
        }
    }

    /// Issues a plain command where all about it is as usual. `None`: nothing was done, and
    /// whatever is the matter with it, [`Issuer::issue`] finds out.
    #[inline(always)]
    pub(super) fn issue_plain(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        plain: &Plain,
        next: Next<'_>,
    ) -> Option<Asked> {
        let namespace = self.namespaces.get(plain.nsid)?;
        let is_plain_write = !self.write_through && !namespace.traits.notes;
        if namespace.restrictions.is_some() || plain.writes && !is_plain_write {
            return None;
        }
        let ByteRange { offset, len } = self.transfer(namespace, plain.blocks).ok()?;
        let len = len as u32;
        let (request, need) = if !plain.writes {
            (Request::Read { offset, len }, Need::DeviceWrites)
        } else {
            let fua = false;
            (Request::Write { offset, len, fua }, Need::DeviceReads)
        };
        let channel = self.channels.get_mut(namespace.channel)?;
        let flow = match self.gate.pass(namespace) {
            Pass::Free => None,
            Pass::Go(flow) => Some(flow),
            Pass::Wait(_) => return None,
        };
        slot.bytes = len;
        if channel.copies() {
            self.copied += weighed(channel, len.into());
            next.tell(namespace, channel);
        }
        if let Some(segment) = prp::straight(&self.near, plain.prp, len, need) {
            let memory = (std::slice::from_ref(&segment), self.view);
            let asked = ask(self.key, index, slot, channel, &request, memory);
            admission::report(&mut self.gate, flow, slot, len, &asked);
            return Some(asked);
        }
        let [prp1, prp2] = plain.prp;
        prp::walk(
            self.view,
            self.hint,
            prp1,
            prp2,
            len,
            need,
            &mut self.segments,
        )
        .ok()?;
        self.near = self.view.near(self.hint);
        let memory = (&self.segments[..], self.view);
        let asked = ask(self.key, index, slot, channel, &request, memory);
        admission::report(&mut self.gate, flow, slot, len, &asked);
        Some(asked)
    }

    fn dispatch(&mut self, index: u16, slot: &mut SlotState, sqe: &Sqe) -> Result<Issued, Status> {
        let command = match command::parse(sqe) {
            Ok(command) => command,
            Err(status) => return self.unparsed(index, slot, sqe, status),
        };
        if command == Command::Flush && sqe.nsid == NSID_ALL {
            return Ok(self.flush_all(index, slot));
        }
        let namespace = self.named(sqe.nsid)?;
        if let Some(set) = &namespace.set
            && let Some(asked) = set.command(sqe, namespace)?
        {
            return self.command(index, slot, sqe, namespace, &asked);
        }
        // A command that the subsystem had before a death is not refused now.
        let is_begun = || command::is_named(sqe) && slot.known_name().is_some();
        if let Some(restrictions) = &namespace.restrictions
            && !is_begun()
            && restrictions::check(restrictions, &command)?
        {
            slot.marks.set_clears(true);
        }
        let channel = namespace.channel;
        match command {
            Command::Read { blocks, fua } => {
                let ByteRange { offset, len } = self.transfer(namespace, blocks)?;
                let len = len as u32;
                slot.bytes = len;
                let request = Request::Read { offset, len };
                if fua && namespace.traits.volatile_cache {
                    return Ok(self.committed(index, slot, sqe, namespace, &request));
                }
                self.move_data(index, slot, sqe, channel, &request)
            }
            Command::Write { blocks, fua } => {
                let ByteRange { offset, len } = self.transfer(namespace, blocks)?;
                let len = len as u32;
                slot.bytes = len;
                let fua = fua || self.write_through;
                let request = Request::Write { offset, len, fua };
                if namespace.traits.notes {
                    self.walk(sqe, slot.bytes, Need::DeviceReads)?;
                    return self.add_noted(index, slot, channel, &request);
                }
                self.move_data(index, slot, sqe, channel, &request)
            }
            Command::Compare { blocks, fua } => {
                let ByteRange { offset, len } = self.transfer(namespace, blocks)?;
                let len = len as u32;
                slot.bytes = len;
                let request = Request::Compare { offset, len };
                if fua && namespace.traits.volatile_cache {
                    return Ok(self.committed(index, slot, sqe, namespace, &request));
                }
                self.move_data(index, slot, sqe, channel, &request)
            }
            Command::WriteZeroes {
                blocks,
                deallocate,
                fua,
            } => {
                let ByteRange { offset, len } = range(namespace, blocks)?;
                self.segments.clear();
                let request = Request::WriteZeroes {
                    offset,
                    len,
                    deallocate,
                    fua: fua || self.write_through,
                };
                if namespace.traits.notes {
                    return self.add_noted(index, slot, channel, &request);
                }
                self.add(index, slot, channel, &request)
            }
            Command::Flush => {
                self.segments.clear();
                self.add(index, slot, channel, &Request::Flush)
            }
            Command::Deallocate { ranges } => self.deallocate(index, slot, sqe, namespace, ranges),
            Command::Verify { .. } | Command::Copy { .. } => Ok(Issued::InSteps),
            Command::Hint => Ok(Issued::Ended(Status::SUCCESSFUL_COMPLETION)),
            Command::WriteUncorrectable { blocks } => {
                range(namespace, blocks)?;
                self.forward(index, slot, sqe, &command)
            }
            Command::ReservationRegister
            | Command::ReservationAcquire
            | Command::ReservationRelease
            | Command::ReservationReport => self.forward(index, slot, sqe, &command),
        }
    }

    /// Handles a command that is not in the NVM command set, or has invalid flags: a fused one is
    /// examined together with the other one, and another may belong to its namespace's own set.
    #[cold]
    fn unparsed(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        sqe: &Sqe,
        status: Status,
    ) -> Result<Issued, Status> {
        let fuse = sqe.flags.fuse();
        if [Fuse::FIRST, Fuse::SECOND].contains(&fuse) {
            return Ok(Issued::Fused);
        }
        let Some(namespace) = self.namespaces.get(sqe.nsid) else {
            return Err(status);
        };
        if self.answers(sqe, namespace) {
            return self.allocation(index, slot, sqe, namespace);
        }
        let asked = match &namespace.set {
            Some(set) => set.command(sqe, namespace)?,
            None => None,
        };
        match asked {
            Some(_) if fuse != Fuse::NORMAL || sqe.flags.psdt() > Psdt::SGL_METADATA_SGL => {
                Err(Status::INVALID_FIELD_IN_COMMAND)
            }
            Some(asked) => self.command(index, slot, sqe, namespace, &asked),
            None => Err(status),
        }
    }

    /// The namespace `nsid`.
    #[inline]
    pub(super) fn named(&self, nsid: u32) -> Result<&'t Namespace, Status> {
        let namespace = self.namespaces.get(nsid);
        namespace.ok_or_else(|| self.absent(nsid))
    }

    /// Why there is no namespace `nsid`: no namespace can have that id, or none that is attached
    /// has it (Base 2.1, 3.2.1.3 and 3.2.1.4).
    #[cold]
    fn absent(&self, nsid: u32) -> Status {
        if nsid == 0 || nsid > self.copying.namespace_limit {
            Status::INVALID_NAMESPACE_OR_FORMAT
        } else {
            Status::INVALID_FIELD_IN_COMMAND
        }
    }

    /// The bytes of a command that transfers them: inside the namespace, and not above MDTS.
    #[inline]
    fn transfer(&self, namespace: &Namespace, blocks: Blocks) -> Result<ByteRange, Status> {
        let range = range(namespace, blocks)?;
        if range.len > u64::from(self.mdts_bytes) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        Ok(range)
    }

    #[inline]
    pub(super) fn walk(&mut self, sqe: &Sqe, len: u32, need: Need) -> Result<(), Status> {
        walk(self.view, self.hint, sqe, len, need, &mut self.segments)
    }

    /// Hands the command to the subsystem, with its data.
    #[inline(never)]
    fn forward(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        sqe: &Sqe,
        command: &Command,
    ) -> Result<Issued, Status> {
        let mut data = [0; DATA_LEN];
        let len = data_len(command);
        if len > 0 {
            self.walk(sqe, len, Need::DeviceReads)?;
            let mut rest = &mut data[..len as usize];
            for segment in &self.segments {
                let (part, after) = rest.split_at_mut(segment.len() as usize);
                segment.read_into(0, part);
                rest = after;
            }
        }
        let name = if command::is_named(sqe) {
            slot.name(self.next_name)
        } else {
            UNNAMED
        };
        self.forwards.push_back(Forward {
            ticket: Ticket::issue(self.home_key, index, slot.generation()),
            sqe: *sqe,
            data,
            name,
        });
        slot.outstanding += 1;
        Ok(Issued::Forwarded)
    }

    /// Finds the data of a command and hands its one request to a channel. A channel that is full
    /// is asked first where there is much to find: a command that waits is tried again in every
    /// turn.
    #[inline]
    fn move_data(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        sqe: &Sqe,
        channel: ChannelId,
        request: &Request<'_>,
    ) -> Result<Issued, Status> {
        if slot.bytes > LONG_WALK
            && let Some(channel) = self.channels.get(channel)
            && channel.is_full(request)
        {
            return Ok(Issued::Full);
        }
        let need = match request {
            Request::Read { .. } => Need::DeviceWrites,
            _ => Need::DeviceReads,
        };
        self.walk(sqe, slot.bytes, need)?;
        self.add(index, slot, channel, request)
    }

    /// Hands the one request of a command to a channel.
    #[inline]
    fn add(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        channel: ChannelId,
        request: &Request<'_>,
    ) -> Result<Issued, Status> {
        // A namespace whose channel is not there is being taken away.
        let Some(channel) = self.channels.get_mut(channel) else {
            return Err(Status::NAMESPACE_NOT_READY);
        };
        if channel.copies() {
            let bytes = self.segments.iter().map(|s| u64::from(s.len())).sum();
            self.copied += weighed(channel, bytes);
        }
        let memory = (&self.segments[..], self.view);
        let begun = watch::begin::<G>(self.clock);
        let asked = ask(self.key, index, slot, channel, request, memory);
        watch::end(begun, &*channel, &mut self.handed);
        Ok(match asked {
            Asked::Done(status) => Issued::Ended(status),
            Asked::Pending => Issued::Pending,
            Asked::Full => Issued::Full,
        })
    }

    /// Hands a request to a channel, with other memory than the host's.
    pub(super) fn add_with(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        channel: ChannelId,
        request: &Request<'_>,
        memory: (&[Segment<'_>], &Arc<DmaView>),
    ) -> Result<Asked, Status> {
        let Some(channel) = self.channels.get_mut(channel) else {
            return Err(Status::NAMESPACE_NOT_READY);
        };
        Ok(ask(self.key, index, slot, channel, request, memory))
    }

    /// Copies a list of entries that is a command's data.
    pub(super) fn read_list(&mut self, sqe: &Sqe, mut bytes: &mut [u8]) -> Result<(), Status> {
        self.walk(sqe, bytes.len() as u32, Need::DeviceReads)?;
        for segment in &self.segments {
            let (head, tail) = bytes.split_at_mut(segment.len() as usize);
            segment.read_into(0, head);
            bytes = tail;
        }
        self.segments.clear();
        Ok(())
    }

    /// Dataset Management: reads the ranges as any command's data, once for each try, and checks
    /// every one before any is deallocated.
    #[inline(never)]
    fn deallocate(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        sqe: &Sqe,
        namespace: &Namespace,
        count: u16,
    ) -> Result<Issued, Status> {
        let mut wanted = DeallocateRanges::new(count);
        self.read_list(sqe, wanted.as_mut_bytes())?;
        self.range = watch::first_of::<G>(wanted.entries());
        self.ranges.clear();
        for DsmRange { slba, nlb, .. } in wanted.entries() {
            let (slba, count) = (*slba, *nlb);
            let bytes = range(namespace, Blocks { slba, count })?;
            if bytes.len > 0 {
                self.ranges.push(bytes);
            }
        }
        // It is a hint: a medium that cannot give space back has nothing to do (NVM 1.1, 3.3.3).
        if self.ranges.is_empty() || !namespace.traits.deallocate {
            return Ok(Issued::Ended(Status::SUCCESSFUL_COMPLETION));
        }
        let ranges = std::mem::take(self.ranges);
        let request = Request::Deallocate { ranges: &ranges };
        let issued = self.add(index, slot, namespace.channel, &request);
        *self.ranges = ranges;
        issued
    }

    /// Flush of all namespaces: every medium is flushed once, and the first error stands. Continues
    /// after the namespace in `slot.flushed`. A namespace whose path is closed refuses it, so that
    /// its host looks for another path; one with another restriction is flushed.
    #[inline(never)]
    fn flush_all(&mut self, index: u16, slot: &mut SlotState) -> Issued {
        self.segments.clear();
        if let Some(refusal) = self.namespaces.iter().find_map(Namespace::path_refusal) {
            return Issued::Ended(refusal);
        }
        for (number, namespace) in self.namespaces.iter().enumerate() {
            let earlier = self.namespaces.iter().take(number);
            let flushed = |other: &Namespace| other.channel == namespace.channel;
            if namespace.nsid <= slot.flushed || earlier.into_iter().any(flushed) {
                continue;
            }
            if !self.add_part(index, slot, namespace.channel, &Request::Flush) {
                return Issued::Full;
            }
            slot.flushed = namespace.nsid;
        }
        parts_issued(slot)
    }

    /// Read or Compare with Force Unit Access on a medium with a volatile cache: data that is
    /// returned or compared must be on non-volatile media when the command completes (NVM 1.1,
    /// 3.3.4), so the medium is flushed, too.
    #[inline(never)]
    fn committed(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        sqe: &Sqe,
        namespace: &Namespace,
        request: &Request<'_>,
    ) -> Issued {
        if slot.flushed != namespace.nsid {
            self.segments.clear();
            if !self.add_part(index, slot, namespace.channel, &Request::Flush) {
                return Issued::Full;
            }
            slot.flushed = namespace.nsid;
        }
        let need = match request {
            Request::Compare { .. } => Need::DeviceReads,
            _ => Need::DeviceWrites,
        };
        match self.walk(sqe, slot.bytes, need) {
            Ok(()) if !self.add_part(index, slot, namespace.channel, request) => Issued::Full,
            Ok(()) => parts_issued(slot),
            Err(status) => {
                slot.note(status);
                parts_issued(slot)
            }
        }
    }

    /// Adds one request of several of a command. False where the channel was full.
    fn add_part(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        channel: ChannelId,
        request: &Request<'_>,
    ) -> bool {
        match self.add(index, slot, channel, request) {
            Ok(Issued::Full) => return false,
            Ok(Issued::Pending | Issued::Fused | Issued::InSteps | Issued::Forwarded) => {}
            Ok(Issued::Ended(status)) | Err(status) => slot.note(status),
        }
        true
    }
}

/// Finds a command's data in the host's memory, by PRPs or by an SGL.
#[inline]
pub(super) fn walk<'v>(
    view: &'v DmaView,
    hint: &mut Hint,
    sqe: &Sqe,
    len: u32,
    need: Need,
    out: &mut Segments<'v>,
) -> Result<(), Status> {
    if sqe.flags.psdt() != Psdt::PRP {
        return sgl::walk(view, hint, sqe.sgl1(), len, need, out);
    }
    prp::walk(view, hint, sqe.prp1, sqe.prp2, len, need, out)
}

/// Whether the namespace permits the command.
#[inline]
pub(super) fn permit(namespace: &Namespace, command: &Command) -> Result<(), Status> {
    match &namespace.restrictions {
        Some(restrictions) => restrictions::check(restrictions, command).map(|_| ()),
        None => Ok(()),
    }
}

/// Every request of the command in `slot` was added: it ends when the last of them has.
fn parts_issued(slot: &SlotState) -> Issued {
    if slot.outstanding > 0 {
        Issued::Pending
    } else {
        Issued::Ended(slot.error)
    }
}

/// Adds a request of the command in `slot`, which has the number `index`, with the memory that it
/// moves.
#[inline]
fn ask<C: Channel>(
    key: OwnerKey,
    index: u16,
    slot: &mut SlotState,
    channel: &mut C,
    request: &Request<'_>,
    (segments, view): (&[Segment<'_>], &Arc<DmaView>),
) -> Asked {
    let ticket = Ticket::issue(key, index, slot.generation());
    match channel.add(ticket, request, segments, view) {
        Added::Done(ticket, Outcome { cause, .. }) => {
            debug_assert_eq!(ticket.owner(), key);
            let _ = ticket.fulfil();
            Asked::Done(status::of(cause))
        }
        Added::Pending => {
            slot.outstanding += 1;
            Asked::Pending
        }
        Added::Full(ticket) => {
            let _ = ticket.fulfil();
            Asked::Full
        }
    }
}

/// The bytes of `blocks` in the medium.
#[inline]
pub(super) fn range(namespace: &Namespace, blocks: Blocks) -> Result<ByteRange, Status> {
    namespace
        .bytes(blocks.slba, u64::from(blocks.count))
        .ok_or(Status::LBA_OUT_OF_RANGE)
}
