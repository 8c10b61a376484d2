//! File operations that a journal needs.

use std::io;

/// A file that no channel uses, with blocking calls.
pub(crate) trait Storage {
    /// Fills `bytes` from `offset` on.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Zeroes a range, and frees its space if possible.
    fn clear(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Reserves space for bytes to be written later, without changing their contents.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// The first byte in `offset..end` that may differ from zero; `None` if all are zero.
    fn find_data(&self, offset: u64, end: u64) -> io::Result<Option<u64>>;

    /// Makes all written data durable.
    fn sync(&self) -> io::Result<()>;
}
