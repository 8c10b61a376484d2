//! Changes of subsystems by an operator while hosts use them.
//!
//! The subsystem's reactor decides. A host may change something between a look at the subsystem and
//! a request to it; the reactor then refuses the request.

use std::collections::BTreeMap;

use anyhow::Context;
use api::Refusal;
use api::config::{Config, Controller, Range, Size, Text, Timing};
use engine::SubsystemSlot;
use nvme_spec::Status;
use reactor::message::View;
use subsystem::{Allocated, ControllerId, ControllerSet, OperatorRequest};

use super::places::{label, range_of};
use super::subsystems::id_of;
use super::{State, refuse_problems, refused};

/// A namespace of a running subsystem.
pub(super) struct Found {
    subsystem: String,
    pub(super) reactor: usize,
    pub(super) slot: SubsystemSlot,
    view: View,
    pub(super) namespace: Allocated,
}

impl Found {
    fn attached_names(&self) -> impl Iterator<Item = &str> {
        let controllers = self.view.controllers.iter();
        let attached = controllers.filter(|c| self.namespace.attached.contains(c.id));
        attached.map(|c| c.name.as_str())
    }
}

fn failed(error: anyhow::Error) -> Refusal {
    Refusal::failed(&error)
}

impl State {
    /// Finds a namespace by name, in any subsystem.
    pub(super) fn find(&self, name: &str) -> Result<Option<Found>, Refusal> {
        for live in &self.subsystems {
            let view = self.view(live).map_err(failed)?;
            let mut namespaces = view.namespaces.iter();
            if let Some(namespace) = namespaces.find(|n| label(&live.name, n) == name) {
                return Ok(Some(Found {
                    subsystem: live.name.clone(),
                    reactor: live.reactor,
                    slot: live.slot,
                    namespace: namespace.clone(),
                    view,
                }));
            }
        }
        Ok(None)
    }

    fn is_configured(&self, namespace: &str) -> bool {
        self.config.namespace.iter().any(|n| n.name == namespace)
    }

    pub(super) fn ask(
        &self,
        reactor: usize,
        slot: SubsystemSlot,
        request: OperatorRequest,
    ) -> Result<(), Refusal> {
        let mut subsystems = self.subsystems.iter();
        let subsystem = subsystems.find(|live| (live.reactor, live.slot) == (reactor, slot));
        if let Some(live) = subsystem
            && self.is_elsewhere(&live.name)
        {
            return Err(Refusal::conflict(format!(
                "another server has the media of subsystem `{}`: ask that one, or end it and attach a host here",
                live.name
            )));
        }
        let answer = self.reactors[reactor].request(slot, request);
        let answer = answer.context(
            "the change may still be applied when earlier commands have completed: check with `nvmirage ls`",
        );
        match answer.map_err(failed)? {
            Ok(_) => Ok(()),
            Err(status) => Err(refusal_of(status)),
        }
    }

    /// Creates a configured namespace in a subsystem, attached to no controller.
    fn make(&mut self, name: &str, subsystem: &str) -> Result<u32, Refusal> {
        let config = self.config.namespace.iter().find(|n| n.name == name);
        let config = config.ok_or_else(|| Refusal::not_found("namespace", name))?;
        let config = config.clone();
        self.check_space(&config)?;
        let (reactor, slot) = self.place_of(subsystem)?;
        let shared = self
            .config
            .controllers_of(subsystem)
            .any(|c| c.subsystem.is_some());
        let medium = self
            .medium_for(subsystem, &config.media, reactor)
            .map_err(failed)?;
        let wanted = self
            .wanted_namespace(&config, &[], shared)
            .map_err(failed)?;
        let mut new = wanted.namespace.restore(&medium.pool);
        let new = new
            .as_mut()
            .map_err(|error| refused(error.clone().into()))?;
        let view = self.reactors[reactor].view(slot).map_err(failed)?;
        let free = |nsid: &u32| view.namespaces.iter().all(|n| n.nsid() != *nsid);
        let nsid = (1..=subsystem::DEFAULT_NAMESPACE_LIMIT).find(free);
        let nsid = nsid.ok_or_else(|| refusal_of(Status::NAMESPACE_IDENTIFIER_UNAVAILABLE))?;
        (new.namespace.nsid, new.ana_group) = (nsid, wanted.ana_group);
        new.hosts = self.visible_to(&config);
        self.refresh_kept(subsystem).map_err(failed)?;
        self.ask(
            reactor,
            slot,
            OperatorRequest::Create(Box::new(new.clone())),
        )?;
        Ok(nsid)
    }

