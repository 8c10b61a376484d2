//! What stands in a file: the blocks that were written, and what an input makes of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;

use arbitrary::Arbitrary;

/// Frames and superblocks begin at multiples of this.
pub(crate) const BLOCK: u64 = 4096;
/// Bytes in front of the records of a frame.
pub(crate) const FRAME_HEAD: usize = 32;

/// A superblock: that of a new file, and what is other in it.
#[derive(Arbitrary, Debug)]
pub(crate) struct Super {
    /// Otherwise nothing is there.
    is_there: bool,
    bad_crc: bool,
    start: u8,
    /// Blocks from the start on.
    known: u8,
    incarnation: u8,
    sequence: u8,
    /// A word of it, and its value.
    other: Option<(u8, u64)>,
}

/// A frame.
#[derive(Arbitrary, Debug)]
pub(crate) struct Frame {
    /// The block of the ring that it stands at; else it is behind the one before.
    at: Option<u8>,
    bad_crc: bool,
    /// Of another log, or another position.
    other: Option<(bool, u64)>,
    incarnation: u8,
    /// Its length as it says, where that is another one.
    len: Option<u32>,
    records: Vec<Record>,
}

#[derive(Arbitrary, Debug)]
enum Record {
    /// Number, state, flags, bytes written and reached in units of 512.
    Zone(u8, u8, u8, u8, u8),
    Extension(u8, u8),
    Pair(u8, u8, Vec<u8>),
    Any(u8, Option<u32>, Vec<u8>),
}

impl Record {
    fn put(&self, to: &mut Vec<u8>) {
        let (kind, len, bytes) = match self {
            Record::Zone(zone, state, flags, written, reached) => {
                let mut bytes = vec![zone % 5, 0, 0, 0];
                let states = [1, 4, 0xe, 0xd, 0xf, *state];
                bytes.extend([states[usize::from(*state) % 6], flags % 5, 0, 0]);
                for blocks in [written, reached] {
                    bytes.extend((u64::from(*blocks) % 100 * 512).to_le_bytes());
                }
                (1, None, bytes)
            }
            Record::Extension(zone, byte) => {
                let mut bytes = vec![zone % 5, 0, 0, 0];
                bytes.extend([*byte; super::EXTENSION]);
                (2, None, bytes)
            }
            Record::Pair(kind, key, value) => {
                let mut bytes = vec![1 + key % 40];
                bytes.extend(vec![b'a' + key % 3; usize::from(1 + key % 40)]);
                bytes.extend(value);
                (1 + kind % 4, None, bytes)
            }
            Record::Any(kind, len, bytes) => (*kind, *len, bytes.clone()),
        };
        let len = len.map_or(bytes.len(), |len| len as usize & 0xFF_FFFF);
        to.extend((u32::from(kind) << 24 | len as u32).to_le_bytes());
        to.extend(bytes);
    }
}

/// A file: its length, and its blocks that are not zeros.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    pub(crate) len: u64,
    blocks: BTreeMap<u64, Vec<u8>>,
}

impl Image {
    /// Of a file that was just made: its superblocks are all there is.
    pub(crate) fn read(file: &File) -> Image {
        let len = file.metadata().unwrap().len();
        let mut image = Image {
            len,
            blocks: BTreeMap::new(),
        };
        for at in [len - 2 * BLOCK, len - BLOCK] {
            let mut block = vec![0; BLOCK as usize];
            file.read_exact_at(&mut block, at).unwrap();
            image.put(at, &block);
        }
        image
    }

    fn put(&mut self, at: u64, bytes: &[u8]) {
        for (number, bytes) in (at / BLOCK..).zip(bytes.chunks(BLOCK as usize)) {
            let mut block = bytes.to_vec();
            block.resize(BLOCK as usize, 0);
            self.blocks.insert(number, block);
        }
    }

