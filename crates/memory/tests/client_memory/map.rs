//! The DMA map against an oracle that knows single pages only, and its edges one by one.

use std::collections::BTreeMap;
use std::sync::Arc;

use memory::{
    Access, ClientMappings, DmaError, DmaMap, DmaView, Hint, Iova, Mapping, Need, TranslateError,
    ViewPins,
};
use proptest::prelude::*;

use crate::client::{Client, PAGE};

/// Pages of each of the two files.
const FILE_PAGES: u64 = 24;
/// Addresses are within this many pages of one of two places: the first and the last page of the
/// address space.
const WINDOW: u64 = 40;
const LIMIT: usize = 12;

#[derive(Clone, Debug)]
enum Step {
    Map {
        page: u64,
        count: u64,
        access: Access,
        backing: Option<(usize, u64)>,
    },
    Unmap {
        page: u64,
        count: u64,
    },
    UnmapAll,
    /// Keeps the view for later questions.
    Keep,
    Ask {
        page: u64,
        offset: u64,
        len: u32,
        need: Need,
        /// Of the views kept; the newest if there are not so many.
        view: usize,
    },
}

/// Page numbers of both windows, as addresses divided by the page size.
fn page() -> impl Strategy<Value = u64> {
    let last = u64::MAX / PAGE;
    prop_oneof![0..WINDOW, last - WINDOW + 1..=last]
}

fn access() -> impl Strategy<Value = Access> {
    (any::<bool>(), any::<bool>()).prop_map(|(read, write)| Access { read, write })
}

fn need() -> impl Strategy<Value = Need> {
    prop_oneof![Just(Need::DeviceReads), Just(Need::DeviceWrites)]
}

fn step() -> impl Strategy<Value = Step> {
    let count = 0u64..7;
    let backing = prop::option::weighted(0.8, (0usize..3, 0..FILE_PAGES));
    prop_oneof![
        6 => (page(), count.clone(), access(), backing).prop_map(|(page, count, access, backing)| {
            Step::Map { page, count, access, backing }
        }),
        3 => (page(), 0u64..14).prop_map(|(page, count)| Step::Unmap { page, count }),
        1 => Just(Step::UnmapAll),
        2 => Just(Step::Keep),
        12 => (page(), 0..PAGE, 0u32..5 * PAGE as u32, need(), 0usize..4).prop_map(
            |(page, offset, len, need, view)| Step::Ask { page, offset, len, need, view }
        ),
    ]
}

/// One page as the oracle knows it. `region` tells pages of one map call from those of others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Known {
    region: u64,
    access: Access,
    backing: Option<(usize, u64)>,
}

type Oracle = BTreeMap<u64, Known>;

/// Two writable files and, as number 2, the first one's read-only descriptor.
struct Files {
    clients: [Client; 2],
    mappings: [Arc<Mapping>; 3],
}

impl Files {
    fn new() -> Self {
        let clients = ["oracle-0", "oracle-1"].map(|name| Client::new(name, FILE_PAGES * PAGE));
        clients[0].fill_with_offsets(FILE_PAGES * PAGE, 0);
        clients[1].fill_with_offsets(FILE_PAGES * PAGE, 1 << 32);
        let mut session = ClientMappings::new();
        let read_only = clients[0].reopened(std::fs::OpenOptions::new().read(true));
        let fds = [clients[0].fd(), clients[1].fd(), read_only];
        let mappings = fds.map(|fd| session.map(fd).unwrap());
        Files { clients, mappings }
    }
}

fn expect_map(oracle: &Oracle, step: &Step) -> Result<(), DmaError> {
    let Step::Map {
        page,
        count,
        access,
        backing,
    } = *step
    else {
        unreachable!("only for maps")
    };
    if count == 0 {
        return Err(DmaError::Empty);
    }
    if page + count > u64::MAX / PAGE + 1 {
        return Err(DmaError::Wraps);
    }
    if let Some(range) = first_region_in(oracle, page, count, true) {
        return Err(DmaError::Overlaps {
            iova: Iova(range.0),
            len: range.1,
        });
    }
    if regions(oracle) == LIMIT {
        return Err(DmaError::TooMany { limit: LIMIT });
    }
    match backing {
        Some((_, start)) if start + count > FILE_PAGES => Err(DmaError::OutOfFile {
            file_len: FILE_PAGES * PAGE,
        }),
        Some((2, _)) if access.write => Err(DmaError::NotWritable),
        _ => Ok(()),
    }
}

