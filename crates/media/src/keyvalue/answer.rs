//! Result and cost of a command of a dialect.

use model::{KvKind, KvOp, Op, key_hash};
use nvme_spec::Status;
use nvme_spec::samsung::SUB_COMMANDS_MAX;
use port::{Cause, Outcome};

/// Size of the head of returned keys, which is known only at the end.
pub(super) const HEAD: usize = 4;

/// Result of a command.
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

    /// A status without a result.
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

/// A command as the timing model sees it: one operation, those of a compound command, or none if it
/// was rejected before any access.
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

    /// Makes the following operations those of one compound command.
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

    /// The operation for the timing model.
    pub(crate) fn op(&self) -> Option<Op<'_>> {
        match &self.ops[..self.count] {
            [] => None,
            [op] if !self.compound => Some(Op::Kv(*op)),
            ops => Some(Op::Compound(ops)),
        }
    }
}
