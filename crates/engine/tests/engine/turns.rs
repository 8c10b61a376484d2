//! Turns: who gets one, what it does, and when there is none.

use controller::DoorbellMode::{Mapped, Unmapped};
use controller::Interrupt::{Pin, Vector};
use engine::Idle;
use port::time::Time;

use crate::common::Event::*;
use crate::common::{Host, Queue, Rig};

#[test]
fn what_a_medium_ends_later_reaches_the_queue_it_came_from() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.host("a", Mapped), rig.host("b", Mapped));
    let (mut qa, mut qb) = (rig.create_queue(&mut a, 1), rig.create_queue(&mut b, 1));
    a.reads(&mut qa, [10, 11]);
    b.reads(&mut qb, [20]);
    a.ring(&qa);
    b.ring(&qb);
    rig.turns(20);
    assert_eq!(rig.medium.held(), 3);
    assert_eq!(a.completions(&mut qa), []);
    rig.medium.let_go(true);
    rig.turn();
    assert_eq!(a.completions(&mut qa), [10, 11]);
    assert_eq!(b.completions(&mut qb), [20]);
}

#[test]
fn what_is_due_is_completed_before_anything_is_fetched() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 1);
    host.reads(&mut queue, [10]);
    host.ring(&queue);
    rig.turn();
    rig.medium.set_due(Time(rig.now.0 + 3000));
    assert_eq!(rig.engine.next_due(), Some(Time(rig.now.0 + 3000)));
    rig.turns(2);
    // A lane without new commands does not report an arrival to the medium.
    assert_eq!(rig.medium.take_story(), [Told, Came]);
    assert_eq!(host.completions(&mut queue), []);
    host.reads(&mut queue, [11, 12]);
    host.ring(&queue);
    rig.turn();
    assert_eq!(rig.medium.take_story(), [Ended, Told, Came, Came]);
    // It says how far its queue was fetched when it was posted: no further than to itself.
    let entries = host.completion_entries(&mut queue);
    let entries: Vec<_> = entries.iter().map(|cqe| (cqe.cid, cqe.sq_head)).collect();
    assert_eq!(entries, [(10, 1)]);
}

#[test]
fn what_is_due_after_long_is_told_in_the_same_turn() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 2);
    host.reads(&mut queue, [10]);
    host.ring(&queue);
    rig.turns(3);
    rig.raised.clear();
    // Nothing has happened for longer than a lane is hot without work.
    rig.now = Time(rig.now.0 + 5_000_000);
    rig.medium.set_due(rig.now);
    let turn = rig.turn();
    assert_eq!((turn.completions, turn.worked), (1, true));
    assert_eq!(rig.raised, [(host.slot, Vector(2))]);
}

#[test]
fn a_batch_raises_one_interrupt_for_its_queue() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 2);
    rig.medium.let_go(true);
    rig.raised.clear();
    host.reads(&mut queue, 0..10);
    host.ring(&queue);
    rig.turns(3);
    assert_eq!(host.completions(&mut queue).len(), 10);
    assert_eq!(rig.raised, [(host.slot, Vector(2))]);
}

/// Linux with nvme.poll_queues, and firmware, create queues with IEN = 0 (Base 2.1, 5.2.1).
#[test]
fn a_queue_whose_host_polls_raises_nothing() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut polled = rig.create_polled_queue(&mut host, 1);
    let mut other = rig.create_queue(&mut host, 2);
    rig.raised.clear();
    for at_once in [false, true] {
        rig.medium.let_go(at_once);
        for _ in 0..50 {
            host.reads(&mut polled, 0..10);
            host.ring(&polled);
            rig.turns(3);
            rig.medium.let_go(true);
            rig.turns(2);
            assert_eq!(host.completions(&mut polled).len(), 10);
            rig.medium.let_go(at_once);
        }
    }
    rig.turns(40);
    assert_eq!(rig.raised, []);
    // The queue beside it does.
    host.reads(&mut other, [1]);
    host.ring(&other);
    rig.medium.let_go(true);
    rig.turns(3);
    assert_eq!(rig.raised, [(host.slot, Vector(2))]);
}

