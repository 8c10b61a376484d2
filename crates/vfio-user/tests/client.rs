//! The client against a scripted server at the other end of a socket pair.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, fstat, memfd_create};
use vfio_user::message::{
    Access, Capabilities, DeviceFlags, DeviceInfo, DmaAccess, DmaMap, DmaMapFlags, DmaUnmap,
    IrqAction, IrqData, IrqFlags, IrqInfo, RegionFlags, RegionInfo, SetIrqs, SparseArea, Version,
};
use vfio_user::{Client, ClientError, Command, Connection, ConnectionError, Header};

/// Longer than any test needs; reached only when something hangs.
const LONG: Duration = Duration::from_secs(20);
const SHORT: Duration = Duration::from_millis(50);

type Received = (Header, Vec<u8>, Vec<OwnedFd>);

/// The server's side: one message at a time.
struct Server(Connection);

impl Server {
    fn wait(&self, flags: PollFlags) {
        let mut fds = [PollFd::new(&self.0, flags)];
        let limit = rustix::event::Timespec::try_from(LONG).unwrap();
        assert_eq!(poll(&mut fds, Some(&limit)).unwrap(), 1, "nothing came");
    }

    fn try_receive(&mut self) -> Result<Received, ConnectionError> {
        loop {
            if let Some(message) = self.0.receive()? {
                assert!(!message.fds_truncated);
                let fds = message.fds.into_iter().collect();
                return Ok((message.header, message.body.to_vec(), fds));
            }
            self.wait(PollFlags::IN);
        }
    }

    fn expect(&mut self, command: Command) -> Received {
        let received = self.try_receive().unwrap();
        assert_eq!(received.0.command, command);
        received
    }

    fn reply(&mut self, request: &Header, body: &[u8]) {
        self.0.reply(request, &[body], &[]).unwrap();
    }

    fn answer_version(&mut self, capabilities: Capabilities) -> Version {
        let (header, body, _) = self.expect(Command::VERSION);
        let proposed = Version::parse(&body).unwrap();
        let mut answer = proposed.answer().unwrap();
        answer.capabilities = capabilities;
        let mut body = Vec::new();
        answer.encode(&mut body);
        self.reply(&header, &body);
        proposed
    }
}

/// Runs a server until its script returns, and connects a client to it.
fn start<T: Send + 'static>(
    capabilities: Capabilities,
    script: impl FnOnce(Server) -> T + Send + 'static,
) -> (Client, JoinHandle<T>) {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut server = Server(Connection::new(theirs).unwrap());
        server.answer_version(capabilities);
        script(server)
    });
    (Client::from_stream(ours, LONG).unwrap(), server)
}

fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut body = Vec::new();
    encode(&mut body);
    body
}

fn memfd() -> OwnedFd {
    memfd_create("test", MemfdFlags::CLOEXEC).unwrap()
}

fn inode(fd: impl AsFd) -> u64 {
    fstat(fd).unwrap().st_ino
}

#[test]
fn the_proposal_and_the_answer_are_kept() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        let mut server = Server(Connection::new(theirs).unwrap());
        server.answer_version(Capabilities::ours())
    });
    let client = Client::from_stream(ours, LONG).unwrap();
    let proposed = server.join().unwrap();
    assert_eq!((proposed.major, proposed.minor), (0, 1));
    assert_eq!(proposed.capabilities.max_msg_fds, Some(16));
    assert_eq!(client.version().minor, 1);
    assert_eq!(client.capabilities().msg_fds(), 16);
}

#[test]
fn a_version_beyond_the_proposal_is_refused() {
    for (major, minor) in [(0, 2), (1, 0)] {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let server = std::thread::spawn(move || {
            let mut server = Server(Connection::new(theirs).unwrap());
            let (header, _, _) = server.expect(Command::VERSION);
            let answer = Version {
                major,
                minor,
                capabilities: Capabilities::default(),
            };
            server.reply(&header, &encoded(|out| answer.encode(out)));
        });
        match Client::from_stream(ours, LONG).err() {
            Some(ClientError::Version { major: a, minor: b }) => assert_eq!((a, b), (major, minor)),
            other => panic!("{other:?}"),
        }
        server.join().unwrap();
    }
}

