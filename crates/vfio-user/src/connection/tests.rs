//! Framing, descriptors and the backlog, over socket pairs.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::AsFd;

use proptest::prelude::*;
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use rustix::io::{FdFlags, fcntl_getfd};

use super::*;
use crate::{Command, SEND_BACKLOG_FDS, SEND_BACKLOG_LEN};

fn pair() -> (UnixStream, Connection) {
    let (peer, ours) = UnixStream::pair().unwrap();
    (peer, Connection::new(ours).unwrap())
}

fn message(id: u16, command: Command, body: &[u8]) -> Vec<u8> {
    let mut header = Header::request(id, command);
    header.size = (HEADER_LEN + body.len()) as u32;
    [header.as_bytes(), body].concat()
}

/// Sends bytes with descriptors in one system call.
fn send_raw(socket: &UnixStream, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
    let mut space = vec![MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(64))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    assert!(control.push(SendAncillaryMessage::ScmRights(fds)));
    let parts = [IoSlice::new(bytes)];
    let sent = sendmsg(socket, &parts, &mut control, SendFlags::NOSIGNAL).unwrap();
    assert_eq!(sent, bytes.len());
}

fn memfd() -> OwnedFd {
    memfd_create("test", MemfdFlags::CLOEXEC).unwrap()
}

fn inode(fd: impl AsFd) -> u64 {
    fstat(fd).unwrap().st_ino
}

/// A pipe whose read end sees the end of file once every copy of the write end is closed.
fn canary() -> (File, OwnedFd) {
    let (read, write) = rustix::pipe::pipe().unwrap();
    rustix::io::ioctl_fionbio(&read, true).unwrap();
    (File::from(read), write)
}

fn all_closed(mut read: File) -> bool {
    matches!(read.read(&mut [0]), Ok(0))
}

fn expect_none(connection: &mut Connection) {
    assert!(connection.receive().unwrap().is_none());
}

/// The id, body and inodes of the descriptors of the next message.
fn next(connection: &mut Connection) -> Option<(u16, Vec<u8>, Vec<u64>)> {
    connection.receive().unwrap().map(|message| {
        assert!(!message.fds_truncated);
        let inodes = message.fds.iter().map(inode).collect();
        (message.header.id, message.body.to_vec(), inodes)
    })
}

#[test]
fn a_message_that_trickles_in_byte_by_byte_arrives_once_whole() {
    let (mut peer, mut connection) = pair();
    let bytes = message(7, Command::REGION_WRITE, b"abcdef");
    for (index, byte) in bytes.iter().enumerate() {
        expect_none(&mut connection);
        peer.write_all(&[*byte]).unwrap();
        if index + 1 < bytes.len() {
            expect_none(&mut connection);
        }
    }
    assert_eq!(next(&mut connection), Some((7, b"abcdef".to_vec(), vec![])));
    expect_none(&mut connection);
}

#[test]
fn two_messages_in_one_write_are_two_messages() {
    let (mut peer, mut connection) = pair();
    let bytes = [
        message(1, Command::DEVICE_RESET, b""),
        message(2, Command::DMA_UNMAP, b"xyz"),
    ]
    .concat();
    peer.write_all(&bytes).unwrap();
    assert_eq!(next(&mut connection), Some((1, vec![], vec![])));
    assert_eq!(next(&mut connection), Some((2, b"xyz".to_vec(), vec![])));
    expect_none(&mut connection);
}

#[test]
fn an_unknown_command_with_a_body_keeps_the_connection_in_step() {
    let (mut peer, mut connection) = pair();
    peer.write_all(&message(1, Command(999), &[9; 5000]))
        .unwrap();
    peer.write_all(&message(2, Command::DEVICE_RESET, b""))
        .unwrap();
    assert_eq!(next(&mut connection), Some((1, vec![9; 5000], vec![])));
    assert_eq!(next(&mut connection), Some((2, vec![], vec![])));
}

#[test]
fn descriptors_belong_to_the_message_they_came_with() {
    let (mut peer, mut connection) = pair();
    let files = [memfd(), memfd(), memfd()];
    let inodes: Vec<_> = files.iter().map(inode).collect();
    // First without, second with two, third without, fourth with one.
    peer.write_all(&message(1, Command::DMA_MAP, b"one"))
        .unwrap();
    let two = [files[0].as_fd(), files[1].as_fd()];
    send_raw(&peer, &message(2, Command::DMA_MAP, b"two"), &two);
    peer.write_all(&message(3, Command::DMA_MAP, b"")).unwrap();
    let one = [files[2].as_fd()];
    send_raw(&peer, &message(4, Command::DMA_MAP, b""), &one);

    assert_eq!(next(&mut connection), Some((1, b"one".to_vec(), vec![])));
    assert_eq!(
        next(&mut connection),
        Some((2, b"two".to_vec(), inodes[..2].to_vec()))
    );
    assert_eq!(next(&mut connection), Some((3, vec![], vec![])));
    assert_eq!(next(&mut connection), Some((4, vec![], vec![inodes[2]])));
    expect_none(&mut connection);
}

