//! The pin: a level that masks itself when it is triggered.

use controller::Interrupt::Pin;

use super::tests::*;
use super::*;

/// A pin with an eventfd.
fn pin() -> (Interrupts, Vec<EventFd>) {
    let mut interrupts = interrupts(1);
    let eventfds = assign(&mut interrupts, INTX, 0, 1);
    (interrupts, eventfds)
}

/// Assigns an eventfd by which the host unmasks.
fn assign_unmask(interrupts: &mut Interrupts) -> EventFd {
    let (mut kept, sent) = eventfds(1);
    let request = body(EVENTFD | UNMASK, INTX, 0, 1, &[]);
    assert_eq!(interrupts.set(&request, sent), Ok(Answer::Reply));
    kept.remove(0)
}

/// Whether what is watched for unmasks is readable.
fn is_readable(interrupts: &Interrupts) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let fd = interrupts.unmasked().unwrap();
    let mut fds = [PollFd::from_borrowed_fd(fd, PollFlags::IN)];
    poll(&mut fds, Some(&Timespec::default())).unwrap() == 1
}

#[test]
fn it_is_triggered_once_until_it_is_unmasked() {
    let (mut interrupts, eventfds) = pin();
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [true]);
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [false], "it has masked itself");
    set(&mut interrupts, NONE | UNMASK, INTX, 0, 1);
    assert_eq!(signalled(&eventfds), [false], "the level is not kept");
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [true]);
}

#[test]
fn a_host_that_masks_it_gets_nothing() {
    let (mut interrupts, eventfds) = pin();
    for data in [
        body(NONE | MASK, INTX, 0, 1, &[]),
        body(BOOL | MASK, INTX, 0, 1, &[1]),
    ] {
        interrupts.set(&data, ArrayVec::new()).unwrap();
        interrupts.raise(Pin(true));
        interrupts.raise(Pin(false));
        interrupts.raise(Pin(true));
        assert_eq!(signalled(&eventfds), [false]);
        let unmask = body(BOOL | UNMASK, INTX, 0, 1, &[1]);
        interrupts.set(&unmask, ArrayVec::new()).unwrap();
        interrupts.raise(Pin(true));
        assert_eq!(signalled(&eventfds), [true]);
    }
}

#[test]
fn a_trigger_that_nobody_took_is_taken_back_with_the_level() {
    let (mut interrupts, eventfds) = pin();
    interrupts.raise(Pin(true));
    interrupts.raise(Pin(false));
    assert_eq!(signalled(&eventfds), [false]);
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [true], "no unmask was needed");
    // Taken: the host has asserted its line, and unmasks when it is done with it.
    interrupts.raise(Pin(false));
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [false]);
}

#[test]
fn it_is_unmasked_by_the_eventfd_that_the_host_signals() {
    let (mut interrupts, eventfds) = pin();
    let unmask = assign_unmask(&mut interrupts);
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [true]);
    assert!(!is_readable(&interrupts) && !interrupts.take_unmasked());
    unmask.signal().unwrap();
    assert!(is_readable(&interrupts));
    assert!(interrupts.take_unmasked());
    assert!(!is_readable(&interrupts) && !interrupts.take_unmasked());
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [true]);
    // It is the host's to signal: a message does not.
    set(&mut interrupts, NONE | UNMASK, INTX, 0, 1);
    assert!(!unmask.drain());
}

#[test]
fn an_eventfd_that_was_replaced_or_taken_away_unmasks_no_more() {
    let (mut interrupts, eventfds) = pin();
    let old = assign_unmask(&mut interrupts);
    let new = assign_unmask(&mut interrupts);
    old.signal().unwrap();
    assert!(!is_readable(&interrupts) && !interrupts.take_unmasked());
    new.signal().unwrap();
    assert!(interrupts.take_unmasked());
    // None at all de-assigns.
    set(&mut interrupts, EVENTFD | UNMASK, INTX, 0, 1);
    new.signal().unwrap();
    assert!(!is_readable(&interrupts) && !interrupts.take_unmasked());
    let last = assign_unmask(&mut interrupts);
    set(&mut interrupts, NONE | TRIGGER, INTX, 0, 0);
    last.signal().unwrap();
    assert!(!is_readable(&interrupts) && !interrupts.take_unmasked());
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [false], "its type is disabled");
}

#[test]
fn a_new_eventfd_is_triggered_though_the_old_one_was() {
    let (mut interrupts, old) = pin();
    interrupts.raise(Pin(true));
    let new = assign(&mut interrupts, INTX, 0, 1);
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&old), [true]);
    assert_eq!(signalled(&new), [true]);
    // Masked by a message, it stays so.
    set(&mut interrupts, NONE | MASK, INTX, 0, 1);
    let new = assign(&mut interrupts, INTX, 0, 1);
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&new), [false]);
}

#[test]
fn without_an_eventfd_nothing_is_masked() {
    let mut interrupts = interrupts(1);
    interrupts.raise(Pin(true));
    let eventfds = assign(&mut interrupts, INTX, 0, 1);
    assert_eq!(signalled(&eventfds), [false]);
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [true]);
}

#[test]
fn a_host_may_trigger_it_by_message() {
    let (mut interrupts, eventfds) = pin();
    set(&mut interrupts, NONE | TRIGGER, INTX, 0, 1);
    assert_eq!(signalled(&eventfds), [true]);
    set(&mut interrupts, NONE | TRIGGER, INTX, 0, 1);
    assert_eq!(signalled(&eventfds), [false]);
}

#[test]
fn masking_it_signals_the_eventfd_for_that() {
    let (mut interrupts, _) = pin();
    let (mask, sent) = eventfds(1);
    let request = body(EVENTFD | MASK, INTX, 0, 1, &[]);
    interrupts.set(&request, sent).unwrap();
    set(&mut interrupts, NONE | MASK, INTX, 0, 1);
    assert_eq!(signalled(&mask), [true]);
}

#[test]
fn there_is_one() {
    let mut interrupts = interrupts(1);
    for (start, count) in [(0, 2), (1, 1), (2, 0)] {
        let request = body(NONE | TRIGGER, INTX, start, count, &[]);
        let answer = interrupts.set(&request, ArrayVec::new());
        assert_eq!(answer, Err(Errno::INVAL));
    }
    // An empty range does nothing.
    let request = body(NONE | MASK, INTX, 1, 0, &[]);
    assert_eq!(interrupts.set(&request, ArrayVec::new()), Ok(Answer::Reply));
    let eventfds = assign(&mut interrupts, INTX, 0, 1);
    interrupts.raise(Pin(true));
    assert_eq!(signalled(&eventfds), [true]);
}
