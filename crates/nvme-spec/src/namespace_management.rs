//! Namespace Management and Namespace Attachment: their dwords, and what a host sends to create a
//! namespace of the NVM command set (Base 2.1, 5.1.20 and 5.1.21; NVM 1.1, 4.1.6).
//!
//! The list of controllers that Namespace Attachment transfers is
//! [`crate::identify::lists::ControllerList`].

use core::mem::offset_of;

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::identify::namespace::{Dps, Flbas, Nmic};
use crate::opcode::Csi;

open_enum! {
    /// Select, of Namespace Management.
    pub struct ManagementSelect(u8) {
        CREATE = 0x0, "Create";
        DELETE = 0x1, "Delete";
    }
}

/// Namespace Management, Dword 10 (Base 2.1, 5.1.21).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NamespaceManagementCdw10 {
    /// Select.
    #[bits(4)]
    pub sel: ManagementSelect,
    #[bits(28)]
    __: u32,
}

/// Namespace Management, Dword 11 (Base 2.1, 5.1.21).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NamespaceManagementCdw11 {
    #[bits(24)]
    __: u32,
    /// Command Set Identifier of the namespace to create.
    #[bits(8)]
    pub csi: Csi,
}

open_enum! {
    /// Select, of Namespace Attachment.
    pub struct AttachmentSelect(u8) {
        CONTROLLER_ATTACH = 0x0, "Controller Attach";
        CONTROLLER_DETACH = 0x1, "Controller Detach";
    }
}

/// Namespace Attachment, Dword 10 (Base 2.1, 5.1.20).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct NamespaceAttachmentCdw10 {
    /// Select.
    #[bits(4)]
    pub sel: AttachmentSelect,
    #[bits(28)]
    __: u32,
}

/// Bytes of the data of Namespace Management (Create).
pub const HOST_SOFTWARE_SPECIFIED_SIZE: usize = 4096;

/// Host Software Specified Fields: the data of Namespace Management (Create) for a namespace of the
/// NVM command set, 4096 bytes. Fields lie where Identify Namespace has them, up to byte 383.
#[repr(C)]
#[derive(Clone, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct HostSoftwareSpecified {
    /// Namespace Size, in logical blocks.
    pub nsze: u64,
    /// Namespace Capacity, in logical blocks.
    pub ncap: u64,
    /// Reserved.
    pub reserved_16: [u8; 10],
    /// Formatted LBA Size.
    pub flbas: Flbas,
    /// Reserved.
    pub reserved_27: [u8; 2],
    /// End-to-end Data Protection Type Settings.
    pub dps: Dps,
    /// Namespace Multi-path I/O and Namespace Sharing Capabilities.
    pub nmic: Nmic,
    /// Reserved.
    pub reserved_31: [u8; 61],
    /// ANA Group Identifier; 0 leaves the choice to the controller.
    pub anagrpid: u32,
    /// Reserved.
    pub reserved_96: [u8; 4],
    /// NVM Set Identifier; 0 leaves the choice to the controller.
    pub nvmsetid: u16,
    /// Endurance Group Identifier; 0 leaves the choice to the controller.
    pub endgid: u16,
    /// Reserved.
    pub reserved_104: [u8; 280],
    /// Logical Block Storage Tag Mask.
    pub lbstm: u64,
    /// Number of Placement Handles.
    pub nphndls: u16,
    /// For other command sets and for placement handles.
    pub reserved_394: [u8; 630],
    /// Vendor Specific.
    pub vendor_specific: [u8; 3072],
}

const _: () = assert!(size_of::<HostSoftwareSpecified>() == HOST_SOFTWARE_SPECIFIED_SIZE);
const _: () = assert!(offset_of!(HostSoftwareSpecified, anagrpid) == 92);
const _: () = assert!(offset_of!(HostSoftwareSpecified, lbstm) == 384);

#[cfg(test)]
mod tests {
    use zerocopy::FromZeros;

    use super::*;
    use crate::identify::lists::ControllerList;

    #[test]
    fn dwords_lie_where_base_2_1_5_1_20_and_5_1_21_say() {
        let delete = NamespaceManagementCdw10::from(0xffff_fff1);
        assert_eq!(delete.sel(), ManagementSelect::DELETE);
        assert_eq!(u32::from(delete), 0xffff_fff1);
        assert_eq!(ManagementSelect::CREATE.0, 0);
        let csi = NamespaceManagementCdw11::new().with_csi(Csi::ZONED_NAMESPACE);
        assert_eq!(u32::from(csi), 0x0200_0000);
        assert_eq!(AttachmentSelect::CONTROLLER_ATTACH.0, 0);
        let detach = NamespaceAttachmentCdw10::new().with_sel(AttachmentSelect::CONTROLLER_DETACH);
        assert_eq!(u32::from(detach), 1);
        assert_eq!(NamespaceAttachmentCdw10::from(0x1f).sel().0, 0xf);
    }

    #[test]
    fn a_typed_create_decodes() {
        let mut bytes = [0u8; 4096];
        bytes[..8].copy_from_slice(&0x0010_0000u64.to_le_bytes());
        bytes[8..16].copy_from_slice(&0x000f_0000u64.to_le_bytes());
        // Format 1, protection type 2 as the first bytes, shared.
        bytes[26] = 0x01;
        bytes[29] = 0b1010;
        bytes[30] = 0x01;
        bytes[92] = 5;
        bytes[100..104].copy_from_slice(&[6, 0, 7, 0]);
        bytes[384] = 8;
        bytes[392] = 9;
        bytes[1024] = 14;
        let fields = HostSoftwareSpecified::read_from_bytes(&bytes).unwrap();
        assert_eq!((fields.nsze, fields.ncap), (0x0010_0000, 0x000f_0000));
        assert_eq!(fields.flbas.format_index(), 1);
        assert_eq!((fields.dps.pit(), fields.dps.pip()), (2, true));
        assert!(fields.nmic.shrns());
        assert_eq!(fields.anagrpid, 5);
        assert_eq!((fields.nvmsetid, fields.endgid), (6, 7));
        assert_eq!((fields.lbstm, fields.nphndls), (8, 9));
        assert_eq!(fields.vendor_specific[0], 14);
        assert_eq!(fields.as_bytes(), bytes);
    }

    #[test]
    fn a_controller_list_is_a_count_and_identifiers() {
        let mut list = ControllerList::new_zeroed();
        list.numids = 2;
        list.cntlids[..2].copy_from_slice(&[1, 0x0102]);
        assert_eq!(list.as_bytes()[..6], [2, 0, 1, 0, 2, 1]);
        assert_eq!(list.as_bytes().len(), 4096);
    }
}
