//! One io_uring: its setup, and the calls that drive it.
//!
//! Invariants:
//! - It is disabled until the first submission; from then on only the thread that submitted first
//!   may use it.
//! - No call here waits except [`Uring::wait`], which is only for the end.
//! - A system call is made only if the kernel has something to do.
//!
//! Not included: the memory of operations. [`super::ring`], which pushes entries, is responsible
//! for that.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{Builder, IoUring, types};
use memory::EventFd;
use rustix::event::{Timespec, poll};

/// Maximum duration of one [`Uring::wait`].
const WAIT_NS: u32 = 100_000_000;
/// Time that a kernel thread polls for submissions before it sleeps and must be woken by a call, in
/// milliseconds.
const THREAD_IDLE_MS: u32 = 2;

/// How a ring looks for work, and for its file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Looks {
    /// A kernel thread polls for submissions (SQPOLL); otherwise a call submits them.
    pub(super) kernel_thread: bool,
    /// The device is polled for completions (IOPOLL); otherwise it interrupts. Only for reads and
    /// writes with direct I/O.
    pub(super) at_device: bool,
    /// The file is given by its descriptor with each operation; otherwise it is registered.
    pub(super) plain_file: bool,
}

/// An io_uring for operations on one file.
pub(super) struct Uring {
    pub(super) ring: IoUring,
    looks: Looks,
    enabled: bool,
    /// Operations in the submission ring or in the kernel.
    in_kernel: u32,
}

