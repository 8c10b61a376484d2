//! A medium without contents whose hosts choose the operations of its timing model, for simulations
//! and for replays of recordings.
//!
//! Reads, writes and flushes are those of [`null`](crate::null). Every other operation of a model
//! ([`model::Op`]) is one of three vendor specific commands, which differ in the direction of their
//! data ([`command`]). Every operation succeeds: each key exists, with a value of any size, and
//! each zone may be written anywhere.
//!
//! ```text
//! CDW10, 11   first byte, zone, or hash of the key
//! CDW12, 13   bytes
//! CDW14       which operation
//! ```
//!
//! A compound command's data are its parts ([`part`]), of twelve bytes each: operation, hash,
//! bytes.
//!
//! Not included: keys, values and zones. It cannot be configured: it is of no use to other hosts.

use std::sync::Arc;

use memory::{DmaView, Segment};
use model::{KvKind, KvOp, Op, ZoneOp};
use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::Csi;
use nvme_spec::{Sqe, Status};
use port::namespace::Namespace;
use port::set::{Access, Asked, CommandSet, Data};
use port::ticket::Ticket;
use port::{Added, Cause, Channel, Done, Outcome, Request};

/// Opcodes, whose lowest bits give the data direction (Base 2.1, figure 91): none, from the host,
/// to the host.
const NO_DATA: u8 = 0xc0;
const FROM_HOST: u8 = 0xc1;
const TO_HOST: u8 = 0xc2;

/// Size of a part of a compound command in bytes.
pub const PART_LEN: usize = 12;
/// Maximum number of parts.
pub const PARTS_MAX: usize = 8;

/// Operations by their number in a command.
const KINDS: [KvKind; 6] = [
    KvKind::Store,
    KvKind::Append,
    KvKind::Retrieve,
    KvKind::Delete,
    KvKind::Exist,
    KvKind::List,
];
/// Numbers of the others.
const COMPOUND: u32 = 6;
const DEALLOCATE: u32 = 7;
const RESET: u32 = 8;
const FINISH: u32 = 9;
const OPEN: u32 = 10;
const CLOSE: u32 = 11;

fn number(kind: KvKind) -> u32 {
    // There are six.
    KINDS.iter().take_while(|other| **other != kind).count() as u32
}

/// The command for an operation, without data pointers and namespace, and the length of its data.
/// `None` for reads, writes and flushes, which have their own commands.
#[must_use]
pub fn command(op: &Op<'_>) -> Option<(Sqe, u32)> {
    let (opcode, what, place, len) = match *op {
        Op::Read { .. } | Op::Write { .. } | Op::Flush => return None,
        Op::Deallocate { offset, len } => (NO_DATA, DEALLOCATE, offset, len),
        Op::Zone(ZoneOp::Reset { zone }) => (NO_DATA, RESET, zone.into(), 0),
        Op::Zone(ZoneOp::Finish { zone }) => (NO_DATA, FINISH, zone.into(), 0),
        Op::Zone(ZoneOp::Open { zone }) => (NO_DATA, OPEN, zone.into(), 0),
        Op::Zone(ZoneOp::Close { zone }) => (NO_DATA, CLOSE, zone.into(), 0),
        Op::Kv(KvOp { kind, hash, len }) => {
            let opcode = match kind {
                KvKind::Store | KvKind::Append => FROM_HOST,
                KvKind::Retrieve | KvKind::List => TO_HOST,
                KvKind::Delete | KvKind::Exist => NO_DATA,
            };
            (opcode, number(kind), hash.into(), len.into())
        }
        Op::Compound(parts) => {
            let len = (parts.len() * PART_LEN) as u64;
            (FROM_HOST, COMPOUND, 0, len)
        }
    };
    let sqe = Sqe {
        opcode,
        cdw10: place as u32,
        cdw11: (place >> 32) as u32,
        cdw12: len as u32,
        cdw13: (len >> 32) as u32,
        cdw14: what,
        ..Sqe::default()
    };
    let data = if opcode == NO_DATA { 0 } else { len as u32 };
    Some((sqe, data))
}

/// A part of a compound command's data.
#[must_use]
pub fn part(op: &KvOp) -> [u8; PART_LEN] {
    let mut bytes = [0; PART_LEN];
    let words = [number(op.kind), op.hash, op.len];
    for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
        bytes.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

fn part_of(bytes: [u8; PART_LEN]) -> Option<KvOp> {
    let word = |at: usize| {
        let word = [bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]];
        u32::from_le_bytes(word)
    };
    Some(KvOp {
        kind: *KINDS.get(word(0) as usize)?,
        hash: word(4),
        len: word(8),
    })
}

fn words(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

/// The operation of a command, without the parts of a compound one. `None` if it is not valid.
pub(crate) fn op_of(sqe: &Sqe) -> Option<Op<'static>> {
    let place = words(sqe.cdw10, sqe.cdw11);
    let len = words(sqe.cdw12, sqe.cdw13);
    let zone = || u32::try_from(place).ok();
    Some(match sqe.cdw14 {
        COMPOUND => Op::Compound(&[]),
        DEALLOCATE => Op::Deallocate { offset: place, len },
        RESET => Op::Zone(ZoneOp::Reset { zone: zone()? }),
        FINISH => Op::Zone(ZoneOp::Finish { zone: zone()? }),
        OPEN => Op::Zone(ZoneOp::Open { zone: zone()? }),
        CLOSE => Op::Zone(ZoneOp::Close { zone: zone()? }),
        kind => Op::Kv(KvOp {
            kind: *KINDS.get(kind as usize)?,
            hash: u32::try_from(place).ok()?,
            len: u32::try_from(len).ok()?,
        }),
    })
}