    fn place_of(&self, subsystem: &str) -> Result<(usize, SubsystemSlot), Refusal> {
        let live = self.live(subsystem);
        let live = live.ok_or_else(|| Refusal::not_found("subsystem", subsystem))?;
        Ok((live.reactor, live.slot))
    }

    /// Creates a namespace that lies on a pool in the pool's subsystem.
    pub(super) fn give_to_pool(&mut self, namespace: &str) -> Result<(), Refusal> {
        let config = self.config.namespace.iter().find(|n| n.name == namespace);
        let owner = config.and_then(|n| self.config.pool_owner(&n.media));
        match owner.map(str::to_owned) {
            Some(owner) => self.make(namespace, &owner).map(drop),
            None => Ok(()),
        }
    }

    /// Attaches a namespace to a controller.
    pub(super) fn attach(&mut self, name: &str, controller: &str) -> Result<(), Refusal> {
        let config = self.controller(controller)?;
        let subsystem = config.subsystem().to_owned();
        if config.vhost_user_blk_socket().is_some() {
            self.check_disk(name, controller)?;
        }
        if config.ublk_id().is_some() {
            self.check_device(name, controller)?;
            self.prepare_device(controller);
        }
        let nsid = match self.find(name)? {
            Some(found) => {
                check_attach(&found, controller, &subsystem)?;
                // One that a host has made lies on the pool, and has no name here.
                if self.is_configured(name) {
                    refuse_problems(&self.with_listed(name, controller))?;
                }
                found.namespace.nsid()
            }
            None if self.is_configured(name) => {
                refuse_problems(&self.with_listed(name, controller))?;
                self.make(name, &subsystem)?
            }
            None => return Err(Refusal::not_found("namespace", name)),
        };
        let (reactor, slot) = self.place_of(&subsystem)?;
        let view = self.reactors[reactor].view(slot).map_err(failed)?;
        let request = OperatorRequest::Attach {
            nsid,
            controllers: only(id_of(&view, controller)),
        };
        self.ask(reactor, slot, request)
    }

    fn controller(&self, name: &str) -> Result<&Controller, Refusal> {
        let found = self.config.controller.iter().find(|c| c.name == name);
        found.ok_or_else(|| Refusal::not_found("controller", name))
    }

    /// The configuration with the namespace in the controller's list.
    fn with_listed(&self, namespace: &str, controller: &str) -> Config {
        let mut next = self.config.clone();
        for config in next.controller.iter_mut().filter(|c| c.name == controller) {
            if config.single_namespace().is_some() {
                // its list may still name one that was detached
                config.namespaces = vec![namespace.to_owned()];
            } else if !config.namespaces.iter().any(|n| n == namespace) {
                config.namespaces.push(namespace.to_owned());
            }
        }
        next
    }

    /// Checks that the namespace is attached to the controller.
    pub(super) fn check_detach(&self, name: &str, controller: &str) -> Result<(), Refusal> {
        self.attachment(name, controller).map(drop)
    }

    /// A namespace that is attached to the controller.
    fn attachment(&self, name: &str, controller: &str) -> Result<Found, Refusal> {
        self.controller(controller)?;
        let found = self.find(name)?;
        if found.is_none() && !self.is_configured(name) {
            return Err(Refusal::not_found("namespace", name));
        }
        let attached = found.filter(|f| f.attached_names().any(|c| c == controller));
        attached.ok_or_else(|| {
            Refusal::conflict(format!(
                "namespace `{name}` is not attached to controller `{controller}`; `nvmirage ls` shows what is"
            ))
        })
    }

    /// Detaches a namespace from a controller.
    pub(super) fn detach(&mut self, name: &str, controller: &str) -> Result<(), Refusal> {
        let found = self.attachment(name, controller)?;
        let request = OperatorRequest::Detach {
            nsid: found.namespace.nsid(),
            controllers: only(id_of(&found.view, controller)),
        };
        self.ask(found.reactor, found.slot, request)
    }

