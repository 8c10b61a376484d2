//! Memory that the driver shares with its drive: rings, lists and data, by their addresses.

use std::io;
use std::net::TcpStream;

use memory::guest::socket;
use memory::{HostMemory, Iova};

/// Pieces of memory, each from an address on.
#[derive(Default)]
pub struct Shared(Vec<(u64, HostMemory)>);

impl Shared {
    /// Adds memory at `base`.
    pub fn add(&mut self, base: Iova, memory: HostMemory) {
        self.0.push((base.0, memory));
    }

    /// Removes the memory at `base`; whether there was some.
    pub(super) fn remove(&mut self, base: Iova) -> bool {
        let before = self.0.len();
        self.0.retain(|(at, _)| *at != base.0);
        self.0.len() < before
    }

    /// The memory that has `len` bytes at an address, and where in it they lie.
    #[inline]
    fn find(&self, address: u64, len: usize) -> Option<(&HostMemory, usize)> {
        self.0.iter().find_map(|(base, memory)| {
            let at = usize::try_from(address.checked_sub(*base)?).ok()?;
            let end = at.checked_add(len)?;
            (end <= memory.len()).then_some((memory, at))
        })
    }

    /// Whether there are `len` bytes at an address.
    pub(super) fn has(&self, address: u64, len: usize) -> bool {
        self.find(address, len).is_some()
    }

    /// Copies bytes out; zeros where there is no memory any more.
    #[inline]
    pub(super) fn read(&self, address: u64, bytes: &mut [u8]) {
        match self.find(address, bytes.len()) {
            Some((memory, at)) => memory.read(at, bytes),
            None => bytes.fill(0),
        }
    }

    /// Copies bytes in, unless the memory was taken away.
    #[inline]
    pub(super) fn write(&self, address: u64, bytes: &[u8]) {
        if let Some((memory, at)) = self.find(address, bytes.len()) {
            memory.write(at, bytes);
        }
    }

    /// Receives up to `len` bytes to an address, and what comes behind them to `rest`: their
    /// number, all together. `None` where there is no such memory.
    pub(super) fn receive(
        &self,
        socket: &TcpStream,
        (address, len): (u64, usize),
        rest: &mut [u8],
    ) -> Option<io::Result<usize>> {
        let (memory, at) = self.find(address, len)?;
        Some(socket::receive_with(socket, memory, at, len, rest))
    }

    /// Posts an entry of a completion queue, at a multiple of 16 bytes.
    #[inline]
    pub(super) fn post(&self, address: u64, words: [u64; 2]) {
        if let Some((memory, at)) = self.find(address, 16) {
            memory.post(at, words);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_bytes_inside_one_piece_are_found() {
        let mut shared = Shared::default();
        shared.add(Iova(0x10_0000), HostMemory::new(8192).unwrap());
        shared.add(Iova(u64::MAX - 4095), HostMemory::new(4096).unwrap());
        for (address, len, there) in [
            (0x10_0000, 8192, true),
            (0x10_0000, 8193, false),
            (0x10_1fff, 1, true),
            (0x10_1fff, 2, false),
            (0xf_ffff, 2, false),
            (u64::MAX, 1, true),
            (u64::MAX, 2, false),
            (u64::MAX, usize::MAX, false),
            (0x10_0000, usize::MAX, false),
        ] {
            assert_eq!(shared.has(address, len), there, "{address:#x}+{len}");
        }
        shared.write(0x10_1ffe, &[1, 2]);
        shared.write(0x10_1fff, &[3, 4]);
        let mut bytes = [9; 2];
        shared.read(0x10_1ffe, &mut bytes);
        assert_eq!(bytes, [1, 2]);
        shared.read(0x10_1fff, &mut bytes);
        assert_eq!(bytes, [0, 0]);
        assert!(shared.remove(Iova(0x10_0000)));
        assert!(!shared.remove(Iova(0x10_0000)));
        assert!(!shared.has(0x10_0000, 1));
    }
}
