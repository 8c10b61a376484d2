//! Doorbells that hosts store without a message: which queues of cold lanes were rung.
//!
//! The doorbells of eight queue pairs share a cache line, so checking many queues for changes is
//! far cheaper than giving each of their lanes a turn. A changed doorbell is only a reason for a
//! turn: the lane then checks the value.
//!
//! A host may store any value into doorbells without a queue: of queues that are frozen, or that do
//! not exist. They are ignored until a queue is created there, so that a storm of such stores costs
//! its neighbours nothing.
//!
//! Invariant: a later check here finds every change after a lane's last check. A value counts as
//! seen only by a check here, which names the lane; a lane that was hot then checks for itself
//! before it can grow cold.

use std::sync::Arc;

use memory::DoorbellPages;
use port::ticket::OwnerKey;

use super::Controller;
use crate::config::DoorbellMode;
use crate::lane::QueueName;

/// All data that a check needs, in one place: with many controllers, fetching it dominates the cost
/// of a check.
#[derive(Debug)]
pub(crate) struct Watch {
    pages: Arc<DoorbellPages>,
    /// Queue pairs to look at; none before RDY, when no doorbell has an effect.
    pairs: usize,
    /// By queue pair; the admin queue's is the first.
    seen: Box<[Seen]>,
}

/// A pair of doorbells: the tail of the submission queue in the low half, the head of the
/// completion queue in the high one.
#[derive(Clone, Copy, Debug)]
struct Seen {
    /// The value at the last check.
    value: u64,
    /// Bits of the doorbells that belong to queues.
    watched: u64,
}

const TAIL: u64 = u32::MAX as u64;
const HEAD: u64 = !TAIL;

const UNSEEN: Seen = Seen {
    value: 0,
    watched: TAIL | HEAD,
};

impl Watch {
    /// A watch over at most so many queue pairs.
    pub(super) fn new(pages: &Arc<DoorbellPages>, most: usize) -> Self {
        Watch {
            pages: pages.clone(),
            pairs: 0,
            seen: vec![UNSEEN; most].into(),
        }
    }

    /// Calls `changed` with each doorbell whose value differs from the last check. It returns
    /// whether the doorbell belongs to a queue; one that does not is ignored until [`Watch::heed`].
    #[inline]
    fn look(&mut self, mut changed: impl FnMut(QueueName) -> bool) {
        for (pair, seen) in self.seen.iter_mut().take(self.pairs).enumerate() {
            let value = self.pages.load_pair(pair);
            if value != seen.value {
                let difference = (value ^ seen.value) & seen.watched;
                seen.value = value;
                let qid = pair as u16;
                if difference & TAIL != 0 && !changed(QueueName::Submission(qid)) {
                    seen.watched &= !TAIL;
                }
                if difference & HEAD != 0 && !changed(QueueName::Completion(qid)) {
                    seen.watched &= !HEAD;
                }
            }
        }
    }

    /// Looks at the doorbell of a queue, which begins.
    pub(crate) fn heed(&mut self, queue: QueueName) {
        if let Some((seen, half)) = self.half(queue) {
            seen.watched |= half;
            // Where it begins, whatever value it had before it had a queue.
            seen.value &= !half;
        }
    }

    /// Looks at the doorbell of a frozen queue no more.
    pub(crate) fn ignore(&mut self, queue: QueueName) {
        if let Some((seen, half)) = self.half(queue) {
            seen.watched &= !half;
        }
    }

    fn half(&mut self, queue: QueueName) -> Option<(&mut Seen, u64)> {
        let (qid, half) = match queue {
            QueueName::Submission(qid) => (qid, TAIL),
            QueueName::Completion(qid) => (qid, HEAD),
        };
        Some((self.seen.get_mut(usize::from(qid))?, half))
    }
}

impl Controller {
    /// Whether its host may store doorbells without a message: then the caller must call
    /// [`Controller::look_at_doorbells`] periodically.
    #[must_use]
    pub fn has_silent_doorbells(&self) -> bool {
        self.config.doorbells == DoorbellMode::Mapped
    }

    /// Looks for doorbells that have changed since the last look, and calls `rung` with the lanes
    /// that they concern. True where the admin queue's have. A doorbell that a lane has seen in the
    /// meantime is named, too.
    #[inline]
    pub fn look_at_doorbells(&mut self, mut rung: impl FnMut(OwnerKey)) -> bool {
        let Controller {
            doorbells, queues, ..
        } = self;
        let mut admin = false;
        doorbells.watch.look(|queue| {
            let lane = match queue {
                QueueName::Submission(0) | QueueName::Completion(0) => {
                    admin = true;
                    return true;
                }
                QueueName::Submission(qid) => queues.lane_of_sq(qid),
                QueueName::Completion(qid) => queues.lane_of_cq(qid),
            };
            lane.map(&mut rung).is_some()
        });
        admin
    }

    /// Queues may have come or gone.
    pub(super) fn rewatch(&mut self) {
        let watched = self.has_silent_doorbells() && self.admin.queue.is_some();
        self.doorbells.watch.pairs = if watched {
            1 + usize::from(self.queues.highest())
        } else {
            0
        };
    }

    /// The doorbells are in other pages from now on.
    pub(super) fn watch_pages(&mut self, pages: &Arc<DoorbellPages>) {
        self.doorbells.watch = Watch::new(pages, self.doorbells.watch.seen.len());
    }
}
