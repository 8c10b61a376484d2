//! Many rings, long ones, and more requests than slots.

use tests_vhost_front::{Disk, Layout, Options, Request, status};

use super::rig::{Rig, Shape};

/// Requests that a session has at the controller at once, as documented in the module `work`.
const SLOTS: usize = 512;

fn submit(disk: &mut Disk, queue: usize, sector: u64) -> bool {
    let request = Request::Write {
        sector,
        data: vec![queue as u8 + 1; 512],
    };
    let layout = Layout::plain(&request);
    disk.add(queue, &request, &layout).unwrap().is_some()
}

fn collect(disk: &mut Disk, queue: usize) -> usize {
    let mut count = 0;
    while let Some(done) = disk.poll(queue).unwrap() {
        assert_eq!(done.status, status::OK);
        count += 1;
    }
    count
}

fn wait_for(disk: &mut Disk, queue: usize, count: usize) {
    let mut seen = 0;
    while seen < count {
        assert!(disk.wait(queue, super::rig::BOUND).unwrap(), "{seen}");
        seen += collect(disk, queue);
    }
    assert_eq!(seen, count);
}

/// Rings that always have more do not keep what becomes free from each other.
#[test]
fn room_that_becomes_free_is_for_all_rings() {
    for is_packed in [false, true] {
        let rig = Rig::new(Shape::default());
        let mut disk = rig.connect(Options {
            queues: 3,
            size: 4096,
            is_packed,
            is_indirect: false,
            memory_len: 64 << 20,
            ..Options::default()
        });
        rig.with(|server| server.medium(|it| it.delays = true));
        for (queue, count) in [(0, SLOTS), (0, 800), (1, 800), (2, 800)] {
            for at in 0..count {
                assert!(submit(&mut disk, queue, at as u64));
            }
            disk.queue(queue).publish().unwrap();
            // The first ring has all slots before the others begin.
            if count == SLOTS {
                rig.until(|server| server.medium(|it| it.kept()) == SLOTS);
            }
        }
        // Four at a time are less than a burst.
        let mut done = [0; 3];
        for _ in 0..1000 / 4 {
            rig.with(|server| server.medium(|it| it.release(4, false)));
            rig.until(|server| server.medium(|it| it.kept()) == SLOTS);
        }
        for (queue, done) in done.iter_mut().enumerate() {
            *done += collect(&mut disk, queue);
        }
        assert_eq!(done.iter().sum::<usize>(), 1000);
        assert!(done[1] > 100 && done[2] > 100, "{done:?}");
        rig.with(|server| server.medium(|it| it.delays = false));
        for (queue, count) in [(0, SLOTS + 800), (1, 800), (2, 800)] {
            wait_for(&mut disk, queue, count - done[queue]);
        }
    }
}

#[test]
fn all_rings_of_a_device_work_at_once() {
    for is_packed in [false, true] {
        let rig = Rig::new(Shape::default());
        let mut disk = rig.connect(Options {
            queues: 64,
            size: 64,
            is_packed,
            is_indirect: false,
            memory_len: 32 << 20,
            ..Options::default()
        });
        for queue in 0..64 {
            for at in 0..16 {
                assert!(submit(&mut disk, queue, queue as u64 * 16 + at));
            }
            disk.queue(queue).publish().unwrap();
        }
        for queue in 0..64 {
            wait_for(&mut disk, queue, 16);
        }
        for queue in 0..64u64 {
            let data = disk.read(queue * 16, 16 * 512);
            assert_eq!(data.unwrap(), vec![queue as u8 + 1; 16 * 512]);
        }
        assert_eq!(rig.with(|server| server.counters().failed), 0);
    }
}

#[test]
fn rings_have_up_to_32768_entries() {
    for is_packed in [false, true] {
        let rig = Rig::new(Shape::default());
        let mut disk = rig.connect(Options {
            size: 32768,
            is_packed,
            is_indirect: false,
            inflight: true,
            memory_len: 64 << 20,
            ..Options::default()
        });
        rig.with(|server| server.medium(|it| it.delays = true));
        let count = 5000;
        for at in 0..count {
            assert!(submit(&mut disk, 0, at));
        }
        disk.queue(0).publish().unwrap();
        rig.until(|server| server.medium(|it| it.kept()) == SLOTS);
        rig.with(|server| server.medium(|it| it.delays = false));
        wait_for(&mut disk, 0, count as usize);
        assert_eq!(rig.with(|server| server.counters().requests), count);
    }
}
