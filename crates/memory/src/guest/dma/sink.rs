//! A sink for bytes that are discarded: data that a device "writes" there is lost.
//!
//! It is memory of the program itself, the same for every host and every thread, and never freed.
//! So its segments need no view: they are valid wherever segments of a view are, and code that pins
//! a view for I/O that outlives a call has nothing more to pin.

use std::cell::UnsafeCell;

use super::{Access, Need, Region, Segment};
use crate::guest::address::Iova;

/// Bytes of the sink: small, because the caches hold what is written there.
const SINK_LEN: u32 = 64 << 10;

/// Page-aligned, so that direct I/O can be discarded, too.
#[repr(C, align(4096))]
struct Sink(UnsafeCell<[u8; SINK_LEN as usize]>);

// SAFETY: only segments lead to the bytes, and those are for writing alone: raw copies, as into the
// memory of a host that has commands of two threads read into one place. No code makes
// a reference to the bytes or reads them.
unsafe impl Sync for Sink {}

static SINK: Sink = Sink(UnsafeCell::new([0; SINK_LEN as usize]));

/// No host's region, and at no address of a host.
static REGION: Region = Region {
    iova: Iova(0),
    len: SINK_LEN as u64,
    access: Access {
        read: false,
        write: true,
    },
    base: SINK.0.get().cast(),
    open: 0,
    lent: None,
    id: 0,
    log: None,
}
.opened();

impl Segment<'static> {
    /// At most `len` bytes that are discarded when they are written. The caller asks again for the
    /// rest.
    #[must_use]
    pub fn sink(len: u32) -> Segment<'static> {
        Segment::new(&REGION, 0, len, Need::DeviceWrites)
    }
}

impl Segment<'_> {
    /// Whether its bytes are discarded. Such a segment has no address in any view.
    #[must_use]
    pub fn is_sink(&self) -> bool {
        std::ptr::eq(self.region, &REGION)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_taken() {
        let segment = Segment::sink(513);
        assert_eq!(segment.len(), 513);
        assert!(segment.is_sink());
        segment.write_from(0, &[7; 513]);
        segment.write_from(512, &[7]);
        segment.zero();
        let whole = Segment::sink(u32::MAX);
        assert_eq!(whole.len(), 64 << 10);
        whole.write_from(0, &vec![7; 64 << 10]);
    }

    #[test]
    fn direct_io_finds_it_aligned() {
        let (start, len) = Segment::sink(u32::MAX).as_raw();
        assert_eq!((start as usize % 4096, len % 4096), (0, 0));
    }

    #[test]
    fn pieces_are_not_joined() {
        // Both start at the sink's first byte.
        assert!(Segment::sink(512).merge(Segment::sink(512)).is_err());
    }
}
