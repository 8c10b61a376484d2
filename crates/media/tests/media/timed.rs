//! Media with a timing model. Expected times are from the book's *Timing models, exactly*.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use media::{Dialect, Direct, Medium, MediumKind, MediumSpec, ZoneSpec};
use model::{
    CollectionPolicy, CompoundRule, Direction, FlashExtras, FlashParameters, KvParameters,
    NvmParameters, Parameters, ZonesParameters,
};
use nvme_spec::key_value::set_key;
use nvme_spec::{Sqe, Status};
use port::time::Time;
use port::{ByteRange, Cause, Channel as _, Outcome, Request};

use crate::common::{Host, Runner, file_spec, on_disk, pattern};

pub(crate) const READ: Request<'_> = Request::Read {
    offset: 0,
    len: 4096,
};
const WRITE: Request<'_> = Request::Write {
    offset: 0,
    len: 4096,
    fua: false,
};

/// 10 us a read and 20 us a write; at 2 GB/s 4096 bytes take 2048 ns.
pub(crate) fn nvm() -> Parameters {
    let direction = |latency_ns| Direction {
        latency_ns,
        bandwidth_bytes_per_s: 2_000_000_000,
        rate_per_s: 0,
    };
    Parameters::Nvm(NvmParameters {
        arithmetic: model::Arithmetic::Exact,
        read: direction(10_000),
        write: direction(20_000),
    })
}

/// One die that programs a page in 100 us, and a buffer of two pages, which a write is in after
/// 1 us.
fn flash() -> Parameters {
    Parameters::Flash(FlashParameters {
        arithmetic: model::Arithmetic::Exact,
        size_bytes: 8 << 20,
        partitions: 1,
        channels: 1,
        dies_per_channel: 1,
        flash_page_bytes: 4096,
        oneshot_bytes: 4096,
        block_bytes: 64 << 10,
        cell_bits: 1,
        overprovisioning_permille: 100,
        read_4k_ns: [50_000; 4],
        read_ns: [50_000; 4],
        program_ns: 100_000,
        erase_ns: 1_000_000,
        channel_bandwidth_bytes_per_s: 0,
        max_channel_transfer_bytes: 4096,
        firmware_channel_transfer_ns: 0,
        link_bandwidth_bytes_per_s: 0,
        firmware_read_4k_ns: 0,
        firmware_read_ns: 0,
        buffer_bytes: 8192,
        buffer_base_ns: 1_000,
        buffer_per_page_ns: 0,
        early_completion: true,
        deallocate_ns: 7_000,
        collect_below: 2,
        policy: CollectionPolicy::Greedy,
        extras: FlashExtras::default(),
    })
}

pub(crate) fn ram(timing: &Parameters) -> Arc<Medium> {
    let spec = MediumSpec {
        kind: MediumKind::Ram { size: 8 << 20 },
    };
    Medium::open_timed(&spec, timing).expect("a drive that can be")
}

pub(crate) fn at(runner: &mut Runner, now: u64) -> Vec<u64> {
    runner.set_time(now);
    runner.channel.submit();
    runner.reap();
    let ended = runner.take_ended();
    assert!(
        ended
            .iter()
            .all(|(_, outcome)| outcome.cause == Cause::None)
    );
    ended.into_iter().map(|(id, _)| id).collect()
}

/// A turn may be interrupted between its time and a look at what hosts have submitted since.
#[test]
fn a_command_is_not_done_before_its_time_has_gone_by_since_it_came() {
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&ram(&nvm()), 8);
    let clock = Arc::new(AtomicU64::new(5_000));
    let told = Arc::clone(&clock);
    runner
        .channel
        .set_clock(move || Time(told.load(Ordering::Relaxed)));
    assert_eq!(at(&mut runner, 1_000), [0_u64; 0]);
    runner.channel.arrive();
    // It came when its lane saw that it had, and not when it was fetched.
    clock.store(6_000, Ordering::Relaxed);
    let first = runner.add(&host, &READ, &[(0, 4096)]);
    // One of the same look came at the same time.
    let second = runner.add(&host, &READ, &[(8192, 4096)]);
    assert_eq!(runner.channel.next_due(), Some(Time(15_000)));
    assert_eq!(at(&mut runner, 14_999), [0_u64; 0]);
    assert_eq!(at(&mut runner, 15_000), [first]);
    assert_eq!(at(&mut runner, 17_048), [second]);
    // Of two looks in a turn each has its own time.
    clock.store(20_000, Ordering::Relaxed);
    runner.channel.arrive();
    clock.store(40_000, Ordering::Relaxed);
    runner.channel.arrive();
    runner.add(&host, &READ, &[(0, 4096)]);
    assert_eq!(runner.channel.next_due(), Some(Time(50_000)));
}

