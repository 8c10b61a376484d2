//! Start of commands: a command begins when no older one of its channel conflicts with it
//! ([`super::overlap`]), and then none of another channel ([`memory::sync::claims`]).
//!
//! A command that waits for one of its own channel holds either no claim or a complete one, so
//! commands cannot wait for each other in a circle. Claims end with their commands, also if a
//! channel abandons a command that the kernel still has: the code that drops the channel has waited
//! for the command as long as possible.
//!
//! Not included: wake-ups. While [`Order::is_waiting`], the channel must be reaped.

use std::collections::VecDeque;

use memory::{Claim, Claimant};
use port::ByteRange;

use super::overlap::{Overlaps, Ranges, Touched};

/// Maximum number of ranges of one Deallocate (NVM Command Set: NR is eight bits, 0's based).
pub(crate) const MAX_RANGES: usize = 256;

/// The commands of a channel that touch bytes, by slot.
#[derive(Debug)]
pub(crate) struct Order {
    overlaps: Overlaps,
    /// Offset and length, [`MAX_RANGES`] per slot. (The type allows zeroed allocation, so unused
    /// ranges are never touched.)
    ranges: Vec<[u64; 2]>,
    claimant: Claimant,
    claims: Box<[Claim]>,
    /// Slots that wait only for another channel.
    waiting: VecDeque<u16>,
    /// Slots released by an older one of this channel, and those of them and of `waiting` that may
    /// begin.
    let_go: Vec<u16>,
    free: VecDeque<u16>,
}

impl Order {
    pub(crate) fn new(slots: usize, claimant: Claimant) -> Self {
        Order {
            overlaps: Overlaps::new(slots),
            ranges: vec![[0; 2]; slots * MAX_RANGES],
            claimant,
            claims: (0..slots).map(|_| Claim::NEEDLESS).collect(),
            waiting: VecDeque::with_capacity(slots),
            let_go: Vec::with_capacity(slots),
            free: VecDeque::with_capacity(slots),
        }
    }

    /// Stores the ranges of a slot's Deallocate.
    pub(crate) fn set_ranges(&mut self, slot: u16, ranges: &[ByteRange]) {
        let places = &mut self.ranges[usize::from(slot) * MAX_RANGES..];
        for (place, range) in places.iter_mut().zip(ranges) {
            *place = [range.offset, range.len];
        }
    }

    /// The first `count` ranges of a slot's Deallocate: offset and length.
    #[inline]
    pub(crate) fn ranges(&self, slot: u16, count: usize) -> &[[u64; 2]] {
        let first = usize::from(slot) * MAX_RANGES;
        &self.ranges[first..first + count]
    }

    /// Registers a command. Returns false if it must wait: [`Order::next_free`] returns it when it
    /// may begin.
    pub(crate) fn begin(&mut self, slot: u16, touched: Touched) -> bool {
        self.claims[usize::from(slot)] = Claim::default();
        let ranges = ranges(&self.ranges);
        self.overlaps.begin(slot, touched, ranges) && self.claim(slot)
    }

    /// Registers the end of a command.
    pub(crate) fn end(&mut self, slot: u16) {
        self.release(slot);
        let let_go = &mut self.let_go;
        self.overlaps
            .end(slot, ranges(&self.ranges), |next| let_go.push(next));
        while let Some(next) = self.let_go.pop() {
            if self.claim(next) {
                self.free.push_back(next);
            }
        }
    }

    /// A waiting command that may begin now.
    #[inline]
    pub(crate) fn next_free(&mut self) -> Option<u16> {
        self.free.pop_front()
    }

    /// Whether a command waits for another channel's.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Retries commands that wait for other channels. Call this before ending commands that others
    /// wait for, so that the other channels have a turn to claim the bytes.
    #[cold]
    pub(crate) fn retry(&mut self) {
        for _ in 0..self.waiting.len() {
            if let Some(slot) = self.waiting.pop_front()
                && self.claim(slot)
            {
                self.free.push_back(slot);
            }
        }
    }

    /// Periodic work: others may wait for it.
    #[inline]
    pub(crate) fn tend(&mut self) {
        self.must_claim();
    }

    /// The channel has nothing in flight, and may sleep.
    pub(crate) fn rest(&mut self) {
        self.claimant.rest();
    }

    /// Drops all commands.
    pub(crate) fn forget(&mut self) {
        self.waiting.clear();
        let slots: Vec<u16> = self.overlaps.each().map(|(slot, _)| slot).collect();
        slots.into_iter().for_each(|slot| self.release(slot));
    }

    /// Whether a starting command must claim its bytes. A channel that was alone claims those of
    /// all its commands at once, also of commands that wait for each other.
    #[inline]
    fn must_claim(&mut self) -> bool {
        let (overlaps, table, claims) = (&self.overlaps, &self.ranges, &mut self.claims);
        self.claimant.must_claim(|claimant| {
            for (slot, touched) in overlaps.each() {
                let claim = &mut claims[usize::from(slot)];
                claimant.claim_at_once(claim, bytes(table, slot, touched));
            }
        })
    }

    /// Claims a command's bytes, or makes it wait.
    #[inline]
    fn claim(&mut self, slot: u16) -> bool {
        !self.must_claim() || self.claim_beside(slot)
    }

    fn claim_beside(&mut self, slot: u16) -> bool {
        let touched = self.overlaps.touched(slot);
        let claim = &mut self.claims[usize::from(slot)];
        let bytes = bytes(&self.ranges, slot, touched);
        let whole = self.claimant.claim(claim, bytes, touched.changes);
        if !whole {
            self.waiting.push_back(slot);
        }
        whole
    }

    fn release(&mut self, slot: u16) {
        let touched = self.overlaps.touched(slot);
        let claim = &mut self.claims[usize::from(slot)];
        let bytes = bytes(&self.ranges, slot, touched);
        self.claimant.release(claim, bytes);
    }
}

impl Drop for Order {
    fn drop(&mut self) {
        self.forget();
    }
}

fn ranges(table: &[[u64; 2]]) -> Ranges<'_> {
    Ranges {
        table,
        stride: MAX_RANGES,
    }
}

/// The bytes that a command touches: offset and length.
fn bytes(table: &[[u64; 2]], slot: u16, touched: Touched) -> impl Iterator<Item = (u64, u64)> {
    let first = usize::from(slot) * MAX_RANGES;
    let several = &table[first..first + usize::from(touched.ranges)];
    let one = (touched.ranges == 0).then_some((touched.start, touched.end - touched.start));
    let several = several.iter().map(|[offset, len]| (*offset, *len));
    one.into_iter().chain(several)
}
