//! A channel's exchange with the keeper: messages, requests, and the handling of a drive that does
//! not answer.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;

use driver::bus::Bus;
use memory::{DmaView, Lent, Segment};
use port::DriveReport;

use super::super::counts::Counting;
use super::super::message::{Job, News};
use super::super::op::{HANG_TICKS, INTERRUPTED};
use super::super::queue::{BOUNCES, BUSY_COMMANDS, Wakes};
use super::super::windows::{LEAST_BYTES, Table};
use super::{ABORT_TICKS, ABORTS, DriveChannel};

impl<B: Bus> DriveChannel<B> {
    /// Periodic work: takes the keeper's messages, requests what commands lacked, and looks for
    /// commands that time out.
    #[inline]
    pub fn tend(&mut self) {
        while let Ok(news) = self.news.try_recv() {
            self.hear(news);
        }
        let now = self.ticks.load(Ordering::Relaxed);
        if now != self.seen {
            self.seen = now;
            self.look_for_hung();
            self.quiet_down();
        }
        if self.ask.is_some() || !self.late.is_empty() {
            self.say();
        }
        if self.answered > 0 || self.interrupted > 0 {
            self.tell_counts();
        }
        self.order.tend();
    }

    fn tell_counts(&mut self) {
        let counting = &self.counting;
        Counting::add(&counting.commands, std::mem::take(&mut self.answered));
        Counting::add(&counting.interrupted, std::mem::take(&mut self.interrupted));
    }

    /// The latest health report of the drive that the keeper has sent.
    #[must_use]
    pub fn report(&self) -> &Arc<DriveReport> {
        &self.report
    }

    /// Readable when the keeper has sent a message, and, if the drive interrupts, when the drive
    /// has completed a command.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The second check of a reactor that is about to sleep: whether a reap has work that no signal
    /// announces. Anything posted after this check signals.
    pub fn is_due(&mut self) -> bool {
        self.rested = true;
        // Drained before the check, so that a later message signals again.
        self.wake.drain();
        self.tend();
        if self.in_flight == 0 {
            self.order.rest();
            self.tell_taken();
            return false;
        }
        if !self.ended.is_empty() || self.order.is_waiting() {
            return true;
        }
        // Without a queue, the channel waits for the keeper's messages.
        let Some(queue) = &mut self.queue else {
            return false;
        };
        if let Some(bell) = &queue.bell {
            bell.announce();
        }
        let can_place = queue.pair.next_cid().is_some()
            && (!self.ready.is_empty()
                || !self.ready_bounced.is_empty() && !self.bounces.is_empty());
        // The drive interrupts only for commands that it was notified of.
        match queue.pair.try_ring() {
            Ok(is_told) => self.untold = !is_told,
            Err(error) => {
                self.give_up(&error.to_string());
                return true;
            }
        }
        if can_place || self.untold || queue.pair.is_posted() {
            return true;
        }
        if queue.wakes == Wakes::Can && !self.sleeps {
            self.sleeps = true;
            let channel = self.number;
            self.late.push_back(Job::Wake { channel });
            self.say();
        }
        self.queue
            .as_ref()
            .is_none_or(|queue| queue.wakes != Wakes::Does)
    }

    /// At the end of a tick: a reactor with much work in it that never wanted to sleep needs no
    /// interrupts.
    fn quiet_down(&mut self) {
        let rested = std::mem::take(&mut self.rested);
        let Some(queue) = &mut self.queue else { return };
        // The count of a recreated queue pair starts at 0.
        let sent = queue.pair.submitted();
        let before = std::mem::replace(&mut self.sent, sent);
        let is_busy = !rested && sent.saturating_sub(before) >= u64::from(BUSY_COMMANDS);
        // If a relay brings the completions, the interrupt is the relay's.
        if is_busy && queue.wakes == Wakes::Does && queue.bell.is_none() {
            queue.wakes = Wakes::Can;
            self.sleeps = false;
            let channel = self.number;
            self.late.push_back(Job::Quiet { channel });
        }
    }

    /// Rings the completion head doorbell; the reactor stays awake until the drive has been
    /// notified.
    fn tell_taken(&mut self) {
        let queue = self.queue.as_mut().filter(|queue| queue.bell.is_some());
        // An error shows in the next poll, too.
        if let Some(Ok(is_told)) = queue.map(|queue| queue.pair.try_ring()) {
            self.untold = !is_told;
        }
    }

