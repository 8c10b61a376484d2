//! A host in bytes: registers, rings, and where data lies.
//!
//! It checks what every host relies on, whatever the command: one completion for each, in the right
//! queue, with the phase of its round and a head that says that everything was fetched.

use std::collections::BTreeMap;
use std::sync::Arc;

use controller::Controller;
use controller::config::{ControllerConfig, DoorbellMode, Interface};
use driver::bus::Bus;
use loopback::InProcess;
use media::{Medium, MediumKind, MediumSpec};
use memory::{Buffer, DoorbellPages, HostCq, HostMemory, HostSq, Iova};
use port::namespace::Namespace;
use port::{ChannelId, Channels};
use subsystem::{Subsystem, SubsystemConfig};

use crate::program::Fault;
use crate::wire::{Command, Completion};
use crate::{NAMESPACE_LIMIT, NAMESPACES, QUEUE_DEPTH, QUEUES, TRANSFER_MAX};

/// Where the memory begins for the device.
const BASE: Iova = Iova(1 << 33);
const PAGE: usize = 4096;
/// Pages of data, which the pages of a command's data are scattered over.
const DATA_PAGES: usize = 24;
/// Entries of both admin queues.
const ADMIN_ENTRIES: u32 = 16;
/// Fill byte of data pages before a command.
const SPOILED: u8 = 0xee;
/// Turns that a command may take.
const TURNS: u32 = 10_000;

// Registers (Base 2.1, figure 35).
const CC: u64 = 0x14;
const CSTS: u64 = 0x1c;
const AQA: u64 = 0x24;
const ASQ: u64 = 0x28;
const ACQ: u64 = 0x30;
const DOORBELLS: u64 = 0x1000;

/// Description of a failure.
pub type Failure = String;

struct Sq {
    ring: HostSq,
    entries: u32,
    tail: u32,
    cqid: u16,
}

struct Cq {
    ring: HostCq,
    entries: u32,
    head: u32,
    phase: bool,
}

/// How a command's data is described.
#[derive(Clone, Debug)]
pub enum Layout {
    /// By PRPs, from this byte of a page on; a list begins at this entry of its page.
    Prp {
        /// A multiple of four.
        offset: u32,
        /// Below 511.
        list_at: u16,
    },
    /// By an SGL, in pieces of this many bytes where no page ends before.
    Sgl {
        /// Not 0.
        piece: u16,
        /// Where in a page the data begins; any byte.
        offset: u32,
    },
}

/// The host, and the controller behind its bus.
pub struct Host {
    bus: InProcess<media::Channel>,
    memory: HostMemory,
    data: Buffer,
    list: [Buffer; 2],
    sqs: BTreeMap<u16, Sq>,
    cqs: BTreeMap<u16, Cq>,
    cid: u16,
}

impl Host {
    /// A host with a drive of [`NAMESPACES`] in memory, enabled.
    ///
    /// # Errors
    /// The controller does not become ready.
    ///
    /// # Panics
    /// Without memory.
    pub fn new() -> Result<Self, Failure> {
        let memory = HostMemory::new(1 << 20).expect("memory of the host");
        let bus = bus();
        bus.share(&memory, BASE).expect("memory that can be shared");
        let page = |count| memory.alloc(count * PAGE, PAGE).expect("room");
        let mut host = Host {
            bus,
            data: page(DATA_PAGES),
            list: [page(1), page(1)],
            memory,
            sqs: BTreeMap::new(),
            cqs: BTreeMap::new(),
            cid: 0,
        };
        host.enable()?;
        Ok(host)
    }

    fn alloc(&self, entries: u32, size: usize) -> Buffer {
        let len = entries as usize * size;
        self.memory.alloc(len, PAGE).expect("room for a queue")
    }

    fn address(&self, buffer: &Buffer) -> u64 {
        buffer.iova(BASE).0
    }

    fn read(&self, register: u64) -> u32 {
        self.bus.read32(register).expect("it is in this process")
    }

    fn write(&self, register: u64, value: u32) {
        let written = self.bus.write32(register, value);
        written.expect("it is in this process");
    }

    fn wait_ready(&self, ready: u32) -> Result<(), Failure> {
        for _ in 0..TURNS {
            let csts = self.read(CSTS);
            if csts & 0b10 != 0 {
                return Err(format!("CSTS is {csts:#x}: controller fatal status"));
            }
            if csts & 1 == ready {
                return Ok(());
            }
            self.bus.turn();
        }
        Err(format!("CSTS.RDY did not become {ready}"))
    }

