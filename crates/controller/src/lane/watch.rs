//! The state of sampling a lane's commands ([`crate::flight`]): which command of each queue is
//! next, and the times of those that are watched.
//!
//! It does NOT fetch ([`super::watched`] does), or see a command itself.

use nvme_spec::command::DsmRange;
use nvme_spec::opcode::Csi;
use port::Channel;
use port::time::Time;

use super::member::Member;
use crate::flight::{FlightRecord, Stage, Watching};
use crate::gate::Gate;
use crate::state::{MAX_SAMPLES, MAX_SQS};

/// Watched commands that a lane holds at a time.
const ROOM: usize = 4095;
const _: () = assert!(ROOM <= MAX_SAMPLES, "a slot's marks name each");

/// The next command of a submission queue to sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chosen {
    /// Its number, modulo 2^32.
    number: u32,
    /// When its doorbell was seen, if it was.
    seen: Option<Time>,
    /// It was chosen: a queue's first command is, by whom it is found.
    is_chosen: bool,
}

/// When commands in a submission queue's ring were seen, each with the number, modulo 2^32, after
/// the last one seen then. Those seen first are kept separately; the others count as seen with the
/// last of them. So a command was in the ring for at least the recorded time.
#[derive(Clone, Copy, Debug, Default)]
struct Sights {
    first: Option<(u32, Time)>,
    others: Option<(u32, Time)>,
}

impl Sights {
    /// Commands up to `end` are in the ring; `fetched` were taken out of it.
    fn look(&mut self, fetched: u32, end: u32, now: Time) {
        if self.others.is_some_and(|(seen, _)| !lies_behind(end, seen)) {
            return;
        }
        let is_there = |sight: &(u32, Time)| lies_behind(sight.0, fetched);
        let first = self.first.filter(is_there);
        let first = first.or(self.others.filter(is_there));
        self.first = first.or(Some((end, now)));
        self.others = Some((end, now));
    }

    /// When the command of this number was seen.
    fn of(&self, number: u32) -> Option<Time> {
        let mut sights = [self.first, self.others].into_iter().flatten();
        let its = sights.find(|(end, _)| lies_behind(*end, number));
        its.map(|(_, at)| at)
    }
}

/// Whether one number of commands is beyond another one, modulo 2^32.
fn lies_behind(one: u32, other: u32) -> bool {
    one.wrapping_sub(other).cast_signed() > 0
}

/// The times of a command that is watched.
#[derive(Clone, Copy, Debug)]
pub(super) struct Open {
    pub(super) seen: Time,
    pub(super) fetched: Time,
    /// Its tenant's turn came.
    pub(super) passed: Time,
    pub(super) handed: Option<Handed>,
    pub(super) depth: u16,
    pub(super) csi: Csi,
    pub(super) lba_shift: u8,
    /// For Dataset Management, its first range.
    pub(super) range: Option<(u64, u32)>,
}

/// A request was handed to a channel.
#[derive(Clone, Copy, Debug)]
pub(super) struct Handed {
    /// When that began: its addresses were translated.
    pub(super) begun: Time,
    /// When the channel had it.
    pub(super) ended: Time,
    /// The channel keeps the time of a model.
    pub(super) timed: bool,
}

/// A lane's sampling state.
#[derive(Debug)]
pub(super) struct Watch {
    watching: Watching,
    random: u32,
    /// By position of each submission queue.
    chosen: [Chosen; MAX_SQS],
    /// The same, with an active trace.
    sights: [Sights; MAX_SQS],
    /// Commands of a trace that end before one counts that would have been watched without it.
    until_counted: u32,
    open: Vec<Option<Open>>,
    free: Vec<u16>,
    /// Posted in this turn, with when: their interrupts are still to be raised.
    posted: Vec<(FlightRecord, Time)>,
}

impl Watch {
    pub(super) fn new(watching: Watching, slots: usize) -> Box<Self> {
        let room = slots.min(ROOM);
        Box::new(Watch {
            // Of queues that are short-lived it is not always the same command.
            random: (watching.clock)().0 as u32 | 1,
            watching,
            chosen: [Chosen::default(); MAX_SQS],
            sights: [Sights::default(); MAX_SQS],
            until_counted: 0,
            open: vec![None; room],
            free: (0..room as u16).rev().collect(),
            posted: Vec::with_capacity(room),
        })
    }

    /// Changes the lane's sampling settings.
    pub(super) fn set(&mut self, watching: Watching) {
        self.land_all();
        self.watching = watching;
        // The next one may be near by now, or far.
        self.chosen = [Chosen::default(); MAX_SQS];
        self.sights = [Sights::default(); MAX_SQS];
        self.until_counted = 0;
    }

    /// Another queue is at this position now.
    pub(super) fn forget(&mut self, position: usize) {
        self.chosen[position] = Chosen::default();
        self.sights[position] = Sights::default();
    }

    /// Number of commands until the next sample, including it.
    fn distance(&mut self) -> u32 {
        match &self.watching.trace {
            Some(trace) if trace.every == 1 => 1,
            Some(trace) => self.random_distance(trace.every),
            None => self.random_distance(self.watching.every),
        }
    }

    /// 1 to twice `every` less one, `every` on average.
    fn random_distance(&mut self, every: u32) -> u32 {
        // xorshift32, Marsaglia 2003
        self.random ^= self.random << 13;
        self.random ^= self.random >> 17;
        self.random ^= self.random << 5;
        let span = u64::from(every.max(1)) * 2 - 1;
        1 + ((u64::from(self.random) * span) >> 32) as u32
    }