/// A copy is how late a command may be found done: at most 16 KiB between two looks.
#[test]
fn what_is_due_is_looked_for_after_every_16_kib() {
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&ram(&nvm()), 8);
    let read = Request::Read {
        offset: 0,
        len: 128 << 10,
    };
    let large = runner.add(&host, &read, &[(0, 128 << 10)]);
    let elsewhere = Request::Read {
        offset: 1 << 20,
        len: 4096,
    };
    let small = runner.add(&host, &elsewhere, &[(1 << 19, 4096)]);
    // Both times have come long ago; the large one's bytes have not.
    let rounds: Vec<_> = (0..8).map(|_| at(&mut runner, 1_000_000)).collect();
    assert_eq!(rounds[0], [small]);
    assert!(rounds[1..7].iter().all(Vec::is_empty), "{rounds:?}");
    assert_eq!(rounds[7], [large]);
}

#[test]
fn a_command_is_done_when_its_time_has_come_and_not_before() {
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&ram(&nvm()), 8);
    assert!(runner.channel.keeps_time());
    assert_eq!(at(&mut runner, 1_000), [0_u64; 0]);
    host.put(0, &pattern(1, 4096));
    let write = runner.add(&host, &WRITE, &[(0, 4096)]);
    let first = runner.add(&host, &READ, &[(8192, 4096)]);
    let second = runner.add(&host, &READ, &[(16_384, 4096)]);
    assert_eq!(runner.channel.in_flight(), 3);
    assert_eq!(runner.channel.next_due(), Some(Time(11_000)));
    assert_eq!(at(&mut runner, 10_999), [0_u64; 0]);
    assert_eq!(at(&mut runner, 11_000), [first]);
    assert_eq!(runner.channel.next_due(), Some(Time(13_048)));
    assert_eq!(at(&mut runner, 20_999), [second]);
    assert_eq!(at(&mut runner, 21_000), [write]);
    assert_eq!(runner.channel.next_due(), None);
    assert_eq!(runner.channel.in_flight(), 0);
    assert_eq!(
        host.get(16_384, 4096),
        pattern(1, 4096),
        "bytes are moved when they arrive"
    );
}

/// A Store or an Exist of the Key Value command set (KV 1.1), of the key "k".
fn key_value(opcode: u8, size: u32) -> Sqe {
    Sqe {
        opcode,
        cdw2: u32::from(b'k'),
        cdw10: size,
        cdw11: 1,
        ..Sqe::default()
    }
}

/// One unit: 10 us to retrieve and 20 us to store a page, 5, 3 and 7 us to delete, exist and list;
/// 4096 bytes take 2048 ns.
fn keys() -> Arc<Medium> {
    let direction = |latency_ns| Direction {
        latency_ns,
        bandwidth_bytes_per_s: 2_000_000_000,
        rate_per_s: 0,
    };
    let timing = Parameters::Kv(KvParameters {
        arithmetic: model::Arithmetic::Exact,
        units: 1,
        read: direction(10_000),
        write: direction(20_000),
        delete_latency_ns: 5_000,
        exist_latency_ns: 3_000,
        list_latency_ns: 7_000,
        compound: CompoundRule::Together,
    });
    let spec = MediumSpec {
        kind: MediumKind::KeyValue {
            path: None,
            size: 1 << 20,
            keys: None,
            dialect: Dialect::Nvme,
        },
    };
    Medium::open_timed(&spec, &timing).expect("a drive that can be")
}

