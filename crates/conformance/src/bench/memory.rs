//! Memory that the controller reaches.

use std::fmt;
use std::rc::Rc;

use ::memory::{Buffer, Iova};

use super::{Bench, MEMORY_AT};
use crate::Verdict;
use crate::verdict::fail;
use crate::wire::DataPointer;

/// Bytes of a memory page: CC.MPS is 0 throughout.
const PAGE: usize = 4096;

/// A piece of shared memory, from the start of a page; clones are the same
/// piece.
#[derive(Clone)]
pub struct Mem(Rc<Buffer>);

impl Mem {
    /// Where the controller finds it.
    #[must_use]
    pub fn iova(&self) -> u64 {
        self.0.iova(Iova(MEMORY_AT)).0
    }

    /// Where the controller finds its byte `at`.
    #[must_use]
    pub fn at(&self, at: usize) -> u64 {
        self.iova() + u64::try_from(at).expect("usize fits in 64 bits")
    }

    /// Bytes it has.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "it has a page at least")]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        self.0.fill(byte);
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// They do not fit.
    pub fn write(&self, at: usize, bytes: &[u8]) {
        self.0.write_from(at, bytes);
    }

    /// Writes a qword.
    ///
    /// # Panics
    /// It does not fit.
    pub fn write64(&self, at: usize, value: u64) {
        self.write(at, &value.to_le_bytes());
    }

    /// Copies bytes out.
    ///
    /// # Panics
    /// There are not so many.
    #[must_use]
    pub fn bytes(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.0.read_into(at, &mut bytes);
        bytes
    }

    /// Loads a dword, and sees whatever the controller stored before it.
    ///
    /// # Panics
    /// There is none at `at`.
    #[must_use]
    pub fn load(&self, at: usize) -> u32 {
        self.0.load_u32(at)
    }

    /// Stores a dword, after whatever was stored before.
    ///
    /// # Panics
    /// There is none at `at`.
    pub fn store(&self, at: usize, value: u32) {
        self.0.store_u32(at, value);
    }

    /// Fills `len` bytes with a pattern that tells each place of each `seed`
    /// apart, and returns it.
    ///
    /// # Panics
    /// There are not so many.
    pub fn pattern(&self, at: usize, len: usize, seed: u64) -> Vec<u8> {
        let bytes = pattern(len, seed);
        self.write(at, &bytes);
        bytes
    }
}

impl fmt::Debug for Mem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}+{:#x}", self.iova(), self.len())
    }
}

/// Bytes that tell each place of each `seed` apart (xorshift*).
#[must_use]
pub fn pattern(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

impl Bench {
    /// Zeroed memory of whole pages; the bench keeps it until the controller is
    /// disabled.
    ///
    /// # Errors
    /// There is not so much.
    pub fn mem(&mut self, len: usize) -> Verdict<Mem> {
        let len = len.max(1).next_multiple_of(PAGE);
        let Some(buffer) = self.memory.alloc(len, PAGE) else {
            return fail(format!("{len} bytes of shared memory are not left"));
        };
        let mem = Mem(Rc::new(buffer));
        self.kept.push(mem.clone());
        Ok(mem)
    }

    /// The data pointer for `len` bytes from `at` on, the command's exact length: PRP entries, or
    /// over fabrics one SGL data block. `at` is a multiple of four.
    ///
    /// # Errors
    /// There is no memory for a list.
    pub fn pointer(&mut self, mem: &Mem, at: usize, len: usize) -> Verdict<DataPointer> {
        if self.is_over_fabrics() {
            let len = u32::try_from(len).expect("there is less memory than that");
            return Ok(DataPointer::Block(mem.at(at), len));
        }
        self.prps(mem, at, len)
            .map(|(prp1, prp2)| DataPointer::Prps(prp1, prp2))
    }

    /// PRP entries for `len` bytes from `at` on, with a list where more than two
    /// pages are touched (Base 2.1, 4.3.1). `at` is a multiple of four.
    ///
    /// # Errors
    /// There is no memory for the list.
    pub fn prps(&mut self, mem: &Mem, at: usize, len: usize) -> Verdict<(u64, u64)> {
        let first = PAGE - at % PAGE;
        if len <= first {
            return Ok((mem.at(at), 0));
        }
        let pages: Vec<u64> = (at + first..at + len)
            .step_by(PAGE)
            .map(|page| mem.at(page))
            .collect();
        let prp2 = match pages[..] {
            [page] => page,
            _ => self.prp_list(&pages)?,
        };
        Ok((mem.at(at), prp2))
    }

    /// A PRP list of these entries, as many pages of it as it takes: the last
    /// entry of a full page that is not the last points to the next one.
    ///
    /// # Errors
    /// There is no memory for it.
    pub fn prp_list(&mut self, entries: &[u64]) -> Verdict<u64> {
        let per_page = PAGE / 8;
        let list_pages = if entries.len() <= per_page {
            1
        } else {
            (entries.len() - 1).div_ceil(per_page - 1)
        };
        let list = self.mem(list_pages * PAGE)?;
        let mut at = 0;
        for (index, &entry) in entries.iter().enumerate() {
            let last_place = at % PAGE == PAGE - 8;
            if last_place && index + 1 < entries.len() {
                list.write64(at, list.at(at + 8));
                at += 8;
            }
            list.write64(at, entry);
            at += 8;
        }
        Ok(list.iova())
    }
}
