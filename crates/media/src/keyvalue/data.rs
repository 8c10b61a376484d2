//! Bytes on their way between a key-value medium and whoever asked.

use memory::{Segment, Store};

/// Where the bytes of a value come from, one after another. Whoever takes has seen that there are
/// as many.
pub(super) trait Source {
    /// The next `len` bytes, into the store from byte `at` on.
    fn take_into(&mut self, store: &Store, at: u64, len: u32);

    /// Whether it only notes what it is asked for: the bytes come later, and whoever copies them
    /// tells the log.
    fn comes_later(&self) -> bool {
        false
    }
}

/// Where the bytes of a value go, one after another. Whoever puts has seen that there is room.
pub(super) trait Target {
    /// The next `len` bytes, from the store's byte `at` on.
    fn put_from(&mut self, store: &Store, at: u64, len: u32);
}

/// Where other bytes go among them.
pub(super) trait Sink: Target {
    /// The next bytes.
    fn put(&mut self, bytes: &[u8]);
}

/// A command's memory in its host.
#[derive(Clone, Debug)]
pub(super) struct Host<'s, 'v> {
    segments: &'s [Segment<'v>],
    /// Bytes of the first segment that are behind.
    at: u32,
}

impl<'s, 'v> Host<'s, 'v> {
    pub(super) fn new(segments: &'s [Segment<'v>]) -> Self {
        Host { segments, at: 0 }
    }

    /// Bytes that a command has in its host.
    pub(super) fn len(segments: &[Segment<'_>]) -> u64 {
        segments
            .iter()
            .map(|segment| u64::from(segment.len()))
            .sum()
    }

    /// Bytes that are left.
    pub(super) fn left(&self) -> u64 {
        Host::len(self.segments) - u64::from(self.at)
    }

    /// Hands out the next `len` bytes in pieces, each with where it begins among them.
    ///
    /// # Panics
    /// If there are fewer.
    pub(super) fn advance(&mut self, len: u32, mut each: impl FnMut(u32, Segment<'v>)) {
        let mut done = 0;
        while done < len {
            let segment = self
                .segments
                .first()
                .expect("the caller has seen its length");
            let part = (segment.len() - self.at).min(len - done);
            each(done, segment.part(self.at, part));
            done += part;
            self.at += part;
            if self.at == segment.len() {
                self.segments = &self.segments[1..];
                self.at = 0;
            }
        }
    }
}

impl Host<'_, '_> {
    /// The next bytes, which there are.
    pub(super) fn take(&mut self, bytes: &mut [u8]) {
        self.advance(len_of(bytes), |at, segment| {
            let at = at as usize;
            segment.read_into(0, &mut bytes[at..at + segment.len() as usize]);
        });
    }

    /// Passes over `len` bytes, which there are.
    pub(super) fn skip(&mut self, len: u32) {
        self.advance(len, |_, _| {});
    }
}

impl Source for Host<'_, '_> {
    fn take_into(&mut self, store: &Store, at: u64, len: u32) {
        self.advance(len, |done, segment| {
            store.copy_from(at + u64::from(done), &segment);
        });
    }
}

impl Target for Host<'_, '_> {
    fn put_from(&mut self, store: &Store, at: u64, len: u32) {
        self.advance(len, |done, segment| {
            store.copy_to(at + u64::from(done), &segment);
        });
    }
}

impl Sink for Host<'_, '_> {
    fn put(&mut self, bytes: &[u8]) {
        self.advance(len_of(bytes), |at, segment| {
            let at = at as usize;
            segment.write_from(0, &bytes[at..at + segment.len() as usize]);
        });
    }
}

fn len_of(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("what a command moves fits 32 bits")
}
