//! Rare answers of the kernel, injected by hand, and their effects on commands.

use std::num::NonZeroI32;
use std::path::PathBuf;

use memory::{ClientMappings, DmaMap, Hint, HostMemory, Iova, Need};
use port::ByteRange;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FallocateFlags;

use super::super::open::Opened;
use super::*;
use crate::file::{Direct, FileIo};
use crate::order::MAX_RANGES;

mod fused;
mod slices;
mod written;

const SIZE: u64 = 1 << 20;

struct Fixture {
    _directory: tempfile::TempDir,
    path: PathBuf,
    channel: FileChannel,
}

impl Fixture {
    /// `is_block_device`: a file that is treated as one.
    fn new(is_block_device: bool) -> Fixture {
        // not in memory, also where the folder is
        Fixture::with(None, |opened| {
            opened.is_memory = false;
            opened.is_block_device = is_block_device;
        })
    }

    fn with(slice: Option<u32>, change: impl FnOnce(&mut Opened)) -> Fixture {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let mut medium =
            FileMedium::open(&path, Some(SIZE), Direct::Off, FileIo::default()).unwrap();
        change(&mut medium.opened);
        let channel = Arc::new(medium)
            .channel(4, memory::Claims::new().claimant().unwrap(), slice)
            .unwrap();
        Fixture {
            _directory: directory,
            path,
            channel,
        }
    }

    fn add(&mut self, request: &Request<'_>) -> Added {
        self.channel
            .add(Ticket::numbered(77), request, &[], &DmaView::empty())
    }

    /// Begins a request: its slot, and the operation it wants.
    fn begin(&mut self, request: &Request<'_>) -> (u16, Io) {
        assert!(matches!(self.add(request), Added::Pending));
        let slot = self.channel.ready.pop_front().unwrap();
        (slot, self.channel.operation(slot))
    }

    /// The outcome of a request that ends in the call.
    fn at_once(&mut self, request: &Request<'_>) -> Outcome {
        match self.add(request) {
            Added::Done(ticket, outcome) => {
                assert_eq!(port::testing::number(ticket), 77);
                outcome
            }
            other => panic!("{other:?}"),
        }
    }

    /// Answers for the kernel; the next operation.
    fn again(&mut self, slot: u16, result: i32) -> Io {
        match self.channel.step(slot, result) {
            Next::Again => self.channel.operation(slot),
            Next::End(outcome) => panic!("ended: {outcome:?}"),
        }
    }

    fn ends(&mut self, slot: u16, result: i32) -> Outcome {
        match self.channel.step(slot, result) {
            Next::End(outcome) => outcome,
            Next::Again => panic!("goes on"),
        }
    }

    /// Ends a command whose outcome was checked.
    fn give_back(&mut self, slot: u16) {
        let mut done = Vec::new();
        self.channel.end(slot, Outcome::OK, &mut done);
        retire(done);
    }

    /// Completes everything in flight.
    fn drain(&mut self) -> Vec<Done> {
        let mut done = Vec::with_capacity(4);
        for _ in 0..1_000_000 {
            self.channel.submit();
            self.channel.reap(&mut done);
            if self.channel.in_flight() == 0 {
                return done;
            }
            std::thread::yield_now();
        }
        panic!("a command hangs");
    }
}

const fn zeroes(deallocate: bool, fua: bool) -> Request<'static> {
    Request::WriteZeroes {
        offset: 4096,
        len: 1 << 19,
        deallocate,
        fua,
    }
}

fn is_fallocate(io: Io, kind: FallocateFlags) -> bool {
    io == Io::Fallocate {
        mode: kind | FallocateFlags::KEEP_SIZE,
        offset: 4096,
        len: 1 << 19,
    }
}

fn failure(cause: Cause, errno: i32) -> Outcome {
    Outcome {
        cause,
        os_error: NonZeroI32::new(errno),
        ..Outcome::OK
    }
}

