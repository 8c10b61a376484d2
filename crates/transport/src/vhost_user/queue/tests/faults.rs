//! Drivers that break the rules.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};

use super::super::{MAX_PIECES, Queue, RingFault};
use super::Dice;
use super::guest::{BASE, DEVICE, DRIVER, Guest, LEN, TABLES};

const NEXT: u16 = 1;
const WRITE: u16 = 2;
const INDIRECT: u16 = 4;
/// Of a packed descriptor that is available in the first lap.
const AVAIL: u16 = 1 << 7;

/// A descriptor of a test: address, length, flags, and the next one (split).
type Descriptor = (u64, u32, u16, u16);

/// A ring of four entries with these descriptors, of which the first is made available.
fn ring(is_packed: bool, descriptors: &[Descriptor]) -> (Guest, Queue) {
    let guest = Guest::new(4, is_packed);
    put(&guest, 0, is_packed, descriptors);
    if is_packed {
        let flags = guest.get16(14);
        guest.put16(14, flags | AVAIL);
    } else {
        guest.put16(DRIVER + 2, 1);
    }
    let queue = guest.queue().unwrap();
    (guest, queue)
}

fn put(guest: &Guest, at: u64, is_packed: bool, descriptors: &[Descriptor]) {
    for (index, (addr, len, flags, next)) in descriptors.iter().enumerate() {
        let words = if is_packed {
            [7, *flags]
        } else {
            [*flags, *next]
        };
        guest.put_descriptor(at + index as u64 * 16, *addr, *len, words);
    }
}

fn fault(is_packed: bool, descriptors: &[Descriptor]) -> RingFault {
    let (mut guest, mut queue) = ring(is_packed, descriptors);
    assert!(queue.has_more());
    let fault = guest.fault(&mut queue);
    // It stays: nothing was taken.
    assert_eq!(guest.fault(&mut queue), fault);
    assert!(!queue.publish());
    assert_eq!(guest.get16(DEVICE + 2), 0);
    fault
}

/// The fault of a table with these descriptors.
fn table(is_packed: bool, descriptors: &[Descriptor]) -> RingFault {
    let len = descriptors.len() as u32 * 16;
    let (mut guest, mut queue) = ring(is_packed, &[(BASE + TABLES, len, INDIRECT, 0)]);
    put(&guest, TABLES, is_packed, descriptors);
    guest.fault(&mut queue)
}

#[test]
fn chains_that_break_a_rule() {
    for is_packed in [false, true] {
        let fault = |descriptors: &[Descriptor]| fault(is_packed, descriptors);
        assert_eq!(
            fault(&[(0, 1, NEXT | WRITE, 1), (0, 1, 0, 0)]),
            RingFault::Order
        );
        let half = 1 << 31;
        assert_eq!(
            fault(&[(0, half, NEXT, 1), (0, half, 0, 0)]),
            RingFault::TooLong
        );
        // As long as the ring is allowed.
        let circle = [(0, 1, NEXT, 1), (0, 1, NEXT, 2), (0, 1, NEXT, 3)];
        let whole = [&circle[..], &[(0, 1, 0, 0)]].concat();
        let (mut guest, mut queue) = ring(is_packed, &whole);
        assert_eq!(guest.take(&mut queue).unwrap().unwrap().1.len(), 4);
        let endless = [&circle[..], &[(0, 1, NEXT, 0)]].concat();
        assert_eq!(fault(&endless), RingFault::Endless);
    }
    assert_eq!(fault(false, &[(0, 1, NEXT, 4)]), RingFault::Index(4));
    // 4294967295 bytes are allowed.
    let (mut guest, mut queue) = ring(false, &[(0, u32::MAX, NEXT, 1), (0, 0, 0, 0)]);
    assert_eq!(guest.take(&mut queue).unwrap().unwrap().1.len(), 2);
}

