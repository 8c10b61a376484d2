use std::os::fd::AsFd;

use controller::Interrupt::{Message, Vector};

use super::*;

pub(super) const NONE: u32 = 1;
pub(super) const BOOL: u32 = 1 << 1;
pub(super) const EVENTFD: u32 = 1 << 2;
pub(super) const MASK: u32 = 1 << 3;
pub(super) const UNMASK: u32 = 1 << 4;
pub(super) const TRIGGER: u32 = 1 << 5;

pub(super) const INTX: u32 = 0;
const MSI: u32 = 1;
const MSIX: u32 = 2;

/// Interrupts of so many vectors of MSI-X, with four messages of MSI and a pin.
pub(super) fn interrupts(vectors: u16) -> Interrupts {
    let config = SessionConfig {
        name: "c".into(),
        doorbells_mapped: true,
        vectors,
        messages: 4,
        intx: true,
        custody: None,
    };
    Interrupts::new(&config).unwrap()
}

/// Eventfds of a host, and what is sent of them.
pub(super) fn eventfds(count: usize) -> (Vec<EventFd>, ArrayVec<OwnedFd, MAX_FDS>) {
    let kept: Vec<_> = (0..count).map(|_| EventFd::new().unwrap()).collect();
    let sent = kept
        .iter()
        .map(|eventfd| eventfd.as_fd().try_clone_to_owned().unwrap());
    let sent = sent.collect();
    (kept, sent)
}

pub(super) fn body(flags: u32, index: u32, start: u32, count: u32, data: &[u8]) -> Vec<u8> {
    let argsz = 20 + data.len() as u32;
    let mut body: Vec<u8> = [argsz, flags, index, start, count]
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .collect();
    body.extend_from_slice(data);
    body
}

/// Sends SET_IRQS without descriptors.
pub(super) fn set(interrupts: &mut Interrupts, flags: u32, index: u32, start: u32, count: u32) {
    let body = body(flags, index, start, count, &[]);
    let answer = interrupts.set(&body, ArrayVec::new());
    assert_eq!(answer, Ok(Answer::Reply));
}

pub(super) fn assign(
    interrupts: &mut Interrupts,
    index: u32,
    start: u32,
    count: usize,
) -> Vec<EventFd> {
    let (kept, sent) = eventfds(count);
    let body = body(EVENTFD | TRIGGER, index, start, count as u32, &[]);
    assert_eq!(interrupts.set(&body, sent), Ok(Answer::Reply));
    kept
}

pub(super) fn signalled(eventfds: &[EventFd]) -> Vec<bool> {
    eventfds.iter().map(EventFd::drain).collect()
}

#[test]
fn a_vector_signals_its_eventfd_and_no_other() {
    let mut interrupts = interrupts(3);
    let eventfds = assign(&mut interrupts, MSIX, 0, 3);
    interrupts.raise(Vector(1));
    assert_eq!(signalled(&eventfds), [false, true, false]);
    assert!(!interrupts.is_pending(1));
}

#[test]
fn a_vector_that_does_not_exist_is_ignored() {
    let mut interrupts = interrupts(1);
    let eventfds = assign(&mut interrupts, MSIX, 0, 1);
    interrupts.raise(Vector(1));
    interrupts.raise(Vector(u16::MAX));
    assert_eq!(signalled(&eventfds), [false]);
}

#[test]
fn an_interrupt_without_an_eventfd_waits_for_one() {
    let mut interrupts = interrupts(4);
    interrupts.raise(Vector(2));
    interrupts.raise(Vector(2));
    assert!(interrupts.is_pending(2));
    let first = assign(&mut interrupts, MSIX, 0, 2);
    assert_eq!(signalled(&first), [false, false]);
    assert!(interrupts.is_pending(2));
    let rest = assign(&mut interrupts, MSIX, 2, 2);
    assert_eq!(signalled(&rest), [true, false]);
    assert_eq!(signalled(&first), [false, false]);
    assert!(!interrupts.is_pending(2));
}

