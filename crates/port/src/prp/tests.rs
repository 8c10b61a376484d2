//! The walk against an oracle that finds the address of each page by the specification's words
//! (Base 2.1, 4.3.1), and single cases with numbers worked out by hand.

use std::collections::BTreeSet;

use memory::{Access, Hint, Iova, Need};
use nvme_spec::Status;
use proptest::prelude::*;

use super::{MAX_TRANSFER, Segments, straight, walk};
use crate::testing::{Host, PAGE};

/// (first address, bytes) of every segment.
fn walked(
    host: &Host,
    prp1: u64,
    prp2: u64,
    len: u32,
    need: Need,
) -> Result<Vec<(u64, u32)>, Status> {
    let view = host.view();
    let mut out = Segments::new();
    let mut hint = Hint::default();
    let walked = walk(&view, &mut hint, prp1, prp2, len, need, &mut out);
    // Whatever is near, the short way finds what the long one does, or nothing.
    for near in [view.near(&hint), view.near(&Hint::default())] {
        if let Some(segment) = straight(&near, [prp1, prp2], len, need) {
            let [whole] = &out[..] else {
                panic!("{walked:?} {out:?}")
            };
            assert_eq!(walked, Ok(()));
            assert_eq!(segment.as_raw(), whole.as_raw());
            assert_eq!(segment.iova(), whole.iova());
        }
    }
    walked?;
    Ok(out.iter().map(|s| (s.iova().0, s.len())).collect())
}

#[test]
fn one_page_or_two_that_follow_go_straight() {
    let host = Host::new(8);
    let view = host.view();
    let near = view.near(&Hint::default());
    let page = |n| host.page(n).0;
    let goes = |prp1, prp2, len| straight(&near, [prp1, prp2], len, Need::DeviceWrites).is_some();
    assert!(goes(page(1), u64::MAX, 4096));
    assert!(goes(page(1) + 512, 0, 3584));
    assert!(goes(page(1), page(2), 8192));
    assert!(goes(page(1) + 512, page(2), 4096));
    // Not two that do not follow, nor a list, nor an address that is no multiple of 4, nor what is
    // not mapped.
    assert!(!goes(page(1), page(3), 8192));
    assert!(!goes(page(1), page(2), 8196));
    assert!(!goes(page(1) + 2, 0, 512));
    assert!(!goes(page(8), 0, 512));
    assert!(!goes(page(7), page(8), 8192));
}

fn read(host: &Host, prp1: u64, prp2: u64, len: u32) -> Result<Vec<(u64, u32)>, Status> {
    walked(host, prp1, prp2, len, Need::DeviceWrites)
}

/// Writes a list at `at`.
fn list(host: &Host, at: Iova, entries: &[u64]) {
    for (n, entry) in (0..).zip(entries) {
        host.write_u64(Iova(at.0 + 8 * n), *entry);
    }
}

#[test]
fn quirk_the_first_entry_has_an_offset() {
    let host = Host::new(8);
    let first = host.page(1).0 + 0x200;
    assert_eq!(read(&host, first, 0, 512), Ok(vec![(first, 512)]));
    // Up to the end of the page the second entry is not looked at.
    let all = (PAGE - 0x200) as u32;
    assert_eq!(read(&host, first, u64::MAX, all), Ok(vec![(first, all)]));
    // One byte more needs it, as a page.
    let second = host.page(5).0;
    let split = vec![(first, all), (second, 4)];
    assert_eq!(read(&host, first, second, all + 4), Ok(split));
    let adjacent = host.page(2).0;
    let merged = vec![(first, all + 4)];
    assert_eq!(read(&host, first, adjacent, all + 4), Ok(merged));
}

#[test]
fn offsets_where_none_may_be_are_refused() {
    let host = Host::new(8);
    let page = |n| host.page(n).0;
    let refused = Err(Status::PRP_OFFSET_INVALID);
    for offset in [1, 2, 3] {
        assert_eq!(read(&host, page(1) + offset, 0, 512), refused);
    }
    assert_eq!(read(&host, page(1) + 4, 0, 512).map(|s| s.len()), Ok(1));
    // The second of two pages.
    assert_eq!(read(&host, page(1), page(2) + 8, 8192), refused);
    // A list pointer that is not qword aligned.
    assert_eq!(read(&host, page(1), page(2) + 4, 12_288), refused);
    // An entry of a list.
    list(&host, host.page(2), &[page(3), page(4) + 512]);
    assert_eq!(read(&host, page(1), page(2), 12_288), refused);
}

