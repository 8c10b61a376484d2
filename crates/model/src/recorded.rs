//! A model with a record of what it was told, and when each of it was done.
//!
//! The record is of fixed size and allocated at once; what finds no room in it is counted. It holds operations on blocks: others end
//! it, and so do other parameters, since what follows them is not what a fresh drive would do. A model that is not recorded does
//! nothing for this.

use crate::machine::Model;
use crate::{Admission, Due, Op, Timing};

/// Ids of operations that are not recorded.
const UNRECORDED: u64 = 1 << 63;
/// Not done yet.
const PENDING: u64 = u64::MAX;

/// An operation that was accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When, in nanoseconds.
    pub at: u64,
    /// What: read, write, deallocate or flush.
    pub op: Op<'static>,
    /// When it was done.
    due: u64,
    /// What it was submitted as.
    id: u64,
}

impl Arrival {
    /// When it was done; `None` where it was not when the record was taken.
    pub fn due(&self) -> Option<u64> {
        (self.due != PENDING).then_some(self.due)
    }
}

/// What a model was told, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// All of it that there was room for.
    pub arrivals: Vec<Arrival>,
    /// Operations after those.
    pub left_out: u64,
}

/// A model that is recorded.
#[derive(Debug)]
pub struct Recorded {
    model: Model,
    recording: Recording,
    /// Nothing more is recorded.
    ended: bool,
    /// Somebody has the record.
    taken: bool,
}

impl Recorded {
    pub(crate) fn new(model: Model, most: usize) -> Self {
        Self {
            model,
            recording: Recording {
                arrivals: Vec::with_capacity(most),
                left_out: 0,
            },
            ended: false,
            taken: false,
        }
    }

    pub(crate) fn model(&self) -> &Model {
        &self.model
    }

    pub(crate) fn model_mut(&mut self) -> &mut Model {
        &mut self.model
    }

    /// Ends the record.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn take(&mut self) -> Option<Recording> {
        self.ended = true;
        let there = !std::mem::replace(&mut self.taken, true);
        there.then(|| std::mem::take(&mut self.recording))
    }
}

fn on_blocks(op: &Op<'_>) -> Option<Op<'static>> {
    match *op {
        Op::Read { offset, len } => Some(Op::Read { offset, len }),
        Op::Write { offset, len, fua } => Some(Op::Write { offset, len, fua }),
        Op::Deallocate { offset, len } => Some(Op::Deallocate { offset, len }),
        Op::Flush => Some(Op::Flush),
        Op::Zone(_) | Op::Kv(_) | Op::Compound(_) => None,
    }
}

impl Timing for Recorded {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        let arrivals = &mut self.recording.arrivals;
        let kept = on_blocks(op).filter(|_| !self.ended && arrivals.len() < arrivals.capacity());
        let Some(op) = kept else {
            // The record has no gaps.
            self.ended = true;
            let admission = self.model.submit(now, id | UNRECORDED, op);
            self.recording.left_out += u64::from(admission == Admission::Accepted);
            return admission;
        };
        let admission = self.model.submit(now, arrivals.len() as u64, &op);
        if admission == Admission::Accepted {
            // Time never falls: an earlier one counts as that of the call before.
            let last = arrivals.last().map_or(0, |last| last.at);
            arrivals.push(Arrival {
                at: now.max(last),
                op,
                due: PENDING,
                id,
            });
        }
        admission
    }

    fn has_room(&self, op: &Op<'_>) -> bool {
        self.model.has_room(op)
    }

    fn next_event(&self) -> Option<u64> {
        self.model.next_event()
    }

    fn advance(&mut self, now: u64, done: &mut Vec<Due>) {
        let first = done.len();
        self.model.advance(now, done);
        for due in &mut done[first..] {
            if due.id & UNRECORDED != 0 {
                due.id &= !UNRECORDED;
                continue;
            }
            let number = usize::try_from(due.id).unwrap_or(usize::MAX);
            if let Some(arrival) = self.recording.arrivals.get_mut(number) {
                arrival.due = due.at;
                due.id = arrival.id;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::preset;
    use crate::{KvKind, KvOp, Parameters};

    fn optane() -> Parameters {
        let preset = preset("optane-p4800x").unwrap();
        preset.parameters(1 << 30, None).unwrap()
    }

    const READ: Op<'static> = Op::Read {
        offset: 4096,
        len: 4096,
    };

    fn all(model: &mut Model) -> Vec<Due> {
        let mut done = Vec::new();
        while let Some(next) = model.next_event() {
            model.advance(next, &mut done);
        }
        done
    }

    #[test]
    fn a_recorded_model_does_what_it_does_anyhow() {
        let mut plain = Model::new(&optane()).unwrap();
        let mut recorded = Model::new(&optane()).unwrap().recorded(2);
        for model in [&mut plain, &mut recorded] {
            for (at, id) in [(10, 7), (10, 7), (20, 9), (30, 7)] {
                assert_eq!(model.submit(at, id, &READ), Admission::Accepted);
            }
        }
        assert_eq!(all(&mut plain), all(&mut recorded));
        let recording = recorded.take_recording().unwrap();
        let times = recording.arrivals.iter().map(|a| (a.at, a.due()));
        // 5.39 us, and a second one 1 / 550 K s behind it.
        let times: Vec<_> = times.collect();
        assert_eq!(times, [(10, Some(5400)), (10, Some(7219))]);
        assert_eq!(recording.left_out, 2);
        assert!(recorded.take_recording().is_none(), "it is taken");
    }

    #[test]
    fn what_is_not_of_blocks_and_other_parameters_end_a_record() {
        let mut model = Model::new(&optane()).unwrap().recorded(10);
        model.submit(0, 1, &READ);
        let kv = KvOp {
            kind: KvKind::Store,
            hash: 0,
            len: 1,
        };
        model.submit(5, 2, &Op::Kv(kv));
        model.submit(6, 3, &READ);
        let recording = model.take_recording().unwrap();
        assert_eq!((recording.arrivals.len(), recording.left_out), (1, 2));
        assert_eq!(recording.arrivals[0].due(), None);

        let mut model = Model::new(&optane()).unwrap().recorded(10);
        model.submit(0, 1, &READ);
        model.retune(&optane()).unwrap();
        model.submit(6, 3, &READ);
        let recording = model.take_recording().unwrap();
        assert_eq!((recording.arrivals.len(), recording.left_out), (1, 1));
    }
}
