//! A medium, what it is made from, and the channels that reactors use it through.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use controller::port::{Added, Channel as Port, Done, MediumTraits, Request};
use controller::set::CommandSet;
use controller::ticket::Ticket;
use controller::time::Time;
use memory::{Claims, DmaView, MAX_CLAIMANTS, Pieces, Segment, Store};
use model::{Model, Op};

use crate::error::MediumError;
use crate::file::{FileChannel, FileMedium};
use crate::keyvalue::{self, Dialect, KeyValueChannel, KeyValueMedium};
use crate::null::{self, NullChannel};
use crate::ram::{self, RamChannel};
use crate::size::Bytes;
use crate::timed::{Only, TimedChannel, Timing};
use crate::zoned::{ZoneSpec, ZonedChannel, ZonedMedium};

/// The most commands one channel has in flight.
pub const MAX_DEPTH: u16 = 4096;

/// What to open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MediumSpec {
    /// The kind, with what belongs to it.
    pub kind: MediumKind,
}

/// The kinds of media, each with what it needs. Sizes are bytes: positive multiples of 512.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MediumKind {
    /// Discards writes, leaves read buffers untouched.
    Null {
        /// Bytes that it seems to have.
        size: u64,
    },
    /// Memory, taken as it is written to.
    Ram {
        /// Bytes.
        size: u64,
    },
    /// Zones over any other kind: what is in them is written in order and reset as a whole.
    Zoned {
        /// Where the bytes are.
        of: Box<MediumKind>,
        /// What zones there are.
        zones: ZoneSpec,
    },
    /// A regular file or a block device.
    File {
        /// Where it is.
        path: PathBuf,
        /// Its size. A file that does not exist is created with it, sparse; one that exists, and a
        /// device, must have exactly it. `None`: whatever is found.
        size: Option<u64>,
        /// Whether to go past the page cache.
        direct: Direct,
        /// How its operations reach the kernel and come back.
        io: FileIo,
    },
    /// Keys and values in memory, taken as they are stored.
    KeyValue {
        /// Bytes for values, in units of 512.
        size: u64,
        /// Most keys; `None`: one for each unit.
        keys: Option<u32>,
        /// What its hosts speak.
        dialect: Dialect,
    },
}

/// How a file's operations reach the kernel and come back. Of no meaning for a file in memory (tmpfs), whose operations
/// are done at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIo {
    /// A thread of the kernel looks for submissions (`IORING_SETUP_SQPOLL`): no system calls, but a thread that spins
    /// while there is work.
    pub poll_submissions: bool,
    /// The device is asked for completions instead of interrupting (`IORING_SETUP_IOPOLL`). Needs direct I/O and a
    /// device with polled queues, or else the file is not opened.
    pub poll_completions: bool,
    /// Hosts' memory is registered with the kernel once it has been in use for a while, as far as the process may lock
    /// memory (`RLIMIT_MEMLOCK`). Registered memory is all allocated, and stays where it is.
    pub register_memory: bool,
}

impl Default for FileIo {
    fn default() -> Self {
        FileIo {
            poll_submissions: false,
            poll_completions: false,
            register_memory: true,
        }
    }
}

/// Whether a file is accessed past the page cache (`O_DIRECT`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direct {
    /// Where that works for every LBA size.
    #[default]
    Auto,
    /// Or else fail. LBAs may then have to be larger than 512 bytes: [`Medium::min_lba_bytes`].
    On,
    /// Never.
    Off,
}

/// Where the data lives. Shared by all reactors; each opens a [`Channel`] of its own.
pub struct Medium {
    size: u64,
    backing: Backing,
    /// What commands of different channels hold of it.
    claims: Claims,
    /// A node of memory was chosen for it.
    is_placed: AtomicBool,
    /// The drive whose time it has; `None`: it is as fast as it is.
    timing: Timing,
    /// Its zones, where it has some.
    zoned: Option<Arc<ZonedMedium>>,
    /// Somebody has the channel of a medium with timing.
    is_timed: Arc<AtomicBool>,
}

