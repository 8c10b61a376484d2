//! Every interleaving of the mailbox, of going to sleep, and of what threads share beside them, as
//! loom sees them.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering};
use loom::thread;
use memory::sync::mailbox;
use memory::{Bell, Claim, Claimant, Claims, Pool, RECORD_WORDS, Records};

/// Every message arrives once and in order, through a mailbox smaller than their number.
#[test]
fn messages_arrive_once_and_in_order() {
    loom::model(|| {
        let (mut sender, mut receiver) = mailbox::channel(2);
        let sending = thread::spawn(move || {
            let mut sent = 0;
            for number in 1..=3u32 {
                // a full mailbox gives the message back
                if sender.try_send(number).is_ok() {
                    sent += 1;
                } else {
                    break;
                }
            }
            (sender, sent)
        });
        let mut received = Vec::new();
        for _ in 0..2 {
            received.extend(receiver.try_recv());
        }
        let (sender, sent) = sending.join().unwrap();
        received.extend(std::iter::from_fn(|| receiver.try_recv()));
        assert_eq!(received, (1..=sent).collect::<Vec<u32>>());
        drop(sender);
    });
}

/// A reactor that sleeps has no work: either it saw the message in its second look, or the sender
/// wakes it.
#[test]
fn no_wake_up_is_lost() {
    loom::model(|| {
        let (mut sender, mut receiver) = mailbox::channel(1);
        let bell = Arc::new(Bell::new());
        let wakes = Arc::new(AtomicUsize::new(0));
        let sending = {
            let (bell, wakes) = (bell.clone(), wakes.clone());
            thread::spawn(move || {
                assert!(sender.try_send(1).is_ok());
                if bell.ring() {
                    wakes.fetch_add(1, Ordering::SeqCst);
                }
                sender
            })
        };
        bell.announce();
        let sleeps = receiver.is_empty();
        let sender = sending.join().unwrap();
        if sleeps {
            assert_eq!(
                wakes.load(Ordering::SeqCst),
                1,
                "asleep with a message waiting"
            );
        }
        bell.awake();
        assert_eq!(receiver.try_recv(), Some(1));
        drop(sender);
    });
}

/// The same sequence for a shadow doorbell: the host stores the tail and rings only past the event
/// index; we store the event index and look at the tail again. The fences are the ones the
/// specification asks of both sides.
#[test]
fn no_submission_is_lost_past_the_event_index() {
    loom::model(|| {
        let tail = Arc::new(AtomicUsize::new(0));
        let event_index = Arc::new(AtomicUsize::new(usize::MAX));
        let rings = Arc::new(AtomicUsize::new(0));
        let host = {
            let (tail, event_index, rings) = (tail.clone(), event_index.clone(), rings.clone());
            thread::spawn(move || {
                tail.store(1, Ordering::Release);
                loom::sync::atomic::fence(Ordering::SeqCst);
                // the tail moves past index 0: a ring is due when the event index is 0
                if event_index.load(Ordering::Relaxed) == 0 {
                    rings.fetch_add(1, Ordering::SeqCst);
                }
            })
        };
        event_index.store(0, Ordering::Relaxed);
        memory::full_fence();
        let sleeps = tail.load(Ordering::Acquire) == 0;
        host.join().unwrap();
        if sleeps {
            assert_eq!(
                rings.load(Ordering::SeqCst),
                1,
                "asleep with a command waiting"
            );
        }
    });
}

/// Several producers and one sleep: the sleeper is woken, and by one of them only.
#[test]
fn one_sleep_is_woken_once() {
    loom::model(|| {
        let bell = Arc::new(Bell::new());
        bell.announce();
        let ringing: Vec<_> = (0..2)
            .map(|_| {
                let bell = bell.clone();
                thread::spawn(move || usize::from(bell.ring()))
            })
            .collect();
        let woken: usize = ringing.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(woken, 1);
    });
}

/// Bytes that commands of several threads touch; loom objects where two do at one time and one of
/// them changes them.
type Bytes = loom::cell::UnsafeCell<u32>;

fn write(bytes: &Bytes) {
    bytes.with_mut(|bytes| {
        // SAFETY: loom's cell checks that no other thread accesses the bytes.
        unsafe { *bytes += 1 }
    });
}

fn read(bytes: &Bytes) -> u32 {
    // SAFETY: as above.
    bytes.with(|bytes| unsafe { *bytes })
}

const HERE: [(u64, u64); 1] = [(0, 512)];

/// Tries a few times, as a channel does once in every turn. Whether it got there.
fn touch(claimant: &mut Claimant, ranges: [(u64, u64); 1], changes: bool, bytes: &Bytes) -> bool {
    assert!(claimant.must_claim(|_| ()));
    let mut claim = Claim::default();
    let whole = (0..2).any(|_| claimant.claim(&mut claim, ranges, changes));
    match (whole, changes) {
        (true, true) => write(bytes),
        (true, false) => drop(read(bytes)),
        (false, _) => {}
    }
    claimant.release(&mut claim, ranges);
    whole
}

/// Two threads of commands on the same bytes, and on more of them than one word stands for.
#[test]
fn claimed_bytes_are_one_claimants_at_a_time() {
    for (ranges, changes) in [(HERE, true), (HERE, false), ([(0, 8192)], true)] {
        loom::model(move || {
            let claims = Claims::new();
            let bytes = std::sync::Arc::new(Bytes::new(0));
            let [mut one, mut two] = [(); 2].map(|()| claims.claimant().unwrap());
            assert!(one.must_claim(|_| ()));
            let other = {
                let bytes = bytes.clone();
                thread::spawn(move || touch(&mut two, ranges, true, &bytes))
            };
            let here = touch(&mut one, HERE, changes, &bytes);
            let there = other.join().unwrap();
            assert_eq!(
                read(&bytes),
                u32::from(here && changes) + u32::from(there),
                "what was written is seen"
            );
        });
    }
}