#[test]
fn clearing_falls_back_step_by_step_and_remembers() {
    let mut fixture = Fixture::new(false);
    let (slot, io) = fixture.begin(&zeroes(true, false));
    assert!(is_fallocate(io, FallocateFlags::PUNCH_HOLE));
    let io = fixture.again(slot, -libc::EOPNOTSUPP);
    assert!(is_fallocate(io, FallocateFlags::ZERO_RANGE));
    let io = fixture.again(slot, -libc::EOPNOTSUPP);
    assert_eq!(
        io,
        Io::Write {
            from: Buffer::Zeros(ZEROS_BYTES),
            offset: 4096,
            durable: false
        }
    );
    // A short write continues where it ended.
    let io = fixture.again(slot, 4096);
    assert_eq!(
        io,
        Io::Write {
            from: Buffer::Zeros(ZEROS_BYTES),
            offset: 8192,
            durable: false
        }
    );
    let io = fixture.again(slot, ZEROS_BYTES as i32);
    let rest = (1 << 19) - 4096 - ZEROS_BYTES;
    assert_eq!(
        io,
        Io::Write {
            from: Buffer::Zeros(rest),
            offset: 8192 + u64::from(ZEROS_BYTES),
            durable: false
        }
    );
    assert_eq!(fixture.ends(slot, rest as i32), Outcome::OK);
    fixture.give_back(slot);

    let (_, io) = fixture.begin(&zeroes(true, true));
    assert_eq!(
        io,
        Io::Write {
            from: Buffer::Zeros(ZEROS_BYTES),
            offset: 4096,
            durable: true
        },
        "tried once"
    );
}

#[test]
fn keeping_the_space_is_not_answered_by_punching() {
    let mut fixture = Fixture::new(false);
    let (slot, io) = fixture.begin(&zeroes(false, false));
    assert!(is_fallocate(io, FallocateFlags::ZERO_RANGE));
    let io = fixture.again(slot, -libc::EOPNOTSUPP);
    assert!(matches!(
        io,
        Io::Write {
            from: Buffer::Zeros(_),
            ..
        }
    ));
    fixture.give_back(slot);
    let (_, io) = fixture.begin(&zeroes(true, false));
    assert!(
        is_fallocate(io, FallocateFlags::PUNCH_HOLE),
        "that was not refused"
    );
}

#[test]
fn durable_clearing_is_followed_by_a_sync() {
    let mut fixture = Fixture::new(false);
    let (slot, _) = fixture.begin(&zeroes(true, true));
    assert_eq!(fixture.again(slot, 0), Io::Sync);
    assert_eq!(fixture.ends(slot, 0), Outcome::OK);
    fixture.give_back(slot);
    let (slot, _) = fixture.begin(&zeroes(true, false));
    assert_eq!(fixture.ends(slot, 0), Outcome::OK);
}

#[test]
fn what_is_refused_for_a_moment_is_tried_again_but_not_for_ever() {
    let mut fixture = Fixture::new(false);
    let (slot, first) = fixture.begin(&zeroes(false, false));
    for errno in [libc::EINTR, libc::EAGAIN]
        .into_iter()
        .cycle()
        .take(usize::from(MAX_REPEATS))
    {
        assert_eq!(fixture.again(slot, -errno), first);
    }
    assert_eq!(
        fixture.ends(slot, -libc::EAGAIN),
        failure(Cause::WriteFailed, libc::EAGAIN)
    );
}

#[test]
fn a_full_disk_is_told_from_a_broken_one() {
    let mut fixture = Fixture::new(false);
    for (errno, cause) in [
        (libc::ENOSPC, Cause::NoSpace),
        (libc::EDQUOT, Cause::NoSpace),
        (libc::EIO, Cause::WriteFailed),
        (libc::EFBIG, Cause::NoSpace),
    ] {
        let (slot, _) = fixture.begin(&zeroes(false, false));
        assert_eq!(fixture.ends(slot, -errno), failure(cause, errno));
        fixture.give_back(slot);
    }
}

#[test]
fn deallocation_is_a_hint() {
    let mut fixture = Fixture::new(false);
    let ranges = [0, 1, 2].map(|n| ByteRange {
        offset: n * 8192,
        len: 4096,
    });
    let request = Request::Deallocate { ranges: &ranges };
    let (slot, io) = fixture.begin(&request);
    let punch = |offset| Io::Fallocate {
        mode: Clear::Punch.mode(),
        offset,
        len: 4096,
    };
    assert_eq!(io, punch(0));
    assert_eq!(fixture.again(slot, 0), punch(8192));
    assert_eq!(fixture.again(slot, 0), punch(16384));
    assert_eq!(
        fixture.ends(slot, -libc::EIO),
        failure(Cause::WriteFailed, libc::EIO)
    );
    fixture.give_back(slot);

    let (slot, _) = fixture.begin(&request);
    assert_eq!(fixture.ends(slot, -libc::EOPNOTSUPP), Outcome::OK);
    assert_eq!(fixture.at_once(&request), Outcome::OK, "tried once");
}

