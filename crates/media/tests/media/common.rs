//! A host for media: memory that is shared and mapped as a client's is, tickets, and waiting with
//! a bound.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use media::{Channel, Direct, FileIo, Medium, MediumKind, MediumSpec};
use memory::{
    Access, ClientMappings, DmaMap, DmaView, Hint, HostMemory, Iova, Mapping, Need, Segment,
};
use port::ticket::Ticket;
use port::time::Time;
use port::{Added, Channel as _, Done, Outcome, Request, testing};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FallocateFlags;

/// In the place of an offset in the host's memory: what a read finds is discarded.
pub(crate) const DISCARDED: usize = usize::MAX;

/// Where the host's memory is on its bus.
pub(crate) const BASE: u64 = 0x1_0000_0000;

/// Set to `poll_submissions` where files are opened so.
pub(crate) const FILE_IO: &str = "MEDIA_TEST_FILE_IO";

/// Memory of a host, all of it mapped for the device.
pub(crate) struct Host {
    buffer: memory::Buffer,
    memory: HostMemory,
    mapping: Arc<Mapping>,
    map: DmaMap,
    pub(crate) view: Arc<DmaView>,
}

impl Host {
    pub(crate) fn new(len: usize) -> Host {
        let memory = HostMemory::new(len).expect("memory");
        let mut mappings = ClientMappings::new();
        let fd = memory
            .fd()
            .try_clone_to_owned()
            .expect("a second descriptor");
        let mapping = mappings.map(fd).expect("mapped");
        let buffer = memory.alloc(len, 4096).expect("all of it");
        let mut host = Host {
            buffer,
            memory,
            mapping,
            map: DmaMap::new(memory::MAX_DMA_REGIONS),
            view: DmaView::empty(),
        };
        host.map();
        host
    }

    pub(crate) fn map(&mut self) {
        let len = self.memory.len() as u64;
        let backing = Some((self.mapping.clone(), 0));
        self.map
            .map(Iova(BASE), len, Access::READ_WRITE, backing)
            .expect("a region");
        self.view = self.map.view();
    }

    pub(crate) fn unmap(&mut self) {
        self.map.unmap_all();
        self.view = self.map.view();
    }

    /// Gives all pages back to the system; from then on there are others, of zeros.
    pub(crate) fn punch(&self) {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let len = self.memory.len() as u64;
        rustix::fs::fallocate(self.memory.fd(), flags, 0, len).expect("punched");
    }

    /// Segments for (offset, length) in the host's memory.
    pub(crate) fn segments(&self, pieces: &[(usize, usize)]) -> Vec<Segment<'_>> {
        let mut hint = Hint::default();
        let translate = |&(offset, len): &(usize, usize)| {
            if offset == DISCARDED {
                let segment = Segment::sink(len as u32);
                assert_eq!(segment.len(), len as u32, "no more than the sink has");
                return segment;
            }
            let at = Iova(BASE + offset as u64);
            let segment = self
                .view
                .translate(&mut hint, at, len as u32, Need::DeviceWrites)
                .expect("mapped");
            assert_eq!(segment.len(), len as u32, "one region");
            segment
        };
        pieces.iter().map(translate).collect()
    }

    pub(crate) fn put(&self, at: usize, bytes: &[u8]) {
        self.buffer.write_from(at, bytes);
    }

    pub(crate) fn get(&self, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.buffer.read_into(at, &mut bytes);
        bytes
    }
}

/// A channel with the commands that a test has in flight, named by numbers.
pub(crate) struct Runner {
    pub(crate) channel: Channel,
    ended: Vec<(u64, Outcome)>,
    pending: BTreeSet<u64>,
    done: Vec<Done>,
    next: u64,
}

impl Runner {
    pub(crate) fn new(medium: &Arc<Medium>, depth: u16) -> Runner {
        let channel = medium.channel(depth).expect("a channel");
        Runner {
            channel,
            ended: Vec::new(),
            pending: BTreeSet::new(),
            done: Vec::with_capacity(depth.into()),
            next: 1,
        }
    }

    /// Adds a request without submitting; `None` where there is no room.
    pub(crate) fn try_add(
        &mut self,
        host: &Host,
        request: &Request<'_>,
        pieces: &[(usize, usize)],
    ) -> Option<u64> {
        let id = self.next;
        let ticket = Ticket::numbered(id as u32);
        match self
            .channel
            .add(ticket, request, &host.segments(pieces), &host.view)
        {
            Added::Pending => assert!(self.pending.insert(id)),
            Added::Done(ticket, outcome) => self
                .ended
                .push((u64::from(testing::number(ticket)), outcome)),
            Added::Full(ticket) => {
                assert_eq!(u64::from(testing::number(ticket)), id);
                return None;
            }
        }
        self.next += 1;
        Some(id)
    }