fn regions(oracle: &Oracle) -> usize {
    let mut all: Vec<u64> = oracle.values().map(|known| known.region).collect();
    all.dedup();
    all.len()
}

/// Address and bytes of the last (or first) region with a page in the range.
fn first_region_in(oracle: &Oracle, page: u64, count: u64, last: bool) -> Option<(u64, u64)> {
    let mut inside = oracle
        .range(page..page + count)
        .map(|(_, known)| known.region);
    let region = if last {
        inside.next_back()
    } else {
        inside.next()
    }?;
    let mut pages = oracle.iter().filter(|(_, known)| known.region == region);
    let first = *pages.next()?.0;
    Some((first * PAGE, (1 + pages.count() as u64) * PAGE))
}

fn expect_unmap(oracle: &Oracle, page: u64, count: u64) -> Result<u64, DmaError> {
    if count == 0 {
        return Err(DmaError::Empty);
    }
    if page + count > u64::MAX / PAGE + 1 {
        return Err(DmaError::Wraps);
    }
    let Some(last) = first_region_in(oracle, page, count, true) else {
        return Err(DmaError::NotFound);
    };
    let first = first_region_in(oracle, page, count, false).unwrap();
    let inside =
        |(iova, len): (u64, u64)| iova / PAGE >= page && iova / PAGE + len / PAGE <= page + count;
    for (iova, len) in [last, first] {
        if !inside((iova, len)) {
            let iova = Iova(iova);
            return Err(DmaError::Splits { iova, len });
        }
    }
    Ok(oracle.range(page..page + count).count() as u64 * PAGE)
}

/// The file and the offset in it of the first byte, and how many bytes follow in the region.
fn expect_translation(
    oracle: &Oracle,
    at: u64,
    len: u32,
    need: Need,
) -> Result<(usize, u64, u32), TranslateError> {
    if len > 0 && u128::from(at) + u128::from(len) > 1 << 64 {
        return Err(TranslateError::Wraps);
    }
    let first = *oracle.get(&(at / PAGE)).ok_or(TranslateError::Unmapped)?;
    let allowed = match need {
        Need::DeviceReads => first.access.read,
        Need::DeviceWrites => first.access.write,
    };
    if !allowed {
        return Err(TranslateError::Denied);
    }
    let (file, file_page) = first.backing.ok_or(TranslateError::NoDescriptor)?;
    let same = |page: u64| {
        oracle
            .get(&page)
            .is_some_and(|known| known.region == first.region)
    };
    let mut bytes = PAGE - at % PAGE;
    while bytes < u64::from(len) && same(at / PAGE + bytes.div_ceil(PAGE)) {
        bytes += PAGE;
    }
    let bytes = bytes.min(u64::from(len)) as u32;
    Ok((file, file_page * PAGE + at % PAGE, bytes))
}

/// Asks, and moves bytes both ways: what is translated must be the file's bytes at that place.
fn ask(files: &Files, view: &DmaView, oracle: &Oracle, hint: &mut Hint, step: &Step) {
    let Step::Ask {
        page,
        offset,
        len,
        need,
        ..
    } = *step
    else {
        unreachable!("only for questions")
    };
    let at = page * PAGE + offset;
    let expected = expect_translation(oracle, at, len, need);
    let segment = match (view.translate(hint, Iova(at), len, need), expected) {
        (Ok(segment), Ok(_)) => segment,
        (got, expected) => {
            assert_eq!(got.map(|_| ()), expected.map(|_| ()));
            return;
        }
    };
    let (file, file_offset, bytes) = expected.unwrap();
    assert_eq!((segment.iova(), segment.len()), (Iova(at), bytes));
    let client = &files.clients[file % 2];
    let mut found = vec![0; bytes as usize];
    segment.read_into(0, &mut found);
    let mut theirs = vec![0; bytes as usize];
    std::os::unix::fs::FileExt::read_exact_at(&client.file, &mut theirs, file_offset).unwrap();
    assert_eq!(found, theirs);
    assert!(segment.compare(0, &theirs));
    if need == Need::DeviceWrites && bytes > 0 {
        let last = bytes - 1;
        segment.write_from(last, &[!theirs[last as usize]]);
        let [now] = client.read(file_offset + u64::from(last));
        assert_eq!(now, !theirs[last as usize]);
        assert!(!segment.compare(0, &theirs));
        client.write(file_offset, &theirs);
    }
}

