//! Log pages: identifiers and the layouts of those that a controller here returns (Base 2.1,
//! 5.1.12). Reservation Notification is in [`crate::reservation`], Sanitize Status in
//! [`crate::sanitize`].

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::little_endian::{U16, U128};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::cqe::StatusField;

open_enum! {
    /// Log Page Identifier.
    pub struct LogPageId(u8) {
        SUPPORTED_LOG_PAGES = 0x00, "Supported Log Pages";
        ERROR_INFORMATION = 0x01, "Error Information";
        SMART_HEALTH_INFORMATION = 0x02, "SMART / Health Information";
        FIRMWARE_SLOT_INFORMATION = 0x03, "Firmware Slot Information";
        CHANGED_ATTACHED_NAMESPACE_LIST = 0x04, "Changed Attached Namespace List";
        COMMANDS_SUPPORTED_AND_EFFECTS = 0x05, "Commands Supported and Effects";
        DEVICE_SELF_TEST = 0x06, "Device Self-test";
        TELEMETRY_HOST_INITIATED = 0x07, "Telemetry Host-Initiated";
        TELEMETRY_CONTROLLER_INITIATED = 0x08, "Telemetry Controller-Initiated";
        ENDURANCE_GROUP_INFORMATION = 0x09, "Endurance Group Information";
        PREDICTABLE_LATENCY_PER_NVM_SET = 0x0a, "Predictable Latency Per NVM Set";
        PREDICTABLE_LATENCY_EVENT_AGGREGATE = 0x0b, "Predictable Latency Event Aggregate";
        ASYMMETRIC_NAMESPACE_ACCESS = 0x0c, "Asymmetric Namespace Access";
        PERSISTENT_EVENT_LOG = 0x0d, "Persistent Event Log";
        LBA_STATUS_INFORMATION = 0x0e, "LBA Status Information";
        ENDURANCE_GROUP_EVENT_AGGREGATE = 0x0f, "Endurance Group Event Aggregate";
        MEDIA_UNIT_STATUS = 0x10, "Media Unit Status";
        SUPPORTED_CAPACITY_CONFIGURATION_LIST = 0x11, "Supported Capacity Configuration List";
        FEATURE_IDENTIFIERS_SUPPORTED_AND_EFFECTS = 0x12, "Feature Identifiers Supported and Effects";
        NVME_MI_COMMANDS_SUPPORTED_AND_EFFECTS = 0x13, "NVMe-MI Commands Supported and Effects";
        COMMAND_AND_FEATURE_LOCKDOWN = 0x14, "Command and Feature Lockdown";
        BOOT_PARTITION = 0x15, "Boot Partition";
        CHANGED_ALLOCATED_NAMESPACE_LIST = 0x1c, "Changed Allocated Namespace List";
        DISCOVERY = 0x70, "Discovery";
        RESERVATION_NOTIFICATION = 0x80, "Reservation Notification";
        SANITIZE_STATUS = 0x81, "Sanitize Status";
        CHANGED_ZONE_LIST = 0xbf, "Changed Zone List";
    }
}

/// Entry of Supported Log Pages for one log page (Base 2.1, 5.1.12.1.1).
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LidSupportedAndEffects {
    /// LID Supported.
    pub lsupp: bool,
    /// Index Offset Supported: the Log Page Offset may count entries.
    pub ios: bool,
    #[bits(14)]
    __: u16,
    /// LID Specific Parameter.
    pub lidsp: u16,
}

/// Supported Log Pages (LID 00h), 1024 bytes.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SupportedLogPages {
    /// By Log Page Identifier.
    pub lids: [LidSupportedAndEffects; 256],
}

/// Parameter Error Location of an error log entry.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ParameterErrorLocation {
    /// Byte in the command; FFh with bit 7h is "not specific to a command parameter".
    pub byte: u8,
    /// Bit in that byte.
    #[bits(3)]
    pub bit: u8,
    #[bits(5)]
    __: u8,
}

impl ParameterErrorLocation {
    /// The error is not specific to a parameter of a command.
    pub const NONE: Self = Self::from_bits(0xffff);
}

