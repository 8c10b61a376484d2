//! A host over NVMe/TCP and its association in one thread, to count what a command costs the
//! target from its capsule to its answer.
//!
//! The host's capsules are made beforehand, and it looks at no answer: it sends the bytes of a
//! batch and receives as many as their answers have. Its two system calls and the target's count as
//! far as they execute outside of the kernel; the kernel's part does not.

use std::io::{Read as _, Write as _};
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use controller::{Controller, ControllerConfig, DoorbellMode, Fabrics, Interface};
use driver::bus::Bus as _;
use loopback::InProcess;
use media::Channel;
use memory::DoorbellPages;
use nvme_spec::fabrics::{
    ConnectAttributes, ConnectCdw10, ConnectCdw11, ConnectData, FabricsType, NQN_SIZE,
};
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::sgl::{SglDescriptor, SglDescriptorSubType, SglDescriptorType, SglIdentifier};
use nvme_spec::sqe::Psdt;
use nvme_spec::tcp::Digests;
use nvme_spec::{Cqe, Sqe};
use nvme_tcp::{Decoder, Encoder, Event, Head, Offer, Side};
use port::time::Time;
use port::{ChannelId, Channels};
use subsystem::{Subsystem, SubsystemConfig};
use transport::nvme_tcp::{Access, Association, Newcomer, Progress, Success, TargetConfig};
use zerocopy::{FromZeros as _, IntoBytes as _};

use crate::{channel, namespace, null};

const SUBNQN: &str = "nqn.2026-11.t:s0";
const HOSTNQN: &str = "nqn.2026-11.t:h0";
const MAX_TRANSFER: u32 = 128 << 10;
const IN_CAPSULE: u32 = 8192;
/// Entries of a queue.
const ENTRIES: u16 = 64;
/// Bytes of a command's data.
const DATA_LEN: u32 = 4096;
/// The register CC, and its value: enabled, entries of 64 and 16 bytes, all command sets.
const CC: u32 = 0x14;
const ENABLED: u32 = 0x46_0061;
/// CNTLID of a host that wants a new controller.
const ANY: u16 = 0xffff;

/// Work of the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TcpLoad {
    /// Reads of 4 KiB without SQ flow control: the data stand for the completion.
    Read,
    /// Reads of 4 KiB with SQ flow control: data and a response each.
    ReadAndResponse,
    /// Writes of 4 KiB, in their capsules.
    Write,
}

/// See the module.
pub struct Tcp {
    target: Target,
    _admin: Peer,
    io: Peer,
    /// Capsules of the largest batch, and the bytes of one.
    capsules: Vec<u8>,
    capsule_len: usize,
    /// Room for their answers, and the bytes of one.
    answers: Vec<u8>,
    answer_len: usize,
}

impl Tcp {
    /// A host with one I/O queue, ready for batches of at most `batch` commands.
    #[must_use]
    pub fn new(load: TcpLoad, batch: u16) -> Self {
        let mut target = Target::new();
        let flow_control = load != TcpLoad::Read;
        let mut admin = Peer::connect(&mut target, 0, ANY, true);
        let mut enable = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(ENABLED.into());
        enable.cdw11 = CC;
        describe(&mut enable, beside(), 0);
        admin.run(&mut target, &enable, &[]);
        let cntlid = target.association.as_ref().unwrap().cntlid();
        let io = Peer::connect(&mut target, 1, cntlid, flow_control);
        let mut capsules = Vec::new();
        for cid in 0..batch {
            let mut sqe = Sqe {
                opcode: NvmOpcode::READ.0,
                cid,
                nsid: 1,
                cdw10: u32::from(cid),
                ..Sqe::default()
            };
            let data: &[u8] = match load {
                TcpLoad::Write => &[7; DATA_LEN as usize],
                TcpLoad::Read | TcpLoad::ReadAndResponse => &[],
            };
            if data.is_empty() {
                describe(&mut sqe, beside(), DATA_LEN);
            } else {
                sqe.opcode = NvmOpcode::WRITE.0;
                describe(&mut sqe, in_capsule(), DATA_LEN);
            }
            capsules.extend(io.capsule(&sqe, data));
        }
        let (data, response) = (24 + DATA_LEN as usize, 24);
        let answer_len = match load {
            TcpLoad::Read => data,
            TcpLoad::ReadAndResponse => data + response,
            TcpLoad::Write => response,
        };
        let batch = usize::from(batch);
        let mut tcp = Tcp {
            target,
            _admin: admin,
            io,
            capsule_len: capsules.len() / batch,
            capsules,
            answers: vec![0; answer_len * batch],
            answer_len,
        };
        // Pages are touched, and caches of the allocator filled.
        tcp.batches(4, u32::try_from(batch).unwrap());
        tcp
    }