#[test]
fn tables_that_break_a_rule() {
    for is_packed in [false, true] {
        let at = BASE + TABLES;
        let indirect = |addr, len| fault(is_packed, &[(addr, len, INDIRECT, 0)]);
        for len in [0, 1, 15, 17, 32769 * 16] {
            assert_eq!(indirect(at, len), RingFault::TableLength(len));
        }
        assert_eq!(
            fault(is_packed, &[(at, 16, INDIRECT | NEXT, 1)]),
            RingFault::IndirectNext
        );
        assert_eq!(indirect(BASE + LEN - 16, 32), RingFault::Table);
        assert_eq!(indirect(0, 16), RingFault::Table);
        assert_eq!(indirect(u64::MAX - 14, 16), RingFault::Table);
        assert_eq!(
            table(is_packed, &[(at, 16, INDIRECT, 0)]),
            RingFault::Nested
        );
        assert_eq!(
            table(is_packed, &[(0, 1, NEXT | WRITE, 1), (0, 1, 0, 0)]),
            RingFault::Order
        );
        // The table of a descriptor that says that it is written is read all the same.
        let (mut guest, mut queue) = ring(is_packed, &[(at, 16, INDIRECT | WRITE, 0)]);
        let (_, pieces) = guest.take(&mut queue).unwrap().unwrap();
        assert_eq!((pieces.len(), pieces[0].is_writable), (1, false));
        // The feature was not negotiated.
        let (mut guest, _) = ring(is_packed, &[(at, 16, INDIRECT, 0)]);
        guest.setup.has_indirect = false;
        let mut queue = guest.queue().unwrap();
        assert_eq!(guest.fault(&mut queue), RingFault::Indirect);
    }
    assert_eq!(
        table(false, &[(0, 1, NEXT, 1), (0, 1, NEXT, 0)]),
        RingFault::Endless
    );
    assert_eq!(
        table(false, &[(0, 1, NEXT, 1), (0, 1, NEXT, 2)]),
        RingFault::Index(2)
    );
}

#[test]
fn a_request_has_as_many_pieces_as_there_is_room_for() {
    for is_packed in [false, true] {
        let list = |count: usize| -> Vec<Descriptor> {
            (1..=count)
                .map(|next| (0, 1, if next < count { NEXT } else { 0 }, next as u16))
                .collect()
        };
        assert_eq!(table(is_packed, &list(MAX_PIECES + 1)), RingFault::Pieces);
        let len = MAX_PIECES as u32 * 16;
        let (mut guest, mut queue) = ring(is_packed, &[(BASE + TABLES, len, INDIRECT, 0)]);
        put(&guest, TABLES, is_packed, &list(MAX_PIECES));
        let (_, pieces) = guest.take(&mut queue).unwrap().unwrap();
        assert_eq!(pieces.len(), MAX_PIECES);
    }
}

#[test]
fn an_available_index_beyond_the_ring() {
    for ahead in [5, 0x8000, 0xffff] {
        let mut guest = Guest::new(4, false);
        guest.put16(DRIVER + 2, ahead);
        let mut queue = guest.queue().unwrap();
        assert_eq!(guest.fault(&mut queue), RingFault::Ahead);
    }
    let mut guest = Guest::new(4, false);
    guest.put16(DRIVER + 2, 1);
    for index in [4, 0xffff] {
        guest.put16(DRIVER + 4, index);
        let mut queue = guest.queue().unwrap();
        assert_eq!(guest.fault(&mut queue), RingFault::Index(index));
    }
}

#[test]
fn a_request_that_is_available_twice() {
    let mut guest = Guest::new(4, false);
    guest.put16(DRIVER + 2, 2);
    let mut queue = guest.queue().unwrap();
    let (head, _) = guest.take(&mut queue).unwrap().unwrap();
    assert_eq!(guest.fault(&mut queue), RingFault::Twice(0));
    queue.give_back(head, 0);
    guest.take(&mut queue).unwrap().unwrap();

    let descriptors = [(0, 1, AVAIL, 0); 2];
    let (mut guest, mut queue) = ring(true, &descriptors);
    guest.take(&mut queue).unwrap().unwrap();
    assert_eq!(guest.fault(&mut queue), RingFault::Twice(7));
}

/// A driver that offers a request again before it sees that it was used cannot fill the batch.
#[test]
fn a_batch_is_not_longer_than_the_ring() {
    for is_packed in [false, true] {
        let mut guest = Guest::new(4, is_packed);
        let mut queue = guest.queue().unwrap();
        for index in 0..4 {
            guest.put_descriptor(
                index * 16,
                0,
                1,
                if is_packed { [7, AVAIL] } else { [0, 0] },
            );
            guest.put16(DRIVER + 2, index as u16 + 1);
            let (head, _) = guest.take(&mut queue).unwrap().unwrap();
            queue.give_back(head, 0);
        }
        if is_packed {
            guest.put16(14, 1 << 15);
        } else {
            guest.put16(DRIVER + 2, 5);
        }
        assert_eq!(guest.fault(&mut queue), RingFault::Ahead);
        queue.publish();
        if is_packed {
            guest.put16(14, 1 << 15);
        }
        guest.take(&mut queue).unwrap().unwrap();
    }
}