fn run(files: &Files, steps: &[Step]) {
    let mut map = DmaMap::new(LIMIT);
    let mut oracle = Oracle::new();
    let mut epoch = 0;
    let mut kept: Vec<(Arc<DmaView>, Oracle)> = Vec::new();
    let mut hint = Hint::default();
    for (number, step) in (1..).zip(steps) {
        match *step {
            Step::Map {
                page,
                count,
                access,
                backing,
            } => {
                let expected = expect_map(&oracle, step);
                let pages =
                    backing.map(|(file, start)| (files.mappings[file].clone(), start * PAGE));
                let got = map.map(Iova(page * PAGE), count * PAGE, access, pages);
                assert_eq!(got, expected);
                if got.is_ok() {
                    epoch += 1;
                    oracle.extend((0..count).map(|index| {
                        let backing = backing.map(|(file, start)| (file, start + index));
                        (
                            page + index,
                            Known {
                                region: number,
                                access,
                                backing,
                            },
                        )
                    }));
                }
            }
            Step::Unmap { page, count } => {
                let expected = expect_unmap(&oracle, page, count);
                assert_eq!(map.unmap(Iova(page * PAGE), count * PAGE), expected);
                if expected.is_ok() {
                    epoch += 1;
                    oracle.retain(|known, _| !(page..page + count).contains(known));
                }
            }
            Step::UnmapAll => {
                epoch += u64::from(!oracle.is_empty());
                assert_eq!(map.unmap_all(), oracle.len() as u64 * PAGE);
                oracle.clear();
            }
            Step::Keep => kept.push((map.view(), oracle.clone())),
            Step::Ask { view, .. } => match kept.get(view) {
                Some((view, oracle)) => ask(files, view, oracle, &mut hint, step),
                None => ask(files, &map.view(), &oracle, &mut hint, step),
            },
        }
        assert_eq!(map.view().epoch(), epoch);
        let listed = map.regions().map(|region| (region.iova().0, region.len()));
        let mut pages = listed.flat_map(|(iova, len)| iova / PAGE..=(iova + (len - 1)) / PAGE);
        assert!(pages.by_ref().eq(oracle.keys().copied()));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]
    #[test]
    fn the_map_does_what_single_pages_do(steps in prop::collection::vec(step(), 1..80)) {
        run(&Files::new(), &steps);
    }
}

/// One file of 16 pages and its mapping.
fn file() -> (Client, Arc<Mapping>) {
    let client = Client::new("map", 16 * PAGE);
    let mapping = ClientMappings::new().map(client.fd()).unwrap();
    (client, mapping)
}

#[test]
fn addresses_lengths_and_offsets_are_whole_pages() {
    let (_client, mapping) = file();
    let mut map = DmaMap::new(4);
    for (iova, len, offset) in [
        (1, PAGE, 0),
        (0, PAGE + 512, 0),
        (0, 4095, 0),
        (0, PAGE, 2048),
    ] {
        let backing = Some((mapping.clone(), offset));
        let refused = map.map(Iova(iova), len, Access::READ, backing);
        assert_eq!(refused, Err(DmaError::Misaligned), "{iova} {len} {offset}");
    }
    assert_eq!(map.unmap(Iova(512), PAGE), Err(DmaError::Misaligned));
    assert_eq!(map.unmap(Iova(0), 1), Err(DmaError::Misaligned));
    assert_eq!(map.unmap(Iova(0), 0), Err(DmaError::Empty));
    assert_eq!(map.view().epoch(), 0);
}

