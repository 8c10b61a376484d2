//! The controller of a host over NVMe/TCP: it exists for as long as its association does.

use std::io;
use std::sync::Arc;

use controller::Controller;
use engine::ControllerSlot;
use port::time::Time;
use transport::nvme_tcp::{Access, Arrival, Association, Branch, Counters, End, Farewell, Proof};

use super::target::Target;
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
    /// What it enters the list of hosts with, until it has: when it has proved what it has to.
    pending: Option<HostView>,
    /// The log tells of its beginning and its end.
    is_told: bool,
    presence: Arc<Presence>,
    /// `None` once it has ended: its controller is removed when no command is in flight.
    association: Option<Box<Association>>,
    /// Connections that are to close: all of them after the end.
    leaving: Vec<Farewell>,
    /// What it has done, and the name of its end, after the end.
    done: Option<(Counters, &'static str)>,
    /// Queues that are to come back from other reactors.
    recalls: Vec<u16>,
    /// Its queues here are to be looked at: the lanes of some may be on other reactors.
    pub(crate) is_to_place: bool,
    /// Version of the association's connections that the poller has.
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
}

impl Attached {
    pub(crate) fn new(
        entrance: &Target,
        target: ControllerSlot,
        slot: ControllerSlot,
        association: Association,
        host: HostView,
        now: Time,
    ) -> Self {
        let (name, presence) = (entrance.name().to_owned(), entrance.presence().clone());
        Attached {
            name,
            target,
            slot,
            cntlid: host.cntlid,
            pending: Some(host),
            is_told: false,
            presence,
            association: Some(Box::new(association)),
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
        }
    }

    /// Controller identifier of the association.
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
        let proof = self.association.as_ref().map(|it| it.proof());
        // One that has made a key of TLS becomes one when it comes with that.
        let is_none = matches!(proof, None | Some(Proof::Pending | Proof::Concatenated));
        self.pending.is_some() && !is_none
    }

    /// It is a host from now on: for the list of hosts, and for the log where that tells of it.
    pub(crate) fn enter(&mut self, is_told: bool) {
        let (Some(host), Some(association)) = (self.pending.take(), &self.association) else {
            return;
        };
        self.is_told = is_told;
        if is_told {
            tracing::info!(
                controller = self.name,
                host = host.nqn,
                from = %host.address,
                cntlid = host.cntlid,
                "host attached"
            );
        }
        let proof = association.proof();
        let host = HostView { proof, ..host };
        self.presence.enter_association(&self.name, host);
    }
}

