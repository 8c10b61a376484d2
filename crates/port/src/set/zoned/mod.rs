//! The Zoned Namespace command set (ZNS 1.1): the NVM command set, and additional commands for
//! zones.
//!
//! This module covers everything that does not depend on the state of a zone: the length of a
//! command's data, and the data of Identify. The zones are the medium's. Variable zone capacities
//! and excursions of active zones are not supported.

use nvme_spec::identify::IDENTIFY_SIZE;
use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::{Csi, NvmOpcode};
use nvme_spec::zoned::{
    DESCRIPTOR_EXTENSION_UNIT, IdentifyZonedController, IdentifyZonedNamespace, NO_ZONE_LIMIT,
    Ozcs, ZoneAppendCdw12, ZoneReceiveAction, ZoneReceiveCdw13, ZoneSendAction, ZoneSendCdw13,
    ZonedLbaFormat, ZonedOpcode, Zrwacap,
};
use nvme_spec::{Sqe, Status};
use zerocopy::{FromZeros, IntoBytes};

use super::{Access, Asked, CommandSet, Data, nvm_effects};
use crate::namespace::{LBA_SHIFTS, Namespace};

/// Reported properties of a medium's zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Zoned {
    /// Bytes from one zone to the next: a multiple of the largest logical block.
    pub zone_bytes: u64,
    /// Zones that may be active at a time (MAR); 0: any number.
    pub max_active: u32,
    /// Zones that may be open at a time (MOR); 0: any number.
    pub max_open: u32,
    /// Bytes of a zone's descriptor extension in units of 64; 0: none.
    pub extension_units: u8,
    /// Most bytes of Zone Append as a power of two of 4 KiB pages (ZASL); 0: as many as any command
    /// may move.
    pub zasl: u8,
    /// Random write areas (ZRWA) of zones; `None`: not supported.
    pub random: Option<RandomAreas>,
}

/// Supported random write areas of zones (TP 4076).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RandomAreas {
    /// Bytes of each (ZRWASZ): less than 32 MiB.
    pub bytes: u32,
    /// Bytes that write pointers move by in zones that have one (ZRWAFG): a multiple of the largest
    /// logical block.
    pub granularity: u32,
    /// Zones that may have one at a time (NUMZRWA): at least 1.
    pub zones: u32,
}

impl Zoned {
    fn extension_bytes(&self) -> u64 {
        u64::from(self.extension_units) * DESCRIPTOR_EXTENSION_UNIT as u64
    }

    fn send(&self, sqe: &Sqe) -> Result<Asked, Status> {
        let cdw13 = ZoneSendCdw13::from(sqe.cdw13);
        // A random write area is given to a zone that is empty, and Select All opens those that are
        // closed.
        let can_allocate = !cdw13.zsaso() || self.random.is_some() && !cdw13.select_all();
        let data = match cdw13.zsa() {
            ZoneSendAction::CLOSE
            | ZoneSendAction::FINISH
            | ZoneSendAction::RESET
            | ZoneSendAction::OFFLINE => Data::Nothing,
            ZoneSendAction::OPEN if can_allocate => Data::Nothing,
            ZoneSendAction::FLUSH_EXPLICIT_ZRWA if self.random.is_some() && !cdw13.select_all() => {
                Data::Nothing
            }
            ZoneSendAction::SET_DESCRIPTOR_EXTENSION
                if self.extension_units > 0 && can_allocate && !cdw13.select_all() =>
            {
                Data::FromHost(self.extension_bytes())
            }
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        };
        let access = Access::Changes;
        Ok(Asked { access, data })
    }

    fn receive(&self, sqe: &Sqe) -> Result<Asked, Status> {
        match ZoneReceiveCdw13::from(sqe.cdw13).zra() {
            ZoneReceiveAction::REPORT => {}
            ZoneReceiveAction::EXTENDED_REPORT if self.extension_units > 0 => {}
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        }
        Ok(Asked {
            access: Access::Reads,
            data: Data::ToHost((u64::from(sqe.cdw12) + 1) * 4),
        })
    }

    fn append(&self, sqe: &Sqe, namespace: &Namespace) -> Result<Asked, Status> {
        let blocks = u64::from(ZoneAppendCdw12::from(sqe.cdw12).nlb_z()) + 1;
        let bytes = blocks << namespace.lba_shift;
        let most = 4096_u64.checked_shl(self.zasl.into());
        if self.zasl > 0 && most.is_some_and(|most| bytes > most) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        Ok(Asked {
            access: Access::Changes,
            data: Data::FromHost(bytes),
        })
    }
}

