//! The controller of a host over NVMe/TCP, of an NBD client, of a front end of vhost-user-blk, or
//! of a block device: it exists for as long as the host's association, connection or device does.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use controller::Controller;
use engine::ControllerSlot;
use port::time::Time;
use transport::nvme_tcp::{Access, Arrival, Association, Branch, End, Farewell, Proof};

use super::entrance::Roster;
use super::link::{Cause, Ended, Link};
use crate::network::Done;
use crate::poller::{Interest, Poller, Source};
use crate::presence::{HostView, Presence};

/// Time after the last bytes of a host or to it in which more are likely: the sockets of such
/// queues are read in each turn, and not only when the poller reports them.
pub(crate) const HOT_NS: u64 = 50_000;

/// See the module.
#[derive(Debug)]
pub(crate) struct Attached {
    /// Name of the entrance, and its slot.
    name: String,
    target: ControllerSlot,
    slot: ControllerSlot,
    cntlid: u16,
    /// Name of the namespace that it has, where it has one only.
    export: Option<String>,
    /// Its entry for the list of hosts until it is in the list: when it has proved what it has to.
    pending: Option<HostView>,
    /// The log tells of its beginning and its end.
    is_told: bool,
    presence: Arc<Presence>,
    /// `None` once it has ended: its controller is removed when no command is in flight.
    link: Option<Link>,
    /// Connections that are to close: all of them after the end.
    leaving: Vec<Farewell>,
    /// Its counters and the name of its end, after the end.
    done: Option<(Done, &'static str)>,
    /// Queues that are to come back from other reactors.
    recalls: Vec<u16>,
    /// Its queues here are to be looked at: the lanes of some may be on other reactors.
    pub(crate) is_to_place: bool,
    /// Version of its connections that the poller has.
    watched: u64,
    /// How many openings of it were seen.
    openings: u64,
    /// When it did something last.
    worked: Time,
    /// It has done something since it was polled: there may be more.
    has_more: bool,
    /// It had I/O commands in flight when it did nothing last.
    has_io: bool,
    /// When it must be polled although nothing happens, as of its last poll.
    due: Option<Time>,
    /// The driver of this front end notifies: since it was polled last, it was asked to.
    is_armed: bool,
    /// It is among the front ends that the reactor looks at without an event.
    is_listed: bool,
}

impl Attached {
    pub(crate) fn new(
        entrance: &Roster,
        target: ControllerSlot,
        slot: ControllerSlot,
        link: Link,
        host: HostView,
        now: Time,
    ) -> Self {
        let (name, presence) = (entrance.name().to_owned(), entrance.presence().clone());
        Attached {
            name,
            target,
            slot,
            cntlid: host.cntlid,
            export: host.export.clone(),
            pending: Some(host),
            is_told: false,
            presence,
            link: Some(link),
            leaving: Vec::new(),
            done: None,
            recalls: Vec::new(),
            is_to_place: false,
            watched: u64::MAX,
            openings: u64::MAX,
            worked: now,
            has_more: true,
            has_io: false,
            due: Some(now),
            is_armed: false,
            is_listed: false,
        }
    }

    /// Identifier of its controller.
    pub(crate) fn cntlid(&self) -> u16 {
        self.cntlid
    }

    /// Slot of the entrance.
    pub(crate) fn target(&self) -> ControllerSlot {
        self.target
    }

    /// Whether it is a host's: it has proved what it had to.
    pub(crate) fn is_host(&self) -> bool {
        self.pending.is_none()
    }

    /// Whether it has become a host, and has not entered the list of hosts.
    #[inline]
    pub(crate) fn is_to_enter(&self) -> bool {
        let proof = self.link.as_ref().map(Link::proof);
        // One that has made a key of TLS becomes one when it comes with that.
        let is_none = matches!(proof, None | Some(Proof::Pending | Proof::Concatenated));
        self.pending.is_some() && !is_none
    }

