//! Entries of the submission queue, whose data lie in one piece of private memory.

use nvme_spec::Sqe;
use nvme_spec::command::{
    DsmCdw10, DsmCdw11, DsmRange, ReadWriteCdw12, WriteZeroesCdw12, slba_cdw10_11,
};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};
use nvme_spec::sqe::Psdt;

use super::rings::{BASE, PAGE};

/// Blocks of one command: 1 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    /// First one.
    pub(crate) slba: u64,
    pub(crate) count: u64,
}

impl Blocks {
    pub(crate) fn nlb_z(self) -> u16 {
        debug_assert!((1..=1 << 16).contains(&self.count));
        (self.count - 1) as u16
    }
}

/// Commands with one identifier.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entries {
    pub(crate) nsid: u32,
    /// Command identifier.
    pub(crate) cid: u16,
    /// Where the data lie in the private memory: at the begin of a page.
    pub(crate) at: usize,
}

impl Entries {
    /// A command without data or blocks.
    pub(crate) fn of(&self, opcode: u8) -> Sqe {
        Sqe {
            opcode,
            cid: self.cid,
            nsid: self.nsid,
            ..Sqe::default()
        }
    }

    /// A command from a block on.
    pub(crate) fn at_block(&self, opcode: u8, slba: u64) -> Sqe {
        let (cdw10, cdw11) = slba_cdw10_11(slba);
        Sqe {
            cdw10,
            cdw11,
            ..self.of(opcode)
        }
    }

    /// With `len` bytes of data.
    ///
    /// Up to two pages have a PRP each, which is the controller's short way. Beyond that one
    /// descriptor spares a list.
    pub(crate) fn with_data(&self, mut sqe: Sqe, len: u64) -> Sqe {
        let (address, page) = (BASE + self.at as u64, PAGE as u64);
        if len <= 2 * page {
            sqe.prp1 = address;
            sqe.prp2 = if len > page { address + page } else { 0 };
        } else {
            sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
            let kind = SglDescriptorType::DATA_BLOCK;
            sqe.set_sgl1(SglDescriptor::new(kind, address, len as u32));
        }
        sqe
    }

    /// Read. Without its data.
    pub(crate) fn read(&self, blocks: Blocks) -> Sqe {
        let cdw12 = ReadWriteCdw12::new().with_nlb_z(blocks.nlb_z());
        Sqe {
            cdw12: cdw12.into(),
            ..self.at_block(NvmOpcode::READ.0, blocks.slba)
        }
    }

    /// Write. Without its data.
    pub(crate) fn write(&self, blocks: Blocks, fua: bool) -> Sqe {
        let cdw12 = ReadWriteCdw12::new()
            .with_nlb_z(blocks.nlb_z())
            .with_fua(fua);
        Sqe {
            cdw12: cdw12.into(),
            ..self.at_block(NvmOpcode::WRITE.0, blocks.slba)
        }
    }

    /// Write Zeroes.
    pub(crate) fn zero(&self, blocks: Blocks, fua: bool, deallocates: bool) -> Sqe {
        let cdw12 = WriteZeroesCdw12::new()
            .with_nlb_z(blocks.nlb_z())
            .with_deac(deallocates)
            .with_fua(fua);
        Sqe {
            cdw12: cdw12.into(),
            ..self.at_block(NvmOpcode::WRITE_ZEROES.0, blocks.slba)
        }
    }

    /// Dataset Management that deallocates the ranges that the data are: 1 to 256.
    pub(crate) fn deallocate(&self, ranges: usize) -> Sqe {
        let sqe = Sqe {
            cdw10: DsmCdw10::new().with_nr_z((ranges - 1) as u8).into(),
            cdw11: DsmCdw11::new().with_ad(true).into(),
            ..self.of(NvmOpcode::DATASET_MANAGEMENT.0)
        };
        self.with_data(sqe, (ranges * size_of::<DsmRange>()) as u64)
    }

    /// Flush.
    pub(crate) fn flush(&self) -> Sqe {
        self.of(NvmOpcode::FLUSH.0)
    }
}
