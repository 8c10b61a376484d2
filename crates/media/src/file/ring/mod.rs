//! The rings of a channel, and the memory that the kernel reads and writes on its behalf. This
//! module contains the only unsafe code of the crate.
//!
//! Usually there is one io_uring. If it polls the device for completions, a second one performs the
//! operations that such a ring does not accept. A file in memory has none: its operations are
//! system calls ([`Ring::perform`]), because they never wait, and a ring would hand each to a
//! kernel thread. [`registrar`] registers hosts' memory with the kernel; it has no unsafe code of
//! its own.
//!
//! A [`Ring`] has `depth` slots, each with room for one command's segments and one bounce buffer,
//! all allocated at the start. A slot has at most one operation in the kernel at a time. Two rules
//! make the interface safe:
//! - Host memory that a slot refers to is pinned ([`ViewPins`]) from [`Ring::attach`] to
//!   [`Ring::release`] (the sink for discarded data is static and needs no pin), and a slot cannot
//!   be released, attached or copied while its operation is in the kernel (asserted).
//! - All other memory of an operation (iovecs, bounce buffers, zeros) belongs to the ring. Dropping
//!   the ring waits a bounded time for operations in the kernel, and if they do not end leaks all
//!   of it, including pins.
//!
//! Host memory is accessed only through raw pointers, never as a slice, because the host may write
//! it at any time. A read then returns a mix of old and new bytes, as with any DMA.
//!
//! Not included: requests, retries and errors, which [`super::channel`] handles.

#[deny(unsafe_code)]
mod registrar;

use std::alloc::{Layout, alloc, alloc_zeroed, dealloc, handle_alloc_error};
use std::mem::{ManuallyDrop, MaybeUninit};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::{fmt, io};

use io_uring::{IoUring, Probe, opcode, squeue};
use libc::iovec;
use memory::{DmaView, EventFd, Iova, PinId, Segment, ViewPins, full_fence};
use rustix::fs::{fallocate, fdatasync};

use self::registrar::Buffers;
use super::direct::{Alignment, MAX_MEMORY_ALIGN};
use super::entry::{Pointed, Target, read, write};
use super::op::{Buffer, Io};
use super::uring::{Looks, Uring};

/// Segments of one command, as many as a controller makes of one.
pub(super) const MAX_SEGMENTS: usize = port::prp::MAX_SEGMENTS;
/// The kernel's UIO_MAXIOV.
const MAX_IOVECS: usize = 1024;
/// iovecs from one slot's first to the next slot's: an odd number of cache lines, so that the
/// first iovecs of the slots do not share a cache set.
const STRIDE: usize = 1284;
const _: () = assert!(STRIDE >= MAX_SEGMENTS && STRIDE % 8 == 4);
/// Bytes in a slot's bounce buffer.
pub(super) const BOUNCE_BYTES: u32 = 64 << 10;
/// Zeros to write from, shared by all slots.
pub(super) const ZEROS_BYTES: u32 = 256 << 10;
/// Number of waits of a dropped ring for operations in the kernel, a tenth of a second each.
const DROP_WAITS: u32 = 50;

/// How operations reach the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Way {
    /// Each by a synchronous call.
    Calls,
    /// By rings.
    Rings(Looks),
}

/// Rings with their slots. Belongs to the thread that first submits.
pub(super) struct Ring {
    /// No ring, one ring, or one that polls the device and one for the operations that it does not
    /// accept.
    rings: ManuallyDrop<Vec<Uring>>,
    /// Registered memory of the first ring, if requested and possible.
    buffers: Option<Buffers>,
    memory: ManuallyDrop<Memory>,
    slots: Box<[Slot]>,
    file: Target,
    /// Readable after a completion that came while `armed`. (A poll of the ring's own descriptor
    /// is no substitute: with `DEFER_TASKRUN` it can sleep through a completion.)
    wake: EventFd,
    /// Whether completions write to `wake`. A polling reactor switches that off.
    armed: bool,
}

/// Memory that the kernel may access at any time.
struct Memory {
    bounce: Pages,
    zeros: Pages,
    iovecs: Box<[MaybeUninit<iovec>]>,
    /// Beside the iovecs, where the host's written pages are logged: addresses and lengths to mark.
    marks: Box<[MaybeUninit<(Iova, u32)>]>,
    pins: ViewPins,
}

