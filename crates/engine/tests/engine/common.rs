//! A small host: its memory, its queues in bytes, and a medium that answers when the test says so.

#![expect(clippy::unwrap_used, reason = "a test ends where its host fails")]

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use controller::inspect::Look;
use controller::queue::BellView;
use controller::{Controller, ControllerConfig, DoorbellMode, Interface, Interrupt};
use engine::{ControllerSlot, Engine, EngineId, Mail, Mode};
use memory::{
    Access, Buffer, ClientMappings, DmaMap, DmaView, DoorbellPages, HostCq, HostMemory, HostSq,
    Iova, LostFlag, Segment,
};
use nvme_spec::{Cqe, Sqe};
use port::namespace::Namespace;
use port::ticket::Ticket;
use port::time::Time;
use port::{Added, Channel, ChannelId, Done, MediumTraits, Outcome, Request};
use subsystem::{Subsystem, SubsystemConfig};

const MEMORY_LEN: usize = 4 << 20;
const ENTRIES: u32 = 16;
const ADMIN_ENTRIES: u32 = 16;

/// A medium that keeps what it is given until it may let go.
#[derive(Clone, Default)]
pub(crate) struct Held(Rc<RefCell<Holding>>);

#[derive(Default)]
pub(crate) struct Holding {
    pub(crate) tickets: VecDeque<Ticket>,
    pub(crate) let_go: bool,
    pub(crate) let_one_go: bool,
    /// From then on the oldest ends by itself.
    pub(crate) due: Option<Time>,
    /// Its events.
    pub(crate) story: Vec<Event>,
}

/// Event on a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A lane has seen that its host tells of commands.
    Told,
    /// A command came.
    Came,
    /// A command's time has come.
    Ended,
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.tickets.drain(..).for_each(Ticket::retire);
    }
}

impl Held {
    pub(crate) fn let_go(&self, let_go: bool) {
        self.0.borrow_mut().let_go = let_go;
    }

    /// The oldest ends with the next reap.
    pub(crate) fn let_one_go(&self) {
        self.0.borrow_mut().let_one_go = true;
    }

    /// The oldest ends by itself at that time.
    pub(crate) fn set_due(&self, due: Time) {
        self.0.borrow_mut().due = Some(due);
    }

    /// Events since the last call.
    pub(crate) fn take_story(&self) -> Vec<Event> {
        std::mem::take(&mut self.0.borrow_mut().story)
    }

    pub(crate) fn held(&self) -> usize {
        self.0.borrow().tickets.len()
    }
}

impl Channel for Held {
    fn add(
        &mut self,
        ticket: Ticket,
        _: &Request<'_>,
        _: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        let mut holding = self.0.borrow_mut();
        holding.tickets.push_back(ticket);
        holding.story.push(Event::Came);
        Added::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        let mut holding = self.0.borrow_mut();
        let outcome = Outcome::OK;
        if std::mem::take(&mut holding.let_one_go) {
            let oldest = holding.tickets.pop_front();
            done.extend(oldest.map(|ticket| Done { ticket, outcome }));
        }
        if holding.let_go {
            done.extend(
                holding
                    .tickets
                    .drain(..)
                    .map(|ticket| Done { ticket, outcome }),
            );
        }
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.held()).unwrap()
    }

    fn keeps_time(&self) -> bool {
        true
    }

    fn set_time(&mut self, now: Time, done: &mut Vec<Done>) {
        let mut holding = self.0.borrow_mut();
        if holding.due.is_some_and(|due| due <= now) {
            holding.due = None;
            holding.story.push(Event::Ended);
            let outcome = Outcome::OK;
            let oldest = holding.tickets.pop_front();
            done.extend(oldest.map(|ticket| Done { ticket, outcome }));
        }
    }

    fn arrive(&mut self) {
        self.0.borrow_mut().story.push(Event::Told);
    }

    fn next_due(&self) -> Option<Time> {
        self.0.borrow().due
    }
}

/// A submission and a completion queue of the host.
pub(crate) struct Queue {
    id: u16,
    entries: u32,
    sq: HostSq,
    cq: HostCq,
    tail: u32,
    head: u32,
    phase: bool,
}

/// A host with its controller in an engine.
pub(crate) struct Host {
    pub(crate) slot: ControllerSlot,
    doorbells: Arc<DoorbellPages>,
    memory: HostMemory,
    map: DmaMap,
    lost: LostFlag,
    admin: Queue,
    data: Buffer,
}

