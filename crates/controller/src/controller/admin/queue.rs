//! The admin submission and completion queue.
//!
//! It does NOT execute commands: [`super`] does.

use std::sync::Arc;

use memory::{DmaView, DoorbellPages, Iova, ShadowDoorbells};
use nvme_spec::{Cqe, Sqe};

use crate::lane::Registration;
use crate::queue::{BadDoorbell, Bells, Cq, CqState, Pool, QueueError, RingAbsent, Sq};
use crate::state::{BellState, Progress, SqState, TailPhase};

/// The admin queues as a process that died has left them. Positions are in their rings.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdminLeft {
    /// Address and size of the submission queue.
    pub(crate) sq: (u64, u32),
    /// Address and size of the completion queue.
    pub(crate) cq: (u64, u32),
    /// The next entry to fetch.
    pub(crate) sq_head: u32,
    /// The next entry to post to.
    pub(crate) cq_tail: TailPhase,
    /// State of the submission queue's doorbell.
    pub(crate) sq_bell: (u32, BellState),
    /// State of the completion queue's doorbell.
    pub(crate) cq_bell: (u32, BellState),
    /// The completion that was being posted.
    pub(crate) posting: Option<Cqe>,
}

/// The admin submission and completion queue of an enabled controller.
#[derive(Debug)]
pub(crate) struct AdminQueue {
    pub(crate) sq: Sq,
    pub(crate) cq: Cq,
    /// Entries reserved for the commands that were fetched and have not completed.
    reserved: Pool,
    /// The command that was fetched last has neither completed nor begun to wait: what others post
    /// meanwhile has the head before it.
    executing: bool,
    /// A completion was posted since the last interrupt.
    pub(crate) posted: bool,
    /// The host's doorbell buffers, where it registered some. Linux and SPDK go on writing the
    /// registers of queue 0; libvfn uses the buffers there, too, as Base 2.1, B.5 allows.
    shadow: Option<ShadowDoorbells>,
    /// Tail and head that EventIdx asks the host to ring past.
    armed: Option<(u32, u32)>,
    /// Commands before this tail may be fetched: the messages that the host sent before them have
    /// been read. `None` without doorbell buffers or messages, where nothing comes out of order.
    ordered: Option<u32>,
}

impl AdminQueue {
    /// Creates both queues, each from its address and its number of entries.
    pub(crate) fn new(
        view: &Arc<DmaView>,
        doorbells: &DoorbellPages,
        (asq, sq_entries): (u64, u32),
        (acq, cq_entries): (u64, u32),
    ) -> Result<Self, QueueError> {
        // The registration of doorbell buffers ends with a reset.
        let bells = Bells {
            pages: doorbells,
            shadow: None,
        };
        Ok(AdminQueue {
            sq: Sq::new(view, 0, Iova(asq), sq_entries, bells)?,
            cq: Cq::new(view, 0, Iova(acq), cq_entries, bells)?,
            reserved: Pool::default(),
            executing: false,
            posted: false,
            shadow: None,
            armed: None,
            ordered: None,
        })
    }

    /// The queues of a process that died, with the doorbell buffers of the host's if it registered
    /// some. The head of the completion queue was not saved: every entry is taken as posted and not
    /// consumed until the doorbell has been looked at. A completion that was being posted is
    /// posted: the host may have consumed it. Also whether that found no memory.
    pub(crate) fn restore(
        view: &Arc<DmaView>,
        left: &AdminLeft,
        shadow: Option<ShadowDoorbells>,
    ) -> Result<(Self, Result<(), RingAbsent>), QueueError> {
        let sq = SqState {
            base: left.sq.0,
            entries: left.sq.1,
            tail: left.sq_head,
            progress: Progress::new().with_head(left.sq_head),
            shadow: left.sq_bell.0,
            bell: left.sq_bell.1,
            ..SqState::default()
        };
        let (acq, cq_entries) = left.cq;
        let cq = CqState {
            base: acq,
            entries: cq_entries,
            tail: left.cq_tail,
            head: (u32::from(left.cq_tail.tail()) + 1 + u32::from(left.posting.is_some()))
                % cq_entries,
            cqid: 0,
            shadow: left.cq_bell.0,
            bell: left.cq_bell.1,
        };
        let mut cq = Cq::restore(view, cq)?;
        let mut posted = Ok(());
        if let Some(cqe) = left.posting
            && let Some(entry) = cq.reserve()
        {
            posted = cq.post(entry, cqe);
        }
        let admin = AdminQueue {
            sq: Sq::restore(view, &sq)?,
            cq,
            reserved: Pool::default(),
            executing: false,
            // The interrupt of the last completion may have been lost.
            posted: true,
            shadow,
            armed: None,
            ordered: None,
        };
        Ok((admin, posted))
    }

    /// The location of its doorbells.
    pub(crate) fn bells<'a>(&'a self, doorbells: &'a DoorbellPages) -> Bells<'a> {
        Bells {
            pages: doorbells,
            shadow: self.shadow.as_ref(),
        }
    }

    /// The host has registered doorbell buffers: from its next submission on it is asked to ring.
    pub(super) fn register(
        &mut self,
        shadow: ShadowDoorbells,
        registration: &Registration,
        doorbells: &DoorbellPages,
        by_messages: bool,
    ) {
        self.shadow = Some(shadow);
        self.ordered = by_messages.then(|| self.sq.tail());
        self.sq.register(|slot| registration.initial(slot));
        self.cq.register(|slot| registration.initial(slot));
        self.arm(doorbells);
    }

