//! The target's side: a reactor of one entrance, on the test's thread and in virtual time.

use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use controller::lane::Lane;
use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use driver::bus::Bus as _;
use loopback::InProcess;
use media::{Medium, MediumKind, MediumSpec};
use memory::{DmaView, DoorbellPages, Segment};
use port::namespace::Namespace;
use port::ticket::Ticket;
use port::time::Time;
use port::{Added, Channel, ChannelId, Channels, Done, MediumTraits, Request};
use subsystem::{Subsystem, SubsystemConfig};
use transport::nvme_tcp::{
    Access, Arrival, Association, Branch, Digests, End, Farewell, Newcomer, Progress, Refusal,
    Success, TargetConfig,
};

/// The subsystem's name.
pub(super) const SUBNQN: &str = "nqn.2026-11.t:s0";
/// Bytes of the medium.
pub(super) const MEDIUM_LEN: u64 = 8 << 20;
/// The namespace with blocks of 512 bytes; the next one has blocks of 4,096 bytes.
pub(super) const NSID: u32 = 1;
/// I/O queues.
pub(super) const QUEUES: u16 = 4;
/// Bytes of a command.
pub(super) const MAX_TRANSFER: u32 = 128 << 10;
/// Bytes of data in a capsule.
pub(super) const IN_CAPSULE: u32 = 8192;

/// A medium that can stall: its requests are executed, and do not end.
pub(super) struct Stalling {
    inner: media::Channel,
    stalls: bool,
    held: Vec<Done>,
}

impl Channel for Stalling {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        match self.inner.add(ticket, request, segments, view) {
            Added::Done(ticket, outcome) if self.stalls => {
                self.held.push(Done { ticket, outcome });
                Added::Pending
            }
            added => added,
        }
    }

    fn submit(&mut self) {
        self.inner.submit();
    }

    fn reap(&mut self, done: &mut Vec<Done>) {
        self.inner.reap(done);
        if !self.stalls {
            done.append(&mut self.held);
        }
    }

    fn in_flight(&self) -> u32 {
        self.inner.in_flight() + self.held.len() as u32
    }

    fn is_full(&self, request: &Request<'_>) -> bool {
        self.inner.is_full(request)
    }
}

impl Drop for Stalling {
    fn drop(&mut self) {
        for done in self.held.drain(..) {
            done.ticket.retire();
        }
    }
}

/// See the module.
pub(super) struct Rig {
    bus: InProcess<Stalling>,
    /// The entrance itself serves no host.
    _entrance: Controller,
    config: Arc<TargetConfig>,
    newcomers: Vec<Newcomer>,
    pub(super) association: Option<Association>,
    /// I/O queues are served beside the association, as on another reactor.
    is_apart: bool,
    branches: Vec<Branch>,
    /// Such queues do not come back when they are asked for, or have no lane.
    detains: bool,
    farewells: Vec<Farewell>,
    /// Ends of newcomers and associations, by name.
    pub(super) ends: Vec<&'static str>,
}

/// Where this is set in the environment, I/O queues are served beside their association.
pub(super) const APART: &str = "NVMIRAGE_TEST_APART";

/// The usual configuration of the target.
pub(super) fn config() -> TargetConfig {
    TargetConfig {
        name: "t".into(),
        subnqn: SUBNQN.into(),
        access: Access::anyone(),
        tls: None,
        queues: QUEUES,
        queue_depth: 32,
        max_transfer: MAX_TRANSFER,
        in_capsule: IN_CAPSULE,
        digests: Digests::new().with_header(true).with_data(true),
        success: Success::AsSpecified,
        discovery_nqn: "nqn.2014-08.org.example:discovery".to_owned(),
        slots: 4 * u64::from(MAX_TRANSFER),
    }
}

fn of_controller(target: &TargetConfig, interface: Interface) -> ControllerConfig {
    ControllerConfig {
        name: "c".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S".into(),
        model_number: "M".into(),
        firmware_revision: "1".into(),
        subnqn: target.subnqn.clone(),
        queues: target.queues,
        queue_depth: target.queue_depth,
        max_transfer: target.max_transfer,
        doorbells: DoorbellMode::Trapped,
        msix: false,
        intx: false,
        interface,
    }
}

impl Rig {
    pub(super) fn new() -> Self {
        Self::with(config())
    }