#[test]
fn quirk_a_list_starts_inside_a_page() {
    let host = Host::new(16);
    let page = |n| host.page(n).0;
    // The last two entries of page 2: one page, then the pointer to the rest.
    let start = Iova(page(2) + PAGE - 16);
    list(&host, start, &[page(5), page(3)]);
    list(&host, host.page(3), &[page(7), page(9)]);
    let expected = vec![
        (page(1), 4096),
        (page(5), 4096),
        (page(7), 4096),
        (page(9), 4096),
    ];
    assert_eq!(read(&host, page(1), start.0, 16_384), Ok(expected));
    // The last entry of a page: a pointer where two are needed...
    let last = Iova(page(2) + PAGE - 8);
    let expected = vec![(page(1), 4096), (page(7), 4096), (page(9), 4096)];
    assert_eq!(read(&host, page(1), last.0, 12_288), Ok(expected));
    // ...and the two last entries are two pages where two are needed.
    let expected = vec![(page(1), 4096), (page(5), 4096), (page(3), 4096)];
    assert_eq!(read(&host, page(1), start.0, 12_288), Ok(expected));
}

#[test]
fn quirk_lists_are_chained_by_their_last_entry() {
    let host = Host::new(8);
    let page = |n| host.page(n).0;
    // 1,025 pages: 511 + 511 + 2 list entries behind the first page, each alternating so that
    // nothing merges.
    let data = |n: u64| page(2 + 2 * (n % 2));
    let first: Vec<u64> = (0..511).map(data).chain([page(1)]).collect();
    list(&host, host.page(0), &first);
    // The second page of the list points to itself, so it is read again for the last two pages.
    let second: Vec<u64> = (511..1022).map(data).chain([page(1)]).collect();
    list(&host, host.page(1), &second);
    let len = MAX_TRANSFER;
    let segments = read(&host, page(2) + 4, page(0), len).unwrap();
    let total: u64 = segments.iter().map(|(_, len)| u64::from(*len)).sum();
    assert_eq!(total, u64::from(len));
    assert_eq!(segments[0], (page(2) + 4, 4092));
    assert_eq!(segments[1], (data(0), 4096));
    assert_eq!(segments[511], (data(510), 4096));
    assert_eq!(segments[512], (data(511), 4096));
    assert_eq!(segments.last(), Some(&(data(512), 4)));
    assert_eq!(segments.len(), 1025);
}

#[test]
fn a_list_that_loops_ends_with_the_length() {
    let host = Host::new(4);
    let page = |n| host.page(n).0;
    list(&host, host.page(1), &[page(1); 512]);
    let segments = read(&host, page(2), page(1), MAX_TRANSFER).unwrap();
    assert_eq!(segments.len(), 1024);
    // The pointer of a list of one entry points to itself: that entry then is at an offset in a
    // list.
    let last = page(1) + PAGE - 8;
    host.write_u64(Iova(last), last);
    let refused = Err(Status::PRP_OFFSET_INVALID);
    assert_eq!(read(&host, page(2), last, 16_384), refused);
}

#[test]
fn a_chain_pointer_has_no_offset() {
    let host = Host::new(8);
    let page = |n| host.page(n).0;
    let last = Iova(page(1) + PAGE - 8);
    list(&host, host.page(2), &[page(3); 8]);
    list(&host, last, &[page(2) + 8]);
    let refused = Err(Status::PRP_OFFSET_INVALID);
    assert_eq!(read(&host, page(4), last.0, 16_384), refused);
    list(&host, last, &[page(2)]);
    assert!(read(&host, page(4), last.0, 16_384).is_ok());
}

#[test]
fn what_cannot_be_reached_is_a_data_transfer_error() {
    let mut host = Host::unmapped(16);
    host.map_pages(0, 4);
    host.map_without_descriptor(4, 2);
    let read_only = Access {
        read: true,
        write: false,
    };
    host.map_as(6, 2, read_only);
    let page = |n| host.page(n).0;
    let error = Err(Status::DATA_TRANSFER_ERROR);
    // Unmapped, without a descriptor, not writable.
    for bad in [page(8), page(4), page(6), 0, PAGE, u64::MAX - 4095] {
        assert_eq!(read(&host, bad, 0, 4096), error, "{bad:#x}");
        assert_eq!(read(&host, page(0), bad, 8192), error, "{bad:#x}");
        list(&host, host.page(1), &[page(2), bad]);
        assert_eq!(read(&host, page(0), page(1), 12_288), error, "{bad:#x}");
    }
    assert!(walked(&host, page(6), 0, 4096, Need::DeviceReads).is_ok());
    // Lists outside, and in memory without a descriptor; a list that may only be read is one.
    for bad in [page(8), page(4), 0x1000, u64::MAX - 4095] {
        assert_eq!(read(&host, page(0), bad, 12_288), error, "{bad:#x}");
    }
    assert_eq!(
        read(&host, page(0), page(6), 12_288),
        error,
        "entries are 0: not mapped"
    );
    list(&host, host.page(6), &[page(2), page(3)]);
    assert!(read(&host, page(0), page(6), 12_288).is_ok());
    // A chain that leads outside.
    let last = Iova(page(1) + PAGE - 8);
    list(&host, last, &[page(9)]);
    assert_eq!(read(&host, page(0), last.0, 12_288), error);
}

