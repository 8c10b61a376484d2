//! With timing, no turn copies more than a slice.

use super::fused::Lent;
use super::*;

const SLICE: u32 = 16 << 10;
const LEN: u32 = 128 << 10;

fn write(number: u32, fua: bool) -> Request<'static> {
    let (offset, len) = (u64::from(number * LEN), LEN);
    Request::Write { offset, len, fua }
}

fn count(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte == 7).count()
}

/// Turns until nothing is in flight, none of which changes more than a slice of what `seen` counts.
fn turns(fixture: &mut Fixture, mut seen: impl FnMut() -> usize) -> u32 {
    let mut done = Vec::with_capacity(4);
    let (mut turns, mut before) = (0, seen());
    while fixture.channel.in_flight() > 0 {
        fixture.channel.submit();
        fixture.channel.reap(&mut done);
        let now = seen();
        assert!(now <= before + SLICE as usize, "{} bytes", now - before);
        assert!(turns < 1_000_000, "a command hangs");
        (turns, before) = (turns + 1, now);
        std::thread::yield_now();
    }
    assert!(done.iter().all(|done| done.outcome == Outcome::OK));
    retire(done);
    turns
}

#[test]
fn no_turn_copies_more_than_a_slice() {
    for is_memory in [true, false] {
        let mut fixture = Fixture::with(Some(SLICE), |opened| opened.is_memory = is_memory);
        let path = fixture.path.clone();
        let lent = Lent::new(&[7; LEN as usize]);
        for number in 0..3 {
            let slot = lent.add(&mut fixture, &write(number, number == 1), LEN);
            fixture
                .channel
                .ready
                .push_back(slot.expect("nobody is in its way"));
        }
        let took = turns(&mut fixture, || {
            if is_memory {
                count(&std::fs::read(&path).unwrap())
            } else {
                0
            }
        });
        assert!(took >= 3 * LEN / SLICE, "{took} turns");
        let bytes = std::fs::read(&path).unwrap();
        assert_eq!(
            (count(&bytes), bytes[3 * LEN as usize]),
            (3 * LEN as usize, 0)
        );

        let lent = Lent::new(&[0; LEN as usize]);
        let request = Request::Read {
            offset: 0,
            len: LEN,
        };
        let slot = lent.add(&mut fixture, &request, LEN);
        fixture
            .channel
            .ready
            .push_back(slot.expect("nobody is in its way"));
        let mut seen = vec![0; LEN as usize];
        let took = turns(&mut fixture, || {
            lent.buffer.read_into(0, &mut seen);
            count(&seen)
        });
        assert!(took >= LEN / SLICE, "{took} turns");
        assert_eq!(count(&seen), LEN as usize);
    }
}

#[test]
fn slices_are_made_durable_together() {
    let mut fixture = Fixture::with(Some(SLICE), |opened| opened.is_memory = false);
    let lent = Lent::new(&[7; LEN as usize]);
    let slice = |at| Io::Write {
        from: Buffer::Bounce(SLICE),
        offset: u64::from(at * SLICE),
        durable: false,
    };
    let slot = lent.add(&mut fixture, &write(0, true), LEN).unwrap();
    assert_eq!(fixture.channel.operation(slot), slice(0));
    for at in 1..LEN / SLICE {
        assert_eq!(fixture.again(slot, SLICE as i32), slice(at));
    }
    assert_eq!(fixture.again(slot, SLICE as i32), Io::Sync);
    assert_eq!(fixture.ends(slot, 0), Outcome::OK);
    fixture.give_back(slot);
    // A write up to a slice is durable by itself.
    let request = Request::Write {
        offset: 0,
        len: SLICE,
        fua: true,
    };
    let slot = lent.add(&mut fixture, &request, SLICE).unwrap();
    let whole = Io::Write {
        from: Buffer::Segments,
        offset: 0,
        durable: true,
    };
    assert_eq!(fixture.channel.operation(slot), whole);
    assert_eq!(fixture.ends(slot, SLICE as i32), Outcome::OK);
    fixture.give_back(slot);
    assert!(fixture.drain().is_empty());
}
