//! Rings in host memory, seen by the host through its file.

use std::sync::Arc;

use memory::{
    Access, ClientMappings, CqRing, DmaMap, DmaView, Iova, MAX_RING_ENTRIES, RingError, SqRing,
};

use crate::client::{Client, PAGE};

/// Where queues are in these tests.
const BASE: u64 = 0x7_0000_0000;

/// Regions of one page each: the queue's page at an index lies at the file's page in that place.
fn scattered(client: &Client, file_pages: &[u64], access: Access) -> (DmaMap, ClientMappings) {
    let mut mappings = ClientMappings::new();
    let mut map = DmaMap::new(64);
    for (page, file_page) in (0..).zip(file_pages) {
        let backing = Some((mappings.map(client.fd()).unwrap(), file_page * PAGE));
        map.map(Iova(BASE + page * PAGE), PAGE, access, backing)
            .unwrap();
    }
    (map, mappings)
}

/// One region for all pages.
fn whole(client: &Client, pages: u64, access: Access) -> Arc<DmaView> {
    let mapping = ClientMappings::new().map(client.fd()).unwrap();
    let mut map = DmaMap::new(1);
    let backing = Some((mapping, 0));
    map.map(Iova(BASE), pages * PAGE, access, backing).unwrap();
    map.view()
}

fn entry(seed: u64) -> [u64; 8] {
    std::array::from_fn(|word| seed << 8 | word as u64)
}

#[test]
fn entries_are_found_on_contiguous_and_on_scattered_pages() {
    let client = Client::new("sq", 8 * PAGE);
    let (map, _mappings) = scattered(&client, &[5, 2, 7], Access::READ);
    let flat = SqRing::new(&whole(&client, 8, Access::READ), Iova(BASE), 512).unwrap();
    let ring = SqRing::new(&map.view(), Iova(BASE), 192).unwrap();
    for (index, file_page) in [(0, 5), (63, 5), (64, 2), (127, 2), (128, 7), (191, 7)] {
        let at = file_page * PAGE + index % 64 * 64;
        client.write_words(at, entry(index));
        ring.prefetch(index as u32);
        assert_eq!(ring.load(index as u32), Some(entry(index)));
        assert_eq!(flat.load((at / 64) as u32), Some(entry(index)));
    }
    assert_eq!(ring.load(192), None);
    assert_eq!(ring.load(u32::MAX), None);
    ring.prefetch(u32::MAX);
}

#[test]
fn a_queue_shorter_than_its_last_page_needs_that_page() {
    let client = Client::new("short", PAGE);
    let (map, _mappings) = scattered(&client, &[0], Access::READ_WRITE);
    let new = |entries| SqRing::new(&map.view(), Iova(BASE), entries).map(|_| ());
    assert_eq!(new(64), Ok(()));
    assert_eq!(new(65), Err(RingError::Unmapped));
    let new = |entries| CqRing::new(&map.view(), Iova(BASE), entries).map(|_| ());
    assert_eq!(new(256), Ok(()));
    assert_eq!(new(257), Err(RingError::Unmapped));
}

#[test]
fn completions_appear_in_the_hosts_file() {
    let client = Client::new("cq", 4 * PAGE);
    let (map, _mappings) = scattered(
        &client,
        &[3, 1],
        Access {
            read: false,
            write: true,
        },
    );
    let ring = CqRing::new(&map.view(), Iova(BASE), 512).unwrap();
    for (index, at) in [
        (0, 3 * PAGE),
        (255, 4 * PAGE - 16),
        (256, PAGE),
        (511, 2 * PAGE - 16),
    ] {
        let cqe = [0x1122_3344_5566_7788 ^ at, 0x99aa_bbcc_ddee_ff00 ^ at];
        assert!(ring.store(index, cqe));
        let bytes: [u8; 16] = client.read(at);
        assert_eq!(bytes[..8], cqe[0].to_le_bytes());
        assert_eq!(bytes[8..], cqe[1].to_le_bytes());
        assert_eq!(ring.load(index), Some(cqe));
    }
    assert!(!ring.store(512, [1, 1]));
    assert_eq!(ring.load(512), None);
    // Neither page 0 nor page 2 of the file is part of the queue.
    assert_eq!(client.read(0), [0; PAGE as usize]);
    assert_eq!(client.read(2 * PAGE), [0; PAGE as usize]);
}

#[test]
fn each_ring_needs_its_own_direction() {
    let client = Client::new("directions", PAGE);
    let write_only = Access {
        read: false,
        write: true,
    };
    let none = Access {
        read: false,
        write: false,
    };
    let sq = |access| SqRing::new(&whole(&client, 1, access), Iova(BASE), 64).map(|_| ());
    let cq = |access| CqRing::new(&whole(&client, 1, access), Iova(BASE), 256).map(|_| ());
    assert_eq!(sq(Access::READ), Ok(()));
    assert_eq!(sq(write_only), Err(RingError::Denied));
    assert_eq!(cq(write_only), Ok(()));
    assert_eq!(cq(Access::READ), Err(RingError::Denied));
    assert_eq!(sq(none), Err(RingError::Denied));
    assert_eq!(cq(none), Err(RingError::Denied));
}

