//! `arithmetic = "code"`: the rules of the program published with NVMeVirt, where they differ from
//! the book's.
//!
//! This reproduces the results of its authors, and separates effects of the drive from effects of
//! the program. Two of its rules are here: the simple model of the kinds `nvm` and `kv`
//! ([`Simple`]), and the links and channels of `flash` and `zns` (`slots`); the second table lists
//! the other differences of those.
//!
//! ## NVM and key-value
//!
//! A request of `len` bytes at address `a` that arrives at `t0`, with `N` units of 4096 bytes, each
//! busy until `b[u]`:
//!
//! ```text
//! u0 = (a / 4096) mod N                  k = ceil(len / 4096)
//! T  = max(t0, b[u0]) + delay
//! for j in 0..k:  T = T + time;  b[(u0 + j) mod N] = T
//! done at T;  a flush at the greatest b
//! ```
//!
//! Here `time` is the time of 4096 bytes at the bandwidth, rounded to the nearest nanosecond, and
//! `delay` the rest of the latency, at least 1 ns. The authors' script sets them like this.
//! Latencies are device time here, so the host's share that the script subtracts (`m`) is
//! subtracted before.
//!
//! | | the book | the program, and so this |
//! |---|---|---|
//! | latency | occupies no server: `q` commands overlap | occupies the unit: 4 KiB reads are limited to `1 / (delay + time)` |
//! | reads and writes | have separate servers | share the units |
//! | a large request | one server, whole | its pages one after another on the units in turn |
//! | a unit that is busy for longer than `T` | delays | is set back to `T`: the next request begins too early |
//! | rate of commands | limits | does not exist |
//! | units of `nvm` | one server | one unit, as the script sets it |
//! | the unit of a key | by its hash | that of address 0: always the first one |
//! | delete, exist, list, iterators | have latencies | take no time |
//! | a compound command, `together` | its parts start together on their units | one request of all their bytes |
//! | a compound command, `in_order` | each part after the end of the previous one | the same |
//! | deallocate, write zeroes | a write of nothing | take no time |
//!
//! ## Flash and zones
//!
//! Dies, buffer, write credits and collection are the book's, which took them from the program. The
//! differences:
//!
//! | | the book | the program, and so this |
//! |---|---|---|
//! | links and channels | intervals, exact to the nanosecond | slots of 4 us with whole credits of 128 bytes |
//! | a page that is not mapped | is sent over the link | takes no time |
//! | reset, finish, open of a zone | take time, and occupy dies | take no time |
//! | erase | as the parameter says | the same; its configurations have 0, and presets do not |
//!
//! Not included: overflows of the program's own numbers (credits that do not fit 8 bits); such
//! parameters are rejected.

pub(crate) use self::slots::{Slots, effective};
pub(crate) use self::way::Way;
use crate::pending::Pending;
use crate::{
    Activity, Admission, Arithmetic, CompoundRule, Direction, Due, Kind, KvKind, KvOp, Op,
    ParameterError, Parameters, Server, Timing,
};

mod slots;
mod way;

#[cfg(test)]
mod tests;

/// Bytes of a unit.
const UNIT: u64 = 4096;
const SECOND: u128 = 1_000_000_000;

/// The simple model of the published program.
#[derive(Debug)]
pub struct Simple {
    rules: Rules,
    /// End of each unit's busy time.
    busy: Vec<u64>,
    pending: Pending,
}

/// Values derived from the parameters.
#[derive(Clone, Copy, Debug)]
struct Rules {
    is_kv: bool,
    read: Cost,
    write: Cost,
    compound: CompoundRule,
    units: usize,
}

impl Rules {
    fn of(parameters: &Parameters) -> Result<Self, ParameterError> {
        let (read, write, compound, units) = match parameters {
            // One unit, as the script sets it.
            Parameters::Nvm(nvm) => (&nvm.read, &nvm.write, CompoundRule::Together, 1),
            Parameters::Kv(kv) => (&kv.read, &kv.write, kv.compound, kv.units as usize),
            Parameters::Flash(_) | Parameters::Zones(_) => {
                return Err(ParameterError::Fixed { name: "kind" });
            }
        };
        Ok(Rules {
            is_kv: matches!(parameters, Parameters::Kv(_)),
            read: Cost::of(read),
            write: Cost::of(write),
            compound,
            units,
        })
    }
}

/// Cost of a request, by direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cost {
    delay: u64,
    time: u64,
}

impl Cost {
    fn of(direction: &Direction) -> Self {
        let bandwidth = u128::from(direction.bandwidth_bytes_per_s);
        let time = match bandwidth {
            // as in the program before its script has run
            0 => 1,
            _ => (u128::from(UNIT) * SECOND + bandwidth / 2) / bandwidth,
        };
        let time = u64::try_from(time).unwrap_or(u64::MAX);
        Cost {
            delay: direction.latency_ns.saturating_sub(time).max(1),
            time,
        }
    }
}