#[test]
fn no_descriptors_de_assign_the_range() {
    let mut interrupts = interrupts(3);
    let eventfds = assign(&mut interrupts, MSIX, 0, 3);
    set(&mut interrupts, EVENTFD | TRIGGER, MSIX, 1, 1);
    interrupts.raise(Vector(0));
    interrupts.raise(Vector(1));
    assert_eq!(signalled(&eventfds), [true, false, false]);
    assert!(interrupts.is_pending(1));
}

#[test]
fn a_count_of_zero_disables_the_type() {
    let mut interrupts = interrupts(2);
    let eventfds = assign(&mut interrupts, MSIX, 0, 2);
    set(&mut interrupts, NONE | MASK, MSIX, 0, 1);
    set(&mut interrupts, NONE | TRIGGER, MSIX, 0, 0);
    interrupts.raise(Vector(1));
    assert_eq!(signalled(&eventfds), [false, false]);
    let again = assign(&mut interrupts, MSIX, 0, 2);
    assert_eq!(signalled(&again), [false, true]);
    // The mask is gone with the rest.
    interrupts.raise(Vector(0));
    assert_eq!(signalled(&again), [true, false]);
}

#[test]
fn a_masked_interrupt_waits_for_the_unmask() {
    let mut interrupts = interrupts(2);
    let eventfds = assign(&mut interrupts, MSIX, 0, 2);
    set(&mut interrupts, NONE | MASK, MSIX, 0, 2);
    interrupts.raise(Vector(0));
    assert_eq!(signalled(&eventfds), [false, false]);
    set(&mut interrupts, NONE | UNMASK, MSIX, 1, 1);
    assert_eq!(signalled(&eventfds), [false, false]);
    set(&mut interrupts, NONE | UNMASK, MSIX, 0, 1);
    assert_eq!(signalled(&eventfds), [true, false]);
    set(&mut interrupts, NONE | UNMASK, MSIX, 0, 1);
    assert_eq!(signalled(&eventfds), [false, false]);
}

#[test]
fn booleans_choose_what_is_acted_on() {
    let mut interrupts = interrupts(3);
    let eventfds = assign(&mut interrupts, MSIX, 0, 3);
    let request = body(BOOL | MASK, MSIX, 0, 3, &[0, 1, 0]);
    interrupts.set(&request, ArrayVec::new()).unwrap();
    (0..3).for_each(|vector| interrupts.raise(Vector(vector)));
    assert_eq!(signalled(&eventfds), [true, false, true]);
    let request = body(BOOL | UNMASK, MSIX, 1, 1, &[0xff]);
    interrupts.set(&request, ArrayVec::new()).unwrap();
    assert_eq!(signalled(&eventfds), [false, true, false]);
    let request = body(BOOL | TRIGGER, MSIX, 0, 3, &[1, 0, 1]);
    interrupts.set(&request, ArrayVec::new()).unwrap();
    assert_eq!(signalled(&eventfds), [true, false, true]);
}

#[test]
fn a_host_may_trigger_its_own_interrupts() {
    let mut interrupts = interrupts(2);
    let eventfds = assign(&mut interrupts, MSIX, 0, 2);
    set(&mut interrupts, NONE | TRIGGER, MSIX, 1, 1);
    assert_eq!(signalled(&eventfds), [false, true]);
    set(&mut interrupts, NONE | MASK, MSIX, 1, 1);
    set(&mut interrupts, NONE | TRIGGER, MSIX, 0, 2);
    assert_eq!(signalled(&eventfds), [true, false]);
    set(&mut interrupts, NONE | UNMASK, MSIX, 1, 1);
    assert_eq!(signalled(&eventfds), [false, true]);
}