#[test]
fn a_device_of_larger_blocks_keeps_ranges_that_are_too_fine() {
    let mut fixture = Fixture::new(true);
    let ranges = [0, 1].map(|n| ByteRange {
        offset: n * 8192,
        len: 512,
    });
    let (slot, _) = fixture.begin(&Request::Deallocate { ranges: &ranges });
    fixture.again(slot, -libc::EINVAL);
    assert_eq!(fixture.ends(slot, 0), Outcome::OK);
    fixture.give_back(slot);

    let (slot, _) = fixture.begin(&zeroes(true, true));
    let io = fixture.again(slot, -libc::EINVAL);
    assert_eq!(
        io,
        Io::Write {
            from: Buffer::Zeros(ZEROS_BYTES),
            offset: 4096,
            durable: true
        }
    );
    fixture.give_back(slot);
    let (_, io) = fixture.begin(&zeroes(true, false));
    assert!(
        is_fallocate(io, FallocateFlags::PUNCH_HOLE),
        "another range may be coarse enough"
    );
}

#[test]
fn a_file_does_not_get_away_with_an_invalid_argument() {
    let mut fixture = Fixture::new(false);
    let (slot, _) = fixture.begin(&zeroes(true, false));
    assert_eq!(
        fixture.ends(slot, -libc::EINVAL),
        failure(Cause::WriteFailed, libc::EINVAL)
    );
}

#[test]
fn a_failed_flush_is_not_forgotten() {
    let mut fixture = Fixture::new(false);
    let (first, io) = fixture.begin(&Request::Flush);
    assert_eq!(io, Io::Sync);
    let (second, _) = fixture.begin(&Request::Flush);
    let expected = failure(Cause::WriteFailed, libc::EIO);
    assert_eq!(fixture.ends(first, -libc::EIO), expected);
    // The kernel tells one of two flushes; the other was in flight and heard nothing.
    assert_eq!(fixture.ends(second, 0), expected);
    assert_eq!(fixture.at_once(&Request::Flush), expected);
    assert_eq!(fixture.at_once(&zeroes(false, true)), expected);
    assert_eq!(
        fixture.at_once(&Request::Write {
            offset: 0,
            len: 512,
            fua: true
        }),
        expected
    );
    assert!(fixture.channel.medium.sync().is_err());
    // Requests without a durability promise still work.
    fixture.begin(&zeroes(false, false));
}

#[test]
fn the_end_of_the_file_in_the_middle_is_an_error() {
    let mut fixture = Fixture::new(false);
    fixture.channel.medium.cannot(Clear::ZeroRange);
    for written in [0, 512] {
        let (slot, _) = fixture.begin(&zeroes(false, false));
        fixture.channel.alignment.offset = 4096; // a direct write ends at a block, or at the end
        assert_eq!(
            fixture.ends(slot, written),
            failure(Cause::WriteFailed, libc::EIO)
        );
        fixture.give_back(slot);
    }
}

#[test]
fn a_wake_that_came_late_wakes_once() {
    let mut fixture = Fixture::new(false);
    let readable = |fixture: &Fixture| {
        let mut wait = [PollFd::new(fixture.channel.wake(), PollFlags::IN)];
        poll(&mut wait, Some(&Timespec::default())).unwrap() == 1
    };
    rustix::io::write(fixture.channel.wake(), &1_u64.to_ne_bytes()).unwrap();
    assert!(!fixture.channel.is_due());
    assert!(readable(&fixture));
    fixture.channel.reap(&mut Vec::new());
    assert!(!fixture.channel.is_due() && !readable(&fixture));
}

#[test]
fn memory_that_is_not_as_long_as_the_request_is_refused() {
    let mut fixture = Fixture::new(false);
    for request in [
        Request::Read {
            offset: 0,
            len: 512,
        },
        Request::Write {
            offset: 0,
            len: 512,
            fua: false,
        },
        Request::Compare {
            offset: 0,
            len: 512,
        },
    ] {
        assert_eq!(fixture.at_once(&request), Outcome::of(Cause::Unsupported));
    }
}

#[test]
fn requests_outside_the_medium_are_refused() {
    let mut fixture = Fixture::new(false);
    let outside = [
        Request::Read {
            offset: SIZE,
            len: 512,
        },
        Request::Read {
            offset: SIZE - 512,
            len: 1024,
        },
        Request::Write {
            offset: u64::MAX - 511,
            len: 512,
            fua: false,
        },
        Request::WriteZeroes {
            offset: 512,
            len: SIZE,
            deallocate: false,
            fua: false,
        },
        Request::WriteZeroes {
            offset: 512,
            len: u64::MAX,
            deallocate: true,
            fua: false,
        },
        Request::Deallocate {
            ranges: &[ByteRange {
                offset: SIZE,
                len: 512,
            }],
        },
        Request::Deallocate {
            ranges: &[ByteRange {
                offset: 0,
                len: 512,
            }; MAX_RANGES + 1],
        },
    ];
    for request in outside {
        assert_eq!(
            fixture.at_once(&request),
            Outcome::of(Cause::Unsupported),
            "{request:?}"
        );
    }
    assert_eq!(
        fixture.at_once(&Request::Read {
            offset: SIZE,
            len: 0
        }),
        Outcome::OK
    );
}

