//! Format NVM: its dword, and what Identify Controller says of it (Base 2.1, 5.1.10).

use bitfield_struct::bitfield;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

open_enum! {
    /// Secure Erase Settings.
    pub struct SecureErase(u8) {
        NONE = 0b000, "No secure erase operation requested";
        USER_DATA_ERASE = 0b001, "User Data Erase";
        CRYPTOGRAPHIC_ERASE = 0b010, "Cryptographic Erase";
    }
}

/// Format NVM, Dword 10 (Base 2.1, 5.1.10).
#[bitfield(u32)]
#[derive(PartialEq, Eq)]
pub struct FormatNvmCdw10 {
    /// LBA Format Lower: bits 3:0 of the index in the table of formats.
    #[bits(4)]
    pub lbafl: u8,
    /// Metadata Settings: 1 is metadata at the end of each logical block.
    pub mset: bool,
    /// Protection Information: type 1 to 3, or 0 for none.
    #[bits(3)]
    pub pi: u8,
    /// Protection Information Location: 1 is the first bytes of the metadata.
    pub pil: bool,
    /// Secure Erase Settings.
    #[bits(3)]
    pub ses: SecureErase,
    /// LBA Format Upper: bits 5:4 of the index; obeyed where the host has set LBAFEE.
    #[bits(2)]
    pub lbafu: u8,
    #[bits(18)]
    __: u32,
}

impl FormatNvmCdw10 {
    /// Index of the format in the table of LBA formats, 0 to 63.
    pub const fn format_index(self) -> u8 {
        self.lbafu() << 4 | self.lbafl()
    }
}

/// Format NVM Attributes, of Identify Controller (Base 2.1, figure 312).
#[bitfield(u8)]
#[derive(PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Fna {
    /// Format Namespace Scope: a format without secure erase applies to all namespaces.
    pub fns: bool,
    /// Secure Erase Namespace Scope: a format with secure erase applies to all namespaces.
    pub sens: bool,
    /// Cryptographic Erase Supported.
    pub cryes: bool,
    /// Format NVM Broadcast Support: set where NSID FFFFFFFFh is *not* supported.
    pub fnvmbs: bool,
    #[bits(4)]
    __: u8,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_format() {
        // Dword of nvme-cli for --lbaf=1 --ses=1.
        let cdw10 = FormatNvmCdw10::new()
            .with_lbafl(1)
            .with_ses(SecureErase::USER_DATA_ERASE);
        assert_eq!(u32::from(cdw10), 0x0000_0201);
    }

    #[test]
    fn bits_lie_where_base_2_1_5_1_10_says() {
        let bits = |cdw10: FormatNvmCdw10| u32::from(cdw10);
        assert_eq!(bits(FormatNvmCdw10::new().with_lbafl(0xf)), 0xf);
        assert_eq!(bits(FormatNvmCdw10::new().with_mset(true)), 1 << 4);
        assert_eq!(bits(FormatNvmCdw10::new().with_pi(7)), 7 << 5);
        assert_eq!(bits(FormatNvmCdw10::new().with_pil(true)), 1 << 8);
        assert_eq!(
            bits(FormatNvmCdw10::new().with_ses(SecureErase::CRYPTOGRAPHIC_ERASE)),
            2 << 9
        );
        assert_eq!(bits(FormatNvmCdw10::new().with_lbafu(3)), 3 << 12);
        assert_eq!(FormatNvmCdw10::from(0xffff_e00f).format_index(), 0x2f);
        assert_eq!(bits(FormatNvmCdw10::from(0xffff_c000)), 0xffff_c000);
    }

    #[test]
    fn attributes_lie_where_figure_312_says() {
        assert_eq!(u8::from(Fna::new().with_fns(true)), 1);
        assert_eq!(u8::from(Fna::new().with_sens(true)), 1 << 1);
        assert_eq!(u8::from(Fna::new().with_cryes(true)), 1 << 2);
        assert_eq!(u8::from(Fna::new().with_fnvmbs(true)), 1 << 3);
    }
}
