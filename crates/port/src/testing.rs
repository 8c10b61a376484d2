//! For tests: a host's memory, and a scripted medium.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::sync::Arc;

use memory::{Access, Buffer, ClientMappings, DmaMap, DmaView, HostMemory, Iova, Mapping, Segment};

use crate::namespace::Namespace;
use crate::ticket::Ticket;
use crate::{Added, ByteRange, Cause, Channel, ChannelId, Done, MediumTraits, Outcome, Request};

pub const PAGE: u64 = 4096;

/// A host's memory: one memfd, mapped for the device from [`Host::BASE`] on, in regions of one page
/// each or as one.
pub struct Host {
    ram: Buffer,
    map: DmaMap,
    mapping: Arc<Mapping>,
}

impl Host {
    /// Where its memory begins for the device.
    pub const BASE: u64 = 0x4000_0000;

    /// Memory of `pages` pages, mapped as one region.
    pub fn new(pages: u64) -> Self {
        let mut host = Self::unmapped(pages);
        host.map_pages(0, pages);
        host
    }

    /// Memory of `pages` pages, of which none is mapped.
    pub fn unmapped(pages: u64) -> Self {
        let len = (pages * PAGE) as usize;
        let memory = HostMemory::new(len).unwrap();
        let fd = memory.fd().as_fd().try_clone_to_owned().unwrap();
        Host {
            ram: memory.alloc(len, PAGE as usize).unwrap(),
            map: DmaMap::new(65_535),
            mapping: ClientMappings::new().map(fd).unwrap(),
        }
    }

    /// Maps `count` pages from page `first` on, as one region.
    pub fn map_pages(&mut self, first: u64, count: u64) {
        self.map_as(
            first,
            count,
            Access {
                read: true,
                write: true,
            },
        );
    }

    pub fn map_as(&mut self, first: u64, count: u64, access: Access) {
        let backing = Some((self.mapping.clone(), first * PAGE));
        self.map
            .map(self.page(first), count * PAGE, access, backing)
            .unwrap();
    }

    /// Maps `count` pages at `at`, as one region, which is the memory from page `memory` on.
    pub fn map_elsewhere(&mut self, at: Iova, count: u64, memory: u64) {
        let access = Access {
            read: true,
            write: true,
        };
        let backing = Some((self.mapping.clone(), memory * PAGE));
        self.map.map(at, count * PAGE, access, backing).unwrap();
    }

    /// Maps pages without a descriptor: the device knows of them and cannot reach them.
    pub fn map_without_descriptor(&mut self, first: u64, count: u64) {
        let access = Access {
            read: true,
            write: true,
        };
        self.map
            .map(self.page(first), count * PAGE, access, None)
            .unwrap();
    }

    /// Unmaps the regions in `count` pages from page `first` on.
    pub fn unmap_pages(&mut self, first: u64, count: u64) {
        self.map.unmap(self.page(first), count * PAGE).unwrap();
    }

    pub fn view(&self) -> Arc<DmaView> {
        self.map.view()
    }

    /// The device's address of page `number`.
    pub fn page(&self, number: u64) -> Iova {
        Iova(Self::BASE + number * PAGE)
    }

    pub fn write(&self, at: Iova, bytes: &[u8]) {
        self.ram.write_from((at.0 - Self::BASE) as usize, bytes);
    }

    pub fn read(&self, at: Iova, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.ram.read_into((at.0 - Self::BASE) as usize, &mut bytes);
        bytes
    }

    pub fn write_u32(&self, at: Iova, value: u32) {
        self.write(at, &value.to_le_bytes());
    }

    pub fn read_u32(&self, at: Iova) -> u32 {
        u32::from_le_bytes(self.read(at, 4).try_into().unwrap())
    }

    pub fn write_u64(&self, at: Iova, value: u64) {
        self.write(at, &value.to_le_bytes());
    }
}

/// How a [`TestMedium`] answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// At once.
    Synchronous,
    /// From the next reap on.
    Asynchronous,
    /// Holds every ticket until [`TestMedium::release`].
    Hanging,
}

/// A request as a medium saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seen {
    Read(u64, u32),
    Write(u64, u32, bool),
    Compare(u64, u32),
    /// Whether it commits what it compares, and whether it writes durably.
    CompareAndWrite(u64, u32, bool, bool),
    WriteZeroes(u64, u64, bool, bool),
    Deallocate(Vec<ByteRange>),
    Flush,
    /// Opcode, where the namespace is, the host's data, and whether it is to be durable.
    Command(u8, ByteRange, Vec<u8>, bool),
    Renew(ByteRange),
}

/// A medium in a vector.
pub struct TestMedium {
    pub bytes: Vec<u8>,
    pub manner: Manner,
    /// Tickets it holds at most.
    pub capacity: usize,
    /// Cause with which every request ends instead of being done.
    pub fault: Option<Cause>,
    /// Outcome of a command of a set.
    pub answer: Outcome,
    pub seen: Vec<Seen>,
    /// It says that it keeps the time of a model.
    pub keeps_time: bool,
    held: VecDeque<(Ticket, Outcome)>,
    released: usize,
}

impl TestMedium {
    pub fn new(len: usize, manner: Manner) -> Self {
        TestMedium {
            bytes: vec![0; len],
            manner,
            capacity: usize::MAX,
            fault: None,
            answer: Outcome::OK,
            seen: Vec::new(),
            keeps_time: false,
            held: VecDeque::new(),
            released: 0,
        }
    }

