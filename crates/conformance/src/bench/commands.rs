//! Admin commands that many tests need.

use super::{Bench, Mem};
use crate::Verdict;
use crate::verdict::fail;
use crate::wire::{Cqe, Sqe, u32_at, u64_at};

/// Get Features' Select (Base 2.1, 5.1.11).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Feature {
    /// 000b.
    Current,
    /// 001b.
    Default,
    /// 010b.
    Saved,
    /// 011b.
    Supported,
}

impl Feature {
    /// The value of SEL.
    #[must_use]
    pub fn sel(self) -> u32 {
        match self {
            Self::Current => 0,
            Self::Default => 1,
            Self::Saved => 2,
            Self::Supported => 3,
        }
    }
}

/// Bytes of the data of Get Features for a feature (Base 2.1, 5.1.25).
fn feature_len(fid: u32) -> usize {
    match fid {
        // LBA Range Type.
        0x03 => 4096,
        // Autonomous Power State Transition.
        0x0c => 256,
        // Timestamp.
        0x0e => 8,
        // Host Behavior Support.
        0x16 => 512,
        // Host Identifier, as hosts over fabrics have it.
        0x81 => 16,
        _ => 0,
    }
}

impl Bench {
    /// An Identify command (opcode 06h) with this CNS and a page for its data.
    ///
    /// # Errors
    /// There is no memory.
    pub fn identify_sqe(&mut self, cns: u32, nsid: u32) -> Verdict<(Sqe, Mem)> {
        let page = self.mem(4096)?;
        let data = self.pointer(&page, 0, 4096)?;
        let sqe = Sqe::new(0x06).nsid(nsid).dw(10, cns).data(data);
        Ok((sqe, page))
    }

    /// Identify, whatever its status.
    ///
    /// # Errors
    /// It does not complete.
    pub fn try_identify(&mut self, cns: u32, nsid: u32) -> Verdict<(Cqe, Vec<u8>)> {
        let (sqe, page) = self.identify_sqe(cns, nsid)?;
        // Bytes that the controller leaves alone show.
        page.fill(0xa5);
        let cqe = self.admin(sqe)?;
        Ok((cqe, page.bytes(0, 4096)))
    }

    /// Identify; its 4096 bytes.
    ///
    /// # Errors
    /// It fails.
    pub fn identify(&mut self, cns: u32, nsid: u32) -> Verdict<Vec<u8>> {
        let (cqe, data) = self.try_identify(cns, nsid)?;
        cqe.ok()?;
        Ok(data)
    }

    /// Identify Controller.
    ///
    /// # Errors
    /// It fails.
    pub fn controller(&mut self) -> Verdict<Vec<u8>> {
        self.identify(0x01, 0)
    }

    /// Identifiers of active namespaces, up to a page of them.
    ///
    /// # Errors
    /// Identify fails.
    pub fn active(&mut self) -> Verdict<Vec<u32>> {
        let data = self.identify(0x02, 0)?;
        let ids = (0..1024).map(|n| u32_at(&data, 4 * n));
        Ok(ids.take_while(|id| *id != 0).collect())
    }

    /// Get Log Page as a command: `len` bytes from `offset` on, to `mem`.
    ///
    /// # Errors
    /// There is no memory for a list.
    pub fn log_sqe(&mut self, lid: u8, offset: u64, len: usize, mem: &Mem) -> Verdict<Sqe> {
        let numd = u32::try_from(len / 4 - 1).expect("a log page is short");
        let data = self.pointer(mem, 0, len)?;
        Ok(Sqe::new(0x02)
            .nsid(0xffff_ffff)
            .data(data)
            .dw(10, (numd & 0xffff) << 16 | u32::from(lid))
            .dw(11, numd >> 16)
            .qword(12, offset))
    }

