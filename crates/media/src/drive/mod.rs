//! A namespace of an NVMe drive that several tenants share: mediated pass-through.
//!
//! A [`Drive`] is any controller that the crate `driver` reaches: any server over vfio-user, a
//! target over NVMe/TCP, or one of our own in process. The medium's bytes are the drive's blocks.
//! Each channel owns a queue pair of the drive, and translates a request into commands with other
//! identifiers, blocks and pointers. Data moves directly between the drive and the host's memory if
//! the drive can reach it; those of a drive over a network go through buffers.
//!
//! Invariants:
//! - Only commands built in [`command`] reach the drive; the drive interprets no bytes of a host
//!   except as data.
//! - Every address given to the drive lies in memory that the host's map contained when the command
//!   arrived, and that map is kept until the drive has finished the command.
//! - A drive that hangs, misbehaves or fails costs its tenants interrupted commands, but never a
//!   reactor's time.
//!
//! Not included: separation of partitions (the controller has checked each request against its
//! namespace), scheduling, SGLs, metadata, and the drive's own Compare and Copy.
//!
//! [`reach`] opens the drive, [`keeper`] owns the device and a thread, [`warden`] unmaps memory
//! while the keeper is busy, [`channel`] is a reactor's handle, [`relay`] polls on another reactor,
//! [`message`] defines their messages, [`windows`] maps hosts' memory to drive addresses, and
//! [`data`] locates a command's data.

mod channel;
mod clock;
mod command;
mod counts;
mod data;
mod erase;
mod facts;
mod keeper;
mod message;
mod op;
mod queue;
mod reach;
mod relay;
mod report;
#[cfg(test)]
mod tests;
mod warden;
mod windows;

use std::sync::Arc;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::Duration;
use std::{fmt, io};

use driver::bus::Bus;
use driver::bus::nvme_tcp::Identity;
use driver::bus::place::{AnyBus, Place};
use driver::{Device, DriverError, Options};
use memory::{Claimant, EventFd};
use port::MediumTraits;

pub use self::channel::DriveChannel;
use self::channel::Parts;
pub(crate) use self::clock::Pace;
use self::counts::Counting;
pub use self::counts::DriveCounts;
use self::facts::Facts;
pub use self::keeper::{Keeper, Reopen};
pub use self::message::Duty;
use self::message::{Job, Sleeper};
pub use self::reach::KeepsFunction;
use self::reach::{release, reopening};
pub use self::relay::Relay;
pub use self::report::ShownPage;
use crate::order::Order;
use crate::size::Bytes;
use crate::trouble::Troubles;

/// Timeout of an admin command: longer than the 4 s after which our own controller gives up
/// commands that hang in a queue being deleted.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Timeout of a server's answers: a server that needs longer for a register read is stalled.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit of the keeper's slow commands, which take drives seconds.
const SLOW_TIMEOUT: Duration = Duration::from_secs(20);
/// Memory shared with a drive for queues, lists and buffers: enough for eight channels. A physical
/// drive has all of it locked.
pub const MEMORY_LEN: usize = 64 << 20;
/// Maximum bytes of one of our commands.
const TRANSFER_LEN: u32 = 1 << 20;
/// Maximum number of a channel's commands at the drive.
const MAX_DEPTH: u16 = 1023;
/// Maximum number of jobs waiting for the keeper.
const JOBS: usize = 256;
/// Bytes per erase job.
const ERASED_BYTES: u64 = 16 << 20;
/// Maximum wait of a clean stop for the drive's last flush.
const FLUSH_BOUND: Duration = Duration::from_secs(30);

/// An open namespace of a drive. The keeper ends with it and its channels.
pub struct Drive<B: Bus> {
    name: String,
    facts: Arc<Facts>,
    jobs: SyncSender<Job<B>>,
    ticks: Arc<AtomicU32>,
    /// Number of the next channel, and count of open channels.
    numbers: AtomicU32,
    open: Arc<AtomicU32>,
    counting: Arc<Counting>,
}

