//! The driver's side of a device.
//!
//! As with io_uring's deferred task work, a request comes to the session's side in its next
//! [`Requests::submit`], and so do commits to this side.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::rc::Rc;

use memory::{Buffer, EventFd};
use rustix::io::Errno;
use transport::ublk::Requests;
use ublk::{Descriptor, Event, Operation, RequestFlags};

/// A request of the block layer.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) operation: Operation,
    pub(super) flags: RequestFlags,
    pub(super) sectors: u32,
    pub(super) start: u64,
    /// Data to write.
    pub(super) data: Vec<u8>,
    /// Bytes that are read.
    pub(super) read: usize,
}

impl Ask {
    pub(super) fn new(operation: Operation, start: u64, sectors: u32) -> Self {
        Self {
            operation,
            flags: RequestFlags::new(),
            sectors,
            start,
            data: Vec::new(),
            read: 0,
        }
    }

    pub(super) fn read(start: u64, sectors: u32) -> Self {
        Self {
            read: sectors as usize * 512,
            ..Self::new(Operation::READ, start, sectors)
        }
    }

    pub(super) fn write(start: u64, data: &[u8]) -> Self {
        Self {
            data: data.to_vec(),
            ..Self::new(Operation::WRITE, start, (data.len() / 512) as u32)
        }
    }

    pub(super) fn append(zone: u64, data: &[u8]) -> Self {
        Self {
            operation: Operation::ZONE_APPEND,
            ..Self::write(zone, data)
        }
    }

    /// A report of zones into memory for so many.
    pub(super) fn report(start: u64, zones: u32) -> Self {
        Self {
            read: zones as usize * 64,
            ..Self::new(Operation::REPORT_ZONES, start, zones)
        }
    }

    pub(super) fn fua(mut self) -> Self {
        self.flags.set_fua(true);
        self
    }

    pub(super) fn nounmap(mut self) -> Self {
        self.flags.set_nounmap(true);
        self
    }

    fn descriptor(&self) -> Descriptor {
        Descriptor {
            flags: self.flags.with_op(self.operation.0),
            sectors: self.sectors,
            start: self.start,
        }
    }
}

/// A request that the session has committed.
#[derive(Clone, Debug)]
pub(super) struct Done {
    pub(super) tag: u16,
    pub(super) result: i32,
    pub(super) data: Vec<u8>,
    /// Where an append begins.
    pub(super) sector: Option<u64>,
}

/// Who has a tag.
#[derive(Debug)]
enum Tag {
    /// The session, which has not fetched.
    New,
    /// The driver: it can give a request.
    Free,
    /// The driver, with a request that is not at the session's side.
    Given(Ask),
    /// The session, with a request, and the data that it has copied.
    Busy(Ask, Vec<u8>),
    /// The session, to which it was taken away.
    Aborted,
}

/// What the session has pushed and not submitted.
#[derive(Debug)]
enum Command {
    Fetch,
    Commit(i32, Option<u64>),
    /// With another buffer from then on.
    Refuse(i32),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Kernel {
    tags: Vec<Tag>,
    pub(super) buffer_len: usize,
    pub(super) user_copy: bool,
    /// Tags whose own buffers are not the driver's any more.
    pub(super) refused: Vec<bool>,
    pushed: VecDeque<(u16, Command)>,
    /// Deferred work.
    late: VecDeque<u16>,
    events: VecDeque<(u16, Event)>,
    pub(super) done: VecDeque<Done>,
    is_stopping: bool,
    is_armed: bool,
    wake: EventFd,
    /// Copies fail.
    pub(super) fails_copies: bool,
    /// System calls fail.
    pub(super) fails_calls: bool,
    /// System calls that did something.
    pub(super) calls: u64,
    /// The session's side was dropped.
    pub(super) is_closed: bool,
}

pub(super) type Shared = Rc<RefCell<Kernel>>;

impl Kernel {
    pub(super) fn new(tags: u16, buffer_len: usize, user_copy: bool) -> Self {
        Self {
            tags: (0..tags).map(|_| Tag::New).collect(),
            buffer_len,
            user_copy,
            refused: vec![false; tags.into()],
            pushed: VecDeque::new(),
            late: VecDeque::new(),
            events: VecDeque::new(),
            done: VecDeque::new(),
            is_stopping: false,
            is_armed: false,
            wake: EventFd::new().unwrap(),
            fails_copies: false,
            fails_calls: false,
            calls: 0,
            is_closed: false,
        }
    }

