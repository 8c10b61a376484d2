//! A reactor's handle on a medium of any kind. Dispatches each call to the channel of that kind.

mod lent;
mod look;
mod ops;
mod survey;
mod timed;

use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use driver::bus::place::AnyBus;
use memory::{DmaView, Segment};
use model::Op;
use port::ticket::Ticket;
use port::time::Time;
use port::{Added, Channel as Port, Done, DriveReport, Request};

pub(crate) use self::lent::Timing;
pub(crate) use self::survey::{Source, Surveyor};
pub(crate) use self::timed::TimedChannel;
use crate::drive::DriveChannel;
use crate::file::{FileChannel, IoCounts};
use crate::keyvalue::KeyValueChannel;
use crate::null::NullChannel;
use crate::ram::RamChannel;
use crate::scripted::{self, ScriptedChannel};
use crate::vendor::VendorChannel;
use crate::zoned::{ZoneLoss, ZoneLossError, ZonedChannel};

/// One reactor's handle on a medium: see [`port::Channel`] for how it is used.
///
/// The handle keeps the needed parts of the medium alive. Dropping it waits up to five seconds for
/// the commands in flight, and completes none of them.
#[derive(Debug)]
pub struct Channel {
    pub(crate) kind: Kind,
    /// Answers queries for allocated blocks, if the medium knows them.
    surveyor: Option<Box<Surveyor>>,
}

/// Channel by kind of medium.
#[derive(Debug)]
pub(crate) enum Kind {
    Null(NullChannel),
    Scripted(Box<ScriptedChannel>),
    Ram(Box<RamChannel>),
    File(Box<FileChannel>),
    Drive(Box<DriveChannel<AnyBus>>),
    KeyValue(Box<KeyValueChannel>),
    Timed(Box<TimedChannel>),
    Zoned(Box<ZonedChannel<Channel>>),
    Vendor(Box<VendorChannel<Channel>>),
}

impl From<Kind> for Channel {
    fn from(kind: Kind) -> Self {
        let surveyor = None;
        Self { kind, surveyor }
    }
}

impl Channel {
    /// With answers to queries for allocated blocks.
    pub(crate) fn surveyed(kind: Kind, surveyor: Surveyor) -> Self {
        let surveyor = Some(Box::new(surveyor));
        Self { kind, surveyor }
    }

    /// The same bytes with the timing of another drive, which does not delay queries for allocated
    /// blocks.
    pub(crate) fn timed(mut self, time: impl FnOnce(Self) -> TimedChannel) -> Self {
        let surveyor = self.surveyor.take();
        let kind = Kind::Timed(Box::new(time(self)));
        Self { kind, surveyor }
    }

    /// Descriptor that a sleeping reactor waits for (level-triggered; only the channel drains it).
    /// `None` for media that complete at once.
    ///
    /// The descriptor becomes readable with a completion that comes after [`Channel::is_due`] and
    /// before the next reap. At other times it stays silent, which saves work in the kernel.
    #[must_use]
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.kind {
            Kind::Null(_) | Kind::Scripted(_) | Kind::Ram(_) => {
                self.surveyor.as_ref().map(|surveyor| surveyor.wait_fd())
            }
            Kind::KeyValue(pairs) => pairs.below().map(|file| file.wake().as_fd()),
            Kind::File(file) => Some(file.wake().as_fd()),
            Kind::Drive(drive) => Some(drive.wait_fd()),
            Kind::Timed(timed) => match &self.surveyor {
                Some(surveyor) => Some(surveyor.wait_fd()),
                None => timed.inner().wait_fd(),
            },
            Kind::Zoned(zoned) => zoned.below().wait_fd(),
            Kind::Vendor(vendor) => vendor.below().wait_fd(),
        }
    }

    /// The second check of a reactor that is about to sleep, after its last submit: arms
    /// [`Channel::wait_fd`], and returns whether a reap has work right now. Some commands end
    /// without the kernel and show only here.
    #[must_use]
    pub fn is_due(&mut self) -> bool {
        // First, as both may use one descriptor: what comes from here on signals it again.
        if let Some(surveyor) = &self.surveyor {
            surveyor.quiet();
        }
        // Called in any case, because it arms the descriptor.
        let is_due = self.is_kind_due();
        self.surveyor.as_mut().is_some_and(|it| it.is_due()) || is_due
    }

    fn is_kind_due(&mut self) -> bool {
        match &mut self.kind {
            Kind::Null(_) | Kind::Scripted(_) => false,
            Kind::KeyValue(pairs) => {
                let (due, below) = pairs.is_due();
                // Called in any case, because it arms the descriptor.
                below.is_some_and(FileChannel::is_due) || due
            }
            Kind::Ram(ram) => ram.is_due(),
            Kind::File(file) => file.is_due(),
            Kind::Drive(drive) => drive.is_due(),
            Kind::Timed(timed) => timed.is_due(),
            Kind::Zoned(zoned) => zoned.has_to_record() || zoned.below_mut().is_due(),
            Kind::Vendor(vendor) => vendor.below_mut().is_due(),
        }
    }
}

