//! Sanitize: its dwords, what Identify Controller says of it, and the Sanitize Status log page
//! (Base 2.1, 5.1.22 and 5.1.12.1.33).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

open_enum! {
    /// Sanitize Action.
    pub struct SanitizeAction(u8) {
        EXIT_FAILURE_MODE = 0b001, "Exit Failure Mode";
        START_BLOCK_ERASE = 0b010, "Start a Block Erase sanitize operation";
        START_OVERWRITE = 0b011, "Start an Overwrite sanitize operation";
        START_CRYPTO_ERASE = 0b100, "Start a Crypto Erase sanitize operation";
        EXIT_MEDIA_VERIFICATION = 0b101, "Exit Media Verification State";
    }
}

/// Most passes of an overwrite: OWPASS 0 stands for them.
pub const OVERWRITE_PASSES_MAX: u8 = 16;

/// Sanitize, Dword 10 (Base 2.1, 5.1.22). The Sanitize Status log page repeats it as SCDW10.
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SanitizeCdw10 {
    /// Sanitize Action.
    #[bits(3)]
    pub sanact: SanitizeAction,
    /// Allow Unrestricted Sanitize Exit: a failure may be left without another sanitize operation.
    pub ause: bool,
    /// Overwrite Pass Count; 0 stands for 16.
    #[bits(4)]
    pub owpass: u8,
    /// Overwrite Invert Pattern Between Passes.
    pub oipbp: bool,
    /// No-Deallocate After Sanitize.
    pub ndas: bool,
    /// Enter Media Verification State.
    pub emvs: bool,
    #[bits(21)]
    __: u32,
}

impl SanitizeCdw10 {
    /// Passes of an overwrite, 1 to 16.
    pub const fn overwrite_passes(self) -> u8 {
        match self.owpass() {
            0 => OVERWRITE_PASSES_MAX,
            passes => passes,
        }
    }
}

/// Sanitize, Dword 11 (Base 2.1, 5.1.22).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct SanitizeCdw11 {
    /// Overwrite Pattern.
    pub ovrpat: u32,
}

open_enum! {
    /// No-Deallocate Modifies Media After Sanitize (SANICAP.NODMMAS).
    pub struct MediaModified(u8) {
        NOT_DEFINED = 0b00, "Not defined";
        NOT_MODIFIED = 0b01, "Media is not additionally modified";
        MODIFIED = 0b10, "Media is additionally modified";
    }
}

/// Sanitize Capabilities, of Identify Controller (Base 2.1, figure 312).
#[bitfield(u32)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Sanicap {
    /// Crypto Erase Support.
    pub ces: bool,
    /// Block Erase Support.
    pub bes: bool,
    /// Overwrite Support.
    pub ows: bool,
    /// Verification Support.
    pub vers: bool,
    #[bits(25)]
    __: u32,
    /// No-Deallocate Inhibited: NDAS is not obeyed.
    pub ndi: bool,
    /// No-Deallocate Modifies Media After Sanitize.
    #[bits(2)]
    pub nodmmas: MediaModified,
}

open_enum! {
    /// Sanitize Operation Status (SSTAT.SOS): of the most recent sanitize operation.
    pub struct SanitizeOperationStatus(u8) {
        NEVER_SANITIZED = 0b000, "Never sanitized";
        SANITIZED = 0b001, "Completed successfully";
        SANITIZING = 0b010, "In progress";
        FAILED = 0b011, "Failed";
        SANITIZED_UNEXPECTED_DEALLOCATE = 0b100, "Completed successfully, and deallocated although No-Deallocate was asked for";
    }
}

/// Sanitize Status, SSTAT.
#[bitfield(u16)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SanitizeStatus {
    /// Sanitize Operation Status.
    #[bits(3)]
    pub sos: SanitizeOperationStatus,
    /// Overwrite Passes Completed.
    #[bits(5)]
    pub opc: u8,
    /// Global Data Erased: nothing was written since manufacture or the last successful sanitize.
    pub gde: bool,
    /// Media Verification Canceled.
    pub mvcncld: bool,
    #[bits(6)]
    __: u8,
}

/// SPROG where no sanitize operation is in progress.
pub const SPROG_DONE: u16 = 0xffff;
/// An estimate that is not reported.
pub const ESTIMATE_NOT_REPORTED: u32 = 0xffff_ffff;

/// Sanitize Status (LID 81h), 512 bytes (Base 2.1, 5.1.12.1.33).
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SanitizeStatusLog {
    /// Sanitize Progress: the numerator of a fraction of 65536; [`SPROG_DONE`] where none runs.
    pub sprog: u16,
    /// Sanitize Status.
    pub sstat: SanitizeStatus,
    /// Sanitize Command Dword 10 Information: of the command that started the operation.
    pub scdw10: SanitizeCdw10,
    /// Estimated Time For Overwrite, in seconds.
    pub eto: u32,
    /// Estimated Time For Block Erase, in seconds.
    pub etbe: u32,
    /// Estimated Time For Crypto Erase, in seconds.
    pub etce: u32,
    /// Estimated Time For Overwrite With No-Deallocate Media Modification, in seconds.
    pub etond: u32,
    /// Estimated Time For Block Erase With No-Deallocate Media Modification, in seconds.
    pub etbend: u32,
    /// Estimated Time For Crypto Erase With No-Deallocate Media Modification, in seconds.
    pub etcend: u32,
    /// Estimated Time For Post-Verification Deallocation State, in seconds.
    pub etpvds: u32,
    /// Sanitize State Information.
    pub ssi: SanitizeStateInformation,
    /// Reserved.
    pub reserved_37: [u8; 475],
}