enum Backing {
    Null,
    Ram(Arc<Store>),
    File(Arc<FileMedium>),
    KeyValue(Arc<KeyValueMedium>),
}

impl Medium {
    /// Opens, or creates, what `spec` says.
    ///
    /// # Errors
    /// See [`MediumError`]; each says what to do.
    pub fn open(spec: &MediumSpec) -> Result<Arc<Medium>, MediumError> {
        Ok(Arc::new(Self::backed(spec)?))
    }

    /// The same, with the time of the drive that `timing` describes.
    ///
    /// # Errors
    /// Those of [`Medium::open`], and of a drive that cannot be.
    pub fn open_timed(
        spec: &MediumSpec,
        timing: &model::Parameters,
    ) -> Result<Arc<Medium>, MediumError> {
        let mut medium = Self::open(spec)?;
        Self::set_timing(&mut medium, timing.clone())?;
        Ok(medium)
    }

    /// Gives a medium that nobody else has the time of a drive.
    ///
    /// # Errors
    /// A drive that cannot be.
    ///
    /// # Panics
    /// Where somebody else has it.
    pub fn set_timing(
        this: &mut Arc<Medium>,
        timing: model::Parameters,
    ) -> Result<(), MediumError> {
        // What cannot be shows now, and not when the first reactor comes.
        Model::new(&timing)?;
        let medium = Arc::get_mut(this).expect("a medium gets its timing before anybody uses it");
        medium.timing.put(timing);
        Ok(())
    }

