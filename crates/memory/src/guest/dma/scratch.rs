//! Memory of our own that media read and write like a host's: for bytes that are copied from one
//! medium to another.

use std::io;
use std::sync::Arc;

use super::{Access, DmaMap, DmaView, Need, Region, Segment};
use crate::guest::address::Iova;
use crate::guest::mapping::Mapping;

/// Private memory behind a view of its own.
///
/// A medium whose I/O outlives the call pins that view, as it pins a host's, so the memory stays
/// until the I/O has ended also where this value is dropped before.
#[derive(Debug)]
pub struct Scratch {
    view: Arc<DmaView>,
}

impl Scratch {
    /// `len` bytes, a multiple of [`crate::PAGE`] and not 0. The system allocates them as they are
    /// touched.
    ///
    /// # Errors
    /// What the system says: there is no room for so many addresses, or the length is no whole
    /// number of pages.
    pub fn new(len: u32) -> io::Result<Scratch> {
        let mapping = Arc::new(Mapping::anonymous(len as usize)?);
        let mut map = DmaMap::new(1);
        map.map(Iova(0), len.into(), Access::READ_WRITE, Some((mapping, 0)))
            .map_err(io::Error::other)?;
        Ok(Scratch { view: map.view() })
    }

    /// The view for a medium to pin.
    #[inline]
    #[must_use]
    pub fn view(&self) -> &Arc<DmaView> {
        &self.view
    }

    /// The first `len` bytes, at most all of them.
    ///
    /// # Panics
    /// Never: the region was made with the value.
    #[must_use]
    pub fn segment(&self, len: u32, need: Need) -> Segment<'_> {
        Segment::new(self.region(), 0, len, need)
    }

    fn region(&self) -> &Region {
        let mut regions = self.view.tree.iter();
        regions.next().expect("the one region it was made with")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_in_and_come_out() {
        let scratch = Scratch::new(8192).unwrap();
        let mut bytes = [1; 3];
        scratch
            .segment(3, Need::DeviceReads)
            .read_into(0, &mut bytes);
        assert_eq!(bytes, [0; 3]);
        let all = scratch.segment(u32::MAX, Need::DeviceWrites);
        assert_eq!(all.len(), 8192);
        all.write_from(8189, &[7, 8, 9]);
        let again = scratch.segment(8192, Need::DeviceReads);
        again.read_into(8189, &mut bytes);
        assert_eq!(bytes, [7, 8, 9]);
        assert_eq!(again.as_raw().0 as usize % 4096, 0, "for direct I/O");
    }

    #[test]
    fn a_pinned_view_keeps_the_memory() {
        let scratch = Scratch::new(4096).unwrap();
        let view = scratch.view().clone();
        scratch.segment(1, Need::DeviceWrites).write_from(0, &[5]);
        drop(scratch);
        let mut hint = super::super::Hint::default();
        let segment = view.translate(&mut hint, Iova(0), 1, Need::DeviceReads);
        let mut byte = [0];
        segment.unwrap().read_into(0, &mut byte);
        assert_eq!(byte, [5]);
    }

    #[test]
    fn parts_of_pages_are_refused() {
        assert!(Scratch::new(0).is_err());
        assert!(Scratch::new(1000).is_err());
    }
}
