//! Zones over a medium of bytes (Zoned Namespace command set, ZNS 1.1).
//!
//! [`zones`] has the state machine; [`ZonedChannel`] checks requests against it, and passes
//! accepted reads and writes to the medium below, which can be of any kind. After a write pointer
//! the medium below reads as zero: a reset zeroes the written data before it ends.
//!
//! The zones have one owner, the channel of the one reactor that serves the medium, and stay with
//! the [`ZonedMedium`] while there is none: they outlive their channels. On a file they also
//! persist: [`keeper`] and [`durable`].
//!
//! For the timing layer, [`ZonedChannel::happened`] returns after each `add` the effects on bytes
//! and zones, as operations of the timing models.
//!
//! Not included: checks that the controller has done, of lengths and of the namespace's bounds;
//! variable capacities and excursions.

mod durable;
mod keeper;
mod look;
mod loss;
mod manage;
mod medium;
mod open;
mod outliving;
mod place;
mod report;
mod spec;
mod table;
mod zone;
mod zones;

use std::sync::Arc;

use memory::{DmaView, Segment};
use model::{Op, ZoneOp};
use nvme_spec::Status;
use nvme_spec::zoned::{DESCRIPTOR_EXTENSION_UNIT, ZoneAppendCdw12, ZonedOpcode};
use port::set::Zoned;
use port::ticket::{Ticket, TicketId};
use port::{Added, ByteRange, Cause, Channel as Port, Done, Outcome, Request};

use self::durable::Waiting;
use self::keeper::Keeper;
pub use self::look::{ZoneLook, ZonesLook, ZonesState};
pub use self::loss::{ZoneLoss, ZoneLossError};
pub(crate) use self::medium::ZonedMedium;
use self::place::find_append;
use self::report::Reported;
pub use self::spec::ZoneSpec;
use self::table::Extensions;
use self::zones::{Write, Zone, Zones};

/// Most ranges of one Deallocate.
const RANGES_MAX: usize = 256;

/// The zones of a medium with their extensions and log.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) zones: Zones,
    /// Descriptor extensions, by zone; empty if there are none.
    extensions: Vec<u8>,
    extension_bytes: usize,
    /// State of the log, if they have one.
    keeper: Option<Keeper>,
    /// The extensions, where another process finds them.
    kept_extensions: Option<Extensions>,
    /// The zones as the process before this one left them; empty if there was none.
    found: Vec<Zone>,
}

impl State {
    fn new(zones: Zones, set: &Zoned) -> Self {
        let extension_bytes = usize::from(set.extension_units) * DESCRIPTOR_EXTENSION_UNIT;
        State {
            extensions: vec![0; zones.geometry().zones as usize * extension_bytes],
            zones,
            extension_bytes,
            keeper: None,
            kept_extensions: None,
            found: Vec::new(),
        }
    }
}

/// A request that the medium below has accepted and not completed.
#[derive(Clone, Copy, Debug)]
struct Out {
    /// The ticket's.
    id: Option<TicketId>,
    what: Taken,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// A write to a zone, and the host's result at its end.
    Write {
        zone: u32,
        /// Position to which it moves the zone's write pointer, from the zone's start.
        moves_to: u64,
        result: u64,
        /// Whether it must still be made durable.
        fua: bool,
        /// Its start, from the zone's start.
        from: u64,
    },
    /// A write found no space. The written part is zeroed; then the write ends with this outcome.
    Undo { zone: u32, outcome: Outcome },
    /// A completed write is being made durable; then it ends with this result.
    Synced { result: u64 },
    /// These zones, including the last one, are being zeroed.
    Erase { first: u32, last: u32 },
}

/// Whether a write moves its zone's write pointer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Times {
    /// It does.
    First,
    /// It did, in a process that died: its bytes are written again.
    Again,
}

/// An accepted write, which moves its zone's write pointer once.
#[derive(Clone, Copy, Debug)]
struct Once(Write, Times);

impl Taken {
    fn meets(self, zone: u32) -> bool {
        match self {
            Taken::Write { zone: its, .. } | Taken::Undo { zone: its, .. } => its == zone,
            Taken::Erase { first, last } => (first..=last).contains(&zone),
            Taken::Synced { .. } => false,
        }
    }

