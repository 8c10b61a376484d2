//! Status Code Type and Status Code (Base 2.1, 4.2.3; NVM 1.1, 3; KV 1.1, 3).
//!
//! Do Not Retry, More and Command Retry Delay are no part of a status: they stand beside it in
//! [`crate::cqe::StatusField`].

open_enum! {
    /// Status of a command: Status Code Type in bits 10:8, Status Code in bits 7:0.
    ///
    /// The default is Successful Completion.
    pub struct Status(u16) {
        // Generic command status (SCT 0).
        SUCCESSFUL_COMPLETION = 0x000, "Successful Completion";
        INVALID_COMMAND_OPCODE = 0x001, "Invalid Command Opcode";
        INVALID_FIELD_IN_COMMAND = 0x002, "Invalid Field in Command";
        COMMAND_ID_CONFLICT = 0x003, "Command ID Conflict";
        DATA_TRANSFER_ERROR = 0x004, "Data Transfer Error";
        ABORTED_POWER_LOSS = 0x005, "Commands Aborted due to Power Loss Notification";
        INTERNAL_ERROR = 0x006, "Internal Error";
        COMMAND_ABORT_REQUESTED = 0x007, "Command Abort Requested";
        ABORTED_SQ_DELETION = 0x008, "Command Aborted due to SQ Deletion";
        ABORTED_FAILED_FUSED = 0x009, "Command Aborted due to Failed Fused Command";
        ABORTED_MISSING_FUSED = 0x00a, "Command Aborted due to Missing Fused Command";
        INVALID_NAMESPACE_OR_FORMAT = 0x00b, "Invalid Namespace or Format";
        COMMAND_SEQUENCE_ERROR = 0x00c, "Command Sequence Error";
        INVALID_SGL_SEGMENT_DESCRIPTOR = 0x00d, "Invalid SGL Segment Descriptor";
        INVALID_NUMBER_OF_SGL_DESCRIPTORS = 0x00e, "Invalid Number of SGL Descriptors";
        DATA_SGL_LENGTH_INVALID = 0x00f, "Data SGL Length Invalid";
        METADATA_SGL_LENGTH_INVALID = 0x010, "Metadata SGL Length Invalid";
        SGL_DESCRIPTOR_TYPE_INVALID = 0x011, "SGL Descriptor Type Invalid";
        INVALID_USE_OF_CMB = 0x012, "Invalid Use of Controller Memory Buffer";
        PRP_OFFSET_INVALID = 0x013, "PRP Offset Invalid";
        ATOMIC_WRITE_UNIT_EXCEEDED = 0x014, "Atomic Write Unit Exceeded";
        OPERATION_DENIED = 0x015, "Operation Denied";
        SGL_OFFSET_INVALID = 0x016, "SGL Offset Invalid";
        HOST_IDENTIFIER_INCONSISTENT_FORMAT = 0x018, "Host Identifier Inconsistent Format";
        KEEP_ALIVE_TIMER_EXPIRED = 0x019, "Keep Alive Timer Expired";
        KEEP_ALIVE_TIMEOUT_INVALID = 0x01a, "Keep Alive Timeout Invalid";
        ABORTED_PREEMPT_AND_ABORT = 0x01b, "Command Aborted due to Preempt and Abort";
        SANITIZE_FAILED = 0x01c, "Sanitize Failed";
        SANITIZE_IN_PROGRESS = 0x01d, "Sanitize In Progress";
        SGL_DATA_BLOCK_GRANULARITY_INVALID = 0x01e, "SGL Data Block Granularity Invalid";
        COMMAND_NOT_SUPPORTED_FOR_QUEUE_IN_CMB = 0x01f, "Command Not Supported for Queue in CMB";
        NAMESPACE_IS_WRITE_PROTECTED = 0x020, "Namespace is Write Protected";
        COMMAND_INTERRUPTED = 0x021, "Command Interrupted";
        TRANSIENT_TRANSPORT_ERROR = 0x022, "Transient Transport Error";
        PROHIBITED_BY_LOCKDOWN = 0x023, "Command Prohibited by Command and Feature Lockdown";
        ADMIN_COMMAND_MEDIA_NOT_READY = 0x024, "Admin Command Media Not Ready";
        INVALID_KEY_TAG = 0x025, "Invalid Key Tag";
        HOST_DISPERSED_NAMESPACE_SUPPORT_NOT_ENABLED = 0x026, "Host Dispersed Namespace Support Not Enabled";
        HOST_IDENTIFIER_NOT_INITIALIZED = 0x027, "Host Identifier Not Initialized";
        INCORRECT_KEY = 0x028, "Incorrect Key";
        FDP_DISABLED = 0x029, "FDP Disabled";
        INVALID_PLACEMENT_HANDLE_LIST = 0x02a, "Invalid Placement Handle List";

        // Generic command status, NVM command set.
        LBA_OUT_OF_RANGE = 0x080, "LBA Out of Range";
        CAPACITY_EXCEEDED = 0x081, "Capacity Exceeded";
        NAMESPACE_NOT_READY = 0x082, "Namespace Not Ready";
        RESERVATION_CONFLICT = 0x083, "Reservation Conflict";
        FORMAT_IN_PROGRESS = 0x084, "Format In Progress";

        // Generic command status, Key Value command set.
        INVALID_VALUE_SIZE = 0x085, "Invalid Value Size";
        INVALID_KEY_SIZE = 0x086, "Invalid Key Size";
        KV_KEY_DOES_NOT_EXIST = 0x087, "KV Key Does Not Exist";
        UNRECOVERED_ERROR = 0x088, "Unrecovered Error";
        KEY_EXISTS = 0x089, "Key Exists";

        // Command specific status (SCT 1).
        COMPLETION_QUEUE_INVALID = 0x100, "Completion Queue Invalid";
        INVALID_QUEUE_IDENTIFIER = 0x101, "Invalid Queue Identifier";
        INVALID_QUEUE_SIZE = 0x102, "Invalid Queue Size";
        ABORT_COMMAND_LIMIT_EXCEEDED = 0x103, "Abort Command Limit Exceeded";
        ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED = 0x105, "Asynchronous Event Request Limit Exceeded";
        INVALID_FIRMWARE_SLOT = 0x106, "Invalid Firmware Slot";
        INVALID_FIRMWARE_IMAGE = 0x107, "Invalid Firmware Image";
        INVALID_INTERRUPT_VECTOR = 0x108, "Invalid Interrupt Vector";
        INVALID_LOG_PAGE = 0x109, "Invalid Log Page";
        INVALID_FORMAT = 0x10a, "Invalid Format";
        FIRMWARE_REQUIRES_CONVENTIONAL_RESET = 0x10b, "Firmware Activation Requires Conventional Reset";
        INVALID_QUEUE_DELETION = 0x10c, "Invalid Queue Deletion";
        FEATURE_IDENTIFIER_NOT_SAVEABLE = 0x10d, "Feature Identifier Not Saveable";
        FEATURE_NOT_CHANGEABLE = 0x10e, "Feature Not Changeable";
        FEATURE_NOT_NAMESPACE_SPECIFIC = 0x10f, "Feature Not Namespace Specific";
        FIRMWARE_REQUIRES_SUBSYSTEM_RESET = 0x110, "Firmware Activation Requires NVM Subsystem Reset";
        FIRMWARE_REQUIRES_CONTROLLER_RESET = 0x111, "Firmware Activation Requires Controller Level Reset";
        FIRMWARE_REQUIRES_MAXIMUM_TIME_VIOLATION = 0x112, "Firmware Activation Requires Maximum Time Violation";
        FIRMWARE_ACTIVATION_PROHIBITED = 0x113, "Firmware Activation Prohibited";
        OVERLAPPING_RANGE = 0x114, "Overlapping Range";
        NAMESPACE_INSUFFICIENT_CAPACITY = 0x115, "Namespace Insufficient Capacity";
        NAMESPACE_IDENTIFIER_UNAVAILABLE = 0x116, "Namespace Identifier Unavailable";
        NAMESPACE_ALREADY_ATTACHED = 0x118, "Namespace Already Attached";
        NAMESPACE_IS_PRIVATE = 0x119, "Namespace Is Private";
        NAMESPACE_NOT_ATTACHED = 0x11a, "Namespace Not Attached";
        THIN_PROVISIONING_NOT_SUPPORTED = 0x11b, "Thin Provisioning Not Supported";
        CONTROLLER_LIST_INVALID = 0x11c, "Controller List Invalid";
        DEVICE_SELF_TEST_IN_PROGRESS = 0x11d, "Device Self-test In Progress";
        BOOT_PARTITION_WRITE_PROHIBITED = 0x11e, "Boot Partition Write Prohibited";
        INVALID_CONTROLLER_IDENTIFIER = 0x11f, "Invalid Controller Identifier";
        INVALID_SECONDARY_CONTROLLER_STATE = 0x120, "Invalid Secondary Controller State";
        INVALID_NUMBER_OF_CONTROLLER_RESOURCES = 0x121, "Invalid Number of Controller Resources";
        INVALID_RESOURCE_IDENTIFIER = 0x122, "Invalid Resource Identifier";
        SANITIZE_PROHIBITED_WHILE_PMR_ENABLED = 0x123, "Sanitize Prohibited While Persistent Memory Region is Enabled";
        ANA_GROUP_IDENTIFIER_INVALID = 0x124, "ANA Group Identifier Invalid";
        ANA_ATTACH_FAILED = 0x125, "ANA Attach Failed";
        INSUFFICIENT_CAPACITY = 0x126, "Insufficient Capacity";
        NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED = 0x127, "Namespace Attachment Limit Exceeded";
        PROHIBITION_NOT_SUPPORTED = 0x128, "Prohibition of Command Execution Not Supported";
        IO_COMMAND_SET_NOT_SUPPORTED = 0x129, "I/O Command Set Not Supported";
        IO_COMMAND_SET_NOT_ENABLED = 0x12a, "I/O Command Set Not Enabled";
        IO_COMMAND_SET_COMBINATION_REJECTED = 0x12b, "I/O Command Set Combination Rejected";
        INVALID_IO_COMMAND_SET = 0x12c, "Invalid I/O Command Set";
        IDENTIFIER_UNAVAILABLE = 0x12d, "Identifier Unavailable";
        NAMESPACE_IS_DISPERSED = 0x12e, "Namespace Is Dispersed";
        INVALID_CONTROLLER_DATA_QUEUE = 0x137, "Invalid Controller Data Queue";
        NOT_ENOUGH_RESOURCES = 0x138, "Not Enough Resources";
        CONTROLLER_SUSPENDED = 0x139, "Controller Suspended";
        CONTROLLER_NOT_SUSPENDED = 0x13a, "Controller Not Suspended";
        CONTROLLER_DATA_QUEUE_FULL = 0x13b, "Controller Data Queue Full";

        // Command specific status, NVM command set.
        CONFLICTING_ATTRIBUTES = 0x180, "Conflicting Attributes";
        INVALID_PROTECTION_INFORMATION = 0x181, "Invalid Protection Information";
        ATTEMPTED_WRITE_TO_READ_ONLY_RANGE = 0x182, "Attempted Write to Read Only Range";
        COMMAND_SIZE_LIMIT_EXCEEDED = 0x183, "Command Size Limit Exceeded";
        INVALID_COMMAND_ID = 0x184, "Invalid Command ID";
        INCOMPATIBLE_NAMESPACE_OR_FORMAT = 0x185, "Incompatible Namespace or Format";
        FAST_COPY_NOT_POSSIBLE = 0x186, "Fast Copy Not Possible";
        OVERLAPPING_IO_RANGE = 0x187, "Overlapping I/O Range";
        NAMESPACE_NOT_REACHABLE = 0x188, "Namespace Not Reachable";
        INSUFFICIENT_RESOURCES = 0x189, "Insufficient Resources";

        // Command specific status, Zoned Namespace command set (ZNS 1.1, 3.1.1).
        INVALID_ZONE_OPERATION_REQUEST = 0x1b6, "Invalid Zone Operation Request";
        ZRWA_RESOURCES_UNAVAILABLE = 0x1b7, "ZRWA Resources Unavailable";
        ZONE_BOUNDARY_ERROR = 0x1b8, "Zone Boundary Error";
        ZONE_IS_FULL = 0x1b9, "Zone Is Full";
        ZONE_IS_READ_ONLY = 0x1ba, "Zone Is Read Only";
        ZONE_IS_OFFLINE = 0x1bb, "Zone Is Offline";
        ZONE_INVALID_WRITE = 0x1bc, "Zone Invalid Write";
        TOO_MANY_ACTIVE_ZONES = 0x1bd, "Too Many Active Zones";
        TOO_MANY_OPEN_ZONES = 0x1be, "Too Many Open Zones";
        INVALID_ZONE_STATE_TRANSITION = 0x1bf, "Invalid Zone State Transition";

        // Media and data integrity errors (SCT 2).
        WRITE_FAULT = 0x280, "Write Fault";
        UNRECOVERED_READ_ERROR = 0x281, "Unrecovered Read Error";
        END_TO_END_GUARD_CHECK_ERROR = 0x282, "End-to-end Guard Check Error";
        END_TO_END_APPLICATION_TAG_CHECK_ERROR = 0x283, "End-to-end Application Tag Check Error";
        END_TO_END_REFERENCE_TAG_CHECK_ERROR = 0x284, "End-to-end Reference Tag Check Error";
        COMPARE_FAILURE = 0x285, "Compare Failure";
        ACCESS_DENIED = 0x286, "Access Denied";
        DEALLOCATED_OR_UNWRITTEN_LOGICAL_BLOCK = 0x287, "Deallocated or Unwritten Logical Block";
        END_TO_END_STORAGE_TAG_CHECK_ERROR = 0x288, "End-to-end Storage Tag Check Error";

        // Path related status (SCT 3).
        INTERNAL_PATH_ERROR = 0x300, "Internal Path Error";
        ASYMMETRIC_ACCESS_PERSISTENT_LOSS = 0x301, "Asymmetric Access Persistent Loss";
        ASYMMETRIC_ACCESS_INACCESSIBLE = 0x302, "Asymmetric Access Inaccessible";
        ASYMMETRIC_ACCESS_TRANSITION = 0x303, "Asymmetric Access Transition";
        CONTROLLER_PATHING_ERROR = 0x360, "Controller Pathing Error";
        HOST_PATHING_ERROR = 0x370, "Host Pathing Error";
        COMMAND_ABORTED_BY_HOST = 0x371, "Command Aborted By Host";
    }
}

