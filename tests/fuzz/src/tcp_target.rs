//! A host of an NVMe/TCP target that sends anything over any number of connections.
//!
//! Found would be: a panic, a PDU of the target that breaks a rule, an answer to a command that was
//! not sent, a target that works for ever, and a reset that hangs.

use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use arbitrary::Arbitrary;
use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use engine::ControllerSlot;
use memory::DoorbellPages;
use nvme_spec::Sqe;
use nvme_spec::fabrics::{ConnectAttributes, ConnectCdw10, ConnectCdw11, ConnectData, FabricsType};
use nvme_spec::sgl::{SglDescriptor, SglIdentifier};
use nvme_spec::sqe::CommandFlags;
use nvme_spec::tcp::{Digests, R2t};
use nvme_tcp::{DataDigest, Decoder, Encoder, Event, Head, Offer, Piece, Side};
use transport::nvme_tcp::{
    Access, Association, End, Farewell, Newcomer, Progress, Refusal, Success, TargetConfig,
};
use zerocopy::{FromZeros, IntoBytes};

use crate::rig::Rig;

const QUEUES: u16 = 3;
const SUBNQN: &str = "nqn.2014-08.org.example:fuzz";
/// Most steps of a program, and most connections.
const STEPS_MAX: usize = 120;
const PEERS_MAX: usize = 6;
/// Polls after which a target has nothing to do without its host.
const POLLS_MAX: usize = 400;

#[derive(Arbitrary, Debug)]
pub(crate) struct Program {
    header_digest: bool,
    data_digest: bool,
    no_flow_control: bool,
    always: bool,
    /// The first connection becomes the admin queue of an enabled controller.
    enabled: bool,
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// A connection that sends a right ICReq, and a Connect with these fields.
    Open {
        qid: u8,
        entries: u8,
        wrong: u8,
    },
    Close(u8),
    Send(u8, What),
    /// The host reads nothing, or everything again.
    Reads(u8, bool),
    Turns(u8),
    Seconds(u8),
    /// Whether the medium of the second namespace releases its commands.
    LetGo(bool),
}

#[derive(Arbitrary, Debug)]
enum What {
    Raw(Vec<u8>),
    /// A capsule with data, of which `cut` bytes are sent, if they are not all.
    Capsule {
        opcode: u8,
        flags: u8,
        cid: u8,
        nsid: u8,
        sgl: u8,
        len: u16,
        dwords: [u8; 6],
        data: Vec<u8>,
        breaks: Option<u8>,
    },
    /// The answer to an R2T, or what is none.
    Data {
        r2t: u8,
        offset: u8,
        short: u8,
        change: u8,
        breaks: Option<u8>,
    },
    /// Property Set of CC, or Property Get of any.
    Property {
        cc: Option<u8>,
        offset: u8,
    },
}

struct Peer {
    stream: UnixStream,
    decoder: Decoder,
    encoder: Option<Encoder>,
    offer: Offer,
    r2ts: Vec<R2t>,
    /// Commands that are not answered, by identifier.
    sent: [u8; 256],
    /// Something was sent that is no whole PDU: nothing is known of what follows.
    raw: bool,
    reads: bool,
    closed: bool,
}

impl Peer {
    fn send(&mut self, bytes: &[u8]) {
        // A full socket takes less.
        if self.stream.write(bytes).ok() != Some(bytes.len()) {
            self.raw = true;
        }
    }