pub(crate) struct Rig {
    pub(crate) engine: Engine<Held>,
    /// Engines from 1 on, each with a medium of its own.
    pub(crate) others: Vec<(Engine<Held>, Held)>,
    /// Mail on its way: from, to, and content.
    mail: VecDeque<(EngineId, EngineId, Mail)>,
    /// The others take no turn until mail wakes them.
    pub(crate) others_sleep: bool,
    /// Mail from this engine stays on its way.
    pub(crate) hold_mail: Option<EngineId>,
    /// Mail is not taken from the engines.
    pub(crate) leave_mail: bool,
    pub(crate) medium: Held,
    channel: ChannelId,
    pub(crate) now: Time,
    /// Interrupts raised, by controller.
    pub(crate) raised: Vec<(ControllerSlot, Interrupt)>,
    /// Whether the controllers to come have an interrupt pin.
    pub(crate) intx: bool,
    /// Whether hosts select weighted round robin, and with which Arbitration feature.
    pub(crate) weighted: Option<u32>,
}

impl Rig {
    pub(crate) fn new() -> Self {
        let mut engine = Engine::new(Mode::Interrupt, Time(0));
        let medium = Held::default();
        let channel = ChannelId(3);
        let taken = engine.add_channel(channel, medium.clone(), 4096);
        assert!(taken.is_ok());
        Rig {
            engine,
            others: Vec::new(),
            mail: VecDeque::new(),
            others_sleep: false,
            hold_mail: None,
            leave_mail: false,
            medium,
            channel,
            now: Time(0),
            raised: Vec::new(),
            intx: false,
            weighted: None,
        }
    }

    /// One turn, a microsecond after the last.
    pub(crate) fn turn(&mut self) -> engine::Turn {
        self.now = Time(self.now.0 + 1000);
        let raised = &mut self.raised;
        let turn = self
            .engine
            .turn(self.now, |slot, interrupt| raised.push((slot, interrupt)));
        for (other, _) in self.others.iter_mut().filter(|_| !self.others_sleep) {
            other.turn(self.now, |_, _| panic!("it has no controllers"));
        }
        self.carry();
        turn
    }

    /// Adds an engine that has no controllers.
    pub(crate) fn add_engine(&mut self) -> EngineId {
        let id = EngineId(u16::try_from(self.others.len()).unwrap() + 1);
        let mut engine = Engine::new(Mode::Interrupt, self.now);
        engine.set_id(id);
        let medium = Held::default();
        let taken = engine.add_channel(self.channel, medium.clone(), 4096);
        assert!(taken.is_ok());
        self.others.push((engine, medium));
        id
    }

    /// The engine with that number.
    pub(crate) fn engine_of(&mut self, id: EngineId) -> &mut Engine<Held> {
        match usize::from(id.0) {
            0 => &mut self.engine,
            other => &mut self.others[other - 1].0,
        }
    }

    /// Carries mail from engine to engine. How much there was.
    pub(crate) fn carry(&mut self) -> usize {
        if self.leave_mail {
            return 0;
        }
        for from in (0..=self.others.len()).map(|id| EngineId(u16::try_from(id).unwrap())) {
            while let Some((to, mail)) = self.engine_of(from).take_mail() {
                self.mail.push_back((from, to, mail));
            }
        }
        let count = self.mail.len();
        for (from, to, mail) in std::mem::take(&mut self.mail) {
            if self.hold_mail == Some(from) {
                self.mail.push_back((from, to, mail));
            } else {
                self.others_sleep &= to == EngineId(0);
                self.engine_of(to).deliver(from, mail);
            }
        }
        count
    }

