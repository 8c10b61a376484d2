//! The host's side: the codec over a socket, and commands as Linux sends them.

use std::collections::{BTreeMap, VecDeque};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::net::UnixStream;

use nvme_spec::fabrics::{
    ConnectAttributes, ConnectCdw10, ConnectCdw11, ConnectData, ConnectDw0, FabricsType, NQN_SIZE,
    PropertyCdw10, PropertySize,
};
use nvme_spec::opcode::{AdminOpcode, NvmOpcode};
use nvme_spec::sgl::{SglDescriptor, SglDescriptorSubType, SglDescriptorType, SglIdentifier};
use nvme_spec::sqe::{Fuse, Psdt};
use nvme_spec::tcp::{Digests, FatalErrorStatus, R2t};
use nvme_spec::{Cqe, Sqe, Status};
use nvme_tcp::{DataDigest, Decoder, Encoder, Event, Head, Offer, Piece, Pieces, Side};
use zerocopy::{FromZeros, IntoBytes};

use super::rig::{NSID, Rig, SUBNQN};

pub(super) const HOSTNQN: &str = "nqn.2014-08.org.nvmexpress:uuid:one";
pub(super) const HOSTID: [u8; 16] = [7; 16];

/// One connection.
pub(super) struct Peer {
    pub(super) stream: UnixStream,
    decoder: Decoder,
    encoder: Option<Encoder>,
    offer: Offer,
    /// Completions, in order.
    pub(super) responses: VecDeque<Cqe>,
    /// Data that came, by command.
    pub(super) data: BTreeMap<u16, Vec<u8>>,
    pub(super) r2ts: VecDeque<R2t>,
    /// Commands whose data stood for their completion.
    pub(super) succeeded: Vec<u16>,
    pub(super) terminated: Option<(FatalErrorStatus, u32)>,
    /// The target has closed it.
    pub(super) closed: bool,
    pub(super) max_h2c: u32,
    receiving: u16,
}

/// Offer of a host.
pub(super) fn offer(header: bool, data: bool) -> Offer {
    Offer {
        digests: Digests::new().with_header(header).with_data(data),
        alignment_z: 0,
        max_h2c_data: 0,
        max_r2t_z: 0,
    }
}

impl Peer {
    pub(super) fn new(stream: UnixStream, offer: Offer) -> Self {
        Self {
            stream,
            decoder: Decoder::new(Side::Host, 1 << 20),
            encoder: None,
            offer,
            responses: VecDeque::new(),
            data: BTreeMap::new(),
            r2ts: VecDeque::new(),
            succeeded: Vec::new(),
            terminated: None,
            closed: false,
            max_h2c: 0,
            receiving: 0,
        }
    }

    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub(super) fn encoder(&self) -> Encoder {
        self.encoder.unwrap()
    }

    pub(super) fn icreq(&mut self) {
        let head = Head::from(&self.offer.request());
        self.send(&head);
    }

    /// The bytes of a capsule, with its data and their digest.
    pub(super) fn capsule(&self, sqe: &Sqe, data: &[u8]) -> Vec<u8> {
        let encoder = self.encoder();
        let mut bytes = encoder
            .capsule(sqe, u32::try_from(data.len()).unwrap())
            .to_vec();
        bytes.extend(data);
        if encoder.data_digest() && !data.is_empty() {
            bytes.extend(digest(data));
        }
        bytes
    }

    pub(super) fn send_capsule(&mut self, sqe: &Sqe, data: &[u8]) {
        let bytes = self.capsule(sqe, data);
        self.send(&bytes);
    }

    /// The bytes of an H2CData.
    pub(super) fn h2c(&self, piece: &Piece, data: &[u8]) -> Vec<u8> {
        let encoder = self.encoder();
        let mut bytes = encoder.h2c_data(piece).to_vec();
        bytes.extend(data);
        if encoder.data_digest() {
            bytes.extend(digest(data));
        }
        bytes
    }

    /// Answers an R2T out of the data of its command.
    pub(super) fn answer(&mut self, r2t: &R2t, data: &[u8]) {
        let total = u32::try_from(data.len()).unwrap();
        for piece in Pieces::of_r2t(r2t, 0, total, self.max_h2c).unwrap() {
            let part = &data[piece.offset as usize..(piece.offset + piece.len) as usize];
            let bytes = self.h2c(&piece, part);
            self.send(&bytes);
        }
    }

