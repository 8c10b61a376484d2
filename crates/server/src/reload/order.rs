//! The steps in an order that works: users release an object before it is deleted, and get new
//! objects last.

use std::collections::{BTreeMap, BTreeSet};

use api::config::object::{Object, When};
use api::config::{Config, Controller, Size};

use super::fate::{Fate, Growth, growth, home};
use super::id::{ControllerId, Identified, NamespaceId, ObjectId};
use super::words::{self, differences};
use super::{Deed, Served, Step};
use crate::saved::merge::find;

struct Steps<'a> {
    served: &'a Served,
    end: &'a Config,
    fates: &'a BTreeMap<ObjectId, Fate>,
    steps: Vec<Step>,
}

/// The steps from the `served` state to the `end`. Objects without an outcome stay as they are.
pub(super) fn steps(served: &Served, end: &Config, fates: &BTreeMap<ObjectId, Fate>) -> Vec<Step> {
    let mut all = Steps {
        served,
        end,
        fates,
        steps: Vec::new(),
    };
    // while the subsystem exists, which records the detachments
    all.detach();
    all.delete(&served.config.namespace);
    all.grow();
    // controllers that list a pool go last: it is in use until the last controller is deleted
    let mut pools_last = served.config.controller.clone();
    pools_last.sort_by_key(|controller| controller.pool.len());
    all.delete(&pools_last);
    all.delete(&served.config.media);
    all.tenants();
    all.media();
    all.namespaces();
    all.controllers();
    all.delete(&served.config.tenant);
    all.steps
}

/// The namespaces that recreated controllers get: their current ones, listed or not, without those
/// removed from the list, and with those added to it.
pub(super) fn kept(
    served: &Served,
    end: &Config,
    fates: &BTreeMap<ObjectId, Fate>,
) -> BTreeMap<ControllerId, BTreeSet<String>> {
    let remade = served.config.controller.iter().filter_map(|now| {
        let fate = fates.get(&now.id())?;
        let then = find(&end.controller, &now.name)?;
        matches!(fate, Fate::Remake(_)).then_some((now, then))
    });
    let all = remade.map(|(now, then)| {
        let ends = |name: &String| {
            let fate = fates.get(&NamespaceId::new(name).into());
            fate == Some(&Fate::Delete)
        };
        let had = served.placed.iter().filter(|(name, placed)| {
            let dropped = now.namespaces.contains(name) && !then.namespaces.contains(name);
            let goes_on = placed.subsystem == then.subsystem() || then.namespaces.contains(name);
            placed.controllers.contains(&now.name)
                && goes_on
                && !is_elsewhere(name, then, end)
                && !dropped
                && !ends(name)
        });
        let new = then.namespaces.iter();
        let new = new.filter(|name| !now.namespaces.contains(name));
        let names = had.map(|(name, _)| name).chain(new);
        (ControllerId::new(&now.name), names.cloned().collect())
    });
    all.collect()
}