    /// It is a host from now on: for the list of hosts, and for the log where that tells of it.
    pub(crate) fn enter(&mut self, is_told: bool) {
        let (Some(host), Some(link)) = (self.pending.take(), &self.link) else {
            return;
        };
        self.is_told = is_told;
        if is_told {
            tracing::info!(
                controller = self.name,
                host = (!host.nqn.is_empty()).then_some(&host.nqn),
                export = host.export,
                from = host.address.map(tracing::field::display),
                cntlid = host.cntlid,
                "host attached"
            );
        }
        let proof = link.proof();
        let host = HostView { proof, ..host };
        self.presence.enter_association(&self.name, host);
    }
}

impl Attached {
    /// Watches its connections.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        let Some(link) = &self.link else {
            return Ok(());
        };
        if self.watched == link.changes() {
            return Ok(());
        }
        self.watched = link.changes();
        let source = Source::Controller(self.slot.0);
        let watch = |connection: BorrowedFd<'_>, output| {
            let interest = Interest {
                input: true,
                output,
            };
            poller.set(connection, source, interest)
        };
        let watch_only = |(connection, [input, output]): (BorrowedFd<'_>, [bool; 2])| {
            poller.set(connection, source, Interest { input, output })
        };
        match link {
            Link::Tcp(association) => {
                self.is_to_place |= self.openings != association.openings();
                self.openings = association.openings();
                let io_queues = u16::try_from(association.queues()).unwrap_or(u16::MAX);
                self.presence.change_association(self.cntlid, |host| {
                    (host.io_queues, host.proof) = (io_queues, association.proof());
                });
                let mut all = association.connections();
                all.try_for_each(|(_, connection, output)| watch(connection, output))
            }
            Link::Nbd(client) => watch_only(client.connection()),
            Link::Vhost(session) => {
                let ([connection], notifications) = session.descriptors();
                poller.set(notifications, source, Interest::INPUT)?;
                watch_only(connection)
            }
            Link::Ublk(session) => poller.set(session.wake(), source, Interest::INPUT),
        }
    }

    fn rewatch(&mut self, poller: &Poller) {
        if let Err(error) = self.watch(poller) {
            tracing::error!(controller = self.name, "cannot watch a host: {error}");
        }
    }

    /// Whether it is to be polled in this turn, and not only when the poller reports a socket.
    #[inline]
    pub(crate) fn is_hot(&self, now: Time) -> bool {
        self.link.is_some() && (self.has_more || now.since(self.worked) < HOT_NS)
    }

    /// Whether it is an NBD client's.
    #[inline]
    pub(crate) fn is_nbd(&self) -> bool {
        matches!(self.link, Some(Link::Nbd(_)))
    }

    /// Whether it is a block device's.
    pub(crate) fn is_block_device(&self) -> bool {
        matches!(self.link, Some(Link::Ublk(_)))
    }

    /// Whether it is a front end's, or a block device's, that has not ended.
    #[inline]
    pub(crate) fn is_front_end(&self) -> bool {
        matches!(self.link, Some(Link::Vhost(_) | Link::Ublk(_)))
    }

    /// Whether it is a front end's that the reactor is to look at without an event from now on.
    #[inline]
    pub(crate) fn is_to_list(&mut self) -> bool {
        self.is_front_end() && !std::mem::replace(&mut self.is_listed, true)
    }

    /// The reactor looks at it when there is an event.
    pub(crate) fn unlist(&mut self) {
        self.is_listed = false;
    }

    /// Has the driver of a front end notify from now on. False where it has something meanwhile: it
    /// is hot then. Others always wake the reactor.
    pub(crate) fn arm(&mut self, controller: &Controller) -> bool {
        let Some(link) = self.link.as_mut().filter(|_| !self.is_armed) else {
            return true;
        };
        let has_more = !link.is_valid(controller) || link.has_posted(self.has_io);
        self.is_armed = match link {
            Link::Vhost(session) => !has_more && session.arm(),
            Link::Ublk(session) => !has_more && session.arm(),
            Link::Tcp(_) | Link::Nbd(_) => return true,
        };
        self.has_more |= !self.is_armed;
        self.is_armed
    }

    /// Whether the driver of this front end notifies.
    pub(crate) fn is_armed(&self) -> bool {
        self.is_armed
    }

    /// Whether its controller completes something soon, or it is to be polled at a deadline.
    #[inline]
    pub(crate) fn expects(&self) -> bool {
        self.has_io || self.due.is_some()
    }

    /// Whether it has done nothing for so long.
    pub(crate) fn is_idle_for(&self, now: Time, ns: u64) -> bool {
        now.since(self.worked) >= ns
    }

    /// Whether it can go on with the namespaces that its controller has now.
    #[inline]
    pub(crate) fn is_valid(&self, controller: &Controller) -> bool {
        self.link
            .as_ref()
            .is_none_or(|link| link.is_valid(controller))
    }

    /// Whether a hot poll of this front end only carries commands and completions: its controller
    /// needs no turn for that.
    #[inline]
    pub(crate) fn is_running(&self) -> bool {
        self.link.as_ref().is_some_and(Link::is_running)
    }

    /// Whether its controller has completed something, seen without the controller.
    pub(crate) fn has_posted(&self) -> bool {
        let link = self.link.as_ref();
        link.is_some_and(|link| link.has_posted(self.has_io))
    }

    /// Reads its sockets, takes completions, and sends; true if it did something. A hot poll, which
    /// no event has led to, reads the sockets of queues on which something came or was sent lately.
    pub(crate) fn poll(
        &mut self,
        controller: &mut Controller,
        now: Time,
        poller: &Poller,
        is_hot: bool,
    ) -> bool {
        let Some(link) = &mut self.link else {
            return false;
        };
        let (worked, ended) = link.poll(controller, now, is_hot);
        self.is_armed = false;
        self.has_more = worked;
        if worked {
            self.worked = now;
        } else {
            self.has_io = link.has_io_in_flight();
        }
        self.due = link.next_deadline();
        if let Link::Tcp(association) = link {
            self.leaving.extend(association.take_leaving());
            self.recalls.extend(association.take_recalls());
        }
        if let Some(ended) = ended {
            self.tell_of_end(&ended);
            self.end_with(controller, &ended, now);
            return true;
        }
        self.rewatch(poller);
        worked
    }

    fn tell_of_end(&self, ended: &Ended) {
        let host = self.association().map(|it| &it.host().nqn);
        if self.is_told {
            tracing::info!(
                controller = self.name,
                host,
                export = self.export,
                cntlid = self.cntlid,
                "host detached: {ended}"
            );
        }
    }

    /// Takes completions, and sends; true if it did something.
    pub(crate) fn drain(&mut self, controller: &mut Controller, now: Time) -> bool {
        let drained = match &mut self.link {
            Some(link) => link.drain(controller, now),
            None => false,
        };
        if drained {
            // The next poll sees what becomes due by it.
            (self.worked, self.has_more) = (now, true);
        }
        drained
    }

    /// Whether it has this controller, and has not ended.
    pub(crate) fn serves(&self, cntlid: u16) -> bool {
        self.cntlid == cntlid && matches!(self.link, Some(Link::Tcp(_)))
    }

    /// Adds a connection for an I/O queue, which may be refused. It [`Self::serves`] that.
    pub(crate) fn join(&mut self, arrival: Arrival, controller: &mut Controller, now: Time) {
        if let Some(Link::Tcp(association)) = &mut self.link {
            association.join(arrival, controller, now);
            (self.worked, self.has_more) = (now, true);
        }
    }

    /// Resets the controller and closes the connections, which may have a last answer to send.
    pub(crate) fn end(&mut self, controller: &mut Controller, cause: Cause, now: Time) {
        if let Some(link) = &self.link {
            self.end_with(controller, &link.ended_by(cause), now);
        }
    }

    fn end_with(&mut self, controller: &mut Controller, ended: &Ended, now: Time) {
        let Some(link) = self.link.take() else {
            return;
        };
        let done = link.counters();
        if link.proof() != Proof::Pending {
            self.pending = None;
        }
        controller.function_reset();
        let (recalls, leaving) = link.end(ended, now);
        self.recalls.extend(recalls);
        self.leaving.extend(leaving);
        self.due = None;
        self.presence.leave_association(&self.name, self.cntlid);
        self.done = Some((done, ended.name()));
    }

    /// Connections that are to close, which the reactor looks after.
    pub(crate) fn take_leaving(&mut self) -> Vec<Farewell> {
        std::mem::take(&mut self.leaving)
    }

    /// Queues that are to come back from other reactors.
    pub(crate) fn take_recalls(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.recalls)
    }

    fn association(&self) -> Option<&Association> {
        match &self.link {
            Some(Link::Tcp(association)) => Some(association),
            Some(Link::Nbd(_) | Link::Vhost(_) | Link::Ublk(_)) | None => None,
        }
    }

    /// Queues here that may be served elsewhere. That of an NBD client or front end stays.
    pub(crate) fn may_depart(&self) -> Vec<u16> {
        let association = self.association();
        association.map_or_else(Vec::new, Association::may_depart)
    }

    /// Gives up a queue that is to be served elsewhere.
    pub(crate) fn depart(&mut self, qid: u16, poller: &Poller) -> Option<Branch> {
        let Some(Link::Tcp(association)) = &mut self.link else {
            return None;
        };
        let branch = association.depart(qid)?;
        // From now on it looks at what comes elsewhere, well before the timeout.
        self.due = association.next_deadline();
        // One that was opened in this poll is not watched.
        let _ = poller.remove(&branch);
        Some(branch)
    }

    /// A queue comes back.
    ///
    /// # Errors
    /// It is another association's.
    pub(crate) fn come_back(
        &mut self,
        branch: Branch,
        end: Option<&End>,
        controller: &mut Controller,
        now: Time,
    ) -> Result<(), Branch> {
        match &mut self.link {
            Some(Link::Tcp(association)) => association.come_back(branch, end, controller, now),
            Some(Link::Nbd(_) | Link::Vhost(_) | Link::Ublk(_)) | None => Err(branch),
        }
    }

    /// Its counters and the name of its end, once after the end.
    pub(crate) fn take_done(&mut self) -> Option<(Done, &'static str)> {
        self.done.take()
    }

    /// Whether its host may stay where these are allowed. NBD clients and front ends have no names.
    pub(crate) fn may_stay(&self, access: &Access) -> bool {
        match &self.link {
            Some(Link::Tcp(it)) => access.keeps(&it.host().nqn, it.proof(), it.is_secured()),
            Some(Link::Nbd(_) | Link::Vhost(_) | Link::Ublk(_)) => true,
            None => false,
        }
    }

    /// The name that it gave, where it has ended without the proof that it was asked for.
    pub(crate) fn take_unproved(&mut self) -> Option<HostView> {
        self.pending.take()
    }

    /// Its counters, before the end.
    pub(crate) fn counters(&self) -> Option<Done> {
        self.link.as_ref().map(Link::counters)
    }

    /// Whether it has ended. Its controller is to be removed when no command is in flight.
    pub(crate) fn has_ended(&self) -> bool {
        self.link.is_none()
    }

    /// Whether it must be polled without an event: it waits for its last commands.
    pub(crate) fn is_in_transition(&self) -> bool {
        self.has_ended()
    }

    /// The next deadline of its connections.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        self.due
    }

    /// Its controller is gone.
    pub(crate) fn finish(self) {
        tracing::debug!(controller = self.name, "its controller is removed");
    }
}
