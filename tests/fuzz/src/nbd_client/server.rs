//! The server's side: newcomers, clients and their controllers, as a reactor has them.

use std::sync::Arc;

use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use engine::{ControllerSlot, SubsystemSlot};
use media::{Medium, MediumKind, MediumSpec};
use memory::DoorbellPages;
use port::namespace::{Namespace, Restrictions};
use port::{ChannelId, MediumTraits};
use subsystem::{
    Allocated, Change, ControllerSet, Operation, OperatorRequest, Requester, Step, Subsystem,
};
use transport::nbd::{Client, Newcomer, Offers, Progress, QUEUE_DEPTH, QUEUES, offer};

use super::SIZE;
use crate::gate::{GATED_MAX, Gate, Gated};
use crate::rig::{FuzzChannel, Rig};

/// The exported namespace, on a channel of its own.
const NSID: u32 = 3;
const CHANNEL: ChannelId = ChannelId(2);
/// Clients at the same time, with those whose controllers stop.
const CLIENTS_MAX: usize = 4;

struct Session {
    peer: usize,
    client: Client,
    slot: ControllerSlot,
}

/// See the module.
pub(super) struct Server {
    pub(super) rig: Rig,
    pub(super) gate: Gate,
    subsystem: SubsystemSlot,
    traits: MediumTraits,
    lba_shift: u8,
    max_transfer: u32,
    offers: Arc<Offers>,
    newcomers: Vec<(usize, Newcomer)>,
    sessions: Vec<Session>,
    leaving: Vec<(usize, ControllerSlot)>,
    /// Clients whose connection has ended, and why.
    pub(super) ends: Vec<(usize, &'static str)>,
    /// Clients of which no command is in flight any more.
    pub(super) left: Vec<usize>,
}

impl Server {
    pub(super) fn new(lba_shift: u8, max_transfer: u32) -> Self {
        let mut rig = Rig::new(DoorbellMode::Trapped);
        let kind = MediumKind::Ram { size: SIZE };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let gate = Gate::default();
        let channel = Gated::new(medium.channel(64).unwrap(), gate.clone());
        let channel = FuzzChannel::Gated(channel);
        assert!(rig.engine.add_channel(CHANNEL, channel, GATED_MAX).is_ok());
        let (subsystem, _) = rig.engine.subsystems_mut().next().unwrap();
        let mut server = Self {
            rig,
            gate,
            subsystem,
            traits: medium.traits(),
            lba_shift,
            max_transfer,
            offers: Arc::default(),
            newcomers: Vec::new(),
            sessions: Vec::new(),
            leaving: Vec::new(),
            ends: Vec::new(),
            left: Vec::new(),
        };
        let created = Allocated::everywhere(server.namespace());
        let create = OperatorRequest::Create(Box::new(created));
        server.subsystem().request(1, create);
        server.offer();
        server
    }

    pub(super) fn lba_shift(&self) -> u8 {
        self.lba_shift
    }

    fn subsystem(&mut self) -> &mut Subsystem {
        self.rig.engine.subsystem_mut(self.subsystem).unwrap()
    }

    fn namespace(&self) -> Namespace {
        let lba_shift = self.lba_shift;
        Namespace {
            nsid: NSID,
            channel: CHANNEL,
            start: 0,
            blocks: SIZE >> lba_shift,
            lba_shift,
            nguid: [3; 16],
            eui64: [3; 8],
            traits: self.traits,
            restrictions: None,
            set: None,
        }
    }

    /// Offers the namespace as it is, and as one that takes no writes.
    fn offer(&mut self) {
        let mut namespace = self.namespace();
        let writable = offer(&namespace, "rw").unwrap();
        let restrictions = Restrictions {
            read_only: true,
            ..Restrictions::default()
        };
        namespace.restrictions = restrictions.some();
        let read_only = offer(&namespace, "ro").unwrap();
        self.offers = Arc::new([writable, read_only].into_iter().collect());
    }

    /// The namespace is formatted to blocks of another size, is detached or attached, takes no
    /// writes, or takes them again.
    pub(super) fn change_namespace(&mut self, how: u8) {
        let nsid = NSID;
        let controllers = ControllerSet::NONE.with(self.rig.controller().id());
        let read_only = how & 4 != 0;
        match how % 4 {
            0 => {
                self.lba_shift ^= 9 ^ 12;
                let lba_shift = self.lba_shift;
                let change = Step::Change(Change::Reformat { nsid, lba_shift });
                let by = Requester::Operator(1);
                let format = Operation::new(by, nsid, [change, Step::Drain]);
                self.subsystem().begin(format);
                self.offer();
            }
            1 => {
                let controllers = ControllerSet::ALL;
                let detach = OperatorRequest::Detach { nsid, controllers };
                self.subsystem().request(1, detach);
            }
            2 => {
                let attach = OperatorRequest::Attach { nsid, controllers };
                self.subsystem().request(1, attach);
            }
            _ => {
                let set = OperatorRequest::SetReadOnly { nsid, read_only };
                self.subsystem().request(1, set);
            }
        }
    }