fn command(sqe: &Sqe) -> Request<'_> {
    Request::Command {
        sqe,
        extent: ByteRange { offset: 0, len: 0 },
        lba_shift: 9,
        fua: false,
    }
}

#[test]
fn a_key_value_command_takes_what_it_was() {
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&keys(), 8);
    at(&mut runner, 1_000);
    let (store, exist) = (key_value(0x01, 4096), key_value(0x14, 0));
    let store = runner.add(&host, &command(&store), &[(0, 4096)]);
    let exist = runner.add(&host, &command(&exist), &[]);
    // Exist takes no bandwidth: 3 us less 2048 ns for 4096 bytes. Store takes 20 us, one page.
    assert_eq!(runner.channel.next_due(), Some(Time(1_000 + 3_000 - 2_048)));
    assert_eq!(at(&mut runner, 1_951), [0_u64; 0]);
    assert_eq!(at(&mut runner, 1_952), [exist]);
    assert_eq!(at(&mut runner, 20_999), [0_u64; 0]);
    assert_eq!(at(&mut runner, 21_000), [store]);
}

/// That there is no such key is found in as much time as that there is one.
#[test]
fn a_key_that_is_not_there_takes_the_time_of_one_that_is() {
    let direction = |latency_ns| Direction {
        latency_ns,
        bandwidth_bytes_per_s: 0,
        rate_per_s: 0,
    };
    let timing = Parameters::Kv(KvParameters {
        arithmetic: model::Arithmetic::Exact,
        units: 1,
        read: direction(10_000),
        write: direction(20_000),
        delete_latency_ns: 5_000,
        exist_latency_ns: 3_000,
        list_latency_ns: 7_000,
        compound: CompoundRule::Together,
    });
    let spec = MediumSpec {
        kind: MediumKind::KeyValue {
            path: None,
            size: 1 << 20,
            keys: None,
            dialect: Dialect::Nvme,
        },
    };
    let medium = Medium::open_timed(&spec, &timing).expect("a drive that can be");
    let host = Host::new(1 << 20);
    let (mut runner, mut now) = (Runner::new(&medium, 8), 0);
    // Retrieve, Delete, Exist, and a Store where the key must exist (KV 1.1).
    for (opcode, options, takes) in [
        (0x02, 0, 10_000),
        (0x10, 0, 5_000),
        (0x14, 0, 3_000),
        (0x01, 1 << 8, 20_000),
    ] {
        let mut sqe = key_value(opcode, 0);
        sqe.cdw11 |= options;
        let request = Request::Command {
            sqe: &sqe,
            extent: ByteRange { offset: 0, len: 0 },
            lba_shift: 9,
            fua: false,
        };
        now += 100_000;
        at(&mut runner, now);
        let id = runner.add(&host, &request, &[]);
        assert_eq!(runner.channel.next_due(), Some(Time(now + takes)));
        assert_eq!(at(&mut runner, now + takes - 1), [0_u64; 0]);
        runner.set_time(now + takes);
        runner.reap();
        let ended = runner.take_ended();
        let not_there = Outcome::status(Status::KV_KEY_DOES_NOT_EXIST);
        assert_eq!(ended, [(id, not_there)], "{opcode:x}");
    }
}

/// How many keys there are to return is known when they are.
#[test]
fn a_long_list_is_asked_for_when_it_ends() {
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&keys(), 8);
    at(&mut runner, 0);
    for number in 0..200u32 {
        let mut store = key_value(0x01, 0);
        set_key(&mut store, &number.to_be_bytes());
        runner.add(&host, &command(&store), &[]);
        at(&mut runner, u64::from(number + 1) * 100_000);
    }
    let mut list = key_value(0x06, 4096);
    set_key(&mut list, &[0; 4]);
    let list = runner.add(&host, &command(&list), &[(0, 4096)]);
    // Of 16 KiB in a turn a key that is looked at is 128 bytes, so that it takes two; others wait.
    assert_eq!(runner.channel.next_due(), Some(Time(20_000_000)), "at once");
    assert_eq!(
        runner.try_add(&host, &command(&key_value(0x14, 0)), &[]),
        None
    );
    assert_eq!(at(&mut runner, 20_001_000), [0_u64; 0]);
    // 7 us less 2048 ns, and 4 bytes with 8 for each key at 2 GB/s.
    let due = 20_001_000 + 7_000 - 2_048 + (4 + 200 * 8) / 2;
    assert_eq!(runner.channel.next_due(), Some(Time(due)));
    assert_eq!(at(&mut runner, due - 1), [0_u64; 0]);
    assert_eq!(at(&mut runner, due), [list]);
    assert_eq!(host.get(0, 4), 200u32.to_le_bytes());
}

