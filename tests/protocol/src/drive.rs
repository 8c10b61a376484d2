//! The least of an NVMe driver: enough for commands in flight.
//!
//! Everything goes by messages, so that it works however the doorbells are reached. Numbers are
//! those of the NVMe Base Specification 2.1.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use memory::{Buffer, HostCq, HostMemory, HostSq, Iova};

use crate::Host;

/// Where the memory is mapped for the device.
pub const BASE: u64 = 0x1_0000_0000;
/// Bytes of the memory.
pub const LEN: u64 = 1 << 20;

/// Entries of each queue.
const ENTRIES: u32 = 16;
const PAGE: usize = 4096;
/// How long to wait for what a controller does at once.
const BOUND: Duration = Duration::from_secs(20);

/// One submission queue with its completion queue, of the same identifier.
#[derive(Debug)]
struct Pair {
    qid: u32,
    sq: HostSq,
    cq: HostCq,
    tail: u32,
    head: u32,
    phase: u64,
}

/// Content of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// Which command.
    pub cid: u16,
    /// Status code type and code: 0 is success.
    pub status: u16,
}

/// A controller that is enabled, with one I/O queue pair.
#[derive(Debug)]
pub struct Drive {
    memory: HostMemory,
    data: Buffer,
    admin: Pair,
    io: Pair,
    next_cid: u16,
}

impl Drive {
    /// Shares memory, enables the controller and makes a queue pair of vector 1.
    ///
    /// # Panics
    /// When the controller does not become ready, or fails a command.
    #[must_use]
    pub fn new(host: &mut Host) -> Self {
        let memory = HostMemory::new(LEN as usize).expect("there is memory");
        host.dma_map(BASE, LEN, memory.fd());
        let mut drive = Self {
            data: page(&memory),
            admin: Pair::new(&memory, 0),
            io: Pair::new(&memory, 1),
            memory,
            next_cid: 0,
        };
        drive.enable(host);
        drive
    }

    /// The memory's descriptor.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.memory.fd()
    }

    /// The page of data that commands move.
    #[must_use]
    pub fn data(&self) -> &Buffer {
        &self.data
    }

    fn enable(&mut self, host: &mut Host) {
        let size = ENTRIES - 1;
        host.region_write(0, 0x24, &(size << 16 | size).to_le_bytes());
        host.region_write(0, 0x28, &self.admin.sq_address().to_le_bytes());
        host.region_write(0, 0x30, &self.admin.cq_address().to_le_bytes());
        // IOCQES 4, IOSQES 6, EN.
        host.region_write(0, 0x14, &0x0046_0001_u32.to_le_bytes());
        let deadline = Instant::now() + BOUND;
        while host.read32(0, 0x1c) & 1 == 0 {
            assert!(Instant::now() < deadline, "the controller is not ready");
        }
        let queue = |address: u64, opcode: u64, cdw11: u64| {
            let cdw10 = u64::from(ENTRIES - 1) << 16 | 1;
            [opcode, 0, 0, address, 0, cdw10 | cdw11 << 32, 0, 0]
        };
        // Create I/O Completion Queue: contiguous, interrupts enabled, vector 1. Create I/O
        // Submission Queue.
        let cq = queue(self.io.cq_address(), 0x05, 1 << 16 | 0b11);
        let sq = queue(self.io.sq_address(), 0x01, 1 << 16 | 0b1);
        for command in [cq, sq] {
            let cid = self.take_cid();
            self.admin.submit(host, cid, command);
            let done = self.admin.wait(host, cid);
            assert_eq!(done.status, 0, "a queue is created");
        }
    }

    fn take_cid(&mut self) -> u16 {
        let cid = self.next_cid;
        self.next_cid = cid.wrapping_add(1);
        cid
    }

    /// Makes submission queue 2 at `address`, which completes where queue 1 does.
    ///
    /// # Panics
    /// When the controller refuses.
    pub fn create_second_sq(&mut self, host: &mut Host, address: u64) {
        let cdw10 = u64::from(ENTRIES - 1) << 16 | 2;
        let cid = self.take_cid();
        let command = [0x01, 0, 0, address, 0, cdw10 | (1 << 16 | 0b1) << 32, 0, 0];
        self.admin.submit(host, cid, command);
        assert_eq!(self.admin.wait(host, cid).status, 0, "a queue is created");
    }

    /// Reads or writes the drive's blocks from `lba` on, as many as the data page holds; the
    /// command's identifier.
    pub fn submit(&mut self, host: &mut Host, write: bool, lba: u64) -> u16 {
        let address = self.data.iova(Iova(BASE)).0;
        self.submit_at(host, write, lba, address)
    }

    /// The same with the page at `address`.
    pub fn submit_at(&mut self, host: &mut Host, write: bool, lba: u64, address: u64) -> u16 {
        let cid = self.take_cid();
        let opcode = if write { 0x01 } else { 0x02 };
        let blocks_z = (PAGE / 512 - 1) as u64;
        let command = [opcode | 1 << 32, 0, 0, address, 0, lba, blocks_z, 0];
        self.io.submit(host, cid, command);
        cid
    }

    /// Waits for a command.
    ///
    /// # Panics
    /// When another one completes, or none.
    pub fn wait(&mut self, host: &mut Host, cid: u16) -> Completion {
        self.io.wait(host, cid)
    }

    /// The next completion, if there is one; it remains unacknowledged.
    #[must_use]
    pub fn peek(&self) -> Option<Completion> {
        self.io.peek()
    }

    /// The next completion, if there is one.
    pub fn poll(&mut self, host: &mut Host) -> Option<Completion> {
        self.io.poll(host)
    }

    /// Reads or writes, and waits for it.
    ///
    /// # Panics
    /// When it does not succeed.
    pub fn transfer(&mut self, host: &mut Host, write: bool, lba: u64) {
        let cid = self.submit(host, write, lba);
        assert_eq!(self.wait(host, cid).status, 0);
    }
}