    /// Sends batches, and receives their answers.
    pub fn batches(&mut self, count: u32, size: u32) {
        let size = size as usize;
        for _ in 0..count {
            let capsules = &self.capsules[..size * self.capsule_len];
            self.io.stream.write_all(capsules).unwrap();
            let mut wanted = size * self.answer_len;
            // One turn, or some more where the socket does not take all answers at once.
            for _ in 0..=size {
                self.target.turn();
                wanted -= self.io.stream.read(&mut self.answers[..wanted]).unwrap();
                if wanted == 0 {
                    break;
                }
            }
            assert_eq!(wanted, 0, "bytes of answers that did not come");
        }
    }
}

/// The target: an entrance, and the association of its one host.
struct Target {
    bus: InProcess<Channel>,
    /// The entrance itself serves no host.
    _entrance: Controller,
    config: Arc<TargetConfig>,
    association: Option<Association>,
}

impl Target {
    fn new() -> Self {
        let config = TargetConfig {
            name: "t".into(),
            subnqn: SUBNQN.into(),
            access: Access::anyone(),
            tls: None,
            queues: 1,
            queue_depth: ENTRIES,
            max_transfer: MAX_TRANSFER,
            in_capsule: IN_CAPSULE,
            digests: Digests::new(),
            success: Success::AsSpecified,
            discovery_nqn: "nqn.2026-11.t:discovery".to_owned(),
            slots: u64::from(MAX_TRANSFER),
        };
        let mut channels = Channels::new();
        assert!(channels.insert(channel(null())).is_ok());
        let namespaces = [namespace(ChannelId(0))];
        let subsystem = SubsystemConfig::with_namespaces(2, namespaces);
        let mut subsystem = Subsystem::new(subsystem).unwrap();
        let mut controller = |interface| {
            let config = of_controller(interface);
            let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
            let controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
            (controller, pages)
        };
        let (entrance, _) = controller(Interface::Pcie);
        let (controller, pages) = controller(Interface::Fabrics(Fabrics {
            entrance: entrance.id(),
            in_capsule: IN_CAPSULE,
        }));
        Target {
            bus: InProcess::new(controller, subsystem, pages, false, channels),
            _entrance: entrance,
            config: Arc::new(config),
            association: None,
        }
    }

    fn now(&self) -> Time {
        Time(self.bus.now_ns())
    }

    /// Receives from the host, gives the controller a turn, and sends to the host.
    fn turn(&mut self) {
        let now = self.now();
        let Some(association) = &mut self.association else {
            return;
        };
        let poll = |controller: &mut Controller| association.poll(controller, now);
        assert!(self.bus.with_controller(poll).ended.is_none());
        self.bus.turn();
        let now = self.now();
        let association = self.association.as_mut().unwrap();
        let drain = |controller: &mut Controller| association.drain(controller, now);
        self.bus.with_controller(drain);
    }

