//! Requests of virtio-blk (VIRTIO 1.3, 5.2.6), and how their bytes are divided into segments.

/// Bytes of a sector.
pub const SECTOR: usize = 512;

const IN: u32 = 0;
const OUT: u32 = 1;
const FLUSH: u32 = 4;
const GET_ID: u32 = 8;
const DISCARD: u32 = 11;
const WRITE_ZEROES: u32 = 13;
/// Bytes of a serial number.
pub(crate) const ID_LEN: usize = 20;
pub(crate) const HEADER_LEN: usize = 16;
const UNMAP: u32 = 1;

/// A range of Discard or Write Zeroes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    /// First sector.
    pub sector: u64,
    /// Sectors.
    pub count: u32,
    /// Whether Write Zeroes may deallocate; a fault in a Discard.
    pub may_unmap: bool,
}

/// A request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Reads `len` bytes.
    Read {
        /// First sector.
        sector: u64,
        /// Bytes.
        len: usize,
    },
    /// Writes bytes.
    Write {
        /// First sector.
        sector: u64,
        /// The bytes.
        data: Vec<u8>,
    },
    /// Makes completed writes persistent.
    Flush,
    /// Deallocates.
    Discard(Vec<Range>),
    /// Writes zeroes.
    WriteZeroes(Vec<Range>),
    /// Reads the serial number.
    GetId,
    /// Any type and lengths.
    Other {
        /// Type.
        kind: u32,
        /// The header's sector.
        sector: u64,
        /// Bytes behind the header that the device reads.
        out: Vec<u8>,
        /// Bytes before the status that the device may write.
        in_len: usize,
    },
}

impl Request {
    /// The bytes that the device reads: header and data.
    #[must_use]
    pub fn readable(&self) -> Vec<u8> {
        let (kind, sector, out) = match self {
            Request::Read { sector, .. } => (IN, *sector, Vec::new()),
            Request::Write { sector, data } => (OUT, *sector, data.clone()),
            Request::Flush => (FLUSH, 0, Vec::new()),
            Request::Discard(ranges) => (DISCARD, 0, encode(ranges)),
            Request::WriteZeroes(ranges) => (WRITE_ZEROES, 0, encode(ranges)),
            Request::GetId => (GET_ID, 0, Vec::new()),
            Request::Other {
                kind, sector, out, ..
            } => (*kind, *sector, out.clone()),
        };
        let mut bytes = header(kind, sector).to_vec();
        bytes.extend_from_slice(&out);
        bytes
    }

    /// Bytes that the device may write before the status.
    #[must_use]
    pub fn in_len(&self) -> usize {
        match self {
            Request::Read { len, .. } => *len,
            Request::GetId => ID_LEN,
            Request::Other { in_len, .. } => *in_len,
            _ => 0,
        }
    }
}

/// The header of a read or write.
pub(crate) fn transfer_header(is_write: bool, sector: u64) -> [u8; HEADER_LEN] {
    header(if is_write { OUT } else { IN }, sector)
}

fn header(kind: u32, sector: u64) -> [u8; HEADER_LEN] {
    let mut bytes = [0; HEADER_LEN];
    bytes[..4].copy_from_slice(&kind.to_le_bytes());
    bytes[8..].copy_from_slice(&sector.to_le_bytes());
    bytes
}

fn encode(ranges: &[Range]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(ranges.len() * 16);
    for range in ranges {
        bytes.extend_from_slice(&range.sector.to_le_bytes());
        bytes.extend_from_slice(&range.count.to_le_bytes());
        let flags = if range.may_unmap { UNMAP } else { 0 };
        bytes.extend_from_slice(&flags.to_le_bytes());
    }
    bytes
}

/// How a request's bytes are divided into segments. The device reads header and data as one
/// stream, and writes data and status as another (2.7.4.1: it relies on no division of them).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layout {
    /// Lengths of the first segments that the device reads; one more holds the rest.
    pub readable: Vec<usize>,
    /// The same for those that it writes.
    pub writable: Vec<usize>,
    /// Bytes by which each segment is off its alignment to 64 bytes.
    pub skew: usize,
    /// One indirect descriptor for all segments.
    pub is_indirect: bool,
}

impl Layout {
    /// Header, data and status in a segment each, as Linux does it.
    #[must_use]
    pub fn plain(request: &Request) -> Self {
        Self {
            readable: vec![HEADER_LEN],
            writable: vec![request.in_len()],
            ..Self::default()
        }
    }

    /// One segment with the header and data that the device reads, one with data and the status.
    #[must_use]
    pub fn merged() -> Self {
        Self::default()
    }

    /// Data in segments of at most `len` bytes, the header in two, the status alone.
    #[must_use]
    pub fn pieces(request: &Request, len: usize, skew: usize) -> Self {
        let cut = |whole: usize| {
            let mut pieces = vec![len.max(1); whole / len.max(1)];
            pieces.push(whole % len.max(1));
            pieces
        };
        let mut readable = vec![5, HEADER_LEN - 5];
        readable.extend(cut(request.readable().len() - HEADER_LEN));
        Self {
            readable,
            writable: cut(request.in_len()),
            skew,
            is_indirect: false,
        }
    }

    /// The same in an indirect table, or without one.
    #[must_use]
    pub fn indirect(mut self, is_indirect: bool) -> Self {
        self.is_indirect = is_indirect;
        self
    }
}

/// Lengths of the segments of `whole` bytes.
pub(crate) fn divide(whole: usize, cuts: &[usize]) -> Vec<usize> {
    let mut rest = whole;
    let mut pieces = Vec::with_capacity(cuts.len() + 1);
    for cut in cuts {
        let piece = rest.min(*cut);
        if piece > 0 {
            pieces.push(piece);
        }
        rest -= piece;
    }
    if rest > 0 {
        pieces.push(rest);
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_the_specifications_bytes() {
        let write = Request::Write {
            sector: 0x0102_0304_0506_0708,
            data: vec![9; 2],
        };
        let expected = [1, 0, 0, 0, 0, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1, 9, 9];
        assert_eq!(write.readable(), expected);
        let zeroes = Request::WriteZeroes(vec![Range {
            sector: 5,
            count: 6,
            may_unmap: true,
        }]);
        let mut expected = vec![0; 32];
        (expected[0], expected[16], expected[24], expected[28]) = (13, 5, 6, 1);
        assert_eq!(zeroes.readable(), expected);
        assert_eq!(Request::GetId.in_len(), 20);
    }

    #[test]
    fn segments_hold_all_bytes() {
        assert_eq!(divide(17, &[16]), [16, 1]);
        assert_eq!(divide(1, &[0]), [1]);
        assert_eq!(divide(10, &[4, 0, 40, 3]), [4, 6]);
        assert!(divide(0, &[4]).is_empty());
        let read = Request::Read { sector: 0, len: 9 };
        let layout = Layout::pieces(&read, 4, 0);
        assert_eq!(divide(10, &layout.writable), [4, 4, 1, 1]);
        assert_eq!(divide(16, &layout.readable), [5, 11]);
    }
}
