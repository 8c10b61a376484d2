//! A drive that looks at all that it is asked for.

mod io;

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use driver::DriverError;
use driver::bus::{Bus, MappedDoorbells};
use memory::{Access, ClientMappings, DmaMap, EventFd, Hint, HostMemory, Iova, Lent, Need};
use rustix::fs::fstat;

use crate::{BLOCK, DRIVE_LEN, PAGE, UNTOUCHED};

/// By how much time passes with each look at the drive, in nanoseconds.
const LOOK_NS: u64 = 100_000;
/// Words of a submission queue entry, and bytes.
const SQE_LEN: u64 = 64;
/// Bytes of a completion queue entry.
const CQE_LEN: u64 = 16;

/// How a drive lies, or fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lie {
    /// Completions name a command that is not in flight.
    OtherCommand,
    /// Each completion comes twice.
    Twice,
    /// Completions name another submission queue.
    OtherQueue,
    /// Completions tell a head that the queue cannot have.
    Head,
    /// Completions have the phase of entries that were not posted.
    Phase,
    /// Every command ends with this status (as in bits 16 to 31 of dword 3, without the phase).
    Status(u16),
    /// It takes commands and does nothing.
    Hangs,
    /// It does nothing, admin commands neither.
    Dead,
    /// It says that it has failed fatally (CSTS.CFS).
    Fatal,
    /// Every register reads as ones, as of a function that is gone.
    Ones,
}

/// Data that a drive reports about itself, beside the usual.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Blocks of its namespace (NSZE).
    pub blocks: u64,
    /// Size of a block as a power of two.
    pub shift: u8,
    /// Maximum Data Transfer Size, as a power of two in pages.
    pub mdts: u8,
    /// Namespaces that are active.
    pub namespaces: Vec<u32>,
    /// Every other byte of every structure.
    pub filler: u8,
    /// Write Zeroes Size Limit.
    pub wzsl: u8,
    /// Index of the format in use (FLBAS).
    pub format: u8,
}

impl Default for Identity {
    fn default() -> Self {
        Identity {
            blocks: DRIVE_LEN / BLOCK,
            shift: 9,
            mdts: 2,
            namespaces: vec![1],
            filler: 0,
            wzsl: 2,
            format: 0,
        }
    }
}

/// Whose memory it is that the drive was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Owner {
    /// The driver's own: queues, lists, buffers.
    Driver,
    /// This host's.
    Host(usize),
}

#[derive(Debug)]
struct Shown {
    base: u64,
    len: u64,
    owner: Owner,
}

/// A submission queue and its completion queue, which have the same number here.
#[derive(Debug, Default)]
struct Queue {
    sq: u64,
    cq: u64,
    sq_entries: u32,
    cq_entries: u32,
    head: u32,
    tail: u32,
    cq_tail: u32,
    /// Completions posted so far, as a phase: inverted.
    wrapped: bool,
}

pub(crate) struct State {
    registers: BTreeMap<u64, u64>,
    queues: BTreeMap<u16, Queue>,
    iommu: DmaMap,
    mappings: ClientMappings,
    shown: Vec<Shown>,
    /// The hosts' memory files, by inode.
    hosts: Vec<u64>,
    disk: Vec<u8>,
    lie: Option<Lie>,
    identity: Identity,
    held: VecDeque<(u16, [u8; SQE_LEN as usize])>,
    commands: u64,
    now_ns: u64,
    violations: Vec<String>,
    /// Ranges of addresses that were mapped and unmapped: base, length, and whether it was mapped.
    windows: Vec<(u64, u64, bool)>,
}

/// See the module. Clones are the same drive.
#[derive(Clone)]
pub struct Witness(Arc<Mutex<State>>);

impl Default for Witness {
    fn default() -> Self {
        Self::new(Identity::default())
    }
}