#[test]
fn descriptors_with_the_header_the_body_or_a_later_byte_are_the_message_s() {
    let file = memfd();
    let bytes = message(5, Command::DMA_MAP, b"body");
    for split in [1, HEADER_LEN, HEADER_LEN + 1, bytes.len() - 1] {
        let (mut peer, mut connection) = pair();
        peer.write_all(&bytes[..split]).unwrap();
        send_raw(&peer, &bytes[split..], &[file.as_fd()]);
        peer.write_all(&message(6, Command::DEVICE_RESET, b""))
            .unwrap();
        let expected = Some((5, b"body".to_vec(), vec![inode(&file)]));
        assert_eq!(next(&mut connection), expected, "split at {split}");
        assert_eq!(next(&mut connection), Some((6, vec![], vec![])));
    }
}

#[test]
fn received_descriptors_are_close_on_exec() {
    let (peer, mut connection) = pair();
    let file = memfd();
    send_raw(
        &peer,
        &message(1, Command::DMA_MAP, b""),
        &[file.as_fd(), file.as_fd()],
    );
    let message = connection.receive().unwrap().unwrap();
    assert_eq!(message.fds.len(), 2);
    for fd in &message.fds {
        assert!(fcntl_getfd(fd).unwrap().contains(FdFlags::CLOEXEC));
    }
}

#[test]
fn sixteen_descriptors_fit_in_one_message() {
    let (peer, mut connection) = pair();
    let file = memfd();
    let bytes = message(1, Command::DEVICE_SET_IRQS, &[0; 20]);
    send_raw(&peer, &bytes, &[file.as_fd(); MAX_FDS]);
    let message = connection.receive().unwrap().unwrap();
    assert_eq!(message.fds.len(), 16);
    assert!(!message.fds_truncated);
}

#[test]
fn more_descriptors_than_fit_are_noted_and_closed() {
    for count in [17, 18, 19, 40] {
        let (peer, mut connection) = pair();
        let (read, write) = canary();
        let bytes = message(1, Command::DEVICE_SET_IRQS, b"");
        send_raw(&peer, &bytes, &vec![write.as_fd(); count]);
        drop(write);
        {
            let message = connection.receive().unwrap().unwrap();
            assert_eq!(message.fds.len(), 16, "{count} sent");
            assert!(message.fds_truncated, "{count} sent");
        }
        assert!(all_closed(read), "{count} sent");
        // The next message is not blamed.
        let reset = Header::request(2, Command::DEVICE_RESET);
        send_raw(&peer, reset.as_bytes(), &[]);
        assert_eq!(next(&mut connection), Some((2, vec![], vec![])));
    }
}

#[test]
fn descriptors_with_every_byte_are_bounded() {
    let (peer, mut connection) = pair();
    let (read, write) = canary();
    let bytes = message(1, Command::DMA_MAP, &[0; 24]);
    for byte in &bytes {
        send_raw(&peer, &[*byte], &[write.as_fd(), write.as_fd()]);
        if connection.header_len < HEADER_LEN || connection.body_len < 23 {
            expect_none(&mut connection);
        }
        assert!(connection.fds.len() <= MAX_FDS);
    }
    drop(write);
    let message = connection.receive().unwrap().unwrap();
    assert_eq!(message.fds.len(), MAX_FDS);
    assert!(message.fds_truncated);
    drop(message);
    assert!(all_closed(read));
}

#[test]
fn descriptors_of_a_message_that_never_completes_are_closed() {
    let (peer, mut connection) = pair();
    let (read, write) = canary();
    let bytes = message(1, Command::DMA_MAP, &[0; 32]);
    send_raw(&peer, &bytes[..20], &[write.as_fd()]);
    drop(write);
    expect_none(&mut connection);
    drop(peer);
    assert!(matches!(connection.receive(), Err(ConnectionError::Closed)));
    drop(connection);
    assert!(all_closed(read));
}