    fn signal(&self) {
        if self.is_armed {
            self.wake.signal().unwrap();
        }
    }

    /// Gives a request to any tag that is free. `None`: there is none.
    pub(super) fn give(&mut self, ask: Ask) -> Option<u16> {
        let is_free = |tag: &Tag| matches!(tag, Tag::Free);
        let index = self.tags.iter().position(is_free)?;
        self.tags[index] = Tag::Given(ask);
        self.late.push_back(index as u16);
        self.signal();
        Some(index as u16)
    }

    /// What no driver does.
    pub(super) fn post(&mut self, index: u16, event: Event) {
        self.events.push_back((index, event));
        self.signal();
    }

    /// Takes tags away that are free, and the others when they are committed.
    pub(super) fn stop(&mut self) {
        self.is_stopping = true;
        for (index, tag) in self.tags.iter().enumerate() {
            if matches!(tag, Tag::Free) {
                self.late.push_back(index as u16);
            }
        }
        self.signal();
    }

    pub(super) fn free(&self) -> usize {
        let is_free = |tag: &&Tag| matches!(tag, Tag::Free);
        self.tags.iter().filter(is_free).count()
    }

    /// Requests that the session has, or will get.
    pub(super) fn busy(&self) -> usize {
        let is_busy = |tag: &&Tag| matches!(tag, Tag::Given(_) | Tag::Busy(..));
        self.tags.iter().filter(is_busy).count()
    }

    fn is_due(&self) -> bool {
        !self.pushed.is_empty() || !self.late.is_empty() || !self.events.is_empty()
    }

    fn push(&mut self, index: u16, command: Command) {
        let tag = &self.tags[usize::from(index)];
        match command {
            Command::Fetch => assert!(matches!(tag, Tag::New), "{index} is fetched twice"),
            Command::Commit(..) | Command::Refuse(_) => {
                assert!(
                    matches!(tag, Tag::Busy(..)),
                    "{index} has nothing to commit"
                );
                let is_twice = self.pushed.iter().any(|(other, _)| *other == index);
                assert!(!is_twice, "{index} is committed twice");
            }
        }
        self.pushed.push_back((index, command));
    }

