//! Possible zones: the state, the write pointer and the data of each, as the Zoned Namespace
//! command set has them (ZNS 1.1, 2.1.1), from the actions of hosts and nothing else.
//!
//! Writes, actions, reports, and reads beyond the write pointer have their zone to themselves;
//! appends are in flight together, and other reads beside them. So every state and every place is
//! certain when a command has completed. A command without an outcome (its queue was deleted, say)
//! has taken effect or has not: only a report follows then, which must be one of both.
//!
//! It does NOT choose when commands end with errors: the host judges that.

use crate::random::Random;
use crate::stamp::{Found, Place};

/// State of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// ZSE.
    Empty,
    /// ZSIO.
    Implicit,
    /// ZSEO.
    Explicit,
    /// ZSC.
    Closed,
    /// ZSF.
    Full,
}

/// Actions of Zone Management Send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Close Zone.
    Close = 1,
    /// Finish Zone.
    Finish = 2,
    /// Open Zone.
    Open = 3,
    /// Reset Zone.
    Reset = 4,
}

/// Effect of a command on a zone. Blocks by their position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// A write at the write pointer.
    Write {
        /// Where.
        at: u64,
        /// How many.
        count: u32,
        /// Number of the write; 0 for zeroes.
        write: u64,
    },
    /// Zone Append.
    Append {
        /// How many.
        count: u32,
        /// Number of the write.
        write: u64,
    },
    /// A read.
    Read {
        /// Where.
        at: u64,
        /// How many.
        count: u32,
    },
    /// Zone Management Send.
    Send(Action),
    /// Zone Management Receive: a report of this zone.
    Report,
}

/// A command to a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Task {
    /// Which zone.
    pub zone: usize,
    /// Its effect.
    pub act: Act,
}

/// Outcome of a command to a zone.
#[derive(Clone, Copy, Debug)]
pub enum Ended<'a> {
    /// Success, with the position of an append.
    Well {
        /// Dwords 0 and 1 of its completion.
        result: u64,
    },
    /// Success, and the data that was read, block by block, or a report's state and write pointer.
    Read(&'a [Found]),
    /// As above.
    Reported(State, u64),
    /// It has taken effect or not.
    Unknown,
}

/// Possible content of a block.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hold {
    Is(Found),
    /// Zeroes, or the data of one of these writes, which have no outcome.
    Either(Vec<u64>),
}

/// State of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Status {
    state: State,
    written: u64,
}

/// Blocks in a zone: where, how many, and the write.
type Extent = (u64, u32, u64);

#[derive(Clone, Debug)]
struct Zone {
    status: Status,
    /// It may as well be this: the effect of a command without an outcome.
    or: Option<(Status, Act)>,
    blocks: Vec<Hold>,
    /// A command that has the zone to itself.
    alone: bool,
    reads: u32,
    /// Appends in flight; those that have completed since none was; those without an outcome.
    appending: Vec<(u64, u32)>,
    appended: Vec<Extent>,
    lost: Vec<(u64, u32)>,
}

/// The zones of a namespace.
#[derive(Clone, Debug, Default)]
pub struct Zones {
    /// Number of the namespace in the ledger.
    pub space: u16,
    /// Blocks from one zone to the next.
    pub size: u64,
    capacity: u64,
    zones: Vec<Zone>,
}

impl Zones {
    /// Empty zones of a namespace.
    #[must_use]
    pub fn new(space: u16, count: usize, size: u64, capacity: u64) -> Self {
        let zone = Zone {
            status: Status {
                state: State::Empty,
                written: 0,
            },
            or: None,
            blocks: Vec::new(),
            alone: false,
            reads: 0,
            appending: Vec::new(),
            appended: Vec::new(),
            lost: Vec::new(),
        };
        Zones {
            space,
            size,
            capacity,
            zones: vec![zone; count],
        }
    }

    /// The first block of a zone.
    #[must_use]
    pub fn start(&self, zone: usize) -> u64 {
        zone as u64 * self.size
    }

    /// Something to do with some zone, of up to `most` blocks; `write` is the number of a write.
    pub fn choose(&self, random: &mut Random, most: u32, write: u64) -> Option<Task> {
        let number = random.index(self.zones.len());
        let act = self.zones[number].choose(self.capacity, random, most, write)?;
        Some(Task { zone: number, act })
    }

    /// A command is submitted.
    pub fn begin(&mut self, task: Task) {
        let zone = &mut self.zones[task.zone];
        match task.act {
            Act::Append { count, write } => zone.appending.push((write, count)),
            Act::Read { .. } if zone.is_written(task.act) => zone.reads += 1,
            _ => zone.alone = true,
        }
    }

