//! A namespace of an NVMe drive, which its tenants share: mediated pass-through.
//!
//! A [`Drive`] is any controller that the crate `driver` reaches: over vfio-user anyone's server,
//! in process one of our own. Its bytes are the drive's blocks; each channel owns a queue pair of
//! it, and a request becomes commands there with other identifiers, blocks and pointers. Data goes
//! between the drive and the host's memory directly, wherever the drive can be shown that memory.
//!
//! Invariants:
//! - Nothing reaches the drive that was not made in [`command`]; no bytes of a host are interpreted
//!   by the drive but its data.
//! - An address that is given to the drive lies in memory that the host's own map had when the
//!   command came, and that map is kept until the drive is done with the command.
//! - A drive that hangs, lies or dies costs its tenants interrupted commands, and never a reactor's
//!   time.
//!
//! What it does NOT do: keep partitions apart (the controller has checked each request against its
//! namespace), schedule, use SGLs, metadata or a drive's own Compare and Copy.
//!
//! [`keeper`] has the device and a thread, [`warden`] takes memory away meanwhile, [`channel`] is
//! what a reactor has, [`relay`] another one that polls for it, [`windows`] says where the drive
//! finds hosts' memory, [`data`] where a command's is.

mod channel;
mod clock;
mod command;
mod counts;
mod data;
mod erase;
mod facts;
mod keeper;
mod op;
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
use driver::bus::place::{AnyBus, Place};
use driver::{Device, DriverError, Options};
use memory::{Claimant, EventFd};
use port::MediumTraits;

pub use self::channel::DriveChannel;
use self::channel::Parts;
use self::counts::Counting;
pub use self::counts::DriveCounts;
use self::facts::Facts;
use self::keeper::Job;
pub use self::keeper::{Keeper, Reopen};
use self::relay::Sleeper;
pub use self::relay::{Duty, Relay};
pub use self::report::ShownPage;
use crate::order::Order;
use crate::size::Bytes;
use crate::trouble::Troubles;

/// Bound on an admin command: longer than the 4 s after which a controller of ours gives up what
/// hangs in a queue that is deleted.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bound on a server's answers: one that takes longer to read a register stands still.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
/// Bytes of memory that is shared with a drive for queues, lists and buffers: enough for eight
/// channels. A physical drive has all of it locked.
pub const MEMORY_LEN: usize = 64 << 20;
/// Bytes that one command of ours moves at most.
const TRANSFER_LEN: u32 = 1 << 20;
/// Commands of one channel at the drive, at most.
const MAX_DEPTH: u16 = 1023;
/// Jobs that the keeper has not taken yet.
const JOBS: usize = 256;
/// Bytes that are erased in one go.
const ERASED_BYTES: u64 = 16 << 20;
/// How long a clean stop waits for the drive's last flush.
const FLUSH_BOUND: Duration = Duration::from_secs(30);

/// A namespace of a drive, open. Its keeper ends with it and its channels.
pub struct Drive<B: Bus> {
    name: String,
    facts: Arc<Facts>,
    jobs: SyncSender<Job<B>>,
    ticks: Arc<AtomicU32>,
    /// Channels so far, and those that there are.
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

/// How a drive is to be opened.
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
    /// Opens a namespace of the drive at a place; without a number its first one. Hosts are shown
    /// these log pages of it.
    ///
    /// # Errors
    /// The drive cannot be reached, or it is none for this.
    pub(crate) fn at(
        place: &Place,
        nsid: Option<u32>,
        shown: &[ShownPage],
    ) -> Result<Self, DriverError> {
        let place = place.clone();
        let name = place.to_string();
        let mut reopen: Reopen<AnyBus> = Box::new(move || {
            let bus = place.open(ANSWER_TIMEOUT)?;
            let options = Options {
                interrupts: bus.vectors() > 0,
                ..options()
            };
            let mut device = Device::open(bus, &options)?;
            device.enable()?;
            Ok(device)
        });
        let device = reopen()?;
        let (drive, keeper) = Drive::of(name, device, nsid, reopen)?;
        let mut keeper = keeper.showing(shown.to_vec());
        let start = |name: &str, run: Box<dyn FnOnce() + Send>| {
            let thread = std::thread::Builder::new().name(name.to_owned());
            thread.spawn(run).map_err(|source| DriverError::System {
                what: "start a thread for a drive",
                source,
            })
        };
        if let Some(warden) = keeper.take_warden() {
            start("drive-warden", Box::new(move || warden.run()))?;
        }
        let clock = keeper.clock();
        start("drive-clock", Box::new(move || clock.run()))?;
        start("drive", Box::new(move || keeper.run()))?;
        Ok(drive)
    }
}

