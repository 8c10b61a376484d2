//! Buffers of our own for the kernel's I/O.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _};

use crate::guest::host::{Buffer, HostMemory};
use crate::own::PAGE;

impl HostMemory {
    /// Has the pages of a range present at its addresses in this process: a process that is being
    /// killed cannot have the kernel bring them any more.
    ///
    /// # Panics
    /// If the range does not lie inside.
    #[inline]
    pub fn touch(&self, at: usize, len: usize) {
        let ours = self.at(at, len);
        for page in (0..len).step_by(PAGE as usize) {
            // SAFETY: the byte lies in the range, which is mapped.
            unsafe { ours.add(page).read_volatile() };
        }
    }
}

impl Buffer {
    /// Address of a range in this process, for the kernel. It is valid for as long as the memory
    /// lives.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer.
    #[must_use]
    pub fn address(&self, at: usize, len: usize) -> u64 {
        self.at(at, len).addr() as u64
    }

    /// Reads `len` bytes of a file, from an offset on, to `at`. How many it has read.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer.
    pub fn read_at(
        &self,
        at: usize,
        len: usize,
        file: impl AsFd,
        offset: u64,
    ) -> io::Result<usize> {
        let ours = self.at(at, len);
        let (fd, offset) = (file.as_fd().as_raw_fd(), offset.cast_signed());
        // SAFETY: the range is mapped, and bytes in it are only ever copied or looked at as
        // atomics. The descriptor is open.
        let done = unsafe { libc::pread(fd, ours.cast(), len, offset) };
        let done = usize::try_from(done).map_err(|_| io::Error::last_os_error())?;
        self.written(at, done);
        Ok(done)
    }

    /// Writes `len` bytes from `at` on to a file, from an offset on. How many it has written.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer.
    pub fn write_at(
        &self,
        at: usize,
        len: usize,
        file: impl AsFd,
        offset: u64,
    ) -> io::Result<usize> {
        let ours = self.at(at, len);
        let (fd, offset) = (file.as_fd().as_raw_fd(), offset.cast_signed());
        // SAFETY: as in `read_at`.
        let done = unsafe { libc::pwrite(fd, ours.cast(), len, offset) };
        usize::try_from(done).map_err(|_| io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::unix::fs::FileExt as _;

    use crate::HostMemory;

    #[test]
    fn bytes_go_to_a_file_and_come_back() {
        let memory = HostMemory::new(8192).unwrap();
        let buffer = memory.alloc(8192, 4096).unwrap();
        let mut file = std::fs::File::from(
            rustix::fs::memfd_create("t", rustix::fs::MemfdFlags::CLOEXEC).unwrap(),
        );
        file.write_all(b"0123456789").unwrap();
        assert_eq!(buffer.read_at(4090, 6, &file, 3).unwrap(), 6);
        assert_eq!(buffer.read_at(4096, 100, &file, 8).unwrap(), 2);
        let mut bytes = [0; 8];
        buffer.read_into(4090, &mut bytes);
        assert_eq!(&bytes, b"34567889");
        assert_eq!(buffer.write_at(4090, 3, &file, 0).unwrap(), 3);
        file.rewind().unwrap();
        let mut all = String::new();
        file.read_to_string(&mut all).unwrap();
        assert_eq!(all, "3453456789");
        let closed = std::fs::OpenOptions::new().read(true).open("/dev/null");
        assert!(buffer.write_at(0, 1, closed.unwrap(), 0).is_err());
        let own = buffer.address(16, 1) - buffer.address(0, 1);
        assert_eq!(own, 16);
    }

    #[test]
    fn pages_that_were_written_elsewhere_are_present_when_they_were_touched() {
        let memory = HostMemory::new(4 * 4096).unwrap();
        // As by another mapping.
        let file = std::fs::File::from(memory.fd().try_clone_to_owned().unwrap());
        file.write_all_at(&[1; 4 * 4096], 0).unwrap();
        let buffer = memory.reserve(4 * 4096, 4096).unwrap();
        let is_present = |page: u64| {
            let pagemap = std::fs::File::open("/proc/self/pagemap").unwrap();
            let mut entry = [0; 8];
            let number = buffer.address(0, 1) / 4096 + page;
            pagemap.read_exact_at(&mut entry, number * 8).unwrap();
            // Documentation/admin-guide/mm/pagemap.rst: bit 63 is "page present".
            u64::from_le_bytes(entry) >> 63 == 1
        };
        assert!(!(0..4).any(is_present));
        // The kernel may bring pages around a fault, too.
        memory.touch(0, 4 * 4096);
        assert!((0..4).all(is_present));
        memory.touch(4096, 0);
    }

    #[test]
    #[should_panic(expected = "of a buffer of")]
    fn a_file_is_not_read_behind_a_buffer() {
        let memory = HostMemory::new(4096).unwrap();
        let buffer = memory.alloc(100, 64).unwrap();
        let _ = buffer.read_at(0, 101, std::fs::File::open("/dev/zero").unwrap(), 0);
    }
}
