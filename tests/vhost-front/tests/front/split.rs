//! Split rings, served by qemu-storage-daemon.

use std::thread;
use std::time::{Duration, Instant};

use tests_vhost_front::ring::{self, Ring};
use tests_vhost_front::{
    Disk, Layout, Load, Options, Range, Request, SECTOR, Slots, bench, config, feature, status,
};

use super::daemon::{Daemon, SECTORS};
use super::{bytes, layouts_hold_the_same_bytes, many_requests_in_flight_get_their_bytes, range};

#[test]
fn requests_do_what_they_name() {
    let daemon = Daemon::start();
    let mut disk = Disk::connect(&daemon.socket(), Options::default()).unwrap();
    assert_eq!(disk.capacity(), SECTORS);
    assert_eq!(disk.config().len(), config::LEN);
    let data = bytes(64 * SECTOR, 1);
    disk.write(8, &data).unwrap();
    assert_eq!(disk.read(8, data.len()).unwrap(), data);
    disk.flush().unwrap();
    disk.write_zeroes(&[Range {
        may_unmap: true,
        ..range(10, 2)
    }])
    .unwrap();
    let mut expected = data;
    expected[2 * SECTOR..4 * SECTOR].fill(0);
    assert_eq!(disk.read(8, expected.len()).unwrap(), expected);
    disk.discard(&[range(8, 64)]).unwrap();
    assert_eq!(
        disk.read(8, expected.len()).unwrap(),
        vec![0; expected.len()]
    );
    assert_eq!(disk.get_id().unwrap().len(), 20);
    let other = Request::Other {
        kind: 77,
        sector: 0,
        out: Vec::new(),
        in_len: 0,
    };
    let done = disk.run(0, &other, &Layout::plain(&other)).unwrap();
    assert_eq!(done.status, status::UNSUPP);
    let error = disk.read(SECTORS, SECTOR).unwrap_err();
    assert!(error.to_string().contains("status 1"), "{error}");
}

#[test]
fn every_layout_holds_the_same_bytes() {
    let daemon = Daemon::start();
    for (event_idx, is_indirect) in [(true, true), (false, false), (true, false), (false, true)] {
        let options = Options {
            event_idx,
            is_indirect,
            ..Options::default()
        };
        let mut disk = Disk::connect(&daemon.socket(), options).unwrap();
        let bits = feature::EVENT_IDX | feature::INDIRECT_DESC;
        let expected = (if event_idx { feature::EVENT_IDX } else { 0 })
            | (if is_indirect {
                feature::INDIRECT_DESC
            } else {
                0
            });
        assert_eq!(disk.features() & bits, expected);
        layouts_hold_the_same_bytes(&mut disk);
    }
}

#[test]
fn a_full_ring_of_either_queue_wraps() {
    let daemon = Daemon::start();
    for event_idx in [true, false] {
        let options = Options {
            queues: 2,
            size: 64,
            event_idx,
            ..Options::default()
        };
        let mut disk = Disk::connect(&daemon.socket(), options).unwrap();
        for queue in 0..2 {
            many_requests_in_flight_get_their_bytes(&mut disk, queue, 1000);
        }
    }
}

#[test]
fn memory_is_announced_in_either_way_and_in_several_regions() {
    let daemon = Daemon::start();
    for slots in [Slots::Table, Slots::Add] {
        for need_reply in [true, false] {
            let options = Options {
                slots,
                need_reply,
                regions: 5,
                memory_len: 1 << 20,
                // The daemon takes an indirect chain in more pieces than its table has for a loop.
                is_indirect: false,
                ..Options::default()
            };
            let mut disk = Disk::connect(&daemon.socket(), options).unwrap();
            // More than two regions hold together: the buffers lie in three.
            let data = bytes(384 << 10, 5);
            disk.write(0, &data).unwrap();
            assert_eq!(disk.read(0, data.len()).unwrap(), data);
        }
    }
}

#[test]
fn stopped_rings_go_on_where_they_were() {
    let daemon = Daemon::start();
    let options = Options {
        queues: 2,
        ..Options::default()
    };
    let mut disk = Disk::connect(&daemon.socket(), options).unwrap();
    many_requests_in_flight_get_their_bytes(&mut disk, 1, 70);
    let bases = disk.stop().unwrap();
    assert_eq!(bases, [32, 70], "32 writes and 70 reads");
    let drained: Vec<_> = (0..2)
        .map(|at| disk.queue(at).ring.drained_base())
        .collect();
    assert_eq!(bases, drained);
    disk.restart_at(&bases).unwrap();
    many_requests_in_flight_get_their_bytes(&mut disk, 1, 70);
    assert_eq!(disk.stop().unwrap(), [64, 140]);
    disk.restart().unwrap();
    disk.reset().unwrap();
    disk.write(3, &[5; SECTOR]).unwrap();
    assert_eq!(disk.stop().unwrap(), [1, 0]);
}