#[test]
fn a_full_write_buffer_is_a_channel_without_room() {
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&ram(&flash()), 8);
    at(&mut runner, 0);
    let ids: Vec<_> = (0..2)
        .map(|_| runner.add(&host, &WRITE, &[(0, 4096)]))
        .collect();
    assert!(runner.channel.is_full(&WRITE));
    assert_eq!(runner.try_add(&host, &WRITE, &[(0, 4096)]), None);
    assert!(!runner.channel.is_full(&READ));
    assert_eq!(at(&mut runner, 1_000), ids);
    // Nothing is in flight, and yet something happens: the first program ends.
    assert_eq!(runner.channel.in_flight(), 0);
    assert_eq!(runner.channel.next_due(), Some(Time(101_000)));
    at(&mut runner, 100_999);
    assert_eq!(runner.try_add(&host, &WRITE, &[(0, 4096)]), None);
    assert_eq!(stalls(&runner), (1, 0));
    at(&mut runner, 101_000);
    // From when it was full until there was room, and not until somebody asks again: who was
    // refused may be gone.
    assert_eq!(stalls(&runner), (1, 101_000));
    let third = runner.add(&host, &WRITE, &[(0, 4096)]);
    assert_eq!(at(&mut runner, 102_000), [third]);
    assert_eq!(stalls(&runner), (1, 101_000));
}

/// How often the drive had no room, and for how many nanoseconds, of those times that are over.
fn stalls(runner: &Runner) -> (u64, u64) {
    let timing = runner.channel.look().timing;
    let stalls = timing.expect("it has the time of a drive").stalls;
    (stalls.count, stalls.time_ns)
}

#[test]
fn a_command_of_many_parts_is_done_once_with_the_last() {
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&ram(&flash()), 8);
    at(&mut runner, 0);
    let ranges: Vec<_> = (0..256)
        .map(|n| ByteRange {
            offset: n * 8192,
            len: 4096,
        })
        .collect();
    let trim = runner.add(&host, &Request::Deallocate { ranges: &ranges }, &[]);
    assert_eq!(at(&mut runner, 6_999), [0_u64; 0]);
    assert_eq!(at(&mut runner, 7_000), [trim]);
    let both = Request::CompareAndWrite {
        offset: 0,
        len: 4096,
        commit: false,
        fua: false,
    };
    let both = runner.add(&host, &both, &[(0, 8192)]);
    // The write is in the buffer after 1 us; the page is read from the die that programs it until
    // 108 us.
    assert_eq!(at(&mut runner, 157_999), [0_u64; 0]);
    assert_eq!(at(&mut runner, 158_000), [both]);
}

#[test]
fn a_medium_with_timing_has_one_channel_at_a_time_and_a_bound() {
    let host = Host::new(1 << 20);
    let medium = ram(&nvm());
    let mut runner = Runner::new(&medium, 2);
    let error = medium.channel(2).expect_err("one reactor has it");
    assert!(error.to_string().contains("the same `reactor`"), "{error}");
    runner.add(&host, &READ, &[(0, 4096)]);
    runner.add(&host, &READ, &[(0, 4096)]);
    assert_eq!(runner.try_add(&host, &READ, &[(0, 4096)]), None);
    assert_eq!(at(&mut runner, 20_000).len(), 2);
    runner.add(&host, &READ, &[(0, 4096)]);
    assert_eq!(at(&mut runner, 40_000).len(), 1);
    drop(runner);
    medium.channel(2).expect("nobody has it");
}

