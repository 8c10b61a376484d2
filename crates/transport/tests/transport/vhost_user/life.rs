//! What a session waits for, what it does without, and how it ends.

use std::time::Duration;

use tests_vhost_front::ring::{Ring, Segment};
use tests_vhost_front::{Disk, Layout, Options, Raw, Request, status};

use super::rig::{BOUND, LEN, Rig, Shape};

const GET_VRING_BASE: u32 = 11;
const SET_VRING_KICK: u32 = 12;
const SET_VRING_CALL: u32 = 13;
const RESET_DEVICE: u32 = 34;
const SET_STATUS: u32 = 39;
const REM_MEM_REG: u32 = 38;
const SET_MEM_TABLE: u32 = 5;
const SHORT: Duration = Duration::from_millis(30);
/// Abort of what a medium does not end, and the bound of the whole wait.
const ABANDONED: Duration = Duration::from_secs(4);
/// Device status: the device needs a reset (VIRTIO 1.3, 2.1).
const NEEDS_RESET: u64 = 0x40;
/// Private memory of the session begins here.
const PRIVATE: u64 = 1 << 62;

fn state(index: u32, num: u32) -> [u8; 8] {
    let mut body = [0; 8];
    body[..4].copy_from_slice(&index.to_le_bytes());
    body[4..].copy_from_slice(&num.to_le_bytes());
    body
}

fn region(disk: &Disk, at: usize) -> Vec<u8> {
    let region = disk.guest().regions()[at];
    let words = [region.guest, region.len, region.user, region.offset];
    words.into_iter().flat_map(u64::to_le_bytes).collect()
}

fn submit_write(disk: &mut Disk, queue: usize, sector: u64) {
    let request = Request::Write {
        sector,
        data: vec![3; 512],
    };
    let layout = Layout::plain(&request);
    assert!(disk.submit(queue, &request, &layout).unwrap().is_some());
}

/// A message whose reply waits for what the medium keeps.
fn waits(rig: &Rig, raw: &Raw, (request, body): (u32, &[u8])) {
    raw.send(request, 8, body, &[]).unwrap();
    assert!(raw.receive(SHORT).unwrap().is_none(), "{request}");
    rig.with(|server| server.medium(|it| it.delays = false));
    let reply = raw.receive(BOUND).unwrap().unwrap();
    assert_eq!(reply.request, request);
}

fn wait_done(disk: &mut Disk, queue: usize) -> u8 {
    assert!(disk.wait(queue, BOUND).unwrap());
    disk.poll(queue).unwrap().unwrap().status
}

#[test]
fn replies_wait_for_requests_in_flight() {
    for is_packed in [false, true] {
        let options = Options {
            queues: 2,
            is_packed,
            regions: 2,
            ..Options::default()
        };
        let rig = Rig::new(Shape::default());
        for message in [GET_VRING_BASE, RESET_DEVICE, SET_STATUS, SET_MEM_TABLE] {
            let mut disk = rig.connect(options.clone());
            rig.with(|server| server.medium(|it| it.delays = true));
            submit_write(&mut disk, 1, 0);
            rig.until(|server| server.medium(|it| it.kept()) == 1);
            let body = match message {
                GET_VRING_BASE => state(1, 0).to_vec(),
                SET_STATUS => vec![0; 8],
                SET_MEM_TABLE => vec![0; 8],
                _ => Vec::new(),
            };
            // Another ring is no reason to wait.
            if message == GET_VRING_BASE {
                let reply = disk.raw().ask(message, 0, &state(0, 0), BOUND).unwrap();
                assert_eq!(reply.body[..4], [0; 4]);
            }
            waits(&rig, disk.raw(), (message, &body));
            if message != SET_MEM_TABLE {
                assert_eq!(wait_done(&mut disk, 1), status::OK);
            }
            drop(disk);
            assert_eq!(rig.end(), "closed");
        }
    }
}

