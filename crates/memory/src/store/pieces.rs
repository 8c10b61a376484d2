//! Memory that is in use, put together on huge pages piece by piece.
//!
//! Not included: the choice of pieces, and of the moment: the program makes both.

use std::io;
use std::ptr::NonNull;

use crate::guest::mapping::Mapping;
use crate::own::huge::HUGE_PAGE_LEN;
use crate::store::{Store, StorePages};

/// Memory that is in use, as pieces of [`HUGE_PAGE_LEN`] that may each become one page.
///
/// Putting one together copies its bytes, which takes some hundred microseconds; a thread that
/// touches the piece meanwhile waits for that.
pub trait Pieces: Send + Sync {
    /// How many there are; none where pages are huge anyway, or cannot be.
    fn count(&self) -> usize;

    /// The nodes of memory that its pages lie on, of some of those that this process has touched:
    /// how many on each.
    ///
    /// # Errors
    /// The kernel's, mostly that it knows no nodes.
    fn nodes(&self) -> io::Result<Vec<(u32, usize)>>;

    /// Whether they are put together in any case, as soon as a page of them is used: memory that
    /// the system would have on huge pages from its first write if it could.
    fn always(&self) -> bool {
        false
    }

    /// Has the kernel put a piece together if all of its pages are there, so that nothing is
    /// allocated that was not; with [`Pieces::always`], if one is. True where it is one page now.
    ///
    /// # Errors
    /// The kernel's: it has no huge page free, some page is in use by a device, or it is older than
    /// Linux 6.1.
    fn collapse(&self, index: usize) -> io::Result<bool>;
}

impl Pieces for Mapping {
    fn count(&self) -> usize {
        self.huge_pieces().map_or(0, |(_, count)| count)
    }

    fn nodes(&self) -> io::Result<Vec<(u32, usize)>> {
        Mapping::nodes(self)
    }

    fn collapse(&self, index: usize) -> io::Result<bool> {
        collapse_touched(self.huge_pieces(), index, false)
    }
}

impl Pieces for Store {
    fn count(&self) -> usize {
        self.huge_pieces().map_or(0, |(_, count)| count)
    }

    fn nodes(&self) -> io::Result<Vec<(u32, usize)>> {
        Store::nodes(self)
    }

    fn always(&self) -> bool {
        self.pages() == StorePages::HugeOnceUsed
    }

    fn collapse(&self, index: usize) -> io::Result<bool> {
        collapse_touched(self.huge_pieces(), index, self.always())
    }
}

