//! Doorbells that hosts store without telling: which queues were rung while nobody looked at them turn by turn.
//!
//! The doorbells of eight queue pairs share a cache line, so to see that nothing has changed in many queues is far cheaper
//! than to give each of their lanes a turn. A doorbell that has changed is only a reason to look: the lane, which then gets
//! a turn, judges the value.
//!
//! Invariant: what changes after a lane's last look is found by a later look here. A value is taken as seen only by a look
//! here, which names the lane; a lane that was hot then looks for itself before it can grow cold.

use std::sync::Arc;

use memory::DoorbellPages;

use super::Controller;
use crate::config::DoorbellMode;
use crate::ticket::OwnerKey;

/// What a look needs, in one place: with many controllers, to fetch it is what a look costs.
#[derive(Debug)]
pub(super) struct Watch {
    pages: Arc<DoorbellPages>,
    /// Queue pairs to look at; none before RDY, when no doorbell has an effect.
    pairs: usize,
    /// What the last look found, by queue pair; the admin queue's is the first.
    seen: Box<[u64]>,
}

impl Watch {
    /// A watch over at most so many queue pairs.
    pub(super) fn new(pages: &Arc<DoorbellPages>, most: usize) -> Self {
        Watch {
            pages: pages.clone(),
            pairs: 0,
            seen: vec![0; most].into(),
        }
    }

    /// Calls `changed` with each queue pair that has a doorbell with another value than at the last look.
    #[inline]
    fn look(&mut self, mut changed: impl FnMut(u16)) {
        for (pair, seen) in self.seen.iter_mut().take(self.pairs).enumerate() {
            let value = self.pages.load_pair(pair);
            if value != *seen {
                *seen = value;
                changed(pair as u16);
            }
        }
    }
}

impl Controller {
    /// Whether its host may store doorbells without a message: then somebody must call [`Controller::look_at_doorbells`]
    /// now and then.
    #[must_use]
    pub fn has_silent_doorbells(&self) -> bool {
        self.config.doorbells == DoorbellMode::Mapped
    }

    /// Looks for doorbells that have changed since the last look, and calls `rung` with the lanes that they concern. True
    /// where the admin queue's have. A doorbell that a lane has seen in the meantime is named, too.
    #[inline]
    pub fn look_at_doorbells(&mut self, mut rung: impl FnMut(OwnerKey)) -> bool {
        let Controller { watch, queues, .. } = self;
        let mut admin = false;
        watch.look(|qid| {
            if qid == 0 {
                admin = true;
                return;
            }
            let lanes = [queues.lane_of_sq(qid), queues.lane_of_cq(qid)];
            lanes.into_iter().flatten().for_each(&mut rung);
        });
        admin
    }

    /// Queues may have come or gone.
    pub(super) fn rewatch(&mut self) {
        let watched = self.has_silent_doorbells() && self.admin.is_some();
        self.watch.pairs = match watched {
            true => 1 + usize::from(self.queues.highest()),
            false => 0,
        };
    }

    /// The doorbells are in other pages from now on.
    pub(super) fn watch_pages(&mut self, pages: &Arc<DoorbellPages>) {
        self.watch = Watch::new(pages, self.watch.seen.len());
    }
}