    /// Lets up to `count` held requests end.
    pub fn release(&mut self, count: usize) {
        self.released += count;
    }

    fn act(&mut self, request: &Request<'_>, segments: &[Segment<'_>]) -> Cause {
        if let Some(cause) = self.fault {
            return cause;
        }
        let total: u64 = segments.iter().map(|s| u64::from(s.len())).sum();
        match *request {
            Request::Read { offset, len } => {
                assert_eq!(total, u64::from(len));
                let mut at = offset as usize;
                for segment in segments {
                    let end = at + segment.len() as usize;
                    segment.write_from(0, &self.bytes[at..end]);
                    at = end;
                }
                Cause::None
            }
            Request::Write { offset, len, .. } => {
                let data = gather(segments);
                assert_eq!(data.len(), len as usize);
                self.bytes[offset as usize..][..data.len()].copy_from_slice(&data);
                Cause::None
            }
            Request::Compare { offset, len } => {
                let data = gather(segments);
                assert_eq!(data.len(), len as usize);
                if self.bytes[offset as usize..][..data.len()] == data {
                    Cause::None
                } else {
                    Cause::CompareMismatch
                }
            }
            Request::CompareAndWrite { offset, len, .. } => {
                let data = gather(segments);
                let (old, new) = data.split_at(len as usize);
                assert_eq!(old.len(), new.len());
                let bytes = &mut self.bytes[offset as usize..][..len as usize];
                if bytes != old {
                    return Cause::CompareMismatch;
                }
                bytes.copy_from_slice(new);
                Cause::None
            }
            Request::WriteZeroes { offset, len, .. } => {
                self.bytes[offset as usize..][..len as usize].fill(0);
                Cause::None
            }
            Request::Deallocate { ranges } => {
                for range in ranges {
                    self.bytes[range.offset as usize..][..range.len as usize].fill(0);
                }
                Cause::None
            }
            Request::Flush | Request::Renew { .. } | Request::Command { .. } => Cause::None,
        }
    }
}

fn gather(segments: &[Segment<'_>]) -> Vec<u8> {
    let mut data = Vec::new();
    for segment in segments {
        let at = data.len();
        data.resize(at + segment.len() as usize, 0);
        segment.read_into(0, &mut data[at..]);
    }
    data
}

impl Channel for TestMedium {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        _view: &Arc<DmaView>,
    ) -> Added {
        if self.held.len() >= self.capacity {
            return Added::Full(ticket);
        }
        self.seen.push(match *request {
            Request::Read { offset, len } => Seen::Read(offset, len),
            Request::Write { offset, len, fua } => Seen::Write(offset, len, fua),
            Request::Compare { offset, len } => Seen::Compare(offset, len),
            Request::CompareAndWrite {
                offset,
                len,
                commit,
                fua,
            } => Seen::CompareAndWrite(offset, len, commit, fua),
            Request::WriteZeroes {
                offset,
                len,
                deallocate,
                fua,
            } => Seen::WriteZeroes(offset, len, deallocate, fua),
            Request::Deallocate { ranges } => Seen::Deallocate(ranges.to_vec()),
            Request::Flush => Seen::Flush,
            Request::Command {
                sqe, extent, fua, ..
            } => Seen::Command(sqe.opcode, extent, gather(segments), fua),
            Request::Renew { extent } => Seen::Renew(extent),
        });
        let outcome = match request {
            Request::Command { .. } => self.answer,
            _ => Outcome::of(self.act(request, segments)),
        };
        if self.manner == Manner::Synchronous {
            return Added::Done(ticket, outcome);
        }
        self.held.push_back((ticket, outcome));
        Added::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        if self.manner != Manner::Hanging {
            self.released = self.held.len();
        }
        for _ in 0..self.released.min(self.held.len()) {
            let (ticket, outcome) = self.held.pop_front().unwrap();
            done.push(Done { ticket, outcome });
        }
        self.released = 0;
    }

    fn in_flight(&self) -> u32 {
        self.held.len() as u32
    }

    fn keeps_time(&self) -> bool {
        self.keeps_time
    }

    fn is_full(&self, _request: &Request<'_>) -> bool {
        self.held.len() >= self.capacity
    }
}

/// A test may leave commands in flight: their tickets are retired.
impl Drop for TestMedium {
    fn drop(&mut self) {
        for (ticket, _) in self.held.drain(..) {
            ticket.retire();
        }
    }
}

/// A namespace of `blocks` blocks of 512 bytes at the start of the medium behind `channel`.
pub fn namespace(nsid: u32, channel: ChannelId, blocks: u64) -> Namespace {
    Namespace {
        nsid,
        channel,
        start: 0,
        blocks,
        lba_shift: 9,
        nguid: [0; 16],
        eui64: [0; 8],
        traits: MediumTraits {
            deallocate: true,
            ..MediumTraits::default()
        },
        restrictions: None,
        set: None,
    }
}

/// The number of a ticket made by [`Ticket::numbered`] that has come back; its duty ends here.
///
/// # Panics
/// If it is another's.
#[must_use]
pub fn number(ticket: Ticket) -> u32 {
    let number = ticket.number().expect("a numbered ticket");
    ticket.retire();
    number
}
