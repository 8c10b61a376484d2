//! DEVICE_GET_INFO: what the device consists of.

use tests_protocol::{Body, Host, Options, cmd, errno};

fn request(argsz: u32) -> Body {
    Body::new().u32(argsz).u32(0).u32(0).u32(0)
}

/// A PCI device that can be reset, with 9 regions and 5 types of interrupts.
fn expected() -> Body {
    Body::new().u32(16).u32(0b11).u32(9).u32(5)
}

#[test]
fn it_is_a_pci_device_that_can_be_reset() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let reply = host.request(cmd::GET_INFO, &request(16), &[]);
    assert_eq!(reply.ok(), expected().0);
}

#[test]
fn a_longer_request_is_as_good() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let longer = request(64).bytes(&[0xff; 48]);
    let reply = host.request(cmd::GET_INFO, &longer, &[]);
    assert_eq!(reply.ok(), expected().0);
}

#[test]
fn a_request_or_a_buffer_that_is_too_short_is_refused() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for body in [
        Body::new(),
        Body::new().u32(16).u32(0).u32(0),
        request(15),
        request(0),
    ] {
        let reply = host.request(cmd::GET_INFO, &body, &[]);
        assert_eq!(reply.errno(), errno::EINVAL, "{body:?}");
    }
    host.expect_in_step();
}
