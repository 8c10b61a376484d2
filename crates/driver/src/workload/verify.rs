//! Marked data: the last write of each block, and whether it reads back.
//!
//! A logical block starts with its LBA and the generation of the write that produced it, then a tag
//! of the job's seed; the rest is a pattern derived from all three. So a block of another address,
//! of an older write, of another run, or with any changed byte is detected.

use std::fmt;

use memory::Buffer;

use super::Job;
use super::random::mix;
use crate::io::Namespace;

/// Buffer contents before a read: they remain if the drive did not touch the buffer.
const POISON: u8 = 0xa5;
/// Words before the pattern: LBA, then generation and tag.
const HEAD_WORDS: usize = 2;

/// A block that read back wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mismatch {
    /// The block.
    pub lba: u64,
    /// Offset of the first wrong byte in the block.
    pub offset: usize,
    /// The expected byte.
    pub expected: u8,
    /// The byte found.
    pub found: u8,
    /// The write whose data should be there.
    pub generation: u32,
    /// LBA and generation that the block found carries, if it is marked by this
    /// job at all.
    pub found_mark: Option<(u64, u32)>,
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "block {} should hold write {}, but byte {} is {:#04x} instead of {:#04x}",
            self.lba, self.generation, self.offset, self.found, self.expected
        )?;
        match self.found_mark {
            Some((lba, generation)) => {
                write!(f, "; it is marked as block {lba} of write {generation}")
            }
            None => f.write_str("; it carries no mark of this job"),
        }
    }
}

/// Expected contents of each unit.
pub(super) struct Ledger {
    seed: u64,
    block_len: usize,
    blocks_per_unit: u64,
    /// Generation of the last write that succeeded; 0 if the contents are unknown.
    generations: Vec<u32>,
    /// Command in flight in each unit: [`IDLE`], [`READING`], or the generation of a write.
    pending: Vec<u32>,
    /// Number of the last write begun; never 0.
    last: u32,
    scratch: Vec<u8>,
    expected: Vec<u8>,
    poison: Vec<u8>,
    checked: u64,
    mismatches: u64,
    first: Option<Mismatch>,
}

/// A unit that no command is in flight in.
const IDLE: u32 = u32::MAX;
/// A unit in flight whose contents do not change.
const READING: u32 = 0;

impl Ledger {
    pub(super) fn new(job: &Job, namespace: &Namespace, units: u64) -> Self {
        let wide = |value: u32| usize::try_from(value).expect("u32 fits in usize");
        let units = usize::try_from(units).expect("the number of units was bounded");
        Self {
            seed: mix(job.seed),
            block_len: wide(namespace.block_len),
            blocks_per_unit: u64::from(job.block_size / namespace.block_len),
            generations: vec![0; units],
            pending: vec![IDLE; units],
            last: 0,
            scratch: vec![0; wide(job.block_size)],
            expected: vec![0; wide(namespace.block_len)],
            poison: vec![POISON; wide(job.block_size)],
            checked: 0,
            mismatches: 0,
            first: None,
        }
    }

    pub(super) fn mismatches(&self) -> u64 {
        self.mismatches
    }

    pub(super) fn first_mismatch(&self) -> Option<Mismatch> {
        self.first
    }

    /// Blocks whose bytes were compared.
    pub(super) fn checked(&self) -> u64 {
        self.checked
    }

    pub(super) fn is_written(&self, unit: u64) -> bool {
        self.generations[index(unit)] != 0
    }

    /// Takes `unit`, or the next after it that no command is in flight in.
    pub(super) fn take_free(&mut self, unit: u64) -> Option<u64> {
        let count = self.pending.len();
        let first = index(unit);
        let taken = (0..count)
            .map(|step| (first + step) % count)
            .find(|&at| self.pending[at] == IDLE)?;
        self.pending[taken] = READING;
        Some(u64::try_from(taken).expect("usize fits in 64 bits"))
    }

    pub(super) fn release(&mut self, unit: u64) {
        self.pending[index(unit)] = IDLE;
    }

    /// Marks the data of a new write of `unit`.
    pub(super) fn fill(&mut self, unit: u64, buffer: &Buffer, at: usize) {
        self.last = match self.last + 1 {
            IDLE => 1,
            next => next,
        };
        self.pending[index(unit)] = self.last;
        let first = unit * self.blocks_per_unit;
        for (lba, block) in (first..).zip(self.scratch.chunks_exact_mut(self.block_len)) {
            mark(block, self.seed, lba, self.last);
        }
        buffer.write_from(at, &self.scratch);
    }

