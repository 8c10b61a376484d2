//! Entries for the kernel, checked against the layout of its own header (`struct io_uring_sqe`),
//! and the protection of the memory that they point to.

use std::fs::File;
use std::os::fd::AsFd;

use memory::{Access, ClientMappings, DmaMap, Hint, HostMemory, Iova, Need};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FallocateFlags;

use super::super::uring::{best, plain};
use super::*;

/// `enum io_uring_op` and flags of linux/io_uring.h and linux/fs.h, as numbers.
const READ: u8 = 22;
const WRITE: u8 = 23;
const FSYNC: u8 = 3;
const FALLOCATE: u8 = 17;
const FSYNC_DATASYNC: u32 = 1;
const RWF_DSYNC: u32 = 2;
const FIXED_FILE: u8 = 1;

struct Sqe([u8; 64]);

impl Sqe {
    fn of(ring: &Ring, slot: u16, io: Io) -> Sqe {
        Sqe(sqe_bytes(&ring.entry(slot, io, None)))
    }
    fn opcode(&self) -> u8 {
        self.0[0]
    }
    fn flags(&self) -> u8 {
        self.0[1]
    }
    fn fd(&self) -> u32 {
        self.word(4)
    }
    fn off(&self) -> u64 {
        u64::from_le_bytes(self.0[8..16].try_into().unwrap())
    }
    fn addr(&self) -> u64 {
        u64::from_le_bytes(self.0[16..24].try_into().unwrap())
    }
    fn len(&self) -> u32 {
        self.word(24)
    }
    /// `rw_flags`, `fsync_flags`.
    fn op_flags(&self) -> u32 {
        self.word(28)
    }
    fn word(&self, at: usize) -> u32 {
        u32::from_le_bytes(self.0[at..at + 4].try_into().unwrap())
    }
}

fn file() -> File {
    let file = tempfile::tempfile().unwrap();
    file.set_len(1 << 20).unwrap();
    file
}

fn ring(depth: u16) -> Ring {
    Ring::new(file().as_fd(), depth, Way::Rings(Looks::default()), false).unwrap()
}

#[test]
fn a_flush_is_fdatasync_of_the_whole_file() {
    let sqe = Sqe::of(&ring(1), 0, Io::Sync);
    assert_eq!(
        (sqe.opcode(), sqe.op_flags(), sqe.flags()),
        (FSYNC, FSYNC_DATASYNC, FIXED_FILE)
    );
    assert_eq!((sqe.off(), sqe.len(), sqe.fd()), (0, 0, 0));
}

#[test]
fn a_durable_write_says_so_and_another_does_not() {
    let ring = ring(1);
    for (durable, flags) in [(true, RWF_DSYNC), (false, 0)] {
        for from in [Buffer::Bounce(512), Buffer::Zeros(512)] {
            let sqe = Sqe::of(
                &ring,
                0,
                Io::Write {
                    from,
                    offset: 0x1_2345_6000,
                    durable,
                },
            );
            assert_eq!(
                (sqe.opcode(), sqe.op_flags(), sqe.off(), sqe.len()),
                (WRITE, flags, 0x1_2345_6000, 512)
            );
        }
    }
}

#[test]
fn a_read_is_never_told_to_sync() {
    let sqe = Sqe::of(
        &ring(1),
        0,
        Io::Read {
            into: Buffer::Bounce(4096),
            offset: 8192,
        },
    );
    assert_eq!(
        (sqe.opcode(), sqe.op_flags(), sqe.off(), sqe.len()),
        (READ, 0, 8192, 4096)
    );
}

#[test]
fn fallocate_takes_its_length_where_the_kernel_looks_for_it() {
    let mode = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let sqe = Sqe::of(
        &ring(1),
        0,
        Io::Fallocate {
            mode,
            offset: 4096,
            len: 1 << 33,
        },
    );
    assert_eq!(
        (sqe.opcode(), sqe.off(), sqe.addr(), sqe.len()),
        (FALLOCATE, 4096, 1 << 33, 3)
    );
}

