//! Our own controller in process, with a medium in a vector that does as the
//! test says.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use controller::Controller;
use controller::config::{ControllerConfig, DoorbellMode, Interface};
use driver::{Device, DriverError, Options};
use loopback::InProcess;
use memory::{DmaView, DoorbellPages, Segment};
use port::namespace::Namespace;
use port::ticket::Ticket;
use port::{Added, Cause, Channel, ChannelId, Channels, Done, MediumTraits, Outcome, Request};
use subsystem::{Subsystem, SubsystemConfig};

/// Bytes of the medium.
pub(crate) const MEDIUM_LEN: u64 = 16 << 20;
/// Entries of a queue, at most.
pub(crate) const QUEUE_ENTRIES: u16 = 256;
/// Bytes of a command, at most.
pub(crate) const TRANSFER_LEN: u32 = 4 << 20;

/// How the medium answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Manner {
    #[default]
    AtOnce,
    /// At the next reap, the latest first.
    LaterInReverse,
    /// Never, until the manner changes.
    Never,
}

/// A medium in a vector.
pub(crate) struct Ram {
    pub(crate) bytes: Vec<u8>,
    pub(crate) manner: Manner,
    /// Cause with which every request ends instead of being done.
    pub(crate) fault: Option<Cause>,
    /// Leaves the bytes of reads where they are: the byte here is flipped.
    pub(crate) flip: Option<usize>,
    /// Writes are said to be done and are not.
    pub(crate) lose_writes: bool,
    /// Reads are said to be done and are not.
    pub(crate) skip_reads: bool,
    /// Requests done, by kind: reads, writes, flushes, others.
    pub(crate) count: [u64; 4],
    /// Not at the next reap, now and then, but so many later; 0: always at the next.
    pub(crate) lulls: u64,
    held: VecDeque<(Ticket, Outcome)>,
    reaps: u64,
}

impl Ram {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; usize::try_from(MEDIUM_LEN).unwrap()],
            manner: Manner::AtOnce,
            fault: None,
            flip: None,
            lose_writes: false,
            skip_reads: false,
            count: [0; 4],
            lulls: 0,
            held: VecDeque::new(),
            reaps: 0,
        }
    }

    fn range(&mut self, offset: u64, len: u64) -> &mut [u8] {
        let at = usize::try_from(offset).unwrap();
        &mut self.bytes[at..at + usize::try_from(len).unwrap()]
    }

    fn execute(&mut self, request: &Request<'_>, segments: &[Segment<'_>]) -> Outcome {
        if let Some(cause) = self.fault {
            return Outcome::of(cause);
        }
        match *request {
            Request::Read { offset, len } => {
                self.count[0] += 1;
                if self.skip_reads {
                    return Outcome::OK;
                }
                let flip = self.flip;
                let mut rest = &*self.range(offset, len.into());
                for segment in segments {
                    let (now, later) = rest.split_at(usize::try_from(segment.len()).unwrap());
                    let mut now = now.to_vec();
                    if let Some(at) = flip {
                        now[at] ^= 0x40;
                    }
                    segment.write_from(0, &now);
                    rest = later;
                }
            }
            Request::Write { offset, len, .. } => {
                self.count[1] += 1;
                if self.lose_writes {
                    return Outcome::OK;
                }
                let mut rest = self.range(offset, len.into());
                for segment in segments {
                    let (now, later) = rest.split_at_mut(usize::try_from(segment.len()).unwrap());
                    segment.read_into(0, now);
                    rest = later;
                }
            }
            Request::Compare { offset, len } => {
                self.count[3] += 1;
                let mut found = Vec::new();
                for segment in segments {
                    let mut bytes = vec![0; usize::try_from(segment.len()).unwrap()];
                    segment.read_into(0, &mut bytes);
                    found.extend(bytes);
                }
                if found != self.range(offset, len.into()) {
                    return Outcome::of(Cause::CompareMismatch);
                }
            }
            // Nothing here asks for these.
            Request::CompareAndWrite { .. } | Request::Command { .. } | Request::Renew { .. } => {
                return Outcome::of(Cause::Unsupported);
            }
            Request::WriteZeroes { offset, len, .. } => {
                self.count[3] += 1;
                self.range(offset, len).fill(0);
            }
            Request::Deallocate { ranges } => {
                self.count[3] += 1;
                for range in ranges {
                    self.range(range.offset, range.len).fill(0);
                }
            }
            Request::Flush => self.count[2] += 1,
        }
        Outcome::OK
    }
}

