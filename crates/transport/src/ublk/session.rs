//! The server's side of a device: its requests and its controller.
//!
//! It ends with the device, or with its controller, which no one resets but the operator. A
//! namespace that is formatted otherwise or taken away ends it; of one that grows or shrinks the
//! receiver of [`News`] hears.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::mpsc::Sender;

use controller::Controller;
use memory::{Access, ClientMappings, DmaMap, HostMemory, Iova};
use nvme_spec::registers::CommandSetSelected;
use port::namespace::Namespace;
use port::time::Time;
use rustix::io::Errno;
use ublk::{Event, SECTOR};

use super::QUEUE_DEPTH;
use super::counters::Counters;
use super::disk::{Disk, MAX_IO, TAGS};
use super::end::End;
use super::requests::Requests;
use super::work::{Completed, Work};
use crate::host::{ADMIN_LEN, BASE, Failed, Opening, PAGE, QID, Rings, rings_len};

/// What a poll has come to.
#[derive(Debug)]
pub struct Polled {
    /// It did something: there may be more.
    pub worked: bool,
    /// It has ended: it is to be dropped, and its controller reset.
    pub ended: Option<End>,
}

impl Polled {
    fn of(result: Result<bool, End>) -> Self {
        Self {
            worked: !matches!(result, Ok(false)),
            ended: result.err(),
        }
    }
}

/// What the one who looks after the device in the kernel is to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum News {
    /// Requests of all tags are fetched: the device can start.
    Fetched,
    /// The namespace has another size now, in sectors.
    Resized(u64),
    /// The driver has taken all tags away: the session has ended, and has completed all requests.
    Stopped,
    /// The session has ended for another reason, and its device has no server.
    Ended(String),
    /// The server, and not a session, has something to ask.
    Asked,
}

/// See the module.
#[derive(Debug)]
pub struct Session<R> {
    requests: R,
    disk: Disk,
    news: Sender<News>,
    /// The map whose view the controller has. That view keeps the memory mapped for as long as the
    /// controller or a medium uses it, also behind the end of the session.
    _map: DmaMap,
    _mappings: ClientMappings,
    opening: Opening,
    work: Work,
    /// Tags are fetched.
    has_begun: bool,
    /// Tags that the driver has taken away.
    aborted: u16,
    tags: u16,
    blocks: u64,
    counters: Counters,
    /// What the next poll ends with.
    end: Option<End>,
    /// What it has ended with, though its device has not stopped: until then requests fail.
    failed: Option<End>,
    /// The receiver of news knows of the end.
    is_told: bool,
}