impl Channel {
    /// Effects of the last [`Port::add`] where the request does not determine them: the address of
    /// a zone append, and the new states of zones. `None` if the request determines everything.
    pub(crate) fn happened(&self) -> Option<&[Op<'static>]> {
        match &self.kind {
            Kind::Null(_) | Kind::Ram(_) | Kind::File(_) => None,
            Kind::Scripted(_) | Kind::Drive(_) | Kind::KeyValue(_) | Kind::Timed(_) => None,
            Kind::Vendor(_) => None,
            Kind::Zoned(zoned) => Some(zoned.happened()),
        }
    }
}

impl Channel {
    /// Fails a zone, as a drive with worn-out flash does. Returns the zone's first byte in the
    /// medium; the caller must notify its hosts.
    ///
    /// # Errors
    /// The zone does not exist, or has failed already.
    pub fn lose_zone(&mut self, zone: u32, to: ZoneLoss) -> Result<u64, ZoneLossError> {
        match &mut self.kind {
            Kind::Zoned(zoned) => zoned.lose(zone, to),
            Kind::Timed(timed) => timed.inner_mut().lose_zone(zone, to),
            _ => Err(ZoneLossError::NoZones),
        }
    }

    /// The drive's health report; `None` for other media.
    #[must_use]
    pub fn report(&self) -> Option<&Arc<DriveReport>> {
        match &self.kind {
            Kind::Drive(drive) => Some(drive.report()),
            Kind::Timed(timed) => timed.inner().report(),
            _ => None,
        }
    }

    /// Operation that a model must have room for before a command specific to this medium is added;
    /// `None` if it is the operation of the request itself.
    pub(crate) fn needs(&self, request: &Request<'_>) -> Option<Op<'static>> {
        match (&self.kind, request) {
            (Kind::Zoned(zoned), _) => zoned.needs(request),
            (Kind::Scripted(_), Request::Command { sqe, .. }) => scripted::op_of(sqe),
            _ => None,
        }
    }

    /// Periodic work on the reactor's thread, also without commands in flight: a file's channel
    /// takes up newly registered memory of hosts and releases memory that they have unmapped; a
    /// channel that was its medium's only one starts to coordinate with other channels. Cheap if
    /// there is nothing to do.
    #[inline]
    pub fn tend(&mut self) {
        match &mut self.kind {
            Kind::Null(_) | Kind::Scripted(_) => {}
            Kind::KeyValue(pairs) => {
                if let Some(below) = pairs.tend() {
                    below.tend();
                }
            }
            Kind::Ram(ram) => ram.tend(),
            Kind::File(file) => file.tend(),
            Kind::Drive(drive) => drive.tend(),
            Kind::Timed(timed) => timed.inner_mut().tend(),
            Kind::Zoned(zoned) => {
                zoned.tend();
                zoned.below_mut().tend();
            }
            Kind::Vendor(vendor) => vendor.below_mut().tend(),
        }
    }

    /// Sets the clock for arrival times: a command of a medium with timing arrives at the time at
    /// which a lane found its host's notification ([`Port::arrive`]). The clock has the same origin
    /// as the times of turns. No effect on other media.
    pub fn set_clock(&mut self, clock: impl Fn() -> Time + Send + 'static) {
        if let Kind::Timed(timed) = &mut self.kind {
            timed.set_clock(clock);
        }
    }

    /// Whether commands are in flight whose completions show only in [`Port::reap`] and wake no
    /// descriptor: a reactor must not sleep then.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        match &self.kind {
            Kind::Null(_) | Kind::Scripted(_) | Kind::Ram(_) => false,
            Kind::KeyValue(pairs) => pairs.below().is_some_and(FileChannel::is_polled),
            Kind::File(file) => file.is_polled(),
            Kind::Drive(drive) => drive.is_polled(),
            Kind::Timed(timed) => timed.inner().is_polled(),
            Kind::Zoned(zoned) => zoned.below().is_polled(),
            Kind::Vendor(vendor) => vendor.below().is_polled(),
        }
    }

    /// The last command of a key-value medium as a timing model sees it: one operation, or those of
    /// a compound command. `None` if the command was rejected before any access, and for other
    /// media.
    #[must_use]
    pub fn last_op(&self) -> Option<model::Op<'_>> {
        match &self.kind {
            Kind::KeyValue(channel) => channel.last_op(),
            Kind::Scripted(channel) => channel.last_op(),
            Kind::Timed(timed) => timed.inner().last_op(),
            Kind::Null(_) | Kind::Ram(_) | Kind::File(_) | Kind::Zoned(_) | Kind::Drive(_) => None,
            Kind::Vendor(_) => None,
        }
    }

    /// Commands by use of registered host memory. All 0 if registration is off.
    #[must_use]
    pub fn io_counts(&self) -> IoCounts {
        match &self.kind {
            Kind::Null(_)
            | Kind::Scripted(_)
            | Kind::Drive(_)
            | Kind::Ram(_)
            | Kind::KeyValue(_) => IoCounts::default(),
            Kind::File(file) => file.io_counts(),
            Kind::Timed(timed) => timed.inner().io_counts(),
            Kind::Zoned(zoned) => zoned.below().io_counts(),
            Kind::Vendor(vendor) => vendor.below().io_counts(),
        }
    }
}

