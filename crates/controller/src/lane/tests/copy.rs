//! Copy: what it refuses, and that it copies what a simple model copies (NVM 1.1, 3.3.2).

use memory::Iova;
use nvme_spec::{Cqe, Sqe, Status};
use port::namespace::Namespace;
use port::testing::{Manner, Seen, TestMedium, namespace};
use port::{Cause, ChannelId};
use proptest::prelude::*;

use super::rig::{DATA, MEDIUM, MEDIUM_ID, Rig, command};
use crate::lane::{AbortRequest, Copying, LaneCommand};

const BLOCKS: u64 = MEDIUM as u64 / 512;
/// The page that holds the ranges.
const LIST: u64 = DATA + 3;

/// A range: namespace, first block, blocks.
#[derive(Clone, Copy, Debug)]
pub(super) struct From(pub(super) u32, pub(super) u64, pub(super) u32);

/// Stores 32 bytes for each range in the host's memory, as NVM 1.1, figure 39 lays them out.
pub(super) fn store_ranges(rig: &Rig, ranges: &[From]) {
    let mut bytes = Vec::new();
    for From(nsid, slba, blocks) in ranges {
        let mut entry = [0xEE; 32];
        entry[..4].copy_from_slice(&nsid.to_le_bytes());
        entry[8..16].copy_from_slice(&slba.to_le_bytes());
        entry[16..18].copy_from_slice(&(*blocks as u16).wrapping_sub(1).to_le_bytes());
        entry[22..24].copy_from_slice(&[0, 0]);
        bytes.extend(entry);
    }
    rig.host.write(rig.host.page(LIST), &bytes);
}

/// Copy to `to` of as many ranges as are stored, in a format.
pub(super) fn copy_command(rig: &Rig, to: u64, ranges: usize, format: u32) -> Sqe {
    Sqe {
        prp1: rig.host.page(LIST).0,
        cdw10: to as u32,
        cdw11: (to >> 32) as u32,
        cdw12: (ranges as u32).wrapping_sub(1) & 0xFF | format << 8,
        ..command(0x19, 1)
    }
}

/// Submits a command and takes turns until it has completed.
pub(super) fn complete(rig: &mut Rig, sqe: Sqe) -> Cqe {
    rig.submit(1, sqe);
    for _ in 0..10_000 {
        rig.turn();
        if let [cqe] = rig.completions()[..] {
            return cqe;
        }
    }
    panic!("a command hangs");
}

fn copy(rig: &mut Rig, to: u64, ranges: &[From], format: u32) -> (Status, u32) {
    store_ranges(rig, ranges);
    let sqe = copy_command(rig, to, ranges.len(), format);
    let cqe = complete(rig, sqe);
    (cqe.status.status(), cqe.dw0)
}

/// Namespace 1 has the first half of the medium and 2 the second; 3 is on another medium; 4 has
/// blocks of 4 KiB.
fn namespaces() -> Vec<Namespace> {
    let mut second = namespace(2, MEDIUM_ID, BLOCKS / 2);
    second.start = MEDIUM as u64 / 2;
    let mut large = namespace(4, MEDIUM_ID, 8);
    large.lba_shift = 12;
    vec![
        namespace(1, MEDIUM_ID, BLOCKS / 2),
        second,
        namespace(3, ChannelId(1), 1000),
        large,
    ]
}

fn rig(manner: Manner) -> Rig {
    let mut rig = Rig::new(16, &[16], manner);
    let other = TestMedium::new(512_000, manner);
    assert_eq!(rig.channels.insert(other).ok(), Some(ChannelId(1)));
    rig.set_namespaces(namespaces());
    let pattern = |n: usize| (n as u32).wrapping_mul(0x9E37_79B9).to_be_bytes()[0];
    rig.medium().bytes = (0..MEDIUM).map(pattern).collect();
    rig
}

#[test]
fn ranges_are_copied_one_after_another() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = rig(manner);
        let before = rig.medium().bytes.clone();
        let ranges = [From(0, 101, 50), From(0, 2300, 100), From(0, 331, 10)];
        assert_eq!(
            copy(&mut rig, 3000, &ranges, 0),
            (Status::SUCCESSFUL_COMPLETION, 0)
        );
        let mut expected = before;
        let mut to = 3000 * 512;
        for From(_, slba, blocks) in ranges {
            let (at, len) = (slba as usize * 512, blocks as usize * 512);
            expected.copy_within(at..at + len, to);
            to += len;
        }
        assert!(rig.medium().bytes == expected);
        let counters = rig.lane.counters();
        assert_eq!(counters.copies.get(), 1);
        assert_eq!(counters.copy_bytes.get(), 160 * 512);
        assert_eq!((counters.reads.get(), counters.writes.get()), (0, 0));
    }
}

