//! Queues of hosts over NVMe/TCP whose lanes visit this reactor: they are served here, and their
//! controllers and associations are on another one.

use engine::{ControllerSlot, EngineId};
use port::ticket::OwnerKey;
use port::time::Time;
use transport::nvme_tcp::Branch;

use crate::hosted::association::HOT_NS;

/// One queue.
#[derive(Debug)]
pub(crate) struct Served {
    /// Reactor and slot of its controller.
    pub(crate) home: EngineId,
    pub(crate) slot: ControllerSlot,
    /// Its lane here.
    pub(crate) lane: OwnerKey,
    pub(crate) branch: Box<Branch>,
    /// It has done something since it was polled: there may be more.
    pub(crate) has_more: bool,
    /// When it did something last.
    pub(crate) worked: Time,
    /// The poller watches its connection for output, too; `None`: not at all.
    pub(crate) watched: Option<bool>,
}

impl Served {
    /// Whether it is to be polled in this turn, and not only when the poller reports its socket.
    pub(crate) fn is_hot(&self, now: Time) -> bool {
        self.has_more || now.since(self.worked) < HOT_NS
    }
}

/// See the module. Each has a place, which names it to the poller.
#[derive(Debug, Default)]
pub(crate) struct Branches {
    places: Vec<Option<Served>>,
    /// No deadline of one is before.
    due: Option<Time>,
}

impl Branches {
    /// Adds one; its place.
    pub(crate) fn add(&mut self, served: Served) -> usize {
        let free = self.places.iter().position(Option::is_none);
        let at = free.unwrap_or_else(|| {
            self.places.push(None);
            self.places.len() - 1
        });
        self.places[at] = Some(served);
        at
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut Served> {
        self.places.get_mut(at)?.as_mut()
    }

    /// The place of a queue of that controller.
    pub(crate) fn find(&self, home: EngineId, slot: ControllerSlot, qid: u16) -> Option<usize> {
        let is_it =
            |served: &Served| (served.home, served.slot, served.branch.qid()) == (home, slot, qid);
        let mut places = self.places.iter();
        places.position(|served| served.as_ref().is_some_and(is_it))
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<Served> {
        let served = self.places.get_mut(at)?.take();
        while self.places.last().is_some_and(Option::is_none) {
            self.places.pop();
        }
        served
    }

    /// Places up to here may have one.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.places.len()
    }

    /// One was polled.
    pub(crate) fn note_deadline(&mut self, deadline: Option<Time>) {
        self.due = self.due.into_iter().chain(deadline).min();
    }

    /// When some must be polled although nothing happens.
    #[inline]
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due
    }

    /// The places of those that are due.
    pub(crate) fn take_due(&mut self, now: Time) -> Vec<usize> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        let deadlines = self.places.iter().enumerate().filter_map(|(at, served)| {
            let deadline = served.as_ref()?.branch.next_deadline()?;
            Some((at, deadline))
        });
        let (mut places, mut next) = (Vec::new(), None);
        for (at, deadline) in deadlines {
            if deadline <= now {
                places.push(at);
            } else {
                next = next.into_iter().chain([deadline]).min();
            }
        }
        self.due = next;
        places
    }

    /// All, which are served no more.
    pub(crate) fn take_all(&mut self) -> impl Iterator<Item = Box<Branch>> {
        let all = std::mem::take(&mut self.places).into_iter().flatten();
        all.map(|served| served.branch)
    }
}