/// One that is alone on its medium, with a command in flight, while another comes.
#[test]
fn nobody_meets_what_was_in_flight_before_a_second_came() {
    loom::model(|| {
        let claims = Claims::new();
        let bytes = std::sync::Arc::new(Bytes::new(0));
        let mut one = claims.claimant().unwrap();
        let other = {
            let (claims, bytes) = (claims.clone(), bytes.clone());
            thread::spawn(move || {
                let mut two = claims.claimant().unwrap();
                // It is the second only where the first has not gone yet, and it does not.
                touch(&mut two, HERE, true, &bytes)
            })
        };
        // A command from start to end, and one that is in flight for longer.
        let mut claim = Claim::default();
        if one.must_claim(|_| ()) {
            let _ = one.claim(&mut claim, HERE, true);
        } else {
            claim = Claim::NEEDLESS;
        }
        let mut here = 0;
        if claim.is_whole() {
            write(&bytes);
            here += 1;
        }
        one.must_claim(|one| one.claim_at_once(&mut claim, HERE));
        if claim.is_whole() {
            write(&bytes);
            here += 1;
        }
        one.release(&mut claim, HERE);
        let there = other.join().unwrap();
        assert_eq!(read(&bytes), here + u32::from(there));
    });
}

/// One that rests, and begins again while another comes.
#[test]
fn one_that_rests_looks_before_it_begins() {
    loom::model(|| {
        let claims = Claims::new();
        let bytes = std::sync::Arc::new(Bytes::new(0));
        let mut one = claims.claimant().unwrap();
        assert!(!one.must_claim(|_| ()));
        let other = {
            let (claims, bytes) = (claims.clone(), bytes.clone());
            thread::spawn(move || {
                let mut two = claims.claimant().unwrap();
                touch(&mut two, HERE, true, &bytes)
            })
        };
        write(&bytes);
        one.rest();
        let here = if one.must_claim(|_| ()) {
            touch(&mut one, HERE, true, &bytes)
        } else {
            write(&bytes);
            one.must_claim(|_| ());
            true
        };
        let there = other.join().unwrap();
        assert_eq!(read(&bytes), 1 + u32::from(here) + u32::from(there));
    });
}

/// A reader beside the writer gets a whole record, and the one that it asked for, or none.
#[test]
fn a_record_is_whole_or_not_there() {
    loom::model(|| {
        let records = Arc::new(Records::new(1));
        records.push([1; RECORD_WORDS]);
        let writing = {
            let records = records.clone();
            thread::spawn(move || records.push([2; RECORD_WORDS]))
        };
        if let Some(record) = records.get(0) {
            assert_eq!(record, [1; RECORD_WORDS]);
        }
        writing.join().unwrap();
        assert_eq!(records.get(1), Some([2; RECORD_WORDS]));
    });
}

/// Uses a place of the pool once, if there is one for the taker.
fn use_place(pool: &Pool, taker: u16, places: &[Bytes]) -> bool {
    let taken = pool.take_first(taker);
    if let Some(number) = taken {
        write(&places[usize::from(number)]);
        pool.give_back(number);
    }
    taken.is_some()
}

/// Two threads and one place: the second one that gets it sees what was written there, and the
/// place is not lost.
#[test]
fn a_place_is_one_threads_at_a_time() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(1, 2));
        let places = std::sync::Arc::new([Bytes::new(0)]);
        let using = {
            let (pool, places) = (pool.clone(), places.clone());
            thread::spawn(move || use_place(&pool, 1, &*places))
        };
        let here = use_place(&pool, 0, &*places);
        let there = using.join().unwrap();
        assert_eq!(read(&places[0]), u32::from(here) + u32::from(there));
        // One of them may be short of a place: it has the next turn.
        assert!((0..2).any(|taker| use_place(&pool, taker, &*places)));
    });
}

/// Where there is a place for each, none goes without.
#[test]
fn each_gets_a_place_of_its_own() {
    loom::model(|| {
        let pool = Arc::new(Pool::new(2, 2));
        let taking = {
            let pool = pool.clone();
            thread::spawn(move || pool.take_first(1))
        };
        let mut taken = [pool.take_first(0), taking.join().unwrap()];
        taken.sort();
        assert_eq!(taken, [Some(0), Some(1)]);
    });
}

/// Takers that become short at one time, or wait no longer while another becomes short, have their
/// turns all the same.
#[test]
fn turns_are_those_of_all_that_are_short() {
    for waits in [true, false] {
        loom::model(move || {
            let pool = Arc::new(Pool::new(1, 3));
            assert_eq!(pool.take_first(0), Some(0));
            if !waits {
                assert_eq!(pool.take_first(2), None);
            }
            let other = {
                let pool = pool.clone();
                thread::spawn(move || {
                    if waits {
                        assert_eq!(pool.take_first(2), None);
                    } else {
                        pool.end_short(2);
                    }
                })
            };
            assert_eq!(pool.take_first(1), None);
            other.join().unwrap();
            pool.give_back(0);
            assert_eq!(pool.take_first(0), None);
            assert_eq!(pool.take_first(1), Some(0));
            pool.give_back(0);
            // The taker that took first is short again, behind the one that waits still.
            let next = if waits {
                [None, Some(0)]
            } else {
                [Some(0), None]
            };
            assert_eq!([0, 2].map(|taker| pool.take_first(taker)), next);
        });
    }
}
