//! The Zoned Namespace command set: its three commands, what Identify tells of it, zone
//! descriptors, and the Changed Zone List (ZNS 1.1).
//!
//! Everything else of a zoned namespace is the NVM command set's.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::registers::Version;
use crate::{Sqe, command};

open_enum! {
    /// I/O command opcode that the Zoned Namespace command set adds to those of the NVM command set
    /// (ZNS 1.1, 3).
    pub struct ZonedOpcode(u8) {
        ZONE_MANAGEMENT_SEND = 0x79, "Zone Management Send";
        ZONE_MANAGEMENT_RECEIVE = 0x7a, "Zone Management Receive";
        ZONE_APPEND = 0x7d, "Zone Append";
    }
}

open_enum! {
    /// Zone Send Action (ZNS 1.1, 3.4.3).
    pub struct ZoneSendAction(u8) {
        CLOSE = 0x01, "Close Zone";
        FINISH = 0x02, "Finish Zone";
        OPEN = 0x03, "Open Zone";
        RESET = 0x04, "Reset Zone";
        OFFLINE = 0x05, "Offline Zone";
        SET_DESCRIPTOR_EXTENSION = 0x10, "Set Zone Descriptor Extension";
        FLUSH_EXPLICIT_ZRWA = 0x11, "Flush Explicit ZRWA Range";
    }
}

/// Zone Management Send, Dword 13. SLBA is in Dwords 10 and 11.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ZoneSendCdw13 {
    /// Zone Send Action.
    #[bits(8)]
    pub zsa: ZoneSendAction,
    /// Select All: SLBA is ignored.
    pub select_all: bool,
    /// Zone Send Action Specific Option: of Open Zone and Set Zone Descriptor Extension, to
    /// allocate a ZRWA (ZRWAA).
    pub zsaso: bool,
    #[bits(22)]
    __: u32,
}

open_enum! {
    /// Zone Receive Action (ZNS 1.1, 3.4.2).
    pub struct ZoneReceiveAction(u8) {
        REPORT = 0x00, "Report Zones";
        EXTENDED_REPORT = 0x01, "Extended Report Zones";
    }
}

open_enum! {
    /// Zone Receive Action Specific Field of both reports: the zones to report.
    pub struct ReportingOption(u8) {
        ALL = 0x00, "All zones";
        EMPTY = 0x01, "Zones in state ZSE:Empty";
        IMPLICITLY_OPENED = 0x02, "Zones in state ZSIO:Implicitly Opened";
        EXPLICITLY_OPENED = 0x03, "Zones in state ZSEO:Explicitly Opened";
        CLOSED = 0x04, "Zones in state ZSC:Closed";
        FULL = 0x05, "Zones in state ZSF:Full";
        READ_ONLY = 0x06, "Zones in state ZSRO:Read Only";
        OFFLINE = 0x07, "Zones in state ZSO:Offline";
    }
}

/// Zone Management Receive, Dword 13. SLBA is in Dwords 10 and 11, the number of dwords, 0's based,
/// in Dword 12.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ZoneReceiveCdw13 {
    /// Zone Receive Action.
    #[bits(8)]
    pub zra: ZoneReceiveAction,
    /// Zone Receive Action Specific Field.
    #[bits(8)]
    pub zrasf: ReportingOption,
    /// Partial Report: Number of Zones counts what was transferred.
    pub partial: bool,
    #[bits(15)]
    __: u16,
}

/// Zone Append, Dword 12. ZSLBA is in Dwords 10 and 11; the LBA that was written first in
/// completion Dwords 0 and 1.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ZoneAppendCdw12 {
    /// Number of Logical Blocks.
    pub nlb_z: u16,
    #[bits(9)]
    __: u16,
    /// Protection Information Remap.
    pub piremap: bool,
    /// Protection Information.
    #[bits(4)]
    pub prinfo: u8,
    /// Force Unit Access.
    pub fua: bool,
    /// Limited Retry.
    pub lr: bool,
}

/// The LBA of a zone in Dwords 10 and 11 of the three commands.
pub fn zone_slba(sqe: &Sqe) -> u64 {
    command::slba(sqe)
}

open_enum! {
    /// Zone Type.
    pub struct ZoneType(u8) {
        SEQUENTIAL_WRITE_REQUIRED = 0x2, "Sequential Write Required";
    }
}