    /// What of it lets it have one channel at a time: timing, zones, keys. `None` where it has any number.
    #[must_use]
    pub fn why_single(&self) -> Option<&'static str> {
        if self.has_timing() {
            Some("timing")
        } else if self.zoned.is_some() {
            Some("zones")
        } else {
            matches!(self.backing, Backing::KeyValue(_)).then_some("keys")
        }
    }

    /// Has channels that are opened from now on begin with these parameters of its timing, which one that is open has taken
    /// ([`Channel::retune`]).
    pub fn retune(&self, timing: model::Parameters) {
        self.timing.put(timing);
    }

    /// Whether it has the time of a drive: then there is one channel of it at a time.
    #[must_use]
    pub fn has_timing(&self) -> bool {
        self.timing.get().is_some()
    }

    fn backed(spec: &MediumSpec) -> Result<Medium, MediumError> {
        let MediumKind::Zoned { of, zones } = &spec.kind else {
            return Self::plain(&spec.kind);
        };
        let mut medium = Self::plain(of)?;
        if matches!(medium.backing, Backing::KeyValue(_)) {
            let what = "they lie over null, ram or file";
            return Err(MediumError::Zones { what });
        }
        let deallocates = matches!(medium.backing, Backing::Ram(_));
        let zoned = ZonedMedium::new(zones, medium.size, deallocates)?;
        medium.zoned = Some(Arc::new(zoned));
        Ok(medium)
    }

    /// The bytes alone.
    fn plain(kind: &MediumKind) -> Result<Medium, MediumError> {
        let (size, backing) = match kind {
            MediumKind::Zoned { .. } => {
                let what = "there are no zones over zones";
                return Err(MediumError::Zones { what });
            }
            MediumKind::Null { size } => (checked(*size)?, Backing::Null),
            MediumKind::Ram { size } => {
                let size = checked(*size)?;
                let store =
                    Store::new(size).map_err(|source| MediumError::Memory { size, source })?;
                (size, Backing::Ram(Arc::new(store)))
            }
            MediumKind::File {
                path,
                size,
                direct,
                io,
            } => {
                let file = FileMedium::open(path, *size, *direct, *io)?;
                (file.size(), Backing::File(Arc::new(file)))
            }
            MediumKind::KeyValue {
                size,
                keys,
                dialect,
            } => {
                let size = checked(*size)?;
                let keys = keys.unwrap_or_else(|| KeyValueMedium::keys_of(size));
                let medium = KeyValueMedium::open(size, keys, *dialect)?;
                (size, Backing::KeyValue(Arc::new(medium)))
            }
        };
        Ok(Medium {
            size,
            backing,
            claims: Claims::new(),
            is_placed: AtomicBool::new(false),
            timing: Timing::default(),
            zoned: None,
            is_timed: Arc::default(),
        })
    }

    /// Bytes; never changes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Its name in configurations: `null`, `ram`, `file` or `keyvalue`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        match self.backing {
            Backing::Null => "null",
            Backing::Ram(_) => "ram",
            Backing::File(_) => "file",
            Backing::KeyValue(_) => "keyvalue",
        }
    }

    /// What it can do.
    #[must_use]
    pub fn traits(&self) -> MediumTraits {
        let traits = match &self.backing {
            Backing::Null => null::TRAITS,
            Backing::Ram(_) => ram::TRAITS,
            Backing::File(file) => file.traits(),
            Backing::KeyValue(_) => keyvalue::TRAITS,
        };
        match self.zoned {
            // What is in a zone goes when that is reset.
            Some(_) => MediumTraits {
                deallocate: false,
                ..traits
            },
            None => traits,
        }
    }

    /// The commands that namespaces on it have beside, or instead of, the NVM command set's; `None`: just those.
    #[must_use]
    pub fn set(&self) -> Option<Arc<dyn CommandSet>> {
        if let Some(zoned) = &self.zoned {
            return Some(zoned.set());
        }
        match &self.backing {
            Backing::KeyValue(medium) => Some(medium.set()),
            Backing::Null | Backing::Ram(_) | Backing::File(_) => None,
        }
    }

    /// The smallest LBA size, in bytes, that a namespace on it may have. A request that is no
    /// multiple of it, or does not start at one, is not done (`Cause::Unsupported`). 512 unless a
    /// file was opened with [`Direct::On`] on a device of larger blocks.
    #[must_use]
    pub fn min_lba_bytes(&self) -> u32 {
        match &self.backing {
            Backing::Null | Backing::Ram(_) | Backing::KeyValue(_) => 512,
            Backing::File(file) => file.min_lba_bytes(),
        }
    }

    /// One line for the log: what it is, how large, and how it is accessed and why.
    #[must_use]
    pub fn describe(&self) -> String {
        let bytes = self.describe_bytes();
        match &self.zoned {
            Some(zoned) => format!("{bytes}; {}", zoned.describe()),
            None => bytes,
        }
    }

    fn describe_bytes(&self) -> String {
        match &self.backing {
            Backing::Null => format!("null, {}: writes are discarded", Bytes(self.size)),
            Backing::Ram(store) => ram::describe(store),
            Backing::File(file) => file.describe(),
            Backing::KeyValue(medium) => medium.describe(),
        }
    }

    /// How many commands of all its channels used registered memory of their hosts, as of the last [`Channel::tend`] of each.
    /// `None` where none is to be registered.
    #[must_use]
    pub fn io_counts(&self) -> Option<IoCounts> {
        match &self.backing {
            Backing::Null | Backing::Ram(_) | Backing::KeyValue(_) => None,
            Backing::File(file) => file.io_counts(),
        }
    }

    /// A handle for one reactor, with at most `depth` commands in flight (between 1 and
    /// [`MAX_DEPTH`]). It may be made on any thread; it belongs to the one that first submits.
    ///
    /// # Errors
    /// The system's, for a file where io_uring cannot be had; and there are [`MAX_CLAIMANTS`] channels at most, of a medium
    /// with timing one.
    pub fn channel(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let depth = depth.clamp(1, MAX_DEPTH);
        let Some(timing) = self.timing.get() else {
            return self.with_zones(depth);
        };
        let only = Only::of(&self.is_timed).ok_or_else(|| {
            io::Error::other(
                "a medium with timing is served by one reactor: give all controllers that use it the same `reactor`",
            )
        })?;
        let model = Model::new(&timing).map_err(io::Error::other)?;
        let inner = self.with_zones(depth)?;
        let timed = TimedChannel::new(inner, model, only, depth);
        Ok(Channel(Kind::Timed(Box::new(timed))))
    }

    /// A handle without the time.
    fn with_zones(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let below = self.bytes(depth)?;
        let Some(zoned) = &self.zoned else {
            return Ok(below);
        };
        let channel = zoned.channel(below, depth).ok_or_else(|| {
            io::Error::other(
                "a medium with zones is served by one reactor: give all controllers that use it the same `reactor`",
            )
        })?;
        Ok(Channel(Kind::Zoned(Box::new(channel))))
    }

    /// A handle on the bytes alone.
    fn bytes(self: &Arc<Self>, depth: u16) -> io::Result<Channel> {
        let claimant = || {
            let claimant = self.claims.claimant();
            claimant.ok_or_else(|| {
                io::Error::other(format!(
                    "a medium has at most {MAX_CLAIMANTS} channels: let fewer reactors use it"
                ))
            })
        };
        Ok(Channel(match &self.backing {
            Backing::Null => Kind::Null(NullChannel),
            Backing::Ram(store) => {
                Kind::Ram(Box::new(RamChannel::new(Arc::clone(store), claimant()?)))
            }
            Backing::File(file) => Kind::File(Box::new(file.channel(depth, claimant()?)?)),
            Backing::KeyValue(medium) => Kind::KeyValue(Box::new(medium.channel()?)),
        }))
    }

    /// Has memory of the medium that is taken from now on come from a node of memory, as long as that has some: for a
    /// reactor there that is about to use it. The first one has its wish. Of no meaning for media that are no memory.
    ///
    /// # Errors
    /// The system's: it has no such node.
    pub fn prefer_node(&self, node: u32) -> io::Result<()> {
        match &self.backing {
            Backing::Ram(store) if !self.is_placed.swap(true, Relaxed) => store.prefer_node(node),
            _ => Ok(()),
        }
    }

    /// Its memory, to be looked after; `None` where it has none.
    #[must_use]
    pub fn pieces(&self) -> Option<Arc<dyn Pieces>> {
        match &self.backing {
            Backing::Ram(store) => Some(Arc::clone(store) as Arc<dyn Pieces>),
            Backing::Null | Backing::File(_) | Backing::KeyValue(_) => None,
        }
    }

    /// Blocks until everything that has completed is on the media; for a clean stop.
    ///
    /// # Errors
    /// The system's, and that of a flush that failed earlier: then data is lost.
    pub fn sync(&self) -> io::Result<()> {
        match &self.backing {
            Backing::Null | Backing::Ram(_) | Backing::KeyValue(_) => Ok(()),
            Backing::File(file) => file.sync(),
        }
    }
}

