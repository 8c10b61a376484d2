//! Front ends of vhost-user-blk: when they get the disk, and when they are polled.
//!
//! A driver does not notify while the reactor polls its front end. So each front end is active,
//! warm or armed. An active one is polled in every turn while it is hot, and now and then while it
//! waits for its controller. A warm one is polled now and then. An armed one costs nothing: its
//! driver was asked to notify. One that was idle for a while is armed, and all are before the
//! reactor sleeps. A reactor that never sleeps arms none: its guests never have to notify it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use controller::Controller;
use engine::{ControllerSlot, Engine, Mode};
use port::time::Time;
use transport::nvme_tcp::Proof;
use transport::vhost_user::{self, Disk, End, Session, disk};

use super::Reactor;
use crate::hosted::Hosted;
use crate::hosted::association::Attached;
use crate::hosted::back_end::BackEnd;
use crate::hosted::entrance::ACCEPTS_AT_ONCE;
use crate::hosted::link::Link;
use crate::presence::HostView;

/// Its name in the log.
const FRONT_END: &str = "a front end of vhost-user-blk";
/// Time without work after which a front end is armed though the reactor does not sleep. Below, the
/// notifications of a guest that has short pauses would cost it more than they save here.
const WARM_NS: u64 = 1_000_000;
/// Warm front ends that are polled at once.
const WARM_AT_ONCE: usize = 16;
/// Time between looks whether the namespaces of armed front ends are still there.
const CHECK_NS: u64 = 10_000_000;
/// Such looks after the last work. The first one may come before the change that the work makes.
const CHECKS: u8 = 2;

/// The front ends of a reactor, by the index of their controllers.
#[derive(Debug, Default)]
pub(super) struct FrontEnds {
    all: Vec<usize>,
    active: Vec<usize>,
    warm: VecDeque<usize>,
    /// Looks at the namespaces of all that are due, and the time of the last one.
    checks: u8,
    checked: Time,
}

impl FrontEnds {
    /// A front end has come.
    pub(super) fn add(&mut self, index: usize) {
        self.all.push(index);
    }

    /// Its controller is gone.
    pub(super) fn remove(&mut self, index: usize) {
        self.all.retain(|other| *other != index);
        self.active.retain(|other| *other != index);
        self.warm.retain(|other| *other != index);
    }

    /// One is to be looked at without an event, which was not before.
    pub(super) fn list(&mut self, index: usize) {
        self.active.push(index);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// Something was done that may have changed namespaces.
    #[inline]
    pub(super) fn note_work(&mut self) {
        self.checks = CHECKS;
    }

    /// When their namespaces must be looked at.
    pub(super) fn next_check(&self) -> Option<Time> {
        let is_due = self.checks > 0 && !self.all.is_empty();
        is_due.then(|| self.checked + CHECK_NS)
    }
}

/// A front end that has not ended, and its controller.
fn front_end<'a>(
    hosted: &'a mut [Option<Hosted>],
    engine: &'a mut Engine<media::Channel>,
    index: usize,
) -> Option<(&'a mut Attached, &'a mut Controller)> {
    let attached = hosted.get_mut(index)?.as_mut()?.association_mut()?;
    let controller = engine.peek_controller(ControllerSlot(index))?;
    attached.is_front_end().then_some((attached, controller))
}

impl Reactor {
    fn back_end_mut(&mut self, index: usize) -> Option<&mut BackEnd> {
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        hosted.and_then(Hosted::back_end_mut)
    }

    /// Accepts connections that have come: one is the front end, where there is none.
    pub(super) fn take_front_ends(&mut self, index: usize) {
        if !self.back_end_mut(index).is_some_and(BackEnd::take_called) {
            return;
        }
        let now = self.clock.now();
        for _ in 0..ACCEPTS_AT_ONCE {
            let next = self.back_end_mut(index).and_then(|it| it.accept(now));
            let Some(stream) = next else {
                break;
            };
            // One that left before this one came has left by now: this one waits then, and is not
            // refused.
            let mut is_taken = false;
            for slot in self.hosts_of_entrance(index) {
                self.poll_hosted(slot.0, now, Hosted::poll);
                is_taken |= front_end(&mut self.hosted, &mut self.engine, slot.0).is_some();
            }
            let is_vacant = self.hosts_of_entrance(index).is_empty();
            match self.back_end_mut(index) {
                Some(back_end) if is_taken => back_end.refuse(now),
                Some(back_end) if !is_vacant => back_end.keep(stream),
                _ => self.serve_front_end(index, stream, now),
            }
        }
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        if let Some(back_end) = hosted.and_then(Hosted::back_end_mut) {
            back_end.settle(now, &self.poller);
        }
        self.note_transition(index);
    }