    fn take(&mut self) {
        let mut bytes = [0; 1 << 16];
        while self.reads && !self.closed {
            match self.stream.read(&mut bytes) {
                Ok(0) => self.closed = true,
                Ok(len) => self.decode(&bytes[..len]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.closed = true,
            }
        }
    }

    fn decode(&mut self, mut bytes: &[u8]) {
        while let Some(event) = self
            .decoder
            .step(&mut bytes)
            .expect("a PDU that keeps the rules")
        {
            match event {
                Event::IcResp(response) => {
                    let agreement = self.offer.agreed(&response).expect("what was asked for");
                    self.decoder.agree(agreement);
                    self.encoder = Some(Encoder::new(agreement));
                }
                Event::Response(cqe) => self.answered(cqe.cid),
                Event::C2hData(header) if header.common.flags.success() => {
                    self.answered(header.cccid);
                }
                Event::R2t(r2t) => {
                    assert_eq!(r2t.r2to, 0, "one R2T for a command");
                    self.r2ts.push(r2t);
                }
                Event::DataEnd { intact } => assert!(intact),
                _ => {}
            }
        }
    }

    fn answered(&mut self, cid: u16) {
        if self.raw {
            return;
        }
        let sent = &mut self.sent[usize::from(cid)];
        *sent = sent.checked_sub(1).expect("a command is answered once");
    }

    fn capsule(&mut self, sqe: &Sqe, data: &[u8], breaks: Option<u8>) {
        let Some(encoder) = self.encoder else {
            return;
        };
        let mut bytes = encoder.capsule(sqe, data.len() as u32).to_vec();
        let head = bytes.len();
        bytes.extend(data);
        if encoder.data_digest() && !data.is_empty() {
            bytes.extend(digest(data));
        }
        if let Some(at) = breaks {
            let at = usize::from(at) % bytes.len();
            bytes[at] ^= 0x10;
            self.raw |= at < head;
        }
        if let Some(sent) = self.sent.get_mut(usize::from(sqe.cid)) {
            *sent = sent.saturating_add(1);
        }
        self.send(&bytes);
    }
}

fn digest(data: &[u8]) -> [u8; 4] {
    let mut digest = DataDigest::default();
    digest.add(data);
    digest.bytes()
}

/// The target and its reactor.
struct Target {
    rig: Rig,
    slot: ControllerSlot,
    config: Arc<TargetConfig>,
    newcomers: Vec<Newcomer>,
    association: Option<Association>,
    farewells: Vec<Farewell>,
    over: bool,
}

impl Target {
    fn new(always: bool) -> Self {
        let mut rig = Rig::new(DoorbellMode::Trapped);
        let entrance = rig.controller().id();
        let config = ControllerConfig {
            queues: QUEUES,
            queue_depth: 16,
            max_transfer: 32 << 10,
            interface: Interface::Fabrics(Fabrics {
                entrance,
                in_capsule: 4096,
            }),
            ..rig.controller().config().clone()
        };
        let target = TargetConfig {
            access: Access::anyone(),
            tls: None,
            name: "fuzz".into(),
            subnqn: SUBNQN.into(),
            discovery_nqn: "nqn.2014-08.org.example:discovery".to_owned(),
            queues: QUEUES,
            queue_depth: config.queue_depth,
            max_transfer: config.max_transfer,
            in_capsule: 4096,
            digests: Digests::new().with_header(true).with_data(true),
            success: if always {
                Success::Always
            } else {
                Success::AsSpecified
            },
            slots: 96 << 10,
        };
        let doorbells = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
        let (of, subsystem) = rig.engine.subsystems_mut().next().unwrap();
        let controller = Controller::new(config, doorbells, subsystem).unwrap();
        let slot = rig.engine.add_controller(controller, of);
        Self {
            rig,
            slot,
            config: Arc::new(target),
            newcomers: Vec::new(),
            association: None,
            farewells: Vec::new(),
            over: false,
        }
    }

    /// A poll of everything; whether there was something to do.
    fn poll(&mut self) -> bool {
        let now = self.rig.now();
        for mut newcomer in std::mem::take(&mut self.newcomers) {
            match newcomer.poll(now) {
                Progress::Waits => self.newcomers.push(newcomer),
                Progress::Ended(_) => {}
                Progress::Connects => self.arrive(newcomer),
            }
        }
        let mut worked = false;
        let controller = self.rig.engine.controller_mut(self.slot).unwrap();
        if let Some(association) = &mut self.association {
            let polled = association.poll(controller, now);
            worked = polled.worked;
            if let Some(end) = polled.ended {
                self.end(&end);
            }
        }
        self.rig.turns(1);
        let now = self.rig.now();
        let controller = self.rig.engine.controller_mut(self.slot).unwrap();
        if let Some(association) = &mut self.association {
            worked |= association.drain(controller, now);
            let _ = association.next_deadline();
            assert!(association.connections().count() <= 1 + usize::from(QUEUES) + 16);
        }
        self.farewells.retain_mut(|farewell| !farewell.poll(now));
        worked
    }

    fn arrive(&mut self, newcomer: Newcomer) {
        let now = self.rig.now();
        let controller = self.rig.engine.controller_mut(self.slot).unwrap();
        let arrival = match newcomer.arrive(now) {
            Ok(arrival) => arrival,
            Err(farewell) => return self.farewells.push(farewell),
        };
        match &mut self.association {
            None if arrival.qid() == 0 && !self.over => {
                let association = Association::new(arrival, controller, now).unwrap();
                self.association = Some(association);
            }
            Some(association) if arrival.cntlid() == association.cntlid() => {
                association.join(arrival, controller, now);
            }
            _ => self.farewells.push(arrival.refuse(Refusal::Busy, now)),
        }
    }

