//! NVMe over Fabrics: the Fabrics commands and their data (Base 2.1, 6), and what Identify
//! Controller says of capsules.

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cqe::Cqe;
use crate::opcode::AdminOpcode;
use crate::sqe::Sqe;
use crate::status::Status;

open_enum! {
    /// Fabrics Command Type (FCTYPE), byte 4 of a command with the opcode Fabrics Commands.
    pub struct FabricsType(u8) {
        PROPERTY_SET = 0x00, "Property Set";
        CONNECT = 0x01, "Connect";
        PROPERTY_GET = 0x04, "Property Get";
        AUTHENTICATION_SEND = 0x05, "Authentication Send";
        AUTHENTICATION_RECEIVE = 0x06, "Authentication Receive";
        DISCONNECT = 0x08, "Disconnect";
    }
}

impl Sqe {
    /// The type of a Fabrics command; it stands where other commands have the lowest byte of NSID.
    pub const fn fabrics_type(&self) -> FabricsType {
        FabricsType(self.nsid.to_le_bytes()[0])
    }

    /// A Fabrics command of this type, with nothing else set.
    pub fn fabrics(fabrics_type: FabricsType) -> Self {
        Self {
            opcode: AdminOpcode::FABRICS.0,
            nsid: u32::from(fabrics_type.0),
            ..Self::default()
        }
    }
}

/// Connect, Dword 10 (Base 2.1, 6.3).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ConnectCdw10 {
    /// Record Format: of the command and its data; 0.
    pub recfmt: u16,
    /// Queue ID: 0 is the Admin Queue.
    pub qid: u16,
}

/// Connect, Dword 11. Dword 12 is KATO, in milliseconds.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ConnectCdw11 {
    /// Submission Queue Size.
    pub sqsize_z: u16,
    /// Connect Attributes.
    #[bits(8)]
    pub cattr: ConnectAttributes,
    __: u8,
}

/// Connect Attributes (CATTR).
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct ConnectAttributes {
    /// Priority Class, for weighted round robin.
    #[bits(2)]
    pub priority_class: u8,
    /// Disable SQ Flow Control: completions have no SQ head.
    pub disable_sq_flow_control: bool,
    /// Individual I/O Queue Deletion Support: the host may send Disconnect.
    pub individual_queue_deletion: bool,
    #[bits(4)]
    __: u8,
}

/// Bytes of an NVMe Qualified Name with its zero (Base 2.1, 4.7).
pub const NQN_SIZE: usize = 256;

/// The data of Connect, 1024 bytes (Base 2.1, 6.3).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ConnectData {
    /// Host Identifier.
    pub hostid: [u8; 16],
    /// Controller ID: FFFFh asks for any, on the Admin Queue (the dynamic controller model).
    pub cntlid: u16,
    /// Reserved.
    pub reserved_18: [u8; 238],
    /// NVM Subsystem NVMe Qualified Name: UTF-8, null terminated.
    pub subnqn: [u8; NQN_SIZE],
    /// Host NVMe Qualified Name: UTF-8, null terminated.
    pub hostnqn: [u8; NQN_SIZE],
    /// Reserved.
    pub reserved_768: [u8; 256],
}

/// Bytes of the data of Connect.
pub const CONNECT_DATA_SIZE: usize = 1024;
/// CNTLID of a Connect that takes any controller of a dynamic subsystem.
pub const CNTLID_DYNAMIC: u16 = 0xffff;
/// CNTLID of a Connect that takes any controller of a static subsystem.
pub const CNTLID_STATIC_ANY: u16 = 0xfffe;
/// The last Controller ID that a controller may have (Base 2.1, 6.3; above it are reserved).
pub const CNTLID_MAX: u16 = 0xffef;

const _: () = assert!(size_of::<ConnectData>() == CONNECT_DATA_SIZE);
const _: () = assert!(offset_of!(ConnectData, subnqn) == 256);
const _: () = assert!(offset_of!(ConnectData, hostnqn) == 512);

/// Connect, completion Dword 0 of a command that succeeded.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ConnectDw0 {
    /// Controller ID.
    pub cntlid: u16,
    #[bits(1)]
    __: u8,
    /// Authentication Transaction Required.
    pub atr: bool,
    /// Authentication and Secure Channel Required: of secure concatenation.
    pub ascr: bool,
    #[bits(13)]
    __: u16,
}

/// Connect, completion Dword 0 where the status is Connect Invalid Parameters.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InvalidParameterDw0 {
    /// Invalid Parameter Offset: the first byte of the field, in bytes.
    pub ipo: u16,
    /// Invalid Attributes: the offset is one in the data (1) or in the command (0).
    pub iattr: bool,
    #[bits(15)]
    __: u16,
}

/// Offset in bytes of a Connect command's RECFMT.
pub const CONNECT_RECFMT_OFFSET: u16 = 40;
/// Offset in bytes of a Connect command's QID.
pub const CONNECT_QID_OFFSET: u16 = 42;
/// Offset in bytes of a Connect command's SQSIZE.
pub const CONNECT_SQSIZE_OFFSET: u16 = 44;
/// Offset in bytes of a Connect command's CATTR.
pub const CONNECT_CATTR_OFFSET: u16 = 46;
/// Offset in bytes of a Connect command's KATO.
pub const CONNECT_KATO_OFFSET: u16 = 48;

/// Property Get and Property Set, Dword 10 (Base 2.1, 6.5 and 6.6). Dword 11 is the offset of the
/// property; Dwords 12 and 13 of Property Set, and Dwords 0 and 1 of the completion of Property
/// Get, are its value.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct PropertyCdw10 {
    /// Size of the property.
    #[bits(3)]
    pub size: PropertySize,
    #[bits(29)]
    __: u32,
}