impl fmt::Debug for Medium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Medium({})", self.describe())
    }
}

fn checked(size: u64) -> Result<u64, MediumError> {
    if size == 0 || !size.is_multiple_of(512) {
        return Err(MediumError::Size { size });
    }
    Ok(size)
}

/// One reactor's handle on a medium: see [`controller::port::Channel`] for how it is used.
///
/// It keeps what it needs of the medium alive. Dropping it waits up to five seconds for the
/// commands that are in flight, and completes none of them.
#[derive(Debug)]
pub struct Channel(Kind);

#[derive(Debug)]
enum Kind {
    Null(NullChannel),
    Ram(Box<RamChannel>),
    File(Box<FileChannel>),
    KeyValue(Box<KeyValueChannel>),
    Timed(Box<TimedChannel>),
    Zoned(Box<ZonedChannel<Channel>>),
}

impl Channel {
    /// For a reactor that sleeps: a descriptor to wait for (level-triggered; nobody else drains
    /// it). `None` for media that complete at once.
    ///
    /// It becomes readable with a completion that comes after [`Channel::is_due`] and before the
    /// next reap; at other times it says nothing, which spares the kernel the work.
    #[must_use]
    pub fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            Kind::Null(_) | Kind::Ram(_) | Kind::KeyValue(_) => None,
            Kind::File(file) => Some(file.wait_fd()),
            Kind::Timed(timed) => timed.inner().wait_fd(),
            Kind::Zoned(zoned) => zoned.below().wait_fd(),
        }
    }

    /// The second look of a reactor that is about to sleep, after its last submit: arms
    /// [`Channel::wait_fd`], and says whether a reap has something to do right now. Some commands
    /// end without the kernel and show only here.
    #[must_use]
    pub fn is_due(&mut self) -> bool {
        match &mut self.0 {
            Kind::Null(_) | Kind::KeyValue(_) => false,
            Kind::Ram(ram) => ram.is_due(),
            Kind::File(file) => file.is_due(),
            Kind::Timed(timed) => timed.is_due(),
            Kind::Zoned(zoned) => zoned.below_mut().is_due(),
        }
    }
}

