//! Reservations: the dwords and data of the four commands, the notification log page, and the two
//! features (Base 2.1, 7.5 to 7.8, 5.1.12.1.32, 5.1.25.1.29 and 5.1.25.1.30).
//!
//! The capabilities of a namespace are in [`crate::identify::namespace::Rescap`].

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::little_endian::U16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

open_enum! {
    /// Reservation Type.
    pub struct ReservationType(u8) {
        NONE = 0x0, "No reservation";
        WRITE_EXCLUSIVE = 0x1, "Write Exclusive Reservation";
        EXCLUSIVE_ACCESS = 0x2, "Exclusive Access Reservation";
        WRITE_EXCLUSIVE_REGISTRANTS_ONLY = 0x3, "Write Exclusive - Registrants Only Reservation";
        EXCLUSIVE_ACCESS_REGISTRANTS_ONLY = 0x4, "Exclusive Access - Registrants Only Reservation";
        WRITE_EXCLUSIVE_ALL_REGISTRANTS = 0x5, "Write Exclusive - All Registrants Reservation";
        EXCLUSIVE_ACCESS_ALL_REGISTRANTS = 0x6, "Exclusive Access - All Registrants Reservation";
    }
}

open_enum! {
    /// Reservation Register Action.
    pub struct RegisterAction(u8) {
        REGISTER = 0b000, "Register Reservation Key";
        UNREGISTER = 0b001, "Unregister Reservation Key";
        REPLACE = 0b010, "Replace Reservation Key";
    }
}

open_enum! {
    /// Change Persist Through Power Loss State.
    pub struct ChangePtpl(u8) {
        NO_CHANGE = 0b00, "No change to PTPL state";
        CLEAR = 0b10, "Reservations are released and registrants cleared on a power on";
        SET = 0b11, "Reservations and registrants persist across a power loss";
    }
}

/// Reservation Register, Dword 10 (Base 2.1, 7.6).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReservationRegisterCdw10 {
    /// Reservation Register Action.
    #[bits(3)]
    pub rrega: RegisterAction,
    /// Ignore Existing Key.
    pub iekey: bool,
    /// Dispersed Namespace Reservation Support, of the host.
    pub disnsrs: bool,
    #[bits(25)]
    __: u32,
    /// Change Persist Through Power Loss State.
    #[bits(2)]
    pub cptpl: ChangePtpl,
}

/// Data of Reservation Register, 16 bytes (Base 2.1, 7.6).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ReservationRegisterData {
    /// Current Reservation Key.
    pub crkey: u64,
    /// New Reservation Key.
    pub nrkey: u64,
}

open_enum! {
    /// Reservation Acquire Action.
    pub struct AcquireAction(u8) {
        ACQUIRE = 0b000, "Acquire";
        PREEMPT = 0b001, "Preempt";
        PREEMPT_AND_ABORT = 0b010, "Preempt and Abort";
    }
}

/// Reservation Acquire, Dword 10 (Base 2.1, 7.5).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReservationAcquireCdw10 {
    /// Reservation Acquire Action.
    #[bits(3)]
    pub racqa: AcquireAction,
    /// Ignore Existing Key: not allowed here since revision 1.3.
    pub iekey: bool,
    /// Dispersed Namespace Reservation Support, of the host.
    pub disnsrs: bool,
    #[bits(3)]
    __: u8,
    /// Reservation Type.
    #[bits(8)]
    pub rtype: ReservationType,
    __: u16,
}

/// Data of Reservation Acquire, 16 bytes (Base 2.1, 7.5).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ReservationAcquireData {
    /// Current Reservation Key.
    pub crkey: u64,
    /// Preempt Reservation Key.
    pub prkey: u64,
}

open_enum! {
    /// Reservation Release Action.
    pub struct ReleaseAction(u8) {
        RELEASE = 0b000, "Release";
        CLEAR = 0b001, "Clear";
    }
}

/// Reservation Release, Dword 10 (Base 2.1, 7.7).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReservationReleaseCdw10 {
    /// Reservation Release Action.
    #[bits(3)]
    pub rrela: ReleaseAction,
    /// Ignore Existing Key: not allowed here since revision 1.3.
    pub iekey: bool,
    /// Dispersed Namespace Reservation Support, of the host.
    pub disnsrs: bool,
    #[bits(3)]
    __: u8,
    /// Reservation Type.
    #[bits(8)]
    pub rtype: ReservationType,
    __: u16,
}

/// Data of Reservation Release, 8 bytes (Base 2.1, 7.7).
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ReservationReleaseData {
    /// Current Reservation Key.
    pub crkey: u64,
}

/// Reservation Report, Dword 10 (Base 2.1, 7.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReservationReportCdw10 {
    /// Number of Dwords to transfer.
    pub numd_z: u32,
}