#[test]
fn bytes_of_a_file_are_waited_for_too() {
    let directory = on_disk();
    let spec = file_spec(
        &directory.path().join("disk.img"),
        Some(8 << 20),
        Direct::Auto,
    );
    let host = Host::new(1 << 20);
    let medium = Medium::open_timed(&spec, &nvm()).expect("opened");
    let mut runner = Runner::new(&medium, 8);
    host.put(0, &pattern(2, 4096));
    at(&mut runner, 0);
    let write = runner.add(&host, &WRITE, &[(0, 4096)]);
    // Its time comes at once; its bytes come when the disk has them.
    runner.set_time(20_000);
    let ended = runner.drain();
    assert_eq!(ended.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [write]);
    let read = runner.add(&host, &READ, &[(8192, 4096)]);
    runner.set_time(30_000);
    assert_eq!(
        runner.drain().iter().map(|(id, _)| *id).collect::<Vec<_>>(),
        [read]
    );
    assert_eq!(host.get(8192, 4096), pattern(2, 4096));
    // With the bytes there first, the time is waited for.
    let late = runner.add(&host, &READ, &[(8192, 4096)]);
    runner.channel.submit();
    while !runner.channel.is_due() {
        std::thread::yield_now();
    }
    runner.reap();
    assert_eq!(at(&mut runner, 39_999), [0_u64; 0]);
    assert_eq!(at(&mut runner, 40_000), [late]);
}

#[test]
fn a_timing_that_cannot_be_is_refused_with_what_would_do() {
    let Parameters::Nvm(mut parameters) = nvm() else {
        unreachable!()
    };
    parameters.read.latency_ns = 2_047;
    let spec = MediumSpec {
        kind: MediumKind::Ram { size: 8 << 20 },
    };
    let error = Medium::open_timed(&spec, &Parameters::Nvm(parameters)).expect_err("too short");
    assert!(error.to_string().contains("2048"), "{error}");
}

/// A host may deallocate a whole drive with one command, by one range or by many: the channel
/// reports one MiB per turn to the model, and other commands continue meanwhile.
#[test]
fn a_large_deallocation_is_told_in_parts_and_keeps_nobody_waiting() {
    let Parameters::Flash(mut drive) = flash() else {
        unreachable!()
    };
    drive.size_bytes = 128 << 20;
    let spec = MediumSpec {
        kind: MediumKind::Null { size: 128 << 20 },
    };
    let medium = Medium::open_timed(&spec, &Parameters::Flash(drive)).expect("a drive");
    let host = Host::new(1 << 20);
    let many = |count: u64| -> Vec<_> {
        let len = (128 << 20) / count;
        let range = |n| ByteRange {
            offset: n * len,
            len,
        };
        (0..count).map(range).collect()
    };
    for ranges in [many(1), many(256)] {
        let mut runner = Runner::new(&medium, 8);
        at(&mut runner, 0);
        let trim = runner.add(&host, &Request::Deallocate { ranges: &ranges }, &[]);
        let next = runner.channel.next_due();
        assert_eq!(next, Some(Time(0)), "the next turn goes on with it");
        for turn in 1..=128 {
            assert_eq!(at(&mut runner, turn), [0_u64; 0], "turn {turn}");
        }
        // The last part was told in turn 128 and takes 7 us.
        assert_eq!(runner.channel.next_due(), Some(Time(7_001)), "the first");
        assert_eq!(at(&mut runner, 7_127), [0_u64; 0]);
        assert_eq!(at(&mut runner, 7_128), [trim]);
    }
}

/// As many zones of 1 MiB as said, on the drive of [`flash`], whose resets take a microsecond.
fn zones(count: u64) -> Arc<Medium> {
    zones_over(MediumKind::Null { size: count << 20 }, count)
}