impl Channel {
    /// What the last [`Port::add`] has done, where that is more, or something else, than the request says: zones tell where an
    /// append went, and what became of which zone. `None` where the request says it all.
    pub(crate) fn happened(&self) -> Option<&[Op<'static>]> {
        match &self.0 {
            Kind::Null(_) | Kind::Ram(_) | Kind::File(_) => None,
            Kind::KeyValue(_) | Kind::Timed(_) => None,
            Kind::Zoned(zoned) => Some(zoned.happened()),
        }
    }
}

impl Channel {
    /// What has to be done now and then, on the reactor's thread, whether or not anything is in flight: a file's channel
    /// takes up registered memory of hosts, and gives up what they have unmapped; and a channel that was its medium's only
    /// one makes way for the commands of others. Cheap where there is nothing to do.
    #[inline]
    pub fn tend(&mut self) {
        match &mut self.0 {
            Kind::Null(_) | Kind::KeyValue(_) => {}
            Kind::Ram(ram) => ram.tend(),
            Kind::File(file) => file.tend(),
            Kind::Timed(timed) => timed.inner_mut().tend(),
            Kind::Zoned(zoned) => zoned.below_mut().tend(),
        }
    }

    /// Gives a medium with timing other parameters while it works. What is under way keeps its time.
    ///
    /// # Errors
    /// Those that make no drive, or one of another shape; then nothing has changed.
    pub fn retune(&mut self, timing: &model::Parameters) -> Result<(), model::ParameterError> {
        match &mut self.0 {
            Kind::Timed(timed) => timed.retune(timing),
            _ => Ok(()),
        }
    }

    /// Whether commands are in flight whose completions show only in [`Port::reap`], and wake nobody: a reactor must not
    /// sleep then.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        match &self.0 {
            Kind::Null(_) | Kind::Ram(_) | Kind::KeyValue(_) => false,
            Kind::File(file) => file.is_polled(),
            Kind::Timed(timed) => timed.inner().is_polled(),
            Kind::Zoned(zoned) => zoned.below().is_polled(),
        }
    }

    /// The model that says when commands are done, of a medium with timing.
    #[must_use]
    pub fn model(&self) -> Option<&Model> {
        match &self.0 {
            Kind::Timed(timed) => Some(timed.model()),
            Kind::Null(_) | Kind::Ram(_) | Kind::File(_) => None,
            Kind::KeyValue(_) | Kind::Zoned(_) => None,
        }
    }

    /// What the last command of a key-value medium was for a timing model: one operation, or those of a compound command. `None`
    /// where it was refused before anything was looked at, and for other media.
    #[must_use]
    pub fn last_op(&self) -> Option<model::Op<'_>> {
        match &self.0 {
            Kind::KeyValue(channel) => channel.last_op(),
            Kind::Timed(timed) => timed.inner().last_op(),
            Kind::Null(_) | Kind::Ram(_) | Kind::File(_) | Kind::Zoned(_) => None,
        }
    }

    /// How many commands used registered memory of their host. All 0 where none is to be registered.
    #[must_use]
    pub fn io_counts(&self) -> IoCounts {
        match &self.0 {
            Kind::Null(_) | Kind::Ram(_) | Kind::KeyValue(_) => IoCounts::default(),
            Kind::File(file) => file.io_counts(),
            Kind::Timed(timed) => timed.inner().io_counts(),
            Kind::Zoned(zoned) => zoned.below().io_counts(),
        }
    }
}

