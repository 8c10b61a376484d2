//! The record of requests in flight, which outlives the process (vhost-user, "Inflight I/O
//! tracking").
//!
//! It is a file that the front end keeps, with a region for each ring. A back end that continues
//! the rings of one that died takes the requests that are in flight there again.
//!
//! Invariants:
//! - The process may die between any two stores: what is found then names every request that the
//!   driver waits for, and none that it got back.
//! - A region is read once, when its ring is made, and checked as a whole. From then on it is only
//!   written. The contents of requests that are taken again are the exception: each is read when it
//!   is taken, and checked as a driver's.
//! - A front end may shorten the file at any time: the rings go on, and the record is lost.
//!
//! It does NOT know which requests a medium has done.

mod packed;
mod split;

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use memory::{ClientMappings, MapError, Mapping, SharedArea};
use rustix::fs::{MemfdFlags, SealFlags};

pub(super) use self::packed::PackedRecord;
pub(super) use self::split::SplitRecord;
use super::fault::RingFault;
use super::setup::MAX_SIZE;

/// Alignment of the regions.
const ALIGN: u64 = 64;
/// The version of the layout.
const VERSION: u16 = 1;
/// Where the header of both layouts has its features, its version and its number of entries.
const FEATURES_AT: u32 = 0;
const VERSION_AT: u32 = 8;
const COUNT_AT: u32 = 10;
/// Counters from here on are those of no back end: one that counts a request each nanosecond gets
/// there after 292 years.
const MAX_COUNTER: u64 = 1 << 63;

/// Why a file that a front end gave back is not continued with.
#[derive(Debug, thiserror::Error)]
pub(in crate::vhost_user) enum AdoptError {
    /// The file cannot be mapped.
    #[error("{0}")]
    Map(#[from] MapError),
    /// Rings of another number or size than there can be.
    #[error("{queues} rings of {size} entries: at least one ring, of 1 to 32768 entries")]
    Rings { queues: u16, size: u16 },
    /// The regions do not fit.
    #[error("{needed} bytes are needed, and {len} are given at {offset} of a file of {file_len}")]
    Bounds {
        needed: u64,
        len: u64,
        offset: u64,
        file_len: u64,
    },
    /// The offset is not aligned.
    #[error("it begins at {0}, which is not a multiple of 64")]
    Misaligned(u64),
    /// The descriptor is for reading alone.
    #[error("its descriptor is read-only: send one for reading and writing")]
    ReadOnly,
    /// A region has another layout.
    #[error("the record of ring {ring} has version {version}, features {features:#x}: 1 and 0")]
    Layout {
        ring: u16,
        version: u16,
        features: u64,
    },
}

/// The file with the records of all rings. See the module.
#[derive(Debug)]
pub(in crate::vhost_user) struct Inflight {
    mapping: Arc<Mapping>,
    offset: u64,
    shape: Shape,
}

/// How many records there are, and of which rings.
#[derive(Clone, Copy, Debug)]
struct Shape {
    queues: u16,
    size: u16,
    is_packed: bool,
}

impl Shape {
    /// `None` where there can be no such rings.
    fn new(queues: u16, size: u16, is_packed: bool) -> Option<Self> {
        let is_possible = queues > 0 && (1..=MAX_SIZE).contains(&size);
        is_possible.then_some(Self {
            queues,
            size,
            is_packed,
        })
    }

    /// Bytes of a region.
    fn region(self) -> u64 {
        let (header, entry) = if self.is_packed {
            (packed::HEADER, packed::ENTRY)
        } else {
            (split::HEADER, split::ENTRY)
        };
        let len = u64::from(header) + u64::from(entry) * u64::from(self.size);
        len.next_multiple_of(ALIGN)
    }

    fn len(self) -> u64 {
        self.region() * u64::from(self.queues)
    }
}

impl Inflight {
    /// New records for `queues` rings of `queue_size` entries each; the file, and the bytes of it
    /// that have records, from its start on.
    ///
    /// # Errors
    /// `InvalidInput`: there can be no such rings. And the system's.
    pub(in crate::vhost_user) fn create(
        queues: u16,
        queue_size: u16,
        is_packed: bool,
    ) -> io::Result<(Self, OwnedFd, u64)> {
        let shape = Shape::new(queues, queue_size, is_packed);
        let shape = shape.ok_or(io::ErrorKind::InvalidInput)?;
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("nvmirage-inflight", flags)?;
        let page = rustix::param::page_size() as u64;
        rustix::fs::ftruncate(&fd, shape.len().next_multiple_of(page))?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let ours = fd.as_fd().try_clone_to_owned()?;
        let mapping = ClientMappings::new().map(ours);
        let mapping = mapping.map_err(io::Error::other)?;
        let inflight = Self {
            mapping,
            offset: 0,
            shape,
        };
        Ok((inflight, fd, shape.len()))
    }

