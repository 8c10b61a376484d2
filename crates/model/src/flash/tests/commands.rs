//! Reads, writes, the buffer, deallocation and flushes, on four dies.

use super::*;

/// Long after everything before.
const LATER: u64 = 1_000_000_000;

/// The drive with its first `pages` pages written in order, in no time.
fn with_pages(parameters: &FlashParameters, pages: u64) -> Flash {
    let mut flash = drive(parameters);
    (0..pages).for_each(|page| flash.place_only(page));
    flash
}

#[test]
fn a_read_is_firmware_sense_channel_and_link() {
    let mut flash = with_pages(&four_dies(), 64);
    // Page 0 lies in the first flash page of a block, page 2 in the second, which is of the other
    // kind.
    assert_eq!(
        durations(&mut flash, &[(LATER, read(0, 1))]),
        [1000 + 10_000 + 4096 + 1024]
    );
    let mut flash = with_pages(&four_dies(), 64);
    assert_eq!(
        durations(&mut flash, &[(LATER, read(2, 1))]),
        [1000 + 20_000 + 4096 + 1024]
    );
    // Half a page costs as much as a whole one, and half of each of two as much as both.
    let mut flash = with_pages(&four_dies(), 64);
    let half = Op::Read {
        offset: 512,
        len: 2048,
    };
    let two_halves = Op::Read {
        offset: LATER,
        len: 0,
    };
    assert_eq!(
        durations(&mut flash, &[(LATER, half), (2 * LATER, two_halves)]),
        [1000 + 10_000 + 4096 + 1024, 1000]
    );
}

#[test]
fn pages_of_one_flash_page_are_one_sense() {
    let mut flash = with_pages(&four_dies(), 64);
    let whole = 2000 + 15_000 + 8192 + 2048;
    assert_eq!(durations(&mut flash, &[(LATER, read(0, 2))]), [whole]);
    // Pages 1 and 2: two senses of the same die, one after another; the second starts when the
    // first has left the channel.
    let mut flash = with_pages(&four_dies(), 64);
    let both = 2000 + (10_000 + 4096) + (20_000 + 4096) + 1024;
    assert_eq!(durations(&mut flash, &[(LATER, read(1, 2))]), [both]);
    // A chunk is sent over the link while the next one is on the channel.
    let mut parameters = four_dies();
    parameters.max_channel_transfer_bytes = 4096;
    parameters.firmware_channel_transfer_ns = 10;
    let mut flash = with_pages(&parameters, 64);
    assert_eq!(
        durations(&mut flash, &[(LATER, read(0, 2))]),
        [2000 + 15_000 + 2 * 4106 + 1024]
    );
}

#[test]
fn pages_that_were_overwritten_lie_elsewhere_and_make_a_sense_of_their_own() {
    let mut flash = with_pages(&four_dies(), 64);
    flash.place_only(1); // now page 0 of line 1, on die 0, and so again of the first kind
    let both = 2000 + (10_000 + 4096) + (10_000 + 4096) + 1024;
    assert_eq!(durations(&mut flash, &[(LATER, read(0, 2))]), [both]);
    // 63 lies alone at the end of line 0, 64 beside no other page of the command.
    let mut flash = with_pages(&four_dies(), 3);
    // Page 2 alone (a second kind), and page 3, which lies nowhere: over the link from the start.
    assert_eq!(
        durations(&mut flash, &[(LATER, read(2, 2))]),
        [2000 + 20_000 + 4096 + 1024]
    );
}

#[test]
fn what_lies_nowhere_is_the_link_alone() {
    let mut flash = drive(&four_dies());
    assert_eq!(
        durations(
            &mut flash,
            &[
                (5, read(7, 1)),
                (LATER, read(7, 4)),
                (2 * LATER, read(3200, 1))
            ]
        ),
        [1000 + 1024, 2000 + 4 * 1024, 1000]
    );
}

#[test]
fn dies_work_at_the_same_time_and_share_channels_and_the_link() {
    let mut flash = with_pages(&four_dies(), 64);
    // Pages 0, 4, 8, 12 lie on dies 0 to 3: 0 and 2 on channel 0, 1 and 3 on channel 1.
    let ops = [0, 4, 8, 12].map(|page| (LATER, read(page, 1)));
    let sensed = 1000 + 10_000;
    assert_eq!(
        durations(&mut flash, &ops),
        [
            sensed + 4096 + 1024,
            sensed + 4096 + 2 * 1024, // the link after the first
            sensed + 2 * 4096 + 1024, // the channel after the first
            sensed + 2 * 4096 + 2 * 1024,
        ]
    );
}

