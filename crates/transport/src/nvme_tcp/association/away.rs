//! I/O queues of an association that are served on the reactors of their lanes.

use std::sync::Arc;

use controller::Controller;
use port::time::Time;

use super::{Association, Io, place};
use crate::host::Step;
use crate::nvme_tcp::branch::Branch;
use crate::nvme_tcp::connection::End;
use crate::nvme_tcp::counters::Counts;
use crate::nvme_tcp::pace::CHECK_NS;
use crate::nvme_tcp::proof::Proof;

/// Queues that are away are not looked at more often for what has come.
const HEAR_NS: u64 = 10_000_000;

/// A queue that is away.
#[derive(Debug)]
pub(super) struct Away {
    /// Its counters, which identify it, too.
    pub(super) counts: Arc<Counts>,
    /// Bytes that had come at the last look.
    received: u64,
    /// It was asked for.
    is_recalled: bool,
    /// The controller was reset meanwhile: it ends when it is back.
    pub(super) is_reset: bool,
    /// That reset has ended, and whether all commands had.
    all_ended: Option<bool>,
}

impl Away {
    /// The controller does not know the queue any more.
    pub(super) fn forgotten(&mut self, all_ended: bool) {
        if self.is_reset && self.all_ended.is_none() {
            self.all_ended = Some(all_ended);
        }
    }
}

impl Association {
    /// The I/O queues here that may be served elsewhere: their hosts have proved what they have to,
    /// and the controller serves commands.
    #[must_use]
    pub fn may_depart(&self) -> Vec<u16> {
        let may = |queue: &Option<Io>| match queue {
            Some(Io::Open(queue)) => queue.proof() != Proof::Pending,
            _ => false,
        };
        let io = (1..).zip(&self.io[..self.used]);
        let io = io.filter(|(_, queue)| self.ready && may(queue));
        io.map(|(qid, _)| qid).collect()
    }

    /// Gives up a queue of [`Self::may_depart`], to be served where its lane lives until it
    /// comes back ([`Self::come_back`]). No poller watches its connection.
    pub fn depart(&mut self, qid: u16) -> Option<Branch> {
        let io = self.io.get_mut(usize::from(qid).checked_sub(1)?)?;
        match io.take() {
            Some(Io::Open(queue)) => {
                let counts = queue.counts.clone();
                *io = Some(Io::Away(Away {
                    received: counts.received(),
                    counts,
                    is_recalled: false,
                    is_reset: false,
                    all_ended: None,
                }));
                self.away += 1;
                self.changes += 1;
                let large = self.large.clone();
                Some(Branch::new(queue, self.config.clone(), large, self.polled))
            }
            other => {
                *io = other;
                None
            }
        }
    }

    /// Queues that are to come back: each once.
    pub fn take_recalls(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.recalls)
    }

    /// Whether queues are away.
    #[must_use]
    pub fn has_away(&self) -> bool {
        self.away > 0
    }

    /// All queues that are away are to come back.
    pub fn recall_all(&mut self) {
        if self.away == 0 {
            return;
        }
        for (qid, io) in (1..).zip(&mut self.io) {
            if let Some(Io::Away(away)) = io
                && !std::mem::replace(&mut away.is_recalled, true)
            {
                self.recalls.push(qid);
            }
        }
    }

    /// A queue comes back: as it was recalled, as its lane is elsewhere, or as it has ended.
    ///
    /// # Errors
    /// It is another association's.
    pub fn come_back(
        &mut self,
        branch: Branch,
        end: Option<&End>,
        controller: &mut Controller,
        now: Time,
    ) -> Result<(), Branch> {
        let qid = branch.qid();
        let io = self.io.get_mut(usize::from(qid).wrapping_sub(1));
        let Some(Some(Io::Away(away))) = io else {
            return Err(branch);
        };
        if !Arc::ptr_eq(&away.counts, &branch.queue.counts) {
            return Err(branch);
        }
        let (is_reset, all_ended) = (away.is_reset, away.all_ended);
        let has_sent = away.counts.received() != away.received;
        self.away -= 1;
        self.changes += 1;
        self.openings += 1;
        self.recalls.retain(|other| *other != qid);
        self.io[place(qid)] = Some(Io::Open(branch.queue));
        if is_reset {
            self.lose(qid, &End::Reset, now);
        } else if let Some(end) = end {
            self.lose(qid, end, now);
        }
        if let Some(all_ended) = all_ended
            && let Some(Io::Ending(remains, Step::DeleteSq)) = self.io[place(qid)].take()
        {
            self.end_remains(*remains, all_ended);
            self.note_used();
        }
        if has_sent {
            self.heard = now;
            controller.heard();
        }
        self.follow(controller, now);
        Ok(())
    }

    /// Sees from time to time whether something has come on queues that are away: several times
    /// within the keep alive timeout, and at its end. From then on it looks often, until the
    /// controller fails: after a stop of the process, the other reactor may read later than this
    /// one looks.
    pub(super) fn hear_away(&mut self, controller: &mut Controller, now: Time) {
        if self.away == 0 || now < self.hear_at {
            return;
        }
        let mut have_sent = false;
        for io in self.io[..self.used].iter_mut().flatten() {
            if let Io::Away(away) = io {
                let received = away.counts.received();
                have_sent |= std::mem::replace(&mut away.received, received) != received;
            }
        }
        if have_sent {
            self.heard = now;
            controller.heard();
        }
        let timeout = u64::from(self.kato_ms) * 1_000_000;
        let expires = self.heard + timeout;
        self.hear_at = if now < expires {
            expires.min(now + (timeout / 4).clamp(HEAR_NS, CHECK_NS))
        } else {
            now + HEAR_NS
        };
    }
}
