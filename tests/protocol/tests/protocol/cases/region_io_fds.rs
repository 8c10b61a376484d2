//! DEVICE_GET_REGION_IO_FDS: there are none. No client that is known asks.

use tests_protocol::{Body, Host, Options, cmd, errno};

fn request(argsz: u32, flags: u32, index: u32) -> Body {
    Body::new().u32(argsz).u32(flags).u32(index).u32(0)
}

#[test]
fn the_list_of_every_region_is_empty() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for index in 0..9 {
        let reply = host.request(cmd::GET_REGION_IO_FDS, &request(4096, 0, index), &[]);
        assert!(reply.fds.is_empty());
        assert_eq!(reply.ok(), request(16, 0, index).0);
    }
}

#[test]
fn a_request_that_is_wrong_is_refused() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for body in [
        request(16, 0, 9),
        request(15, 0, 0),
        request(16, 1, 0),
        Body::new().u32(16).u64(0),
    ] {
        let reply = host.request(cmd::GET_REGION_IO_FDS, &body, &[]);
        assert_eq!(reply.errno(), errno::EINVAL, "{body:?}");
    }
    host.expect_in_step();
}