impl<B: Bus> Drive<B> {
    /// A drive that is enabled, and its keeper, which its owner gives its time: a thread
    /// ([`Keeper::run`]), or turns ([`Keeper::look`]) where the drive has none either.
    ///
    /// # Errors
    /// It has no such namespace, or one of a format that is not for this; those of the commands.
    pub fn of(
        name: String,
        device: Device<B>,
        nsid: Option<u32>,
        reopen: Reopen<B>,
    ) -> Result<(Self, Keeper<B>), DriverError> {
        let mut device = device;
        let facts = Arc::new(Facts::learn(&mut device, nsid)?);
        let (jobs, taken) = sync_channel(JOBS);
        let ticks = Arc::new(AtomicU32::new(0));
        let counting = Arc::<Counting>::default();
        counting.is_there.store(true, Relaxed);
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
        Ok((drive, keeper))
    }

    /// Bytes.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.facts.size()
    }

    /// What its channels have met.
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

    /// The largest logical block, 512 to 4096 bytes, that it promises to write wholly or not at all
    /// when the power fails.
    #[must_use]
    pub fn max_lba_bytes(&self) -> u32 {
        self.facts.whole_bytes
    }

    /// One line for the log.
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

    /// A handle for one reactor. It has a queue pair as soon as the keeper has made one; what is
    /// added before waits.
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
            .map_err(|_| io::Error::other("the drive's keeper has ended"))?;
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

    /// A handle for a reactor that does a part of what there is to do for the completions of
    /// channels that are opened after it. There is one for each duty; that of heads is of no use
    /// without the other.
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
            .map_err(|_| io::Error::other("the drive's keeper has ended"))?;
        Ok(Relay::new(
            duty,
            self.jobs.clone(),
            taken,
            its,
            self.ticks.clone(),
        ))
    }

    /// Has everything that was completed put onto the media, and waits for that.
    ///
    /// # Errors
    /// The drive did not do so.
    pub(crate) fn sync(&self) -> io::Result<()> {
        let (answer, answered) = sync_channel(1);
        let gone = || io::Error::other("the drive's keeper has ended");
        self.jobs.send(Job::Flush(answer)).map_err(|_| gone())?;
        match answered.recv_timeout(FLUSH_BOUND) {
            Ok(flushed) => flushed.map_err(io::Error::other),
            Err(RecvTimeoutError::Timeout) => Err(io::ErrorKind::TimedOut.into()),
            Err(RecvTimeoutError::Disconnected) => Err(gone()),
        }
    }
}

impl<B: Bus> Drive<B> {
    /// What tells it from other drives.
    pub(crate) fn identity(&self) -> DriveIdentity<'_> {
        DriveIdentity {
            serial: &self.facts.serial,
            model: &self.facts.model,
            nsid: self.facts.nsid,
        }
    }

    /// Has bytes read as zeros, and waits for that: a piece at a time, so that the keeper has time
    /// for others.
    ///
    /// # Errors
    /// The drive did not do so; some of them may be zeros.
    pub(crate) fn erase(&self, offset: u64, len: u64) -> io::Result<()> {
        let gone = || io::Error::other("the drive's keeper has ended");
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
    /// Its time.
    fn ticks(&self) -> u32 {
        self.ticks.load(Relaxed)
    }

    /// Has time pass, as its clock does.
    fn pass(&self, ticks: u32) {
        self.ticks.fetch_add(ticks, Relaxed);
    }
}

/// What tells a drive from others, wherever it is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DriveIdentity<'a> {
    /// Serial number, without the spaces around it; empty where the drive says none.
    pub serial: &'a str,
    /// Model number.
    pub model: &'a str,
    /// The namespace of the drive that is used.
    pub nsid: u32,
}

/// A channel's right to a queue pair of the drive.
#[derive(Debug)]
struct Held(Arc<AtomicU32>);

impl Held {
    fn new(open: &Arc<AtomicU32>, most: u16) -> io::Result<Held> {
        // Relaxed: the number guards nothing else.
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
