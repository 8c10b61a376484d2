//! Places in a packed ring, and the flags that say whose a descriptor is (VIRTIO 1.3, 2.8.1).

/// `VIRTQ_DESC_F_AVAIL` and `VIRTQ_DESC_F_USED`.
const AVAIL: u16 = 1 << 7;
const USED: u16 = 1 << 15;
/// The wrap counter in the words of vhost-user and of event suppressions.
const WRAP: u16 = 1 << 15;

/// An index and the wrap counter of its lap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Position {
    pub(super) index: u16,
    pub(super) wrap: bool,
}

impl Position {
    /// From a word with the index in bits 0 to 14 and the wrap counter in bit 15.
    pub(super) const fn from_word(word: u16) -> Self {
        Self {
            index: word & !WRAP,
            wrap: word & WRAP != 0,
        }
    }

    /// The word of [`Self::from_word`].
    #[inline]
    pub(super) const fn word(self) -> u16 {
        self.index | if self.wrap { WRAP } else { 0 }
    }

    /// The place `count` entries further in a ring of `size`, at least `count`.
    #[inline]
    pub(super) const fn advanced(self, count: u16, size: u16) -> Self {
        let index = self.index as u32 + count as u32;
        if index >= size as u32 {
            return Self {
                index: (index - size as u32) as u16,
                wrap: !self.wrap,
            };
        }
        Self {
            index: index as u16,
            wrap: self.wrap,
        }
    }

    /// Whether a descriptor with these flags is available here.
    #[inline]
    pub(super) const fn is_available(self, flags: u16) -> bool {
        flags & (AVAIL | USED) == if self.wrap { AVAIL } else { USED }
    }

    /// The flags of a used descriptor here, without others.
    #[inline]
    pub(super) const fn used_flags(self) -> u16 {
        if self.wrap { AVAIL | USED } else { 0 }
    }
}