#[test]
fn a_medium_that_hangs_ends_the_session() {
    for (request, body) in [
        (GET_VRING_BASE, state(0, 0).to_vec()),
        (RESET_DEVICE, vec![]),
        (SET_MEM_TABLE, vec![0; 8]),
    ] {
        let rig = Rig::new(Shape::default());
        let mut disk = rig.connect(Options::default());
        rig.with(|server| server.medium(|it| it.holds = true));
        submit_write(&mut disk, 0, 0);
        rig.until(|server| server.medium(|it| it.kept()) == 1);
        disk.raw().send(request, 8, &body, &[]).unwrap();
        assert!(disk.raw().receive(SHORT).unwrap().is_none());
        rig.with(|server| server.advance(ABANDONED - Duration::from_millis(900)));
        assert!(disk.raw().receive(SHORT).unwrap().is_none());
        assert!(rig.with(|server| server.ends.is_empty()));
        rig.with(|server| server.advance(Duration::from_secs(1)));
        assert_eq!(rig.end(), "medium-hangs");
        assert!(disk.raw().is_closed(BOUND).unwrap());
    }
}

/// A new table under load: its reply comes when nothing uses the old one.
#[test]
fn memory_is_replaced_under_load() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options {
        regions: 2,
        ..Options::default()
    });
    rig.with(|server| server.medium(|it| it.delays = true));
    submit_write(&mut disk, 0, 0);
    rig.until(|server| server.medium(|it| it.kept()) == 1);
    let mut body = [2, 0, 0, 0, 0, 0, 0, 0].to_vec();
    body.extend(region(&disk, 0));
    body.extend(region(&disk, 1));
    let fd = disk.guest().memory().fd();
    disk.raw().send(SET_MEM_TABLE, 8, &body, &[fd, fd]).unwrap();
    assert!(disk.raw().receive(SHORT).unwrap().is_none());
    // Requests go on meanwhile, and what comes later is not waited for.
    submit_write(&mut disk, 0, 1);
    rig.until(|server| server.medium(|it| it.kept()) == 2);
    rig.with(|server| server.medium(|it| it.release(1, false)));
    let reply = disk.raw().receive(BOUND).unwrap().unwrap();
    assert_eq!((reply.request, reply.u64().unwrap()), (SET_MEM_TABLE, 0));
    assert_eq!(rig.with(|server| server.medium(|it| it.kept())), 1);
    rig.with(|server| server.medium(|it| it.delays = false));
    for _ in 0..2 {
        assert_eq!(wait_done(&mut disk, 0), status::OK);
    }
    assert_eq!(disk.read(0, 1024).unwrap(), [3; 1024]);
}

/// The ring breaks, the session lives, and the driver is notified that the device needs a reset.
#[test]
fn a_ring_whose_memory_is_removed_breaks_alone() {
    for is_packed in [false, true] {
        let rig = Rig::new(Shape::default());
        // The rings lie in the first region, and the data behind.
        let mut disk = rig.connect(Options {
            is_packed,
            memory_len: 4 << 20,
            ..Options::default()
        });
        disk.write(0, &[1; 512]).unwrap();
        rig.with(|server| server.medium(|it| it.delays = true));
        submit_write(&mut disk, 0, 1);
        rig.until(|server| server.medium(|it| it.kept()) == 1);
        // Index and entries of the used ring, without the event; or the descriptors.
        let used = |disk: &mut Disk| {
            let [descriptors, _, used] = disk.queue(0).ring.areas();
            let area = if is_packed { descriptors } else { used };
            let mut bytes = vec![0; area.len()];
            area.read_into(0, &mut bytes);
            if is_packed {
                bytes
            } else {
                bytes[2..bytes.len() - 2].to_vec()
            }
        };
        let before = used(&mut disk);
        let mut body = vec![0; 8];
        body.extend(region(&disk, 0));
        waits(&rig, disk.raw(), (REM_MEM_REG, &body));
        rig.until(|server| server.medium(|it| it.kept()) == 0);
        std::thread::sleep(SHORT);
        assert!(used(&mut disk) == before, "removed memory is written to");
        assert_eq!(disk.queue(0).error.take(), 1);
        assert_eq!(disk.status().unwrap() & NEEDS_RESET, NEEDS_RESET);
        assert!(disk.wait_config_change(BOUND).unwrap());
        assert_eq!(rig.with(|server| server.counters().broken), 1);
        // Again, and with memory that has no ring: it is counted once.
        let fd = disk.guest().memory().fd();
        disk.raw().send(37, 8, &body, &[fd]).unwrap();
        let reply = disk.raw().receive(BOUND).unwrap().unwrap();
        assert_eq!(reply.u64().unwrap(), 0);
        assert_eq!(rig.with(|server| server.counters().broken), 1);
        let base = disk
            .raw()
            .ask(GET_VRING_BASE, 0, &state(0, 0), BOUND)
            .unwrap();
        assert_eq!(base.body[..4], [0; 4]);
        assert_eq!(disk.status().unwrap() & NEEDS_RESET, 0);
        disk.reset().unwrap();
        assert_eq!(disk.read(0, 1024).unwrap()[..512], [1; 512]);
    }
}

