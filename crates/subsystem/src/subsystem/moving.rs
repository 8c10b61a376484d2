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
        let mut members = self.members.iter();
        let saved = members.find(|member| member.record.features != SavedFeatures::default());
        saved.map(|member| format!("controller {} has saved features", member.record.name))
    }
}
