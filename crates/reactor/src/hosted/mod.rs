//! A controller on its reactor, and the way in which its hosts reach it.

pub(crate) mod association;
pub(crate) mod back_end;
pub(crate) mod block_device;
pub(crate) mod entrance;
pub(crate) mod exports;
pub(crate) mod link;
pub(crate) mod local;
mod places;
pub(crate) mod target;

use std::io;
use std::sync::Arc;

use controller::flight::WatchSpec;
use controller::{Controller, Interrupt};
use engine::ControllerSlot;
use memory::Counter;
use port::time::Time;
use transport::nvme_tcp::Farewell;
use transport::vfio_user::Session;

use self::association::Attached;
use self::back_end::BackEnd;
use self::block_device::BlockDevice;
use self::entrance::Roster;
use self::exports::Exports;
use self::local::Local;
use self::target::Target;
use crate::answer::Answer;
use crate::lines::Vectors;
use crate::poller::Poller;

/// The way in which hosts reach a controller.
#[derive(Debug)]
pub(crate) enum Front {
    /// One host at a time, over vfio-user.
    Local(Box<Local>),
    /// Hosts over NVMe/TCP, each with a controller of its own.
    Target(Box<Target>),
    /// NBD clients, each with a controller of its own.
    Exports(Box<Exports>),
    /// One front end of vhost-user-blk at a time, with a controller of its own.
    BackEnd(Box<BackEnd>),
    /// A block device of this machine, with a controller of its own.
    BlockDevice(Box<BlockDevice>),
    /// The controller of a host of the latter four.
    Association(Box<Attached>),
}

/// A controller on this reactor.
#[derive(Debug)]
pub(crate) struct Hosted {
    slot: ControllerSlot,
    front: Front,
    /// It is among the controllers of its reactor that must be polled without an event.
    pub(crate) is_polled: bool,
    /// It is among those with a deadline.
    pub(crate) is_timed: bool,
    /// Tracing and latency sampling of its commands.
    pub(crate) watching: WatchSpec,
    /// Counter of doorbells that arrive as messages.
    pub(crate) doorbell_messages: Arc<Counter>,
}

impl Hosted {
    pub(crate) fn new(
        slot: ControllerSlot,
        front: Front,
        watching: WatchSpec,
        doorbell_messages: Arc<Counter>,
    ) -> Self {
        Hosted {
            slot,
            front,
            is_polled: false,
            is_timed: false,
            watching,
            doorbell_messages,
        }
    }

    pub(crate) fn slot(&self) -> ControllerSlot {
        self.slot
    }

    fn local(&self) -> Option<&Local> {
        match &self.front {
            Front::Local(local) => Some(local),
            _ => None,
        }
    }

    #[inline]
    fn local_mut(&mut self) -> Option<&mut Local> {
        match &mut self.front {
            Front::Local(local) => Some(local),
            _ => None,
        }
    }

    /// The entrance of hosts over a network.
    pub(crate) fn target_mut(&mut self) -> Option<&mut Target> {
        match &mut self.front {
            Front::Target(target) => Some(target),
            _ => None,
        }
    }

    /// The entrance of NBD clients.
    pub(crate) fn exports_mut(&mut self) -> Option<&mut Exports> {
        match &mut self.front {
            Front::Exports(exports) => Some(exports),
            _ => None,
        }
    }

    /// The entrance of front ends.
    pub(crate) fn back_end_mut(&mut self) -> Option<&mut BackEnd> {
        match &mut self.front {
            Front::BackEnd(back_end) => Some(back_end),
            _ => None,
        }
    }

    /// The entrance of a block device.
    pub(crate) fn block_device_mut(&mut self) -> Option<&mut BlockDevice> {
        match &mut self.front {
            Front::BlockDevice(device) => Some(device),
            _ => None,
        }
    }

    /// The hosts that have controllers of their own.
    pub(crate) fn roster(&self) -> Option<&Roster> {
        match &self.front {
            Front::Target(target) => Some(target.roster()),
            Front::Exports(exports) => Some(exports.roster()),
            Front::BackEnd(back_end) => Some(back_end.roster()),
            Front::BlockDevice(device) => Some(device.roster()),
            Front::Local(_) | Front::Association(_) => None,
        }
    }