    /// Takes what the target has sent.
    pub(super) fn take(&mut self) {
        let mut bytes = [0; 1 << 16];
        while !self.closed {
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
            .expect("the target keeps the rules")
        {
            match event {
                Event::IcResp(response) => {
                    let agreement = self
                        .offer
                        .agreed(&response)
                        .expect("it gives what is asked for");
                    self.decoder.agree(agreement);
                    self.encoder = Some(Encoder::new(agreement));
                    self.max_h2c = agreement.max_h2c_data;
                }
                Event::Response(cqe) => self.responses.push_back(cqe),
                Event::C2hData(header) => {
                    self.receiving = header.cccid;
                    let data = self.data.entry(header.cccid).or_default();
                    assert_eq!(data.len(), header.datao as usize, "in order");
                    if header.common.flags.success() {
                        self.succeeded.push(header.cccid);
                    }
                }
                Event::Data(piece) => self.data.get_mut(&self.receiving).unwrap().extend(piece),
                Event::DataEnd { intact } => assert!(intact),
                Event::R2t(r2t) => self.r2ts.push_back(r2t),
                Event::Terminated { fes, fei } => self.terminated = Some((fes, fei)),
                Event::IcReq(_) | Event::Capsule { .. } | Event::H2cData(_) => unreachable!(),
            }
        }
    }

    /// Turns of the target, and what it sends.
    pub(super) fn pump(&mut self, rig: &mut Rig) {
        for _ in 0..8 {
            rig.settle();
            self.take();
        }
    }

    /// The completion of a command that is alone.
    pub(super) fn response(&mut self, rig: &mut Rig) -> Cqe {
        self.pump(rig);
        let cqe = self.responses.pop_front().expect("an answer");
        assert!(!cqe.status.phase());
        cqe
    }

    /// Sends a command with data in its capsule, if any; its completion.
    pub(super) fn run(&mut self, rig: &mut Rig, sqe: &Sqe, data: &[u8]) -> Cqe {
        self.send_capsule(sqe, data);
        let cqe = self.response(rig);
        assert_eq!(cqe.cid, sqe.cid);
        cqe
    }

    pub(super) fn status(&mut self, rig: &mut Rig, sqe: &Sqe, data: &[u8]) -> Status {
        self.run(rig, sqe, data).status.status()
    }
}

pub(super) fn digest(data: &[u8]) -> [u8; 4] {
    let mut digest = DataDigest::default();
    digest.add(data);
    digest.bytes()
}

/// Data in the capsule.
pub(super) fn in_capsule(sqe: &mut Sqe, len: u32) {
    let identifier = SglIdentifier::new()
        .with_descriptor_type(SglDescriptorType::DATA_BLOCK)
        .with_sub_type(SglDescriptorSubType::OFFSET);
    set_sgl(sqe, identifier, len);
}

/// Data beside the capsule, if any.
pub(super) fn beside(sqe: &mut Sqe, len: u32) {
    let identifier = SglIdentifier::new()
        .with_descriptor_type(SglDescriptorType::TRANSPORT_DATA_BLOCK)
        .with_sub_type(SglDescriptorSubType(0xa));
    set_sgl(sqe, identifier, len);
}

fn set_sgl(sqe: &mut Sqe, identifier: SglIdentifier, length: u32) {
    sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
    sqe.set_sgl1(SglDescriptor {
        address: 0,
        length,
        reserved: [0; 3],
        identifier,
    });
}

/// A Connect command and its data.
#[derive(Clone)]
pub(super) struct Connect {
    pub(super) sqe: Sqe,
    pub(super) data: ConnectData,
}

impl Connect {
    /// As Linux sends it. `cntlid` FFFFh is for an admin queue.
    pub(super) fn new(qid: u16, entries: u16, cntlid: u16) -> Self {
        let mut sqe = Sqe::fabrics(FabricsType::CONNECT);
        sqe.cdw10 = ConnectCdw10::new().with_qid(qid).into();
        sqe.cdw11 = ConnectCdw11::new().with_sqsize_z(entries - 1).into();
        in_capsule(&mut sqe, 1024);
        let mut data = ConnectData::new_zeroed();
        data.hostid = HOSTID;
        data.cntlid = cntlid;
        set_name(&mut data.subnqn, SUBNQN);
        set_name(&mut data.hostnqn, HOSTNQN);
        Self { sqe, data }
    }

