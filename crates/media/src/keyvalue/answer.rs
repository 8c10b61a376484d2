//! What a command of a dialect ends with, and what it costs.

use model::{KvKind, KvOp, Op, key_hash};
use nvme_spec::Status;
use nvme_spec::samsung::SUB_COMMANDS_MAX;
use port::{Cause, Outcome};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Status,
    /// Dword 0 of the completion.
    pub(super) result: u32,
}

impl Answer {
    /// Success, with a result.
    pub(super) const fn ok(result: u32) -> Self {
        Answer {
            status: Status::SUCCESSFUL_COMPLETION,
            result,
        }
    }

    /// A status, and nothing else.
    pub(super) const fn of(status: Status) -> Self {
        Answer { status, result: 0 }
    }
}

impl From<Answer> for Outcome {
    fn from(answer: Answer) -> Self {
        let cause = if answer.status.is_success() {
            Cause::None
        } else {
            Cause::Status(answer.status)
        };
        Outcome {
            cause,
            result: answer.result.into(),
            ..Outcome::OK
        }
    }
}

/// What a command was for the timing model: one operation, those of a compound command, or none
/// where it was refused before anything was looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ops {
    ops: [KvOp; SUB_COMMANDS_MAX],
    count: usize,
    compound: bool,
}

impl Ops {
    pub(super) const NONE: Ops = Ops {
        ops: [KvOp {
            kind: KvKind::Exist,
            hash: 0,
            len: 0,
        }; SUB_COMMANDS_MAX],
        count: 0,
        compound: false,
    };

    /// The operations from now on are those of one compound command.
    pub(super) fn compound(&mut self) {
        self.compound = true;
    }

    /// Adds an operation; [`SUB_COMMANDS_MAX`] at most.
    pub(super) fn push(&mut self, kind: KvKind, key: &[u8], len: u32) {
        self.ops[self.count] = KvOp {
            kind,
            hash: key_hash(key),
            len,
        };
        self.count += 1;
    }

    /// What the timing model is asked.
    pub(crate) fn op(&self) -> Option<Op<'_>> {
        match &self.ops[..self.count] {
            [] => None,
            [op] if !self.compound => Some(Op::Kv(*op)),
            ops => Some(Op::Compound(ops)),
        }
    }
}