    /// The records in `len` bytes from `offset` on of a file that a front end gives back. Regions
    /// of version 0 are new.
    ///
    /// # Errors
    /// See [`AdoptError`].
    pub(in crate::vhost_user) fn adopt(
        fd: OwnedFd,
        len: u64,
        offset: u64,
        queues: u16,
        queue_size: u16,
        is_packed: bool,
    ) -> Result<Self, AdoptError> {
        let shape = Shape::new(queues, queue_size, is_packed);
        let shape = shape.ok_or(AdoptError::Rings {
            queues,
            size: queue_size,
        })?;
        if !offset.is_multiple_of(ALIGN) {
            return Err(AdoptError::Misaligned(offset));
        }
        let mapping = ClientMappings::new().map(fd)?;
        let file_len = mapping.len();
        let end = offset.checked_add(len);
        if shape.len() > len || end.is_none_or(|end| end > file_len) {
            return Err(AdoptError::Bounds {
                needed: shape.len(),
                len,
                offset,
                file_len,
            });
        }
        if !mapping.is_writable() {
            return Err(AdoptError::ReadOnly);
        }
        let inflight = Self {
            mapping,
            offset,
            shape,
        };
        for ring in 0..queues {
            let Some(Record { area, .. }) = inflight.record(ring) else {
                continue;
            };
            let (version, features) = (area.load_u16(VERSION_AT), area.load_u64(FEATURES_AT));
            if version > VERSION || (version != 0 && features != 0) {
                return Err(AdoptError::Layout {
                    ring,
                    version,
                    features,
                });
            }
        }
        Ok(inflight)
    }

    /// The record of ring `index`; `None` where there is none.
    pub(in crate::vhost_user) fn record(&self, index: u16) -> Option<Record> {
        if index >= self.shape.queues {
            return None;
        }
        let region = self.shape.region();
        let at = self.offset + region * u64::from(index);
        let len = u32::try_from(region).ok()?;
        Some(Record {
            area: SharedArea::in_file(&self.mapping, at, len).ok()?,
            entries: self.shape.size,
            is_packed: self.shape.is_packed,
        })
    }
}

/// The record of one ring, before it is read.
#[derive(Debug)]
pub(in crate::vhost_user) struct Record {
    area: SharedArea,
    entries: u16,
    is_packed: bool,
}

impl Record {
    /// Its memory and its entries, for a ring of `size` entries, and whether it was used before.
    fn open(self, size: u16, is_packed: bool) -> Result<(SharedArea, u16, bool), RingFault> {
        if self.is_packed != is_packed {
            return Err(RingFault::Record("it is of the other layout"));
        }
        if size > self.entries {
            return Err(RingFault::Record("it has fewer entries than the ring"));
        }
        match self.area.load_u16(VERSION_AT) {
            0 => return Ok((self.area, self.entries, false)),
            VERSION => {}
            _ => return Err(RingFault::Record("its version is unknown")),
        }
        if self.area.load_u64(FEATURES_AT) != 0 {
            return Err(RingFault::Record("its features are unknown"));
        }
        if self.area.load_u16(COUNT_AT) != self.entries {
            return Err(RingFault::Record("it has another number of entries"));
        }
        Ok((self.area, self.entries, true))
    }
}

/// The counters and entries of requests in flight, in the order in which they are to be taken
/// *from the end*; and the next counter.
fn in_order(mut found: Vec<(u64, u16)>) -> Result<(Vec<u16>, u64), RingFault> {
    found.sort_unstable_by(|one, other| other.cmp(one));
    if found.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(RingFault::Record("two requests have the same counter"));
    }
    let newest = found.first().map(|(counter, _)| *counter);
    if newest.is_some_and(|counter| counter >= MAX_COUNTER) {
        return Err(RingFault::Record("a counter is too large"));
    }
    let next = newest.map_or(0, |counter| counter + 1);
    Ok((found.into_iter().map(|(_, entry)| entry).collect(), next))
}

/// Whether an entry is in flight, by its byte.
fn is_in_flight(byte: u8) -> Result<bool, RingFault> {
    match byte {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(RingFault::Record("an entry is neither in flight nor free")),
    }
}
