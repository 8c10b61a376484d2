//! What a medium in memory has beside bytes, or instead of them, as records: its zones, or its keys
//! and values.
//!
//! They are asked for and taken while no channel is open, and are those of the log that such a
//! medium has on a file.
//!
//! It does NOT say where they are kept.

use std::io;

use super::{Backing, Medium};
use crate::journal::{RecordSink, StateError};

/// Bytes of a record at most: the largest value, and its key.
pub const RECORD_MAX: usize = (2 << 20) + 512;

impl Medium {
    /// What its records are of: two media with the same numbers, and of the same size, take each
    /// other's. Its kind, and what its zones are, or what its hosts speak and how many keys there
    /// may be.
    #[must_use]
    pub fn record_shape(&self) -> [u64; 4] {
        match (&self.backing, &self.zoned) {
            (Backing::KeyValue(pairs), _) => {
                let [dialect, keys] = pairs.record_shape();
                [2, dialect, keys, 0]
            }
            (_, Some(zones)) => {
                let [zone, capacity, extension] = zones.record_shape();
                [1, zone, capacity, extension]
            }
            (_, None) => [0; 4],
        }
    }

    /// Tells everything that it has beside the bytes of [`Medium::memory`]; nothing while a channel
    /// is open.
    ///
    /// # Errors
    /// That of whoever is told.
    pub fn records(&self, tell: &mut RecordSink<'_>) -> io::Result<()> {
        match (&self.backing, &self.zoned) {
            (Backing::KeyValue(pairs), _) => pairs.records(tell),
            (_, Some(zones)) => zones.records(tell),
            (_, None) => Ok(()),
        }
    }

    /// Takes a record of a medium of the same shape; this one is new, and no channel is open.
    ///
    /// # Errors
    /// It is not the record of such a medium.
    pub fn take_record(&self, kind: u8, record: &[u8]) -> Result<(), StateError> {
        match (&self.backing, &self.zoned) {
            (Backing::KeyValue(pairs), _) => pairs.take_record(kind, record),
            (_, Some(zones)) => zones.take_record(kind, record),
            (_, None) => Err(StateError::Damaged("it has records, and can have none")),
        }
    }

    /// Tells the drive whose time it has what is written of its zones, after they have changed
    /// without it.
    pub fn tell_zones(&self) {
        if let Some(zones) = &self.zoned {
            self.timing.tell_zones(zones);
        }
    }
}
