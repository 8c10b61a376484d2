//! Builds Physical Region Page entries for a buffer that lies in one piece of the device's address
//! space, or in several (Base 2.1, 4.1.1).
//!
//! Invariants: only the first entry carries an offset; a list starts at the first byte of a page; a
//! list that does not fit ends with a pointer to the next page of lists, and its pages follow each
//! other. This module does not own the list's memory: it computes which entry goes where.

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
    put: impl FnMut(u64, u64),
) -> Result<Prps, PrpError> {
    if len == 0 {
        return if iova.is_multiple_of(4) {
            Ok(Prps::default())
        } else {
            Err(PrpError::Misaligned)
        };
    }
    build_of_pieces([(iova, len)], list, list_pages, put)
}

/// Builds the data pointers for bytes in several pieces of the device's address space: address and
/// bytes of each, none empty. All but the first begin at a page, and all but the last end at the
/// end of one.
///
/// `list`, `list_pages` and `put` are as for [`build`].
///
/// # Errors
/// [`PrpError`]; also [`PrpError::Misaligned`] for pieces that begin or end inside a page where
/// they must not.
#[inline]
pub fn build_of_pieces(
    pieces: impl IntoIterator<Item = (u64, u64)>,
    list: u64,
    list_pages: u64,
    mut put: impl FnMut(u64, u64),
) -> Result<Prps, PrpError> {
    let mut prps = Prps::default();
    // Where the next entry goes, in bytes of the list, and the last page, which has no place yet:
    // whether it is an entry of its list or behind a pointer to the next one shows with the page
    // after it.
    let (mut at, mut last, mut entries) = (0, None, 0u64);
    let mut end_of_last = 0u64;
    for (address, len) in pieces {
        let is_first = entries == 0;
        let alignment = if is_first { 4 } else { PAGE_SIZE };
        if !address.is_multiple_of(alignment) || !end_of_last.is_multiple_of(PAGE_SIZE) {
            return Err(PrpError::Misaligned);
        }
        let end = address.checked_add(len - 1).ok_or(PrpError::Wraps)?;
        end_of_last = end.wrapping_add(1);
        let mut page = address;
        if is_first {
            prps.prp1 = address;
            entries = 1;
            page = match (address - address % PAGE_SIZE).checked_add(PAGE_SIZE) {
                Some(next) => next,
                None => continue,
            };
        }
        while page <= end {
            if let Some(earlier) = last.replace(page) {
                at = place(at, (list, list_pages), earlier, &mut put)?;
            }
            entries += 1;
            page = match page.checked_add(PAGE_SIZE) {
                Some(next) => next,
                None => break,
            };
        }
    }
    prps.prp2 = match last {
        None => 0,
        Some(page) if entries == 2 => page,
        Some(page) => {
            // Nothing follows it, so that it may have the last place of a page of lists.
            let index = at / PAGE_SIZE;
            if index >= list_pages {
                return Err(PrpError::TooLong);
            }
            put(at, page);
            list
        }
    };
    Ok(prps)
}

/// Puts an entry that another one follows into the list; where that goes.
fn place(
    at: u64,
    (list, list_pages): (u64, u64),
    page: u64,
    put: &mut impl FnMut(u64, u64),
) -> Result<u64, PrpError> {
    let mut at = at;
    if at / PAGE_SIZE >= list_pages {
        return Err(PrpError::TooLong);
    }
    if at % PAGE_SIZE == PAGE_SIZE - ENTRY_SIZE {
        put(at, list + at + ENTRY_SIZE);
        at += ENTRY_SIZE;
        if at / PAGE_SIZE >= list_pages {
            return Err(PrpError::TooLong);
        }
    }
    put(at, page);
    Ok(at + ENTRY_SIZE)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: u64 = 0x7000_0000;

    /// Address of byte `index` for the device, read from the entries alone by the rules of Base
    /// 2.1, 4.1.1, one byte at a time.
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

    /// The entries for pieces are those for one run of pages that the pieces are put in the place
    /// of.
    #[test]
    fn pieces_are_named_page_by_page() {
        for (offset, pages) in [
            (0, 1),
            (0, 2),
            (512, 2),
            (0, 3),
            (2048, 3),
            (4, 513),
            (0, 514),
            (512, 1030),
        ] {
            // One page in two follows its predecessor, the others lie elsewhere.
            let address = |page: u64| 0x5_0000_0000 + page * 4096 + (page / 2) * 0x10_0000;
            let mut pieces: Vec<(u64, u64)> = Vec::new();
            for page in 0..pages {
                let skipped = if page == 0 { offset } else { 0 };
                let cut = if page + 1 == pages { 100 } else { 0 };
                let (at, len) = (address(page) + skipped, 4096 - skipped - cut);
                match pieces.last_mut() {
                    Some((start, bytes)) if *start + *bytes == at => *bytes += len,
                    _ => pieces.push((at, len)),
                }
            }
            let total: u64 = pieces.iter().map(|(_, len)| len).sum();
            let lists = list_pages(pages * 4096);
            let mut entries = vec![u64::MAX; usize::try_from(lists * 512).unwrap()];
            let prps = build_of_pieces(pieces, LIST, lists, |at, entry| {
                entries[usize::try_from(at / 8).unwrap()] = entry;
            });
            let prps = prps.unwrap();
            for page in 0..pages {
                let index = (page * 4096).saturating_sub(offset);
                let expected = address(page) + if page == 0 { offset } else { 0 };
                assert_eq!(
                    byte_address(prps, &entries, total, index),
                    expected,
                    "page {page} of {pages}"
                );
            }
        }
    }

    #[test]
    fn pieces_inside_pages_are_refused() {
        let none = |_: u64, _: u64| panic!("no list is needed");
        let build = |pieces: [(u64, u64); 2]| build_of_pieces(pieces, LIST, 1, none);
        assert!(build([(0x1800, 0x800), (0x9000, 12)]).is_ok());
        assert_eq!(
            build([(0x1000, 0x800), (0x9000, 12)]),
            Err(PrpError::Misaligned),
            "the first ends too early"
        );
        assert_eq!(
            build([(0x1800, 0x800), (0x9004, 12)]),
            Err(PrpError::Misaligned),
            "the second begins too late"
        );
        assert_eq!(
            build([(0x1802, 0x7fe), (0x9000, 12)]),
            Err(PrpError::Misaligned),
            "no dword"
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
