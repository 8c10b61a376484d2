//! Messages between the keeper of a drive, its channels and its relays.
//!
//! Channels and relays send [`Job`]s to the keeper. The keeper sends [`News`] to channels and
//! [`Order`]s to relays. Each side sends without waiting for the other.

use std::sync::mpsc::{Sender, SyncSender};
use std::sync::{Arc, Weak};

use driver::bus::Bus;
use driver::{Carrier, HeadCarrier};
use memory::{Bell, EventFd, Lent, ViewPins};
use port::DriveReport;

use super::queue::{Queue, Wakes};
use super::windows::Window;

/// Task of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// Brings completions from the drive's queues.
    Entries,
    /// Writes the drive's completion head doorbells.
    Heads,
}

/// A reactor that may sleep, and its wake-up.
#[derive(Clone, Debug)]
pub(super) struct Sleeper {
    pub(super) bell: Arc<Bell>,
    pub(super) wake: EventFd,
}

impl Sleeper {
    /// Wakes it after something was brought for it.
    #[inline]
    pub(super) fn rouse(&self) {
        if self.bell.ring()
            && let Err(error) = self.wake.signal()
        {
            tracing::error!("a reactor cannot be woken: {error}");
        }
    }
}

/// Requests to the keeper.
pub(super) enum Job<B: Bus> {
    /// Create a queue pair for a new channel with up to `depth` commands in flight.
    Open {
        channel: u32,
        depth: u16,
        news: Sender<News<B>>,
        wake: EventFd,
    },
    /// Replace a failed queue pair.
    Replace {
        channel: u32,
        queue: Box<Queue<B>>,
        why: String,
    },
    /// Close the channel. Host memory lent to commands in flight is kept until the queue is gone.
    Close {
        channel: u32,
        queue: Option<Box<Queue<B>>>,
        pins: ViewPins,
    },
    /// Ask the drive to abort commands, so that its other commands need not end. The only answer is
    /// their completions.
    Abort { qid: u16, cids: Vec<u16> },
    /// Enable interrupts of its queue pair: the reactor wants to sleep, or the relay that polls for
    /// it.
    Wake { channel: u32 },
    /// Mask interrupts of its queue pair until the next request: the poller is busy and does not
    /// sleep.
    Quiet { channel: u32 },
    /// Register a relay: another reactor performs one duty for the completions of channels opened
    /// from now on.
    OpenRelay {
        duty: Duty,
        orders: Sender<Order<B>>,
        its: Sleeper,
    },
    /// The relay has ended its duty for a channel.
    Returned { channel: u32, duty: Duty },
    /// The relay has ended.
    CloseRelay { duty: Duty },
    /// Map this memory for the drive.
    Share(Vec<Weak<Lent>>),
    /// Zero these whole blocks; the answer is whether that succeeded.
    Erase {
        offset: u64,
        len: u64,
        answer: SyncSender<Result<(), String>>,
    },
    /// Flush everything to the media; the answer is the result.
    Flush(SyncSender<Result<(), String>>),
}

/// Messages to a channel.
pub(super) enum News<B: Bus> {
    /// Its new queue pair.
    Queue(Box<Queue<B>>),
    /// Its queue pair no longer works: the channel must give it back.
    Ended,
    /// All commands of the returned queue pair are over.
    Over,
    /// A host has unmapped memory in which the drive may have commands: the channel must give its
    /// queue pair back.
    TakenBack,
    /// Whether completions of its queue pair wake it now.
    Wakes(Wakes),
    /// Current drive addresses of hosts' memory.
    Windows(Arc<[Window]>),
    /// Latest health report of the drive.
    Report(Arc<DriveReport>),
}

/// A relay's half of a queue pair.
pub(super) enum Load<B: Bus> {
    Entries {
        carrier: Carrier<B>,
        /// The channel, and the relay that writes head doorbells.
        readers: Vec<Sleeper>,
        wakes: Wakes,
    },
    Heads(HeadCarrier<B>),
}

/// Orders to a relay.
pub(super) enum Order<B: Bus> {
    /// Perform its duty for a channel.
    Take { channel: u32, load: Load<B> },
    /// End its duty for a channel.
    Drop { channel: u32 },
    /// Whether the drive's interrupt wakes it.
    Wakes { channel: u32, wakes: Wakes },
}
