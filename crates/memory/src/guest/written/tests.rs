//! The log against an oracle, and each way to write: a page in a report has the bytes of its write.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use proptest::prelude::*;

use super::*;
use crate::guest::dma::{Access, DmaMap, DmaView, Hint, Need, Segment};
use crate::guest::doorbell::ShadowDoorbells;
use crate::guest::host::HostMemory;
use crate::guest::mapping::ClientMappings;
use crate::guest::ring::CqRing;
use crate::store::Store;

fn log(ranges: &[(u64, u64)]) -> WrittenLog {
    let ranges: Vec<_> = ranges.iter().map(|(at, len)| (Iova(*at), *len)).collect();
    WrittenLog::new(&ranges).unwrap()
}

/// The marked pages of a range, by number.
fn take(log: &WrittenLog, at: u64, len: u64, unit: u64) -> Vec<u64> {
    let mut out = vec![0; (len / unit).div_ceil(64) as usize];
    log.take(Iova(at), len, unit, &mut out).unwrap();
    let bits =
        (0..out.len() as u64 * 64).filter(|bit| out[(bit / 64) as usize] >> (bit % 64) & 1 != 0);
    bits.map(|bit| at / unit + bit).collect()
}

#[test]
fn marks_are_reported_once() {
    let log = log(&[(0x10_0000, 0x10_0000), (0x30_0000, 0x2000)]);
    log.mark(Iova(0x10_0fff), 2);
    log.mark(Iova(0x1f_ffff), 1);
    log.mark(Iova(0x30_1000), 0);
    assert_eq!(
        take(&log, 0x10_0000, 0x10_0000, PAGE),
        [0x100, 0x101, 0x1ff]
    );
    assert_eq!(take(&log, 0x10_0000, 0x10_0000, PAGE), [0u64; 0]);
    assert_eq!(take(&log, 0x30_0000, 0x2000, PAGE), [0u64; 0]);
}

#[test]
fn a_report_takes_the_marks_of_its_range_alone() {
    let log = log(&[(0, 1 << 20)]);
    log.mark(Iova(0), 1 << 20);
    assert_eq!(take(&log, 0x3000, 0x2000, PAGE), [3, 4]);
    assert_eq!(take(&log, 0, 1 << 20, PAGE).len(), 254);
}

#[test]
fn a_larger_unit_has_the_marks_of_all_its_pages() {
    let log = log(&[(0x4_0000, 0x10_0000)]);
    log.mark(Iova(0x5_3000), 1);
    log.mark(Iova(0x6_0000), 0x1_0001);
    assert_eq!(take(&log, 0x4_0000, 0x10_0000, 0x1_0000), [5, 6, 7]);
}

#[test]
fn ranges_that_touch_are_one() {
    let log = log(&[(0x2000, 0x1000), (0x1000, 0x1000), (0x3000, 0x1000)]);
    log.mark(Iova(0), 0x10_0000);
    assert_eq!(take(&log, 0x1000, 0x3000, PAGE), [1, 2, 3]);
}

#[test]
fn the_last_page_of_the_address_space_is_logged() {
    let log = log(&[(u64::MAX - 4095, 4096)]);
    log.mark(Iova(u64::MAX - 1), 2);
    assert_eq!(take(&log, u64::MAX - 4095, 4096, PAGE), [u64::MAX / 4096]);
}

#[test]
fn what_is_no_log_is_refused() {
    let new = |ranges: &[(u64, u64)]| {
        let ranges: Vec<_> = ranges.iter().map(|(at, len)| (Iova(*at), *len)).collect();
        WrittenLog::new(&ranges).unwrap_err()
    };
    assert!(matches!(new(&[(0, 0)]), LogError::Empty));
    assert!(matches!(new(&[(1, 4096)]), LogError::Misaligned));
    assert!(matches!(new(&[(0, 4097)]), LogError::Misaligned));
    let last = u64::MAX - 4095;
    assert!(matches!(new(&[(last, 8192)]), LogError::Wraps));
    assert!(matches!(
        new(&[(0x2000, 0x1000), (0, 0x3000)]),
        LogError::Overlaps
    ));
    assert!(matches!(new(&[(0, 4096), (0, 4096)]), LogError::Overlaps));
    assert!(matches!(
        new(&[(0, MAX_LOG_BYTES + 4096)]),
        LogError::TooLarge
    ));
    let halves = [(0, MAX_LOG_BYTES), (1 << 60, 4096)];
    assert!(matches!(new(&halves), LogError::TooLarge));
    let many: Vec<_> = (0..=MAX_LOG_RANGES as u64)
        .map(|at| (at << 20, 4096))
        .collect();
    assert!(matches!(new(&many), LogError::TooMany));
    assert!(WrittenLog::new(&[]).is_ok());
    // As much as is allowed costs nothing but addresses.
    let log = log(&[(0, MAX_LOG_BYTES)]);
    assert_eq!(
        take(&log, MAX_LOG_BYTES - (1 << 30), 1 << 30, PAGE),
        [0u64; 0]
    );
}