impl Port for Channel {
    #[inline]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        if Surveyor::is_query(request)
            && let Some(surveyor) = &mut self.surveyor
        {
            return surveyor.add(ticket, request);
        }
        match &mut self.kind {
            Kind::Null(channel) => channel.add(ticket, request, segments, view),
            Kind::Scripted(channel) => channel.add(ticket, request, segments, view),
            Kind::Ram(channel) => channel.add(ticket, request, segments, view),
            Kind::File(channel) => channel.add(ticket, request, segments, view),
            Kind::Drive(channel) => channel.add(ticket, request, segments, view),
            Kind::KeyValue(channel) => channel.add(ticket, request, segments, view),
            Kind::Timed(channel) => channel.add(ticket, request, segments, view),
            Kind::Zoned(channel) => channel.add(ticket, request, segments, view),
            Kind::Vendor(channel) => channel.add(ticket, request, segments, view),
        }
    }

    fn note(&self, request: &Request<'_>) -> Option<u64> {
        match &self.kind {
            Kind::Zoned(channel) => channel.note(request),
            Kind::KeyValue(channel) => channel.note(request),
            Kind::Timed(channel) => channel.note(request),
            _ => None,
        }
    }

    fn uses_note(&self, note: u64) -> bool {
        match &self.kind {
            Kind::KeyValue(channel) => channel.uses_note(note),
            Kind::Timed(channel) => channel.uses_note(note),
            _ => true,
        }
    }

    fn has_begun(&self, request: &Request<'_>, note: u64) -> bool {
        match &self.kind {
            Kind::Zoned(channel) => channel.has_begun(request, note),
            Kind::KeyValue(channel) => channel.has_begun(request, note),
            Kind::Timed(channel) => channel.has_begun(request, note),
            _ => false,
        }
    }

    fn add_again(
        &mut self,
        ticket: Ticket,
        noted: (&Request<'_>, u64),
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        match &mut self.kind {
            Kind::Zoned(channel) => channel.add_again(ticket, noted, segments, view),
            Kind::KeyValue(channel) => channel.add_again(ticket, noted, segments, view),
            Kind::Timed(channel) => channel.add_again(ticket, noted, segments, view),
            _ => self.add(ticket, noted.0, segments, view),
        }
    }

    #[inline]
    fn submit(&mut self) {
        match &mut self.kind {
            Kind::Null(channel) => channel.submit(),
            Kind::Scripted(channel) => channel.submit(),
            Kind::Ram(channel) => channel.submit(),
            Kind::File(channel) => channel.submit(),
            Kind::Drive(channel) => channel.submit(),
            Kind::KeyValue(channel) => channel.submit(),
            Kind::Timed(channel) => channel.submit(),
            Kind::Zoned(channel) => channel.submit(),
            Kind::Vendor(channel) => channel.submit(),
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Done>) {
        if let Some(surveyor) = &mut self.surveyor
            && surveyor.in_flight() > 0
        {
            surveyor.reap(done);
        }
        match &mut self.kind {
            Kind::Null(channel) => channel.reap(done),
            Kind::Scripted(channel) => channel.reap(done),
            Kind::Ram(channel) => channel.reap(done),
            Kind::File(channel) => channel.reap(done),
            Kind::Drive(channel) => channel.reap(done),
            Kind::KeyValue(channel) => channel.reap(done),
            Kind::Timed(channel) => channel.reap(done),
            Kind::Zoned(channel) => channel.reap(done),
            Kind::Vendor(channel) => channel.reap(done),
        }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        let queries = self.surveyor.as_ref().map_or(0, |it| it.in_flight());
        let others = match &self.kind {
            Kind::Null(channel) => channel.in_flight(),
            Kind::Scripted(channel) => channel.in_flight(),
            Kind::Ram(channel) => channel.in_flight(),
            Kind::File(channel) => channel.in_flight(),
            Kind::Drive(channel) => channel.in_flight(),
            Kind::KeyValue(channel) => channel.in_flight(),
            Kind::Timed(channel) => channel.in_flight(),
            Kind::Zoned(channel) => channel.in_flight(),
            Kind::Vendor(channel) => channel.in_flight(),
        };
        others + queries
    }

    #[inline]
    fn is_full(&self, request: &Request<'_>) -> bool {
        if Surveyor::is_query(request)
            && let Some(surveyor) = &self.surveyor
        {
            return surveyor.is_full();
        }
        match &self.kind {
            Kind::Null(channel) => channel.is_full(request),
            Kind::Scripted(channel) => channel.is_full(request),
            Kind::Ram(channel) => channel.is_full(request),
            Kind::File(channel) => channel.is_full(request),
            Kind::Drive(channel) => channel.is_full(request),
            Kind::KeyValue(channel) => channel.is_full(request),
            Kind::Timed(channel) => channel.is_full(request),
            Kind::Zoned(channel) => channel.is_full(request),
            Kind::Vendor(channel) => channel.is_full(request),
        }
    }

    #[inline]
    fn copies(&self) -> bool {
        match &self.kind {
            Kind::Null(_) | Kind::Scripted(_) | Kind::Drive(_) | Kind::File(_) => false,
            Kind::Ram(_) | Kind::KeyValue(_) => true,
            Kind::Timed(timed) => timed.copies(),
            Kind::Zoned(zoned) => zoned.copies(),
            Kind::Vendor(vendor) => vendor.copies(),
        }
    }

    #[inline]
    fn expect(&self, offset: u64, len: u64) {
        match &self.kind {
            Kind::Null(_)
            | Kind::Scripted(_)
            | Kind::Drive(_)
            | Kind::File(_)
            | Kind::KeyValue(_) => {}
            Kind::Ram(channel) => channel.expect(offset, len),
            Kind::Timed(timed) => timed.expect(offset, len),
            Kind::Zoned(zoned) => zoned.expect(offset, len),
            Kind::Vendor(vendor) => vendor.expect(offset, len),
        }
    }

    fn keeps_time(&self) -> bool {
        matches!(self.kind, Kind::Timed(_))
    }

    #[inline]
    fn set_time(&mut self, now: Time, done: &mut Vec<Done>) {
        if let Kind::Timed(timed) = &mut self.kind {
            timed.set_time(now, done);
        }
    }

    #[inline]
    fn arrive(&mut self) {
        if let Kind::Timed(timed) = &mut self.kind {
            timed.arrive();
        }
    }

    fn next_due(&self) -> Option<Time> {
        match &self.kind {
            Kind::Timed(timed) => timed.next_due(),
            Kind::Null(_) | Kind::Scripted(_) | Kind::Drive(_) | Kind::Ram(_) | Kind::File(_) => {
                None
            }
            Kind::KeyValue(_) | Kind::Zoned(_) | Kind::Vendor(_) => None,
        }
    }
}
