//! Every state of small queues against every doorbell value (Base 2.1, 3.3.1.3 to 3.3.1.5), and
//! positions against a `VecDeque`.

use std::collections::VecDeque;

use memory::{DoorbellPages, Iova};
use nvme_spec::Cqe;
use nvme_spec::registers::{cq_head_slot, sq_tail_slot};
use port::testing::Host;

use super::{BadDoorbell, Bells, Cq, QueueError, RingAbsent, Sq, check_entries};

const VALUES: [u32; 4] = [u32::MAX, 65_536, 1 << 16 | 1, 1 << 31];

fn bells(pages: &DoorbellPages) -> Bells<'_> {
    Bells {
        pages,
        shadow: None,
    }
}

fn sq(host: &Host, pages: &DoorbellPages, entries: u32) -> Sq {
    Sq::new(&host.view(), 1, host.page(0), entries, bells(pages)).unwrap()
}

#[test]
fn quirk_a_tail_advances_at_most_by_the_free_entries() {
    let host = Host::new(2);
    for entries in 2..6 {
        for head in 0..entries {
            for submitted in 0..entries {
                for value in (0..2 * entries).chain(VALUES) {
                    let pages = DoorbellPages::new(8).unwrap();
                    let mut sq = sq(&host, &pages, entries);
                    let set = |sq: &mut Sq, value| {
                        pages.store(sq_tail_slot(1), value);
                        sq.look(bells(&pages))
                    };
                    for index in 0..head {
                        set(&mut sq, index + 1).unwrap();
                        sq.fetch().unwrap();
                    }
                    let tail = (head + submitted) % entries;
                    set(&mut sq, tail).unwrap();
                    assert_eq!((sq.head(), sq.available()), (head, submitted));
                    // Legal: an index, and as many more as are free, one entry staying empty.
                    let free = entries - 1 - submitted;
                    let legal = (0..=free).any(|more| (tail + more) % entries == value);
                    let expected = if legal {
                        Ok(())
                    } else {
                        Err(BadDoorbell { value })
                    };
                    assert_eq!(
                        set(&mut sq, value),
                        expected,
                        "{entries} {head} {submitted}"
                    );
                    assert_eq!(sq.is_frozen(), !legal);
                    if !legal {
                        assert_eq!(set(&mut sq, tail), Ok(()), "told once");
                        assert_eq!(sq.available(), 0);
                        assert!(!sq.has_news(bells(&pages)));
                    }
                }
            }
        }
    }
}

#[test]
fn quirk_a_head_advances_at_most_to_the_posted_tail() {
    let host = Host::new(2);
    for entries in 2..6 {
        for head in 0..entries {
            for posted in 0..entries {
                for value in (0..2 * entries).chain(VALUES) {
                    let pages = DoorbellPages::new(8).unwrap();
                    let base = host.page(0);
                    let made = Cq::new(&host.view(), 1, base, entries, bells(&pages));
                    let mut cq = made.unwrap();
                    let set = |cq: &mut Cq, value| {
                        pages.store(cq_head_slot(1), value);
                        cq.look(bells(&pages))
                    };
                    let post = |cq: &mut Cq| {
                        let entry = cq.reserve().unwrap();
                        cq.post(entry, Cqe::default()).unwrap();
                    };
                    for index in 0..head {
                        post(&mut cq);
                        assert_eq!(set(&mut cq, index + 1), Ok(1));
                    }
                    (0..posted).for_each(|_| post(&mut cq));
                    assert_eq!(cq.free(), entries - 1 - posted);
                    if posted == entries - 1 {
                        assert!(cq.reserve().is_none(), "the queue is full");
                    }
                    let consumed = (0..=posted).find(|n| (head + n) % entries == value);
                    let expected = consumed.ok_or(BadDoorbell { value });
                    assert_eq!(set(&mut cq, value), expected, "{entries} {head} {posted}");
                    let free = entries - 1 - posted + consumed.unwrap_or(0);
                    assert_eq!((cq.free(), cq.is_frozen()), (free, consumed.is_none()));
                    if consumed.is_none() {
                        assert_eq!(set(&mut cq, value), Ok(0), "told once");
                    }
                }
            }
        }
    }
}