impl<B: Bus> fmt::Debug for Drive<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut drive = f.debug_struct("Drive");
        drive
            .field("name", &self.name)
            .field("facts", &self.facts)
            .finish_non_exhaustive()
    }
}

/// Where a drive is, and for one over NVMe/TCP who this process is there; `None`: the host that all
/// of the process is.
pub type DriveAddress = (Place, Option<Arc<Identity>>);

/// Options for opening a drive.
#[must_use]
pub fn options() -> Options {
    Options {
        memory_len: MEMORY_LEN,
        timeout: TIMEOUT,
        transfer_len_max: TRANSFER_LEN,
        ..Options::default()
    }
}

impl Drive<AnyBus> {
    /// Opens a namespace of the drive at a place, which a host of its own reaches where there is
    /// one; without a number, its first one. Hosts may read
    /// these log pages of the drive. A drive of this machine is kept by `kept`, which may have it
    /// from a former process.
    ///
    /// # Errors
    /// The drive cannot be reached, or is unsupported.
    pub(crate) fn at(
        at: &DriveAddress,
        nsid: Option<u32>,
        shown: &[ShownPage],
        kept: Option<&Arc<dyn KeepsFunction>>,
    ) -> Result<Self, DriverError> {
        let mut reopen = reopening(at, kept, None);
        let device = reopen()?;
        // Closed here, after the other process has.
        let bus = device.shared_bus().clone();
        let opened = Drive::of(at.0.to_string(), device, nsid, reopen);
        if let (Err(_), Some(kept)) = (&opened, kept) {
            release(kept.as_ref());
        }
        drop(bus);
        Self::supervised(opened?, shown, kept, Pace::default())
    }

    /// Continues with the drive that a former process of this server had. Returns when no command
    /// of that process is at the drive any more, and after the fence of `pace` in any case: a
    /// drive that does not answer is a lost one.
    ///
    /// # Errors
    /// The system starts no thread.
    pub(crate) fn again(
        at: &DriveAddress,
        known: Known,
        shown: &[ShownPage],
        kept: Option<&Arc<dyn KeepsFunction>>,
        pace: Pace,
    ) -> Result<Self, DriverError> {
        let (fence, passed) = channel();
        let reopen = reopening(at, kept, Some(fence.clone()));
        let (drive, keeper) = Drive::known(at.0.to_string(), known, reopen, at.0.can_revoke());
        let drive = Self::supervised((drive, keeper.fenced(fence)), shown, kept, pace)?;
        // Ends by the loss of the senders, too; the supervisor logs what is wrong.
        let _ = passed.recv_timeout(pace.fence);
        Ok(drive)
    }

    /// Starts the threads of a drive.
    fn supervised(
        (drive, keeper): (Self, Keeper<AnyBus>),
        shown: &[ShownPage],
        kept: Option<&Arc<dyn KeepsFunction>>,
        Pace { tick, .. }: Pace,
    ) -> Result<Self, DriverError> {
        let mut keeper = keeper.showing(shown.to_vec());
        if let Some(kept) = kept {
            let kept = kept.clone();
            keeper = keeper.released_by(Box::new(move || release(kept.as_ref())));
        }
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn(run).map_err(|source| DriverError::System {
                what: "start a thread for a drive",
                source,
            })
        };
        if let Some(warden) = keeper.take_warden() {
            start("drive-warden", Box::new(move || warden.run(tick)))?;
        }
        let clock = keeper.clock();
        start("drive-clock", Box::new(move || clock.run(tick)))?;
        start("drive", Box::new(move || keeper.run(tick)))?;
        Ok(drive)
    }
}

impl<B: Bus> Drive<B> {
    /// Wraps an enabled drive. The owner must run the returned keeper: on a thread
    /// ([`Keeper::run`]), or in turns ([`Keeper::look`]) if the drive has no thread either.
    ///
    /// # Errors
    /// The namespace does not exist or has an unsupported format; errors of the commands.
    pub fn of(
        name: String,
        device: Device<B>,
        nsid: Option<u32>,
        reopen: Reopen<B>,
    ) -> Result<(Self, Keeper<B>), DriverError> {
        let mut device = device;
        let facts = Arc::new(Facts::learn(&mut device, nsid)?);
        let can_revoke = device.bus().can_revoke();
        Ok(Self::made(name, facts, Some(device), reopen, can_revoke))
    }

