//! Namespaces as bytes, and the NVM command set (NVM 1.1, 3).

use std::collections::BTreeSet;

use super::{
    COMPARE_FAILURE, DATA_TRANSFER, FAILED_FUSED, INVALID_FIELD, INVALID_OPCODE, Model,
    OUT_OF_RANGE, PRP_OFFSET, SGL_LENGTH, SIZE_LIMIT, UNRECOVERED, Verdict,
};
use crate::TRANSFER_MAX;
use crate::host::Layout;
use crate::program::{Blocks, Fault, Io};

/// A page; what PRPs count in.
const PAGE: usize = 4096;

/// A namespace.
#[derive(Clone, Debug)]
pub struct Namespace {
    /// Size of a block as a power of two.
    pub shift: u8,
    /// Its content.
    pub bytes: Vec<u8>,
    /// Blocks marked by Write Uncorrectable.
    pub marked: BTreeSet<u64>,
}

impl Namespace {
    /// All zeros.
    #[must_use]
    pub fn new(len: usize, shift: u8) -> Self {
        Namespace {
            shift,
            bytes: vec![0; len],
            marked: BTreeSet::new(),
        }
    }

    /// Its size.
    #[must_use]
    pub fn blocks(&self) -> u64 {
        self.bytes.len() as u64 >> self.shift
    }

    /// Bytes of a block.
    #[must_use]
    pub fn block_len(&self) -> usize {
        1 << self.shift
    }

    /// Whether the range lies inside of it, in numbers that cannot overflow.
    fn has(&self, slba: u64, count: u32) -> bool {
        u128::from(slba) + u128::from(count) <= u128::from(self.blocks())
    }

    /// The bytes of blocks that are inside of it.
    #[must_use]
    pub fn range(&self, slba: u64, count: u32) -> std::ops::Range<usize> {
        let at = slba as usize * self.block_len();
        at..at + count as usize * self.block_len()
    }

    /// Whether any of these is marked.
    #[must_use]
    pub fn is_marked(&self, slba: u64, count: u32) -> bool {
        let end = slba.saturating_add(count.into());
        self.marked.range(slba..end).next().is_some()
    }

    /// Writes blocks, which are good from then on.
    pub fn write(&mut self, slba: u64, bytes: &[u8]) {
        let count = (bytes.len() >> self.shift) as u32;
        let range = self.range(slba, count);
        self.bytes[range].copy_from_slice(bytes);
        for block in slba..slba + u64::from(count) {
            self.marked.remove(&block);
        }
    }
}

/// Blocks of which a command that failed may have written some, with what it would have written.
#[derive(Clone, Debug)]
pub struct Unsure {
    /// The namespace.
    pub nsid: u32,
    /// The first of them.
    pub slba: u64,
    /// Content that all of them would have.
    pub bytes: Vec<u8>,
}

/// Content of a block by a seed.
fn pattern(seed: u8, slba: u64, len: usize) -> impl Iterator<Item = u8> {
    let first = seed.wrapping_mul(31).wrapping_add(slba as u8);
    (0..len).map(move |n| first ^ (n as u8).wrapping_mul(7) ^ (n >> 8) as u8)
}

impl Model {
    /// Bytes of a block of a namespace; 512 where there is none.
    fn block_len(&self, nsid: u32) -> usize {
        self.namespaces.get(&nsid).map_or(512, Namespace::block_len)
    }

    /// Bytes that a command for these blocks transfers; no more than can be.
    #[must_use]
    pub fn transfer_len(&self, blocks: Blocks) -> usize {
        let len = blocks.count as usize * self.block_len(blocks.nsid);
        len.min(TRANSFER_MAX as usize)
    }

    /// Content of these blocks by a seed.
    #[must_use]
    pub fn data(&self, blocks: Blocks, seed: u8) -> Vec<u8> {
        let block = self.block_len(blocks.nsid);
        let all = (0..u64::from(blocks.count))
            .flat_map(|n| pattern(seed, blocks.slba.wrapping_add(n), block));
        all.take(self.transfer_len(blocks)).collect()
    }

    /// Content of the blocks, or with a byte that differs.
    #[must_use]
    pub fn compared(&self, blocks: Blocks, same: bool) -> Vec<u8> {
        let namespace = self.namespaces.get(&blocks.nsid);
        let inside = namespace.filter(|n| n.has(blocks.slba, blocks.count));
        let mut data = match inside {
            Some(n) => n.bytes[n.range(blocks.slba, blocks.count)].to_vec(),
            None => vec![0; self.transfer_len(blocks)],
        };
        data.truncate(TRANSFER_MAX as usize);
        if !same && let Some(last) = data.last_mut() {
            *last ^= 0x10;
        }
        data
    }

