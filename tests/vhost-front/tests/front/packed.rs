//! Packed rings, served by the device of these tests.

use std::time::Duration;

use tests_vhost_front::{Disk, Layout, Load, Options, Request, SECTOR, bench, config, status};

use super::device::Device;
use super::{bytes, layouts_hold_the_same_bytes, many_requests_in_flight_get_their_bytes};

fn packed() -> Options {
    Options {
        is_packed: true,
        ..Options::default()
    }
}

#[test]
fn every_layout_holds_the_same_bytes_packed() {
    let device = Device::start();
    for (event_idx, is_indirect) in [(true, true), (false, false), (true, false), (false, true)] {
        let options = Options {
            event_idx,
            is_indirect,
            regions: 3,
            ..packed()
        };
        let mut disk = Disk::connect(&device.socket(), options).unwrap();
        layouts_hold_the_same_bytes(&mut disk);
    }
}

#[test]
fn a_full_packed_ring_of_any_size_wraps() {
    let device = Device::start();
    for (size, event_idx) in [(64, true), (37, true), (5, false), (3, true)] {
        let options = Options {
            size,
            event_idx,
            queues: 2,
            ..packed()
        };
        let mut disk = Disk::connect(&device.socket(), options).unwrap();
        for queue in 0..2 {
            many_requests_in_flight_get_their_bytes(&mut disk, queue, 500);
        }
    }
}

/// Makes `count` reads available and publishes them at once.
fn submit_together(disk: &mut Disk, count: usize) {
    let read = Request::Read {
        sector: 0,
        len: SECTOR,
    };
    for _ in 0..count {
        let layout = Layout::plain(&read);
        disk.add(0, &read, &layout).unwrap().unwrap();
    }
    disk.queue(0).publish().unwrap();
}

fn drain(disk: &mut Disk, count: usize) {
    let deadline = std::time::Instant::now() + tests_vhost_front::BOUND;
    for _ in 0..count {
        while disk.poll(0).unwrap().is_none() {
            assert!(
                std::time::Instant::now() < deadline,
                "a request does not end"
            );
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

#[test]
fn notifications_are_sent_where_they_are_wanted() {
    let device = Device::start();
    for event_idx in [true, false] {
        let options = Options {
            event_idx,
            ..packed()
        };
        let mut disk = Disk::connect(&device.socket(), options).unwrap();
        disk.queue(0).ring.suppress();
        let (kicks, calls) = device.events();
        for _ in 0..40 {
            submit_together(&mut disk, 7);
            drain(&mut disk, 7);
            // The device asks for notifications again after it completed the requests.
            device.settle();
        }
        let after = device.events();
        assert_eq!(after.0 - kicks, 40, "one notification for seven requests");
        assert_eq!(disk.queue(0).kicks, 40);
        assert_eq!(after.1, calls, "interrupts are suppressed");
        // Of fourteen requests in the ring before the device looks, the second seven need none.
        device.hold(true);
        submit_together(&mut disk, 7);
        submit_together(&mut disk, 7);
        let expected = if event_idx { 41 } else { 42 };
        assert_eq!(disk.queue(0).kicks, expected);
        device.hold(false);
        drain(&mut disk, 14);
        disk.queue(0).ring.arm();
        submit_together(&mut disk, 7);
        assert!(disk.queue(0).call.wait(tests_vhost_front::BOUND).unwrap());
    }
}

#[test]
fn stopped_packed_rings_go_on_where_they_were() {
    let device = Device::start();
    let options = Options {
        size: 16,
        is_indirect: false,
        ..packed()
    };
    let mut disk = Disk::connect(&device.socket(), options).unwrap();
    assert_eq!(device.bases(), [0x8000_8000]);
    // Seven chains of three descriptors: 21, so five of the second round.
    for _ in 0..7 {
        disk.read(0, SECTOR).unwrap();
    }
    assert_eq!(disk.stop().unwrap(), [0x0005_0005]);
    assert_eq!(disk.queue(0).ring.drained_base(), 0x0005_0005);
    disk.restart().unwrap();
    assert_eq!(device.bases(), [0x0005_0005]);
    disk.write(1, &bytes(SECTOR, 4)).unwrap();
    assert_eq!(disk.stop().unwrap(), [0x0008_0008]);
    disk.restart_at(&[0x0008_0008]).unwrap();
    assert_eq!(disk.read(1, SECTOR).unwrap(), bytes(SECTOR, 4));
    disk.reset().unwrap();
    assert_eq!(*device.bases().last().unwrap(), 0x8000_8000);
    assert_eq!(disk.read(1, SECTOR).unwrap(), bytes(SECTOR, 4));
}

#[test]
fn a_packed_disk_goes_on_with_the_next_back_end_and_the_same_record() {
    let device = Device::start();
    let options = Options {
        inflight: true,
        ..packed()
    };
    let mut disk = Disk::connect(&device.socket(), options).unwrap();
    disk.write(7, &bytes(SECTOR, 7)).unwrap();
    device.hold(true);
    let read = Request::Read {
        sector: 7,
        len: SECTOR,
    };
    let layout = Layout::plain(&read);
    let token = disk.submit(0, &read, &layout).unwrap().unwrap();
    device.bases();
    device.die();
    disk.reconnect().unwrap();
    // One indirect descriptor was used.
    assert_eq!(device.bases(), [0x8001_8001]);
    assert!(disk.poll(0).unwrap().is_none());
    device.hold(false);
    assert!(disk.wait(0, tests_vhost_front::BOUND).unwrap());
    let done = disk.poll(0).unwrap().unwrap();
    assert_eq!((done.token, done.status), (token, status::OK));
    assert_eq!(done.data, bytes(SECTOR, 7));
    let (file, len) = disk.inflight().unwrap();
    let inode = std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap());
    let inflight = device.inflight();
    assert_eq!(inflight.len(), 2);
    assert_eq!(inflight[0], inflight[1], "the same memory");
    assert_eq!(inflight[0], (inode, 4096));
    assert_eq!(len, 4096);
}

#[test]
fn a_device_that_writes_too_much_is_an_error() {
    let device = Device::start();
    let mut disk = Disk::connect(&device.socket(), packed()).unwrap();
    disk.read(0, SECTOR).unwrap();
    device.lie();
    let error = disk.read(0, SECTOR).unwrap_err().to_string();
    assert!(error.contains("wrote 514 bytes"), "{error}");
}

#[test]
fn a_changed_capacity_is_read_and_the_message_replied() {
    let device = Device::start();
    let mut disk = Disk::connect(&device.socket(), packed()).unwrap();
    assert_eq!(disk.capacity(), 2048);
    assert!(!disk.wait_config_change(Duration::from_millis(20)).unwrap());
    device.resize(4096);
    assert!(disk.wait_config_change(tests_vhost_front::BOUND).unwrap());
    assert_eq!(disk.capacity(), 4096);
    disk.set_writeback(false).unwrap();
    assert_eq!(disk.config()[config::WRITEBACK], 0);
    let deadline = std::time::Instant::now() + tests_vhost_front::BOUND;
    while device.replies() != [0] {
        assert!(std::time::Instant::now() < deadline, "no reply");
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn the_polling_client_measures_packed_rings() {
    let device = Device::start();
    let mut disk = Disk::connect(&device.socket(), packed()).unwrap();
    let load = Load {
        queue: 0,
        depth: 16,
        duration: Duration::from_millis(200),
        is_write: false,
        block: 1024,
        stall: None,
    };
    let measured = bench(&mut disk, &load).unwrap();
    assert!(measured.requests >= 16, "{measured:?}");
    assert_eq!(device.events().1, 0, "no interrupt");
}