    pub(crate) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.turn();
        }
    }

    /// Values in the doorbells of a completion queue.
    pub(crate) fn completion_bell(&self, host: &Host, queue: &Queue) -> BellView {
        let look = Look {
            now: self.now,
            commands: 0,
        };
        let home = EngineId(0);
        let seen = self.engine.inspect_lane(home, host.slot, queue.id, look);
        seen.expect("its lane lives here").bell
    }

    pub(crate) fn controller(&mut self, host: &Host) -> &mut Controller {
        self.engine.controller_mut(host.slot).unwrap()
    }

    /// A host that has enabled a controller of its own.
    pub(crate) fn host(&mut self, name: &str, mode: DoorbellMode) -> Host {
        let config = ControllerConfig {
            name: name.into(),
            vendor_id: 0x1234,
            device_id: 1,
            serial: name.into(),
            model_number: "test".into(),
            firmware_revision: "1".into(),
            subnqn: format!("nqn.2014-08.org.example:{name}"),
            queues: 4,
            queue_depth: 64,
            max_transfer: 1 << 20,
            doorbells: mode,
            msix: true,
            intx: self.intx,
            interface: Interface::Pcie,
        };
        let namespace = Namespace {
            nsid: 1,
            channel: self.channel,
            start: 0,
            blocks: 1024,
            lba_shift: 12,
            nguid: [1; 16],
            eui64: [1; 8],
            traits: MediumTraits {
                volatile_cache: true,
                ..MediumTraits::default()
            },
            restrictions: None,
            set: None,
        };
        let subsystem = SubsystemConfig::with_namespaces(4, [namespace]);
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        let doorbells = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let memory = HostMemory::new(MEMORY_LEN).unwrap();
        let mut mappings = ClientMappings::new();
        let mapping = mappings
            .map(memory.fd().try_clone_to_owned().unwrap())
            .unwrap();
        let mut map = DmaMap::new(16);
        let backing = Some((mapping, 0));
        map.map(Iova(0), MEMORY_LEN as u64, Access::READ_WRITE, backing)
            .unwrap();
        let mut controller = Controller::new(config, doorbells.clone(), &mut subsystem).unwrap();
        controller.set_view(map.view(), mappings.lost());
        let subsystem = self.engine.add_subsystem(subsystem);
        let slot = self.engine.add_controller(controller, subsystem);
        let admin = queue(&memory, 0, ADMIN_ENTRIES);
        let data = memory.alloc(4096, 4096).unwrap();
        let mut host = Host {
            map,
            lost: mappings.lost(),
            slot,
            doorbells,
            memory,
            admin,
            data,
        };
        self.enable(&mut host);
        host
    }

    /// AQA, ASQ, ACQ, then CC.EN with 64- and 16-byte entries (Base 2.1, 3.5.1).
    pub(crate) fn enable(&mut self, host: &mut Host) {
        host.admin = queue(&host.memory, 0, ADMIN_ENTRIES);
        let asq = host.admin.sq.buffer().iova(Iova(0)).0;
        let acq = host.admin.cq.buffer().iova(Iova(0)).0;
        let controller = self.controller(host);
        controller.bar_write(0, 0x24, &0x000f_000fu32.to_le_bytes());
        controller.bar_write(0, 0x28, &asq.to_le_bytes());
        controller.bar_write(0, 0x30, &acq.to_le_bytes());
        let cc = 0x0046_0001 | u32::from(self.weighted.is_some()) << 11;
        let controller = self.controller(host);
        controller.bar_write(0, 0x14, &cc.to_le_bytes());
        self.turns(4);
        assert_eq!(self.csts(host) & 3, 1, "ready, and no fatal status");
        if let Some(arbitration) = self.weighted {
            let set = Sqe {
                opcode: 9,
                cdw10: 1,
                cdw11: arbitration,
                ..Sqe::default()
            };
            assert!(self.admin(host, set).status.status().is_success());
        }
    }

    /// The host goes, and another comes with doorbells of its own. Returns those that the first one
    /// may still have mapped.
    pub(crate) fn next_host(&mut self, host: &mut Host) -> Arc<DoorbellPages> {
        self.controller(host).function_reset();
        self.turns(8);
        let fresh = Arc::new(DoorbellPages::new(host.doorbells.slots()).unwrap());
        self.controller(host).set_doorbells(fresh.clone()).unwrap();
        std::mem::replace(&mut host.doorbells, fresh)
    }

    pub(crate) fn csts(&mut self, host: &Host) -> u32 {
        let mut csts = [0; 4];
        self.controller(host).bar_read(0, 0x1c, &mut csts);
        u32::from_le_bytes(csts)
    }

    /// Writes the tail by a message: 1000h + 2y * 4 (PCIe Transport 1.1, 3.1.2).
    pub(crate) fn ring_by_message(&mut self, host: &Host, queue: &Queue) {
        let at = 0x1000 + 8 * u64::from(queue.id);
        let tail = queue.tail.to_le_bytes();
        self.controller(host).bar_write(0, at, &tail);
    }

    /// The same by a transport inside the process, which only carries commands.
    pub(crate) fn ring_as_transport(&mut self, host: &Host, queue: &Queue) {
        let at = 0x1000 + 8 * u64::from(queue.id);
        let controller = self.engine.peek_controller(host.slot).unwrap();
        controller.bar_write(0, at, &queue.tail.to_le_bytes());
        self.engine.rung(host.slot);
    }

    /// Whether an admin command for which a transport rings completes in the next turn.
    pub(crate) fn is_admin_command_served_at_once(&mut self, host: &mut Host) -> bool {
        let get_features = Sqe {
            opcode: 0xa,
            cid: 5,
            cdw10: 7,
            ..Sqe::default()
        };
        host.admin.push(get_features);
        self.ring_as_transport(host, &host.admin);
        self.turn();
        host.admin.pop().is_some_and(|cqe| cqe.cid == 5)
    }

    /// Sends an admin command and waits for its completion.
    fn admin(&mut self, host: &mut Host, mut sqe: Sqe) -> Cqe {
        sqe.cid = 77;
        host.admin.push(sqe);
        self.ring_by_message(host, &host.admin);
        for _ in 0..40 {
            self.turn();
            if let Some(cqe) = host.admin.pop() {
                assert_eq!(cqe.cid, 77);
                host.doorbells.store(1, host.admin.head);
                return cqe;
            }
        }
        panic!("an admin command did not complete");
    }

    /// Delete I/O Submission Queue, then Completion Queue (Base 2.1, 5.2.4 and 5.2.3).
    pub(crate) fn delete_queue(&mut self, host: &mut Host, queue: &Queue) {
        for opcode in [0, 4] {
            let delete = Sqe {
                opcode,
                cdw10: u32::from(queue.id),
                ..Sqe::default()
            };
            assert!(self.admin(host, delete).status.status().is_success());
        }
    }

    /// The host enables MSI, one message (PCI 3.0, 6.8.1.3).
    pub(crate) fn use_messages(&mut self, host: &Host) {
        let control = 1u16;
        self.controller(host)
            .config_write(0x52, &control.to_le_bytes());
    }

    /// Set Features, which succeeds.
    pub(crate) fn set_feature(&mut self, host: &mut Host, fid: u32, value: u32) {
        let cqe = self.admin(
            host,
            Sqe {
                opcode: 9,
                cdw10: fid,
                cdw11: value,
                ..Sqe::default()
            },
        );
        assert_eq!(
            cqe.status.status(),
            nvme_spec::Status::SUCCESSFUL_COMPLETION
        );
    }

    /// Doorbell Buffer Config (Base 2.1, 5.2.5): the shadow page and the EventIdx page.
    pub(crate) fn doorbell_buffers(&mut self, host: &mut Host) -> [Buffer; 2] {
        let pages = [(); 2].map(|()| host.memory.alloc(4096, 4096).unwrap());
        pages.iter().for_each(Buffer::zero);
        let [prp1, prp2] = [0, 1].map(|at| pages[at].iova(Iova(0)).0);
        let config = Sqe {
            opcode: 0x7c,
            prp1,
            prp2,
            ..Sqe::default()
        };
        assert!(self.admin(host, config).status.status().is_success());
        pages
    }

    /// A queue pair; interrupts on vector `id`.
    pub(crate) fn create_queue(&mut self, host: &mut Host, id: u16) -> Queue {
        self.create_queue_of(host, id, 0)
    }

    /// A queue pair whose submission queue has this priority (QPRIO).
    pub(crate) fn create_queue_of(&mut self, host: &mut Host, id: u16, priority: u32) -> Queue {
        self.create_queue_with(host, id, priority, true)
    }

    /// A queue pair without interrupts: its host polls.
    pub(crate) fn create_polled_queue(&mut self, host: &mut Host, id: u16) -> Queue {
        self.create_queue_with(host, id, 0, false)
    }

    fn create_queue_with(
        &mut self,
        host: &mut Host,
        id: u16,
        priority: u32,
        interrupts: bool,
    ) -> Queue {
        let queue = queue(&host.memory, id, ENTRIES);
        let size_and_id = (ENTRIES - 1) << 16 | u32::from(id);
        let cq = Sqe {
            opcode: 5,
            prp1: queue.cq.buffer().iova(Iova(0)).0,
            cdw10: size_and_id,
            cdw11: u32::from(id) << 16 | u32::from(interrupts) << 1 | 1,
            ..Sqe::default()
        };
        let sq = Sqe {
            opcode: 1,
            prp1: queue.sq.buffer().iova(Iova(0)).0,
            cdw10: size_and_id,
            cdw11: u32::from(id) << 16 | priority << 1 | 1,
            ..Sqe::default()
        };
        assert_eq!(
            self.admin(host, cq).status.status(),
            nvme_spec::Status::SUCCESSFUL_COMPLETION
        );
        assert_eq!(
            self.admin(host, sq).status.status(),
            nvme_spec::Status::SUCCESSFUL_COMPLETION
        );
        queue
    }
}

