//! Lanes that live on another engine than their controller, and that move while their host goes on.

use controller::DoorbellMode::{self, Mapped, Unmapped};
use controller::Interrupt::{Message, Vector};
use engine::{EngineId, MoveError, Moved};

use crate::common::{Host, Queue, Rig};

const HOME: EngineId = EngineId(0);

/// A host with a queue that lives on another engine.
fn away(mode: DoorbellMode) -> (Rig, Host, Queue, EngineId) {
    let mut rig = Rig::new();
    let other = rig.add_engine();
    let mut host = rig.host("a", mode);
    rig.engine.spread(host.slot, vec![other]);
    let queue = rig.create_queue(&mut host, 1);
    rig.turns(4);
    assert_eq!(rig.engine.residences(host.slot), [(1, other)]);
    (rig, host, queue, other)
}

fn moved(rig: &mut Rig, host: &Host, cqid: u16, to: EngineId) -> Result<(), MoveError> {
    let now = rig.now;
    if !rig.engine.move_lane(host.slot, cqid, to, now)? {
        return Ok(());
    }
    for _ in 0..2_000 {
        rig.turn();
        if let Some(Moved {
            controller,
            cqid: id,
            result,
        }) = rig.engine.take_moved()
        {
            assert_eq!((controller, id), (host.slot, cqid));
            return result;
        }
    }
    panic!("a move did not end");
}

#[test]
fn a_lane_elsewhere_uses_the_channels_there_and_interrupts_from_its_home() {
    let (mut rig, host, mut queue, _) = away(Mapped);
    rig.raised.clear();
    host.reads(&mut queue, 0..5);
    host.ring(&queue);
    rig.turns(40);
    assert_eq!(rig.medium.held(), 0);
    assert_eq!(rig.others[0].1.held(), 5);
    rig.others[0].1.let_go(true);
    rig.turns(3);
    assert_eq!(host.completions(&mut queue), [0, 1, 2, 3, 4]);
    assert_eq!(rig.raised, [(host.slot, Vector(1))]);
}

#[test]
fn a_doorbell_that_is_a_message_reaches_a_lane_elsewhere() {
    let (mut rig, host, mut queue, _) = away(Unmapped);
    rig.others[0].1.let_go(true);
    // Cold by then.
    rig.turns(3_000);
    host.reads(&mut queue, [7]);
    rig.ring_by_message(&host, &queue);
    rig.turns(4);
    assert_eq!(host.completions(&mut queue), [7]);
}

#[test]
fn a_doorbell_in_a_mapped_page_is_found_by_the_engine_of_the_lane() {
    let (mut rig, host, mut queue, other) = away(Mapped);
    rig.others[0].1.let_go(true);
    assert!(rig.engine_of(other).has_silent_guests());
    rig.turns(3_000);
    host.reads(&mut queue, [7]);
    host.ring(&queue);
    // The second look before sleeping, and the turns of one that is awake.
    assert!(!rig.engine_of(other).arm());
    rig.turns(40);
    assert_eq!(host.completions(&mut queue), [7]);
    rig.turns(3_000);
    host.reads(&mut queue, [8]);
    host.ring(&queue);
    rig.turns(40);
    assert_eq!(host.completions(&mut queue), [8]);
}

#[test]
fn nothing_is_lost_or_doubled_while_a_lane_moves_to_and_fro() {
    let mut rig = Rig::new();
    let (one, two) = (rig.add_engine(), rig.add_engine());
    let mut host = rig.host("a", Mapped);
    let mut queue = rig.create_queue(&mut host, 1);
    let (mut next, mut seen) = (0, Vec::new());
    let places = [one, two, HOME, two, one, HOME];
    for (round, to) in places.into_iter().cycle().take(60).enumerate() {
        let now = rig.now;
        assert_eq!(rig.engine.move_lane(host.slot, 1, to, now), Ok(true));
        let mut turns = 0;
        while rig.engine.take_moved().is_none() {
            // There is always more to fetch.
            let outstanding = usize::from(next) - seen.len();
            let more = u16::try_from(15 - outstanding).unwrap().min(3);
            host.reads(&mut queue, next..next + more);
            next += more;
            host.ring(&queue);
            rig.medium.let_one_go();
            let media = rig.others.iter().map(|(_, medium)| medium);
            media.for_each(|medium| medium.let_one_go());
            rig.turn();
            seen.extend(host.completions(&mut queue));
            turns += 1;
            assert!(turns < 100, "round {round}");
        }
        assert_eq!(rig.engine.residences(host.slot), [(1, to)]);
    }
    rig.medium.let_go(true);
    let media = rig.others.iter().map(|(_, medium)| medium);
    media.for_each(|medium| medium.let_go(true));
    rig.turns(40);
    seen.extend(host.completions(&mut queue));
    assert_eq!(seen, (0..next).collect::<Vec<_>>());
    assert!(next > 500, "{next}");
}