    /// Asks the host to ring past the entries taken. A check of the doorbells follows.
    fn arm(&mut self, doorbells: &DoorbellPages) {
        let bells = self.bells(doorbells);
        self.sq.arm(bells);
        self.cq.arm(bells);
        memory::full_fence();
        self.armed = Some(self.taken());
    }

    fn taken(&self) -> (u32, u32) {
        (self.sq.tail(), self.cq.head())
    }

    /// The host's memory map changed.
    pub(crate) fn resolve(&mut self, view: &Arc<DmaView>) {
        self.sq.resolve(view);
        self.cq.resolve(view);
        if let Some(shadow) = &mut self.shadow {
            shadow.resolve(view);
            // EventIdx was not written while its page was gone.
            self.armed = None;
        }
    }

    /// Looks at both doorbells.
    #[inline]
    pub(super) fn look(&mut self, doorbells: &DoorbellPages) -> Result<(), BadDoorbell> {
        if self.shadow.is_some() {
            return self.look_and_arm(doorbells);
        }
        let bells = Bells {
            pages: doorbells,
            shadow: None,
        };
        self.cq.look(bells)?;
        self.sq.look(bells)
    }

    /// Checks both doorbells. If the host registered buffers, it is then asked to ring for every
    /// later change: admin commands are rare, and the controller does not poll a host's buffers for
    /// them.
    ///
    /// The race: the host stores a doorbell and then loads EventIdx; EventIdx is stored here before
    /// the last look, with a full fence between on both sides. The loop ends, as a host can move
    /// its tail and head only so far while nothing is fetched or posted.
    #[cold]
    fn look_and_arm(&mut self, doorbells: &DoorbellPages) -> Result<(), BadDoorbell> {
        let mut result = Ok(());
        loop {
            let AdminQueue { sq, cq, shadow, .. } = self;
            let bells = Bells {
                pages: doorbells,
                shadow: shadow.as_ref(),
            };
            let looked = cq.look_at_either(bells);
            result = result.and(looked.and_then(|_| sq.look_at_either(bells)));
            if self.shadow.is_none() || self.armed == Some(self.taken()) {
                return result;
            }
            self.arm(doorbells);
        }
    }

    /// Looks at the doorbell of the completion queue alone.
    pub(crate) fn look_at_head(&mut self, doorbells: &DoorbellPages) -> Result<u32, BadDoorbell> {
        let AdminQueue { cq, shadow, .. } = self;
        let bells = Bells {
            pages: doorbells,
            shadow: shadow.as_ref(),
        };
        cq.look_at_either(bells)
    }

    /// Whether it has seen commands that wait until the host's messages have been read.
    pub(super) fn waits_for_messages(&self) -> bool {
        self.sq.available() > 0 && self.ordered.is_some_and(|tail| tail != self.sq.tail())
    }

    /// Fetches a command if there is one, and an entry for its completion, which is reserved.
    pub(super) fn fetch(&mut self) -> Result<Option<Sqe>, RingAbsent> {
        let next_is_ordered = self.ordered != Some(self.sq.head());
        if self.sq.available() == 0 || !next_is_ordered || !self.reserve() {
            return Ok(None);
        }
        match self.sq.fetch() {
            Ok((words, _)) => {
                self.executing = true;
                Ok(Some(Sqe::from_words(words)))
            }
            Err(absent) => {
                self.release();
                Err(absent)
            }
        }
    }

    /// Register writes come as messages. Of a queue that was restored with doorbell buffers; others
    /// know when the buffers are registered.
    pub(super) fn expect_messages(&mut self) {
        if self.shadow.is_some() {
            self.ordered.get_or_insert(self.sq.tail());
        }
    }

    /// Every message has been read that the host had sent when its doorbells were looked at.
    pub(super) fn messages_read(&mut self) {
        if let Some(tail) = &mut self.ordered {
            *tail = self.sq.tail();
        }
    }

    /// The command that was fetched last completes now, or begins to wait.
    pub(super) fn end_execution(&mut self) {
        self.executing = false;
    }

    /// Posts a completion into an entry that was reserved. `None`: none was.
    pub(super) fn post(&mut self, cqe: Cqe) -> Option<Result<(), RingAbsent>> {
        let entry = self.reserved.claim()?;
        let posted = self.cq.post(entry, cqe);
        self.posted = true;
        Some(posted)
    }

    /// The next entry to fetch, as completions and the saved state have it.
    pub(crate) fn head(&self) -> u32 {
        let head = self.sq.head();
        match (self.executing, head) {
            (false, head) => head,
            (true, 0) => self.sq.entries() - 1,
            (true, head) => head - 1,
        }
    }

    /// Reserves an entry for a completion. False where there is none.
    pub(crate) fn reserve(&mut self) -> bool {
        let entry = self.cq.reserve();
        let reserved = entry.is_some();
        entry
            .into_iter()
            .for_each(|entry| self.reserved.park(entry));
        reserved
    }

    /// Returns the entry of a command that completes without one, or later with another.
    pub(super) fn release(&mut self) {
        if let Some(entry) = self.reserved.claim() {
            self.cq.release(entry);
        }
    }
}
