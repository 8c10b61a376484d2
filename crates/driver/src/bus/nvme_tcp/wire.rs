//! One connection without its socket: bytes of the target come in, bytes for it go out.
//!
//! Invariants: nothing that a target sends panics or allocates. Data go only to the memory of the
//! command that they belong to, in order, and never beyond its end. At most one R2T of a command is
//! in flight (MAXR2T 0), so that a queue has at most two things to send for each command.

use std::collections::VecDeque;

use nvme_spec::cqe::StatusField;
use nvme_spec::tcp::{Digests, FatalErrorStatus, PduType, R2t};
use nvme_spec::{Cqe, Sqe, Status};
use nvme_tcp::{Decoder, Encoder, Event, Fault, Offer, Pieces, Side};

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

/// What this host asks a target for.
pub const OFFER: Offer = Offer {
    digests: Digests::new(),
    alignment_z: 0,
    max_h2c_data: 0,
    max_r2t_z: 0,
};

/// A decoder of what a target sends.
pub const fn decoder() -> Decoder {
    Decoder::new(Side::Host, MAX_C2H_DATA)
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
    /// Goes on after the first PDUs of both sides: `most` commands in flight, and `in_capsule` bytes
    /// of data in a capsule.
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

    /// As [`Self::add`], for a command as an entry of a queue describes it; false where it cannot be
    /// sent.
    pub fn submit(&mut self, sqe: Sqe) -> bool {
        let data = super::commands::data_of(&sqe);
        self.free() > 0 && data.is_ok_and(|data| self.add(sqe, data).is_ok())
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
            // What a command has to send is dropped with it.
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
            let end = at + head.len() + len;
            let Some(to) = output.get_mut(at..end) else {
                break;
            };
            let (to, data) = to.split_at_mut(head.len());
            to.copy_from_slice(&head);
            shared.read(from, data);
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
