//! The NVM command set on a queue pair: commands to submit, and helpers that execute one and wait
//! for it (NVM 1.1, 3).

use memory::Buffer;
use nvme_spec::command::{
    DSM_RANGES_MAX, DsmCdw10, DsmCdw11, DsmRange, ReadWriteCdw12, WriteZeroesCdw12, slba_cdw10_11,
};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::{Cqe, Sqe};
use zerocopy::IntoBytes;

use crate::bus::Bus;
use crate::{DriverError, QueuePair};

/// A namespace as a host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// Namespace Identifier.
    pub nsid: u32,
    /// Logical blocks (NSZE).
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_len: u32,
}

impl Namespace {
    /// Bytes of the namespace.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_len))
    }

    /// Whether it has no blocks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.blocks == 0
    }

    /// A Read, Write or Compare of `nlb` blocks from `lba` on, without data
    /// pointers.
    #[inline]
    #[must_use]
    pub fn transfer(&self, opcode: NvmOpcode, lba: u64, nlb: Blocks, fua: bool) -> Sqe {
        let (cdw10, cdw11) = slba_cdw10_11(lba);
        Sqe {
            opcode: opcode.0,
            nsid: self.nsid,
            cdw10,
            cdw11,
            cdw12: const { ReadWriteCdw12::new() }
                .with_nlb_z(nlb.zero_based())
                .with_fua(fua)
                .into(),
            ..Sqe::default()
        }
    }
}

/// A number of logical blocks that a command can carry: 1 to 65536.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks(u32);

impl Blocks {
    /// `None` for 0 and for more than a 0's based field of 16 bits holds.
    #[inline]
    #[must_use]
    pub fn new(count: u32) -> Option<Self> {
        (1..=1 << 16).contains(&count).then_some(Self(count))
    }

    /// How many.
    #[must_use]
    pub fn get(self) -> u32 {
        self.0
    }

    #[inline]
    fn zero_based(self) -> u16 {
        u16::try_from(self.0 - 1).expect("1 to 65536 by construction")
    }
}

fn blocks(count: u32) -> Result<Blocks, DriverError> {
    Blocks::new(count).ok_or_else(|| {
        DriverError::Unsupported(format!("a command has 1 to 65536 blocks, not {count}"))
    })
}

impl<B: Bus> QueuePair<B> {
    /// Reads `nlb` blocks from `lba` on into the start of `buffer`.
    ///
    /// # Errors
    /// As [`QueuePair::run`]; [`DriverError::Unsupported`] for a count that no
    /// command can carry, and for a buffer that is too small.
    pub fn read(
        &mut self,
        namespace: &Namespace,
        lba: u64,
        nlb: u32,
        buffer: &Buffer,
    ) -> Result<Cqe, DriverError> {
        self.transfer("Read", NvmOpcode::READ, namespace, lba, nlb, buffer, false)
    }

