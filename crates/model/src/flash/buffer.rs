//! Write buffers: bytes that are taken when a command comes, and come back when its wordlines are
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
    /// Of all of them.
    in_use: u64,
    /// When how much comes back to which pool.
    back: BinaryHeap<Reverse<(u64, usize, u64)>>,
    /// Those bytes whose times may still become later.
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

    /// Nothing is taken, and nothing comes back.
    pub(crate) fn empty(&mut self) {
        self.used.fill(0);
        self.in_use = 0;
        self.back.clear();
        self.moving = Moving::default();
    }

    /// Another size from now on: what is taken stays so.
    pub(crate) fn retune(&mut self, size: u64) {
        self.size = size;
    }

    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn used(&self, pool: usize) -> u64 {
        self.used[pool]
    }

    /// Bytes that all of them have, and those of them that are taken.
    pub(crate) fn fill(&self) -> (u64, u64) {
        let all = self.size.saturating_mul(self.used.len() as u64);
        (all, self.in_use)
    }

    /// Takes `bytes`, if there is room for them.
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

    /// Bytes that were taken come back at `at`.
    pub(crate) fn give_back(&mut self, at: u64, pool: usize, bytes: u64) {
        if bytes > 0 {
            self.back.push(Reverse((at, pool, bytes)));
        }
    }

    /// Bytes that were taken come back at `at`, as things stand.
    pub(crate) fn give_back_moving(&mut self, at: u64, pool: usize, bytes: u64) -> Slot {
        let slot = self.moving.reserve();
        self.moving.put(slot, at, 0, (pool, bytes));
        slot
    }

    /// The bytes that have that place do not come back before `at`.
    pub(crate) fn postpone(&mut self, slot: Slot, at: u64) {
        self.moving.postpone(slot, at);
    }

    /// Bytes that were taken come back at once.
    pub(crate) fn drop_now(&mut self, pool: usize, bytes: u64) {
        self.used[pool] -= bytes;
        self.in_use -= bytes;
    }

    /// When bytes come back next.
    pub(crate) fn next(&self) -> Option<u64> {
        let moving = self.moving.next().map(|(at, _)| at);
        let fixed = self.back.peek().map(|Reverse((at, ..))| *at);
        fixed.into_iter().chain(moving).min()
    }

    /// Lets come back what is due at `now` or before.
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

/// The bytes that a command took for what it writes, in order: each unit has its size until they
/// are used up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Share {
    left: u64,
}

impl Share {
    pub(crate) fn of(taken: u64) -> Self {
        Self { left: taken }
    }

    /// The share of the next `bytes`.
    pub(crate) fn next(&mut self, bytes: u64) -> u64 {
        let share = self.left.min(bytes);
        self.left -= share;
        share
    }
}