    pub(crate) fn add(
        &mut self,
        host: &Host,
        request: &Request<'_>,
        pieces: &[(usize, usize)],
    ) -> u64 {
        self.try_add(host, request, pieces).expect("room")
    }

    /// Tells the time, and takes what is due by then.
    pub(crate) fn set_time(&mut self, now: u64) {
        self.channel.set_time(Time(now), &mut self.done);
        self.take_done();
    }

    /// Reaps what is there, without waiting.
    pub(crate) fn reap(&mut self) {
        self.channel.tend();
        self.channel.reap(&mut self.done);
        self.take_done();
    }

    fn take_done(&mut self) {
        for Done { ticket, outcome } in self.done.drain(..) {
            let id = u64::from(testing::number(ticket));
            assert!(self.pending.remove(&id), "each ticket comes back once");
            self.ended.push((id, outcome));
        }
        assert!(self.channel.in_flight() as usize >= self.pending.len());
    }

    /// Requests that ended since the last call, by number.
    pub(crate) fn take_ended(&mut self) -> Vec<(u64, Outcome)> {
        let mut ended = std::mem::take(&mut self.ended);
        ended.sort_by_key(|(id, _)| *id);
        ended
    }

    /// Waits, as a sleeping reactor does, until nothing is in flight; what ended, by number.
    pub(crate) fn drain(&mut self) -> Vec<(u64, Outcome)> {
        self.channel.submit();
        let mut waits = 0;
        while self.channel.in_flight() > 0 {
            if !self.channel.is_due() {
                let fd = self.channel.wait_fd().expect("only a file is ever pending");
                let bound = Timespec {
                    tv_sec: 20,
                    tv_nsec: 0,
                };
                let readable =
                    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&bound)).expect("poll");
                assert_ne!(readable, 0, "a command hangs");
            }
            let held = self.channel.in_flight();
            self.reap();
            if self.channel.in_flight() == held {
                // perhaps it waits for what another thread does
                std::thread::yield_now();
            }
            waits += 1;
            assert!(waits < 10_000_000, "nothing but waking up");
        }
        self.take_ended()
    }

    /// One request, from start to end.
    pub(crate) fn run(
        &mut self,
        host: &Host,
        request: &Request<'_>,
        pieces: &[(usize, usize)],
    ) -> Outcome {
        let id = self.add(host, request, pieces);
        let ended = self.drain();
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].0, id);
        ended[0].1
    }
}

/// A directory inside the build folder: a real file system.
pub(crate) fn on_disk() -> tempfile::TempDir {
    tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory")
}

/// A directory in memory, where /dev/shm is that.
pub(crate) fn in_memory() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").expect("a directory")
}

pub(crate) fn file_spec(path: &Path, size: Option<u64>, direct: Direct) -> MediumSpec {
    MediumSpec {
        kind: MediumKind::File {
            path: path.into(),
            size,
            direct,
            io: FileIo {
                poll_submissions: std::env::var_os(FILE_IO).is_some(),
                ..FileIo::default()
            },
        },
    }
}

pub(crate) fn open_file(path: &Path, size: Option<u64>, direct: Direct) -> Arc<Medium> {
    Medium::open(&file_spec(path, size, direct)).expect("the file opens")
}

/// Whether this process has `path` open with O_DIRECT, by the kernel's account.
pub(crate) fn is_open_direct(path: &Path) -> bool {
    let path = path.canonicalize().expect("a path");
    for entry in std::fs::read_dir("/proc/self/fd").expect("procfs") {
        let Ok(entry) = entry else { continue };
        if std::fs::read_link(entry.path()).is_ok_and(|target| target == path) {
            let info = PathBuf::from("/proc/self/fdinfo").join(entry.file_name());
            let info = std::fs::read_to_string(info).expect("fdinfo");
            let flags = info
                .lines()
                .find_map(|line| line.strip_prefix("flags:"))
                .expect("flags");
            let flags = u32::from_str_radix(flags.trim(), 8).expect("octal");
            return flags & rustix::fs::OFlags::DIRECT.bits() != 0;
        }
    }
    panic!("{} is not open", path.display());
}

/// Bytes that differ at every place and for every seed.
pub(crate) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