    /// Detaches all namespaces from a deleted controller.
    pub(super) fn detach_all(&mut self, controller: &str) -> Result<(), Refusal> {
        for live in &self.subsystems {
            let view = self.view(live).map_err(failed)?;
            let Some(id) = id_of(&view, controller) else {
                continue;
            };
            for namespace in view.namespaces.iter().filter(|n| n.attached.contains(id)) {
                let request = OperatorRequest::Detach {
                    nsid: namespace.nsid(),
                    controllers: only(Some(id)),
                };
                self.ask(live.reactor, live.slot, request)?;
            }
        }
        Ok(())
    }

    /// Deletes a namespace that no controller has; its data stays on the medium.
    pub(super) fn delete_namespace(&mut self, name: &str) -> Result<(), Refusal> {
        let found = self.find(name)?;
        if found.is_none() && !self.is_configured(name) {
            return Err(Refusal::not_found("namespace", name));
        }
        if let Some(found) = found {
            let served = |c: &&str| self.controllers.iter().any(|s| s.name == *c);
            if let Some(user) = found.attached_names().find(served) {
                return Err(Refusal::conflict(format!(
                    "namespace `{name}` is in controller `{user}`: `nvmirage detach {name} {user}` first, or delete that"
                )));
            }
            let nsid = found.namespace.nsid();
            self.ask(found.reactor, found.slot, OperatorRequest::Delete { nsid })?;
        }
        for config in &mut self.config.controller {
            config.namespaces.retain(|n| n != name);
        }
        self.config.namespace.retain(|n| n.name != name);
        Ok(())
    }

    /// The timing model of a medium with changes of its parameters.
    pub(super) fn timing_with(
        &self,
        name: &str,
        changes: &BTreeMap<String, Text>,
    ) -> Result<Timing, Refusal> {
        let medium = self.config.media.iter().find(|medium| medium.name == name);
        let medium = medium.ok_or_else(|| Refusal::not_found("media", name))?;
        let Some(timing) = &medium.timing else {
            return Err(Refusal::conflict(format!(
                "medium `{name}` has no timing model: create it with one, by `create media --timing PRESET` or [media.timing]"
            )));
        };
        let size = self.medium(name).map_err(failed)?.size();
        let changed = timing.changed(changes, size);
        let changed = changed.map_err(|problems| Refusal::invalid(problems.join("; ")))?;
        Ok(changed.0)
    }

    /// Resizes a namespace; it shrinks only with `shrink`.
    pub(super) fn resize(&mut self, name: &str, size: Size, shrink: bool) -> Result<(), Refusal> {
        let Some(found) = self.find(name)? else {
            return Err(if self.is_configured(name) {
                Refusal::conflict(format!(
                    "namespace `{name}` is in no subsystem: attach it first, or delete it and create it with another range"
                ))
            } else {
                Refusal::not_found("namespace", name)
            });
        };
        self.refuse_size_of_partition(name)?;
        let namespace = &found.namespace;
        let range = self.check_size(name, namespace, size, shrink)?;
        let mut next = self.config.clone();
        for config in next.namespace.iter_mut().filter(|n| n.name == name) {
            config.range = Some(range);
        }
        refuse_problems(&next)?;
        self.check_free(&namespace.medium, range, name)?;
        self.refuse_partition(&namespace.medium, range, name)?;
        let request = OperatorRequest::Resize {
            nsid: namespace.nsid(),
            len: size.0,
        };
        self.ask(found.reactor, found.slot, request)?;
        self.config = next;
        Ok(())
    }

    /// The range of a namespace after a resize.
    fn check_size(
        &self,
        name: &str,
        namespace: &Allocated,
        size: Size,
        shrink: bool,
    ) -> Result<Range, Refusal> {
        let block = 1_u64 << namespace.namespace.lba_shift;
        if size.0 == 0 || !size.0.is_multiple_of(block) {
            return Err(Refusal::invalid(format!(
                "size = \"{size}\": namespace `{name}` has blocks of {block} bytes: write a multiple of that"
            )));
        }
        let used = namespace.namespace.blocks * block;
        if size.0 < used && !shrink {
            return Err(Refusal::conflict(format!(
                "namespace `{name}` has {}: data behind {size} would be lost; allow that with shrink=true",
                Size(used)
            )));
        }
        let medium = self.medium(&namespace.medium).map_err(failed)?;
        let start = range_of(namespace).start;
        let end = start.0.checked_add(size.0).map(Size);
        match end.filter(|end| end.0 <= medium.size()) {
            Some(end) => Ok(Range { start, end }),
            None => Err(Refusal::conflict(format!(
                "namespace `{name}` starts at {start} of medium {}, which has {}: there is no room for {size}; an enlarged file gets its new size when the server is restarted",
                namespace.medium,
                Size(medium.size())
            ))),
        }
    }