#[test]
fn the_last_page_may_end_where_the_address_space_does() {
    let (client, mapping) = file();
    let last = 0u64.wrapping_sub(PAGE);
    let mut map = DmaMap::new(4);
    let backing = |page| Some((mapping.clone(), page * PAGE));
    let wraps = map.map(Iova(last), 2 * PAGE, Access::READ, backing(0));
    assert_eq!(wraps, Err(DmaError::Wraps));
    let huge = map.map(Iova(PAGE), 0u64.wrapping_sub(PAGE), Access::READ, None);
    assert_eq!(huge, Ok(()), "all but the first page");
    assert_eq!(
        map.unmap(Iova(PAGE), 0u64.wrapping_sub(2 * PAGE)),
        splits(PAGE, 0u64.wrapping_sub(PAGE))
    );
    assert_eq!(map.unmap_all(), 0u64.wrapping_sub(PAGE));
    map.map(Iova(last), PAGE, Access::READ, backing(3)).unwrap();
    client.write(4 * PAGE - 4, b"last");
    let view = map.view();
    let mut hint = Hint::default();
    let mut translate = |at, len| view.translate(&mut hint, Iova(at), len, Need::DeviceReads);
    let mut bytes = [0; 4];
    let segment = translate(u64::MAX - 3, 4).unwrap();
    segment.read_into(0, &mut bytes);
    assert_eq!(&bytes, b"last");
    assert_eq!(
        translate(u64::MAX - 3, 5).map(|_| ()),
        Err(TranslateError::Wraps)
    );
    assert_eq!(translate(u64::MAX, 1).unwrap().len(), 1);
    assert_eq!(translate(0, 4).map(|_| ()), Err(TranslateError::Unmapped));
    assert_eq!(map.unmap(Iova(last), 2 * PAGE), Err(DmaError::Wraps));
    assert_eq!(map.unmap(Iova(last), PAGE), Ok(PAGE));
}

fn splits(iova: u64, len: u64) -> Result<u64, DmaError> {
    let iova = Iova(iova);
    Err(DmaError::Splits { iova, len })
}

#[test]
fn file_offsets_that_wrap_are_outside_the_file() {
    let (_client, mapping) = file();
    let mut map = DmaMap::new(4);
    let outside = Err(DmaError::OutOfFile {
        file_len: 16 * PAGE,
    });
    for offset in [
        16 * PAGE,
        15 * PAGE + PAGE,
        1 << 62,
        0u64.wrapping_sub(PAGE),
    ] {
        let backing = Some((mapping.clone(), offset));
        assert_eq!(map.map(Iova(0), PAGE, Access::READ, backing), outside);
    }
    let backing = Some((mapping.clone(), 15 * PAGE));
    assert_eq!(
        map.map(Iova(0), 2 * PAGE, Access::READ, backing.clone()),
        outside
    );
    assert_eq!(map.map(Iova(0), PAGE, Access::READ, backing), Ok(()));
}

#[test]
fn a_files_last_page_is_mapped_as_a_whole() {
    let client = Client::new("odd-size", 2 * PAGE - 1);
    let mut files = ClientMappings::new();
    let mapping = files.map(client.fd()).unwrap();
    let mut map = DmaMap::new(4);
    let outside = map.map(Iova(0), 3 * PAGE, Access::READ, Some((mapping.clone(), 0)));
    let file_len = 2 * PAGE - 1;
    assert_eq!(outside, Err(DmaError::OutOfFile { file_len }));
    let whole = Some((mapping, 0));
    let mapped = map.map(Iova(0), 2 * PAGE, Access::READ_WRITE, whole);
    assert_eq!(mapped, Ok(()));
    let view = map.view();
    let need = Need::DeviceWrites;
    let last = view.translate(&mut Hint::default(), Iova(2 * PAGE - 2), 2, need);
    let (last, mut bytes) = (last.unwrap(), [9; 2]);
    last.read_into(0, &mut bytes);
    assert_eq!(bytes, [0; 2]);
    last.write_from(0, &[1, 2]);
    assert!(!files.lost().is_lost(), "it is memory");
}

#[test]
fn a_part_of_a_segment_is_some_of_its_bytes() {
    let (client, mapping) = file();
    client.write(100, b"0123456789");
    let mut map = DmaMap::new(4);
    map.map(Iova(0), 4 * PAGE, Access::READ_WRITE, Some((mapping, 0)))
        .unwrap();
    let view = map.view();
    let mut hint = Hint::default();
    let whole = view
        .translate(&mut hint, Iova(100), 10, Need::DeviceReads)
        .unwrap();
    let part = whole.part(3, 4);
    assert_eq!((part.iova(), part.len()), (Iova(103), 4));
    let mut bytes = [0; 4];
    part.read_into(0, &mut bytes);
    assert_eq!(&bytes, b"3456");
    assert!(whole.part(10, 0).is_empty());
    for (at, len) in [(7, 4), (11, 0), (u32::MAX, 2)] {
        let beyond = std::panic::catch_unwind(|| whole.part(at, len).len());
        assert!(beyond.is_err(), "{len} bytes at {at}");
    }
}

