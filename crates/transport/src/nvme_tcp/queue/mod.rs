//! One queue of an association: its connection, its commands and its private rings.
//!
//! ```text
//! capsule --judged--> data in the capsule, or R2T, or none --all there--> ready --ring--> stored
//!    \--refused----> answered <--------------------- completion, data to the host ------------/
//! ```
//!
//! A plain command, as most are, is stored as soon as its data are there. The doorbell is rung when
//! all that came has been decoded.
//!
//! Halves of a fused pair are paired in the order of their capsules, and stored side by side when
//! the data of both are there.

mod ends;
mod messages;

use std::collections::VecDeque;
use std::sync::Arc;

use controller::lane::Lane;
use memory::{Buffer, HostMemory};
use nvme_spec::cqe::StatusField;
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::sqe::Fuse;
use nvme_spec::{Cqe, Sqe, Status};
use nvme_tcp::{Event, Fault, Piece, Transfer};
use port::namespace::NamespaceTable;
use port::time::Time;

use crate::host::{Bells, PAGE, Rings};
use crate::nvme_tcp::authentication::Exchange;
use crate::nvme_tcp::commands::{Commands, Place, State};
use crate::nvme_tcp::connect::{Connect, Refusal};
use crate::nvme_tcp::connection::{Connection, End, Pdu};
use crate::nvme_tcp::counters::Counts;
use crate::nvme_tcp::judge::{Limits, fills, judge};
use crate::nvme_tcp::newcomer::{Farewell, refuse};
use crate::nvme_tcp::proof::Proof;
use crate::nvme_tcp::remains::Remains;
use crate::nvme_tcp::sizes::{in_capsule, most, ring_entries, small_len, stride};
use crate::nvme_tcp::slots::{LargeSlots, Slots};
use crate::nvme_tcp::{Success, TargetConfig, entry};

/// Receives of a queue in one poll.
const RECEIVES: usize = 8;
/// Answers that wait to be sent, above which no more completions are taken.
const SENDING: usize = 128;
/// Bytes of data in one drain, above which no more are taken: their digests are computed here.
const DRAINED: u32 = 1 << 20;

/// Identifier of our own commands in an admin queue, which hosts do not use (Base 2.1, 4.2.1).
pub(in crate::nvme_tcp) const OWN_CID: u16 = 0xffff;
/// State with which a queue is read.
pub(in crate::nvme_tcp) struct Shared<'a> {
    pub(in crate::nvme_tcp) namespaces: &'a NamespaceTable,
    pub(in crate::nvme_tcp) config: &'a TargetConfig,
    /// The controller serves commands.
    pub(in crate::nvme_tcp) ready: bool,
    /// The queue's lane, where both are on another reactor than the controller.
    pub(in crate::nvme_tcp) lane: Option<&'a Lane>,
    pub(in crate::nvme_tcp) now: Time,
}

/// Where the data that come now go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sink {
    Nowhere,
    Memory(usize),
}

/// See the module.
#[derive(Debug)]
pub(in crate::nvme_tcp) struct Queue {
    qid: u16,
    entries: u16,
    pub(in crate::nvme_tcp) connection: Connection,
    /// When something came or was sent last: more is likely, as a host answers what it gets.
    pub(in crate::nvme_tcp) active: Time,
    memory: HostMemory,
    commands: Commands,
    pub(in crate::nvme_tcp) rings: Rings,
    slots: Slots,
    pub(in crate::nvme_tcp) counts: Arc<Counts>,
    /// Small slots, and of an admin queue a page for a PRP list behind each.
    region: Buffer,
    small: u32,
    stride: usize,
    /// SQ flow control: the head that answers carry; `None` where the host has disabled it.
    head: Option<u16>,
    success: bool,
    sink: Sink,
    /// The command whose data come now.
    receiving: Option<u16>,
    /// Commands to be stored, in order.
    ready: VecDeque<u16>,
    /// The first half of a pair whose second one has not come.
    first: Option<u16>,
    /// Fabrics commands to be executed.
    pub(in crate::nvme_tcp) fabrics: VecDeque<u16>,
    /// R2Ts that are not answered.
    awaited: u32,
    /// Entries that are out of use until the association ends.
    lost: u16,
    /// The answer of Connect.
    cid: u16,
    /// Nothing else is served before its host has proved what it has to.
    proof: Proof,
    /// The Authentication Receive command that waits is beside the exchange.
    exchange: Option<(Exchange, Option<u16>)>,
}

