//! A back end that dies at any store of a ring or of its record, and another one that goes on.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use memory::own::crash;

use super::super::{Head, Inflight, Piece, Queue};
use super::Dice;
use super::driver::Driver;
use super::guest::Guest;

/// A guest with a driver and a record, which outlive back ends.
struct World {
    guest: Guest,
    driver: Driver,
    file: OwnedFd,
    len: u64,
    dice: Dice,
}

impl World {
    fn new(size: u16, is_packed: bool, seed: u64) -> Self {
        let guest = Guest::new(size, is_packed);
        let driver = Driver::new(&guest);
        let (_, file, len) = Inflight::create(1, size, is_packed).unwrap();
        Self {
            guest,
            driver,
            file,
            len,
            dice: Dice::new(seed),
        }
    }

    fn queue(&self) -> Queue {
        let file = self.file.try_clone().unwrap();
        let setup = &self.guest.setup;
        let inflight = Inflight::adopt(file, self.len, 0, 1, setup.size, setup.is_packed);
        self.guest.tracked(&inflight.unwrap()).unwrap()
    }

    /// The requests that the driver waits for, in the order of its offers.
    fn waiting(&self) -> VecDeque<(u64, Vec<Piece>)> {
        let offers = self.driver.outstanding.values();
        let mut waiting: Vec<_> = offers
            .map(|offer| (offer.serial, offer.pieces.clone()))
            .collect();
        waiting.sort_unstable_by_key(|(serial, _)| *serial);
        waiting.into()
    }

    fn offer(&mut self) -> bool {
        let readable = self.dice.below(3) as u16;
        let pieces = self.driver.pieces(readable, 1);
        let table = if self.dice.flip() { pieces.len() } else { 0 };
        self.driver.offer(&self.guest, pieces, table)
    }

    fn collect(&mut self) {
        while let Some((_, written)) = self.driver.collect(&self.guest) {
            assert_eq!(written, 1);
        }
    }

    /// A back end that takes and gives back for some time. It may die in each store.
    fn live(&mut self, steps: usize) {
        let mut expected = self.waiting();
        let mut queue = self.queue();
        let mut taken = Vec::new();
        for _ in 0..steps {
            match self.dice.below(5) {
                0 | 1 => {
                    if self.offer() {
                        expected = self.waiting_behind(&expected);
                    }
                }
                2 => {
                    if let Some(head) = self.take(&mut queue, &mut expected) {
                        taken.push(head);
                    }
                }
                3 if !taken.is_empty() => {
                    let at = self.dice.below(taken.len() as u64) as usize;
                    queue.give_back(taken.swap_remove(at), 1);
                }
                _ => {
                    queue.publish();
                    self.collect();
                }
            }
        }
    }

    /// `expected`, and what was offered since.
    fn waiting_behind(
        &self,
        expected: &VecDeque<(u64, Vec<Piece>)>,
    ) -> VecDeque<(u64, Vec<Piece>)> {
        let newest = self.waiting().pop_back();
        expected.iter().cloned().chain(newest).collect()
    }

    /// Takes the next request, which must be the oldest that the driver waits for.
    fn take(
        &mut self,
        queue: &mut Queue,
        expected: &mut VecDeque<(u64, Vec<Piece>)>,
    ) -> Option<Head> {
        let found = self.guest.take(queue).unwrap();
        let Some((head, pieces)) = found else {
            assert!(expected.is_empty(), "requests are lost: {expected:?}");
            return None;
        };
        let (_, offered) = expected.pop_front().expect("a request is taken twice");
        assert_eq!(pieces, offered);
        Some(head)
    }

    /// The last back end: every request is given back.
    fn finish(&mut self) {
        self.collect();
        let mut expected = self.waiting();
        let mut queue = self.queue();
        let mut taken = Vec::new();
        while let Some(head) = self.take(&mut queue, &mut expected) {
            taken.push(head);
        }
        while !taken.is_empty() {
            let at = self.dice.below(taken.len() as u64) as usize;
            queue.give_back(taken.swap_remove(at), 1);
            if self.dice.flip() {
                queue.publish();
                self.collect();
            }
        }
        queue.publish();
        self.collect();
        assert!(self.driver.outstanding.is_empty());
        for _ in 0..3 {
            while !self.offer() {}
            let head = self.take(&mut queue, &mut self.waiting()).unwrap();
            queue.give_back(head, 1);
            queue.publish();
            self.collect();
        }
    }
}

