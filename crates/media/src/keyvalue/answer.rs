//! What a command of a dialect ends with, and what it costs.

use model::{KvKind, KvOp, Op};
use nvme_spec::Status;
use nvme_spec::samsung::SUB_COMMANDS_MAX;

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

/// What a command was for the timing model: one operation, those of a compound command, or none where it was refused before
/// anything was looked at.
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
            hash: fnv1a32(key),
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

/// FNV-1a, 32 bits; 0 for no key.
fn fnv1a32(key: &[u8]) -> u32 {
    if key.is_empty() {
        return 0;
    }
    key.iter().fold(2_166_136_261, |hash: u32, byte| {
        (hash ^ u32::from(*byte)).wrapping_mul(16_777_619)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_published_vectors() {
        // The test vectors of the draft of FNV (Fowler, Noll, Vo, Eastlake).
        assert_eq!(fnv1a32(b"a"), 0xe40c_292c);
        assert_eq!(fnv1a32(b"foobar"), 0xbf9c_f968);
        assert_eq!(fnv1a32(b""), 0);
    }
}
