//! PRP walks over any lists in any memory, against a walk that goes byte by byte.

use std::os::fd::AsFd;
use std::sync::Arc;

use arbitrary::Arbitrary;
use memory::{Access, Buffer, ClientMappings, DmaMap, Hint, HostMemory, Iova, Mapping, Need};
use port::prp::{self, Segments};

const PAGE: u64 = 4096;
const PAGES: u64 = 24;
const BASE: u64 = 0x1_0000_0000;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Address {
    Page(u8),
    Inside(u8, u16),
    Any(u64),
}

impl Address {
    fn value(self) -> u64 {
        match self {
            Address::Page(page) => BASE + u64::from(page) % PAGES * PAGE,
            Address::Inside(page, offset) => Address::Page(page).value() + u64::from(offset) % PAGE,
            Address::Any(value) => value,
        }
    }
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    prp1: Address,
    prp2: Address,
    len: u32,
    /// Of each page: 0 not mapped, 1 for reading only, else both; one region a page where the next
    /// bit is set.
    pages: [u8; PAGES as usize],
    /// Words of the host's memory, repeated over all of it.
    words: Vec<Address>,
    /// The device writes.
    writes: bool,
}

/// What the specification says, one byte at a time (Base 2.1, 4.3.1): the address of every byte, or
/// nothing.
struct Oracle<'a> {
    memory: &'a [u64],
    pages: &'a [u8; PAGES as usize],
    writes: bool,
}

impl Oracle<'_> {
    fn may(&self, address: u64, writes: bool) -> bool {
        let page = address.checked_sub(BASE).map(|offset| offset / PAGE);
        let Some(page) = page.filter(|page| *page < PAGES) else {
            return false;
        };
        match self.pages[page as usize] % 4 {
            0 => false,
            1 => !writes,
            _ => true,
        }
    }

    fn word(&self, address: u64) -> Option<u64> {
        let readable = self.may(address, false);
        readable.then(|| self.memory[((address - BASE) / 8) as usize])
    }

    /// Takes bytes from `address` to the end of its page, at most `left`.
    fn page(&self, address: u64, left: &mut u32, out: &mut Vec<u64>) -> Option<()> {
        let room = (PAGE - address % PAGE) as u32;
        let take = room.min(*left);
        for byte in 0..u64::from(take) {
            let at = address.checked_add(byte)?;
            if !self.may(at, self.writes) {
                return None;
            }
            out.push(at);
        }
        *left -= take;
        Some(())
    }

    fn walk(&self, prp1: u64, prp2: u64, mut left: u32) -> Option<Vec<u64>> {
        let mut out = Vec::new();
        if !prp1.is_multiple_of(4) {
            return None;
        }
        self.page(prp1, &mut left, &mut out)?;
        if left == 0 {
            return Some(out);
        }
        if u64::from(left) <= PAGE {
            if !prp2.is_multiple_of(PAGE) {
                return None;
            }
            self.page(prp2, &mut left, &mut out)?;
            return Some(out);
        }
        let mut entry = prp2;
        if !entry.is_multiple_of(8) {
            return None;
        }
        while left > 0 {
            let value = self.word(entry)?;
            if !value.is_multiple_of(PAGE) {
                return None;
            }
            let last_of_page = entry % PAGE == PAGE - 8;
            if last_of_page && u64::from(left) > PAGE {
                entry = value;
                continue;
            }
            self.page(value, &mut left, &mut out)?;
            entry = entry.checked_add(8)?;
        }
        Some(out)
    }
}

thread_local! {
    /// The host's memory: made once, as making it costs more than a walk.
    static HOST: (Buffer, Arc<Mapping>) = {
        let memory = HostMemory::new((PAGES * PAGE) as usize).unwrap();
        let fd = memory.fd().as_fd().try_clone_to_owned().unwrap();
        let mapping = ClientMappings::new().map(fd).unwrap();
        (memory.alloc((PAGES * PAGE) as usize, 4096).unwrap(), mapping)
    };
}

pub(crate) fn run(input: Input) {
    HOST.with(|(ram, mapping)| walk(&input, ram, mapping));
}

fn walk(input: &Input, ram: &Buffer, mapping: &Arc<Mapping>) {
    let len = input.len % (PAGES * PAGE) as u32 + 1;
    let count = (PAGES * PAGE / 8) as usize;
    let values: Vec<u64> = input.words.iter().map(|word| word.value()).collect();
    let words: Vec<u64> = (0..count)
        .map(|n| {
            if values.is_empty() {
                0
            } else {
                values[n % values.len()]
            }
        })
        .collect();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    ram.write_from(0, &bytes);
    let mut map = DmaMap::new(64);
    for (page, kind) in (0..).zip(input.pages) {
        let access = match kind % 4 {
            0 => continue,
            1 => Access::READ,
            _ => Access::READ_WRITE,
        };
        let backing = Some((mapping.clone(), page * PAGE));
        map.map(Iova(BASE + page * PAGE), PAGE, access, backing)
            .unwrap();
    }
    let view = map.view();
    let need = if input.writes {
        Need::DeviceWrites
    } else {
        Need::DeviceReads
    };
    let (prp1, prp2) = (input.prp1.value(), input.prp2.value());
    let mut segments = Segments::new();
    let mut hint = Hint::default();
    let walked = prp::walk(&view, &mut hint, prp1, prp2, len, need, &mut segments);
    let oracle = Oracle {
        memory: &words,
        pages: &input.pages,
        writes: input.writes,
    };
    let expected = oracle.walk(prp1, prp2, len);
    assert_eq!(walked.is_ok(), expected.is_some(), "{walked:?}");
    if let Some(expected) = expected {
        let found: Vec<u64> = segments
            .iter()
            .flat_map(|segment| {
                let start = segment.iova().0;
                start..start + u64::from(segment.len())
            })
            .collect();
        assert!(found == expected, "other addresses");
    }
}