#[test]
fn a_ticket_of_a_lane_that_is_gone_completes_nothing() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 1);
    host.reads(&mut queue, [5]);
    host.ring(&queue);
    rig.turns(20);
    assert_eq!(rig.medium.held(), 1);
    // CC.EN = 0 while the medium hangs: the controller gives up after 4 s, and its lane goes
    rig.controller(&host)
        .bar_write(0, 0x14, &0u32.to_le_bytes());
    rig.turns(4);
    assert_eq!(
        rig.csts(&host) & 1,
        1,
        "still ready: a command is in flight"
    );
    rig.now.0 += subsystem::DEADLINE_NS;
    rig.turns(4);
    assert_eq!(rig.csts(&host) & 1, 0);
    rig.enable(&mut host);
    let mut queue = rig.create_queue(&mut host, 1);
    host.reads(&mut queue, [6]);
    host.ring(&queue);
    rig.turns(20);
    assert_eq!(rig.medium.held(), 2);
    rig.medium.let_go(true);
    rig.turns(2);
    assert_eq!(host.completions(&mut queue), [6]);
}

#[test]
fn a_cold_lane_is_found_again() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 1);
    rig.medium.let_go(true);
    rig.turns(2000);
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    rig.turns(2);
    assert_eq!(host.completions(&mut queue), [1]);
}

#[test]
fn a_cold_lane_is_found_beside_a_busy_one() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut busy = rig.create_queue(&mut host, 1);
    let mut cold = rig.create_queue(&mut host, 2);
    rig.medium.let_go(true);
    rig.turns(2000);
    host.reads(&mut busy, [0]);
    host.ring(&busy);
    rig.turns(2);
    assert_eq!(host.completions(&mut busy), [0]);
    host.reads(&mut cold, [100]);
    host.ring(&cold);
    // A round of looks takes 30 us, and a turn of the rig 1 us.
    for cid in 0..32 {
        host.reads(&mut busy, [cid]);
        host.ring(&busy);
        rig.turn();
        assert_eq!(host.completions(&mut busy), [cid]);
    }
    assert_eq!(host.completions(&mut cold), [100]);
}

#[test]
fn the_second_look_finds_a_doorbell_that_rang_meanwhile() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 1);
    rig.medium.let_go(true);
    rig.turns(2000);
    assert!(rig.engine.arm(), "nothing to do");
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    assert!(!rig.engine.arm(), "a command waits");
    rig.turn();
    assert_eq!(host.completions(&mut queue), [1]);
    assert!(rig.engine.arm());
}

#[test]
fn a_trapped_doorbell_is_served_in_the_next_turn() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Unmapped);
    let mut queue = rig.create_queue(&mut host, 3);
    rig.medium.let_go(true);
    rig.turns(2000);
    host.reads(&mut queue, [9]);
    rig.ring_by_message(&host, &queue);
    rig.turn();
    assert_eq!(host.completions(&mut queue), [9]);
}

#[test]
fn a_doorbell_that_a_transport_has_rung_is_served_in_the_next_turn() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Unmapped);
    let mut queue = rig.create_queue(&mut host, 3);
    rig.medium.let_go(true);
    rig.turns(2000);
    host.reads(&mut queue, [9]);
    rig.ring_as_transport(&host, &queue);
    rig.turn();
    assert_eq!(host.completions(&mut queue), [9]);
    // An admin command is a reason for a turn of the controller.
    rig.turns(2000);
    assert!(rig.is_admin_command_served_at_once(&mut host));
}

#[test]
fn a_trapped_doorbell_makes_its_lane_hot() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Unmapped);
    let mut busy = rig.create_queue(&mut host, 1);
    let mut cold = [2, 3, 4].map(|id| rig.create_queue(&mut host, id));
    rig.medium.let_go(true);
    rig.turns(2000);
    host.reads(&mut busy, [0]);
    rig.ring_by_message(&host, &busy);
    rig.turns(4);
    assert_eq!(host.completions(&mut busy), [0]);
    for at in [2, 1, 0] {
        let queue = &mut cold[at];
        host.reads(&mut busy, [1]);
        host.reads(queue, [9]);
        rig.ring_by_message(&host, &busy);
        rig.ring_by_message(&host, queue);
        rig.turn();
        assert_eq!(host.completions(queue), [9], "queue {}", at + 2);
        assert_eq!(host.completions(&mut busy), [1]);
    }
}