    /// The controller of a client is reset, as only an operator can.
    pub(super) fn reset(&mut self, at: u8) {
        let count = self.sessions.len().max(1);
        if let Some(session) = self.sessions.get(usize::from(at) % count) {
            let controller = self.rig.engine.controller_mut(session.slot).unwrap();
            controller.function_reset();
        }
    }

    /// A connection of a client.
    pub(super) fn accept(&mut self, peer: usize, stream: std::os::unix::net::UnixStream) {
        let now = self.rig.now();
        let newcomer = Newcomer::new(stream.into(), self.offers.clone(), now).unwrap();
        self.newcomers.push((peer, newcomer));
    }

    /// The client of a peer, once it has chosen.
    pub(super) fn client(&self, peer: usize) -> Option<&Client> {
        let found = self.sessions.iter().find(|session| session.peer == peer);
        found.map(|session| &session.client)
    }

    /// Whether a peer has a connection, or a controller that stops.
    pub(super) fn has(&self, peer: usize) -> bool {
        self.client(peer).is_some()
            || self.newcomers.iter().any(|(other, _)| *other == peer)
            || self.leaving.iter().any(|(other, _)| *other == peer)
    }

    /// Whether no connection is left, and no controller of one.
    pub(super) fn is_empty(&self) -> bool {
        self.newcomers.is_empty() && self.sessions.is_empty() && self.leaving.is_empty()
    }

    /// A poll of everything; whether there was something to do.
    pub(super) fn poll(&mut self) -> bool {
        let now = self.rig.now();
        for (peer, mut newcomer) in std::mem::take(&mut self.newcomers) {
            match newcomer.poll(now) {
                Progress::Waits => self.newcomers.push((peer, newcomer)),
                Progress::Ended(end) => self.end(peer, end.name()),
                Progress::Moves => unreachable!("its entrance has no TLS"),
                Progress::Chosen => self.arrive(peer, newcomer),
            }
        }
        let mut worked = false;
        for mut session in std::mem::take(&mut self.sessions) {
            let controller = self.rig.engine.controller_mut(session.slot).unwrap();
            let polled = session.client.poll(controller, now);
            worked |= polled.worked;
            match polled.ended {
                None => self.sessions.push(session),
                Some(end) => {
                    controller.function_reset();
                    self.leaving.push((session.peer, session.slot));
                    self.ends.push((session.peer, end.name()));
                }
            }
        }
        self.rig.turns(1);
        let now = self.rig.now();
        for session in &mut self.sessions {
            let controller = self.rig.engine.controller_mut(session.slot).unwrap();
            worked |= session.client.drain(controller, now);
            let _ = session.client.next_deadline();
        }
        for (peer, slot) in std::mem::take(&mut self.leaving) {
            let controller = self.rig.engine.controller_mut(slot).unwrap();
            if controller.is_quiet() {
                self.rig.engine.remove_controller(slot).unwrap();
                self.left.push(peer);
            } else {
                self.leaving.push((peer, slot));
            }
        }
        let subsystem = self.subsystem();
        while subsystem.take_operator_answer().is_some() {}
        worked
    }

    /// A connection ends before it has a controller.
    fn end(&mut self, peer: usize, end: &'static str) {
        self.ends.push((peer, end));
        self.left.push(peer);
    }

    fn arrive(&mut self, peer: usize, newcomer: Newcomer) {
        if self.sessions.len() + self.leaving.len() == CLIENTS_MAX {
            return self.end(peer, "too-many-clients");
        }
        let entrance = self.rig.controller();
        let config = ControllerConfig {
            queues: QUEUES,
            queue_depth: QUEUE_DEPTH,
            max_transfer: self.max_transfer,
            msix: false,
            intx: false,
            interface: Interface::Fabrics(Fabrics {
                entrance: entrance.id(),
                in_capsule: 0,
            }),
            ..entrance.config().clone()
        };
        let doorbells = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let subsystem = self.rig.engine.subsystem_mut(self.subsystem).unwrap();
        let controller = Controller::new(config, doorbells, subsystem).unwrap();
        let slot = self.rig.engine.add_controller(controller, self.subsystem);
        let now = self.rig.now();
        let controller = self.rig.engine.controller_mut(slot).unwrap();
        let client = Client::new(newcomer.arrive(), controller, now).unwrap();
        self.sessions.push(Session { peer, client, slot });
    }
}
