//! One connection without its socket: bytes of the target come in, bytes for it go out.
//!
//! Invariants: nothing that a target sends panics or allocates. Data go only to the memory of the
//! command that they belong to, in order, and never beyond its end. At most one R2T of a command is
//! in flight (MAXR2T 0), so that a queue has at most two things to send for each command.

use std::collections::VecDeque;

use nvme_spec::cqe::StatusField;
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::tcp::{Digests, FatalErrorStatus, PduType, R2t};
use nvme_spec::{Cqe, Sqe, Status};
use nvme_tcp::{DataDigest, Decoder, Encoder, Event, Fault, Offer, Pieces, Side};

use super::commands::{Command, Commands, Conflict, Data};
use super::shared::Shared;

/// Bytes of one C2HData at most: more than any command of this driver moves.
const MAX_C2H_DATA: u32 = 64 << 20;
/// Bytes of one H2CData at most, where the target takes more.
const MAX_H2C_DATA: u32 = 128 << 10;
/// Bytes of data in a capsule at most, where the target takes more.
pub(super) const MAX_IN_CAPSULE: u32 = 64 << 10;
/// Bytes of a head and of data that are staged at least, so that each thing to send fits whole.
pub(super) const OUTPUT: usize = 2 * (MAX_H2C_DATA as usize) + 4096;

/// Offer of this host to a target, with these digests.
pub(super) const fn offer(digests: Digests) -> Offer {
    Offer {
        digests,
        alignment_z: 0,
        max_h2c_data: 0,
        max_r2t_z: 0,
    }
}

/// The same without digests.
pub const OFFER: Offer = offer(Digests::new());

/// A decoder of what a target sends.
pub const fn decoder() -> Decoder {
    Decoder::new(Side::Host, MAX_C2H_DATA)
}

/// The digest of data.
pub(super) fn digest_of(data: &[u8]) -> [u8; 4] {
    let mut digest = DataDigest::default();
    digest.add(data);
    digest.bytes()
}

/// Why a connection has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Breach {
    /// The target broke a rule of the transport.
    Fault(Fault),
    /// The target asks to end the connection.
    Terminated {
        /// Fatal Error Status.
        fes: FatalErrorStatus,
        /// Fatal Error Information.
        fei: u32,
    },
    /// A PDU is of a command that is not in flight, or has no such data.
    NoCommand {
        /// Type of the PDU.
        pdu_type: PduType,
        /// Command identifier.
        cid: u16,
    },
}

impl From<Fault> for Breach {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

/// Something to send.
#[derive(Clone, Copy)]
enum Out {
    Capsule { place: usize },
    Data { place: usize, pieces: Pieces },
}

/// Where the data of a PDU go.
#[derive(Clone, Copy)]
struct Incoming {
    place: usize,
    address: u64,
    /// The command is complete with them.
    success: bool,
}

/// The commands of one connection, both ways.
pub struct Wire {
    decoder: Decoder,
    encoder: Encoder,
    max_h2c_data: u32,
    in_capsule: u32,
    commands: Commands,
    out: VecDeque<Out>,
    incoming: Option<Incoming>,
}

impl Wire {
    /// Goes on after the first PDUs of both sides: `most` commands in flight, and `in_capsule`
    /// bytes of data in a capsule.
    pub fn new(
        decoder: Decoder,
        agreement: nvme_tcp::Agreement,
        most: u16,
        in_capsule: u32,
    ) -> Self {
        let commands = Commands::new(most);
        Self {
            decoder,
            encoder: Encoder::new(agreement),
            max_h2c_data: agreement.max_h2c_data.min(MAX_H2C_DATA),
            in_capsule: in_capsule.min(MAX_IN_CAPSULE),
            out: VecDeque::with_capacity(2 * commands.len()),
            commands,
            incoming: None,
        }
    }

    /// Commands that can be added.
    pub(super) fn free(&self) -> usize {
        self.commands.free()
    }

