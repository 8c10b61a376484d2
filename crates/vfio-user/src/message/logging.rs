//! `DEVICE_FEATURE` with DMA_LOGGING_START, DMA_LOGGING_STOP and DMA_LOGGING_REPORT: which pages of
//! the client's memory a device has written.
//!
//! The data of a START are [`LoggingControl`] and its ranges; those of a REPORT [`LoggingReport`],
//! in the reply with a bitmap behind it: little-endian words of 64 bits, a bit for each page.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::plain_body;

/// Data of DMA_LOGGING_START, before the ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LoggingControl {
    /// Bytes of a page: in the request as wanted, in the reply as it is.
    pub page_size: u64,
    /// Number of ranges; 0: all writes are logged.
    pub num_ranges: u32,
    /// 0.
    pub reserved: u32,
}
plain_body!(LoggingControl, 16);

/// A range of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LoggingRange {
    /// The first address.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
}
plain_body!(LoggingRange, 16);

/// Data of DMA_LOGGING_REPORT, before the bitmap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct LoggingReport {
    /// The first address.
    pub iova: u64,
    /// Bytes.
    pub length: u64,
    /// Bytes for each bit.
    pub page_size: u64,
}
plain_body!(LoggingReport, 24);
