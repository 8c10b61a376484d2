//! A disk that crashes, for tests of durability.
//!
//! Until it is flushed, written data may be lost sector by sector: after a crash each sector has
//! any of the contents that it had since it was last durable. A flush makes durable exactly the
//! writes that had ended before it was requested. Requests end in any order. A seed determines
//! everything.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;

use memory::{DmaView, Segment};
use port::ticket::{Parked, Ticket};
use port::{Added, Cause, Channel as Port, Done, Outcome, Request};

use crate::journal::Storage;

const SECTOR: usize = 512;

type Sector = [u8; SECTOR];

/// Pseudo-random numbers from a seed (xorshift).
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Random(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    /// One of `0..end`.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) % end
    }
}

#[derive(Debug)]
struct Ongoing {
    ticket: Parked,
    outcome: Outcome,
    write: u64,
    /// For a flush: the writes that had ended before it.
    flushes: Option<BTreeSet<u64>>,
    fua: bool,
}

#[derive(Debug)]
struct Inner {
    durable: Vec<u8>,
    /// Contents newer than the durable one, the oldest first, each with its write.
    newer: BTreeMap<u64, Vec<(u64, Sector)>>,
    ongoing: Vec<Ongoing>,
    /// Writes that have ended and are not durable.
    ended: BTreeSet<u64>,
    writes: u64,
    /// Total bytes of all write requests.
    written: u64,
    random: Random,
    /// Number of [`Storage`] calls that still succeed; all later ones fail.
    calls_left: u64,
    /// One in this many writes finds no space, after part of it was written; 0: none.
    no_space: u64,
    depth: usize,
}

#[derive(Debug)]
pub(crate) struct Disk(RefCell<Inner>);

impl Disk {
    pub(crate) fn new(bytes: Vec<u8>, seed: u64) -> Self {
        assert!(bytes.len().is_multiple_of(SECTOR));
        Disk(RefCell::new(Inner {
            durable: bytes,
            newer: BTreeMap::new(),
            ongoing: Vec::new(),
            ended: BTreeSet::new(),
            writes: 0,
            written: 0,
            random: Random::new(seed),
            calls_left: u64::MAX,
            no_space: 0,
            depth: 8,
        }))
    }

    /// Lets this many more blocking calls succeed.
    pub(crate) fn fail_after(&self, calls: u64) {
        self.0.borrow_mut().calls_left = calls;
    }

    /// From now on one in this many writes finds no space, after part of it was written; 0: none.
    pub(crate) fn no_space(&self, one_in: u64) {
        self.0.borrow_mut().no_space = one_in;
    }

    /// Total bytes of the write requests so far.
    pub(crate) fn written(&self) -> u64 {
        self.0.borrow().written
    }

    /// Contents after a crash at this moment.
    pub(crate) fn crash(&self) -> Vec<u8> {
        let inner = &mut *self.0.borrow_mut();
        let mut bytes = inner.durable.clone();
        for (sector, contents) in &inner.newer {
            let which = inner.random.below(contents.len() as u64 + 1) as usize;
            if let Some((_, content)) = which.checked_sub(1).map(|at| &contents[at]) {
                let at = *sector as usize * SECTOR;
                bytes[at..at + SECTOR].copy_from_slice(content);
            }
        }
        bytes
    }

    /// Current contents.
    pub(crate) fn now(&self) -> Vec<u8> {
        let inner = self.0.borrow();
        let mut bytes = inner.durable.clone();
        for (sector, contents) in &inner.newer {
            let at = *sector as usize * SECTOR;
            bytes[at..at + SECTOR].copy_from_slice(&contents[contents.len() - 1].1);
        }
        bytes
    }
}

impl Inner {
    fn write(&mut self, offset: u64, bytes: &[u8]) -> u64 {
        self.writes += 1;
        assert!(offset as usize + bytes.len() <= self.durable.len());
        let (sectors, rest) = bytes.as_chunks::<SECTOR>();
        assert!(rest.is_empty() && offset.is_multiple_of(SECTOR as u64));
        for (sector, content) in (offset / SECTOR as u64..).zip(sectors) {
            let contents = self.newer.entry(sector).or_default();
            contents.push((self.writes, *content));
        }
        self.writes
    }

    /// Makes the effects of these writes durable.
    fn settle(&mut self, writes: &BTreeSet<u64>) {
        let durable = &mut self.durable;
        self.newer.retain(|sector, contents| {
            let last = contents
                .iter()
                .rposition(|(write, _)| writes.contains(write));
            if let Some(last) = last {
                let at = *sector as usize * SECTOR;
                durable[at..at + SECTOR].copy_from_slice(&contents[last].1);
                contents.drain(..=last);
            }
            !contents.is_empty()
        });
        self.ended.retain(|write| !writes.contains(write));
    }

