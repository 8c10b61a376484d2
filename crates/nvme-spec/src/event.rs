//! Asynchronous events: what the completion of an Asynchronous Event Request tells (Base 2.1,
//! 5.1.2).

use bitfield_struct::bitfield;

use crate::log::LogPageId;

open_enum! {
    /// Asynchronous Event Type.
    pub struct EventType(u8) {
        ERROR = 0b000, "Error status";
        SMART_HEALTH = 0b001, "SMART / Health status";
        NOTICE = 0b010, "Notice";
        IMMEDIATE = 0b011, "Immediate";
        IO_COMMAND_SPECIFIC = 0b110, "I/O Command specific status";
        VENDOR_SPECIFIC = 0b111, "Vendor specific";
    }
}

open_enum! {
    /// Asynchronous Event Information of the type Error status.
    pub struct ErrorInformation(u8) {
        WRITE_TO_INVALID_DOORBELL_REGISTER = 0x00, "Write to Invalid Doorbell Register";
        INVALID_DOORBELL_WRITE_VALUE = 0x01, "Invalid Doorbell Write Value";
        DIAGNOSTIC_FAILURE = 0x02, "Diagnostic Failure";
        PERSISTENT_INTERNAL_ERROR = 0x03, "Persistent Internal Error";
        TRANSIENT_INTERNAL_ERROR = 0x04, "Transient Internal Error";
        FIRMWARE_IMAGE_LOAD_ERROR = 0x05, "Firmware Image Load Error";
    }
}

open_enum! {
    /// Asynchronous Event Information of the type SMART / Health status.
    pub struct SmartHealthInformation(u8) {
        NVM_SUBSYSTEM_RELIABILITY = 0x00, "NVM subsystem Reliability";
        TEMPERATURE_THRESHOLD = 0x01, "Temperature Threshold";
        SPARE_BELOW_THRESHOLD = 0x02, "Spare Below Threshold";
    }
}

open_enum! {
    /// Asynchronous Event Information of the type Notice.
    pub struct NoticeInformation(u8) {
        ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED = 0x00, "Attached Namespace Attribute Changed";
        FIRMWARE_ACTIVATION_STARTING = 0x01, "Firmware Activation Starting";
        TELEMETRY_LOG_CHANGED = 0x02, "Telemetry Log Changed";
        ASYMMETRIC_NAMESPACE_ACCESS_CHANGE = 0x03, "Asymmetric Namespace Access Change";
        PREDICTABLE_LATENCY_EVENT_AGGREGATE_LOG_CHANGE = 0x04, "Predictable Latency Event Aggregate Log Change";
        LBA_STATUS_INFORMATION_ALERT = 0x05, "LBA Status Information Alert";
        ENDURANCE_GROUP_EVENT_AGGREGATE_LOG_CHANGE = 0x06, "Endurance Group Event Aggregate Log Page Change";
        ALLOCATED_NAMESPACE_ATTRIBUTE_CHANGED = 0x09, "Allocated Namespace Attribute Changed";
        ZONE_DESCRIPTOR_CHANGED = 0xef, "Zone Descriptor Changed";
        DISCOVERY_LOG_PAGE_CHANGE = 0xf0, "Discovery Log Page Change";
    }
}

open_enum! {
    /// Asynchronous Event Information of the type Immediate.
    pub struct ImmediateInformation(u8) {
        NORMAL_NVM_SUBSYSTEM_SHUTDOWN = 0x00, "Normal NVM Subsystem Shutdown";
        TEMPERATURE_THRESHOLD_HYSTERESIS_RECOVERY = 0x01, "Temperature Threshold Hysteresis Recovery";
    }
}

open_enum! {
    /// Asynchronous Event Information of the type I/O Command specific status.
    pub struct IoCommandSpecificInformation(u8) {
        RESERVATION_LOG_PAGE_AVAILABLE = 0x00, "Reservation Log Page Available";
        SANITIZE_OPERATION_COMPLETED = 0x01, "Sanitize Operation Completed";
        SANITIZE_COMPLETED_UNEXPECTED_DEALLOCATION = 0x02, "Sanitize Operation Completed With Unexpected Deallocation";
        SANITIZE_ENTERED_MEDIA_VERIFICATION = 0x03, "Sanitize Operation Entered Media Verification State";
    }
}

/// Completion Dword 0 of an Asynchronous Event Request.
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct EventDw0 {
    /// Asynchronous Event Type.
    #[bits(3)]
    pub aet: EventType,
    #[bits(5)]
    __: u8,
    /// Asynchronous Event Information; what it means depends on the type.
    pub aei: u8,
    /// Log Page Identifier: the log page that the host reads to clear the event.
    #[bits(8)]
    pub lid: LogPageId,
    __: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_event_dwords() {
        let notice = EventDw0::new()
            .with_aet(EventType::NOTICE)
            .with_aei(NoticeInformation::ATTACHED_NAMESPACE_ATTRIBUTE_CHANGED.0)
            .with_lid(LogPageId::CHANGED_ATTACHED_NAMESPACE_LIST);
        // The value that Linux takes for "rescan the namespaces".
        assert_eq!(u32::from(notice), 0x0004_0002);

        let doorbell = EventDw0::from(0x0001_0100);
        assert_eq!(doorbell.aet(), EventType::ERROR);
        assert_eq!(
            doorbell.aei(),
            ErrorInformation::INVALID_DOORBELL_WRITE_VALUE.0
        );
        assert_eq!(doorbell.lid(), LogPageId::ERROR_INFORMATION);
        assert_eq!(u32::from(EventDw0::new().with_aet(EventType(7))), 7);

        let sanitized = EventDw0::new()
            .with_aet(EventType::IO_COMMAND_SPECIFIC)
            .with_aei(IoCommandSpecificInformation::SANITIZE_OPERATION_COMPLETED.0)
            .with_lid(LogPageId::SANITIZE_STATUS);
        assert_eq!(u32::from(sanitized), 0x0081_0106);
        let reservation = EventDw0::new()
            .with_aet(EventType::IO_COMMAND_SPECIFIC)
            .with_aei(IoCommandSpecificInformation::RESERVATION_LOG_PAGE_AVAILABLE.0)
            .with_lid(LogPageId::RESERVATION_NOTIFICATION);
        assert_eq!(u32::from(reservation), 0x0080_0006);
        let smart = EventDw0::new()
            .with_aet(EventType::SMART_HEALTH)
            .with_aei(SmartHealthInformation::TEMPERATURE_THRESHOLD.0)
            .with_lid(LogPageId::SMART_HEALTH_INFORMATION);
        assert_eq!(u32::from(smart), 0x0002_0101);
    }
}
