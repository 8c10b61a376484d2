//! Effects of each command, and the answer to each mistake (NVM 1.1, chapter 3).

use std::sync::Arc;

use memory::Iova;
use nvme_spec::{Sqe, Status};
use port::namespace::Restrictions;
use port::testing::{Host, Manner, Seen, TestMedium, namespace};
use port::{ByteRange, Cause, ChannelId};

use super::rig::{CQID, DATA, MEDIUM, MEDIUM_ID, Rig, VECTOR, command, config, read, transfer};
use crate::lane::{FailedCommand, Lane, LaneEvent, Posted};
use crate::queue::QueueError;

const BLOCKS: u64 = MEDIUM as u64 / 512;

fn rig() -> Rig {
    Rig::new(16, &[16], Manner::Synchronous)
}

fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|n| (n / 7) as u8 ^ n as u8 ^ seed).collect()
}

#[test]
fn data_goes_to_its_blocks_and_comes_back() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = Rig::new(16, &[16], manner);
        for (slba, blocks) in [
            (0u64, 1u32),
            (8, 8),
            (100, 9),
            (333, 64),
            (BLOCKS - 1000, 1000),
        ] {
            let len = blocks as usize * 512;
            let data = pattern(len, blocks as u8);
            rig.host.write(rig.host.page(DATA + 1), &data);
            let write = transfer(&rig.host, 0x01, slba, blocks, DATA + 1);
            assert_eq!(rig.run(write), Status::SUCCESSFUL_COMPLETION);
            let at = slba as usize * 512;
            assert_eq!(rig.medium().bytes[at..at + len], data);
            let back = transfer(&rig.host, 0x02, slba, blocks, DATA + 400);
            assert_eq!(rig.run(back), Status::SUCCESSFUL_COMPLETION);
            assert!(rig.host.read(rig.host.page(DATA + 400), len) == data);
        }
        let counters = rig.lane.counters();
        assert_eq!((counters.reads.get(), counters.writes.get()), (5, 5));
        let bytes = 512 * (1 + 8 + 9 + 64 + 1000);
        assert_eq!(counters.read_bytes.get(), bytes);
        assert_eq!(counters.write_bytes.get(), bytes);
        assert_eq!(counters.completions.get(), 10);
    }
}

/// Each namespace by its identifier, in batches that go straight as well as command by command.
#[test]
fn what_comes_to_each_namespace_is_counted() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = Rig::new(16, &[16], manner);
        let ids = [1, 2, 33];
        rig.set_namespaces(ids.map(|nsid| namespace(nsid, MEDIUM_ID, BLOCKS)).to_vec());
        let mut expected = [[0; 4]; 3];
        // several of each in one batch, and one after the other of different ones
        for (round, order) in [[0, 0, 1, 2], [1, 1, 1, 0], [2, 0, 2, 1]]
            .iter()
            .enumerate()
        {
            for (at, which) in order.iter().enumerate() {
                let (opcode, blocks) = ([0x01, 0x02][at % 2], at as u32 + 1);
                let mut sqe = transfer(&rig.host, opcode, 8, blocks, DATA + 1);
                sqe.nsid = ids[*which];
                sqe.cid = (round * 4 + at) as u16;
                rig.submit(1, sqe);
                let one = &mut expected[*which];
                let (count, bytes) = if opcode == 0x02 { (0, 1) } else { (2, 3) };
                one[count] += 1;
                one[bytes] += u64::from(blocks) * 512;
            }
            rig.turn();
            rig.turn();
            assert_eq!(rig.completions().len(), 4);
        }
        // past its end
        let mut failed = transfer(&rig.host, 0x02, BLOCKS, 1, DATA + 1);
        failed.nsid = 2;
        assert_ne!(rig.run(failed), Status::SUCCESSFUL_COMPLETION);
        let counters = rig.lane.counters();
        for (nsid, expected) in ids.into_iter().zip(expected) {
            let its = counters.namespaces.of(nsid);
            let found = [&its.reads, &its.read_bytes, &its.writes, &its.write_bytes];
            assert_eq!(found.map(memory::Counter::get), expected, "{nsid}");
            assert_eq!(its.errors.get(), u64::from(nsid == 2));
        }
        assert_eq!(counters.completions.get(), 13);
    }
}