    /// Makes sure that a read which does not happen is noticed.
    pub(super) fn poison(&self, buffer: &Buffer, at: usize) {
        buffer.write_from(at, &self.poison);
    }

    /// The write of `unit` is done. After one that failed nothing is known.
    pub(super) fn written(&mut self, unit: u64, ok: bool) {
        let unit = index(unit);
        self.generations[unit] = if ok { self.pending[unit] } else { 0 };
    }

    /// Compares what was read of `unit` with what was written there last.
    pub(super) fn check(&mut self, unit: u64, buffer: &Buffer, at: usize) {
        let generation = self.generations[index(unit)];
        if generation == 0 {
            return;
        }
        buffer.read_into(at, &mut self.scratch);
        let first = unit * self.blocks_per_unit;
        for (lba, block) in (first..).zip(self.scratch.chunks_exact(self.block_len)) {
            mark(&mut self.expected, self.seed, lba, generation);
            self.checked += 1;
            if block == self.expected {
                continue;
            }
            self.mismatches += 1;
            if self.first.is_none() {
                let offset = block
                    .iter()
                    .zip(&self.expected)
                    .position(|(found, expected)| found != expected)
                    .expect("the blocks differ");
                self.first = Some(Mismatch {
                    lba,
                    offset,
                    expected: self.expected[offset],
                    found: block[offset],
                    generation,
                    found_mark: read_mark(block, self.seed),
                });
            }
        }
    }
}

fn index(unit: u64) -> usize {
    usize::try_from(unit).expect("the number of units was bounded")
}

/// The part of the second word that is not the generation.
fn tag(seed: u64) -> u64 {
    seed & !u64::from(u32::MAX)
}

/// Fills a block with its mark and pattern.
fn mark(block: &mut [u8], seed: u64, lba: u64, generation: u32) {
    let head = [lba, tag(seed) | u64::from(generation)];
    let base = mix(seed ^ mix(lba ^ u64::from(generation).rotate_left(40)));
    for (at, word) in (0u64..).zip(block.chunks_exact_mut(8)) {
        let value = match usize::try_from(at) {
            Ok(at) if at < HEAD_WORDS => head[at],
            _ => mix(base.wrapping_add(at)),
        };
        word.copy_from_slice(&value.to_le_bytes());
    }
}

/// The LBA and generation of a block that bears this job's tag.
fn read_mark(block: &[u8], seed: u64) -> Option<(u64, u32)> {
    let word = |at: usize| {
        let bytes = block.get(at * 8..at * 8 + 8)?;
        Some(u64::from_le_bytes(bytes.try_into().ok()?))
    };
    let (lba, second) = (word(0)?, word(1)?);
    let generation = u32::try_from(second & u64::from(u32::MAX)).ok()?;
    (tag(seed) == second & !u64::from(u32::MAX)).then_some((lba, generation))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn words(seed: u64, lba: u64, generation: u32) -> Vec<u64> {
        let mut block = [0; 512];
        mark(&mut block, seed, lba, generation);
        assert_eq!(read_mark(&block, seed), Some((lba, generation)));
        let (words, []) = block.as_chunks() else {
            unreachable!("512 is a multiple of 8")
        };
        words.iter().map(|&word| u64::from_le_bytes(word)).collect()
    }

    #[test]
    fn the_whole_pattern_tells_seed_block_and_write_apart() {
        let marks = [
            (1, 5, 1),
            (1, 5, 2),
            (1, 6, 1),
            (2, 5, 1),
            (1, 1 << 40, 1),
            (1, 5, 1 << 20),
        ];
        let mut seen = BTreeSet::<u64>::new();
        for (seed, lba, generation) in marks {
            seen.extend(&words(mix(seed), lba, generation)[HEAD_WORDS..]);
        }
        // No word of 8 bytes occurs twice, in one block or in two.
        assert_eq!(seen.len(), marks.len() * (64 - HEAD_WORDS));
    }

    #[test]
    fn the_mark_is_the_first_sixteen_bytes() {
        let seed = 0x1122_3344_5566_7788;
        let words = words(seed, 9, 3);
        assert_eq!(words[0], 9);
        assert_eq!(words[1], 0x1122_3344_0000_0003);
        let mut other = [0; 512];
        mark(&mut other, !seed, 9, 3);
        assert_eq!(read_mark(&other, seed), None);
        assert_eq!(read_mark(&[0; 512], seed), None);
    }
}