/// VIRTIO 1.3, 2.1.2: a driver learns of a device that it has to reset.
#[test]
fn a_broken_ring_needs_a_reset() {
    for is_packed in [false, true] {
        let rig = Rig::new(Shape::default());
        let mut disk = rig.connect(Options {
            queues: 2,
            is_packed,
            ..Options::default()
        });
        assert_eq!(disk.status().unwrap() & NEEDS_RESET, 0);
        // What the device reads behind what it writes.
        let buffer = disk.guest().alloc(64, 64).unwrap();
        let address = disk.guest().guest_address(&buffer, 0);
        let segment = |is_writable| Segment {
            address,
            len: 16,
            is_writable,
        };
        let chain = [segment(false), segment(true), segment(false)];
        disk.queue(1).ring.add(&chain, false).unwrap();
        disk.queue(1).publish().unwrap();
        assert!(disk.wait_config_change(BOUND).unwrap());
        assert_eq!(disk.status().unwrap() & NEEDS_RESET, NEEDS_RESET);
        assert_eq!(disk.queue(1).error.take(), 1);
        // The other one goes on.
        disk.write(0, &[9; 512]).unwrap();
        disk.reset().unwrap();
        assert_eq!(disk.status().unwrap() & NEEDS_RESET, 0);
        submit_write(&mut disk, 1, 5);
        assert_eq!(wait_done(&mut disk, 1), status::OK);
    }
}

/// A driver that connects again may wait for an interrupt that the former call has got.
#[test]
fn a_call_that_is_set_is_signalled() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    disk.write(0, &[9; 512]).unwrap();
    let _ = disk.queue(0).call.take();
    let call = memory::EventFd::new().unwrap();
    let fds = [std::os::fd::AsFd::as_fd(&call)];
    disk.raw().send(SET_VRING_CALL, 8, &[0; 8], &fds).unwrap();
    assert_eq!(
        disk.raw().receive(BOUND).unwrap().unwrap().u64().unwrap(),
        0
    );
    assert!(call.drain());
    assert_eq!(disk.queue(0).call.take(), 0);
}

/// A ring without a descriptor for notifications is polled.
#[test]
fn a_ring_without_a_kick_is_polled() {
    for is_packed in [false, true] {
        let rig = Rig::new(Shape::default());
        let mut disk = rig.connect(Options {
            is_packed,
            ..Options::default()
        });
        // VHOST_USER_VRING_NOFD_MASK.
        let body = [0, 1, 0, 0, 0, 0, 0, 0];
        disk.raw().send(SET_VRING_KICK, 8, &body, &[]).unwrap();
        assert_eq!(
            disk.raw().receive(BOUND).unwrap().unwrap().u64().unwrap(),
            0
        );
        for at in 0..3 {
            std::thread::sleep(SHORT);
            submit_write(&mut disk, 0, at);
            assert_eq!(wait_done(&mut disk, 0), status::OK);
        }
    }
}

