//! Features: identifiers, Dword 11 of Set Features (and completion Dword 0 of Get Features), and
//! the data structures that some of them transfer (Base 2.1, 5.1.25; NVM 1.1, 4.1.3).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

open_enum! {
    /// Feature Identifier.
    pub struct FeatureId(u8) {
        ARBITRATION = 0x01, "Arbitration";
        POWER_MANAGEMENT = 0x02, "Power Management";
        LBA_RANGE_TYPE = 0x03, "LBA Range Type";
        TEMPERATURE_THRESHOLD = 0x04, "Temperature Threshold";
        ERROR_RECOVERY = 0x05, "Error Recovery";
        VOLATILE_WRITE_CACHE = 0x06, "Volatile Write Cache";
        NUMBER_OF_QUEUES = 0x07, "Number of Queues";
        INTERRUPT_COALESCING = 0x08, "Interrupt Coalescing";
        INTERRUPT_VECTOR_CONFIGURATION = 0x09, "Interrupt Vector Configuration";
        WRITE_ATOMICITY_NORMAL = 0x0a, "Write Atomicity Normal";
        ASYNCHRONOUS_EVENT_CONFIGURATION = 0x0b, "Asynchronous Event Configuration";
        AUTONOMOUS_POWER_STATE_TRANSITION = 0x0c, "Autonomous Power State Transition";
        HOST_MEMORY_BUFFER = 0x0d, "Host Memory Buffer";
        TIMESTAMP = 0x0e, "Timestamp";
        KEEP_ALIVE_TIMER = 0x0f, "Keep Alive Timer";
        HOST_CONTROLLED_THERMAL_MANAGEMENT = 0x10, "Host Controlled Thermal Management";
        NON_OPERATIONAL_POWER_STATE_CONFIG = 0x11, "Non-Operational Power State Config";
        READ_RECOVERY_LEVEL_CONFIG = 0x12, "Read Recovery Level Config";
        PREDICTABLE_LATENCY_MODE_CONFIG = 0x13, "Predictable Latency Mode Config";
        PREDICTABLE_LATENCY_MODE_WINDOW = 0x14, "Predictable Latency Mode Window";
        LBA_STATUS_INFORMATION_REPORT_INTERVAL = 0x15, "LBA Status Information Report Interval";
        HOST_BEHAVIOR_SUPPORT = 0x16, "Host Behavior Support";
        SANITIZE_CONFIG = 0x17, "Sanitize Config";
        ENDURANCE_GROUP_EVENT_CONFIGURATION = 0x18, "Endurance Group Event Configuration";
        IO_COMMAND_SET_PROFILE = 0x19, "I/O Command Set Profile";
        SPINUP_CONTROL = 0x1a, "Spinup Control";
        SOFTWARE_PROGRESS_MARKER = 0x80, "Software Progress Marker";
        HOST_IDENTIFIER = 0x81, "Host Identifier";
        RESERVATION_NOTIFICATION_MASK = 0x82, "Reservation Notification Mask";
        RESERVATION_PERSISTENCE = 0x83, "Reservation Persistence";
        NAMESPACE_WRITE_PROTECTION_CONFIG = 0x84, "Namespace Write Protection Config";
        BOOT_PARTITION_WRITE_PROTECTION_CONFIG = 0x85, "Boot Partition Write Protection Config";
    }
}

open_enum! {
    /// Select: which value of a feature Get Features asks for.
    pub struct Select(u8) {
        CURRENT = 0b000, "Current";
        DEFAULT = 0b001, "Default";
        SAVED = 0b010, "Saved";
        SUPPORTED_CAPABILITIES = 0b011, "Supported Capabilities";
    }
}

/// Completion Dword 0 of Get Features with [`Select::SUPPORTED_CAPABILITIES`].
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SupportedCapabilities {
    /// The feature is saveable.
    pub saveable: bool,
    /// The feature is namespace specific.
    pub namespace_specific: bool,
    /// The feature is changeable.
    pub changeable: bool,
    #[bits(29)]
    __: u32,
}

