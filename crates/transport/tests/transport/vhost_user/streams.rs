//! Random programs: many requests in flight, with stops and deaths between them, against a plain
//! array.

use std::collections::BTreeMap;
use std::time::Instant;

use tests_vhost_front::{Disk, Layout, Options, Range, Request, status};

use super::Random;
use super::rig::{BOUND, Rig, Shape};

const QUEUES: u16 = 4;
/// Blocks that the program uses.
const BLOCKS: u64 = 256;

/// A request in flight: its blocks, and what a read is to find.
struct Flight {
    queue: usize,
    blocks: (u64, u64),
    expected: Option<Vec<u8>>,
}

struct Program {
    rig: Rig,
    disk: Disk,
    shift: u8,
    random: Random,
    model: Vec<u8>,
    flights: BTreeMap<u64, Flight>,
    done: u64,
    /// The medium keeps commands for as long as it lives.
    is_holding: bool,
}

fn options(is_packed: bool) -> Options {
    Options {
        queues: QUEUES,
        size: 256,
        is_packed,
        inflight: true,
        memory_len: 32 << 20,
        regions: 2,
        ..Options::default()
    }
}

impl Program {
    fn new(shift: u8, is_packed: bool, seed: u64) -> Self {
        let rig = Rig::new(Shape {
            lba_shift: shift,
            rings: QUEUES,
            max_transfer: 16 << 10,
            ..Shape::default()
        });
        let disk = rig.connect(options(is_packed));
        Self {
            rig,
            disk,
            shift,
            random: Random(seed),
            model: vec![0; (BLOCKS as usize) << shift],
            flights: BTreeMap::new(),
            done: 0,
            is_holding: false,
        }
    }

    fn submit(&mut self) {
        let random = &mut self.random;
        let most = [2, 8, 40][random.below(3) as usize];
        let count = 1 + random.below(most);
        let first = random.below(BLOCKS - count + 1);
        let overlaps = |it: &Flight| {
            let (other, len) = it.blocks;
            first < other + len && other < first + count
        };
        if self.flights.values().any(overlaps) {
            return;
        }
        let bytes = (first as usize) << self.shift..((first + count) as usize) << self.shift;
        let (sector, len) = (first << (self.shift - 9), bytes.len());
        let range = Range {
            sector,
            count: (len / 512) as u32,
            may_unmap: false,
        };
        let before = self.model[bytes.clone()].to_vec();
        let mut expected = None;
        let request = match random.below(8) {
            0..3 => {
                let data = random.bytes(len);
                self.model[bytes.clone()].copy_from_slice(&data);
                Request::Write { sector, data }
            }
            3 => {
                self.model[bytes.clone()].fill(0);
                Request::WriteZeroes(vec![Range {
                    may_unmap: random.below(2) == 0,
                    ..range
                }])
            }
            4 => {
                // Memory reads as zeroes where it was deallocated.
                self.model[bytes.clone()].fill(0);
                Request::Discard(vec![range])
            }
            5 => Request::Flush,
            _ => {
                expected = Some(before.clone());
                Request::Read { sector, len }
            }
        };
        let layout = match random.below(4) {
            0 => Layout::plain(&request),
            1 => Layout::merged(),
            _ => {
                let piece = (len / 100).max(1) + random.below(3000) as usize;
                Layout::pieces(&request, piece, random.below(64) as usize)
            }
        };
        let layout = layout.indirect(random.below(2) == 0);
        let queue = random.below(QUEUES.into()) as usize;
        if let Some(token) = self.disk.submit(queue, &request, &layout).unwrap() {
            let flight = Flight {
                queue,
                blocks: (first, count),
                expected,
            };
            self.flights.insert(token, flight);
        } else {
            // The ring is full.
            self.model[bytes].copy_from_slice(&before);
        }
    }

    fn collect(&mut self) {
        for queue in 0..usize::from(QUEUES) {
            while let Some(done) = self.disk.poll(queue).unwrap() {
                let flight = self.flights.remove(&done.token).unwrap();
                assert_eq!((flight.queue, done.status), (queue, status::OK));
                if let Some(expected) = flight.expected {
                    assert!(done.data == expected, "other bytes than the model's");
                }
                self.done += 1;
            }
        }
    }

    fn finish(&mut self) {
        self.rig
            .with(|server| server.medium(|it| it.delays = false));
        let deadline = Instant::now() + BOUND;
        while !self.flights.is_empty() {
            assert!(Instant::now() < deadline, "{} are lost", self.flights.len());
            self.collect();
            std::thread::yield_now();
        }
    }

    /// The rings stop, and start where the back end says that it was.
    fn stop(&mut self) {
        if self.is_holding {
            return;
        }
        self.rig
            .with(|server| server.medium(|it| it.delays = false));
        let bases = self.disk.stop().unwrap();
        self.collect();
        self.disk.restart_at(&bases).unwrap();
        // QEMU notifies, as the driver may have done so meanwhile.
        for queue in 0..usize::from(QUEUES) {
            self.disk.queue(queue).kick.signal().unwrap();
        }
    }

    /// The back end dies with what is in flight, and the front end connects to the next one.
    fn die(&mut self) {
        self.is_holding = false;
        self.rig.with(|server| server.die());
        self.disk.reconnect().unwrap();
        self.collect();
    }

    fn run(&mut self, steps: usize) {
        for step in 0..steps {
            self.submit();
            self.collect();
            let newest = self.random.below(2) == 0;
            let count = self.random.below(6) as usize;
            match self.random.below(40) {
                0 => self
                    .rig
                    .with(|server| server.medium(|it| it.delays ^= true)),
                1..8 => self
                    .rig
                    .with(move |server| server.medium(|it| it.release(count, newest))),
                8 if step % 2 == 0 => self.stop(),
                9 => {
                    self.is_holding = true;
                    self.rig.with(|server| server.medium(|it| it.holds = true));
                }
                10 => self.die(),
                _ => {}
            }
            if step % 100 == 99 {
                // Commands that are held end only with their medium.
                self.die();
                self.finish();
            }
        }
        self.die();
        self.finish();
        let all = self.disk.read(0, self.model.len()).unwrap();
        assert!(all == self.model);
    }
}

#[test]
fn nothing_is_lost_or_done_twice_over_deaths_and_stops() {
    for (seed, (shift, is_packed)) in (1..).zip([(9, false), (9, true), (12, false), (12, true)]) {
        let mut program = Program::new(shift, is_packed, seed);
        program.run(600);
        assert!(program.done > 200, "{}", program.done);
    }
}
