//! Fixed programs against our own controller.

use driver::DriverError;
use driver::program::{self, Command, Pace, Ran, Rules, Target, Worker};

use super::device;
use crate::rig::{Manner, RamDevice, with_ram};

/// A clock that gains a microsecond with every look.
struct Looks {
    now_ns: u64,
    bound_ns: u64,
    /// Every so many looks, one comes so much later than it should.
    stalls: Option<(u64, u64)>,
    looks: u64,
}

impl Pace for Looks {
    fn now_ns(&mut self) -> u64 {
        self.now_ns += 1000;
        self.looks += 1;
        if let Some((each, late)) = self.stalls
            && self.looks.is_multiple_of(each)
        {
            self.now_ns += late;
        }
        self.now_ns
    }

    fn pass(&mut self, _: Option<u64>) -> Result<(), DriverError> {
        Ok(())
    }

    fn is_over(&mut self, since_ns: u64) -> bool {
        since_ns > self.bound_ns
    }
}

fn run_program(device: &mut RamDevice, count: usize, bound_ns: u64) -> Ran {
    let target = Target::Blocks(device.namespace(1).unwrap());
    let mut queue = device.create_queue_pair(8, false).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let commands = vec![
        Command::Write {
            offset: 0,
            len: 4096
        };
        count
    ];
    let mut workers = [Worker {
        queue: &mut queue,
        buffer: &buffer,
        depth: 4,
        commands: &commands,
    }];
    let mut pace = Looks {
        // Clocks begin anywhere.
        now_ns: 123_456_789_000,
        bound_ns,
        stalls: None,
        looks: 0,
    };
    program::run(&mut workers, &target, Rules::default(), &mut pace).unwrap()
}

/// Commands that are done at once, and now and then one that takes 500 looks; each 83rd look comes
/// 50 us late. Long commands meet several stalls each, and count as the short ones do, with the
/// stalls in which the drive went on; no short one has a stall in its time.
#[test]
fn a_long_command_counts_although_the_machine_stalled_within_it() {
    let mut device = device();
    with_ram(&device, |ram| {
        (ram.manner, ram.lulls) = (Manner::LaterInReverse, 500);
    });
    let target = Target::Blocks(device.namespace(1).unwrap());
    let mut queue = device.create_queue_pair(8, false).unwrap();
    let buffer = device.alloc(4096).unwrap();
    let write = Command::Write {
        offset: 0,
        len: 4096,
    };
    let commands = vec![write; 10_000];
    let mut workers = [Worker {
        queue: &mut queue,
        buffer: &buffer,
        depth: 1,
        commands: &commands,
    }];
    let rules = Rules {
        delay_ns: 0,
        stall_ns: 20_000,
    };
    let mut pace = Looks {
        now_ns: 123_456_789_000,
        bound_ns: u64::MAX,
        stalls: Some((83, 50_000)),
        looks: 0,
    };
    let ran = program::run(&mut workers, &target, rules, &mut pace).unwrap();
    let (latencies, done) = (&ran.latencies_ns[0], &ran.done_ns[0]);
    let took = |at: usize| done[at] - if at > 0 { done[at - 1] } else { 0 };
    let (long, short): (Vec<usize>, Vec<usize>) = (0..10_000).partition(|&at| took(at) > 400_000);
    assert!(long.len() >= 10, "{}", long.len());
    let known = long.iter().filter(|&&at| latencies[at].is_some());
    assert!(known.count() * 10 >= long.len() * 8, "{} long", long.len());
    let known: Vec<u64> = short.iter().filter_map(|&at| latencies[at]).collect();
    assert!(known.len() < short.len() && known.len() * 10 >= short.len() * 8);
    assert!(
        known.iter().all(|ns| *ns < 50_000),
        "{:?}",
        known.iter().max()
    );
    // of each stall within a long command, none is taken from the time of the program
    let all = *done.last().unwrap();
    let long: u64 = long.into_iter().map(took).sum();
    assert!(ran.stalls > 100 && ran.elapsed_ns > long, "{ran:?}");
    assert!(ran.elapsed_ns <= all && ran.elapsed_ns > all - ran.stalled_ns);
}

#[test]
fn each_command_has_its_time_and_when_it_was_done() {
    let mut device = device();
    let ran = run_program(&mut device, 100, u64::MAX);
    let (latencies, done) = (&ran.latencies_ns[0], &ran.done_ns[0]);
    assert_eq!((latencies.len(), done.len()), (100, 100));
    assert!(done.is_sorted() && done[0] > 0, "{done:?}");
    for (latency, done) in latencies.iter().zip(done) {
        assert!(latency.unwrap() <= *done);
    }
    assert_eq!(*done.last().unwrap(), ran.elapsed_ns);
}

#[test]
fn nothing_is_submitted_once_it_is_over() {
    let mut device = device();
    let ran = run_program(&mut device, 10_000, 500_000);
    let done = ran.done_ns[0].len();
    assert!((10..1000).contains(&done), "{done}");
    assert_eq!(ran.latencies_ns[0].len(), done);
    // It waits for commands in flight.
    assert!(
        (500_000..520_000).contains(&ran.elapsed_ns),
        "{}",
        ran.elapsed_ns
    );
}
