//! Reading of a file, block by block; any contents are handled.

use std::io::{self, Read};

use crate::{
    BLOCK_RECORDS, End, FRAME_LEN, Header, MAGIC, PACKED_MAX, RAW_MAX, Record, START_LEN, VERSION,
    columns, write,
};

/// Error of a trace file.
#[derive(Debug, thiserror::Error)]
pub enum TraceError {
    /// The file is not a trace.
    #[error(
        "this is no trace: one begins with the eight bytes NVMTRACE, as `nvmirage trace start` writes them"
    )]
    NoTrace,
    /// The file has another version.
    #[error(
        "the trace has version {0} of the format, and this program reads versions up to {VERSION}: use the nvmirage that wrote it, or a newer one"
    )]
    Version(u32),
    /// The file ends within its header.
    #[error("the trace ends within its header: its writer was stopped before it had begun")]
    NoHeader,
    /// The contents differ from what was written.
    #[error("the trace is damaged at byte {at}: {why}; what stands before that is whole")]
    Damaged {
        /// Position of the block.
        at: u64,
        /// The damage.
        why: &'static str,
    },
    /// The file cannot be read.
    #[error("the trace cannot be read: {0}")]
    Io(#[from] io::Error),
}

/// End of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tail {
    /// The file was completed.
    Ended(End),
    /// The writer was stopped: this many bytes after the last complete block are useless.
    CutOff(u64),
}

/// Reads a file.
#[derive(Debug)]
pub struct Reader<R> {
    file: R,
    version: u32,
    header: Header,
    /// Total size of the blocks read so far.
    at: u64,
    lost: u64,
    read: u64,
    tail: Option<Tail>,
    packed: Vec<u8>,
    raw: Vec<u8>,
}

/// Contents of a block's frame.
#[derive(Clone, Copy)]
struct Frame {
    kind: u8,
    packing: u8,
    count: usize,
    raw_len: usize,
    lost: u64,
}

impl<R: Read> Reader<R> {
    /// Reads the beginning of a file.
    ///
    /// # Errors
    /// The file is not a trace, of another version, or damaged; it cannot be read.
    pub fn new(mut file: R) -> Result<Self, TraceError> {
        let mut start = [0; START_LEN];
        let len = fill(&mut file, &mut start)?;
        let known = len.min(MAGIC.len());
        if start[..known] != MAGIC[..known] || len == 0 {
            return Err(TraceError::NoTrace);
        }
        if len < START_LEN {
            return Err(TraceError::NoHeader);
        }
        let version = u32::from_le_bytes([start[8], start[9], start[10], start[11]]);
        if !(1..=VERSION).contains(&version) {
            return Err(TraceError::Version(version));
        }
        let mut reader = Reader {
            file,
            version,
            header: Header::default(),
            at: START_LEN as u64,
            lost: 0,
            read: 0,
            tail: None,
            packed: Vec::new(),
            raw: Vec::new(),
        };
        let Some(frame) = reader.block()? else {
            return Err(TraceError::NoHeader);
        };
        let at = START_LEN as u64;
        if frame.kind != write::HEADER {
            let why = "its first block is no header";
            return Err(TraceError::Damaged { at, why });
        }
        let header = serde_json::from_slice(&reader.raw);
        reader.header = header.map_err(|_| TraceError::Damaged {
            at,
            why: "its header is not understood",
        })?;
        Ok(reader)
    }

    /// Description of the recording.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Commands lost before the current position.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// End of the file; `None` before it was reached.
    #[must_use]
    pub fn tail(&self) -> Option<&Tail> {
        self.tail.as_ref()
    }

