//! Dynamic controllers: one for each association of a host that comes over a network (Base 2.1,
//! 3.1.2).
//!
//! Each has the namespaces of its *entrance*, a configured controller, and a host of its own. It is
//! in no record, and its state ends when it leaves. Invariants: a dynamic controller has the
//! attachments of its entrance at any time; an identifier is free again only when every operation
//! of its last controller has ended, and is given again as late as possible.

use std::collections::{BTreeMap, BTreeSet};

use port::namespace::Namespace;

use super::{Member, OUTSTANDING_LIMIT, OUTSTANDING_LIMIT_DYNAMIC, Subsystem};
use crate::allocated::Allocated;
use crate::config::ConfigError;
use crate::record::ControllerRecord;
use crate::reservation::Host;
use crate::set::{ControllerId, DYNAMIC_IDS, MAX_DYNAMIC_CONTROLLERS};

/// The first identifier of a process. It differs from the last process's: a host that connects
/// again may still have a controller with an identifier of that one, and Linux refuses two with
/// the same.
pub(super) fn first_id(process: u64) -> u16 {
    let count = u64::from(DYNAMIC_IDS.end() - DYNAMIC_IDS.start()) + 1;
    DYNAMIC_IDS.start() + (process % count) as u16
}

fn after(id: u16) -> u16 {
    if id == *DYNAMIC_IDS.end() {
        *DYNAMIC_IDS.start()
    } else {
        id + 1
    }
}

impl Member {
    /// The controller whose attachments it has.
    pub(super) fn entrance(&self) -> ControllerId {
        self.entrance.unwrap_or(self.id)
    }

    /// Whether its host may know of a namespace for these hosts over a network, or for all.
    pub(super) fn sees(&self, hosts: Option<&[String]>) -> bool {
        let Some(hosts) = hosts.filter(|_| self.entrance.is_some()) else {
            return true;
        };
        let nqn = self.hostnqn.as_deref();
        nqn.is_some_and(|nqn| hosts.iter().any(|host| host == nqn))
    }

    pub(super) fn outstanding_limit(&self) -> usize {
        match self.entrance {
            Some(_) => OUTSTANDING_LIMIT_DYNAMIC,
            None => OUTSTANDING_LIMIT,
        }
    }
}

impl Subsystem {
    /// Adds a dynamic controller, which has the namespaces of `entrance` until it leaves
    /// ([`Subsystem::leave`]). The name is for the log.
    ///
    /// # Errors
    /// The entrance is no configured controller that is served, or there are
    /// [`MAX_DYNAMIC_CONTROLLERS`].
    pub fn join_dynamic(
        &mut self,
        entrance: ControllerId,
        name: &str,
    ) -> Result<ControllerId, ConfigError> {
        let is_served = |m: &Member| m.present && m.entrance.is_none();
        if !self.member(entrance).is_some_and(is_served) {
            return Err(ConfigError::NoEntrance(self.name.clone(), entrance.0));
        }
        let dynamic = self.members.iter().filter(|m| m.entrance.is_some());
        if dynamic.count() >= MAX_DYNAMIC_CONTROLLERS {
            return Err(ConfigError::TooManyDynamicControllers(self.name.clone()));
        }
        let id = self.take_dynamic_id();
        self.add(Member {
            entrance: Some(entrance),
            ..Member::absent(ControllerRecord::new(name, id))
        });
        self.begin_service(id);
        Ok(id)
    }

    /// The next identifier that is free: there are more than controllers.
    fn take_dynamic_id(&mut self) -> ControllerId {
        let mut id = self.next_dynamic;
        while self.member(ControllerId(id)).is_some() {
            id = after(id);
        }
        self.next_dynamic = after(id);
        ControllerId(id)
    }

    /// The controller whose attachments a controller has: of a dynamic one its entrance, else
    /// itself.
    #[must_use]
    pub fn entrance_of(&self, id: ControllerId) -> ControllerId {
        self.member(id).map_or(id, Member::entrance)
    }

    /// The NQN of the host behind a dynamic controller, which decides what it sees.
    pub fn name_host(&mut self, id: ControllerId, nqn: &str) {
        if let Some(member) = self.member_mut(id) {
            member.hostnqn = Some(nqn.into());
            self.generation += 1;
        }
    }

    /// Whether a host over a network with another NQN has this Host Identifier: it is the one that
    /// reservations mean.
    #[must_use]
    pub fn is_anothers(&self, identifier: &[u8; 16], nqn: &str) -> bool {
        let host = Host::Extended(*identifier);
        let mut same = self.members.iter().filter(|m| m.present && m.host == host);
        same.any(|m| m.hostnqn.as_deref().is_some_and(|other| other != nqn))
    }

    /// Whether the host behind a controller may know of a namespace. One over a network that has
    /// not said who it is may know of none that is for certain hosts.
    #[must_use]
    pub fn is_visible(&self, namespace: &Allocated, id: ControllerId) -> bool {
        let Some(hosts) = &namespace.hosts else {
            return true;
        };
        let member = self.member(id);
        member.is_some_and(|member| member.sees(Some(hosts)))
    }

    /// Whether a controller has a namespace attached, which its host may know of.
    #[must_use]
    pub fn is_attached(&self, namespace: &Allocated, id: ControllerId) -> bool {
        namespace.attached.contains(self.entrance_of(id)) && self.is_visible(namespace, id)
    }

    /// The namespaces that every host of an entrance may know of, as the commands of such a host
    /// find them, by ascending identifier, each with a name that no other one has: the name in the
    /// configuration, except where one with a lower identifier has that, else `nsN` for the
    /// identifier N, followed by `_` as often as the name is another one's.
    #[must_use]
    pub fn named(&self, entrance: ControllerId) -> Vec<(String, Namespace)> {
        let is_everyones =
            |n: &Allocated| n.hosts.is_none() && n.attached.contains(self.entrance_of(entrance));
        let host = Host::Anonymous(entrance);
        let table = self.directory.table(entrance, is_everyones, host);
        let mut taken = BTreeSet::new();
        let mut configured = BTreeMap::new();
        for namespace in table.iter() {
            let name = self.directory.get(namespace.nsid);
            let name = name.and_then(|namespace| namespace.name.clone());
            if let Some(name) = name.filter(|name| taken.insert(name.clone())) {
                configured.insert(namespace.nsid, name);
            }
        }
        let mut named = |namespace: &Namespace| {
            let name = configured.remove(&namespace.nsid).unwrap_or_else(|| {
                let mut name = format!("ns{}", namespace.nsid);
                while !taken.insert(name.clone()) {
                    name.push('_');
                }
                name
            });
            (name, namespace.clone())
        };
        table.iter().map(&mut named).collect()
    }

    /// Forgets a dynamic controller that has left, as far as that is possible: its operations go
    /// on, and its identifier and its rights are needed until they have ended.
    pub(super) fn end_dynamic(&mut self, id: ControllerId) {
        let left = |m: &&Member| !m.present && m.entrance.is_some();
        let Some(member) = self.member(id).filter(left) else {
            return;
        };
        let is_over = member.outstanding == 0;
        self.forget_host(Host::Anonymous(id));
        if is_over {
            self.members.retain(|m| m.id != id);
        }
    }
}
