//! Every ordering of memory against the other side of a queue, by name.
//!
//! The other side is a guest's CPU or another process: outside Rust's memory model, yet bound by
//! the same machine. Both sides agree through atomic accesses of aligned words of 8 to 64 bits,
//! which the hardware does not tear. Each function below says which of its accesses races with
//! which of theirs.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering, fence};

/// Loads one word of a submission queue entry.
///
/// The race: the host stores the entry, then the new tail (NVMe Base 2.1, 3.3.1.1). We have loaded
/// that tail by [`load_doorbell`], whose Acquire puts these loads behind it, so they may be
/// Relaxed. A host that changes an entry after it has announced it gets some mixture of its own
/// words.
///
/// # Safety
/// `word` is aligned to 8 bytes and readable.
#[inline]
pub(crate) unsafe fn load_sqe_word(word: *const u64) -> u64 {
    // SAFETY: by the contract. The memory may be mapped read-only, which a Relaxed load of this
    // size allows.
    unsafe { AtomicU64::from_ptr(word.cast_mut()) }.load(Ordering::Relaxed)
}

/// Stores a completion queue entry.
///
/// The race: the host polls the phase tag (Base 2.1, 4.2.4), bit 16 of DW3 and so in the second
/// word; when it sees the tag turn, it reads the rest. The first word is stored first, and the
/// Release keeps it and every byte of data that was copied before from being seen after the tag.
///
/// # Safety
/// `entry` is aligned to 16 bytes and writable for two words.
#[inline]
pub(crate) unsafe fn store_cqe(entry: *mut u64, [low, high]: [u64; 2]) {
    // SAFETY: by the contract.
    let words = unsafe {
        [
            AtomicU64::from_ptr(entry),
            AtomicU64::from_ptr(entry.add(1)),
        ]
    };
    words[0].store(low, Ordering::Relaxed);
    words[1].store(high, Ordering::Release);
}

/// Loads a completion queue entry that we may have stored ourselves; we are its only writer, so
/// nothing is ordered.
///
/// # Safety
/// `entry` is aligned to 16 bytes and readable for two words.
#[inline]
pub(crate) unsafe fn load_cqe(entry: *const u64) -> [u64; 2] {
    // SAFETY: by the contract.
    unsafe { [load_sqe_word(entry), load_sqe_word(entry.add(1))] }
}

/// Loads a doorbell: a tail or a head that the other side has stored.
///
/// The race: the host stores entries and then the tail, or reads entries and then stores the head.
/// The Acquire fence pairs with the barrier that the host puts before its doorbell: entries up to
/// the tail are seen, and slots up to the head are free.
///
/// # Safety
/// `slot` is aligned to 4 bytes and readable.
#[inline]
pub(crate) unsafe fn load_doorbell(slot: *const u32) -> u32 {
    // SAFETY: by the contract. The memory may be mapped read-only, which a Relaxed load of this
    // size allows; an Acquire load is not promised to be a plain load, hence the fence.
    let value = unsafe { AtomicU32::from_ptr(slot.cast_mut()) }.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}

/// Loads the two doorbells of a queue pair at once, the submission queue's in the lower half.
///
/// The race: the host stores either half. Nothing is ordered: a caller that finds a changed half
/// loads that doorbell by [`load_doorbell`] before it relies on the value.
///
/// # Safety
/// `pair` is aligned to 8 bytes and readable.
#[inline]
pub(crate) unsafe fn load_doorbell_pair(pair: *const u64) -> u64 {
    // SAFETY: by the contract. The memory may be mapped read-only, which a Relaxed load of this
    // size allows.
    unsafe { AtomicU64::from_ptr(pair.cast_mut()) }.load(Ordering::Relaxed)
}

/// Stores a doorbell, or an EventIdx, for the other side to load.
///
/// The race: of [`load_doorbell`], seen from the other end. Earlier stores (entries), and a host's
/// earlier reads of them, stay before the value. For an EventIdx that is not enough: see
/// [`full_fence`].
///
/// # Safety
/// `slot` is aligned to 4 bytes and writable.
#[inline]
pub(crate) unsafe fn store_doorbell(slot: *mut u32, value: u32) {
    // SAFETY: by the contract.
    unsafe { AtomicU32::from_ptr(slot) }.store(value, Ordering::Release);
}

/// Loads the index of a virtqueue's ring, or the flags of a packed descriptor: the word that says
/// whose the others are.
///
/// The race: the driver stores descriptors and entries of the available ring, then this word, with
/// a write barrier between (VIRTIO 1.3, 2.7.13 and 2.8.21). The Acquire fence puts the loads of the
/// others behind it.
///
/// # Safety
/// `word` is aligned to 2 bytes and readable.
#[inline]
pub(crate) unsafe fn load_ring_word(word: *const u16) -> u16 {
    // SAFETY: by the contract. The memory may be mapped read-only: see `load_doorbell`.
    let value = unsafe { AtomicU16::from_ptr(word.cast_mut()) }.load(Ordering::Relaxed);
    fence(Ordering::Acquire);
    value
}