/// A lane grows cold only after its host was asked to ring; until then it is looked at.
#[test]
fn a_host_with_doorbell_buffers_is_asked_to_ring_when_its_lane_grows_cold() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Unmapped);
    let pages = rig.doorbell_buffers(&mut host);
    let mut queue = rig.create_queue(&mut host, 1);
    rig.medium.let_go(true);
    let mut told = 0;
    for cid in 0..100 {
        host.reads(&mut queue, [cid]);
        told += u32::from(host.ring_shadow(&pages, &queue));
        // Ten turns, of a microsecond each, between two commands.
        rig.turns(10);
        assert_eq!(host.completions(&mut queue), [cid]);
    }
    // A ring has 16 entries, and EventIdx is still 0: the lane has not asked the host to ring.
    assert_eq!(told, 7);
    rig.turns(2000);
    host.reads(&mut queue, [100]);
    assert!(host.ring_shadow(&pages, &queue), "the lane is cold");
    rig.turns(100);
    assert_eq!(host.completions(&mut queue), [], "nobody looks at it");
    rig.ring_by_message(&host, &queue);
    rig.turn();
    assert_eq!(host.completions(&mut queue), [100]);
}

/// No event reports that a host has become silent, and another host keeps the reactor busy.
#[test]
fn what_falls_due_for_a_cold_controller_is_late_by_little() {
    let mut rig = Rig::new();
    let (mut silent, mut busy) = (rig.host("a", Unmapped), rig.host("b", Mapped));
    let mut queue = rig.create_queue(&mut busy, 1);
    rig.medium.let_go(true);
    // Keep Alive Timeout: 100 ms (Base 2.1, 5.1.25.1.9).
    rig.set_feature(&mut silent, 0x0f, 100);
    let armed = rig.now;
    while rig.now.since(armed) < 110_000_000 {
        busy.reads(&mut queue, [1]);
        busy.ring(&queue);
        // 100 us, as turns with work take at most.
        rig.now.0 += 99_000;
        rig.turn();
        assert_eq!(busy.completions(&mut queue), [1]);
    }
    assert_eq!(rig.csts(&silent) & 2, 2, "CSTS.CFS");
}

#[test]
fn a_turn_counts_what_it_fetched_and_what_completed() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 1);
    host.reads(&mut queue, 0..7);
    host.ring(&queue);
    let commands: u32 = (0..20).map(|_| rig.turn().commands).sum();
    assert_eq!(commands, 7);
    assert!(!rig.turn().worked, "a medium that hangs is no work");
    rig.medium.let_go(true);
    let completions: u64 = (0..4).map(|_| rig.turn().completions).sum();
    assert_eq!(completions, 7);
}

#[test]
fn a_flush_of_a_controller_that_is_gone_is_none_of_the_next_one_in_its_place() {
    let mut rig = Rig::new();
    let host = rig.host("a", Mapped);
    // CC.SHN = 01b: a flush goes to the medium, which hangs
    rig.controller(&host)
        .bar_write(0, 0x14, &0x0046_4001u32.to_le_bytes());
    rig.turns(8);
    assert_eq!(rig.medium.held(), 1);
    let old = rig.engine.remove_controller(host.slot);
    let next = rig.host("b", Mapped);
    assert_eq!(next.slot, host.slot);
    rig.controller(&next)
        .bar_write(0, 0x14, &0x0046_4001u32.to_le_bytes());
    rig.turns(8);
    assert_eq!(rig.medium.held(), 2);
    rig.medium.let_one_go();
    rig.turns(8);
    assert_eq!(rig.csts(&next) >> 2 & 3, 1, "its own flush is not done");
    rig.medium.let_go(true);
    rig.turns(8);
    assert_eq!(rig.csts(&next) >> 2 & 3, 2, "shutdown is complete");
    drop(old);
}

#[test]
fn a_completion_on_a_lane_that_grew_cold_raises_its_interrupt() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 1);
    host.reads(&mut queue, [4]);
    host.ring(&queue);
    rig.turns(2000);
    rig.raised.clear();
    rig.medium.let_go(true);
    rig.turns(2);
    assert_eq!(host.completions(&mut queue), [4]);
    assert_eq!(rig.raised, [(host.slot, Vector(1))]);
}