    /// Adds a command, for which there is room, and has it sent.
    ///
    /// # Errors
    /// A command in flight has its identifier.
    pub(super) fn add(&mut self, sqe: Sqe, data: Option<Data>) -> Result<(), Conflict> {
        let place = self
            .commands
            .add(Command::new(sqe, data, self.in_capsule))?;
        self.out.push_back(Out::Capsule { place });
        Ok(())
    }

    /// As [`Self::add`], for a command as an entry of a queue describes it; false where it cannot
    /// be sent.
    pub fn submit(&mut self, sqe: Sqe) -> bool {
        let data = super::commands::data_of(&sqe);
        self.free() > 0 && data.is_ok_and(|data| self.add(sqe, data).is_ok())
    }

    /// Whether a command is in flight.
    pub(super) fn is_busy(&self) -> bool {
        self.commands.free() < self.commands.len()
    }

    /// Whether a command with another opcode is in flight.
    pub(super) fn has_other_than(&self, opcode: AdminOpcode) -> bool {
        self.commands
            .iter()
            .any(|command| command.sqe.admin_opcode() != opcode)
    }

    /// Whether there is something to stage.
    pub(super) fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Puts heads and data that are to be sent into `output`, which has [`OUTPUT`] bytes, as far as
    /// whole ones fit; returns how many bytes.
    pub fn stage(&mut self, shared: &Shared, output: &mut [u8]) -> usize {
        let mut at = 0;
        while let Some(&out) = self.out.front() {
            let (place, piece, rest) = match out {
                Out::Capsule { place } => (place, None, None),
                Out::Data { place, mut pieces } => {
                    let piece = pieces.next();
                    let more = piece.is_some_and(|piece| !piece.last);
                    (place, piece, more.then_some(pieces))
                }
            };
            // The data that a command has to send is dropped with it.
            let command = self.commands.at(place);
            let command = command.expect("a command that has ended has nothing to send");
            let address = command.data.map_or(0, |data| data.address);
            let (head, from, len) = match piece {
                Some(piece) => {
                    let from = address.wrapping_add(piece.offset.into());
                    (self.encoder.h2c_data(&piece), from, piece.len)
                }
                None => {
                    let len = command.in_capsule;
                    (self.encoder.capsule(&command.sqe, len), address, len)
                }
            };
            let len = usize::try_from(len).expect("data are limited to 128 KiB");
            let has_digest = self.encoder.data_digest() && len > 0;
            let digest = if has_digest { 4 } else { 0 };
            let end = at + head.len() + len + digest;
            let Some(to) = output.get_mut(at..end) else {
                break;
            };
            let (to, data) = to.split_at_mut(head.len());
            to.copy_from_slice(&head);
            let (data, behind) = data.split_at_mut(len);
            shared.read(from, data);
            if !behind.is_empty() {
                behind.copy_from_slice(&digest_of(data));
            }
            at = end;
            self.out.pop_front();
            match (rest, piece) {
                (Some(pieces), _) => self.out.push_front(Out::Data { place, pieces }),
                (None, Some(_)) => command.is_answering = false,
                (None, None) => command.is_sent = true,
            }
        }
        at
    }