    pub(super) fn with(target: TargetConfig) -> Self {
        let kind = MediumKind::Ram { size: MEDIUM_LEN };
        let medium = Medium::open(&MediumSpec { kind }).unwrap();
        let mut channels = Channels::new();
        let channel = Stalling {
            inner: medium.channel(64).unwrap(),
            stalls: false,
            held: Vec::new(),
        };
        assert!(channels.insert(channel).is_ok());
        let half = MEDIUM_LEN / 2;
        let namespaces = [9, 12]
            .into_iter()
            .zip(NSID..)
            .map(|(shift, nsid)| Namespace {
                nsid,
                channel: ChannelId(0),
                start: half * u64::from(nsid - NSID),
                blocks: half >> shift,
                lba_shift: shift,
                nguid: [nsid as u8; 16],
                eui64: [nsid as u8; 8],
                traits: MediumTraits::default(),
                restrictions: None,
                set: None,
            });
        let subsystem = SubsystemConfig::with_namespaces(4, namespaces);
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        let pages = |config: &ControllerConfig| {
            Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap())
        };
        let config = of_controller(&target, Interface::Pcie);
        let entrance = Controller::new(config.clone(), pages(&config), &mut subsystem).unwrap();
        let interface = Interface::Fabrics(Fabrics {
            entrance: entrance.id(),
            in_capsule: target.in_capsule,
        });
        let config = of_controller(&target, interface);
        let doorbells = pages(&config);
        let controller = Controller::new(config, doorbells.clone(), &mut subsystem).unwrap();
        Self {
            bus: InProcess::new(controller, subsystem, doorbells, false, channels),
            _entrance: entrance,
            config: Arc::new(target),
            newcomers: Vec::new(),
            association: None,
            is_apart: std::env::var_os(APART).is_some(),
            branches: Vec::new(),
            detains: false,
            farewells: Vec::new(),
            ends: Vec::new(),
        }
    }

    /// The other end of a new connection.
    pub(super) fn connect(&mut self) -> UnixStream {
        let (theirs, ours) = UnixStream::pair().unwrap();
        self.accept(ours.into());
        theirs.set_nonblocking(true).unwrap();
        theirs
    }

    /// A connection that was accepted.
    pub(super) fn accept(&mut self, ours: OwnedFd) {
        let newcomer = Newcomer::new(ours, self.config.clone(), self.now()).unwrap();
        self.newcomers.push(newcomer);
    }

    pub(super) fn now(&self) -> Time {
        Time(self.bus.now_ns())
    }

    pub(super) fn advance(&self, by: Duration) {
        self.bus.advance(by);
    }

    /// From now on the medium ends no request, or also those that it has not ended.
    pub(super) fn stall(&self, stalls: bool) {
        self.bus.with_channels(|channels| {
            channels.get_mut(ChannelId(0)).unwrap().stalls = stalls;
        });
    }

    pub(super) fn with_controller<T>(&self, look: impl FnOnce(&mut Controller) -> T) -> T {
        self.bus.with_controller(look)
    }

    /// Looks at the lane of a completion queue, which is there.
    pub(super) fn with_lane<T>(&self, cqid: u16, look: impl FnOnce(&mut Lane) -> T) -> T {
        self.bus.with_lane(cqid, look).unwrap()
    }

    /// Everything that is due, and a turn of the controller; whether the association worked.
    pub(super) fn turn(&mut self) -> bool {
        let mut worked = false;
        let now = self.now();
        // First, so that the end of one host's association makes room for the next one's.
        if let Some(association) = &mut self.association {
            let poll = |controller: &mut Controller| association.poll(controller, now);
            let polled = self.bus.with_controller(poll);
            worked = polled.worked;
            self.farewells.extend(association.take_leaving());
            if let Some(end) = polled.ended {
                self.end(&end);
            }
        }
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            match newcomer.poll(now) {
                Progress::Waits => self.newcomers.push(newcomer),
                Progress::Ended(end) => self.ends.push(end.name()),
                Progress::Connects => self.arrive(newcomer),
            }
        }
        worked |= self.serve_branches();
        self.bus.turn();
        let now = self.now();
        if let Some(association) = &mut self.association {
            let drain = |controller: &mut Controller| association.drain(controller, now);
            worked |= self.bus.with_controller(drain);
        }
        self.farewells.retain_mut(|farewell| !farewell.poll(now));
        worked
    }

    /// Serves queues beside the association: as a reactor does that their lanes visit.
    fn serve_branches(&mut self) -> bool {
        let now = self.now();
        let Some(association) = self.association.as_mut().filter(|_| !self.detains) else {
            return false;
        };
        let mut worked = false;
        let mut recalls = association.take_recalls();
        for mut branch in std::mem::take(&mut self.branches) {
            let is_recalled = recalls.contains(&branch.qid());
            recalls.retain(|qid| *qid != branch.qid());
            let polled = self
                .bus
                .with_lane(branch.qid(), |lane| branch.poll(lane, now));
            let ended = polled.filter(|_| !is_recalled).map(|polled| {
                worked |= polled.worked;
                polled.ended
            });
            if matches!(ended, Some(None)) {
                self.branches.push(branch);
                continue;
            }
            let end = ended.flatten();
            let back = |controller: &mut Controller| {
                association.come_back(branch, end.as_ref(), controller, now)
            };
            assert!(self.bus.with_controller(back).is_ok());
            worked = true;
        }
        assert!(recalls.is_empty(), "a queue is asked for once");
        if self.is_apart {
            for qid in association.may_depart() {
                self.branches.extend(association.depart(qid));
            }
        }
        worked
    }

    /// A queue comes back from where it was served.
    pub(super) fn give_back(&mut self, branch: Branch) -> Result<(), Branch> {
        let now = self.now();
        let association = self.association.as_mut().unwrap();
        let back =
            |controller: &mut Controller| association.come_back(branch, None, controller, now);
        self.bus.with_controller(back)
    }

    /// A queue comes back whose association is over.
    pub(super) fn leave(&mut self, branch: Branch) {
        self.farewells.push(branch.leave(self.now()));
    }

    /// Queues that are served beside the association.
    pub(super) fn apart(&self) -> usize {
        self.branches.len()
    }

    /// Whether mail of queues that are served beside the association is on its way.
    pub(super) fn detain(&mut self, detains: bool) {
        self.detains = detains;
    }

    /// From now on I/O queues are served beside the association.
    pub(super) fn serve_apart(&mut self) {
        self.is_apart = true;
    }

    /// Has all queues that are served beside the association come back, and stay.
    pub(super) fn recall(&mut self) {
        self.is_apart = false;
        self.association.as_mut().unwrap().recall_all();
    }

    /// As [`Self::poll_association`], in a turn without an event of a poller.
    pub(super) fn poll_hot(&mut self) -> bool {
        let now = self.now();
        let association = self.association.as_mut().unwrap();
        let poll = |controller: &mut Controller| association.poll_hot(controller, now);
        self.bus.with_controller(poll).worked
    }

    /// A poll of the association alone, which has not ended; whether it worked.
    pub(super) fn poll_association(&mut self) -> bool {
        let now = self.now();
        let association = self.association.as_mut().unwrap();
        let polled = self
            .bus
            .with_controller(|controller| association.poll(controller, now));
        assert!(polled.ended.is_none());
        polled.worked
    }

    /// A turn of the controller alone.
    pub(super) fn turn_controller(&self) {
        self.bus.turn();
    }

    fn arrive(&mut self, newcomer: Newcomer) {
        let now = self.now();
        let arrival = match newcomer.arrive(now) {
            Ok(arrival) => arrival,
            Err(farewell) => {
                self.ends.extend(farewell.refused());
                return self.farewells.push(farewell);
            }
        };
        self.take(arrival);
    }

    /// Takes one that has arrived.
    pub(super) fn take(&mut self, arrival: Arrival) {
        let now = self.now();
        match &mut self.association {
            None if arrival.qid() == 0 => {
                let new = |controller: &mut Controller| Association::new(arrival, controller, now);
                self.association = Some(self.bus.with_controller(new).unwrap());
            }
            Some(association) if arrival.cntlid() == association.cntlid() => {
                let join = |controller: &mut Controller| association.join(arrival, controller, now);
                self.bus.with_controller(join);
            }
            _ => {
                let refusal = if arrival.qid() == 0 {
                    Refusal::Busy
                } else {
                    Refusal::Controller
                };
                self.farewells.push(arrival.refuse(refusal, now));
            }
        }
    }

    pub(super) fn end(&mut self, end: &End) {
        self.ends.push(end.name());
        let now = self.now();
        let association = self.association.take().unwrap();
        self.farewells.extend(association.end(end, now));
        let branches = self.branches.drain(..);
        self.farewells.extend(branches.map(|it| it.leave(now)));
        self.bus.with_controller(Controller::function_reset);
    }

    /// Turns until nothing more happens.
    pub(super) fn settle(&mut self) {
        for _ in 0..24 {
            self.turn();
        }
    }

    /// Newcomers and connections that close.
    pub(super) fn others(&self) -> usize {
        self.newcomers.len() + self.farewells.len()
    }
}