    /// With SQ flow control off.
    pub(super) fn without_flow_control(mut self) -> Self {
        let attributes = ConnectAttributes::new().with_disable_sq_flow_control(true);
        let cdw11 = ConnectCdw11::from(self.sqe.cdw11).with_cattr(attributes);
        self.sqe.cdw11 = cdw11.into();
        self
    }

    pub(super) fn with_kato(mut self, ms: u32) -> Self {
        self.sqe.cdw12 = ms;
        self
    }

    /// Connects a new peer with it; the answer.
    pub(super) fn peer(&self, rig: &mut Rig, offer: Offer) -> (Peer, Cqe) {
        let mut peer = Peer::new(rig.connect(), offer);
        peer.icreq();
        peer.pump(rig);
        let cqe = peer.run(rig, &self.sqe, self.data.as_bytes());
        (peer, cqe)
    }
}

pub(super) fn set_name(field: &mut [u8; NQN_SIZE], name: &str) {
    field.fill(0);
    field[..name.len()].copy_from_slice(name.as_bytes());
}

/// A host with its admin queue, and I/O queues.
pub(super) struct Host {
    pub(super) admin: Peer,
    pub(super) io: Vec<Peer>,
    pub(super) cntlid: u16,
    pub(super) offer: Offer,
    cid: u16,
}

/// How a host connects.
#[derive(Clone, Copy)]
pub(super) struct Manner {
    pub(super) digests: (bool, bool),
    pub(super) flow_control: bool,
    pub(super) entries: u16,
    pub(super) kato_ms: u32,
}

impl Default for Manner {
    fn default() -> Self {
        Self {
            digests: (false, false),
            flow_control: true,
            entries: 32,
            kato_ms: 0,
        }
    }
}

impl Manner {
    fn connect(&self, qid: u16, cntlid: u16) -> Connect {
        let entries = if qid == 0 { 32 } else { self.entries };
        let connect = Connect::new(qid, entries, cntlid);
        if self.flow_control {
            connect
        } else {
            connect.without_flow_control()
        }
    }
}

impl Host {
    /// An admin queue; the controller is not enabled.
    pub(super) fn admin(rig: &mut Rig, manner: Manner) -> Self {
        let offer = offer(manner.digests.0, manner.digests.1);
        let connect = manner.connect(0, 0xffff).with_kato(manner.kato_ms);
        Self::connected(&connect, rig, offer)
    }

    /// The admin queue of a Connect command.
    pub(super) fn connected(connect: &Connect, rig: &mut Rig, offer: Offer) -> Self {
        let (admin, cqe) = connect.peer(rig, offer);
        assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
        Self {
            admin,
            io: Vec::new(),
            cntlid: ConnectDw0::from(cqe.dw0).cntlid(),
            offer,
            cid: 0,
        }
    }

    /// With an enabled controller and so many I/O queues.
    pub(super) fn new(rig: &mut Rig, queues: u16, manner: Manner) -> Self {
        let mut host = Self::admin(rig, manner);
        host.enable(rig);
        for qid in 1..=queues {
            let connect = manner.connect(qid, host.cntlid);
            let (peer, cqe) = connect.peer(rig, host.offer);
            assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
            assert_eq!(cqe.dw0, u32::from(host.cntlid));
            host.io.push(peer);
        }
        host
    }

    pub(super) fn enable(&mut self, rig: &mut Rig) {
        assert_eq!(
            self.set(rig, 0x14, 0x46_0061),
            Status::SUCCESSFUL_COMPLETION
        );
        rig.settle();
        assert_eq!(self.get(rig, 0x1c).unwrap(), 1, "ready");
    }

    /// An identifier that is not in use, with a generation in the upper bits as Linux has it.
    pub(super) fn cid(&mut self) -> u16 {
        self.cid = self.cid.wrapping_add(1) % 0x0fff;
        self.cid | (self.cid % 7) << 12
    }

    /// Property Get of 4 bytes, or 8 for CAP.
    pub(super) fn get(&mut self, rig: &mut Rig, offset: u32) -> Result<u64, Status> {
        let size = if offset == 0 {
            PropertySize::BYTES_8
        } else {
            PropertySize::BYTES_4
        };
        self.get_sized(rig, offset, size)
    }