#[test]
fn segments_are_used_where_they_are_only_if_each_is_aligned() {
    let memory = HostMemory::new(1 << 16).unwrap();
    let fd = memory.fd().try_clone_to_owned().unwrap();
    let mapping = ClientMappings::new().map(fd).unwrap();
    let mut map = DmaMap::new(1);
    let access = Access {
        read: true,
        write: true,
    };
    map.map(Iova(0), 1 << 16, access, Some((mapping, 0)))
        .unwrap();
    let view = map.view();
    let mut ring = ring(1);
    let mut fits = |memory, pieces: &[(u64, u32)]| {
        let alignment = Alignment {
            memory,
            offset: 512,
        };
        let translate = |&(at, len): &(u64, u32)| {
            view.translate(&mut Hint::default(), Iova(at), len, Need::DeviceWrites)
                .unwrap()
        };
        let segments: Vec<_> = pieces.iter().map(translate).collect();
        let fits = ring.attach(0, &segments, &view, alignment);
        ring.release(0);
        fits
    };
    assert!(fits(512, &[(0, 4096)]) && fits(512, &[(3584, 512), (8192, 3584)]));
    assert!(!fits(512, &[(4, 512)]) && !fits(512, &[(0, 512), (4100, 512)]));
    assert!(fits(4, &[(4, 512)]) && !fits(4, &[(2, 512)]));
    // The pieces of a transfer that starts inside a sector of a page.
    assert!(!fits(4, &[(4, 4092), (8192, 4)]) && !fits(512, &[(0, 256), (4096, 256)]));
}

#[test]
fn bounce_buffers_are_aligned_and_apart() {
    let ring = ring(3);
    let at = |slot| {
        Sqe::of(
            &ring,
            slot,
            Io::Read {
                into: Buffer::Bounce(BOUNCE_BYTES),
                offset: 0,
            },
        )
        .addr()
    };
    let mut places = [at(0), at(1), at(2)];
    places.sort_unstable();
    assert!(places.iter().all(|place| place % 4096 == 0));
    assert!(
        places
            .windows(2)
            .all(|pair| pair[1] - pair[0] >= u64::from(BOUNCE_BYTES))
    );
}

/// Runs one operation to its end.
fn run(ring: &mut Ring, slot: u16, io: Io) -> i32 {
    ring.queue(slot, io);
    ring.submit().unwrap();
    for _ in 0..100 {
        if let Some((ended, result)) = ring.next() {
            assert_eq!(ended, slot);
            return result;
        }
        ring.rings[0].wait().unwrap();
    }
    panic!("the kernel does not answer");
}

#[test]
fn nothing_queued_is_no_system_call() {
    let mut ring = ring(1);
    ring.submit().unwrap();
    // The first call to the kernel would have enabled the ring.
    assert!(!ring.rings[0].is_enabled());
    assert!(!ring.is_due());
    ring.run_completions().unwrap();
    assert_eq!(run(&mut ring, 0, Io::Sync), 0);
    assert!(ring.rings[0].is_enabled());
}

#[test]
fn a_sleeper_is_woken_by_every_kind_of_ring_and_only_when_armed() {
    let bound = Timespec {
        tv_sec: 20,
        tv_nsec: 0,
    };
    let readable = |ring: &Ring, wait: &Timespec| {
        let mut fds = [PollFd::new(ring.wake(), PollFlags::IN)];
        poll(&mut fds, Some(wait)).unwrap() == 1
    };
    let threaded = Looks {
        kernel_thread: true,
        at_device: false,
        plain_file: false,
    };
    let none = Looks::default();
    for (looks, builder) in [
        (none, best(none)),
        (none, plain(none)),
        (threaded, best(threaded)),
        (threaded, plain(threaded)),
    ] {
        let file = file();
        let wake = EventFd::new().unwrap();
        let uring = Uring::over(builder.build(4).unwrap(), looks, file.as_fd(), &wake).unwrap();
        let mut ring = Ring::over(vec![uring], wake, 2);
        for _ in 0..100 {
            assert_eq!(run(&mut ring, 0, Io::Sync), 0);
            assert!(!readable(&ring, &Timespec::default()), "nobody asked");
            ring.queue(1, Io::Sync);
            ring.submit().unwrap();
            ring.arm();
            if !ring.is_due() {
                assert!(readable(&ring, &bound), "slept through it");
            }
            ring.disarm();
            while ring.taken() > 0 {
                ring.run_completions().unwrap();
                ring.next();
            }
        }
    }
}