#[test]
fn entries_come_in_order_each_once() {
    let host = Host::new(2);
    for entries in [2, 3, 7, 64] {
        let pages = DoorbellPages::new(8).unwrap();
        let mut sq = sq(&host, &pages, entries);
        let mut model = VecDeque::new();
        let (mut tail, mut number, mut fetched) = (0, 0u64, 0);
        for step in 0..5 * entries {
            while (model.len() as u32) < entries - 1 && !number.is_multiple_of(u64::from(step + 2))
            {
                let at = Iova(host.page(0).0 + u64::from(tail) * 64);
                host.write_u64(at, number);
                model.push_back(number);
                tail = (tail + 1) % entries;
                number += 1;
            }
            number += 1;
            pages.store(sq_tail_slot(1), tail);
            sq.look(bells(&pages)).unwrap();
            assert_eq!(sq.available() as usize, model.len());
            for _ in 0..model.len() / 2 + 1 {
                let Some(number) = model.pop_front() else {
                    break;
                };
                let (words, before) = sq.fetch().unwrap();
                assert_eq!((words[0], before), (number, fetched));
                fetched += 1;
                assert_eq!(sq.head(), fetched % entries);
                let progress = (u64::from(fetched) << 32) | u64::from(sq.head());
                assert_eq!(sq.progress().into_bits(), progress);
            }
        }
    }
}

#[test]
fn the_phase_changes_each_time_round() {
    let host = Host::new(2);
    let pages = DoorbellPages::new(8).unwrap();
    let mut cq = Cq::new(&host.view(), 1, host.page(0), 3, bells(&pages)).unwrap();
    for number in 0..20u16 {
        let entry = cq.reserve().unwrap();
        let cqe = Cqe {
            cid: number,
            ..Cqe::default()
        };
        cq.post(entry, cqe).unwrap();
        let at = Iova(host.page(0).0 + u64::from(number % 3) * 16 + 12);
        let phase = u32::from(number / 3 % 2 == 0);
        assert_eq!(host.read_u32(at), u32::from(number) | phase << 16);
        pages.store(cq_head_slot(1), u32::from(number + 1) % 3);
        assert_eq!(cq.look(bells(&pages)), Ok(1));
        assert_eq!(cq.free(), 2);
    }
    let entry = cq.reserve().unwrap();
    assert_eq!(cq.free(), 1);
    cq.release(entry);
    assert_eq!(cq.free(), 2);
}

#[test]
fn an_absent_page_gives_nothing_and_takes_nothing() {
    let mut host = Host::new(2);
    let pages = DoorbellPages::new(8).unwrap();
    let mut sq = sq(&host, &pages, 8);
    let mut cq = Cq::new(&host.view(), 1, host.page(1), 8, bells(&pages)).unwrap();
    pages.store(sq_tail_slot(1), 1);
    sq.look(bells(&pages)).unwrap();
    host.unmap_pages(0, 2);
    sq.resolve(&host.view());
    cq.resolve(&host.view());
    assert_eq!(sq.fetch(), Err(RingAbsent));
    assert_eq!((sq.head(), sq.available()), (0, 1));
    let entry = cq.reserve().unwrap();
    assert_eq!(cq.post(entry, Cqe::default()), Err(RingAbsent));
    host.map_pages(0, 2);
    sq.resolve(&host.view());
    assert!(sq.fetch().is_ok());
}

#[test]
fn sizes() {
    for entries in [2, 3, 65_536] {
        assert_eq!(check_entries(entries), Ok(()));
    }
    for entries in [0, 1, 65_537] {
        assert_eq!(check_entries(entries), Err(QueueError::Size { entries }));
    }
}
