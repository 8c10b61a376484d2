//! Requests in bytes, as commands of whole blocks.
//!
//! A read covers every block that it touches. A write or a zeroing has at most one part of a block
//! at each end, and whole blocks between them. A trim leaves out the parts.

/// Bytes of a request for which there is no command yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rest {
    /// The next one, from the start of the export.
    pub(super) at: u64,
    /// The first one behind it.
    pub(super) end: u64,
}

/// Part of a request that one command, or one exchange of a block, does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    /// First block.
    pub(super) slba: u64,
    /// Number of blocks.
    pub(super) blocks: u64,
    /// Bytes of the first block before those of the request.
    pub(super) skip: u32,
    /// Bytes of the request.
    pub(super) len: u64,
}

impl Piece {
    /// Whether some bytes of its blocks are not the request's.
    pub(super) const fn is_part(&self, lba_shift: u8) -> bool {
        self.len != self.blocks << lba_shift
    }
}

impl Rest {
    pub(super) const fn new(at: u64, len: u64) -> Self {
        Self { at, end: at + len }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.at == self.end
    }

    /// The next piece of a read, whose blocks have at most `most` bytes: a multiple of a block.
    /// There are bytes left.
    pub(super) fn read(&mut self, lba_shift: u8, most: u64) -> Piece {
        let skip = self.skip(lba_shift);
        let len = (self.end - self.at).min(most - u64::from(skip));
        let blocks = (u64::from(skip) + len).div_ceil(1 << lba_shift);
        self.take(lba_shift, skip, len, blocks)
    }

    /// The next piece of a write: a part of one block, or whole blocks of at most `most` bytes.
    /// There are bytes left.
    pub(super) fn write(&mut self, lba_shift: u8, most: u64) -> Piece {
        let (skip, block) = (self.skip(lba_shift), 1 << lba_shift);
        let left = self.end - self.at;
        if skip > 0 || left < block {
            let len = left.min(block - u64::from(skip));
            return self.take(lba_shift, skip, len, 1);
        }
        let blocks = left.min(most) >> lba_shift;
        self.take(lba_shift, 0, blocks << lba_shift, blocks)
    }

    /// Leaves out the parts of blocks at both ends.
    pub(super) fn shrink(&mut self, lba_shift: u8) {
        let from = self.at.next_multiple_of(1 << lba_shift);
        let to = self.end >> lba_shift << lba_shift;
        (self.at, self.end) = if from < to {
            (from, to)
        } else {
            (self.at, self.at)
        };
    }

    /// All of it in one piece, of no blocks: for a command that has none.
    pub(super) fn all(&mut self) -> Piece {
        self.at = self.end;
        Piece {
            slba: 0,
            blocks: 0,
            skip: 0,
            len: 0,
        }
    }

    fn skip(&self, lba_shift: u8) -> u32 {
        (self.at & ((1 << lba_shift) - 1)) as u32
    }

    fn take(&mut self, lba_shift: u8, skip: u32, len: u64, blocks: u64) -> Piece {
        let slba = self.at >> lba_shift;
        self.at += len;
        Piece {
            slba,
            blocks,
            skip,
            len,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHIFTS: [u8; 2] = [9, 12];

    /// Every range of bytes near the start of an export, with pieces of 8 KiB.
    fn ranges() -> impl Iterator<Item = (u8, u64, u64)> {
        let ends = [0, 1, 511, 512, 513, 4095, 4096, 4097, 8192, 12288, 20001];
        let pairs = move |shift| {
            ends.into_iter()
                .flat_map(move |at| ends.into_iter().map(move |len| (shift, at, len)))
        };
        SHIFTS
            .into_iter()
            .flat_map(pairs)
            .filter(|(.., len)| *len > 0)
    }

    #[test]
    fn pieces_are_the_request_one_behind_the_other() {
        for (shift, at, len) in ranges() {
            for next in [Rest::read, Rest::write] {
                let mut rest = Rest::new(at, len);
                let mut expected = at;
                while !rest.is_empty() {
                    let piece = next(&mut rest, shift, 8192);
                    assert!(piece.len > 0 && piece.blocks << shift <= 8192);
                    let first = (piece.slba << shift) + u64::from(piece.skip);
                    assert_eq!(first, expected, "{shift} {at} {len}");
                    assert!(u64::from(piece.skip) + piece.len <= piece.blocks << shift);
                    expected += piece.len;
                }
                assert_eq!(expected, at + len);
            }
        }
    }

    #[test]
    fn only_one_block_is_written_in_part_at_each_end() {
        for (shift, at, len) in ranges() {
            let mut rest = Rest::new(at, len);
            let mut parts = 0;
            while !rest.is_empty() {
                let piece = rest.write(shift, 8192);
                if piece.is_part(shift) {
                    assert_eq!(piece.blocks, 1);
                    parts += 1;
                } else {
                    assert_eq!(piece.skip, 0);
                }
            }
            let block = 1 << shift;
            let (from, to) = (at % block != 0, (at + len) % block != 0);
            let same = at / block == (at + len) / block;
            let expected = if same {
                1
            } else {
                usize::from(from) + usize::from(to)
            };
            assert_eq!(parts, expected, "{shift} {at} {len}");
        }
    }

    #[test]
    fn a_trim_has_the_whole_blocks_inside_it() {
        for (shift, at, len) in ranges() {
            let mut rest = Rest::new(at, len);
            rest.shrink(shift);
            let inside = |block: u64| block << shift >= at && (block + 1) << shift <= at + len;
            let blocks: Vec<u64> = (0..=40000 >> shift)
                .filter(|block| inside(*block))
                .collect();
            assert_eq!((rest.end - rest.at) >> shift, blocks.len() as u64);
            if let Some(first) = blocks.first() {
                assert_eq!(rest.at, first << shift);
            }
        }
    }
}
