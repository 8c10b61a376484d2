//! I/O commands of the witness: looked at, then done.

use super::{Owner, SQE_LEN, State};
use crate::{BLOCK, PAGE, PARTS};

const FLUSH: u8 = 0x00;
const WRITE: u8 = 0x01;
const READ: u8 = 0x02;
const WRITE_ZEROES: u8 = 0x08;
const DATASET_MANAGEMENT: u8 = 0x09;

/// Invalid Field in Command; LBA Out of Range.
const INVALID: u16 = 0x002;
const OUT_OF_RANGE: u16 = 0x080;

/// An entry as numbers.
struct Entry<'a>(&'a [u8; SQE_LEN as usize]);

impl Entry<'_> {
    fn dword(&self, number: usize) -> u32 {
        let at = number * 4;
        let bytes = self.0[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(bytes)
    }

    fn qword(&self, number: usize) -> u64 {
        u64::from(self.dword(number)) | u64::from(self.dword(number + 1)) << 32
    }
}

impl State {
    fn violation(&mut self, what: String) -> u16 {
        self.violations.push(what);
        INVALID
    }

    /// The host in whose part the blocks lie.
    fn part_of(start: u64, len: u64) -> Option<usize> {
        let end = start.checked_add(len)?;
        PARTS
            .iter()
            .position(|part| part.start <= start && end <= part.end)
    }

    /// Does an I/O command, and says its status.
    pub(super) fn io(&mut self, sqe: &[u8; SQE_LEN as usize]) -> u16 {
        let entry = Entry(sqe);
        let opcode = sqe[0];
        if sqe[1] != 0 {
            return self.violation(format!("opcode {opcode:#x} with flags {:#x}", sqe[1]));
        }
        // Namespace 1; no metadata; of the other dwords those alone that these commands have.
        if entry.dword(1) != 1 || entry.qword(2) != 0 || entry.qword(4) != 0 {
            return self.violation(format!("a stray field: {sqe:x?}"));
        }
        if [13, 14, 15].iter().any(|number| entry.dword(*number) != 0) {
            return self.violation(format!("a stray dword: {sqe:x?}"));
        }
        match opcode {
            FLUSH => 0,
            DATASET_MANAGEMENT => self.deallocate(&entry),
            READ | WRITE | WRITE_ZEROES => self.transfer(opcode, &entry),
            _ => self.violation(format!("opcode {opcode:#x}")),
        }
    }

    fn deallocate(&mut self, entry: &Entry<'_>) -> u16 {
        let ranges = usize::from(entry.dword(10) as u8) + 1;
        let mut list = vec![0; ranges * 16];
        if self.owner_of(entry.qword(6)) != Some(Owner::Driver)
            || !self.fetch(entry.qword(6), &mut list)
        {
            return self.violation("ranges that are not the driver's".into());
        }
        let mut first = None;
        for range in list.chunks_exact(16) {
            let blocks = u32::from_le_bytes(range[4..8].try_into().expect("four bytes"));
            let lba = u64::from_le_bytes(range[8..].try_into().expect("eight bytes"));
            let host = Self::part_of(lba.saturating_mul(BLOCK), u64::from(blocks) * BLOCK);
            if host.is_none() || first.is_some() && first != host {
                return self.violation(format!("{blocks} blocks at {lba} are deallocated"));
            }
            first = host;
        }
        0
    }

    fn transfer(&mut self, opcode: u8, entry: &Entry<'_>) -> u16 {
        let lba = entry.qword(10);
        let len = (u64::from(entry.dword(12) & 0xffff) + 1) * BLOCK;
        let Some(start) = lba.checked_mul(BLOCK) else {
            self.violation(format!("blocks at {lba:#x}"));
            return OUT_OF_RANGE;
        };
        let Some(host) = Self::part_of(start, len) else {
            self.violation(format!("{len} bytes at {start:#x}, which are nobody's"));
            return OUT_OF_RANGE;
        };
        let at = start as usize..(start + len) as usize;
        if opcode == WRITE_ZEROES {
            self.disk[at].fill(0);
            return 0;
        }
        if len > PAGE << self.identity.mdts {
            return self.violation(format!("{len} bytes are more than it takes"));
        }
        let Some(pages) = self.pages(entry, len) else {
            return INVALID;
        };
        let mut bytes = self.disk[at.clone()].to_vec();
        let mut done = 0;
        for (address, len) in pages {
            let owner = self.owner_of(address);
            if owner != Some(Owner::Driver) && owner != Some(Owner::Host(host)) {
                return self.violation(format!(
                    "host {host}'s blocks go with {address:#x}, of {owner:?}"
                ));
            }
            let part = &mut bytes[done..done + len];
            let is_there = match opcode {
                READ => {
                    let part = part.to_vec();
                    self.store(address, &part)
                }
                _ => self.fetch(address, part),
            };
            if !is_there {
                return INVALID;
            }
            done += len;
        }
        self.disk[at].copy_from_slice(&bytes);
        0
    }

    /// Where the data is, page by page (Base 2.1, 4.1.1).
    fn pages(&mut self, entry: &Entry<'_>, len: u64) -> Option<Vec<(u64, usize)>> {
        let (first, second) = (entry.qword(6), entry.qword(8));
        if !first.is_multiple_of(4) {
            self.violation(format!("data at {first:#x}"));
            return None;
        }
        let mut pages = vec![(first, (PAGE - first % PAGE).min(len) as usize)];
        let mut left = len - pages[0].1 as u64;
        if left == 0 {
            return Some(pages);
        }
        if left <= PAGE {
            pages.push((second, left as usize));
        } else {
            let mut list = second;
            while left > 0 {
                if self.owner_of(list) != Some(Owner::Driver) {
                    self.violation(format!("a list at {list:#x}, which is not the driver's"));
                    return None;
                }
                let mut word = [0; 8];
                if !self.fetch(list, &mut word) {
                    return None;
                }
                let value = u64::from_le_bytes(word);
                let is_last_of_page = list % PAGE == PAGE - 8;
                if is_last_of_page && left > PAGE {
                    list = value;
                    continue;
                }
                list += 8;
                let now = left.min(PAGE);
                pages.push((value, now as usize));
                left -= now;
            }
        }
        if pages[1..].iter().any(|(at, _)| !at.is_multiple_of(PAGE)) {
            self.violation(format!("entries inside pages: {pages:x?}"));
            return None;
        }
        Some(pages)
    }
}
