//! Random schedules: many requests in flight, that end in any order, against a plain array.

use std::collections::BTreeMap;

use proptest::prelude::*;
use ublk::Operation;

use super::kernel::Ask;
use super::rig::{LEN, Rig, Shape};
use crate::vhost_user::Random;

/// Blocks that a program uses.
const BLOCKS: u64 = 200;
const STEPS: usize = 400;

/// A request in flight: its blocks, and what a read is to find.
struct Flight {
    blocks: (u64, u64),
    result: i32,
    expected: Option<Vec<u8>>,
}

struct Program {
    rig: Rig,
    shift: u8,
    random: Random,
    model: Vec<u8>,
    flights: BTreeMap<u16, Flight>,
    done: usize,
}

impl Program {
    fn submit(&mut self) {
        let random = &mut self.random;
        let most = [2, 9, 30][random.below(3) as usize];
        let count = 1 + random.below(most);
        let first = random.below(BLOCKS - count + 1);
        let overlaps = |it: &Flight| {
            let (other, len) = it.blocks;
            first < other + len && other < first + count
        };
        if self.flights.values().any(overlaps) || self.rig.kernel().free() == 0 {
            return;
        }
        let bytes = (first as usize) << self.shift..((first + count) as usize) << self.shift;
        let (sector, len) = (first << (self.shift - 9), bytes.len());
        let sectors = (len / 512) as u32;
        let (mut result, mut expected) = (0, None);
        let ask = match random.below(10) {
            0..4 => {
                let data = random.bytes(len);
                self.model[bytes].copy_from_slice(&data);
                result = len as i32;
                Ask::write(sector, &data)
            }
            4 => {
                self.model[bytes].fill(0);
                Ask::new(Operation::WRITE_ZEROES, sector, sectors)
            }
            5 => {
                self.model[bytes].fill(0);
                Ask::new(Operation::DISCARD, sector, sectors)
            }
            6 => Ask::new(Operation::FLUSH, 0, 0),
            7 => {
                result = -22;
                Ask::new(Operation::READ, sector, 0)
            }
            _ => {
                expected = Some(self.model[bytes].to_vec());
                result = len as i32;
                Ask::read(sector, sectors)
            }
        };
        let ask = if random.below(4) == 0 { ask.fua() } else { ask };
        let tag = self.rig.give(ask);
        let flight = Flight {
            blocks: (first, count),
            result,
            expected,
        };
        assert!(self.flights.insert(tag, flight).is_none());
    }

    fn collect(&mut self) {
        for done in self.rig.done() {
            let flight = self.flights.remove(&done.tag).unwrap();
            assert_eq!(done.result, flight.result);
            if let Some(expected) = flight.expected {
                assert!(done.data == expected, "other bytes than the model's");
            }
            self.done += 1;
        }
    }

    fn finish(&mut self) {
        self.rig.medium(|medium| medium.delays = false);
        self.rig.settle();
        self.collect();
        assert!(self.flights.is_empty(), "{} are lost", self.flights.len());
    }

    fn run(&mut self) {
        for _ in 0..STEPS {
            self.submit();
            let (count, newest) = (self.random.below(6) as usize, self.random.below(2) == 0);
            match self.random.below(40) {
                0 => self.rig.medium(|medium| medium.delays ^= true),
                1..8 => self.rig.medium(|medium| medium.release(count, newest)),
                8..24 => drop(self.rig.turn()),
                24 => self.rig.settle(),
                // As a namespace changes that the kernel has open.
                25 => self.rig.resize(LEN - (self.random.below(4) << 20)),
                _ => {}
            }
            self.collect();
        }
        self.finish();
        let sectors = (self.model.len() / 512) as u32;
        for first in (0..sectors).step_by(512) {
            let count = (sectors - first).min(512);
            let data = self.rig.succeed(Ask::read(first.into(), count));
            let from = first as usize * 512;
            assert!(data == self.model[from..from + data.len()]);
        }
        self.rig.kernel_mut().stop();
        self.rig.settle();
        assert_eq!(self.rig.end, Some("stopped"));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn requests_end_once_with_the_data_of_the_disk(
        seed: u64,
        shift in prop_oneof![Just(9_u8), Just(12)],
        tags in 1_u16..40,
        user_copy: bool,
    ) {
        let shape = Shape { lba_shift: shift, tags, user_copy, ..Shape::default() };
        let mut program = Program {
            rig: Rig::new(shape),
            shift,
            random: Random(seed),
            model: vec![0; (BLOCKS as usize) << shift],
            flights: BTreeMap::new(),
            done: 0,
        };
        program.run();
        prop_assert!(program.done > 20, "{}", program.done);
    }
}