open_enum! {
    /// Zone State (ZNS 1.1, 2.1.1.2).
    pub struct ZoneState(u8) {
        EMPTY = 0x1, "ZSE:Empty";
        IMPLICITLY_OPENED = 0x2, "ZSIO:Implicitly Opened";
        EXPLICITLY_OPENED = 0x3, "ZSEO:Explicitly Opened";
        CLOSED = 0x4, "ZSC:Closed";
        READ_ONLY = 0xd, "ZSRO:Read Only";
        FULL = 0xe, "ZSF:Full";
        OFFLINE = 0xf, "ZSO:Offline";
    }
}

/// First byte of a zone descriptor.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ZoneDescriptorType {
    /// Zone Type.
    #[bits(4)]
    pub zt: ZoneType,
    #[bits(4)]
    __: u8,
}

/// Second byte of a zone descriptor.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ZoneDescriptorState {
    #[bits(4)]
    __: u8,
    /// Zone State.
    #[bits(4)]
    pub zs: ZoneState,
}

/// Zone Attributes.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ZoneAttributes {
    /// Zone Finished by Controller.
    pub zfc: bool,
    /// Finish Zone Recommended.
    pub fzr: bool,
    /// Reset Zone Recommended.
    pub rzr: bool,
    /// Zone Random Write Area Valid.
    pub zrwav: bool,
    #[bits(3)]
    __: u8,
    /// Zone Descriptor Extension Valid.
    pub zdev: bool,
}

/// Zone Descriptor, 64 bytes (ZNS 1.1, 3.4.2.2).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ZoneDescriptor {
    /// Zone Type.
    pub kind: ZoneDescriptorType,
    /// Zone State.
    pub state: ZoneDescriptorState,
    /// Zone Attributes.
    pub za: ZoneAttributes,
    /// Zone Attributes Information.
    pub zai: u8,
    /// Reserved.
    pub reserved_4: [u8; 4],
    /// Zone Capacity, in logical blocks.
    pub zcap: u64,
    /// Zone Start Logical Block Address.
    pub zslba: u64,
    /// Write Pointer; of no meaning in a zone that is full, read only or offline.
    pub wp: u64,
    /// Reserved.
    pub reserved_32: [u8; 32],
}

/// Head of both reports, 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ZoneReportHeader {
    /// Number of Zones.
    pub number_of_zones: u64,
    /// Reserved.
    pub reserved_8: [u8; 56],
}

/// Unit of [`ZonedLbaFormat::zdes`].
pub const DESCRIPTOR_EXTENSION_UNIT: usize = 64;

/// Zone Operation Characteristics.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Zoc {
    /// Variable Zone Capacity.
    pub vzcap: bool,
    /// Zone Active Excursions.
    pub zae: bool,
    #[bits(14)]
    __: u16,
}

/// Optional Zoned Command Support.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Ozcs {
    /// Read Across Zone Boundaries.
    pub razb: bool,
    /// Zone Random Write Area Supported.
    pub zrwasup: bool,
    #[bits(14)]
    __: u16,
}

/// ZRWA Capability.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Zrwacap {
    /// Explicit ZRWA Flush Operations Supported.
    pub expflushsup: bool,
    #[bits(7)]
    __: u8,
}

/// LBA Format Extension, 16 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ZonedLbaFormat {
    /// Zone Size, in logical blocks.
    pub zsze: u64,
    /// Zone Descriptor Extension Size, in units of [`DESCRIPTOR_EXTENSION_UNIT`] bytes.
    pub zdes: u8,
    /// Reserved.
    pub reserved_9: [u8; 7],
}

/// A limit of zones that is none (MAR and MOR).
pub const NO_ZONE_LIMIT: u32 = 0xffff_ffff;

/// I/O Command Set specific Identify Namespace of the Zoned Namespace command set, 4096 bytes (CNS
/// 05h, CSI 02h).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyZonedNamespace {
    /// Zone Operation Characteristics.
    pub zoc: Zoc,
    /// Optional Zoned Command Support.
    pub ozcs: Ozcs,
    /// Maximum Active Resources, 0's based; [`NO_ZONE_LIMIT`]: any number.
    pub mar_z: u32,
    /// Maximum Open Resources, 0's based; [`NO_ZONE_LIMIT`]: any number.
    pub mor_z: u32,
    /// Reset Recommended Limit, in seconds; 0 is not told.
    pub rrl: u32,
    /// Finish Recommended Limit, in seconds; 0 is not told.
    pub frl: u32,
    /// Reset Recommended Limit 1 to 3, Finish Recommended Limit 1 to 3.
    pub further_limits: [u32; 6],
    /// Number of ZRWA Resources.
    pub numzrwa_z: u32,
    /// ZRWA Flush Granularity, in logical blocks.
    pub zrwafg: u16,
    /// ZRWA Size, in logical blocks.
    pub zrwasz: u16,
    /// ZRWA Capability.
    pub zrwacap: Zrwacap,
    /// Reserved.
    pub reserved_53: [u8; 2763],
    /// LBA Format Extensions, by format.
    pub lbafe: [ZonedLbaFormat; 64],
    /// Vendor Specific.
    pub vendor: [u8; 256],
}