    /// The same of a drive that a former process of this server had. The keeper reaches it by
    /// `reopen`, over a bus of which [`Bus::can_revoke`] is `can_revoke`.
    #[must_use]
    pub fn known(
        name: String,
        known: Known,
        reopen: Reopen<B>,
        can_revoke: bool,
    ) -> (Self, Keeper<B>) {
        Self::made(name, Arc::new(known.0), None, reopen, can_revoke)
    }

    fn made(
        name: String,
        facts: Arc<Facts>,
        device: Option<Device<B>>,
        reopen: Reopen<B>,
        can_revoke: bool,
    ) -> (Self, Keeper<B>) {
        let (jobs, taken) = sync_channel(JOBS);
        let ticks = Arc::new(AtomicU32::new(0));
        let counting = Arc::<Counting>::default();
        counting.is_there.store(device.is_some(), Relaxed);
        let drive = Drive {
            name: name.clone(),
            facts: facts.clone(),
            jobs,
            ticks: ticks.clone(),
            numbers: AtomicU32::new(0),
            open: Arc::default(),
            counting: counting.clone(),
        };
        let keeper = Keeper::new(name, facts, device, reopen, (taken, ticks), counting);
        (drive, keeper.with_warden(can_revoke))
    }

    /// State that another process of this server needs to continue with the drive.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        self.facts.to_bytes()
    }

    /// Size in bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.facts.size()
    }

    /// Errors of its channels.
    pub(crate) fn troubles(&self) -> &Arc<Troubles> {
        &self.counting.troubles
    }

    /// See [`DriveCounts`].
    pub(crate) fn counts(&self) -> DriveCounts {
        self.counting.counts()
    }

    pub(crate) fn traits(&self) -> MediumTraits {
        self.facts.traits()
    }

    pub(crate) fn min_lba_bytes(&self) -> u32 {
        self.facts.block_bytes().max(512)
    }

    /// The largest logical block size, 512 to 4096 bytes, that the drive promises to write
    /// completely or not at all across a power failure.
    #[must_use]
    pub fn max_lba_bytes(&self) -> u32 {
        self.facts.whole_bytes
    }

    /// Description in one line, for the log.
    pub(crate) fn describe(&self) -> String {
        let Facts {
            serial,
            model,
            nsid,
            ..
        } = &*self.facts;
        format!(
            "drive, {}: namespace {nsid} of '{model}', serial number '{serial}', at {}; when the power fails, {} are written whole",
            Bytes(self.size()),
            self.name,
            Bytes(self.max_lba_bytes().into())
        )
    }

    /// Creates a handle for one reactor. Requests added before the keeper has created its queue
    /// pair wait.
    ///
    /// # Errors
    /// The drive has no more queue pairs, or the system no descriptor.
    pub fn channel(&self, depth: u16, claimant: Claimant) -> io::Result<DriveChannel<B>> {
        let depth = depth.clamp(1, MAX_DEPTH);
        let wake = EventFd::new()?;
        let (news, told) = channel();
        let number = self.numbers.fetch_add(1, Relaxed);
        let held = Held::new(&self.open, self.facts.queues)?;
        let open = Job::Open {
            channel: number,
            depth,
            news,
            wake: wake.clone(),
        };
        self.jobs
            .send(open)
            .map_err(|_| io::Error::other("the drive supervisor has ended"))?;
        Ok(DriveChannel::new(Parts {
            channel: number,
            facts: self.facts.clone(),
            jobs: self.jobs.clone(),
            news: told,
            ticks: self.ticks.clone(),
            wake,
            order: Order::new(depth.into(), claimant),
            depth,
            held,
            counting: self.counting.clone(),
        }))
    }

    /// Creates a handle for a reactor that performs one duty for the completions of channels opened
    /// later. Each duty has one relay; [`Duty::Heads`] is useless without the other.
    ///
    /// # Errors
    /// The system has no descriptor.
    pub fn relay(&self, duty: Duty) -> io::Result<Relay<B>> {
        let its = Sleeper {
            bell: Arc::default(),
            wake: EventFd::new()?,
        };
        let (orders, taken) = channel();
        let open = Job::OpenRelay {
            duty,
            orders,
            its: its.clone(),
        };
        self.jobs
            .send(open)
            .map_err(|_| io::Error::other("the drive supervisor has ended"))?;
        Ok(Relay::new(
            duty,
            self.jobs.clone(),
            taken,
            its,
            self.ticks.clone(),
        ))
    }

    /// Flushes all completed writes to the media, and waits for that.
    ///
    /// # Errors
    /// The flush failed.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let (answer, answered) = sync_channel(1);
        let gone = || io::Error::other("the drive supervisor has ended");
        self.jobs.send(Job::Flush(answer)).map_err(|_| gone())?;
        match answered.recv_timeout(FLUSH_BOUND) {
            Ok(flushed) => flushed.map_err(io::Error::other),
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

impl<B: Bus> Drive<B> {
    /// Identity that distinguishes the drive from others.
    pub(crate) fn identity(&self) -> DriveIdentity<'_> {
        DriveIdentity {
            serial: &self.facts.serial,
            model: &self.facts.model,
            nsid: self.facts.nsid,
            volume: self.facts.volume(),
        }
    }

    /// Zeroes a range and waits for that, a piece at a time so that the keeper can do other work in
    /// between.
    ///
    /// # Errors
    /// Erasing failed; part of the range may be zero.
    pub(crate) fn erase(&self, offset: u64, len: u64) -> io::Result<()> {
        let gone = || io::Error::other("the drive supervisor has ended");
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let len = ERASED_BYTES.min(end - at);
            let (answer, answered) = sync_channel(1);
            let erase = Job::Erase {
                offset: at,
                len,
                answer,
            };
            self.jobs.send(erase).map_err(|_| gone())?;
            let erased = answered.recv().map_err(|_| gone())?;
            erased.map_err(io::Error::other)?;
            at += len;
        }
        self.sync()
    }
}

