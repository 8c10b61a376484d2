//! Where the requests of a device come from: the driver, or a test in its place.

use std::fmt::Debug;
use std::io;
use std::os::fd::BorrowedFd;

use memory::Buffer;
use rustix::io::Errno;
use ublk::{Device, Event, Ring};

/// A [`Ring`], or a test in its place. Its functions are those of the same names there.
pub trait Requests: Debug + Sized {
    /// The server's end of a device.
    type Device;

    /// Tags, and bytes of the buffer of each.
    fn sizes(device: &Self::Device) -> (u16, u32);
    /// Makes it, on the thread that uses it.
    ///
    /// # Errors
    /// The system's.
    fn new(device: Self::Device, buffers: Buffer) -> io::Result<Self>;
    /// Whether data are copied by [`Self::copy`].
    fn has_user_copy(&self) -> bool;
    /// Fetches for all tags.
    fn fetch(&mut self);
    /// Has requests readable, after the fetches are submitted. A test has nothing to map.
    ///
    /// # Errors
    /// The driver's.
    fn map(&mut self) -> io::Result<()> {
        Ok(())
    }
    /// Ends a request.
    fn commit(&mut self, index: u16, result: i32);
    /// Ends a Zone Append.
    fn commit_append(&mut self, index: u16, result: i32, sector: u64);
    /// Fails a request whose buffer may still be in use.
    fn refuse(&mut self, index: u16, why: Errno);
    /// Copies data of a request.
    ///
    /// # Errors
    /// The driver's.
    fn copy(&mut self, index: u16, len: usize, is_write: bool) -> io::Result<()>;
    /// Gives commands to the driver.
    ///
    /// # Errors
    /// It cannot be used any more.
    fn submit(&mut self) -> io::Result<()>;
    /// What has come.
    fn take(&mut self) -> Option<(u16, Event)>;
    /// Whether there is something to submit or to take.
    fn is_due(&mut self) -> bool;
    /// Has what comes make [`Self::wake`] readable.
    fn arm(&mut self);
    /// Reverses that.
    fn disarm(&mut self);
    /// Readable while armed when something has come.
    fn wake(&self) -> BorrowedFd<'_>;
}

impl Requests for Ring {
    type Device = Device;

    fn sizes(device: &Device) -> (u16, u32) {
        (device.tags(), device.info().max_io_buf_bytes)
    }

    fn new(device: Device, buffers: Buffer) -> io::Result<Self> {
        Ring::new(device, buffers)
    }

    fn has_user_copy(&self) -> bool {
        self.device().info().flags.user_copy()
    }

    fn fetch(&mut self) {
        Ring::fetch(self);
    }

    fn map(&mut self) -> io::Result<()> {
        Ring::map(self)
    }

    #[inline]
    fn commit(&mut self, index: u16, result: i32) {
        Ring::commit(self, index, result);
    }

    fn commit_append(&mut self, index: u16, result: i32, sector: u64) {
        Ring::commit_append(self, index, result, sector);
    }

    fn refuse(&mut self, index: u16, why: Errno) {
        Ring::refuse(self, index, why);
    }

    fn copy(&mut self, index: u16, len: usize, is_write: bool) -> io::Result<()> {
        Ring::copy(self, index, len, is_write)
    }

    #[inline]
    fn submit(&mut self) -> io::Result<()> {
        Ring::submit(self)
    }

    #[inline]
    fn take(&mut self) -> Option<(u16, Event)> {
        Ring::take(self)
    }

    #[inline]
    fn is_due(&mut self) -> bool {
        Ring::is_due(self)
    }

    fn arm(&mut self) {
        Ring::arm(self);
    }

    fn disarm(&mut self) {
        Ring::disarm(self);
    }

    fn wake(&self) -> BorrowedFd<'_> {
        Ring::wake(self)
    }
}
