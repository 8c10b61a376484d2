//! What a journal needs of the file that it lies in.

use std::io;

/// A file while nobody has a channel of it: calls that wait.
pub(crate) trait Storage {
    /// Fills `bytes` from `offset` on.
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()>;

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Makes bytes read as zero, and gives their space back where that can be.
    fn clear(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Takes space for bytes that are to be written later, and leaves them as they are.
    fn allocate(&self, offset: u64, len: u64) -> io::Result<()>;

    /// The first byte from `offset` on, and before `end`, that may be something else than zero;
    /// `None` where all are.
    fn find_data(&self, offset: u64, end: u64) -> io::Result<Option<u64>>;

    /// All that was written is on stable storage.
    fn sync(&self) -> io::Result<()>;
}