    pub(crate) fn roster_mut(&mut self) -> Option<&mut Roster> {
        match &mut self.front {
            Front::Target(target) => Some(target.roster_mut()),
            Front::Exports(exports) => Some(exports.roster_mut()),
            Front::BackEnd(back_end) => Some(back_end.roster_mut()),
            Front::BlockDevice(device) => Some(device.roster_mut()),
            Front::Local(_) | Front::Association(_) => None,
        }
    }

    /// Whether it is an entrance of hosts that get controllers of their own.
    #[inline]
    pub(crate) fn is_entrance(&self) -> bool {
        matches!(
            self.front,
            Front::Target(_) | Front::Exports(_) | Front::BackEnd(_) | Front::BlockDevice(_)
        )
    }

    /// Accepts no host until [`Self::open`].
    pub(crate) fn close(&mut self, now: Time, poller: &Poller) {
        match &mut self.front {
            Front::Target(target) => target.close(now, poller),
            Front::Exports(exports) => exports.close(poller),
            Front::BackEnd(back_end) => back_end.close(poller),
            Front::BlockDevice(device) => device.close(),
            Front::Local(_) | Front::Association(_) => {}
        }
    }

    /// Accepts hosts again.
    pub(crate) fn open(&mut self, poller: &Poller) {
        match &mut self.front {
            Front::Target(target) => target.open(poller),
            Front::Exports(exports) => exports.open(poller),
            Front::BackEnd(back_end) => back_end.open(poller),
            Front::BlockDevice(device) => device.open(),
            Front::Local(_) | Front::Association(_) => {}
        }
    }

    /// The association of one of them.
    #[inline]
    pub(crate) fn association_mut(&mut self) -> Option<&mut Attached> {
        match &mut self.front {
            Front::Association(attached) => Some(attached),
            _ => None,
        }
    }

    /// Slot of the entrance of its host, where that is another controller.
    pub(crate) fn target(&self) -> Option<ControllerSlot> {
        match &self.front {
            Front::Association(attached) => Some(attached.target()),
            _ => None,
        }
    }

    /// Connections that are to close, which the reactor looks after.
    #[inline]
    pub(crate) fn take_leaving(&mut self) -> Vec<Farewell> {
        match &mut self.front {
            Front::Target(target) => target.take_leaving(),
            Front::Association(attached) => attached.take_leaving(),
            _ => Vec::new(),
        }
    }

    /// Whether its host waits for a step of a migration.
    pub(crate) fn migrates(&self) -> bool {
        self.local().is_some_and(Local::migrates)
    }

    /// The session of its host over vfio-user.
    pub(crate) fn session_mut(&mut self) -> Option<&mut Session> {
        self.local_mut().and_then(Local::session_mut)
    }

    /// Goes on with the host of a former process, on its controller.
    pub(crate) fn resume(
        &mut self,
        session: Session,
        controller: &mut Controller,
        poller: &Poller,
    ) -> io::Result<()> {
        match self.local_mut() {
            Some(local) => local.resume(session, controller, poller),
            None => Ok(()),
        }
    }

    /// Starts to watch for hosts.
    pub(crate) fn watch(&mut self, poller: &Poller) -> io::Result<()> {
        match &mut self.front {
            Front::Local(local) => local.watch(poller),
            Front::Target(target) => target.watch(poller),
            Front::Exports(exports) => exports.watch(poller),
            Front::BackEnd(back_end) => back_end.watch(poller),
            Front::BlockDevice(_) => Ok(()),
            Front::Association(attached) => attached.watch(poller),
        }
    }

    /// Whether its host's doorbells are plain stores, which wake no thread.
    pub(crate) fn is_unwoken(&self) -> bool {
        self.local().is_some_and(Local::is_unwoken)
    }

    /// Whether it must be polled without an event.
    pub(crate) fn is_in_transition(&self) -> bool {
        match &self.front {
            Front::Local(local) => local.is_in_transition(),
            Front::Target(target) => target.roster().is_leaving(),
            Front::Exports(exports) => exports.roster().is_leaving(),
            Front::BackEnd(back_end) => back_end.is_to_serve() || back_end.roster().is_leaving(),
            Front::BlockDevice(device) => device.roster().is_leaving(),
            Front::Association(attached) => attached.is_in_transition(),
        }
    }