    /// Takes bytes of the target until a command is complete: its completion, or `None` when all
    /// bytes are taken. A completion's phase, queue and head are without meaning.
    ///
    /// # Errors
    /// The connection has ended, or ends.
    pub fn step(&mut self, bytes: &mut &[u8], shared: &Shared) -> Result<Option<Cqe>, Breach> {
        while let Some(event) = self.decoder.step(bytes)? {
            match event {
                Event::Response(cqe) => {
                    let place = self.place(PduType::CAPSULE_RESP, cqe.cid)?;
                    return Ok(Some(self.complete(place, cqe)));
                }
                Event::C2hData(header) => {
                    let place = self.place(PduType::C2H_DATA, header.cccid)?;
                    let data = self.commands.at(place).and_then(|command| {
                        let data = command.data.filter(|data| !data.to_controller)?;
                        Some((data, command))
                    });
                    let (data, command) = data.ok_or(Breach::NoCommand {
                        pdu_type: PduType::C2H_DATA,
                        cid: header.cccid,
                    })?;
                    let range = command.arriving.take_c2h(&header)?;
                    self.incoming = Some(Incoming {
                        place,
                        address: data.address.wrapping_add(range.start.into()),
                        success: header.common.flags.success(),
                    });
                }
                Event::Data(piece) => {
                    if let Some(incoming) = &mut self.incoming {
                        shared.write(incoming.address, piece);
                        let len = u64::try_from(piece.len()).expect("usize fits in 64 bits");
                        incoming.address = incoming.address.wrapping_add(len);
                    }
                }
                Event::DataEnd { intact } => {
                    if let Some(cqe) = self.end_of_data(intact) {
                        return Ok(Some(cqe));
                    }
                }
                Event::R2t(r2t) => self.answer(&r2t)?,
                Event::Terminated { fes, fei } => return Err(Breach::Terminated { fes, fei }),
                // The decoder lets a target send nothing else, once both have agreed.
                Event::IcReq(_) | Event::IcResp(_) | Event::Capsule { .. } | Event::H2cData(_) => {}
            }
        }
        Ok(None)
    }

    /// Where the data go that come next, and how many are to come; `None` where the decoder has to
    /// see them for their digest.
    pub(super) fn rest(&self) -> Option<(u64, u32)> {
        if self.encoder.data_digest() {
            return None;
        }
        let left = self.decoder.data_left();
        let incoming = self.incoming.filter(|_| left > 0)?;
        Some((incoming.address, left))
    }

    /// Takes the next `len` bytes of data, which are in their place.
    pub(super) fn received(&mut self, len: u32) {
        self.decoder.received_unseen(len);
        if let Some(incoming) = &mut self.incoming {
            incoming.address = incoming.address.wrapping_add(len.into());
        }
    }

    /// The termination request for a fault.
    pub(super) fn termination(&self, fault: Fault) -> nvme_tcp::Head {
        fault.termination(Side::Host, self.decoder.at_fault())
    }

    fn place(&self, pdu_type: PduType, cid: u16) -> Result<usize, Breach> {
        let place = self.commands.find(cid);
        place.ok_or(Breach::NoCommand { pdu_type, cid })
    }

    fn end_of_data(&mut self, intact: bool) -> Option<Cqe> {
        let incoming = self.incoming.take()?;
        let command = self.commands.at(incoming.place)?;
        command.is_damaged |= !intact;
        let cid = command.sqe.cid;
        incoming.success.then(|| {
            let cqe = Cqe {
                cid,
                ..Cqe::default()
            };
            self.complete(incoming.place, cqe)
        })
    }

    fn complete(&mut self, place: usize, mut cqe: Cqe) -> Cqe {
        let Some(command) = self.commands.remove(place) else {
            return cqe;
        };
        if command.is_answering || !command.is_sent {
            self.out.retain(|out| match out {
                Out::Capsule { place: other } | Out::Data { place: other, .. } => *other != place,
            });
        }
        if command.is_damaged && cqe.status.status().is_success() {
            cqe.status = StatusField::new().with_status(Status::TRANSIENT_TRANSPORT_ERROR);
        } else if command.falls_short(&cqe) {
            cqe.status = StatusField::new().with_status(Status::DATA_TRANSFER_ERROR);
        }
        cqe
    }

    fn answer(&mut self, r2t: &R2t) -> Result<(), Breach> {
        let place = self.place(PduType::R2T, r2t.cccid)?;
        let none = Breach::NoCommand {
            pdu_type: PduType::R2T,
            cid: r2t.cccid,
        };
        let command = self.commands.at(place).ok_or(none)?;
        let data = command.data.filter(|data| data.to_controller);
        let data = data.filter(|_| command.in_capsule == 0).ok_or(none)?;
        if command.is_answering {
            // MAXR2T was 0: one at a time.
            return Err(Fault::Sequence(PduType::R2T).into());
        }
        let pieces = Pieces::of_r2t(r2t, command.asked, data.len, self.max_h2c_data)?;
        command.asked += r2t.r2tl;
        command.is_answering = true;
        self.out.push_back(Out::Data { place, pieces });
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use memory::{HostMemory, Iova};
    use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};
    use nvme_spec::sqe::Psdt;
    use nvme_spec::tcp::IcResp;
    use zerocopy::FromBytes;

