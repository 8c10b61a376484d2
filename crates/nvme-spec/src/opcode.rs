//! Opcodes of the Admin command set (Base 2.1, 5) and of the NVM command set (NVM 1.1, 3).

open_enum! {
    /// Admin command opcode.
    pub struct AdminOpcode(u8) {
        DELETE_IO_SUBMISSION_QUEUE = 0x00, "Delete I/O Submission Queue";
        CREATE_IO_SUBMISSION_QUEUE = 0x01, "Create I/O Submission Queue";
        GET_LOG_PAGE = 0x02, "Get Log Page";
        DELETE_IO_COMPLETION_QUEUE = 0x04, "Delete I/O Completion Queue";
        CREATE_IO_COMPLETION_QUEUE = 0x05, "Create I/O Completion Queue";
        IDENTIFY = 0x06, "Identify";
        ABORT = 0x08, "Abort";
        SET_FEATURES = 0x09, "Set Features";
        GET_FEATURES = 0x0a, "Get Features";
        ASYNCHRONOUS_EVENT_REQUEST = 0x0c, "Asynchronous Event Request";
        NAMESPACE_MANAGEMENT = 0x0d, "Namespace Management";
        FIRMWARE_COMMIT = 0x10, "Firmware Commit";
        FIRMWARE_IMAGE_DOWNLOAD = 0x11, "Firmware Image Download";
        DEVICE_SELF_TEST = 0x14, "Device Self-test";
        NAMESPACE_ATTACHMENT = 0x15, "Namespace Attachment";
        KEEP_ALIVE = 0x18, "Keep Alive";
        DIRECTIVE_SEND = 0x19, "Directive Send";
        DIRECTIVE_RECEIVE = 0x1a, "Directive Receive";
        VIRTUALIZATION_MANAGEMENT = 0x1c, "Virtualization Management";
        NVME_MI_SEND = 0x1d, "NVMe-MI Send";
        NVME_MI_RECEIVE = 0x1e, "NVMe-MI Receive";
        CAPACITY_MANAGEMENT = 0x20, "Capacity Management";
        LOCKDOWN = 0x24, "Lockdown";
        TRACK_SEND = 0x3d, "Track Send";
        TRACK_RECEIVE = 0x3e, "Track Receive";
        MIGRATION_SEND = 0x41, "Migration Send";
        MIGRATION_RECEIVE = 0x42, "Migration Receive";
        CONTROLLER_DATA_QUEUE = 0x45, "Controller Data Queue";
        DOORBELL_BUFFER_CONFIG = 0x7c, "Doorbell Buffer Config";
        FABRICS = 0x7f, "Fabrics Commands";
        FORMAT_NVM = 0x80, "Format NVM";
        SECURITY_SEND = 0x81, "Security Send";
        SECURITY_RECEIVE = 0x82, "Security Receive";
        SANITIZE = 0x84, "Sanitize";
        GET_LBA_STATUS = 0x86, "Get LBA Status";
    }
}

open_enum! {
    /// I/O command opcode of the NVM command set.
    pub struct NvmOpcode(u8) {
        FLUSH = 0x00, "Flush";
        WRITE = 0x01, "Write";
        READ = 0x02, "Read";
        WRITE_UNCORRECTABLE = 0x04, "Write Uncorrectable";
        COMPARE = 0x05, "Compare";
        WRITE_ZEROES = 0x08, "Write Zeroes";
        DATASET_MANAGEMENT = 0x09, "Dataset Management";
        VERIFY = 0x0c, "Verify";
        RESERVATION_REGISTER = 0x0d, "Reservation Register";
        RESERVATION_REPORT = 0x0e, "Reservation Report";
        RESERVATION_ACQUIRE = 0x11, "Reservation Acquire";
        IO_MANAGEMENT_RECEIVE = 0x12, "I/O Management Receive";
        RESERVATION_RELEASE = 0x15, "Reservation Release";
        CANCEL = 0x18, "Cancel";
        COPY = 0x19, "Copy";
        IO_MANAGEMENT_SEND = 0x1d, "I/O Management Send";
    }
}

open_enum! {
    /// Command Set Identifier, of an I/O command set: which command set a namespace
    /// or a data structure belongs to.
    pub struct Csi(u8) {
        NVM = 0x00, "NVM Command Set";
        KEY_VALUE = 0x01, "Key Value Command Set";
        ZONED_NAMESPACE = 0x02, "Zoned Namespace Command Set";
    }
}

/// Data Transfer: bits 1:0 of every opcode (Base 2.1, 5.1 and 7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataTransfer {
    /// 00b: no data.
    None,
    /// 01b: from host to controller.
    HostToController,
    /// 10b: from controller to host.
    ControllerToHost,
    /// 11b: in both directions.
    Bidirectional,
}