impl Queue {
    /// The queue of a Connect command that was accepted. `None`: there is no memory.
    pub(in crate::nvme_tcp) fn new(
        mut connection: Connection,
        connect: &Connect,
        exchange: Option<Exchange>,
        memory: &HostMemory,
        large: &Arc<LargeSlots>,
        config: &TargetConfig,
    ) -> Option<Self> {
        let Connect { qid, entries, .. } = *connect;
        let most = most(qid, config);
        let ring = |entries| ring_entries(qid, entries, config);
        let rings = Rings::new(qid, ring(entries), ring(most), memory)?;
        let (small, stride) = (small_len(qid, config), stride(qid, config));
        let region = memory.reserve(usize::from(most) * stride, PAGE)?;
        let in_capsule = in_capsule(qid, exchange.is_some(), config);
        connection.widen(memory, in_capsule, entries.into());
        let no_flow = connect.attributes.disable_sq_flow_control();
        Some(Self {
            qid,
            entries,
            connection,
            active: Time(0),
            memory: memory.clone(),
            commands: Commands::new(entries),
            rings,
            slots: Slots::new(large.clone(), qid, entries.into()),
            counts: Arc::default(),
            region,
            small,
            stride,
            head: (!no_flow).then_some(0),
            success: no_flow || config.success == Success::Always,
            sink: Sink::Nowhere,
            receiving: None,
            ready: VecDeque::with_capacity(entries.into()),
            first: None,
            fabrics: VecDeque::with_capacity(entries.into()),
            awaited: 0,
            lost: 0,
            cid: connect.cid,
            proof: Proof::of(exchange.is_some(), connect.generated),
            exchange: exchange.map(|exchange| (exchange, None)),
        })
    }

    /// Its identifier.
    pub(in crate::nvme_tcp) fn qid(&self) -> u16 {
        self.qid
    }

    /// Whether it has no command.
    pub(in crate::nvme_tcp) fn is_idle(&self) -> bool {
        self.commands.is_empty()
    }

    /// Refuses Connect, which it was made for.
    pub(in crate::nvme_tcp) fn refuse_connect(
        self,
        refusal: Refusal,
        now: Time,
    ) -> (Farewell, Remains) {
        let (cid, qid) = (self.cid, self.qid);
        let (connection, remains) = self.part();
        (refuse(connection, cid, qid, refusal, now), remains)
    }

    /// Takes what the socket has. True where there was something.
    pub(in crate::nvme_tcp) fn read(&mut self, shared: &Shared<'_>) -> Result<bool, End> {
        let worked = self.receive(shared);
        self.counts.note(&self.connection);
        if matches!(worked, Ok(true)) {
            self.active = shared.now;
        }
        worked
    }

    fn receive(&mut self, shared: &Shared<'_>) -> Result<bool, End> {
        let mut worked = false;
        for _ in 0..RECEIVES {
            if let Sink::Memory(at) = self.sink
                && let Some(received) = self.connection.receive_direct(at)
            {
                let len = received?;
                if len == 0 {
                    break;
                }
                self.sink = Sink::Memory(at + len as usize);
                worked = true;
                // The end of the data is an event without bytes.
                self.decode(&mut &[][..], shared)?;
                continue;
            }
            if self.connection.input.bytes().is_empty() && !self.connection.receive()? {
                break;
            }
            worked = true;
            // Its host may know of a change that has not come here yet: the bytes wait for that.
            if shared.lane.is_some_and(Lane::is_behind) {
                break;
            }
            let mut input = std::mem::take(&mut self.connection.input);
            let mut bytes = input.bytes();
            let decoded = self.decode(&mut bytes, shared);
            let left = bytes.len();
            input.keep(left);
            self.connection.input = input;
            decoded?;
            if self.connection.is_drained() {
                break;
            }
        }
        Ok(worked)
    }

    fn decode(&mut self, bytes: &mut &[u8], shared: &Shared<'_>) -> Result<(), End> {
        while let Some(event) = self.connection.decoder.step(bytes)? {
            match event {
                Event::Capsule { sqe, data } => self.capsule(&sqe, data, shared)?,
                Event::H2cData(header) => {
                    let fault = Fault::TransferTag(header.ttag);
                    let (index, command) = self.commands.of_ttag(header.ttag).ok_or(fault)?;
                    let State::Data(transfer) = &mut command.state else {
                        return Err(fault.into());
                    };
                    let range = transfer.take_h2c(&header)?;
                    let at = self.at(index) + range.start as usize;
                    self.sink = Sink::Memory(at);
                    self.receiving = Some(index);
                }
                Event::Data(piece) => {
                    if let Sink::Memory(at) = &mut self.sink {
                        self.connection.write(*at, piece);
                        *at += piece.len();
                    }
                }
                Event::DataEnd { intact } => self.data_end(intact, shared),
                Event::Terminated { fes, fei } => return Err(End::Terminated { fes, fei }),
                Event::IcReq(_)
                | Event::IcResp(_)
                | Event::Response(_)
                | Event::C2hData(_)
                | Event::R2t(_) => unreachable!("a decoder that has agreed takes none of them"),
            }
        }
        Ok(())
    }