open_enum! {
    /// Status Code Type.
    pub struct StatusCodeType(u8) {
        GENERIC = 0, "Generic Command Status";
        COMMAND_SPECIFIC = 1, "Command Specific Status";
        MEDIA_AND_DATA_INTEGRITY = 2, "Media and Data Integrity Errors";
        PATH_RELATED = 3, "Path Related Status";
        VENDOR_SPECIFIC = 7, "Vendor Specific";
    }
}

impl Status {
    /// The status with this Status Code Type (its low three bits count) and Status Code.
    pub const fn from_parts(sct: u8, sc: u8) -> Self {
        Self(u16::from_le_bytes([sc, sct & 0b111]))
    }

    /// Status Code Type, 0 to 7.
    pub const fn sct(self) -> u8 {
        self.0.to_le_bytes()[1] & 0b111
    }

    /// Status Code.
    pub const fn sc(self) -> u8 {
        self.0.to_le_bytes()[0]
    }

    /// Whether the host may complete the command by another path (Base 2.1, figure 102).
    pub const fn is_path_related(self) -> bool {
        self.sct() == StatusCodeType::PATH_RELATED.0
    }

    /// Whether the command completed successfully.
    pub const fn is_success(self) -> bool {
        self.0 == Self::SUCCESSFUL_COMPLETION.0
    }
}