    fn call(&mut self) -> io::Result<()> {
        self.calls_left = self
            .calls_left
            .checked_sub(1)
            .ok_or_else(|| io::Error::other("crashed"))?;
        Ok(())
    }
}

impl Storage for Disk {
    fn read_at(&self, offset: u64, bytes: &mut [u8]) -> io::Result<()> {
        let inner = self.0.borrow();
        let at = offset as usize;
        bytes.copy_from_slice(&inner.durable[at..at + bytes.len()]);
        let (sectors, _) = bytes.as_chunks_mut::<SECTOR>();
        assert!(offset.is_multiple_of(SECTOR as u64));
        for (sector, bytes) in (offset / SECTOR as u64..).zip(sectors) {
            if let Some(contents) = inner.newer.get(&sector) {
                *bytes = contents[contents.len() - 1].1;
            }
        }
        let last = (offset + bytes.len() as u64) / SECTOR as u64;
        let newest = inner
            .newer
            .get(&last)
            .map(|contents| contents[contents.len() - 1].1);
        if let Some(newest) = newest {
            let from = bytes.len() / SECTOR * SECTOR;
            let len = bytes.len() - from;
            bytes[from..].copy_from_slice(&newest[..len]);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.call()?;
        let write = inner.write(offset, bytes);
        inner.ended.insert(write);
        Ok(())
    }

    fn clear(&self, offset: u64, len: u64) -> io::Result<()> {
        self.write_at(offset, &vec![0; len as usize])
    }

    fn allocate(&self, _: u64, _: u64) -> io::Result<()> {
        Ok(())
    }

    fn find_data(&self, offset: u64, end: u64) -> io::Result<Option<u64>> {
        let all = self.now();
        let bytes = &all[offset as usize..end as usize];
        let found = bytes.iter().position(|byte| *byte != 0);
        // A sector counts as data if any of its bytes does.
        Ok(found.map(|at| (offset + at as u64) / SECTOR as u64 * SECTOR as u64))
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.0.borrow_mut();
        inner.call()?;
        let ended = inner.ended.clone();
        inner.settle(&ended);
        Ok(())
    }
}

impl Port for Disk {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        _: &Arc<DmaView>,
    ) -> Added {
        let inner = self.0.get_mut();
        if inner.ongoing.len() >= inner.depth {
            return Added::Full(ticket);
        }
        let mut outcome = Outcome::OK;
        let takes_space = matches!(request, Request::Write { .. });
        let is_short = takes_space && inner.no_space > 0 && inner.random.below(inner.no_space) == 0;
        if is_short {
            outcome = Outcome::of(Cause::NoSpace);
        }
        let (mut flushes, mut durable, mut write) = (None, false, 0);
        match *request {
            Request::Read { offset, .. } => {
                let bytes = self.now();
                let mut at = offset as usize;
                for segment in segments {
                    segment.write_from(0, &bytes[at..at + segment.len() as usize]);
                    at += segment.len() as usize;
                }
            }
            Request::Write { offset, len, fua } => {
                let mut bytes = vec![0; len as usize];
                let mut rest = &mut bytes[..];
                for segment in segments {
                    let (now, later) = rest.split_at_mut(segment.len() as usize);
                    segment.read_into(0, now);
                    rest = later;
                }
                if is_short {
                    let sectors = inner.random.below(bytes.len() as u64 / SECTOR as u64);
                    bytes.truncate(sectors as usize * SECTOR);
                }
                write = inner.write(offset, &bytes);
                inner.written += u64::from(len);
                durable = fua && !is_short;
            }
            Request::WriteZeroes {
                offset, len, fua, ..
            } => {
                write = inner.write(offset, &vec![0; len as usize]);
                durable = fua;
                // With FUA, a file sync follows.
                flushes = fua.then(|| inner.ended.clone());
            }
            Request::Deallocate { ranges } => {
                for range in ranges {
                    write = inner.write(range.offset, &vec![0; range.len as usize]);
                }
            }
            Request::Flush => flushes = Some(inner.ended.clone()),
            _ => {}
        }
        self.0.get_mut().ongoing.push(Ongoing {
            ticket: ticket.park(),
            outcome,
            write,
            flushes,
            fua: durable,
        });
        Added::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        let inner = self.0.get_mut();
        for _ in 0..inner.ongoing.len() {
            let at = inner.random.below(2 * inner.ongoing.len() as u64) as usize;
            if at >= inner.ongoing.len() {
                continue;
            }
            let Ongoing {
                ticket,
                outcome,
                write,
                flushes,
                fua,
            } = inner.ongoing.swap_remove(at);
            inner.ended.insert(write);
            if let Some(writes) = flushes {
                inner.settle(&writes);
            }
            if fua {
                inner.settle(&BTreeSet::from([write]));
            }
            done.push(Done {
                ticket: ticket.unpark(),
                outcome,
            });
        }
    }

    fn in_flight(&self) -> u32 {
        self.0.borrow().ongoing.len() as u32
    }
}