#[test]
fn coarse_blocks_take_no_finer_request() {
    let mut fixture = Fixture::new(false);
    fixture.channel.alignment = Alignment {
        memory: 512,
        offset: 4096,
    };
    for (offset, len) in [(512, 4096), (4096, 512)] {
        assert_eq!(
            fixture.at_once(&Request::Read { offset, len }),
            Outcome::of(Cause::Unsupported)
        );
        let zeroes = Request::WriteZeroes {
            offset,
            len: len.into(),
            deallocate: false,
            fua: false,
        };
        assert_eq!(fixture.at_once(&zeroes), Outcome::of(Cause::Unsupported));
    }
}

#[test]
fn a_file_that_shrank_fails_and_does_not_grow() {
    let mut fixture = Fixture::new(false);
    let file = std::fs::File::options()
        .write(true)
        .open(&fixture.path)
        .unwrap();
    assert!(matches!(fixture.add(&zeroes(false, false)), Added::Pending));
    file.set_len(4096).unwrap();
    let done = fixture.drain();
    assert_eq!(done[0].outcome, failure(Cause::WriteFailed, libc::EIO));
    retire(done);
    assert_eq!(file.metadata().unwrap().len(), 4096);
    file.set_len(SIZE).unwrap();
    let gone = failure(Cause::WriteFailed, libc::EIO);
    assert_eq!(
        fixture.at_once(&Request::Flush),
        gone,
        "what was cut off stays lost"
    );
    assert_eq!(
        fixture.at_once(&Request::Read {
            offset: 0,
            len: 512
        }),
        failure(Cause::ReadFailed, libc::EIO)
    );
}

#[test]
fn a_ring_of_another_thread_fails_its_commands() {
    let mut fixture = Fixture::new(false);
    assert!(matches!(fixture.add(&Request::Flush), Added::Pending));
    retire(fixture.drain());
    let outcomes = std::thread::spawn(move || {
        assert!(matches!(fixture.add(&Request::Flush), Added::Pending));
        assert!(matches!(fixture.add(&zeroes(false, false)), Added::Pending));
        let done = fixture.drain();
        let outcomes: Vec<_> = done.iter().map(|done| done.outcome.cause).collect();
        retire(done);
        outcomes
    })
    .join()
    .unwrap();
    // A kernel without SINGLE_ISSUER does not mind the thread.
    let refused = vec![Cause::WriteFailed; 2];
    assert!(
        outcomes == refused || outcomes == vec![Cause::None; 2],
        "{outcomes:?}"
    );
}

#[test]
fn durable_writes_say_so_however_the_bytes_travel() {
    let memory = HostMemory::new(8192).unwrap();
    let fd = memory.fd().try_clone_to_owned().unwrap();
    let mapping = ClientMappings::new().map(fd).unwrap();
    let mut map = DmaMap::new(1);
    let access = memory::Access {
        read: true,
        write: true,
    };
    map.map(Iova(0), 8192, access, Some((mapping, 0))).unwrap();
    let view = map.view();
    for (alignment, from) in [(1, Buffer::Segments), (512, Buffer::Bounce(1024))] {
        let mut fixture = Fixture::new(false);
        fixture.channel.alignment.memory = alignment;
        for fua in [true, false] {
            let segment = view
                .translate(&mut Hint::default(), Iova(4), 1024, Need::DeviceReads)
                .unwrap();
            let request = Request::Write {
                offset: 4096,
                len: 1024,
                fua,
            };
            let added = fixture
                .channel
                .add(Ticket::numbered(77), &request, &[segment], &view);
            assert!(matches!(added, Added::Pending));
            let slot = fixture.channel.ready.pop_front().unwrap();
            assert_eq!(
                fixture.channel.operation(slot),
                Io::Write {
                    from,
                    offset: 4096,
                    durable: fua
                }
            );
            // The rest of a short one is as durable.
            let rest = if alignment == 1 {
                from
            } else {
                Buffer::Bounce(512)
            };
            assert_eq!(
                fixture.again(slot, 512),
                Io::Write {
                    from: rest,
                    offset: 4608,
                    durable: fua
                }
            );
            assert_eq!(fixture.ends(slot, 512), Outcome::OK);
            fixture.give_back(slot);
        }
    }
}

fn retire(done: Vec<Done>) {
    for done in done {
        done.ticket.retire();
    }
}