#[test]
fn a_write_is_done_in_the_buffer_or_on_flash() {
    // Data is there after 500 + 4 * 100 and 4096 ns on the link; the wordline is 16384 ns on the
    // channel.
    let mut flash = drive(&four_dies());
    assert_eq!(durations(&mut flash, &[(0, write(0, 4))]), [4996]);
    let mut flash = drive(&four_dies());
    assert_eq!(
        durations(&mut flash, &[(0, forced(0, 4))]),
        [4996 + 16_384 + 100_000]
    );
    let mut parameters = four_dies();
    parameters.early_completion = false;
    let mut flash = drive(&parameters);
    assert_eq!(
        durations(&mut flash, &[(0, write(0, 4))]),
        [4996 + 16_384 + 100_000]
    );
    // No wordline is full: nothing to wait for.
    let mut flash = drive(&four_dies());
    assert_eq!(
        durations(&mut flash, &[(0, forced(0, 3))]),
        [500 + 300 + 3072]
    );
    assert_eq!(flash.buffer_used(), 3 * PAGE);
    // Parts of two pages: two pages in the map, one in the firmware's count, 2048 bytes on the
    // link.
    let mut flash = drive(&four_dies());
    let parts = Op::Write {
        offset: 3072,
        len: 2048,
        fua: false,
    };
    assert_eq!(durations(&mut flash, &[(0, parts)]), [500 + 100 + 512]);
    assert_eq!(flash.buffer_used(), 2 * PAGE);
    assert_eq!(flash.counters().host_pages, 2);
}

#[test]
fn wordlines_go_from_die_to_die_and_then_to_the_next_row() {
    // Twenty pages in two commands: dies 0, 1, 2, 3 and 0 again.
    let mut flash = drive(&four_dies());
    let first = 500 + 1200 + 12_288;
    assert_eq!(
        durations(&mut flash, &[(0, write(0, 12)), (LATER, Op::Flush)]),
        [first, 0]
    );
    let mut flash = drive(&four_dies());
    let ends = durations(&mut flash, &[(0, write(0, 12)), (0, Op::Flush)]);
    // Dies 0 and 2 share a channel: the third wordline is transferred after the first.
    assert_eq!(ends, [first, first + 2 * 16_384 + 100_000]);
    let mut flash = with_pages(&four_dies(), 16);
    // The fifth wordline is on die 0 again, in row 1: its flash pages are 2 and 3 of the block, of
    // the kinds 0 and 1.
    let ops = [
        (0, write(16, 4)),
        (LATER, read(16, 1)),
        (2 * LATER, read(18, 1)),
        (3 * LATER, read(0, 1)),
    ];
    assert_eq!(durations(&mut flash, &ops), [4996, 16_120, 26_120, 16_120]);
    // A read of die 0 waits for its program, one of die 1 does not.
    let mut flash = with_pages(&four_dies(), 16);
    let ops = [(0, write(16, 4)), (5000, read(0, 1)), (5000, read(4, 1))];
    let programmed = 4996 + 16_384 + 100_000;
    assert_eq!(
        durations(&mut flash, &ops),
        [4996, programmed - 5000 + 10_000 + 4096 + 1024, 16_120]
    );
}

#[test]
fn bytes_come_back_when_their_wordline_is_programmed_and_a_write_waits_for_them() {
    let mut flash = drive(&four_dies());
    let mut done = Vec::new();
    // A command never takes what wordlines may hold that are not full: 65536 - (16384 - 4096) of
    // these 16 pages.
    assert_eq!(flash.submit(0, 0, &write(0, 16)), Admission::Accepted);
    assert_eq!(flash.buffer_used(), 53_248);
    let there = 500 + 1600 + 16_384;
    let programmed = there + 16_384 + 100_000;
    assert_eq!(flash.next_event(), Some(there));
    assert!(flash.has_room(&write(16, 3)));
    assert!(!flash.has_room(&write(16, 4)));
    assert_eq!(flash.submit(20_000, 1, &write(16, 4)), Admission::Stall);
    assert_eq!(flash.counters().stalls, 1);
    flash.advance(20_000, &mut done);
    assert_eq!(done.len(), 1);
    assert_eq!(flash.next_event(), Some(programmed));
    flash.advance(programmed - 1, &mut done);
    assert!(!flash.has_room(&write(16, 4)));
    // Two wordlines on two channels end together; the next two contain the rest: a page and
    // nothing.
    flash.advance(programmed, &mut done);
    assert_eq!(flash.buffer_used(), 53_248 - 2 * 16_384);
    assert_eq!(flash.next_event(), Some(programmed + 16_384));
    assert_eq!(
        flash.submit(programmed, 1, &write(16, 4)),
        Admission::Accepted
    );
    flash.advance(programmed + 16_384, &mut done);
    assert_eq!(flash.buffer_used(), 16_384);
    // The new one is on die 0, after 4996 ns.
    flash.advance(programmed + 4996 + 16_384 + 100_000, &mut done);
    assert_eq!(flash.buffer_used(), 0);
    assert_eq!(flash.next_event(), None);
    assert_eq!(done.iter().map(|due| due.id).collect::<Vec<_>>(), [0, 1]);
}