/// A packed ring whose descriptors are available again before they were used.
#[test]
fn a_lap_before_the_last_one_was_used() {
    let mut guest = Guest::new(2, true);
    for index in 0..2 {
        guest.put_descriptor(index * 16, 0, 1, [index as u16, AVAIL]);
    }
    let mut queue = guest.queue().unwrap();
    for _ in 0..2 {
        guest.take(&mut queue).unwrap().unwrap();
    }
    guest.put_descriptor(0, 0, 1, [2, 1 << 15]);
    assert_eq!(guest.fault(&mut queue), RingFault::Ahead);

    let mut guest = Guest::new(2, true);
    guest.put_descriptor(0, 0, 1, [0, AVAIL]);
    guest.put_descriptor(16, 0, 1, [1, AVAIL | NEXT]);
    let mut queue = guest.queue().unwrap();
    guest.take(&mut queue).unwrap().unwrap();
    assert_eq!(guest.fault(&mut queue), RingFault::Endless);
}

/// Any bytes, which change between calls: no panic, and what is taken is bounded.
#[test]
fn any_bytes_at_all() {
    let mut all = [0; 2];
    for seed in 0..400 {
        let is_packed = seed % 2 == 1;
        let mut dice = Dice::new(seed);
        let size = 1 << dice.below(6);
        let mut guest = Guest::new(size, is_packed);
        guest.setup.has_event_idx = dice.flip();
        let mut queue = guest.queue().unwrap();
        let mut taken = Vec::new();
        for _ in 0..300 {
            for _ in 0..dice.below(6) {
                let part = [0, DRIVER, DEVICE, TABLES][dice.below(4) as usize];
                let span = if part == 0 || part == TABLES { 512 } else { 16 };
                let value = match dice.below(4) {
                    0 => dice.below(8),
                    1 => BASE + TABLES + dice.below(4) * 16,
                    2 => u64::from(AVAIL) << 48 | 16 << dice.below(4) | dice.below(8) << 48,
                    _ => dice.below(u64::MAX),
                };
                guest.put(part + dice.below(span) * 2, value.to_le_bytes());
            }
            if dice.flip() {
                let next = queue.base() as u16;
                if is_packed {
                    let whose = if next & 1 << 15 == 0 { 1 << 15 } else { AVAIL };
                    let at = u64::from(next & 0x7fff) * 16;
                    guest.put16(at + 14, whose | dice.below(8) as u16);
                } else {
                    guest.put16(DRIVER + 2, next.wrapping_add(dice.below(3) as u16));
                }
            }
            if let Ok(Some((head, pieces))) = guest.take(&mut queue) {
                assert!(!pieces.is_empty() && pieces.len() <= MAX_PIECES);
                assert!(pieces.is_sorted_by_key(|piece| piece.is_writable));
                let bytes: u64 = pieces.iter().map(|piece| u64::from(piece.len)).sum();
                assert!(bytes <= u64::from(u32::MAX));
                assert!(head.count >= 1 && head.count <= size);
                taken.push(head);
                all[usize::from(is_packed)] += 1;
                assert!(taken.len() <= usize::from(size));
            }
            if dice.flip() && !taken.is_empty() {
                queue.give_back(taken.swap_remove(0), 1);
            }
            match dice.below(4) {
                0 => drop(queue.publish()),
                1 => drop(queue.arm()),
                2 => queue.disarm(),
                _ => {}
            }
        }
    }
    assert!(all[0] > 1000 && all[1] > 1000, "{all:?}");
}

/// Memory that another processor of the guest writes at the same time.
#[test]
fn bytes_that_change_meanwhile() {
    for is_packed in [false, true] {
        let mut guest = Guest::new(8, is_packed);
        guest.setup.has_event_idx = true;
        let memory = guest.memory().clone();
        let is_done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut dice = Dice::new(7);
                while !is_done.load(Ordering::Relaxed) {
                    let part = [0, DRIVER, DEVICE, TABLES][dice.below(4) as usize];
                    let words = [dice.below(9), BASE + TABLES, dice.below(u64::MAX)];
                    let word = words[dice.below(3) as usize];
                    let at = part + dice.below(64) * 2;
                    memory.write(at as usize, &word.to_le_bytes());
                }
            });
            let mut taken = VecDeque::new();
            let mut queue = guest.queue().unwrap();
            for _ in 0..100_000 {
                if let Ok(Some((head, pieces))) = guest.take(&mut queue) {
                    assert!(!pieces.is_empty() && pieces.len() <= MAX_PIECES);
                    assert!(pieces.is_sorted_by_key(|piece| piece.is_writable));
                    taken.push_back(head);
                    assert!(taken.len() <= 8);
                }
                if taken.len() > 4 {
                    taken.drain(..).for_each(|head| queue.give_back(head, 1));
                    queue.publish();
                    queue.arm();
                }
            }
            is_done.store(true, Ordering::Relaxed);
        });
    }
}