/// A limit in the format of Identify.
fn limit_z(zones: u32) -> u32 {
    zones.checked_sub(1).unwrap_or(NO_ZONE_LIMIT)
}

impl CommandSet for Zoned {
    fn csi(&self) -> Csi {
        Csi::ZONED_NAMESPACE
    }

    fn command(&self, sqe: &Sqe, namespace: &Namespace) -> Result<Option<Asked>, Status> {
        match ZonedOpcode(sqe.opcode) {
            ZonedOpcode::ZONE_MANAGEMENT_SEND => self.send(sqe).map(Some),
            ZonedOpcode::ZONE_MANAGEMENT_RECEIVE => self.receive(sqe).map(Some),
            ZonedOpcode::ZONE_APPEND => self.append(sqe, namespace).map(Some),
            _ if self.effects(sqe.opcode).is_none() => Err(Status::INVALID_COMMAND_OPCODE),
            _ => Ok(None),
        }
    }

    // The others move a write pointer, or depend on one.
    fn repeats(&self, sqe: &Sqe) -> bool {
        ZonedOpcode(sqe.opcode) == ZonedOpcode::ZONE_MANAGEMENT_RECEIVE
    }

    fn opcode_name(&self, opcode: u8) -> Option<&'static str> {
        let opcode = ZonedOpcode(opcode);
        let is_own = matches!(
            opcode,
            ZonedOpcode::ZONE_MANAGEMENT_SEND
                | ZonedOpcode::ZONE_MANAGEMENT_RECEIVE
                | ZonedOpcode::ZONE_APPEND
        );
        is_own.then(|| opcode.name())
    }

    fn effects(&self, opcode: u8) -> Option<CommandEffects> {
        let none = CommandEffects::new().with_csupp(true);
        match ZonedOpcode(opcode) {
            ZonedOpcode::ZONE_MANAGEMENT_SEND | ZonedOpcode::ZONE_APPEND => {
                return Some(none.with_lbcc(true));
            }
            ZonedOpcode::ZONE_MANAGEMENT_RECEIVE => return Some(none),
            _ => {}
        }
        match NvmOpcode(opcode) {
            // It would have to move write pointers, which are not where its marks are kept.
            NvmOpcode::WRITE_UNCORRECTABLE => None,
            _ => nvm_effects(opcode),
        }
    }

    fn identify_namespace(&self, namespace: &Namespace) -> Box<[u8; IDENTIFY_SIZE]> {
        let mut id = IdentifyZonedNamespace::new_zeroed();
        id.ozcs = Ozcs::new()
            .with_razb(true)
            .with_zrwasup(self.random.is_some());
        if let Some(random) = self.random {
            // They fit: the areas are smaller than 32 MiB.
            let blocks =
                |bytes: u32| u16::try_from(bytes >> namespace.lba_shift).unwrap_or(u16::MAX);
            id.numzrwa_z = random.zones - 1;
            id.zrwafg = blocks(random.granularity);
            id.zrwasz = blocks(random.bytes);
            id.zrwacap = Zrwacap::new().with_expflushsup(true);
        }
        id.mar_z = limit_z(self.max_active);
        id.mor_z = limit_z(self.max_open);
        for (format, shift) in id.lbafe.iter_mut().zip(LBA_SHIFTS) {
            *format = ZonedLbaFormat {
                zsze: self.zone_bytes >> shift,
                zdes: self.extension_units,
                ..ZonedLbaFormat::default()
            };
        }
        page(id.as_bytes())
    }

    fn zone_of(&self, namespace: &Namespace, lba: u64) -> Option<u64> {
        let blocks = self.zone_bytes >> namespace.lba_shift;
        lba.checked_div(blocks).map(|zone| zone * blocks)
    }

    fn identify_controller(&self) -> Box<[u8; IDENTIFY_SIZE]> {
        let mut id = IdentifyZonedController::new_zeroed();
        id.zasl = self.zasl;
        page(id.as_bytes())
    }
}

fn page(bytes: &[u8]) -> Box<[u8; IDENTIFY_SIZE]> {
    let mut page = Box::new([0; IDENTIFY_SIZE]);
    page.copy_from_slice(bytes);
    page
}

#[cfg(test)]
mod tests;