/// No piece of a request names the private memory.
#[test]
fn a_guest_cannot_name_private_memory() {
    for is_packed in [false, true] {
        let rig = Rig::new(Shape::default());
        let mut disk = rig.connect(Options {
            is_packed,
            ..Options::default()
        });
        disk.write(0, &[9; 4096]).unwrap();
        let buffer = disk.guest().alloc(4096, 64).unwrap();
        let at = disk.guest().guest_address(&buffer, 0);
        let segment = |address, len, is_writable| Segment {
            address,
            len,
            is_writable,
        };
        let mut header = [0; 16];
        for (kind, data) in [
            (0, segment(PRIVATE, 4096, true)),
            (1, segment(PRIVATE, 4096, false)),
            (0, segment(PRIVATE - 512, 1024, true)),
            (1, segment(u64::MAX - 511, 512, false)),
            (8, segment(PRIVATE + 4096, 20, true)),
        ] {
            header[0] = kind;
            buffer.write_from(0, &header);
            buffer.write_from(64, &[status::UNWRITTEN]);
            let chain = [segment(at, 16, false), data, segment(at + 64, 1, true)];
            disk.queue(0).ring.add(&chain, false).unwrap();
            disk.queue(0).publish().unwrap();
            rig.until(|server| server.session.is_none() || !server.is_busy());
            let deadline = std::time::Instant::now() + BOUND;
            while disk.queue(0).ring.pop().unwrap().is_none() {
                assert!(std::time::Instant::now() < deadline);
            }
            let mut byte = [0];
            buffer.read_into(64, &mut byte);
            assert_ne!(byte[0], status::OK, "{kind}");
        }
        assert_eq!(rig.with(|server| server.counters().failed), 5);
        assert_eq!(rig.with(|server| server.counters().broken), 0);
        disk.write(0, &[9; 4096]).unwrap();
    }
}

#[test]
fn a_table_of_descriptors_does_not_lie_in_private_memory() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    let queue = disk.queue(0);
    let Ring::Split(ring) = &queue.ring else {
        panic!("split rings are the default");
    };
    // Indirect, of three descriptors.
    ring.store_descriptor(0, PRIVATE, 48, 4, 0);
    ring.store_available(0, 0);
    ring.store_available_index(1);
    queue.kick.signal().unwrap();
    rig.until(|server| server.counters().broken == 1);
}

#[test]
fn a_namespace_that_grows_or_shrinks_is_a_configuration_change() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    assert_eq!(disk.capacity(), LEN / 512);
    for len in [LEN + (1 << 20), 1 << 20] {
        rig.with(move |server| server.resize(len));
        assert!(disk.wait_config_change(BOUND).unwrap());
        assert_eq!(disk.capacity(), len / 512);
        disk.write(len / 512 - 1, &[4; 512]).unwrap();
        assert!(disk.write(len / 512, &[4; 512]).is_err());
    }
    assert!(rig.with(|server| server.ends.is_empty()));
}

#[test]
fn a_namespace_that_is_another_one_ends_the_session() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    disk.write(0, &[4; 512]).unwrap();
    rig.with(|server| server.format(12));
    assert_eq!(rig.end(), "changed");
    assert!(disk.raw().is_closed(BOUND).unwrap());
    let disk = rig.connect(Options::default());
    rig.with(|server| server.detach());
    assert_eq!(rig.end(), "changed");
    assert!(disk.raw().is_closed(BOUND).unwrap());
}

#[test]
fn a_namespace_that_becomes_read_only_fails_what_changes_it() {
    let rig = Rig::new(Shape::default());
    let mut disk = rig.connect(Options::default());
    disk.write(0, &[4; 512]).unwrap();
    rig.with(|server| server.set_read_only(true));
    let write = Request::Write {
        sector: 0,
        data: vec![5; 512],
    };
    let write_status = |disk: &mut Disk| {
        let done = disk.run(0, &write, &Layout::plain(&write)).unwrap();
        done.status
    };
    let deadline = std::time::Instant::now() + BOUND;
    while write_status(&mut disk) == status::OK {
        assert!(std::time::Instant::now() < deadline);
    }
    assert_eq!(write_status(&mut disk), status::IOERR);
    disk.read(0, 512).unwrap();
    // A front end that asks again is offered VIRTIO_BLK_F_RO.
    let features = disk.raw().ask(1, 0, &[], BOUND).unwrap().u64().unwrap();
    assert_ne!(features & 1 << 5, 0);
    rig.with(|server| server.set_read_only(false));
    let deadline = std::time::Instant::now() + BOUND;
    while write_status(&mut disk) != status::OK {
        assert!(std::time::Instant::now() < deadline);
    }
}