#[test]
fn addresses_that_wrap_are_a_data_transfer_error() {
    let host = Host::new(4);
    let error = Err(Status::DATA_TRANSFER_ERROR);
    let top = u64::MAX - 4095;
    assert_eq!(read(&host, top, 0, 4096), error);
    assert_eq!(read(&host, top + 4, 0, 8188), error);
    assert_eq!(read(&host, u64::MAX - 3, 0, 8), error);
    list(&host, host.page(0), &[top, 0]);
    assert_eq!(read(&host, host.page(1).0, host.page(0).0, 12_288), error);
}

#[test]
fn pages_follow_each_other_up_to_the_last_address_and_not_beyond() {
    let mut host = Host::unmapped(8);
    host.map_pages(0, 6);
    let top = u64::MAX - 4095;
    host.map_elsewhere(Iova(top), 1, 6);
    host.map_elsewhere(Iova(0), 1, 7);
    list(&host, host.page(0), &[top, 0, host.page(2).0]);
    let expected = vec![
        (host.page(1).0, 4096),
        (top, 4096),
        (0, 4096),
        (host.page(2).0, 4096),
    ];
    let walked = read(&host, host.page(1).0, host.page(0).0, 16_384);
    assert_eq!(walked, Ok(expected));
    let walked = read(&host, top + 8, 0, 8184);
    assert_eq!(walked, Ok(vec![(top + 8, 4088), (0, 4096)]));
}

#[test]
fn runs_are_cut_where_regions_end() {
    let mut host = Host::unmapped(8);
    host.map_pages(0, 3);
    host.map_pages(3, 1);
    host.map_pages(4, 4);
    let page = |n| host.page(n).0;
    list(&host, host.page(0), &[page(2), page(3), page(4), page(5)]);
    let expected = vec![(page(1) + 8, 8184), (page(3), 4096), (page(4), 8192 - 8)];
    let len = 5 * 4096 - 16;
    assert_eq!(read(&host, page(1) + 8, page(0), len), Ok(expected));
}

#[test]
fn longer_than_any_transfer_is_refused() {
    let host = Host::new(4);
    list(&host, host.page(0), &[host.page(0).0; 512]);
    let page = host.page(0).0;
    let refused = Err(Status::INVALID_FIELD_IN_COMMAND);
    assert_eq!(read(&host, page, page, MAX_TRANSFER + 4), refused);
    assert_eq!(read(&host, page, page, u32::MAX), refused);
    assert_eq!(
        read(&host, page + 4, page, MAX_TRANSFER).map(|s| s.len()),
        Ok(1025)
    );
}

/// A layout by the specification: the address of every page of data, or the fault.
struct Oracle<'h> {
    host: &'h Host,
    /// By page: what the device may do there.
    access: &'h [Kind],
    errors: BTreeSet<u16>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Absent,
    NoDescriptor,
    ReadOnly,
    Both,
}

impl Oracle<'_> {
    fn reachable(&self, address: u64, need: Need) -> bool {
        let kind = address
            .checked_sub(Host::BASE)
            .and_then(|at| self.access.get((at / PAGE) as usize));
        match kind {
            Some(Kind::Both) => true,
            Some(Kind::ReadOnly) => need == Need::DeviceReads,
            _ => false,
        }
    }

    /// The entry at `at` of a list, if it can be read.
    fn entry(&mut self, at: u64) -> Option<u64> {
        if !self.reachable(at, Need::DeviceReads) {
            self.errors.insert(Status::DATA_TRANSFER_ERROR.0);
            return None;
        }
        let bytes = self.host.read(Iova(at), 8);
        Some(u64::from_le_bytes(bytes.try_into().unwrap()))
    }

    /// Addresses of the `len` bytes, as (address, bytes) page by page.
    fn pages(&mut self, prp1: u64, prp2: u64, len: u64, need: Need) -> Vec<(u64, u64)> {
        let count = (prp1 % PAGE + len).div_ceil(PAGE);
        if !prp1.is_multiple_of(4) {
            self.errors.insert(Status::PRP_OFFSET_INVALID.0);
        }
        let mut pages = vec![prp1];
        if count == 2 {
            pages.push(prp2);
        } else if count > 2 {
            if prp2.is_multiple_of(8) {
                self.follow(prp2, count - 1, &mut pages);
            } else {
                self.errors.insert(Status::PRP_OFFSET_INVALID.0);
            }
        }
        let mut left = len;
        let mut result = Vec::new();
        for (number, page) in pages.into_iter().enumerate() {
            if number > 0 && page % PAGE != 0 {
                self.errors.insert(Status::PRP_OFFSET_INVALID.0);
            }
            if !self.reachable(page, need) {
                self.errors.insert(Status::DATA_TRANSFER_ERROR.0);
            }
            let bytes = left.min(PAGE - page % PAGE);
            left -= bytes;
            result.push((page, bytes));
        }
        result
    }

    /// Entry by entry: where one stands at the end of its page and is not the last that is needed,
    /// it is a pointer.
    fn follow(&mut self, start: u64, needed: u64, pages: &mut Vec<u64>) {
        let mut at = start;
        let mut found = 0;
        while found < needed {
            let Some(entry) = self.entry(at) else { return };
            let ends_page = (at + 8).is_multiple_of(PAGE);
            if ends_page && found + 1 < needed {
                if entry % PAGE != 0 {
                    self.errors.insert(Status::PRP_OFFSET_INVALID.0);
                    return;
                }
                at = entry;
                continue;
            }
            pages.push(entry);
            found += 1;
            at += 8;
        }
    }
}