    fn range_errors(&self, blocks: Blocks) -> Vec<u16> {
        let mut errors = self.namespace_errors(blocks.nsid);
        if let Some(namespace) = self.namespaces.get(&blocks.nsid)
            && !namespace.has(blocks.slba, blocks.count)
        {
            errors.push(OUT_OF_RANGE);
        }
        errors
    }

    /// The errors of blocks whose data is transferred.
    fn transfer_errors(&self, blocks: Blocks, layout: &Layout, fault: Fault) -> Vec<u16> {
        let mut errors = self.range_errors(blocks);
        if blocks.count as usize * self.block_len(blocks.nsid) > TRANSFER_MAX as usize {
            errors.push(INVALID_FIELD);
        }
        let (by_prps, offset) = match *layout {
            Layout::Prp { offset, .. } => (true, offset as usize),
            Layout::Sgl { offset, .. } => (false, offset as usize),
        };
        let pages = (offset % PAGE + self.transfer_len(blocks)).div_ceil(PAGE);
        match fault {
            Fault::Psdt => errors.push(INVALID_FIELD),
            Fault::Unmapped => errors.push(DATA_TRANSFER),
            Fault::Odd if by_prps => errors.push(PRP_OFFSET),
            Fault::SecondOffset if by_prps && pages > 1 => errors.push(PRP_OFFSET),
            Fault::Short if !by_prps => errors.push(SGL_LENGTH),
            _ => (),
        }
        errors
    }

    /// Errors of reading blocks: beside others, of those that are marked.
    fn read_errors(&self, mut errors: Vec<u16>, blocks: Blocks) -> Vec<u16> {
        if let Some(namespace) = self.namespaces.get(&blocks.nsid)
            && namespace.is_marked(blocks.slba, blocks.count)
        {
            errors.push(UNRECOVERED);
        }
        errors
    }

    /// Writes, where there are no errors.
    fn write(&mut self, errors: Vec<u16>, blocks: Blocks, bytes: &[u8]) -> Verdict {
        if errors.is_empty()
            && let Some(namespace) = self.namespaces.get_mut(&blocks.nsid)
        {
            namespace.write(blocks.slba, bytes);
        }
        Verdict::of(errors)
    }

    /// The required outcome of an I/O command, which is done with the model, too. Two verdicts for
    /// a fused operation.
    pub fn io(&mut self, io: &Io) -> (Vec<Verdict>, Option<Unsure>) {
        let verdict = match io {
            Io::Read(blocks, _, layout, fault) => {
                let errors = self.transfer_errors(*blocks, layout, *fault);
                let errors = self.read_errors(errors, *blocks);
                self.read(errors, *blocks)
            }
            Io::Write(blocks, seed, _, layout, fault) => {
                let errors = self.transfer_errors(*blocks, layout, *fault);
                let bytes = self.data(*blocks, *seed);
                self.write(errors, *blocks, &bytes)
            }
            Io::Compare(blocks, same, layout, fault) => {
                let errors = self.transfer_errors(*blocks, layout, *fault);
                Verdict::of(self.compare_errors(errors, *blocks, *same))
            }
            Io::Verify(blocks) => {
                let errors = self.read_errors(self.range_errors(*blocks), *blocks);
                Verdict::of(errors)
            }
            Io::WriteZeroes(blocks, _) => {
                let errors = self.range_errors(*blocks);
                let zeros = vec![0; blocks.count as usize * self.block_len(blocks.nsid)];
                self.write(errors, *blocks, &zeros)
            }
            Io::WriteUncorrectable(blocks) => {
                let errors = self.range_errors(*blocks);
                if errors.is_empty()
                    && let Some(namespace) = self.namespaces.get_mut(&blocks.nsid)
                {
                    let end = blocks.slba + u64::from(blocks.count);
                    namespace.marked.extend(blocks.slba..end);
                }
                Verdict::of(errors)
            }
            Io::Deallocate(ranges, deallocates) => self.deallocate(ranges, *deallocates),
            Io::Copy(ranges, to) => return self.copy(ranges, *to),
            Io::Flush(nsid) => Verdict::of(match *nsid {
                // VWC, bits 2:1: 11b takes the broadcast value.
                u32::MAX if self.facts.controller[525] >> 1 & 3 == 3 => vec![],
                nsid => self.namespace_errors(nsid),
            }),
            Io::Fused(blocks, same, seed) => return (self.fused(*blocks, *same, *seed), None),
            Io::Odd(_, nsid) => {
                let mut errors = self.namespace_errors(*nsid);
                errors.push(INVALID_OPCODE);
                Verdict::of(errors)
            }
        };
        (vec![verdict], None)
    }