    fn enable(&mut self) -> Result<(), Failure> {
        self.add_cq(0, ADMIN_ENTRIES);
        self.add_sq(0, ADMIN_ENTRIES, 0);
        let (asq, acq) = (self.sq_address(0), self.cq_address(0));
        self.write(AQA, (ADMIN_ENTRIES - 1) << 16 | (ADMIN_ENTRIES - 1));
        for (register, value) in [(ASQ, asq), (ACQ, acq)] {
            self.write(register, value as u32);
            self.write(register + 4, (value >> 32) as u32);
        }
        // 64- and 16-byte entries, 4 KiB pages, the NVM command set.
        self.write(CC, 0x0046_0001);
        self.wait_ready(1)
    }

    /// A Controller Level Reset: by CC.EN, or by the function.
    ///
    /// # Errors
    /// It does not become ready again.
    pub fn reset(&mut self, function: bool) -> Result<(), Failure> {
        if function {
            let reset = self.bus.reset_function();
            reset.map_err(|error| error.to_string())?;
        } else {
            self.write(CC, 0x0046_0000);
        }
        self.wait_ready(0)?;
        self.sqs.clear();
        self.cqs.clear();
        self.enable()
    }

    /// A ring for a submission queue, cleared.
    pub fn add_sq(&mut self, sqid: u16, entries: u32, cqid: u16) {
        let ring = HostSq::new(self.alloc(entries, 64));
        let sq = Sq {
            ring,
            entries,
            tail: 0,
            cqid,
        };
        self.sqs.insert(sqid, sq);
    }

    /// A ring for a completion queue, cleared.
    pub fn add_cq(&mut self, cqid: u16, entries: u32) {
        let cq = Cq {
            ring: HostCq::new(self.alloc(entries, 16)),
            entries,
            head: 0,
            phase: true,
        };
        self.cqs.insert(cqid, cq);
    }

    /// Gives rings back.
    pub fn remove_sq(&mut self, sqid: u16) {
        self.sqs.remove(&sqid);
    }

    /// Gives rings back.
    pub fn remove_cq(&mut self, cqid: u16) {
        self.cqs.remove(&cqid);
    }

    /// Where the ring of a submission queue is.
    #[must_use]
    pub fn sq_address(&self, sqid: u16) -> u64 {
        self.address(self.sqs[&sqid].ring.buffer())
    }

    /// Where the ring of a completion queue is.
    #[must_use]
    pub fn cq_address(&self, cqid: u16) -> u64 {
        self.address(self.cqs[&cqid].ring.buffer())
    }

    /// An address where there may be a ring, without one.
    #[must_use]
    pub fn somewhere(&self) -> u64 {
        self.address(&self.data)
    }

    /// Puts a command into a submission queue that has room for it, without ringing; its
    /// identifier.
    ///
    /// # Panics
    /// For a queue that is not there.
    pub fn put(&mut self, sqid: u16, command: Command) -> u16 {
        self.cid = self.cid.wrapping_add(1);
        let sq = self.sqs.get_mut(&sqid).expect("a queue that is there");
        sq.ring.store(sq.tail, command.to_words(self.cid));
        sq.tail = (sq.tail + 1) % sq.entries;
        self.cid
    }

    /// Rings a submission queue.
    pub fn ring(&self, sqid: u16) {
        let at = DOORBELLS + 8 * u64::from(sqid);
        self.write(at, self.sqs[&sqid].tail);
    }

    /// Waits for as many completions of an I/O submission queue as commands were put.
    ///
    /// # Errors
    /// They do not come, others do, or the last does not say that everything was fetched.
    pub fn wait(&mut self, sqid: u16, count: usize) -> Result<Vec<Completion>, Failure> {
        let (cqid, tail) = (self.sqs[&sqid].cqid, self.sqs[&sqid].tail);
        let mut done = Vec::new();
        for _ in 0..TURNS {
            self.bus.turn();
            done.extend(std::iter::from_fn(|| self.take(cqid)));
            if done.len() >= count {
                break;
            }
        }
        if done.len() != count || done.iter().any(|completion| completion.sqid != sqid) {
            return Err(format!(
                "{count} commands were put into submission queue {sqid}, and {done:?} came"
            ));
        }
        match done.last() {
            Some(last) if u32::from(last.sq_head) != tail => Err(format!(
                "{last:?}: its head is not {tail}, and all was done"
            )),
            _ => Ok(done),
        }
    }

