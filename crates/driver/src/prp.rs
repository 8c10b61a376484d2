//! Builds Physical Region Page entries for a buffer that lies in one piece of
//! the device's address space (Base 2.1, 4.1.1).
//!
//! Invariants: only the first entry carries an offset; a list starts at the
//! first byte of a page; a list that does not fit ends with a pointer to the
//! next page of lists, and its pages follow each other. This module does not
//! own the list's memory: it says which entry belongs where.

use nvme_spec::prp::{ENTRIES_PER_PAGE, ENTRY_SIZE, PAGE_SIZE};

/// The two data pointers of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Prps {
    /// First data page, with its offset.
    pub prp1: u64,
    /// Nothing (0), the second data page, or the list.
    pub prp2: u64,
}

/// Why no data pointers could be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrpError {
    /// The buffer does not start at a multiple of four bytes (PRP entries
    /// address dwords).
    Misaligned,
    /// The list has room for fewer entries than the buffer has pages.
    TooLong,
    /// The buffer passes the end of the 64-bit address space.
    Wraps,
}

/// Pages of lists that a transfer of up to `transfer_len` bytes can need, at any
/// offset of its first byte.
#[must_use]
pub fn list_pages(transfer_len: u64) -> u64 {
    // One entry a page beyond the first, which prp1 names; an offset adds one.
    let entries = transfer_len.div_ceil(PAGE_SIZE);
    if entries <= 1 {
        0
    } else if entries <= ENTRIES_PER_PAGE {
        1
    } else {
        // Every page but the last spends one entry on the pointer to the next.
        (entries - 1).div_ceil(ENTRIES_PER_PAGE - 1)
    }
}

/// Builds the data pointers for `len` bytes at `iova`.
///
/// `list` is the device's address of `list_pages` pages for lists; `put(at,
/// entry)` stores an entry `at` bytes into them. `put` is called only for
/// buffers that touch more than two pages. A length of 0 gives zeros.
///
/// # Errors
/// [`PrpError`] when the buffer cannot be described.
pub fn build(
    iova: u64,
    len: u64,
    list: u64,
    list_pages: u64,
    mut put: impl FnMut(u64, u64),
) -> Result<Prps, PrpError> {
    if !iova.is_multiple_of(4) {
        return Err(PrpError::Misaligned);
    }
    if len == 0 {
        return Ok(Prps::default());
    }
    iova.checked_add(len - 1).ok_or(PrpError::Wraps)?;
    let first_len = PAGE_SIZE - iova % PAGE_SIZE;
    let mut prps = Prps {
        prp1: iova,
        prp2: 0,
    };
    if len <= first_len {
        return Ok(prps);
    }
    let second = iova + first_len;
    let entries = (len - first_len).div_ceil(PAGE_SIZE);
    if entries == 1 {
        prps.prp2 = second;
        return Ok(prps);
    }
    let needed = if entries <= ENTRIES_PER_PAGE {
        1
    } else {
        (entries - 1).div_ceil(ENTRIES_PER_PAGE - 1)
    };
    if needed > list_pages {
        return Err(PrpError::TooLong);
    }
    prps.prp2 = list;
    let mut at = 0;
    for entry in 0..entries {
        let last_of_page = at % PAGE_SIZE == PAGE_SIZE - ENTRY_SIZE;
        if last_of_page && entry + 1 < entries {
            put(at, list + at + ENTRY_SIZE);
            at += ENTRY_SIZE;
        }
        put(at, second + entry * PAGE_SIZE);
        at += ENTRY_SIZE;
    }
    Ok(prps)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: u64 = 0x7000_0000;

    /// Where the device finds byte `index`, read from the entries alone by the
    /// rules of Base 2.1, 4.1.1, one byte at a time.
    fn byte_address(prps: Prps, lists: &[u64], len: u64, index: u64) -> u64 {
        let offset = prps.prp1 % 4096;
        let page = (offset + index) / 4096;
        let within = (offset + index) % 4096;
        if page == 0 {
            return prps.prp1 - offset + within;
        }
        let pages = (offset + len).div_ceil(4096);
        if pages == 2 {
            return prps.prp2 + within;
        }
        let mut at = prps.prp2;
        let mut left = pages - 1;
        let mut skip = page - 1;
        loop {
            let slots = (4096 - at % 4096) / 8;
            let data = if left <= slots { left } else { slots - 1 };
            let first = usize::try_from((at - LIST) / 8).unwrap();
            if skip < data {
                return lists[first + usize::try_from(skip).unwrap()] + within;
            }
            skip -= data;
            left -= data;
            at = lists[first + usize::try_from(data).unwrap()];
        }
    }

    fn check(iova: u64, len: u64) {
        let pages = list_pages(len);
        let mut lists = vec![u64::MAX; usize::try_from(pages * 512).unwrap()];
        let prps = build(iova, len, LIST, pages, |at, entry| {
            lists[usize::try_from(at / 8).unwrap()] = entry;
        })
        .unwrap();
        // Every byte for short ones, and around every page edge for long ones.
        for index in 0..len {
            let edge = (iova + index) % 4096;
            if len > 20_000 && index > 4 && index + 4 < len && !(2..4094).contains(&edge) {
                continue;
            }
            if len > 20_000 && edge > 2 && edge < 4093 {
                continue;
            }
            assert_eq!(
                byte_address(prps, &lists, len, index),
                iova + index,
                "byte {index} of {len} at {iova:#x}"
            );
        }
    }

    #[test]
    fn every_byte_is_found_where_it_lies() {
        for offset in [0, 4, 512, 2048, 4092] {
            for len in [
                1, 4, 511, 512, 4092, 4096, 4100, 8188, 8192, 8196, 12288, 16384,
            ] {
                check(0x1_0000_0000 + offset, len);
            }
        }
    }

    #[test]
    fn lists_chain_exactly_when_they_must() {
        // 513 data pages at offset 0: prp1 and a full page of 512 entries.
        for pages in [511, 512, 513, 514, 1022, 1023, 1024, 1025, 1535] {
            check(0x2_0000_0000, pages * 4096);
            check(0x2_0000_0000 + 2048, pages * 4096);
        }
        let mut highest = 0;
        build(0, 513 * 4096, LIST, 1, |at, _| highest = highest.max(at)).unwrap();
        assert_eq!(highest, 4088, "512 entries fill the page, none is a link");
        assert_eq!(
            build(0, 514 * 4096, LIST, 1, |_, _| ()),
            Err(PrpError::TooLong)
        );
    }

    #[test]
    fn the_second_pointer_follows_the_number_of_pages() {
        let none = |_: u64, _: u64| panic!("no list is needed");
        let at = 0x10_0000;
        let prps = |iova, len| build(iova, len, LIST, 1, none).unwrap();
        assert_eq!(prps(at, 4096), Prps { prp1: at, prp2: 0 });
        assert_eq!(prps(at, 8192).prp2, at + 4096);
        assert_eq!(prps(at + 512, 4096).prp2, at + 4096);
        assert_eq!(prps(at, 0), Prps::default());
    }

    #[test]
    fn what_cannot_be_described_is_refused() {
        assert_eq!(
            build(0x1002, 16, LIST, 1, |_, _| ()),
            Err(PrpError::Misaligned)
        );
        assert_eq!(
            build(u64::MAX - 4095, 8192, LIST, 1, |_, _| ()),
            Err(PrpError::Wraps)
        );
        assert_eq!(
            build(0x1000, 3 * 4096, LIST, 0, |_, _| ()),
            Err(PrpError::TooLong)
        );
    }
}
