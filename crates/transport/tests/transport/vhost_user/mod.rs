//! The back end of vhost-user-blk: requests, messages and ends of its front ends.
//!
//! Expectations come from VIRTIO 1.3 and from the vhost-user protocol; the front end and its driver
//! share no code with the back end.

#![allow(clippy::unwrap_used, reason = "the helpers are part of the tests")]

mod life;
mod messages;
mod requests;
mod rig;
mod shares;
mod streams;
mod zones;

/// A sequence of numbers that is always the same (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.number() % limit
    }

    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.number().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
