//! A namespace of the NVM command set, and commands to it.

use super::{Bench, Mem, Pair};
use crate::Verdict;
use crate::verdict::not_supported;
use crate::wire::{Cqe, Sqe, u8_at, u16_at, u32_at, u64_at};

/// Opcodes of the NVM command set (NVM 1.1, 3).
pub mod opcode {
    #![allow(missing_docs, reason = "their names are the specification's")]

    pub const FLUSH: u8 = 0x00;
    pub const WRITE: u8 = 0x01;
    pub const READ: u8 = 0x02;
    pub const WRITE_UNCORRECTABLE: u8 = 0x04;
    pub const COMPARE: u8 = 0x05;
    pub const WRITE_ZEROES: u8 = 0x08;
    pub const DATASET_MANAGEMENT: u8 = 0x09;
    pub const VERIFY: u8 = 0x0c;
    pub const RESERVATION_REGISTER: u8 = 0x0d;
    pub const RESERVATION_REPORT: u8 = 0x0e;
    pub const RESERVATION_ACQUIRE: u8 = 0x11;
    pub const RESERVATION_RELEASE: u8 = 0x15;
    pub const COPY: u8 = 0x19;
}

/// More blocks than any drive has; with less, no arithmetic on places overflows.
const BLOCKS_MAX: u64 = 1 << 47;
/// A limit of 2^n pages beyond which it is none.
const LIMIT_MAX: u8 = 40;

/// A namespace, as Identify tells of it.
#[derive(Clone, Debug)]
pub struct Ns {
    /// Its identifier.
    pub nsid: u32,
    /// Logical blocks (NSZE).
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_len: usize,
    /// Identify Namespace.
    pub identity: Vec<u8>,
}

impl Ns {
    /// Identify Namespace of `nsid`; nothing where it is inactive, or has metadata, which these
    /// tests have no place for.
    #[must_use]
    pub fn new(nsid: u32, identity: Vec<u8>) -> Option<Self> {
        let blocks = u64_at(&identity, 0);
        let flbas = usize::from(u8_at(&identity, 26));
        let index = flbas & 0xf | (flbas >> 5 & 0b11) << 4;
        let format = u32_at(&identity, 128 + 4 * index);
        let lbads = format >> 16 & 0xff;
        let usable =
            (1..=BLOCKS_MAX).contains(&blocks) && format & 0xffff == 0 && (9..=16).contains(&lbads);
        usable.then(|| Self {
            nsid,
            blocks,
            block_len: 1 << lbads,
            identity,
        })
    }

    /// Bytes of so many blocks.
    #[must_use]
    pub fn bytes(&self, blocks: u32) -> usize {
        self.block_len * usize::try_from(blocks).expect("32 bits fit")
    }

    /// A command with SLBA and NLB, the latter 0's based; it moves no data.
    #[must_use]
    pub fn sqe(&self, opcode: u8, slba: u64, blocks: u32) -> Sqe {
        Sqe::new(opcode)
            .nsid(self.nsid)
            .qword(10, slba)
            .dw(12, blocks.wrapping_sub(1) & 0xffff)
    }
}

impl Bench {
    /// The namespace to test on.
    ///
    /// # Errors
    /// Identify fails; not supported where there is none without metadata.
    pub fn ns(&mut self) -> Verdict<Ns> {
        let candidates = match self.options.nsid {
            Some(nsid) => vec![nsid],
            None => self.active()?,
        };
        for nsid in candidates {
            let identity = self.identify(0x00, nsid)?;
            if let Some(ns) = Ns::new(nsid, identity) {
                return Ok(ns);
            }
        }
        not_supported("there is no active namespace without metadata")
    }

    /// Bytes that one command may move: MDTS in units of CAP.MPSMIN; `None`
    /// where there is no limit.
    ///
    /// # Errors
    /// Identify fails.
    pub fn mdts(&mut self) -> Verdict<Option<usize>> {
        let mdts = u8_at(&self.controller()?, 77);
        Ok(match mdts {
            0 | LIMIT_MAX.. => None,
            mdts => Some(4096 << mdts),
        })
    }

    /// Not supported unless this bit of ONCS (Identify Controller, bytes
    /// 521:520) is set.
    ///
    /// # Errors
    /// It is not.
    pub fn needs_oncs(&mut self, bit: u32, name: &str) -> Verdict {
        let oncs = u16_at(&self.controller()?, 520);
        if oncs >> bit & 1 == 0 {
            return not_supported(format!("ONCS bit {bit}: no {name}"));
        }
        Ok(())
    }

    /// Not supported unless this bit of OACS (Identify Controller, bytes
    /// 257:256) is set.
    ///
    /// # Errors
    /// It is not.
    pub fn needs_oacs(&mut self, bit: u32, name: &str) -> Verdict {
        let oacs = u16_at(&self.controller()?, 256);
        if oacs >> bit & 1 == 0 {
            return not_supported(format!("OACS bit {bit}: no {name}"));
        }
        Ok(())
    }

    /// A namespace and a queue pair for it.
    ///
    /// # Errors
    /// Those of both.
    pub fn io(&mut self) -> Verdict<(Ns, Pair)> {
        let ns = self.ns()?;
        Ok((ns, self.pair(64)?))
    }

    /// A Read, Write or Compare of whole blocks at the start of `mem`.
    ///
    /// # Errors
    /// There is no memory for a list.
    pub fn transfer(
        &mut self,
        ns: &Ns,
        opcode: u8,
        slba: u64,
        blocks: u32,
        mem: &Mem,
    ) -> Verdict<Sqe> {
        let data = self.pointer(mem, 0, ns.bytes(blocks))?;
        Ok(ns.sqe(opcode, slba, blocks).data(data))
    }

    /// Writes `data`, whole blocks, at `slba`.
    ///
    /// # Errors
    /// It fails.
    pub fn write_blocks(&mut self, pair: &mut Pair, ns: &Ns, slba: u64, data: &[u8]) -> Verdict {
        let mem = self.mem(data.len())?;
        mem.write(0, data);
        let blocks = u32::try_from(data.len() / ns.block_len).expect("a few blocks");
        let sqe = self.transfer(ns, opcode::WRITE, slba, blocks, &mem)?;
        self.run(pair, sqe)?.ok().map(drop)
    }

    /// Reads whole blocks.
    ///
    /// # Errors
    /// It fails.
    pub fn read_blocks(
        &mut self,
        pair: &mut Pair,
        ns: &Ns,
        slba: u64,
        blocks: u32,
    ) -> Verdict<Vec<u8>> {
        let (cqe, data) = self.try_read_blocks(pair, ns, slba, blocks)?;
        cqe.ok()?;
        Ok(data)
    }

    /// Reads whole blocks, whatever the status.
    ///
    /// # Errors
    /// It does not complete.
    pub fn try_read_blocks(
        &mut self,
        pair: &mut Pair,
        ns: &Ns,
        slba: u64,
        blocks: u32,
    ) -> Verdict<(Cqe, Vec<u8>)> {
        let len = ns.bytes(blocks);
        let mem = self.mem(len)?;
        mem.fill(0xa5);
        let sqe = self.transfer(ns, opcode::READ, slba, blocks, &mem)?;
        let cqe = self.run(pair, sqe)?;
        Ok((cqe, mem.bytes(0, len)))
    }
}