#[test]
fn a_size_out_of_bounds_loses_the_framing_for_good() {
    let too_long = MAX_MESSAGE_LEN as u32 + 1;
    for size in [0, 1, 15, too_long, u32::MAX] {
        let (mut peer, mut connection) = pair();
        let mut header = Header::request(1, Command::REGION_WRITE);
        header.size = size;
        peer.write_all(header.as_bytes()).unwrap();
        peer.write_all(&message(2, Command::DEVICE_RESET, b""))
            .unwrap();
        for _ in 0..2 {
            match connection.receive() {
                Err(ConnectionError::FramingLost { size: reported }) => assert_eq!(reported, size),
                other => panic!("size {size}: {other:?}"),
            }
        }
    }
}

#[test]
fn the_smallest_and_the_largest_message_arrive() {
    let (mut peer, mut connection) = pair();
    let largest = vec![0xa5; MAX_MESSAGE_LEN - HEADER_LEN];
    let bytes = [
        message(1, Command::DEVICE_RESET, b""),
        message(2, Command::REGION_WRITE, &largest),
    ]
    .concat();
    let writer = std::thread::spawn(move || {
        peer.write_all(&bytes).unwrap();
        peer
    });
    let mut received = Vec::new();
    while received.len() < 2 {
        match next(&mut connection) {
            Some(message) => received.push(message),
            None => std::thread::yield_now(),
        }
    }
    assert_eq!(received[0], (1, vec![], vec![]));
    assert!(received[1] == (2, largest, vec![]));
    assert!(connection.body.capacity() <= MAX_MESSAGE_LEN);
    drop(writer.join().unwrap());
}

#[test]
fn room_for_a_body_grows_only_with_bytes_that_arrived() {
    let (mut peer, mut connection) = pair();
    let mut header = Header::request(1, Command::REGION_WRITE);
    header.size = MAX_MESSAGE_LEN as u32;
    peer.write_all(header.as_bytes()).unwrap();
    expect_none(&mut connection);
    assert_eq!(connection.body.capacity(), BODY_START_LEN);
    for arrived in (1..=64).map(|chunks| chunks * 1000) {
        peer.write_all(&[0; 1000]).unwrap();
        expect_none(&mut connection);
        assert!(connection.body.capacity() <= BODY_START_LEN.max(2 * arrived));
    }
}

#[test]
fn small_messages_do_not_allocate() {
    let (mut peer, mut connection) = pair();
    let room = connection.body.as_ptr();
    for id in 0..100 {
        peer.write_all(&message(id, Command::REGION_WRITE, &[1; 64]))
            .unwrap();
        assert!(next(&mut connection).is_some());
    }
    assert_eq!(connection.body.as_ptr(), room);
    assert_eq!(connection.body.capacity(), BODY_START_LEN);
}

#[test]
fn a_peer_that_closes_is_closed_wherever_it_stopped() {
    let bytes = message(1, Command::DMA_MAP, &[0; 32]);
    for sent in [0, 1, 15, 16, 17, 47] {
        let (mut peer, mut connection) = pair();
        peer.write_all(&bytes[..sent]).unwrap();
        drop(peer);
        assert!(
            matches!(connection.receive(), Err(ConnectionError::Closed)),
            "after {sent} bytes"
        );
    }
    // A whole message before the close is delivered.
    let (mut peer, mut connection) = pair();
    peer.write_all(&bytes).unwrap();
    drop(peer);
    assert_eq!(next(&mut connection), Some((1, vec![0; 32], vec![])));
    assert!(matches!(connection.receive(), Err(ConnectionError::Closed)));
}

#[test]
fn sending_to_a_closed_peer_is_closed() {
    let (peer, mut connection) = pair();
    drop(peer);
    let reset = Header::request(1, Command::DEVICE_RESET);
    assert!(matches!(
        connection.send(&reset, &[], &[]),
        Err(ConnectionError::Closed)
    ));
}

#[test]
fn a_peer_that_closes_with_our_message_unread_is_closed() {
    let (peer, mut connection) = pair();
    let reset = Header::request(1, Command::DEVICE_RESET);
    connection.send(&reset, &[], &[]).unwrap();
    drop(peer);
    assert!(matches!(connection.receive(), Err(ConnectionError::Closed)));
}

#[test]
fn replies_echo_the_request_and_errors_are_a_header_alone() {
    let (mut peer, mut connection) = pair();
    let request = Header::request(0xbeef, Command::REGION_READ);
    connection.reply(&request, &[b"he", b"ad"], &[]).unwrap();
    connection.reply_error(&request, 95).unwrap();
    let mut bytes = [0; 36];
    peer.read_exact(&mut bytes).unwrap();
    assert_eq!(
        bytes,
        [
            0xef, 0xbe, 9, 0, 20, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, b'h', b'e', b'a',
            b'd', // reply
            0xef, 0xbe, 9, 0, 16, 0, 0, 0, 0x21, 0, 0, 0, 95, 0, 0, 0, // refusal
        ]
    );
}