#[test]
fn requests_carry_what_the_command_asks() {
    let mut rig = rig();
    let mut partition = namespace(2, MEDIUM_ID, 100);
    partition.start = 1 << 20;
    partition.lba_shift = 12;
    rig.set_namespaces(vec![partition]);
    let ok = Status::SUCCESSFUL_COMPLETION;
    let mut write = transfer(&rig.host, 0x01, 3, 2, DATA);
    (write.nsid, write.prp2) = (2, rig.host.page(DATA + 1).0);
    write.cdw12 |= 1 << 30;
    assert_eq!(rig.run(write), ok);
    let zeroes = |cdw12| Sqe {
        nsid: 2,
        cdw10: 1,
        cdw12,
        ..command(0x08, 0)
    };
    assert_eq!(rig.run(zeroes(98 | 1 << 25)), ok);
    assert_eq!(rig.run(zeroes(1 << 30)), ok);
    let flush = Sqe {
        nsid: 2,
        ..command(0x00, 0)
    };
    assert_eq!(rig.run(flush), ok);
    let base = 1 << 20;
    let expected = [
        Seen::Write(base + 3 * 4096, 8192, true),
        Seen::WriteZeroes(base + 4096, 99 * 4096, true, false),
        Seen::WriteZeroes(base + 4096, 4096, false, true),
        Seen::Flush,
    ];
    assert_eq!(rig.medium().seen, expected);
}

#[test]
fn a_comparison_that_differs_is_compare_failure() {
    let mut rig = rig();
    let data = pattern(4096, 9);
    rig.medium().bytes[4096..8192].copy_from_slice(&data);
    rig.host.write(rig.host.page(DATA), &data);
    let compare = transfer(&rig.host, 0x05, 8, 8, DATA);
    assert_eq!(rig.run(compare), Status::SUCCESSFUL_COMPLETION);
    rig.host
        .write(Iova(rig.host.page(DATA).0 + 4095), &[!data[4095]]);
    assert_eq!(rig.run(compare), Status::COMPARE_FAILURE);
    assert_eq!(rig.events(), [], "no failure of the medium");
}

#[test]
fn blocks_outside_the_namespace_are_refused() {
    let mut rig = rig();
    for opcode in [0x01, 0x02, 0x05, 0x08] {
        let beyond = [
            (BLOCKS, 1),
            (BLOCKS - 1, 2),
            (u64::MAX, 1),
            (u64::MAX, 16),
            (u64::MAX - 7, 8),
            (1 << 55, 8),
        ];
        for (slba, blocks) in beyond {
            let sqe = transfer(&rig.host, opcode, slba, blocks, DATA);
            assert_eq!(rig.run(sqe), Status::LBA_OUT_OF_RANGE, "{opcode} {slba:#x}");
        }
        let last = transfer(&rig.host, opcode, BLOCKS - 1, 1, DATA);
        assert_eq!(rig.run(last), Status::SUCCESSFUL_COMPLETION);
    }
}

#[test]
fn quirk_mdts_is_enforced_on_transfers_only() {
    let mut rig = rig();
    // 512 KiB.
    let most = 1024;
    for opcode in [0x01, 0x02, 0x05] {
        let mut sqe = transfer(&rig.host, opcode, 0, most + 1, DATA + 1);
        assert_eq!(rig.run(sqe), Status::INVALID_FIELD_IN_COMMAND);
        sqe.cdw12 = 0xFFFF;
        sqe.cdw10 = 0;
        assert_ne!(rig.run(sqe), Status::SUCCESSFUL_COMPLETION);
        let sqe = transfer(&rig.host, opcode, 0, most, DATA + 1);
        assert_eq!(rig.run(sqe), Status::SUCCESSFUL_COMPLETION);
    }
    let zeroes = transfer(&rig.host, 0x08, 0, BLOCKS as u32, DATA + 1);
    assert_eq!(rig.run(zeroes), Status::SUCCESSFUL_COMPLETION);
}

#[test]
fn namespaces_that_are_not_there_are_refused() {
    let mut rig = rig();
    for opcode in [0x00, 0x01, 0x02, 0x05, 0x08, 0x09] {
        // 32 is the highest that may ever be there (Base 2.1, 3.2.1.3 and 3.2.1.4).
        for nsid in [0, 2, 32, 33, u32::MAX - 1, u32::MAX] {
            let sqe = Sqe {
                nsid,
                cdw11: 4,
                ..command(opcode, 5)
            };
            let status = if (opcode, nsid) == (0, u32::MAX) {
                Status::SUCCESSFUL_COMPLETION
            } else if (1..=32).contains(&nsid) {
                Status::INVALID_FIELD_IN_COMMAND
            } else {
                Status::INVALID_NAMESPACE_OR_FORMAT
            };
            assert_eq!(rig.run(sqe), status, "{opcode} {nsid:#x}");
        }
    }
    // One whose channel was taken away.
    rig.set_namespaces(vec![namespace(1, ChannelId(9), 8)]);
    assert_eq!(rig.run(read(1)), Status::NAMESPACE_NOT_READY);
}