/// Write Uncorrectable is the subsystem's to do, and its answer comes back to the lane that asked
/// (NVM 1.1, 3.2.7).
#[test]
fn what_the_subsystem_answers_reaches_a_lane_elsewhere() {
    let mut rig = Rig::new();
    let other = rig.add_engine();
    let mut host = rig.host("a", Mapped);
    rig.engine.spread(host.slot, vec![HOME, other]);
    let _first = rig.create_queue(&mut host, 1);
    let mut second = rig.create_queue(&mut host, 2);
    rig.turns(4);
    assert_eq!(rig.engine.residences(host.slot), [(1, HOME), (2, other)]);
    host.write_uncorrectable(&mut second, 9);
    host.ring(&second);
    rig.turns(60);
    assert_eq!(host.completions(&mut second), [9]);
}

#[test]
fn a_lane_whose_commands_hang_goes_on_where_it_was() {
    for from_home in [true, false] {
        let (mut rig, host, mut queue, other) = away(Mapped);
        let (from, to) = if from_home {
            (HOME, other)
        } else {
            (other, HOME)
        };
        assert_eq!(moved(&mut rig, &host, 1, from), Ok(()));
        rig.turns(4);
        host.reads(&mut queue, [1]);
        host.ring(&queue);
        rig.turns(40);
        let now = rig.now;
        assert_eq!(rig.engine.move_lane(host.slot, 1, to, now), Ok(true));
        assert_eq!(
            rig.engine.move_lane(host.slot, 1, to, now),
            Err(MoveError::Moving(1))
        );
        host.reads(&mut queue, [2]);
        host.ring(&queue);
        rig.turns(100);
        rig.now.0 += 1_000_000_000;
        rig.turns(4);
        let ended = rig.engine.take_moved().map(|moved| moved.result);
        assert_eq!(ended, Some(Err(MoveError::Busy(1))));
        rig.medium.let_go(true);
        rig.others[0].1.let_go(true);
        rig.turns(40);
        assert_eq!(host.completions(&mut queue), [1, 2]);
        assert_eq!(rig.engine.residences(host.slot), [(1, from)]);
        assert_eq!(moved(&mut rig, &host, 1, to), Ok(()));
    }
}

#[test]
fn a_lane_unused_for_long_moves_at_once() {
    let (mut rig, host, _queue, _) = away(Mapped);
    rig.turns(3_000);
    rig.others_sleep = true;
    rig.now.0 += 10_000_000_000;
    let now = rig.now;
    assert_eq!(rig.engine.move_lane(host.slot, 1, HOME, now), Ok(true));
    rig.turns(10);
    assert_eq!(rig.engine.residences(host.slot), [(1, HOME)]);
}

/// An engine's answer to an earlier pause does not count for the next one.
#[test]
fn a_lane_that_was_empty_once_is_asked_for_only_while_it_is() {
    let (mut rig, host, mut queue, other) = away(Mapped);
    let now = rig.now;
    assert_eq!(rig.engine.move_lane(host.slot, 1, HOME, now), Ok(true));
    rig.hold_mail = Some(other);
    rig.turns(4);
    rig.now.0 += 1_000_000_000;
    rig.turns(4);
    let ended = rig.engine.take_moved().map(|moved| moved.result);
    assert_eq!(ended, Some(Err(MoveError::Busy(1))));
    host.reads(&mut queue, [1, 2]);
    host.ring(&queue);
    rig.turns(40);
    assert_eq!(rig.others[0].1.held(), 2);
    let now = rig.now;
    assert_eq!(rig.engine.move_lane(host.slot, 1, HOME, now), Ok(true));
    rig.hold_mail = None;
    rig.turns(4);
    assert_eq!(rig.engine.residences(host.slot), [(1, other)]);
    rig.others[0].1.let_go(true);
    rig.turns(10);
    assert_eq!(host.completions(&mut queue), [1, 2]);
    assert_eq!(rig.engine.residences(host.slot), [(1, HOME)]);
}