    use super::*;

    const BASE: Iova = Iova(1 << 32);
    /// Memory for each command, by its identifier.
    const PIECE: usize = 1 << 20;

    struct Rig {
        wire: Wire,
        memory: HostMemory,
        shared: Shared,
        output: Vec<u8>,
    }

    /// Both sides have agreed as Linux 7.3 and its target did (recorded: MAXH2CDATA 400000h), or on
    /// this number of bytes in an H2CData.
    fn rig(max_h2c_data: u32) -> Rig {
        rig_with(max_h2c_data, Digests::new())
    }

    fn rig_with(max_h2c_data: u32, digests: Digests) -> Rig {
        let mut response = [0; 128];
        (response[0], response[2], response[4]) = (1, 128, 128);
        response[11] = digests.into();
        response[12..16].copy_from_slice(&max_h2c_data.to_le_bytes());
        let response = IcResp::read_from_bytes(&response).unwrap();
        let agreement = offer(digests).agreed(&response).unwrap();
        let mut decoder = decoder();
        decoder.agree(agreement);
        let memory = HostMemory::new(4 * PIECE).unwrap();
        let mut shared = Shared::default();
        shared.add(BASE, memory.clone());
        Rig {
            wire: Wire::new(decoder, agreement, 4, 8192),
            memory,
            shared,
            output: vec![0; OUTPUT],
        }
    }

    fn pdu(pdu_type: u8, flags: u8, words: [u32; 4], data: &[u8]) -> Vec<u8> {
        let mut pdu = vec![pdu_type, flags, 24, if data.is_empty() { 0 } else { 24 }];
        let plen = u32::try_from(24 + data.len()).unwrap();
        for word in [plen].into_iter().chain(words) {
            pdu.extend_from_slice(&word.to_le_bytes());
        }
        pdu.extend_from_slice(data);
        pdu
    }

    /// C2HData, with these flags.
    fn data(cid: u32, offset: u32, data: &[u8], flags: u8) -> Vec<u8> {
        let len = u32::try_from(data.len()).unwrap();
        pdu(7, flags, [cid, offset, len, 0], data)
    }

    fn r2t(cid: u32, ttag: u32, offset: u32, len: u32) -> Vec<u8> {
        pdu(9, 0, [cid | ttag << 16, offset, len, 0], &[])
    }

    fn response(cid: u32, status: u32) -> Vec<u8> {
        pdu(5, 0, [0, 0, 0, cid | status << 16], &[])
    }

    impl Rig {
        fn submit(&mut self, opcode: u8, cid: u16, len: u32) {
            let mut sqe = Sqe {
                opcode,
                cid,
                ..Sqe::default()
            };
            sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
            let address = BASE.0 + u64::from(cid) * PIECE as u64;
            let block = SglDescriptorType::DATA_BLOCK;
            sqe.set_sgl1(SglDescriptor::new(block, address, len));
            assert!(self.wire.submit(sqe));
        }

        fn staged(&mut self) -> Vec<u8> {
            let len = self.wire.stage(&self.shared, &mut self.output);
            self.output[..len].to_vec()
        }

        fn take(&mut self, bytes: &[u8]) -> Result<Option<Cqe>, Breach> {
            let mut bytes = bytes;
            self.wire.step(&mut bytes, &self.shared)
        }
    }

