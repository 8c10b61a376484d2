//! A client's memory file, seen from the client's side: its bytes go through read(2) and write(2), never a mapping.
#![allow(
    dead_code,
    reason = "each test program compiles this module and uses a part of it"
)]

use std::{fs::File, os::fd::OwnedFd, os::unix::fs::FileExt};

use rustix::fs::MemfdFlags;

pub const PAGE: u64 = memory::PAGE;

pub struct Client {
    pub file: File,
}

impl Client {
    pub fn new(len: u64) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create("client", flags).unwrap());
        file.set_len(len).unwrap();
        Client { file }
    }

    /// What a client passes with a message.
    pub fn fd(&self) -> OwnedFd {
        self.file.try_clone().unwrap().into()
    }

    /// The same file, opened anew with other rights.
    pub fn reopened(&self, options: &std::fs::OpenOptions) -> OwnedFd {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        options.open(path).unwrap().into()
    }

    pub fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    pub fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub fn write_words<const N: usize>(&self, at: u64, words: [u64; N]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(at, &bytes);
    }

    pub fn write_u32(&self, at: u64, value: u32) {
        self.write(at, &value.to_le_bytes());
    }

    pub fn read_u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    /// Every 8 bytes hold their own offset plus `seed`.
    pub fn fill_with_offsets(&self, len: u64, seed: u64) {
        let words = (0..len / 8).map(|word| (word * 8).wrapping_add(seed));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        self.write(0, &bytes);
    }
}

/// How many mappings of memory files named "client" this process has.
pub fn mappings_of_clients() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.contains("/memfd:client"))
        .count()
}