/// A host may use the result of a reply before the lane's mail has come.
#[test]
fn a_lane_elsewhere_fetches_nothing_before_it_knows_what_its_host_may_know() {
    let (mut rig, host, mut queue, _) = away(Mapped);
    rig.others[0].1.let_go(true);
    rig.hold_mail = Some(HOME);
    let (view, lost) = host.view_again();
    rig.controller(&host).set_view(view, lost);
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    rig.turns(100);
    assert_eq!(host.completions(&mut queue), []);
    rig.hold_mail = None;
    rig.turns(4);
    assert_eq!(host.completions(&mut queue), [1]);
}

/// Work that a host causes piles up nowhere: a reactor may hang in a medium's system call for long.
#[test]
fn mail_for_an_engine_that_takes_none_has_a_limit() {
    let (mut rig, host, mut queue, _) = away(Mapped);
    rig.others[0].1.let_go(true);
    rig.leave_mail = true;
    for _ in 0..2_000 {
        let (view, lost) = host.view_again();
        rig.controller(&host).set_view(view, lost);
        rig.turn();
    }
    rig.leave_mail = false;
    let carried = rig.carry();
    assert!((1..=320).contains(&carried), "{carried}");
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    rig.turns(40);
    assert_eq!(host.completions(&mut queue), [1]);
    let (view, _) = host.view_again();
    let knows = rig.controller(&host).drained(view.epoch());
    assert!(knows, "the lane has the last map");
}

#[test]
fn queues_are_deleted_and_the_controller_is_reset_wherever_its_lanes_are() {
    let (mut rig, mut host, mut queue, other) = away(Mapped);
    rig.others[0].1.let_go(true);
    rig.delete_queue(&mut host, &queue);
    assert_eq!(rig.engine.residences(host.slot), []);
    queue = rig.create_queue(&mut host, 1);
    rig.turns(4);
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    rig.turns(40);
    assert_eq!(host.completions(&mut queue), [1]);
    for delay in 0..12 {
        let now = rig.now;
        let to = if delay % 2 == 0 { HOME } else { other };
        rig.engine.move_lane(host.slot, 1, to, now).unwrap();
        rig.turns(delay);
        rig.controller(&host)
            .bar_write(0, 0x14, &0u32.to_le_bytes());
        rig.turns(40);
        assert_eq!(rig.csts(&host) & 1, 0, "after {delay} turns");
        assert_eq!(rig.engine.residences(host.slot), []);
        while rig.engine.take_moved().is_some() {}
        rig.enable(&mut host);
        queue = rig.create_queue(&mut host, 1);
        host.reads(&mut queue, [1]);
        host.ring(&queue);
        rig.turns(40);
        assert_eq!(host.completions(&mut queue), [1]);
    }
}

#[test]
fn a_lane_elsewhere_has_ended_before_its_home_hears_that_it_stopped() {
    let (mut rig, host, _, other) = away(Mapped);
    // CC.EN is cleared.
    let controller = rig.controller(&host);
    controller.bar_write(0, 0x14, &0x0046_0000u32.to_le_bytes());
    rig.turn();
    rig.hold_mail = Some(other);
    rig.turns(4);
    // The lane has ended before the controller reports it: a host that creates the queue again
    // finds its old memory unused.
    assert!(!rig.engine_of(other).has_silent_guests());
    assert_eq!(rig.csts(&host) & 1, 1);
    rig.hold_mail = None;
    rig.turns(4);
    assert_eq!(rig.csts(&host) & 1, 0);
}

