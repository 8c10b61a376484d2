//! Completions of a lane without an interrupt yet.
//!
//! It does NOT decide whether there is one: [`super::Lane::host_polls`] and the controller do.

use super::message::Posted;

#[derive(Debug)]
pub(super) struct Unannounced {
    /// The interrupt vector, where interrupts are enabled.
    vector: Option<u16>,
    /// Entries posted since the last [`Unannounced::take`].
    entries: u32,
    /// One of them reports an error.
    failed: bool,
}

impl Unannounced {
    pub(super) fn new(vector: Option<u16>) -> Self {
        Unannounced {
            vector,
            entries: 0,
            failed: false,
        }
    }

    /// The interrupt vector, where interrupts are enabled.
    #[inline]
    pub(super) fn vector(&self) -> Option<u16> {
        self.vector
    }

    /// So many entries were posted.
    #[inline]
    pub(super) fn add(&mut self, entries: u32) {
        self.entries += entries;
    }

    /// One of those reports an error.
    #[inline]
    pub(super) fn note_failure(&mut self) {
        self.failed = true;
    }

    /// Returns what was taken.
    #[inline]
    pub(super) fn put_back(&mut self, posted: Posted) {
        self.entries += posted.entries;
        self.failed |= posted.failed;
    }

    /// Whether there is any.
    #[inline]
    pub(super) fn is_any(&self) -> bool {
        self.entries > 0
    }

    /// Takes all of them, of which there are some. `None` if interrupts are not enabled.
    #[inline]
    pub(super) fn take(&mut self) -> Option<Posted> {
        let entries = std::mem::take(&mut self.entries);
        let failed = std::mem::take(&mut self.failed);
        Some(Posted {
            vector: self.vector?,
            entries,
            failed,
        })
    }
}
