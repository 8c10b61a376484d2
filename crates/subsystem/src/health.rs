//! What a controller has counted over its life, as it is kept over a restart of the program.

use serde::{Deserialize, Serialize};

/// The counters of a controller, as they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HealthRecord {
    /// Bytes read by hosts.
    pub bytes_read: u64,
    /// Bytes written by hosts.
    pub bytes_written: u64,
    /// Host Read Commands.
    pub read_commands: u64,
    /// Host Write Commands.
    pub write_commands: u64,
    /// Media and Data Integrity Errors.
    pub media_errors: u64,
    /// Nanoseconds during which commands were in flight.
    pub busy_ns: u64,
    /// Nanoseconds during which it was served.
    pub powered_ns: u64,
    /// Power Cycles.
    pub power_cycles: u64,
    /// Unsafe Shutdowns.
    pub unsafe_shutdowns: u64,
    /// Entries of the error log, ever: the next one's count is one more.
    pub error_log_entries: u64,
    /// A host had it enabled and had not shut it down.
    pub in_use: bool,
}

impl HealthRecord {
    /// Adds what commands of another controller moved, and the media errors that they met.
    pub fn add_moved(&mut self, other: &HealthRecord) {
        self.bytes_read += other.bytes_read;
        self.bytes_written += other.bytes_written;
        self.read_commands += other.read_commands;
        self.write_commands += other.write_commands;
        self.media_errors += other.media_errors;
    }

    /// Its counters, in the order in which they move to another server.
    pub fn counters(&mut self) -> [&mut u64; 10] {
        let HealthRecord {
            bytes_read,
            bytes_written,
            read_commands,
            write_commands,
            media_errors,
            busy_ns,
            powered_ns,
            power_cycles,
            unsafe_shutdowns,
            error_log_entries,
            in_use: _,
        } = self;
        [
            bytes_read,
            bytes_written,
            read_commands,
            write_commands,
            media_errors,
            busy_ns,
            powered_ns,
            power_cycles,
            unsafe_shutdowns,
            error_log_entries,
        ]
    }

    /// A process takes over: that is a power cycle, and an unsafe shutdown where a host was there.
    pub fn powered_on(&self) -> Self {
        HealthRecord {
            power_cycles: self.power_cycles + 1,
            unsafe_shutdowns: self.unsafe_shutdowns + u64::from(self.in_use),
            in_use: false,
            ..*self
        }
    }
}
