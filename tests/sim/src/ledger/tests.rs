//! Data that the ledger allows, and data that it does not.

use super::*;

const SPAN: Span = Span {
    space: 0,
    lba: 0,
    count: 1,
};

fn ledger() -> Ledger {
    let mut ledger = Ledger::default();
    ledger.add_space(1);
    ledger
}

fn write(ledger: &mut Ledger) -> u64 {
    let write = ledger.next_write();
    ledger.begin_write(SPAN, write, false);
    write
}

fn reads(ledger: &mut Ledger, submitted: u64, found: Found) -> bool {
    ledger.end_read(SPAN, submitted, |_, _| found).is_ok()
}

#[test]
fn a_read_sees_the_last_write_or_one_that_overlaps_it() {
    let mut ledger = ledger();
    let first = write(&mut ledger);
    ledger.end_write(SPAN, first);
    let read = ledger.begin_read(SPAN);
    let second = write(&mut ledger);
    for found in [Found::Write(first), Found::Write(second)] {
        let mut other = Ledger {
            spaces: ledger.spaces.clone(),
            ..Ledger::default()
        };
        other.moment = ledger.moment;
        assert!(reads(&mut other, read, found), "{found:?}");
    }
    assert!(!reads(&mut ledger, read, Found::Zeroes));
}

#[test]
fn what_was_overwritten_is_not_read_again() {
    let mut ledger = ledger();
    let [first, second] = [(); 2].map(|()| {
        let write = write(&mut ledger);
        ledger.end_write(SPAN, write);
        write
    });
    let read = ledger.begin_read(SPAN);
    assert!(!reads(&mut ledger, read, Found::Write(first)));
    let read = ledger.begin_read(SPAN);
    assert!(reads(&mut ledger, read, Found::Write(second)));
}

#[test]
fn reads_do_not_go_back() {
    let mut ledger = ledger();
    let (first, second) = (write(&mut ledger), write(&mut ledger));
    // Both are out: a read sees one of them, and then it has happened.
    let read = ledger.begin_read(SPAN);
    assert!(reads(&mut ledger, read, Found::Write(second)));
    let read = ledger.begin_read(SPAN);
    assert!(!reads(&mut ledger, read, Found::Zeroes));
    // The other one may still come, after which it is the other way round.
    let read = ledger.begin_read(SPAN);
    assert!(reads(&mut ledger, read, Found::Write(first)));
    ledger.end_write(SPAN, first);
    ledger.end_write(SPAN, second);
    let read = ledger.begin_read(SPAN);
    assert!(reads(&mut ledger, read, Found::Write(first)));
    let read = ledger.begin_read(SPAN);
    assert!(!reads(&mut ledger, read, Found::Write(second)));
}

#[test]
fn a_write_without_an_answer_may_land_until_its_medium_has_ended_it() {
    let mut ledger = ledger();
    let lost = write(&mut ledger);
    ledger.leave_open(0, SPAN, lost, Effect::Data);
    let last = write(&mut ledger);
    ledger.end_write(SPAN, last);
    let read = ledger.begin_read(SPAN);
    assert!(reads(&mut ledger, read, Found::Write(last)));
    let read = ledger.begin_read(SPAN);
    assert!(reads(&mut ledger, read, Found::Write(lost)));
    let next = write(&mut ledger);
    ledger.end_write(SPAN, next);
    ledger.settle(0, u64::MAX);
    assert!(!ledger.has_open());
    let read = ledger.begin_read(SPAN);
    assert!(!reads(&mut ledger, read, Found::Write(lost)));
}

#[test]
fn a_write_that_is_settled_overwrites_nothing() {
    let mut ledger = ledger();
    let first = write(&mut ledger);
    ledger.end_write(SPAN, first);
    let lost = write(&mut ledger);
    ledger.leave_open(0, SPAN, lost, Effect::Data);
    ledger.settle(0, u64::MAX);
    assert_eq!(ledger.certain(SPAN), None);
    let read = ledger.begin_read(SPAN);
    assert!(reads(&mut ledger, read, Found::Write(first)));
    // It has not happened, and never will.
    assert_eq!(ledger.certain(SPAN), Some(vec![first]));
}

/// Blocks 0 and 1.
fn two() -> (Ledger, Span, Span) {
    let mut ledger = Ledger::default();
    ledger.add_space(2);
    let other = Span { lba: 1, ..SPAN };
    (ledger, SPAN, other)
}

fn finds(ledger: &Ledger, span: Span, found: Found) -> bool {
    let mut ledger = Ledger {
        spaces: ledger.spaces.clone(),
        moment: ledger.moment,
        ..Ledger::default()
    };
    let submitted = ledger.begin_read(span);
    ledger.end_read(span, submitted, |_, _| found).is_ok()
}

#[test]
fn a_copy_writes_what_its_source_held_while_it_was_in_flight() {
    let (mut ledger, from, to) = two();
    let place = Place { space: 0, lba: 0 };
    let [first, second] = [(); 2].map(|()| {
        let write = write(&mut ledger);
        ledger.end_write(from, write);
        write
    });
    let copy = ledger.next_write();
    ledger.begin_copy(to, &[from], copy);
    assert!(finds(&ledger, to, Found::Zeroes));
    let third = write(&mut ledger);
    ledger.end_copy(to, &[from], copy);
    let fourth = write(&mut ledger);
    let copied = |write| Found::Copy(place, write);
    for (write, well) in [
        (first, false),
        (second, true),
        (third, true),
        (fourth, false),
    ] {
        assert_eq!(finds(&ledger, to, copied(write)), well, "{write}");
    }
    assert!(!finds(&ledger, to, Found::Zeroes));
    // A read has seen which.
    let read = ledger.begin_read(to);
    assert!(ledger.end_read(to, read, |_, _| copied(third)).is_ok());
    assert!(!finds(&ledger, to, copied(second)));
}

#[test]
fn a_copy_of_a_copy_in_flight_writes_what_either_may_have_read() {
    let mut ledger = Ledger::default();
    ledger.add_space(3);
    let [one, two, three] = [0, 1, 2].map(|lba| Span { lba, ..SPAN });
    let data = write(&mut ledger);
    ledger.end_write(one, data);
    let [first, second] = [(); 2].map(|()| ledger.next_write());
    ledger.begin_copy(two, &[one], first);
    ledger.begin_copy(three, &[two], second);
    ledger.end_copy(three, &[two], second);
    ledger.end_copy(two, &[one], first);
    let copied = Found::Copy(Place { space: 0, lba: 0 }, data);
    assert!(finds(&ledger, three, copied));
    assert!(finds(&ledger, three, Found::Zeroes));
    assert!(finds(&ledger, two, copied));
    assert!(!finds(&ledger, two, Found::Zeroes));
}