impl DataTransfer {
    /// The direction that an opcode of any command set tells.
    pub const fn of_opcode(opcode: u8) -> Self {
        match opcode & 0b11 {
            0b00 => Self::None,
            0b01 => Self::HostToController,
            0b10 => Self::ControllerToHost,
            _ => Self::Bidirectional,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_tell_their_direction() {
        let of = |opcode: NvmOpcode| DataTransfer::of_opcode(opcode.0);
        assert_eq!(of(NvmOpcode::FLUSH), DataTransfer::None);
        assert_eq!(of(NvmOpcode::WRITE_ZEROES), DataTransfer::None);
        assert_eq!(of(NvmOpcode::WRITE), DataTransfer::HostToController);
        assert_eq!(of(NvmOpcode::COMPARE), DataTransfer::HostToController);
        assert_eq!(
            of(NvmOpcode::DATASET_MANAGEMENT),
            DataTransfer::HostToController
        );
        assert_eq!(of(NvmOpcode::READ), DataTransfer::ControllerToHost);
        assert_eq!(
            DataTransfer::of_opcode(AdminOpcode::IDENTIFY.0),
            DataTransfer::ControllerToHost
        );
        assert_eq!(DataTransfer::of_opcode(0xff), DataTransfer::Bidirectional);
    }

    #[test]
    fn admin_opcodes_are_those_of_base_2_1() {
        assert_eq!(AdminOpcode::DELETE_IO_SUBMISSION_QUEUE.0, 0x00);
        assert_eq!(AdminOpcode::CREATE_IO_SUBMISSION_QUEUE.0, 0x01);
        assert_eq!(AdminOpcode::GET_LOG_PAGE.0, 0x02);
        assert_eq!(AdminOpcode::DELETE_IO_COMPLETION_QUEUE.0, 0x04);
        assert_eq!(AdminOpcode::CREATE_IO_COMPLETION_QUEUE.0, 0x05);
        assert_eq!(AdminOpcode::IDENTIFY.0, 0x06);
        assert_eq!(AdminOpcode::ABORT.0, 0x08);
        assert_eq!(AdminOpcode::SET_FEATURES.0, 0x09);
        assert_eq!(AdminOpcode::GET_FEATURES.0, 0x0a);
        assert_eq!(AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST.0, 0x0c);
        assert_eq!(AdminOpcode::NAMESPACE_MANAGEMENT.0, 0x0d);
        assert_eq!(AdminOpcode::FIRMWARE_COMMIT.0, 0x10);
        assert_eq!(AdminOpcode::FIRMWARE_IMAGE_DOWNLOAD.0, 0x11);
        assert_eq!(AdminOpcode::DEVICE_SELF_TEST.0, 0x14);
        assert_eq!(AdminOpcode::NAMESPACE_ATTACHMENT.0, 0x15);
        assert_eq!(AdminOpcode::KEEP_ALIVE.0, 0x18);
        assert_eq!(AdminOpcode::DIRECTIVE_SEND.0, 0x19);
        assert_eq!(AdminOpcode::DIRECTIVE_RECEIVE.0, 0x1a);
        assert_eq!(AdminOpcode::VIRTUALIZATION_MANAGEMENT.0, 0x1c);
        assert_eq!(AdminOpcode::DOORBELL_BUFFER_CONFIG.0, 0x7c);
        assert_eq!(AdminOpcode::FORMAT_NVM.0, 0x80);
        assert_eq!(AdminOpcode::SECURITY_SEND.0, 0x81);
        assert_eq!(AdminOpcode::SECURITY_RECEIVE.0, 0x82);
        assert_eq!(AdminOpcode::SANITIZE.0, 0x84);
        assert_eq!(AdminOpcode::GET_LBA_STATUS.0, 0x86);
        assert_eq!(AdminOpcode(0x7d).name(), "reserved or vendor specific");
    }

    #[test]
    fn io_opcodes_are_those_of_nvm_1_1() {
        assert_eq!(NvmOpcode::FLUSH.0, 0x00);
        assert_eq!(NvmOpcode::WRITE.0, 0x01);
        assert_eq!(NvmOpcode::READ.0, 0x02);
        assert_eq!(NvmOpcode::WRITE_UNCORRECTABLE.0, 0x04);
        assert_eq!(NvmOpcode::COMPARE.0, 0x05);
        assert_eq!(NvmOpcode::WRITE_ZEROES.0, 0x08);
        assert_eq!(NvmOpcode::DATASET_MANAGEMENT.0, 0x09);
        assert_eq!(NvmOpcode::VERIFY.0, 0x0c);
        assert_eq!(NvmOpcode::RESERVATION_REGISTER.0, 0x0d);
        assert_eq!(NvmOpcode::RESERVATION_REPORT.0, 0x0e);
        assert_eq!(NvmOpcode::RESERVATION_ACQUIRE.0, 0x11);
        assert_eq!(NvmOpcode::RESERVATION_RELEASE.0, 0x15);
        assert_eq!(NvmOpcode::COPY.0, 0x19);
    }
}
