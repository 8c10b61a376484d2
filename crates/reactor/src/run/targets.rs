//! Hosts over NVMe/TCP, and what they share with NBD clients and front ends: each gets a controller
//! when it comes, which is removed after it has left.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Context;
use controller::ControllerConfig;
use controller::config::{DoorbellMode, Fabrics, Interface};
use controller::counters::Counted;
use engine::tenants::TenantId;
use engine::{ControllerSlot, EngineId};
use port::time::Time;
use transport::nvme_tcp::{
    Access, Arrival, Association, DiscoveryLog, Farewell, Proof, Refusal, Tls,
};

use super::Reactor;
use crate::answer::answer;
use crate::hosted::association::Attached;
use crate::hosted::entrance::Roster;
use crate::hosted::link::{Cause, Link};
use crate::hosted::target::Target;
use crate::hosted::{Front, Hosted};
use crate::leaving::Whose;
use crate::message::Message;
use crate::network::{Done, NetworkCounts};
use crate::presence::HostView;
use crate::tenants::TenantNews;

/// A connection that is refused, and the name of the reason.
type Refused = (Farewell, &'static str);

fn refuse(arrival: Arrival, why: Refusal, now: Time) -> Refused {
    (arrival.refuse(why, now), why.name())
}

impl Reactor {
    /// Does what connections of an entrance have asked for.
    #[inline]
    pub(super) fn take_arrivals(&mut self, index: usize) {
        let hosted = self.hosted.get(index).and_then(Option::as_ref);
        if hosted.is_some_and(Hosted::is_entrance) {
            self.take_connects(index);
            self.take_clients(index);
            self.take_front_ends(index);
        }
    }

    /// Does what connections of a target have asked for with Connect.
    fn take_connects(&mut self, index: usize) {
        while let Some((arrival, from)) = self.target_mut(index).and_then(Target::take_arrival) {
            let now = self.clock.now();
            if arrival.is_discovery() {
                self.begin_discovery(index, arrival, now);
                continue;
            }
            let refused = if arrival.qid() == 0 {
                self.associate(index, arrival, from, now)
            } else {
                self.join(index, arrival, now)
            };
            if let Some((farewell, name)) = refused {
                if let Some(roster) = self.roster_mut(index) {
                    roster.counts_mut().refuse(name);
                }
                self.leaving.add(farewell, Whose::Stranger, now);
            }
        }
    }

    fn begin_discovery(&mut self, index: usize, arrival: Arrival, now: Time) {
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        if let Some(target) = hosted.and_then(Hosted::target_mut) {
            target.begin_discovery(arrival, &self.discovery, now);
        }
    }

    /// The server has another list of subsystems that hosts can reach over a network.
    pub(super) fn set_discovery(&mut self, log: Arc<DiscoveryLog>) {
        self.discovery = log;
        let now = self.clock.now();
        for target in self.hosted.iter_mut().flatten() {
            if let Some(target) = target.target_mut() {
                target.set_log(&self.discovery, now);
            }
        }
        for index in 0..self.hosted.len() {
            self.take_leaving(index);
        }
    }

    /// Takes the connections that are to close, and what an association has done that has ended.
    pub(super) fn take_leaving(&mut self, index: usize) {
        let Some(hosted) = self.hosted.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let is_host = hosted
            .association_mut()
            .is_some_and(|attached| attached.is_host());
        let whose = if is_host {
            Whose::Host
        } else {
            Whose::Stranger
        };
        let slot = hosted.slot();
        let recalls = hosted.association_mut().map(Attached::take_recalls);
        for farewell in hosted.take_leaving() {
            // The socket of a host's queue was watched.
            let _ = self.poller.remove(&farewell);
            self.leaving.add(farewell, whose, self.clock.now());
        }
        self.recall(slot, recalls.unwrap_or_default());
        let Some(attached) = self
            .hosted
            .get_mut(index)
            .and_then(Option::as_mut)
            .and_then(Hosted::association_mut)
        else {
            return;
        };
        let target = attached.target();
        if let Some((done, end)) = attached.take_done() {
            let unproved = attached.take_unproved();
            let now = self.clock.now();
            if let Some(roster) = self.roster_mut(target.0) {
                roster.counts_mut().end(&done, end);
                if matches!(done, Done::Nbd(_)) {
                    // NBD clients do not come again when they are refused, as hosts do.
                    roster.vacate(slot);
                }
            }
            self.hold_back_end(target);
            if let (Some(target), Some(host)) = (self.target_mut(target.0), unproved) {
                target.tell_of_unproved(&host, end, now);
            }
        }
    }

    pub(super) fn target_mut(&mut self, index: usize) -> Option<&mut Target> {
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        hosted.and_then(Hosted::target_mut)
    }

    /// The hosts of an entrance.
    pub(super) fn roster_mut(&mut self, index: usize) -> Option<&mut Roster> {
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        hosted.and_then(Hosted::roster_mut)
    }

    /// The controllers of the hosts of an entrance.
    pub(super) fn hosts_of_entrance(&self, index: usize) -> Vec<ControllerSlot> {
        let hosted = self.hosted.get(index).and_then(Option::as_ref);
        let roster = hosted.and_then(Hosted::roster);
        roster.map_or_else(Vec::new, |roster| roster.associations().to_vec())
    }

    /// A host's first connection: it gets a controller.
    fn associate(
        &mut self,
        index: usize,
        arrival: Arrival,
        from: SocketAddr,
        now: Time,
    ) -> Option<Refused> {
        let roster = self.roster_mut(index)?;
        if !roster.has_room(arrival.is_asked()) {
            return Some(refuse(arrival, Refusal::Busy, now));
        }
        let (host, subsystem) = (arrival.host(), roster.subsystem());
        let subsystem = self.engine.subsystem_mut(subsystem);
        if subsystem.is_some_and(|subsystem| subsystem.is_anothers(&host.id, &host.nqn)) {
            return Some(refuse(arrival, Refusal::Identifier, now));
        }
        let made = self.make_controller(index);
        let slot = match made {
            Ok(slot) => slot,
            Err(error) => {
                tracing::error!("a host over NVMe/TCP gets no controller: {error:#}");
                return Some(refuse(arrival, Refusal::Busy, now));
            }
        };
        let controller = self.engine.controller_mut(slot)?;
        let host = HostView {
            cntlid: controller.id().0,
            nqn: arrival.host().nqn.clone(),
            export: None,
            address: Some(from),
            proof: Proof::default(),
            is_secured: arrival.is_secured(),
            io_queues: 0,
            keep_alive_ms: arrival.kato_ms(),
            connected: now,
        };
        let association = match Association::new(arrival, controller, now) {
            Ok(association) => association,
            Err(error) => {
                tracing::error!("a host over NVMe/TCP gets no memory for its queues: {error}");
                self.engine.remove_controller(slot);
                return None;
            }
        };
        let over = self.engine.spread_of(ControllerSlot(index));
        self.engine.spread(slot, over);
        self.attach(index, slot, Link::Tcp(Box::new(association)), host, now);
        None
    }

    /// The controller in this slot, which was just made, serves a host from now on.
    pub(super) fn attach(
        &mut self,
        index: usize,
        slot: ControllerSlot,
        link: Link,
        host: HostView,
        now: Time,
    ) {
        let Some(entrance) = self.hosted.get_mut(index).and_then(Option::as_mut) else {
            return;
        };
        let (watching, at) = (entrance.watching.clone(), entrance.slot());
        let Some(roster) = entrance.roster_mut() else {
            return;
        };
        roster.associated(slot);
        let is_front_end = matches!(link, Link::Vhost(_) | Link::Ublk(_));
        let attached = Attached::new(roster, at, slot, link, host, now);
        let tenant = roster.tenant();
        self.engine.watch_commands(slot, Some(watching.clone()));
        self.engine.assign_controller(self.id, slot, tenant);
        let front = Front::Association(Box::new(attached));
        self.place(Hosted::new(slot, front, watching, Arc::default()));
        if is_front_end {
            self.front_ends.add(slot.0);
        } else {
            self.associations.push(slot.0);
        }
        self.reports.repeat();
        self.admit(slot.0, now);
        self.poll_hosted(slot.0, now, Hosted::poll);
    }

    /// Has one whose host has proved what it has to, if anything, be a host of its entrance. Where
    /// others have come first, it ends.
    #[inline]
    pub(super) fn admit(&mut self, index: usize, now: Time) {
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        let attached = hosted.and_then(Hosted::association_mut);
        let Some(attached) = attached.filter(|attached| attached.is_to_enter()) else {
            return;
        };
        let at = attached.target();
        let Some(roster) = self.roster_mut(at.0) else {
            return;
        };
        let is_admitted = roster.admit(ControllerSlot(index));
        let is_told = is_admitted && roster.tells_of_host(now);
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        let controller = self.engine.controller_mut(ControllerSlot(index));
        if let (Some(attached), Some(controller)) =
            (hosted.and_then(Hosted::association_mut), controller)
        {
            if is_admitted {
                attached.enter(is_told);
            } else {
                attached.end(controller, Cause::TooMany, now);
            }
        }
    }

    /// The configuration of the hosts' controllers of the entrance in that slot, which has this one
    /// itself.
    pub(super) fn template_of(
        &mut self,
        slot: ControllerSlot,
        config: ControllerConfig,
        in_capsule: u32,
    ) -> anyhow::Result<ControllerConfig> {
        let entrance = self.engine.controller_mut(slot);
        let entrance = entrance.context("it was just added")?.id();
        Ok(ControllerConfig {
            interface: Interface::Fabrics(Fabrics {
                entrance,
                in_capsule,
            }),
            doorbells: DoorbellMode::Trapped,
            ..config
        })
    }

    /// A controller for one more host of an entrance.
    pub(super) fn make_controller(&mut self, index: usize) -> anyhow::Result<ControllerSlot> {
        let roster = self.roster_mut(index).context("the entrance is gone")?;
        let (config, subsystem) = (roster.next_controller(), roster.subsystem());
        let slot = self.begin(config, subsystem)?;
        let controller = self.engine.controller_mut(slot);
        let controller = controller.context("it was just added")?;
        controller.set_reactor_counters(self.counters.clone());
        Ok(slot)
    }

    /// A connection cannot be served that was to become a host's. The log has as many of them as of
    /// hosts that attach.
    pub(super) fn tell_of_lack(&mut self, index: usize, who: &str, what: &str, now: Time) {
        if let Some(roster) = self.roster_mut(index)
            && roster.tells_of_host(now)
        {
            tracing::error!(controller = roster.name(), "{who} gets {what}");
        }
    }

    /// A connection for an I/O queue of a host that has a controller.
    fn join(&mut self, index: usize, arrival: Arrival, now: Time) -> Option<Refused> {
        let slots = self.hosts_of_entrance(index);
        let is_meant = |slot: &ControllerSlot| {
            let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
            let attached = hosted.and_then(Hosted::association_mut);
            attached.is_some_and(|attached| attached.serves(arrival.cntlid()))
        };
        let found = slots.into_iter().find(is_meant);
        let hosted = found.and_then(|slot| self.hosted[slot.0].as_mut());
        let attached = hosted.and_then(Hosted::association_mut);
        let controller = found.and_then(|slot| self.engine.controller_mut(slot));
        let (Some(slot), Some(attached), Some(controller)) = (found, attached, controller) else {
            return Some(refuse(arrival, Refusal::Controller, now));
        };
        attached.join(arrival, controller, now);
        self.poll_hosted(slot.0, now, Hosted::poll);
        None
    }

    /// Serves the hosts over NVMe/TCP and the NBD clients: what their controllers have completed is
    /// sent, and the sockets of hosts that have sent something lately are read. True if it did
    /// something.
    #[inline]
    pub(super) fn serve_associations(&mut self, now: Time, posted: bool) -> bool {
        if self.associations.is_empty() {
            return false;
        }
        self.serve_each(now, posted)
    }

    fn serve_each(&mut self, now: Time, posted: bool) -> bool {
        let mut worked = false;
        // A host that leaves is no longer in the list: one that is skipped has the next turn.
        let mut at = 0;
        while let Some(index) = self.associations.get(at).copied() {
            at += 1;
            let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
            let attached = hosted.and_then(Hosted::association_mut);
            let Some(attached) = attached else {
                continue;
            };
            if attached.is_nbd()
                && let Some(controller) = self.engine.peek_controller(ControllerSlot(index))
                && !attached.is_valid(controller)
            {
                worked |= self.poll_hosted(index, now, Hosted::poll);
            } else if attached.is_hot(now) {
                worked |= self.poll_hosted(index, now, Hosted::poll_hot);
            } else if posted
                && attached.has_posted()
                && let Some(controller) = self.engine.controller_mut(ControllerSlot(index))
            {
                worked |= attached.drain(controller, now);
                self.note_transition(index);
            }
        }
        worked
    }

    /// Has other hosts be allowed at a target.
    pub(super) fn set_access(&mut self, index: usize, access: Access, tls: Option<Tls>) {
        self.end_associations(index, |attached| !attached.may_stay(&access));
        if let Some(target) = self.target_mut(index) {
            target.set_access(access, tls);
        }
    }

    /// Ends the hosts of an entrance that are chosen, for the operator; returns the identifiers of
    /// those that had not ended before.
    pub(super) fn end_associations(
        &mut self,
        index: usize,
        is_chosen: impl Fn(&Attached) -> bool,
    ) -> Vec<u16> {
        let mut ended = Vec::new();
        for slot in self.hosts_of_entrance(index) {
            let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
            let attached = hosted.and_then(Hosted::association_mut);
            if let (Some(attached), Some(controller)) = (attached, self.engine.controller_mut(slot))
                && !attached.has_ended()
                && is_chosen(attached)
            {
                attached.end(controller, Cause::Removed, self.clock.now());
                ended.push(attached.cntlid());
                self.poll_hosted(slot.0, self.clock.now(), Hosted::poll);
            }
        }
        ended
    }

    /// Ends all hosts of entrances and all other connections, and accepts none until
    /// [`Self::open_targets`], also at entrances that are added meanwhile.
    pub(super) fn disconnect_all(&mut self) {
        self.is_closed = true;
        for index in 0..self.hosted.len() {
            let now = self.clock.now();
            if let Some(hosted) = &mut self.hosted[index] {
                hosted.close(now, &self.poller);
            }
            // The kernel keeps what a block device has not ended for the next process.
            self.end_associations(index, |host| !host.is_block_device());
            self.take_leaving(index);
        }
    }

    /// Accepts connections again, after [`Self::disconnect_all`].
    pub(super) fn open_targets(&mut self) {
        self.is_closed = false;
        for hosted in self.hosted.iter_mut().flatten() {
            hosted.open(&self.poller);
        }
    }

    /// The controllers of an entrance's hosts, with their identifiers.
    pub(super) fn associations_of(&mut self, slot: ControllerSlot) -> Vec<(u16, ControllerSlot)> {
        let mut all = Vec::new();
        for slot in self.hosts_of_entrance(slot.0) {
            let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
            let attached = hosted.and_then(Hosted::association_mut);
            if let Some(attached) = attached.filter(|attached| !attached.has_ended()) {
                all.push((attached.cntlid(), slot));
            }
        }
        all
    }

    /// Counters of the hosts of each entrance.
    pub(super) fn network_counts(&mut self) -> Vec<(ControllerSlot, NetworkCounts)> {
        let mut all = Vec::new();
        for index in 0..self.hosted.len() {
            let Some(roster) = self.roster_mut(index) else {
                continue;
            };
            let mut counts = roster.counts().clone();
            for slot in self.hosts_of_entrance(index) {
                let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
                let attached = hosted.and_then(Hosted::association_mut);
                if let Some(done) = attached.and_then(|attached| attached.counters()) {
                    counts.add(&done);
                }
            }
            all.push((ControllerSlot(index), counts));
        }
        all
    }

    /// The controller of a host that has left is gone.
    pub(super) fn dissociated(
        &mut self,
        slot: ControllerSlot,
        target: ControllerSlot,
        counted: &Counted,
    ) {
        self.associations.retain(|index| *index != slot.0);
        self.front_ends.remove(slot.0);
        self.assign_association(slot, None);
        self.told.retain(|(told, _)| *told != slot);
        if let Some(roster) = self.roster_mut(target.0) {
            roster.dissociated(slot, counted);
        }
        self.release_back_end(target);
        self.note_transition(target.0);
    }

    /// Sets the reactors for queues that hosts of a controller make from now on: of a target those
    /// of all its hosts. The queues of NBD clients and front ends stay here.
    pub(super) fn spread(&mut self, slot: ControllerSlot, over: Vec<EngineId>) {
        let hosts = self
            .target_mut(slot.0)
            .map(|it| it.roster().associations().to_vec());
        for host in hosts.unwrap_or_default() {
            self.engine.spread(host, over.clone());
        }
        self.engine.spread(slot, over);
    }

    /// Whose the commands of a host's controller are: also on the reactors that its lanes visit.
    fn assign_association(&mut self, slot: ControllerSlot, tenant: Option<TenantId>) {
        self.engine.assign_controller(self.id, slot, tenant);
        for to in self.engine.hosts_of(slot) {
            self.note_told(slot, to);
        }
        let told = self.told.iter().filter(|(told, _)| *told == slot);
        for to in told.map(|(_, to)| *to).collect::<Vec<_>>() {
            self.tell_tenant(slot, to, tenant);
        }
    }

    /// Before a lane of a host's controller goes there: whose its commands are.
    pub(super) fn introduce(&mut self, slot: ControllerSlot, to: EngineId) {
        let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
        let attached = hosted.and_then(Hosted::association_mut);
        let target = attached.map(|attached| attached.target());
        let tenant = target.and_then(|at| self.roster_mut(at.0)?.tenant());
        if tenant.is_some() && self.note_told(slot, to) {
            self.tell_tenant(slot, to, tenant);
        }
    }

    /// That reactor knows whose the commands of a host's controller are. Whether that is new.
    fn note_told(&mut self, slot: ControllerSlot, to: EngineId) -> bool {
        let is_new = !self.told.contains(&(slot, to));
        if is_new {
            self.told.push((slot, to));
        }
        is_new
    }

    fn tell_tenant(&mut self, slot: ControllerSlot, to: EngineId, tenant: Option<TenantId>) {
        // No one waits for the answer.
        let (answer, _) = answer();
        let news = vec![TenantNews::Controller(self.id, slot, tenant)];
        self.late.push_back((to, Message::Tenants(news, answer)));
    }

    /// Applies an update of tenants: an entrance's is that of its hosts' controllers.
    pub(super) fn tell_tenants(&mut self, news: TenantNews) {
        if let TenantNews::Controller(home, slot, tenant) = &news
            && *home == self.id
            && let Some(roster) = self.roster_mut(slot.0)
        {
            let tenant = *tenant;
            roster.set_tenant(tenant);
            for slot in self.hosts_of_entrance(slot.0) {
                self.assign_association(slot, tenant);
            }
        }
        news.tell(&mut self.engine);
    }
}
