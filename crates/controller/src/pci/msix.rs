//! BAR4: the MSI-X table and the pending bit array (PCI 3.0, 6.8.2).
//!
//! A vfio-user client keeps its own table and requests only the pending bits from us; our table is
//! memory that reads back what was written. It does not mask: a client represents a masked vector
//! as one without an eventfd. It outlives the process with the controller's state.

use super::{BAR4_SIZE, MSIX_PBA};

/// Bytes of a table entry: address, upper address, data, vector control.
const ENTRY: usize = 16;
/// Vector control: the mask bit is set at reset (PCI 3.0, 6.8.2.9).
const MASKED: u8 = 1;

/// The table and its pending bits.
#[derive(Clone, Debug)]
pub(crate) struct MsixTable {
    table: Box<[u8]>,
    pending: Box<[u8]>,
}

impl MsixTable {
    /// A table of `vectors` masked entries.
    pub(crate) fn new(vectors: u16) -> Self {
        let vectors = usize::from(vectors);
        let mut table = MsixTable {
            table: vec![0; vectors * ENTRY].into(),
            // Bits in units of 64 (PCI 3.0, 6.8.2.10).
            pending: vec![0; vectors.div_ceil(64) * 8].into(),
        };
        debug_assert!(table.table.len() <= MSIX_PBA as usize);
        debug_assert!(table.pending.len() as u64 <= BAR4_SIZE - u64::from(MSIX_PBA));
        table.reset();
        table
    }

    /// Back to power-on: every entry zero and masked, nothing pending.
    pub(crate) fn reset(&mut self) {
        self.pending.fill(0);
        self.table.fill(0);
        for entry in self.table.chunks_exact_mut(ENTRY) {
            entry[12] = MASKED;
        }
    }

    /// Reads; bytes outside the table and the pending bits read as zero.
    pub(crate) fn read(&self, offset: u64, out: &mut [u8]) {
        out.fill(0);
        for (at, byte) in (offset.min(BAR4_SIZE)..BAR4_SIZE).zip(out) {
            let pba = u64::from(MSIX_PBA);
            let (bytes, at) = if at < pba {
                (&self.table, at)
            } else {
                (&self.pending, at - pba)
            };
            *byte = bytes.get(at as usize).copied().unwrap_or(0);
        }
    }

    /// Writes to the table; the pending bits are read-only, and of vector control only the mask bit
    /// is kept.
    pub(crate) fn write(&mut self, offset: u64, data: &[u8]) {
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(self.table.len());
        for ((at, kept), &byte) in self.table.iter_mut().enumerate().skip(start).zip(data) {
            *kept = match at % ENTRY {
                0 => byte & !0b11,
                12 => byte & MASKED,
                13..ENTRY => 0,
                _ => byte,
            };
        }
    }

    /// The table, as another process or another server is to have it. Pending bits are not part of
    /// it: a restored controller raises its interrupts again.
    pub(crate) fn table(&self) -> &[u8] {
        &self.table
    }

    /// The table is as [`Self::table`] has given it; any bytes are taken.
    pub(crate) fn restore(&mut self, table: &[u8]) {
        self.write(0, table);
    }

    /// Notes whether `vector` waits to be delivered.
    pub(crate) fn set_pending(&mut self, vector: u16, pending: bool) {
        let bit = 1 << (vector % 8);
        if let Some(byte) = self.pending.get_mut(usize::from(vector / 8)) {
            *byte = if pending { *byte | bit } else { *byte & !bit };
        }
    }
}