#[derive(Default)]
struct Slot {
    in_kernel: bool,
    pin: Option<PinId>,
    /// The registered buffer that contains all its segments.
    registered: Option<u16>,
    /// The first iovec that is not used up, and the one past the last. Counted in the slot.
    first: usize,
    end: usize,
    /// Segments to mark as written.
    marks: usize,
}

// SAFETY: the raw pointers lead to memory that the ring owns or pins, and both may be used from
// any thread; the ring has no thread-local state of its own.
unsafe impl Send for Ring {}

impl Ring {
    /// Rings for `file` with `depth` slots.
    ///
    /// # Errors
    /// The kernel's, where io_uring is missing or forbidden.
    pub(super) fn new(
        file: BorrowedFd<'_>,
        depth: u16,
        way: Way,
        registers: bool,
    ) -> io::Result<Ring> {
        let wake = EventFd::new()?;
        let mut rings = Vec::new();
        if let Way::Rings(looks) = way {
            rings.push(Uring::new(looks, file, &wake, depth)?);
            if looks.at_device {
                let second = Looks {
                    at_device: false,
                    ..looks
                };
                rings.push(Uring::new(second, file, &wake, depth)?);
            }
        }
        let mut ring = Ring::over(rings, wake, depth);
        if let Way::Rings(looks) = way
            && looks.plain_file
        {
            ring.file = Target::plain(file);
        }
        if let Some(first) = ring.rings.first()
            && registers
        {
            ring.buffers = Buffers::new(is_vectored(&first.ring));
        }
        Ok(ring)
    }

    fn over(rings: Vec<Uring>, wake: EventFd, depth: u16) -> Ring {
        let slots = usize::from(depth);
        let memory = Memory {
            bounce: Pages::uninit(slots * BOUNCE_BYTES as usize),
            zeros: Pages::zeroed(ZEROS_BYTES as usize),
            iovecs: Box::new_uninit_slice(slots * STRIDE),
            marks: Box::new_uninit_slice(slots * STRIDE),
            pins: ViewPins::new(),
        };
        Ring {
            rings: ManuallyDrop::new(rings),
            buffers: None,
            memory: ManuallyDrop::new(memory),
            slots: (0..slots).map(|_| Slot::default()).collect(),
            file: Target::REGISTERED,
            wake,
            armed: false,
        }
    }

    /// Whether operations use [`Ring::perform`] rather than [`Ring::queue`].
    pub(super) fn calls(&self) -> bool {
        self.rings.is_empty()
    }

    /// See [`Buffers::tend`].
    #[inline]
    pub(super) fn tend(&mut self) {
        if let (Some(buffers), Some(first)) = (&mut self.buffers, self.rings.first())
            && first.is_enabled()
        {
            buffers.tend(&first.ring);
        }
    }

    /// Whether an operation in flight needs the device to be polled.
    pub(super) fn is_polled(&self) -> bool {
        self.rings.first().is_some_and(Uring::is_polled)
    }

    /// Commands with registered memory, and without.
    pub(super) fn counts(&self) -> [u64; 2] {
        self.buffers.as_ref().map_or([0; 2], Buffers::counts)
    }

    /// Readable after a completion that came after [`Ring::arm`].
    pub(super) fn wake(&self) -> &EventFd {
        &self.wake
    }

    /// From now on, until [`Ring::disarm`], a completion makes `wake` readable. Earlier
    /// completions show in [`Ring::is_due`], which must be checked after this.
    pub(super) fn arm(&mut self) {
        if self.armed {
            return;
        }
        self.armed = true;
        for ring in self.rings.iter_mut() {
            ring.set_wakes(true);
        }
        // Our store of "enabled" precedes our check of the rings. The kernel stores its completions
        // and then checks "enabled": one of the two sees the other's store.
        full_fence();
    }

    /// Reverses [`Ring::arm`], and drains `wake`.
    pub(super) fn disarm(&mut self) {
        if self.armed {
            self.armed = false;
            for ring in self.rings.iter_mut() {
                ring.set_wakes(false);
            }
            self.wake.drain();
        }
    }