impl Host {
    /// Its memory, as after a change of the map.
    pub(crate) fn view_again(&self) -> (Arc<DmaView>, LostFlag) {
        (self.map.view(), self.lost.clone())
    }

    /// Stores the tail as into a page that is mapped.
    pub(crate) fn ring(&self, queue: &Queue) {
        self.doorbells.store(2 * usize::from(queue.id), queue.tail);
    }

    /// Stores a head as into a page that is mapped.
    pub(crate) fn store_head(&self, queue: &Queue, head: u32) {
        let slot = 2 * usize::from(queue.id) + 1;
        self.doorbells.store(slot, head);
    }

    /// Stores the tail into the shadow page, and tells whether the register is to be written for it
    /// (Base 2.1, Annex B.5): whether EventIdx lies between the tail before and this one.
    pub(crate) fn ring_shadow(&self, [shadow, event_idx]: &[Buffer; 2], queue: &Queue) -> bool {
        let at = 8 * usize::from(queue.id);
        let before = shadow.load_u32(at);
        shadow.store_u32(at, queue.tail);
        let passed = |from: u32, to: u32| (to as u16).wrapping_sub(from as u16);
        let event = event_idx.load_u32(at);
        passed(event + 1, queue.tail) < passed(before, queue.tail)
    }

    /// Puts reads of one block with the given identifiers, and does not ring.
    pub(crate) fn reads(&self, queue: &mut Queue, cids: impl IntoIterator<Item = u16>) {
        for cid in cids {
            queue.push(Sqe {
                opcode: 2,
                cid,
                nsid: 1,
                prp1: self.data.iova(Iova(0)).0,
                ..Sqe::default()
            });
        }
    }