fn zones_over(of: MediumKind, count: u64) -> Arc<Medium> {
    let Parameters::Flash(mut drive) = flash() else {
        unreachable!()
    };
    drive.size_bytes = count << 20;
    let timing = Parameters::Zones(ZonesParameters {
        flash: drive,
        zone_size_bytes: 1 << 20,
        zone_capacity_bytes: 1 << 20,
        dies_per_zone: 1,
        zone_buffer_bytes: 0,
        reset_ns: 1_000,
        finish_ns: 0,
        finish_writes: false,
        open_ns: 0,
    });
    let zones = ZoneSpec {
        zone_size: 1 << 20,
        zone_capacity: 1 << 20,
        max_open: 0,
        max_active: 0,
        descriptor_extension: 0,
        append_limit: 0,
        random: None,
    };
    let of = Box::new(of);
    let spec = MediumSpec {
        kind: MediumKind::Zoned { of, zones },
    };
    Medium::open_timed(&spec, &timing).expect("a drive that can be")
}

/// A command of the Zoned Namespace command set to the zone that begins at this block of 4 KiB.
fn zone_command(opcode: u8, slba: u32, cdw13: u32) -> Sqe {
    Sqe {
        opcode,
        cdw10: slba,
        cdw13,
        ..Sqe::default()
    }
}

fn of_zones(sqe: &Sqe, count: u64) -> Request<'_> {
    Request::Command {
        sqe,
        extent: ByteRange {
            offset: 0,
            len: count << 20,
        },
        lba_shift: 12,
        fua: false,
    }
}

/// The buffer holds two pages, each until the one die has programmed it.
#[test]
fn an_append_waits_for_room_where_the_write_pointer_is() {
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&zones(8), 8);
    at(&mut runner, 0);
    let append = zone_command(0x7d, 256, 0);
    let append = of_zones(&append, 8);
    let ids: Vec<_> = (0..2)
        .map(|_| runner.add(&host, &append, &[(0, 4096)]))
        .collect();
    assert!(runner.channel.is_full(&append));
    assert_eq!(runner.try_add(&host, &append, &[(0, 4096)]), None);
    assert_eq!(at(&mut runner, 1_000), ids);
    // A command that needs no room goes on, and does not turn the one stall into two.
    let open = zone_command(0x79, 512, 0x03);
    let opened = runner.add(&host, &of_zones(&open, 8), &[]);
    assert!(runner.channel.is_full(&append));
    assert_eq!(at(&mut runner, 100_999), [opened]);
    assert!(runner.channel.is_full(&append));
    at(&mut runner, 101_000);
    assert_eq!(stalls(&runner), (1, 101_000));
    let third = runner.add(&host, &append, &[(0, 4096)]);
    assert_eq!(at(&mut runner, 101_999), [0_u64; 0]);
    assert_eq!(at(&mut runner, 102_000), [third]);
}

/// One command may reset every zone: the channel reports 256 per turn to the model, in their order,
/// and nothing else meanwhile.
#[test]
fn a_reset_of_all_zones_is_told_in_parts() {
    const COUNT: u64 = 600;
    let host = Host::new(1 << 20);
    let mut runner = Runner::new(&zones(COUNT), 8);
    at(&mut runner, 0);
    for zone in 0..COUNT as u32 {
        let finish = zone_command(0x79, zone * 256, 2);
        let finish = runner.add(&host, &of_zones(&finish, COUNT), &[]);
        assert_eq!(at(&mut runner, 0), [finish]);
    }
    // Select All (bit 8) and Reset Zone.
    let reset = zone_command(0x79, 0, 0x104);
    let reset = runner.add(&host, &of_zones(&reset, COUNT), &[]);
    assert_eq!(runner.channel.next_due(), Some(Time(0)), "the next turn");
    assert_eq!(runner.try_add(&host, &READ, &[(0, 4096)]), None);
    assert_eq!(at(&mut runner, 1), [0_u64; 0]);
    assert_eq!(runner.try_add(&host, &READ, &[(0, 4096)]), None);
    assert_eq!(at(&mut runner, 2), [0_u64; 0]);
    // The channel has reported all zones, the last ones in the turn at 2 ns.
    let read = runner.add(&host, &READ, &[(0, 4096)]);
    assert_eq!(at(&mut runner, 2), [read], "nothing is sensed");
    assert_eq!(at(&mut runner, 1_001), [0_u64; 0]);
    assert_eq!(at(&mut runner, 1_002), [reset]);
}

