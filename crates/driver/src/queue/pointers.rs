//! Data pointers of commands, with the list memory of the queue pair's slots.

use memory::Buffer;
use nvme_spec::Sqe;
use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};
use nvme_spec::sqe::Psdt;

use super::QueuePair;
use crate::DriverError;
use crate::bus::Bus;
use crate::prp::{self, PrpError, Prps};

/// The bits of PSDT in a command's first word.
const PSDT_SHIFT: u32 = 14;
/// The words of a command that hold its data pointer.
const POINTER_WORDS: std::ops::Range<usize> = 3..5;

/// The data pointer of a command: PRPs, or one SGL data block where the bus needs the exact number
/// of bytes ([`Bus::is_over_fabrics`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataPointer {
    words: [u64; 2],
    psdt: Psdt,
}

impl From<Prps> for DataPointer {
    #[inline]
    fn from(Prps { prp1, prp2 }: Prps) -> Self {
        Self {
            words: [prp1, prp2],
            psdt: Psdt::PRP,
        }
    }
}

impl DataPointer {
    /// `len` bytes at an address of the device's. None at all need no pointer.
    pub(crate) fn block(address: u64, len: u32) -> Self {
        if len == 0 {
            return Self::default();
        }
        Self {
            words: SglDescriptor::new(SglDescriptorType::DATA_BLOCK, address, len).to_words(),
            psdt: Psdt::SGL_METADATA_BUFFER,
        }
    }

    /// Sets the data pointer of a command.
    #[inline]
    pub fn put(self, sqe: &mut Sqe) {
        [sqe.prp1, sqe.prp2] = self.words;
        sqe.flags.set_psdt(self.psdt);
    }

    /// Sets the data pointer of a command that has none, as eight little-endian words.
    #[inline]
    pub(crate) fn put_words(self, words: &mut [u64; 8]) {
        words[0] |= u64::from(self.psdt.0) << PSDT_SHIFT;
        words[POINTER_WORDS].copy_from_slice(&self.words);
    }
}

impl<B: Bus> QueuePair<B> {
    /// The data pointer for `len` bytes of `buffer` from `at` on, with the list
    /// memory of slot `cid`, which must not be in flight.
    ///
    /// # Errors
    /// [`DriverError::Unsupported`] for more bytes than a command may move, or
    /// an address that is not a multiple of four.
    ///
    /// # Panics
    /// When the range is not inside the buffer, or `cid` is no slot.
    pub fn pointer(
        &self,
        cid: u16,
        buffer: &Buffer,
        at: usize,
        len: usize,
    ) -> Result<DataPointer, DriverError> {
        assert!(cid < self.depth, "slot {cid} of {}", self.depth);
        let slot = self.memory.list_pages * nvme_spec::prp::PAGE_SIZE * u64::from(cid);
        let slot = usize::try_from(slot).expect("an offset in a buffer");
        let lists = self.memory.lists.as_ref().map(|lists| (lists, slot));
        self.pointer_in(lists, buffer, at, len)
    }

    /// As [`Self::pointer`], with the list at an offset of memory that the caller
    /// keeps: it has room for the command, and where it is shorter than a page,
    /// crosses the end of none.
    pub(crate) fn pointer_in(
        &self,
        list: Option<(&Buffer, usize)>,
        buffer: &Buffer,
        at: usize,
        len: usize,
    ) -> Result<DataPointer, DriverError> {
        assert!(
            at.checked_add(len).is_some_and(|end| end <= buffer.len()),
            "{len} bytes at {at} of a buffer of {}",
            buffer.len()
        );
        let wide = |value: usize| u64::try_from(value).expect("usize fits in 64 bits");
        if wide(len) > u64::from(self.transfer_len) {
            return Err(DriverError::Unsupported(format!(
                "a command of this queue transfers at most {} bytes, not {len}",
                self.transfer_len
            )));
        }
        let iova = self.iova(buffer).0 + wide(at);
        if self.bus.is_over_fabrics() {
            let len = u32::try_from(len).expect("at most what a command transfers");
            return Ok(DataPointer::block(iova, len));
        }
        let list_at = list.map_or(0, |(lists, at)| self.iova(lists).0 + wide(at));
        let put = |at: u64, entry: u64| {
            let (lists, slot) = list.expect("a queue without lists has no pages for them");
            let at = usize::try_from(at).expect("an offset in a buffer");
            lists.write_from(slot + at, &entry.to_le_bytes());
        };
        let prps = prp::build(iova, wide(len), list_at, self.memory.list_pages, put);
        prps.map(DataPointer::from).map_err(|error| {
            DriverError::Unsupported(match error {
                PrpError::Misaligned => format!("data at {iova:#x} is not aligned to four bytes"),
                PrpError::TooLong | PrpError::Wraps => {
                    unreachable!("the lists hold {} bytes of our memory", self.transfer_len)
                }
            })
        })
    }

    /// Data pointers for bytes in several pieces of the device's address space,
    /// with the list memory of slot `cid`, which must not be in flight: address
    /// and bytes of each, as [`prp::build_of_pieces`] takes them.
    ///
    /// # Errors
    /// [`PrpError`]: the pieces are not to be described so, or are more than a
    /// command may move.
    ///
    /// # Panics
    /// `cid` is no slot.
    #[inline]
    pub fn prps_of(
        &self,
        cid: u16,
        pieces: impl IntoIterator<Item = (u64, u64)>,
    ) -> Result<Prps, PrpError> {
        assert!(cid < self.depth, "slot {cid} of {}", self.depth);
        let memory = &self.memory;
        let slot = memory.list_pages * nvme_spec::prp::PAGE_SIZE * u64::from(cid);
        let list = memory.lists.as_ref().map(|lists| self.iova(lists).0 + slot);
        let put = |at: u64, entry: u64| {
            let lists = memory.lists.as_ref();
            let lists = lists.expect("a queue without lists has no pages for them");
            let at = usize::try_from(slot + at).expect("an offset in a buffer");
            lists.write_from(at, &entry.to_le_bytes());
        };
        prp::build_of_pieces(pieces, list.unwrap_or(0), memory.list_pages, put)
    }
}
