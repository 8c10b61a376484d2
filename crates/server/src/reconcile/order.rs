//! The steps in an order that works: users release an object before it is deleted, and get new
//! objects last.

use std::collections::{BTreeMap, BTreeSet};

use api::config::object::{Object as Keys, When};
use api::config::{Config, Controller, Size};

use super::Actual;
use super::id::{ControllerId, Identified, MediumId, NamespaceId, ObjectId};
use super::inventory::find;
use super::outcome::{Growth, Outcome, growth, home};
use super::step::{Object, Planned, Step};
use super::unfinished::Unfinished;
use super::words::{self, differences};

struct Steps<'a> {
    served: &'a Actual,
    end: &'a Config,
    outcomes: &'a BTreeMap<ObjectId, Outcome>,
    /// Namespaces that recreated controllers get, by controller.
    kept: BTreeMap<ControllerId, BTreeSet<String>>,
    steps: Vec<Planned>,
}

/// The steps from the `served` state to the `end`, and what they take away for a time. Objects
/// without an outcome stay as they are.
pub(super) fn steps(
    served: &Actual,
    end: &Config,
    outcomes: &BTreeMap<ObjectId, Outcome>,
) -> (Vec<Planned>, Unfinished) {
    let mut all = Steps {
        served,
        end,
        outcomes,
        kept: kept(served, end, outcomes),
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
    let unfinished = all.unfinished();
    (all.steps, unfinished)
}

/// The namespaces that recreated controllers get: their current ones, listed or not, without those
/// removed from the list, and with those added to it. A controller that an earlier plan deleted and
/// has not created again is a recreated one.
fn kept(
    served: &Actual,
    end: &Config,
    outcomes: &BTreeMap<ObjectId, Outcome>,
) -> BTreeMap<ControllerId, BTreeSet<String>> {
    let unfinished = &served.unfinished;
    let recreated = end.controller.iter().filter_map(|then| {
        let name = &then.name;
        let now = match outcomes.get(&then.id())? {
            Outcome::Recreate(_) => find(&served.config.controller, name)?,
            Outcome::Create if unfinished.controllers.contains_key(name) => {
                find(&served.desired.controller, name)?
            }
            _ => return None,
        };
        Some((now, then))
    });
    let all = recreated.map(|(now, then)| {
        let has = |namespace: &String| {
            let placed = served.placed.get(namespace);
            let placed = placed.filter(|placed| placed.controllers.contains(&now.name));
            let owed = unfinished.owes(namespace, &now.name);
            let here = placed.is_some_and(|placed| placed.subsystem == then.subsystem());
            (owed || placed.is_some()) && (owed || here || then.namespaces.contains(namespace))
        };
        let stays = |namespace: &&String| {
            let outcome = outcomes.get(&NamespaceId::new(namespace).into());
            let is_there = match outcome {
                Some(outcome) => *outcome != Outcome::Delete,
                // one that a host created, or that is neither served nor wanted
                None => served.placed.contains_key(*namespace),
            };
            let dropped =
                now.namespaces.contains(namespace) && !then.namespaces.contains(namespace);
            is_there && !dropped && !is_elsewhere(namespace, then, end)
        };
        let owed = unfinished.controllers.get(&now.name);
        let had = served.placed.keys().chain(owed.into_iter().flatten());
        let had = had.filter(|namespace| has(namespace)).filter(stays);
        let new = then.namespaces.iter();
        let new = new.filter(|name| !lists(served, now, name));
        let names = had.chain(new).cloned();
        (ControllerId::new(&now.name), names.collect())
    });
    all.collect()
}

impl Steps<'_> {
    fn outcome(&self, id: impl Into<ObjectId>) -> &Outcome {
        let outcome = self.outcomes.get(&id.into());
        outcome.unwrap_or(&Outcome::Same)
    }

    fn push(&mut self, step: Step, detail: String) {
        self.steps.push(Planned { step, detail });
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
                let goes_on = goes_on.filter(|_| !self.outcome(ControllerId::new(user)).ends());
                let dropped = goes_on.is_some_and(|then| {
                    now.namespaces.contains(namespace) && !then.namespaces.contains(namespace)
                });
                if dropped || self.outcome(NamespaceId::new(namespace)).ends() {
                    let detail = format!("from controller {user}");
                    let (namespace, user) = (NamespaceId::new(namespace), ControllerId::new(user));
                    self.push(Step::Detach(namespace, user), detail);
                }
            }
        }
    }

    fn delete<T: Identified>(&mut self, now: &[T]) {
        for one in now {
            let detail = match self.outcome(one.id()) {
                Outcome::Delete => String::new(),
                Outcome::Recreate(why) => format!("to be recreated: {why}"),
                _ => continue,
            };
            self.push(Step::Delete(one.id()), detail);
        }
    }

    /// Creates the new objects of a kind, with a description.
    fn create<T: Identified + Into<Object>>(&mut self, end: &[T], what: fn(&T) -> String) {
        for one in end {
            if self.outcome(one.id()).begins() {
                self.push(Step::Create(one.clone().into()), what(one));
            }
        }
    }

    /// The objects of a kind that change at run time, before and after.
    fn changing<T: Identified>(&self, now: &[T], end: &[T]) -> Vec<(T, T)> {
        let changing = now.iter().filter_map(|one| {
            let then = find(end, one.name())?;
            let changes = *self.outcome(one.id()) == Outcome::Change;
            changes.then(|| (one.clone(), then.clone()))
        });
        changing.collect()
    }

    fn tenants(&mut self) {
        let end = &self.end.tenant;
        for (now, then) in self.changing(&self.served.config.tenant, end) {
            let detail = differences(&now, &then);
            self.push(Step::Assign(then.into()), detail);
        }
        self.create(end, words::tenant);
    }

    fn media(&mut self) {
        let end = &self.end.media;
        for (now, then) in self.changing(&self.served.config.media, end) {
            let detail = differences(&now, &then);
            if let Some(timing) = then.timing {
                let medium = MediumId::new(&now.name);
                self.push(Step::Retune(medium, Box::new(timing)), detail);
            }
        }
        self.create(end, words::medium);
    }

    fn grow(&mut self) {
        let end = &self.end.namespace;
        for (now, then) in self.changing(&self.served.config.namespace, end) {
            if let Growth::Grows(range) = growth(&now, &then, self.served) {
                let size = Size(range.len());
                let detail = format!("{size} from now on");
                self.push(Step::Resize(NamespaceId::new(&now.name), size), detail);
            }
        }
    }

    fn namespaces(&mut self) {
        let end = &self.end.namespace;
        for (now, then) in self.changing(&self.served.config.namespace, end) {
            let assigned = now.with(&then, When::Live);
            if assigned != now {
                let detail = differences(&now, &assigned);
                self.push(Step::Assign(assigned.into()), detail);
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
            let then = then.filter(|_| !self.outcome(ControllerId::new(&controller.name)).ends());
            if let Some(then) = then {
                self.attach(controller, then);
            }
        }
        for (now, then) in self.changing(now, end) {
            let moves = move_of(&now, &then);
            if let Some(detail) = moves {
                let controller = ControllerId::new(&now.name);
                self.push(Step::Move(controller, then.reactors.clone()), detail);
            }
            let assigned = now.with(&then, When::Live);
            if assigned != now {
                let detail = differences(&now, &assigned);
                self.push(Step::Assign(assigned.into()), detail);
            }
        }
        for one in end {
            if !self.outcome(one.id()).begins() {
                continue;
            }
            let step = match self.kept.get(&ControllerId::new(&one.name)) {
                Some(kept) => {
                    let kept = kept.iter().map(|name| NamespaceId::new(name));
                    Step::Restore(Box::new(one.clone()), kept.collect())
                }
                None => Step::Create(one.clone().into()),
            };
            self.push(step, words::controller(one));
        }
    }

    fn attach(&mut self, now: &Controller, then: &Controller) {
        let unfinished = &self.served.unfinished;
        let has = |namespace: &String| {
            let placed = self.served.placed.get(namespace);
            placed.is_some_and(|placed| placed.controllers.contains(&now.name))
        };
        let owed = unfinished.controllers.get(&now.name);
        let all = self.served.placed.keys().chain(owed.into_iter().flatten());
        let all: BTreeSet<&String> = all.collect();
        let others = all.into_iter().filter(|n| !then.namespaces.contains(n));
        // in list order, which determines their identifiers
        let names: Vec<String> = then.namespaces.iter().chain(others).cloned().collect();
        for name in names {
            let anew = self.outcome(NamespaceId::new(&name)).begins();
            let is_there = find(&self.end.namespace, &name).is_some()
                || self.served.placed.contains_key(&name);
            let listed_now = lists(self.served, now, &name);
            let listed_then = then.namespaces.contains(&name);
            let dropped = listed_now && !listed_then;
            let owed = unfinished.owes(&name, &now.name);
            let comes = if listed_then && !listed_now {
                anew || !has(&name)
            } else {
                let returns = (anew && has(&name)) || (owed && (anew || !has(&name)));
                returns && is_there && !dropped && !is_elsewhere(&name, then, self.end)
            };
            if comes {
                let detail = format!("to controller {}", now.name);
                let (namespace, user) = (NamespaceId::new(&name), ControllerId::new(&now.name));
                self.push(Step::Attach(namespace, user), detail);
            }
        }
    }

    /// Objects that the steps take away for a time, with the rest of an earlier plan.
    fn unfinished(&self) -> Unfinished {
        let before = &self.served.unfinished;
        let mut all = Unfinished::default();
        for (id, outcome) in self.outcomes {
            let is_recreated = matches!(outcome, Outcome::Recreate(_));
            match id {
                ObjectId::Media(id) if is_recreated || before.media.contains(id.as_str()) => {
                    all.media.insert(id.as_str().to_owned());
                }
                ObjectId::Namespace(id)
                    if is_recreated
                        || (outcome.begins() && before.namespaces.contains(id.as_str())) =>
                {
                    all.namespaces.insert(id.as_str().to_owned());
                    if !is_recreated {
                        all.deleted.insert(id.as_str().to_owned());
                    }
                }
                _ => {}
            }
        }
        for (controller, namespaces) in &self.kept {
            let controller = controller.as_str().to_owned();
            all.controllers.insert(controller, namespaces.clone());
        }
        for planned in &self.steps {
            if let Step::Attach(namespace, controller) = &planned.step {
                let (namespace, controller) = (namespace.as_str(), controller.as_str());
                // of a namespace that stays, the list tells a restart
                if all.namespaces.contains(namespace) || before.owes(namespace, controller) {
                    let owed = all.controllers.entry(controller.to_owned());
                    owed.or_default().insert(namespace.to_owned());
                }
            }
        }
        all
    }
}

/// Whether a controller lists a namespace. A namespace that an earlier plan is recreating left the
/// list when it was deleted, and is still on it.
fn lists(served: &Actual, controller: &Controller, namespace: &String) -> bool {
    let before = find(&served.desired.controller, &controller.name);
    let was_listed = before.is_some_and(|before| before.namespaces.contains(namespace));
    let is_recreated = served.unfinished.namespaces.contains(namespace);
    controller.namespaces.contains(namespace) || (is_recreated && was_listed)
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