    /// Get Log Page, whatever its status; the data is where it should be.
    ///
    /// # Errors
    /// It does not complete.
    pub fn try_log(&mut self, lid: u8, offset: u64, len: usize) -> Verdict<(Cqe, Vec<u8>)> {
        let mem = self.mem(len)?;
        mem.fill(0xa5);
        let sqe = self.log_sqe(lid, offset, len, &mem)?;
        let cqe = self.admin(sqe)?;
        Ok((cqe, mem.bytes(0, len)))
    }

    /// Get Log Page of the controller, which clears the page's event.
    ///
    /// # Errors
    /// It fails.
    pub fn log(&mut self, lid: u8, len: usize) -> Verdict<Vec<u8>> {
        let (cqe, data) = self.try_log(lid, 0, len)?;
        cqe.ok()?;
        Ok(data)
    }

    /// Entries ever made in the Error Information log: the count of the newest
    /// entry (Base 2.1, 5.1.12.1.2).
    ///
    /// # Errors
    /// Get Log Page fails.
    pub fn error_count(&mut self) -> Verdict<u64> {
        Ok(u64_at(&self.log(0x01, 64)?, 0))
    }

    /// Get Features without data: its completion.
    ///
    /// # Errors
    /// It does not complete.
    pub fn get_feature(&mut self, fid: u32, which: Feature, nsid: u32) -> Verdict<Cqe> {
        self.get_feature_with(fid, which, nsid, 0)
    }

    /// Get Features with a value in dword 11.
    ///
    /// # Errors
    /// It does not complete.
    pub fn get_feature_with(
        &mut self,
        fid: u32,
        which: Feature,
        nsid: u32,
        dw11: u32,
    ) -> Verdict<Cqe> {
        let len = match which {
            Feature::Supported => 0,
            _ => feature_len(fid),
        };
        let page = self.mem(4096)?;
        let data = self.pointer(&page, 0, len)?;
        let sqe = Sqe::new(0x0a)
            .nsid(nsid)
            .data(data)
            .dw(10, which.sel() << 8 | fid)
            .dw(11, dw11);
        self.admin(sqe)
    }

    /// Set Features without data, and without saving.
    ///
    /// # Errors
    /// It does not complete.
    pub fn set_feature(&mut self, fid: u32, nsid: u32, value: u32) -> Verdict<Cqe> {
        self.admin(Sqe::new(0x09).nsid(nsid).dw(10, fid).dw(11, value))
    }

    /// Get Features of a structure: its bytes, whose number is the feature's.
    ///
    /// # Errors
    /// It fails.
    pub fn get_feature_data(&mut self, fid: u32, which: Feature, len: usize) -> Verdict<Vec<u8>> {
        let page = self.mem(4096)?;
        let data = self.pointer(&page, 0, len)?;
        let sqe = Sqe::new(0x0a).data(data).dw(10, which.sel() << 8 | fid);
        self.admin(sqe)?.ok()?;
        Ok(page.bytes(0, len))
    }

    /// Set Features of a structure.
    ///
    /// # Errors
    /// It does not complete.
    pub fn set_feature_data(&mut self, fid: u32, dw11: u32, data: &[u8]) -> Verdict<Cqe> {
        let page = self.mem(4096)?;
        page.write(0, data);
        let pointer = self.pointer(&page, 0, data.len())?;
        let sqe = Sqe::new(0x09).data(pointer).dw(10, fid).dw(11, dw11);
        self.admin(sqe)
    }

    /// Leaves an Asynchronous Event Request with the controller.
    ///
    /// # Errors
    /// The bus fails.
    pub fn request_event(&mut self) -> Verdict<u16> {
        self.admin_submit(Sqe::new(0x0c))
    }

    /// Waits for the event that completes a request: its dword 0.
    ///
    /// # Errors
    /// None comes, or the request fails.
    pub fn event(&mut self, cid: u16) -> Verdict<u32> {
        match self.admin_wait(cid) {
            Ok(cqe) => Ok(cqe.ok()?.dw0()),
            Err(miss) => fail(format!("the event does not come: {miss}")),
        }
    }
}