#[test]
fn connect_tells_a_missing_socket_from_a_server_that_accepts_nobody() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    assert!(matches!(
        Client::connect(&path, LONG).err(),
        Some(ClientError::Connect(error)) if error.kind() == std::io::ErrorKind::NotFound
    ));

    // The server does not accept: the queue of the socket fills up, and connecting times out.
    let listener = UnixListener::bind(&path).unwrap();
    rustix::net::listen(&listener, 0).unwrap();
    let started = Instant::now();
    for _ in 0..3 {
        assert!(matches!(
            Client::connect(&path, SHORT).err(),
            Some(ClientError::Timeout)
        ));
    }
    assert!(started.elapsed() < LONG);

    drop(listener);
    assert!(matches!(
        Client::connect(&path, LONG).err(),
        Some(ClientError::Connect(error)) if error.kind() == std::io::ErrorKind::ConnectionRefused
    ));
}

#[test]
fn connect_reaches_a_server_by_its_path() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("server.sock");
    let listener = UnixListener::bind(&path).unwrap();
    let server = std::thread::spawn(move || {
        let (socket, _) = listener.accept().unwrap();
        let mut server = Server(Connection::new(socket).unwrap());
        server.answer_version(Capabilities::ours());
        let (reset, body, _) = server.expect(Command::DEVICE_RESET);
        assert!(body.is_empty());
        server.reply(&reset, &[]);
    });
    let mut client = Client::connect(&path, LONG).unwrap();
    client.reset().unwrap();
    server.join().unwrap();
}

#[test]
fn memory_is_mapped_with_its_descriptor_and_unmapped() {
    let file = memfd();
    let expected = inode(&file);
    let (mut client, server) = start(Capabilities::ours(), move |mut server| {
        let (header, body, fds) = server.expect(Command::DMA_MAP);
        let map = DmaMap::parse(&body).unwrap();
        assert_eq!(
            (map.argsz, map.offset, map.iova, map.size),
            (32, 0x2000, 0x10_0000, 0x4000)
        );
        assert_eq!(map.flags.0, 3);
        assert_eq!(fds.iter().map(inode).collect::<Vec<_>>(), [expected]);
        server.reply(&header, &[]);

        let (header, body, fds) = server.expect(Command::DMA_MAP);
        assert_eq!(DmaMap::parse(&body).unwrap().offset, 0);
        assert!(fds.is_empty());
        server.reply(&header, &[]);

        let (header, body, _) = server.expect(Command::DMA_UNMAP);
        server.reply(&header, &body);
        // The next one echoes another range.
        let (header, body, _) = server.expect(Command::DMA_UNMAP);
        let mut unmap = DmaUnmap::parse(&body).unwrap();
        unmap.size += 1;
        server.reply(&header, &encoded(|out| unmap.encode(out)));
    });
    let flags = DmaMapFlags::READ | DmaMapFlags::WRITE;
    client
        .dma_map(0x10_0000, 0x4000, flags, Some((file.as_fd(), 0x2000)))
        .unwrap();
    client.dma_map(0, 0x1000, flags, None).unwrap();
    client.dma_unmap(0x10_0000, 0x4000).unwrap();
    assert!(matches!(
        client.dma_unmap(0, 0x1000),
        Err(ClientError::Mismatch(Command::DMA_UNMAP))
    ));
    server.join().unwrap();
}