/// I/O Command Set specific Identify Controller of the Zoned Namespace command set, 4096 bytes (CNS
/// 06h, CSI 02h).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyZonedController {
    /// Zone Append Size Limit: 2^ZASL pages of CAP.MPSMIN; 0 is MDTS.
    pub zasl: u8,
    /// Reserved.
    pub reserved_1: [u8; 4095],
}

/// Zones that a Changed Zone List has room for.
pub const CHANGED_ZONES_MAX: usize = 511;
/// Number of Zone Identifiers of a list with more zones than it has room for.
pub const CHANGED_ZONES_MORE: u16 = 0xffff;

/// Changed Zone List of a namespace (LID BFh), 4096 bytes (ZNS 1.1, 4.1.2.1).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ChangedZoneList {
    /// Number of Zone Identifiers; [`CHANGED_ZONES_MORE`]: more than there is room for, and the
    /// list is empty.
    pub nrzid: u16,
    /// Reserved.
    pub reserved_2: [u8; 6],
    /// ZSLBA of each.
    pub zids: [u64; CHANGED_ZONES_MAX],
}

/// Revision of the Zoned Namespace command set specification: 1.1.
pub const ZNS_1_1: Version = Version::new().with_mjr(1).with_mnr(1);

const _: () = assert!(size_of::<ZoneDescriptor>() == 64);
const _: () = assert!(offset_of!(ZoneDescriptor, zcap) == 8);
const _: () = assert!(offset_of!(ZoneDescriptor, zslba) == 16);
const _: () = assert!(offset_of!(ZoneDescriptor, wp) == 24);
const _: () = assert!(size_of::<ZoneReportHeader>() == 64);
const _: () = assert!(size_of::<ZonedLbaFormat>() == 16);
const _: () = assert!(size_of::<IdentifyZonedNamespace>() == crate::identify::IDENTIFY_SIZE);
const _: () = assert!(offset_of!(IdentifyZonedNamespace, numzrwa_z) == 44);
const _: () = assert!(offset_of!(IdentifyZonedNamespace, lbafe) == 2816);
const _: () = assert!(offset_of!(IdentifyZonedNamespace, vendor) == 3840);
const _: () = assert!(size_of::<IdentifyZonedController>() == crate::identify::IDENTIFY_SIZE);
const _: () = assert!(size_of::<ChangedZoneList>() == 4096);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_descriptor() {
        // A zone at LBA 80000h, closed, of 60000h blocks, of which 10h were written, with an
        // extension.
        let descriptor = ZoneDescriptor {
            kind: ZoneDescriptorType::new().with_zt(ZoneType::SEQUENTIAL_WRITE_REQUIRED),
            state: ZoneDescriptorState::new().with_zs(ZoneState::CLOSED),
            za: ZoneAttributes::new().with_zdev(true),
            zcap: 0x6_0000,
            zslba: 0x8_0000,
            wp: 0x8_0010,
            ..ZoneDescriptor::default()
        };
        let mut bytes = [0; 64];
        bytes[..3].copy_from_slice(&[0x02, 0x40, 0x80]);
        (bytes[10], bytes[18]) = (0x06, 0x08);
        (bytes[24], bytes[26]) = (0x10, 0x08);
        assert_eq!(descriptor.as_bytes(), bytes);
    }

    #[test]
    fn fields_lie_where_zns_1_1_says() {
        let send = ZoneSendCdw13::from(0x104);
        assert_eq!(
            (send.zsa(), send.select_all()),
            (ZoneSendAction::RESET, true)
        );
        let receive = ZoneReceiveCdw13::from(0x0001_0501);
        assert_eq!(receive.zra(), ZoneReceiveAction::EXTENDED_REPORT);
        assert_eq!(
            (receive.zrasf(), receive.partial()),
            (ReportingOption::FULL, true)
        );
        let append = ZoneAppendCdw12::from(1 << 30 | 7);
        assert!(append.fua() && append.nlb_z() == 7);
        let attributes = ZoneAttributes::from(0b111);
        assert!(attributes.zfc() && attributes.fzr() && attributes.rzr());
    }
}
