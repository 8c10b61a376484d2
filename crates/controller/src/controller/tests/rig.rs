//! The test's host, its controller, lanes and media, and a clock that a test moves.

use std::sync::Arc;

use memory::{DoorbellPages, Iova, LostFlag, StateFile};
use nvme_spec::{Cqe, Sqe};
use port::namespace::Namespace;
use port::testing::{Host, Manner, PAGE, TestMedium, namespace};
use port::ticket::OwnerKey;
use port::time::Time;
use port::{Channel, ChannelId, Channels, Done, MediumTraits};
use subsystem::{Subsystem, SubsystemConfig};

use super::keeper::Keeper;
use crate::config::{ControllerConfig, DoorbellMode, Interface};
use crate::controller::{Controller, Interrupt, Left};
use crate::lane::{Lane, LaneTable};

// Offsets of registers (Base 2.1, figure 35), typed here again.
pub(super) const CAP: u64 = 0x00;
pub(super) const VS: u64 = 0x08;
pub(super) const INTMS: u64 = 0x0c;
pub(super) const INTMC: u64 = 0x10;
pub(super) const CC: u64 = 0x14;
pub(super) const CSTS: u64 = 0x1c;
pub(super) const NSSR: u64 = 0x20;
pub(super) const AQA: u64 = 0x24;
pub(super) const ASQ: u64 = 0x28;
pub(super) const ACQ: u64 = 0x30;
pub(super) const CRTO: u64 = 0x68;

/// Enabled, NVM command set, 4 KiB pages, round robin, 64-byte and 16-byte entries: what Linux
/// writes.
pub(super) const CC_ENABLE: u32 = 0x0046_0001;

// CSTS (Base 2.1, 3.1.4.6).
pub(super) const RDY: u32 = 1;
pub(super) const CFS: u32 = 1 << 1;
pub(super) const SHST: u32 = 0b11 << 2;
pub(super) const SHST_OCCURRING: u32 = 0b01 << 2;
pub(super) const SHST_COMPLETE: u32 = 0b10 << 2;
pub(super) const NSSRO: u32 = 1 << 4;

// Admin opcodes (Base 2.1, figure 138).
pub(super) const DELETE_SQ: u8 = 0x00;
pub(super) const CREATE_SQ: u8 = 0x01;
pub(super) const GET_LOG: u8 = 0x02;
pub(super) const DELETE_CQ: u8 = 0x04;
pub(super) const CREATE_CQ: u8 = 0x05;
pub(super) const IDENTIFY: u8 = 0x06;
pub(super) const ABORT: u8 = 0x08;
pub(super) const SET_FEATURES: u8 = 0x09;
pub(super) const GET_FEATURES: u8 = 0x0a;
pub(super) const ASYNC_EVENT: u8 = 0x0c;
pub(super) const FIRMWARE_COMMIT: u8 = 0x10;
pub(super) const FIRMWARE_DOWNLOAD: u8 = 0x11;
pub(super) const KEEP_ALIVE: u8 = 0x18;
pub(super) const GET_LBA_STATUS: u8 = 0x86;
pub(super) const DOORBELL_BUFFERS: u8 = 0x7c;

// Statuses: type and code (Base 2.1, 4.2.3).
pub(super) const OK: u16 = 0;
pub(super) const INVALID_OPCODE: u16 = 0x001;
pub(super) const INVALID_FIELD: u16 = 0x002;
pub(super) const DATA_TRANSFER: u16 = 0x004;
pub(super) const INTERNAL: u16 = 0x006;
pub(super) const ABORT_REQUESTED: u16 = 0x007;
pub(super) const SQ_DELETED: u16 = 0x008;
pub(super) const INVALID_NAMESPACE: u16 = 0x00b;
pub(super) const SEQUENCE_ERROR: u16 = 0x00c;
pub(super) const PRP_OFFSET: u16 = 0x013;
pub(super) const OPERATION_DENIED: u16 = 0x015;
pub(super) const KEEP_ALIVE_INVALID: u16 = 0x01a;
pub(super) const LBA_OUT_OF_RANGE: u16 = 0x080;
pub(super) const FORMAT_IN_PROGRESS: u16 = 0x084;
pub(super) const CQ_INVALID: u16 = 0x100;
pub(super) const INVALID_QID: u16 = 0x101;
pub(super) const INVALID_QSIZE: u16 = 0x102;
pub(super) const ABORT_LIMIT_EXCEEDED: u16 = 0x103;
pub(super) const AER_LIMIT_EXCEEDED: u16 = 0x105;
pub(super) const INVALID_FIRMWARE_SLOT: u16 = 0x106;
pub(super) const INVALID_VECTOR: u16 = 0x108;
pub(super) const INVALID_LOG_PAGE: u16 = 0x109;
pub(super) const INVALID_DELETION: u16 = 0x10c;
pub(super) const NOT_SAVEABLE: u16 = 0x10d;
pub(super) const NOT_NAMESPACE_SPECIFIC: u16 = 0x10f;