/// One entry of Error Information (LID 01h), 64 bytes (Base 2.1, 5.1.12.1.2).
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ErrorLogEntry {
    /// Error Count: 1 for the first error ever; 0 marks an entry that holds nothing.
    pub error_count: u64,
    /// Submission Queue ID; FFFFh where the error belongs to no command.
    pub sqid: u16,
    /// Command ID; FFFFh where the error belongs to no command.
    pub cid: u16,
    /// Status Info: the phase and status of the completion.
    pub status: StatusField,
    /// Parameter Error Location.
    pub pel: ParameterErrorLocation,
    /// LBA: the first that failed.
    pub lba: u64,
    /// Namespace.
    pub nsid: u32,
    /// Vendor Specific Information Available: 0, or a log page identifier 80h to FFh.
    pub vsia: u8,
    /// Transport Type; 0 where the error is not about the transport.
    pub trtype: u8,
    /// Command Set Indicator.
    pub csi: u8,
    /// Opcode of the command; valid with [`Self::lpver`] 1.
    pub opc: u8,
    /// Command Specific Information.
    pub command_specific: u64,
    /// Transport Type Specific Information.
    pub ttsi: u16,
    /// Reserved.
    pub reserved_42: [u8; 21],
    /// Log Page Version.
    pub lpver: u8,
}

/// Critical Warning: the first byte of SMART / Health Information.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CriticalWarning {
    /// Available Spare Capacity Below Threshold.
    pub ascbt: bool,
    /// Temperature Threshold Condition.
    pub ttc: bool,
    /// NVM Subsystem Degraded Reliability.
    pub ndr: bool,
    /// All Media Read-Only.
    pub amro: bool,
    /// Volatile Memory Backup Failed.
    pub vmbf: bool,
    /// Persistent Memory Region Read-Only.
    pub pmrro: bool,
    #[bits(2)]
    __: u8,
}

/// SMART / Health Information (LID 02h), 512 bytes (Base 2.1, 5.1.12.1.3).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SmartLog {
    /// Critical Warning.
    pub critical_warning: CriticalWarning,
    /// Composite Temperature, in kelvins.
    pub composite_temperature: U16,
    /// Available Spare, in percent.
    pub available_spare: u8,
    /// Available Spare Threshold, in percent.
    pub available_spare_threshold: u8,
    /// Percentage Used; 255 stands for 255 and more.
    pub percentage_used: u8,
    /// Endurance Group Critical Warning Summary.
    pub endurance_group_critical_warning: u8,
    /// Reserved.
    pub reserved_7: [u8; 25],
    /// Data Units Read, in thousands of 512 bytes, rounded up.
    pub data_units_read: U128,
    /// Data Units Written, in thousands of 512 bytes, rounded up.
    pub data_units_written: U128,
    /// Host Read Commands.
    pub host_read_commands: U128,
    /// Host Write Commands.
    pub host_write_commands: U128,
    /// Controller Busy Time, in minutes.
    pub controller_busy_time: U128,
    /// Power Cycles.
    pub power_cycles: U128,
    /// Power On Hours.
    pub power_on_hours: U128,
    /// Unsafe Shutdowns.
    pub unsafe_shutdowns: U128,
    /// Media and Data Integrity Errors.
    pub media_errors: U128,
    /// Number of Error Information Log Entries over the life of the controller.
    pub error_log_entries: U128,
    /// Warning Composite Temperature Time, in minutes.
    pub warning_temperature_time: u32,
    /// Critical Composite Temperature Time, in minutes.
    pub critical_temperature_time: u32,
    /// Temperature Sensor 1 to 8, in kelvins; 0 is no sensor.
    pub temperature_sensors: [u16; 8],
    /// Thermal Management Temperature 1 Transition Count.
    pub tmt1_transition_count: u32,
    /// Thermal Management Temperature 2 Transition Count.
    pub tmt2_transition_count: u32,
    /// Total Time For Thermal Management Temperature 1, in seconds.
    pub tmt1_total_time: u32,
    /// Total Time For Thermal Management Temperature 2, in seconds.
    pub tmt2_total_time: u32,
    /// Reserved.
    pub reserved_232: [u8; 280],
}

/// Active Firmware Info.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ActiveFirmwareInfo {
    /// Current Active Firmware Slot, 1 to 7.
    #[bits(3)]
    pub active_slot: u8,
    #[bits(1)]
    __: u8,
    /// Next Reset Firmware Slot; 0 is not told.
    #[bits(3)]
    pub next_slot: u8,
    #[bits(1)]
    __: u8,
}

