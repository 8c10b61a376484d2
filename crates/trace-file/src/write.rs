//! Encoding of blocks. The caller writes each to the file as a whole.

use crate::{BLOCK_RECORDS, End, FRAME_LEN, Header, MAGIC, RAW_MAX, Record, VERSION, columns};

/// Encodes blocks, in memory that it reuses.
#[derive(Debug, Default)]
pub struct Encoder {
    raw: Vec<u8>,
    block: Vec<u8>,
}

/// Kind of a block.
pub(crate) const HEADER: u8 = 1;
pub(crate) const RECORDS: u8 = 2;
pub(crate) const END: u8 = 3;
/// Packing of a block.
pub(crate) const PLAIN: u8 = 0;
pub(crate) const LZ4: u8 = 1;

impl Encoder {
    /// The beginning of a file.
    pub fn header(&mut self, header: &Header) -> &[u8] {
        let text = serde_json::to_vec(header).unwrap_or_default();
        self.frame(HEADER, PLAIN, 0, 0, |raw, out| {
            *raw = text;
            out.extend_from_slice(raw);
        });
        let mut start = MAGIC.to_vec();
        start.extend(VERSION.to_le_bytes());
        self.block.splice(..0, start);
        &self.block
    }

    /// A block of records, preceded by `lost` lost commands.
    ///
    /// # Panics
    /// There are more than [`BLOCK_RECORDS`].
    pub fn records(&mut self, records: &[Record], lost: u64) -> &[u8] {
        assert!(records.len() <= BLOCK_RECORDS, "too many for a block");
        let count = records.len() as u32;
        self.frame(RECORDS, LZ4, count, lost, |raw, out| {
            columns::pack(records, raw);
            let at = out.len();
            out.resize(at + lz4_flex::block::get_maximum_output_size(raw.len()), 0);
            let len = lz4_flex::block::compress_into(raw, &mut out[at..]);
            out.truncate(at + len.expect("there is room for what cannot be packed"));
        });
        &self.block
    }

    /// The end of a file, preceded by `lost` lost commands.
    pub fn end(&mut self, end: &End, lost: u64) -> &[u8] {
        let text = serde_json::to_vec(end).unwrap_or_default();
        self.frame(END, PLAIN, 0, lost, |raw, out| {
            *raw = text;
            out.extend_from_slice(raw);
        });
        &self.block
    }

    fn frame(
        &mut self,
        kind: u8,
        packing: u8,
        count: u32,
        lost: u64,
        payload: impl FnOnce(&mut Vec<u8>, &mut Vec<u8>),
    ) {
        let Encoder { raw, block } = self;
        raw.clear();
        block.clear();
        block.resize(FRAME_LEN, 0);
        payload(raw, block);
        assert!(raw.len() <= RAW_MAX, "a record has 128 bytes at most");
        let len = (block.len() - FRAME_LEN) as u32;
        block[0] = kind;
        block[1] = packing;
        block[4..8].copy_from_slice(&count.to_le_bytes());
        block[8..12].copy_from_slice(&(raw.len() as u32).to_le_bytes());
        block[12..16].copy_from_slice(&len.to_le_bytes());
        block[16..24].copy_from_slice(&lost.to_le_bytes());
        let sum = crc32c::crc32c(&block[..24]);
        let sum = crc32c::crc32c_append(sum, &block[FRAME_LEN..]);
        block[24..28].copy_from_slice(&sum.to_le_bytes());
    }
}
