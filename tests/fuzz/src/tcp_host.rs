//! A target of NVMe/TCP that sends our host anything: the memory of commands that read changes, and
//! no other; each command completes once; and everything that the host sends is what a controller
//! takes.

use std::collections::BTreeMap;

use arbitrary::Arbitrary;
use driver::bus::nvme_tcp::parts::{OFFER, Shared, Wire, decoder};
use memory::{HostMemory, Iova};
use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};
use nvme_spec::sqe::Psdt;
use nvme_spec::{Cqe, Sqe};
use nvme_tcp::{Decoder, Event, Offer, Side};

/// Bytes of memory for each identifier.
const PIECE: usize = 2048;
const PIECES: usize = 8;
const BASE: u64 = 1 << 32;
const IN_CAPSULE: u32 = 512;
/// Commands in flight at most.
const MOST: u16 = 4;

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    steps: Vec<Step>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    /// The host has a command: a write, a read or one without data.
    Submit { cid: u8, kind: u8, len: u16 },
    /// The host sends.
    Send { room: u16 },
    /// The target sends bytes.
    Raw(Vec<u8>),
    /// The target sends a response.
    Response { cid: u8, status: u16 },
    /// The target sends data: those that come next, or others.
    Data {
        cid: u8,
        offset: Option<u16>,
        data: Vec<u8>,
        flags: u8,
    },
    /// The target asks for data: those that come next, or others.
    R2t {
        cid: u8,
        offset: Option<u16>,
        len: u16,
    },
}

/// What is known of a command in flight.
struct Known {
    kind: u8,
    len: usize,
    /// Bytes of its data that were sent.
    sent: usize,
    /// Bytes that the target has sent or asked for, as far as it kept to the order.
    moved: usize,
    capsule_sent: bool,
}

fn head(pdu_type: u8, flags: u8, data: usize) -> Vec<u8> {
    let mut head = vec![0; 24];
    (head[0], head[1], head[2]) = (pdu_type, flags, 24);
    head[3] = if data > 0 { 24 } else { 0 };
    head[4..8].copy_from_slice(&(24 + data as u32).to_le_bytes());
    head
}

struct World {
    wire: Wire,
    memory: HostMemory,
    shared: Shared,
    known: BTreeMap<u16, Known>,
    /// A controller's reader of what the host sends.
    reader: Decoder,
    /// The command whose data come next.
    writes: Option<u16>,
}

pub(crate) fn run(input: Input) {
    let ours = Offer {
        max_h2c_data: 4096,
        ..OFFER
    };
    let (response, agreed) = ours.answer(&OFFER.request()).unwrap();
    let agreement = OFFER.agreed(&response).unwrap();
    let mut of_host = decoder();
    of_host.agree(agreement);
    let mut reader = Decoder::new(Side::Controller, IN_CAPSULE);
    reader.agree(agreed);
    let memory = HostMemory::new(PIECE * PIECES).unwrap();
    let mut shared = Shared::default();
    shared.add(Iova(BASE), memory.clone());
    let mut world = World {
        wire: Wire::new(of_host, agreement, MOST, IN_CAPSULE),
        memory,
        shared,
        known: BTreeMap::new(),
        reader,
        writes: None,
    };
    for step in &input.steps {
        let goes_on = match (step, world.of_target(step)) {
            (_, Some(bytes)) => world.receive(&bytes),
            (Step::Send { room }, _) => world.send(usize::from(*room)),
            (Step::Submit { cid, kind, len }, _) => world.submit(*cid, *kind, *len),
            _ => true,
        };
        if !goes_on {
            return;
        }
    }
}