#[test]
fn region_info_is_asked_again_with_the_length_needed() {
    let file = memfd();
    let expected = inode(&file);
    let area = SparseArea {
        offset: 0x1000,
        size: 0x1000,
    };
    let (mut client, server) = start(Capabilities::ours(), move |mut server| {
        let mut asked = Vec::new();
        for _ in 0..3 {
            let (header, body, _) = server.expect(Command::DEVICE_GET_REGION_INFO);
            let request = RegionInfo::parse(&body).unwrap();
            asked.push((request.index, request.argsz));
            let mappable = request.index == 0;
            let mut info = request;
            info.flags = RegionFlags::READ | RegionFlags::WRITE;
            info.size = 0x4000;
            let areas = if mappable { &[area][..] } else { &[] };
            let mut reply = Vec::new();
            let whole = info.encode_reply(areas, request.argsz, &mut reply);
            let fds = [file.as_fd()];
            let fds = if whole && mappable { &fds[..] } else { &[] };
            server.0.reply(&header, &[&reply], fds).unwrap();
        }
        asked
    });
    let region = client.region_info(0).unwrap();
    assert_eq!(region.info.size, 0x4000);
    assert_eq!(region.areas, [area]);
    assert_eq!(region.fd.map(inode), Some(expected));
    let region = client.region_info(7).unwrap();
    assert!(region.areas.is_empty() && region.fd.is_none());
    assert_eq!(server.join().unwrap(), [(0, 32), (0, 64), (7, 32)]);
}

#[test]
fn device_and_irq_info_are_the_server_s() {
    let device = DeviceInfo {
        argsz: 16,
        flags: DeviceFlags::RESET | DeviceFlags::PCI,
        num_regions: 9,
        num_irqs: 5,
    };
    let irq = IrqInfo {
        argsz: 16,
        flags: IrqFlags::EVENTFD,
        index: 2,
        count: 33,
    };
    let (mut client, server) = start(Capabilities::ours(), move |mut server| {
        let (header, _, _) = server.expect(Command::DEVICE_GET_INFO);
        server.reply(&header, &encoded(|out| device.encode(out)));
        let (header, body, _) = server.expect(Command::DEVICE_GET_IRQ_INFO);
        assert_eq!(IrqInfo::parse(&body).unwrap().index, 2);
        server.reply(&header, &encoded(|out| irq.encode(out)));
        // A reply that is too short.
        let (header, _, _) = server.expect(Command::DEVICE_GET_INFO);
        server.reply(&header, &[0; 15]);
    });
    assert_eq!(client.device_info().unwrap(), device);
    assert_eq!(client.irq_info(2).unwrap(), irq);
    assert!(matches!(
        client.device_info(),
        Err(ClientError::Malformed(_))
    ));
    server.join().unwrap();
}

#[test]
fn eventfds_go_in_runs_as_long_as_the_server_takes() {
    let few = Capabilities {
        max_msg_fds: Some(8),
        ..Capabilities::default()
    };
    for (capabilities, runs) in [
        (Capabilities::ours(), vec![(5, 16), (21, 4)]),
        (few, vec![(5, 8), (13, 8), (21, 4)]),
        (
            Capabilities::default(),
            (5..25).map(|start| (start, 1)).collect(),
        ),
    ] {
        let (mut client, server) = start(capabilities, move |mut server| {
            let mut runs = Vec::new();
            loop {
                let (header, body, fds) = server.expect(Command::DEVICE_SET_IRQS);
                let set = SetIrqs::parse(&body).unwrap();
                server.reply(&header, &[]);
                assert_eq!((set.argsz, set.index), (20, 2));
                match set.operation().unwrap() {
                    (IrqAction::Trigger, IrqData::EventFd) => {
                        assert_eq!(set.count as usize, fds.len());
                        runs.push((set.start, set.count));
                    }
                    (IrqAction::Trigger, IrqData::None) => {
                        assert_eq!((set.start, set.count), (0, 0));
                        return runs;
                    }
                    other => panic!("{other:?}"),
                }
            }
        });
        let file = memfd();
        client.set_irqs(2, 5, &[file.as_fd(); 20]).unwrap();
        client.disable_irqs(2).unwrap();
        assert_eq!(server.join().unwrap(), runs);
    }
}