const PAGES: u64 = 24;

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![
        24 => Just(Kind::Both),
        2 => Just(Kind::ReadOnly),
        1 => Just(Kind::NoDescriptor),
        1 => Just(Kind::Absent),
    ]
}

/// An address in or near the memory: mostly of a page, sometimes inside one.
fn address(aligned: u32) -> impl Strategy<Value = u64> {
    let page = || (0..PAGES + 1).prop_map(|page| Host::BASE + page * PAGE);
    prop_oneof![
        aligned => page(),
        2 => (page(), 0..PAGE / 8).prop_map(|(page, offset)| page + offset * 8),
        1 => (page(), 0..PAGE).prop_map(|(page, offset)| page + offset),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 800, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_walk_is_what_the_specification_says(
        kinds in prop::collection::vec(kind(), PAGES as usize),
        joined in any::<u32>(),
        prp1 in address(6),
        prp2 in prop_oneof![
            3 => address(6),
            // Near the end of a page, so that short transfers chain.
            3 => (0..PAGES, 0u64..6).prop_map(|(page, n)| Host::BASE + (page + 1) * PAGE - 8 * (n + 1)),
        ],
        len in prop_oneof![4 => 1u32..0x8000, 1 => 1..=MAX_TRANSFER],
        entries in prop::collection::vec(address(400), 1..40),
        consecutive in any::<bool>(),
        writes in any::<bool>(),
    ) {
        let host = build(&kinds, joined, &entries, consecutive);
        let need = if writes { Need::DeviceWrites } else { Need::DeviceReads };
        let mut oracle = Oracle { host: &host, access: &kinds, errors: BTreeSet::new() };
        let expected = oracle.pages(prp1, prp2, u64::from(len), need);
        match walked(&host, prp1, prp2, len, need) {
            Ok(segments) => {
                prop_assert!(oracle.errors.is_empty(), "accepted with {:?}", oracle.errors);
                let bytes = |list: &[(u64, u64)]| -> Vec<u64> {
                    list.iter().flat_map(|(at, len)| *at..at + len).collect()
                };
                let segments: Vec<_> = segments.iter().map(|(at, len)| (*at, u64::from(*len))).collect();
                prop_assert!(bytes(&segments) == bytes(&expected));
            }
            Err(status) => prop_assert!(
                oracle.errors.contains(&status.0),
                "{status} where the oracle has {:?}", oracle.errors
            ),
        }
    }
}

/// A host whose every page is full of list entries, by `kinds` mapped; pages of one kind that
/// `joined` joins are one region.
fn build(kinds: &[Kind], joined: u32, entries: &[u64], consecutive: bool) -> Host {
    let mut host = Host::unmapped(PAGES);
    let mut first = 0;
    while first < kinds.len() {
        let mut end = first + 1;
        while end < kinds.len() && kinds[end] == kinds[first] && joined >> end & 1 == 1 {
            end += 1;
        }
        let (start, count) = (first as u64, (end - first) as u64);
        match kinds[first] {
            Kind::Absent => {}
            Kind::NoDescriptor => host.map_without_descriptor(start, count),
            kind => host.map_as(
                start,
                count,
                Access {
                    read: true,
                    write: kind == Kind::Both,
                },
            ),
        }
        first = end;
    }
    for slot in 0..PAGES * PAGE / 8 {
        let entry = if consecutive {
            Host::BASE + slot % PAGES * PAGE
        } else {
            entries[slot as usize % entries.len()]
        };
        host.write_u64(Iova(Host::BASE + slot * 8), entry);
    }
    host
}