    /// Lends `segments` of `view` to `slot` until its release. Returns true if direct I/O with
    /// `alignment` can use them in place.
    pub(super) fn attach(
        &mut self,
        slot: u16,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
        alignment: Alignment,
    ) -> bool {
        assert!(segments.len() <= MAX_SEGMENTS, "the channel has checked");
        let state = &mut self.slots[usize::from(slot)];
        assert!(
            !state.in_kernel && state.pin.is_none(),
            "the slot is in use"
        );
        state.pin = Some(self.memory.pins.pin(view));
        (state.first, state.end) = (0, segments.len());
        state.registered = self.buffers.as_mut().and_then(|buffers| {
            let pieces = segments.iter().map(|segment| {
                let (base, len) = segment.as_raw();
                (segment.lent_id(), base.addr(), len)
            });
            buffers.of(pieces, view)
        });
        let first = usize::from(slot) * STRIDE;
        if view.log().is_some() {
            state.marks = segments.len();
            for (place, segment) in self.memory.marks[first..].iter_mut().zip(segments) {
                place.write(segment.to_mark());
            }
        }
        let mut misaligned = 0;
        for (place, segment) in self.memory.iovecs[first..].iter_mut().zip(segments) {
            let (base, len) = segment.as_raw();
            misaligned |= (base as usize & (alignment.memory - 1)) | (len & (alignment.offset - 1));
            place.write(iovec {
                iov_base: base.cast(),
                iov_len: len,
            });
        }
        misaligned == 0
    }

    /// Reverses [`Ring::attach`]; no effect if nothing is attached.
    pub(super) fn release(&mut self, slot: u16) {
        let state = &self.slots[usize::from(slot)];
        assert!(!state.in_kernel, "the kernel still uses the slot");
        if state.marks > 0 {
            self.mark_written(slot);
        }
        let state = &mut self.slots[usize::from(slot)];
        (state.first, state.end) = (0, 0);
        if let Some(pin) = state.pin.take() {
            self.memory.pins.unpin(pin);
        }
    }

    /// Marks the host's pages that the slot's command may have written, whatever its outcome. Only
    /// when nothing writes them any more.
    #[cold]
    fn mark_written(&mut self, slot: u16) {
        let state = &mut self.slots[usize::from(slot)];
        let marks = std::mem::take(&mut state.marks);
        if let Some(pin) = state.pin
            && let Some(log) = self.memory.pins.view(pin).log()
        {
            let first = usize::from(slot) * STRIDE;
            for place in &self.memory.marks[first..first + marks] {
                // SAFETY: `attach` wrote as many.
                let (at, len) = unsafe { place.assume_init() };
                log.mark(at, len.into());
            }
        }
    }

    /// Moves the cursor over `len` bytes of the slot's segments.
    pub(super) fn advance(&mut self, slot: u16, mut len: usize) {
        let state = &mut self.slots[usize::from(slot)];
        assert!(!state.in_kernel, "the kernel still uses the slot");
        while len > 0 {
            assert!(state.first < state.end, "past the segments");
            let place = &mut self.memory.iovecs[usize::from(slot) * STRIDE + state.first];
            // SAFETY: `attach` wrote the iovecs below `end`.
            let piece = unsafe { place.assume_init_mut() };
            if len < piece.iov_len {
                piece.iov_base = piece.iov_base.wrapping_byte_add(len);
                piece.iov_len -= len;
                return;
            }
            len -= piece.iov_len;
            state.first += 1;
        }
    }

    /// The slot's iovecs that are not used up.
    fn iovecs(&self, slot: u16) -> &[iovec] {
        let state = &self.slots[usize::from(slot)];
        let first = usize::from(slot) * STRIDE;
        let iovecs = &self.memory.iovecs[first + state.first..first + state.end];
        // SAFETY: `attach` wrote the iovecs below `end`.
        unsafe { &*(std::ptr::from_ref(iovecs) as *const [iovec]) }
    }

