//! A channel and its keeper: what it is told, what it asks for, and what it does about a drive that
//! does not answer.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;

use driver::bus::Bus;
use memory::{DmaView, Lent, Segment};
use port::DriveReport;

use super::super::counts::Counting;
use super::super::keeper::{BOUNCES, BUSY_COMMANDS, Job, News, Wakes};
use super::super::op::{HANG_TICKS, INTERRUPTED};
use super::super::windows::{LEAST_BYTES, Table};
use super::{ABORT_TICKS, ABORTS, DriveChannel};

impl<B: Bus> DriveChannel<B> {
    /// What is to be done now and then: hears the keeper, asks it for what commands were without,
    /// and looks for those that hang.
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

    /// What the drive says of itself, as far as the keeper has told.
    #[must_use]
    pub fn report(&self) -> &Arc<DriveReport> {
        &self.report
    }

    /// Readable when the keeper has told something, and where the drive interrupts, when it has
    /// completed something.
    pub fn wait_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// The second look of a reactor that is about to sleep: whether there is something to do for a
    /// reap that nobody will tell of. What is posted behind the look signals.
    pub fn is_due(&mut self) -> bool {
        self.rested = true;
        // Before the look: what is told after that signals again.
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
        // Without a queue the keeper's news are waited for.
        let Some(queue) = &mut self.queue else {
            return false;
        };
        if let Some(bell) = &queue.bell {
            bell.announce();
        }
        let can_place = queue.pair.next_cid().is_some()
            && (!self.ready.is_empty()
                || !self.ready_bounced.is_empty() && !self.bounces.is_empty());
        // It interrupts for what it was told of.
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

    /// A tick is over: a reactor that had much to do in it, and never wanted to sleep, needs no
    /// interrupts.
    fn quiet_down(&mut self) {
        let rested = std::mem::take(&mut self.rested);
        let Some(queue) = &mut self.queue else { return };
        // One that was made anew begins at 0.
        let sent = queue.pair.submitted();
        let before = std::mem::replace(&mut self.sent, sent);
        let is_busy = !rested && sent.saturating_sub(before) >= u64::from(BUSY_COMMANDS);
        // Where others bring completions, they have the interrupt.
        if is_busy && queue.wakes == Wakes::Does && queue.bell.is_none() {
            queue.wakes = Wakes::Can;
            self.sleeps = false;
            let channel = self.number;
            self.late.push_back(Job::Quiet { channel });
        }
    }

    /// Who tells the drive what was taken stays awake until it knows.
    fn tell_taken(&mut self) {
        let queue = self.queue.as_mut().filter(|queue| queue.bell.is_some());
        // An error shows in the next poll, too.
        if let Some(Ok(is_told)) = queue.map(|queue| queue.pair.try_ring()) {
            self.untold = !is_told;
        }
    }

    /// Completions of the drive show only to who looks: it has no interrupt for them.
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
                // It may be of a queue pair that was given back.
                if let Some(queue) = &mut self.queue {
                    queue.wakes = wakes;
                }
            }
            News::Windows(windows) => {
                self.windows = Table::new(windows);
            }
            News::Report(report) => self.report = report,
            News::Ended => {
                // What a drive that comes back does not know yet is asked for again.
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
                // The keeper ends after its channels; where it did not, commands end by their time.
                Err(TrySendError::Disconnected(_)) => {}
            }
        }
    }

    /// Gives the queue pair back to the keeper, with what the drive has of it.
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

    /// Gives the queue pair back where the drive has a command in memory that its host has taken
    /// back.
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

    /// The drive does nothing more of what it was asked for before: that ends.
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

    /// Commands that the drive has had for too long, and those that have waited for it for as long.
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
        // Who did not get to look for seconds finds out what the drive has done meanwhile first.
        // Once: a drive may do other things without end.
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

    /// Has the drive asked to abort what it has of some slots.
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

    /// Takes those out of the rows that have failed and nothing at the drive.
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

    /// Data that goes through a buffer of ours, perhaps only because the drive does not know its
    /// memory yet.
    #[cold]
    pub(super) fn want(&mut self, segments: &[Segment<'_>], view: &Arc<DmaView>) {
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
        // What the drive still does, it does to memory that the keeper has from here on. Where the
        // keeper is busy, its thread is waited for: it answers in seconds, whatever the drive does.
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
    /// Takes every buffer away that no command has.
    pub(in crate::drive) fn take_bounces(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.bounces)
    }

    /// Gives them back.
    pub(in crate::drive) fn put_bounces(&mut self, bounces: Vec<u16>) {
        self.bounces = bounces;
    }

    /// The queue pair that it has now.
    pub(in crate::drive) fn queue_id(&self) -> Option<u16> {
        self.queue.as_ref().map(|queue| queue.pair.qid())
    }

    /// As if the drive had a volatile cache.
    pub(in crate::drive) fn be_cached(&mut self) {
        let mut facts = (*self.facts).clone();
        facts.volatile_cache = true;
        self.facts = Arc::new(facts);
    }

    /// As if the drive had no Write Zeroes.
    pub(in crate::drive) fn forget_zeroes(&mut self) {
        let mut facts = (*self.facts).clone();
        facts.zeroes_len = 0;
        self.facts = Arc::new(facts);
    }
}
