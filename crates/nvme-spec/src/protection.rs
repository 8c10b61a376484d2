//! Protection information, as commands name it (NVM 1.1, 3).

use bitfield_struct::bitfield;

/// Protection Information field, PRINFO (NVM 1.1, 3).
#[bitfield(u8)]
#[derive(PartialEq, Eq)]
pub struct Prinfo {
    /// Protection Information Check: bit 0 reference tag, bit 1 application tag, bit 2 guard.
    #[bits(3)]
    pub prchk: u8,
    /// Protection Information Action.
    pub pract: bool,
    #[bits(4)]
    __: u8,
}
