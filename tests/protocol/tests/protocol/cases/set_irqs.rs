//! DEVICE_SET_IRQS: which eventfds are signalled, and when.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::os::fd::{AsFd, BorrowedFd};

use memory::EventFd;
use tests_protocol::{Body, Door, Drive, Host, Options, Reply, Server, cmd, errno};

const NONE: u32 = 1;
const BOOL: u32 = 1 << 1;
const EVENTFD: u32 = 1 << 2;
const MASK: u32 = 1 << 3;
const UNMASK: u32 = 1 << 4;
const TRIGGER: u32 = 1 << 5;

const INTX: u32 = 0;
const MSI: u32 = 1;
const MSIX: u32 = 2;
const ERR: u32 = 3;
const REQ: u32 = 4;

/// Four vectors: that of the admin queue and three more.
fn server() -> Server {
    crate::serve(&Options::default())
}

fn body(flags: u32, index: u32, start: u32, count: u32, data: &[u8]) -> Body {
    let argsz = 20 + u32::try_from(data.len()).unwrap();
    let head = Body::new().u32(argsz).u32(flags).u32(index);
    head.u32(start).u32(count).bytes(data)
}

fn send(
    host: &mut Host,
    flags: u32,
    index: u32,
    start: u32,
    count: u32,
    fds: &[BorrowedFd<'_>],
) -> Reply {
    host.request(cmd::SET_IRQS, &body(flags, index, start, count, &[]), fds)
}

fn set(host: &mut Host, flags: u32, index: u32, start: u32, count: u32) {
    let reply = send(host, flags, index, start, count, &[]);
    assert!(reply.ok().is_empty(), "there is no payload in the reply");
}

fn eventfds(count: usize) -> Vec<EventFd> {
    (0..count).map(|_| EventFd::new().unwrap()).collect()
}

fn assign(host: &mut Host, index: u32, start: u32, count: usize) -> Vec<EventFd> {
    let eventfds = eventfds(count);
    let fds: Vec<_> = eventfds.iter().map(AsFd::as_fd).collect();
    let count = u32::try_from(count).unwrap();
    let reply = send(host, EVENTFD | TRIGGER, index, start, count, &fds);
    assert!(reply.ok().is_empty());
    eventfds
}

/// Waits for an eventfd to be signalled; whether it was.
fn is_signalled(eventfd: &EventFd) -> bool {
    tests_protocol::wait_for(eventfd) && eventfd.drain()
}

fn signalled(eventfds: &[EventFd]) -> Vec<bool> {
    eventfds.iter().map(EventFd::drain).collect()
}

#[test]
fn each_vector_signals_its_eventfd() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSIX, 0, 4);
    for vector in 0..4 {
        server.raise(0, vector);
        let expected = [0, 1, 2, 3].map(|other| other == vector);
        assert_eq!(signalled(&eventfds), expected);
    }
}

#[test]
fn completions_interrupt() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSIX, 0, 2);
    // Two admin commands: vector 0.
    let mut drive = Drive::new(&mut host);
    host.expect_in_step();
    assert_eq!(signalled(&eventfds), [true, false]);
    drive.transfer(&mut host, true, 0);
    host.expect_in_step();
    assert_eq!(signalled(&eventfds), [false, true]);
}

#[test]
fn eventfds_may_be_assigned_in_runs() {
    // QEMU sends at most 8 in a message, cloud-hypervisor 16.
    let server = crate::serve(&Options {
        queues: 64,
        ..Options::default()
    });
    let mut host = Host::new(server.attach(0));
    let mut eventfds = Vec::new();
    for (start, count) in [(0, 16), (16, 8), (24, 1), (25, 16), (41, 16), (57, 8)] {
        eventfds.extend(assign(&mut host, MSIX, start, count));
    }
    assert_eq!(eventfds.len(), 65);
    for vector in [0, 15, 16, 24, 40, 41, 64] {
        server.raise(0, vector);
        let signalled = signalled(&eventfds);
        let expected: Vec<_> = (0..65).map(|other| other == vector).collect();
        assert_eq!(signalled, expected);
    }
}

#[test]
fn an_eventfd_may_be_replaced() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let old = assign(&mut host, MSIX, 0, 2);
    let new = assign(&mut host, MSIX, 1, 1);
    server.raise(0, 1);
    assert_eq!(signalled(&old), [false, false]);
    assert_eq!(signalled(&new), [true]);
}

