//! The driver's side: memory that a host shares with a controller, its DMA buffers and its rings.
//!
//! The memory is one memfd. Buffers are allocated from it and freed when they are dropped. A
//! controller may read and write all of it at any time, so no reference to the bytes is ever
//! created: they are copied in and out, and words that both sides access are atomics.

use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::{io, ptr};

use rustix::fs::{MemfdFlags, SealFlags};

use crate::guest::address::Iova;
use crate::guest::written::{LogError, WrittenLog};
use crate::own::PAGE;
use crate::own::huge::{HUGE_PAGE_LEN, HugePages};
use crate::own::map::OwnMap;

/// The smallest piece that is handed out, and the least alignment of one.
const GRAIN: usize = 64;

/// Memory of a host, shared with a controller.
#[derive(Clone, Debug)]
pub struct HostMemory(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    fd: OwnedFd,
    map: OwnMap,
    #[expect(
        clippy::disallowed_types,
        reason = "buffers are made and dropped while a driver sets up, never on its command path"
    )]
    free: std::sync::Mutex<FreeList>,
    /// Pages that the host has written, by their offset, once it moves.
    log: OnceLock<WrittenLog>,
}

/// Free ranges, ascending, never touching.
#[derive(Debug)]
struct FreeList(Vec<(usize, usize)>);

impl FreeList {
    /// First fit.
    fn take(&mut self, len: usize, align: usize) -> Option<usize> {
        for at in 0..self.0.len() {
            let (start, size) = self.0[at];
            let aligned = start.checked_next_multiple_of(align)?;
            let end = aligned.checked_add(len)?;
            if end > start + size {
                continue;
            }
            let behind = (end, start + size - end);
            let before = (start, aligned - start);
            let rest = [before, behind].into_iter().filter(|(_, size)| *size > 0);
            self.0.splice(at..=at, rest);
            return Some(aligned);
        }
        None
    }

    fn give_back(&mut self, start: usize, len: usize) {
        let at = self.0.partition_point(|(other, _)| *other < start);
        self.0.insert(at, (start, len));
        if let Some(&(next, next_len)) = self.0.get(at + 1)
            && start + len == next
        {
            self.0[at].1 += next_len;
            self.0.remove(at + 1);
        }
        if at > 0 && self.0[at - 1].0 + self.0[at - 1].1 == start {
            self.0[at - 1].1 += self.0[at].1;
            self.0.remove(at);
        }
    }
}

impl HostMemory {
    /// A memfd of `len` bytes, rounded up to whole pages, that cannot be resized.
    ///
    /// # Errors
    /// What the system says: no memory, or too many descriptors.
    pub fn new(len: usize) -> io::Result<Self> {
        let len = len.max(1).next_multiple_of(4096);
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let fd = rustix::fs::memfd_create("nvmirage-host", flags)?;
        rustix::fs::ftruncate(&fd, len as u64)?;
        rustix::fs::fcntl_add_seals(&fd, SealFlags::SHRINK | SealFlags::GROW)?;
        let map = OwnMap::shared(&fd, len)?;
        Ok(Self::of(fd, map))
    }

    /// As [`Self::new`], on a whole number of huge pages; also returns their source. All of it is
    /// allocated at once.
    ///
    /// # Errors
    /// What the system says, mostly that it has no huge pages to give.
    pub fn on_huge_pages(len: usize) -> io::Result<(Self, HugePages)> {
        let len = len.max(1).next_multiple_of(HUGE_PAGE_LEN);
        let (fd, map, pages) = crate::own::huge::memfd("nvmirage-host", len)?;
        Ok((Self::of(fd, map), pages))
    }

    fn of(fd: OwnedFd, map: OwnMap) -> Self {
        let free = FreeList(vec![(0, map.len())]).into();
        let log = OnceLock::new();
        HostMemory(Arc::new(Shared { fd, map, free, log }))
    }

