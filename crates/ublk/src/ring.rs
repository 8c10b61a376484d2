//! The requests of a device, by an io_uring of their own.
//!
//! Each tag has one command in the kernel or one request here, and a buffer for the data of its
//! request. The command of a tag is its next fetch, and with it the result of the request before.

use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd};

use io_uring::{IoUring, opcode, types};
use memory::{Buffer, EventFd, full_fence};
use rustix::io::Errno;
use zerocopy::IntoBytes as _;

use crate::abi::{Descriptor, IoCommand, IoOp};
use crate::device::Device;

/// What has come of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A request. Data to write are in the buffer of its tag, unless the device has
    /// [`Features::user_copy`](crate::Features::user_copy).
    Request(Descriptor),
    /// The driver takes the tag away: the device stops, or waits for another server.
    Aborted,
    /// The driver has refused the command.
    Failed(Errno),
}

/// See the module.
pub struct Ring {
    // The ring is dropped before the buffers. The kernel cancels its commands then, for which the
    // driver uses no buffer: it writes buffers in calls of our own thread alone.
    ring: IoUring,
    device: Device,
    /// The buffers of all tags and one more, of `buffer_len` bytes each.
    buffers: Buffer,
    buffer_len: usize,
    /// Commands in the submission queue or in the kernel.
    commands: u32,
    wake: EventFd,
    is_armed: bool,
    has_user_copy: bool,
}