#[test]
fn accesses_are_cut_to_the_server_s_limit() {
    let capabilities = Capabilities {
        max_data_xfer_size: Some(6),
        ..Capabilities::default()
    };
    let (mut client, server) = start(capabilities, |mut server| {
        let mut region = [0u8; 64];
        loop {
            let (header, body, _) = match server.try_receive() {
                Ok(received) => received,
                Err(_) => return region,
            };
            let head = Access::parse(&body).unwrap();
            assert_eq!(head.region, 1);
            assert!(head.count <= 6);
            let range = head.offset as usize..head.offset as usize + head.count as usize;
            let mut reply = encoded(|out| head.encode(out));
            match header.command {
                Command::REGION_READ => reply.extend_from_slice(&region[range]),
                Command::REGION_WRITE => {
                    let (_, data) = Access::parse_with_data(&body).unwrap();
                    region[range].copy_from_slice(data);
                }
                other => panic!("{other}"),
            }
            assert_eq!(header.no_reply(), head.offset >= 32);
            server.reply(&header, &reply);
        }
    });
    client.region_write(1, 2, b"hello, region").unwrap();
    client.region_write_posted(1, 32, b"posted").unwrap();
    let mut data = [0; 13];
    client.region_read(1, 2, &mut data).unwrap();
    assert_eq!(&data, b"hello, region");
    drop(client);
    let region = server.join().unwrap();
    assert_eq!(&region[2..15], b"hello, region");
    assert_eq!(&region[32..38], b"posted");
}

#[test]
fn a_read_of_another_range_is_a_mismatch() {
    let (mut client, server) = start(Capabilities::ours(), |mut server| {
        for (offset, count, data) in [(8, 4, &[0; 4][..]), (0, 2, &[0; 2]), (0, 4, &[0; 3])] {
            let (header, _, _) = server.expect(Command::REGION_READ);
            let head = Access {
                offset,
                region: 0,
                count,
            };
            let mut reply = encoded(|out| head.encode(out));
            reply.extend_from_slice(data);
            server.reply(&header, &reply);
        }
    });
    let mut data = [0; 4];
    for _ in 0..2 {
        assert!(matches!(
            client.region_read(0, 0, &mut data),
            Err(ClientError::Mismatch(Command::REGION_READ))
        ));
    }
    assert!(matches!(
        client.region_read(0, 0, &mut data),
        Err(ClientError::Malformed(_))
    ));
    server.join().unwrap();
}

#[test]
fn a_refusal_carries_the_errno() {
    let (mut client, server) = start(Capabilities::ours(), |mut server| {
        let (header, _, _) = server.expect(Command::DMA_MAP);
        server.0.reply_error(&header, 17).unwrap();
        let (header, _, _) = server.expect(Command::DEVICE_RESET);
        server.reply(&header, &[]);
    });
    assert!(matches!(
        client.dma_map(0, 4096, DmaMapFlags::READ, None),
        Err(ClientError::Refused(17))
    ));
    client.reset().unwrap();
    server.join().unwrap();
}

#[test]
fn a_reply_to_another_command_is_a_mismatch() {
    let (mut client, server) = start(Capabilities::ours(), |mut server| {
        let (mut header, _, _) = server.expect(Command::DEVICE_RESET);
        header.command = Command::DMA_MAP;
        server.reply(&header, &[]);
    });
    assert!(matches!(
        client.reset(),
        Err(ClientError::Mismatch(Command::DEVICE_RESET))
    ));
    server.join().unwrap();
}