#[test]
fn a_copy_goes_across_namespaces_and_media() {
    let mut rig = rig(Manner::Asynchronous);
    let source = rig.medium().bytes[MEDIUM / 2 + 512..][..1024].to_vec();
    // From 2 to 3, from there to 1.
    let mut there = copy_command(&rig, 990, 1, 2);
    there.nsid = 3;
    store_ranges(&rig, &[From(2, 1, 2)]);
    let cqe = complete(&mut rig, there);
    assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
    let back = copy(&mut rig, 70, &[From(3, 990, 2), From(1, 0, 1)], 2);
    assert_eq!(back, (Status::SUCCESSFUL_COMPLETION, 0));
    assert_eq!(rig.medium().bytes[70 * 512..72 * 512], source);
    let first = rig.medium().bytes[..512].to_vec();
    assert_eq!(rig.medium().bytes[72 * 512..73 * 512], first);
}

#[test]
fn what_a_copy_may_not_name() {
    let mut rig = rig(Manner::Synchronous);
    let half = BLOCKS / 2;
    let most = From(1, 0, 2048);
    let limit = Status::COMMAND_SIZE_LIMIT_EXCEEDED;
    let cases: &[(u64, &[From], u32, Status)] = &[
        // A range is 1 MiB at most, the sum 4 MiB.
        (0, &[From(1, 0, 2049)], 0, limit),
        (0, &[most, most, most, most, From(1, 0, 1)], 0, limit),
        (half - 1, &[From(1, 0, 2)], 0, Status::LBA_OUT_OF_RANGE),
        (0, &[From(1, half - 1, 2)], 0, Status::LBA_OUT_OF_RANGE),
        (0, &[From(1, u64::MAX, 2)], 0, Status::LBA_OUT_OF_RANGE),
        (u64::MAX, &[From(1, 0, 1)], 0, Status::LBA_OUT_OF_RANGE),
        (0, &[From(1, 9, 1)], 1, Status::INVALID_FIELD_IN_COMMAND),
        (0, &[From(1, 9, 1)], 3, Status::INVALID_FIELD_IN_COMMAND),
        (0, &[From(1, 9, 1)], 4, Status::INVALID_FIELD_IN_COMMAND),
        // Of another namespace: one that cannot be, one that is not there, one of another format.
        (0, &[From(0, 9, 1)], 2, Status::INVALID_NAMESPACE_OR_FORMAT),
        (0, &[From(33, 9, 1)], 2, Status::INVALID_NAMESPACE_OR_FORMAT),
        (
            0,
            &[From(u32::MAX, 9, 1)],
            2,
            Status::INVALID_NAMESPACE_OR_FORMAT,
        ),
        (0, &[From(32, 9, 1)], 2, Status::INVALID_FIELD_IN_COMMAND),
        (
            0,
            &[From(4, 0, 1)],
            2,
            Status::INCOMPATIBLE_NAMESPACE_OR_FORMAT,
        ),
        // A source meets the destination: refused in format 2h alone.
        (
            10,
            &[From(2, 10, 4), From(1, 15, 1)],
            2,
            Status::SUCCESSFUL_COMPLETION,
        ),
        (
            10,
            &[From(2, 10, 4), From(1, 14, 1)],
            2,
            Status::OVERLAPPING_IO_RANGE,
        ),
        (10, &[From(1, 7, 4)], 2, Status::OVERLAPPING_IO_RANGE),
        (10, &[From(1, 7, 3)], 2, Status::SUCCESSFUL_COMPLETION),
        (10, &[From(1, 10, 4)], 0, Status::SUCCESSFUL_COMPLETION),
    ];
    for (number, (to, ranges, format, status)) in cases.iter().enumerate() {
        let before = rig.medium().bytes.clone();
        let answer = copy(&mut rig, *to, ranges, *format);
        assert_eq!(answer, (*status, 0), "{number}");
        if !status.is_success() {
            assert!(rig.medium().bytes == before, "nothing was written");
        }
    }
}