/// Reads of pages that were written take a look at a cell, 50 us.
fn takes_a_look(runner: &mut Runner, host: &Host, now: u64) -> bool {
    let read = runner.add(host, &READ, &[(0, 4096)]);
    let at_once = at(runner, now + 49_999) == [read];
    if !at_once {
        assert_eq!(at(runner, now + 50_000), [read]);
    }
    !at_once
}

#[test]
fn a_drive_goes_on_as_its_last_channel_left_it() {
    let host = Host::new(1 << 20);
    let medium = ram(&flash());
    let mut runner = Runner::new(&medium, 8);
    at(&mut runner, 1_000_000);
    assert!(!takes_a_look(&mut runner, &host, 1_000_000));
    assert_eq!(medium.timing_state(), None, "the channel has it");
    runner.add(&host, &WRITE, &[(0, 4096)]);
    drop(runner);
    let state = medium.timing_state().expect("nobody has it");
    // A channel of another reactor, whose time began later; and the same drive somewhere else.
    let mut other = Medium::open(&MediumSpec {
        kind: MediumKind::Ram { size: 8 << 20 },
    })
    .expect("opened");
    Medium::restore_timing(&mut other, flash(), &state).expect("its state");
    for medium in [medium, other] {
        let mut runner = Runner::new(&medium, 8);
        at(&mut runner, 0);
        assert!(takes_a_look(&mut runner, &host, 0));
    }
}

#[test]
fn the_state_is_taken_a_part_in_each_turn_and_is_that_of_its_begin() {
    let host = Host::new(1 << 20);
    let medium = ram(&flash());
    let mut runner = Runner::new(&medium, 8);
    at(&mut runner, 0);
    runner.add(&host, &WRITE, &[(0, 4096)]);
    at(&mut runner, 1_000_000);
    drop(runner);
    let state = medium.timing_state().expect("nobody has it");
    let mut runner = Runner::new(&medium, 8);
    at(&mut runner, 0);
    let room = medium.snapshot_room().expect("memory").expect("a state");
    assert_eq!(runner.channel.next_due(), None);
    runner.channel.begin_snapshot(room);
    runner.add(&host, &WRITE, &[(0, 4096)]);
    assert_eq!(runner.channel.next_due(), Some(Time(0)), "at once");
    assert!(runner.channel.take_snapshot().is_none());
    at(&mut runner, 1_000); // its 2048 pages
    let taken = runner.channel.take_snapshot().expect("it is whole");
    assert_eq!(taken.into_bytes(), state);
    assert!(runner.channel.take_snapshot().is_none(), "once");
}

#[test]
fn only_flash_has_a_state_beside_the_medium() {
    let medium = ram(&nvm());
    assert_eq!(medium.timing_state(), None);
    assert!(medium.snapshot_room().expect("none is needed").is_none());
    let mut runner = Runner::new(&medium, 8);
    at(&mut runner, 0);
    assert_eq!(runner.channel.next_due(), None);
}

#[test]
fn the_drive_of_zones_that_were_left_knows_what_is_written_of_them() {
    let host = Host::new(1 << 20);
    let directory = on_disk();
    let path = directory.path().join("zones.img");
    let open = || zones_over(file_spec(&path, Some(8 << 20), Direct::Auto).kind, 8);
    let medium = open();
    let mut runner = Runner::new(&medium, 8);
    at(&mut runner, 0);
    runner.add(&host, &WRITE, &[(0, 4096)]);
    runner.set_time(1_000_000);
    runner.drain();
    drop(runner);
    medium.sync().expect("durable");
    drop(medium);

    let medium = open();
    let mut runner = Runner::new(&medium, 8);
    at(&mut runner, 0);
    for (offset, due) in [(0, 50_000), (1 << 20, 50_000)] {
        let read = Request::Read { offset, len: 4096 };
        runner.add(&host, &read, &[(0, 4096)]);
        // Of what was written a cell is looked at; of what was not, later, nothing.
        assert_eq!(runner.channel.next_due(), Some(Time(due)), "{offset}");
        runner.set_time(due);
        runner.drain();
    }
}
