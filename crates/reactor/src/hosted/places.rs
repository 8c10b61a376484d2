//! The places of an entrance over NVMe/TCP: those of hosts, and a few for those that are to prove
//! who they are. Anyone can be one of the latter, so they take no host's place.

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
}

impl Places {
    /// Creates the places; `hosts`: the maximum number of hosts.
    pub(super) fn new(hosts: usize) -> Self {
        Self {
            hosts,
            all: Vec::new(),
            pending: Vec::new(),
        }
    }

    fn has_host_place(&self) -> bool {
        self.all.len() - self.pending.len() < self.hosts
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

    /// Its controller is gone.
    pub(super) fn remove(&mut self, slot: ControllerSlot) {
        self.all.retain(|other| *other != slot);
        self.pending.retain(|other| *other != slot);
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
}