    /// Calls `each` with (host memory, bounce buffer, bytes) for the first `len` bytes from the
    /// cursor, until it says false.
    fn pieces(
        &self,
        slot: u16,
        len: u32,
        mut each: impl FnMut(*mut u8, *mut u8, usize) -> bool,
    ) -> bool {
        assert!(
            !self.slots[usize::from(slot)].in_kernel,
            "the kernel still uses the slot"
        );
        assert!(len <= BOUNCE_BYTES, "above a bounce buffer");
        let mut bounce = self
            .memory
            .bounce
            .at(usize::from(slot) * BOUNCE_BYTES as usize);
        let mut left = len as usize;
        for piece in self.iovecs(slot) {
            if left == 0 {
                break;
            }
            let here = left.min(piece.iov_len);
            if !each(piece.iov_base.cast(), bounce, here) {
                return false;
            }
            bounce = bounce.wrapping_add(here);
            left -= here;
        }
        assert!(left == 0, "past the segments");
        true
    }

    /// Copies the host's next `len` bytes into the bounce buffer.
    pub(super) fn gather(&mut self, slot: u16, len: u32) {
        self.pieces(slot, len, |host, bounce, here| {
            // SAFETY: `host` is inside a segment of a pinned view or the sink, `bounce` inside the
            // slot's buffer, `here` bytes each (see `pieces`); they are different memory.
            unsafe { std::ptr::copy_nonoverlapping(host, bounce, here) };
            true
        });
    }

    /// Copies the bounce buffer's first `len` bytes, which the kernel has filled, to the host.
    pub(super) fn scatter(&mut self, slot: u16, len: u32) {
        self.pieces(slot, len, |host, bounce, here| {
            // SAFETY: as in `gather`; the kernel has written the bytes that are read.
            unsafe { std::ptr::copy_nonoverlapping(bounce, host, here) };
            true
        });
    }

    /// Whether the bounce buffer's first `len` bytes, which the kernel has filled, are the host's.
    pub(super) fn equal(&self, slot: u16, len: u32) -> bool {
        self.pieces(slot, len, |host, bounce, here| {
            // SAFETY: as in `scatter`.
            unsafe { libc::memcmp(host.cast(), bounce.cast(), here) == 0 }
        })
    }

    /// Puts an operation into the submission ring. No system call.
    pub(super) fn queue(&mut self, slot: u16, io: Io) {
        assert!(
            !self.slots[usize::from(slot)].in_kernel,
            "one operation a slot"
        );
        let second = self.rings[0].looks_at_device() && !io.is_polled_for();
        let registered = if second {
            None
        } else {
            self.slots[usize::from(slot)].registered
        };
        let entry = self.entry(slot, io, registered);
        let entry = entry.user_data(u64::from(slot));
        let uring = &mut self.rings[usize::from(second)];
        // SAFETY: what the entry points to stays where it is until its completion: segments, and
        // what is registered of them, by the slot's pin, the rest as part of `memory`; the asserts
        // on `in_kernel` see to both.
        let pushed = unsafe { uring.ring.submission().push(&entry) };
        pushed.expect("there are enough entries for every slot, and one operation a slot");
        uring.pushed();
        self.slots[usize::from(slot)].in_kernel = true;
    }

    /// Performs an operation on `file` at once; returns the kernel's result, as [`Ring::next`]
    /// does.
    pub(super) fn perform(&mut self, slot: u16, io: Io, file: BorrowedFd<'_>) -> i32 {
        let fd = file.as_raw_fd();
        let moved = match io {
            Io::Read { into, offset } => {
                let offset = offset.cast_signed();
                match self.memory_of(slot, into) {
                    // SAFETY: the memory is valid and may be written, as for `queue`, and the call
                    // ends before the memory can be released.
                    Pointed::Bytes(at, len) => unsafe {
                        libc::pread(fd, at.cast(), len as usize, offset)
                    },
                    // SAFETY: as above.
                    Pointed::Iovecs(at, n) => unsafe { libc::preadv(fd, at, n as i32, offset) },
                }
            }
            Io::Write {
                from,
                offset,
                durable,
            } => {
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                let one;
                let (at, n) = match self.memory_of(slot, from) {
                    Pointed::Iovecs(at, n) => (at, n as i32),
                    Pointed::Bytes(at, len) => {
                        one = iovec {
                            iov_base: at.cast(),
                            iov_len: len as usize,
                        };
                        (&raw const one, 1)
                    }
                };
                // SAFETY: as above; the iovecs are the slot's own or `one`.
                unsafe { libc::pwritev2(fd, at, n, offset.cast_signed(), flags) }
            }
            Io::Fallocate { mode, offset, len } => {
                return result_of(fallocate(file, mode, offset, len));
            }
            Io::Sync => return result_of(fdatasync(file)),
        };
        match i32::try_from(moved) {
            Ok(moved) if moved >= 0 => moved,
            _ => -io::Error::last_os_error()
                .raw_os_error()
                .unwrap_or(libc::EIO),
        }
    }