    /// Appends the records of the next block to `records`. Returns false at the end.
    ///
    /// # Errors
    /// The block is damaged, or cannot be read.
    pub fn next(&mut self, records: &mut Vec<Record>) -> Result<bool, TraceError> {
        if self.tail.is_some() {
            return Ok(false);
        }
        let at = self.at;
        let damaged = |why| TraceError::Damaged { at, why };
        let Some(frame) = self.block()? else {
            return Ok(false);
        };
        match frame.kind {
            write::RECORDS => {
                let before = records.len();
                if columns::unpack(&self.raw, self.version, frame.count, records).is_none() {
                    records.truncate(before);
                    return Err(damaged("its records are not understood"));
                }
                self.lost = self.lost.saturating_add(frame.lost);
                self.read += frame.count as u64;
                Ok(true)
            }
            write::END => {
                let end: End = serde_json::from_slice(&self.raw)
                    .map_err(|_| damaged("its end is not understood"))?;
                self.lost = self.lost.saturating_add(frame.lost);
                if fill(&mut self.file, &mut [0])? > 0 {
                    return Err(damaged("something stands behind its end"));
                }
                if end.commands != self.read {
                    return Err(damaged("it has not as many records as its end says"));
                }
                self.tail = Some(Tail::Ended(end));
                Ok(false)
            }
            _ => Err(damaged("it has a block of a kind that is not known")),
        }
    }

    /// Reads the whole rest at once.
    ///
    /// # Errors
    /// Those of [`Reader::next`].
    pub fn rest(&mut self) -> Result<Vec<Record>, TraceError> {
        let mut records = Vec::new();
        while self.next(&mut records)? {}
        Ok(records)
    }

    /// Reads a block into `raw`; `None` if the file ends within it, which is recorded.
    fn block(&mut self) -> Result<Option<Frame>, TraceError> {
        let at = self.at;
        let damaged = |why| TraceError::Damaged { at, why };
        let mut head = [0; FRAME_LEN];
        let len = fill(&mut self.file, &mut head)?;
        if len < FRAME_LEN {
            self.tail = Some(Tail::CutOff(len as u64));
            return Ok(None);
        }
        let word = |from: usize| {
            u32::from_le_bytes([head[from], head[from + 1], head[from + 2], head[from + 3]])
        };
        let (raw_len, packed_len) = (word(8) as usize, word(12) as usize);
        let frame = Frame {
            kind: head[0],
            packing: head[1],
            count: word(4) as usize,
            raw_len,
            lost: u64::from(word(16)) | u64::from(word(20)) << 32,
        };
        if raw_len > RAW_MAX || packed_len > PACKED_MAX || frame.count > BLOCK_RECORDS {
            return Err(damaged("a block says that it is larger than blocks are"));
        }
        self.packed.resize(packed_len, 0);
        let len = fill(&mut self.file, &mut self.packed)?;
        if len < packed_len {
            self.tail = Some(Tail::CutOff((FRAME_LEN + len) as u64));
            return Ok(None);
        }
        let sum = crc32c::crc32c_append(crc32c::crc32c(&head[..24]), &self.packed);
        if sum != word(24) {
            return Err(damaged("the checksum of a block is another one"));
        }
        self.unpack(frame).map_err(damaged)?;
        self.at += (FRAME_LEN + packed_len) as u64;
        Ok(Some(frame))
    }

    fn unpack(&mut self, frame: Frame) -> Result<(), &'static str> {
        let why = "a block cannot be unpacked";
        self.raw.resize(frame.raw_len, 0);
        match frame.packing {
            write::PLAIN if self.packed.len() == frame.raw_len => {
                self.raw.copy_from_slice(&self.packed);
                Ok(())
            }
            write::LZ4 => {
                let len = lz4_flex::block::decompress_into(&self.packed, &mut self.raw);
                match len {
                    Ok(len) if len == frame.raw_len => Ok(()),
                    _ => Err(why),
                }
            }
            _ => Err(why),
        }
    }
}

/// Reads until `bytes` are full or the input ends; returns the number of bytes.
fn fill(file: &mut impl Read, bytes: &mut [u8]) -> io::Result<usize> {
    let mut len = 0;
    while len < bytes.len() {
        match file.read(&mut bytes[len..]) {
            Ok(0) => break,
            Ok(more) => len += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(len)
}