open_enum! {
    /// Sanitize State (SSI.SANS).
    pub struct SanitizeState(u8) {
        IDLE = 0x0, "Idle";
        RESTRICTED_PROCESSING = 0x1, "Restricted Processing";
        RESTRICTED_FAILURE = 0x2, "Restricted Failure";
        UNRESTRICTED_PROCESSING = 0x3, "Unrestricted Processing";
        UNRESTRICTED_FAILURE = 0x4, "Unrestricted Failure";
        MEDIA_VERIFICATION = 0x5, "Media Verification";
        POST_VERIFICATION_DEALLOCATION = 0x6, "Post-Verification Deallocation";
    }
}

/// Sanitize State Information.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SanitizeStateInformation {
    /// Sanitize State.
    #[bits(4)]
    pub sans: SanitizeState,
    /// Failure State: the state in which the operation failed.
    #[bits(4)]
    pub fails: SanitizeState,
}

const _: () = assert!(size_of::<SanitizeStatusLog>() == 512);
const _: () = assert!(offset_of!(SanitizeStatusLog, ssi) == 36);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_sanitize_commands() {
        // nvme sanitize --sanact=start-block-erase.
        let block_erase = SanitizeCdw10::new().with_sanact(SanitizeAction::START_BLOCK_ERASE);
        assert_eq!(u32::from(block_erase), 2);
        let overwrite = SanitizeCdw10::from(0x0000_033b);
        assert_eq!(overwrite.sanact(), SanitizeAction::START_OVERWRITE);
        assert_eq!((overwrite.ause(), overwrite.owpass()), (true, 3));
        assert!(overwrite.oipbp() && overwrite.ndas() && !overwrite.emvs());
        assert_eq!(overwrite.overwrite_passes(), 3);
        assert_eq!(block_erase.overwrite_passes(), 16);
        assert_eq!(SanitizeCdw11::from(0xdead_beef).ovrpat(), 0xdead_beef);
    }

    #[test]
    fn bits_lie_where_base_2_1_5_1_22_says() {
        let bits = |cdw10: SanitizeCdw10| u32::from(cdw10);
        assert_eq!(SanitizeAction::EXIT_FAILURE_MODE.0, 1);
        assert_eq!(SanitizeAction::START_CRYPTO_ERASE.0, 4);
        assert_eq!(bits(SanitizeCdw10::new().with_ause(true)), 1 << 3);
        assert_eq!(bits(SanitizeCdw10::new().with_owpass(0xf)), 0xf << 4);
        assert_eq!(bits(SanitizeCdw10::new().with_oipbp(true)), 1 << 8);
        assert_eq!(bits(SanitizeCdw10::new().with_ndas(true)), 1 << 9);
        assert_eq!(bits(SanitizeCdw10::new().with_emvs(true)), 1 << 10);
        assert_eq!(bits(SanitizeCdw10::from(0xffff_f800)), 0xffff_f800);
        let bits = |sanicap: Sanicap| u32::from(sanicap);
        assert_eq!(bits(Sanicap::new().with_ces(true)), 1);
        assert_eq!(bits(Sanicap::new().with_bes(true)), 1 << 1);
        assert_eq!(bits(Sanicap::new().with_ows(true)), 1 << 2);
        assert_eq!(bits(Sanicap::new().with_vers(true)), 1 << 3);
        assert_eq!(bits(Sanicap::new().with_ndi(true)), 1 << 29);
        assert_eq!(
            bits(Sanicap::new().with_nodmmas(MediaModified::MODIFIED)),
            2 << 30
        );
    }

    #[test]
    fn a_typed_sanitize_status_decodes() {
        let mut bytes = [0u8; 512];
        // Half done; in progress with 2 passes completed; an overwrite of 4 passes.
        bytes[..8].copy_from_slice(&[0x00, 0x80, 0b0001_0010, 0x00, 0x43, 0, 0, 0]);
        for (index, at) in (8..36).step_by(4).enumerate() {
            bytes[at] = u8::try_from(index + 1).unwrap();
        }
        bytes[36] = 0x21;
        let log = SanitizeStatusLog::read_from_bytes(&bytes).unwrap();
        assert_eq!(log.sprog, 0x8000);
        assert_eq!(log.sstat.sos(), SanitizeOperationStatus::SANITIZING);
        assert_eq!((log.sstat.opc(), log.sstat.gde()), (2, false));
        assert_eq!(log.scdw10.sanact(), SanitizeAction::START_OVERWRITE);
        assert_eq!(log.scdw10.owpass(), 4);
        assert_eq!((log.eto, log.etbe, log.etce), (1, 2, 3));
        assert_eq!((log.etond, log.etbend, log.etcend), (4, 5, 6));
        assert_eq!(log.etpvds, 7);
        assert_eq!(log.ssi.sans(), SanitizeState::RESTRICTED_PROCESSING);
        assert_eq!(log.ssi.fails(), SanitizeState::RESTRICTED_FAILURE);
        assert_eq!(log.as_bytes(), bytes);
        assert_eq!(u16::from(SanitizeStatus::new().with_gde(true)), 1 << 8);
        assert_eq!(u16::from(SanitizeStatus::new().with_mvcncld(true)), 1 << 9);
        assert_eq!(SanitizeOperationStatus::SANITIZED.0, 1);
        assert_eq!(SanitizeOperationStatus::FAILED.0, 3);
        assert_eq!(
            SanitizeOperationStatus::SANITIZED_UNEXPECTED_DEALLOCATE.0,
            4
        );
    }
}