impl Simple {
    /// Kind of the drive.
    pub(crate) fn kind(&self) -> Kind {
        if self.rules.is_kv {
            Kind::Kv
        } else {
            Kind::Nvm
        }
    }

    /// Activity of its units, without a distinction by kind of work.
    pub fn activity(&self) -> Activity {
        let server = if self.rules.is_kv {
            Server::Unit
        } else {
            Server::Pipeline
        };
        Activity {
            servers: vec![(server, self.busy.len() as u64)],
            busy: Vec::new(),
        }
    }

    /// Creates a drive at rest; `None` if the parameters select the book's rules, or are for flash
    /// or zones.
    ///
    /// # Errors
    /// The parameters do not describe a valid drive.
    pub fn new(parameters: &Parameters) -> Result<Option<Self>, ParameterError> {
        let is_here = matches!(parameters, Parameters::Nvm(_) | Parameters::Kv(_));
        if parameters.arithmetic() == Arithmetic::Exact || !is_here {
            return Ok(None);
        }
        parameters.check()?;
        let rules = Rules::of(parameters)?;
        Ok(Some(Simple {
            busy: vec![0; rules.units],
            rules,
            pending: Pending::default(),
        }))
    }

    /// Changes the parameters. Commands in flight keep their times.
    ///
    /// # Errors
    /// Those of [`Simple::new`]; another number of units or kind; and the book's rules. Then
    /// nothing has changed.
    pub fn retune(&mut self, parameters: &Parameters) -> Result<(), ParameterError> {
        if parameters.arithmetic() == Arithmetic::Exact {
            return Err(ParameterError::Fixed { name: "arithmetic" });
        }
        parameters.check()?;
        let rules = Rules::of(parameters)?;
        if rules.is_kv != self.rules.is_kv {
            return Err(ParameterError::Fixed { name: "kind" });
        }
        if rules.units != self.rules.units {
            return Err(ParameterError::Fixed { name: "units" });
        }
        self.rules = rules;
        Ok(())
    }

    fn request(&mut self, now: u64, address: u64, len: u64, cost: Cost) -> u64 {
        let units = self.busy.len() as u64;
        let first = (address / UNIT) % units;
        let index = |chunk: u64| usize::try_from((first + chunk) % units).expect("units are few");
        let mut at = now.max(self.busy[index(0)]).saturating_add(cost.delay);
        for chunk in 0..len.div_ceil(UNIT) {
            at = at.saturating_add(cost.time);
            self.busy[index(chunk)] = at;
        }
        at
    }

    fn kv_op(&mut self, now: u64, op: KvOp) -> u64 {
        match op.kind {
            KvKind::Store | KvKind::Append => self.request(now, 0, op.len.into(), self.rules.write),
            KvKind::Retrieve => self.request(now, 0, op.len.into(), self.rules.read),
            KvKind::Delete | KvKind::Exist | KvKind::List => now,
        }
    }

    fn compound_op(&mut self, now: u64, ops: &[KvOp]) -> u64 {
        match self.rules.compound {
            CompoundRule::InOrder => ops.iter().fold(now, |at, &op| self.kv_op(at, op)),
            CompoundRule::Together => {
                let stores = |op: &KvOp| matches!(op.kind, KvKind::Store | KvKind::Append);
                let moves = |op: &&KvOp| stores(op) || op.kind == KvKind::Retrieve;
                let len: u64 = ops.iter().filter(moves).map(|op| u64::from(op.len)).sum();
                if !ops.iter().any(|op| moves(&op)) {
                    return now;
                }
                let cost = if ops.iter().any(stores) {
                    self.rules.write
                } else {
                    self.rules.read
                };
                self.request(now, 0, len, cost)
            }
        }
    }
}

impl Simple {
    /// See [`Model::release_early`](crate::Model::release_early).
    pub(crate) fn release_early(&mut self, ns: u64) {
        self.pending.set_early(ns);
    }
}

impl Timing for Simple {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        let now = self.pending.at(now);
        let is_kv = self.rules.is_kv;
        let at = match *op {
            Op::Flush => self.busy.iter().copied().fold(now, u64::max),
            Op::Read { offset, len } if !is_kv => {
                self.request(now, offset, len.into(), self.rules.read)
            }
            Op::Write { offset, len, .. } if !is_kv => {
                self.request(now, offset, len.into(), self.rules.write)
            }
            Op::Kv(op) if is_kv => self.kv_op(now, op),
            Op::Compound(ops) if is_kv => self.compound_op(now, ops),
            // Takes no time, or belongs to another kind of drive.
            _ => now,
        };
        let turn = self.pending.turn();
        self.pending.push(at, turn, id);
        Admission::Accepted
    }

    fn has_room(&self, _: &Op<'_>) -> bool {
        true
    }

    fn next_event(&self) -> Option<u64> {
        self.pending.next()
    }

    fn advance(&mut self, now: u64, done: &mut Vec<Due>) {
        let now = self.pending.at(now);
        self.pending.reap(now, done);
    }
}
