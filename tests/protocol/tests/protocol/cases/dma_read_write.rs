//! DMA_READ and DMA_WRITE: messages of a server. Ours never sends one: memory that comes without a
//! descriptor is not reached, and a host that is asked something while it waits for its own reply
//! would stall for 5 s.

use std::time::{Duration, Instant};

use tests_protocol::{Body, Host, Options, cmd, errno};

#[test]
fn a_host_cannot_send_them() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for command in [cmd::DMA_READ, cmd::DMA_WRITE] {
        let body = Body::new().u64(0x1000).u64(4).u32(0);
        let reply = host.request(command, &body, &[]);
        assert_eq!(reply.errno(), errno::EOPNOTSUPP);
    }
    host.expect_in_step();
}

#[test]
fn replies_to_what_was_never_asked_are_ignored() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    const REPLY: u32 = 1;
    const ERROR: u32 = 1 << 5;
    for command in [cmd::DMA_READ, cmd::DMA_WRITE, cmd::VERSION, 99] {
        let body = Body::new().u64(0x1000).u64(4).u32(0);
        host.send_with_flags(command, REPLY, &body, &[]);
        host.send_with_flags(command, REPLY | ERROR, &Body::new(), &[]);
    }
    host.expect_in_step();
}

#[test]
fn an_access_to_memory_without_a_descriptor_fails_and_asks_nothing() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let map = Body::new()
        .u32(32)
        .u32(3)
        .u64(0)
        .u64(0x1_0000)
        .u64(0x1_0000);
    assert!(host.request(cmd::DMA_MAP, &map, &[]).ok().is_empty());
    host.region_write(0, 0x24, &0x000f_000f_u32.to_le_bytes());
    host.region_write(0, 0x28, &0x1_0000_u64.to_le_bytes());
    host.region_write(0, 0x30, &0x1_1000_u64.to_le_bytes());
    host.region_write(0, 0x14, &0x0046_0001_u32.to_le_bytes());
    // CSTS.CFS; every message that comes is a reply to a read.
    let deadline = Instant::now() + Duration::from_secs(20);
    while host.read32(0, 0x1c) & 0b10 == 0 {
        assert!(Instant::now() < deadline, "the controller does not fail");
        std::thread::yield_now();
    }
}