    /// A command; `in_capsule` is the number of bytes of data in its capsule.
    fn capsule(&mut self, sqe: &Sqe, in_capsule: u32, shared: &Shared<'_>) -> Result<(), End> {
        self.counts.commands.add(1);
        let index = self.commands.take(sqe).ok_or(match self.lost {
            0 => End::QueueFull,
            _ => End::MediumHangs,
        })?;
        let is_own = self.qid == 0 && sqe.cid == OWN_CID;
        let judged = if self.commands.is_known(index) && !is_own {
            if in_capsule == 0 && self.store_plain(index, sqe, 0, shared) {
                return Ok(());
            }
            judge(sqe, in_capsule, &self.limits(shared))
        } else {
            Err(Status::COMMAND_ID_CONFLICT)
        };
        if self.qid > 0 {
            self.pair(index, sqe.flags.fuse());
        }
        let command = self.commands.get_mut(index);
        match judged {
            Err(status) => command.status = status,
            Ok(data) => command.data = data,
        }
        let len = command.data.len;
        if in_capsule > 0 {
            command.state = State::Capsule;
            self.receiving = Some(index);
            self.sink = Sink::Nowhere;
            if judged.is_ok() {
                command.place = Place::Small;
                self.sink = Sink::Memory(self.small_at(index));
            }
        } else if judged.is_err() || len == 0 {
            self.data_there(index);
        } else if len <= self.small {
            self.placed(index, Place::Small, shared.now);
        } else if let Some(slot) = self.slots.take() {
            self.placed(index, Place::Large(slot), shared.now);
        } else {
            self.commands.get_mut(index).state = State::Slot;
            self.counts.waited.add(1);
            self.slots.wait(index);
        }
        Ok(())
    }

    /// Stores a command whose data are there, if the controller may have it as it came and nothing
    /// waits before it: whether it was one.
    #[inline(always)]
    fn store_plain(&mut self, index: u16, sqe: &Sqe, in_capsule: u32, shared: &Shared<'_>) -> bool {
        if self.first.is_some() || !self.ready.is_empty() || self.rings.room() == 0 {
            return false;
        }
        let (at, limits) = (self.small_at(index), self.limits(shared));
        let Some((data, entry)) = entry::plain(sqe, in_capsule, at, &limits) else {
            return false;
        };
        self.commands.store_small(index, data);
        self.rings.store(&entry);
        true
    }

