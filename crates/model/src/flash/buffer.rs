//! Write buffers: bytes are taken when a command arrives, and returned when its wordlines are
//! programmed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::error::{ParameterError, zeros};
use crate::moving::{Moving, Slot};

/// One buffer, or several of the same size (pools).
#[derive(Debug)]
pub(crate) struct Buffer {
    size: u64,
    used: Vec<u64>,
    /// Sum over all pools.
    in_use: u64,
    /// Returns: time, pool and bytes.
    back: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// Returns whose times may still become later.
    moving: Moving<(usize, u64)>,
}

impl Buffer {
    pub(crate) fn new(size: u64, pools: usize) -> Result<Self, ParameterError> {
        Ok(Self {
            size,
            used: zeros(pools)?,
            in_use: 0,
            back: BinaryHeap::new(),
            moving: Moving::default(),
        })
    }

    /// Empties the buffer, without pending returns.
    pub(crate) fn empty(&mut self) {
        self.used.fill(0);
        self.in_use = 0;
        self.back.clear();
        self.moving = Moving::default();
    }

    /// Sets the size; taken bytes stay taken.
    pub(crate) fn retune(&mut self, size: u64) {
        self.size = size;
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn used(&self, pool: usize) -> u64 {
        self.used[pool]
    }

    /// Total bytes of all pools, and the taken ones.
    pub(crate) fn fill(&self) -> (u64, u64) {
        let all = self.size.saturating_mul(self.used.len() as u64);
        (all, self.in_use)
    }

    /// Takes `bytes` if there is room.
    #[must_use]
    pub(crate) fn take(&mut self, pool: usize, bytes: u64) -> bool {
        let has = self.has(pool, bytes);
        if has {
            self.used[pool] += bytes;
            self.in_use += bytes;
        }
        has
    }

    /// Whether there is room for `bytes`.
    pub(crate) fn has(&self, pool: usize, bytes: u64) -> bool {
        bytes <= self.size.saturating_sub(self.used[pool])
    }

    /// Returns bytes at `at`.
    pub(crate) fn give_back(&mut self, at: u64, pool: usize, bytes: u64) {
        if bytes > 0 {
            self.back.push(Reverse((at, pool, bytes)));
        }
    }

    /// Returns bytes at `at`, which may be postponed.
    pub(crate) fn give_back_moving(&mut self, at: u64, pool: usize, bytes: u64) -> Slot {
        let slot = self.moving.reserve();
        self.moving.put(slot, at, 0, (pool, bytes));
        slot
    }

    /// Postpones the return in this slot to `at`.
    pub(crate) fn postpone(&mut self, slot: Slot, at: u64) {
        self.moving.postpone(slot, at);
    }

    /// Returns bytes immediately.
    pub(crate) fn drop_now(&mut self, pool: usize, bytes: u64) {
        self.used[pool] -= bytes;
        self.in_use -= bytes;
    }

    /// Time of the next return.
    pub(crate) fn next(&self) -> Option<u64> {
        let moving = self.moving.next().map(|(at, _)| at);
        let fixed = self.back.peek().map(|Reverse((at, ..))| *at);
        fixed.into_iter().chain(moving).min()
    }

    /// Performs the returns due at `now` or before.
    pub(crate) fn settle(&mut self, now: u64) {
        let is_due = |back: &BinaryHeap<Reverse<(u64, _, _)>>| {
            let first = back.peek();
            first.is_some_and(|Reverse((at, ..))| *at <= now)
        };
        while is_due(&self.back) {
            if let Some(Reverse((_, pool, bytes))) = self.back.pop() {
                self.drop_now(pool, bytes);
            }
        }
        while let Some((_, (pool, bytes))) = self.moving.pop(now) {
            self.drop_now(pool, bytes);
        }
    }
}

/// Bytes that a command took for its data, in order: each unit gets its size until they are used
/// up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    left: u64,
}

impl Share {
    pub(crate) fn of(taken: u64) -> Self {
        Self { left: taken }
    }

    /// Share of the next `bytes`.
    pub(crate) fn next(&mut self, bytes: u64) -> u64 {
        let share = self.left.min(bytes);
        self.left -= share;
        share
    }
}
