//! Reservations as the base specification has them (Base 2.1, 8.1.22), from what hosts have done
//! and nothing else.
//!
//! At most one reservation command of a namespace is in flight, so its effect is certain when it
//! completes. One without an outcome (its queue was deleted, say) has taken effect, or has not, or
//! will, until another one has: a namespace has several states then that may be.
//!
//! Reads and writes of others go on meanwhile. They may succeed where at some time since their
//! submission the host had access, and may be refused where at some time it had none.

/// Reservation Conflict, a status.
pub const CONFLICT: u16 = 0x083;
const INVALID_FIELD: u16 = 0x002;
const WELL: u16 = 0;
/// Still.
const NOW: u64 = u64::MAX;

// Reservation types (Base 2.1, figure 505).
const WRITE_EXCLUSIVE: u8 = 1;
const WRITE_EXCLUSIVE_REGISTRANTS: u8 = 3;
const EXCLUSIVE_REGISTRANTS: u8 = 4;
const WRITE_EXCLUSIVE_ALL: u8 = 5;
const EXCLUSIVE_ALL: u8 = 6;

/// A reservation command. Keys are those that it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Register.
    Register(u64),
    /// Unregister.
    Unregister(u64),
    /// Replace the first key by the second.
    Replace(u64, u64),
    /// Acquire a reservation of this type.
    Acquire(u64, u8),
    /// Preempt the second key, with a reservation of this type.
    Preempt(u64, u64, u8),
    /// Release a reservation of this type.
    Release(u64, u8),
    /// Clear.
    Clear(u64),
    /// Report.
    Report,
}

/// Content of a report: the type of the reservation, and for each registrant its host, its key, and
/// whether it holds the reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// 0 for no reservation.
    pub rtype: u8,
    /// By host.
    pub registrants: Vec<(usize, u64, bool)>,
}

/// Outcome of a reservation command.
#[derive(Clone, Debug)]
pub enum Ended {
    /// This status.
    With(u16),
    /// Success, with a report.
    Reported(Report),
    /// It has taken effect, or not, or will.
    Unknown,
}

/// Registrants and reservation of a namespace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct State {
    /// Hosts and keys, by host.
    registrants: Vec<(usize, u64)>,
    /// A reservation's type, and its holder: `None` for all registrants.
    held: Option<(u8, Option<usize>)>,
}

/// When a host has had access last, and when it has had none.
#[derive(Clone, Copy, Debug)]
struct Access {
    had: u64,
    lacked: u64,
}

#[derive(Clone, Debug)]
struct Space {
    may: Vec<State>,
    /// Those without an outcome since the last that had one.
    late: Vec<(usize, Act)>,
    pending: Option<(usize, Act)>,
    /// For each host: to read, to write.
    access: Vec<[Access; 2]>,
}

/// All namespaces.
#[derive(Clone, Debug, Default)]
pub struct Reservations {
    spaces: Vec<Space>,
}

impl Reservations {
    /// So many namespaces without registrants, and so many hosts.
    #[must_use]
    pub fn new(spaces: usize, hosts: usize) -> Self {
        let free = Access {
            had: NOW,
            lacked: 0,
        };
        let space = Space {
            may: vec![State::default()],
            late: Vec::new(),
            pending: None,
            access: vec![[free; 2]; hosts],
        };
        Reservations {
            spaces: vec![space; spaces],
        }
    }

    /// Whether a reservation command of a namespace is in flight.
    #[must_use]
    pub fn is_busy(&self, space: u16) -> bool {
        self.spaces[usize::from(space)].pending.is_some()
    }

    /// The key that a host may have, the keys of the others, and the type of the reservation.
    #[must_use]
    pub fn look(&self, space: u16, host: usize) -> (Option<u64>, Vec<u64>, Option<u8>) {
        let state = &self.spaces[usize::from(space)].may[0];
        let others = state.registrants.iter().filter(|(other, _)| *other != host);
        let others = others.map(|(_, key)| *key).collect();
        (state.key(host), others, state.held.map(|(rtype, _)| rtype))
    }

    /// A command is submitted.
    pub fn begin(&mut self, space: u16, host: usize, act: Act, now: u64) {
        let space = &mut self.spaces[usize::from(space)];
        space.pending = Some((host, act));
        space.renew(now);
    }

