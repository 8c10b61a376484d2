//! SGL walks over any lists in any memory, against a walk that goes descriptor by descriptor and
//! byte by byte.

use std::os::fd::AsFd;
use std::sync::Arc;

use arbitrary::Arbitrary;
use controller::sgl;
use memory::{
    Access, Buffer, ClientMappings, DmaMap, Hint, HostMemory, Iova, Mapping, Need, Segment,
};
use nvme_spec::sgl::SglDescriptor;
use port::prp::Segments;

const PAGE: u64 = 4096;
const PAGES: u64 = 10;
const BASE: u64 = 0x1_0000_0000;
/// Limits of one command, as the book has them.
const DESCRIPTORS_MAX: u32 = 2048;
const PIECES_MAX: u32 = 1280;
/// Bytes that are discarded in one piece.
const SINK_LEN: u64 = 65_536;

#[derive(Arbitrary, Clone, Copy, Debug)]
enum Descriptor {
    Data {
        page: u8,
        offset: u16,
        len: u16,
    },
    Bucket {
        len: u32,
    },
    /// The list of this number, as it is.
    Next {
        list: u8,
        last: bool,
    },
    /// Something in the memory, of any kind.
    Near {
        identifier: u8,
        page: u8,
        offset: u16,
        len: u32,
    },
    Any([u64; 2]),
}

fn inside(page: u8, offset: u16) -> u64 {
    BASE + u64::from(page) % PAGES * PAGE + u64::from(offset) % PAGE
}

fn words(identifier: u8, address: u64, len: u32) -> [u64; 2] {
    [address, u64::from(identifier) << 56 | u64::from(len)]
}

#[derive(Arbitrary, Debug)]
struct List {
    page: u8,
    qword: u16,
    descriptors: Vec<Descriptor>,
}

impl List {
    fn address(&self) -> u64 {
        inside(self.page, self.qword.wrapping_mul(8))
    }
}

#[derive(Arbitrary, Debug)]
pub(crate) struct Input {
    sgl1: Descriptor,
    len: u32,
    /// Of each page: 0 not mapped, 1 for reading only, else both; every page is a region.
    pages: [u8; PAGES as usize],
    lists: Vec<List>,
    /// The device writes.
    writes: bool,
}

impl Input {
    fn words(&self, descriptor: Descriptor) -> [u64; 2] {
        match descriptor {
            Descriptor::Data { page, offset, len } => words(0x00, inside(page, offset), len.into()),
            Descriptor::Bucket { len } => words(0x10, 0, len),
            Descriptor::Next { list, last } => {
                let index = usize::from(list) % self.lists.len().max(1);
                let list = self.lists.get(index);
                let address = list.map_or(BASE, List::address);
                let count = list.map_or(1, |list| list.descriptors.len() as u32);
                words(if last { 0x30 } else { 0x20 }, address, 16 * count)
            }
            Descriptor::Near {
                identifier,
                page,
                offset,
                len,
            } => words(identifier, inside(page, offset), len),
            Descriptor::Any(words) => words,
        }
    }

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
}

/// What the specification says (Base 2.1, 4.3.2): where every byte is, `None` for one that is
/// discarded.
struct Oracle<'a> {
    input: &'a Input,
    memory: &'a [u8],
    left: u64,
    out: Vec<Option<u64>>,
    pieces: u32,
    reachable: bool,
}