    /// Whether the drive has no interrupt for the queue, so that its completions show only to
    /// polling.
    #[must_use]
    pub fn is_polled(&self) -> bool {
        let queue = self.queue.as_ref();
        self.in_flight > 0 && queue.is_some_and(|queue| queue.wakes == Wakes::Cannot)
    }

    #[cold]
    fn hear(&mut self, news: News<B>) {
        match news {
            News::Queue(queue) => {
                self.bounces.clear();
                self.bounces.extend((0..BOUNCES).rev());
                self.queue = Some(queue);
            }
            News::Wakes(wakes) => {
                // The message may concern a queue pair that was given back.
                if let Some(queue) = &mut self.queue {
                    queue.wakes = wakes;
                }
            }
            News::Windows(windows) => {
                self.windows = Table::new(windows);
            }
            News::Report(report) => self.report = report,
            News::Ended => {
                // After the drive was reopened, its windows are requested again.
                self.asked.clear();
                self.give_up("the drive was reset, or is lost");
            }
            News::Over => self.end_outstanding(),
            News::TakenBack => self.give_up_taken_back(),
        }
    }

    #[cold]
    fn say(&mut self) {
        if let Some(view) = self.ask.take() {
            self.asked.retain(|asked| asked.strong_count() > 0);
            self.asked.push(Arc::downgrade(&view));
            let large = |lent: &&Arc<Lent>| lent.as_raw().1 >= LEAST_BYTES;
            let regions = view.lent().filter(large).map(Arc::downgrade).collect();
            self.late.push_back(Job::Share(regions));
        }
        while let Some(job) = self.late.pop_front() {
            match self.jobs.try_send(job) {
                Ok(()) => {}
                Err(TrySendError::Full(job)) => return self.late.push_front(job),
                // The keeper normally ends after its channels; if it did not, commands end by their
                // timeout.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }

    /// Gives the queue pair back to the keeper, with the commands that the drive still has.
    pub(super) fn give_up(&mut self, why: &str) {
        if let Some(queue) = self.queue.take() {
            self.late.push_back(Job::Replace {
                channel: self.number,
                queue,
                why: why.to_owned(),
            });
            self.say();
        }
    }

    /// Gives the queue pair back if the drive has a command in memory that its host has unmapped.
    fn give_up_taken_back(&mut self) {
        let pins = &self.pins;
        let is_so = self.ops.iter().any(|op| {
            let at_drive = op.ticket.is_some() && op.outstanding > 0;
            let view = op.pin.filter(|_| at_drive).map(|pin| pins.view(pin));
            view.is_some_and(|view| view.lent().any(|lent| lent.reach().is_taken_back()))
        });
        if is_so {
            self.give_up("a host has taken memory back 2 s ago where the drive has commands");
        }
    }

    /// Ends all commands that were at the drive, which no longer executes them.
    fn end_outstanding(&mut self) {
        for slot in 0..self.ops.len() as u16 {
            let op = &mut self.ops[usize::from(slot)];
            if op.ticket.is_some() && op.outstanding > 0 {
                op.outstanding = 0;
                op.bounce = None;
                op.outcome = INTERRUPTED;
                self.interrupted += 1;
                if !op.is_queued {
                    self.ended.push(slot);
                }
            }
        }
        self.drop_failed();
    }

    /// Looks for commands that the drive has had for too long, and commands that have waited for
    /// the drive for as long.
    #[cold]
    fn look_for_hung(&mut self) {
        let (now, has_queue) = (self.seen, self.queue.is_some());
        let is_posted = self.queue.as_ref().is_some_and(|q| q.pair.is_posted());
        let mut hangs = false;
        let mut to_abort = Vec::new();
        for (slot, op) in (0..)
            .zip(self.ops.iter_mut())
            .filter(|(_, op)| op.ticket.is_some())
        {
            let ticks = now.wrapping_sub(op.since);
            let is_near = ticks + ABORT_TICKS >= op.kind.hang_ticks();
            if is_near && op.outstanding > 0 && !op.is_aborted {
                op.is_aborted = true;
                to_abort.push(slot);
            }
            if op.outstanding > 0 {
                hangs |= ticks >= op.kind.hang_ticks();
            } else if op.is_queued && !has_queue && ticks >= HANG_TICKS {
                op.outcome = INTERRUPTED;
                self.interrupted += 1;
            }
        }
        // A reactor that could not check for seconds first takes what the drive has posted
        // meanwhile. Only once, because a drive may complete other commands without end.
        let is_spared = is_posted && (hangs || !to_abort.is_empty()) && !self.spared;
        self.spared = is_spared;
        if !has_queue {
            self.drop_failed();
        } else if is_spared {
            to_abort
                .into_iter()
                .for_each(|slot| self.ops[usize::from(slot)].is_aborted = false);
        } else if hangs {
            self.give_up("a command had no answer for too long");
        } else if !to_abort.is_empty() {
            self.abort(&to_abort);
        }
    }

    /// Asks the drive to abort its commands of these slots.
    fn abort(&mut self, slots: &[u16]) {
        let Some(queue) = &self.queue else { return };
        let of_them = |cid: &u16| {
            let slot = self.slots[usize::from(*cid)];
            queue.pair.is_in_flight(*cid) && slots.contains(&slot)
        };
        let cids = (0..queue.pair.depth()).filter(of_them).take(ABORTS);
        let job = Job::Abort {
            qid: queue.pair.qid(),
            cids: cids.collect(),
        };
        self.late.push_back(job);
        self.say();
    }

    /// Removes slots from the rows that have failed and have no command at the drive.
    fn drop_failed(&mut self) {
        let (ops, ended) = (&mut self.ops, &mut self.ended);
        for row in [&mut self.ready, &mut self.ready_bounced] {
            row.retain(|slot| {
                let op = &mut ops[usize::from(*slot)];
                let is_over = op.has_failed() && op.outstanding == 0;
                if is_over {
                    op.is_queued = false;
                    ended.push(*slot);
                }
                !is_over
            });
        }
    }

    /// Requests a window for data that goes through a bounce buffer, which may be only because the
    /// drive does not reach its memory yet.
    #[cold]
    pub(super) fn want(&mut self, segments: &[Segment<'_>], view: &Arc<DmaView>) {
        // Over a network there are no windows.
        let queue = self.queue.as_ref();
        if queue.is_some_and(|queue| queue.pair.bus().is_over_fabrics()) {
            return;
        }
        let unknown = |segment: &Segment<'_>| {
            !segment.is_sink() && self.windows.find(segment.lent_id()).is_none()
        };
        if !segments.iter().any(unknown) {
            return;
        }
        let view_at = Arc::as_ptr(view);
        let is_asked = self.asked.iter().any(|asked| asked.as_ptr() == view_at);
        if !is_asked && self.ask.is_none() {
            self.ask = Some(Arc::clone(view));
        }
    }
}

impl<B: Bus> Drop for DriveChannel<B> {
    fn drop(&mut self) {
        self.tell_counts();
        // The memory that the drive may still write to is the keeper's from here on. If the keeper
        // is busy, this waits for its thread, which answers within seconds whatever the drive does.
        let close = Job::Close {
            channel: self.number,
            queue: self.queue.take(),
            pins: std::mem::take(&mut self.pins),
        };
        for job in self.late.drain(..).chain([close]) {
            let _ = self.jobs.send(job);
        }
    }
}

#[cfg(test)]
impl<B: Bus> DriveChannel<B> {
    /// Takes all free bounce buffers.
    pub(in crate::drive) fn take_bounces(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.bounces)
    }

    /// Returns the bounce buffers.
    pub(in crate::drive) fn put_bounces(&mut self, bounces: Vec<u16>) {
        self.bounces = bounces;
    }

    /// Identifier of the current queue pair.
    pub(in crate::drive) fn queue_id(&self) -> Option<u16> {
        self.queue.as_ref().map(|queue| queue.pair.qid())
    }

    /// Treats the drive as one with a volatile cache.
    pub(in crate::drive) fn be_cached(&mut self) {
        let mut facts = (*self.facts).clone();
        facts.volatile_cache = true;
        self.facts = Arc::new(facts);
    }

    /// Treats the drive as one without Write Zeroes.
    pub(in crate::drive) fn forget_zeroes(&mut self) {
        let mut facts = (*self.facts).clone();
        facts.zeroes_len = 0;
        self.facts = Arc::new(facts);
    }
}