#[test]
fn no_descriptors_and_a_count_de_assign() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSIX, 0, 4);
    set(&mut host, EVENTFD | TRIGGER, MSIX, 1, 2);
    for vector in 0..4 {
        server.raise(0, vector);
    }
    assert_eq!(signalled(&eventfds), [true, false, false, true]);
}

#[test]
fn a_count_of_zero_without_data_disables_the_type() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSIX, 0, 4);
    set(&mut host, NONE | TRIGGER, MSIX, 0, 0);
    for vector in 0..4 {
        server.raise(0, vector);
    }
    assert_eq!(signalled(&eventfds), [false; 4]);
    // Every type may be disabled, also one that has no interrupts.
    for index in [INTX, MSI, MSIX, ERR, REQ] {
        set(&mut host, NONE | TRIGGER, index, 0, 0);
    }
}

#[test]
fn an_interrupt_without_an_eventfd_waits_for_one() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    server.raise(0, 3);
    let eventfds = assign(&mut host, MSIX, 0, 4);
    assert_eq!(signalled(&eventfds), [false, false, false, true]);
}

#[test]
fn a_masked_interrupt_waits_for_the_unmask() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSIX, 0, 4);
    set(&mut host, NONE | MASK, MSIX, 1, 2);
    for vector in 0..4 {
        server.raise(0, vector);
    }
    assert_eq!(signalled(&eventfds), [true, false, false, true]);
    set(&mut host, NONE | UNMASK, MSIX, 2, 1);
    assert_eq!(signalled(&eventfds), [false, false, true, false]);
    let reply = host.request(
        cmd::SET_IRQS,
        &body(BOOL | UNMASK, MSIX, 0, 4, &[0, 1, 0, 1]),
        &[],
    );
    assert!(reply.ok().is_empty());
    assert_eq!(signalled(&eventfds), [false, true, false, false]);
}

#[test]
fn a_host_may_trigger_by_message() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSIX, 0, 4);
    set(&mut host, NONE | TRIGGER, MSIX, 1, 2);
    assert_eq!(signalled(&eventfds), [false, true, true, false]);
    let some = body(BOOL | TRIGGER, MSIX, 0, 4, &[7, 0, 0, 1]);
    assert!(host.request(cmd::SET_IRQS, &some, &[]).ok().is_empty());
    assert_eq!(signalled(&eventfds), [true, false, false, true]);
}

#[test]
fn thousands_of_masks_can_be_ended() {
    let server = crate::serve(&Options {
        queues: 15,
        ..Options::default()
    });
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSIX, 0, 16);
    // Each masks other vectors.
    for some in 1..4096_u32 {
        let each: Vec<_> = (0..12).map(|at| (some >> at & 1) as u8).collect();
        let mask = body(BOOL | MASK, MSIX, 0, 12, &each);
        assert!(host.request(cmd::SET_IRQS, &mask, &[]).ok().is_empty());
    }
    let one_more = send(&mut host, NONE | MASK, MSIX, 13, 1, &[]);
    match server.door() {
        Door::Direct => assert!(one_more.ok().is_empty()),
        // A holder keeps 4,096 of them (book/src/internals/crates/holder.md).
        Door::Holder(_) => assert_eq!(one_more.errno(), errno::ENOSPC),
    }
    set(&mut host, NONE | TRIGGER, MSIX, 12, 1);
    assert!(eventfds[12].drain());
    set(&mut host, NONE | TRIGGER, MSIX, 0, 0);
    let _ = assign(&mut host, MSIX, 0, 16);
}

#[test]
fn masks_have_eventfds_of_their_own() {
    // "DATA_EVENTFD with ACTION_MASK ... generates an event when the guest masks the interrupt".
    let server = server();
    let mut host = Host::new(server.attach(0));
    let events = eventfds(2);
    for (action, event) in [(MASK, &events[0]), (UNMASK, &events[1])] {
        let reply = send(&mut host, EVENTFD | action, MSIX, 2, 1, &[event.as_fd()]);
        assert!(reply.ok().is_empty());
    }
    set(&mut host, NONE | MASK, MSIX, 0, 4);
    assert_eq!(signalled(&events), [true, false]);
    set(&mut host, NONE | UNMASK, MSIX, 0, 4);
    assert_eq!(signalled(&events), [false, true]);
}

