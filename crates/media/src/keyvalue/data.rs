//! Transfer of bytes between a key-value medium and its hosts.

use memory::{Segment, Store};

/// Source of a value's bytes, in order. The caller has checked that there are enough.
pub(super) trait Source {
    /// Copies the next `len` bytes into the store at `at`.
    fn take_into(&mut self, store: &Store, at: u64, len: u32);

    /// Whether it only records the requests: the bytes come later, and the code that copies them
    /// writes the log.
    fn comes_later(&self) -> bool {
        false
    }
}

/// Target of a value's bytes, in order. The caller has checked that there is room.
pub(super) trait Target {
    /// Takes the next `len` bytes, from the store's byte `at` on.
    fn put_from(&mut self, store: &Store, at: u64, len: u32);
}

/// A target that also takes other bytes.
pub(super) trait Sink: Target {
    /// The next bytes.
    fn put(&mut self, bytes: &[u8]);
}

/// A command's memory in its host.
#[derive(Clone, Debug)]
pub(super) struct Host<'s, 'v> {
    segments: &'s [Segment<'v>],
    /// Consumed bytes of the first segment.
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

    /// Remaining bytes.
    pub(super) fn left(&self) -> u64 {
        Host::len(self.segments) - u64::from(self.at)
    }

    /// Passes the next `len` bytes to `each` in pieces, each with its offset among them.
    ///
    /// # Panics
    /// Fewer bytes remain.
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
    /// Copies the next bytes, which must exist.
    pub(super) fn take(&mut self, bytes: &mut [u8]) {
        self.advance(len_of(bytes), |at, segment| {
            let at = at as usize;
            segment.read_into(0, &mut bytes[at..at + segment.len() as usize]);
        });
    }

    /// Skips `len` bytes, which must exist.
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