#[test]
fn mistakes_in_the_command_complete_with_do_not_retry() {
    let mut rig = rig();
    let mut reserved = read(1);
    reserved.flags = 0xC0.into();
    let mut fused = read(2);
    fused.flags = 1.into();
    let mut list = read(3);
    list.prp1 += 2;
    let mut lost = read(4);
    lost.prp1 = 0;
    let expected = [
        Status::INVALID_FIELD_IN_COMMAND,
        Status::ABORTED_MISSING_FUSED,
        Status::PRP_OFFSET_INVALID,
        Status::DATA_TRANSFER_ERROR,
        Status::INVALID_COMMAND_OPCODE,
    ];
    for (sqe, status) in [reserved, fused, list, lost, command(0x7F, 5)]
        .into_iter()
        .zip(expected)
    {
        rig.submit(1, sqe);
        rig.turn();
        let cqe = rig.completions()[0];
        assert_eq!(cqe.status.status(), status);
        assert!(cqe.status.dnr());
    }
    assert_eq!(rig.medium().seen, [], "none of them reached the medium");
    assert_eq!(rig.lane.counters().errors.get(), 5);
}

/// Writes ranges to the data page, as (blocks, first block).
fn ranges(rig: &Rig, at: Iova, ranges: &[(u32, u64)]) {
    for (n, (blocks, slba)) in (0..).zip(ranges) {
        let mut bytes = [0xFF; 16];
        bytes[4..8].copy_from_slice(&blocks.to_le_bytes());
        bytes[8..].copy_from_slice(&slba.to_le_bytes());
        rig.host.write(Iova(at.0 + 16 * n), &bytes);
    }
}

fn deallocate(count: u32) -> Sqe {
    Sqe {
        cdw10: count - 1,
        cdw11: 4,
        ..command(0x09, 0)
    }
}

#[test]
fn deallocate_takes_its_ranges_and_skips_empty_ones() {
    let mut rig = rig();
    rig.medium().bytes.fill(1);
    ranges(&rig, rig.host.page(DATA), &[(8, 16), (0, 77), (1, 0)]);
    assert_eq!(rig.run(deallocate(3)), Status::SUCCESSFUL_COMPLETION);
    let expected = [
        ByteRange {
            offset: 8192,
            len: 4096,
        },
        ByteRange {
            offset: 0,
            len: 512,
        },
    ];
    assert_eq!(rig.medium().seen, [Seen::Deallocate(expected.to_vec())]);
    // Nothing but empty ranges, and a medium that cannot.
    ranges(&rig, rig.host.page(DATA), &[(0, 16)]);
    assert_eq!(rig.run(deallocate(1)), Status::SUCCESSFUL_COMPLETION);
    let mut fixed = namespace(1, MEDIUM_ID, 64);
    fixed.traits.deallocate = false;
    rig.set_namespaces(vec![fixed]);
    ranges(&rig, rig.host.page(DATA), &[(1, 1)]);
    assert_eq!(rig.run(deallocate(1)), Status::SUCCESSFUL_COMPLETION);
    assert_eq!(rig.medium().seen.len(), 1);
}

#[test]
fn deallocate_checks_every_range_before_any() {
    let mut rig = rig();
    for bad in [(1, BLOCKS), (2, BLOCKS - 1), (u32::MAX, 1), (8, u64::MAX)] {
        let mut list = [(1, 1); 256];
        list[255] = bad;
        // 256 ranges that begin inside a page, so that they lie in two.
        let at = Iova(rig.host.page(DATA).0 + 2048);
        let second = rig.host.page(DATA + 9);
        ranges(&rig, at, &list[..128]);
        ranges(&rig, second, &list[128..]);
        let mut sqe = deallocate(256);
        (sqe.prp1, sqe.prp2) = (at.0, second.0);
        assert_eq!(rig.run(sqe), Status::LBA_OUT_OF_RANGE, "{bad:?}");
        ranges(&rig, Iova(second.0 + 127 * 16), &[(1, 1)]);
        assert_eq!(rig.run(sqe), Status::SUCCESSFUL_COMPLETION);
        let seen = rig.medium().seen.pop();
        assert!(matches!(seen, Some(Seen::Deallocate(list)) if list.len() == 256));
        assert_eq!(rig.medium().seen, []);
    }
    // Hints need no range list at all.
    let mut hint = deallocate(1);
    (hint.cdw11, hint.prp1) = (3, 0);
    assert_eq!(rig.run(hint), Status::SUCCESSFUL_COMPLETION);
}

