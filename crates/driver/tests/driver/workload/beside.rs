//! Work of a host beside a job, on the same thread: a cold queue, a storm of stores, the same job
//! on another drive.

use std::cell::Cell;
use std::ops::ControlFlow;
use std::time::Duration;

use driver::workload::beside::{Cold, Stores, Storm};
use driver::workload::{Job, JobResult, Neighbour, Rw, Setting, run_in};

use super::{device, job};
use crate::rig::with_ram;

/// Random reads with a cold queue beside them, used again after `every_ns`, by a clock that gains
/// `step_ns` with every look: the job's result; and of the cold reads the longest, how many were
/// measured, and how many failed.
fn with_a_cold_queue(every_ns: u64, step_ns: u64, runtime: Duration) -> (JobResult, [u64; 3]) {
    let mut device = device();
    let namespace = device.namespace(1).unwrap();
    let mut busy = [device.create_queue_pair(8, false).unwrap()];
    let mut cold = device.create_queue_pair(1, false).unwrap();
    let now = Cell::new(0);
    let clock = || {
        now.set(now.get() + step_ns);
        now.get()
    };
    let memory = device.memory();
    let mut beside = Cold::new(&namespace, &mut cold, memory, &clock, every_ns).unwrap();
    let setting = Setting {
        namespace: &namespace,
        queues: &mut busy,
        memory,
        clock: &clock,
        beside: &mut beside,
    };
    let job = Job {
        runtime,
        ..job(Rw::RandRead)
    };
    let result = run_in(&job, setting, &mut |_| ControlFlow::Continue(())).unwrap();
    let (latency, count, errors) = beside.result();
    (result, [latency.max, count, errors])
}

#[test]
fn a_cold_queue_is_measured_beside_a_busy_one() {
    let (_, [longest, count, errors]) = with_a_cold_queue(100_000, 1000, Duration::from_millis(2));
    assert!(
        (10..=20).contains(&count),
        "one each 0.1 ms of 2 ms: {count}"
    );
    assert_eq!(errors, 0);
    assert!(longest < 100_000, "{longest}");
}

#[test]
fn a_read_on_a_cold_queue_that_the_machine_stalled_is_left_out() {
    // Each look finds that five milliseconds have passed: nothing can be measured so.
    let (result, [_, count, _]) = with_a_cold_queue(1000, 5_000_000, Duration::from_millis(500));
    assert_eq!(count, 0);
    assert!(result.stalls >= 20, "{}", result.stalls);
    // of the job itself, all is said with the stalls, as there is nothing without
    assert!(result.commands > 0 && result.latency_ns.p50 >= 5_000_000);
}

#[test]
fn a_storm_of_stores_harms_nobody_else() {
    for stores in [Stores::Wild, Stores::Valid] {
        let mut stormy = device();
        let queues = [stormy.create_queue_pair(8, false).unwrap()];
        let mut storm = Storm::new(stormy.bus(), &queues, stores);
        let mut device = device();
        let namespace = device.namespace(1).unwrap();
        let mut busy = [device.create_queue_pair(8, false).unwrap()];
        let now = Cell::new(0);
        let clock = || {
            now.set(now.get() + 1000);
            now.get()
        };
        let setting = Setting {
            namespace: &namespace,
            queues: &mut busy,
            memory: device.memory(),
            clock: &clock,
            beside: &mut storm,
        };
        let result = run_in(&job(Rw::RandRead), setting, &mut |_| {
            ControlFlow::Continue(())
        });
        assert_eq!(result.unwrap().errors, 0);
        assert!(storm.count > 100, "{}", storm.count);
    }
}

#[test]
fn a_neighbour_does_the_same_job_with_figures_of_its_own() {
    let (mut one, mut other) = (device(), device());
    let namespace = one.namespace(1).unwrap();
    let mut queues = [one.create_queue_pair(8, false).unwrap()];
    let mut beside = other.create_queue_pair(8, false).unwrap();
    let (now, looks) = (Cell::new(0), Cell::new(0u64));
    // Five milliseconds pass with the five hundredth look.
    let clock = || {
        looks.set(looks.get() + 1);
        let step = if looks.get() == 500 { 5_000_000 } else { 1000 };
        now.set(now.get() + step);
        now.get()
    };
    let mut its = job(Rw::RandRw);
    its.queue_depth = 4;
    let mut neighbour =
        Neighbour::new(&its, &namespace, &mut beside, other.memory(), &clock).unwrap();
    let setting = Setting {
        namespace: &namespace,
        queues: &mut queues,
        memory: one.memory(),
        clock: &clock,
        beside: &mut neighbour,
    };
    let both = Job {
        runtime: Duration::from_millis(10),
        ..job(Rw::RandRead)
    };
    let result = run_in(&both, setting, &mut |_| ControlFlow::Continue(())).unwrap();
    neighbour.finish().unwrap();
    let its = neighbour.result();
    assert_eq!((its.errors, its.queue_depth), (0, 4));
    // Both have a turn each of the same thread, one of eight commands and one of four.
    assert!(
        its.commands * 3 > result.commands && its.commands < result.commands,
        "{} and {}",
        its.commands,
        result.commands
    );
    assert!(its.elapsed_ns <= 6_000_000, "{}", its.elapsed_ns);
    let [reads, writes, ..] = with_ram(&other, |ram| ram.count);
    assert!(reads > 100 && writes > 100 && its.commands <= reads + writes);
}