/// Arbitration (01h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct Arbitration {
    /// Arbitration Burst: 2^AB commands; 111b is no limit.
    #[bits(3)]
    pub ab: u8,
    #[bits(5)]
    __: u8,
    /// Low Priority Weight.
    pub lpw_z: u8,
    /// Medium Priority Weight.
    pub mpw_z: u8,
    /// High Priority Weight.
    pub hpw_z: u8,
}

/// Power Management (02h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct PowerManagement {
    /// Power State.
    #[bits(5)]
    pub ps: u8,
    /// Workload Hint.
    #[bits(3)]
    pub wh: u8,
    #[bits(24)]
    __: u32,
}

open_enum! {
    /// Threshold Type Select of the Temperature Threshold feature.
    pub struct ThresholdType(u8) {
        OVER = 0b00, "Over Temperature Threshold";
        UNDER = 0b01, "Under Temperature Threshold";
    }
}

/// Temperature Threshold (04h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct TemperatureThreshold {
    /// Temperature Threshold, in kelvins.
    pub tmpth: u16,
    /// Threshold Temperature Select: 0 composite, 1 to 8 a sensor, 15 all sensors (Set only).
    #[bits(4)]
    pub tmpsel: u8,
    /// Threshold Type Select.
    #[bits(2)]
    pub thsel: ThresholdType,
    /// Temperature Threshold Hysteresis, in kelvins.
    #[bits(3)]
    pub tmpthh: u8,
    #[bits(7)]
    __: u8,
}

/// Error Recovery (05h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct ErrorRecovery {
    /// Time Limited Error Recovery, in units of 100 ms; 0 is no limit.
    pub tler: u16,
    /// Deallocated or Unwritten Logical Block Error Enable.
    pub dulbe: bool,
    #[bits(15)]
    __: u16,
}

/// Volatile Write Cache (06h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct VolatileWriteCache {
    /// Volatile Write Cache Enable.
    pub wce: bool,
    #[bits(31)]
    __: u32,
}

/// Number of Queues (07h): requested in Dword 11, allocated in completion Dword 0.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NumberOfQueues {
    /// Number of I/O Submission Queues.
    pub nsq_z: u16,
    /// Number of I/O Completion Queues.
    pub ncq_z: u16,
}

/// Interrupt Coalescing (08h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptCoalescing {
    /// Aggregation Threshold: how many completions.
    pub thr_z: u8,
    /// Aggregation Time, in units of 100 us; 0 is no delay.
    pub time: u8,
    __: u16,
}

/// Interrupt Vector Configuration (09h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct InterruptVectorConfiguration {
    /// Interrupt Vector.
    pub iv: u16,
    /// Coalescing Disable.
    pub cd: bool,
    #[bits(15)]
    __: u16,
}

/// Write Atomicity Normal (0Ah).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct WriteAtomicityNormal {
    /// Disable Normal: AWUN and NAWUN need not be honoured.
    pub dn: bool,
    #[bits(31)]
    __: u32,
}

/// Asynchronous Event Configuration (0Bh). The low byte masks the bits of
/// [`crate::log::CriticalWarning`] that raise an event.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct AsynchronousEventConfiguration {
    /// SMART / Health Critical Warnings: one bit per critical warning.
    pub shcw: u8,
    /// Attached Namespace Attribute Notices.
    pub nan: bool,
    /// Firmware Activation Notices.
    pub fan: bool,
    /// Telemetry Log Notices.
    pub tln: bool,
    /// Asymmetric Namespace Access Change Notices.
    pub anacn: bool,
    /// Predictable Latency Event Aggregate Log Change Notices.
    pub plealcn: bool,
    /// LBA Status Information Alert Notices.
    pub lsian: bool,
    /// Endurance Group Event Aggregate Log Change Notices.
    pub egealcn: bool,
    /// Normal NVM Subsystem Shutdown.
    pub nnsshdn: bool,
    /// Temperature Threshold Hysteresis Recovery.
    pub tthry: bool,
    /// Reachability Association.
    pub rassn: bool,
    /// Reachability Group.
    pub rgrp0: bool,
    /// Allocated Namespace Attribute Notices.
    pub ansan: bool,
    #[bits(7)]
    __: u8,
    /// Zone Descriptor Changed Notices.
    pub zdcn: bool,
    /// Of Discovery controllers.
    #[bits(4)]
    pub discovery: u8,
}