#[test]
fn zeros_are_zeros() {
    use std::os::unix::fs::FileExt;
    let file = file();
    file.write_all_at(&[7; 8192], 0).unwrap();
    let mut ring = Ring::new(file.as_fd(), 1, Way::Rings(Looks::default()), false).unwrap();
    let written = run(
        &mut ring,
        0,
        Io::Write {
            from: Buffer::Zeros(4096),
            offset: 4096,
            durable: false,
        },
    );
    assert_eq!(written, 4096);
    let mut bytes = [1; 8192];
    file.read_exact_at(&mut bytes, 0).unwrap();
    assert!(
        bytes[..4096].iter().all(|byte| *byte == 7) && bytes[4096..].iter().all(|byte| *byte == 0)
    );
}

#[test]
#[should_panic(expected = "one operation a slot")]
fn a_slot_has_one_operation() {
    let mut ring = ring(2);
    ring.queue(0, Io::Sync);
    ring.queue(0, Io::Sync);
}

#[test]
#[should_panic(expected = "the kernel still uses the slot")]
fn a_slot_is_not_released_under_the_kernel() {
    let mut ring = ring(1);
    ring.queue(0, Io::Sync);
    ring.release(0);
}

#[test]
#[should_panic(expected = "past the segments")]
fn copies_end_with_the_segments() {
    ring(1).gather(0, 1);
}

#[test]
fn what_was_queued_and_never_submitted_does_not_delay_the_drop() {
    let mut ring = ring(1);
    ring.queue(0, Io::Sync);
    assert_eq!(ring.taken(), 0);
    assert!(ring.settle());
}

#[test]
fn what_is_not_polled_for_goes_to_the_second_ring_and_what_is_prevents_sleep() {
    let looks = Looks {
        kernel_thread: false,
        at_device: true,
        plain_file: false,
    };
    let file = file();
    let mut ring = Ring::new(file.as_fd(), 4, Way::Rings(looks), false).unwrap();
    let write = |durable| Io::Write {
        from: Buffer::Zeros(4096),
        offset: 0,
        durable,
    };
    let punch = Io::Fallocate {
        mode: FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
        offset: 0,
        len: 4096,
    };
    // A ring that asks the device refuses these; and a durable write may need more than the device.
    for (slot, io, result) in [(0, Io::Sync, 0), (1, write(true), 4096), (2, punch, 0)] {
        ring.queue(slot, io);
        let counts = ring.rings.iter_mut().map(Uring::taken);
        assert_eq!(counts.collect::<Vec<_>>(), [0, 0], "only queued");
        ring.submit().unwrap();
        assert!(!ring.rings[0].is_due(), "nothing to ask the device for");
        let mut waits = 0;
        let ended = loop {
            ring.run_completions().unwrap();
            if let Some(ended) = ring.next() {
                break ended;
            }
            waits += 1;
            assert!(waits < 100, "the kernel does not answer");
            ring.rings[1].wait().unwrap();
        };
        assert_eq!(ended, (slot, result));
    }
    for io in [
        write(false),
        Io::Read {
            into: Buffer::Bounce(4096),
            offset: 0,
        },
    ] {
        ring.queue(3, io);
        ring.submit().unwrap();
        for _ in 0..3 {
            ring.arm();
            assert!(ring.is_due() && ring.is_polled(), "nobody wakes a sleeper");
            ring.disarm();
        }
        assert!(!ring.rings[1].is_due());
        // The file is not opened for direct I/O, so it ends with an error: but it ends, and by
        // asking alone.
        let ended = loop {
            ring.run_completions().unwrap();
            if let Some(ended) = ring.next() {
                break ended;
            }
        };
        assert_eq!(ended.0, 3);
        assert!(!(ring.is_due() || ring.is_polled()));
    }
}