#[test]
fn a_move_of_a_queue_that_is_deleted_meanwhile_ends() {
    let (mut rig, mut host, mut queue, _) = away(Mapped);
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    rig.turns(40);
    let now = rig.now;
    assert_eq!(rig.engine.move_lane(host.slot, 1, HOME, now), Ok(true));
    rig.turns(4);
    rig.controller(&host)
        .bar_write(0, 0x14, &0u32.to_le_bytes());
    rig.turns(4);
    rig.others[0].1.let_go(true);
    rig.turns(4);
    let ended = rig.engine.take_moved().map(|moved| moved.result);
    assert!(
        matches!(ended, Some(Ok(()) | Err(MoveError::Gone(1)))),
        "{ended:?}"
    );
    rig.enable(&mut host);
    assert_eq!(
        rig.engine.move_lane(host.slot, 1, HOME, now),
        Err(MoveError::NoQueue(1))
    );
}

/// Doorbell buffers hold no doorbell when they are registered, whenever the lane hears of them
/// (Base 2.1, 5.2.5).
#[test]
fn a_shadow_that_is_written_before_the_lane_knows_of_it_counts() {
    let (mut rig, mut host, mut queue, _) = away(Unmapped);
    rig.others[0].1.let_go(true);
    rig.hold_mail = Some(HOME);
    let buffers = rig.doorbell_buffers(&mut host);
    host.reads(&mut queue, [1]);
    host.ring_shadow(&buffers, &queue);
    rig.turns(10);
    rig.hold_mail = None;
    rig.turns(10);
    assert_eq!(host.completions(&mut queue), [1]);
}

#[test]
fn the_same_holds_for_a_queue_that_is_made_with_buffers() {
    let mut rig = Rig::new();
    let other = rig.add_engine();
    let mut host = rig.host("a", Unmapped);
    rig.engine.spread(host.slot, vec![other]);
    let buffers = rig.doorbell_buffers(&mut host);
    rig.others[0].1.let_go(true);
    rig.hold_mail = Some(HOME);
    let mut queue = rig.create_queue(&mut host, 1);
    host.reads(&mut queue, [1]);
    host.ring_shadow(&buffers, &queue);
    rig.turns(10);
    rig.hold_mail = None;
    rig.turns(10);
    assert_eq!(host.completions(&mut queue), [1]);
}

/// MSI asks what every queue's host has acknowledged.
#[test]
fn lanes_come_home_when_their_host_takes_messages() {
    let (mut rig, host, mut queue, other) = away(Mapped);
    rig.others[0].1.let_go(true);
    rig.use_messages(&host);
    rig.turns(40);
    assert_eq!(rig.engine.residences(host.slot), [(1, HOME)]);
    rig.medium.let_go(true);
    rig.raised.clear();
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    rig.turns(40);
    assert!(
        rig.raised
            .iter()
            .all(|raised| matches!(raised.1, Message(_)))
    );
    assert!(!rig.raised.is_empty());
    let now = rig.now;
    assert_eq!(
        rig.engine.move_lane(host.slot, 1, other, now),
        Err(MoveError::MustStay(1))
    );
}

/// Coalescing is counted at home (Base 2.1, 5.1.25.2.2).
#[test]
fn coalesced_interrupts_of_a_lane_elsewhere_come_when_they_are_due() {
    let (mut rig, mut host, mut queue, _) = away(Mapped);
    rig.others[0].1.let_go(true);
    // 4 entries, or 300 us.
    rig.set_feature(&mut host, 8, 3 << 8 | 3);
    rig.turns(4);
    rig.raised.clear();
    host.reads(&mut queue, [1]);
    host.ring(&queue);
    rig.turns(40);
    assert_eq!(host.completions(&mut queue), [1]);
    assert_eq!(rig.raised, []);
    host.reads(&mut queue, 2..5);
    host.ring(&queue);
    rig.turns(40);
    assert_eq!(rig.raised, [(host.slot, Vector(1))]);
    rig.raised.clear();
    host.reads(&mut queue, [5]);
    host.ring(&queue);
    rig.turns(400);
    assert_eq!(rig.raised, [(host.slot, Vector(1))]);
}