    /// It has ended.
    ///
    /// # Errors
    /// What cannot be.
    pub fn end(&mut self, task: Task, ended: Ended<'_>) -> Result<(), String> {
        let (start, capacity) = (self.start(task.zone), self.capacity);
        let zone = &mut self.zones[task.zone];
        let ended = zone.end(self.space, start, capacity, task.act, ended);
        ended.map_err(|what| format!("{task:?}: {what}; {zone:?}"))
    }
}

impl Zone {
    fn is_certain(&self) -> bool {
        self.or.is_none() && self.lost.is_empty()
    }

    fn is_idle(&self) -> bool {
        !self.alone && self.reads == 0 && self.appending.is_empty()
    }

    /// Whether a read ends before the write pointer: appends may go on beside it. One that does not
    /// has the zone to itself, so that this stays as it is.
    fn is_written(&self, act: Act) -> bool {
        matches!(act, Act::Read { at, count } if at + u64::from(count) <= self.status.written)
    }

    /// Blocks that appends may have taken.
    fn taken(&self) -> u64 {
        let appended = self.appended.iter().map(|(_, count, _)| *count);
        let appending = self.appending.iter().map(|(_, count)| *count);
        appended.chain(appending).map(u64::from).sum()
    }

    fn choose(&self, capacity: u64, random: &mut Random, most: u32, write: u64) -> Option<Act> {
        if !self.is_certain() {
            return self.is_idle().then_some(Act::Report);
        }
        let Status { state, written } = self.status;
        let left = capacity - written - self.taken();
        let may_write = state != State::Full && left > 0;
        let count = random.between(1, u64::from(most).min(left).max(1)) as u32;
        match random.below(64) {
            0..20 if may_write && self.is_idle() => Some(Act::Write {
                at: written,
                count,
                write: if random.once_in(8) { 0 } else { write },
            }),
            0..36 if may_write && !self.alone => Some(Act::Append { count, write }),
            0..52 if !self.alone => {
                // Beyond the write pointer are zeroes.
                let end = if self.is_idle() { capacity } else { written };
                let at = random.below(end.max(1));
                let count = random.between(1, u64::from(most).min(end.saturating_sub(at)).max(1));
                (at + count <= end).then_some(Act::Read {
                    at,
                    count: count as u32,
                })
            }
            52..54 => self.is_idle().then_some(Act::Report),
            _ if !self.is_idle() => None,
            54..56 if state != State::Full => Some(Act::Send(Action::Open)),
            56..58 if matches!(state, State::Implicit | State::Explicit | State::Closed) => {
                Some(Act::Send(Action::Close))
            }
            58..59 => Some(Act::Send(Action::Finish)),
            _ if state == State::Full || random.once_in(8) => Some(Act::Send(Action::Reset)),
            _ => None,
        }
    }

    fn end(
        &mut self,
        space: u16,
        start: u64,
        capacity: u64,
        act: Act,
        ended: Ended<'_>,
    ) -> Result<(), String> {
        match act {
            Act::Append { .. } => {}
            Act::Read { .. } if self.is_written(act) => self.reads -= 1,
            _ => self.alone = false,
        }
        match (act, ended) {
            (Act::Read { at, .. }, Ended::Read(found)) => self.check(space, start, at, found),
            (Act::Read { .. }, _) => Ok(()),
            (Act::Append { count, write }, ended) => {
                self.appending.retain(|(other, _)| *other != write);
                match ended {
                    Ended::Well { result } => {
                        let at = result.checked_sub(start).filter(|at| *at < capacity);
                        let at = at.ok_or(format!("appended at {result}"))?;
                        self.append(at, count, write)?;
                    }
                    _ => self.lost.push((write, count)),
                }
                if self.appending.is_empty() && self.lost.is_empty() {
                    let end = self.status.written + self.taken();
                    self.settle_appends(space, start, end, capacity)?;
                }
                Ok(())
            }
            (Act::Report, Ended::Reported(state, pointer)) => {
                self.reported(space, start, capacity, state, pointer)
            }
            (Act::Report, _) => Ok(()),
            (act, Ended::Unknown) => {
                self.or = Some((self.after(capacity, act), act));
                Ok(())
            }
            (act, _) => {
                self.apply(space, start, capacity, act);
                Ok(())
            }
        }
    }

    /// The status after a write or an action.
    fn after(&self, capacity: u64, act: Act) -> Status {
        let Status { state, written } = self.status;
        match act {
            Act::Write { count, .. } => wrote(state, written + u64::from(count), capacity),
            Act::Send(Action::Reset) => Status {
                state: State::Empty,
                written: 0,
            },
            Act::Send(action) => Status {
                state: match action {
                    Action::Open => State::Explicit,
                    Action::Close => State::Closed,
                    _ => State::Full,
                },
                written,
            },
            _ => self.status,
        }
    }