    /// Chooses the next command of a queue of which `fetched` were fetched.
    fn choose(&mut self, fetched: u32) -> Chosen {
        Chosen {
            number: fetched.wrapping_add(self.distance() - 1),
            seen: None,
            is_chosen: true,
        }
    }

    /// Number of commands of a queue to fetch before the sampled one.
    #[inline]
    pub(super) fn before(&mut self, position: usize, member: &Member) -> u32 {
        let fetched = fetched(member);
        let chosen = self.chosen[position];
        let before = chosen.number.wrapping_sub(fetched);
        // Two fused commands may have gone past it.
        if !chosen.is_chosen || before > u32::MAX / 2 {
            self.chosen[position] = self.choose(fetched);
            return self.chosen[position].number.wrapping_sub(fetched);
        }
        before
    }

    /// `available` commands of a queue can be fetched: if the one to watch is among them, this is
    /// when its doorbell was seen.
    #[inline]
    pub(super) fn look(&mut self, position: usize, member: &Member, available: u32) {
        if self.watching.trace.is_some() {
            let fetched = fetched(member);
            let now = (self.watching.clock)();
            self.sights[position].look(fetched, fetched.wrapping_add(available), now);
            return;
        }
        if self.before(position, member) < available && self.chosen[position].seen.is_none() {
            self.chosen[position].seen = Some((self.watching.clock)());
        }
    }

    /// Watches a command that was fetched; where, if there is room.
    pub(super) fn open(&mut self, position: usize, member: &Member) -> Option<u16> {
        let now = (self.watching.clock)();
        let next = fetched(member);
        let seen = match &self.watching.trace {
            None => self.chosen[position].seen,
            Some(_) => self.sights[position].of(next.wrapping_sub(1)),
        };
        let seen = seen.unwrap_or(now);
        self.chosen[position] = self.choose(next);
        let Some(at) = self.free.pop() else {
            if let Some(trace) = &self.watching.trace {
                trace.ring.miss();
            }
            return None;
        };
        self.open[usize::from(at)] = Some(Open {
            seen,
            fetched: now,
            passed: now,
            handed: None,
            depth: u16::try_from(member.outstanding).unwrap_or(u16::MAX),
            csi: Csi::NVM,
            lba_shift: 0,
            range: None,
        });
        Some(at)
    }

    pub(super) fn get(&mut self, at: u16) -> Option<&mut Open> {
        self.open.get_mut(usize::from(at))?.as_mut()
    }

    /// Ends the watch of a command: its place is free for another.
    pub(super) fn close(&mut self, at: u16) -> Option<Open> {
        let open = self.open.get_mut(usize::from(at))?.take()?;
        self.free.push(at);
        Some(open)
    }

    pub(super) fn clock(&self) -> fn() -> Time {
        self.watching.clock
    }

    /// Keeps the record of a command that was posted at `now` until its interrupt is raised.
    pub(super) fn post(&mut self, record: FlightRecord, now: Time) {
        if self.posted.len() == self.posted.capacity() {
            self.land_all();
        }
        self.posted.push((record, now));
    }

    /// A batch has ended, and the interrupts of its posted entries are raised.
    #[cold]
    pub(super) fn land_all(&mut self) {
        let now = (self.watching.clock)();
        let mut posted = std::mem::take(&mut self.posted);
        for (mut record, posted) in posted.drain(..) {
            record.stages[Stage::Interrupt as usize] = span(posted, now);
            self.land(&record);
        }
        self.posted = posted;
    }

    fn land(&mut self, record: &FlightRecord) {
        if let Some(trace) = &self.watching.trace {
            trace.ring.push(record);
            if self.watching.every == 0 {
                return;
            }
            if self.until_counted > 0 {
                self.until_counted -= 1;
                return;
            }
            let of_trace = (self.watching.every / trace.every).max(1);
            self.until_counted = self.random_distance(of_trace) - 1;
        }
        self.watching.land(record);
    }

    /// Whether something was posted.
    #[inline]
    pub(super) fn has_posted(&self) -> bool {
        !self.posted.is_empty()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.land_all();
    }
}

#[cfg(test)]
impl Watch {
    /// There is no place but so many.
    pub(super) fn leave_room_for(&mut self, places: usize) {
        self.free.truncate(places);
    }
}

/// Commands that were fetched of a queue, modulo 2^32.
fn fetched(member: &Member) -> u32 {
    member.sq.fetched()
}

/// Nanoseconds from one moment to another, as far as they fit.
pub(super) fn span(from: Time, to: Time) -> u32 {
    u32::try_from(to.since(from)).unwrap_or(u32::MAX)
}

/// A request of a command that is watched is handed to its channel: when, and by which clock.
#[inline(always)]
pub(super) fn begin<G: Gate>(clock: Option<fn() -> Time>) -> Option<(Time, fn() -> Time)> {
    let clock = clock.filter(|_| G::WATCHES)?;
    Some((clock(), clock))
}

/// The channel has it.
#[inline(always)]
pub(super) fn end<C: Channel>(
    begun: Option<(Time, fn() -> Time)>,
    channel: &C,
    handed: &mut Option<Handed>,
) {
    if let Some((begun, clock)) = begun {
        *handed = Some(Handed {
            begun,
            ended: clock(),
            timed: channel.keeps_time(),
        });
    }
}

/// The first range of Dataset Management, where commands are watched.
#[inline(always)]
pub(super) fn first_of<G: Gate>(ranges: &[DsmRange]) -> Option<(u64, u32)> {
    let first = ranges.first().filter(|_| G::WATCHES)?;
    Some((first.slba, first.nlb))
}