/// Three namespaces, two of them on one medium.
fn rig_with_two_media(manner: Manner) -> Rig {
    let mut rig = Rig::new(16, &[16], manner);
    let second = rig.channels.insert(TestMedium::new(4096, manner)).ok();
    let second = second.unwrap();
    let table = [(1, MEDIUM_ID), (2, second), (5, MEDIUM_ID)];
    rig.set_namespaces(table.map(|(nsid, id)| namespace(nsid, id, 8)).to_vec());
    rig
}

fn flush_all(cid: u16) -> Sqe {
    Sqe {
        nsid: u32::MAX,
        ..command(0x00, cid)
    }
}

#[test]
fn flush_of_all_namespaces_flushes_every_medium_once() {
    for manner in [Manner::Synchronous, Manner::Asynchronous] {
        let mut rig = rig_with_two_media(manner);
        assert_eq!(rig.run(flush_all(3)), Status::SUCCESSFUL_COMPLETION);
        for (_, medium) in rig.channels.iter() {
            assert_eq!(medium.seen, [Seen::Flush]);
        }
        assert_eq!(rig.lane.in_flight(), 0);
    }
}

#[test]
fn flush_of_all_namespaces_ends_with_the_last_and_tells_the_first_error() {
    let mut rig = rig_with_two_media(Manner::Hanging);
    let second = ChannelId(1);
    rig.channels.get_mut(second).unwrap().fault = Some(Cause::WriteFailed);
    rig.medium().fault = Some(Cause::NoSpace);
    rig.submit(1, flush_all(3));
    rig.turn();
    assert_eq!(rig.lane.in_flight(), 1);
    rig.channels.get_mut(second).unwrap().release(1);
    rig.turn();
    assert_eq!(rig.completions(), [], "one medium is still at it");
    rig.medium().release(1);
    rig.turn();
    let done = rig.completions();
    assert_eq!(done.len(), 1);
    assert_eq!(done[0].status.status(), Status::WRITE_FAULT);
}

#[test]
fn flush_of_all_namespaces_goes_on_where_a_channel_was_full() {
    let mut rig = rig_with_two_media(Manner::Hanging);
    let second = ChannelId(1);
    rig.channels.get_mut(second).unwrap().capacity = 0;
    rig.submit(1, flush_all(3));
    assert_eq!(rig.turn().pending, 1);
    // The first medium ends before the second could be asked.
    rig.medium().release(1);
    rig.turn();
    assert_eq!(rig.completions(), []);
    assert_eq!(rig.lane.in_flight(), 0);
    rig.channels.get_mut(second).unwrap().capacity = 1;
    assert_eq!(rig.turn().pending, 0);
    rig.channels.get_mut(second).unwrap().release(1);
    rig.turn();
    assert_eq!(rig.completions().len(), 1);
    for (_, medium) in rig.channels.iter() {
        assert_eq!(medium.seen, [Seen::Flush], "each once");
    }
}

/// Or a lane with large commands would go through their lists in every turn, and do little else.
#[test]
fn a_large_command_that_waits_is_not_looked_at_until_there_is_room() {
    let mut rig = Rig::new(16, &[16], Manner::Hanging);
    rig.medium().capacity = 0;
    let sqe = transfer(&rig.host, 0x02, 0, 32, DATA + 1);
    rig.submit(1, sqe);
    assert_eq!(rig.turn().pending, 1);
    // its list has become one that no command may have
    rig.host.write_u64(Iova(sqe.prp2), 1);
    assert_eq!(rig.turn().pending, 1);
    assert_eq!(rig.completions(), []);
    rig.medium().capacity = 1;
    rig.turn();
    let done = rig.completions();
    assert_eq!(done[0].status.status(), Status::PRP_OFFSET_INVALID);
}