#[test]
fn a_queue_lies_at_a_page_in_shared_memory_within_the_address_space() {
    let client = Client::new("places", 2 * PAGE);
    let mapping = ClientMappings::new().map(client.fd()).unwrap();
    let mut map = DmaMap::new(4);
    let last_page = 0u64.wrapping_sub(PAGE);
    map.map(Iova(BASE), PAGE, Access::READ_WRITE, None).unwrap();
    let backing = Some((mapping, 0));
    map.map(Iova(last_page), PAGE, Access::READ_WRITE, backing)
        .unwrap();
    let new = |base, entries| SqRing::new(&map.view(), Iova(base), entries).map(|_| ());
    assert_eq!(new(BASE, 2), Err(RingError::NoDescriptor));
    assert_eq!(new(BASE + 64, 2), Err(RingError::Misaligned));
    assert_eq!(new(BASE - PAGE, 2), Err(RingError::Unmapped));
    assert_eq!(new(last_page, 64), Ok(()), "it ends at 2^64 exactly");
    assert_eq!(new(last_page, 65), Err(RingError::Unmapped));
    assert_eq!(new(last_page, MAX_RING_ENTRIES), Err(RingError::Unmapped));
}

#[test]
fn the_first_bad_page_names_the_error() {
    let client = Client::new("first-bad", PAGE);
    let (mut map, _mappings) = scattered(&client, &[0], Access::READ_WRITE);
    let second = Iova(BASE + PAGE);
    map.map(second, PAGE, Access::READ_WRITE, None).unwrap();
    let ring = SqRing::new(&map.view(), Iova(BASE), 192).map(|_| ());
    assert_eq!(ring, Err(RingError::NoDescriptor), "the third is unmapped");
}

#[test]
fn rings_follow_the_map() {
    let client = Client::new("moves", 8 * PAGE);
    let (mut map, mut mappings) = scattered(&client, &[0, 1], Access::READ_WRITE);
    let mut sq = SqRing::new(&map.view(), Iova(BASE), 128).unwrap();
    let mut cq = CqRing::new(&map.view(), Iova(BASE), 512).unwrap();
    client.write_words(0, entry(1));
    client.write_words(PAGE, entry(2));
    client.write_words(6 * PAGE, entry(3));

    // The second page is unmapped: until the rings resolve their pages again, they reach the old
    // one; then it is absent and the first is not.
    map.unmap(Iova(BASE + PAGE), PAGE).unwrap();
    assert_eq!(sq.load(64), Some(entry(2)));
    sq.resolve(&map.view());
    cq.resolve(&map.view());
    assert_eq!((sq.load(0), sq.load(64)), (Some(entry(1)), None));
    sq.prefetch(64);
    assert!(cq.store(255, [4, 4]) && !cq.store(256, [5, 5]));
    assert_eq!(cq.load(256), None);

    // It comes back elsewhere.
    let backing = Some((mappings.map(client.fd()).unwrap(), 6 * PAGE));
    let second = Iova(BASE + PAGE);
    map.map(second, PAGE, Access::READ_WRITE, backing).unwrap();
    sq.resolve(&map.view());
    cq.resolve(&map.view());
    assert_eq!((sq.load(0), sq.load(64)), (Some(entry(1)), Some(entry(3))));
    assert!(cq.store(256 + 44, [6, 7]));
    assert_eq!(client.read_u32(6 * PAGE + 44 * 16), 6);

    // All of it goes, and comes back read-only: a completion queue cannot be there.
    map.unmap_all();
    sq.resolve(&map.view());
    assert_eq!((sq.load(0), sq.load(64)), (None, None));
    let (read_only, _) = scattered(&client, &[6, 0], Access::READ);
    sq.resolve(&read_only.view());
    cq.resolve(&read_only.view());
    assert_eq!((sq.load(0), sq.load(64)), (Some(entry(3)), Some(entry(1))));
    assert!(!cq.store(0, [8, 8]) && cq.load(511).is_none());
}

#[test]
fn a_ring_keeps_the_memory_that_it_points_at() {
    const NAME: &str = "kept-by-a-ring";
    let client = Client::new(NAME, PAGE);
    let (map, mappings) = scattered(&client, &[0], Access::READ);
    let mut ring = SqRing::new(&map.view(), Iova(BASE), 64).unwrap();
    drop((map, mappings));
    client.write_words(64, entry(9));
    assert_eq!(ring.load(1), Some(entry(9)));
    ring.resolve(&DmaView::empty());
    assert_eq!(crate::client::mappings_of(NAME), 0);
    assert_eq!(ring.load(1), None);
}
