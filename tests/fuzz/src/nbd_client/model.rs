//! The bytes of an export as its clients must find them: a plain array.
//!
//! A byte is known when the last request that changes it has no other one beside it. A request is
//! in flight from its first byte to its reply, or until the controller of its client has left.

use std::ops::Range;

/// A request: the number of its client, and its cookie.
pub(super) type Id = (usize, u64);

/// Bytes of reads in flight that are compared; those beyond are only counted.
const LOOKS_MAX: usize = 4 << 20;

/// See the module.
pub(super) struct Model {
    bytes: Vec<u8>,
    known: Vec<bool>,
    changes: Vec<(Id, Range<usize>)>,
    looks: Vec<Look>,
    /// Clients of which any byte may come.
    wild: Vec<usize>,
}

/// A read in flight, and what it must find where that is known.
struct Look {
    id: Id,
    at: usize,
    bytes: Vec<u8>,
    known: Vec<bool>,
}

fn common(one: &Range<usize>, other: &Range<usize>) -> Option<Range<usize>> {
    let range = one.start.max(other.start)..one.end.min(other.end);
    (!range.is_empty()).then_some(range)
}

impl Model {
    /// Of `len` bytes, all 0.
    pub(super) fn new(len: usize) -> Self {
        Self {
            bytes: vec![0; len],
            known: vec![true; len],
            changes: Vec::new(),
            looks: Vec::new(),
            wild: Vec::new(),
        }
    }

    /// A request makes the bytes from `at` on these.
    pub(super) fn change(&mut self, id: Id, at: usize, bytes: &[u8]) {
        let range = at..at + bytes.len();
        self.bytes[range.clone()].copy_from_slice(bytes);
        self.known[range.clone()].fill(true);
        for (_, other) in &self.changes {
            if let Some(both) = common(other, &range) {
                self.known[both].fill(false);
            }
        }
        for look in &mut self.looks {
            look.forget(&range);
        }
        self.changes.push((id, range));
    }

    /// A request reads `len` bytes.
    pub(super) fn look(&mut self, id: Id, at: usize, len: usize) {
        let before: usize = self.looks.iter().map(|look| look.bytes.len()).sum();
        if before + len > LOOKS_MAX {
            return;
        }
        let mut look = Look {
            id,
            at,
            bytes: self.bytes[at..at + len].to_vec(),
            known: self.known[at..at + len].to_vec(),
        };
        for (_, range) in &self.changes {
            look.forget(range);
        }
        self.looks.push(look);
    }

    /// Some bytes of a read have come.
    ///
    /// # Panics
    /// They are not those that must be there.
    pub(super) fn found(&self, id: Id, at: usize, bytes: &[u8]) {
        let Some(look) = self.looks.iter().find(|look| look.id == id) else {
            return;
        };
        if !self.wild.is_empty() {
            return;
        }
        let range = at - look.at..at - look.at + bytes.len();
        let expected = look.bytes[range.clone()].iter().zip(&look.known[range]);
        for (place, (byte, (expected, is_known))) in bytes.iter().zip(expected).enumerate() {
            assert!(
                !is_known || byte == expected,
                "{byte} and not {expected} at {}",
                at + place
            );
        }
    }

    /// A request is answered.
    pub(super) fn over(&mut self, id: Id, has_failed: bool) {
        self.looks.retain(|look| look.id != id);
        let known = &mut self.known;
        self.changes.retain(|(other, range)| {
            if *other == id && has_failed {
                known[range.clone()].fill(false);
            }
            *other != id
        });
    }

    /// No command of a client is in flight any more: whatever was not answered may have been done.
    pub(super) fn left(&mut self, peer: usize) {
        self.looks.retain(|look| look.id.0 != peer);
        let ids: Vec<Id> = self.changes.iter().map(|(id, _)| *id).collect();
        for id in ids.into_iter().filter(|id| id.0 == peer) {
            self.over(id, true);
        }
        if self.wild.contains(&peer) {
            self.wild.retain(|other| *other != peer);
            self.forget();
        }
    }

    /// A client may change any byte until it has left.
    pub(super) fn set_wild(&mut self, peer: usize) {
        if !self.wild.contains(&peer) {
            self.wild.push(peer);
        }
    }

    /// Any byte may have been changed.
    fn forget(&mut self) {
        self.known.fill(false);
        let all = 0..self.bytes.len();
        self.looks.iter_mut().for_each(|look| look.forget(&all));
    }
}

impl Look {
    fn forget(&mut self, range: &Range<usize>) {
        let own = self.at..self.at + self.bytes.len();
        if let Some(both) = common(&own, range) {
            self.known[both.start - self.at..both.end - self.at].fill(false);
        }
    }
}