#[cfg(test)]
impl<B: Bus> Drive<B> {
    /// The current tick.
    fn ticks(&self) -> u32 {
        self.ticks.load(Relaxed)
    }

    /// Advances the clock.
    fn pass(&self, ticks: u32) {
        self.ticks.fetch_add(ticks, Relaxed);
    }
}

/// Properties of a drive that a former process of this server had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known(Facts);

impl Known {
    /// Most bytes that [`crate::Medium::known_drive`] returns.
    pub const MAX_LEN: u64 = 1024;

    /// Reads what [`crate::Medium::known_drive`] returned; `None` for bytes of another version.
    #[must_use]
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Facts::from_bytes(bytes).map(Known)
    }
}

/// Identity of a drive, independent of the path to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriveIdentity<'a> {
    /// Serial number, without surrounding spaces; empty if the drive reports none.
    pub serial: &'a str,
    /// Model number.
    pub model: &'a str,
    /// Namespace in use.
    pub nsid: u32,
    /// Of a drive over a network, whose serial number may be one of many: the NQN of its subsystem
    /// and the identifiers of the namespace.
    pub volume: Option<String>,
}

/// A channel's claim to a queue pair of the drive.
#[derive(Debug)]
struct Held(Arc<AtomicU32>);

impl Held {
    fn new(open: &Arc<AtomicU32>, most: u16) -> io::Result<Held> {
        // Relaxed: the number guards no other data.
        let held = Held(open.clone());
        if open.fetch_add(1, Relaxed) < most.into() {
            return Ok(held);
        }
        Err(io::Error::other(format!(
            "the drive has {most} queue pairs: let fewer reactors use it"
        )))
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}