    /// So many bytes from here on, zeros where none were written.
    pub(crate) fn get(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len);
        let mut number = at / BLOCK;
        while bytes.len() < len {
            match self.blocks.get(&number) {
                Some(block) => bytes.extend(block),
                None => bytes.extend([0; BLOCK as usize]),
            }
            number += 1;
        }
        bytes.truncate(len);
        bytes
    }

    /// A number of eight bytes, or of four.
    pub(crate) fn word(bytes: &[u8], at: usize, len: usize) -> u64 {
        let mut word = [0; 8];
        word[..len].copy_from_slice(&bytes[at..at + len]);
        u64::from_le_bytes(word)
    }

    /// What the input makes of a new file.
    pub(crate) fn of(
        new: &Image,
        keys: bool,
        superblocks: &[Super; 2],
        frames: &[Frame],
        changes: &[(u8, u16, u8)],
    ) -> Image {
        let mut image = Image {
            len: new.len,
            blocks: BTreeMap::new(),
        };
        let one = new.get(new.len - 2 * BLOCK, BLOCK as usize);
        let (ring, ring_len) = (Self::word(&one, 48, 8), Self::word(&one, 56, 8));
        let log = Self::word(&one, 32, 8);
        let frame_len = Self::word(&one, 20, 4);
        // The log begins near the end of its ring, too.
        let place = |block: u8| match block {
            0..192 => u64::from(block) * BLOCK,
            _ => ring_len * u64::from(1 + block % 4) - frame_len + u64::from(block - 192) * BLOCK,
        };
        for (which, superblock) in (0..).zip(superblocks) {
            if superblock.is_there {
                let start = place(superblock.start);
                let bytes = superblock.bytes(&one, start);
                image.put(new.len - (2 - which) * BLOCK, &bytes);
            }
        }
        let mut position = place(superblocks[0].start);
        for frame in frames {
            position = frame.at.map_or(position, place);
            let bytes = frame.bytes(log, position, keys);
            if bytes.len() as u64 > frame_len {
                continue;
            }
            let at = position % ring_len;
            if at + bytes.len() as u64 <= ring_len {
                image.put(ring + at, &bytes);
            }
            position += (bytes.len() as u64).next_multiple_of(BLOCK);
            if ring_len - position % ring_len < frame_len {
                position = position.next_multiple_of(ring_len);
            }
        }
        let written: Vec<u64> = image.blocks.keys().copied().collect();
        for (block, at, byte) in changes.iter().filter(|_| !written.is_empty()) {
            let number = written[usize::from(*block) % written.len()];
            if let Some(block) = image.blocks.get_mut(&number) {
                block[usize::from(*at) % BLOCK as usize] ^= byte;
            }
        }
        image
    }

    /// Whether nothing was ever written.
    pub(crate) fn is_blank(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Makes a file this one.
    pub(crate) fn write(&self, file: &File) {
        file.set_len(0).unwrap();
        file.set_len(self.len).unwrap();
        for (number, block) in &self.blocks {
            file.write_all_at(block, number * BLOCK).unwrap();
        }
    }

    /// Whether a file is this one, and has no more than its blocks.
    pub(crate) fn is_in(&self, file: &File) -> bool {
        let status = file.metadata().unwrap();
        let used = std::os::unix::fs::MetadataExt::blocks(&status) * 512;
        let same = |(number, block): (&u64, &Vec<u8>)| {
            let mut found = vec![0; BLOCK as usize];
            file.read_exact_at(&mut found, number * BLOCK).unwrap();
            found == *block
        };
        status.len() == self.len
            && used == self.blocks.len() as u64 * BLOCK
            && self.blocks.iter().all(same)
    }
}

impl Super {
    fn bytes(&self, new: &[u8], start: u64) -> Vec<u8> {
        let mut bytes = new.to_vec();
        let mut put = |at: usize, word: &[u8]| bytes[at..at + word.len()].copy_from_slice(word);
        put(24, &u32::from(self.incarnation).to_le_bytes());
        put(40, &u64::from(self.sequence).to_le_bytes());
        put(64, &start.to_le_bytes());
        let known = start.wrapping_add(u64::from(self.known) * BLOCK);
        put(72, &known.to_le_bytes());
        if let Some((word, value)) = self.other {
            put(usize::from(word) % 16 * 8, &value.to_le_bytes());
        }
        put(12, &[0; 4]);
        let crc = crc(&[&bytes]) ^ u32::from(self.bad_crc);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }
}

impl Frame {
    fn bytes(&self, log: u64, position: u64, keys: bool) -> Vec<u8> {
        let mut records = Vec::new();
        for record in &self.records {
            // What belongs to the other kind would end every log at once.
            let is_other = match record {
                Record::Zone(..) | Record::Extension(..) => keys,
                Record::Pair(..) => !keys,
                Record::Any(..) => false,
            };
            if !is_other {
                record.put(&mut records);
            }
        }
        let (log, position) = match self.other {
            Some((true, log)) => (log, position),
            Some((false, position)) => (log, position),
            None => (log, position),
        };
        let mut head = 0x6d72_666e_u32.to_le_bytes().to_vec();
        head.extend([0; 4]);
        head.extend(log.to_le_bytes());
        head.extend(position.to_le_bytes());
        head.extend(u32::from(self.incarnation).to_le_bytes());
        let len = self.len.unwrap_or(records.len() as u32);
        head.extend(len.to_le_bytes());
        let crc = crc(&[&records, &head]) ^ u32::from(self.bad_crc);
        head[4..8].copy_from_slice(&crc.to_le_bytes());
        head.extend(records);
        head
    }
}

/// CRC-32C of all parts, one after another, bit by bit.
pub(crate) fn crc(parts: &[&[u8]]) -> u32 {
    let mut crc = !0_u32;
    for byte in parts.iter().flat_map(|part| part.iter()) {
        crc ^= u32::from(*byte);
        for _ in 0..8 {
            let bit = crc & 1;
            crc >>= 1;
            if bit == 1 {
                crc ^= 0x82F6_3B78;
            }
        }
    }
    !crc
}
