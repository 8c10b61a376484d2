//! Drivers that keep the rules.

use std::collections::VecDeque;

use memory::own::crash;

use super::super::{Head, Queue};
use super::Dice;
use super::driver::Driver;
use super::guest::{BASE, DRIVER, Guest};

/// A device without a record, and what it is to take and to give back.
struct Device {
    queue: Queue,
    offered: VecDeque<u64>,
    taken: Vec<(u64, Head)>,
    given_back: VecDeque<(u64, u32)>,
}

/// Any requests, in any order, of `count` requests at least.
fn talk(guest: &mut Guest, driver: &mut Driver, seed: u64, count: u64) {
    let mut dice = Dice::new(seed);
    let mut device = Device {
        queue: guest.queue().unwrap(),
        offered: VecDeque::new(),
        taken: Vec::new(),
        given_back: VecDeque::new(),
    };
    let mut done = 0;
    let mut serial = 0;
    while done < count {
        for _ in 0..dice.below(8) {
            let (readable, writable) = (dice.below(4) as u16, dice.below(4) as u16);
            let pieces = driver.pieces(readable, writable);
            let table = dice.below(1 + pieces.len() as u64) as usize;
            let table = if dice.flip() { table } else { 0 };
            if driver.offer(guest, pieces, table) {
                device.offered.push_back(serial);
                serial += 1;
            }
        }
        for _ in 0..dice.below(8) {
            assert_eq!(device.queue.has_more(), !device.offered.is_empty());
            let expected = device.offered.pop_front();
            let found = guest.take(&mut device.queue).unwrap();
            assert_eq!(found.is_some(), expected.is_some());
            let (Some((head, pieces)), Some(serial)) = (found, expected) else {
                break;
            };
            let offer = driver.outstanding.values().find(|it| it.serial == serial);
            assert_eq!(pieces, offer.unwrap().pieces);
            device.taken.push((serial, head));
        }
        for _ in 0..dice.below(8).min(device.taken.len() as u64) {
            let at = dice.below(device.taken.len() as u64) as usize;
            let (serial, head) = device.taken.swap_remove(at);
            let written = dice.below(3) as u32;
            device.queue.give_back(head, written);
            device.given_back.push_back((serial, written));
        }
        if dice.flip() {
            assert!(driver.collect(guest).is_none());
            device.queue.publish();
            while let Some((offer, written)) = driver.collect(guest) {
                assert_eq!(device.given_back.pop_front(), Some((offer.serial, written)));
                done += 1;
            }
            assert!(device.given_back.is_empty());
        }
    }
}

#[test]
fn requests_are_taken_in_order_and_given_back_in_any() {
    for is_packed in [false, true] {
        for size in [1, 2, 3, 4, 256, 32768] {
            if size == 3 && !is_packed {
                continue;
            }
            for has_event_idx in [false, true] {
                let mut guest = Guest::new(size, is_packed);
                guest.setup.has_event_idx = has_event_idx;
                let mut driver = Driver::new(&guest);
                talk(&mut guest, &mut driver, u64::from(size), 3000);
            }
        }
    }
}

#[test]
fn indices_wrap() {
    for is_packed in [false, true] {
        let mut guest = Guest::new(256, is_packed);
        let mut driver = Driver::new(&guest);
        talk(&mut guest, &mut driver, 1, 70_000);
    }
    let mut guest = Guest::new(32768, false);
    let mut driver = Driver::new(&guest);
    driver.start_at(&guest, 65_500);
    guest.setup.base = 65_500;
    talk(&mut guest, &mut driver, 2, 3000);
}