/// Stores the index of a used ring, or the flags of a used descriptor.
///
/// The race: of [`load_ring_word`], seen from the other end. The Release keeps the entries, and
/// every byte of data that was copied before, from being seen after it.
///
/// # Safety
/// `word` is aligned to 2 bytes and writable.
#[inline]
pub(crate) unsafe fn store_ring_word(word: *mut u16, value: u16) {
    // SAFETY: by the contract.
    unsafe { AtomicU16::from_ptr(word) }.store(value, Ordering::Release);
}

/// Loads another word of a virtqueue: of a descriptor, of an entry, or of event suppression.
///
/// The race: the driver stores descriptors and entries before the word that
/// [`load_ring_word`] loads, whose Acquire orders this load. Event suppression is loaded behind
/// [`full_fence`], which pairs with the driver's between its store and its second look.
///
/// # Safety
/// `word` is aligned to its size and readable.
#[inline]
pub(crate) unsafe fn load_ring<W: RingWord>(word: *const W) -> W {
    // SAFETY: by the contract. The memory may be mapped read-only: see `load_doorbell`.
    unsafe { W::load(word.cast_mut()) }
}

/// Stores another word of a virtqueue: of a used entry or descriptor, or of event suppression.
///
/// The race: the driver loads used entries behind the word that [`store_ring_word`] stores, whose
/// Release orders this store. Event suppression is stored before [`full_fence`], behind which the
/// available side is looked at again.
///
/// # Safety
/// `word` is aligned to its size and writable.
#[inline]
pub(crate) unsafe fn store_ring<W: RingWord>(word: *mut W, value: W) {
    // SAFETY: by the contract.
    unsafe { W::store(word, value, Ordering::Relaxed) }
}

/// Stores a word of a record that a later process continues from.
///
/// The race: this process may be killed between any two stores, and its successor finds those
/// before that point. A processor keeps its own program order for memory that outlives the process;
/// the Release keeps the compiler from moving this store before any other one, of the record or of
/// a ring.
///
/// # Safety
/// `word` is aligned to its size and writable.
#[inline]
pub(crate) unsafe fn store_record<W: RingWord>(word: *mut W, value: W) {
    // SAFETY: by the contract.
    unsafe { W::store(word, value, Ordering::Release) }
}

/// Words of virtqueues and of their records.
pub(crate) trait RingWord: Copy {
    /// # Safety
    /// `word` is aligned and readable.
    unsafe fn load(word: *mut Self) -> Self;

    /// # Safety
    /// `word` is aligned and writable.
    unsafe fn store(word: *mut Self, value: Self, ordering: Ordering);
}

macro_rules! ring_words {
    ($($word:ty: $atomic:ty),*) => {$(
        impl RingWord for $word {
            #[inline]
            unsafe fn load(word: *mut Self) -> Self {
                // SAFETY: by the contract.
                unsafe { <$atomic>::from_ptr(word) }.load(Ordering::Relaxed)
            }

            #[inline]
            unsafe fn store(word: *mut Self, value: Self, ordering: Ordering) {
                // SAFETY: by the contract.
                unsafe { <$atomic>::from_ptr(word) }.store(value, ordering);
            }
        }
    )*};
}

ring_words!(u8: AtomicU8, u16: AtomicU16, u32: AtomicU32, u64: AtomicU64);

/// Between arming and the second look.
///
/// The race: we store an EventIdx (or "sleeping") and then load the tail; the host stores the tail
/// and then loads the EventIdx, with a full fence of its own between. Either we see its tail, or it
/// sees our EventIdx and rings the register: only a full fence on both sides rules out that both
/// miss, since a store may otherwise wait behind a later load.
#[inline]
pub fn full_fence() {
    crate::sync::atomics::fence(Ordering::SeqCst);
}

/// Between a load that finds new work from a host and a read of the clock.
///
/// Not a race of memory: the processor may read its time stamp counter while it waits for an
/// earlier load, and the time would then be from before the host's store. Only a fence after all
/// loads rules that out.
#[inline]
pub fn loads_done() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: every processor of this architecture has it.
    unsafe {
        std::arch::x86_64::_mm_lfence();
    }
    #[cfg(not(target_arch = "x86_64"))]
    full_fence();
}

/// Asks for the cache line that holds `line`, where the machine can. Any address will do.
#[inline]
pub(crate) fn prefetch(line: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch reads nothing that the program can see and does not fault, whatever
        // the address.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}

/// The same, for a store to it.
#[inline]
pub(crate) fn prefetch_to_write(line: *mut u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as for `prefetch`. A processor without the instruction does nothing.
    unsafe {
        std::arch::asm!(
            "prefetchw [{}]",
            in(reg) line,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = line;
}