    /// Serves a connection until its Connect command is answered.
    fn take(&mut self, mut newcomer: Newcomer) {
        let now = self.now();
        assert!(matches!(newcomer.poll(now), Progress::Connects));
        let arrival = newcomer.arrive(now).ok().unwrap();
        match &mut self.association {
            None => {
                let new = |controller: &mut Controller| Association::new(arrival, controller, now);
                self.association = Some(self.bus.with_controller(new).unwrap());
            }
            Some(association) => {
                let join = |controller: &mut Controller| association.join(arrival, controller, now);
                self.bus.with_controller(join);
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        (0..24).for_each(|_| self.turn());
    }
}

fn of_controller(interface: Interface) -> ControllerConfig {
    ControllerConfig {
        name: "c".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S".into(),
        model_number: "M".into(),
        firmware_revision: "1".into(),
        subnqn: SUBNQN.into(),
        queues: 1,
        queue_depth: ENTRIES,
        max_transfer: MAX_TRANSFER,
        doorbells: DoorbellMode::Trapped,
        msix: false,
        intx: false,
        interface,
    }
}

/// The host's end of a connection.
struct Peer {
    stream: UnixStream,
    decoder: Decoder,
    encoder: Encoder,
}

impl Peer {
    /// A connection whose Connect command has succeeded.
    fn connect(target: &mut Target, qid: u16, cntlid: u16, flow_control: bool) -> Self {
        let (mut stream, theirs) = UnixStream::pair().unwrap();
        let now = target.now();
        let mut newcomer = Newcomer::new(theirs.into(), target.config.clone(), now).unwrap();
        let offer = Offer {
            digests: Digests::new(),
            alignment_z: 0,
            max_h2c_data: 0,
            max_r2t_z: 0,
        };
        stream.write_all(&Head::from(&offer.request())).unwrap();
        assert!(matches!(newcomer.poll(now), Progress::Waits));
        let mut bytes = [0; 128];
        stream.read_exact(&mut bytes).unwrap();
        let mut decoder = Decoder::new(Side::Host, 1 << 20);
        let Ok(Some(Event::IcResp(response))) = decoder.step(&mut &bytes[..]) else {
            unreachable!("an ICReq is answered by an ICResp");
        };
        let agreement = offer.agreed(&response).unwrap();
        decoder.agree(agreement);
        let mut peer = Peer {
            stream,
            decoder,
            encoder: Encoder::new(agreement),
        };
        let mut sqe = Sqe::fabrics(FabricsType::CONNECT);
        sqe.cdw10 = ConnectCdw10::new().with_qid(qid).into();
        let attributes = ConnectAttributes::new().with_disable_sq_flow_control(!flow_control);
        let cdw11 = ConnectCdw11::new().with_sqsize_z(ENTRIES - 1);
        sqe.cdw11 = cdw11.with_cattr(attributes).into();
        describe(&mut sqe, in_capsule(), 1024);
        let mut data = ConnectData::new_zeroed();
        data.hostid = [7; 16];
        data.cntlid = cntlid;
        set_name(&mut data.subnqn, SUBNQN);
        set_name(&mut data.hostnqn, HOSTNQN);
        let capsule = peer.capsule(&sqe, data.as_bytes());
        peer.stream.write_all(&capsule).unwrap();
        target.take(newcomer);
        peer.succeed();
        peer
    }

    fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let len = u32::try_from(data.len()).unwrap();
        [&*self.encoder.capsule(sqe, len), data].concat()
    }

    /// Has a command done.
    fn run(&mut self, target: &mut Target, sqe: &Sqe, data: &[u8]) {
        let capsule = self.capsule(sqe, data);
        self.stream.write_all(&capsule).unwrap();
        target.settle();
        self.succeed();
    }

    /// The response that has come, of a command that succeeded.
    fn succeed(&mut self) -> Cqe {
        let mut bytes = [0; 24];
        self.stream.read_exact(&mut bytes).unwrap();
        let Ok(Some(Event::Response(cqe))) = self.decoder.step(&mut &bytes[..]) else {
            unreachable!("the command has a response");
        };
        assert!(cqe.status.status().is_success(), "{}", cqe.status.status());
        cqe
    }
}

fn set_name(field: &mut [u8; NQN_SIZE], name: &str) {
    field[..name.len()].copy_from_slice(name.as_bytes());
}

/// Data in the capsule.
fn in_capsule() -> SglIdentifier {
    SglIdentifier::new()
        .with_descriptor_type(SglDescriptorType::DATA_BLOCK)
        .with_sub_type(SglDescriptorSubType::OFFSET)
}

/// Data beside the capsule.
fn beside() -> SglIdentifier {
    SglIdentifier::new()
        .with_descriptor_type(SglDescriptorType::TRANSPORT_DATA_BLOCK)
        .with_sub_type(SglDescriptorSubType(0xa))
}

fn describe(sqe: &mut Sqe, identifier: SglIdentifier, length: u32) {
    sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
    sqe.set_sgl1(SglDescriptor {
        address: 0,
        length,
        reserved: [0; 3],
        identifier,
    });
}