#[test]
fn what_is_not_logged_is_not_reported() {
    let log = log(&[(0x1000, 0x2000), (0x8000, 0x1000)]);
    log.mark(Iova(0x1000), 1);
    let mut out = [0; 1];
    let mut take = |at, len| log.take(Iova(at), len, PAGE, &mut out).unwrap_err();
    for (at, len) in [
        (0, 0x2000),
        (0x1000, 0x3000),
        (0x3000, 0x1000),
        (0x9000, 0x1000),
        (0x1000, 0x8000),
    ] {
        assert!(
            matches!(take(at, len), LogError::Outside),
            "{at:#x} {len:#x}"
        );
    }
    assert!(matches!(take(0x1000, 0), LogError::Empty));
    assert!(matches!(take(0x1001, 0x1000), LogError::Misaligned));
    assert!(matches!(take(u64::MAX - 4095, 0x2000), LogError::Wraps));
    assert_eq!(out, [0], "and nothing is forgotten");
    log.take(Iova(0x1000), 0x1000, PAGE, &mut out).unwrap();
    assert_eq!(out, [1]);
}

#[derive(Clone, Debug)]
enum Step {
    Mark(u64, u64),
    Take(u64, u64, u32),
}

fn step() -> impl Strategy<Value = Step> {
    let mark = (0u64..300 << 12, 1u64..20_000).prop_map(|(at, len)| Step::Mark(at, len));
    let take =
        (0u64..300, 1u64..200, 0u32..4).prop_map(|(at, len, unit)| Step::Take(at, len, unit));
    prop_oneof![3 => mark, 1 => take]
}

proptest! {
    #[test]
    fn reports_are_those_of_a_set_of_pages(steps in prop::collection::vec(step(), 1..80)) {
        // Pages 8 to 71, 72 to 199 and 256 to 287.
        let log = log(&[(8 << 12, 64 << 12), (72 << 12, 128 << 12), (256 << 12, 32 << 12)]);
        let is_logged = |page: u64| (8..200).contains(&page) || (256..288).contains(&page);
        let mut marked = BTreeSet::new();
        for step in steps {
            match step {
                Step::Mark(at, len) => {
                    log.mark(Iova(at), len);
                    marked.extend((at >> 12..=(at + len - 1) >> 12).filter(|page| is_logged(*page)));
                }
                Step::Take(at, len, unit) => {
                    let unit = 1u64 << unit;
                    let (at, len) = (at / unit * unit, len.div_ceil(unit) * unit);
                    let pages = at..at + len;
                    let mut out = vec![0; (len / unit).div_ceil(64) as usize];
                    let taken = log.take(Iova(at << 12), len << 12, unit << 12, &mut out);
                    let inside = pages.end <= 200 && pages.start >= 8
                        || pages.start >= 256 && pages.end <= 288;
                    prop_assert_eq!(taken.is_ok(), inside);
                    let mut expected = vec![0; out.len()];
                    if inside {
                        for page in pages.clone().filter(|page| marked.contains(page)) {
                            let bit = (page - at) / unit;
                            expected[(bit / 64) as usize] |= 1 << (bit % 64);
                        }
                        marked.retain(|page| !pages.contains(page));
                    }
                    prop_assert_eq!(out, expected);
                }
            }
        }
    }
}

/// Memory of a host, mapped at [`BASE`] and logged, and the same memory as the host sees it.
struct Rig {
    memory: HostMemory,
    map: DmaMap,
}

const BASE: u64 = 1 << 32;
const LEN: usize = 64 << 20;

impl Rig {
    fn new() -> Self {
        let memory = HostMemory::new(LEN).unwrap();
        let mapping = ClientMappings::new()
            .map(memory.fd().try_clone_to_owned().unwrap())
            .unwrap();
        let mut map = DmaMap::new(4);
        let backing = Some((mapping, 0));
        map.map(Iova(BASE), LEN as u64, Access::READ_WRITE, backing)
            .unwrap();
        map.start_log(&[(Iova(BASE), LEN as u64)]).unwrap();
        Rig { memory, map }
    }

    fn view(&self) -> Arc<DmaView> {
        self.map.view()
    }

    /// The pages of the memory that are in the next report.
    fn take(&self) -> Vec<u64> {
        let pages = take(self.map.log().unwrap(), BASE, LEN as u64, PAGE);
        pages.iter().map(|page| page - BASE / PAGE).collect()
    }
}

