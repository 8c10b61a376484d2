//! Commands that are not known, not offered, or not for servers: read to their end, refused, and in
//! step.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::os::fd::AsFd;

use tests_protocol::{Body, Host, Options, cmd, errno};

#[test]
fn they_are_refused_whatever_follows_their_header() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for command in [0, 14, 19, 99, 0x8000, u16::MAX] {
        for len in [0, 1, 16, 5000, 1 << 20] {
            let body = Body::new().bytes(&vec![0xa5; len]);
            let reply = host.request(command, &body, &[]);
            assert_eq!(reply.errno(), errno::EOPNOTSUPP, "{command} {len}");
        }
    }
    host.expect_in_step();
}

#[test]
fn migration_is_not_offered() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for command in [cmd::DEVICE_FEATURE, cmd::MIG_DATA_READ, cmd::MIG_DATA_WRITE] {
        let reply = host.request(command, &Body::new().u32(8).u32(1 << 18 | 1), &[]);
        assert_eq!(reply.errno(), errno::EOPNOTSUPP);
    }
}

#[test]
fn several_writes_in_one_message_are_not_offered() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let write = Body::new().u64(1).u64(0x24).u32(0).u32(4).u64(0xff);
    let reply = host.request(cmd::REGION_WRITE_MULTI, &write, &[]);
    assert_eq!(reply.errno(), errno::EOPNOTSUPP);
    assert_eq!(host.read32(0, 0x24), 0, "nothing was written");
}

#[test]
fn those_between_a_server_and_its_holder_are_no_hosts() {
    // KEEP, RESUME, RESUMED, PART.
    const BETWEEN: [u16; 4] = [0x4e01, 0x4e02, 0x4e03, 0x4e04];
    let server = crate::serve(&Options::default());
    let mut host = Host::silent(server.attach(0));
    let memory = memory::HostMemory::new(4096).unwrap();
    let fds = [memory.fd(); 2];
    for command in BETWEEN {
        let reply = host.request(command, &Body::new(), &fds);
        assert_eq!(reply.errno(), errno::EINVAL, "{command:#x} before VERSION");
    }
    let _ = host.request(cmd::VERSION, &Host::qemu_version(), &[]).ok();
    for command in BETWEEN {
        let reply = host.request(command, &Body::new(), &fds);
        assert_eq!(reply.errno(), errno::EOPNOTSUPP, "{command:#x}");
        for kind in 2..16 {
            let id = host.send_with_flags(command, kind, &Body::new(), &fds);
            let reply = host.receive();
            assert_eq!((reply.id, reply.errno()), (id, errno::EINVAL));
        }
        host.post(command, &Body::new(), &fds);
    }
    host.expect_in_step();
    assert!(server.all_attached());
}

#[test]
fn without_a_reply_they_are_dropped() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    host.post(99, &Body::new().bytes(&[0; 100]), &[]);
    host.expect_in_step();
}

#[test]
fn a_message_that_is_neither_command_nor_reply_is_refused() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    for kind in 2..16 {
        let info = Body::new().u32(16).u32(0).u32(0).u32(0);
        let id = host.send_with_flags(cmd::GET_INFO, kind, &info, &[]);
        let reply = host.receive();
        assert_eq!(reply.id, id);
        assert_eq!(reply.errno(), errno::EINVAL, "type {kind}");
    }
    host.expect_in_step();
}

#[test]
fn their_descriptors_are_closed() {
    let server = crate::serve(&Options::default());
    let mut host = Host::new(server.attach(0));
    let (reader, writer) = std::io::pipe().unwrap();
    let fds = [writer.as_fd(); 16];
    let reply = host.request(99, &Body::new(), &fds);
    assert_eq!(reply.errno(), errno::EOPNOTSUPP);
    // Nor may a message that needs none keep them.
    let read = Body::new().u64(0).u32(7).u32(4);
    let _ = host.request(cmd::REGION_READ, &read, &fds).ok();
    drop(writer);
    let end = rustix::io::read(&reader, &mut [0; 1]);
    assert_eq!(end, Ok(0), "nobody holds the writer's end any more");
}