fn page(memory: &HostMemory) -> Buffer {
    memory.alloc(PAGE, PAGE).expect("there is room")
}

impl Pair {
    fn new(memory: &HostMemory, qid: u32) -> Self {
        Self {
            qid,
            sq: HostSq::new(page(memory)),
            cq: HostCq::new(page(memory)),
            tail: 0,
            head: 0,
            phase: 1,
        }
    }

    fn sq_address(&self) -> u64 {
        self.sq.buffer().iova(Iova(BASE)).0
    }

    fn cq_address(&self) -> u64 {
        self.cq.buffer().iova(Iova(BASE)).0
    }

    fn submit(&mut self, host: &mut Host, cid: u16, mut command: [u64; 8]) {
        command[0] |= u64::from(cid) << 16;
        self.sq.store(self.tail, command);
        self.tail = (self.tail + 1) % ENTRIES;
        self.ring(host, 0, self.tail);
    }

    fn ring(&self, host: &mut Host, which: u64, value: u32) {
        let offset = 0x1000 + 4 * (2 * u64::from(self.qid) + which);
        host.region_write(0, offset, &value.to_le_bytes());
    }

    fn peek(&self) -> Option<Completion> {
        let [_, high] = self.cq.load(self.head);
        (high >> 48 & 1 == self.phase).then_some(Completion {
            cid: (high >> 32 & 0xffff) as u16,
            status: (high >> 49 & 0x7ff) as u16,
        })
    }

    fn poll(&mut self, host: &mut Host) -> Option<Completion> {
        let completion = self.peek()?;
        self.head = (self.head + 1) % ENTRIES;
        if self.head == 0 {
            self.phase ^= 1;
        }
        self.ring(host, 1, self.head);
        Some(completion)
    }

    fn wait(&mut self, host: &mut Host, cid: u16) -> Completion {
        let deadline = Instant::now() + BOUND;
        loop {
            if let Some(completion) = self.poll(host) {
                assert_eq!(completion.cid, cid);
                return completion;
            }
            assert!(Instant::now() < deadline, "command {cid} does not complete");
            std::thread::yield_now();
        }
    }
}