#[test]
fn read_and_compare_with_fua_flush_a_volatile_cache() {
    for (opcode, manner) in [
        (0x02, Manner::Synchronous),
        (0x05, Manner::Synchronous),
        (0x02, Manner::Hanging),
        (0x05, Manner::Hanging),
    ] {
        let mut rig = Rig::new(16, &[16], manner);
        let mut sqe = command(opcode, 4);
        sqe.cdw12 = 1 << 30;
        let request = match opcode {
            0x02 => Seen::Read(0, 512),
            _ => Seen::Compare(0, 512),
        };
        rig.submit(1, sqe);
        rig.turn();
        assert_eq!(
            rig.medium().seen,
            std::slice::from_ref(&request),
            "no cache"
        );
        rig.medium().release(1);
        rig.turn();
        assert_eq!(rig.completions().len(), 1);
        let mut cached = namespace(1, MEDIUM_ID, 64);
        cached.traits.volatile_cache = true;
        rig.set_namespaces(vec![cached]);
        rig.medium().seen.clear();
        // Room for one of the two at first.
        rig.medium().capacity = 1;
        rig.submit(1, sqe);
        rig.turn();
        rig.medium().capacity = 2;
        rig.turn();
        assert_eq!(rig.medium().seen, [Seen::Flush, request]);
        rig.medium().release(1);
        rig.turn();
        let done = usize::from(manner == Manner::Synchronous);
        assert_eq!(rig.completions().len(), done, "both must end");
        rig.medium().release(1);
        rig.turn();
        assert_eq!(rig.completions().len(), 1 - done);
        // A list that cannot be, with the flush already out.
        sqe.prp1 = 0;
        rig.submit(1, sqe);
        rig.turn();
        rig.medium().release(1);
        rig.turn();
        let status = rig.completions()[0].status.status();
        assert_eq!(status, Status::DATA_TRANSFER_ERROR);
    }
}

#[test]
fn a_command_whose_namespace_goes_while_a_part_of_it_is_out_ends_with_that_part() {
    let mut rig = Rig::new(16, &[16], Manner::Hanging);
    let mut cached = namespace(1, MEDIUM_ID, 64);
    cached.traits.volatile_cache = true;
    rig.set_namespaces(vec![cached]);
    // The flush of a Read with Force Unit Access goes out, and there is no room for the read.
    rig.medium().capacity = 1;
    let mut sqe = command(0x02, 4);
    sqe.cdw12 = 1 << 30;
    rig.submit(1, sqe);
    rig.turn();
    rig.set_namespaces(Vec::new());
    rig.turn();
    assert_eq!(rig.completions(), [], "its ticket is out");
    assert_eq!(rig.lane.in_flight(), 1);
    rig.medium().release(1);
    rig.turn();
    let status = rig.completions()[0].status.status();
    assert_eq!(status, Status::INVALID_FIELD_IN_COMMAND);
    assert_eq!(rig.lane.in_flight(), 0);
    assert_eq!(rig.medium().seen, [Seen::Flush]);
}

#[test]
fn flush_of_all_namespaces_is_refused_where_the_path_to_one_is_closed() {
    let mut rig = rig_with_two_media(Manner::Hanging);
    let second = ChannelId(1);
    let restricted = |all| {
        let mut table = [(1, MEDIUM_ID), (2, second), (5, MEDIUM_ID)]
            .map(|(nsid, id)| namespace(nsid, id, 8))
            .to_vec();
        let restrictions = Restrictions {
            all: Some(all),
            ..Restrictions::default()
        };
        table[2].restrictions = restrictions.some();
        table
    };
    rig.set_namespaces(restricted(Status::ASYMMETRIC_ACCESS_TRANSITION));
    assert_eq!(rig.run(flush_all(3)), Status::ASYMMETRIC_ACCESS_TRANSITION);
    for (_, medium) in rig.channels.iter() {
        assert_eq!(medium.seen, []);
    }
    // Another restriction may end while it is flushed.
    rig.set_namespaces(restricted(Status::FORMAT_IN_PROGRESS));
    rig.channels.get_mut(second).unwrap().capacity = 0;
    rig.submit(1, flush_all(4));
    rig.turn();
    assert_eq!(rig.medium().seen, [Seen::Flush]);
    // A path that closes when a part of the command is out.
    rig.set_namespaces(restricted(Status::ASYMMETRIC_ACCESS_INACCESSIBLE));
    rig.turn();
    assert_eq!(rig.completions(), [], "its ticket is out");
    rig.medium().release(1);
    rig.turn();
    let status = rig.completions()[0].status.status();
    assert_eq!(status, Status::ASYMMETRIC_ACCESS_INACCESSIBLE);
    assert_eq!(rig.lane.in_flight(), 0);
}