fn segment(view: &DmaView, at: u64, len: u32) -> Segment<'_> {
    view.translate(
        &mut Hint::default(),
        Iova(BASE + at),
        len,
        Need::DeviceWrites,
    )
    .unwrap()
}

#[test]
fn every_way_to_write_is_logged() {
    let rig = Rig::new();
    let view = rig.view();
    segment(&view, 0x1ffe, 8).write_from(0, &[1; 3]);
    assert_eq!(rig.take(), [1, 2]);
    segment(&view, 0x3000, 0x1000).write_from(0xfff, &[1]);
    assert_eq!(rig.take(), [3]);
    segment(&view, 0x5000, 0x2000).zero();
    assert_eq!(rig.take(), [5, 6]);
    let ours = HostMemory::new(4096).unwrap();
    let buffer = ours.alloc(4096, 4096).unwrap();
    segment(&view, 0x8000, 0x1000).write_from_buffer(0x10, &buffer, 0, 0x20);
    assert_eq!(rig.take(), [8]);
    let store = Store::new(1 << 20).unwrap();
    store.copy_to(0, &segment(&view, 0xa000, 0x1000));
    assert_eq!(rig.take(), [10]);
    let ring = CqRing::new(&view, Iova(BASE + 0xc000), 512).unwrap();
    assert!(ring.store(511, [1, 2]));
    assert_eq!(rig.take(), [13]);
    let shadow = ShadowDoorbells::new(&view, Iova(BASE + 0x1_0000), Iova(BASE + 0x1_1000)).unwrap();
    shadow.store_event_idx(3, 7);
    assert_eq!(rig.take(), [17]);
    let outside = segment(&view, 0x1_3000, 0x2000);
    assert_eq!(outside.to_mark(), (Iova(BASE + 0x1_3000), 0x2000));
    assert_eq!(Segment::sink(100).to_mark().1, 0);
}

#[test]
fn large_stores_are_logged_too() {
    let rig = Rig::new();
    let view = rig.view();
    let store = Store::new(64 << 20).unwrap();
    store.copy_to(0, &segment(&view, 0, 128 << 10));
    assert_eq!(rig.take(), (0..32).collect::<Vec<_>>());
}

#[test]
fn reads_are_not_logged() {
    let rig = Rig::new();
    let view = rig.view();
    let mut bytes = [0; 16];
    segment(&view, 0, 16).read_into(0, &mut bytes);
    let store = Store::new(1 << 20).unwrap();
    store.copy_from(0, &segment(&view, 0, 4096));
    let reads = view
        .translate(&mut Hint::default(), Iova(BASE), 16, Need::DeviceReads)
        .unwrap();
    assert_eq!(reads.to_mark().1, 0);
    assert_eq!(rig.take(), [0u64; 0]);
}

#[test]
fn a_log_is_that_of_its_views() {
    let mut rig = Rig::new();
    assert!(matches!(rig.map.start_log(&[]), Err(LogError::Started)));
    let logged = rig.view();
    let epoch = logged.epoch();
    rig.map.stop_log();
    assert!(matches!(rig.map.log(), Err(LogError::Off)));
    let view = rig.view();
    assert!(view.epoch() > epoch && view.log().is_none());
    segment(&view, 0, 16).zero();
    rig.map.start_log(&[]).unwrap();
    assert!(rig.view().epoch() > view.epoch());
    segment(&logged, 0, 16).zero();
    assert_eq!(rig.take(), [0u64; 0], "neither is a write of the new log");
    segment(&rig.view(), 0x1000, 16).zero();
    assert_eq!(rig.take(), [1], "no ranges are all memory");
}

#[test]
fn memory_that_is_mapped_later_is_logged_and_reported_after_its_unmap() {
    let mut rig = Rig::new();
    let mapping = ClientMappings::new()
        .map(rig.memory.fd().try_clone_to_owned().unwrap())
        .unwrap();
    rig.map.stop_log();
    rig.map.start_log(&[(Iova(0), 1 << 20)]).unwrap();
    let backing = Some((mapping, 0));
    rig.map
        .map(Iova(0x4000), 0x2000, Access::READ_WRITE, backing)
        .unwrap();
    let view = rig.view();
    view.translate(&mut Hint::default(), Iova(0x5000), 16, Need::DeviceWrites)
        .unwrap()
        .zero();
    rig.map.unmap(Iova(0x4000), 0x2000).unwrap();
    assert_eq!(take(rig.map.log().unwrap(), 0, 1 << 20, PAGE), [5]);
}