    /// Waits for the completion of an admin command, and for a while more; what came beside it.
    ///
    /// # Errors
    /// It does not come.
    pub fn wait_admin(&mut self, cid: u16) -> Result<(Completion, Vec<Completion>), Failure> {
        let mut others = self.quiet();
        for _ in 0..TURNS {
            if let Some(at) = others.iter().position(|completion| completion.cid == cid) {
                let own = others.remove(at);
                others.extend(self.quiet());
                return Ok((own, others));
            }
            self.bus.turn();
            others.extend(std::iter::from_fn(|| self.take(0)));
        }
        Err(format!("the admin command {cid} was not answered"))
    }

    /// Completions of the admin queue in a few turns.
    pub fn quiet(&mut self) -> Vec<Completion> {
        (0..8).for_each(|_| self.bus.turn());
        std::iter::from_fn(|| self.take(0)).collect()
    }

    /// The next completion of a completion queue; its doorbell is rung.
    pub fn take(&mut self, cqid: u16) -> Option<Completion> {
        let cq = self.cqs.get_mut(&cqid)?;
        let completion = Completion::from_words(cq.ring.load(cq.head));
        if completion.phase != cq.phase {
            return None;
        }
        cq.head = (cq.head + 1) % cq.entries;
        cq.phase ^= cq.head == 0;
        let head = cq.head;
        self.write(DOORBELLS + 8 * u64::from(cqid) + 4, head);
        Some(completion)
    }

    /// Where byte `at` of a command's data lies in the buffer: its pages are scattered.
    fn place(at: usize) -> usize {
        (at / PAGE * 7 + 3) % DATA_PAGES * PAGE + at % PAGE
    }

    /// The pieces of data of `len` bytes from byte `offset` of a page on, each within one page.
    fn pieces(offset: usize, len: usize, most: usize) -> Vec<(usize, usize)> {
        let (mut at, end) = (offset, offset + len);
        let mut pieces = Vec::new();
        while at < end {
            let len = (PAGE - at % PAGE).min(end - at).min(most);
            pieces.push((Self::place(at), len));
            at += len;
        }
        pieces
    }

    fn layout_pieces(layout: &Layout, len: usize) -> Vec<(usize, usize)> {
        match *layout {
            Layout::Prp { offset, .. } => Self::pieces(offset as usize, len, PAGE),
            Layout::Sgl { piece, offset } => Self::pieces(offset as usize, len, piece.into()),
        }
    }

    /// Puts a command's data where its layout says.
    pub fn put_data(&self, layout: &Layout, bytes: &[u8]) {
        let mut rest = bytes;
        for (at, len) in Self::layout_pieces(layout, bytes.len()) {
            let (piece, behind) = rest.split_at(len);
            self.data.write_from(at, piece);
            rest = behind;
        }
    }

    /// Reads a command's data from where its layout says.
    #[must_use]
    pub fn take_data(&self, layout: &Layout, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (at, len) in Self::layout_pieces(layout, len) {
            let mut piece = vec![0; len];
            self.data.read_into(at, &mut piece);
            bytes.extend(piece);
        }
        bytes
    }

    /// Fills everything that data may be written to.
    pub fn spoil_data(&self) {
        self.data.fill(SPOILED);
    }

    /// Whether nothing but a command's data was written to.
    #[must_use]
    pub fn is_rest_spoiled(&self, layout: &Layout, len: usize) -> bool {
        let mut all = vec![0; self.data.len()];
        self.data.read_into(0, &mut all);
        for (at, len) in Self::layout_pieces(layout, len) {
            all[at..at + len].fill(SPOILED);
        }
        all.iter().all(|byte| *byte == SPOILED)
    }