open_enum! {
    /// Size of a property (ATTRIB, bits 2:0).
    pub struct PropertySize(u8) {
        BYTES_4 = 0, "4 bytes";
        BYTES_8 = 1, "8 bytes";
    }
}

impl Cqe {
    /// The value of a property: Dwords 0 and 1 of the completion of Property Get.
    pub const fn property(&self) -> u64 {
        self.dw0 as u64 | (self.dw1 as u64) << 32
    }

    /// This completion with the value of a property.
    #[must_use]
    pub const fn with_property(mut self, value: u64) -> Self {
        let [dw0, dw1] = words(value);
        (self.dw0, self.dw1) = (dw0, dw1);
        self
    }
}

impl Sqe {
    /// The value that a Property Set carries: Dwords 12 and 13.
    pub const fn property(&self) -> u64 {
        self.cdw12 as u64 | (self.cdw13 as u64) << 32
    }

    /// This command with the value that a Property Set carries.
    #[must_use]
    pub const fn with_property(mut self, value: u64) -> Self {
        let [cdw12, cdw13] = words(value);
        (self.cdw12, self.cdw13) = (cdw12, cdw13);
        self
    }
}

/// The lower and the upper 32 bits.
#[allow(
    clippy::cast_possible_truncation,
    reason = "the halves are what is wanted"
)]
const fn words(value: u64) -> [u32; 2] {
    [value as u32, (value >> 32) as u32]
}

/// Authentication Send and Authentication Receive, Dword 10 (Base 2.1, 6.1 and 6.2). Dword 11 is
/// the length of the data, in bytes.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AuthenticationCdw10 {
    __: u8,
    /// SP Specific 0: 01h.
    pub spsp0: u8,
    /// SP Specific 1: 01h.
    pub spsp1: u8,
    /// Security Protocol: E9h is the one that NVMe assigns.
    pub secp: u8,
}

/// Security Protocol of NVMe's authentication messages.
pub const SECP_NVME: u8 = 0xe9;

/// Statuses that mean this for a Fabrics command only: other commands have other statuses with the
/// same numbers (Base 2.1, figure 104).
impl Status {
    /// Connect Incompatible Format: RECFMT is not supported.
    pub const CONNECT_INCOMPATIBLE_FORMAT: Self = Self(0x180);
    /// Connect Controller Busy: the controller has a host.
    pub const CONNECT_CONTROLLER_BUSY: Self = Self(0x181);
    /// Connect Invalid Parameters: Dword 0 says which, [`InvalidParameterDw0`].
    pub const CONNECT_INVALID_PARAMETERS: Self = Self(0x182);
    /// Connect Restart Discovery: the subsystem is not here.
    pub const CONNECT_RESTART_DISCOVERY: Self = Self(0x183);
    /// Connect Invalid Host: the host may not use the subsystem, or this queue.
    pub const CONNECT_INVALID_HOST: Self = Self(0x184);
    /// Invalid Queue Type: of Disconnect, for the Admin Queue.
    pub const INVALID_QUEUE_TYPE: Self = Self(0x185);
    /// Discover Restart: the log has changed while it was read.
    pub const DISCOVER_RESTART: Self = Self(0x190);
    /// Authentication Required: the queue takes nothing else before.
    pub const AUTHENTICATION_REQUIRED: Self = Self(0x191);
}

/// Part of Identify Controller for hosts over fabrics: its bytes 1792 to 2047 (Base 2.1, figure
/// 312).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct IdentifyFabrics {
    /// I/O Queue Command Capsule Supported Size, in units of 16 bytes: command and data.
    pub ioccsz: u32,
    /// I/O Queue Response Capsule Supported Size, in units of 16 bytes.
    pub iorcsz: u32,
    /// In Capsule Data Offset, in units of 16 bytes from the end of the command.
    pub icdoff: u16,
    /// Fabrics Controller Attributes.
    pub fcatt: FabricsControllerAttributes,
    /// Maximum SGL Data Block Descriptors; 0 is no limit.
    pub msdbd: u8,
    /// Optional Fabrics Commands Support.
    pub ofcs: OptionalFabricsCommands,
    /// Discovery Controller Type.
    pub dctype: DiscoveryControllerType,
    /// Reserved.
    pub reserved: [u8; 241],
}

const _: () = assert!(size_of::<IdentifyFabrics>() == 256);
const _: () = assert!(offset_of!(IdentifyFabrics, ofcs) == 12);
const _: () = assert!(offset_of!(IdentifyFabrics, dctype) == 14);

/// Fabrics Controller Attributes.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FabricsControllerAttributes {
    /// Dynamic Controller Model: 0. Set, the model is static.
    pub static_model: bool,
    #[bits(7)]
    __: u8,
}

/// Optional Fabrics Commands Support.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct OptionalFabricsCommands {
    /// Disconnect Command Support.
    pub dcs: bool,
    #[bits(15)]
    __: u16,
}

open_enum! {
    /// Discovery Controller Type.
    pub struct DiscoveryControllerType(u8) {
        NOT_REPORTED = 0, "Discovery controller type not reported";
        DIRECT = 1, "Direct Discovery controller";
        CENTRAL = 2, "Central Discovery controller";
    }
}

/// The text of an NVMe Qualified Name, or of another field of bytes that a zero ends: `None` where
/// no zero ends it, or it is no UTF-8.
pub fn text_of(field: &[u8]) -> Option<&str> {
    let end = field.iter().position(|&byte| byte == 0)?;
    core::str::from_utf8(field.get(..end)?).ok()
}

#[cfg(test)]
mod tests;