#[test]
fn segments_join_within_a_region_only() {
    let (_client, mapping) = file();
    let mut map = DmaMap::new(4);
    for page in 0..2 {
        let backing = Some((mapping.clone(), page * 4 * PAGE));
        let iova = Iova(page * 4 * PAGE);
        map.map(iova, 4 * PAGE, Access::READ_WRITE, backing)
            .unwrap();
    }
    let view = map.view();
    let mut hint = Hint::default();
    let mut segment = |at, len, need| view.translate(&mut hint, Iova(at), len, need).unwrap();
    let reads = Need::DeviceReads;
    let first = segment(100, 50, reads);
    let joined = first.merge(segment(150, 8, reads)).unwrap();
    assert_eq!((joined.iova(), joined.len()), (Iova(100), 58));
    let (kept, next) = first.merge(segment(151, 8, reads)).unwrap_err();
    assert_eq!((kept.iova(), kept.len()), (Iova(100), 50));
    assert_eq!((next.iova(), next.len()), (Iova(151), 8));
    assert!(
        first.merge(segment(50, 50, reads)).is_err(),
        "the wrong way round"
    );
    assert!(first.merge(segment(150, 8, Need::DeviceWrites)).is_err());
    let elsewhere = segment(4 * PAGE + 150, 8, reads);
    assert!(first.merge(elsewhere).is_err(), "another region");
    let end = segment(3 * PAGE, PAGE as u32, reads);
    assert!(
        end.merge(segment(4 * PAGE, 8, reads)).is_err(),
        "another region"
    );
    assert_eq!(end.iova(), Iova(3 * PAGE));
    assert_eq!(segment(3 * PAGE, u32::MAX, reads).len(), PAGE as u32);
}

#[test]
fn a_segment_reaches_its_own_bytes_only() {
    let (client, mapping) = file();
    client.fill_with_offsets(16 * PAGE, 0x0101_0101_0101_0101);
    let mut map = DmaMap::new(1);
    let backing = Some((mapping, 0));
    map.map(Iova(0), 16 * PAGE, Access::READ_WRITE, backing)
        .unwrap();
    let view = map.view();
    let mut hint = Hint::default();
    let mut segment = |at, len| {
        view.translate(&mut hint, Iova(at), len, Need::DeviceWrites)
            .unwrap()
    };
    let before: [u8; 3 * PAGE as usize] = client.read(0);
    segment(PAGE, PAGE as u32).zero();
    let after: [u8; 3 * PAGE as usize] = client.read(0);
    let page = PAGE as usize;
    assert_eq!(after[..page], before[..page]);
    assert!(after[page..2 * page].iter().all(|byte| *byte == 0));
    assert_eq!(after[2 * page..], before[2 * page..]);

    // Every byte counts in a comparison, over the borders of its pieces too.
    let bytes = &before[..2500];
    assert!(segment(0, 2500).compare(0, bytes));
    assert!(segment(0, 2600).compare(7, &before[7..2507]));
    for at in [0, 1023, 1024, 2047, 2048, 2499] {
        let mut other = bytes.to_vec();
        other[at] ^= 1;
        assert!(!segment(0, 2500).compare(0, &other), "byte {at}");
    }
    assert!(segment(0, 0).compare(0, &[]) && segment(0, 0).is_empty());
    let (at, len) = segment(0, 2500).as_raw();
    assert_eq!((at as u64 % PAGE, len), (0, 2500));
}

#[test]
fn words_are_those_of_the_host() {
    let (client, mapping) = file();
    client.fill_with_offsets(16 * PAGE, 0);
    let mut map = DmaMap::new(1);
    map.map(Iova(0), 16 * PAGE, Access::READ, Some((mapping, 0)))
        .unwrap();
    let view = map.view();
    let segment = |at, len| {
        view.translate(&mut Hint::default(), Iova(at), len, Need::DeviceReads)
            .unwrap()
    };
    let some = segment(4096 - 16, 48);
    let mut bytes = [0; 48];
    some.read_into(0, &mut bytes);
    let expected: Vec<u64> = bytes
        .as_chunks()
        .0
        .iter()
        .map(|w| u64::from_le_bytes(*w))
        .collect();
    assert_eq!(some.words(0..6).collect::<Vec<_>>(), expected);
    assert_eq!(some.words(2..5).collect::<Vec<_>>(), expected[2..5]);
    assert_eq!(some.words(6..6).count(), 0);
    assert!(panics(move || drop(some.words(5..7))));
    let askew = segment(4, 16);
    assert!(panics(move || drop(askew.words(0..1))));
}