    /// Serves a controller, whether or not its subsystem is already served. `before` is the
    /// configuration without it.
    pub(super) fn add_controller(
        &mut self,
        controller: &Controller,
        before: &Config,
    ) -> Result<(), Refusal> {
        let subsystem = controller.subsystem().to_owned();
        if self.live(&subsystem).is_none() {
            self.serve_subsystem(&subsystem).map_err(refused)?;
        }
        if self.expects(controller) {
            let served = self.serve(controller).map_err(refused);
            if served.is_ok() {
                self.is_served(controller);
            } else {
                let ended = self.end_subsystem_without_controllers(&subsystem);
                ended.map_err(failed)?;
            }
            return served;
        }
        let context = || format!("controller {}", controller.name);
        let joins = self.check_joins(controller, before);
        joins.with_context(context).map_err(refused)?;
        let mut nsids = Vec::new();
        for name in &controller.namespaces {
            nsids.push(match self.find(name)? {
                Some(found) => {
                    check_attach(&found, &controller.name, &subsystem)?;
                    found.namespace.nsid()
                }
                None => self.make(name, &subsystem)?,
            });
        }
        self.serve(controller).map_err(refused)?;
        let given = self.give(controller, &subsystem, &nsids);
        if given.is_err()
            && let Some(at) = self
                .controllers
                .iter()
                .position(|c| c.name == controller.name)
        {
            self.end(at).map_err(failed)?;
        }
        given
    }

    /// Attaches exactly these namespaces to a controller that is new in its subsystem.
    fn give(
        &mut self,
        controller: &Controller,
        subsystem: &str,
        nsids: &[u32],
    ) -> Result<(), Refusal> {
        let (reactor, slot) = self.place_of(subsystem)?;
        let view = self.reactors[reactor].view(slot).map_err(failed)?;
        let controllers = only(id_of(&view, &controller.name));
        for &nsid in nsids {
            let request = OperatorRequest::Attach { nsid, controllers };
            self.ask(reactor, slot, request)?;
        }
        self.extend_kept(controller).map_err(failed)
    }
}

fn only(id: Option<ControllerId>) -> ControllerSet {
    id.into_iter().collect()
}

/// Checks that a namespace can be attached to a controller of `subsystem`.
fn check_attach(found: &Found, controller: &str, subsystem: &str) -> Result<(), Refusal> {
    let name = label(&found.subsystem, &found.namespace);
    if found.subsystem != subsystem {
        return Err(Refusal::conflict(format!(
            "namespace `{name}` is of subsystem `{}`, and controller `{controller}` of subsystem `{subsystem}`: a namespace stays in its subsystem until it is deleted",
            found.subsystem
        )));
    }
    if found.attached_names().any(|c| c == controller) {
        return Err(Refusal::conflict(format!(
            "namespace `{name}` is attached to controller `{controller}` already"
        )));
    }
    match found.attached_names().next() {
        Some(other) if !found.namespace.shared => Err(Refusal::conflict(format!(
            "namespace `{name}` is private, and controller `{other}` has it: `nvmirage detach {name} {other}` first"
        ))),
        _ => Ok(()),
    }
}

/// The error for a request that a subsystem refused.
fn refusal_of(status: Status) -> Refusal {
    match status {
        Status::INTERNAL_ERROR => Refusal::failed(&anyhow::anyhow!(
            "the change is applied, but could not be saved for a restart: see the log"
        )),
        Status::NAMESPACE_IDENTIFIER_UNAVAILABLE => Refusal::conflict(format!(
            "no identifier left in the subsystem: it has the maximum of {} namespaces; delete one first",
            subsystem::DEFAULT_NAMESPACE_LIMIT
        )),
        Status::NAMESPACE_INSUFFICIENT_CAPACITY => Refusal::conflict(
            "a host created a namespace there in the meantime; `nvmirage ls` shows the used ranges",
        ),
        Status::INVALID_NAMESPACE_OR_FORMAT => {
            Refusal::conflict("a host deleted the namespace in the meantime")
        }
        status => Refusal::conflict(format!(
            "the subsystem rejects the change: {status:?}; `nvmirage ls` shows its current state"
        )),
    }
}
