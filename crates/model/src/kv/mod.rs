//! Key-value drive: units that work in parallel; the hash of a command's key selects its unit. Each
//! unit has a pipeline for reads and one for writes.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::activity::{Activity, Server, Work};
use crate::error::ParameterError;
use crate::parameters::{CompoundRule, KvParameters, Parameters};
use crate::pending::{Pending, Turn};
use crate::server::{Exact, Free, Pace, Spent};
use crate::{Admission, Due, KvKind, KvOp, Op, Timing};

/// The model of a key-value drive.
#[derive(Debug)]
pub struct Kv {
    rules: Rules,
    units: Vec<Unit>,
    /// Total time of all units.
    read: Spent,
    written_for: Spent,
    /// End of the last write.
    written: u64,
    pending: Pending,
    chains: Chains,
}

/// Values derived from the parameters, the same for all units.
#[derive(Debug)]
struct Rules {
    read: Pace,
    write: Pace,
    /// Latencies minus the cost of one page.
    retrieve: Exact,
    store: Exact,
    delete: Exact,
    exist: Exact,
    list: Exact,
    compound: CompoundRule,
}

impl Rules {
    fn new(parameters: &KvParameters) -> Self {
        let mut read = Pace::new(&parameters.read, parameters.units);
        let mut write = Pace::new(&parameters.write, parameters.units);
        Self {
            retrieve: read.rest(parameters.read.latency_ns),
            store: write.rest(parameters.write.latency_ns),
            delete: write.rest(parameters.delete_latency_ns),
            exist: read.rest(parameters.exist_latency_ns),
            list: read.rest(parameters.list_latency_ns),
            compound: parameters.compound,
            read,
            write,
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Unit {
    read: Free,
    write: Free,
}

impl Kv {
    /// Creates a drive at rest.
    ///
    /// # Errors
    ///
    /// Those of [`Parameters::check`].
    pub fn new(parameters: &KvParameters) -> Result<Self, ParameterError> {
        Parameters::Kv(*parameters).check()?;
        Ok(Self {
            rules: Rules::new(parameters),
            units: vec![Unit::default(); parameters.units as usize],
            read: Spent::default(),
            written_for: Spent::default(),
            written: 0,
            pending: Pending::default(),
            chains: Chains::default(),
        })
    }

    /// Changes the parameters. Commands in flight keep their times, and later ones wait for them as
    /// before.
    ///
    /// # Errors
    ///
    /// Those of [`Kv::new`], and another number of units; then nothing has changed.
    pub fn retune(&mut self, parameters: &KvParameters) -> Result<(), ParameterError> {
        if parameters.units as usize != self.units.len() {
            return Err(ParameterError::Fixed { name: "units" });
        }
        Parameters::Kv(*parameters).check()?;
        self.rules = Rules::new(parameters);
        for unit in &mut self.units {
            unit.read = unit.read.rounded();
            unit.write = unit.write.rounded();
        }
        self.read = self.read.rounded();
        self.written_for = self.written_for.rounded();
        Ok(())
    }

    /// Activity of its units.
    pub fn activity(&self) -> Activity {
        Activity {
            servers: vec![(Server::Unit, self.units.len() as u64)],
            busy: vec![
                self.read.busy(Server::Unit, Work::Read),
                self.written_for.busy(Server::Unit, Work::Write),
            ],
        }
    }

    /// Completion time of `op`, which begins at `now`.
    fn done(&mut self, now: u64, op: KvOp) -> u64 {
        let rules = &mut self.rules;
        let unit = match op.kind {
            KvKind::List => &mut self.units[0],
            _ => {
                let count = u32::try_from(self.units.len()).expect("they are made from 32 bits");
                &mut self.units[(op.hash % count) as usize]
            }
        };
        let (pace, free, len, rest) = match op.kind {
            KvKind::Store | KvKind::Append => {
                (&mut rules.write, &mut unit.write, op.len, rules.store)
            }
            KvKind::Delete => (&mut rules.write, &mut unit.write, 0, rules.delete),
            KvKind::Retrieve => (&mut rules.read, &mut unit.read, op.len, rules.retrieve),
            KvKind::Exist => (&mut rules.read, &mut unit.read, 0, rules.exist),
            KvKind::List => (&mut rules.read, &mut unit.read, op.len, rules.list),
        };
        let is_write = matches!(op.kind, KvKind::Store | KvKind::Append | KvKind::Delete);
        let spent = if is_write {
            &mut self.written_for
        } else {
            &mut self.read
        };
        spent.take(pace, len);
        let through = free.take(pace, now, len);
        let done = pace.ceil(pace.add(through, rest));
        if is_write {
            self.written = self.written.max(done);
        }
        done
    }

    /// Starts the sub-commands whose predecessors complete at `now` or before.
    fn settle(&mut self, now: u64) {
        while let Some((at, turn, slot)) = self.chains.begin(now) {
            let step = self.chains.step(slot);
            let at = match step {
                Some(op) => self.done(at, op),
                None => at,
            };
            match self.chains.ended(slot) {
                Some(id) => self.pending.push(at, turn, id),
                None => self.chains.wait(at, turn, slot),
            }
        }
    }
}

impl Kv {
    /// See [`Model::release_early`](crate::Model::release_early).
    pub(crate) fn release_early(&mut self, ns: u64) {
        self.pending.set_early(ns);
    }
}

impl Timing for Kv {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        let now = self.pending.at(now);
        self.settle(now);
        let turn = self.pending.turn();
        let at = match *op {
            Op::Kv(op) => self.done(now, op),
            Op::Compound(ops) if self.rules.compound == CompoundRule::InOrder => {
                self.chains.start(now, turn, id, ops);
                self.settle(now);
                return Admission::Accepted;
            }
            Op::Compound(ops) => ops
                .iter()
                .fold(now, |latest, &op| latest.max(self.done(now, op))),
            Op::Flush => now.max(self.written),
            Op::Read { .. } | Op::Write { .. } | Op::Deallocate { .. } | Op::Zone(_) => now,
        };
        self.pending.push(at, turn, id);
        Admission::Accepted
    }

    fn has_room(&self, _: &Op<'_>) -> bool {
        true
    }

    fn next_event(&self) -> Option<u64> {
        let steps = self.chains.next();
        let done = self.pending.next();
        steps.into_iter().chain(done).min()
    }

    fn advance(&mut self, now: u64, done: &mut Vec<Due>) {
        let now = self.pending.at(now);
        self.settle(now);
        self.pending.reap(now, done);
    }
}

/// Compound commands whose sub-commands run one after another.
#[derive(Debug, Default)]
struct Chains {
    slots: Vec<Chain>,
    free: Vec<usize>,
    waiting: BinaryHeap<Reverse<(u64, Turn, usize)>>,
}

#[derive(Debug, Default)]
struct Chain {
    id: u64,
    ops: Vec<KvOp>,
    begun: usize,
}

impl Chains {
    fn start(&mut self, at: u64, turn: Turn, id: u64, ops: &[KvOp]) {
        let slot = self.free.pop().unwrap_or(self.slots.len());
        if slot == self.slots.len() {
            self.slots.push(Chain::default());
        }
        let chain = &mut self.slots[slot];
        chain.id = id;
        chain.begun = 0;
        chain.ops.clear();
        chain.ops.extend_from_slice(ops);
        self.wait(at, turn, slot);
    }

    fn wait(&mut self, at: u64, turn: Turn, slot: usize) {
        self.waiting.push(Reverse((at, turn, slot)));
    }

    fn next(&self) -> Option<u64> {
        self.waiting.peek().map(|Reverse((at, ..))| *at)
    }

    /// The chain that is next at `now` or before.
    fn begin(&mut self, now: u64) -> Option<(u64, Turn, usize)> {
        self.next().filter(|&at| at <= now)?;
        self.waiting.pop().map(|Reverse(chain)| chain)
    }

    /// The next sub-command of the chain; `None` if it has none at all.
    fn step(&mut self, slot: usize) -> Option<KvOp> {
        let chain = &mut self.slots[slot];
        let op = chain.ops.get(chain.begun).copied();
        chain.begun += 1;
        op
    }

    /// Frees the slot when no sub-command remains; returns the id of the compound command.
    fn ended(&mut self, slot: usize) -> Option<u64> {
        let chain = &self.slots[slot];
        if chain.begun < chain.ops.len() {
            return None;
        }
        self.free.push(slot);
        Some(chain.id)
    }
}

#[cfg(test)]
mod tests;