/// Reservation Report, Dword 11 (Base 2.1, 7.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReservationReportCdw11 {
    /// Extended Data Structure: 128-bit host identifiers.
    pub eds: bool,
    /// Dispersed Namespace Reservation Support, of the host.
    pub disnsrs: bool,
    #[bits(30)]
    __: u32,
}

/// Reservation Status, the head of the data of Reservation Report, 24 bytes. Registrants follow it:
/// [`RegisteredController`] at once or, where EDS is set, [`RegisteredControllerExtended`] from
/// byte [`EXTENDED_HEADER_SIZE`] on.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct ReservationStatusHeader {
    /// Generation: counts what changed the registrants or the reservation.
    pub generation: u32,
    /// Reservation Type; 0 is no reservation.
    pub rtype: ReservationType,
    /// Number of Registrants.
    pub regstrnt: U16,
    /// Reserved.
    pub reserved_7: [u8; 2],
    /// Persist Through Power Loss State.
    pub ptpls: u8,
    /// Reserved.
    pub reserved_10: [u8; 14],
}

/// Bytes before the first registrant of the extended structure: a header and reserved bytes.
pub const EXTENDED_HEADER_SIZE: usize = 64;

/// CNTLID of a registrant whose host has no controller in this NVM subsystem.
pub const CNTLID_NOT_ASSOCIATED: u16 = 0xffff;

/// Reservation Status of a registrant, RCSTS.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct RegistrantStatus {
    /// Association with Host Holding Reservation.
    pub ahhr: bool,
    #[bits(7)]
    __: u8,
}

/// Registrant of the basic structure, 24 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct RegisteredController {
    /// Controller ID.
    pub cntlid: u16,
    /// Reservation Status.
    pub rcsts: RegistrantStatus,
    /// Reserved.
    pub reserved_3: [u8; 5],
    /// Host Identifier, 64 bits.
    pub hostid: [u8; 8],
    /// Reservation Key.
    pub rkey: u64,
}

/// Registrant of the extended structure, 64 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct RegisteredControllerExtended {
    /// Controller ID.
    pub cntlid: u16,
    /// Reservation Status.
    pub rcsts: RegistrantStatus,
    /// Reserved.
    pub reserved_3: [u8; 5],
    /// Reservation Key.
    pub rkey: u64,
    /// Host Identifier, 128 bits.
    pub hostid: [u8; 16],
    /// Reserved.
    pub reserved_32: [u8; 32],
}

open_enum! {
    /// Reservation Notification Log Page Type.
    pub struct ReservationNotificationType(u8) {
        EMPTY = 0x00, "Empty Log Page";
        REGISTRATION_PREEMPTED = 0x01, "Registration Preempted";
        RESERVATION_RELEASED = 0x02, "Reservation Released";
        RESERVATION_PREEMPTED = 0x03, "Reservation Preempted";
    }
}

/// Reservation Notification (LID 80h), 64 bytes (Base 2.1, 5.1.12.1.32).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ReservationNotificationLog {
    /// Log Page Count: of this notification since the last reset; 0 in an empty page, and it wraps
    /// to 1.
    pub lpc: u64,
    /// Reservation Notification Log Page Type.
    pub rnlpt: ReservationNotificationType,
    /// Number of Available Log Pages after this one; 255 stands for more.
    pub nalp: u8,
    /// Reserved.
    pub reserved_10: [u8; 2],
    /// Namespace ID.
    pub nsid: u32,
    /// Reserved.
    pub reserved_16: [u8; 48],
}

/// Reservation Notification Mask (82h): a set bit masks the notification.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReservationNotificationMask {
    #[bits(1)]
    __: u8,
    /// Mask Registration Preempted Notification.
    pub regpre: bool,
    /// Mask Reservation Released Notification.
    pub resrel: bool,
    /// Mask Reservation Preempted Notification.
    pub respre: bool,
    #[bits(28)]
    __: u32,
}

/// Reservation Persistence (83h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ReservationPersistence {
    /// Persist Through Power Loss.
    pub ptpl: bool,
    #[bits(31)]
    __: u32,
}

const _: () = assert!(size_of::<ReservationRegisterData>() == 16);
const _: () = assert!(size_of::<ReservationAcquireData>() == 16);
const _: () = assert!(size_of::<ReservationReleaseData>() == 8);
const _: () = assert!(size_of::<ReservationStatusHeader>() == 24);
const _: () = assert!(size_of::<RegisteredController>() == 24);
const _: () = assert!(size_of::<RegisteredControllerExtended>() == 64);
const _: () = assert!(size_of::<ReservationNotificationLog>() == 64);
const _: () = assert!(offset_of!(ReservationStatusHeader, regstrnt) == 5);

#[cfg(test)]
mod tests;