impl Attached {
    /// Watches its connections.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        let Some(association) = &self.association else {
            return Ok(());
        };
        if self.watched == association.changes() {
            return Ok(());
        }
        self.watched = association.changes();
        self.is_to_place |= self.openings != association.openings();
        self.openings = association.openings();
        let io_queues = u16::try_from(association.queues()).unwrap_or(u16::MAX);
        self.presence.change_association(self.cntlid, |host| {
            (host.io_queues, host.proof) = (io_queues, association.proof());
        });
        let source = Source::Controller(self.slot.0);
        for (_, connection, output) in association.connections() {
            let interest = Interest {
                input: true,
                output,
            };
            poller.set(connection, source, interest)?;
        }
        Ok(())
    }

    fn rewatch(&mut self, poller: &Poller) {
        if let Err(error) = self.watch(poller) {
            tracing::error!(controller = self.name, "cannot watch a host: {error}");
        }
    }

    /// Whether it is to be polled in this turn, and not only when the poller reports a socket.
    #[inline]
    pub(crate) fn is_hot(&self, now: Time) -> bool {
        self.association.is_some() && (self.has_more || now.since(self.worked) < HOT_NS)
    }

    /// Whether its controller has completed something, seen without the controller.
    pub(crate) fn has_posted(&self) -> bool {
        let association = self.association.as_ref();
        association.is_some_and(|association| association.has_posted(self.has_io))
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
        let Some(association) = &mut self.association else {
            return false;
        };
        let polled = if is_hot {
            association.poll_hot(controller, now)
        } else {
            association.poll(controller, now)
        };
        self.has_more = polled.worked;
        if polled.worked {
            self.worked = now;
        } else {
            self.has_io = association.has_io_in_flight();
        }
        self.due = association.next_deadline();
        self.leaving.extend(association.take_leaving());
        self.recalls.extend(association.take_recalls());
        if let Some(end) = polled.ended {
            if self.is_told {
                tracing::info!(
                    controller = self.name,
                    host = association.host().nqn,
                    cntlid = self.cntlid,
                    "host detached: {end}"
                );
            }
            self.end(controller, &end, now);
            return true;
        }
        self.rewatch(poller);
        polled.worked
    }

    /// Takes completions, and sends; true if it did something.
    pub(crate) fn drain(&mut self, controller: &mut Controller, now: Time) -> bool {
        let drained = match &mut self.association {
            Some(association) => association.drain(controller, now),
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
        self.cntlid == cntlid && self.association.is_some()
    }

    /// Adds a connection for an I/O queue, which may be refused. It has not ended.
    pub(crate) fn join(&mut self, arrival: Arrival, controller: &mut Controller, now: Time) {
        if let Some(association) = &mut self.association {
            association.join(arrival, controller, now);
            (self.worked, self.has_more) = (now, true);
        }
    }

    /// Resets the controller and closes the connections, which may have a last answer to send.
    pub(crate) fn end(&mut self, controller: &mut Controller, end: &End, now: Time) {
        if let Some(mut association) = self.association.take() {
            association.recall_all();
            self.recalls.extend(association.take_recalls());
            controller.function_reset();
            self.due = None;
            if association.proof() != Proof::Pending {
                self.pending = None;
            }
            self.presence.leave_association(&self.name, self.cntlid);
            self.done = Some((association.counters(), end.name()));
            self.leaving.extend(association.end(end, now));
        }
    }

    /// Connections that are to close, which the reactor looks after.
    pub(crate) fn take_leaving(&mut self) -> Vec<Farewell> {
        std::mem::take(&mut self.leaving)
    }

    /// Queues that are to come back from other reactors.
    pub(crate) fn take_recalls(&mut self) -> Vec<u16> {
        std::mem::take(&mut self.recalls)
    }

    /// Queues here that may be served elsewhere.
    pub(crate) fn may_depart(&self) -> Vec<u16> {
        let association = self.association.as_ref();
        association.map_or_else(Vec::new, |it| it.may_depart())
    }

    /// Gives up a queue that is to be served elsewhere.
    pub(crate) fn depart(&mut self, qid: u16, poller: &Poller) -> Option<Branch> {
        let association = self.association.as_mut()?;
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
        match &mut self.association {
            Some(association) => association.come_back(branch, end, controller, now),
            None => Err(branch),
        }
    }

    /// What it has done, and the name of its end, once after the end.
    pub(crate) fn take_done(&mut self) -> Option<(Counters, &'static str)> {
        self.done.take()
    }

    /// Whether its host may stay where these are allowed.
    pub(crate) fn may_stay(&self, access: &Access) -> bool {
        let association = self.association.as_ref();
        association.is_some_and(|it| access.keeps(&it.host().nqn, it.proof(), it.is_secured()))
    }

    /// What it named itself, where it has ended without the proof that it was asked for.
    pub(crate) fn take_unproved(&mut self) -> Option<HostView> {
        self.pending.take()
    }

    /// What it has done, before the end.
    pub(crate) fn counters(&self) -> Option<Counters> {
        self.association.as_ref().map(|it| it.counters())
    }

    /// Whether it has ended. Its controller is to be removed when no command is in flight.
    pub(crate) fn has_ended(&self) -> bool {
        self.association.is_none()
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