/// Pages of the host's memory.
pub(super) const PAGES: u64 = 256;
const ASQ_PAGE: u64 = 0;
const ACQ_PAGE: u64 = 1;
/// Where I/O queues go: completion queue n at `IO + 2n`, submission queue n after it.
const IO: u64 = 8;
/// Where data goes.
pub(super) const DATA: u64 = 160;

pub(super) const SECOND: u64 = 1_000_000_000;

#[derive(Default)]
pub(super) struct Lanes {
    table: Vec<Option<Lane>>,
}

impl LaneTable for Lanes {
    fn insert(&mut self, mut lane: Lane) -> OwnerKey {
        let key = OwnerKey::lane(self.table.len() as u32);
        lane.settle(key);
        self.table.push(Some(lane));
        key
    }

    fn local(&mut self, key: OwnerKey) -> Option<&mut Lane> {
        self.table.get_mut(key.number() as usize)?.as_mut()
    }

    fn remove(&mut self, key: OwnerKey) {
        let lane = self.table.get_mut(key.number() as usize);
        if let Some(lane) = lane.and_then(Option::take) {
            lane.end();
        }
    }
}

impl Lanes {
    pub(super) fn iter(&self) -> impl Iterator<Item = &Lane> {
        self.table.iter().flatten()
    }

    /// Their process has ended.
    pub(super) fn end(self) {
        self.table.into_iter().flatten().for_each(Lane::end);
    }

    pub(super) fn live(&self) -> usize {
        self.table.iter().flatten().count()
    }
}

pub(super) struct Rig {
    pub(super) controller: Controller,
    pub(super) lanes: Lanes,
    pub(super) subsystem: Subsystem,
    pub(super) channels: Channels<TestMedium>,
    pub(super) host: Host,
    pub(super) doorbells: Arc<DoorbellPages>,
    pub(super) lost: LostFlag,
    pub(super) now: Time,
    pub(super) interrupts: Vec<Interrupt>,
    /// Keeps the subsystem's record.
    pub(super) keeper: Option<Keeper>,
    admin_entries: u32,
    sq_tail: u32,
    pub(super) cq_head: u32,
    cq_phase: bool,
    cid: u16,
}

/// Namespace 1 on a medium with a volatile cache, namespace 3 on one without; both of 2048 blocks.
pub(super) fn namespaces() -> Vec<Namespace> {
    let mut first = namespace(1, ChannelId(0), 2048);
    first.nguid = *b"ABCDEFGHIJKLMNOP";
    first.eui64 = *b"12345678";
    first.traits = MediumTraits {
        deallocate: true,
        deallocated_reads_zero: true,
        volatile_cache: true,
        optimal_bytes: 4096,
        read_only: false,
        notes: false,
        allocation: false,
        erases: false,
    };
    vec![first, namespace(3, ChannelId(1), 2048)]
}

