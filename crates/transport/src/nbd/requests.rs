//! Requests that are not answered.

use nbd::{Errno, Reply};

/// Purpose of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    Write,
    /// Write zeroes, and deallocate the blocks where that reads as zeroes.
    Zero {
        deallocates: bool,
    },
    Trim,
    Flush,
    /// Read, and leave the data to the medium's caches.
    Cache,
    /// Describe extents, or the first one alone.
    Status {
        is_one: bool,
    },
}

/// When the data of a read are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Each piece in a chunk of its own, as it comes.
    Chunks,
    /// All together.
    Together,
    /// One behind the other: there are fewer slots than pieces.
    Stream,
}

/// See the module.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request {
    pub(super) kind: Kind,
    pub(super) reply: Reply,
    /// Bytes.
    pub(super) len: u64,
    pub(super) fua: bool,
    pub(super) order: Order,
    /// Pieces that are not done.
    pub(super) left: u32,
    /// It has all of its pieces.
    pub(super) is_whole: bool,
    /// The first error, and where it was.
    pub(super) error: Errno,
    pub(super) error_at: Option<u64>,
    /// First and last slot with data that are not sent, in order.
    pub(super) held: Option<(u16, u16)>,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Requests {
    all: Box<[Option<Request>]>,
    free: Vec<u16>,
}

impl Requests {
    /// Room for `most`.
    pub(super) fn new(most: u16) -> Self {
        Self {
            all: vec![None; most.into()].into_boxed_slice(),
            free: (0..most).rev().collect(),
        }
    }

    pub(super) fn is_full(&self) -> bool {
        self.free.is_empty()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.all.len()
    }

    /// Adds one, if there is room.
    pub(super) fn add(&mut self, request: Request) -> Option<u16> {
        let index = self.free.pop()?;
        self.all[usize::from(index)] = Some(request);
        Some(index)
    }

    pub(super) fn get_mut(&mut self, index: u16) -> Option<&mut Request> {
        self.all.get_mut(usize::from(index))?.as_mut()
    }

    /// It is answered.
    pub(super) fn remove(&mut self, index: u16) -> Option<Request> {
        let request = self.all.get_mut(usize::from(index))?.take()?;
        self.free.push(index);
        Some(request)
    }
}