#[test]
fn a_host_that_has_gone_rings_nobody_elses_doorbells() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let old = rig.next_host(&mut host);
    rig.enable(&mut host);
    let mut queue = rig.create_queue(&mut host, 1);
    rig.medium.let_go(true);
    // the admin queue and queue pair 1, tails and heads: all wild
    for slot in 0..4 {
        old.store(slot, 13);
    }
    rig.turns(4);
    host.reads(&mut queue, [1, 2]);
    host.ring(&queue);
    rig.turns(4);
    assert_eq!(host.completions(&mut queue), [1, 2]);
    let mut second = rig.create_queue(&mut host, 2);
    host.reads(&mut second, [3]);
    host.ring(&second);
    rig.turns(4);
    assert_eq!(host.completions(&mut second), [3]);
}

#[test]
fn a_head_that_cannot_be_in_a_mapped_page_is_found_on_a_cold_lane() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Mapped);
    let queue = rig.create_queue(&mut host, 1);
    rig.turns(2000);
    host.store_head(&queue, 13);
    rig.turns(2000);
    let frozen = rig.completion_bell(&host, &queue).frozen;
    assert_eq!(frozen.map(|bad| bad.value), Some(13));
}

/// Commands that each of these queues has fetched in some turns in which it always has more.
fn shares(rig: &mut Rig, host: &Host, queues: &mut [Queue], turns: u32) -> Vec<usize> {
    let mut shares = vec![0; queues.len()];
    let fill = |queue: &mut Queue, count| {
        host.reads(queue, (0..count).map(|_| 7));
        host.ring(queue);
    };
    queues.iter_mut().for_each(|queue| fill(queue, 15));
    for _ in 0..turns {
        rig.turn();
        for (queue, share) in queues.iter_mut().zip(&mut shares) {
            let done = host.completions(queue).len();
            *share += done;
            fill(queue, done);
        }
    }
    shares
}

#[test]
fn lanes_of_one_controller_share_by_the_weights_of_their_queues() {
    let mut rig = Rig::new();
    rig.medium.let_go(true);
    // Weights of high, medium and low: 15, 10 and 7, a turn's round of 32; no limit of bursts. The
    // queues hold 15 commands.
    rig.weighted = Some(14 << 24 | 9 << 16 | 6 << 8 | 7);
    let mut host = rig.host("a", Mapped);
    let mut queues =
        [(1, 3), (2, 1), (3, 2)].map(|(id, priority)| rig.create_queue_of(&mut host, id, priority));
    let shares = shares(&mut rig, &host, &mut queues, 400);
    let rounds = shares[0] / 7;
    assert!(rounds > 390, "{shares:?}");
    assert_eq!(shares, [7 * rounds, 15 * rounds, 10 * rounds]);
}

#[test]
fn an_urgent_queue_stops_the_others_of_its_controller_alone() {
    let mut rig = Rig::new();
    rig.medium.let_go(true);
    rig.weighted = Some(7);
    let mut host = rig.host("a", Mapped);
    let mut queues = [(1, 1), (2, 0)].map(|(id, p)| rig.create_queue_of(&mut host, id, p));
    rig.weighted = None;
    let mut other = rig.host("b", Mapped);
    let mut quiet = rig.create_queue(&mut other, 1);
    other.reads(&mut quiet, 0..9);
    other.ring(&quiet);
    let shares = shares(&mut rig, &host, &mut queues, 50);
    assert_eq!(shares[0], 0, "{shares:?}");
    assert!(shares[1] > 500, "{shares:?}");
    assert_eq!(other.completions(&mut quiet).len(), 9);
    // The urgent one ends, and the other one goes on.
    for _ in 0..4 {
        rig.turns(4);
        host.completions(&mut queues[1]);
    }
    assert_eq!(host.completions(&mut queues[0]).len(), 15);
}