/// Message Control of MSI (configuration space, PCI 3.0, 6.8.1.3): enabled, with 2^`log2` messages.
fn enable_msi(host: &mut Host, log2: u16) {
    host.region_write(7, 0x52, &(log2 << 4 | 1).to_le_bytes());
}

#[test]
fn each_message_of_msi_signals_its_eventfd() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSI, 0, 4);
    enable_msi(&mut host, 2);
    let mut drive = Drive::new(&mut host);
    host.expect_in_step();
    assert_eq!(signalled(&eventfds), [true, false, false, false]);
    drive.submit(&mut host, true, 0);
    assert!(is_signalled(&eventfds[1]));
    assert_eq!(signalled(&eventfds), [false; 4]);
}

#[test]
fn all_vectors_meet_in_the_one_message() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSI, 0, 1);
    enable_msi(&mut host, 0);
    let mut drive = Drive::new(&mut host);
    host.expect_in_step();
    assert_eq!(signalled(&eventfds), [true]);
    drive.submit(&mut host, true, 0);
    assert!(is_signalled(&eventfds[0]));
}

#[test]
fn a_message_without_an_eventfd_waits_for_one() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    enable_msi(&mut host, 2);
    let mut drive = Drive::new(&mut host);
    let cid = drive.submit(&mut host, true, 0);
    let _ = drive.wait(&mut host, cid);
    let eventfds = assign(&mut host, MSI, 0, 4);
    assert_eq!(signalled(&eventfds), [true, true, false, false]);
}

#[test]
fn without_msix_a_register_masks() {
    // INTMS and INTMC (Base 2.1, 3.1.4.3).
    let server = server();
    let mut host = Host::new(server.attach(0));
    enable_msi(&mut host, 2);
    let mut drive = Drive::new(&mut host);
    let eventfds = assign(&mut host, MSI, 0, 4);
    signalled(&eventfds);
    host.region_write(0, 0x0c, &0b10_u32.to_le_bytes());
    let cid = drive.submit(&mut host, true, 0);
    while drive.peek().is_none() {
        std::thread::yield_now();
    }
    host.expect_in_step();
    assert_eq!(signalled(&eventfds), [false; 4]);
    host.region_write(0, 0x10, &0b10_u32.to_le_bytes());
    assert!(is_signalled(&eventfds[1]), "it is not acknowledged");
    host.region_write(0, 0x0c, &0b10_u32.to_le_bytes());
    let _ = drive.wait(&mut host, cid);
    host.region_write(0, 0x10, &0b10_u32.to_le_bytes());
    host.expect_in_step();
    assert_eq!(signalled(&eventfds), [false; 4], "it is");
}

#[test]
fn function_mask_holds_every_vector_back() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfds = assign(&mut host, MSIX, 0, 4);
    // Message Control of MSI-X (PCI 3.0, 6.8.2.3): Enable, Function Mask.
    host.region_write(7, 0xb2, &0xc000_u16.to_le_bytes());
    server.raise(0, 2);
    assert_eq!(signalled(&eventfds), [false; 4]);
    assert_eq!(host.region_read(4, 0x1000, 1), [0b100]);
    host.region_write(7, 0xb2, &0x8000_u16.to_le_bytes());
    assert_eq!(signalled(&eventfds), [false, false, true, false]);
    assert_eq!(host.region_read(4, 0x1000, 1), [0]);
    // A reset ends it, too.
    host.region_write(7, 0xb2, &0xc000_u16.to_le_bytes());
    assert!(
        host.request(cmd::DEVICE_RESET, &Body::new(), &[])
            .ok()
            .is_empty()
    );
    server.raise(0, 1);
    assert_eq!(signalled(&eventfds), [false, true, false, false]);
}

#[test]
fn combinations_that_cannot_be_are_refused() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    for flags in [
        0,
        NONE,
        TRIGGER,
        NONE | BOOL | TRIGGER,
        NONE | EVENTFD | TRIGGER,
        NONE | MASK | UNMASK,
        NONE | UNMASK | TRIGGER,
        1 << 6 | NONE | TRIGGER,
        u32::MAX,
    ] {
        let reply = send(&mut host, flags, MSIX, 0, 1, &[]);
        assert_eq!(reply.errno(), errno::EINVAL, "{flags:#b}");
    }
    host.expect_in_step();
}

