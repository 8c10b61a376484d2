//! A client's memory file, seen from the client's side: its bytes go through read(2) and write(2),
//! never a mapping.
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;

use rustix::fs::MemfdFlags;

pub(crate) const PAGE: u64 = memory::PAGE;

pub(crate) struct Client {
    pub(crate) file: File,
}

impl Client {
    /// A memfd of `len` zeros. `name` is how its mappings show in /proc/self/maps.
    pub(crate) fn new(name: &str, len: u64) -> Self {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = File::from(rustix::fs::memfd_create(name, flags).unwrap());
        file.set_len(len).unwrap();
        Client { file }
    }

    /// Descriptor that a client passes with a message.
    pub(crate) fn fd(&self) -> OwnedFd {
        self.file.try_clone().unwrap().into()
    }

    /// The same file, opened again with other rights.
    pub(crate) fn reopened(&self, options: &std::fs::OpenOptions) -> OwnedFd {
        use std::os::fd::AsRawFd;
        let path = format!("/proc/self/fd/{}", self.file.as_raw_fd());
        options.open(path).unwrap().into()
    }

    pub(crate) fn write(&self, at: u64, bytes: &[u8]) {
        self.file.write_all_at(bytes, at).unwrap();
    }

    pub(crate) fn read<const N: usize>(&self, at: u64) -> [u8; N] {
        let mut bytes = [0; N];
        self.file.read_exact_at(&mut bytes, at).unwrap();
        bytes
    }

    pub(crate) fn write_words<const N: usize>(&self, at: u64, words: [u64; N]) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.write(at, &bytes);
    }

    pub(crate) fn write_u32(&self, at: u64, value: u32) {
        self.write(at, &value.to_le_bytes());
    }

    pub(crate) fn read_u32(&self, at: u64) -> u32 {
        u32::from_le_bytes(self.read(at))
    }

    /// Every 8 bytes hold their own offset plus `seed`.
    pub(crate) fn fill_with_offsets(&self, len: u64, seed: u64) {
        let words = (0..len / 8).map(|word| (word * 8).wrapping_add(seed));
        let bytes: Vec<u8> = words.flat_map(u64::to_le_bytes).collect();
        self.write(0, &bytes);
    }
}

/// How many mappings of memory files of this name the process has.
pub(crate) fn mappings_of(name: &str) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let suffix = format!("/memfd:{name} (deleted)");
    maps.lines().filter(|line| line.ends_with(&suffix)).count()
}