    #[inline]
    fn limits<'a>(&self, shared: &Shared<'a>) -> Limits<'a> {
        Limits {
            max_transfer: shared.config.max_transfer,
            small: self.small,
            namespaces: (self.qid > 0).then_some(shared.namespaces),
            ready: shared.ready,
            gate: self.proof.gate(),
        }
    }

    /// Pairs the halves of fused commands. A first half that another command follows has none.
    fn pair(&mut self, index: u16, fuse: Fuse) {
        let first = self.first.take();
        match (first, fuse) {
            (Some(first), Fuse::SECOND) => {
                self.commands.get_mut(first).partner = Some(index);
                self.commands.get_mut(index).partner = Some(first);
                return;
            }
            (Some(first), _) => self.abort_half(first, Status::ABORTED_MISSING_FUSED),
            (None, _) => {}
        }
        if fuse == Fuse::FIRST {
            self.first = Some(index);
        }
    }

    /// A half whose pair will not be executed; it ends when its data are there.
    fn abort_half(&mut self, index: u16, status: Status) {
        let command = self.commands.get_mut(index);
        command.partner = None;
        if command.status.is_success() {
            command.status = status;
        }
        if command.state == State::Half {
            self.refuse(index);
        }
    }

    /// A command that reads or writes has a place for its data.
    fn placed(&mut self, index: u16, place: Place, now: Time) {
        let ttag = self.commands.ttag(index);
        let command = self.commands.get_mut(index);
        command.place = place;
        if command.data.to_host || !command.status.is_success() {
            return self.data_there(index);
        }
        let piece = Piece {
            cccid: command.sqe.cid,
            ttag,
            offset: 0,
            len: command.data.len,
            last: true,
        };
        command.state = State::Data(Transfer::new(&piece));
        command.since = now;
        self.awaited += 1;
        let head = self.connection.encoder().r2t(&piece);
        self.connection.push(Pdu::bare(head, None));
    }

    /// Gives large slots to its commands that wait for them.
    pub(in crate::nvme_tcp) fn grant(&mut self, now: Time) {
        while let Some((index, slot)) = self.slots.grant() {
            debug_assert_eq!(self.commands.get(index).state, State::Slot);
            self.placed(index, Place::Large(slot), now);
        }
    }

    /// Whether a command waits for a large slot, which other queues may have: it is to be looked at
    /// from time to time.
    pub(in crate::nvme_tcp) fn waits_for_slot(&self) -> bool {
        self.slots.is_waited_for()
    }

    /// Data have ended.
    fn data_end(&mut self, intact: bool, shared: &Shared<'_>) {
        self.sink = Sink::Nowhere;
        let Some(index) = self.receiving.take() else {
            return;
        };
        let command = self.commands.get_mut(index);
        if !intact {
            self.counts.digest_errors.add(1);
            if command.status.is_success() {
                command.status = Status::TRANSIENT_TRANSPORT_ERROR;
            }
        }
        match command.state {
            State::Data(transfer) if !transfer.is_complete() => return,
            State::Data(_) if command.forgotten => {
                if let Place::Large(slot) = self.commands.release(index) {
                    self.slots.give_back(slot);
                }
                return;
            }
            State::Data(_) => self.awaited -= 1,
            _ => {
                let (sqe, in_capsule) = (command.sqe, command.data.len);
                if command.status.is_success() && self.store_plain(index, &sqe, in_capsule, shared)
                {
                    return;
                }
            }
        }
        self.data_there(index);
    }

    /// All data of a command that are to come are there.
    fn data_there(&mut self, index: u16) {
        let command = self.commands.get_mut(index);
        if !command.status.is_success() {
            return self.refuse(index);
        }
        if command.sqe.admin_opcode() == AdminOpcode::FABRICS {
            command.state = State::Fabrics;
            self.fabrics.push_back(index);
            return;
        }
        let waits = self.first == Some(index);
        let Some(partner) = command.partner.filter(|_| !waits) else {
            command.state = if waits { State::Half } else { State::Ready };
            if !waits {
                self.ready.push_back(index);
            }
            return;
        };
        command.state = State::Half;
        let is_first = command.sqe.flags.fuse() == Fuse::FIRST;
        if self.commands.get(partner).state == State::Half {
            let (first, second) = if is_first {
                (index, partner)
            } else {
                (partner, index)
            };
            for half in [first, second] {
                self.commands.get_mut(half).state = State::Ready;
                self.ready.push_back(half);
            }
        }
    }

    /// Ends a command that the controller never had.
    fn refuse(&mut self, index: u16) {
        self.counts.refused.add(1);
        if self.first == Some(index) {
            self.first = None;
        }
        let command = self.commands.get_mut(index);
        let (status, partner) = (command.status, command.partner.take());
        // As the controller says it: whether the host is to send the command again.
        self.answer_as(index, port::status::field(status), [0, 0]);
        if let Some(partner) = partner {
            self.abort_half(partner, Status::ABORTED_FAILED_FUSED);
        }
    }

    /// Answers a command that the controller never had.
    pub(super) fn answer_as(&mut self, index: u16, status: StatusField, [dw0, dw1]: [u32; 2]) {
        let cid = self.commands.get(index).sqe.cid;
        self.commands.answer(index);
        let cqe = self.cqe(cid, dw0, dw1, status);
        self.connection.push_response(&cqe, Some(index));
    }

    /// A completion as the host sees it. Each is one entry of its submission queue that is free
    /// again.
    fn cqe(&mut self, cid: u16, dw0: u32, dw1: u32, status: StatusField) -> Cqe {
        Cqe {
            dw0,
            dw1,
            sq_head: self.next_head(),
            sq_id: self.qid,
            cid,
            status: status.with_phase(false),
        }
    }

    fn next_head(&mut self) -> u16 {
        let Some(head) = &mut self.head else {
            return 0;
        };
        *head = if *head + 1 == self.entries {
            0
        } else {
            *head + 1
        };
        *head
    }

    /// Where the data of a command lie in the private memory.
    fn at(&self, index: u16) -> usize {
        match self.commands.get(index).place {
            Place::Large(slot) => self.slots.at(slot),
            Place::None | Place::Small => self.small_at(index),
        }
    }

    fn small_at(&self, index: u16) -> usize {
        self.region.offset() + usize::from(index) * self.stride
    }

    /// Stores commands that are ready, and rings the doorbells. True where there was something.
    pub(in crate::nvme_tcp) fn submit(&mut self, bells: &mut impl Bells) -> bool {
        while let Some(&index) = self.ready.front() {
            // One doorbell shows both halves of a pair, as they become visible together.
            let command = self.commands.get(index);
            let is_first = command.partner.is_some() && command.sqe.flags.fuse() == Fuse::FIRST;
            if self.rings.room() < 1 + u32::from(is_first) {
                break;
            }
            self.ready.pop_front();
            let sqe = self.entry(index, bells.namespaces());
            self.rings.store(&sqe);
            self.commands.get_mut(index).state = State::Stored;
        }
        self.rings.ring(bells)
    }

    /// The entry of the private submission queue: the host's, with its data in private memory.
    fn entry(&self, index: u16, namespaces: &NamespaceTable) -> Sqe {
        let command = self.commands.get(index);
        let at = self.at(index);
        let filled = self.qid > 0 && fills(&command.sqe, command.data.len, namespaces);
        if command.data.to_host && !filled {
            // A command may write less than its host asked for, such as Retrieve, which has the
            // opcode of Read. The rest must not be another command's.
            self.memory.clear(at, command.data.len as usize);
        }
        if self.qid == 0 {
            let list = self.small_at(index) + self.small as usize;
            entry::admin(command, at, list, &self.memory)
        } else {
            entry::io(command, at, namespaces)
        }
    }

    /// Stores a command of the association's own.
    pub(in crate::nvme_tcp) fn store_own(&mut self, mut sqe: Sqe) {
        sqe.cid = OWN_CID;
        self.rings.store(&sqe);
    }

    /// Takes completions, while their answers find room. `own` gets that of the association's own
    /// command. True where there was something.
    pub(in crate::nvme_tcp) fn drain(&mut self, own: &mut Option<Cqe>) -> bool {
        let mut worked = false;
        let mut bytes = 0;
        while !self.connection.is_blocked()
            && self.connection.waiting() < SENDING
            && bytes < DRAINED
        {
            let Some(cqe) = self.rings.take() else {
                break;
            };
            worked = true;
            if self.qid == 0 && cqe.cid == OWN_CID {
                *own = Some(cqe);
            } else if let Some(index) = self.commands.completed(cqe.cid) {
                // Each at most a command's largest transfer.
                bytes += self.complete(index, &cqe);
            }
        }
        worked
    }

    /// Whether a poll has something to do that no socket shows. Rings of a controller that is not
    /// `enabled` have old entries.
    pub(in crate::nvme_tcp) fn has_work(&self, enabled: bool) -> bool {
        let takes = enabled && self.rings.has_completion();
        !self.connection.is_blocked() && (takes || self.connection.waiting() > 0)
            || !self.fabrics.is_empty()
    }

    /// Answers a command that has completed. Bytes of data that go to the host.
    fn complete(&mut self, index: u16, cqe: &Cqe) -> u32 {
        let command = self.commands.get(index);
        let (cid, data) = (command.sqe.cid, command.data);
        let is_lost = self.commands.note_end(index, cqe.status.status());
        let good = cqe.status.status().is_success();
        let sends = good && data.to_host && data.len > 0;
        let stands = sends && self.success && cqe.dw0 == 0 && cqe.dw1 == 0;
        // One PDU: no host limits its length, and its digest fails one command in any case.
        let piece = Piece {
            cccid: cid,
            ttag: 0,
            offset: 0,
            len: data.len,
            last: true,
        };
        if stands {
            self.next_head();
            let at = self.at(index);
            self.connection.push_data(&piece, true, at, Some(index));
            return data.len;
        }
        let frees = if is_lost {
            self.lost += 1;
            self.counts.lost.add(1);
            if let Place::Large(_) = self.commands.lose(index) {
                self.slots.lose();
            }
            None
        } else {
            Some(index)
        };
        let cqe = self.cqe(cid, cqe.dw0, cqe.dw1, cqe.status);
        if !sends {
            self.connection.push_response(&cqe, frees);
            return 0;
        }
        let at = self.at(index);
        self.connection.push_data_and(&piece, at, &cqe, frees);
        data.len
    }

    /// Sends what waits. True where something has gone.
    pub(in crate::nvme_tcp) fn send(&mut self, now: Time) -> Result<bool, End> {
        let Self {
            connection,
            commands,
            slots,
            ..
        } = self;
        let sent = connection.send(now, |index| {
            if let Place::Large(slot) = commands.release(index) {
                slots.give_back(slot);
            }
        })?;
        if sent {
            self.counts.note(&self.connection);
            self.active = now;
        }
        Ok(sent)
    }
}