impl Oracle<'_> {
    /// A descriptor that is valid by itself: the segment that it leads to, as (address,
    /// descriptors, last).
    fn descriptor(&mut self, [address, word]: [u64; 2]) -> Option<Option<(u64, u32, bool)>> {
        let (len, identifier) = (word as u32, (word >> 56) as u8);
        let fits = u128::from(address) + u128::from(len) <= 1 << 64;
        match identifier {
            0x00 if fits => {
                for n in 0..u64::from(len).min(self.left) {
                    self.byte(address + n);
                }
                Some(None)
            }
            0x10 => {
                if self.input.writes {
                    let len = u64::from(len).min(self.left);
                    self.left -= len;
                    self.pieces += len.div_ceil(SINK_LEN) as u32;
                    self.out.extend((0..len).map(|_| None));
                }
                Some(None)
            }
            0x20 | 0x30
                if fits && address.is_multiple_of(8) && len > 0 && len.is_multiple_of(16) =>
            {
                Some(Some((address, len / 16, identifier == 0x30)))
            }
            _ => None,
        }
    }

    fn byte(&mut self, at: u64) {
        let follows = at
            .checked_sub(1)
            .is_some_and(|before| self.out.last() == Some(&Some(before)));
        if !follows || at.is_multiple_of(PAGE) {
            self.pieces += 1;
        }
        self.reachable &= self.input.may(at, self.input.writes);
        self.out.push(Some(at));
        self.left -= 1;
    }

    fn load(&self, at: u64) -> Option<[u64; 2]> {
        let mut bytes = [0; 16];
        for (n, byte) in (0..).zip(&mut bytes) {
            if !self.input.may(at + n, false) {
                return None;
            }
            *byte = self.memory[(at + n - BASE) as usize];
        }
        let (low, high) = bytes.split_at(8);
        let word = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        Some([word(low), word(high)])
    }

    fn walk(mut self, sgl1: [u64; 2]) -> Option<Vec<Option<u64>>> {
        let mut next = self.descriptor(sgl1)?;
        let mut descriptors = 0u32;
        while let Some((start, count, last)) = next.take() {
            descriptors = descriptors.saturating_add(count);
            if descriptors > DESCRIPTORS_MAX {
                return None;
            }
            for n in 0..count {
                let words = self.load(start + 16 * u64::from(n))?;
                next = self.descriptor(words)?;
                if next.is_some() && (last || n + 1 < count) {
                    return None;
                }
            }
        }
        let ends_well = self.left == 0 && self.reachable && self.pieces <= PIECES_MAX;
        ends_well.then_some(self.out)
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

/// The host's memory with the lists in it; later ones may lie over earlier ones.
fn lay_out(input: &Input) -> Vec<u8> {
    let mut bytes = vec![0; (PAGES * PAGE) as usize];
    for list in &input.lists {
        let mut at = (list.address() - BASE) as usize;
        for descriptor in &list.descriptors {
            for word in input.words(*descriptor) {
                if let Some(place) = bytes.get_mut(at..at + 8) {
                    place.copy_from_slice(&word.to_le_bytes());
                }
                at += 8;
            }
        }
    }
    bytes
}

fn walk(input: &Input, ram: &Buffer, mapping: &Arc<Mapping>) {
    // Mostly short, which is quick; sometimes several times what is discarded in one piece.
    let limit = if input.len.is_multiple_of(32) {
        4 << 16
    } else {
        2048
    };
    let len = input.len / 32 % limit + 1;
    let bytes = lay_out(input);
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
    let sgl1 = input.words(input.sgl1);
    let mut segments = Segments::new();
    let mut hint = Hint::default();
    let descriptor = SglDescriptor::from_words(sgl1);
    let walked = sgl::walk(&view, &mut hint, descriptor, len, need, &mut segments);
    let oracle = Oracle {
        input,
        memory: &bytes,
        left: len.into(),
        out: Vec::new(),
        pieces: 0,
        reachable: true,
    };
    let expected = oracle.walk(sgl1);
    assert_eq!(walked.is_ok(), expected.is_some(), "{walked:?}");
    if let Some(expected) = expected {
        let (sink, _) = Segment::sink(1).as_raw();
        let found: Vec<Option<u64>> = segments
            .iter()
            .flat_map(|segment| {
                let is_sink = segment.as_raw().0 == sink;
                let start = segment.iova().0;
                (0..u64::from(segment.len())).map(move |n| (!is_sink).then_some(start + n))
            })
            .collect();
        assert!(found == expected, "other places");
    }
}