#[test]
fn a_withheld_interrupt_wakes_a_reactor_that_sleeps() {
    let mut rig = Rig::new();
    let mut host = rig.host("a", Unmapped);
    let mut queue = rig.create_queue(&mut host, 1);
    // Interrupt Coalescing: 10 entries, 300 us (Base 2.1, 5.1.25.2.2)
    rig.set_feature(&mut host, 8, 3 << 8 | 9);
    rig.medium.let_go(true);
    rig.turns(2000);
    rig.raised.clear();
    host.reads(&mut queue, [1, 2]);
    rig.ring_by_message(&host, &queue);
    let before = rig.now;
    while host.completions(&mut queue).is_empty() {
        rig.turn();
    }
    let posted = rig.now;
    assert!(posted.since(before) < 300_000);
    assert_eq!(rig.raised, []);
    rig.turns(20);
    assert!(rig.engine.arm(), "there is nothing to do now");
    let Idle::Sleep { at_most_ns } = rig.engine.idle(rig.now, false, None) else {
        panic!("it may sleep");
    };
    assert_eq!(Time(rig.now.0 + at_most_ns), Time(posted.0 + 300_000));
    rig.now.0 += at_most_ns - 1001;
    rig.turn();
    assert_eq!(rig.raised, []);
    rig.turn();
    assert_eq!(rig.raised, [(host.slot, Vector(1))]);
    assert_eq!(
        rig.engine.idle(rig.now, false, None),
        Idle::Sleep {
            at_most_ns: engine::wait::SLEEP_MAX_NS
        }
    );
}

#[test]
fn a_withheld_interrupt_is_raised_in_time_by_a_reactor_that_is_busy() {
    let mut rig = Rig::new();
    let (mut a, mut b) = (rig.host("a", Mapped), rig.host("b", Mapped));
    let (mut qa, mut qb) = (rig.create_queue(&mut a, 1), rig.create_queue(&mut b, 1));
    rig.set_feature(&mut a, 8, 1 << 8 | 99);
    rig.medium.let_go(true);
    rig.raised.clear();
    a.reads(&mut qa, [1]);
    a.ring(&qa);
    rig.turn();
    let posted = rig.now;
    let a_raised = |rig: &Rig| rig.raised.contains(&(a.slot, Vector(1)));
    // Turns of a microsecond in which the other host has work each time.
    while !a_raised(&rig) {
        b.reads(&mut qb, [2]);
        b.ring(&qb);
        rig.turn();
        assert_eq!(b.completions(&mut qb), [2]);
    }
    assert_eq!(rig.now.since(posted), 100_000);
}

#[test]
fn the_pin_is_told_in_the_turn_that_posts_and_its_status_before_a_host_can_read() {
    let mut rig = Rig::new();
    rig.intx = true;
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 1);
    rig.medium.let_go(true);
    rig.turns(2000);
    rig.now.0 += 10_000_000;
    rig.turn();
    rig.raised.clear();
    let status = |rig: &mut Rig, host| {
        let mut status = [0; 2];
        rig.controller(host).config_read(6, &mut status);
        status[0] >> 3 & 1
    };
    assert_eq!(status(&mut rig, &host), 0);
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    rig.turn();
    assert_eq!(rig.raised, [(host.slot, Pin(true))]);
    assert_eq!(status(&mut rig, &host), 1);
    // The host writes the doorbell in its mapped page: the server gets no message.
    assert_eq!(host.completions(&mut queue), [1]);
    assert_eq!(status(&mut rig, &host), 0);
    rig.controller(&host).recheck_interrupts(false);
    rig.turn();
    assert_eq!(rig.raised.last(), Some(&(host.slot, Pin(false))));
}

#[test]
fn a_level_that_waits_for_its_handler_wakes_a_reactor_that_sleeps() {
    let mut rig = Rig::new();
    rig.intx = true;
    let mut host = rig.host("a", Unmapped);
    let mut queue = rig.create_queue(&mut host, 1);
    rig.medium.let_go(true);
    rig.turns(2000);
    rig.now.0 += 10_000_000;
    rig.turn();
    rig.raised.clear();
    host.reads(&mut queue, [1]);
    rig.ring_by_message(&host, &queue);
    rig.turns(4);
    assert_eq!(rig.raised, [(host.slot, Pin(true))]);
    // An unmask, and nothing acknowledged.
    rig.controller(&host).recheck_interrupts(false);
    assert!(!rig.engine.arm(), "a look is due");
    rig.turns(20);
    assert!(rig.engine.arm());
    let Idle::Sleep { at_most_ns } = rig.engine.idle(rig.now, false, None) else {
        panic!("it may sleep");
    };
    assert!(at_most_ns < 10_000_000);
    rig.now.0 += at_most_ns;
    rig.turn();
    assert_eq!(rig.raised, [(host.slot, Pin(true)); 2]);
}