pub(super) fn config() -> ControllerConfig {
    ControllerConfig {
        name: "test".to_owned(),
        vendor_id: 0x4e56,
        device_id: 0x0001,
        serial: "SERIAL-1".to_owned(),
        model_number: "a model".to_owned(),
        firmware_revision: "0.1".to_owned(),
        subnqn: "nqn.2014-08.org.nvmexpress:uuid:x".to_owned(),
        queues: 4,
        queue_depth: 64,
        max_transfer: 1 << 20,
        doorbells: DoorbellMode::Unmapped,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    }
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(config())
    }

    pub(super) fn with(config: ControllerConfig) -> Self {
        Self::with_namespaces(config, namespaces())
    }

    pub(super) fn with_namespaces(config: ControllerConfig, namespaces: Vec<Namespace>) -> Self {
        Self::of(config, SubsystemConfig::with_namespaces(32, namespaces))
    }

    pub(super) fn of(config: ControllerConfig, subsystem: SubsystemConfig) -> Self {
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        subsystem.set_key(OwnerKey::subsystem(3));
        Self::in_subsystem(config, subsystem)
    }

    /// A controller of this subsystem.
    pub(super) fn in_subsystem(config: ControllerConfig, mut subsystem: Subsystem) -> Self {
        let doorbells = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let mut controller = Controller::new(config, doorbells.clone(), &mut subsystem).unwrap();
        controller.set_key(OwnerKey::controller(7));
        let mut channels = Channels::new();
        for _ in 0..2 {
            let medium = TestMedium::new(2048 * 512, Manner::Asynchronous);
            channels.insert(medium).map_err(drop).unwrap();
        }
        let mut rig = Rig {
            controller,
            subsystem,
            lanes: Lanes::default(),
            channels,
            host: Host::new(PAGES),
            doorbells,
            lost: LostFlag::default(),
            now: Time(SECOND),
            interrupts: Vec::new(),
            keeper: None,
            admin_entries: 32,
            sq_tail: 0,
            cq_head: 0,
            cq_phase: true,
            cid: 0,
        };
        rig.tell_view();
        rig
    }

    /// The controller as a process has left it, with its state in `file`.
    pub(super) fn left(&self, file: Arc<StateFile>) -> Left {
        Left {
            file,
            doorbells: self.doorbells.clone(),
            view: self.host.view(),
            crashed: false,
        }
    }

    /// The process has died, and another one goes on from what it left; media keep their bytes.
    pub(super) fn revive(&mut self) {
        self.revive_with(config(), namespaces());
    }

    /// As [`Rig::revive`], in a world with these namespaces.
    pub(super) fn revive_with(&mut self, config: ControllerConfig, namespaces: Vec<Namespace>) {
        let fd = self.controller.state().fd().try_clone_to_owned().unwrap();
        let file = StateFile::open(fd).unwrap();
        self.revive_as(config, namespaces, file);
    }

    /// As [`Rig::revive`], with the state in `file`.
    pub(super) fn revive_from(&mut self, file: Arc<StateFile>) {
        self.revive_as(config(), namespaces(), file);
    }

    fn revive_as(
        &mut self,
        config: ControllerConfig,
        namespaces: Vec<Namespace>,
        file: Arc<StateFile>,
    ) {
        std::mem::take(&mut self.lanes).end();
        let subsystem = match &mut self.keeper {
            Some(keeper) => keeper.continues(),
            None => SubsystemConfig::with_namespaces(32, namespaces),
        };
        let subsystem = Subsystem::new(subsystem).unwrap();
        // A process that dies drops nothing.
        std::mem::forget(std::mem::replace(&mut self.subsystem, subsystem));
        self.subsystem.set_key(OwnerKey::subsystem(3));
        let mut channels = Channels::new();
        for (_, medium) in self.channels.iter_mut() {
            let mut next = TestMedium::new(0, medium.manner);
            next.bytes = std::mem::take(&mut medium.bytes);
            channels.insert(next).map_err(drop).unwrap();
        }
        self.channels = channels;
        let left = self.left(file);
        self.controller =
            Controller::restore(config, left, &mut self.subsystem, &mut self.lanes).unwrap();
        self.controller.set_key(OwnerKey::controller(7));
        self.tell_view();
    }

    /// Enabled, as Linux does it.
    pub(super) fn enabled() -> Self {
        let mut rig = Self::new();
        rig.enable();
        rig
    }

    /// From now on there are these namespaces.
    pub(super) fn set_namespaces(&mut self, namespaces: Vec<Namespace>) {
        self.subsystem.set_namespaces(namespaces);
        self.turn();
    }

    pub(super) fn tell_view(&mut self) {
        let view = self.host.view();
        self.controller.set_view(view, self.lost.clone());
    }

    pub(super) fn read32(&self, offset: u64) -> u32 {
        let mut bytes = [0; 4];
        self.controller.bar_read(0, offset, &mut bytes);
        u32::from_le_bytes(bytes)
    }

    pub(super) fn read64(&self, offset: u64) -> u64 {
        let mut bytes = [0; 8];
        self.controller.bar_read(0, offset, &mut bytes);
        u64::from_le_bytes(bytes)
    }

    pub(super) fn write32(&mut self, offset: u64, value: u32) {
        self.controller.bar_write(0, offset, &value.to_le_bytes());
    }

    pub(super) fn write64(&mut self, offset: u64, value: u64) {
        self.controller.bar_write(0, offset, &value.to_le_bytes());
    }

    pub(super) fn csts(&self) -> u32 {
        self.read32(CSTS)
    }

    /// One turn of the reactor: controller, lanes, media.
    pub(super) fn turn(&mut self) -> bool {
        let mut worked = self.controller.turn(
            self.now,
            &mut self.channels,
            &mut self.lanes,
            &mut self.subsystem,
        );
        worked |= self.subsystem.turn(self.now, &mut self.channels);
        if let Some(keeper) = &mut self.keeper {
            keeper.turn(&mut self.subsystem);
        }
        if self.controller.has_replayed() {
            self.controller.release_copies(&mut self.lanes);
        }
        if self.controller.has_replayed() {
            self.controller.release(&mut self.lanes);
        }
        let kicks: Vec<_> = self.controller.take_kicks().collect();
        for key in kicks {
            self.lanes.local(key).expect("a kick names a lane").kick();
        }
        for lane in self.lanes.table.iter_mut().flatten() {
            worked |= lane.turn(&mut self.channels).fetched > 0;
        }
        let mut done = Vec::new();
        for (_, channel) in self.channels.iter_mut() {
            channel.submit();
            channel.reap(&mut done);
        }
        for Done { ticket, outcome } in done {
            worked = true;
            let owner = ticket.owner();
            if owner == self.controller.key() {
                self.controller.complete(ticket, outcome);
            } else if owner == self.subsystem.key() {
                self.subsystem.complete(ticket, outcome);
            } else {
                match self.lanes.local(owner) {
                    Some(lane) => lane.complete(ticket, outcome),
                    None => ticket.retire(),
                }
            }
        }
        let interrupts = &mut self.interrupts;
        let raise = |interrupt| interrupts.push(interrupt);
        self.controller
            .take_interrupts(self.now, &mut self.lanes, raise);
        for lane in self.lanes.table.iter_mut().flatten() {
            if let Some(posted) = lane.take_posted() {
                let interrupt = self.controller.interrupt(posted, lane, self.now);
                self.interrupts.extend(interrupt);
            }
        }
        if self
            .controller
            .interrupts_due()
            .is_some_and(|due| self.now >= due)
        {
            let raise = |interrupt| self.interrupts.push(interrupt);
            self.controller
                .take_interrupts(self.now, &mut self.lanes, raise);
        }
        worked
    }

    pub(super) fn turns(&mut self, count: u32) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// Time passes, with turns before and after.
    pub(super) fn wait(&mut self, ns: u64) {
        self.turns(4);
        self.now = self.now + ns;
        self.turns(4);
    }

    /// AQA, ASQ and ACQ for admin queues of so many entries.
    pub(super) fn set_admin_queues(&mut self, entries: u32) {
        self.admin_entries = entries;
        self.write32(AQA, (entries - 1) << 16 | (entries - 1));
        let (asq, acq) = (self.host.page(ASQ_PAGE).0, self.host.page(ACQ_PAGE).0);
        self.write64(ASQ, asq);
        self.write64(ACQ, acq);
        self.host
            .write(self.host.page(ACQ_PAGE), &[0; PAGE as usize]);
        (self.sq_tail, self.cq_head, self.cq_phase) = (0, 0, true);
    }

    pub(super) fn enable(&mut self) {
        self.set_admin_queues(32);
        self.write32(CC, CC_ENABLE);
        self.turns(2);
        assert_eq!(self.csts() & (RDY | CFS), RDY);
    }

    pub(super) fn disable(&mut self) {
        self.write32(CC, CC_ENABLE & !1);
        self.turns(8);
        assert_eq!(self.csts() & RDY, 0);
    }

    /// Puts a command into the admin submission queue and rings; its command identifier.
    pub(super) fn submit(&mut self, mut sqe: Sqe) -> u16 {
        self.cid = self.cid.wrapping_add(1);
        sqe.cid = self.cid;
        let at = Iova(self.host.page(ASQ_PAGE).0 + u64::from(self.sq_tail) * 64);
        let words = sqe.to_words();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        self.host.write(at, &bytes);
        self.sq_tail = (self.sq_tail + 1) % self.admin_entries;
        self.write32(0x1000, self.sq_tail);
        self.cid
    }

    /// The next admin completion, if there is one; without telling the controller that it was
    /// consumed.
    pub(super) fn peek(&mut self) -> Option<Cqe> {
        let at = Iova(self.host.page(ACQ_PAGE).0 + u64::from(self.cq_head) * 16);
        let bytes = self.host.read(at, 16);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let cqe = Cqe::from_words([word(0), word(8)]);
        (cqe.status.phase() == self.cq_phase).then_some(cqe)
    }

    /// Takes the next admin completion.
    pub(super) fn reap(&mut self) -> Option<Cqe> {
        let cqe = self.peek()?;
        self.cq_head = (self.cq_head + 1) % self.admin_entries;
        self.cq_phase ^= self.cq_head == 0;
        self.write32(0x1004, self.cq_head);
        Some(cqe)
    }

    /// Runs an admin command to its end.
    pub(super) fn admin(&mut self, sqe: Sqe) -> Cqe {
        let cid = self.submit(sqe);
        for _ in 0..16 {
            self.turn();
            if let Some(cqe) = self.reap() {
                assert_eq!((cqe.cid, cqe.sq_id), (cid, 0));
                return cqe;
            }
        }
        panic!("admin command {:#x} was not answered", sqe.opcode);
    }

    /// Status type and code of an admin command.
    pub(super) fn status(&mut self, sqe: Sqe) -> u16 {
        let status = self.admin(sqe).status;
        u16::from(status.sct()) << 8 | u16::from(status.sc())
    }

    pub(super) fn data_page(&self) -> Iova {
        self.host.page(DATA)
    }

    /// A command with one page of data.
    pub(super) fn with_data(&self, opcode: u8) -> Sqe {
        let prp1 = self.data_page().0;
        Sqe {
            opcode,
            prp1,
            ..Sqe::default()
        }
    }

    /// Identify, and the page it returned.
    pub(super) fn identify(&mut self, cns: u32, nsid: u32, csi: u32) -> Result<Vec<u8>, u16> {
        let sqe = self.with_data(IDENTIFY);
        self.host.write(self.data_page(), &[0xee; PAGE as usize]);
        match self.status(Sqe {
            nsid,
            cdw10: cns,
            cdw11: csi << 24,
            ..sqe
        }) {
            OK => Ok(self.host.read(self.data_page(), PAGE as usize)),
            status => Err(status),
        }
    }

    /// Unmaps a page, and maps everything else.
    pub(super) fn unmap(&mut self, page: Iova) {
        let hole = (page.0 - self.host.page(0).0) / 4096;
        self.host.unmap_pages(0, PAGES);
        self.host.map_pages(0, hole);
        self.host.map_pages(hole + 1, PAGES - hole - 1);
        self.tell_view();
    }

    pub(super) fn cq_page(&self, qid: u16) -> Iova {
        self.host.page(IO + 2 * u64::from(qid))
    }

    pub(super) fn sq_page(&self, qid: u16) -> Iova {
        self.host.page(IO + 2 * u64::from(qid) + 1)
    }

    /// Create I/O Completion Queue `qid` of `entries`, interrupts enabled with its own vector.
    pub(super) fn create_cq_sqe(&self, qid: u16, entries: u32) -> Sqe {
        Sqe {
            opcode: CREATE_CQ,
            prp1: self.cq_page(qid).0,
            cdw10: (entries - 1) << 16 | u32::from(qid),
            cdw11: u32::from(qid) << 16 | 0b11,
            ..Sqe::default()
        }
    }

    /// Create I/O Submission Queue `qid` of `entries` for completion queue `cqid`.
    pub(super) fn create_sq_sqe(&self, qid: u16, cqid: u16, entries: u32) -> Sqe {
        Sqe {
            opcode: CREATE_SQ,
            prp1: self.sq_page(qid).0,
            cdw10: (entries - 1) << 16 | u32::from(qid),
            cdw11: u32::from(cqid) << 16 | 1,
            ..Sqe::default()
        }
    }

    pub(super) fn create_pair(&mut self, qid: u16, entries: u32) {
        self.host.write(self.cq_page(qid), &[0; PAGE as usize]);
        let (cq, sq) = (
            self.create_cq_sqe(qid, entries),
            self.create_sq_sqe(qid, qid, entries),
        );
        assert_eq!(self.status(cq), OK);
        assert_eq!(self.status(sq), OK);
    }

    pub(super) fn delete_sq(&mut self, qid: u16) -> u16 {
        self.status(Sqe {
            opcode: DELETE_SQ,
            cdw10: qid.into(),
            ..Sqe::default()
        })
    }

    pub(super) fn delete_cq(&mut self, qid: u16) -> u16 {
        self.status(Sqe {
            opcode: DELETE_CQ,
            cdw10: qid.into(),
            ..Sqe::default()
        })
    }

    /// Writes entry `index` of I/O submission queue `qid` and rings its doorbell to `index + 1`.
    pub(super) fn submit_io(&mut self, qid: u16, index: u32, sqe: Sqe) {
        let bytes: Vec<u8> = sqe
            .to_words()
            .iter()
            .flat_map(|w| w.to_le_bytes())
            .collect();
        self.host
            .write(Iova(self.sq_page(qid).0 + u64::from(index) * 64), &bytes);
        self.write32(0x1000 + 8 * u64::from(qid), index + 1);
    }

    /// Entry `index` of I/O completion queue `qid`, in its first round.
    pub(super) fn io_cqe(&self, qid: u16, index: u32) -> Option<Cqe> {
        let bytes = self
            .host
            .read(Iova(self.cq_page(qid).0 + u64::from(index) * 16), 16);
        let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        let cqe = Cqe::from_words([word(0), word(8)]);
        cqe.status.phase().then_some(cqe)
    }

    /// A read of `blocks` blocks of namespace 1 into the data page.
    pub(super) fn read_sqe(&self, cid: u16, blocks: u32) -> Sqe {
        Sqe {
            opcode: 0x02,
            cid,
            nsid: 1,
            prp1: self.data_page().0,
            cdw12: blocks - 1,
            ..Sqe::default()
        }
    }

    pub(super) fn medium(&mut self, id: u16) -> &mut TestMedium {
        self.channels.get_mut(ChannelId(id)).unwrap()
    }

    pub(super) fn async_event(&mut self) -> u16 {
        self.submit(Sqe {
            opcode: ASYNC_EVENT,
            ..Sqe::default()
        })
    }

    pub(super) fn set_feature(&mut self, fid: u32, cdw11: u32) -> Cqe {
        self.admin(Sqe {
            opcode: SET_FEATURES,
            cdw10: fid,
            cdw11,
            ..Sqe::default()
        })
    }

    pub(super) fn get_feature(&mut self, fid: u32, sel: u32, cdw11: u32) -> Cqe {
        let sqe = self.with_data(GET_FEATURES);
        self.admin(Sqe {
            cdw10: sel << 8 | fid,
            cdw11,
            ..sqe
        })
    }

    /// `len` bytes of a log page from `offset` on.
    pub(super) fn log(&mut self, lid: u32, offset: u64, len: usize) -> Result<Vec<u8>, u16> {
        self.log_with(lid, offset, len, false)
    }

    pub(super) fn log_with(
        &mut self,
        lid: u32,
        offset: u64,
        len: usize,
        retain: bool,
    ) -> Result<Vec<u8>, u16> {
        assert!(len <= PAGE as usize);
        let numd = len as u32 / 4 - 1;
        let sqe = self.with_data(GET_LOG);
        let status = self.status(Sqe {
            nsid: 0xffff_ffff,
            cdw10: numd << 16 | u32::from(retain) << 15 | lid,
            cdw12: offset as u32,
            cdw13: (offset >> 32) as u32,
            ..sqe
        });
        match status {
            OK => Ok(self.host.read(self.data_page(), len)),
            status => Err(status),
        }
    }
}

/// Status type and code of a completion.
pub(super) fn code(cqe: &Cqe) -> u16 {
    u16::from(cqe.status.sct()) << 8 | u16::from(cqe.status.sc())
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap())
}

pub(super) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap())
}

pub(super) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())
}
