//! The completion side of a drive on a reactor of its own: the split of mediation into threads.
//!
//! A channel takes its completions from a queue in our memory; a [`Relay`] on another reactor polls
//! the drive's queues and brings what is there ([`Duty::Entries`]). A third one may tell the drive
//! what the channels have taken ([`Duty::Heads`]); otherwise the first does that as it brings. The
//! keeper gives each relay its half of every queue pair, and wants it back before it deletes the
//! queue.
//!
//! Whoever sleeps is woken by whoever has something for it: a channel by the relay that brings,
//! that one by the drive's interrupt, and the one that tells heads by the one that brings, for it
//! stays awake until what was brought is taken and told.
//!
//! What it does NOT do: look into a completion. One that fits no command is found by the channel,
//! which knows them.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use driver::bus::Bus;
use driver::{Carrier, HeadCarrier};
use memory::{Bell, EventFd};

use super::keeper::{BUSY_COMMANDS, Job, Wakes};

/// What a relay does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Duty {
    /// It brings completions from the drive's queues.
    Entries,
    /// It tells the drive which completions were taken.
    Heads,
}

/// Somebody who may sleep, and how it is woken.
#[derive(Clone, Debug)]
pub(super) struct Sleeper {
    pub(super) bell: Arc<Bell>,
    pub(super) wake: EventFd,
}

impl Sleeper {
    /// After something was brought for it.
    #[inline]
    fn rouse(&self) {
        if self.bell.ring()
            && let Err(error) = self.wake.signal()
        {
            tracing::error!("a reactor cannot be woken: {error}");
        }
    }
}

/// One half of a queue pair, as a relay has it.
pub(super) enum Load<B: Bus> {
    Entries {
        carrier: Carrier<B>,
        /// The channel, and who tells heads.
        readers: Vec<Sleeper>,
        wakes: Wakes,
    },
    Heads(HeadCarrier<B>),
}

/// What a relay is told.
pub(super) enum Order<B: Bus> {
    /// To do its duty for a channel.
    Take { channel: u32, load: Load<B> },
    /// To do so no longer.
    Drop { channel: u32 },
    /// Whether the drive's interrupt wakes it.
    Wakes { channel: u32, wakes: Wakes },
}

struct Taken<B: Bus> {
    channel: u32,
    load: Load<B>,
    /// The keeper was asked for interrupts.
    asked: bool,
    /// Completions that were brought since the last tick.
    brought: usize,
}

/// A reactor's part in the completions of a drive's channels.
pub struct Relay<B: Bus> {
    duty: Duty,
    jobs: SyncSender<Job<B>>,
    /// Jobs that the keeper had no room for.
    late: VecDeque<Job<B>>,
    orders: Receiver<Order<B>>,
    its: Sleeper,
    taken: Vec<Taken<B>>,
    /// The keeper's time, the tick that was looked at last, and whether its reactor has wanted to
    /// sleep since.
    ticks: Arc<AtomicU32>,
    seen: u32,
    rested: bool,
}

impl<B: Bus> fmt::Debug for Relay<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut relay = f.debug_struct("Relay");
        relay
            .field("duty", &self.duty)
            .field("channels", &self.taken.len())
            .finish_non_exhaustive()
    }
}

impl<B: Bus> Relay<B> {
    pub(super) fn new(
        duty: Duty,
        jobs: SyncSender<Job<B>>,
        orders: Receiver<Order<B>>,
        its: Sleeper,
        ticks: Arc<AtomicU32>,
    ) -> Self {
        Relay {
            duty,
            jobs,
            late: VecDeque::new(),
            orders,
            its,
            taken: Vec::new(),
            seen: 0,
            ticks,
            rested: true,
        }
    }

    /// A turn: does its duty for every channel. Whether there was something to do.
    #[inline]
    pub fn carry(&mut self) -> bool {
        let mut worked = false;
        let mut at = 0;
        while let Some(taken) = self.taken.get_mut(at) {
            let carried = match &mut taken.load {
                Load::Entries {
                    carrier, readers, ..
                } => carrier.carry().map(|count| {
                    if count > 0 {
                        taken.brought = taken.brought.saturating_add(count);
                        readers.iter().for_each(Sleeper::rouse);
                    }
                    count > 0
                }),
                Load::Heads(heads) => heads.carry(),
            };
            match carried {
                Ok(had_some) => {
                    worked |= had_some;
                    at += 1;
                }
                Err(error) => self.give_back(at, error.to_string()),
            }
        }
        worked
    }