    /// What a system call of the session does.
    fn enter(&mut self, buffers: &Buffer) -> io::Result<()> {
        if self.pushed.is_empty() && self.late.is_empty() {
            return Ok(());
        }
        self.calls += 1;
        if self.fails_calls {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        while let Some((index, command)) = self.pushed.pop_front() {
            self.take(index, &command, buffers);
        }
        while let Some(index) = self.late.pop_front() {
            self.bring(index, buffers);
        }
        Ok(())
    }

    fn take(&mut self, index: u16, command: &Command, buffers: &Buffer) {
        let tag = &mut self.tags[usize::from(index)];
        let old = std::mem::replace(tag, Tag::Free);
        let (result, sector) = match command {
            Command::Commit(result, sector) => (result, sector),
            Command::Refuse(result) => (result, &None),
            Command::Fetch => (&0, &None),
        };
        let is_refused = &mut self.refused[usize::from(index)];
        match command {
            Command::Refuse(_) => *is_refused = true,
            _ => assert!(!*is_refused, "{index} has another buffer"),
        }
        if let Tag::Busy(ask, mut data) = old {
            if *result >= 0 && ask.read > 0 && !self.user_copy {
                data = vec![0; ask.read.min(*result as usize)];
                let at = usize::from(index) * self.buffer_len;
                buffers.read_into(at, &mut data);
            }
            if ask.operation == Operation::REPORT_ZONES {
                // What was not written is as it was.
                data.resize(ask.read, 0);
            }
            self.done.push_back(Done {
                tag: index,
                result: *result,
                data,
                sector: *sector,
            });
        }
        if self.is_stopping {
            self.late.push_back(index);
        }
    }

    fn bring(&mut self, index: u16, buffers: &Buffer) {
        let tag = &mut self.tags[usize::from(index)];
        let event = match std::mem::replace(tag, Tag::Aborted) {
            Tag::Given(ask) => {
                let event = Event::Request(ask.descriptor());
                let at = usize::from(index) * self.buffer_len;
                if !self.user_copy && !self.refused[usize::from(index)] {
                    let len = ask.data.len().min(self.buffer_len);
                    buffers.write_from(at, &ask.data[..len]);
                }
                *tag = Tag::Busy(ask, Vec::new());
                event
            }
            Tag::Free => Event::Aborted,
            other => panic!("{index} is not the driver's: {other:?}"),
        };
        self.events.push_back((index, event));
        self.signal();
    }

    fn copy(&mut self, index: u16, len: usize, is_write: bool, buffers: &Buffer) -> io::Result<()> {
        assert!(
            self.user_copy && len <= self.buffer_len,
            "a copy of {len} bytes"
        );
        let at = usize::from(index) * self.buffer_len;
        let Tag::Busy(ask, copied) = &mut self.tags[usize::from(index)] else {
            panic!("{index} has no request to copy from");
        };
        if self.fails_copies {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        if is_write {
            assert!(len <= ask.data.len(), "more than the request has");
            buffers.write_from(at, &ask.data[..len]);
        } else {
            assert!(len <= ask.read, "more than the request has room for");
            *copied = vec![0; len];
            buffers.read_into(at, copied);
        }
        Ok(())
    }
}

/// The session's side.
#[derive(Debug)]
pub(super) struct Double {
    kernel: Shared,
    buffers: Buffer,
    wake: EventFd,
}

impl Requests for Double {
    type Device = Shared;

    fn sizes(device: &Shared) -> (u16, u32) {
        let kernel = device.borrow();
        (kernel.tags.len() as u16, kernel.buffer_len as u32)
    }

    fn new(device: Shared, buffers: Buffer) -> io::Result<Self> {
        if device.borrow().fails_calls {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        let len = (device.borrow().tags.len() + 1) * device.borrow().buffer_len;
        assert_eq!(buffers.len(), len);
        let wake = device.borrow().wake.clone();
        Ok(Self {
            kernel: device,
            buffers,
            wake,
        })
    }

    fn has_user_copy(&self) -> bool {
        self.kernel.borrow().user_copy
    }

    fn fetch(&mut self) {
        let mut kernel = self.kernel.borrow_mut();
        for index in 0..kernel.tags.len() {
            kernel.push(index as u16, Command::Fetch);
        }
    }

    fn commit(&mut self, index: u16, result: i32) {
        let command = Command::Commit(result, None);
        self.kernel.borrow_mut().push(index, command);
    }

    fn commit_append(&mut self, index: u16, result: i32, sector: u64) {
        let command = Command::Commit(result, Some(sector));
        self.kernel.borrow_mut().push(index, command);
    }

    fn refuse(&mut self, index: u16, why: Errno) {
        let command = Command::Refuse(-why.raw_os_error());
        self.kernel.borrow_mut().push(index, command);
    }

    fn copy(&mut self, index: u16, len: usize, is_write: bool) -> io::Result<()> {
        let kernel = &mut self.kernel.borrow_mut();
        kernel.copy(index, len, is_write, &self.buffers)
    }

    fn submit(&mut self) -> io::Result<()> {
        self.kernel.borrow_mut().enter(&self.buffers)
    }

    fn take(&mut self) -> Option<(u16, Event)> {
        self.kernel.borrow_mut().events.pop_front()
    }

    fn is_due(&mut self) -> bool {
        self.kernel.borrow().is_due()
    }

    fn arm(&mut self) {
        self.kernel.borrow_mut().is_armed = true;
    }

    fn disarm(&mut self) {
        let mut kernel = self.kernel.borrow_mut();
        kernel.is_armed = false;
        kernel.wake.drain();
    }

    fn wake(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

impl Drop for Double {
    fn drop(&mut self) {
        self.kernel.borrow_mut().is_closed = true;
    }
}
