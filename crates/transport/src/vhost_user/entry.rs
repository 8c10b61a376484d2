//! Entries of the submission queue, whose data lie in the guest's memory.

use arrayvec::ArrayVec;
use memory::HostMemory;
use nvme_spec::Sqe;
use nvme_spec::command::{DsmCdw10, DsmCdw11, ReadWriteCdw12, WriteZeroesCdw12, slba_cdw10_11};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::sgl::{SGL_DESCRIPTOR_SIZE, SglDescriptor, SglDescriptorType};
use nvme_spec::sqe::Psdt;
use zerocopy::IntoBytes as _;

use super::queue::MAX_PIECES;
use super::request::Data;
use crate::host::{BASE, PAGE};

const _: () = assert!(MAX_PIECES * SGL_DESCRIPTOR_SIZE as usize <= PAGE);

/// Commands of one slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entries {
    pub(super) nsid: u32,
    /// Command identifier.
    pub(super) cid: u16,
    /// A page of the private memory for the list of pieces.
    pub(super) list_at: usize,
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

    fn blocks(&self, opcode: NvmOpcode, slba: u64) -> Sqe {
        let (cdw10, cdw11) = slba_cdw10_11(slba);
        Sqe {
            cdw10,
            cdw11,
            ..self.of(opcode)
        }
    }

    /// With data in the guest's memory. What PRPs can say of one piece is the controller's short
    /// way; else a descriptor is for each piece.
    fn with_data(&self, mut sqe: Sqe, data: &Data<'_>, memory: &HostMemory) -> Sqe {
        let mut pieces = data.iter();
        let page = PAGE as u64;
        let first = pieces.next();
        if let (Some((at, len)), None) = (first, pieces.next()) {
            let in_first = page - at % page;
            if at % 4 == 0 && u64::from(len) <= in_first + page {
                sqe.prp1 = at;
                sqe.prp2 = if u64::from(len) > in_first {
                    at + in_first
                } else {
                    0
                };
                return sqe;
            }
            sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
            sqe.set_sgl1(SglDescriptor::new(SglDescriptorType::DATA_BLOCK, at, len));
            return sqe;
        }
        let block = |(at, len)| SglDescriptor::new(SglDescriptorType::DATA_BLOCK, at, len);
        let list: ArrayVec<SglDescriptor, MAX_PIECES> = data.iter().map(block).collect();
        memory.write(self.list_at, list.as_bytes());
        sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
        let len = list.len() as u32 * SGL_DESCRIPTOR_SIZE;
        let at = BASE + self.list_at as u64;
        sqe.set_sgl1(SglDescriptor::new(SglDescriptorType::LAST_SEGMENT, at, len));
        sqe
    }

    /// Read of as many blocks as the data have.
    pub(super) fn read(&self, at: Blocks, data: &Data<'_>, memory: &HostMemory) -> Sqe {
        let cdw12 = ReadWriteCdw12::new().with_nlb_z(at.nlb_z());
        let sqe = Sqe {
            cdw12: cdw12.into(),
            ..self.blocks(NvmOpcode::READ, at.slba)
        };
        self.with_data(sqe, data, memory)
    }

    /// Write of as many blocks as the data have.
    pub(super) fn write(&self, at: Blocks, fua: bool, data: &Data<'_>, memory: &HostMemory) -> Sqe {
        let cdw12 = ReadWriteCdw12::new().with_nlb_z(at.nlb_z()).with_fua(fua);
        let sqe = Sqe {
            cdw12: cdw12.into(),
            ..self.blocks(NvmOpcode::WRITE, at.slba)
        };
        self.with_data(sqe, data, memory)
    }

    /// Write Zeroes.
    pub(super) fn zero(&self, at: Blocks, fua: bool, deallocates: bool) -> Sqe {
        let cdw12 = WriteZeroesCdw12::new()
            .with_nlb_z(at.nlb_z())
            .with_deac(deallocates)
            .with_fua(fua);
        Sqe {
            cdw12: cdw12.into(),
            ..self.blocks(NvmOpcode::WRITE_ZEROES, at.slba)
        }
    }

    /// Dataset Management that deallocates the ranges in the list: 1 to 256.
    pub(super) fn deallocate(&self, ranges: usize) -> Sqe {
        Sqe {
            cdw10: DsmCdw10::new().with_nr_z((ranges - 1) as u8).into(),
            cdw11: DsmCdw11::new().with_ad(true).into(),
            prp1: BASE + self.list_at as u64,
            ..self.of(NvmOpcode::DATASET_MANAGEMENT)
        }
    }

    /// Flush.
    pub(super) fn flush(&self) -> Sqe {
        self.of(NvmOpcode::FLUSH)
    }
}

/// Blocks of one command: 1 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Blocks {
    pub(super) slba: u64,
    pub(super) count: u64,
}

impl Blocks {
    fn nlb_z(self) -> u16 {
        debug_assert!((1..=1 << 16).contains(&self.count));
        (self.count - 1) as u16
    }
}
