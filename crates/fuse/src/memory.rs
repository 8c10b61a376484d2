//! Memory shared with the drive, for the data of requests.
//!
//! Buffers have a few sizes and are reused. Memory that no request has used yet occupies no pages.
//!
//! Invariant: there is a buffer of every size for each request that can be in flight.

use std::sync::{Mutex, PoisonError};

use driver::DriverError;
use memory::{Buffer, HostMemory};

/// Largest supported logical block, and therefore the size of an edge.
pub(super) const EDGE_LEN: usize = 64 << 10;
/// Most bytes of a request of the kernel.
pub(super) const REQUEST_LEN: u32 = 1 << 20;
/// Sizes of buffers: for most requests, for longer ones, and for the longest, which may start and
/// end inside of a block. Edges use the middle size.
const SIZES: [usize; 3] = [16 << 10, 2 * EDGE_LEN, REQUEST_LEN as usize + 2 * EDGE_LEN];
/// Queues, doorbells, and the admin queue's data.
const SPARE_LEN: usize = 32 << 20;
const PAGE: usize = 4096;

/// Bytes to share with the drive for that many requests in flight.
pub(super) fn memory_len(requests: usize) -> usize {
    let each = SIZES.iter().sum::<usize>() + 2 * EDGE_LEN;
    // plus page lists for each command; one page lists 2 MiB
    SPARE_LEN + requests * (each + 2 * PAGE)
}

/// The buffers.
#[derive(Debug)]
pub(super) struct Pool {
    memory: HostMemory,
    free: Mutex<[Vec<Buffer>; SIZES.len()]>,
}

impl Pool {
    pub(super) fn new(memory: HostMemory) -> Self {
        Pool {
            memory,
            free: Mutex::default(),
        }
    }

    /// A buffer of at least `len` bytes with arbitrary content.
    ///
    /// # Errors
    /// [`DriverError::NoMemory`], also for a length above any request's.
    pub(super) fn take(&self, len: usize) -> Result<Buffer, DriverError> {
        let none = DriverError::NoMemory { wanted: len };
        let Some(size) = SIZES.iter().position(|size| *size >= len) else {
            return Err(none);
        };
        let free = self.free().get_mut(size).and_then(Vec::pop);
        match free {
            Some(buffer) => Ok(buffer),
            None => self.memory.alloc(SIZES[size], PAGE).ok_or(none),
        }
    }

    /// Returns a buffer that the drive no longer uses.
    pub(super) fn give_back(&self, buffer: Buffer) {
        let size = SIZES.iter().position(|size| *size == buffer.len());
        let size = size.expect("buffers of a pool have its sizes");
        self.free()[size].push(buffer);
    }

    fn free(&self) -> std::sync::MutexGuard<'_, [Vec<Buffer>; SIZES.len()]> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_used_again_and_suffice() {
        let requests = 4;
        let memory = HostMemory::new(memory_len(requests)).unwrap();
        let pool = Pool::new(memory);
        let first = pool.take(4096).unwrap();
        let at = first.offset();
        pool.give_back(first);
        assert_eq!(pool.take(512).unwrap().offset(), at);
        let mut all = Vec::new();
        for len in [512, 64 << 10, 1 << 20, 2 * EDGE_LEN] {
            all.extend((0..requests).map(|_| pool.take(len).unwrap()));
        }
        assert!(all.iter().all(|buffer| buffer.offset() % 4096 == 0));
        assert!(pool.take((1 << 20) + 2 * EDGE_LEN + 1).is_err());
    }
}