#[test]
fn ranges_that_are_not_there_are_refused() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    for (index, start, count) in [
        (MSIX, 0, 5),
        (MSIX, 4, 1),
        (MSIX, 5, 0),
        (MSIX, u32::MAX, 1),
        (MSIX, 1, u32::MAX),
        (MSI, 0, 5),
        (INTX, 0, 1),
        (ERR, 0, 1),
        (REQ, 0, 1),
        (5, 0, 1),
        (5, 0, 0),
        (u32::MAX, 0, 1),
    ] {
        for flags in [NONE | TRIGGER, NONE | MASK, EVENTFD | TRIGGER] {
            let reply = send(&mut host, flags, index, start, count, &[]);
            assert_eq!(reply.errno(), errno::EINVAL, "{index} {start} {count}");
        }
    }
    host.expect_in_step();
}

#[test]
fn a_boolean_for_each_must_come() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let few = body(BOOL | TRIGGER, MSIX, 0, 4, &[1, 1, 1]);
    assert_eq!(
        host.request(cmd::SET_IRQS, &few, &[]).errno(),
        errno::EINVAL
    );
    let short = Body::new().u32(20).u32(NONE | TRIGGER).u32(MSIX).u32(0);
    assert_eq!(
        host.request(cmd::SET_IRQS, &short, &[]).errno(),
        errno::EINVAL
    );
    let argsz = Body::new()
        .u32(19)
        .u32(NONE | TRIGGER)
        .u32(MSIX)
        .u32(0)
        .u32(0);
    assert_eq!(
        host.request(cmd::SET_IRQS, &argsz, &[]).errno(),
        errno::EINVAL
    );
}

#[test]
fn an_eventfd_for_each_must_come() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let old = assign(&mut host, MSIX, 0, 4);
    let new = eventfds(3);
    let fds: Vec<_> = new.iter().map(AsFd::as_fd).collect();
    let reply = send(&mut host, EVENTFD | TRIGGER, MSIX, 0, 4, &fds);
    assert_eq!(reply.errno(), errno::EINVAL);
    server.raise(0, 0);
    assert_eq!(
        signalled(&old),
        [true, false, false, false],
        "nothing changed"
    );
}

#[test]
fn descriptors_beyond_the_count_are_closed() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let eventfd = EventFd::new().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    let fds = [eventfd.as_fd(), writer.as_fd(), writer.as_fd()];
    let reply = send(&mut host, EVENTFD | TRIGGER, MSIX, 0, 1, &fds);
    assert!(reply.ok().is_empty());
    let reply = send(&mut host, NONE | TRIGGER, MSIX, 0, 1, &[writer.as_fd()]);
    assert!(reply.ok().is_empty());
    drop(writer);
    assert_eq!(rustix::io::read(&reader, &mut [0; 1]), Ok(0));
    assert!(eventfd.drain());
}

#[test]
fn what_is_no_eventfd_is_refused_and_closed() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let old = assign(&mut host, MSIX, 0, 4);
    let (reader, writer) = std::io::pipe().unwrap();
    let reply = send(&mut host, EVENTFD | TRIGGER, MSIX, 0, 1, &[writer.as_fd()]);
    assert_eq!(reply.errno(), errno::EINVAL);
    drop(writer);
    assert_eq!(
        rustix::io::read(&reader, &mut [0; 1]),
        Ok(0),
        "nothing was written"
    );
    server.raise(0, 0);
    assert_eq!(
        signalled(&old),
        [true, false, false, false],
        "nothing changed"
    );
}

#[test]
fn the_next_host_gets_no_interrupts_of_the_last() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let old = assign(&mut host, MSIX, 0, 4);
    set(&mut host, NONE | MASK, MSIX, 2, 1);
    server.raise(0, 2);
    drop(host);
    let _ = server.wait_for_end(0);
    let mut host = Host::new(server.attach(0));
    host.expect_in_step();
    let new = assign(&mut host, MSIX, 0, 4);
    server.raise(0, 1);
    assert_eq!(signalled(&new), [false, true, false, false]);
    assert_eq!(signalled(&old), [false; 4]);
}