    /// The memfd, to be sent to a controller.
    #[must_use]
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.0.fd.as_fd()
    }

    /// Bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.map.len()
    }

    /// Always false: it has at least one page.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A buffer of `len` zero bytes whose offset is a multiple of `align`, or nothing when there is
    /// no room.
    ///
    /// # Panics
    /// If `align` is no power of two.
    #[must_use]
    pub fn alloc(&self, len: usize, align: usize) -> Option<Buffer> {
        let buffer = self.reserve(len, align)?;
        buffer.zero();
        Some(buffer)
    }

    /// As [`Self::alloc`], but the bytes are those that its last owner has left, or zeros. Pages
    /// that are never touched use no memory.
    ///
    /// # Panics
    /// If `align` is no power of two.
    #[must_use]
    pub fn reserve(&self, len: usize, align: usize) -> Option<Buffer> {
        assert!(align.is_power_of_two(), "an alignment is a power of two");
        let size = len.max(1).checked_next_multiple_of(GRAIN)?;
        let offset = self.free().take(size, align.max(GRAIN))?;
        Some(Buffer {
            memory: self.0.clone(),
            offset,
            len,
            size,
        })
    }

    /// The address of a range.
    ///
    /// # Panics
    /// If it does not lie inside.
    #[inline]
    pub(crate) fn at(&self, at: usize, len: usize) -> *mut u8 {
        self.0.map.at(at, len)
    }

    /// Its address in this process and its length in bytes: for sharing it with a device.
    pub(crate) fn span(&self) -> (*mut u8, u64) {
        let len = self.len();
        (self.0.map.at(0, len), len as u64)
    }

    /// Logs the pages that the host itself writes from now on, as a hypervisor does with its
    /// processors. Earlier records are dropped.
    ///
    /// # Errors
    /// There is no memory for the bitmap.
    pub fn start_log(&self) -> Result<(), LogError> {
        if self.0.log.get().is_none() {
            let log = WrittenLog::new(&[(Iova(0), self.len() as u64)])?;
            // The host has one thread that moves it.
            let _ = self.0.log.set(log);
        }
        self.take_log().map(drop)
    }

    /// The pages that the host has written since it was asked last, a bit for each.
    ///
    /// # Errors
    /// [`LogError::Off`].
    pub fn take_log(&self) -> Result<Vec<u64>, LogError> {
        let log = self.0.log.get().ok_or(LogError::Off)?;
        let mut pages = vec![0; (self.len() as u64 / PAGE).div_ceil(64) as usize];
        log.take(Iova(0), self.len() as u64, PAGE, &mut pages)?;
        Ok(pages)
    }

    /// Copies bytes out of the memory, whose buffer they may be.
    ///
    /// # Panics
    /// If it has fewer bytes.
    pub fn read(&self, at: usize, bytes: &mut [u8]) {
        let ours = self.0.map.at(at, bytes.len());
        // SAFETY: as in `Buffer::read_into`.
        unsafe { ptr::copy_nonoverlapping(ours, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies bytes into the memory, whose buffer they may be. They are not logged.
    ///
    /// # Panics
    /// If it has fewer bytes.
    #[inline]
    pub fn write(&self, at: usize, bytes: &[u8]) {
        let ours = self.0.map.at(at, bytes.len());
        // SAFETY: as in `Buffer::read_into`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), ours, bytes.len()) };
    }

    /// Sets `len` bytes from `at` on to zero. They are not logged.
    ///
    /// # Panics
    /// If it has fewer bytes.
    pub fn clear(&self, at: usize, len: usize) {
        let ours = self.0.map.at(at, len);
        // SAFETY: as in `Buffer::fill`.
        unsafe { ptr::write_bytes(ours, 0, len) };
    }

    /// Copies `len` bytes from `at` on to the same place of another memory. The controller may
    /// write meanwhile.
    ///
    /// # Panics
    /// If one of them has fewer bytes.
    pub fn copy_to(&self, to: &HostMemory, at: usize, len: usize) {
        let (from, to) = (self.0.map.at(at, len), to.0.map.at(at, len));
        // SAFETY: both ranges are mapped, of two mappings. A racing controller gives any mixture,
        // which is a valid result.
        unsafe { ptr::copy_nonoverlapping(from, to, len) };
    }

    /// Puts a copy in the place of this memory: all buffers, at their addresses, and the descriptor
    /// are the copy's from now on, as those of a VM that goes on elsewhere.
    ///
    /// # Errors
    /// What the system says.
    ///
    /// # Panics
    /// If the copy has another length.
    pub fn continue_on(&self, copy: &HostMemory) -> io::Result<()> {
        assert_eq!(self.len(), copy.len(), "a copy is as long");
        self.0.map.replace(copy.fd())?;
        // SAFETY: both descriptors are open, and ours stays ours.
        match unsafe {
            libc::dup3(
                copy.fd().as_raw_fd(),
                self.fd().as_raw_fd(),
                libc::O_CLOEXEC,
            )
        } {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }

    /// Stores an entry of a completion queue, in a controller's place: the low word, then the high
    /// one with the phase (Release), so that [`HostCq::load`] sees what was stored before.
    ///
    /// # Panics
    /// If it has fewer bytes, or `at` is not aligned to eight.
    #[inline]
    pub fn post(&self, at: usize, [low, high]: [u64; 2]) {
        let address = self.at(at, 16).cast::<u64>();
        assert!(address.is_aligned(), "an aligned entry");
        // SAFETY: the entry's 16 bytes are mapped and aligned, and only ever looked at as atomics
        // or copied as bytes.
        let (first, second) = unsafe {
            (
                AtomicU64::from_ptr(address),
                AtomicU64::from_ptr(address.add(1)),
            )
        };
        first.store(low, Ordering::Relaxed);
        second.store(high, Ordering::Release);
    }

    fn free(&self) -> std::sync::MutexGuard<'_, FreeList> {
        self.0
            .free
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

/// A part of a [`HostMemory`].
#[derive(Debug)]
pub struct Buffer {
    memory: Arc<Shared>,
    offset: usize,
    len: usize,
    /// Bytes taken from the memory, `len` rounded up.
    size: usize,
}

impl Buffer {
    /// Its offset in the memory.
    #[must_use]
    pub fn offset(&self) -> usize {
        self.offset
    }

    /// Bytes it has.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Its address for the controller, where the memory is mapped at `base`.
    #[must_use]
    pub fn iova(&self, base: Iova) -> Iova {
        Iova(base.0.wrapping_add(self.offset as u64))
    }

    /// The address of a range.
    ///
    /// # Panics
    /// If the range does not lie inside the buffer.
    #[inline]
    pub(crate) fn at(&self, at: usize, len: usize) -> *mut u8 {
        let fits = at.checked_add(len).is_some_and(|end| end <= self.len);
        assert!(fits, "{len} bytes at {at} of a buffer of {}", self.len);
        self.memory.map.at(self.offset + at, len)
    }

    /// Logs a range that the host has just written.
    #[inline]
    pub(crate) fn written(&self, at: usize, len: usize) {
        if let Some(log) = self.memory.log.get() {
            log.mark(Iova((self.offset + at) as u64), len as u64);
        }
    }

    /// Copies out of the buffer.
    ///
    /// # Panics
    /// If the range does not lie inside.
    #[inline]
    pub fn read_into(&self, at: usize, bytes: &mut [u8]) {
        let ours = self.at(at, bytes.len());
        // SAFETY: the range is mapped and `bytes` is not part of it. The controller may write
        // meanwhile: the copy is of bytes, any mixture is a valid result.
        unsafe { ptr::copy_nonoverlapping(ours, bytes.as_mut_ptr(), bytes.len()) };
    }

    /// Copies into the buffer.
    ///
    /// # Panics
    /// If the range does not lie inside.
    #[inline]
    pub fn write_from(&self, at: usize, bytes: &[u8]) {
        let ours = self.at(at, bytes.len());
        // SAFETY: as in `read_into`.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), ours, bytes.len()) };
        self.written(at, bytes.len());
    }

    /// Sets every byte.
    pub fn fill(&self, byte: u8) {
        let ours = self.at(0, self.len);
        // SAFETY: the whole buffer is mapped; a racing controller sees any mixture.
        unsafe { ptr::write_bytes(ours, byte, self.len) };
        self.written(0, self.len);
    }

    /// Sets every byte to zero.
    pub fn zero(&self) {
        self.fill(0);
    }

    /// Brings a cache line near. `at` past the end does nothing.
    #[inline]
    pub fn prefetch(&self, at: usize) {
        if at < self.len {
            crate::sync::order::prefetch(self.memory.map.at(self.offset + at, 1));
        }
    }

    #[inline]
    fn word_u32(&self, at: usize) -> &AtomicU32 {
        let address = self.at(at, 4);
        assert!(address.addr().is_multiple_of(4), "an aligned word");
        // SAFETY: mapped, aligned, and only ever looked at as an atomic or copied as bytes while it
        // is one.
        unsafe { AtomicU32::from_ptr(address.cast()) }
    }

    /// Loads a word that the controller may have stored; what it stored before is seen, too
    /// (Acquire).
    ///
    /// # Panics
    /// If the word is not aligned or does not lie inside.
    #[inline]
    #[must_use]
    pub fn load_u32(&self, at: usize) -> u32 {
        self.word_u32(at).load(Ordering::Acquire)
    }

    #[inline]
    fn word_u16(&self, at: usize) -> &AtomicU16 {
        let address = self.at(at, 2);
        assert!(address.addr().is_multiple_of(2), "an aligned half word");
        // SAFETY: as in `word_u32`.
        unsafe { AtomicU16::from_ptr(address.cast()) }
    }

    /// As [`Self::load_u32`], of 16 bits: an index or flags of a virtqueue (VIRTIO 1.3, 2.7, 2.8).
    ///
    /// # Panics
    /// If the half word is not aligned or does not lie inside.
    #[inline]
    #[must_use]
    pub fn load_u16(&self, at: usize) -> u16 {
        self.word_u16(at).load(Ordering::Acquire)
    }

    /// As [`Self::store_u32`], of 16 bits.
    ///
    /// # Panics
    /// If the half word is not aligned or does not lie inside.
    #[inline]
    pub fn store_u16(&self, at: usize, value: u16) {
        self.word_u16(at).store(value, Ordering::Release);
        self.written(at, 2);
    }

    /// Stores a word for the controller; it sees what was stored before, too (Release).
    ///
    /// # Panics
    /// If the word is not aligned or does not lie inside.
    #[inline]
    pub fn store_u32(&self, at: usize, value: u32) {
        self.word_u32(at).store(value, Ordering::Release);
        self.written(at, 4);
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let memory = HostMemory(self.memory.clone());
        memory.free().give_back(self.offset, self.size);
    }
}

/// The entries of a queue in a buffer: `WORDS` words each.
#[derive(Debug)]
struct Entries<const WORDS: usize> {
    buffer: Buffer,
    /// The first one.
    first: NonNull<[AtomicU64; WORDS]>,
    count: u32,
}

// SAFETY: the entries are atomics, which lie in the memory that the buffer keeps mapped.
unsafe impl<const WORDS: usize> Send for Entries<WORDS> {}
// SAFETY: as above.
unsafe impl<const WORDS: usize> Sync for Entries<WORDS> {}

impl<const WORDS: usize> Entries<WORDS> {
    const SIZE: usize = WORDS * size_of::<u64>();

    /// # Panics
    /// The buffer is not aligned to eight bytes.
    fn new(buffer: Buffer) -> Self {
        let count = u32::try_from(buffer.len() / Self::SIZE).unwrap_or(u32::MAX);
        let first = NonNull::new(buffer.at(0, buffer.len())).expect("a mapping is not at 0");
        assert!(first.cast::<u64>().is_aligned(), "aligned entries");
        Self {
            first: first.cast(),
            buffer,
            count,
        }
    }

    /// The words of an entry.
    #[inline]
    fn words(&self, index: u32) -> &[AtomicU64; WORDS] {
        assert!(index < self.count, "entry {index} of {}", self.count);
        // SAFETY: the buffer has this entry, which is mapped and aligned, and only ever looked at
        // as atomics or copied as bytes.
        unsafe { self.first.add(index as usize).as_ref() }
    }

    /// Logs an entry that the host has just written.
    #[inline]
    fn written(&self, index: u32) {
        self.buffer.written(index as usize * Self::SIZE, Self::SIZE);
    }
}

/// A submission queue as the host sees it: 64 bytes an entry.
#[derive(Debug)]
pub struct HostSq(Entries<8>);

impl HostSq {
    /// A queue in `buffer`, one entry for each 64 bytes.
    ///
    /// # Panics
    /// The buffer is not aligned to eight bytes.
    #[must_use]
    pub fn new(buffer: Buffer) -> Self {
        Self(Entries::new(buffer))
    }

    /// The memory it lies in.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.0.buffer
    }

    /// Stores an entry. The controller sees it once it sees the tail, which is stored with Release
    /// afterwards.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    pub fn store(&self, index: u32, sqe: [u64; 8]) {
        for (word, value) in self.0.words(index).iter().zip(sqe) {
            word.store(value, Ordering::Relaxed);
        }
        self.0.written(index);
    }
}

/// A completion queue as the host sees it: 16 bytes an entry.
#[derive(Debug)]
pub struct HostCq(Entries<2>);

impl HostCq {
    /// A queue in `buffer`, one entry for each 16 bytes.
    ///
    /// # Panics
    /// The buffer is not aligned to eight bytes.
    #[must_use]
    pub fn new(buffer: Buffer) -> Self {
        Self(Entries::new(buffer))
    }

    /// The memory it lies in.
    #[must_use]
    pub fn buffer(&self) -> &Buffer {
        &self.0.buffer
    }

    /// Loads an entry. The high word, which holds the phase, is loaded first and with Acquire:
    /// where the phase is new, the low word and the data that the controller wrote before are, too.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    #[must_use]
    pub fn load(&self, index: u32) -> [u64; 2] {
        let [low, high] = self.0.words(index);
        let high = high.load(Ordering::Acquire);
        [low.load(Ordering::Relaxed), high]
    }

    /// Stores an entry in the controller's place, for another thread to [`Self::load`]: the low
    /// word, then the high one with the phase (Release). Data that was seen with the entry that it
    /// is a copy of is seen behind it, too.
    ///
    /// # Panics
    /// If there is no such entry.
    #[inline]
    pub fn store(&self, index: u32, [low, high]: [u64; 2]) {
        let [first, second] = self.0.words(index);
        first.store(low, Ordering::Relaxed);
        second.store(high, Ordering::Release);
        self.0.written(index);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn buffers_never_overlap_and_all_room_comes_back(
            steps in prop::collection::vec((1usize..20_000, 0u32..14, any::<bool>()), 1..60)
        ) {
            let memory = HostMemory::new(1 << 18).unwrap();
            let mut buffers: Vec<Buffer> = Vec::new();
            for (len, align, drop_one) in steps {
                if drop_one && !buffers.is_empty() {
                    buffers.swap_remove(len % buffers.len());
                } else if let Some(buffer) = memory.alloc(len, 1 << align) {
                    prop_assert_eq!(buffer.offset() % (1 << align), 0);
                    prop_assert!(buffer.offset() + len <= memory.len());
                    buffers.push(buffer);
                }
                let mut ranges: Vec<_> = buffers.iter().map(|b| (b.offset(), b.offset() + b.len())).collect();
                ranges.sort_unstable();
                prop_assert!(ranges.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            }
            buffers.clear();
            prop_assert_eq!(memory.alloc(1 << 18, 4096).map(|b| b.len()), Some(1 << 18));
        }
    }

    #[test]
    fn a_buffer_is_zero_when_it_is_handed_out_again() {
        let memory = HostMemory::new(4096).unwrap();
        memory.alloc(4096, 1).unwrap().fill(7);
        let again = memory.alloc(4096, 1).unwrap();
        let mut bytes = [1; 4096];
        again.read_into(0, &mut bytes);
        assert_eq!(bytes, [0; 4096]);
    }

    #[test]
    fn a_reserved_buffer_keeps_its_bytes() {
        let memory = HostMemory::new(4 * 4096).unwrap();
        memory.write(4000, &[7; 9000]);
        let buffer = memory.reserve(3 * 4096 - 100, 4096).unwrap();
        let byte = |at| {
            let mut byte = [0];
            memory.read(at, &mut byte);
            byte[0]
        };
        assert_eq!(
            (byte(4095), byte(4096), byte(8192), byte(12999)),
            (7, 7, 7, 7)
        );
        drop(buffer);
        assert_eq!((byte(4096), byte(12999)), (7, 7));
        memory.clear(8192, 10);
        assert_eq!((byte(8201), byte(8202)), (0, 7));
    }

    #[test]
    #[should_panic(expected = "of a buffer of")]
    fn a_range_outside_a_buffer_is_refused() {
        let memory = HostMemory::new(8192).unwrap();
        let buffer = memory.alloc(100, 1).unwrap();
        buffer.write_from(99, &[0, 0]);
    }

    #[test]
    #[should_panic(expected = "an aligned half word")]
    fn a_half_word_is_two_aligned_bytes() {
        let memory = HostMemory::new(4096).unwrap();
        let buffer = memory.alloc(6, 2).unwrap();
        buffer.store_u16(2, 0x0102);
        let mut bytes = [9; 6];
        buffer.read_into(0, &mut bytes);
        assert_eq!((bytes, buffer.load_u16(2)), ([0, 0, 2, 1, 0, 0], 0x0102));
        let _ = buffer.load_u16(3);
    }

    #[test]
    fn entries_lie_where_the_controller_looks() {
        let memory = HostMemory::new(8192).unwrap();
        let sq = HostSq::new(memory.alloc(4096, 4096).unwrap());
        sq.store(2, [0x0102_0304_0506_0708, 0, 0, 0, 0, 0, 0, 9]);
        let mut bytes = [0; 8];
        sq.buffer().read_into(128, &mut bytes);
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
        let cq = HostCq::new(memory.alloc(4096, 4096).unwrap());
        cq.buffer().write_from(16, &[1, 0, 0, 0, 0, 0, 0, 0, 2]);
        assert_eq!(cq.load(1), [1, 2]);
        memory.post(cq.buffer().offset() + 32, [5, 6]);
        assert_eq!(cq.load(2), [5, 6]);
        cq.store(1, [0x0102_0304_0506_0708, 3]);
        assert_eq!(cq.load(1), [0x0102_0304_0506_0708, 3]);
        let mut bytes = [0; 16];
        cq.buffer().read_into(16, &mut bytes);
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1, 3, 0, 0, 0, 0, 0, 0, 0]);
    }
}