    fn read(&self, errors: Vec<u16>, blocks: Blocks) -> Verdict {
        let mut verdict = Verdict::of(errors);
        if verdict.succeeds() {
            let namespace = &self.namespaces[&blocks.nsid];
            let range = namespace.range(blocks.slba, blocks.count);
            verdict.data = vec![(0, namespace.bytes[range].to_vec())];
        }
        verdict
    }

    fn compare_errors(&self, errors: Vec<u16>, blocks: Blocks, same: bool) -> Vec<u16> {
        let mut errors = self.read_errors(errors, blocks);
        if !same && [&[][..], &[UNRECOVERED]].contains(&&errors[..]) {
            errors.push(COMPARE_FAILURE);
        }
        errors
    }

    /// Dataset Management (NVM 1.1, 3.3.3): nothing is deallocated where a range is wrong. A block
    /// that is marked stays so until it is written.
    fn deallocate(&mut self, ranges: &[Blocks], deallocates: bool) -> Verdict {
        let nsid = ranges[0].nsid;
        let of = |range: &Blocks| Blocks { nsid, ..*range };
        let mut errors: Vec<u16> = ranges
            .iter()
            .flat_map(|r| self.range_errors(of(r)))
            .collect();
        if !deallocates {
            // Only hints are given: a controller need not look at them.
            errors.retain(|error| *error != OUT_OF_RANGE);
        }
        if errors.is_empty()
            && deallocates
            && let Some(namespace) = self.namespaces.get_mut(&nsid)
        {
            for range in ranges {
                let range = namespace.range(range.slba, range.count);
                namespace.bytes[range].fill(0);
            }
        }
        Verdict::of(errors)
    }

    /// Copy (NVM 1.1, 3.3.2), format 0. Ranges before one that fails may have been copied.
    fn copy(&mut self, ranges: &[Blocks], to: u64) -> (Vec<Verdict>, Option<Unsure>) {
        let nsid = ranges[0].nsid;
        let count: u32 = ranges.iter().map(|range| range.count).sum();
        let destination = Blocks {
            nsid,
            slba: to,
            count,
        };
        let mut errors = self.range_errors(destination);
        let (most_ranges, most_blocks, most) = self.facts.copy_limits;
        if ranges.len() as u32 > most_ranges
            || ranges.iter().any(|range| range.count > most_blocks)
            || count > most
        {
            errors.push(SIZE_LIMIT);
        }
        let may_begin = errors.is_empty();
        let of_source = |range: &Blocks| self.read_errors(self.range_errors(*range), *range);
        errors.extend(ranges.iter().flat_map(of_source));
        let good = ranges
            .iter()
            .take_while(|range| of_source(range).is_empty());
        let bytes: Vec<u8> = match self.namespaces.get(&nsid) {
            Some(n) => good
                .flat_map(|range| n.bytes[n.range(range.slba, range.count)].to_vec())
                .collect(),
            None => vec![],
        };
        if errors.is_empty() {
            let verdict = self.write(errors, destination, &bytes);
            return (vec![verdict], None);
        }
        let unsure = Unsure {
            nsid,
            slba: to,
            bytes,
        };
        let unsure = Some(unsure).filter(|unsure| may_begin && !unsure.bytes.is_empty());
        (vec![Verdict::of(errors)], unsure)
    }

    /// Compare and Write (NVM 1.1, 3.3.1 and Base 2.1, 4.1.2): where one fails, the other is
    /// aborted for it.
    fn fused(&mut self, blocks: Blocks, same: bool, seed: u8) -> Vec<Verdict> {
        let errors = self.range_errors(blocks);
        if !errors.is_empty() {
            let mut either = errors;
            either.push(FAILED_FUSED);
            return vec![Verdict::of(either.clone()), Verdict::of(either)];
        }
        let errors = self.compare_errors(errors, blocks, same);
        if !errors.is_empty() {
            return vec![Verdict::of(errors), Verdict::of(vec![FAILED_FUSED])];
        }
        let bytes = self.data(blocks, seed);
        self.write(errors, blocks, &bytes);
        vec![Verdict::success(), Verdict::success()]
    }
}