impl Uring {
    /// Creates a ring for `depth` operations at a time on `file`, whose completions write to `wake`
    /// while that is enabled.
    ///
    /// # Errors
    /// The kernel's: io_uring is missing or forbidden, or does not support `looks`.
    pub(super) fn new(
        looks: Looks,
        file: BorrowedFd<'_>,
        wake: &EventFd,
        depth: u16,
    ) -> io::Result<Uring> {
        let entries = if looks.kernel_thread {
            2 * u32::from(depth)
        } else {
            depth.into()
        };
        let ring = match best(looks).build(entries) {
            // Linux 6.1 supports all flags; an older kernel rejects unknown ones.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                plain(looks).build(entries)?
            }
            other => other?,
        };
        Uring::over(ring, looks, file, wake)
    }

    pub(super) fn over(
        mut ring: IoUring,
        looks: Looks,
        file: BorrowedFd<'_>,
        wake: &EventFd,
    ) -> io::Result<Uring> {
        if !looks.plain_file {
            ring.submitter().register_files(&[file.as_raw_fd()])?;
        }
        ring.submitter()
            .register_eventfd(wake.as_fd().as_raw_fd())?;
        ring.completion().disable_eventfd();
        Ok(Uring {
            ring,
            looks,
            enabled: false,
            in_kernel: 0,
        })
    }

    pub(super) fn is_enabled(&self) -> bool {
        self.enabled
    }

    /// Whether the device is polled for completions, so that only reads and writes are accepted.
    pub(super) fn looks_at_device(&self) -> bool {
        self.looks.at_device
    }

    /// Whether an operation in flight needs the device to be polled: no event wakes a sleeping
    /// reactor for it.
    pub(super) fn is_polled(&self) -> bool {
        self.looks.at_device && self.in_kernel > 0
    }

    /// Whether a kernel thread submits and completes.
    pub(super) fn has_kernel_thread(&self) -> bool {
        self.looks.kernel_thread && self.enabled
    }

    /// Counts an entry that was pushed.
    pub(super) fn pushed(&mut self) {
        self.in_kernel += 1;
    }

    /// Sets whether completions write to the descriptor.
    pub(super) fn set_wakes(&mut self, on: bool) {
        if on {
            self.ring.completion().enable_eventfd()
        } else {
            self.ring.completion().disable_eventfd()
        }
    }

    /// Submits queued entries in one system call; none if the queue is empty. Entries that the
    /// kernel does not accept for lack of resources stay for the next call.
    ///
    /// # Errors
    /// The ring is unusable for good (after a call from another thread than the first, for
    /// example).
    pub(super) fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        if !self.enabled {
            // From here on the ring belongs to this thread.
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        loop {
            match self.ring.submit() {
                Ok(0) => return Ok(()),
                // The kernel thread is awake and takes them soon.
                Ok(_) if self.looks.kernel_thread => return Ok(()),
                Ok(_) if self.ring.submission().is_empty() => return Ok(()),
                Ok(_) => {}
                Err(error) => match error.raw_os_error() {
                    Some(libc::EINTR) => {}
                    Some(libc::EAGAIN | libc::EBUSY) => return Ok(()),
                    _ => return Err(error),
                },
            }
        }
    }

    /// Lets the kernel finish completions that wait for this thread, if it reports some; polls the
    /// device if no kernel thread does; and submits entries left by an earlier submission. No
    /// system call otherwise.
    ///
    /// # Errors
    /// Those of [`Uring::submit`].
    pub(super) fn run_completions(&mut self) -> io::Result<()> {
        if self.in_kernel == 0 {
            return Ok(());
        }
        let asks = self.asks_device() && self.ring.completion().is_empty();
        let submission = self.ring.submission();
        let waiting = submission.taskrun() || submission.cq_overflow();
        let left = !submission.is_empty();
        drop(submission);
        if left {
            return self.submit();
        }
        if !(waiting || asks) {
            return Ok(());
        }
        match self.ring.submit() {
            Ok(_) => Ok(()),
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
                _ => Err(error),
            },
        }
    }

    /// Whether completions show only when this thread polls the device.
    fn asks_device(&self) -> bool {
        self.looks.at_device && !self.looks.kernel_thread
    }

    /// Whether there is something to reap, to poll for, or to submit again, right now.
    pub(super) fn is_due(&mut self) -> bool {
        if self.in_kernel == 0 {
            return false;
        }
        let submission = self.ring.submission();
        let left = !submission.is_empty() && !self.looks.kernel_thread;
        let due = left || submission.taskrun() || submission.cq_overflow();
        drop(submission);
        due || self.is_polled() || !self.ring.completion().is_empty()
    }

    /// The next operation that has ended: its number, and the kernel's result.
    pub(super) fn next(&mut self) -> Option<(u64, i32)> {
        if self.in_kernel == 0 {
            return None;
        }
        let entry = self.ring.completion().next()?;
        self.in_kernel -= 1;
        Some((entry.user_data(), entry.result()))
    }

    /// Operations that the kernel has accepted and not completed, or may accept by itself.
    pub(super) fn taken(&mut self) -> u32 {
        if self.looks.kernel_thread {
            self.in_kernel
        } else {
            self.in_kernel - self.ring.submission().len() as u32
        }
    }

    /// Waits a moment for a completion.
    ///
    /// # Errors
    /// The ring cannot be used from this thread.
    pub(super) fn wait(&mut self) -> io::Result<()> {
        let result = if self.looks.at_device {
            // The kernel has no time limit for polling, so this polls now and then instead.
            let moment = Timespec {
                tv_sec: 0,
                tv_nsec: WAIT_NS.into(),
            };
            self.ring.submit().map(|_| {
                if self.ring.completion().is_empty() {
                    // an interrupted wait is a short one
                    let _ = poll(&mut [], Some(&moment));
                }
            })
        } else {
            let bound = types::Timespec::new().nsec(WAIT_NS);
            let wait = types::SubmitArgs::new().timespec(&bound);
            self.ring.submitter().submit_with_args(1, &wait).map(drop)
        };
        result.or_else(|error| match error.raw_os_error() {
            Some(libc::ETIME | libc::EINTR | libc::EAGAIN | libc::EBUSY) => Ok(()),
            _ => Err(error),
        })
    }

    /// Releases the file now, rather than when the kernel destroys the ring; a failure (on another
    /// thread than the ring's) leaves it to that.
    pub(super) fn release_file(&mut self) {
        let _ = self.ring.submitter().unregister_files();
    }
}

/// Configuration that every kernel supports. The ring is disabled at first: see [`best`].
pub(super) fn plain(looks: Looks) -> Builder {
    let mut builder = IoUring::builder();
    builder.setup_r_disabled().dontfork();
    if looks.kernel_thread {
        builder.setup_sqpoll(THREAD_IDLE_MS);
    }
    if looks.at_device {
        builder.setup_iopoll();
    }
    builder
}

/// Configuration in which completions run when the ring's thread asks for them, instead of
/// interrupting it. With `SINGLE_ISSUER` only the thread that enables the ring may use it, which is
/// not the thread that creates it. With a submitting kernel thread, that thread also runs
/// completions, so nothing is deferred.
pub(super) fn best(looks: Looks) -> Builder {
    let mut builder = plain(looks);
    builder.setup_submit_all();
    if !looks.kernel_thread {
        builder.setup_single_issuer();
        builder.setup_defer_taskrun().setup_taskrun_flag();
    }
    builder
}