    /// The next deadline of its sockets.
    pub(crate) fn next_deadline(&self) -> Option<Time> {
        match &self.front {
            Front::Local(local) => local.next_deadline(),
            Front::Target(target) => target.next_deadline(),
            Front::Exports(exports) => exports.next_deadline(),
            Front::BackEnd(back_end) => back_end.next_deadline(),
            Front::BlockDevice(_) => None,
            Front::Association(attached) => attached.next_deadline(),
        }
    }

    /// Raises an interrupt at its host. A host over a network has none: its queues are looked at.
    #[inline]
    pub(crate) fn raise(&mut self, interrupt: Interrupt) {
        if let Some(local) = self.local_mut() {
            local.raise(interrupt);
        }
    }

    /// The interrupt lines for its queues on other reactors.
    pub(crate) fn lines(&self) -> Vectors {
        self.local().map(Local::lines).unwrap_or_default()
    }

    /// Whether these lines have changed since the last call.
    pub(crate) fn have_lines_changed(&mut self) -> bool {
        self.local_mut().is_some_and(Local::have_lines_changed)
    }

    /// Polls the session of its host; true if it did something.
    pub(crate) fn poll(&mut self, controller: &mut Controller, now: Time, poller: &Poller) -> bool {
        match &mut self.front {
            Front::Local(local) => local.poll(controller, now, poller),
            Front::Association(attached) => attached.poll(controller, now, poller, false),
            _ => false,
        }
    }

    /// Polls the association of a host that has sent something lately, though no event has come.
    pub(crate) fn poll_hot(
        &mut self,
        controller: &mut Controller,
        now: Time,
        poller: &Poller,
    ) -> bool {
        let attached = self.association_mut();
        attached.is_some_and(|attached| attached.poll(controller, now, poller, true))
    }

    /// Polls the connections that are not hosts yet; true if it did something.
    pub(crate) fn poll_door(
        &mut self,
        controller: &mut Controller,
        now: Time,
        poller: &Poller,
    ) -> bool {
        match &mut self.front {
            Front::Local(local) => local.poll_door(controller, now, poller),
            Front::Target(target) => target.poll(now, poller),
            Front::Exports(exports) => exports.poll(now, poller),
            Front::BackEnd(back_end) => back_end.poll(),
            Front::BlockDevice(_) | Front::Association(_) => false,
        }
    }

    /// Begins the removal: no host can attach any more. The host over vfio-user is detached; those
    /// of an entrance are to be ended by the caller.
    pub(crate) fn remove(
        &mut self,
        controller: &mut Controller,
        now: Time,
        poller: &Poller,
        answer: Answer<()>,
    ) {
        match &mut self.front {
            Front::Local(local) => local.remove(controller, poller, answer),
            Front::Target(target) => target.remove(now, poller, answer),
            Front::Exports(exports) => exports.remove(poller, answer),
            Front::BackEnd(back_end) => back_end.remove(poller, answer),
            Front::BlockDevice(device) => device.remove(answer),
            Front::Association(_) => {}
        }
    }

    /// Whether a removal is complete, and this can be dropped.
    pub(crate) fn is_removed(&self) -> bool {
        match &self.front {
            Front::Local(local) => local.is_removed(),
            Front::Target(target) => target.roster().is_removed(),
            Front::Exports(exports) => exports.roster().is_removed(),
            Front::BackEnd(back_end) => back_end.roster().is_removed(),
            Front::BlockDevice(device) => device.roster().is_removed(),
            Front::Association(attached) => attached.has_ended(),
        }
    }

    /// Reports the end of the removal.
    pub(crate) fn finish(self) {
        match self.front {
            Front::Local(local) => local.finish(),
            Front::Target(target) => target.finish(),
            Front::Exports(exports) => exports.finish(),
            Front::BackEnd(back_end) => back_end.finish(),
            Front::BlockDevice(device) => device.finish(),
            Front::Association(attached) => attached.finish(),
        }
    }
}