#[test]
fn ranges_are_counted_and_what_asks_for_more_is_refused() {
    let mut rig = rig(Manner::Synchronous);
    let ranges = [From(1, 9, 1); 129];
    assert_eq!(
        copy(&mut rig, 500, &ranges[..128], 0),
        (Status::SUCCESSFUL_COMPLETION, 0)
    );
    let limit = (Status::COMMAND_SIZE_LIMIT_EXCEEDED, 0);
    assert_eq!(copy(&mut rig, 500, &ranges, 0), limit);
    // A fast copy only is not promised; the bit is reserved in format 0h.
    store_ranges(&rig, &[From(1, 9, 1)]);
    let at = rig.host.page(LIST).0 + 22;
    rig.host.write(Iova(at), &[0, 0x80]);
    let sqe = copy_command(&rig, 500, 1, 2);
    let cqe = complete(&mut rig, sqe);
    assert_eq!(cqe.status.status(), Status::FAST_COPY_NOT_POSSIBLE);
    assert!(cqe.status.dnr());
    let sqe = copy_command(&rig, 500, 1, 0);
    let cqe = complete(&mut rig, sqe);
    assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
    // Ranges that cannot be read.
    let mut sqe = copy_command(&rig, 500, 1, 0);
    sqe.prp1 = 0x1000;
    let cqe = complete(&mut rig, sqe);
    assert_eq!(cqe.status.status(), Status::DATA_TRANSFER_ERROR);
    // A namespace that is not there.
    let mut sqe = copy_command(&rig, 500, 1, 0);
    sqe.nsid = 9;
    let cqe = complete(&mut rig, sqe);
    assert_eq!(cqe.status.status(), Status::INVALID_FIELD_IN_COMMAND);
}

#[test]
fn ranges_of_other_namespaces_must_be_enabled() {
    let mut rig = rig(Manner::Synchronous);
    let copying = |across| {
        LaneCommand::Copying(Copying {
            across,
            namespace_limit: 32,
        })
    };
    rig.lane.command(copying(false));
    let ranges = [From(1, 9, 1)];
    let refused = (Status::INVALID_FIELD_IN_COMMAND, 0);
    let done = (Status::SUCCESSFUL_COMPLETION, 0);
    assert_eq!(copy(&mut rig, 0, &ranges, 2), refused);
    assert_eq!(copy(&mut rig, 0, &ranges, 0), done);
    rig.lane.command(copying(true));
    assert_eq!(copy(&mut rig, 0, &ranges, 2), done);
}

#[test]
fn writes_are_durable_where_they_are_asked_to_be() {
    let mut rig = rig(Manner::Synchronous);
    let ranges = [From(1, 9, 1)];
    store_ranges(&rig, &ranges);
    let mut sqe = copy_command(&rig, 0, 1, 0);
    sqe.cdw12 |= 1 << 30;
    complete(&mut rig, sqe);
    let expected = [Seen::Read(9 * 512, 512), Seen::Write(0, 512, true)];
    assert_eq!(rig.medium().seen, expected);
    rig.lane.command(LaneCommand::WriteThrough(true));
    rig.medium().seen.clear();
    copy(&mut rig, 0, &ranges, 0);
    assert_eq!(rig.medium().seen, expected);
    rig.lane.command(LaneCommand::WriteThrough(false));
    rig.medium().seen.clear();
    copy(&mut rig, 0, &ranges, 0);
    assert_eq!(rig.medium().seen[1], Seen::Write(0, 512, false));
}

#[test]
fn dword_0_tells_the_first_range_that_was_not_copied() {
    let mut rig = rig(Manner::Asynchronous);
    // The first two are copied: the medium fails with the third.
    store_ranges(&rig, &[From(1, 9, 1), From(1, 8, 2), From(1, 7, 300)]);
    let sqe = copy_command(&rig, 1000, 3, 0);
    rig.submit(1, sqe);
    for _ in 0..6 {
        rig.turn();
    }
    rig.medium().fault = Some(Cause::WriteFailed);
    rig.turn();
    let cqe = rig.completions()[0];
    assert_eq!(cqe.status.status(), Status::WRITE_FAULT);
    assert_eq!(cqe.dw0, 2);
    assert_eq!(rig.lane.counters().media_errors.get(), 1);
    assert_eq!(rig.lane.counters().copies.get(), 0);
    // Nothing was copied.
    rig.medium().fault = Some(Cause::ReadFailed);
    let failed = copy(&mut rig, 1000, &[From(1, 9, 1)], 0);
    assert_eq!(failed, (Status::UNRECOVERED_READ_ERROR, 0));
}