    /// Whether it is a host's write to a zone, in flight.
    fn is_write_to(self, zone: u32) -> bool {
        !self.is_erase() && self.meets(zone)
    }

    fn is_erase(self) -> bool {
        matches!(self, Taken::Erase { .. })
    }
}

impl Out {
    fn is_for(&self, ticket: &Ticket) -> bool {
        self.id == Some(ticket.id())
    }
}

/// Why a request did not reach the medium below.
enum Stopped {
    /// It ends with this outcome.
    Ends(Outcome),
    /// It must wait for a request in flight.
    Waits,
}

impl From<Status> for Stopped {
    fn from(status: Status) -> Self {
        Stopped::Ends(Outcome::status(status))
    }
}

/// A reactor's handle on a medium with zones.
#[derive(Debug)]
pub(crate) struct ZonedChannel<C> {
    below: C,
    home: Arc<ZonedMedium>,
    /// Present until the drop.
    state: Option<Box<State>>,
    out: Vec<Out>,
    happened: Vec<Op<'static>>,
    ranges: Vec<ByteRange>,
    /// Zones selected by a command.
    selected: Vec<u32>,
    /// Zones in their state before the current reset.
    before: Vec<(u32, Zone)>,
    /// Whether writes have found no space: write pointers move back once no write to their zones is
    /// in flight.
    rewinds: bool,
    waiting: Waiting,
}

impl<C> ZonedChannel<C> {
    fn new(below: C, home: Arc<ZonedMedium>, state: Box<State>, depth: u16) -> Self {
        let zones = state.zones.geometry().zones as usize;
        ZonedChannel {
            below,
            home,
            state: Some(state),
            out: Vec::with_capacity(depth.into()),
            // A command may change every zone, and close one for each that it opens.
            happened: Vec::with_capacity(2 * zones + 1),
            ranges: Vec::with_capacity(RANGES_MAX),
            selected: Vec::with_capacity(zones),
            before: Vec::with_capacity(zones),
            rewinds: false,
            waiting: Waiting::new(depth),
        }
    }

    /// The channel of the medium below.
    pub(crate) fn below(&self) -> &C {
        &self.below
    }

    /// The channel of the medium below.
    pub(crate) fn below_mut(&mut self) -> &mut C {
        &mut self.below
    }

    /// Effects of the last `add` that was neither rejected nor full: reads and writes at their
    /// positions in the medium, appends at their assigned positions, and changes of zones. Zones
    /// that were closed to make room come first.
    pub(crate) fn happened(&self) -> &[Op<'static>] {
        &self.happened
    }

