//! The commands that a target has, and their data.

use nvme_spec::opcode::NvmOpcode;
use nvme_spec::sgl::{SglDescriptor, SglDescriptorSubType, SglDescriptorType, SglIdentifier};
use nvme_spec::sqe::Psdt;
use nvme_spec::{Cqe, Sqe};
use nvme_tcp::{Piece, Transfer};

use crate::DriverError;

const READ: u8 = NvmOpcode::READ.0;
const WRITE: u8 = NvmOpcode::WRITE.0;

/// Data of a command: one piece of the driver's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Data {
    pub(super) address: u64,
    pub(super) len: u32,
    pub(super) to_controller: bool,
}

/// The data of a command as its submission queue entry describes them.
///
/// # Errors
/// [`DriverError::Unsupported`] for PRPs, which do not say how many bytes there are, and for
/// several pieces.
pub(super) fn data_of(sqe: &Sqe) -> Result<Option<Data>, DriverError> {
    // Bits 1:0 of an opcode: no data, from the host, to the host, both (Base 2.1, 3.1.2).
    let none = sqe.prp1 == 0 && sqe.prp2 == 0;
    let to_controller = match sqe.opcode & 0b11 {
        0b00 => return Ok(None),
        0b01 => true,
        0b10 => false,
        _ if none && sqe.flags.psdt() == Psdt::PRP => return Ok(None),
        _ => {
            return Err(DriverError::Unsupported(format!(
                "opcode {:#04x} transfers data in both directions, which NVMe/TCP cannot carry",
                sqe.opcode
            )));
        }
    };
    let descriptor = match sqe.flags.psdt() {
        Psdt::PRP if none => return Ok(None),
        Psdt::PRP => {
            return Err(DriverError::Unsupported(format!(
                "the command with opcode {:#04x} has PRPs: over NVMe/TCP data are described by one SGL data block",
                sqe.opcode
            )));
        }
        _ => sqe.sgl1(),
    };
    let plain = SglIdentifier::new().with_descriptor_type(SglDescriptorType::DATA_BLOCK);
    if descriptor.identifier != plain {
        return Err(DriverError::Unsupported(format!(
            "the command with opcode {:#04x} has an SGL other than one data block, which is not sent over NVMe/TCP",
            sqe.opcode
        )));
    }
    Ok((descriptor.length > 0).then_some(Data {
        address: descriptor.address,
        len: descriptor.length,
        to_controller,
    }))
}

/// A command in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    /// As it is sent.
    pub(super) sqe: Sqe,
    pub(super) data: Option<Data>,
    /// Bytes of its data in its capsule.
    pub(super) in_capsule: u32,
    /// Data that are to arrive.
    pub(super) arriving: Transfer,
    /// Bytes that R2Ts have asked for.
    pub(super) asked: u32,
    /// Its capsule is staged.
    pub(super) is_sent: bool,
    /// An R2T is being answered.
    pub(super) is_answering: bool,
    /// Data arrived with a wrong digest.
    pub(super) is_damaged: bool,
}

impl Command {
    /// A command with these data, of which up to `in_capsule` bytes travel in its capsule.
    pub(super) fn new(mut sqe: Sqe, data: Option<Data>, in_capsule: u32) -> Self {
        let to_controller = data.filter(|data| data.to_controller);
        let sent = to_controller.filter(|data| data.len <= in_capsule);
        let in_capsule = sent.map_or(0, |data| data.len);
        // A capsule's data are a data block at an offset of the capsule; other data are the
        // transport's, also where there are none (TCP 1.1, 3.3.2).
        let identifier = SglIdentifier::new();
        let identifier = if sent.is_some() {
            identifier
                .with_descriptor_type(SglDescriptorType::DATA_BLOCK)
                .with_sub_type(SglDescriptorSubType::OFFSET)
        } else {
            identifier
                .with_descriptor_type(SglDescriptorType::TRANSPORT_DATA_BLOCK)
                .with_sub_type(SglDescriptorSubType(0xa))
        };
        sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
        sqe.set_sgl1(SglDescriptor {
            length: data.map_or(0, |data| data.len),
            identifier,
            ..SglDescriptor::default()
        });
        let arriving = data.filter(|data| !data.to_controller);
        Self {
            sqe,
            data,
            in_capsule,
            arriving: Transfer::new(&Piece {
                cccid: sqe.cid,
                ttag: 0,
                offset: 0,
                len: arriving.map_or(0, |data| data.len),
                last: true,
            }),
            asked: 0,
            is_sent: false,
            is_answering: false,
            is_damaged: false,
        }
    }
}

