//! VERSION: the first message.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use tests_protocol::{Body, Host, Options, Server, cmd, errno};

fn server() -> Server {
    crate::serve(&Options::default())
}

/// The text of a version's body, without its NUL.
fn text(body: &[u8]) -> String {
    let (last, text) = body[4..].split_last().expect("there is text");
    assert_eq!(*last, 0, "the text ends with NUL");
    String::from_utf8(text.to_vec()).unwrap()
}

#[test]
fn the_minor_version_is_the_lower_of_both() {
    // QEMU proposes 0.0 and refuses more; SPDK and cloud-hypervisor propose 0.1; what comes later
    // must be able to talk to us too.
    let server = server();
    for (proposed, agreed) in [(0, 0), (1, 1), (2, 1), (u16::MAX, 1)] {
        let mut host = Host::silent(server.attach(0));
        let body = Body::new().u16(0).u16(proposed).bytes(b"{}\0");
        let reply = host.request(cmd::VERSION, &body, &[]).ok();
        assert_eq!(reply[..4], Body::new().u16(0).u16(agreed).0[..]);
        drop(host);
        let _ = server.wait_for_end(0);
    }
}

#[test]
fn the_reply_to_qemu_fits_in_its_buffer_of_214_bytes() {
    let server = server();
    let mut host = Host::silent(server.attach(0));
    let body = Host::qemu_version();
    assert_eq!(16 + body.0.len(), 214, "it is QEMU's, to the byte");
    let reply = host.request(cmd::VERSION, &body, &[]).ok();
    assert!(16 + reply.len() <= 214, "{} bytes", reply.len());
}

#[test]
fn only_two_capabilities_are_named() {
    let server = server();
    let mut host = Host::silent(server.attach(0));
    let reply = host.request(cmd::VERSION, &Host::qemu_version(), &[]).ok();
    let expected = r#"{"capabilities":{"max_msg_fds":16,"max_data_xfer_size":1048576}}"#;
    assert_eq!(text(&reply), expected);
}

#[test]
fn the_version_data_may_be_absent() {
    // SPDK sends the two numbers alone.
    let server = server();
    let mut host = Host::silent(server.attach(0));
    let reply = host.request(cmd::VERSION, &Body::new().u16(0).u16(1), &[]);
    assert_eq!(reply.ok()[..4], [0, 0, 1, 0]);
    host.expect_in_step();
}

#[test]
fn unknown_capabilities_are_ignored() {
    let server = server();
    let mut host = Host::silent(server.attach(0));
    let text = br#"{"capabilities":{"twin_socket":{"supported":true},"new":[1]},"more":null}"#;
    let body = Body::new().u16(0).u16(1).bytes(text).bytes(&[0]);
    let reply = host.request(cmd::VERSION, &body, &[]);
    assert!(reply.fds.is_empty());
    assert!(!self::text(&reply.ok()).contains("twin"));
    host.expect_in_step();
}

#[test]
fn another_major_version_is_refused_and_may_be_followed_by_ours() {
    let server = server();
    let mut host = Host::silent(server.attach(0));
    let reply = host.request(cmd::VERSION, &Body::new().u16(1).u16(0), &[]);
    assert_eq!(reply.errno(), errno::EINVAL);
    let _ = host.request(cmd::VERSION, &Host::qemu_version(), &[]).ok();
    host.expect_in_step();
}

#[test]
fn version_data_that_are_no_json_are_refused() {
    let server = server();
    let mut host = Host::silent(server.attach(0));
    for bad in [
        &b"{\0"[..],
        b"7\0",
        b"{\"capabilities\":7}\0",
        b"\xff\xfe\0",
    ] {
        let body = Body::new().u16(0).u16(0).bytes(bad);
        let reply = host.request(cmd::VERSION, &body, &[]);
        assert_eq!(reply.errno(), errno::EINVAL, "{bad:?}");
    }
    let reply = host.request(cmd::VERSION, &Body::new().u16(0), &[]);
    assert_eq!(reply.errno(), errno::EINVAL, "a body of two bytes");
    let long = Body::new().u16(0).u16(0).bytes(&vec![b' '; 1 << 20]);
    assert_eq!(
        host.request(cmd::VERSION, &long, &[]).errno(),
        errno::EINVAL
    );
    let _ = host.request(cmd::VERSION, &Host::qemu_version(), &[]).ok();
}

#[test]
fn everything_before_it_is_refused() {
    let server = server();
    let mut host = Host::silent(server.attach(0));
    for command in (2..=13).chain([15, 16, 17, 18, 99]) {
        let body = Body::new().bytes(&[0; 64]);
        let reply = host.request(command, &body, &[]);
        assert_eq!(reply.errno(), errno::EINVAL, "command {command}");
    }
    let _ = host.request(cmd::VERSION, &Host::qemu_version(), &[]).ok();
    host.expect_in_step();
}

#[test]
fn a_second_one_is_refused() {
    let server = server();
    let mut host = Host::new(server.attach(0));
    let reply = host.request(cmd::VERSION, &Host::qemu_version(), &[]);
    assert_eq!(reply.errno(), errno::EINVAL);
    host.expect_in_step();
}

#[test]
fn without_a_reply_it_counts_all_the_same() {
    let server = server();
    let mut host = Host::silent(server.attach(0));
    host.post(cmd::VERSION, &Host::qemu_version(), &[]);
    host.expect_in_step();
}