/// Commands of a channel that moved bytes, by what the kernel had to do for their memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct IoCounts {
    /// It was registered.
    pub registered: u64,
    /// It was not: every page is looked up and held for each command.
    pub plain: u64,
}

impl Port for Channel {
    #[inline]
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        view: &Arc<DmaView>,
    ) -> Added {
        match &mut self.0 {
            Kind::Null(channel) => channel.add(ticket, request, segments, view),
            Kind::Ram(channel) => channel.add(ticket, request, segments, view),
            Kind::File(channel) => channel.add(ticket, request, segments, view),
            Kind::KeyValue(channel) => channel.add(ticket, request, segments, view),
            Kind::Timed(channel) => channel.add(ticket, request, segments, view),
            Kind::Zoned(channel) => channel.add(ticket, request, segments, view),
        }
    }

    #[inline]
    fn submit(&mut self) {
        match &mut self.0 {
            Kind::Null(channel) => channel.submit(),
            Kind::Ram(channel) => channel.submit(),
            Kind::File(channel) => channel.submit(),
            Kind::KeyValue(channel) => channel.submit(),
            Kind::Timed(channel) => channel.submit(),
            Kind::Zoned(channel) => channel.submit(),
        }
    }

    #[inline]
    fn reap(&mut self, done: &mut Vec<Done>) {
        match &mut self.0 {
            Kind::Null(channel) => channel.reap(done),
            Kind::Ram(channel) => channel.reap(done),
            Kind::File(channel) => channel.reap(done),
            Kind::KeyValue(channel) => channel.reap(done),
            Kind::Timed(channel) => channel.reap(done),
            Kind::Zoned(channel) => channel.reap(done),
        }
    }

    #[inline]
    fn in_flight(&self) -> u32 {
        match &self.0 {
            Kind::Null(channel) => channel.in_flight(),
            Kind::Ram(channel) => channel.in_flight(),
            Kind::File(channel) => channel.in_flight(),
            Kind::KeyValue(channel) => channel.in_flight(),
            Kind::Timed(channel) => channel.in_flight(),
            Kind::Zoned(channel) => channel.in_flight(),
        }
    }

    #[inline]
    fn is_full(&self, request: &Request<'_>) -> bool {
        match &self.0 {
            Kind::Null(channel) => channel.is_full(request),
            Kind::Ram(channel) => channel.is_full(request),
            Kind::File(channel) => channel.is_full(request),
            Kind::KeyValue(channel) => channel.is_full(request),
            Kind::Timed(channel) => channel.is_full(request),
            Kind::Zoned(channel) => channel.is_full(request),
        }
    }

    #[inline]
    fn copies(&self) -> bool {
        match &self.0 {
            Kind::Null(_) | Kind::File(_) => false,
            Kind::Ram(_) | Kind::KeyValue(_) => true,
            Kind::Timed(timed) => timed.copies(),
            Kind::Zoned(zoned) => zoned.copies(),
        }
    }

    #[inline]
    fn expect(&self, offset: u64, len: u64) {
        match &self.0 {
            Kind::Null(_) | Kind::File(_) | Kind::KeyValue(_) => {}
            Kind::Ram(channel) => channel.expect(offset, len),
            Kind::Timed(timed) => timed.expect(offset, len),
            Kind::Zoned(zoned) => zoned.expect(offset, len),
        }
    }

    fn keeps_time(&self) -> bool {
        matches!(self.0, Kind::Timed(_))
    }

    fn set_time(&mut self, now: Time) {
        if let Kind::Timed(timed) = &mut self.0 {
            timed.set_time(now);
        }
    }

    fn next_due(&self) -> Option<Time> {
        match &self.0 {
            Kind::Timed(timed) => timed.next_due(),
            Kind::Null(_) | Kind::Ram(_) | Kind::File(_) => None,
            Kind::KeyValue(_) | Kind::Zoned(_) => None,
        }
    }
}