    /// The front end of this back end, if it is one's, has left: others wait.
    pub(super) fn hold_back_end(&mut self, slot: ControllerSlot) {
        let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
        if let Some(back_end) = hosted.and_then(Hosted::back_end_mut) {
            back_end.hold(&self.poller);
        }
    }

    /// The controller of the front end of this back end, if it is one's, is gone.
    pub(super) fn release_back_end(&mut self, slot: ControllerSlot) {
        let hosted = self.hosted.get_mut(slot.0).and_then(Option::as_mut);
        if let Some(back_end) = hosted.and_then(Hosted::back_end_mut) {
            back_end.release(&self.poller);
        }
    }

    /// The only namespace of an entrance that can be served, with its name, or how many there are.
    fn only_disk(&mut self, index: usize) -> Result<(String, Disk), usize> {
        let entrance = self.engine.peek_controller(ControllerSlot(index));
        let entrance = entrance.map(|entrance| entrance.id()).ok_or(0_usize)?;
        let hosted = self.hosted.get(index).and_then(Option::as_ref);
        let roster = hosted.and_then(Hosted::roster).ok_or(0_usize)?;
        let subsystem = self.engine.subsystem_mut(roster.subsystem());
        let named = subsystem.ok_or(0_usize)?.named(entrance).into_iter();
        let serial = roster.serial();
        let mut disks: Vec<_> = named
            .filter_map(|(name, namespace)| Some((name, disk(&namespace, serial)?)))
            .collect();
        match disks.len() {
            1 => disks.pop().ok_or(0),
            count => Err(count),
        }
    }

    /// A front end that was accepted: it gets a controller. Where it gets none, its socket closes.
    fn serve_front_end(&mut self, index: usize, stream: OwnedFd, now: Time) {
        let (name, disk) = match self.only_disk(index) {
            Ok(only) => only,
            Err(count) => {
                if let Some(back_end) = self.back_end_mut(index) {
                    back_end.refuse_without_disk(count, now);
                }
                return;
            }
        };
        if let Err(why) = self.attach_front_end(index, stream, (name, disk), now) {
            self.tell_of_lack(index, FRONT_END, &why, now);
            if let Some(roster) = self.roster_mut(index) {
                roster.counts_mut().refuse(End::Controller.name());
            }
        }
    }

    /// Makes the controller of a front end, which has that namespace.
    ///
    /// # Errors
    /// What it lacks.
    fn attach_front_end(
        &mut self,
        index: usize,
        stream: OwnedFd,
        (name, disk): (String, Disk),
        now: Time,
    ) -> Result<(), String> {
        let rings = self.back_end_mut(index).map_or(0, |it| it.rings());
        let made = self.make_controller(index);
        let slot = made.map_err(|error| format!("no controller: {error:#}"))?;
        let controller = self.engine.controller_mut(slot);
        let controller = controller.ok_or("no controller: it is gone")?;
        let host = HostView {
            cntlid: controller.id().0,
            nqn: String::new(),
            export: Some(name),
            address: None,
            proof: Proof::default(),
            is_secured: false,
            io_queues: vhost_user::QUEUES,
            keep_alive_ms: 0,
            connected: now,
        };
        match Session::new(stream, disk, rings, controller, now) {
            Ok(session) => {
                self.attach(index, slot, Link::Vhost(Box::new(session)), host, now);
                Ok(())
            }
            Err(error) => {
                self.engine.remove_controller(slot);
                Err(format!(
                    "no memory for its requests: {error}; raise the limits of memory and of open files"
                ))
            }
        }
    }

    /// Polls the front ends that have worked lately, and takes what their controllers have
    /// completed. True if it did something.
    #[inline]
    pub(super) fn serve_front_ends(&mut self, now: Time, posted: bool) -> bool {
        !self.front_ends.active.is_empty() && self.serve_active(now, posted)
    }

    fn serve_active(&mut self, now: Time, posted: bool) -> bool {
        let mut worked = false;
        // One that leaves is no longer in the list: one that is skipped has the next turn.
        let mut at = 0;
        while let Some(index) = self.front_ends.active.get(at).copied() {
            let found = front_end(&mut self.hosted, &mut self.engine, index);
            let Some((attached, controller)) = found else {
                self.front_ends.active.swap_remove(at);
                continue;
            };
            if !attached.is_valid(controller) {
                worked |= self.poll_hosted(index, now, Hosted::poll);
            } else if attached.is_hot(now) {
                worked |= self.poll_front_end(index, now);
            } else if attached.expects() {
                if posted && attached.has_posted() && attached.drain(controller, now) {
                    worked = true;
                    if attached.is_running() {
                        self.engine.rung(ControllerSlot(index));
                    } else {
                        self.turn_controller_of(index);
                    }
                }
            } else {
                self.front_ends.active.swap_remove(at);
                if attached.is_armed() {
                    attached.unlist();
                } else {
                    self.front_ends.warm.push_back(index);
                }
                continue;
            }
            at += 1;
        }
        worked
    }