#[test]
fn interrupts_come_where_they_are_wanted() {
    let daemon = Daemon::start();
    for event_idx in [true, false] {
        let options = Options {
            event_idx,
            ..Options::default()
        };
        let mut disk = Disk::connect(&daemon.socket(), options).unwrap();
        let read = Request::Read {
            sector: 0,
            len: SECTOR,
        };
        let submit = |disk: &mut Disk| {
            let token = disk.submit(0, &read, &Layout::plain(&read)).unwrap();
            assert!(token.is_some());
        };
        disk.read(0, SECTOR).unwrap();
        // Of the ring's first interrupt, and of one that came between two looks.
        thread::sleep(Duration::from_millis(20));
        let _ = disk.queue(0).call.take();
        disk.queue(0).ring.suppress();
        for _ in 0..20 {
            submit(&mut disk);
            let deadline = Instant::now() + tests_vhost_front::BOUND;
            while disk.poll(0).unwrap().is_none() {
                assert!(Instant::now() < deadline, "a request does not end");
            }
        }
        assert!(!disk.queue(0).call.wait(Duration::from_millis(50)).unwrap());
        disk.queue(0).ring.arm();
        submit(&mut disk);
        assert!(disk.queue(0).call.wait(tests_vhost_front::BOUND).unwrap());
        assert!(disk.poll(0).unwrap().is_some());
    }
}

#[test]
fn features_may_be_left_out() {
    let daemon = Daemon::start();
    let options = Options {
        without: feature::FLUSH | feature::CONFIG_WCE,
        ..Options::default()
    };
    let mut disk = Disk::connect(&daemon.socket(), options).unwrap();
    assert_ne!(disk.offered() & feature::FLUSH, 0);
    assert_eq!(disk.features() & (feature::FLUSH | feature::CONFIG_WCE), 0);
    assert_ne!(disk.features() & feature::DISCARD, 0);
    disk.write(0, &[1; SECTOR]).unwrap();
}

#[test]
fn the_cache_mode_is_set() {
    let daemon = Daemon::start();
    let mut disk = Disk::connect(&daemon.socket(), Options::default()).unwrap();
    assert_ne!(disk.features() & feature::CONFIG_WCE, 0);
    for is_writeback in [false, true] {
        disk.set_writeback(is_writeback).unwrap();
        assert_eq!(disk.config()[config::WRITEBACK], is_writeback.into());
    }
}

#[test]
fn a_disk_goes_on_with_the_next_daemon() {
    let mut daemon = Daemon::start();
    let mut disk = Disk::connect(&daemon.socket(), Options::default()).unwrap();
    let data = bytes(4 * SECTOR, 9);
    disk.write(100, &data).unwrap();
    daemon.kill();
    // Available while no back end is there: the next one finds it.
    let read = Request::Read {
        sector: 100,
        len: data.len(),
    };
    let layout = Layout::plain(&read);
    let token = disk.submit(0, &read, &layout).unwrap().unwrap();
    assert!(!disk.wait(0, Duration::from_millis(50)).unwrap());
    daemon.start_again();
    disk.reconnect().unwrap();
    assert!(disk.wait(0, tests_vhost_front::BOUND).unwrap());
    let done = disk.poll(0).unwrap().unwrap();
    assert_eq!((done.token, done.status), (token, status::OK));
    assert_eq!(done.data, data);
    disk.write(100, &[1; SECTOR]).unwrap();
}

#[test]
fn a_wish_that_the_daemon_does_not_offer_is_an_error() {
    let daemon = Daemon::start();
    let wish = |options: Options| {
        let error = Disk::connect(&daemon.socket(), options).unwrap_err();
        format!("{error:#}")
    };
    let packed = wish(Options {
        is_packed: true,
        ..Options::default()
    });
    assert!(packed.contains("RING_PACKED"), "{packed}");
    let inflight = wish(Options {
        inflight: true,
        ..Options::default()
    });
    assert!(inflight.contains("INFLIGHT_SHMFD"), "{inflight}");
    let queues = wish(Options {
        queues: 3,
        ..Options::default()
    });
    assert!(queues.contains("2 queues"), "{queues}");
}

#[test]
fn a_broken_ring_ends_the_connection() {
    let daemon = Daemon::start();
    let mut disk = Disk::connect(&daemon.socket(), Options::default()).unwrap();
    assert!(!disk.raw().is_closed(Duration::from_millis(50)).unwrap());
    let queue = disk.queue(0);
    let Ring::Split(ring) = &queue.ring else {
        panic!("a split ring");
    };
    // A chain of one descriptor that is its own successor (VIRTIO 1.3, 2.7.5.2).
    ring.store_descriptor(5, 0x1_4000_0000, 16, ring::NEXT, 5);
    let index = ring.available_index();
    ring.store_available(index, 5);
    ring.store_available_index(index.wrapping_add(1));
    queue.kick.signal().unwrap();
    assert!(disk.raw().is_closed(tests_vhost_front::BOUND).unwrap());
}

#[test]
fn the_polling_client_measures_both_directions() {
    let daemon = Daemon::start();
    for (is_write, is_indirect) in [(false, true), (true, false)] {
        let options = Options {
            is_indirect,
            ..Options::default()
        };
        let mut disk = Disk::connect(&daemon.socket(), options).unwrap();
        let load = Load {
            queue: 0,
            depth: 4,
            duration: Duration::from_millis(300),
            is_write,
            block: 4096,
            stall: None,
        };
        // The daemon signals each eventfd that it is given.
        let _ = disk.queue(0).call.take();
        let measured = bench(&mut disk, &load).unwrap();
        assert!(measured.requests >= 4, "{measured:?}");
        assert!(measured.p50_ns > 0 && measured.p50_ns <= measured.p99_ns);
        // Little's law: one to four requests are in flight at any time.
        let in_flight = measured.iops * measured.mean_ns / 1e9;
        assert!((0.9..=4.1).contains(&in_flight), "{in_flight} {measured:?}");
        let calls = disk.queue(0).call.take();
        // The daemon raises the first one whatever the event index is.
        assert!(calls <= 1, "{calls} of {measured:?}");
        disk.write(0, &[3; SECTOR]).unwrap();
    }
}