    pub(super) fn get_sized(
        &mut self,
        rig: &mut Rig,
        offset: u32,
        size: PropertySize,
    ) -> Result<u64, Status> {
        let mut sqe = Sqe::fabrics(FabricsType::PROPERTY_GET);
        sqe.cid = self.cid();
        sqe.cdw10 = PropertyCdw10::new().with_size(size).into();
        sqe.cdw11 = offset;
        beside(&mut sqe, 0);
        let cqe = self.admin.run(rig, &sqe, &[]);
        match cqe.status.status() {
            Status::SUCCESSFUL_COMPLETION => Ok(cqe.property()),
            status => Err(status),
        }
    }

    /// Property Set of 4 bytes.
    pub(super) fn set(&mut self, rig: &mut Rig, offset: u32, value: u32) -> Status {
        let mut sqe = Sqe::fabrics(FabricsType::PROPERTY_SET).with_property(value.into());
        sqe.cid = self.cid();
        sqe.cdw11 = offset;
        beside(&mut sqe, 0);
        self.admin.status(rig, &sqe, &[])
    }

    /// An admin command with data beside its capsule.
    pub(super) fn command(&mut self, opcode: AdminOpcode, len: u32) -> Sqe {
        let mut sqe = Sqe {
            opcode: opcode.0,
            cid: self.cid(),
            ..Sqe::default()
        };
        beside(&mut sqe, len);
        sqe
    }

    /// Data of Identify with this CNS.
    pub(super) fn identify(&mut self, rig: &mut Rig, cns: u32, nsid: u32) -> Vec<u8> {
        let mut sqe = self.command(AdminOpcode::IDENTIFY, 4096);
        sqe.cdw10 = cns;
        sqe.nsid = nsid;
        let status = self.admin.status(rig, &sqe, &[]);
        assert_eq!(status, Status::SUCCESSFUL_COMPLETION);
        self.admin.data.remove(&sqe.cid).unwrap()
    }

    /// A read or write of blocks of 512 bytes, with data beside its capsule.
    pub(super) fn blocks(&mut self, opcode: NvmOpcode, slba: u64, count: u32) -> Sqe {
        let mut sqe = Sqe {
            opcode: opcode.0,
            cid: self.cid(),
            nsid: NSID,
            cdw10: (slba & 0xffff_ffff) as u32,
            cdw11: (slba >> 32) as u32,
            cdw12: count - 1,
            ..Sqe::default()
        };
        beside(&mut sqe, count * 512);
        sqe
    }

    /// Reads blocks over an I/O queue.
    pub(super) fn read(&mut self, rig: &mut Rig, queue: usize, slba: u64, count: u32) -> Vec<u8> {
        let sqe = self.blocks(NvmOpcode::READ, slba, count);
        let peer = &mut self.io[queue];
        peer.send_capsule(&sqe, &[]);
        peer.pump(rig);
        match peer.responses.pop_front() {
            Some(cqe) => {
                assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
                assert_eq!(cqe.cid, sqe.cid);
            }
            None => assert_eq!(peer.succeeded.pop(), Some(sqe.cid)),
        }
        peer.data.remove(&sqe.cid).unwrap()
    }

    /// Writes blocks over an I/O queue: in the capsule where they fit, as Linux does.
    pub(super) fn write(&mut self, rig: &mut Rig, queue: usize, slba: u64, data: &[u8]) -> Status {
        let count = u32::try_from(data.len()).unwrap() / 512;
        let mut sqe = self.blocks(NvmOpcode::WRITE, slba, count);
        let peer = &mut self.io[queue];
        if data.len() <= super::rig::IN_CAPSULE as usize {
            in_capsule(&mut sqe, count * 512);
            return peer.status(rig, &sqe, data);
        }
        peer.send_capsule(&sqe, &[]);
        peer.pump(rig);
        let r2t = peer.r2ts.pop_front().expect("an R2T");
        assert_eq!((r2t.cccid, r2t.r2to, r2t.r2tl), (sqe.cid, 0, count * 512));
        peer.answer(&r2t, data);
        let cqe = peer.response(rig);
        assert_eq!(cqe.cid, sqe.cid);
        cqe.status.status()
    }
}

/// Data that differ at every place.
pub(super) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len)
        .map(|at| (at / 512) as u8 ^ (at % 251) as u8 ^ seed)
        .collect()
}

/// A half of a fused pair.
pub(super) fn fuse(mut sqe: Sqe, fuse: Fuse) -> Sqe {
    sqe.flags.set_fuse(fuse);
    sqe
}