    /// Writes `nlb` blocks from the start of `buffer` to `lba` on; with `fua`
    /// they are durable when this returns.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn write(
        &mut self,
        namespace: &Namespace,
        lba: u64,
        nlb: u32,
        buffer: &Buffer,
        fua: bool,
    ) -> Result<Cqe, DriverError> {
        self.transfer("Write", NvmOpcode::WRITE, namespace, lba, nlb, buffer, fua)
    }

    /// Compares `nlb` blocks from `lba` on with the start of `buffer`; a
    /// difference is the status Compare Failure.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn compare(
        &mut self,
        namespace: &Namespace,
        lba: u64,
        nlb: u32,
        buffer: &Buffer,
    ) -> Result<Cqe, DriverError> {
        self.transfer(
            "Compare",
            NvmOpcode::COMPARE,
            namespace,
            lba,
            nlb,
            buffer,
            false,
        )
    }

    #[expect(clippy::too_many_arguments, reason = "the fields of one command")]
    fn transfer(
        &mut self,
        name: &'static str,
        opcode: NvmOpcode,
        namespace: &Namespace,
        lba: u64,
        nlb: u32,
        buffer: &Buffer,
        fua: bool,
    ) -> Result<Cqe, DriverError> {
        let nlb = blocks(nlb)?;
        let len = u64::from(nlb.get()) * u64::from(namespace.block_len);
        let len = usize::try_from(len).expect("65536 blocks fit in an address space");
        if len > buffer.len() {
            return Err(DriverError::Unsupported(format!(
                "{name} of {len} bytes does not fit in a buffer of {}",
                buffer.len()
            )));
        }
        let mut sqe = namespace.transfer(opcode, lba, nlb, fua);
        self.set_data(&mut sqe, buffer, len)?;
        self.run(name, sqe)
    }

    /// Fills in the data pointers for the command that is submitted next.
    pub(crate) fn set_data(
        &self,
        sqe: &mut Sqe,
        buffer: &Buffer,
        len: usize,
    ) -> Result<(), DriverError> {
        // A full queue pair has no slot; the submission that follows says so.
        let Some(cid) = self.next_cid() else {
            return Ok(());
        };
        self.pointer(cid, buffer, 0, len)?.put(sqe);
        Ok(())
    }

    /// Makes everything written to the namespace durable.
    ///
    /// # Errors
    /// As [`QueuePair::run`].
    pub fn flush(&mut self, nsid: u32) -> Result<Cqe, DriverError> {
        self.run(
            "Flush",
            Sqe {
                opcode: NvmOpcode::FLUSH.0,
                nsid,
                ..Sqe::default()
            },
        )
    }

    /// Makes `nlb` blocks from `lba` on read as zeros; with `deallocate` the
    /// drive may give their space back.
    ///
    /// # Errors
    /// As [`QueuePair::run`]; [`DriverError::Unsupported`] for a count that no
    /// command can carry.
    pub fn write_zeroes(
        &mut self,
        namespace: &Namespace,
        lba: u64,
        nlb: u32,
        deallocate: bool,
    ) -> Result<Cqe, DriverError> {
        let nlb = blocks(nlb)?;
        let mut sqe = namespace.transfer(NvmOpcode::WRITE_ZEROES, lba, nlb, false);
        sqe.cdw12 = WriteZeroesCdw12::new()
            .with_nlb_z(nlb.zero_based())
            .with_deac(deallocate)
            .into();
        self.run("Write Zeroes", sqe)
    }

    /// Tells the drive that the blocks of `ranges` (first block, number of
    /// blocks) are not needed. `scratch` holds the list of ranges, 16 bytes
    /// each, until this returns.
    ///
    /// # Errors
    /// As [`QueuePair::run`]; [`DriverError::Unsupported`] for no range, more
    /// than 256, or more than `scratch` holds.
    pub fn deallocate(
        &mut self,
        nsid: u32,
        ranges: &[(u64, u32)],
        scratch: &Buffer,
    ) -> Result<Cqe, DriverError> {
        let len = size_of_val(&[DsmRange::default()]) * ranges.len();
        if ranges.is_empty() || ranges.len() > DSM_RANGES_MAX || len > scratch.len() {
            return Err(DriverError::Unsupported(format!(
                "Dataset Management takes 1 to {DSM_RANGES_MAX} ranges of 16 bytes, not {} in {} bytes",
                ranges.len(),
                scratch.len()
            )));
        }
        for (index, &(slba, nlb)) in ranges.iter().enumerate() {
            let range = DsmRange {
                cattr: 0,
                nlb,
                slba,
            };
            scratch.write_from(index * size_of::<DsmRange>(), range.as_bytes());
        }
        let nr_z = u8::try_from(ranges.len() - 1).expect("1 to 256 were let through");
        let mut sqe = Sqe {
            opcode: NvmOpcode::DATASET_MANAGEMENT.0,
            nsid,
            cdw10: DsmCdw10::new().with_nr_z(nr_z).into(),
            cdw11: DsmCdw11::new().with_ad(true).into(),
            ..Sqe::default()
        };
        self.set_data(&mut sqe, scratch, len)?;
        self.run("Dataset Management", sqe)
    }
}