    /// Polls one without an event; true if it did something.
    fn poll_front_end(&mut self, index: usize, now: Time) -> bool {
        let found = front_end(&mut self.hosted, &mut self.engine, index);
        let Some((attached, controller)) = found else {
            return false;
        };
        let is_running = attached.is_running();
        let worked = attached.poll(controller, now, &self.poller, true);
        let has_deadline = attached.next_deadline().is_some();
        if attached.has_ended() {
            self.follow_poll(index, now);
        } else if is_running && !has_deadline {
            if worked {
                self.engine.rung(ControllerSlot(index));
            }
        } else if worked {
            self.turn_controller_of(index);
        } else if has_deadline {
            self.note_transition(index);
        }
        worked
    }

    /// Its transport has done something with this controller: it gets a turn.
    fn turn_controller_of(&mut self, index: usize) {
        self.engine.controller_mut(ControllerSlot(index));
        self.note_transition(index);
    }

    /// Polls the active front ends that are not hot and some warm ones, and arms those that were
    /// idle for long. Now and then, sees whether the namespaces of all are still there. True if it
    /// did something.
    pub(super) fn look_at_front_ends(&mut self, now: Time) -> bool {
        let mut worked = false;
        if self.front_ends.next_check().is_some_and(|due| due <= now) {
            self.front_ends.checks -= 1;
            self.front_ends.checked = now;
            worked |= self.check_front_ends(now);
        }
        // One whose commands take long is not hot, and its driver does not notify.
        let mut at = 0;
        while let Some(index) = self.front_ends.active.get(at).copied() {
            at += 1;
            let found = front_end(&mut self.hosted, &mut self.engine, index);
            if found.is_some_and(|(attached, _)| !attached.is_hot(now) && !attached.is_armed()) {
                worked |= self.poll_front_end(index, now);
            }
        }
        let is_armed_when_idle = self.mode != Mode::Poll;
        for _ in 0..self.front_ends.warm.len().min(WARM_AT_ONCE) {
            let Some(index) = self.front_ends.warm.pop_front() else {
                break;
            };
            let found = front_end(&mut self.hosted, &mut self.engine, index);
            let Some((attached, controller)) = found else {
                continue;
            };
            let is_idle = is_armed_when_idle && attached.is_idle_for(now, WARM_NS);
            if !attached.is_valid(controller) {
                // The next turn polls it, and not its rings alone.
                self.front_ends.active.push(index);
            } else if (attached.has_posted() && attached.drain(controller, now))
                || attached.poll(controller, now, &self.poller, true)
            {
                worked = true;
                self.front_ends.active.push(index);
                self.follow_poll(index, now);
                self.turn_controller_of(index);
            } else if !is_idle {
                self.front_ends.warm.push_back(index);
            } else if attached.arm(controller) {
                attached.unlist();
            } else {
                self.front_ends.active.push(index);
            }
        }
        worked
    }

    /// Ends the front ends whose namespaces are not what they were. True if there were some.
    fn check_front_ends(&mut self, now: Time) -> bool {
        let mut worked = false;
        let mut at = 0;
        while let Some(index) = self.front_ends.all.get(at).copied() {
            at += 1;
            let found = front_end(&mut self.hosted, &mut self.engine, index);
            if found.is_some_and(|(attached, controller)| !attached.is_valid(controller)) {
                worked |= self.poll_hosted(index, now, Hosted::poll);
            }
        }
        worked
    }

    /// Before the reactor sleeps: has the drivers of all front ends notify. False where one has
    /// something meanwhile, which the next turn takes.
    pub(super) fn arm_front_ends(&mut self) -> bool {
        let FrontEnds { active, warm, .. } = &mut self.front_ends;
        active.extend(warm.drain(..));
        let mut are_armed = true;
        for index in active {
            let found = front_end(&mut self.hosted, &mut self.engine, *index);
            are_armed &= found.is_none_or(|(attached, controller)| attached.arm(controller));
        }
        are_armed
    }
}

#[cfg(test)]
mod tests;
