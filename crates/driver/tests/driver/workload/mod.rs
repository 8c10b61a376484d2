//! The load generator against our own controller: it counts what it does, and finds what a drive
//! does wrong.

mod beside;
mod program;

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

use controller::config::DoorbellMode;
use driver::bus::Bus;
use driver::workload::{Job, JobResult, Phase, Ring, Rw, Setting, run, run_in};
use driver::{DriverError, Options};
use port::Cause;

use crate::rig::{Manner, RamDevice, open, options, with_ram};

/// Those for namespaces without zones.
const PATTERNS: [Rw; 5] = [Rw::RandRead, Rw::RandWrite, Rw::RandRw, Rw::Read, Rw::Write];

fn device() -> RamDevice {
    let mut device = open(DoorbellMode::Mapped, &options()).unwrap();
    device.enable().unwrap();
    device
}

fn job(rw: Rw) -> Job {
    Job {
        name: rw.name().into(),
        rw,
        block_size: 4096,
        queue_depth: 8,
        runtime: Duration::from_millis(2),
        verify: false,
        seed: 42,
        ..Job::default()
    }
}

/// Runs on namespace 1, by a clock that gains a microsecond with every look.
fn run_on(device: &mut RamDevice, job: &Job) -> Result<JobResult, DriverError> {
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(32, false).unwrap();
    // Clocks begin anywhere.
    let now = Cell::new(123_456_789_000);
    let clock = || {
        now.set(now.get() + 1000);
        now.get()
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    let result = run(job, &namespace, &mut queue, device.memory(), &clock, go_on);
    device.delete_queue_pair(queue).unwrap();
    result
}

#[test]
fn doorbells_are_written_for_each_command_or_for_each_batch() {
    for ring in Ring::ALL {
        let mut device = device();
        let namespace = device.namespace(1).unwrap();
        let mut queue = device.create_queue_pair(32, false).unwrap();
        let now = Cell::new(0);
        let clock = || {
            now.set(now.get() + 1000);
            now.get()
        };
        let job = Job {
            ring,
            ..job(Rw::RandRead)
        };
        let go_on = &mut |_| ControlFlow::Continue(());
        let result = run(&job, &namespace, &mut queue, device.memory(), &clock, go_on).unwrap();
        let rung = queue.rung().submissions;
        match ring {
            Ring::Command => assert_eq!(rung, result.commands),
            // The first eight go together.
            Ring::Batch => assert!(rung + 7 <= result.commands, "{rung}, {}", result.commands),
        }
    }
}

#[test]
fn every_pattern_counts_its_commands() {
    for rw in PATTERNS {
        let mut device = device();
        let result = run_on(&mut device, &job(rw)).unwrap();
        let [reads, writes, ..] = with_ram(&device, |ram| ram.count);
        assert_eq!(result.commands, reads + writes, "{rw}");
        assert_eq!(result.errors, 0, "{rw}");
        match rw {
            Rw::Read | Rw::RandRead => assert_eq!(writes, 0),
            Rw::Write | Rw::RandWrite | Rw::Append => assert_eq!(reads, 0),
            Rw::RandRw => assert!(reads.abs_diff(writes) < result.commands / 4),
        }
        // The rates are the counts over the time.
        let seconds = result.elapsed_ns as f64 / 1e9;
        assert!((0.002..0.003).contains(&seconds), "{seconds}");
        let commands = result.iops * seconds;
        assert!((commands - result.commands as f64).abs() < 1e-3, "{rw}");
        let mib = result.mib_s * seconds;
        assert!((mib - result.commands as f64 * 4096.0 / 1048576.0).abs() < 1e-3);
        assert!(result.latency_ns.p50 >= 1000 && result.latency_ns.p50 <= result.latency_ns.max);
    }
}

#[test]
fn good_data_verifies_in_every_pattern_and_order() {
    for rw in PATTERNS {
        for manner in [Manner::AtOnce, Manner::LaterInReverse] {
            let mut device = device();
            with_ram(&device, |ram| ram.manner = manner);
            let job = Job {
                verify: true,
                block_size: 1536,
                span: Some(200 * 1536),
                ..job(rw)
            };
            let result = run_on(&mut device, &job).unwrap();
            assert_eq!(result.errors, 0, "{rw}: {:?}", result.first_mismatch);
            assert!(result.blocks_verified >= 3, "{rw}");
            assert_eq!(result.blocks_verified % 3, 0, "three blocks a command");
        }
    }
}

#[test]
fn without_zones_there_is_nothing_to_append_to() {
    let mut device = device();
    let error = run_on(&mut device, &job(Rw::Append)).unwrap_err();
    assert!(error.to_string().contains("has no zones"), "{error}");
}

#[test]
fn commands_in_flight_have_lists_of_their_own() {
    let mut device = device();
    let job = Job {
        verify: true,
        block_size: 64 << 10,
        span: Some(4 << 20),
        runtime: Duration::from_micros(500),
        ..job(Rw::RandRw)
    };
    let result = run_on(&mut device, &job).unwrap();
    assert_eq!(result.errors, 0, "{:?}", result.first_mismatch);
    assert!(result.blocks_verified > 1000);
}

#[test]
fn a_flipped_bit_is_found_where_it_is() {
    let mut device = device();
    with_ram(&device, |ram| ram.flip = Some(700));
    let job = Job {
        verify: true,
        block_size: 1024,
        span: Some(64 * 1024),
        ..job(Rw::Write)
    };
    let result = run_on(&mut device, &job).unwrap();
    let mismatch = result.first_mismatch.expect("a mismatch");
    assert!(result.errors > 0);
    assert_eq!(mismatch.lba % 2, 1, "byte 700 is in the second block");
    assert_eq!(mismatch.offset, 700 - 512);
    assert_eq!(mismatch.expected ^ mismatch.found, 0x40);
    assert_eq!(
        mismatch.found_mark,
        Some((mismatch.lba, mismatch.generation))
    );
    // The medium holds the expected data.
    let at = usize::try_from(mismatch.lba).unwrap() * 512 + mismatch.offset;
    let held = with_ram(&device, |ram| ram.bytes[at]);
    assert_eq!(held, mismatch.expected);
    let text = mismatch.to_string();
    assert!(text.contains("byte 188"), "{text}");
}

#[test]
fn lost_writes_are_found() {
    let mut device = device();
    with_ram(&device, |ram| ram.lose_writes = true);
    let job = Job {
        verify: true,
        span: Some(1 << 20),
        ..job(Rw::RandWrite)
    };
    let result = run_on(&mut device, &job).unwrap();
    assert_eq!(result.errors, result.blocks_verified, "every block");
    let mismatch = result.first_mismatch.expect("a mismatch");
    assert_eq!((mismatch.found, mismatch.found_mark), (0, None));
}

#[test]
fn reads_that_leave_the_buffer_alone_are_found() {
    // Each unit is read back into the very buffer it was written from.
    let mut device = device();
    with_ram(&device, |ram| ram.skip_reads = true);
    let job = Job {
        verify: true,
        span: Some(8 * 4096),
        ..job(Rw::Write)
    };
    let result = run_on(&mut device, &job).unwrap();
    assert_eq!(result.blocks_verified, 64);
    assert_eq!(result.errors, 64);
}

#[test]
fn data_of_another_address_is_named() {
    // The first run leaves its blocks; the second, with the same seed and only
    // its first write of each block kept from happening, finds older marks.
    let mut device = device();
    let namespace = device.namespace(1).unwrap();
    let job = Job {
        verify: true,
        span: Some(64 * 4096),
        ..job(Rw::Write)
    };
    assert_eq!(run_on(&mut device, &job).unwrap().errors, 0);
    // Blocks 0 to 7 are copied over blocks 8 to 15, and then only read.
    with_ram(&device, |ram| {
        ram.bytes.copy_within(0..4096, 4096);
        ram.lose_writes = true;
    });
    let result = run_on(&mut device, &job).unwrap();
    let mismatch = result.first_mismatch.expect("a mismatch");
    let (lba, _) = mismatch.found_mark.expect("marked by the same seed");
    assert!(lba < namespace.blocks);
    assert!(result.errors > 0);
}

#[test]
fn failed_commands_are_no_throughput_and_their_data_is_not_expected() {
    let mut device = device();
    with_ram(&device, |ram| ram.fault = Some(Cause::WriteFailed));
    let job = Job {
        verify: true,
        span: Some(1 << 20),
        ..job(Rw::RandWrite)
    };
    let result = run_on(&mut device, &job).unwrap();
    assert!(result.errors > 0);
    assert_eq!((result.commands, result.iops, result.mib_s), (0, 0.0, 0.0));
    assert_eq!(result.first_error, Some(nvme_spec::Status::WRITE_FAULT));
    assert_eq!((result.first_mismatch, result.blocks_verified), (None, 0));
}

#[test]
fn the_same_seed_issues_the_same_commands() {
    let bytes = |seed| {
        let mut device = device();
        let job = Job {
            verify: true,
            span: Some(1 << 20),
            seed,
            ..job(Rw::RandRw)
        };
        run_on(&mut device, &job).unwrap();
        with_ram(&device, |ram| ram.bytes.clone())
    };
    let first = bytes(1);
    assert!(first == bytes(1));
    assert!(first != bytes(2));
}

#[test]
fn progress_is_told_and_can_end_it() {
    let mut device = device();
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(8, false).unwrap();
    let now = Cell::new(0u64);
    let clock = || {
        now.set(now.get() + 1_000_000);
        now.get()
    };
    let job = Job {
        runtime: Duration::from_secs(3600),
        ..job(Rw::RandRead)
    };
    let mut told = Vec::new();
    let progress = &mut |progress: driver::workload::Progress| {
        told.push(progress);
        if told.len() == 3 {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        }
    };
    let result = run(
        &job,
        &namespace,
        &mut queue,
        device.memory(),
        &clock,
        progress,
    )
    .unwrap();
    assert_eq!(told.len(), 3);
    assert!(told.iter().all(|progress| progress.phase == Phase::Measure));
    assert!(told.is_sorted_by_key(|progress| progress.commands));
    assert!(result.elapsed_ns < 1_000_000_000, "not an hour");
    assert_eq!(queue.in_flight(), 0);
}

#[test]
fn a_drive_that_stops_answering_ends_the_job() {
    let options = Options {
        timeout: Duration::from_millis(50),
        ..options()
    };
    let mut device = open(DoorbellMode::Mapped, &options).unwrap();
    device.enable().unwrap();
    with_ram(&device, |ram| ram.manner = Manner::Never);
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(32, false).unwrap();
    let now = Cell::new(0);
    let clock = || {
        now.set(now.get() + 1_000_000);
        now.get()
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    let job = job(Rw::RandRead);
    let result = run(&job, &namespace, &mut queue, device.memory(), &clock, go_on);
    assert!(matches!(result, Err(DriverError::Timeout { .. })));
}

#[test]
fn jobs_that_do_not_fit_are_refused() {
    let mut device = device();
    let good = job(Rw::RandRead);
    for bad in [
        Job {
            block_size: 0,
            ..good.clone()
        },
        Job {
            block_size: 1000,
            ..good.clone()
        },
        Job {
            block_size: 8 << 20,
            ..good.clone()
        },
        Job {
            queue_depth: 0,
            ..good.clone()
        },
        Job {
            queue_depth: 33,
            ..good.clone()
        },
        Job {
            span: Some(100),
            ..good.clone()
        },
        Job {
            span: Some(1 << 40),
            ..good.clone()
        },
        Job {
            verify: true,
            span: Some(7 * 4096),
            ..good.clone()
        },
    ] {
        let result = run_on(&mut device, &bad);
        assert!(
            matches!(result, Err(DriverError::Unsupported(_))),
            "{bad:?}"
        );
    }
}

#[test]
fn every_place_of_larger_buffers_holds_its_own_data() {
    // A command takes a microsecond: each place of the two larger ones is used several times.
    for (block_size, us) in [(512, 5000), (1536, 5000), (8192, 1500), (64 << 10, 500)] {
        let mut device = device();
        let job = Job {
            verify: true,
            block_size,
            span: Some(4 << 20),
            buffers: Some(4 << 20),
            runtime: Duration::from_micros(us),
            ..job(Rw::RandRw)
        };
        let result = run_on(&mut device, &job).unwrap();
        assert_eq!(
            result.errors, 0,
            "{block_size}: {:?}",
            result.first_mismatch
        );
        assert!(result.blocks_verified > 100, "{block_size}");
    }
    let too_few = Job {
        buffers: Some(8 * 4096 - 1),
        ..job(Rw::RandRead)
    };
    let error = run_on(&mut device(), &too_few).unwrap_err();
    assert!(error.to_string().contains("need 32768"), "{error}");
}

#[test]
fn several_queues_share_a_job() {
    let mut device = device();
    let namespace = device.namespace(1).unwrap();
    let mut queues: Vec<_> = (0..3)
        .map(|_| device.create_queue_pair(8, false).unwrap())
        .collect();
    let now = Cell::new(0);
    let clock = || {
        now.set(now.get() + 1000);
        now.get()
    };
    let job = Job {
        verify: true,
        span: Some(64 * 4096),
        ..job(Rw::RandRw)
    };
    let setting = Setting {
        namespace: &namespace,
        queues: &mut queues,
        memory: device.memory(),
        clock: &clock,
        beside: &mut (),
    };
    let result = run_in(&job, setting, &mut |_| ControlFlow::Continue(())).unwrap();
    assert_eq!(result.errors, 0, "{:?}", result.first_mismatch);
    assert!(queues.iter().all(|queue| queue.submitted() > 100));
    assert!(
        result.batch >= 1.0 && result.batch <= 8.0,
        "{}",
        result.batch
    );
    assert_eq!(result.messages_per_command, 0.0, "they are mapped");
}

#[test]
fn time_in_which_the_host_did_not_run_is_left_out_and_counted() {
    let mut device = device();
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(8, false).unwrap();
    // A microsecond for each look, but five milliseconds for every hundredth.
    let (now, looks) = (Cell::new(0u64), Cell::new(0u64));
    let clock = || {
        looks.set(looks.get() + 1);
        let step = if looks.get().is_multiple_of(100) {
            5_000_000
        } else {
            1000
        };
        now.set(now.get() + step);
        now.get()
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    let job = Job {
        runtime: Duration::from_millis(30),
        ..job(Rw::RandRead)
    };
    let result = run(&job, &namespace, &mut queue, device.memory(), &clock, go_on).unwrap();
    assert_eq!(result.stalls, 6);
    assert_eq!(result.stalled_ns, 30_000_000);
    assert!(result.latency_ns.max < 100_000, "{:?}", result.latency_ns);
    assert!(result.elapsed_ns < 1_000_000, "{}", result.elapsed_ns);
    let [reads, ..] = with_ram(&device, |ram| ram.count);
    assert!(result.commands < reads, "{} of {reads}", result.commands);
}

/// A slow drive and a machine that is busy all the time: no command has a time without a stall, and
/// the figures are those with them.
#[test]
fn where_every_command_met_a_stall_its_time_with_that_is_said() {
    let mut device = device();
    with_ram(&device, |ram| {
        (ram.manner, ram.lulls) = (Manner::LaterInReverse, 1000);
    });
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(8, false).unwrap();
    let now = Cell::new(0u64);
    let clock = || {
        now.set(now.get() + 1_000_000);
        now.get()
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    let job = Job {
        runtime: Duration::from_millis(500),
        ..job(Rw::RandRead)
    };
    let result = run(&job, &namespace, &mut queue, device.memory(), &clock, go_on).unwrap();
    assert!(result.stalls > 0, "{result:?}");
    assert!(result.commands > 0 && result.iops > 0.0, "{result:?}");
    // each look at the clock is a millisecond, and a command takes two of them at least
    assert!(result.latency_ns.p50 >= 999_000, "{result:?}");
    assert!(result.elapsed_ns >= 499_000_000, "{result:?}");
}

#[test]
fn lulls_are_counted_and_left_out_for_who_knows_that_the_server_did_not_run() {
    let mut device = device();
    with_ram(&device, |ram| {
        (ram.manner, ram.lulls) = (Manner::LaterInReverse, 1000);
    });
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(8, false).unwrap();
    // Less than a stall for each look; while nothing completes, looks are hundreds of polls apart.
    let now = Cell::new(0u64);
    let clock = || {
        now.set(now.get() + 150_000);
        now.get()
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    let job = Job {
        runtime: Duration::from_millis(500),
        ..job(Rw::RandRead)
    };
    let all = run(&job, &namespace, &mut queue, device.memory(), &clock, go_on).unwrap();
    let lulls = all.lulls;
    assert_eq!(all.stalls, 0);
    assert!(
        lulls.count > 1 && lulls.ns >= 300_000 * lulls.count,
        "{lulls:?}"
    );
    assert!(all.latency_ns.max >= 300_000, "{:?}", all.latency_ns);
    let without = all.without_lulls().expect("the server did not run");
    assert!(without.latency_ns.max < 301_000, "{:?}", without.latency_ns);
    assert_eq!(without.elapsed_ns + lulls.ns, all.elapsed_ns);
    assert_eq!(without.commands + lulls.commands, all.commands);
    assert!(without.commands > 0 && without.iops > all.iops);
}

#[test]
fn failures_that_end_lulls_are_no_commands_to_leave_out() {
    let mut device = device();
    with_ram(&device, |ram| {
        (ram.manner, ram.lulls) = (Manner::LaterInReverse, 1000);
        ram.fault = Some(Cause::ReadFailed);
    });
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(8, false).unwrap();
    let now = Cell::new(0u64);
    let clock = || {
        now.set(now.get() + 150_000);
        now.get()
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    let job = Job {
        runtime: Duration::from_millis(500),
        ..job(Rw::RandRead)
    };
    let all = run(&job, &namespace, &mut queue, device.memory(), &clock, go_on).unwrap();
    assert!(all.errors > 0 && all.lulls.count > 1, "{all:?}");
    assert_eq!((all.commands, all.lulls.commands), (0, 0));
    assert!(all.without_lulls().is_none(), "nothing would remain");
}

#[test]
fn a_drive_that_takes_long_stalls_nobody() {
    let mut device = device();
    with_ram(&device, |ram| {
        (ram.manner, ram.lulls) = (Manner::LaterInReverse, 40_000);
    });
    let namespace = device.namespace(1).unwrap();
    let mut queue = device.create_queue_pair(8, false).unwrap();
    // Looks take half a microsecond, and after 64 x 256 of them, when the thread gives its
    // processor away in between, two.
    let (seen, spun) = (Cell::new(0), Cell::new(0));
    let clock = || {
        let now = device.bus().now_ns();
        let since = now - seen.replace(now);
        spun.set(if since > 100_000 { spun.get() + 1 } else { 0 });
        let slow = spun.get() >= 64;
        device.bus().set_turn_ns(if slow { 2000 } else { 500 });
        now
    };
    let go_on = &mut |_| ControlFlow::Continue(());
    let job = Job {
        runtime: Duration::from_millis(200),
        ..job(Rw::RandRead)
    };
    let all = run(&job, &namespace, &mut queue, device.memory(), &clock, go_on).unwrap();
    assert_eq!(all.stalls, 0, "{:?}", all.lulls);
    let lulls = all.lulls;
    assert!(
        lulls.count >= 2 && lulls.ns >= 19_000_000 * lulls.count,
        "{lulls:?}"
    );
}

#[test]
fn a_pause_follows_whenever_everything_is_done() {
    let mut device = device();
    let job = Job {
        pause: Duration::from_micros(100),
        ..job(Rw::RandRead)
    };
    let result = run_on(&mut device, &job).unwrap();
    // eight at once, then a pause: twenty times in two milliseconds
    assert!(
        (100..=168).contains(&result.commands),
        "{}",
        result.commands
    );
    assert!(result.latency_ns.max < 100_000, "{:?}", result.latency_ns);
}