    fn apply(&mut self, space: u16, start: u64, capacity: u64, act: Act) {
        let after = self.after(capacity, act);
        match act {
            Act::Write { at, count, write } => {
                let place = |lba| Place { space, lba };
                let blocks = start + at..start + at + u64::from(count);
                let holds = blocks.map(|lba| Hold::Is(of(place(lba), place(lba), write)));
                self.blocks.extend(holds);
            }
            Act::Send(Action::Reset) => {
                self.blocks.clear();
                self.appended.clear();
                self.lost.clear();
                self.or = None;
            }
            _ => {}
        }
        self.status = after;
    }

    fn append(&mut self, at: u64, count: u32, write: u64) -> Result<(), String> {
        let end = at + u64::from(count);
        let meets = |(other, len, _): &Extent| at < other + u64::from(*len) && *other < end;
        if at < self.status.written || self.appended.iter().any(meets) {
            return Err(format!("appended at {at}, where other data is"));
        }
        self.appended.push((at, count, write));
        Ok(())
    }

    /// No append is in flight, and the write pointer is at `end`.
    fn settle_appends(
        &mut self,
        space: u16,
        start: u64,
        end: u64,
        capacity: u64,
    ) -> Result<(), String> {
        let mut appended = std::mem::take(&mut self.appended);
        let lost = std::mem::take(&mut self.lost);
        appended.sort_unstable();
        let (mut at, mut gaps) = (self.status.written, Vec::new());
        let ends = appended.iter().copied().chain([(end, 0, 0)]);
        for (next, count, write) in ends {
            let Some(gap) = next.checked_sub(at) else {
                return Err(format!("a write pointer of {end} with {appended:?}"));
            };
            if gap > 0 {
                gaps.push(gap);
                let writes = lost.iter().map(|(write, _)| *write).collect();
                let hold = Hold::Either(writes);
                self.blocks.extend((0..gap).map(|_| hold.clone()));
            }
            for block in 0..u64::from(count) {
                let here = Place {
                    space,
                    lba: start + next + block,
                };
                let named = Place {
                    space,
                    lba: start + block,
                };
                self.blocks.push(Hold::Is(of(here, named, write)));
            }
            at = next + u64::from(count);
        }
        let counts: Vec<u64> = lost.iter().map(|(_, count)| u64::from(*count)).collect();
        if !fill(&gaps, &counts) {
            return Err(format!(
                "a write pointer of {end} with {appended:?}, and {lost:?} that have no outcome"
            ));
        }
        if end > self.status.written {
            self.status = wrote(self.status.state, end, capacity);
        }
        Ok(())
    }

    fn reported(
        &mut self,
        space: u16,
        start: u64,
        capacity: u64,
        state: State,
        pointer: u64,
    ) -> Result<(), String> {
        let is = |status: Status| {
            let is_there = pointer == start + status.written;
            state == status.state && (state == State::Full || is_there)
        };
        if !self.lost.is_empty() {
            let end = match state {
                State::Full => capacity,
                _ => pointer.wrapping_sub(start),
            };
            if end > capacity {
                return Err(format!("a write pointer of {pointer}"));
            }
            self.settle_appends(space, start, end, capacity)?;
        } else if let Some((status, act)) = self.or.take()
            && !is(self.status)
            && is(status)
        {
            let blocks = self.blocks.len();
            self.apply(space, start, capacity, act);
            if let Act::Write { write, .. } = act {
                let blocks = self.blocks[blocks..].iter_mut();
                blocks.for_each(|block| *block = Hold::Either(vec![write]));
            }
        }
        if is(self.status) {
            Ok(())
        } else {
            Err(format!("reported as {state:?} at {pointer}"))
        }
    }

    fn check(&self, space: u16, start: u64, at: u64, found: &[Found]) -> Result<(), String> {
        for (at, found) in (at as usize..).zip(found) {
            let may = match self.blocks.get(at) {
                None => *found == Found::Zeroes,
                Some(Hold::Is(is)) => is == found,
                Some(Hold::Either(writes)) => match found {
                    Found::Zeroes => true,
                    Found::Write(write) => writes.contains(write),
                    Found::Copy(place, write) => {
                        let of_it = start..=start + at as u64;
                        writes.contains(write) && place.space == space && of_it.contains(&place.lba)
                    }
                    Found::Wrong { .. } => false,
                },
            };
            if !may {
                return Err(format!("block {at} reads as {found:?}"));
            }
        }
        Ok(())
    }
}

