//! Entries of the submission queue.

use nvme_spec::Sqe;
use nvme_spec::command::{DsmCdw10, DsmCdw11, ReadWriteCdw12, WriteZeroesCdw12, slba_cdw10_11};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};
use nvme_spec::sqe::{CommandFlags, Fuse, Psdt};
use port::allocation::Query;

use super::split::Piece;
use crate::host::{BASE, PAGE};

/// Commands of one slot of a client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    /// Namespace of the export.
    pub(super) nsid: u32,
    pub(super) lba_shift: u8,
    /// Command identifier.
    pub(super) cid: u16,
    /// Where the slot lies in the private memory.
    pub(super) at: usize,
}

impl Entries {
    fn of(&self, opcode: NvmOpcode) -> Sqe {
        Sqe {
            opcode: opcode.0,
            cid: self.cid,
            nsid: self.nsid,
            ..Sqe::default()
        }
    }

    fn blocks(&self, opcode: NvmOpcode, piece: &Piece) -> Sqe {
        let (cdw10, cdw11) = slba_cdw10_11(piece.slba);
        Sqe {
            cdw10,
            cdw11,
            ..self.of(opcode)
        }
    }

    /// With `len` bytes of data from the start of the slot on.
    ///
    /// Up to two pages have a PRP each, which is the controller's short way. Beyond that one
    /// descriptor spares a list.
    fn with_data(&self, mut sqe: Sqe, len: u64) -> Sqe {
        let (address, page) = (BASE + self.at as u64, PAGE as u64);
        if len <= 2 * page {
            sqe.prp1 = address;
            sqe.prp2 = if len > page { address + page } else { 0 };
        } else {
            sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
            let len = len as u32;
            sqe.set_sgl1(SglDescriptor::new(
                SglDescriptorType::DATA_BLOCK,
                address,
                len,
            ));
        }
        sqe
    }

    /// Read of the blocks of a piece.
    pub(super) fn read(&self, piece: &Piece) -> Sqe {
        let cdw12 = ReadWriteCdw12::new().with_nlb_z(nlb_z(piece));
        let sqe = Sqe {
            cdw12: cdw12.into(),
            ..self.blocks(NvmOpcode::READ, piece)
        };
        self.with_data(sqe, piece.blocks << self.lba_shift)
    }

    /// Write of the whole blocks of a piece.
    pub(super) fn write(&self, piece: &Piece, fua: bool) -> Sqe {
        let cdw12 = ReadWriteCdw12::new().with_nlb_z(nlb_z(piece)).with_fua(fua);
        let sqe = Sqe {
            cdw12: cdw12.into(),
            ..self.blocks(NvmOpcode::WRITE, piece)
        };
        self.with_data(sqe, piece.blocks << self.lba_shift)
    }

    /// Compare with the first page of the slot, and Write of the second one: of one block, as one
    /// (NVM 1.1, 2.1.3). The identifier of the second is `second`.
    pub(super) fn exchange(&self, piece: &Piece, fua: bool, second: u16) -> [Sqe; 2] {
        let compare = Sqe {
            flags: CommandFlags::new().with_fuse(Fuse::FIRST),
            prp1: BASE + self.at as u64,
            ..self.blocks(NvmOpcode::COMPARE, piece)
        };
        let cdw12 = ReadWriteCdw12::new().with_fua(fua);
        let write = Sqe {
            flags: CommandFlags::new().with_fuse(Fuse::SECOND),
            cid: second,
            prp1: BASE + (self.at + PAGE) as u64,
            cdw12: cdw12.into(),
            ..self.blocks(NvmOpcode::WRITE, piece)
        };
        [compare, write]
    }

    /// Write Zeroes of the whole blocks of a piece.
    pub(super) fn zero(&self, piece: &Piece, fua: bool, deallocates: bool) -> Sqe {
        let cdw12 = WriteZeroesCdw12::new()
            .with_nlb_z(nlb_z(piece))
            .with_deac(deallocates)
            .with_fua(fua);
        Sqe {
            cdw12: cdw12.into(),
            ..self.blocks(NvmOpcode::WRITE_ZEROES, piece)
        }
    }

    /// Dataset Management that deallocates the one range in the slot.
    pub(super) fn deallocate(&self) -> Sqe {
        let sqe = Sqe {
            cdw10: DsmCdw10::new().with_nr_z(0).into(),
            cdw11: DsmCdw11::new().with_ad(true).into(),
            ..self.of(NvmOpcode::DATASET_MANAGEMENT)
        };
        self.with_data(sqe, 16)
    }

    /// Query for allocated blocks.
    pub(super) fn allocation(&self, query: Query) -> Sqe {
        query.command(self.nsid, self.cid)
    }

    /// Flush.
    pub(super) fn flush(&self) -> Sqe {
        self.of(NvmOpcode::FLUSH)
    }
}

/// Number of blocks as commands have it: at most 65536.
fn nlb_z(piece: &Piece) -> u16 {
    debug_assert!((1..=1 << 16).contains(&piece.blocks));
    (piece.blocks - 1) as u16
}