/// A report that has a page comes after the bytes: a copy of all memory is made while `write` runs,
/// and has every byte as soon as the last page is reported.
fn bytes_come_first(write: impl FnOnce(Segment<'_>) + Send) {
    let rig = Rig::new();
    let view = rig.view();
    let mapping = ClientMappings::new()
        .map(rig.memory.fd().try_clone_to_owned().unwrap())
        .unwrap();
    let mut map = DmaMap::new(1);
    map.map(Iova(BASE), LEN as u64, Access::READ, Some((mapping, 0)))
        .unwrap();
    let reader = map.view();
    let last = reader
        .translate(
            &mut Hint::default(),
            Iova(BASE + LEN as u64 - 8),
            8,
            Need::DeviceReads,
        )
        .unwrap();
    thread::scope(|scope| {
        scope.spawn(|| write(segment(&view, 0, LEN as u32)));
        loop {
            if rig.take().last() == Some(&(LEN as u64 / PAGE - 1)) {
                let mut bytes = [0; 8];
                last.read_into(0, &mut bytes);
                assert_eq!(bytes, [7; 8], "it is reported before it is written");
                return;
            }
        }
    });
}

#[test]
fn bytes_come_before_their_mark() {
    let bytes = vec![7; LEN];
    bytes_come_first(|segment| segment.write_from(0, &bytes));
    let ours = HostMemory::new(LEN).unwrap();
    let buffer = ours.alloc(LEN, 4096).unwrap();
    buffer.fill(7);
    bytes_come_first(|segment| segment.write_from_buffer(0, &buffer, 0, LEN));
    let store = Store::new(LEN as u64).unwrap();
    store.write_bytes(0, &bytes);
    bytes_come_first(|segment| store.copy_to(0, &segment));
}

#[test]
fn a_copy_by_reports_has_every_byte_in_the_end() {
    const PAGES: usize = 64;
    let rig = Rig::new();
    let view = rig.view();
    let copy = HostMemory::new(LEN).unwrap();
    let stop = AtomicBool::new(false);
    let round = |pages: Vec<u64>| {
        for page in pages {
            rig.memory.copy_to(&copy, page as usize * 4096, 4096);
        }
    };
    thread::scope(|scope| {
        let writers: Vec<_> = (0..3u64)
            .map(|writer| {
                let (view, stop) = (&view, &stop);
                scope.spawn(move || {
                    let mut state = writer + 1;
                    for count in 1u64.. {
                        if count > 20_000 || stop.load(Ordering::Relaxed) {
                            break;
                        }
                        state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
                        let page = state >> 33;
                        // Each writer has its own eighth of a page.
                        let at = (page % PAGES as u64) * 4096 + writer * 512;
                        segment(view, at, 512).write_from(0, &[count as u8; 512]);
                    }
                })
            })
            .collect();
        while !writers.iter().all(|writer| writer.is_finished()) {
            round(rig.take());
        }
    });
    round(rig.take());
    for page in 0..PAGES {
        let (mut here, mut there) = ([0; 4096], [1; 4096]);
        rig.memory.read(page * 4096, &mut here);
        copy.read(page * 4096, &mut there);
        assert!(here == there, "page {page}");
    }
}

#[test]
fn a_host_goes_on_with_its_copy() {
    let memory = HostMemory::new(1 << 20).unwrap();
    let copy = HostMemory::new(1 << 20).unwrap();
    let buffer = memory.alloc(8192, 4096).unwrap();
    assert!(matches!(memory.take_log(), Err(LogError::Off)));
    buffer.fill(1);
    memory.start_log().unwrap();
    assert_eq!(memory.take_log().unwrap(), [0; 4]);
    buffer.write_from(4096, &[2]);
    assert_eq!(memory.take_log().unwrap()[0], 0b10);
    buffer.store_u32(0, 3);
    assert_eq!(memory.take_log().unwrap()[0], 0b01);
    let later = memory.alloc(4096, 4096).unwrap();
    assert_eq!(memory.take_log().unwrap()[0], 0b100);
    memory.copy_to(&copy, 0, 4096);
    memory.continue_on(&copy).unwrap();
    let mut bytes = [9; 4097];
    buffer.read_into(0, &mut bytes);
    assert_eq!(bytes[..5], [3, 0, 0, 0, 1]);
    assert_eq!(bytes[4096], 0, "that page was not copied");
    later.fill(4);
    let mut there = [0; 1];
    copy.read(8192, &mut there);
    assert_eq!(there, [4], "it is the copy's memory");
    drop(copy);
    let again = rustix::fs::fstat(memory.fd()).unwrap();
    assert_eq!(again.st_size, 1 << 20);
    later.fill(5);
}
