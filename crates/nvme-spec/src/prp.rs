//! Physical Region Pages: constants of PRP entries and lists for the one memory page size that is
//! offered, 4 KiB (Base 2.1, 4.3.1). No walking: that needs memory.

/// Bytes of a memory page with CC.MPS = 0.
pub const PAGE_SIZE: u64 = 4096;
/// Base-2 logarithm of [`PAGE_SIZE`].
pub const PAGE_SHIFT: u32 = 12;
/// The bits of a PRP entry that are the offset in a page.
pub const OFFSET_MASK: u64 = PAGE_SIZE - 1;
/// Bytes of an entry of a PRP list.
pub const ENTRY_SIZE: u64 = 8;
/// Entries of a PRP list that fills a page.
pub const ENTRIES_PER_PAGE: u64 = PAGE_SIZE / ENTRY_SIZE;
/// Bits that are 0 in the offset of a first PRP entry: it is dword aligned.
pub const OFFSET_ALIGNMENT_MASK: u64 = 0b11;
/// Bits that are 0 in the offset of a PRP list pointer: it is qword aligned.
pub const LIST_ALIGNMENT_MASK: u64 = 0b111;

const _: () = assert!(PAGE_SIZE == 1 << PAGE_SHIFT && ENTRIES_PER_PAGE == 512);

/// Offset of an address in its page.
pub const fn page_offset(address: u64) -> u64 {
    address & OFFSET_MASK
}

/// Entries of a PRP list from `pointer` to the end of its page; the last one is a pointer to more
/// of the list where more is needed.
pub const fn list_entries(pointer: u64) -> u64 {
    (PAGE_SIZE - page_offset(pointer)) / ENTRY_SIZE
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_that_starts_inside_a_page_is_shorter() {
        assert_eq!(page_offset(0x1_2345), 0x345);
        assert_eq!(list_entries(0x1000), 512);
        assert_eq!(list_entries(0x1008), 511);
        assert_eq!(list_entries(0x1ff8), 1);
    }
}