impl Channel for Ram {
    fn add(
        &mut self,
        ticket: Ticket,
        request: &Request<'_>,
        segments: &[Segment<'_>],
        _view: &Arc<DmaView>,
    ) -> Added {
        let outcome = self.execute(request, segments);
        if self.manner == Manner::AtOnce {
            return Added::Done(ticket, outcome);
        }
        self.held.push_back((ticket, outcome));
        Added::Pending
    }

    fn submit(&mut self) {}

    fn reap(&mut self, done: &mut Vec<Done>) {
        self.reaps += 1;
        let lull = self.lulls > 0 && self.reaps % (2 * self.lulls) < self.lulls;
        if self.manner == Manner::Never || lull {
            return;
        }
        while let Some((ticket, outcome)) = self.held.pop_back() {
            done.push(Done { ticket, outcome });
        }
    }

    fn in_flight(&self) -> u32 {
        u32::try_from(self.held.len()).unwrap()
    }
}

impl Drop for Ram {
    fn drop(&mut self) {
        for (ticket, _) in self.held.drain(..) {
            ticket.retire();
        }
    }
}

pub(crate) type RamDevice = Device<InProcess<Ram>>;

/// Namespace 1 with blocks of 512 bytes in the first half of the medium, and 2
/// with blocks of 4096 in the second.
fn namespaces() -> Vec<Namespace> {
    let traits = MediumTraits {
        deallocate: true,
        deallocated_reads_zero: true,
        volatile_cache: true,
        optimal_bytes: 4096,
        read_only: false,
        notes: false,
        allocation: false,
        erases: false,
    };
    let half = MEDIUM_LEN / 2;
    let namespace = |nsid: u8, lba_shift: u8| Namespace {
        nsid: nsid.into(),
        channel: ChannelId(0),
        start: u64::from(nsid - 1) * half,
        blocks: half >> lba_shift,
        lba_shift,
        nguid: [nsid; 16],
        eui64: [nsid; 8],
        traits,
        restrictions: None,
        set: None,
    };
    vec![namespace(1, 9), namespace(2, 12)]
}

pub(crate) fn config(doorbells: DoorbellMode) -> ControllerConfig {
    ControllerConfig {
        name: "test".into(),
        vendor_id: 0x4e56,
        device_id: 1,
        serial: "S0001".into(),
        model_number: "a model".into(),
        firmware_revision: "1.0".into(),
        subnqn: "nqn.2024-01.org.example:test".into(),
        queues: 4,
        queue_depth: QUEUE_ENTRIES,
        max_transfer: TRANSFER_LEN,
        doorbells,
        msix: true,
        intx: false,
        interface: Interface::Pcie,
    }
}

/// A device that is not enabled yet.
pub(crate) fn open(doorbells: DoorbellMode, options: &Options) -> Result<RamDevice, DriverError> {
    let config = config(doorbells);
    let pages = Arc::new(DoorbellPages::new(config.doorbell_slots()).unwrap());
    let mut channels = Channels::new();
    assert_eq!(channels.insert(Ram::new()).ok(), Some(ChannelId(0)));
    let subsystem = SubsystemConfig::with_namespaces(32, namespaces());
    let mut subsystem = Subsystem::new(subsystem).unwrap();
    let controller = Controller::new(config, pages.clone(), &mut subsystem).unwrap();
    let mapped = doorbells == DoorbellMode::Mapped;
    loopback::device(controller, subsystem, pages, mapped, channels, options)
}

pub(crate) fn options() -> Options {
    Options {
        memory_len: 64 << 20,
        transfer_len_max: TRANSFER_LEN,
        // In the bus's time: so many turns of a microsecond.
        timeout: Duration::from_millis(100),
        ..Options::default()
    }
}

/// Does something to the medium.
pub(crate) fn with_ram<T>(device: &RamDevice, act: impl FnOnce(&mut Ram) -> T) -> T {
    device
        .bus()
        .with_channels(|channels| act(channels.get_mut(ChannelId(0)).unwrap()))
}