/// Whether a controller whose commands move up to `max_transfer` bytes can serve a device with this
/// number of tags and this length of buffers.
fn check(tags: u16, buffer_len: u32, max_transfer: u32) -> io::Result<()> {
    let most = MAX_IO.min(max_transfer);
    let has_pages = buffer_len > 0 && buffer_len.is_multiple_of(PAGE as u32);
    if !(1..=TAGS).contains(&tags) || !has_pages || buffer_len > most {
        let why = format!(
            "the device has {tags} requests of up to {buffer_len} bytes, and 1 to {TAGS} of whole pages and up to {most} bytes can be served"
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
    }
    Ok(())
}

impl<R: Requests> Session<R> {
    /// A device that was opened, for a namespace, and its controller, which was just made and has
    /// no other host. On the thread that polls it.
    ///
    /// # Errors
    /// There is no memory, no io_uring, or there are no more descriptors. Invalid input: the device
    /// has more tags than [`TAGS`], or longer requests than [`MAX_IO`] or a command of the
    /// controller.
    pub fn new(
        device: R::Device,
        disk: Disk,
        news: Sender<News>,
        controller: &mut Controller,
        now: Time,
    ) -> io::Result<Self> {
        let none = || io::Error::from(io::ErrorKind::OutOfMemory);
        let (tags, buffer_len) = R::sizes(&device);
        check(tags, buffer_len, controller.config().max_transfer)?;
        // The last one is for requests that fail: see `Requests::refuse`.
        let buffers_len = (usize::from(tags) + 1) * buffer_len as usize;
        let entries = u32::from(QUEUE_DEPTH);
        let memory = HostMemory::new(ADMIN_LEN + rings_len(entries) + buffers_len)?;
        let rings = Rings::new(QID, entries, entries, &memory).ok_or_else(none)?;
        let mut mappings = ClientMappings::new();
        let mapping = mappings
            .map(memory.fd().try_clone_to_owned()?)
            .map_err(io::Error::other)?;
        let mut map = DmaMap::new(1);
        let whole = Some((mapping, 0));
        map.map(Iova(BASE), memory.len() as u64, Access::READ_WRITE, whole)
            .map_err(io::Error::other)?;
        controller.set_view(map.view(), mappings.lost());
        let sets = CommandSetSelected::ALL_SUPPORTED;
        let opening = Opening::begin(controller, &memory, sets, now).ok_or_else(none)?;
        let buffers = memory.reserve(buffers_len, PAGE).ok_or_else(none)?;
        let sizes = (tags, buffer_len);
        let work = Work::new(memory, rings, &buffers, sizes, &disk);
        Ok(Self {
            requests: R::new(device, buffers)?,
            blocks: disk.blocks,
            disk,
            news,
            _map: map,
            _mappings: mappings,
            opening,
            work,
            has_begun: false,
            aborted: 0,
            tags,
            counters: Counters::default(),
            end: None,
            failed: None,
            is_told: false,
        })
    }

    /// Takes requests and completions, and gives commands to the controller. Due when
    /// [`Self::wake`] is readable, at [`Self::next_deadline`], and after a turn while it works. A
    /// hot poll, which no event has led to, looks at requests and completions alone.
    #[inline]
    pub fn poll(&mut self, controller: &mut Controller, now: Time, is_hot: bool) -> Polled {
        if self.failed.is_some() {
            return Polled::of(self.refuse());
        }
        let polled = if is_hot && self.is_running() {
            self.run(controller)
        } else {
            self.serve(controller, now)
        };
        match polled {
            Err(end) => self.fail(end),
            worked => Polled::of(worked),
        }
    }

    /// Whether requests and completions are all that a hot poll looks at.
    #[inline]
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.has_begun && self.end.is_none() && self.failed.is_none()
    }

    /// It ends. While its device has a disk, and the ring can be used, the driver is to get all
    /// requests back first: Linux 6.12 waits for them forever where a process closes the ring and
    /// lives on.
    #[cold]
    fn fail(&mut self, end: End) -> Polled {
        let is_disk_left = matches!(end, End::Changed | End::Controller | End::MediumHangs);
        if !is_disk_left || !self.has_begun {
            return Polled::of(Err(end));
        }
        self.tell_of(&end);
        self.counters.failed += u64::from(self.work.abandon(&mut self.requests));
        self.failed = Some(end);
        Polled::of(Ok(true))
    }

    /// Fails requests until the device is stopped.
    #[cold]
    fn refuse(&mut self) -> Result<bool, End> {
        self.requests.disarm();
        self.requests.submit().map_err(End::Io)?;
        let mut worked = false;
        while let Some((index, event)) = self.requests.take() {
            worked = true;
            match event {
                Event::Request(_) => {
                    self.counters.requests += 1;
                    self.counters.failed += 1;
                    self.requests.refuse(index, Errno::IO);
                }
                Event::Aborted => self.aborted += 1,
                Event::Failed(errno) => return Err(End::Refused(errno)),
            }
        }
        if self.aborted >= self.tags {
            return Err(self.failed.take().unwrap_or(End::Stopped));
        }
        self.requests.submit().map_err(End::Io)?;
        Ok(worked)
    }

    fn serve(&mut self, controller: &mut Controller, now: Time) -> Result<bool, End> {
        if let Some(end) = self.end.take() {
            return Err(end);
        }
        let followed = self.opening.follow(controller, &self.work.rings, now);
        let mut worked = followed.map_err(|Failed| End::Controller)?;
        if !self.opening.is_open() {
            // No event says that the controller is ready. Before it is, it has no zoned namespace.
            return Ok(true);
        }
        self.follow_namespace(controller)?;
        if !self.has_begun {
            self.has_begun = true;
            worked = true;
            self.requests.fetch();
            self.requests.submit().map_err(End::Io)?;
            self.requests.map().map_err(End::Io)?;
            self.tell(News::Fetched);
        }
        Ok(self.run(controller)? || worked)
    }

    /// Takes completions and requests.
    #[inline]
    fn run(&mut self, controller: &mut Controller) -> Result<bool, End> {
        self.requests.disarm();
        let mut worked = self.complete()?;
        self.requests.submit().map_err(End::Io)?;
        worked |= self.take()?;
        // Requests that failed at once are committed.
        self.requests.submit().map_err(End::Io)?;
        Ok(worked | self.work.rings.ring(controller))
    }

    /// Takes completions.
    fn complete(&mut self) -> Result<bool, End> {
        let mut worked = false;
        while let Some(cqe) = self.work.rings.take() {
            worked = true;
            match self.work.complete(&cqe, &mut self.requests) {
                Some(Completed::Done { has_failed }) => {
                    self.counters.failed += u64::from(has_failed);
                }
                Some(Completed::Hangs) => return Err(End::MediumHangs),
                None => {}
            }
        }
        Ok(worked)
    }

    /// Takes requests: each tag has one at most.
    fn take(&mut self) -> Result<bool, End> {
        let mut worked = false;
        while let Some((index, event)) = self.requests.take() {
            worked = true;
            match event {
                Event::Request(_) if !self.work.is_free(index) => return Err(End::Tag(index)),
                Event::Request(request) => {
                    self.counters.requests += 1;
                    let has_begun = self.work.begin(index, &request, &mut self.requests);
                    self.counters.failed += u64::from(!has_begun);
                }
                Event::Aborted => self.aborted += 1,
                Event::Failed(errno) => return Err(End::Refused(errno)),
            }
        }
        if self.aborted >= self.tags {
            return Err(End::Stopped);
        }
        Ok(worked)
    }

    /// Sees what has become of the namespace.
    fn follow_namespace(&mut self, controller: &Controller) -> Result<(), End> {
        let namespace = self.disk.is.find(controller.namespaces());
        let namespace = namespace.ok_or(End::Changed)?;
        if namespace.blocks != self.blocks {
            self.blocks = namespace.blocks;
            self.tell(News::Resized(namespace.extent().len / SECTOR));
        }
        Ok(())
    }

    /// Without a receiver the server ends.
    fn tell(&self, news: News) {
        let _ = self.news.send(news);
    }

    /// Takes completions. Due after each turn of the controller that worked. True where there was
    /// something: it is to be polled again.
    pub fn drain(&mut self, controller: &mut Controller, _now: Time) -> bool {
        if self.failed.is_some() {
            return false;
        }
        if !self.opening.is_open() {
            return true;
        }
        let done = self.complete();
        let done = done.and_then(|done| {
            self.requests.submit().map_err(End::Io)?;
            Ok(done)
        });
        let worked = done.unwrap_or_else(|end| {
            self.end = Some(end);
            true
        });
        worked | self.work.rings.ring(controller)
    }

    /// Whether [`Self::drain`] would find something, seen without the controller. The I/O queue is
    /// looked at only with `io`.
    #[must_use]
    pub fn has_posted(&self, io: bool) -> bool {
        let has_completion = io && self.work.rings.has_completion();
        self.failed.is_none() && (self.opening.has_completion() || has_completion)
    }

    /// Whether commands are at the controller.
    #[must_use]
    pub fn has_io_in_flight(&self) -> bool {
        self.failed.is_none() && (!self.opening.is_open() || !self.work.is_idle())
    }

    /// Before the reactor sleeps: requests make [`Self::wake`] readable from now on. False where
    /// one has come meanwhile, so that it is to be polled first.
    pub fn arm(&mut self) -> bool {
        self.requests.arm();
        !self.requests.is_due()
    }

    /// What tells of requests: it is to be watched for reading for as long as the session lives.
    #[must_use]
    pub fn wake(&self) -> BorrowedFd<'_> {
        self.requests.wake()
    }

    /// When it must be polled although nothing happens.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        self.opening.deadline()
    }

    /// Whether its namespace is what it was, and as large. Where not, it is to be polled at once.
    #[inline]
    #[must_use]
    pub fn is_valid(&self, controller: &Controller) -> bool {
        let namespace = self.disk.is.find(controller.namespaces());
        let is_same = |namespace: &Namespace| namespace.blocks == self.blocks;
        let has_ended = self.end.is_some() || self.failed.is_some();
        has_ended || !self.opening.is_open() || namespace.is_some_and(is_same)
    }

    /// What it has done.
    #[must_use]
    pub fn counters(&self) -> Counters {
        self.counters.clone()
    }

    fn tell_of(&mut self, end: &End) {
        if !std::mem::replace(&mut self.is_told, true) {
            self.tell(match end {
                End::Stopped => News::Stopped,
                end => News::Ended(end.to_string()),
            });
        }
    }

    /// Ends it: its device has no server from then on. The disk of a device that has not stopped
    /// is left to the next server: the driver notices when this thread ends, and until then its
    /// requests wait.
    pub fn end(mut self, end: &End) {
        self.tell_of(end);
        self.requests.disarm();
        if self.has_begun && matches!(end, End::Removed | End::Taken) {
            // See `fail`: a thread that ends has the driver give requests back by itself.
            let _ = std::mem::ManuallyDrop::new(self.requests);
        }
    }
}