#[test]
fn masking_and_unmasking_signal_eventfds_of_their_own() {
    let mut interrupts = interrupts(1);
    let (mask, sent) = eventfds(1);
    let request = body(EVENTFD | MASK, MSIX, 0, 1, &[]);
    interrupts.set(&request, sent).unwrap();
    let (unmask, sent) = eventfds(1);
    let request = body(EVENTFD | UNMASK, MSIX, 0, 1, &[]);
    interrupts.set(&request, sent).unwrap();
    interrupts.raise(Vector(0));
    assert_eq!(signalled(&mask), [false]);
    set(&mut interrupts, NONE | MASK, MSIX, 0, 1);
    assert_eq!(
        (signalled(&mask), signalled(&unmask)),
        (vec![true], vec![false])
    );
    set(&mut interrupts, NONE | UNMASK, MSIX, 0, 1);
    assert_eq!(
        (signalled(&mask), signalled(&unmask)),
        (vec![false], vec![true])
    );
    assert!(
        interrupts.is_pending(0),
        "nobody waits for the vector itself"
    );
}

#[test]
fn messages_are_signalled_by_their_own_eventfds() {
    let mut interrupts = interrupts(2);
    interrupts.raise(Message(3));
    let first = assign(&mut interrupts, MSI, 0, 2);
    assert_eq!(signalled(&first), [false, false]);
    let rest = assign(&mut interrupts, MSI, 2, 2);
    assert_eq!(signalled(&rest), [false, true], "it has waited");
    interrupts.raise(Message(0));
    interrupts.raise(Vector(1));
    interrupts.raise(Message(4));
    assert_eq!(signalled(&first), [true, false]);
    assert_eq!(signalled(&rest), [false, false]);
    assert!(interrupts.is_pending(1), "a vector is not a message");
}

#[test]
fn function_mask_keeps_vectors_pending_and_no_message() {
    let mut interrupts = interrupts(2);
    let vectors = assign(&mut interrupts, MSIX, 0, 2);
    let messages = assign(&mut interrupts, MSI, 0, 1);
    interrupts.set_masked(true, false);
    interrupts.raise(Vector(1));
    interrupts.raise(Message(0));
    assert_eq!(signalled(&vectors), [false, false]);
    assert_eq!(signalled(&messages), [true]);
    assert!(interrupts.is_pending(1));
    // Another message's end of a mask does not end this one.
    set(&mut interrupts, NONE | UNMASK, MSIX, 0, 2);
    assert_eq!(signalled(&vectors), [false, false]);
    interrupts.set_masked(false, false);
    assert_eq!(signalled(&vectors), [false, true]);
    assert!(!interrupts.is_pending(1));
}

#[test]
fn without_bus_mastering_vectors_and_messages_wait_and_the_pin_does_not() {
    let mut interrupts = interrupts(2);
    let vectors = assign(&mut interrupts, MSIX, 0, 2);
    let messages = assign(&mut interrupts, MSI, 0, 1);
    let pin = assign(&mut interrupts, INTX, 0, 1);
    interrupts.set_masked(true, true);
    assert!(interrupts.lines_of_msix().iter().all(Option::is_none));
    interrupts.raise(Vector(1));
    interrupts.raise(Message(0));
    interrupts.raise(Interrupt::Pin(true));
    assert_eq!(signalled(&vectors), [false, false]);
    assert_eq!(signalled(&messages), [false]);
    assert_eq!(signalled(&pin), [true], "it is no memory write");
    assert!(interrupts.is_pending(1));
    // Nor does a new eventfd, or the end of another mask, deliver them.
    let again = assign(&mut interrupts, MSI, 0, 1);
    interrupts.set_masked(false, true);
    assert_eq!(signalled(&vectors), [false, true]);
    assert_eq!(signalled(&again), [false]);
    interrupts.set_masked(false, false);
    assert_eq!(signalled(&again), [true]);
}

#[test]
fn a_reset_forgets_what_waits_and_keeps_the_eventfds() {
    let mut interrupts = interrupts(2);
    let eventfds = assign(&mut interrupts, MSIX, 0, 1);
    interrupts.raise(Vector(1));
    interrupts.forget_pending();
    let rest = assign(&mut interrupts, MSIX, 1, 1);
    assert_eq!(signalled(&rest), [false]);
    interrupts.raise(Vector(0));
    assert_eq!(signalled(&eventfds), [true]);
}