    /// The entry for an operation; `registered`: the buffer that holds all its segments.
    fn entry(&self, slot: u16, io: Io, registered: Option<u16>) -> squeue::Entry {
        match io {
            Io::Read { into, offset } => {
                let registered = registered.filter(|_| into == Buffer::Segments);
                read(self.file, self.memory_of(slot, into), registered, offset)
            }
            Io::Write {
                from,
                offset,
                durable,
            } => {
                let registered = registered.filter(|_| from == Buffer::Segments);
                let flags = if durable { libc::RWF_DSYNC } else { 0 };
                let memory = self.memory_of(slot, from);
                write(self.file, memory, registered, offset, flags)
            }
            Io::Fallocate { mode, offset, len } => {
                self.file.fallocate(mode.bits() as i32, offset, len)
            }
            Io::Sync => self.file.sync(),
        }
    }

    fn memory_of(&self, slot: u16, buffer: Buffer) -> Pointed {
        match buffer {
            Buffer::Segments => match self.iovecs(slot) {
                [one] => Pointed::Bytes(one.iov_base.cast(), one.iov_len as u32),
                many => Pointed::Iovecs(many.as_ptr(), many.len().min(MAX_IOVECS) as u32),
            },
            Buffer::Bounce(len) => {
                assert!(len <= BOUNCE_BYTES, "above a bounce buffer");
                Pointed::Bytes(
                    self.memory
                        .bounce
                        .at(usize::from(slot) * BOUNCE_BYTES as usize),
                    len,
                )
            }
            Buffer::Zeros(len) => {
                assert!(len <= ZEROS_BYTES, "above the zeros");
                Pointed::Bytes(self.memory.zeros.at(0), len)
            }
        }
    }

    /// Submits queued operations, in one system call per ring; none if nothing is queued.
    ///
    /// # Errors
    /// Those of [`Uring::submit`].
    pub(super) fn submit(&mut self) -> io::Result<()> {
        self.rings.iter_mut().try_for_each(Uring::submit)
    }

    /// Makes completions visible that need a call for that.
    ///
    /// # Errors
    /// Those of [`Uring::submit`].
    pub(super) fn run_completions(&mut self) -> io::Result<()> {
        self.rings.iter_mut().try_for_each(Uring::run_completions)
    }

    /// Whether there are completions to reap, or entries to submit again, right now.
    pub(super) fn is_due(&mut self) -> bool {
        self.rings.iter_mut().any(Uring::is_due)
    }

    /// The next slot whose operation has ended, with the kernel's result: bytes, or -errno.
    pub(super) fn next(&mut self) -> Option<(u16, i32)> {
        let (slot, result) = self.rings.iter_mut().find_map(Uring::next)?;
        let slot = slot as u16;
        let state = &mut self.slots[usize::from(slot)];
        assert!(state.in_kernel, "the kernel answers once");
        state.in_kernel = false;
        Some((slot, result))
    }

    /// Operations that the kernel has accepted and not completed.
    fn taken(&mut self) -> u32 {
        self.rings.iter_mut().map(Uring::taken).sum()
    }

    /// Waits a bounded time until the kernel has no operation left; returns whether that succeeded.
    fn settle(&mut self) -> bool {
        for _ in 0..DROP_WAITS {
            while self.next().is_some() {}
            let mut rings = self.rings.iter_mut();
            let Some(uring) = rings.find_map(|uring| (uring.taken() > 0).then_some(uring)) else {
                return true;
            };
            if uring.wait().is_err() {
                // Another thread than the ring's, where waiting is useless.
                break;
            }
        }
        while self.next().is_some() {}
        self.taken() == 0
    }
}