#[test]
fn a_command_that_wants_no_reply_gets_none() {
    let (peer, mut connection) = pair();
    let request = Header::posted(1, Command::REGION_WRITE);
    connection.reply(&request, &[b"body"], &[]).unwrap();
    connection.reply_error(&request, 22).unwrap();
    peer.set_nonblocking(true).unwrap();
    let error = (&peer).read(&mut [0]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_body_in_many_parts_is_sent_whole() {
    let (peer, mut connection) = pair();
    let mut receiver = Connection::new(peer).unwrap();
    let parts: Vec<Vec<u8>> = (0..50u8)
        .map(|part| vec![part; usize::from(part)])
        .collect();
    let slices: Vec<&[u8]> = parts.iter().map(Vec::as_slice).collect();
    let header = Header::request(3, Command::REGION_WRITE);
    // It takes several system calls; the descriptor goes with the first only.
    let file = memfd();
    connection.send(&header, &slices, &[file.as_fd()]).unwrap();
    assert!(!connection.wants_write());
    let expected = Some((3, parts.concat(), vec![inode(&file)]));
    assert_eq!(next(&mut receiver), expected);
}

#[test]
fn a_message_taken_in_part_has_its_descriptors_once() {
    let (peer, mut connection) = pair();
    let mut receiver = Connection::new(peer).unwrap();
    let body = vec![1; MAX_MESSAGE_LEN - HEADER_LEN];
    let file = memfd();
    let header = Header::request(1, Command::REGION_WRITE);
    connection.send(&header, &[&body], &[file.as_fd()]).unwrap();
    assert!(connection.wants_write(), "the socket took a whole mebibyte");
    let received = loop {
        match next(&mut receiver) {
            Some(message) => break message,
            None => connection.flush().unwrap(),
        };
    };
    assert!(received == (1, body, vec![inode(&file)]));
}

#[test]
fn what_cannot_be_a_message_is_not_sent() {
    let (peer, mut connection) = pair();
    let header = Header::request(1, Command::REGION_WRITE);
    let body = vec![0; MAX_MESSAGE_LEN - HEADER_LEN + 1];
    assert!(matches!(
        connection.send(&header, &[&body], &[]),
        Err(ConnectionError::TooLong { size }) if size == MAX_MESSAGE_LEN + 1
    ));
    let file = memfd();
    assert!(matches!(
        connection.send(&header, &[], &[file.as_fd(); MAX_FDS + 1]),
        Err(ConnectionError::TooManyDescriptors { count: 17 })
    ));
    // No part of either was sent.
    let mut receiver = Connection::new(peer).unwrap();
    expect_none(&mut receiver);
    connection
        .send(&header, &[], &[file.as_fd(); MAX_FDS])
        .unwrap();
    let received = next(&mut receiver).unwrap();
    assert_eq!(received, (1, vec![], vec![inode(&file); MAX_FDS]));
}

#[test]
fn the_backlog_is_bounded_and_nothing_of_it_is_lost() {
    let (peer, mut connection) = pair();
    let mut receiver = Connection::new(peer).unwrap();
    let body = |id: u16| vec![id as u8; 100_000 + usize::from(id)];
    let mut sent = 0;
    let backlog = loop {
        let header = Header::request(sent, Command::REGION_WRITE);
        match connection.send(&header, &[&body(sent)], &[]) {
            Ok(()) => sent += 1,
            Err(error) => break error,
        }
        assert!(sent < 1000, "the backlog has no bound");
    };
    assert!(matches!(backlog, ConnectionError::Backlog));
    assert!(usize::from(sent) * 100_000 > SEND_BACKLOG_LEN - 200_000);
    assert!(connection.wants_write());
    assert!(!connection.flush().unwrap());

    let mut received = 0;
    while received < sent {
        match next(&mut receiver) {
            Some(message) => {
                assert!(message == (received, body(received), vec![]));
                received += 1;
            }
            None => {
                connection.flush().unwrap();
            }
        }
    }
    assert!(connection.flush().unwrap());
    assert!(!connection.wants_write());
    // The message that was refused has left no trace, and the connection works on.
    expect_none(&mut receiver);
    let header = Header::request(sent, Command::DEVICE_RESET);
    connection.send(&header, &[], &[]).unwrap();
    assert_eq!(next(&mut receiver), Some((sent, vec![], vec![])));
}

#[test]
fn queued_descriptors_go_with_their_message() {
    let (peer, mut connection) = pair();
    let mut receiver = Connection::new(peer).unwrap();
    let filler = vec![1; MAX_MESSAGE_LEN - HEADER_LEN];
    let mut expected = Vec::new();
    let header = Header::request(0, Command::REGION_WRITE);
    connection.send(&header, &[&filler], &[]).unwrap();
    assert!(connection.wants_write(), "the socket took a whole mebibyte");
    expected.push((0, filler, vec![]));
    for id in 1..30u16 {
        let files: Vec<_> = (0..id % 4).map(|_| memfd()).collect();
        let fds: Vec<_> = files.iter().map(AsFd::as_fd).collect();
        let inodes: Vec<_> = files.iter().map(inode).collect();
        let body = vec![id as u8; usize::from(id) * 100];
        let header = Header::request(id, Command::DMA_MAP);
        connection.send(&header, &[&body], &fds).unwrap();
        expected.push((id, body, inodes));
        // The caller's descriptors are closed here: duplicates are queued.
    }
    let mut received = Vec::new();
    while received.len() < expected.len() {
        match next(&mut receiver) {
            Some(message) => received.push(message),
            None => {
                connection.flush().unwrap();
            }
        }
    }
    assert!(received == expected);
    assert!(connection.flush().unwrap());
}

#[test]
fn queued_descriptors_are_bounded() {
    let (peer, mut connection) = pair();
    let mut receiver = Connection::new(peer).unwrap();
    let filler = vec![1; MAX_MESSAGE_LEN - HEADER_LEN];
    let header = Header::request(0, Command::REGION_WRITE);
    connection.send(&header, &[&filler], &[]).unwrap();
    let (read, write) = canary();
    let mut queued = 0;
    while connection
        .send(&header, &[], &[write.as_fd(), write.as_fd()])
        .is_ok()
    {
        queued += 2;
        assert!(queued <= SEND_BACKLOG_FDS);
    }
    assert_eq!(queued, SEND_BACKLOG_FDS);
    // Sent messages make room again.
    while !connection.flush().unwrap() {
        while receiver.receive().unwrap().is_some() {}
    }
    let one = [write.as_fd()];
    connection.send(&header, &[&filler], &one).unwrap();
    connection.send(&header, &[], &one).unwrap();
    assert!(connection.wants_write());
    drop(write);
    drop(connection);
    drop(receiver);
    assert!(all_closed(read));
}

#[test]
fn the_limits_are_those_of_the_protocol() {
    assert_eq!(MAX_MESSAGE_LEN, 1_052_672);
    const { assert!(SEND_BACKLOG_LEN >= MAX_MESSAGE_LEN) };
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// However the stream is cut, the same messages come out.
    #[test]
    fn messages_do_not_depend_on_how_the_stream_is_cut(
        bodies in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..600), 1..8),
        cuts in prop::collection::vec(1usize..200, 1..40),
    ) {
        let (mut peer, mut connection) = pair();
        let stream: Vec<u8> = bodies
            .iter()
            .zip(0..)
            .flat_map(|(body, id)| message(id, Command::REGION_WRITE, body))
            .collect();
        let mut received = Vec::new();
        let mut rest = &stream[..];
        for cut in cuts.iter().cycle() {
            if rest.is_empty() {
                break;
            }
            let (now, later) = rest.split_at((*cut).min(rest.len()));
            peer.write_all(now).unwrap();
            rest = later;
            while let Some((id, body, _)) = next(&mut connection) {
                prop_assert_eq!(usize::from(id), received.len());
                received.push(body);
            }
        }
        prop_assert_eq!(received, bodies);
    }

    /// Any bytes end in a message, in waiting, or in an error; never in a panic or without end.
    #[test]
    fn arbitrary_streams_end(bytes in prop::collection::vec(any::<u8>(), 0..2000), small: bool) {
        let (mut peer, mut connection) = pair();
        let mut bytes = bytes;
        if small && bytes.len() > 8 {
            bytes[4..8].copy_from_slice(&20u32.to_le_bytes());
        }
        peer.write_all(&bytes).unwrap();
        drop(peer);
        for _ in 0..=bytes.len() / HEADER_LEN + 1 {
            match connection.receive() {
                Ok(Some(_)) => {}
                Ok(None) => prop_assert!(false, "waits for a peer that has closed"),
                Err(_) => return Ok(()),
            }
        }
        prop_assert!(false, "more messages than headers");
    }
}