/// Copies as the specification says, without caring how.
fn model(bytes: &mut [u8], to: u64, ranges: &[From]) {
    let mut to = to as usize * 512;
    for From(nsid, slba, blocks) in ranges {
        let start = (*nsid as usize - 1) * MEDIUM / 2;
        let (at, len) = (start + *slba as usize * 512, *blocks as usize * 512);
        bytes.copy_within(at..at + len, to);
        to += len;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several copies at a time to places of their own in namespace 1, out of places that none of
    /// them writes, on a medium that has room only now and then, with aborts in between.
    #[test]
    fn copies_are_what_the_model_copies(
        commands in prop::collection::vec(
            (prop::collection::vec((1u32..3, 0u64..1500, 1u32..400), 1..6), any::<bool>()), 1..8),
        capacities in prop::collection::vec(0usize..5, 1..40),
        hanging in any::<bool>(),
    ) {
        let manner = if hanging { Manner::Hanging } else { Manner::Synchronous };
        let mut rig = rig(manner);
        let mut expected = rig.medium().bytes.clone();
        let mut to = 2048;
        let mut submitted = Vec::new();
        for (cid, (ranges, abort)) in (1..).zip(&commands) {
            let ranges: Vec<From> = ranges.iter().map(|(n, slba, blocks)| From(*n, *slba, *blocks)).collect();
            let blocks: u64 = ranges.iter().map(|range| u64::from(range.2)).sum();
            if to + blocks > BLOCKS / 2 {
                break;
            }
            // A list of its own for each.
            store_ranges(&rig, &ranges);
            let list = rig.host.read(rig.host.page(LIST), 32 * ranges.len());
            let page = rig.host.page(LIST + u64::from(cid));
            rig.host.write(page, &list);
            let sqe = Sqe { cid, prp1: page.0, ..copy_command(&rig, to, ranges.len(), 2) };
            rig.store(1, sqe);
            submitted.push((cid, to, ranges, *abort));
            to += blocks;
        }
        rig.ring(1);
        let mut done = Vec::new();
        for turn in 0..20_000 {
            rig.medium().capacity = capacities[turn % capacities.len()];
            rig.medium().release(turn % 3);
            rig.turn();
            if let Some((cid, _, _, true)) = submitted.get(turn) {
                let (sqid, cid, number) = (1, *cid, 4 + turn as u32);
                let request = AbortRequest { sqid, cid, number };
                rig.lane.command(LaneCommand::Abort(request));
            }
            done.extend(rig.completions());
            if done.len() == submitted.len() {
                break;
            }
            if turn % 100 == 99 {
                rig.medium().capacity = 4;
                rig.turn();
            }
        }
        prop_assert_eq!(done.len(), submitted.len());
        for (cid, to, ranges, abort) in &submitted {
            let cqe = done.iter().find(|cqe| cqe.cid == *cid).unwrap();
            let at = *to as usize * 512;
            let len: usize = ranges.iter().map(|range| range.2 as usize * 512).sum();
            if cqe.status.status() == Status::COMMAND_ABORT_REQUESTED {
                prop_assert!(*abort);
                // The ranges before the one it tells of are there.
                let copied = &ranges[..cqe.dw0 as usize];
                let len: usize = copied.iter().map(|range| range.2 as usize * 512).sum();
                model(&mut expected, *to, copied);
                prop_assert!(rig.medium().bytes[at..at + len] == expected[at..at + len]);
            } else {
                prop_assert_eq!(cqe.status.status(), Status::SUCCESSFUL_COMPLETION);
                model(&mut expected, *to, ranges);
                prop_assert!(rig.medium().bytes[at..at + len] == expected[at..at + len]);
            }
        }
        // Nothing else was written.
        prop_assert!(rig.medium().bytes[..2048 * 512] == expected[..2048 * 512]);
        prop_assert!(rig.medium().bytes[to as usize * 512..] == expected[to as usize * 512..]);
        rig.events();
        prop_assert!(rig.is_idle());
        prop_assert_eq!(rig.lane.in_flight(), 0);
    }
}