    fn end(&mut self, end: &End) {
        let now = self.rig.now();
        if let Some(association) = self.association.take() {
            self.farewells.extend(association.end(end, now));
        }
        self.over = true;
        let controller = self.rig.engine.controller_mut(self.slot).unwrap();
        controller.function_reset();
    }
}

/// A new connection with its ICReq.
fn connect(target: &mut Target, offer: Offer) -> Peer {
    let (theirs, ours) = UnixStream::pair().unwrap();
    let now = target.rig.now();
    let newcomer = Newcomer::new(ours.into(), target.config.clone(), now).unwrap();
    target.newcomers.push(newcomer);
    theirs.set_nonblocking(true).unwrap();
    let mut peer = Peer {
        stream: theirs,
        decoder: Decoder::new(Side::Host, 1 << 20),
        encoder: None,
        offer,
        r2ts: Vec::new(),
        sent: [0; 256],
        raw: false,
        reads: true,
        closed: false,
    };
    peer.send(&Head::from(&offer.request()));
    peer
}

/// Connects a queue.
fn open(peer: &mut Peer, (qid, entries): (u16, u16), cntlid: u16, no_flow: bool, wrong: u8) {
    let mut sqe = Sqe::fabrics(FabricsType::CONNECT);
    let attributes = ConnectAttributes::new().with_disable_sq_flow_control(no_flow);
    sqe.cdw10 = ConnectCdw10::new().with_qid(qid).into();
    let cdw11 = ConnectCdw11::new().with_sqsize_z(entries.wrapping_sub(1));
    sqe.cdw11 = cdw11.with_cattr(attributes).into();
    set_sgl(&mut sqe, 0x01, 1024);
    let mut data = ConnectData::new_zeroed();
    data.hostid = [1 + u8::from(wrong == 1); 16];
    data.cntlid = if wrong == 2 { 1 } else { cntlid };
    data.subnqn[..SUBNQN.len()].copy_from_slice(SUBNQN.as_bytes());
    data.hostnqn[..5].copy_from_slice(if wrong == 3 { b"nqn.b" } else { b"nqn.a" });
    peer.capsule(&sqe, data.as_bytes(), (wrong > 250).then_some(wrong));
}

fn set_sgl(sqe: &mut Sqe, identifier: u8, length: u32) {
    sqe.flags = CommandFlags::from(u8::from(sqe.flags) | 0x40);
    sqe.set_sgl1(SglDescriptor {
        address: 0,
        length,
        reserved: [0; 3],
        identifier: SglIdentifier::from(identifier),
    });
}

fn send(peer: &mut Peer, what: What) {
    match what {
        What::Raw(bytes) => {
            peer.raw |= !bytes.is_empty();
            peer.send(&bytes);
        }
        What::Capsule {
            opcode,
            flags,
            cid,
            nsid,
            sgl,
            len,
            dwords,
            data,
            breaks,
        } => {
            let word = |byte: u8| u32::from(byte);
            let mut sqe = Sqe {
                opcode,
                cid: cid.into(),
                nsid: word(nsid % 4),
                cdw10: word(dwords[0]) | word(dwords[1]) << 16,
                cdw11: word(dwords[2]),
                cdw12: word(dwords[3]),
                cdw13: word(dwords[4]),
                cdw14: word(dwords[5]),
                ..Sqe::default()
            };
            let data = &data[..data.len().min(4200)];
            sqe.flags = CommandFlags::from(flags & 0x83);
            let (identifier, len) = match sgl {
                0..=99 if data.is_empty() => (0x5a, u32::from(len)),
                0..=199 if data.is_empty() => (0x5a, (word(dwords[3]) + 1) * 512),
                0..=199 => (0x01, data.len() as u32),
                other => (other, u32::from(len)),
            };
            set_sgl(&mut sqe, identifier, len);
            peer.capsule(&sqe, data, breaks);
        }
        What::Data {
            r2t,
            offset,
            short,
            change,
            breaks,
        } => {
            let Some(encoder) = peer.encoder else {
                return;
            };
            let count = peer.r2ts.len().max(1);
            let asked = peer.r2ts.get(usize::from(r2t) % count).copied();
            if asked.is_none() && change < 250 {
                return;
            }
            let r2t = asked.unwrap_or_default();
            let offset = u32::from(offset) * 64;
            let len = r2t.r2tl.saturating_sub(offset);
            let len = len.saturating_sub(u32::from(short) * 64).clamp(1, 40 << 10);
            let mut piece = Piece {
                cccid: r2t.cccid,
                ttag: r2t.ttag,
                offset,
                len,
                last: short == 0,
            };
            match change {
                250 => piece.ttag ^= 0x1000,
                251 => piece.cccid ^= 1,
                252 => piece.last ^= true,
                253 => piece.offset = u32::MAX,
                _ => {}
            }
            if piece.last {
                peer.r2ts.retain(|other| other.ttag != r2t.ttag);
            }
            let data = vec![change; len as usize];
            let mut bytes = encoder.h2c_data(&piece).to_vec();
            let head = bytes.len();
            bytes.extend(&data);
            if encoder.data_digest() {
                bytes.extend(digest(&data));
            }
            if let Some(at) = breaks {
                let at = usize::from(at) % bytes.len();
                bytes[at] ^= 0x10;
                peer.raw |= at < head;
            }
            peer.send(&bytes);
        }
        What::Property { cc, offset } => {
            let fctype = match cc {
                Some(_) => FabricsType::PROPERTY_SET,
                None => FabricsType::PROPERTY_GET,
            };
            let mut sqe = Sqe::fabrics(fctype);
            sqe.cid = 200;
            sqe.cdw10 = u32::from(offset & 1);
            sqe.cdw11 = u32::from(offset & !3);
            if let Some(cc) = cc {
                // EN and SHN, with what Linux writes beside them.
                sqe.cdw10 = 0;
                sqe.cdw11 = 0x14;
                sqe.cdw12 = 0x46_0060 | u32::from(cc & 1) | u32::from(cc & 0x6) << 13;
            }
            set_sgl(&mut sqe, 0x5a, 0);
            peer.capsule(&sqe, &[], None);
        }
    }
}

/// Polls until nothing more happens without the host.
fn settle(target: &mut Target, peers: &mut [Peer]) {
    for round in 0.. {
        assert!(round < POLLS_MAX, "it works for ever");
        let mut worked = false;
        for _ in 0..4 {
            worked |= target.poll();
        }
        peers.iter_mut().for_each(Peer::take);
        if !worked {
            return;
        }
    }
}

pub(crate) fn run(program: Program) {
    let mut target = Target::new(program.always);
    let offer = Offer {
        digests: Digests::new()
            .with_header(program.header_digest)
            .with_data(program.data_digest),
        alignment_z: 0,
        max_h2c_data: 0,
        max_r2t_z: 0,
    };
    let no_flow = program.no_flow_control;
    let mut peers: Vec<Peer> = Vec::new();
    if program.enabled {
        peers.push(connect(&mut target, offer));
        settle(&mut target, &mut peers);
        open(&mut peers[0], (0, 32), 0xffff, no_flow, 0);
        settle(&mut target, &mut peers);
        let cc = Some(1);
        send(&mut peers[0], What::Property { cc, offset: 0 });
        settle(&mut target, &mut peers);
    }
    for step in program.steps.into_iter().take(STEPS_MAX) {
        let count = peers.len().max(1);
        let peer = |at: u8| usize::from(at) % count;
        match step {
            Step::Open {
                qid,
                entries,
                wrong,
            } if peers.len() < PEERS_MAX => {
                let mut peer = connect(&mut target, offer);
                settle(&mut target, std::slice::from_mut(&mut peer));
                let cntlid = target
                    .association
                    .as_ref()
                    .map_or(0xffff, Association::cntlid);
                let qid = u16::from(qid % 5);
                let cntlid = if qid == 0 { 0xffff } else { cntlid };
                open(&mut peer, (qid, entries.into()), cntlid, no_flow, wrong);
                peers.push(peer);
            }
            Step::Open { .. } => {}
            Step::Close(at) if !peers.is_empty() => drop(peers.remove(peer(at))),
            Step::Close(_) => {}
            Step::Send(at, what) => {
                if let Some(peer) = peers.get_mut(peer(at)) {
                    send(peer, what);
                }
            }
            Step::Reads(at, reads) => {
                if let Some(peer) = peers.get_mut(peer(at)) {
                    peer.reads = reads;
                }
            }
            Step::Turns(count) => {
                for _ in 0..count % 8 {
                    target.poll();
                }
                continue;
            }
            Step::Seconds(seconds) => {
                target.rig.advance(u64::from(seconds % 40) * 1_000_000_000);
            }
            Step::LetGo(let_go) => target.rig.let_go(let_go),
        }
        settle(&mut target, &mut peers);
    }
    peers.clear();
    for _ in 0..4 {
        target.poll();
    }
    assert!(target.association.is_none(), "its host is gone");
    for _ in 0..4 {
        target.poll();
        target.rig.advance(subsystem::DEADLINE_NS);
    }
    target.poll();
    let controller = target.rig.engine.controller_mut(target.slot).unwrap();
    assert!(controller.is_quiet(), "a reset hangs");
    target.rig.let_go(true);
    target.poll();
    assert!(target.newcomers.is_empty() && target.farewells.is_empty());
    target.rig.finish();
}