    /// A PDU with both digests, each of which may be wrong.
    fn sealed(pdu: &[u8], wrong_header: bool, wrong_data: bool) -> Vec<u8> {
        let (head, data) = pdu.split_at(24);
        let mut head = head.to_vec();
        head[1] |= 0b01;
        if !data.is_empty() {
            (head[1], head[3]) = (head[1] | 0b10, 28);
        }
        let behind = if data.is_empty() { 0 } else { 4 };
        let plen = u32::try_from(28 + data.len() + behind).unwrap();
        head[4..8].copy_from_slice(&plen.to_le_bytes());
        let digest =
            |bytes: &[u8], wrong: bool| digest_of(bytes).map(|byte| byte ^ u8::from(wrong));
        let mut all = head.clone();
        all.extend(digest(&head, wrong_header));
        all.extend_from_slice(data);
        if !data.is_empty() {
            all.extend(digest(data, wrong_data));
        }
        all
    }

    #[test]
    fn digests_stand_behind_what_is_sent() {
        // The known value of CRC32C (RFC 3720, B.4): 32 bytes of zeros.
        assert_eq!(digest_of(&[0; 32]), [0xaa, 0x36, 0x91, 0x8a]);
        let both = Digests::new().with_header(true).with_data(true);
        let mut rig = rig_with(0x40_0000, both);
        // In its capsule: 72 bytes of header, its digest, data at PDO, and theirs.
        rig.memory.write(0, &[7; 512]);
        rig.submit(0x01, 0, 512);
        let sent = rig.staged();
        assert_eq!((sent[0], sent[1] & 0b11, sent[3]), (4, 0b11, 76));
        assert_eq!(sent.len(), 76 + 512 + 4);
        assert_eq!(sent[72..76], digest_of(&sent[..72]));
        assert_eq!(sent[76..588], [7; 512]);
        assert_eq!(sent[588..], digest_of(&[7; 512]));
        // Without data there is only the header's.
        rig.submit(0x00, 1, 0);
        let sent = rig.staged();
        assert_eq!((sent.len(), sent[1] & 0b11), (76, 0b01));
        // Data that an R2T asks for.
        rig.submit(0x01, 2, 64 << 10);
        rig.staged();
        let asked = sealed(&r2t(2, 5, 0, 64 << 10), false, false);
        assert_eq!(rig.take(&asked).unwrap(), None);
        let sent = rig.staged();
        assert_eq!((sent[0], sent[1] & 0b11), (6, 0b11));
        assert_eq!(sent.len(), 28 + (64 << 10) + 4);
        assert_eq!(sent[sent.len() - 4..], digest_of(&vec![0; 64 << 10]));
    }

    #[test]
    fn wrong_digests_are_found() {
        let both = Digests::new().with_header(true).with_data(true);
        let mut rig = rig_with(0x40_0000, both);
        let reads = |rig: &mut Rig, cid: u16, wrong: bool| {
            rig.submit(0x02, cid, 512);
            rig.staged();
            let data = sealed(&data(cid.into(), 0, &[9; 512], 0b100), false, wrong);
            assert_eq!(rig.take(&data).unwrap(), None);
            assert_eq!(rig.wire.rest(), None, "the decoder sees all data");
            let cqe = rig.take(&sealed(&response(cid.into(), 0), false, false));
            cqe.unwrap().unwrap().status.status()
        };
        assert_eq!(reads(&mut rig, 0, false), Status::SUCCESSFUL_COMPLETION);
        let mut found = [0; 512];
        rig.memory.read(0, &mut found);
        assert_eq!(found, [9; 512]);
        // The command fails, and the connection goes on.
        assert_eq!(reads(&mut rig, 1, true), Status::TRANSIENT_TRANSPORT_ERROR);
        assert_eq!(reads(&mut rig, 1, false), Status::SUCCESSFUL_COMPLETION);
        // A header says what is behind it, so nothing can follow a wrong one.
        rig.submit(0x00, 3, 0);
        rig.staged();
        let wrong = rig.take(&sealed(&response(3, 0), true, false));
        let Err(Breach::Fault(fault)) = wrong else {
            panic!("{wrong:?}");
        };
        assert_eq!(fault.name(), "header-digest");
    }

    /// Type, flags and data of each PDU, whose header has 24 bytes if its type is not that of a
    /// capsule.
    fn pdus(mut bytes: &[u8]) -> Vec<(u8, u8, usize)> {
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let plen = u32::from_le_bytes(bytes[4..8].try_into().unwrap()) as usize;
            all.push((bytes[0], bytes[1], plen - usize::from(bytes[2])));
            bytes = &bytes[plen..];
        }
        all
    }