/// A driver that wants to be notified of every n-th request is notified as often.
#[test]
fn notifications_are_as_many_as_the_driver_wants() {
    for is_packed in [false, true] {
        for (size, every) in [(8, 1), (8, 3), (8, 8), (256, 100)] {
            let mut guest = Guest::new(size, is_packed);
            guest.setup.has_event_idx = true;
            let mut driver = Driver::new(&guest);
            let mut queue = guest.queue().unwrap();
            let mut notified = 0;
            driver.want(&guest, every - 1);
            for done in 1..=1000 * u32::from(every) {
                assert!(driver.offer(&guest, driver.pieces(1, 0), 0));
                let (head, _) = guest.take(&mut queue).unwrap().unwrap();
                queue.give_back(head, 0);
                let notify = queue.publish();
                notified += u32::from(notify);
                assert!(driver.collect(&guest).is_some());
                assert_eq!(notify, done.is_multiple_of(every.into()), "{size} {every}");
                if notify {
                    driver.want(&guest, every - 1);
                }
            }
            assert_eq!(notified, 1000);
            assert!(!queue.publish());
        }
    }
}

/// A batch goes past an event anywhere in it, and not past one before or behind it.
#[test]
fn a_batch_notifies_where_the_event_is_in_it() {
    for is_packed in [false, true] {
        let mut guest = Guest::new(8, is_packed);
        guest.setup.has_event_idx = true;
        let mut driver = Driver::new(&guest);
        let mut queue = guest.queue().unwrap();
        for round in 0..64 {
            let (count, ahead) = (1 + round % 7, round / 8);
            let mut heads = Vec::new();
            for _ in 0..count {
                assert!(driver.offer(&guest, driver.pieces(0, 1), 0));
                heads.push(guest.take(&mut queue).unwrap().unwrap().0);
            }
            driver.want(&guest, ahead);
            heads.into_iter().for_each(|head| queue.give_back(head, 1));
            assert_eq!(queue.publish(), ahead < count, "{count} {ahead}");
            while driver.collect(&guest).is_some() {}
            // One more, which the event may be.
            assert!(driver.offer(&guest, driver.pieces(0, 1), 0));
            let (head, _) = guest.take(&mut queue).unwrap().unwrap();
            queue.give_back(head, 1);
            assert_eq!(queue.publish(), ahead == count, "{count} {ahead}");
            assert!(driver.collect(&guest).is_some());
        }
    }
}

#[test]
fn flags_suppress_notifications() {
    for is_packed in [false, true] {
        let mut guest = Guest::new(4, is_packed);
        let mut driver = Driver::new(&guest);
        let mut queue = guest.queue().unwrap();
        for wants in [true, false, true] {
            if wants {
                driver.want(&guest, 0);
            } else {
                driver.want_none(&guest);
            }
            assert!(!queue.publish());
            assert!(driver.offer(&guest, driver.pieces(1, 1), 0));
            let (head, _) = guest.take(&mut queue).unwrap().unwrap();
            queue.give_back(head, 7);
            assert_eq!(queue.publish(), wants);
            assert!(driver.collect(&guest).is_some());
        }
        if is_packed {
            // An index of events that was not negotiated.
            guest.put16(DRIVER, 0);
            guest.put16(DRIVER + 2, 2);
            assert!(driver.offer(&guest, driver.pieces(1, 1), 0));
            let (head, _) = guest.take(&mut queue).unwrap().unwrap();
            queue.give_back(head, 7);
            assert!(queue.publish());
        }
    }
}

/// Between arming and disarming the driver notifies; without an index of events, not otherwise.
#[test]
fn the_driver_notifies_of_what_comes_after_arming() {
    for is_packed in [false, true] {
        for has_event_idx in [false, true] {
            let mut guest = Guest::new(4, is_packed);
            guest.setup.has_event_idx = has_event_idx;
            let mut driver = Driver::new(&guest);
            let mut queue = guest.queue().unwrap();
            for round in 0..10 {
                assert!(queue.arm());
                assert!(driver.offer(&guest, driver.pieces(1, 1), 0));
                assert!(driver.must_kick(&guest, 2), "{round}");
                assert!(!queue.arm(), "there is a request");
                queue.disarm();
                assert!(driver.offer(&guest, driver.pieces(1, 0), 0));
                assert!(!driver.must_kick(&guest, 1));
                for _ in 0..2 {
                    let (head, _) = guest.take(&mut queue).unwrap().unwrap();
                    queue.give_back(head, 0);
                }
                queue.publish();
                while driver.collect(&guest).is_some() {}
            }
        }
    }
}

