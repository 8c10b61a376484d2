//! The completion side of a drive on separate reactors: mediation split into threads.
//!
//! A channel takes its completions from a queue in our memory. A [`Relay`] on another reactor polls
//! the drive's queues and copies completions there ([`Duty::Entries`]). A third reactor may write
//! the drive's completion head doorbells ([`Duty::Heads`]); otherwise the first relay does that.
//! The keeper gives each relay its half of every queue pair, and requests it back before it deletes
//! the queue.
//!
//! Wake-ups: the Entries relay wakes the channel and the Heads relay; the drive's interrupt wakes
//! the Entries relay. The Heads relay stays awake until everything that was brought is taken and
//! the doorbells are written.
//!
//! Not included: any check of completions. A completion without a command is detected by the
//! channel, which knows its commands.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError};

use driver::bus::Bus;

use super::message::{Duty, Job, Load, Order, Sleeper};
use super::queue::{BUSY_COMMANDS, Wakes};

struct Taken<B: Bus> {
    channel: u32,
    load: Load<B>,
    /// Whether interrupts were requested.
    asked: bool,
    /// Completions brought since the last tick.
    brought: usize,
}

/// A reactor's part in the completions of a drive's channels.
pub struct Relay<B: Bus> {
    duty: Duty,
    jobs: SyncSender<Job<B>>,
    /// Jobs for which the keeper had no room.
    late: VecDeque<Job<B>>,
    orders: Receiver<Order<B>>,
    its: Sleeper,
    taken: Vec<Taken<B>>,
    /// The keeper's clock, the tick that was handled last, and whether the reactor has wanted to
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

    /// One turn: performs the duty for every channel. Returns whether there was work.
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
        // The keeper deletes the queue after this, so its doorbells must not be used any more.
        drop(load);
        let duty = self.duty;
        tracing::debug!(channel, ?duty, "completions are no longer forwarded: {why}");
        self.late.push_back(Job::Returned { channel, duty });
        self.say();
    }

    /// Periodic work: executes the keeper's orders.
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
                        self.give_back(at, "the drive supervisor wants it back".to_owned());
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

    /// At the end of a tick in which the reactor never wanted to sleep: masks the interrupts of
    /// busy queue pairs.
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

    /// Readable when the keeper has sent an order, and after [`Self::is_due`] when there is work.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.its.wake.as_fd()
    }

    /// The second check of a reactor that is about to sleep: whether there is work that no signal
    /// announces.
    pub fn is_due(&mut self) -> bool {
        self.rested = true;
        // Drained before the check, so that a later order signals again.
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

    /// Whether some drive has no interrupt for a queue, so that its completions show only to
    /// polling.
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