    #[test]
    fn a_read_ends_with_its_response_or_with_success() {
        let mut rig = rig(0x40_0000);
        rig.submit(0x02, 1, 4096);
        rig.submit(0x02, 2, 512);
        assert_eq!(pdus(&rig.staged()), [(4, 0, 0), (4, 0, 0)]);
        assert_eq!(rig.take(&data(1, 0, &[7; 1000], 0)), Ok(None));
        assert_eq!(rig.take(&data(1, 1000, &[8; 3096], 4)), Ok(None));
        let cqe = rig.take(&response(1, 0)).unwrap().unwrap();
        assert_eq!((cqe.cid, cqe.status.status().is_success()), (1, true));
        let cqe = rig.take(&data(2, 0, &[9; 512], 12)).unwrap().unwrap();
        assert_eq!(cqe.cid, 2);
        let mut read = vec![0; 2 * PIECE];
        rig.memory.read(PIECE, &mut read);
        assert_eq!(read[..1000], [7; 1000]);
        assert_eq!(read[1000..4096], [8; 3096]);
        assert_eq!(read[PIECE..PIECE + 512], [9; 512]);
        assert_eq!(read[PIECE + 512], 0);
        let again = Breach::NoCommand {
            pdu_type: PduType::CAPSULE_RESP,
            cid: 2,
        };
        assert_eq!(rig.take(&response(2, 0)), Err(again));
        // Less than all of it is none.
        rig.submit(0x02, 3, 512);
        rig.staged();
        let cqe = rig.take(&response(3, 0)).unwrap().unwrap();
        assert_eq!(cqe.status.status(), Status::DATA_TRANSFER_ERROR);
    }

