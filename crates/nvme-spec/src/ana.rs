//! Asymmetric Namespace Access: its log page and what Identify Controller says (Base 2.1, 8.1.1 and
//! 5.1.12.1.13).

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

open_enum! {
    /// Asymmetric Namespace Access State.
    pub struct AnaState(u8) {
        OPTIMIZED = 0x1, "ANA Optimized";
        NON_OPTIMIZED = 0x2, "ANA Non-Optimized";
        INACCESSIBLE = 0x3, "ANA Inaccessible";
        PERSISTENT_LOSS = 0x4, "ANA Persistent Loss";
        CHANGE = 0xf, "ANA Change";
    }
}

/// Head of the Asymmetric Namespace Access log page, 16 bytes. Descriptors of groups follow it.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AnaLogHead {
    /// Change Count: incremented with each change of the log; it never wraps to 0.
    pub chgcnt: u64,
    /// Number of ANA Group Descriptors.
    pub nagd: u16,
    /// Reserved.
    pub reserved: [u8; 6],
}

const _: () = assert!(size_of::<AnaLogHead>() == 16);

/// Descriptor of an ANA group, 32 bytes; its namespace identifiers follow it, unless the command
/// asked for groups only.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AnaGroupDescriptor {
    /// ANA Group ID.
    pub agid: u32,
    /// Number of NSID Values that follow.
    pub nnsid: u32,
    /// Change Count of the group.
    pub chgcnt: u64,
    /// State, in bits 3:0.
    pub state: AnaGroupState,
    /// Reserved.
    pub reserved: [u8; 15],
}

const _: () = assert!(size_of::<AnaGroupDescriptor>() == 32);
const _: () = assert!(offset_of!(AnaGroupDescriptor, state) == 16);

/// The byte of a group's descriptor that holds its state.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AnaGroupState {
    /// Asymmetric Namespace Access State.
    #[bits(4)]
    pub state: AnaState,
    #[bits(4)]
    __: u8,
}

/// Log Specific Parameter of Get Log Page for this page (Base 2.1, 5.1.12.1.13).
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct AnaLogParameter {
    /// Return Groups Only: no namespace identifiers.
    pub rgo: bool,
    #[bits(7)]
    __: u8,
}

/// Asymmetric Namespace Access Capabilities, of Identify Controller.
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct AnaCapabilities {
    /// Reports ANA Optimized.
    pub optimized: bool,
    /// Reports ANA Non-Optimized.
    pub non_optimized: bool,
    /// Reports ANA Inaccessible.
    pub inaccessible: bool,
    /// Reports ANA Persistent Loss.
    pub persistent_loss: bool,
    /// Reports ANA Change.
    pub change: bool,
    #[bits(1)]
    __: u8,
    /// A namespace's ANAGRPID does not change while it is attached.
    pub anagrpid_fixed: bool,
    /// Namespace Management takes an ANAGRPID that is not 0.
    pub anagrpid_settable: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_and_capabilities_are_those_that_linux_reports() {
        // "nvmet" of Linux 7.3 was recorded with ANACAP 1Fh: all five states.
        let all = AnaCapabilities::new()
            .with_optimized(true)
            .with_non_optimized(true)
            .with_inaccessible(true)
            .with_persistent_loss(true)
            .with_change(true);
        assert_eq!(u8::from(all), 0x1f);
        assert_eq!(
            u8::from(AnaCapabilities::new().with_anagrpid_fixed(true)),
            1 << 6
        );
        let state = AnaGroupState::from(0xf3);
        assert_eq!(state.state(), AnaState::INACCESSIBLE);
    }
}