    /// Flags and the Data Pointer for data of `len` bytes, with a fault.
    #[must_use]
    pub fn describe(&self, layout: &Layout, len: usize, fault: Fault) -> (u8, [u64; 2]) {
        let data = self.address(&self.data);
        let mut pieces = Self::layout_pieces(layout, len);
        let by_prps = matches!(layout, Layout::Prp { .. });
        match fault {
            Fault::SecondOffset if by_prps => {
                if let Some(second) = pieces.get_mut(1) {
                    second.0 |= 8;
                }
            }
            Fault::Short if !by_prps => {
                if let Some(last) = pieces.last_mut() {
                    last.1 -= 1;
                }
            }
            _ => (),
        }
        let (mut flags, mut dptr) = match *layout {
            Layout::Prp { list_at, .. } => (0, self.prps(data, &pieces, list_at)),
            Layout::Sgl { .. } => (1 << 6, self.sgl(data, &pieces)),
        };
        match fault {
            Fault::Odd if by_prps => dptr[0] |= 1,
            Fault::Psdt => flags = 3 << 6,
            Fault::Unmapped => dptr[0] ^= 1 << 40,
            _ => (),
        }
        (flags, dptr)
    }

    /// Base 2.1, 4.3.1: a list that does not fit into its page goes on in the next, which its last
    /// entry names.
    fn prps(&self, data: u64, pieces: &[(usize, usize)], list_at: u16) -> [u64; 2] {
        let address = |piece: &(usize, usize)| data + piece.0 as u64;
        let Some((first, rest)) = pieces.split_first() else {
            return [data, 0];
        };
        match rest {
            [] => [address(first), 0],
            [second] => [address(first), address(second)],
            _ => {
                let start = usize::from(list_at);
                let room = PAGE / 8 - start;
                let mut entries: Vec<u64> = rest.iter().map(address).collect();
                if entries.len() > room {
                    for (n, entry) in entries.split_off(room - 1).into_iter().enumerate() {
                        self.list[1].write_from(8 * n, &entry.to_le_bytes());
                    }
                    entries.push(self.address(&self.list[1]));
                }
                for (n, entry) in entries.into_iter().enumerate() {
                    self.list[0].write_from(8 * (start + n), &entry.to_le_bytes());
                }
                let list = self.address(&self.list[0]) + 8 * start as u64;
                [address(first), list]
            }
        }
    }

    /// Base 2.1, 4.3.2: one Data Block (type 0) in the command, or a Last Segment (type 3) of them.
    fn sgl(&self, data: u64, pieces: &[(usize, usize)]) -> [u64; 2] {
        let block = |&(at, len): &(usize, usize)| [data + at as u64, len as u64];
        if let [one] = pieces {
            return block(one);
        }
        assert!(pieces.len() <= PAGE / 16, "a list of one page");
        for (n, piece) in pieces.iter().enumerate() {
            let [address, rest] = block(piece);
            self.list[0].write_from(16 * n, &address.to_le_bytes());
            self.list[0].write_from(16 * n + 8, &rest.to_le_bytes());
        }
        let len = 16 * pieces.len() as u64;
        [self.address(&self.list[0]), len | 3 << 60]
    }
}

fn bus() -> InProcess<media::Channel> {
    let config = ControllerConfig {
        name: "model".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S0001".into(),
        model_number: "model".into(),
        firmware_revision: "1.0".into(),
        subnqn: "nqn.2024-01.org.example:model".into(),
        queues: QUEUES,
        queue_depth: QUEUE_DEPTH,
        max_transfer: TRANSFER_MAX,
        doorbells: DoorbellMode::Unmapped,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    };
    let spec = MediumSpec {
        kind: MediumKind::Ram { size: 1 << 20 },
    };
    let medium = Medium::open(&spec).expect("a medium");
    let namespaces = NAMESPACES.map(|(nsid, start, bytes, lba_shift)| Namespace {
        nsid,
        channel: ChannelId(0),
        start,
        blocks: bytes >> lba_shift,
        lba_shift,
        nguid: [nsid as u8; 16],
        eui64: [nsid as u8; 8],
        traits: medium.traits(),
        restrictions: None,
        set: None,
    });
    let mut channels = Channels::new();
    let channel = medium.channel(64).expect("a channel");
    assert!(channels.insert(channel).is_ok());
    let subsystem = SubsystemConfig::with_namespaces(NAMESPACE_LIMIT, namespaces);
    let mut subsystem = Subsystem::new(subsystem).expect("a subsystem");
    let slots = config.doorbell_slots();
    let pages = Arc::new(DoorbellPages::new(slots).expect("doorbells"));
    let controller = Controller::new(config, pages.clone(), &mut subsystem);
    let controller = controller.expect("a controller");
    InProcess::new(controller, subsystem, pages, false, channels)
}
