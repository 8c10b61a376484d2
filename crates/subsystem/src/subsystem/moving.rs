//! What a subsystem has for a controller that moves to another server, and does not move with it.

use super::Subsystem;
use crate::record::SavedFeatures;
use crate::reservation::Reservation;
use crate::sanitize::SanitizeRecord;

impl Subsystem {
    /// The first thing that a host would lose, or find, if a controller moved from here or to here:
    /// state that its hosts have given the subsystem, and a change in progress.
    #[must_use]
    pub fn obstacle_to_move(&self) -> Option<String> {
        if !self.operations.is_empty() {
            return Some("an operation on its namespaces is in progress".to_owned());
        }
        if *self.directory.sanitize().record() != SanitizeRecord::default() {
            return Some("it has a sanitize log".to_owned());
        }
        for allocated in self.directory.iter() {
            let nsid = allocated.namespace.nsid;
            if allocated.reservation != Reservation::default() {
                return Some(format!("namespace {nsid} has, or had, reservations"));
            }
            if allocated.uncorrectable.iter().next().is_some() {
                return Some(format!(
                    "namespace {nsid} has blocks marked by Write Uncorrectable"
                ));
            }
        }
        None
    }

    /// Saves the values of features that a configured controller, which is not served, has brought
    /// from another server. Those that it had before; `None` where there is no such controller.
    pub fn save_features(&mut self, name: &str, features: SavedFeatures) -> Option<SavedFeatures> {
        let id = self.controller_named(name)?;
        let mut before = None;
        self.update_controller(id, |record| {
            before = Some(std::mem::replace(&mut record.features, features));
        });
        before
    }
}

#[cfg(test)]
mod tests {
    use port::{BlockRanges, ChannelId, MediumTraits};

    use crate::allocated::Allocated;
    use crate::sanitize::{SanitizeOutcome, SanitizeRecord};
    use crate::subsystem::{Subsystem, SubsystemConfig};

    fn namespace() -> port::namespace::Namespace {
        port::namespace::Namespace {
            nsid: 1,
            channel: ChannelId(0),
            start: 0,
            blocks: 8,
            lba_shift: 12,
            nguid: [1; 16],
            eui64: [1; 8],
            traits: MediumTraits::default(),
            restrictions: None,
            set: None,
        }
    }

    fn obstacle(change: impl FnOnce(&mut SubsystemConfig)) -> Option<String> {
        let mut config = SubsystemConfig::with_namespaces(4, [namespace()]);
        change(&mut config);
        Subsystem::new(config).unwrap().obstacle_to_move()
    }

    #[test]
    fn what_hosts_have_given_a_subsystem_keeps_its_controllers() {
        assert_eq!(obstacle(|_| ()), None);
        let sanitized = obstacle(|config| {
            config.sanitize = SanitizeRecord {
                outcome: SanitizeOutcome::Succeeded,
                ..SanitizeRecord::default()
            };
        });
        assert!(sanitized.is_some_and(|what| what.contains("sanitize")));
        let marked = obstacle(|config| {
            let mut uncorrectable = BlockRanges::default();
            uncorrectable.insert(2, 1).unwrap();
            config.namespaces = vec![Allocated {
                uncorrectable,
                ..Allocated::everywhere(namespace())
            }];
        });
        assert!(marked.is_some_and(|what| what.contains("Write Uncorrectable")));
        let reserved = obstacle(|config| {
            let mut allocated = Allocated::everywhere(namespace());
            allocated.reservation.set_persists(true);
            config.namespaces = vec![allocated];
        });
        assert!(reserved.is_some_and(|what| what.contains("reservations")));
    }
}
