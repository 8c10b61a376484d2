//! Looks ahead: cache lines of the next requests, which another processor has just written, come
//! while the requests before them are taken.
//!
//! Nothing that is read here decides anything: what counts is read when a request is taken.

use memory::{DmaView, Hint, Iova, Need};

/// Asks for the first bytes of a piece of guest memory, if it is there.
#[inline]
pub(super) fn prefetch(at: u64, view: &DmaView, hint: &mut Hint) {
    if let Ok(piece) = view.translate(hint, Iova(at), 1, Need::DeviceReads) {
        piece.prefetch();
    }
}

/// Asks for the first piece that the indirect table at this address names.
#[inline]
pub(super) fn prefetch_of_table(at: u64, view: &DmaView, hint: &mut Hint) {
    let mut first = [0; 8];
    if let Ok(table) = view.translate(hint, Iova(at), 8, Need::DeviceReads)
        && table.len() == 8
    {
        table.read_into(0, &mut first);
        prefetch(u64::from_le_bytes(first), view, hint);
    }
}