/// The status after a write up to there.
fn wrote(state: State, written: u64, capacity: u64) -> Status {
    let state = match state {
        _ if written == capacity => State::Full,
        State::Explicit => State::Explicit,
        _ => State::Implicit,
    };
    Status { state, written }
}

/// Data read from a block at `here` that was written as the block `named`.
fn of(here: Place, named: Place, write: u64) -> Found {
    match write {
        0 => Found::Zeroes,
        write if here == named => Found::Write(write),
        write => Found::Copy(named, write),
    }
}

/// Whether some of these counts fill the gaps.
fn fill(gaps: &[u64], counts: &[u64]) -> bool {
    let Some((gap, others)) = gaps.split_first() else {
        return true;
    };
    if *gap == 0 {
        return fill(others, counts);
    }
    (0..counts.len()).any(|at| {
        let mut counts = counts.to_vec();
        let count = counts.swap_remove(at);
        let mut gaps = gaps.to_vec();
        count <= *gap && {
            gaps[0] -= count;
            fill(&gaps, &counts)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const WELL: Ended<'_> = Ended::Well { result: 0 };

    fn end(zones: &mut Zones, act: Act, ended: Ended<'_>) -> Result<(), String> {
        let task = Task { zone: 1, act };
        zones.begin(task);
        zones.end(task, ended)
    }

    fn append(write: u64, count: u32) -> Act {
        Act::Append { count, write }
    }

    #[test]
    fn appends_fill_the_zone_without_a_gap() {
        for (second, well) in [(18, true), (19, false), (17, false)] {
            let mut zones = Zones::new(0, 2, 16, 12);
            let [one, two] = [append(1, 2), append(2, 3)].map(|act| Task { zone: 1, act });
            zones.begin(one);
            zones.begin(two);
            assert_eq!(zones.end(one, Ended::Well { result: 16 }), Ok(()));
            let ended = zones.end(two, Ended::Well { result: second });
            assert_eq!(ended.is_ok(), well, "{second}: {ended:?}");
        }
    }

    #[test]
    fn a_command_without_an_outcome_has_taken_effect_or_not() {
        for (pointer, well) in [(16, true), (18, true), (17, false)] {
            let mut zones = Zones::new(0, 2, 16, 12);
            let write = Act::Write {
                at: 0,
                count: 2,
                write: 1,
            };
            assert_eq!(end(&mut zones, write, Ended::Unknown), Ok(()));
            let state = match pointer {
                16 => State::Empty,
                _ => State::Implicit,
            };
            let reported = end(&mut zones, Act::Report, Ended::Reported(state, pointer));
            assert_eq!(reported.is_ok(), well, "{pointer}: {reported:?}");
        }
    }

    #[test]
    fn some_of_the_appends_without_an_outcome_fill_the_gap() {
        for (pointer, well) in [(16, true), (18, true), (19, true), (21, true), (20, false)] {
            let mut zones = Zones::new(0, 2, 16, 12);
            for act in [append(1, 2), append(2, 3)] {
                assert_eq!(end(&mut zones, act, Ended::Unknown), Ok(()));
            }
            let state = match pointer {
                16 => State::Empty,
                _ => State::Implicit,
            };
            let reported = end(&mut zones, Act::Report, Ended::Reported(state, pointer));
            assert_eq!(reported.is_ok(), well, "{pointer}: {reported:?}");
        }
    }

    #[test]
    fn actions_change_the_state_and_a_reset_empties() {
        let mut zones = Zones::new(0, 2, 16, 12);
        let steps = [
            (Act::Send(Action::Open), State::Explicit, 16),
            (append(7, 2), State::Explicit, 18),
            (Act::Send(Action::Close), State::Closed, 18),
            (Act::Send(Action::Finish), State::Full, 0),
            (Act::Send(Action::Reset), State::Empty, 16),
        ];
        for (act, state, pointer) in steps {
            let well = match act {
                Act::Append { .. } => Ended::Well { result: 16 },
                _ => WELL,
            };
            assert_eq!(end(&mut zones, act, well), Ok(()));
            let other = match state {
                State::Closed => State::Implicit,
                _ => State::Closed,
            };
            let mut wrong = zones.clone();
            let reported = end(&mut wrong, Act::Report, Ended::Reported(other, pointer));
            assert!(reported.is_err(), "{act:?}");
            let reported = end(&mut zones, Act::Report, Ended::Reported(state, pointer));
            assert_eq!(reported, Ok(()), "{act:?}");
        }
    }
}