    /// It has ended.
    ///
    /// # Errors
    /// What cannot be.
    pub fn end(
        &mut self,
        space: u16,
        host: usize,
        act: Act,
        ended: &Ended,
        now: u64,
    ) -> Result<(), String> {
        let space = &mut self.spaces[usize::from(space)];
        space.pending = None;
        let before = space.with_late();
        let may = match ended {
            Ended::Unknown => {
                if act != Act::Report {
                    space.late.push((host, act));
                }
                space.may.clone()
            }
            Ended::Reported(report) => {
                let fits = |state: &State| state.report() == *report;
                if !before.iter().any(fits) {
                    return Err(format!("{report:?}, and it may be {before:?}"));
                }
                // A command without an outcome may take effect later.
                if space.late.is_empty() {
                    before.into_iter().filter(fits).collect()
                } else {
                    space.may.clone()
                }
            }
            Ended::With(status) => {
                space.late.clear();
                let done = before.iter().filter_map(|state| {
                    let mut state = state.clone();
                    (state.apply(host, act) == *status).then_some(state)
                });
                let done: Vec<State> = done.collect();
                if done.is_empty() {
                    return Err(format!("status {status:#x}, and it may be {before:?}"));
                }
                done
            }
        };
        space.may = distinct(may);
        space.renew(now);
        Ok(())
    }

    /// Whether a command of a host that was submitted at `since` may succeed, and whether it may be
    /// refused.
    #[must_use]
    pub fn may(&self, space: u16, host: usize, writes: bool, since: u64) -> (bool, bool) {
        let space = &self.spaces[usize::from(space)];
        let access = space.access[host][usize::from(writes)];
        (
            access.had >= since,
            access.lacked >= since && access.lacked > 0,
        )
    }
}

fn distinct(states: Vec<State>) -> Vec<State> {
    let mut distinct: Vec<State> = Vec::new();
    for state in states {
        if !distinct.contains(&state) {
            distinct.push(state);
        }
    }
    distinct
}

impl Space {
    /// Possible states, where each command without an outcome has taken effect or not.
    fn with_late(&self) -> Vec<State> {
        let mut may = self.may.clone();
        for (host, act) in &self.late {
            may = with(may, *host, *act);
        }
        may
    }

    /// It may be something else from now on.
    fn renew(&mut self, now: u64) {
        let mut may = self.with_late();
        if let Some((host, act)) = self.pending {
            may = with(may, host, act);
        }
        for (host, access) in self.access.iter_mut().enumerate() {
            for (writes, access) in access.iter_mut().enumerate() {
                let has = |state: &State| state.access(host)[writes];
                let (some, all) = (may.iter().any(has), may.iter().all(has));
                for (is, at) in [(some, &mut access.had), (!all, &mut access.lacked)] {
                    if is {
                        *at = NOW;
                    } else if *at == NOW {
                        *at = now;
                    }
                }
            }
        }
    }
}

/// The states, and those after a command.
fn with(states: Vec<State>, host: usize, act: Act) -> Vec<State> {
    let after = states.iter().map(|state| {
        let mut state = state.clone();
        state.apply(host, act);
        state
    });
    let after: Vec<State> = after.collect();
    distinct([states, after].concat())
}

impl State {
    fn key(&self, host: usize) -> Option<u64> {
        let mut registrants = self.registrants.iter();
        registrants
            .find(|(other, _)| *other == host)
            .map(|(_, key)| *key)
    }

    fn holds(&self, host: usize) -> bool {
        match self.held {
            None => false,
            Some((_, Some(holder))) => holder == host,
            Some((_, None)) => self.key(host).is_some(),
        }
    }

    /// Whether a host may read, and write (figure 506).
    fn access(&self, host: usize) -> [bool; 2] {
        let Some((rtype, _)) = self.held else {
            return [true; 2];
        };
        let registrants = [
            WRITE_EXCLUSIVE_REGISTRANTS,
            EXCLUSIVE_REGISTRANTS,
            WRITE_EXCLUSIVE_ALL,
            EXCLUSIVE_ALL,
        ];
        let full = self.holds(host) || registrants.contains(&rtype) && self.key(host).is_some();
        let readers = [
            WRITE_EXCLUSIVE,
            WRITE_EXCLUSIVE_REGISTRANTS,
            WRITE_EXCLUSIVE_ALL,
        ];
        [full || readers.contains(&rtype), full]
    }

    fn report(&self) -> Report {
        let registrants = self.registrants.iter();
        let registrants = registrants.map(|(host, key)| (*host, *key, self.holds(*host)));
        Report {
            rtype: self.held.map_or(0, |(rtype, _)| rtype),
            registrants: registrants.collect(),
        }
    }

    fn add(&mut self, host: usize, key: u64) {
        self.registrants.push((host, key));
        self.registrants.sort_unstable();
    }

    fn remove(&mut self, host: usize) {
        let held = self.holds(host);
        self.registrants.retain(|(other, _)| *other != host);
        let all = matches!(self.held, Some((_, None)));
        if held && (!all || self.registrants.is_empty()) {
            self.held = None;
        }
    }

