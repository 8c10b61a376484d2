//! The query for allocated blocks, which a host inside the process sends as an I/O command.
//!
//! NVMe has Get LBA Status with action 02h for it, an admin command. This query is an I/O command
//! of a vendor's opcode instead: it goes to the medium on the lane of the reads and writes beside
//! it, may end later as they may, and its completion holds the answer. Only controllers of hosts
//! inside the process accept it, and only for namespaces with
//! [`MediumTraits::allocation`](crate::MediumTraits::allocation).
//!
//! Invariants: a query has an answer of at least one block, and no more than were asked for. Blocks
//! that are reported as not allocated read as zeroes. The answer includes every change that has
//! completed before the query. "Allocated" is always a valid answer.

use nvme_spec::Sqe;
use nvme_spec::command::{slba, slba_cdw10_11};
use nvme_spec::opcode::NvmOpcode;

/// Opcode of the query: a vendor's, without data.
pub const OPCODE: NvmOpcode = NvmOpcode(0xfc);

/// Bit of the answer: the blocks are not allocated.
const HOLE: u64 = 1 << 32;

/// Blocks whose allocation a host asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Query {
    /// First block.
    pub slba: u64,
    /// Number of blocks; 0 is invalid.
    pub blocks: u32,
}

impl Query {
    /// The query in a command with [`OPCODE`].
    #[must_use]
    pub fn of(sqe: &Sqe) -> Self {
        Query {
            slba: slba(sqe),
            blocks: sqe.cdw12,
        }
    }

    /// Its command, to the namespace `nsid` and with the command identifier `cid`.
    #[must_use]
    pub fn command(&self, nsid: u32, cid: u16) -> Sqe {
        let (cdw10, cdw11) = slba_cdw10_11(self.slba);
        Sqe {
            opcode: OPCODE.0,
            cid,
            nsid,
            cdw10,
            cdw11,
            cdw12: self.blocks,
            ..Sqe::default()
        }
    }
}

/// Allocation of the first blocks of a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Number of blocks, at least one.
    pub blocks: u32,
    /// They have no space in the storage, and read as zeroes.
    pub is_hole: bool,
}

impl Run {
    /// Dwords 0 and 1 of the query's completion: the number of blocks, and bit 0 for a hole.
    #[must_use]
    pub const fn to_result(self) -> u64 {
        let hole = if self.is_hole { HOLE } else { 0 };
        self.blocks as u64 | hole
    }

    /// The answer in a completion.
    #[must_use]
    pub const fn of(dw0: u32, dw1: u32) -> Self {
        Run {
            blocks: dw0,
            is_hole: (dw1 as u64) << 32 & HOLE != 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn query_and_answer_survive_a_command() {
        let query = Query {
            slba: 0x0102_0304_0506_0708,
            blocks: u32::MAX,
        };
        let sqe = query.command(7, 9);
        assert_eq!((sqe.opcode, sqe.nsid, sqe.cid), (0xfc, 7, 9));
        assert_eq!(Query::of(&sqe), query);
        for is_hole in [false, true] {
            let run = Run {
                blocks: u32::MAX,
                is_hole,
            };
            let result = run.to_result();
            assert_ne!(result, crate::Outcome::NO_RESULT);
            assert_eq!(Run::of(result as u32, (result >> 32) as u32), run);
        }
    }
}