impl core::fmt::Display for Status {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "{} (sct {:x}h, sc {:02x}h)",
            self.name(),
            self.sct(),
            self.sc()
        )
    }
}

#[cfg(test)]
mod tests {
    extern crate std;
    use std::string::ToString;

    use super::*;

    #[test]
    fn parts_split_and_join() {
        assert_eq!(Status::INVALID_QUEUE_DELETION.sct(), 1);
        assert_eq!(Status::INVALID_QUEUE_DELETION.sc(), 0x0c);
        assert_eq!(Status::from_parts(2, 0x81), Status::UNRECOVERED_READ_ERROR);
        assert!(Status::from_parts(0, 0).is_success());
        assert!(!Status::from_parts(1, 0).is_success());
        assert_eq!(Status::from_parts(0xff, 0xff).0, 0x7ff);
    }

    #[test]
    fn an_unknown_status_is_a_value() {
        let status = Status::from_parts(7, 0xc0);
        assert_eq!(status.name(), "reserved or vendor specific");
        assert_eq!(
            status.to_string(),
            "reserved or vendor specific (sct 7h, sc c0h)"
        );
        assert_eq!(
            Status::LBA_OUT_OF_RANGE.to_string(),
            "LBA Out of Range (sct 0h, sc 80h)"
        );
    }
    #[test]
    fn statuses_are_the_numbers_that_linux_decodes() {
        // include/linux/nvme.h numbers a status as SCT << 8 | SC, too.
        for (status, number) in [
            (Status::INVALID_COMMAND_OPCODE, 0x1),
            (Status::INVALID_FIELD_IN_COMMAND, 0x2),
            (Status::COMMAND_ID_CONFLICT, 0x3),
            (Status::COMMAND_ABORT_REQUESTED, 0x7),
            (Status::ABORTED_SQ_DELETION, 0x8),
            (Status::INVALID_NAMESPACE_OR_FORMAT, 0xb),
            (Status::COMMAND_SEQUENCE_ERROR, 0xc),
            (Status::PRP_OFFSET_INVALID, 0x13),
            (Status::NAMESPACE_IS_WRITE_PROTECTED, 0x20),
            (Status::LBA_OUT_OF_RANGE, 0x80),
            (Status::NAMESPACE_NOT_READY, 0x82),
            (Status::COMPLETION_QUEUE_INVALID, 0x100),
            (Status::INVALID_QUEUE_IDENTIFIER, 0x101),
            (Status::INVALID_QUEUE_SIZE, 0x102),
            (Status::ABORT_COMMAND_LIMIT_EXCEEDED, 0x103),
            (Status::ASYNCHRONOUS_EVENT_REQUEST_LIMIT_EXCEEDED, 0x105),
            (Status::INVALID_INTERRUPT_VECTOR, 0x108),
            (Status::INVALID_LOG_PAGE, 0x109),
            (Status::INVALID_QUEUE_DELETION, 0x10c),
            (Status::FEATURE_IDENTIFIER_NOT_SAVEABLE, 0x10d),
            (Status::FEATURE_NOT_CHANGEABLE, 0x10e),
            (Status::FEATURE_NOT_NAMESPACE_SPECIFIC, 0x10f),
            (Status::INVALID_CONTROLLER_IDENTIFIER, 0x11f),
            (Status::CONFLICTING_ATTRIBUTES, 0x180),
            (Status::COMMAND_SIZE_LIMIT_EXCEEDED, 0x183),
            (Status::WRITE_FAULT, 0x280),
            (Status::UNRECOVERED_READ_ERROR, 0x281),
            (Status::COMPARE_FAILURE, 0x285),
            (Status::DEALLOCATED_OR_UNWRITTEN_LOGICAL_BLOCK, 0x287),
        ] {
            assert_eq!(status.0, number, "{status}");
        }
    }

