//! DEVICE_SET_IRQS for the pin: a level, derived from what the host has not acknowledged (PCIe
//! Transport 1.1, 3.5).

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::os::fd::AsFd;

use memory::EventFd;
use tests_protocol::{Body, Drive, Host, Options, Server, cmd, wait_for};

const NONE: u32 = 1;
const EVENTFD: u32 = 1 << 2;
const MASK: u32 = 1 << 3;
const UNMASK: u32 = 1 << 4;
const TRIGGER: u32 = 1 << 5;

/// Slot of the head doorbell of queue 1.
const HEAD: usize = 3;

fn server() -> Server {
    crate::serve(&Options {
        intx: true,
        ..Options::default()
    })
}

/// SET_IRQS for the pin.
fn set(host: &mut Host, flags: u32, eventfd: Option<&EventFd>) {
    let body = Body::new().u32(20).u32(flags).u32(0).u32(0).u32(1);
    let fds: Vec<_> = eventfd.iter().map(AsFd::as_fd).collect();
    assert!(host.request(cmd::SET_IRQS, &body, &fds).ok().is_empty());
}

fn unmask(host: &mut Host) {
    set(host, NONE | UNMASK, None);
}

/// A drive whose host has acknowledged everything, and has unmasked the pin, which signals this.
fn drive(host: &mut Host) -> (Drive, EventFd) {
    let pin = EventFd::new().unwrap();
    set(host, EVENTFD | TRIGGER, Some(&pin));
    let drive = Drive::new(host);
    host.expect_in_step();
    pin.drain();
    unmask(host);
    assert!(is_quiet(host, &pin));
    (drive, pin)
}

/// Waits for the pin to be signalled; whether it was.
fn is_signalled(pin: &EventFd) -> bool {
    wait_for(pin) && pin.drain()
}

/// Whether the pin is not signalled by what the host has done until now.
fn is_quiet(host: &mut Host, pin: &EventFd) -> bool {
    for _ in 0..3 {
        host.expect_in_step();
    }
    !pin.drain()
}

/// Interrupt Status, bit 3 of the Status register (PCI 3.0, 6.2.3).
fn interrupt_status(host: &mut Host) -> bool {
    host.region_read(7, 0x06, 1)[0] & 1 << 3 != 0
}

#[test]
fn an_unmask_signals_again_until_the_host_has_acknowledged() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut drive, pin) = drive(&mut host);
    assert!(!interrupt_status(&mut host));
    let cid = drive.submit(&mut host, true, 0);
    assert!(is_signalled(&pin));
    assert!(interrupt_status(&mut host));
    let next = drive.submit(&mut host, true, 8);
    assert!(is_quiet(&mut host, &pin), "it masked itself");
    unmask(&mut host);
    assert!(is_signalled(&pin));
    // One of two is acknowledged.
    assert_eq!(drive.wait(&mut host, cid).status, 0);
    unmask(&mut host);
    assert!(is_signalled(&pin));
    assert_eq!(drive.wait(&mut host, next).status, 0);
    assert!(!interrupt_status(&mut host));
    unmask(&mut host);
    assert!(is_quiet(&mut host, &pin));
    // The level has fallen, and the next completion raises it again.
    drive.submit(&mut host, true, 0);
    assert!(is_signalled(&pin));
}

#[test]
fn an_acknowledgement_in_the_mapped_page_counts() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut drive, pin) = drive(&mut host);
    drive.submit(&mut host, true, 0);
    assert!(is_signalled(&pin));
    server.doorbells(0).store(HEAD, 1);
    unmask(&mut host);
    assert!(is_quiet(&mut host, &pin));
    assert!(!interrupt_status(&mut host));
    drive.submit(&mut host, true, 0);
    assert!(is_signalled(&pin));
}

#[test]
fn an_eventfd_of_the_host_unmasks() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut drive, pin) = drive(&mut host);
    // As KVM's irqfd with a resampler: QEMU masks, assigns, unmasks.
    let resample = EventFd::new().unwrap();
    set(&mut host, NONE | MASK, None);
    set(&mut host, EVENTFD | UNMASK, Some(&resample));
    unmask(&mut host);
    let cid = drive.submit(&mut host, true, 0);
    for _ in 0..3 {
        assert!(is_signalled(&pin));
        resample.signal().unwrap();
    }
    assert!(is_signalled(&pin));
    assert_eq!(drive.wait(&mut host, cid).status, 0);
    resample.signal().unwrap();
    assert!(is_quiet(&mut host, &pin));
    drive.submit(&mut host, true, 0);
    assert!(is_signalled(&pin));
}

