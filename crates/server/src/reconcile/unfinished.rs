//! Objects that a plan has taken away and not given back yet.
//!
//! The objects that are wanted do not tell this: a namespace that is recreated was in a subsystem
//! whose saved state says that it is deleted, and a recreated controller has namespaces that an
//! operator or a host attached or detached. It is saved before the first step, so that a restart
//! or the next plan gives everything back.

use std::collections::{BTreeMap, BTreeSet};

use api::config::Controller;
use serde::{Deserialize, Serialize};

use super::id::ObjectId;
use super::inventory::find;
use super::step::Step;

/// Objects that are being recreated, by name, and attachments that are to be restored.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Unfinished {
    /// Media that are recreated: what a subsystem's state says of the earlier ones no longer
    /// counts.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) media: BTreeSet<String>,
    /// Namespaces that are recreated: likewise.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) namespaces: BTreeSet<String>,
    /// Those of them whose earlier one is deleted.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) deleted: BTreeSet<String>,
    /// Those of the deleted ones that are in a subsystem again: hosts use them, and the subsystem's
    /// own state says how they are.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) placed: BTreeSet<String>,
    /// Namespaces to attach, by controller. For a controller that is recreated, these are all that
    /// it gets, listed or not.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) controllers: BTreeMap<String, BTreeSet<String>>,
}

impl Unfinished {
    /// Whether everything is given back.
    pub(crate) fn is_empty(&self) -> bool {
        *self == Unfinished::default()
    }

    /// Whether a namespace is still to be created, whatever a subsystem's state says of the earlier
    /// one.
    pub(crate) fn is_missing(&self, namespace: &str) -> bool {
        self.namespaces.contains(namespace) && !self.placed.contains(namespace)
    }

    /// Whether the namespace is to be attached to the controller.
    pub(crate) fn owes(&self, namespace: &str, controller: &str) -> bool {
        let owed = self.controllers.get(controller);
        owed.is_some_and(|namespaces| namespaces.contains(namespace))
    }

    /// The controllers that the namespace is to be attached to.
    pub(crate) fn users_of<'a>(&'a self, namespace: &'a str) -> impl Iterator<Item = &'a str> {
        let owed = self.controllers.iter();
        let owed = owed.filter(move |(_, namespaces)| namespaces.contains(namespace));
        owed.map(|(controller, _)| controller.as_str())
    }

    /// The lists of controllers have been edited since the plan was made: an added namespace is
    /// attached, and a removed one is not.
    pub(crate) fn follow_lists(&mut self, before: &[Controller], after: &[Controller]) {
        for (controller, owed) in &mut self.controllers {
            let listed = |all: &[Controller]| {
                let found = find(all, controller).map(|one| one.namespaces.clone());
                found.unwrap_or_default()
            };
            let (before, after) = (listed(before), listed(after));
            owed.retain(|name| !before.contains(name) || after.contains(name));
            let added = after.into_iter().filter(|name| !before.contains(name));
            owed.extend(added);
        }
    }

    /// A step of the plan is done.
    pub(crate) fn done(&mut self, step: &Step) {
        let returned = match step {
            Step::Attach(namespace, controller) => {
                self.given_back(namespace.as_str(), controller.as_str())
            }
            Step::Restore(controller, _) => self.forget_controller(&controller.name),
            Step::Delete(ObjectId::Namespace(id)) if self.namespaces.contains(id.as_str()) => {
                self.deleted.insert(id.as_str().to_owned());
                return;
            }
            _ => return,
        };
        // its subsystem's own state says from now on who has it; but until the plan ends, those
        // that list it without having it are known by this entry
        let recreated = returned.into_iter().filter(|n| self.namespaces.contains(n));
        let recreated: Vec<String> = recreated.collect();
        self.placed.extend(recreated);
    }

    /// An operator made a change: what it replaces is no longer to be given back.
    pub(crate) fn overruled(&mut self, step: &Step) {
        let returned = match step {
            Step::Attach(namespace, controller) | Step::Detach(namespace, controller) => {
                self.given_back(namespace.as_str(), controller.as_str())
            }
            Step::Create(_) | Step::Restore(..) | Step::Delete(_) => match step.id() {
                ObjectId::Namespace(id) => {
                    self.namespaces.remove(id.as_str());
                    for namespaces in self.controllers.values_mut() {
                        namespaces.remove(id.as_str());
                    }
                    return;
                }
                ObjectId::Controller(id) => self.forget_controller(id.as_str()),
                // whatever the new medium is, the one that a subsystem's state knows is gone
                ObjectId::Media(_) | ObjectId::Tenant(_) | ObjectId::Hosts | ObjectId::Log => {
                    return;
                }
            },
            _ => return,
        };
        for namespace in returned {
            self.namespaces.remove(&namespace);
        }
    }

    /// The controller has the namespace again, or no longer gets it. The namespace, if that was
    /// the last controller that is to have it.
    fn given_back(&mut self, namespace: &str, controller: &str) -> Vec<String> {
        if let Some(namespaces) = self.controllers.get_mut(controller) {
            namespaces.remove(namespace);
        }
        match self.users_of(namespace).next() {
            None => vec![namespace.to_owned()],
            Some(_) => Vec::new(),
        }
    }

    fn forget_controller(&mut self, controller: &str) -> Vec<String> {
        let owed = self.controllers.remove(controller).unwrap_or_default();
        let last = owed.into_iter();
        last.filter(|namespace| self.users_of(namespace).next().is_none())
            .collect()
    }
}