/// `GET_VRING_BASE` and `SET_VRING_BASE`: another queue goes on where one has stopped.
#[test]
fn a_ring_goes_on_from_its_base() {
    for is_packed in [false, true] {
        let mut guest = Guest::new(4, is_packed);
        let mut driver = Driver::new(&guest);
        for round in 0..11u32 {
            let mut queue = guest.queue().unwrap();
            for _ in 0..3 {
                assert!(driver.offer(&guest, driver.pieces(1, 0), 0));
                let (head, _) = guest.take(&mut queue).unwrap().unwrap();
                queue.give_back(head, 0);
                queue.publish();
                assert!(driver.collect(&guest).is_some());
            }
            guest.setup.base = queue.base();
            let done = 3 * (round + 1);
            let wrap = if (done / 4).is_multiple_of(2) {
                0x8000
            } else {
                0
            };
            let half = wrap + done % 4;
            let expected = if is_packed { half << 16 | half } else { done };
            assert_eq!(queue.base(), expected);
        }
    }
}

/// A table that lies in two regions, and is longer than what is copied at once.
#[test]
fn tables_cross_regions() {
    for is_packed in [false, true] {
        let mut guest = Guest::new(4, is_packed);
        let more = memory::HostMemory::new(8192).unwrap();
        super::guest::add(&mut guest.map, &more, BASE + super::guest::LEN, 8192);
        let table = super::guest::LEN - 20 * 16;
        for index in 0..100u64 {
            let last = index == 99;
            let flags = u16::from(!last);
            let words = if is_packed {
                [0, 0]
            } else {
                [flags, index as u16 + 1]
            };
            let mut bytes = Vec::new();
            bytes.extend((1000 + index).to_le_bytes());
            bytes.extend((index as u32).to_le_bytes());
            words
                .iter()
                .for_each(|word| bytes.extend(word.to_le_bytes()));
            if index < 20 {
                guest.memory().write((table + index * 16) as usize, &bytes);
            } else {
                more.write((index as usize - 20) * 16, &bytes);
            }
        }
        let words = if is_packed { [9, 4 | 1 << 7] } else { [4, 0] };
        guest.put_descriptor(0, BASE + table, 1600, words);
        guest.put16(DRIVER + 2, 1);
        let mut queue = guest.queue().unwrap();
        let (_, pieces) = guest.take(&mut queue).unwrap().unwrap();
        assert_eq!(pieces.len(), 100);
        for (index, piece) in pieces.iter().enumerate() {
            assert_eq!((piece.at, piece.len), (1000 + index as u64, index as u32));
        }
    }
}

/// The driver sees a batch as a whole: behind each store it has all of it or none.
#[test]
fn a_batch_is_seen_at_once() {
    for is_packed in [false, true] {
        for points in 0.. {
            let mut guest = Guest::new(4, is_packed);
            let mut driver = Driver::new(&guest);
            let mut queue = guest.queue().unwrap();
            let mut heads = Vec::new();
            for _ in 0..3 {
                assert!(driver.offer(&guest, driver.pieces(1, 0), 0));
                heads.push(guest.take(&mut queue).unwrap().unwrap().0);
            }
            let ended = crash::run(points, || {
                heads.into_iter().for_each(|head| queue.give_back(head, 5));
                queue.publish();
            });
            let mut seen = 0;
            while let Some((_, written)) = driver.collect(&guest) {
                assert_eq!(written, 5);
                seen += 1;
            }
            assert!(seen == 0 || seen == 3, "{seen}");
            if ended.is_ok() {
                assert_eq!(seen, 3);
                break;
            }
        }
    }
}