impl Ring {
    /// For the requests of a device. The buffer has `max_io_buf_bytes` for each of its tags, and
    /// once more, from a page's begin on. Only the thread that calls this may use it.
    ///
    /// # Errors
    /// The kernel's, where io_uring is missing or forbidden.
    ///
    /// # Panics
    /// The buffer has another length.
    pub fn new(device: Device, buffers: Buffer) -> io::Result<Self> {
        let (tags, buffer_len) = (device.tags(), device.info().max_io_buf_bytes as usize);
        assert_eq!(
            buffers.len(),
            (usize::from(tags) + 1) * buffer_len,
            "a buffer for each tag, and one more"
        );
        let mut best = IoUring::builder();
        best.dontfork().setup_submit_all().setup_single_issuer();
        best.setup_defer_taskrun().setup_taskrun_flag();
        let ring = match best.build(tags.into()) {
            // Linux 6.1 supports all flags; an older kernel rejects unknown ones.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                IoUring::builder().dontfork().build(tags.into())?
            }
            other => other?,
        };
        ring.submitter()
            .register_files(&[device.as_fd().as_raw_fd()])?;
        let wake = EventFd::new()?;
        ring.submitter()
            .register_eventfd(wake.as_fd().as_raw_fd())?;
        let has_user_copy = device.info().flags.user_copy();
        let mut ring = Self {
            ring,
            device,
            buffers,
            buffer_len,
            commands: 0,
            wake,
            is_armed: true,
            has_user_copy,
        };
        ring.disarm();
        Ok(ring)
    }

    /// The device.
    #[must_use]
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// Fetches for all tags, once. [`Self::submit`] gives that to the kernel, and
    /// [`Self::map`] comes after it.
    pub fn fetch(&mut self) {
        for index in 0..self.device.tags() {
            let addr = self.address(index);
            self.push(IoOp::FETCH_REQ, index, 0, addr);
        }
    }

    /// Maps the descriptors of requests, once, before the device starts.
    ///
    /// Linux 6.12 lets no other process recover a device whose server has mapped them and died
    /// before all tags were fetched. In this order there is no such time.
    ///
    /// # Errors
    /// The driver's.
    pub fn map(&mut self) -> io::Result<()> {
        self.device.map()
    }

    /// Ends the request of a tag, and fetches for it again. The result is bytes that were read or
    /// written, or a negative error number; other requests have 0. [`Self::submit`] gives that to
    /// the kernel.
    pub fn commit(&mut self, index: u16, result: i32) {
        let addr = self.address(index);
        self.push(IoOp::COMMIT_AND_FETCH_REQ, index, result, addr);
    }

    /// As [`Self::commit`], of a Zone Append: its data begin at this sector.
    pub fn commit_append(&mut self, index: u16, result: i32, sector: u64) {
        self.push(IoOp::COMMIT_AND_FETCH_REQ, index, result, sector);
    }

    /// Fails the request of a tag, and fetches for it again with a buffer that no one reads: its
    /// own may still be in use. Later requests of the tag must be refused, too.
    pub fn refuse(&mut self, index: u16, why: Errno) {
        let addr = self.address(self.device.tags());
        let result = -why.raw_os_error();
        self.push(IoOp::COMMIT_AND_FETCH_REQ, index, result, addr);
    }

    /// Address of the buffer of a tag for the driver; behind them there is one more.
    fn address(&self, index: u16) -> u64 {
        if self.has_user_copy {
            return 0;
        }
        let at = usize::from(index) * self.buffer_len;
        self.buffers.address(at, self.buffer_len)
    }

    fn push(&mut self, op: IoOp, index: u16, result: i32, addr: u64) {
        let (q_id, tag) = self.device.place(index);
        let command = IoCommand {
            q_id,
            tag,
            result,
            addr,
        };
        let mut place = [0; 16];
        place.copy_from_slice(command.as_bytes());
        let entry = opcode::UringCmd16::new(types::Fixed(0), op.0)
            .cmd(place)
            .build()
            .user_data(index.into());
        // SAFETY: an entry points to the buffer of its tag, which lives longer than the ring.
        let pushed = unsafe { self.ring.submission().push(&entry) };
        debug_assert!(pushed.is_ok(), "a tag has one command at a time");
        self.commands += 1;
    }

    /// Gives commands to the kernel, and lets it bring requests that wait for this thread, in one
    /// system call; none where there are neither.
    ///
    /// # Errors
    /// The ring is unusable for good.
    pub fn submit(&mut self) -> io::Result<()> {
        let submission = self.ring.submission();
        let is_due = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        if !is_due {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                // What is left is submitted by the next call.
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// What has come, and of which index. [`Self::submit`] comes before.
    #[inline]
    pub fn take(&mut self) -> Option<(u16, Event)> {
        let entry = self.ring.completion().next()?;
        self.commands -= 1;
        let index = entry.user_data() as u16;
        let event = match entry.result() {
            0 => {
                let request = self.device.descriptor(index).map(Event::Request);
                request.unwrap_or(Event::Failed(Errno::PROTO))
            }
            // A result that only features have which are refused.
            1.. => Event::Failed(Errno::PROTO),
            result => match Errno::from_raw_os_error(-result) {
                Errno::NODEV => Event::Aborted,
                errno => Event::Failed(errno),
            },
        };
        Some((index, event))
    }

    /// Whether [`Self::submit`] or [`Self::take`] have something to do.
    #[inline]
    pub fn is_due(&mut self) -> bool {
        let submission = self.ring.submission();
        let is_due = !submission.is_empty() || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        is_due || !self.ring.completion().is_empty()
    }

    /// Whether the kernel has no command of this ring.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.commands == 0
    }

    /// Readable when something has come since [`Self::arm`].
    #[must_use]
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// From now on, until [`Self::disarm`], what comes makes [`Self::wake`] readable. What has come
    /// before shows in [`Self::is_due`], which must be checked after this.
    pub fn arm(&mut self) {
        if !std::mem::replace(&mut self.is_armed, true) {
            self.ring.completion().enable_eventfd();
            // Our store of "enabled" precedes our check of the ring. The kernel stores and then
            // checks "enabled": one of the two sees the other's store.
            full_fence();
        }
    }

    /// Reverses [`Self::arm`], and empties [`Self::wake`].
    pub fn disarm(&mut self) {
        if std::mem::replace(&mut self.is_armed, false) {
            self.ring.completion().disable_eventfd();
            self.wake.drain();
        }
    }

    /// Copies data of a request, of a device with user copy: those of a write into the buffer of
    /// its tag, those of a read out of it. It does not wait.
    ///
    /// # Errors
    /// The driver's, or fewer bytes were copied.
    ///
    /// # Panics
    /// The buffer is shorter.
    pub fn copy(&mut self, index: u16, len: usize, is_write: bool) -> io::Result<()> {
        assert!(len <= self.buffer_len, "bytes of one buffer");
        let at = usize::from(index) * self.buffer_len;
        let from = self.device.data_at(index);
        let done = if is_write {
            self.buffers.read_at(at, len, &self.device, from)?
        } else {
            self.buffers.write_at(at, len, &self.device, from)?
        };
        if done == len {
            Ok(())
        } else {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        // So the device is free as soon as its own descriptor is closed. With commands in the
        // kernel this would wait for them, forever: then the kernel frees it when it has ended the
        // ring.
        if self.is_idle() {
            let _ = self.ring.submitter().unregister_files();
        }
    }
}

impl std::fmt::Debug for Ring {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ring")
            .field("device", &self.device)
            .field("commands", &self.commands)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt as _;

    use memory::HostMemory;
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fs::{MemfdFlags, memfd_create};

    use super::*;
    use crate::abi::{DeviceInfo, Features, Operation};

    const TAGS: u16 = 3;
    const LEN: usize = 8192;

    /// A ring whose device is a file: a driver is missing that would take its commands.
    fn ring(flags: Features, file: &File) -> (Ring, HostMemory) {
        let memory = HostMemory::new((usize::from(TAGS) + 1) * LEN).unwrap();
        let buffers = memory.alloc(memory.len(), 4096).unwrap();
        let info = DeviceInfo {
            nr_hw_queues: 1,
            queue_depth: TAGS,
            max_io_buf_bytes: LEN as u32,
            flags,
            ..DeviceInfo::default()
        };
        let device = Device::with_file(file.try_clone().unwrap(), &info).unwrap();
        let mut ring = Ring::new(device, buffers).unwrap();
        ring.map().unwrap();
        (ring, memory)
    }

    fn file() -> File {
        let file = File::from(memfd_create("t", MemfdFlags::CLOEXEC).unwrap());
        file.set_len(4096).unwrap();
        file
    }

    /// Gives the kernel a command that it ends with 0, as a request comes.
    fn no_op(ring: &mut Ring, index: u64) {
        let entry = opcode::Nop::new().build().user_data(index);
        // SAFETY: it points to nothing.
        unsafe { ring.ring.submission().push(&entry).unwrap() };
        ring.commands += 1;
    }

    fn is_awake(ring: &Ring) -> bool {
        let now = Timespec::default();
        let wake = ring.wake();
        let mut fds = [PollFd::from_borrowed_fd(wake, PollFlags::IN)];
        poll(&mut fds, Some(&now)).unwrap() == 1
    }

    #[test]
    fn commands_to_what_is_no_device_fail() {
        for flags in [Features::new(), Features::new().with_user_copy(true)] {
            // Only a request has a descriptor: this file has none.
            let file = file();
            file.set_len(0).unwrap();
            let (mut ring, _memory) = ring(flags, &file);
            assert!(ring.is_idle() && !ring.is_due());
            ring.fetch();
            assert!(!ring.is_idle() && ring.is_due());
            ring.submit().unwrap();
            for index in 0..TAGS {
                let event = Event::Failed(Errno::OPNOTSUPP);
                assert_eq!(ring.take(), Some((index, event)));
            }
            assert_eq!(ring.take(), None);
            assert!(ring.is_idle() && !ring.is_due());
            ring.commit(1, -5);
            ring.commit_append(2, 0, u64::MAX);
            ring.submit().unwrap();
            let event = Event::Failed(Errno::OPNOTSUPP);
            assert_eq!(ring.take(), Some((1, event)));
            assert_eq!(ring.take(), Some((2, event)));
        }
    }

    #[test]
    fn buffers_of_tags_lie_side_by_side_unless_data_are_copied() {
        let (ring, memory) = self::ring(Features::new(), &file());
        let first = ring.address(0);
        assert_eq!(ring.address(2), first + 2 * LEN as u64);
        assert_eq!(ring.address(TAGS), first + 3 * LEN as u64);
        assert!(first.is_multiple_of(4096));
        drop((ring, memory));
        let (ring, _memory) = self::ring(Features::new().with_user_copy(true), &file());
        assert_eq!((ring.address(0), ring.address(2)), (0, 0));
    }

    #[test]
    fn a_request_has_its_descriptor_and_an_unknown_index_is_an_error() {
        let file = file();
        // Operation 2, 8 sectors from 0x100 on, of the last tag.
        let words = [2, 8, 0x100, 0, 0, 0].map(u32::to_le_bytes).concat();
        file.write_all_at(&words, 48).unwrap();
        let (mut ring, _memory) = ring(Features::new(), &file);
        for index in [2, 3, u64::from(u16::MAX)] {
            no_op(&mut ring, index);
        }
        ring.submit().unwrap();
        let Some((2, Event::Request(request))) = ring.take() else {
            panic!("a request of the last tag");
        };
        assert_eq!(request.operation(), Operation::FLUSH);
        assert_eq!((request.sectors, request.start), (8, 0x100));
        let unknown = Event::Failed(Errno::PROTO);
        assert_eq!(ring.take(), Some((3, unknown)));
        assert_eq!(ring.take(), Some((u16::MAX, unknown)));
        assert_eq!(ring.take(), None);
    }

    #[test]
    fn what_comes_wakes_while_it_is_armed() {
        let (mut ring, _memory) = ring(Features::new(), &file());
        no_op(&mut ring, 0);
        ring.submit().unwrap();
        assert!(!is_awake(&ring) && ring.is_due());
        // What came before shows in `is_due`.
        ring.arm();
        assert!(!is_awake(&ring) && ring.is_due());
        ring.take().unwrap();
        assert!(!ring.is_due());
        ring.arm();
        no_op(&mut ring, 1);
        assert!(ring.is_due());
        ring.submit().unwrap();
        assert!(is_awake(&ring));
        ring.disarm();
        assert!(!is_awake(&ring) && ring.is_due());
        ring.take().unwrap();
        no_op(&mut ring, 2);
        ring.submit().unwrap();
        assert!(!is_awake(&ring));
        assert!(ring.take().is_some() && ring.is_idle());
    }

    #[test]
    fn data_are_copied_from_and_to_their_place() {
        let file = file();
        file.set_len(0x8600_0000).unwrap();
        // Tag 1 of the first queue.
        file.write_all_at(&[7; 100], 0x8200_0000).unwrap();
        let (mut ring, memory) = ring(Features::new().with_user_copy(true), &file);
        ring.copy(1, 100, true).unwrap();
        let mut bytes = [0; 101];
        memory.read(LEN, &mut bytes);
        assert_eq!((&bytes[..100], bytes[100]), (&[7; 100][..], 0));
        memory.write(2 * LEN, &[9; LEN]);
        ring.copy(2, LEN, false).unwrap();
        let mut bytes = [0; LEN];
        file.read_exact_at(&mut bytes, 0x8400_0000).unwrap();
        assert_eq!(bytes, [9; LEN]);
        // The file ends within what is asked for.
        file.set_len(0x8200_0010).unwrap();
        let error = ring.copy(1, 17, true).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    #[should_panic(expected = "bytes of one buffer")]
    fn no_more_than_a_buffer_is_copied() {
        let (mut ring, _memory) = ring(Features::new(), &file());
        let _ = ring.copy(0, LEN + 1, true);
    }

    #[test]
    fn a_ring_ends_with_commands_that_were_not_submitted() {
        let (mut ring, memory) = ring(Features::new(), &file());
        ring.fetch();
        assert!(format!("{ring:?}").contains("commands: 3"));
        drop(ring);
        memory.write(0, &[1; 16]);
    }
}