/// The first back end dies behind each of its stores; those that follow die anywhere, also while
/// they read the record.
fn die_everywhere(size: u16, is_packed: bool, seed: u64) {
    for points in 0.. {
        let mut world = World::new(size, is_packed, seed);
        let first = crash::run(points, || world.live(30));
        for _ in 0..world.dice.below(3) {
            world.collect();
            for _ in 0..world.dice.below(4) {
                world.offer();
            }
            let points = world.dice.below(80);
            // Whether it dies or lives: it is dropped.
            let _ = crash::run(points, || world.live(20));
        }
        world.finish();
        if first.is_ok() {
            return;
        }
    }
}

#[test]
fn no_death_loses_or_repeats_a_request_of_a_split_ring() {
    for (size, seed) in [(1, 1), (2, 2), (4, 3), (4, 4), (8, 5), (8, 6), (16, 7)] {
        die_everywhere(size, false, seed);
    }
}

#[test]
fn no_death_loses_or_repeats_a_request_of_a_packed_ring() {
    for (size, seed) in [(3, 1), (3, 2), (4, 3), (4, 4), (8, 5), (8, 6), (16, 7)] {
        die_everywhere(size, true, seed);
    }
}

/// A request that takes the whole ring leaves the used index as it was.
#[test]
fn a_request_of_a_whole_packed_ring_is_given_back_once() {
    for size in [1, 2, 4] {
        for points in 0.. {
            let mut world = World::new(size, true, 1);
            let offer = |world: &mut World| {
                let pieces = world.driver.pieces(0, size);
                assert!(world.driver.offer(&world.guest, pieces, 0));
            };
            offer(&mut world);
            let first = crash::run(points, || {
                for _ in 0..3 {
                    let mut queue = world.queue();
                    let (head, _) = world.guest.take(&mut queue).unwrap().unwrap();
                    queue.give_back(head, 1);
                    queue.publish();
                    world.collect();
                    offer(&mut world);
                }
            });
            // The driver goes on meanwhile.
            world.collect();
            if world.driver.outstanding.is_empty() {
                offer(&mut world);
            }
            let mut queue = world.queue();
            let (head, pieces) = world.guest.take(&mut queue).unwrap().unwrap();
            assert_eq!(pieces.len(), usize::from(size));
            assert!(world.guest.take(&mut queue).unwrap().is_none());
            queue.give_back(head, 1);
            queue.publish();
            world.collect();
            assert!(world.driver.outstanding.is_empty());
            if first.is_ok() {
                break;
            }
        }
    }
}

/// A notification that a dead back end may owe is made up for, once.
#[test]
fn a_successor_notifies() {
    for is_packed in [false, true] {
        let world = World::new(4, is_packed, 1);
        assert!(!world.queue().publish());
        let mut queue = world.queue();
        assert!(queue.publish());
        assert!(!queue.publish());
    }
}

/// Requests in flight are taken first, in the order in which they were taken, whatever their
/// places; then the driver's next one.
#[test]
fn requests_in_flight_come_first() {
    for is_packed in [false, true] {
        let mut world = World::new(8, is_packed, 1);
        let mut queue = world.queue();
        let mut heads = Vec::new();
        for _ in 0..6 {
            let pieces = world.driver.pieces(1, 0);
            assert!(world.driver.offer(&world.guest, pieces, 0));
        }
        for _ in 0..5 {
            heads.push(world.guest.take(&mut queue).unwrap().unwrap().0);
        }
        for index in [3, 0] {
            queue.give_back(heads[index], 1);
        }
        queue.publish();
        queue.give_back(heads[1], 1);
        world.collect();
        let mut expected = world.waiting();
        assert_eq!(expected.len(), 4);
        let mut queue = world.queue();
        assert!(queue.has_more() && !queue.arm());
        for _ in 0..3 {
            world.take(&mut queue, &mut expected).unwrap();
        }
        assert_eq!(queue.resubmitted(), 3);
        world.take(&mut queue, &mut expected).unwrap();
        assert_eq!(queue.resubmitted(), 3);
        assert!(world.take(&mut queue, &mut expected).is_none());
    }
}