    #[test]
    fn data_that_are_received_to_their_place_count() {
        let mut rig = rig(0x40_0000);
        rig.submit(0x02, 1, 8192);
        rig.staged();
        let bytes = data(1, 0, &[7; 8192], 12);
        assert_eq!(rig.wire.rest(), None);
        assert_eq!(rig.take(&bytes[..24 + 100]), Ok(None));
        let place = BASE.0 + PIECE as u64;
        assert_eq!(rig.wire.rest(), Some((place + 100, 8092)));
        rig.wire.received(8000);
        assert_eq!(rig.wire.rest(), Some((place + 8100, 92)));
        let cqe = rig.take(&bytes[24 + 8100..]).unwrap().unwrap();
        assert_eq!((cqe.cid, rig.wire.rest()), (1, None));
        let mut read = [0; 8192];
        rig.memory.read(PIECE, &mut read);
        // Those in the middle are not here: the caller has them.
        assert!(
            read[..100]
                .iter()
                .chain(&read[8100..])
                .all(|byte| *byte == 7)
        );
        assert!(read[100..8100].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn a_write_goes_in_its_capsule_or_as_the_target_asks() {
        let mut rig = rig(4096);
        rig.memory.write(PIECE, &[5; 8192]);
        rig.submit(0x01, 1, 8192);
        let bytes = rig.staged();
        assert_eq!(pdus(&bytes), [(4, 0, 8192)]);
        assert_eq!(bytes[72..], [5; 8192]);
        assert!(rig.take(&response(1, 0)).unwrap().is_some());
        // Larger: nothing before it is asked for, then in pieces, the last of which says so.
        rig.memory.write(PIECE, &[6; 10000]);
        rig.submit(0x01, 1, 10000);
        assert_eq!(pdus(&rig.staged()), [(4, 0, 0)]);
        assert_eq!(rig.take(&r2t(1, 3, 0, 9000)), Ok(None));
        let bytes = rig.staged();
        assert_eq!(pdus(&bytes), [(6, 0, 4096), (6, 0, 4096), (6, 4, 808)]);
        assert_eq!(bytes[8..12], [1, 0, 3, 0], "CCCID and TTAG");
        assert_eq!(bytes[24..4120], [6; 4096]);
        assert_eq!(rig.take(&r2t(1, 4, 9000, 1000)), Ok(None));
        assert_eq!(pdus(&rig.staged()), [(6, 4, 1000)]);
        assert!(rig.take(&response(1, 0)).unwrap().is_some());
    }

    #[test]
    fn a_target_moves_no_data_but_those_of_the_command() {
        let none = |pdu_type| Breach::NoCommand { pdu_type, cid: 1 };
        let range = |offset, len, expected, end| {
            Breach::Fault(Fault::Range {
                offset,
                len,
                expected,
                end,
            })
        };
        let (c2h, asks) = (PduType::C2H_DATA, PduType::R2T);
        for (opcode, len, bytes, breach) in [
            (0x02, 512, data(1, 0, &[1; 513], 4), range(0, 513, 0, 512)),
            (0x02, 512, data(1, 1, &[1; 511], 4), range(1, 511, 0, 512)),
            (0x01, 9000, data(1, 0, &[1; 512], 4), none(c2h)),
            (0x00, 0, data(1, 0, &[1; 512], 4), none(c2h)),
            (0x02, 512, r2t(1, 0, 0, 512), none(asks)),
            (0x01, 512, r2t(1, 0, 0, 512), none(asks)),
            (0x01, 9000, r2t(1, 0, 0, 9001), range(0, 9001, 0, 9000)),
            (0x01, 9000, r2t(1, 0, 512, 1), range(512, 1, 0, 9000)),
        ] {
            let mut rig = rig(4096);
            rig.submit(opcode, 1, len);
            rig.staged();
            assert_eq!(rig.take(&bytes), Err(breach), "{opcode} {len}");
            let mut all = vec![0; 4 * PIECE];
            rig.memory.read(0, &mut all);
            assert!(all.iter().all(|byte| *byte == 0), "memory has changed");
        }
        // A second R2T while the first one is answered.
        let mut rig = rig(4096);
        rig.submit(0x01, 1, 9000);
        rig.staged();
        assert_eq!(rig.take(&r2t(1, 0, 0, 4500)), Ok(None));
        let fault = Fault::Sequence(PduType::R2T);
        assert_eq!(rig.take(&r2t(1, 1, 4500, 4500)), Err(fault.into()));
    }

    #[test]
    fn a_command_that_ends_early_sends_no_more_data() {
        let mut rig = rig(4096);
        rig.submit(0x01, 1, 9000);
        rig.staged();
        assert_eq!(rig.take(&r2t(1, 0, 0, 9000)), Ok(None));
        // Invalid Field in Command, before its data have left.
        let cqe = rig.take(&response(1, 0x02 << 1)).unwrap().unwrap();
        assert_eq!(cqe.status.status(), Status::INVALID_FIELD_IN_COMMAND);
        rig.submit(0x02, 1, 512);
        assert_eq!(pdus(&rig.staged()), [(4, 0, 0)], "only the next command");
    }

    #[test]
    fn a_termination_is_told_with_its_reason() {
        let mut rig = rig(4096);
        let mut request = pdu(3, 0, [1, 0, 0, 0], &[]);
        request[10] = 4;
        let breach = Breach::Terminated {
            fes: FatalErrorStatus::INVALID_PDU_HEADER_FIELD,
            fei: 4,
        };
        assert_eq!(rig.take(&request), Err(breach));
    }

    #[test]
    fn what_does_not_fit_is_staged_later() {
        let mut rig = rig(0x40_0000);
        rig.submit(0x01, 1, 600_000);
        rig.staged();
        assert_eq!(rig.take(&r2t(1, 0, 0, 600_000)), Ok(None));
        let mut sent = 0;
        let mut rounds = 0;
        while rig.wire.has_output() {
            let bytes = rig.staged();
            sent += pdus(&bytes).iter().map(|pdu| pdu.2).sum::<usize>();
            rounds += 1;
        }
        assert_eq!((sent, rounds), (600_000, 3));
    }
}