#[test]
fn what_the_server_asks_meanwhile_is_refused_and_stalls_nobody() {
    let (mut client, server) = start(Capabilities::ours(), |mut server| {
        let (reset, _, _) = server.expect(Command::DEVICE_RESET);
        let head = DmaAccess {
            address: 0x1000,
            count: 4,
        };
        let body = encoded(|out| head.encode(out));
        // The same id as the client's request: ids belong to the sender.
        let ask = Header::request(reset.id, Command::DMA_READ);
        server.0.send(&ask, &[&body], &[]).unwrap();
        let posted = Header::posted(8, Command::DMA_WRITE);
        server.0.send(&posted, &[&body, b"data"], &[]).unwrap();
        let (refusal, body, _) = server.expect(Command::DMA_READ);
        assert!(refusal.is_reply() && refusal.is_error());
        assert_eq!((refusal.id, refusal.error), (reset.id, 22));
        assert!(body.is_empty());
        server.reply(&reset, &[]);

        // Between requests, too. The posted command above got no reply.
        let ask = Header::request(9, Command::DMA_READ);
        server.0.send(&ask, &[&[0; 16]], &[]).unwrap();
        let (refusal, _, _) = server.expect(Command::DMA_READ);
        assert_eq!((refusal.id, refusal.error), (9, 22));
    });
    client.reset().unwrap();
    while !server.is_finished() {
        match client.service() {
            Ok(()) => std::thread::yield_now(),
            Err(ClientError::Closed) => break,
            Err(error) => panic!("{error}"),
        }
    }
    server.join().unwrap();
}

#[test]
fn a_late_reply_is_dropped_and_does_not_answer_the_next_request() {
    let (go, wait) = std::sync::mpsc::channel();
    let (mut client, server) = start(Capabilities::ours(), move |mut server| {
        let (late, _, _) = server.expect(Command::DEVICE_RESET);
        wait.recv_timeout(LONG).unwrap();
        server.0.reply_error(&late, 5).unwrap();
        let (header, _, _) = server.expect(Command::DEVICE_RESET);
        server.reply(&header, &[]);
    });
    client.set_timeout(SHORT);
    assert!(matches!(client.reset(), Err(ClientError::Timeout)));
    client.set_timeout(LONG);
    go.send(()).unwrap();
    client.reset().unwrap();
    server.join().unwrap();
}

#[test]
fn a_server_that_goes_away_is_closed() {
    let (mut client, server) = start(Capabilities::ours(), |mut server| {
        server.expect(Command::DEVICE_RESET);
    });
    assert!(matches!(client.reset(), Err(ClientError::Closed)));
    assert!(matches!(client.service(), Err(ClientError::Closed)));
    assert!(matches!(client.reset(), Err(ClientError::Closed)));
    server.join().unwrap();
}

#[test]
fn a_server_that_sends_no_messages_loses_the_framing() {
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    let server = std::thread::spawn(move || {
        std::io::Write::write_all(&mut theirs, &[0; 64]).unwrap();
        let _ = theirs.read(&mut [0; 256]);
        theirs
    });
    assert!(matches!(
        Client::from_stream(ours, LONG).err(),
        Some(ClientError::Connection(ConnectionError::FramingLost {
            size: 0
        }))
    ));
    server.join().unwrap();
}

#[test]
fn a_server_that_does_not_read_ends_in_a_timeout() {
    let (mut client, server) = start(Capabilities::ours(), |server| server);
    client.set_timeout(SHORT);
    let data = vec![0; 1 << 20];
    let result = (0..100).find_map(|_| client.region_write_posted(0, 0, &data).err());
    assert!(matches!(result, Some(ClientError::Timeout)), "{result:?}");
    drop(server.join().unwrap());
}

#[test]
fn a_mebibyte_goes_both_ways() {
    let (mut client, server) = start(Capabilities::ours(), |mut server| {
        let (write, body, _) = server.expect(Command::REGION_WRITE);
        let (head, data) = Access::parse_with_data(&body).unwrap();
        server.reply(&write, &encoded(|out| head.encode(out)));
        let (read, body, _) = server.expect(Command::REGION_READ);
        server.0.reply(&read, &[&body, data], &[]).unwrap();
        while !server.0.flush().unwrap() {
            server.wait(PollFlags::OUT);
        }
    });
    let data: Vec<u8> = (0..1 << 20).map(|index| (index % 251) as u8).collect();
    client.region_write(0, 0, &data).unwrap();
    let mut read = vec![0; 1 << 20];
    client.region_read(0, 0, &mut read).unwrap();
    assert!(read == data);
    server.join().unwrap();
}