    /// Operation that a model must have room for before a request is added, if it is not that of
    /// the request: an append goes to the write pointer. `None` for all other commands: they need
    /// no room, or fail.
    pub(crate) fn needs(&self, request: &Request<'_>) -> Option<Op<'static>> {
        let Request::Command {
            sqe,
            extent,
            lba_shift,
            fua,
        } = *request
        else {
            return None;
        };
        if ZonedOpcode(sqe.opcode) != ZonedOpcode::ZONE_APPEND {
            return None;
        }
        let state = self.state.as_ref()?;
        let (write, len) = find_append(&state.zones, sqe, extent, lba_shift).ok()?;
        let fua = fua || ZoneAppendCdw12::from(sqe.cdw12).fua();
        let offset = write.offset;
        Some(Op::Write { offset, len, fua })
    }

    /// The zones.
    pub(crate) fn state_ref(&self) -> Option<&State> {
        self.state.as_deref()
    }

    fn state(&mut self) -> &mut State {
        self.state.as_mut().expect("it is there until the drop")
    }

    fn zones(&mut self) -> &mut Zones {
        &mut self.state().zones
    }

    /// Checks that no request in flight blocks a write to the zone.
    fn may_write(&self, zone: u32) -> Result<(), Stopped> {
        let erased = |out: &Out| out.what.is_erase() && out.what.meets(zone);
        if self.out.iter().any(erased) {
            Err(Stopped::Waits)
        } else {
            Ok(())
        }
    }

    /// Checks that no request in flight changes one of the zones.
    fn may_erase(&self, first: u32, last: u32) -> Result<(), Stopped> {
        let meets = |out: &Out| match out.what {
            Taken::Write { zone, .. } | Taken::Undo { zone, .. } => (first..=last).contains(&zone),
            Taken::Erase {
                first: from,
                last: to,
            } => from <= last && first <= to,
            Taken::Synced { .. } => false,
        };
        if self.out.iter().any(meets) {
            Err(Stopped::Waits)
        } else {
            Ok(())
        }
    }

    fn tell_closed(&mut self, closed: Option<u32>) {
        let closed = closed.map(|zone| Op::Zone(ZoneOp::Close { zone }));
        self.happened.extend(closed);
    }
}

fn id_of(ticket: &Option<Ticket>) -> Option<TicketId> {
    ticket.as_ref().map(Ticket::id)
}

impl<C: Port> ZonedChannel<C> {
    /// Like [`Port::add`], except for requests that end or wait before they reach the medium below.
    fn try_add(
        &mut self,
        ticket: &mut Option<Ticket>,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Result<Added, Stopped> {
        match *request {
            Request::Read { offset, len } | Request::Compare { offset, len } => {
                self.zones().check_read(offset, len.into())?;
                self.happened.push(Op::Read { offset, len });
                Ok(self.hand_on(ticket, request, segments, view))
            }
            Request::Write { offset, len, fua } => {
                let write = self.zones().check_write(offset, len.into())?;
                let once = Once(write, Times::First);
                self.write(ticket, once, (len, fua, 0), segments, view)
            }
            Request::WriteZeroes {
                offset, len, fua, ..
            } => {
                let write = self.zones().check_write(offset, len)?;
                self.may_write(write.zone)?;
                if !self.zones().is_new(&write) {
                    let once = Once(write, Times::First);
                    return Ok(self.overwrite(ticket, once, (len, fua), request, view));
                }
                let is_kept = self.is_kept();
                if fua && is_kept && self.waiting.is_full() {
                    return Err(Stopped::Waits);
                }
                // The range reads as zero already.
                self.tell_closed(write.closes);
                self.written(write, Times::First);
                self.happened.push(Op::Deallocate { offset, len });
                if let Some(keeper) = self.keeper() {
                    keeper.moved(write.zone, write.moves_to);
                }
                match ticket.take_if(|_| fua && is_kept) {
                    Some(ticket) => {
                        self.hold_write(ticket, 0);
                        Ok(Added::Pending)
                    }
                    None => Err(Stopped::Ends(Outcome::OK)),
                }
            }
            // The two blocks would be the same, and the data after the write pointer is known.
            Request::CompareAndWrite { .. } => Err(Status::INVALID_FIELD_IN_COMMAND.into()),
            // Deallocate is a hint; data stays until the zone is reset.
            Request::Deallocate { .. } => Err(Stopped::Ends(Outcome::OK)),
            Request::Flush => {
                if self.is_behind() {
                    if self.waiting.is_full() {
                        return Err(Stopped::Waits);
                    }
                    self.happened.push(Op::Flush);
                    let ticket = ticket.take().expect("it is handed on once");
                    self.hold_flush(ticket);
                    return Ok(Added::Pending);
                }
                self.happened.push(Op::Flush);
                Ok(self.hand_on(ticket, request, segments, view))
            }
            Request::Renew { extent } => self.renew(ticket, extent, view),
            Request::Command {
                sqe,
                extent,
                lba_shift,
                fua,
            } => match ZonedOpcode(sqe.opcode) {
                ZonedOpcode::ZONE_APPEND => {
                    let (write, len) = find_append(self.zones(), sqe, extent, lba_shift)?;
                    let fua = fua || ZoneAppendCdw12::from(sqe.cdw12).fua();
                    let lba = (write.offset - extent.offset) >> lba_shift;
                    let once = Once(write, Times::First);
                    self.write(ticket, once, (len, fua, lba), segments, view)
                }
                ZonedOpcode::ZONE_MANAGEMENT_SEND => {
                    self.send(ticket, (sqe, extent, lba_shift), segments, view)
                }
                ZonedOpcode::ZONE_MANAGEMENT_RECEIVE => {
                    let State {
                        zones,
                        extensions,
                        extension_bytes,
                        ..
                    } = self.state();
                    let reported = Reported {
                        zones,
                        extensions,
                        extension_bytes: *extension_bytes,
                        extent,
                        lba_shift,
                    };
                    reported.write(sqe, segments)?;
                    Err(Stopped::Ends(Outcome::OK))
                }
                _ => Err(Status::INVALID_COMMAND_OPCODE.into()),
            },
        }
    }

    /// The result of an `add` that has tried; `ticket` is still there if it was not handed on.
    #[inline]
    fn added(&mut self, ticket: Option<Ticket>, tried: Result<Added, Stopped>) -> Added {
        let stopped = match tried {
            Ok(added) => {
                if matches!(added, Added::Full(_)) {
                    self.happened.clear();
                }
                return added;
            }
            Err(stopped) => stopped,
        };
        let ticket = ticket.expect("what stops was not handed on");
        match stopped {
            Stopped::Ends(outcome) => Added::Done(ticket, outcome),
            Stopped::Waits => {
                self.happened.clear();
                Added::Full(ticket)
            }
        }
    }

    fn hand_on(
        &mut self,
        ticket: &mut Option<Ticket>,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        let ticket = ticket.take().expect("it is handed on once");
        self.below.add(ticket, request, segments, view)
    }

    /// Performs an accepted write of `len` bytes; `fua` makes it durable; the host gets the result
    /// at its end.
    fn write(
        &mut self,
        ticket: &mut Option<Ticket>,
        Once(write, times): Once,
        (len, fua, result): (u32, bool, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Result<Added, Stopped> {
        let Write { zone, offset, .. } = write;
        self.may_write(zone)?;
        let id = id_of(ticket);
        // With a log a durable write is flushed behind it.
        let fua_below = fua && !self.is_kept();
        let request = Request::Write {
            offset,
            len,
            fua: fua_below,
        };
        let added = self.hand_on(ticket, &request, segments, view);
        if matches!(added, Added::Full(_)) {
            return Ok(added);
        }
        self.tell_closed(write.closes);
        self.happened.push(Op::Write { offset, len, fua });
        self.written(write, times);
        let what = Taken::Write {
            zone,
            moves_to: write.moves_to,
            result,
            fua,
            from: write.end - u64::from(len),
        };
        Ok(self.taken(added, id, what))
    }

    /// Writes `len` zeros over data in a random write area; `fua` makes them durable.
    fn overwrite(
        &mut self,
        ticket: &mut Option<Ticket>,
        Once(write, times): Once,
        (len, fua): (u64, bool),
        request: &Request<'_>,
        view: &Arc<DmaView>,
    ) -> Added {
        let Write { zone, offset, .. } = write;
        let id = id_of(ticket);
        let added = self.hand_on(ticket, request, &[], view);
        if matches!(added, Added::Full(_)) {
            return added;
        }
        self.tell_closed(write.closes);
        self.happened.push(Op::Deallocate { offset, len });
        self.written(write, times);
        let what = Taken::Write {
            zone,
            moves_to: write.moves_to,
            result: 0,
            fua,
            from: write.end - len,
        };
        self.taken(added, id, what)
    }

    /// Updates the zone after the medium below has accepted a write.
    fn written(&mut self, write: Write, times: Times) {
        if times == Times::Again {
            return;
        }
        let zones = self.zones();
        let before = zones.get(write.zone).state;
        zones.written(write);
        let after = zones.get(write.zone).state;
        if before != after
            && let Some(keeper) = self.keeper()
        {
            keeper.touch(write.zone);
        }
    }

    /// A request that the medium below has not rejected is out, or has ended.
    fn taken(&mut self, added: Added, id: Option<TicketId>, what: Taken) -> Added {
        self.out.push(Out { id, what });
        match added {
            Added::Done(ticket, outcome) => match self.below_ended(Done { ticket, outcome }) {
                Some(Done { ticket, outcome }) => Added::Done(ticket, outcome),
                None => Added::Pending,
            },
            pending => pending,
        }
    }

    /// The host's outcome of a request that the medium below has completed.
    fn ended(&mut self, what: Taken, outcome: Outcome) -> Outcome {
        match what {
            Taken::Write { result, .. } | Taken::Synced { result }
                if outcome.cause == Outcome::OK.cause =>
            {
                Outcome { result, ..outcome }
            }
            // With a log its write pointer is moved back, see `durable`; without space, the extent
            // of the write is unknown.
            Taken::Write { .. } if outcome.cause == Cause::NoSpace => outcome,
            Taken::Undo { outcome, .. } => outcome,
            Taken::Write { zone, .. } => {
                if self.fail(zone) {
                    tracing::error!(zone, ?outcome, "a write failed: the zone is read only now");
                }
                outcome
            }
            Taken::Synced { .. } => outcome,
            Taken::Erase { .. } if outcome.cause == Cause::NoSpace => {
                self.put_back();
                outcome
            }
            Taken::Erase { first, last } if outcome.cause != Outcome::OK.cause => {
                tracing::error!(
                    first,
                    last,
                    ?outcome,
                    "a reset failed: zones are read only now"
                );
                for zone in first..=last {
                    self.fail(zone);
                }
                outcome
            }
            Taken::Erase { .. } => outcome,
        }
    }

    /// Restores the zones after a reset found no space, so that they can be reset again.
    fn put_back(&mut self) {
        let before = std::mem::take(&mut self.before);
        for (zone, was) in &before {
            self.zones().put_back(*zone, *was);
            if let Some(keeper) = self.keeper() {
                keeper.put_back(*zone, was.written);
            }
        }
        self.before = before;
        self.before.clear();
    }

    /// Marks a zone as having unknown contents. Returns false if it was marked before.
    fn fail(&mut self, zone: u32) -> bool {
        let fails = self.zones().failed(zone);
        if let Some(keeper) = self.keeper() {
            keeper.touch(zone);
        }
        fails
    }
}

impl<C> Drop for ZonedChannel<C> {
    fn drop(&mut self) {
        let erases = self.out.iter().any(|out| out.what.is_erase());
        if let Some(keeper) = self.keeper() {
            keeper.detach(erases);
        }
        self.home.give_back(self.state.take());
    }
}

impl<C: Port> Port for ZonedChannel<C> {
    // Not inlined: otherwise the commands to all media would save the registers that this needs.
    #[inline(never)]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        self.happened.clear();
        let mut ticket = Some(ticket);
        let tried = self.try_add(&mut ticket, request, segments, view);
        self.added(ticket, tried)
    }

    fn note(&self, request: &Request<'_>) -> Option<u64> {
        self.state_ref()?.note(request)
    }

    fn has_begun(&self, request: &Request<'_>, note: u64) -> bool {
        let state = self.state_ref();
        state.is_some_and(|state| state.has_begun(request, note))
    }

    #[cold]
    fn add_again(
        &mut self,
        ticket: Ticket,
        noted: (&Request<'_>, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        self.happened.clear();
        let mut ticket = Some(ticket);
        let again = self.try_again(&mut ticket, noted, segments, view);
        self.added(ticket, again)
    }

    fn submit(&mut self) {
        self.drive();
        self.below.submit();
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.is_kept() {
            return self.reap_kept(done);
        }
        let from = done.len();
        self.below.reap(done);
        if self.out.is_empty() {
            return;
        }
        for Done { ticket, outcome } in &mut done[from..] {
            if let Some(what) = self.take_out(ticket) {
                *outcome = self.ended(what, *outcome);
            }
        }
    }

    fn in_flight(&self) -> u32 {
        self.below.in_flight() + self.waiting.count()
    }

    fn is_full(&self, request: &Request<'_>) -> bool {
        self.below.is_full(request)
    }

    fn copies(&self) -> bool {
        self.below.copies()
    }

    fn expect(&self, offset: u64, len: u64) {
        self.below.expect(offset, len);
    }
}

#[cfg(test)]
mod tests;