#[test]
fn room_that_is_due_at_the_time_of_a_submission_is_there() {
    let mut flash = drive(&four_dies());
    flash.submit(0, 0, &write(0, 16));
    let programmed = 500 + 1600 + 16_384 + 16_384 + 100_000;
    assert_eq!(
        flash.submit(programmed - 1, 1, &write(16, 4)),
        Admission::Stall
    );
    assert_eq!(
        flash.submit(programmed, 1, &write(16, 4)),
        Admission::Accepted
    );
}

#[test]
fn what_is_deallocated_lies_nowhere_and_parts_of_pages_stay() {
    let mut flash = with_pages(&four_dies(), 64);
    let range = Op::Deallocate {
        offset: 1,
        len: 3 * PAGE - 1,
    };
    let ops = [
        (0, range),
        (LATER, read(1, 2)),
        (2 * LATER, read(0, 1)),
        (3 * LATER, read(3, 1)),
    ];
    assert_eq!(
        durations(&mut flash, &ops),
        [3000, 2000 + 2 * 1024, 16_120, 26_120]
    );
    let partition = flash.partitions().next().unwrap();
    assert_eq!(partition.lines.valid(0), 62);
    let all = Op::Deallocate {
        offset: 0,
        len: u64::MAX,
    };
    flash.submit(4 * LATER, 0, &all);
    assert_eq!(flash.partitions().next().unwrap().lines.valid(0), 0);
}

#[test]
fn a_range_is_deallocated_in_every_partition() {
    let mut parameters = four_dies();
    parameters.partitions = 2;
    parameters.size_bytes = 3200 * 2 * PAGE;
    for (first, end) in [
        (0, 1),
        (1, 2),
        (3, 8),
        (2, 7),
        (0, 6400),
        (6399, 6400),
        (5, 5),
    ] {
        let mut flash = with_pages(&parameters, 6400);
        let range = Op::Deallocate {
            offset: first * PAGE,
            len: (end - first) * PAGE,
        };
        assert_eq!(durations(&mut flash, &[(0, range)]), [3000]);
        for page in 0..6400 {
            let (partition, logical) = flash.locate(page);
            let lies = flash.partitions[partition].ftl.lookup(logical).is_some();
            assert_eq!(
                lies,
                !(first..end).contains(&page),
                "{page} of {first}..{end}"
            );
        }
    }
}

#[test]
fn partitions_have_pages_dies_and_channels_of_their_own() {
    let mut parameters = four_dies();
    parameters.partitions = 2;
    parameters.size_bytes = 3200 * 2 * PAGE;
    let mut flash = drive(&parameters);
    // Up to a page for each partition is a small read. Pages 0, 2, 4, 6 are the first wordline of
    // partition 0.
    (0..8).for_each(|page| flash.place_only(page));
    assert_eq!(
        durations(&mut flash, &[(0, read(0, 2))]),
        [1000 + 10_000 + 4096 + 2048]
    );
    let mut flash = drive(&parameters);
    (0..8).for_each(|page| flash.place_only(page));
    // Pages 1 to 4: 2 and 4 in partition 0, 1 and 3 in partition 1, which are one flash page; its
    // channel is its own. Partition 0 comes first: page 2 (kind 0), then page 4 (kind 1) of the
    // same die.
    let sensed_first = 2000 + 10_000 + 4096;
    let sensed_second = sensed_first + 20_000 + 4096;
    assert_eq!(
        durations(&mut flash, &[(0, read(1, 4))]),
        [sensed_second + 1024]
    );
}

#[test]
fn other_times_hold_from_a_change_on_and_other_shapes_are_refused() {
    let mut flash = with_pages(&four_dies(), 64);
    let mut parameters = four_dies();
    parameters.read_4k_ns[0] = 5000;
    flash.retune(&parameters).unwrap();
    assert_eq!(
        durations(&mut flash, &[(LATER, read(0, 1))]),
        [1000 + 5000 + 4096 + 1024]
    );
    parameters.cell_bits = 3;
    assert_eq!(
        flash.retune(&parameters),
        Err(ParameterError::Fixed { name: "geometry" })
    );
    parameters = four_dies();
    parameters.buffer_bytes = 16_383;
    assert!(flash.retune(&parameters).is_err());
}

#[test]
fn a_small_drive_is_refused_with_a_size_that_will_do() {
    let mut parameters = four_dies();
    parameters.size_bytes = 3000 * PAGE;
    let refused = Flash::new(&parameters).unwrap_err().to_string();
    assert!(refused.contains("at least"), "{refused}");
    parameters.size_bytes = 1 << 44;
    parameters.block_bytes = 1 << 20;
    let refused = Flash::new(&parameters).unwrap_err();
    assert!(
        matches!(refused, ParameterError::TooManyPages { .. }),
        "{refused}"
    );
}