    /// Puts a Write Uncorrectable of one block, and does not ring.
    pub(crate) fn write_uncorrectable(&self, queue: &mut Queue, cid: u16) {
        queue.push(Sqe {
            opcode: 4,
            cid,
            nsid: 1,
            ..Sqe::default()
        });
    }

    /// Takes all completions: their command identifiers.
    pub(crate) fn completions(&self, queue: &mut Queue) -> Vec<u16> {
        let entries = self.completion_entries(queue);
        entries.iter().map(|cqe| cqe.cid).collect()
    }

    /// Takes all completions.
    pub(crate) fn completion_entries(&self, queue: &mut Queue) -> Vec<Cqe> {
        let entries = std::iter::from_fn(|| queue.pop()).collect();
        self.doorbells
            .store(2 * usize::from(queue.id) + 1, queue.head);
        entries
    }
}

impl Queue {
    fn push(&mut self, sqe: Sqe) {
        self.sq.store(self.tail, sqe.to_words());
        self.tail = (self.tail + 1) % self.entries;
    }

    fn pop(&mut self) -> Option<Cqe> {
        let cqe = Cqe::from_words(self.cq.load(self.head));
        if cqe.status.phase() != self.phase {
            return None;
        }
        self.head = (self.head + 1) % self.entries;
        self.phase ^= self.head == 0;
        Some(cqe)
    }
}

fn queue(memory: &HostMemory, id: u16, entries: u32) -> Queue {
    let alloc = |entry: usize| memory.alloc(entries as usize * entry, 4096).unwrap();
    Queue {
        id,
        entries,
        sq: HostSq::new(alloc(64)),
        cq: HostCq::new(alloc(16)),
        tail: 0,
        head: 0,
        phase: true,
    }
}