/// Reads the first `len` bytes of a file, to test whether rings with these `looks` work.
///
/// # Errors
/// The kernel's.
pub(super) fn try_read(file: BorrowedFd<'_>, looks: Looks, len: u32) -> io::Result<()> {
    let mut ring = Ring::new(file, 1, Way::Rings(looks), false)?;
    let io = Io::Read {
        into: Buffer::Bounce(len),
        offset: 0,
    };
    ring.queue(0, io);
    ring.submit()?;
    for _ in 0..DROP_WAITS {
        ring.run_completions()?;
        if let Some((_, result)) = ring.next() {
            return match result {
                0.. => Ok(()),
                error => Err(io::Error::from_raw_os_error(-error)),
            };
        }
        ring.rings[0].wait()?;
    }
    Err(io::ErrorKind::TimedOut.into())
}

/// Makes `len` bytes from `base` the buffer `index` of a ring, replacing the previous one; null and
/// 0 remove it.
///
/// # Errors
/// The kernel's: the memory is not writable, or cannot be pinned.
fn register_buffer(ring: &IoUring, index: u16, base: *mut u8, len: usize) -> io::Result<()> {
    let piece = iovec {
        iov_base: base.cast(),
        iov_len: len,
    };
    let submitter = ring.submitter();
    // SAFETY: the kernel looks at the addresses during the call alone, and fails where nothing is
    // mapped there; what it holds from then on are pages, which are its own to keep.
    unsafe { submitter.register_buffers_update(index.into(), &[piece], None) }
}

/// Whether the kernel accepts registered memory in several pieces.
fn is_vectored(ring: &IoUring) -> bool {
    let mut probe = Probe::new();
    let asked = ring.submitter().register_probe(&mut probe);
    asked.is_ok() && probe.is_supported(opcode::ReadvFixed::CODE)
}

fn result_of(result: rustix::io::Result<()>) -> i32 {
    result.err().map_or(0, |errno| -errno.raw_os_error())
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.settle() {
            tracing::error!(
                operations = self.taken(),
                "a medium did not finish its operations in time; their memory is kept until the program ends"
            );
            return;
        }
        (0..self.slots.len() as u16).for_each(|slot| self.mark_written(slot));
        for uring in self.rings.iter_mut() {
            if uring.has_kernel_thread() {
                // SAFETY: the entry points nowhere.
                let _ = unsafe { uring.ring.submission().push(&opcode::Nop::new().build()) };
                uring.pushed();
                // It processes completions before it does this.
                let _ = uring.submit().and_then(|()| uring.wait());
            }
            uring.release_file();
        }
        // SAFETY: neither is used again, and the kernel has nothing that points into `memory`.
        unsafe {
            ManuallyDrop::drop(&mut self.rings);
            ManuallyDrop::drop(&mut self.memory);
        }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("slots", &self.slots.len())
            .finish_non_exhaustive()
    }
}

/// Page-aligned memory of a fixed size.
struct Pages {
    start: NonNull<u8>,
    layout: Layout,
}

impl Pages {
    /// Memory with arbitrary contents until written. Pages that are never used are never touched.
    fn uninit(len: usize) -> Pages {
        // SAFETY: `of` gives a layout of more than zero bytes.
        Pages::of(len, |layout| unsafe { alloc(layout) })
    }

    fn zeroed(len: usize) -> Pages {
        // SAFETY: `of` gives a layout of more than zero bytes.
        Pages::of(len, |layout| unsafe { alloc_zeroed(layout) })
    }

    fn of(len: usize, allocate: impl FnOnce(Layout) -> *mut u8) -> Pages {
        assert!(len > 0, "a buffer of nothing");
        let layout = Layout::from_size_align(len, MAX_MEMORY_ALIGN).expect("far below isize::MAX");
        let start = NonNull::new(allocate(layout)).unwrap_or_else(|| handle_alloc_error(layout));
        Pages { start, layout }
    }

    fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset < self.layout.size(), "past the buffer");
        self.start.as_ptr().wrapping_add(offset)
    }
}

impl Drop for Pages {
    fn drop(&mut self) {
        // SAFETY: `of` got it from the allocator with this layout.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// An entry as the kernel sees it.
#[cfg(test)]
fn sqe_bytes(entry: &squeue::Entry) -> [u8; 64] {
    const { assert!(size_of::<squeue::Entry>() == 64) };
    // SAFETY: an entry is the kernel's plain structure of 64 bytes, all of them initialised.
    unsafe { std::ptr::from_ref(entry).cast::<[u8; 64]>().read() }
}

#[cfg(test)]
mod tests;