    #[cold]
    fn give_back(&mut self, at: usize, why: String) {
        let Taken { channel, load, .. } = self.taken.swap_remove(at);
        // The keeper deletes the queue after this: nobody rings its doorbells then.
        drop(load);
        let duty = self.duty;
        tracing::debug!(channel, ?duty, "completions are brought no longer: {why}");
        self.late.push_back(Job::Returned { channel, duty });
        self.say();
    }

    /// What is to be done now and then: does what the keeper says.
    pub fn tend(&mut self) {
        while let Ok(order) = self.orders.try_recv() {
            match order {
                Order::Take { channel, load } => self.taken.push(Taken {
                    channel,
                    load,
                    asked: false,
                    brought: 0,
                }),
                Order::Drop { channel } => {
                    // It may have been given back before.
                    let mut taken = self.taken.iter();
                    if let Some(at) = taken.position(|taken| taken.channel == channel) {
                        self.give_back(at, "the keeper wants it back".to_owned());
                    }
                }
                Order::Wakes {
                    channel,
                    wakes: now,
                } => {
                    let its = self.taken.iter_mut().find(|t| t.channel == channel);
                    if let Some(Load::Entries { wakes, .. }) = its.map(|taken| &mut taken.load) {
                        *wakes = now;
                    }
                }
            }
        }
        let now = self.ticks.load(Ordering::Relaxed);
        if now != self.seen {
            self.seen = now;
            self.quiet_down();
        }
        if !self.late.is_empty() {
            self.say();
        }
    }

    /// A tick is over, in which no drive needed to signal what was brought: then it is not to.
    #[cold]
    fn quiet_down(&mut self) {
        let rested = std::mem::take(&mut self.rested);
        for taken in &mut self.taken {
            let brought = std::mem::take(&mut taken.brought);
            if let Load::Entries { wakes, .. } = &mut taken.load
                && *wakes == Wakes::Does
                && !rested
                && brought >= BUSY_COMMANDS as usize
            {
                *wakes = Wakes::Can;
                taken.asked = false;
                let channel = taken.channel;
                self.late.push_back(Job::Quiet { channel });
            }
        }
    }

    fn say(&mut self) {
        while let Some(job) = self.late.pop_front() {
            match self.jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => return self.late.push_front(job),
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }

    /// Readable when the keeper has told something, and after [`Self::is_due`] when there is
    /// something to do.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.its.wake.as_fd()
    }

    /// The second look of a reactor that is about to sleep: whether there is something to do that
    /// nobody will tell of.
    pub fn is_due(&mut self) -> bool {
        self.rested = true;
        // Before the look: what is told after that signals again.
        self.its.wake.drain();
        self.its.bell.announce();
        self.tend();
        let mut is_due = !self.late.is_empty();
        for Taken {
            channel,
            load,
            asked,
            brought: _,
        } in &mut self.taken
        {
            is_due |= match load {
                Load::Entries { carrier, wakes, .. } => {
                    if *wakes == Wakes::Can && !*asked {
                        *asked = true;
                        let channel = *channel;
                        self.late.push_back(Job::Wake { channel });
                    }
                    carrier.is_due() || *wakes != Wakes::Does
                }
                Load::Heads(heads) => heads.is_due(),
            };
        }
        self.say();
        is_due
    }

    /// Some drive has no interrupt for a queue: its completions show only to who looks.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        let cannot = |taken: &Taken<B>| match &taken.load {
            Load::Entries { wakes, .. } => *wakes == Wakes::Cannot,
            Load::Heads(_) => false,
        };
        self.taken.iter().any(cannot)
    }
}

impl<B: Bus> Drop for Relay<B> {
    fn drop(&mut self) {
        self.taken.clear();
        let over = Job::CloseRelay { duty: self.duty };
        for job in self.late.drain(..).chain([over]) {
            let _ = self.jobs.send(job);
        }
    }
}