/// The piece `index` of so many, of which the first one lies at that address. `one_is_enough`: its
/// other pages may be allocated.
fn collapse_touched(
    pieces: Option<(NonNull<u8>, usize)>,
    index: usize,
    one_is_enough: bool,
) -> io::Result<bool> {
    const PAGES: usize = HUGE_PAGE_LEN / 4096;
    let piece = pieces.filter(|(_, count)| index < *count);
    let Some((first, _)) = piece else {
        return Ok(false);
    };
    let start = first.as_ptr().wrapping_add(index * HUGE_PAGE_LEN).cast();
    let mut is_there = [0u8; PAGES];
    // SAFETY: the range is mapped for as long as the caller's value lives, and has as many pages as
    // the array bytes. Whether pages are there, and which they are, is nothing that the program
    // sees; the advice changes no bytes.
    unsafe {
        if libc::mincore(start, HUGE_PAGE_LEN, is_there.as_mut_ptr()) != 0 {
            return Err(io::Error::last_os_error());
        }
        let there = is_there.iter().filter(|page| **page & 1 != 0).count();
        if there < if one_is_enough { 1 } else { PAGES } {
            return Ok(false);
        }
        match libc::madvise(start, HUGE_PAGE_LEN, libc::MADV_COLLAPSE) {
            0 => Ok(true),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own::huge::memfd;
    use crate::own::huge::tests::{huge_kib, huge_kib_at};
    use crate::own::map::OwnMap;

    /// Whether pages were put together. A system that does not do so (older than Linux 6.1, or
    /// short of memory) says so here as it does elsewhere.
    fn is_done(collapsed: io::Result<bool>) -> bool {
        match (collapsed, memfd("test", HUGE_PAGE_LEN)) {
            (Ok(done), _) => {
                assert!(done, "every page was touched");
                true
            }
            (Err(error), Ok(_)) => panic!("only here: {error}"),
            (Err(_), Err(_)) => false,
        }
    }

    #[test]
    fn a_client_s_pages_are_put_together_where_all_of_them_are_there() {
        let len = 3 * HUGE_PAGE_LEN + 8192;
        let client = crate::HostMemory::new(len).unwrap();
        // A buffer is all touched; a page of the last piece is not in it.
        let memory = client.alloc(3 * HUGE_PAGE_LEN - 4096, 4096).unwrap();
        let fd = client.fd().try_clone_to_owned().unwrap();
        let mapping = crate::ClientMappings::new().map(fd).unwrap();
        let pieces: &dyn Pieces = &*mapping;
        assert_eq!(pieces.count(), 3);
        memory.write_from(HUGE_PAGE_LEN, &vec![7; HUGE_PAGE_LEN]);
        memory.write_from(0, &vec![9; HUGE_PAGE_LEN - 1]);
        memory.write_from(2 * HUGE_PAGE_LEN, &vec![5; HUGE_PAGE_LEN - 4096]);
        if !is_done(pieces.collapse(0)) {
            return;
        }
        assert!(pieces.collapse(1).unwrap());
        assert!(pieces.collapse(1).unwrap(), "it is one page already");
        assert!(!pieces.collapse(2).unwrap(), "a page is not there");
        assert!(!pieces.collapse(3).unwrap(), "it is no whole piece");
        let found = huge_kib_at(mapping.at(0, 1).unwrap().as_ptr());
        assert_eq!(found, 4096);
        // The bytes are what they were, at both ends.
        let mut bytes = vec![0; HUGE_PAGE_LEN];
        memory.read_into(HUGE_PAGE_LEN, &mut bytes);
        assert!(bytes.iter().all(|byte| *byte == 7));
        memory.read_into(0, &mut bytes);
        assert!(bytes[..HUGE_PAGE_LEN - 1].iter().all(|byte| *byte == 9));
    }

    #[test]
    fn a_store_of_usual_pages_is_put_together_as_it_is_written() {
        let store = Store::new(2 * HUGE_PAGE_LEN as u64).unwrap();
        let usual = store.pages() == StorePages::Usual;
        assert_eq!(Pieces::count(&store), if usual { 2 } else { 0 });
        // As where the system gives none unasked: a store asks, this does not.
        let map = OwnMap::anonymous_aligned(2 * HUGE_PAGE_LEN, HUGE_PAGE_LEN).unwrap();
        for at in (0..HUGE_PAGE_LEN).step_by(4096) {
            // SAFETY: the byte lies inside the mapping, which is writable.
            unsafe { map.at(at, 1).write(1) };
        }
        let pieces = NonNull::new(map.at(0, 1)).map(|first| (first, 2));
        assert!(!collapse_touched(pieces, 1, false).unwrap());
        if is_done(collapse_touched(pieces, 0, false)) {
            assert_eq!(huge_kib(&map), 2048);
        }
    }

    #[test]
    fn a_store_for_another_process_is_on_huge_pages_once_it_is_used() {
        let len = 4 * HUGE_PAGE_LEN as u64;
        let store = Store::shared(len).unwrap();
        if !store.always() {
            // The system gives none to anybody, or also to a memfd.
            assert_eq!(Store::new(len).unwrap().pages(), store.pages());
            return;
        }
        store.write_bytes(HUGE_PAGE_LEN as u64 + 5000, b"one page");
        assert!(!store.collapse(0).unwrap(), "no page of it was used");
        if !is_done(store.collapse(1)) {
            return;
        }
        assert_eq!(huge_kib(&store.map), 2048);
        store.populate(2 * HUGE_PAGE_LEN as u64, len / 2).unwrap();
        assert_eq!(huge_kib(&store.map), 3 * 2048);
        // Another process has them as they are.
        let file = store.file().unwrap().try_clone_to_owned().unwrap();
        drop(store);
        let store = Store::adopt(file, len).unwrap();
        let mut bytes = [0; 9];
        store.read_bytes(HUGE_PAGE_LEN as u64 + 5000, &mut bytes);
        assert_eq!(&bytes, b"one page\0");
        assert_eq!(huge_kib(&store.map), 2048);
    }
}