impl Witness {
    /// A drive whose blocks were never written.
    #[must_use]
    pub fn new(identity: Identity) -> Self {
        Witness(Arc::new(Mutex::new(State {
            registers: BTreeMap::new(),
            queues: BTreeMap::new(),
            iommu: DmaMap::new(256),
            mappings: ClientMappings::new(),
            shown: Vec::new(),
            hosts: Vec::new(),
            disk: vec![UNTOUCHED; usize::try_from(DRIVE_LEN).expect("a few MiB")],
            lie: None,
            identity,
            held: VecDeque::new(),
            commands: 0,
            now_ns: 0,
            violations: Vec::new(),
            windows: Vec::new(),
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().expect("a test that has panicked is over")
    }

    /// Tells it whose memory a file is: that of the host whose number is next.
    pub fn know_host(&self, memory: &HostMemory) {
        let inode = fstat(memory.fd()).expect("a memfd has a status").st_ino;
        self.state().hosts.push(inode);
    }

    /// How it lies from now on.
    pub fn lie(&self, lie: Option<Lie>) {
        self.state().lie = lie;
    }

    /// Sets the data that it reports about itself from now on.
    pub fn say(&self, identity: Identity) {
        self.state().identity = identity;
    }

    /// Requests that came and must not come.
    #[must_use]
    pub fn violations(&self) -> Vec<String> {
        self.state().violations.clone()
    }

    /// I/O commands that came.
    #[must_use]
    pub fn commands(&self) -> u64 {
        self.state().commands
    }

    /// Bytes of the drive.
    #[must_use]
    pub fn bytes(&self, range: std::ops::Range<u64>) -> Vec<u8> {
        let at = |byte| usize::try_from(byte).expect("a few MiB");
        self.state().disk[at(range.start)..at(range.end)].to_vec()
    }

    /// Bytes of hosts' memory that it reaches.
    #[must_use]
    pub fn reaches(&self) -> u64 {
        let state = self.state();
        let hosts = state.shown.iter().filter(|s| s.owner != Owner::Driver);
        hosts.map(|shown| shown.len).sum()
    }

    fn show(
        &self,
        (fd, offset): (std::os::fd::BorrowedFd<'_>, u64),
        (base, len): (u64, u64),
        access: Access,
        is_ours: bool,
    ) -> Result<(), DriverError> {
        let state = &mut *self.state();
        let inode = fstat(fd).expect("a memfd has a status").st_ino;
        let owner = match state.hosts.iter().position(|host| *host == inode) {
            _ if is_ours => Owner::Driver,
            Some(host) => Owner::Host(host),
            None => {
                state.violations.push("memory of nobody is shown".into());
                Owner::Driver
            }
        };
        let fd = fd.try_clone_to_owned().expect("a descriptor");
        let mapping = state.mappings.map(fd).expect("a memfd can be mapped");
        let refused = |error| DriverError::Unsupported(format!("{error}"));
        let backing = Some((mapping, offset));
        state
            .iommu
            .map(Iova(base), len, access, backing)
            .map_err(refused)?;
        state.shown.push(Shown { base, len, owner });
        state.windows.push((base, len, true));
        Ok(())
    }

    /// A new driver opens it: what the last one has shown is gone, as with a container of addresses
    /// that is closed.
    fn forget(&self) {
        let state = &mut *self.state();
        for shown in std::mem::take(&mut state.shown) {
            let _ = state.iommu.unmap(Iova(shown.base), shown.len);
            state.windows.push((shown.base, shown.len, false));
        }
    }

    /// Every range of addresses that was mapped for it (true) or unmapped (false), in order.
    #[must_use]
    pub fn windows(&self) -> Vec<(u64, u64, bool)> {
        self.state().windows.clone()
    }
}

impl State {
    fn register(&self, offset: u64) -> u64 {
        self.registers.get(&offset).copied().unwrap_or(0)
    }

    fn is_enabled(&self) -> bool {
        self.register(CC) & 1 == 1
    }

    fn read(&self, offset: u64) -> u64 {
        if self.lie == Some(Lie::Ones) {
            return u64::MAX;
        }
        match offset {
            // MQES 255, CQR, TO 2 s, NVM command set (Base 2.1, 3.1.4.1).
            CAP => 255 | 1 << 16 | 4 << 24 | 1 << 37,
            // 2.0.
            VS => 0x0002_0000,
            CSTS => {
                let ready = u64::from(self.is_enabled());
                let fatal = u64::from(self.lie == Some(Lie::Fatal)) << 1;
                let is_off = self.register(CC) >> 14 & 3 != 0;
                ready | fatal | u64::from(is_off) << 3
            }
            _ => self.register(offset),
        }
    }

    fn write(&mut self, offset: u64, value: u64) {
        let was_enabled = self.is_enabled();
        self.registers.insert(offset, value);
        if offset != CC || self.is_enabled() == was_enabled {
            return;
        }
        self.queues.clear();
        self.held.clear();
        if self.is_enabled() {
            let sizes = self.register(AQA);
            let admin = Queue {
                sq: self.register(ASQ),
                cq: self.register(ACQ),
                sq_entries: (sizes & 0xfff) as u32 + 1,
                cq_entries: (sizes >> 16 & 0xfff) as u32 + 1,
                ..Queue::default()
            };
            self.queues.insert(0, admin);
        }
    }

    /// Reads the memory that it was shown; false where there is none.
    fn fetch(&mut self, at: u64, bytes: &mut [u8]) -> bool {
        let view = self.iommu.view();
        let (mut hint, mut done) = (Hint::default(), 0);
        while done < bytes.len() {
            let len = (bytes.len() - done) as u32;
            let at = Iova(at.wrapping_add(done as u64));
            let Ok(segment) = view.translate(&mut hint, at, len, Need::DeviceReads) else {
                self.violations
                    .push(format!("it reads at {at:?}, where nothing is"));
                return false;
            };
            let end = done + segment.len() as usize;
            segment.read_into(0, &mut bytes[done..end]);
            done = end;
        }
        true
    }

    /// Writes the memory that it was shown.
    fn store(&mut self, at: u64, bytes: &[u8]) -> bool {
        let view = self.iommu.view();
        let (mut hint, mut done) = (Hint::default(), 0);
        while done < bytes.len() {
            let len = (bytes.len() - done) as u32;
            let at = Iova(at.wrapping_add(done as u64));
            let Ok(segment) = view.translate(&mut hint, at, len, Need::DeviceWrites) else {
                self.violations
                    .push(format!("it writes at {at:?}, where nothing may be written"));
                return false;
            };
            let end = done + segment.len() as usize;
            segment.write_from(0, &bytes[done..end]);
            done = end;
        }
        true
    }

    fn owner_of(&self, at: u64) -> Option<Owner> {
        let mut shown = self.shown.iter();
        let found = shown.find(|shown| at >= shown.base && at - shown.base < shown.len);
        Some(found?.owner)
    }

    /// Takes what is in its queues.
    fn turn(&mut self) {
        self.now_ns += LOOK_NS;
        if matches!(self.lie, Some(Lie::Dead | Lie::Ones)) || !self.is_enabled() {
            return;
        }
        if self.lie != Some(Lie::Hangs) {
            while let Some((qid, sqe)) = self.held.pop_front() {
                let status = self.io(&sqe);
                self.complete(qid, &sqe, 0, status);
            }
        }
        let numbers: Vec<u16> = self.queues.keys().copied().collect();
        for qid in numbers {
            while let Some(sqe) = self.take(qid) {
                if qid == 0 {
                    if let Some((dw0, status)) = self.admin(&sqe) {
                        self.complete(qid, &sqe, dw0, status);
                    }
                    continue;
                }
                self.commands += 1;
                match self.lie {
                    Some(Lie::Hangs) => self.held.push_back((qid, sqe)),
                    _ => {
                        let status = self.io(&sqe);
                        self.complete(qid, &sqe, 0, status);
                    }
                }
            }
        }
    }

    fn take(&mut self, qid: u16) -> Option<[u8; SQE_LEN as usize]> {
        let queue = self.queues.get_mut(&qid)?;
        if queue.tail >= queue.sq_entries {
            self.violations
                .push(format!("the tail of queue {qid} is {}", queue.tail));
            queue.tail = queue.head;
        }
        if queue.head == queue.tail {
            return None;
        }
        let at = queue.sq + u64::from(queue.head) * SQE_LEN;
        queue.head = (queue.head + 1) % queue.sq_entries;
        let mut sqe = [0; SQE_LEN as usize];
        self.fetch(at, &mut sqe).then_some(sqe)
    }

    fn complete(&mut self, qid: u16, sqe: &[u8; SQE_LEN as usize], dw0: u32, status: u16) {
        let cid = u16::from_le_bytes([sqe[2], sqe[3]]);
        let lie = self.lie.filter(|_| qid != 0);
        let Some(queue) = self.queues.get(&qid) else {
            return;
        };
        let head = queue.head as u16;
        let (cid, sqid, head, status) = match lie {
            Some(Lie::OtherCommand) => (cid ^ 0x4000, qid, head, status),
            Some(Lie::OtherQueue) => (cid, qid + 1, head, status),
            Some(Lie::Head) => (cid, qid, 0xffff, status),
            Some(Lie::Status(status)) => (cid, qid, head, status),
            _ => (cid, qid, head, status),
        };
        let times = if lie == Some(Lie::Twice) { 2 } else { 1 };
        for _ in 0..times {
            self.post(
                qid,
                [dw0, 0, u32::from(head) | u32::from(sqid) << 16],
                cid,
                status,
            );
        }
    }

    fn post(&mut self, qid: u16, dwords: [u32; 3], cid: u16, status: u16) {
        let lies = qid != 0 && self.lie == Some(Lie::Phase);
        let Some(queue) = self.queues.get_mut(&qid) else {
            return;
        };
        let at = queue.cq + u64::from(queue.cq_tail) * CQE_LEN;
        let phase = u16::from(queue.wrapped == lies);
        queue.cq_tail += 1;
        if queue.cq_tail == queue.cq_entries {
            (queue.cq_tail, queue.wrapped) = (0, !queue.wrapped);
        }
        let last = u32::from(cid) | u32::from(status << 1 | phase) << 16;
        let [a, b, c] = dwords;
        let mut bytes = [0; CQE_LEN as usize];
        for (place, word) in bytes.chunks_exact_mut(4).zip([a, b, c, last]) {
            place.copy_from_slice(&word.to_le_bytes());
        }
        self.store(at, &bytes);
    }

    /// An admin command: dword 0 and status of its completion, or nothing for what it keeps.
    fn admin(&mut self, sqe: &[u8; SQE_LEN as usize]) -> Option<(u32, u16)> {
        const INVALID_FIELD: u16 = 2;
        let dword =
            |at: usize| u32::from_le_bytes([sqe[at], sqe[at + 1], sqe[at + 2], sqe[at + 3]]);
        let qword = |at: usize| u64::from(dword(at)) | u64::from(dword(at + 4)) << 32;
        let (prp1, cdw10, cdw11) = (qword(24), dword(40), dword(44));
        let qid = cdw10 as u16;
        let entries = (cdw10 >> 16) + 1;
        match sqe[0] {
            // Create I/O Completion Queue, Create I/O Submission Queue.
            0x05 => {
                let queue = Queue {
                    cq: prp1,
                    cq_entries: entries,
                    ..Queue::default()
                };
                self.queues.insert(qid, queue);
            }
            0x01 => {
                let queue = self.queues.get_mut(&qid)?;
                (queue.sq, queue.sq_entries) = (prp1, entries);
            }
            // Get Log Page: its health, of which it says nothing.
            0x02 if cdw10 & 0xff == 2 => {
                let len = (u64::from(cdw10 >> 16) + 1) * 4;
                self.store(prp1, &vec![0; len.min(PAGE) as usize]);
            }
            // Delete I/O Submission Queue: what is in flight is over.
            0x00 => self.held.retain(|(held, _)| *held != qid),
            0x04 => drop(self.queues.remove(&qid)),
            0x06 => return Some((0, self.identify(cdw10 as u8, dword(4), prp1))),
            // Set Features: four queue pairs.
            0x09 if cdw10 & 0xff == 7 => return Some((0x0003_0003, 0)),
            // Abort; it aborts nothing.
            0x08 => return Some((1, 0)),
            // Asynchronous Event Request: kept.
            0x0c => return None,
            opcode => {
                self.violations
                    .push(format!("admin command {opcode:#x} {cdw10:#x} {cdw11:#x}"));
                return Some((0, INVALID_FIELD));
            }
        }
        Some((0, 0))
    }

    /// Identify: its data, and its status.
    fn identify(&mut self, cns: u8, nsid: u32, at: u64) -> u16 {
        let identity = self.identity.clone();
        let mut data = vec![identity.filler; PAGE as usize];
        match cns {
            // Namespace (NVM 1.1, 4.1.5.1): NSZE, NCAP, NUSE, formats.
            0 => {
                for place in [0, 8, 16] {
                    data[place..place + 8].copy_from_slice(&identity.blocks.to_le_bytes());
                }
                (data[25], data[26]) = (0, identity.format);
                let format = u32::from(identity.shift) << 16;
                data[128..132].copy_from_slice(&format.to_le_bytes());
            }
            // Controller (Base 2.1, 5.1.13.2.1).
            1 => {
                data[4..24].copy_from_slice(b"WITNESS-000000000001");
                data[24..64].copy_from_slice(b"a drive that looks at all that it gets  ");
                data[77] = identity.mdts;
                data[80..84].copy_from_slice(&0x0002_0000u32.to_le_bytes());
                // No optional admin commands; Dataset Management and Write Zeroes; a volatile write
                // cache.
                data[256..258].fill(0);
                data[520..522].copy_from_slice(&0b1100u16.to_le_bytes());
                data[525] = 1;
            }
            // Active namespaces after `nsid`.
            2 => {
                data.fill(0);
                let after = identity.namespaces.iter().filter(|other| **other > nsid);
                for (place, number) in data.chunks_exact_mut(4).zip(after) {
                    place.copy_from_slice(&number.to_le_bytes());
                }
            }
            // Controller, of the NVM command set: WZSL (NVM 1.1, 4.1.5.4).
            6 => data[1] = identity.wzsl,
            _ => return 2,
        }
        self.store(at, &data);
        0
    }
}

const CAP: u64 = 0x00;
const VS: u64 = 0x08;
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
/// The first doorbell; they lie 4 bytes apart.
const DOORBELLS: u64 = 0x1000;

impl Bus for Witness {
    fn read32(&self, offset: u64) -> Result<u32, DriverError> {
        Ok(self.state().read(offset) as u32)
    }

    fn read64(&self, offset: u64) -> Result<u64, DriverError> {
        Ok(self.state().read(offset))
    }

    fn write32(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        self.state().write(offset, value.into());
        Ok(())
    }

    fn write64(&self, offset: u64, value: u64) -> Result<(), DriverError> {
        self.state().write(offset, value);
        Ok(())
    }

    fn ring(&self, offset: u64, value: u32) -> Result<(), DriverError> {
        let number = (offset - DOORBELLS) / 4;
        let state = &mut *self.state();
        let qid = u16::try_from(number / 2).expect("a doorbell of a queue");
        match state.queues.get_mut(&qid) {
            Some(queue) if number.is_multiple_of(2) => queue.tail = value,
            Some(_) => {}
            // Of a drive that was reset behind its driver's back.
            None if state.lie.is_some() => {}
            None => state
                .violations
                .push(format!("the bell of queue {qid} rings")),
        }
        Ok(())
    }

    fn config_read(&self, _offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        out.fill(0);
        Ok(())
    }

    fn config_write(&self, _offset: u64, _data: &[u8]) -> Result<(), DriverError> {
        Ok(())
    }

    fn bar_len(&self, _bar: u8) -> Result<u64, DriverError> {
        Ok(0x2000)
    }

    fn bar_read(&self, _bar: u8, _offset: u64, out: &mut [u8]) -> Result<(), DriverError> {
        out.fill(0);
        Ok(())
    }

    fn bar_write(&self, _bar: u8, _offset: u64, _data: &[u8]) -> Result<(), DriverError> {
        Ok(())
    }

    fn reset_function(&self) -> Result<(), DriverError> {
        self.state().write(CC, 0);
        Ok(())
    }

    fn doorbells(&self) -> Option<MappedDoorbells> {
        None
    }

    fn share(&self, memory: &HostMemory, base: Iova) -> Result<(), DriverError> {
        self.forget();
        let range = (base.0, memory.len() as u64);
        self.show((memory.fd(), 0), range, Access::READ_WRITE, true)
    }

    fn lend(&self, memory: &Lent, base: Iova) -> Result<(), DriverError> {
        let file = memory.file().expect("hosts have files");
        let access = if memory.is_writable() {
            Access::READ_WRITE
        } else {
            Access::READ
        };
        self.show(file, (base.0, memory.as_raw().1), access, false)
    }

    fn unshare(&self, base: Iova, len: u64) -> Result<(), DriverError> {
        let state = &mut *self.state();
        let whole = |shown: &Shown| shown.base == base.0 && shown.len == len;
        match state.shown.iter().position(whole) {
            Some(at) => drop(state.shown.remove(at)),
            None => state
                .violations
                .push("what was not shown is taken back".into()),
        }
        let _ = state.iommu.unmap(base, len);
        state.windows.push((base.0, len, false));
        Ok(())
    }

    fn can_revoke(&self) -> bool {
        true
    }

    fn vectors(&self) -> u16 {
        0
    }

    fn set_interrupt(&self, _vector: u16, _eventfd: &EventFd) -> Result<(), DriverError> {
        Err(DriverError::Unsupported("it has no interrupts".into()))
    }

    fn set_message_interrupt(&self, _: u16, _: &EventFd) -> Result<(), DriverError> {
        Err(DriverError::Unsupported("it has no interrupts".into()))
    }

    fn turn(&self) {
        self.state().turn();
    }

    fn wait(&self, _eventfd: &EventFd, _timeout: Duration) -> Result<bool, DriverError> {
        Err(DriverError::Unsupported("it has no interrupts".into()))
    }

    fn check_alive(&self) -> Result<(), DriverError> {
        Ok(())
    }

    fn now_ns(&self) -> u64 {
        let mut state = self.state();
        state.now_ns += LOOK_NS;
        state.now_ns
    }
}