#[test]
fn a_trigger_that_the_host_has_not_taken_goes_with_the_level() {
    // QEMU would assert its line for it, and the guest's driver, which finds nothing, would never
    // end that.
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut drive, pin) = drive(&mut host);
    let cid = drive.submit(&mut host, true, 0);
    assert!(wait_for(&pin));
    assert_eq!(drive.wait(&mut host, cid).status, 0);
    assert!(is_quiet(&mut host, &pin));
    drive.submit(&mut host, true, 0);
    assert!(is_signalled(&pin), "without an UNMASK");
}

#[test]
fn a_masked_pin_waits_for_the_unmask() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut drive, pin) = drive(&mut host);
    set(&mut host, NONE | MASK, None);
    drive.submit(&mut host, true, 0);
    while drive.peek().is_none() {
        std::thread::yield_now();
    }
    assert!(is_quiet(&mut host, &pin));
    assert!(interrupt_status(&mut host));
    unmask(&mut host);
    assert!(is_signalled(&pin));
}

#[test]
fn registers_mask_the_level() {
    // INTMS and INTMC (Base 2.1, 3.1.4.3 and 3.1.4.4).
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut drive, pin) = drive(&mut host);
    host.region_write(0, 0x0c, &0b10_u32.to_le_bytes());
    drive.submit(&mut host, true, 0);
    while drive.peek().is_none() {
        std::thread::yield_now();
    }
    assert!(is_quiet(&mut host, &pin));
    assert!(!interrupt_status(&mut host));
    host.region_write(0, 0x10, &0b10_u32.to_le_bytes());
    assert!(is_signalled(&pin));
    // A handler that masks first: its unmask raises what it has not acknowledged.
    host.region_write(0, 0x0c, &0b10_u32.to_le_bytes());
    unmask(&mut host);
    assert!(is_quiet(&mut host, &pin));
    host.region_write(0, 0x10, &0b10_u32.to_le_bytes());
    assert!(is_signalled(&pin));
}

#[test]
fn interrupt_disable_holds_the_pin_down() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut drive, pin) = drive(&mut host);
    // Bit 10 of the Command register.
    host.region_write(7, 0x04, &0x0406_u16.to_le_bytes());
    drive.submit(&mut host, true, 0);
    while drive.peek().is_none() {
        std::thread::yield_now();
    }
    assert!(is_quiet(&mut host, &pin));
    assert!(interrupt_status(&mut host));
    host.region_write(7, 0x04, &0x0006_u16.to_le_bytes());
    assert!(is_signalled(&pin));
}

#[test]
fn msix_takes_over_and_gives_back() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut drive, pin) = drive(&mut host);
    let vector = EventFd::new().unwrap();
    let body = Body::new().u32(20).u32(EVENTFD | TRIGGER).u32(2);
    let reply = host.request(cmd::SET_IRQS, &body.u32(1).u32(1), &[vector.as_fd()]);
    assert!(reply.ok().is_empty());
    host.region_write(7, 0xb2, &0x8000_u16.to_le_bytes());
    drive.submit(&mut host, true, 0);
    assert!(is_signalled(&vector));
    assert!(is_quiet(&mut host, &pin));
    assert!(!interrupt_status(&mut host));
    // An interrupt that is not acknowledged asserts the pin, once that is the way again.
    host.region_write(7, 0xb2, &0_u16.to_le_bytes());
    assert!(is_signalled(&pin));
    assert!(is_quiet(&mut host, &vector));
}

#[test]
fn a_pin_that_gets_its_eventfd_late_is_signalled_then() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let mut drive = Drive::new(&mut host);
    drive.submit(&mut host, true, 0);
    while drive.peek().is_none() {
        std::thread::yield_now();
    }
    let pin = EventFd::new().unwrap();
    set(&mut host, EVENTFD | TRIGGER, Some(&pin));
    assert!(is_signalled(&pin));
    // The host disables it (count 0) and enables it again.
    let body = Body::new().u32(20).u32(NONE | TRIGGER).u32(0).u32(0).u32(0);
    assert!(host.request(cmd::SET_IRQS, &body, &[]).ok().is_empty());
    assert!(is_quiet(&mut host, &pin));
    set(&mut host, EVENTFD | TRIGGER, Some(&pin));
    assert!(is_signalled(&pin));
}

#[test]
fn the_next_host_finds_the_pin_low() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let (mut first, old) = drive(&mut host);
    first.submit(&mut host, true, 0);
    assert!(is_signalled(&old));
    drop(host);
    let _ = server.wait_for_end(0);
    let mut host = Host::new(server.attach(0));
    let pin = EventFd::new().unwrap();
    set(&mut host, EVENTFD | TRIGGER, Some(&pin));
    assert!(is_quiet(&mut host, &pin));
    assert!(!interrupt_status(&mut host));
}
