//! One io_uring: how it is set up, and the calls that drive it.
//!
//! Invariants:
//! - It is disabled until the first submission; the thread that submits first is then the only one
//!   that may use it.
//! - No call here waits but [`Uring::wait`], which is for the end alone.
//! - A call to the kernel is made only where there is something for it to do.
//!
//! What it does NOT do: know what an operation points to. Entries are pushed by [`super::ring`],
//! which answers for that.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use io_uring::{Builder, IoUring, types};
use memory::EventFd;
use rustix::event::{Timespec, poll};

/// For how long one [`Uring::wait`] waits.
const WAIT_NS: u32 = 100_000_000;
/// How long a kernel thread looks for submissions before it sleeps and has to be woken by a call,
/// in milliseconds.
const THREAD_IDLE_MS: u32 = 2;

/// Who looks for what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Looks {
    /// A kernel thread looks for submissions (SQPOLL); otherwise they are handed over by a call.
    pub(super) kernel_thread: bool,
    /// The device is asked for completions (IOPOLL); otherwise it interrupts. Reads and writes of
    /// direct I/O alone.
    pub(super) at_device: bool,
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
    /// A ring for `depth` operations at a time on `file`, whose completions write to `wake` while
    /// that is switched on.
    ///
    /// # Errors
    /// The kernel's, where io_uring is missing or forbidden, or does not know what `looks` asks
    /// for.
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
            // Linux 6.1 knows all it is asked for; an older one refuses what it does not know.
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
        ring.submitter().register_files(&[file.as_raw_fd()])?;
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

    /// Whether the device is asked for completions, so that only reads and writes may go in.
    pub(super) fn looks_at_device(&self) -> bool {
        self.looks.at_device
    }

    /// Whether it has something in flight that the device is asked for: nobody wakes a sleeper for
    /// that.
    pub(super) fn is_polled(&self) -> bool {
        self.looks.at_device && self.in_kernel > 0
    }

    /// Whether a thread of the kernel submits and completes.
    pub(super) fn has_kernel_thread(&self) -> bool {
        self.looks.kernel_thread && self.enabled
    }

    /// Counts an entry that was pushed.
    pub(super) fn pushed(&mut self) {
        self.in_kernel += 1;
    }

    /// Whether completions write to the descriptor.
    pub(super) fn set_wakes(&mut self, on: bool) {
        if on {
            self.ring.completion().enable_eventfd()
        } else {
            self.ring.completion().disable_eventfd()
        }
    }

    /// Hands the kernel what is queued, in one system call; none where nothing is. What it does not
    /// take for want of resources stays for the next call.
    ///
    /// # Errors
    /// The ring cannot be used, now or later (a call from another thread than the first, say).
    pub(super) fn submit(&mut self) -> io::Result<()> {
        if self.ring.submission().is_empty() {
            return Ok(());
        }
        if !self.enabled {
            // From here on the ring is this thread's.
            self.ring.submitter().register_enable_rings()?;
            self.enabled = true;
        }
        loop {
            match self.ring.submit() {
                Ok(0) => return Ok(()),
                // The kernel's thread takes them when it gets there; it is awake.
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

    /// Lets the kernel finish completions that wait for this thread, where it says there are some,
    /// asks the device where nobody else does, and takes up what an earlier submission left. No
    /// system call otherwise.
    ///
    /// # Errors
    /// As [`Uring::submit`].
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

    /// Completions show only when this thread asks the device for them.
    fn asks_device(&self) -> bool {
        self.looks.at_device && !self.looks.kernel_thread
    }

    /// Whether there is something to reap, to ask for, or to submit again, right now.
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

    /// Operations that the kernel has taken and not answered, or may take without being asked.
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
            // The kernel knows no bound for that: asked now and then, instead.
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

    /// Gives the file back now and not when the kernel gets round to taking the ring down; a
    /// failure (another thread than the ring's) leaves it to that.
    pub(super) fn release_file(&mut self) {
        let _ = self.ring.submitter().unregister_files();
    }
}

/// A ring that any kernel makes. It is disabled at first: see [`best`].
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

/// A ring whose completions run when its thread asks for them, and not as interruptions. With
/// `SINGLE_ISSUER` the thread that enables a ring is the only one that may use it, and that is not
/// the one that makes it. A kernel thread that submits runs the completions, too, and there is
/// nothing to defer.
pub(super) fn best(looks: Looks) -> Builder {
    let mut builder = plain(looks);
    builder.setup_submit_all();
    if !looks.kernel_thread {
        builder.setup_single_issuer();
        builder.setup_defer_taskrun().setup_taskrun_flag();
    }
    builder
}
