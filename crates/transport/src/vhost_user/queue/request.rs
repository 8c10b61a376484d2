//! A request of a ring: the pieces of memory that it names.

use arrayvec::ArrayVec;

/// Most pieces of a request: those of data, its header and its outcome.
pub(in crate::vhost_user) const MAX_PIECES: usize = 256;

/// A piece of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vhost_user) struct Piece {
    /// Address for the guest.
    pub(in crate::vhost_user) at: u64,
    /// Bytes. May be 0.
    pub(in crate::vhost_user) len: u32,
    /// The device writes there.
    pub(in crate::vhost_user) is_writable: bool,
}

/// The pieces of a request, in order: those that the device reads come first.
pub(in crate::vhost_user) type Pieces = ArrayVec<Piece, MAX_PIECES>;

/// A request of a ring that was taken and is to be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::vhost_user) struct Head {
    /// Index of its first descriptor, or its buffer identifier in a packed ring.
    pub(in crate::vhost_user) id: u16,
    /// Entries of the descriptor ring that it takes, in a packed ring.
    pub(in crate::vhost_user) count: u16,
    /// Its entry in the record of a packed ring, where there is one.
    pub(super) slot: u16,
    /// A former back end has taken it before, and may have executed it.
    pub(in crate::vhost_user) is_again: bool,
}
