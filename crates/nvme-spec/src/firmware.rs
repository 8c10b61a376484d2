//! Firmware Commit and Firmware Image Download: their dwords (Base 2.1, 5.1.8 and 5.1.9).

use bitfield_struct::bitfield;

open_enum! {
    /// Commit Action.
    pub struct CommitAction(u8) {
        REPLACE = 0b000, "Replace the image in the slot, and do not activate it";
        REPLACE_ACTIVATE_AT_RESET = 0b001, "Replace the image in the slot, and activate it at the next reset";
        ACTIVATE_AT_RESET = 0b010, "Activate the image in the slot at the next reset";
        ACTIVATE_NOW = 0b011, "Activate the image, downloaded or in the slot, immediately";
        REPLACE_BOOT_PARTITION = 0b110, "Replace the Boot Partition";
        ACTIVATE_BOOT_PARTITION = 0b111, "Mark the Boot Partition as active";
    }
}

/// Firmware Commit, Dword 10 (Base 2.1, 5.1.8).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FirmwareCommitCdw10 {
    /// Firmware Slot, 1 to 7; 0 leaves the choice to the controller.
    #[bits(3)]
    pub fs: u8,
    /// Commit Action.
    #[bits(3)]
    pub ca: CommitAction,
    #[bits(25)]
    __: u32,
    /// Boot Partition ID.
    pub bpid: bool,
}

/// Firmware Image Download, Dword 10 (Base 2.1, 5.1.9).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FirmwareImageDownloadCdw10 {
    /// Number of Dwords to transfer.
    pub numd_z: u32,
}

/// Firmware Image Download, Dword 11 (Base 2.1, 5.1.9).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FirmwareImageDownloadCdw11 {
    /// Offset in the image, in dwords.
    pub ofst: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dwords_lie_where_base_2_1_5_1_8_and_5_1_9_say() {
        // nvme fw-commit --slot=2 --action=3.
        let commit = FirmwareCommitCdw10::from(0x0000_001a);
        assert_eq!((commit.fs(), commit.ca()), (2, CommitAction::ACTIVATE_NOW));
        assert_eq!(
            u32::from(FirmwareCommitCdw10::new().with_bpid(true)),
            1 << 31
        );
        assert_eq!(CommitAction::REPLACE_ACTIVATE_AT_RESET.0, 1);
        assert_eq!(CommitAction::ACTIVATE_AT_RESET.0, 2);
        assert_eq!(CommitAction::REPLACE_BOOT_PARTITION.0, 6);
        assert_eq!(FirmwareImageDownloadCdw10::from(1023).numd_z(), 1023);
        assert_eq!(FirmwareImageDownloadCdw11::from(1024).ofst(), 1024);
    }
}