fn panics(run: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(run).is_err()
}

#[test]
fn a_caller_that_leaves_its_segment_panics() {
    let (_client, mapping) = file();
    let mut map = DmaMap::new(1);
    let backing = Some((mapping, 0));
    map.map(Iova(0), 16 * PAGE, Access::READ_WRITE, backing)
        .unwrap();
    let view = map.view();
    let segment = |need| {
        view.translate(&mut Hint::default(), Iova(0), 64, need)
            .unwrap()
    };
    let (reads, writes) = (segment(Need::DeviceReads), segment(Need::DeviceWrites));
    assert!(panics(move || writes.write_from(1, &[0; 64])));
    assert!(panics(move || writes.write_from(u32::MAX, &[0; 2])));
    assert!(panics(move || reads.read_into(64, &mut [0; 1])));
    assert!(panics(move || assert!(reads.compare(0, &[0; 65]))));
    assert!(panics(move || reads.write_from(0, &[0; 1])), "for reading");
    assert!(panics(move || reads.zero()), "for reading");
    writes.write_from(63, &[0; 1]);
    writes.write_from(64, &[]);
}

#[test]
fn a_hint_of_another_map_is_only_a_guess() {
    let (client, mapping) = file();
    client.fill_with_offsets(16 * PAGE, 0);
    let view = |places: &[u64]| {
        let mut map = DmaMap::new(16);
        for (file_page, place) in (0..).zip(places) {
            let backing = Some((mapping.clone(), file_page * PAGE));
            map.map(Iova(place * PAGE), PAGE, Access::READ, backing)
                .unwrap();
        }
        map.view()
    };
    let (long, short) = (view(&[0, 1, 2, 3, 4, 5, 6, 7]), view(&[7, 3]));
    let mut hint = Hint::default();
    let mut first_word = |view: &DmaView, page: u64| {
        let mut bytes = [0; 8];
        let found = view.translate(&mut hint, Iova(page * PAGE), 8, Need::DeviceReads);
        found.map(|segment| {
            segment.read_into(0, &mut bytes);
            u64::from_le_bytes(bytes) / PAGE
        })
    };
    for page in 0..8 {
        assert_eq!(first_word(&long, page), Ok(page));
        assert_eq!(first_word(&short, 3), Ok(1));
        assert_eq!(first_word(&short, 5), Err(TranslateError::Unmapped));
        assert_eq!(first_word(&short, 7), Ok(0));
        assert_eq!(
            first_word(&DmaView::empty(), page),
            Err(TranslateError::Unmapped)
        );
    }
}

#[test]
fn a_view_keeps_what_was_unmapped_and_pins_keep_the_view() {
    const NAME: &str = "pinned";
    let client = Client::new(NAME, PAGE);
    let mut mappings = ClientMappings::new();
    let mut map = DmaMap::new(1);
    let backing = Some((mappings.map(client.fd()).unwrap(), 0));
    map.map(Iova(0), PAGE, Access::READ, backing).unwrap();
    let (old, mut pins) = (map.view(), ViewPins::new());
    map.unmap_all();
    let new = map.view();
    drop((mappings, map));
    let handles = |view: &Arc<DmaView>| Arc::strong_count(view);

    let first = pins.pin(&old);
    let (second, third) = (pins.pin(&old), pins.pin(&old));
    assert_eq!(handles(&old), 2, "one for all three");
    let other = pins.pin(&new);
    let fourth = pins.pin(&old);
    assert_eq!((handles(&old), handles(&new)), (2, 2));
    pins.unpin(second);
    pins.unpin(first);
    drop(old);
    pins.unpin(fourth);
    assert_eq!(
        crate::client::mappings_of(NAME),
        1,
        "the third still needs it"
    );
    pins.unpin(third);
    assert_eq!(crate::client::mappings_of(NAME), 0);
    assert!(!pins.is_empty());
    pins.unpin(other);
    assert_eq!((pins.is_empty(), handles(&new)), (true, 1));
    let again = pins.pin(&new);
    assert_eq!(handles(&new), 2);
    pins.unpin(again);
    assert!(panics(move || ViewPins::new().unpin(again)));
}