/// Commands of its namespaces, in addition to the NVM command set.
#[derive(Debug)]
pub(crate) struct ScriptedSet;

impl CommandSet for ScriptedSet {
    fn csi(&self) -> Csi {
        Csi::NVM
    }

    fn command(&self, sqe: &Sqe, _: &Namespace) -> Result<Option<Asked>, Status> {
        let len = words(sqe.cdw12, sqe.cdw13);
        let (access, data) = match sqe.opcode {
            NO_DATA => (Access::Changes, Data::Nothing),
            FROM_HOST | TO_HOST if len == 0 => (Access::Changes, Data::Nothing),
            FROM_HOST => (Access::Changes, Data::FromHost(len)),
            TO_HOST => (Access::Reads, Data::ToHost(len)),
            _ => return Ok(None),
        };
        Ok(Some(Asked { access, data }))
    }

    fn effects(&self, opcode: u8) -> Option<CommandEffects> {
        let changes = matches!(opcode, NO_DATA | FROM_HOST);
        (changes || opcode == TO_HOST)
            .then(|| CommandEffects::new().with_csupp(true).with_lbcc(changes))
    }
}

/// A reactor's handle on the medium.
#[derive(Debug)]
pub(crate) struct ScriptedChannel {
    /// The last operation, and the parts of a compound one.
    last: Option<Op<'static>>,
    parts: [KvOp; PARTS_MAX],
    count: usize,
}

impl ScriptedChannel {
    pub(crate) fn new() -> Self {
        const NOTHING: KvOp = KvOp {
            kind: KvKind::Exist,
            hash: 0,
            len: 0,
        };
        ScriptedChannel {
            last: None,
            parts: [NOTHING; PARTS_MAX],
            count: 0,
        }
    }

    /// See [`crate::Channel::last_op`].
    pub(crate) fn last_op(&self) -> Option<Op<'_>> {
        match self.last? {
            Op::Compound(_) => Some(Op::Compound(&self.parts[..self.count])),
            op => Some(op),
        }
    }

    fn take(&mut self, sqe: &Sqe, segments: &[Segment<'_>]) -> Option<()> {
        let op = op_of(sqe)?;
        if matches!(op, Op::Compound(_)) {
            // Parts do not cross pages.
            let [segment] = segments else {
                return None;
            };
            let mut bytes = [0; PARTS_MAX * PART_LEN];
            let bytes = bytes.get_mut(..segment.len() as usize)?;
            segment.read_into(0, bytes);
            let (parts, []) = bytes.as_chunks::<PART_LEN>() else {
                return None;
            };
            self.count = parts.len();
            for (place, part) in self.parts.iter_mut().zip(parts) {
                *place = part_of(*part)?;
            }
        }
        self.last = Some(op);
        Some(())
    }
}

impl Channel for ScriptedChannel {
    // Not inlined: otherwise the commands to all media would save the registers that this needs.
    #[inline(never)]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        self.last = None;
        let taken = match request {
            Request::Command { sqe, .. } => self.take(sqe, segments),
            _ => Some(()),
        };
        let outcome = match taken {
            Some(()) => Outcome::OK,
            None => Outcome::of(Cause::Unsupported),
        };
        Added::Done(ticket, outcome)
    }

    fn submit(&mut self) {}

    fn reap(&mut self, _: &mut Vec<Done>) {}

    fn in_flight(&self) -> u32 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_comes_as_it_was_asked_for() {
        let kv = |kind, len| {
            let hash = 0xe40c_292c;
            Op::Kv(KvOp { kind, hash, len })
        };
        let ops = [
            kv(KvKind::Store, 2 << 20),
            kv(KvKind::Append, 0),
            kv(KvKind::Retrieve, 1),
            kv(KvKind::Delete, 0),
            kv(KvKind::Exist, 0),
            kv(KvKind::List, 4096),
            Op::Deallocate {
                offset: 1 << 40,
                len: 1 << 33,
            },
            Op::Zone(ZoneOp::Reset { zone: 7 }),
            Op::Zone(ZoneOp::Finish { zone: u32::MAX }),
            Op::Zone(ZoneOp::Open { zone: 0 }),
            Op::Zone(ZoneOp::Close { zone: 1 }),
        ];
        for op in ops {
            let (sqe, data) = command(&op).unwrap();
            assert_eq!(op_of(&sqe), Some(op));
            let moves = match op {
                Op::Kv(KvOp { len, .. }) => len,
                _ => 0,
            };
            assert_eq!(data, moves, "{op:?}");
        }
        assert_eq!(command(&Op::Flush), None);
        let (mut sqe, _) = command(&ops[0]).unwrap();
        sqe.cdw14 = 12;
        assert_eq!(op_of(&sqe), None);
        sqe.cdw14 = RESET;
        sqe.cdw11 = 1;
        assert_eq!(op_of(&sqe), None, "there is no such zone");
    }

    #[test]
    fn parts_come_as_they_were() {
        for kind in KINDS {
            let op = KvOp {
                kind,
                hash: 5,
                len: 1 << 20,
            };
            assert_eq!(part_of(part(&op)), Some(op));
        }
        assert_eq!(part_of([6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), None);
        let (sqe, data) = command(&Op::Compound(&[])).unwrap();
        assert_eq!((op_of(&sqe), data), (Some(Op::Compound(&[])), 0));
    }
}