    fn acquire(&mut self, host: usize, rtype: u8) {
        let all = [WRITE_EXCLUSIVE_ALL, EXCLUSIVE_ALL].contains(&rtype);
        self.held = Some((rtype, (!all).then_some(host)));
    }

    /// Its status; nothing has changed after an error.
    fn apply(&mut self, host: usize, act: Act) -> u16 {
        let own = self.key(host);
        match act {
            Act::Report => {}
            Act::Register(key) => match own {
                None => self.add(host, key),
                Some(own) if own == key => {}
                Some(_) => return CONFLICT,
            },
            Act::Unregister(key)
            | Act::Replace(key, _)
            | Act::Acquire(key, _)
            | Act::Preempt(key, ..)
            | Act::Release(key, _)
            | Act::Clear(key)
                if own != Some(key) =>
            {
                return CONFLICT;
            }
            Act::Unregister(_) => self.remove(host),
            Act::Replace(_, key) => {
                self.registrants.retain(|(other, _)| *other != host);
                self.add(host, key);
            }
            Act::Acquire(_, rtype) => match self.held {
                None => self.acquire(host, rtype),
                Some((its, _)) if its == rtype && self.holds(host) => {}
                Some(_) => return CONFLICT,
            },
            Act::Preempt(_, key, rtype) => return self.preempt(host, key, rtype),
            Act::Release(_, rtype) => match self.held {
                Some((its, _)) if self.holds(host) => {
                    if its != rtype {
                        return INVALID_FIELD;
                    }
                    self.held = None;
                }
                _ => {}
            },
            Act::Clear(_) => *self = State::default(),
        }
        WELL
    }

    fn preempt(&mut self, host: usize, key: u64, rtype: u8) -> u16 {
        let named = |(_, its): &(usize, u64)| *its == key;
        let replaces = match self.held {
            None => false,
            Some((_, None)) => key == 0,
            Some((_, Some(holder))) => self.key(holder) == Some(key),
        };
        if !replaces && key == 0 {
            return INVALID_FIELD;
        }
        if !replaces && !self.registrants.iter().any(named) {
            return CONFLICT;
        }
        let gone = self.registrants.iter();
        let gone = gone.filter(|one| key == 0 || named(one)).map(|(it, _)| *it);
        let gone: Vec<usize> = gone.filter(|it| !replaces || *it != host).collect();
        if replaces {
            self.held = None;
        }
        gone.into_iter().for_each(|it| self.remove(it));
        if replaces {
            self.acquire(host, rtype);
        }
        WELL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done(all: &mut Reservations, host: usize, act: Act, status: u16, now: u64) {
        all.begin(0, host, act, now);
        let ended = all.end(0, host, act, &Ended::With(status), now + 1);
        assert_eq!(ended, Ok(()), "{act:?}");
    }

    #[test]
    fn a_host_without_access_is_refused_and_one_with_it_is_not() {
        let mut all = Reservations::new(1, 2);
        done(&mut all, 0, Act::Register(7), WELL, 10);
        assert_eq!(all.may(0, 1, true, 11), (true, false));
        done(&mut all, 0, Act::Acquire(7, WRITE_EXCLUSIVE), WELL, 20);
        // Before, beside, and after the command.
        assert_eq!(all.may(0, 1, true, 15), (true, true));
        assert_eq!(all.may(0, 1, true, 22), (false, true));
        assert_eq!(all.may(0, 1, false, 22), (true, false));
        assert_eq!(all.may(0, 0, true, 22), (true, false));
        done(&mut all, 1, Act::Acquire(7, WRITE_EXCLUSIVE), CONFLICT, 30);
        let wrong = all.end(0, 1, Act::Register(8), &Ended::With(CONFLICT), 40);
        assert!(wrong.is_err());
    }

    #[test]
    fn a_command_without_an_outcome_has_taken_effect_or_not_until_another_has() {
        let mut all = Reservations::new(1, 2);
        all.begin(0, 0, Act::Register(7), 1);
        let unknown = all.end(0, 0, Act::Register(7), &Ended::Unknown, 2);
        assert_eq!(unknown, Ok(()));
        let registered = Report {
            rtype: 0,
            registrants: vec![(0, 7, false)],
        };
        for report in [Report::default(), registered] {
            let reported = all.end(0, 1, Act::Report, &Ended::Reported(report), 3);
            assert_eq!(reported, Ok(()));
        }
        let other = Report {
            rtype: 1,
            ..Report::default()
        };
        let reported = all.end(0, 1, Act::Report, &Ended::Reported(other), 3);
        assert!(reported.is_err());
        done(&mut all, 0, Act::Unregister(7), WELL, 4);
        let reported = all.end(0, 1, Act::Report, &Ended::Reported(Report::default()), 6);
        assert_eq!(reported, Ok(()));
    }
}