impl Command {
    /// Whether the target reports success without having moved all data of a read or a write:
    /// Read, Write, Retrieve, Store, and on the Admin Queue Get Log Page, which have one opcode.
    /// A Retrieve moves a value, whose length is in Dword 0.
    pub(super) fn falls_short(&self, cqe: &Cqe) -> bool {
        let Some(data) = self.data.filter(|_| cqe.status.status().is_success()) else {
            return false;
        };
        match self.sqe.opcode {
            WRITE => {
                let sent = data.len == self.in_capsule || data.len == self.asked;
                !sent || !self.is_sent || self.is_answering
            }
            READ => {
                let arrived = self.arriving.position();
                arrived < data.len && (cqe.dw0 == 0 || arrived != cqe.dw0)
            }
            _ => false,
        }
    }
}

/// The commands in flight of one queue. Identifiers are any numbers; a driver whose identifiers are
/// small numbers finds its commands at the first look.
pub(super) struct Commands {
    slots: Box<[Option<Command>]>,
    used: usize,
    /// Commands that another one kept from the first place of their identifier.
    displaced: usize,
}

impl Commands {
    /// Room for `most` commands.
    pub(super) fn new(most: u16) -> Self {
        Self {
            slots: vec![None; usize::from(most.max(1))].into(),
            used: 0,
            displaced: 0,
        }
    }

    /// Commands for which there is room.
    pub(super) fn free(&self) -> usize {
        self.slots.len() - self.used
    }

    /// Places in which commands are.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The commands in flight.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Command> {
        self.slots.iter().flatten()
    }

    /// Adds a command, for which there is room: its place.
    ///
    /// # Errors
    /// A command in flight has its identifier.
    pub(super) fn add(&mut self, command: Command) -> Result<usize, Conflict> {
        if self.find(command.sqe.cid).is_some() {
            return Err(Conflict);
        }
        let first = self.first(command.sqe.cid);
        let place = if self.slots[first].is_none() {
            first
        } else {
            let free = self.slots.iter().position(Option::is_none);
            free.expect("the caller has seen that there is room")
        };
        self.slots[place] = Some(command);
        self.used += 1;
        self.displaced += usize::from(place != first);
        Ok(place)
    }

    /// The place of the command with an identifier.
    #[inline]
    pub(super) fn find(&self, cid: u16) -> Option<usize> {
        let is =
            |slot: &Option<Command>| slot.as_ref().is_some_and(|command| command.sqe.cid == cid);
        let first = self.first(cid);
        if is(&self.slots[first]) {
            return Some(first);
        }
        // Most often none: then it is nowhere.
        let displaced = (self.displaced > 0).then_some(&self.slots);
        displaced?.iter().position(is)
    }

    /// The command at a place.
    #[inline]
    pub(super) fn at(&mut self, place: usize) -> Option<&mut Command> {
        self.slots.get_mut(place)?.as_mut()
    }

    /// Takes a command out.
    pub(super) fn remove(&mut self, place: usize) -> Option<Command> {
        let command = self.slots.get_mut(place)?.take()?;
        self.used -= 1;
        self.displaced -= usize::from(place != self.first(command.sqe.cid));
        Some(command)
    }

    fn first(&self, cid: u16) -> usize {
        usize::from(cid) % self.slots.len()
    }
}

/// Two commands in flight have one identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Conflict;

#[cfg(test)]
mod tests {
    use nvme_spec::Status;
    use nvme_spec::cqe::StatusField;
    use nvme_spec::tcp::DataHeader;
    use zerocopy::{FromBytes, IntoBytes};

    use super::*;

    fn sqe(opcode: u8, cid: u16, descriptor: SglDescriptor) -> Sqe {
        let mut sqe = Sqe {
            opcode,
            cid,
            ..Sqe::default()
        };
        sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
        sqe.set_sgl1(descriptor);
        sqe
    }

    fn block(len: u32) -> SglDescriptor {
        SglDescriptor::new(SglDescriptorType::DATA_BLOCK, 0x1234_5000, len)
    }

