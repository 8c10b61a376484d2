//! Addresses as the host writes them.
//!
//! An [`Iova`] is what a host puts into a queue base, a PRP entry or a DMA map message:
//! guest-physical without a vIOMMU, an I/O virtual address behind one. It is a number without
//! meaning until a [`DmaView`](crate::DmaView) translates it. This module does not know what is
//! mapped.

use std::fmt;

use crate::own::PAGE;

/// An address in the host's memory as a device sees it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Iova(pub u64);

impl Iova {
    /// The address `bytes` further on; `None` past the end of the 64-bit address space.
    #[inline]
    pub const fn checked_add(self, bytes: u64) -> Option<Iova> {
        match self.0.checked_add(bytes) {
            Some(sum) => Some(Iova(sum)),
            None => None,
        }
    }

    /// The bytes between the start of this address's page and the address.
    #[inline]
    pub const fn page_offset(self) -> u64 {
        self.0 % PAGE
    }

    /// The start of this address's page.
    #[inline]
    pub const fn page(self) -> Iova {
        Iova(self.0 - self.0 % PAGE)
    }
}

impl fmt::Display for Iova {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}