/// Firmware Slot Information (LID 03h), 512 bytes (Base 2.1, 5.1.12.1.4).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FirmwareSlotLog {
    /// Active Firmware Info.
    pub afi: ActiveFirmwareInfo,
    /// Reserved.
    pub reserved_1: [u8; 7],
    /// Firmware Revision of slot 1 to 7, ASCII; zeros where the slot is empty or not supported.
    pub frs: [[u8; 8]; 7],
    /// Reserved.
    pub reserved_64: [u8; 448],
}

/// Changed Attached Namespace List (LID 04h) and Changed Allocated Namespace List (LID 1Ch),
/// 4096 bytes (Base 2.1, 5.1.12.1.5).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ChangedNamespaceList {
    /// Namespace identifiers, rising, then zeros. FFFFFFFFh alone stands for more than fit.
    pub nsids: [u32; 1024],
}

open_enum! {
    /// Command Submission and Execution: what else may run beside a command.
    pub struct SubmissionAndExecution(u8) {
        UNRESTRICTED = 0b000, "No restriction";
        ONE_PER_NAMESPACE = 0b001, "One command to the namespace at a time";
        ONE_PER_CONTROLLER = 0b010, "One command to the controller at a time";
    }
}

/// Scope of a command, or of a feature: 0 is not reported.
#[bitfield(u16)]
#[derive(PartialEq, Eq)]
pub struct Scope {
    /// Namespace Scope.
    pub nss: bool,
    /// Controller Scope.
    pub ctrls: bool,
    /// NVM Set Scope.
    pub nsets: bool,
    /// Endurance Group Scope.
    pub egs: bool,
    /// Domain Scope.
    pub doms: bool,
    /// NVM Subsystem Scope.
    pub nvmss: bool,
    /// Controller Data Queue, of features.
    pub cdqs: bool,
    #[bits(9)]
    __: u16,
}

/// Entry of Commands Supported and Effects for one opcode.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CommandEffects {
    /// Command Supported.
    pub csupp: bool,
    /// Logical Block Content Change.
    pub lbcc: bool,
    /// Namespace Capability Change.
    pub ncc: bool,
    /// Namespace Inventory Change.
    pub nic: bool,
    /// Controller Capability Change.
    pub ccc: bool,
    #[bits(9)]
    __: u16,
    /// Command Submission and Execution Relaxations.
    #[bits(2)]
    pub cser: u8,
    /// Command Submission and Execution.
    #[bits(3)]
    pub cse: SubmissionAndExecution,
    /// UUID Selection Supported.
    pub uss: bool,
    /// Command Scope.
    #[bits(12)]
    pub csp: Scope,
}

/// Commands Supported and Effects (LID 05h), 4096 bytes (Base 2.1, 5.1.12.1.6).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct CommandsSupportedAndEffectsLog {
    /// Admin commands, by opcode.
    pub acs: [CommandEffects; 256],
    /// I/O commands, by opcode.
    pub iocs: [CommandEffects; 256],
    /// Reserved.
    pub reserved_2048: [u8; 2048],
}

/// Entry of Feature Identifiers Supported and Effects for one feature.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FeatureEffects {
    /// FID Supported.
    pub fsupp: bool,
    /// User Data Content Change.
    pub udcc: bool,
    /// Namespace Capability Change.
    pub ncc: bool,
    /// Namespace Inventory Change.
    pub nic: bool,
    /// Controller Capability Change.
    pub ccc: bool,
    #[bits(14)]
    __: u16,
    /// UUID Selection Supported.
    pub uss: bool,
    /// FID Scope.
    #[bits(12)]
    pub fsp: Scope,
}

/// Feature Identifiers Supported and Effects (LID 12h), 1024 bytes (Base 2.1, 5.1.12.1.18).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FeatureIdsSupportedAndEffectsLog {
    /// By Feature Identifier.
    pub fids: [FeatureEffects; 256],
}

const _: () = assert!(size_of::<SupportedLogPages>() == 1024);
const _: () = assert!(size_of::<FeatureIdsSupportedAndEffectsLog>() == 1024);
const _: () = assert!(size_of::<ErrorLogEntry>() == 64);
const _: () = assert!(size_of::<SmartLog>() == 512);
const _: () = assert!(size_of::<FirmwareSlotLog>() == 512);
const _: () = assert!(size_of::<ChangedNamespaceList>() == 4096);
const _: () = assert!(size_of::<CommandsSupportedAndEffectsLog>() == 4096);
const _: () = assert!(offset_of!(SmartLog, data_units_read) == 32);
const _: () = assert!(offset_of!(FirmwareSlotLog, frs) == 8);

#[cfg(test)]
mod tests;
