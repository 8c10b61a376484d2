//! Firmware times, in addition to those of dies and links.

use crate::parameters::FlashParameters;
use crate::units::PAGE;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Costs {
    read_4k: u64,
    read: u64,
    buffer_base: u64,
    buffer_per_page: u64,
    early_completion: bool,
    /// Time of a Deallocate.
    pub(crate) deallocate: u64,
}

impl Costs {
    pub(crate) fn new(parameters: &FlashParameters) -> Self {
        Self {
            read_4k: parameters.firmware_read_4k_ns,
            read: parameters.firmware_read_ns,
            buffer_base: parameters.buffer_base_ns,
            buffer_per_page: parameters.buffer_per_page_ns,
            early_completion: parameters.early_completion,
            deallocate: parameters.deallocate_ns,
        }
    }

    /// From the arrival of a read to its senses. A small read has up to `small` bytes.
    pub(crate) fn before_read(&self, len: u32, small: u64) -> u64 {
        if u64::from(len) <= small {
            self.read_4k
        } else {
            self.read
        }
    }

    /// From the arrival of a write to the transfer of its data.
    pub(crate) fn before_write(&self, len: u32) -> u64 {
        u64::from(len)
            .div_ceil(PAGE)
            .saturating_mul(self.buffer_per_page)
            .saturating_add(self.buffer_base)
    }

    /// Completion time of a write whose data was `fetched`, and whose last filled wordline was
    /// `programmed`, at these times.
    pub(crate) fn write_done(&self, fua: bool, fetched: u64, programmed: u64) -> u64 {
        if self.waits_for_programs(fua) {
            programmed.max(fetched)
        } else {
            fetched
        }
    }

    /// Whether a write completes only when the wordlines that it filled are programmed.
    pub(crate) fn waits_for_programs(&self, fua: bool) -> bool {
        fua || !self.early_completion
    }
}