/// Timestamp (0Eh): the 8 bytes of data that Set Features takes and Get Features returns.
#[bitfield(u64)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Timestamp {
    /// Milliseconds since 1970-01-01 00:00 UTC, or since the last reset.
    #[bits(48)]
    pub tstmp: u64,
    /// Synch: the count may have stopped between its origin and now.
    pub synch: bool,
    /// Timestamp Origin.
    #[bits(3)]
    pub to: TimestampOrigin,
    #[bits(12)]
    __: u16,
}

open_enum! {
    /// Timestamp Origin.
    pub struct TimestampOrigin(u8) {
        CONTROLLER_LEVEL_RESET = 0b000, "Cleared by a Controller Level Reset";
        SET_FEATURES = 0b001, "Set by Set Features";
    }
}

/// Keep Alive Timer (0Fh).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct KeepAliveTimer {
    /// Keep Alive Timeout, in ms; 0 disables the timer.
    pub kato: u32,
}

/// Host Behavior Support (16h), 512 bytes (Base 2.1, 5.1.25.1.14).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct HostBehaviorSupport {
    /// Advanced Command Retry Enable: 1 enables, other values than 0 and 1 are reserved.
    pub acre: u8,
    /// Extended Telemetry Data Area 4 Supported.
    pub etdas: u8,
    /// LBA Format Extension Enable.
    pub lbafee: u8,
    /// Host Dispersed Namespace Support.
    pub hdisns: u8,
    /// Copy Descriptor Formats Enable, bits 2 to 4: [`crate::copy::CopyDescriptorFormats`].
    pub cdfe: u16,
    /// Reserved.
    pub reserved_6: [u8; 506],
}

/// Sanitize Config (17h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SanitizeConfig {
    /// No-Deallocate Response Mode: 0 refuses a Sanitize with NDAS where SANICAP.NDI is set, 1 does
    /// it and reports that blocks were deallocated.
    pub nodrm: bool,
    #[bits(31)]
    __: u32,
}

/// I/O Command Set Profile (19h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct IoCommandSetProfile {
    /// I/O Command Set Combination Index, in [`crate::identify::lists::IoCommandSets`].
    #[bits(9)]
    pub iocsci: u16,
    #[bits(23)]
    __: u32,
}

/// Software Progress Marker (80h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SoftwareProgressMarker {
    /// Pre-boot Software Load Count.
    pub pbslc: u8,
    #[bits(24)]
    __: u32,
}

/// Host Identifier (81h), of Set Features and Get Features.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct HostIdentifier {
    /// Enable Extended Host Identifier: the data is 16 bytes and not 8.
    pub exhid: bool,
    #[bits(31)]
    __: u32,
}

/// Bytes of the data of Host Identifier, where EXHID is 0.
pub const HOST_IDENTIFIER_SIZE: usize = 8;
/// Bytes of the data of Host Identifier, where EXHID is 1.
pub const EXTENDED_HOST_IDENTIFIER_SIZE: usize = 16;

open_enum! {
    /// Write Protection State of a namespace.
    pub struct WriteProtectionState(u8) {
        NO_WRITE_PROTECT = 0b000, "No Write Protect";
        WRITE_PROTECT = 0b001, "Write Protect";
        WRITE_PROTECT_UNTIL_POWER_CYCLE = 0b010, "Write Protect Until Power Cycle";
        PERMANENT_WRITE_PROTECT = 0b011, "Permanent Write Protect";
    }
}

/// Namespace Write Protection Config (84h).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NamespaceWriteProtectionConfig {
    /// Write Protection State.
    #[bits(3)]
    pub wps: WriteProtectionState,
    #[bits(29)]
    __: u32,
}

const _: () = assert!(size_of::<HostBehaviorSupport>() == 512);
const _: () = assert!(offset_of!(HostBehaviorSupport, cdfe) == 4);
const _: () = assert!(size_of::<Timestamp>() == 8);

#[cfg(test)]
mod tests;
