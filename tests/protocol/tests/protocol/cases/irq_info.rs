//! DEVICE_GET_IRQ_INFO: five types of interrupts, two or three of which there are.

use tests_protocol::{Body, Host, Options, Reply, cmd, errno};

const EVENTFD: u32 = 1;
const MASKABLE: u32 = 1 << 1;
const AUTOMASKED: u32 = 1 << 2;
const NORESIZE: u32 = 1 << 3;

fn ask(host: &mut Host, argsz: u32, index: u32) -> Reply {
    let body = Body::new().u32(argsz).u32(0).u32(index).u32(0);
    host.request(cmd::GET_IRQ_INFO, &body, &[])
}

#[test]
fn msix_has_a_vector_for_the_admin_queue_and_for_each_io_queue() {
    // Not more: 512 vectors exhausted a VMM's descriptors.
    for queues in [1, 3, 64] {
        let server = crate::serve(&Options {
            queues,
            ..Options::default()
        });
        let mut host = Host::new(server.attach(0));
        let reply = ask(&mut host, 16, 2);
        let count = u32::from(queues) + 1;
        let expected = Body::new()
            .u32(16)
            .u32(EVENTFD | MASKABLE)
            .u32(2)
            .u32(count);
        assert_eq!(reply.ok(), expected.0);
        // The number in configuration space is one less (PCI 3.0, 6.8.2.3).
        let capability = find_capability(&mut host, 0x11);
        let control = host.region_read(7, capability + 2, 2);
        assert_eq!(u32::from(control[0]) + 1, count);
    }
}

fn find_capability(host: &mut Host, id: u8) -> u64 {
    let config = host.region_read(7, 0, 256);
    let mut at = usize::from(config[0x34]);
    while config[at] != id {
        at = usize::from(config[at + 1]);
        assert_ne!(at, 0, "the capability {id:#x} is there");
    }
    at as u64
}

#[test]
fn msi_has_as_many_rounded_up_and_32_at_most() {
    for (queues, count) in [(1, 2), (3, 4), (4, 8), (64, 32)] {
        let server = crate::serve(&Options {
            queues,
            ..Options::default()
        });
        let mut host = Host::new(server.attach(0));
        let expected = Body::new().u32(16).u32(EVENTFD | MASKABLE);
        let expected = expected.u32(1).u32(count);
        assert_eq!(ask(&mut host, 16, 1).ok(), expected.0);
        // Multiple Message Capable, bits 3:1 of Message Control, is the logarithm (PCI 3.0,
        // 6.8.1.3).
        let capability = find_capability(&mut host, 0x05);
        let control = host.region_read(7, capability + 2, 2);
        assert_eq!(1 << (control[0] >> 1 & 0b111), count);
    }
}

#[test]
fn a_controller_without_msix_has_messages_only() {
    let server = crate::serve(&Options {
        msix: false,
        ..Options::default()
    });
    let mut host = Host::new(server.attach(0));
    let none = Body::new().u32(16).u32(0).u32(2).u32(0);
    assert_eq!(ask(&mut host, 16, 2).ok(), none.0);
    let messages = Body::new().u32(16).u32(EVENTFD | MASKABLE);
    assert_eq!(ask(&mut host, 16, 1).ok(), messages.u32(1).u32(4).0);
    let config = host.region_read(7, 0, 256);
    let mut at = usize::from(config[0x34]);
    while at != 0 {
        assert_ne!(config[at], 0x11, "no MSI-X capability");
        at = usize::from(config[at + 1]);
    }
    // GET_REGION_INFO of BAR4: nothing is there.
    let body = Body::new().u32(32).u32(0).u32(4).u32(0).u64(0).u64(0);
    let reply = host.request(cmd::GET_REGION_INFO, &body, &[]);
    assert_eq!((reply.u32(4), reply.u64(16)), (0, 0), "flags and size");
}

#[test]
fn the_pin_is_one_that_masks_itself() {
    let server = crate::serve(&Options {
        intx: true,
        ..Options::default()
    });
    let mut host = Host::new(server.attach(0));
    let flags = EVENTFD | MASKABLE | AUTOMASKED;
    let expected = Body::new().u32(16).u32(flags).u32(0).u32(1);
    assert_eq!(ask(&mut host, 16, 0).ok(), expected.0);
    assert_eq!(host.region_read(7, 0x3d, 1), [1], "INTA#");
}

#[test]
fn the_other_types_have_none() {
    // The pin is 0, so that QEMU does not turn the mapping of BAR0 off around interrupts.
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for index in [0, 3, 4] {
        let expected = Body::new().u32(16).u32(0).u32(index).u32(0);
        assert_eq!(ask(&mut host, 16, index).ok(), expected.0);
    }
    assert_eq!(host.region_read(7, 0x3d, 1), [0]);
}

#[test]
fn vectors_may_be_assigned_one_after_the_other() {
    // NORESIZE would make QEMU disable all of them for each that it adds.
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for index in 0..5 {
        assert_eq!(ask(&mut host, 16, index).u32(4) & NORESIZE, 0);
    }
}

#[test]
fn a_request_that_is_wrong_is_refused() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for (argsz, index) in [(16, 5), (16, u32::MAX), (15, 2), (0, 2)] {
        assert_eq!(ask(&mut host, argsz, index).errno(), errno::EINVAL);
    }
    let reply = host.request(cmd::GET_IRQ_INFO, &Body::new().u64(16), &[]);
    assert_eq!(reply.errno(), errno::EINVAL);
    host.expect_in_step();
}
