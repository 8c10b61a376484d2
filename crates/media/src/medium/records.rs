//! State of a medium in memory in addition to its bytes, or instead of them, as records: its zones,
//! or its keys and values.
//!
//! Records are read and written while no channel is open, in the format of the log that such a
//! medium has on a file.
//!
//! Not included: where the records are kept.

use std::io;

use super::{Backing, Medium};
use crate::journal::{RecordSink, StateError};

/// Maximum size of a record: the largest value, and its key.
pub const RECORD_MAX: usize = (2 << 20) + 512;

impl Medium {
    /// Shape of its records: media with the same numbers and size accept each other's. Consists of
    /// its kind, and the parameters of its zones, or its dialect and maximum number of keys.
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

    /// Passes all state other than the bytes of [`Medium::memory`] to `tell`; nothing while a
    /// channel is open.
    ///
    /// # Errors
    /// Those of `tell`.
    pub fn records(&self, tell: &mut RecordSink<'_>) -> io::Result<()> {
        match (&self.backing, &self.zoned) {
            (Backing::KeyValue(pairs), _) => pairs.records(tell),
            (_, Some(zones)) => zones.records(tell),
            (_, None) => Ok(()),
        }
    }

    /// Applies a record of a medium of the same shape; this one must be new, without open channels.
    ///
    /// # Errors
    /// The record does not fit such a medium.
    pub fn take_record(&self, kind: u8, record: &[u8]) -> Result<(), StateError> {
        match (&self.backing, &self.zoned) {
            (Backing::KeyValue(pairs), _) => pairs.take_record(kind, record),
            (_, Some(zones)) => zones.take_record(kind, record),
            (_, None) => Err(StateError::Damaged("it has records, and can have none")),
        }
    }

    /// Informs the timing model of the written parts of zones, after they changed without it.
    pub fn tell_zones(&self) {
        if let Some(zones) = &self.zoned {
            self.timing.tell_zones(zones);
        }
    }
}