    #[test]
    fn statuses_are_the_numbers_of_base_2_1_4_2_3() {
        for (status, number) in [
            (Status::ABORTED_FAILED_FUSED, 0x009),
            (Status::ABORTED_MISSING_FUSED, 0x00a),
            (Status::INVALID_SGL_SEGMENT_DESCRIPTOR, 0x00d),
            (Status::INVALID_NUMBER_OF_SGL_DESCRIPTORS, 0x00e),
            (Status::DATA_SGL_LENGTH_INVALID, 0x00f),
            (Status::METADATA_SGL_LENGTH_INVALID, 0x010),
            (Status::SGL_DESCRIPTOR_TYPE_INVALID, 0x011),
            (Status::ATOMIC_WRITE_UNIT_EXCEEDED, 0x014),
            (Status::SGL_OFFSET_INVALID, 0x016),
            (Status::HOST_IDENTIFIER_INCONSISTENT_FORMAT, 0x018),
            (Status::KEEP_ALIVE_TIMER_EXPIRED, 0x019),
            (Status::KEEP_ALIVE_TIMEOUT_INVALID, 0x01a),
            (Status::ABORTED_PREEMPT_AND_ABORT, 0x01b),
            (Status::SANITIZE_FAILED, 0x01c),
            (Status::SANITIZE_IN_PROGRESS, 0x01d),
            (Status::SGL_DATA_BLOCK_GRANULARITY_INVALID, 0x01e),
            (Status::COMMAND_INTERRUPTED, 0x021),
            (Status::HOST_IDENTIFIER_NOT_INITIALIZED, 0x027),
            (Status::CAPACITY_EXCEEDED, 0x081),
            (Status::RESERVATION_CONFLICT, 0x083),
            (Status::FORMAT_IN_PROGRESS, 0x084),
            (Status::INVALID_VALUE_SIZE, 0x085),
            (Status::INVALID_KEY_SIZE, 0x086),
            (Status::KV_KEY_DOES_NOT_EXIST, 0x087),
            (Status::UNRECOVERED_ERROR, 0x088),
            (Status::KEY_EXISTS, 0x089),
            (Status::INVALID_FIRMWARE_SLOT, 0x106),
            (Status::INVALID_FIRMWARE_IMAGE, 0x107),
            (Status::INVALID_FORMAT, 0x10a),
            (Status::FIRMWARE_REQUIRES_CONVENTIONAL_RESET, 0x10b),
            (Status::FIRMWARE_REQUIRES_SUBSYSTEM_RESET, 0x110),
            (Status::FIRMWARE_REQUIRES_CONTROLLER_RESET, 0x111),
            (Status::FIRMWARE_REQUIRES_MAXIMUM_TIME_VIOLATION, 0x112),
            (Status::FIRMWARE_ACTIVATION_PROHIBITED, 0x113),
            (Status::OVERLAPPING_RANGE, 0x114),
            (Status::NAMESPACE_INSUFFICIENT_CAPACITY, 0x115),
            (Status::NAMESPACE_IDENTIFIER_UNAVAILABLE, 0x116),
            (Status::NAMESPACE_ALREADY_ATTACHED, 0x118),
            (Status::NAMESPACE_IS_PRIVATE, 0x119),
            (Status::NAMESPACE_NOT_ATTACHED, 0x11a),
            (Status::THIN_PROVISIONING_NOT_SUPPORTED, 0x11b),
            (Status::CONTROLLER_LIST_INVALID, 0x11c),
            (Status::ANA_GROUP_IDENTIFIER_INVALID, 0x124),
            (Status::NAMESPACE_ATTACHMENT_LIMIT_EXCEEDED, 0x127),
            (Status::IO_COMMAND_SET_NOT_SUPPORTED, 0x129),
            (Status::IO_COMMAND_SET_NOT_ENABLED, 0x12a),
            (Status::IO_COMMAND_SET_COMBINATION_REJECTED, 0x12b),
            (Status::INVALID_IO_COMMAND_SET, 0x12c),
            (Status::NAMESPACE_IS_DISPERSED, 0x12e),
            (Status::CONTROLLER_SUSPENDED, 0x139),
            (Status::INVALID_PROTECTION_INFORMATION, 0x181),
            (Status::ATTEMPTED_WRITE_TO_READ_ONLY_RANGE, 0x182),
            (Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT, 0x185),
            (Status::FAST_COPY_NOT_POSSIBLE, 0x186),
            (Status::OVERLAPPING_IO_RANGE, 0x187),
            (Status::INSUFFICIENT_RESOURCES, 0x189),
            (Status::ACCESS_DENIED, 0x286),
        ] {
            assert_eq!(status.0, number, "{status}");
        }
    }
}