#[test]
fn flush_of_all_namespaces_without_any_succeeds() {
    let mut rig = rig();
    rig.set_namespaces(Vec::new());
    assert_eq!(rig.run(flush_all(3)), Status::SUCCESSFUL_COMPLETION);
}

#[test]
fn quirk_a_media_error_reaches_the_host_and_the_error_log() {
    let mut rig = rig();
    let table = [
        (Cause::ReadFailed, Status::UNRECOVERED_READ_ERROR),
        (Cause::WriteFailed, Status::WRITE_FAULT),
        (Cause::NoSpace, Status::CAPACITY_EXCEEDED),
    ];
    for (cause, status) in table {
        rig.medium().fault = Some(cause);
        let mut sqe = transfer(&rig.host, 0x02, 0x123, 1, DATA);
        sqe.cid = 77;
        let data = [sqe.prp1, sqe.prp2];
        assert_eq!(rig.run(sqe), status);
        let failed = LaneEvent::CommandFailed(FailedCommand {
            sqid: 1,
            cid: 77,
            opcode: 0x02,
            status,
            nsid: 1,
            lba: 0x123,
            data,
        });
        assert_eq!(rig.events(), [failed]);
    }
    for cause in [Cause::Aborted, Cause::Unsupported] {
        rig.medium().fault = Some(cause);
        assert_ne!(rig.run(read(1)), Status::SUCCESSFUL_COMPLETION);
    }
    assert_eq!(rig.events(), []);
}

#[test]
fn errors_nobody_logs_are_counted_and_do_not_pile_up() {
    let mut rig = rig();
    rig.medium().fault = Some(Cause::ReadFailed);
    for cid in 0..100 {
        rig.run(read(cid));
    }
    assert_eq!(rig.events().len(), 16);
    assert_eq!(rig.lane.counters().media_errors.get(), 100);
    assert_eq!(rig.lane.counters().unlogged_errors.get(), 84);
    rig.run(read(0));
    assert_eq!(rig.events().len(), 1);
}

#[test]
fn one_interrupt_for_what_a_turn_has_posted() {
    let mut rig = rig();
    assert_eq!(rig.lane.take_posted(), None);
    for cid in 0..4 {
        rig.store(1, read(cid));
    }
    rig.ring(1);
    rig.turn();
    assert!(rig.lane.has_work(), "an interrupt to take");
    let posted = Posted {
        vector: VECTOR,
        entries: 4,
        failed: false,
    };
    assert_eq!(rig.lane.take_posted(), Some(posted));
    assert!(!rig.lane.has_work());
    assert_eq!(rig.lane.take_posted(), None);
    rig.turn();
    assert_eq!(rig.lane.take_posted(), None);
    assert_eq!(rig.lane.cqid(), CQID);
}

#[test]
fn no_interrupt_where_they_are_not_enabled() {
    let mut rig = rig();
    let mut silent = config(&rig.host, &rig.doorbells, 16);
    silent.vector = None;
    rig.lane = Lane::new(silent).unwrap();
    rig.set_namespaces(vec![namespace(1, MEDIUM_ID, 8)]);
    rig.add_queue(1, 16);
    assert_eq!(rig.run(read(1)), Status::SUCCESSFUL_COMPLETION);
    assert_eq!(rig.lane.take_posted(), None);
}

#[test]
fn queues_that_cannot_be_are_refused() {
    let host = Host::new(64);
    let doorbells = Arc::new(memory::DoorbellPages::new(256).unwrap());
    let make = |base, entries| {
        let mut made = config(&host, &doorbells, 16);
        (made.base, made.entries) = (base, entries);
        Lane::new(made).map(|_| ())
    };
    for entries in [0, 1, 65_537, u32::MAX] {
        let error = QueueError::Size { entries };
        assert_eq!(make(host.page(0), entries), Err(error));
    }
    let small = make(host.page(0), 4096);
    assert!(matches!(small, Err(QueueError::State { .. })), "{small:?}");
    for base in [
        Iova(0),
        Iova(Host::BASE + 8),
        Iova(u64::MAX - 4095),
        host.page(64),
    ] {
        let result = make(base, 16);
        assert!(matches!(result, Err(QueueError::Ring(_))), "{base}");
    }
}