#[test]
fn wrong_messages_change_nothing() {
    let mut interrupts = interrupts(2);
    let eventfds = assign(&mut interrupts, MSIX, 0, 2);
    let wrong = [
        ("past the end", body(NONE | TRIGGER, MSIX, 1, 2, &[])),
        ("a wrap", body(NONE | TRIGGER, MSIX, u32::MAX, 2, &[])),
        ("no such type", body(NONE | TRIGGER, 5, 0, 0, &[])),
        (
            "a type without interrupts",
            body(NONE | TRIGGER, 3, 0, 1, &[]),
        ),
        ("too few booleans", body(BOOL | TRIGGER, MSIX, 0, 2, &[1])),
        (
            "two kinds of data",
            body(NONE | BOOL | TRIGGER, MSIX, 0, 1, &[1]),
        ),
        ("no action", body(NONE, MSIX, 0, 1, &[])),
        ("two actions", body(NONE | MASK | TRIGGER, MSIX, 0, 1, &[])),
        (
            "an unknown flag",
            body(1 << 6 | NONE | TRIGGER, MSIX, 0, 1, &[]),
        ),
    ];
    for (what, body) in wrong {
        let answer = interrupts.set(&body, ArrayVec::new());
        assert_eq!(answer, Err(Errno::INVAL), "{what}");
    }
    let short = body(NONE | TRIGGER, MSIX, 0, 1, &[]);
    let answer = interrupts.set(&short[..19], ArrayVec::new());
    assert_eq!(answer, Err(Errno::INVAL));
    assert_eq!(signalled(&eventfds), [false, false]);
    interrupts.raise(Vector(0));
    assert_eq!(signalled(&eventfds), [true, false]);
}

#[test]
fn too_few_descriptors_change_nothing() {
    let mut interrupts = interrupts(3);
    let eventfds = assign(&mut interrupts, MSIX, 0, 3);
    let (others, sent) = self::eventfds(2);
    let request = body(EVENTFD | TRIGGER, MSIX, 0, 3, &[]);
    assert_eq!(interrupts.set(&request, sent), Err(Errno::INVAL));
    (0..3).for_each(|vector| interrupts.raise(Vector(vector)));
    assert_eq!(signalled(&eventfds), [true; 3]);
    assert_eq!(signalled(&others), [false; 2]);
}

#[test]
fn descriptors_that_are_no_eventfds_change_nothing() {
    let mut interrupts = interrupts(2);
    let eventfds = assign(&mut interrupts, MSIX, 0, 2);
    let (_, mut sent) = self::eventfds(1);
    // Full, and blocking: writing to it would never end.
    let (reader, writer) = rustix::pipe::pipe().unwrap();
    sent.push(writer);
    let request = body(EVENTFD | TRIGGER, MSIX, 0, 2, &[]);
    assert_eq!(interrupts.set(&request, sent), Err(Errno::INVAL));
    (0..2).for_each(|vector| interrupts.raise(Vector(vector)));
    assert_eq!(signalled(&eventfds), [true, true]);
    drop(reader);
}

#[test]
fn a_full_eventfd_that_blocks_its_writers_does_not_block_us() {
    let mut interrupts = interrupts(1);
    let flags = rustix::event::EventfdFlags::empty();
    let eventfd = rustix::event::eventfd(0, flags).unwrap();
    rustix::io::write(&eventfd, &(u64::MAX - 1).to_ne_bytes()).unwrap();
    let sent = ArrayVec::from_iter([eventfd.try_clone().unwrap()]);
    let request = body(EVENTFD | TRIGGER, MSIX, 0, 1, &[]);
    interrupts.set(&request, sent).unwrap();
    interrupts.raise(Vector(0));
    assert!(!interrupts.is_pending(0));
}
