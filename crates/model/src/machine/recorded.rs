//! A model that records its operations and their completion times.
//!
//! The recording has a fixed size, allocated at once; operations without room are counted. A change
//! of parameters ends it, because a fresh drive would not behave like the changed one. A model that
//! is not recorded has no cost for this.
//!
//! Of a key it stores only what the model receives, its hash.

use super::Model;
use crate::{Admission, Due, KvOp, Op, Timing};

/// Ids of operations that are not recorded.
const UNRECORDED: u64 = 1 << 63;
/// Not complete yet.
const PENDING: u64 = u64::MAX;

/// An accepted operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Accepted {
    at: u64,
    /// Without the parts of a compound command, which are in the recording: their start and number.
    op: Op<'static>,
    parts: (usize, usize),
    /// Completion time.
    due: u64,
    /// Its id from the submission.
    id: u64,
}

/// An operation of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Arrival time in nanoseconds.
    pub at: u64,
    /// The operation.
    pub op: Op<'a>,
    /// Completion time; `None` if it was not complete when the recording was taken.
    pub due: Option<u64>,
}

/// Operations of a model, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recording {
    /// The recorded operations.
    accepted: Vec<Accepted>,
    /// The parts of all recorded compound commands.
    parts: Vec<KvOp>,
    left_out: u64,
}

impl Recording {
    /// Allocates room for `most` operations, and for as many parts of compound commands.
    fn with_room(most: usize) -> Self {
        Self {
            accepted: Vec::with_capacity(most),
            parts: Vec::with_capacity(most),
            left_out: 0,
        }
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.accepted.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.accepted.is_empty()
    }

    /// Number of later operations that found no room, or came after its end.
    pub fn left_out(&self) -> u64 {
        self.left_out
    }

    /// The recorded operations.
    pub fn arrivals(&self) -> impl Iterator<Item = Arrival<'_>> {
        self.accepted.iter().map(|accepted| Arrival {
            at: accepted.at,
            op: match accepted.op {
                Op::Compound(_) => {
                    Op::Compound(&self.parts[accepted.parts.0..][..accepted.parts.1])
                }
                op => op,
            },
            due: (accepted.due != PENDING).then_some(accepted.due),
        })
    }

    /// The operation in stored form, and its parts; `None` if there is no room.
    fn keeps<'o>(&self, op: &Op<'o>) -> Option<(Op<'static>, &'o [KvOp])> {
        let (op, parts) = match *op {
            Op::Read { offset, len } => (Op::Read { offset, len }, &[][..]),
            Op::Write { offset, len, fua } => (Op::Write { offset, len, fua }, &[][..]),
            Op::Deallocate { offset, len } => (Op::Deallocate { offset, len }, &[][..]),
            Op::Flush => (Op::Flush, &[][..]),
            Op::Zone(zone) => (Op::Zone(zone), &[][..]),
            Op::Kv(kv) => (Op::Kv(kv), &[][..]),
            Op::Compound(parts) => (Op::Compound(&[]), parts),
        };
        let fits = self.accepted.len() < self.accepted.capacity()
            && self.parts.capacity() - self.parts.len() >= parts.len();
        fits.then_some((op, parts))
    }
}

/// A model with a recording.
#[derive(Debug)]
pub struct Recorded {
    model: Model,
    recording: Recording,
    /// Whether recording has ended.
    ended: bool,
    /// Whether the recording was taken.
    taken: bool,
}

impl Recorded {
    pub(crate) fn new(model: Model, most: usize) -> Self {
        Self {
            model,
            recording: Recording::with_room(most),
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

    /// Ends the recording.
    pub(crate) fn end(&mut self) {
        self.ended = true;
    }

    pub(crate) fn take(&mut self) -> Option<Recording> {
        self.ended = true;
        let there = !std::mem::replace(&mut self.taken, true);
        there.then(|| std::mem::take(&mut self.recording))
    }
}

impl Timing for Recorded {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        let recording = &mut self.recording;
        let kept = recording.keeps(op).filter(|_| !self.ended);
        let Some((kept, parts)) = kept else {
            // The recording must have no gaps.
            self.ended = true;
            let admission = self.model.submit(now, id | UNRECORDED, op);
            recording.left_out += u64::from(admission == Admission::Accepted);
            return admission;
        };
        let admission = self.model.submit(now, recording.accepted.len() as u64, op);
        if admission == Admission::Accepted {
            // Time never decreases: an earlier time counts as that of the previous call.
            let last = recording.accepted.last().map_or(0, |last| last.at);
            recording.accepted.push(Accepted {
                at: now.max(last),
                op: kept,
                parts: (recording.parts.len(), parts.len()),
                due: PENDING,
                id,
            });
            recording.parts.extend_from_slice(parts);
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
            if let Some(accepted) = self.recording.accepted.get_mut(number) {
                accepted.due = due.at;
                due.id = accepted.id;
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
        let times = recording.arrivals().map(|a| (a.at, a.due));
        // 5.39 us, and a second one 1 / 550 K s behind it.
        let times: Vec<_> = times.collect();
        assert_eq!(times, [(10, Some(5400)), (10, Some(7219))]);
        assert_eq!(recording.left_out(), 2);
        assert!(recorded.take_recording().is_none(), "it is taken");
    }

    #[test]
    fn operations_of_all_kinds_are_kept_as_they_were() {
        let preset = preset("samsung-kvssd").unwrap();
        let parameters: Parameters = preset.parameters(1 << 30, None).unwrap();
        let mut model = Model::new(&parameters).unwrap().recorded(4);
        let kv = |kind, hash, len| KvOp { kind, hash, len };
        let parts = [kv(KvKind::Store, 1, 4096), kv(KvKind::Delete, 2, 0)];
        let ops = [
            Op::Kv(kv(KvKind::Store, 0xe40c_292c, 100)),
            Op::Compound(&parts),
            Op::Flush,
        ];
        for (at, op) in (5..).zip(&ops) {
            model.submit(at, at, op);
        }
        // There is room for one more, but not for three parts.
        model.submit(9, 9, &Op::Compound(&[parts[0]; 3]));
        model.submit(9, 10, &Op::Flush);
        let done = all(&mut model);
        assert_eq!(done.len(), 5);
        let recording = model.take_recording().unwrap();
        let kept: Vec<_> = recording.arrivals().map(|a| (a.at, a.op)).collect();
        assert_eq!(kept, [(5, ops[0]), (6, ops[1]), (7, ops[2])]);
        assert_eq!(recording.left_out(), 2);
        let due = recording.arrivals().map(|arrival| arrival.due.unwrap());
        let of = |id: u64| done.iter().find(|due| due.id == id).unwrap().at;
        assert_eq!(due.collect::<Vec<_>>(), [of(5), of(6), of(7)]);
    }

    #[test]
    fn other_parameters_end_a_record() {
        let mut model = Model::new(&optane()).unwrap().recorded(10);
        model.submit(0, 1, &READ);
        model.retune(&optane()).unwrap();
        model.submit(6, 3, &READ);
        let recording = model.take_recording().unwrap();
        assert_eq!((recording.len(), recording.left_out()), (1, 1));
        assert_eq!(recording.arrivals().next().unwrap().due, None);
    }
}