    #[test]
    fn data_are_what_the_opcode_and_one_block_say() {
        let data = |sqe: &Sqe| data_of(sqe).unwrap();
        let write = data(&sqe(0x01, 1, block(512))).unwrap();
        assert!(write.to_controller);
        assert_eq!((write.address, write.len), (0x1234_5000, 512));
        assert!(!data(&sqe(0x02, 1, block(512))).unwrap().to_controller);
        assert_eq!(data(&sqe(0x01, 1, block(0))), None);
        assert_eq!(data(&sqe(0x00, 1, block(512))), None, "a Flush has none");
        assert_eq!(data(&sqe(0x09, 1, SglDescriptor::default())), None);
        let plain = Sqe {
            opcode: 0x09,
            ..Sqe::default()
        };
        assert_eq!(data(&plain), None, "Set Features without data");
        let reserved = Sqe {
            opcode: 0x7f,
            ..Sqe::default()
        };
        assert_eq!(data(&reserved), None, "a reserved opcode without data");
        let prps = Sqe {
            opcode: 0x02,
            prp1: 0x1000,
            ..Sqe::default()
        };
        let bucket = SglDescriptor::new(SglDescriptorType::BIT_BUCKET, 0, 512);
        for (sqe, why) in [
            (prps, "has PRPs"),
            (sqe(0x02, 1, bucket), "an SGL other than one data block"),
            (sqe(0x7f, 1, block(512)), "both directions"),
        ] {
            let error = data_of(&sqe).unwrap_err().to_string();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn capsules_are_those_that_linux_sends() {
        // Recorded: PSDT 40h; a Write of 4096 bytes in its capsule has SGL 01h at offset 0, a Read
        // and a command without data have 5Ah.
        let sent = |opcode, len, in_capsule| {
            let sqe = sqe(opcode, 7, block(len));
            let data = data_of(&sqe).unwrap();
            Command::new(sqe, data, in_capsule)
        };
        let write = sent(0x01, 4096, 8192);
        assert_eq!(write.in_capsule, 4096);
        assert_eq!(write.sqe.as_bytes()[1], 0x40);
        let sgl = |command: &Command| command.sqe.as_bytes()[24..40].to_vec();
        let expected = |len: u32, last: u8| {
            let mut bytes = vec![0; 16];
            bytes[8..12].copy_from_slice(&len.to_le_bytes());
            bytes[15] = last;
            bytes
        };
        assert_eq!(sgl(&write), expected(4096, 0x01));
        let large = sent(0x01, 8193, 8192);
        assert_eq!(large.in_capsule, 0);
        assert_eq!(sgl(&large), expected(8193, 0x5a));
        assert_eq!(sgl(&sent(0x02, 4096, 8192)), expected(4096, 0x5a));
        assert_eq!(sgl(&sent(0x00, 4096, 8192)), expected(0, 0x5a));
    }

    #[test]
    fn commands_are_found_by_any_identifier_and_never_twice() {
        let mut commands = Commands::new(3);
        let command = |cid| Command::new(sqe(0, cid, block(0)), None, 0);
        for cid in [4, 1, 0xfffe] {
            let place = commands.add(command(cid)).unwrap();
            assert_eq!(commands.find(cid), Some(place));
        }
        assert_eq!(commands.free(), 0);
        assert_eq!(commands.find(7), None);
        let place = commands.find(1).unwrap();
        assert_eq!(commands.remove(place).unwrap().sqe.cid, 1);
        assert!(commands.remove(place).is_none());
        assert_eq!(commands.free(), 1);
        assert_eq!(commands.add(command(4)), Err(Conflict));
        assert!(commands.add(command(7)).is_ok());
    }

    /// A command of 8192 bytes, of which this many have moved.
    fn moved(opcode: u8, bytes: u32) -> Command {
        let data = Data {
            address: 0,
            len: 8192,
            to_controller: opcode == WRITE,
        };
        let sqe = Sqe {
            opcode,
            ..Sqe::default()
        };
        let mut command = Command::new(sqe, Some(data), 4096);
        command.is_sent = true;
        command.asked = bytes;
        let mut header = DataHeader::read_from_bytes(&[0; 24]).unwrap();
        header.datal = bytes;
        header.common.flags.set_last(true);
        if opcode != WRITE && bytes > 0 {
            command.arriving.take_c2h(&header).unwrap();
        }
        command
    }

    #[test]
    fn success_without_all_data_falls_short() {
        let done = |dw0| Cqe {
            dw0,
            ..Cqe::default()
        };
        for opcode in [READ, WRITE] {
            for (bytes, is_short) in [(0, true), (4096, true), (8192, false)] {
                let falls = moved(opcode, bytes).falls_short(&done(0));
                assert_eq!(falls, is_short, "{opcode} {bytes}");
            }
        }
        // A write that was not sent, or whose last data are being sent.
        let mut early = moved(WRITE, 8192);
        early.is_answering = true;
        assert!(early.falls_short(&done(0)));
        early = moved(WRITE, 8192);
        early.is_sent = false;
        assert!(early.falls_short(&done(0)));
        // A Retrieve of a value of 4096 bytes.
        assert!(!moved(READ, 4096).falls_short(&done(4096)));
        assert!(moved(READ, 4096).falls_short(&done(4097)));
        // Lists may be shorter than their room, and a command that fails moves any number.
        assert!(!moved(0x06, 0).falls_short(&done(0)));
        let status = StatusField::new().with_status(Status::INVALID_FIELD_IN_COMMAND);
        let failed = Cqe {
            status,
            ..Cqe::default()
        };
        assert!(!moved(READ, 0).falls_short(&failed));
    }
}
