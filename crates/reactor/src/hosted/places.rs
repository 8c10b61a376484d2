//! The places of an entrance: those of hosts, and a few for those that are to prove who they are.
//! Anyone can be one of the latter, so they take no host's place.
//!
//! A host takes its place until its controller is gone. One that is free earlier leaves its place
//! to the next one, and takes one of as many others: so the controllers stay bounded.

use engine::ControllerSlot;

/// Associations at the same time that have proved nothing yet.
const MAX_PENDING: usize = 8;

/// See the module.
#[derive(Debug)]
pub(super) struct Places {
    /// Most hosts.
    hosts: usize,
    /// The controllers of all.
    all: Vec<ControllerSlot>,
    /// Those among them whose hosts have proved nothing yet.
    pending: Vec<ControllerSlot>,
    /// Those among them whose hosts have left, and have left their places to others.
    leaving: Vec<ControllerSlot>,
}

impl Places {
    /// Creates the places; `hosts`: the maximum number of hosts.
    pub(super) fn new(hosts: usize) -> Self {
        Self {
            hosts,
            all: Vec::new(),
            pending: Vec::new(),
            leaving: Vec::new(),
        }
    }

    /// Hosts that may still come.
    pub(super) fn free(&self) -> usize {
        let leaving = self.leaving.len().min(self.hosts);
        let taken = self.all.len() - self.pending.len() - leaving;
        self.hosts.saturating_sub(taken)
    }

    fn has_host_place(&self) -> bool {
        self.free() > 0
    }

    /// Whether there is room for one more host, which is to prove who it is or not.
    pub(super) fn has_room(&self, is_asked: bool) -> bool {
        self.has_host_place() && !(is_asked && self.pending.len() >= MAX_PENDING)
    }

    /// One that is no host yet.
    pub(super) fn add(&mut self, slot: ControllerSlot) {
        self.all.push(slot);
        self.pending.push(slot);
    }

    /// It is a host from now on. False where there are as many as may be.
    pub(super) fn admit(&mut self, slot: ControllerSlot) -> bool {
        let is_admitted = self.has_host_place();
        if is_admitted {
            self.pending.retain(|other| *other != slot);
        }
        is_admitted
    }

    /// A host has left: another one may come, though its controller is still there.
    pub(super) fn vacate(&mut self, slot: ControllerSlot) {
        let is_host = self.all.contains(&slot) && !self.pending.contains(&slot);
        if is_host && !self.leaving.contains(&slot) {
            self.leaving.push(slot);
        }
    }

    /// Its controller is gone.
    pub(super) fn remove(&mut self, slot: ControllerSlot) {
        self.all.retain(|other| *other != slot);
        self.pending.retain(|other| *other != slot);
        self.leaving.retain(|other| *other != slot);
    }

    /// The controllers of hosts, and of those that are none yet.
    pub(super) fn all(&self) -> &[ControllerSlot] {
        &self.all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_have_proved_nothing_take_no_place_of_a_host() {
        let mut places = Places::new(2);
        let slots: Vec<_> = (1..=MAX_PENDING).map(ControllerSlot).collect();
        for slot in &slots {
            assert!(places.has_room(true));
            places.add(*slot);
        }
        assert_eq!(places.all(), slots);
        assert!(!places.has_room(true), "they keep out others of their kind");
        assert!(places.has_room(false), "and no host");
        assert!(places.admit(slots[0]) && places.admit(slots[1]));
        assert!(!places.has_room(true) && !places.has_room(false));
        assert!(!places.admit(slots[2]), "there are two hosts");
        places.remove(slots[2]);
        assert!(!places.has_room(true));
        places.remove(slots[1]);
        assert!(places.has_room(true) && places.admit(slots[3]));
        assert!(!places.has_room(false));
    }

    #[test]
    fn a_host_that_has_left_keeps_no_other_out_but_as_many_at_most() {
        let mut places = Places::new(2);
        let mut come = (0..).map(ControllerSlot);
        let mut enter = |places: &mut Places| {
            let slot = come.next().unwrap();
            assert!(places.has_room(false));
            places.add(slot);
            assert!(places.admit(slot));
            slot
        };
        let first = enter(&mut places);
        let second = enter(&mut places);
        assert!(!places.has_room(false));
        for _ in 0..2 {
            places.vacate(first);
        }
        let third = enter(&mut places);
        assert!(!places.has_room(false), "one place was left, once");
        places.vacate(second);
        let fourth = enter(&mut places);
        places.vacate(third);
        assert!(
            !places.has_room(false),
            "there are twice as many controllers"
        );
        places.remove(first);
        assert_eq!(places.all(), [second, third, fourth]);
        enter(&mut places);
        assert!(!places.has_room(false));
        // One that is none yet has no place to leave.
        places.remove(third);
        places.add(third);
        places.vacate(third);
        assert!(!places.has_room(false));
    }
}