impl Steps<'_> {
    fn fate(&self, id: impl Into<ObjectId>) -> &Fate {
        let fate = self.fates.get(&id.into());
        fate.unwrap_or(&Fate::Same)
    }

    fn push(&mut self, id: impl Into<ObjectId>, deed: Deed, detail: String) {
        self.steps.push(Step {
            id: id.into(),
            deed,
            detail,
        });
    }

    /// Detaches namespaces that are deleted, and namespaces that remaining controllers no longer
    /// list.
    fn detach(&mut self) {
        for (namespace, placed) in &self.served.placed {
            for user in &placed.controllers {
                let Some(now) = find(&self.served.config.controller, user) else {
                    continue;
                };
                let goes_on = find(&self.end.controller, user);
                let goes_on = goes_on.filter(|_| !self.fate(ControllerId::new(user)).ends());
                let dropped = goes_on.is_some_and(|then| {
                    now.namespaces.contains(namespace) && !then.namespaces.contains(namespace)
                });
                if dropped || self.fate(NamespaceId::new(namespace)).ends() {
                    let detail = format!("from controller {user}");
                    self.push(
                        NamespaceId::new(namespace),
                        Deed::Detach(ControllerId::new(user)),
                        detail,
                    );
                }
            }
        }
    }

    fn delete<T: Identified>(&mut self, now: &[T]) {
        for one in now {
            let detail = match self.fate(one.id()) {
                Fate::Delete => String::new(),
                Fate::Remake(why) => format!("to be recreated: {why}"),
                _ => continue,
            };
            self.push(one.id(), Deed::Delete, detail);
        }
    }

    /// Creates the new objects of a kind, with a description.
    fn create<T: Identified>(&mut self, end: &[T], what: fn(&T) -> String) {
        for one in end {
            if self.fate(one.id()).begins() {
                self.push(one.id(), Deed::Create, what(one));
            }
        }
    }

    /// The objects of a kind that change at run time, before and after.
    fn changing<T: Identified>(&self, now: &[T], end: &[T]) -> Vec<(T, T)> {
        let changing = now.iter().filter_map(|one| {
            let then = find(end, one.name())?;
            let changes = *self.fate(one.id()) == Fate::Change;
            changes.then(|| (one.clone(), then.clone()))
        });
        changing.collect()
    }

    fn tenants(&mut self) {
        let end = &self.end.tenant;
        for (now, then) in self.changing(&self.served.config.tenant, end) {
            let detail = differences(&now, &then);
            self.push(now.id(), Deed::Assign, detail);
        }
        self.create(end, words::tenant);
    }

    fn media(&mut self) {
        let end = &self.end.media;
        for (now, then) in self.changing(&self.served.config.media, end) {
            let detail = differences(&now, &then);
            self.push(now.id(), Deed::Retune, detail);
        }
        self.create(end, words::medium);
    }

    fn grow(&mut self) {
        let end = &self.end.namespace;
        for (now, then) in self.changing(&self.served.config.namespace, end) {
            if let Growth::Grows(range) = growth(&now, &then, self.served) {
                let size = Size(range.len());
                let detail = format!("{size} from now on");
                self.push(now.id(), Deed::Resize(size), detail);
            }
        }
    }

    fn namespaces(&mut self) {
        let end = &self.end.namespace;
        for (now, then) in self.changing(&self.served.config.namespace, end) {
            let assigned = now.with(&then, When::Live);
            if assigned != now {
                let detail = differences(&now, &assigned);
                self.push(now.id(), Deed::Assign, detail);
            }
        }
        self.create(end, words::namespace);
    }

    fn controllers(&mut self) {
        let now = &self.served.config.controller;
        let end = &self.end.controller;
        // recreated namespaces return to the remaining controllers that had them
        for controller in now {
            let then = find(end, &controller.name);
            let then = then.filter(|_| !self.fate(ControllerId::new(&controller.name)).ends());
            if let Some(then) = then {
                self.attach(controller, then);
            }
        }
        for (now, then) in self.changing(now, end) {
            let moves = move_of(&now, &then);
            if let Some(detail) = moves {
                self.push(now.id(), Deed::Move, detail);
            }
            let assigned = now.with(&then, When::Live);
            if assigned != now {
                let detail = differences(&now, &assigned);
                self.push(now.id(), Deed::Assign, detail);
            }
        }
        self.create(end, words::controller);
    }

    fn attach(&mut self, now: &Controller, then: &Controller) {
        let had = |namespace: &String| {
            let placed = self.served.placed.get(namespace);
            placed.is_some_and(|placed| placed.controllers.contains(&now.name))
        };
        let placed = self.served.placed.keys();
        let all: BTreeSet<&String> = placed.collect();
        let others = all.into_iter().filter(|n| !then.namespaces.contains(n));
        // in list order, which determines their identifiers
        let names: Vec<String> = then.namespaces.iter().chain(others).cloned().collect();
        for name in names {
            let anew = self.fate(NamespaceId::new(&name)).begins();
            let listed_now = now.namespaces.contains(&name);
            let listed_then = then.namespaces.contains(&name);
            let dropped = listed_now && !listed_then;
            let comes = if listed_then && !listed_now {
                anew || !had(&name)
            } else {
                anew && had(&name) && !dropped && !is_elsewhere(&name, then, self.end)
            };
            if comes {
                let detail = format!("to controller {}", now.name);
                let deed = Deed::Attach(ControllerId::new(&now.name));
                self.push(NamespaceId::new(&name), deed, detail);
            }
        }
    }
}

/// Whether a namespace will be in a subsystem other than the controller's, so that the controller
/// cannot have it.
fn is_elsewhere(namespace: &str, controller: &Controller, end: &Config) -> bool {
    let home = find(&end.namespace, namespace).and_then(|namespace| home(end, namespace));
    home.is_some_and(|home| home != controller.subsystem())
}

/// Description of new reactors for a controller's queues, if they change.
fn move_of(now: &Controller, then: &Controller) -> Option<String> {
    let shown = |reactors: &[usize]| match reactors {
        [] => "its own".to_owned(),
        some => some
            .iter()
            .map(usize::to_string)
            .collect::<Vec<_>>()
            .join(", "),
    };
    let (from, to) = (&now.reactors, &then.reactors);
    (from != to).then(|| format!("reactors {} -> {}", shown(from), shown(to)))
}