impl World {
    /// What the target sends in a step: identifiers of commands that there may be, and one more.
    fn of_target(&mut self, step: &Step) -> Option<Vec<u8>> {
        let identifier = |cid: &u8| cid % (PIECES as u8 + 1);
        let mut next = |cid: u8, offset: &Option<u16>, len: usize| match offset {
            Some(offset) => *offset,
            None => self.known.get_mut(&cid.into()).map_or(0, |known| {
                let next = known.moved as u16;
                known.moved = (known.moved + len) % (PIECE + 1);
                next
            }),
        };
        Some(match step {
            Step::Raw(bytes) => bytes.clone(),
            Step::Response { cid, status } => {
                let mut pdu = head(5, 0, 0);
                pdu[20] = identifier(cid);
                pdu[22..24].copy_from_slice(&status.to_le_bytes());
                pdu
            }
            Step::Data {
                cid,
                offset,
                data,
                flags,
            } => {
                let cid = identifier(cid);
                let mut pdu = head(7, flags & 0b1100, data.len());
                pdu[8] = cid;
                pdu[12..14].copy_from_slice(&next(cid, offset, data.len()).to_le_bytes());
                pdu[16..20].copy_from_slice(&(data.len() as u32).to_le_bytes());
                pdu.extend_from_slice(data);
                pdu
            }
            Step::R2t { cid, offset, len } => {
                let cid = identifier(cid);
                let len = len % (PIECE as u16 + 1);
                let mut pdu = head(9, 0, 0);
                pdu[8] = cid;
                pdu[12..14].copy_from_slice(&next(cid, offset, len.into()).to_le_bytes());
                pdu[16..18].copy_from_slice(&len.to_le_bytes());
                pdu
            }
            Step::Submit { .. } | Step::Send { .. } => return None,
        })
    }

    fn submit(&mut self, cid: u8, kind: u8, len: u16) -> bool {
        let cid = u16::from(cid) % PIECES as u16;
        let (kind, len) = (kind % 3, usize::from(len) % (PIECE + 1));
        let mut sqe = Sqe {
            opcode: kind,
            cid,
            ..Sqe::default()
        };
        sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
        let address = BASE + (usize::from(cid) * PIECE) as u64;
        let block = SglDescriptorType::DATA_BLOCK;
        sqe.set_sgl1(SglDescriptor::new(block, address, len as u32));
        let fits = !self.known.contains_key(&cid) && self.known.len() < usize::from(MOST);
        assert_eq!(self.wire.submit(sqe), fits);
        if fits {
            let known = Known {
                kind,
                len: if kind == 0 { 0 } else { len },
                sent: 0,
                moved: 0,
                capsule_sent: false,
            };
            self.known.insert(cid, known);
        }
        true
    }

    /// The host's bytes are PDUs of commands in flight, with no more data than they have.
    fn send(&mut self, room: usize) -> bool {
        let mut output = vec![0; room];
        let staged = self.wire.stage(&self.shared, &mut output);
        let mut bytes = &output[..staged];
        while let Some(event) = self.reader.step(&mut bytes).unwrap() {
            let mut has_data = |cid: u16, len: u32, known: &mut BTreeMap<u16, Known>| {
                let known = known.get_mut(&cid).unwrap();
                assert!(len == 0 || known.kind == 1);
                known.sent += len as usize;
                assert!(known.sent <= known.len);
                self.writes = (len > 0).then_some(cid);
            };
            match event {
                Event::Capsule { sqe, data } => {
                    has_data(sqe.cid, data, &mut self.known);
                    let known = self.known.get_mut(&sqe.cid).unwrap();
                    assert!(!std::mem::replace(&mut known.capsule_sent, true));
                    assert_eq!(sqe.sgl1().length as usize, known.len);
                }
                Event::H2cData(header) => has_data(header.cccid, header.datal, &mut self.known),
                Event::Data(_) => assert!(self.writes.is_some()),
                Event::DataEnd { intact } => assert!(intact),
                other => panic!("a host does not send {other:?}"),
            }
        }
        true
    }

    /// Whether the connection goes on.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        let before = self.content();
        let mut rest = bytes;
        let mut done = Vec::new();
        let goes_on = loop {
            match self.wire.step(&mut rest, &self.shared) {
                Ok(Some(cqe)) => done.push(cqe),
                Ok(None) => break true,
                Err(_) => break false,
            }
        };
        let after = self.content();
        for piece in 0..PIECES {
            let range = piece * PIECE..(piece + 1) * PIECE;
            let known = self.known.get(&(piece as u16));
            let may = known.filter(|known| known.kind == 2);
            let kept = range.start + may.map_or(0, |known| known.len)..range.end;
            assert_eq!(before[kept.clone()], after[kept], "piece {piece}");
        }
        for Cqe { cid, .. } in done {
            assert!(self.known.remove(&cid).is_some(), "{cid} completed twice");
        }
        goes_on
    }

    fn content(&self) -> Vec<u8> {
        let mut content = vec![0; PIECE * PIECES];
        self.memory.read(0, &mut content);
        content
    }
}
