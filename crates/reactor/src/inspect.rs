//! Inspection of a controller's queues, on all reactors that serve them ([`controller::inspect`]).
//!
//! Each completion queue is a separate message to its reactor, so a reactor is delayed by one queue
//! at most, and the report of a queue is consistent. All messages together have [`BOUND`]. A queue
//! that moves meanwhile is looked for again; if it is still moving, it is reported as that.

use std::time::{Duration, Instant};

use controller::inspect::{CompletionView, ControllerView};
use engine::{ControllerSlot, EngineId};

use super::answer::{Answer, answer};
use super::handle::ReactorHandle;
use super::message::{Address, Message};

/// Longest time for all reactors together.
const BOUND: Duration = Duration::from_secs(2);
/// Commands of one report of hosts over NVMe/TCP at most.
const COMMANDS: usize = 4096;
/// Attempts to find a queue that is moving.
const TRIES: usize = 3;

/// Why an inspection fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InspectError {
    /// A reactor is stalled, or too busy.
    #[error(
        "reactor {0} did not respond within 2 s: it is stalled or overloaded; retry, and check its load with `nvmirage ls`"
    )]
    NoAnswer(u16),
    /// The controller was deleted meanwhile.
    #[error("the controller was deleted meanwhile")]
    Gone,
}

/// A completion queue and its reactor. A queue that is moving has no view.
#[derive(Clone, Debug)]
pub struct Found {
    /// Identifier of the completion queue.
    pub cqid: u16,
    /// Number of the reactor that it lives on.
    pub reactor: usize,
    /// Its state; `None`: it is moving, or was deleted meanwhile.
    pub view: Option<CompletionView>,
}

/// Result of an inspection.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// State of the controller.
    pub controller: ControllerView,
    /// The controller's own reactor.
    pub home: usize,
    /// Its queues.
    pub queues: Vec<Found>,
}

/// Inspects a controller, from any thread.
#[derive(Debug)]
pub struct Inspector {
    reactors: Vec<Address>,
    home: EngineId,
    slot: ControllerSlot,
    bound: Duration,
}

impl Inspector {
    /// Inspects the controller in `slot` of the reactor `home`.
    pub fn new(reactors: &[ReactorHandle], home: usize, slot: ControllerSlot) -> Self {
        Inspector {
            reactors: reactors.iter().map(ReactorHandle::address).collect(),
            home: EngineId(home as u16),
            slot,
            bound: BOUND,
        }
    }

    /// Inspects all queues, with at most `commands` commands of each submission queue.
    ///
    /// # Errors
    /// A reactor does not answer in time, or the controller was deleted.
    pub fn look(&self, commands: usize) -> Result<Inspection, InspectError> {
        let deadline = Instant::now() + self.bound;
        self.look_at(self.slot, commands, usize::MAX, deadline)
    }

    /// Inspects the controllers of its hosts over NVMe/TCP whose identifiers are wanted, at most
    /// this many, and returns how many more there are. Those for which the time is too short are
    /// among these; hosts that leave meanwhile are not.
    ///
    /// # Errors
    /// The reactor does not answer in time.
    pub fn look_at_hosts(
        &self,
        commands: usize,
        most: usize,
        is_wanted: impl Fn(u16) -> bool,
    ) -> Result<(Vec<(u16, Inspection)>, usize), InspectError> {
        let deadline = Instant::now() + self.bound;
        let message = |answer| Message::Associations(self.slot, answer);
        let mut hosts = self.ask(self.home, deadline, message)?;
        hosts.retain(|(cntlid, _)| is_wanted(*cntlid));
        let (mut all, mut left_out) = (Vec::new(), hosts.len().saturating_sub(most));
        hosts.truncate(most);
        let most = COMMANDS / hosts.len().max(1);
        for (at, (cntlid, slot)) in hosts.iter().enumerate() {
            match self.look_at(*slot, commands, most, deadline) {
                Ok(inspection) => all.push((*cntlid, inspection)),
                Err(InspectError::Gone) => {}
                Err(InspectError::NoAnswer(_)) => {
                    left_out += hosts.len() - at;
                    break;
                }
            }
        }
        Ok((all, left_out))
    }

    /// Inspects a controller, with at most `most` commands in all.
    fn look_at(
        &self,
        slot: ControllerSlot,
        commands: usize,
        most: usize,
        deadline: Instant,
    ) -> Result<Inspection, InspectError> {
        let home = self.home;
        let message = |answer| Message::InspectController(slot, commands, answer);
        let controller = self.ask(home, deadline, message)?;
        let controller = controller.ok_or(InspectError::Gone)?;
        // A queue over NVMe/TCP is one pair.
        let commands = commands.min(most / controller.queues.len().max(1));
        let mut residences = self.residences(slot, deadline)?;
        let mut queues = Vec::new();
        for &cqid in &controller.queues {
            let mut view = None;
            for again in 0..TRIES {
                if again > 0 {
                    residences = self.residences(slot, deadline)?;
                }
                let Some((_, at)) = residences.iter().find(|(id, _)| *id == cqid) else {
                    break;
                };
                let message = |answer| Message::InspectLane(home, slot, cqid, commands, answer);
                view = self.ask(*at, deadline, message)?;
                if view.is_some() {
                    break;
                }
            }
            // a queue that no reactor serves was deleted
            if let Some((_, at)) = residences.iter().find(|(id, _)| *id == cqid) {
                let reactor = usize::from(at.0);
                queues.push(Found {
                    cqid,
                    reactor,
                    view,
                });
            }
        }
        Ok(Inspection {
            controller,
            home: home.0.into(),
            queues,
        })
    }

    fn residences(
        &self,
        slot: ControllerSlot,
        deadline: Instant,
    ) -> Result<Vec<(u16, EngineId)>, InspectError> {
        let message = |answer| Message::Residences(slot, answer);
        self.ask(self.home, deadline, message)
    }

    fn ask<T>(
        &self,
        reactor: EngineId,
        deadline: Instant,
        message: impl FnOnce(Answer<T>) -> Message,
    ) -> Result<T, InspectError> {
        let late = InspectError::NoAnswer(reactor.0);
        let address = self.reactors.get(usize::from(reactor.0)).ok_or(late)?;
        let (answer, answered) = answer();
        let told = address.tell_until(deadline, message(answer));
        told.map_err(|_| late)?;
        let left = deadline.saturating_duration_since(Instant::now());
        answered.within(left).ok_or(late)
    }
}

#[cfg(test)]
mod tests {
    use controller::inspect::DoorbellsView;

    use super::*;

    /// A reactor that knows four hosts with two queues each, and hangs at the third.
    #[test]
    fn hosts_share_the_commands_of_a_report_and_those_that_are_late_are_counted() {
        let (address, mut mailbox) = Address::unread();
        let inspector = Inspector {
            reactors: vec![address],
            home: EngineId(0),
            slot: ControllerSlot(0),
            bound: Duration::from_secs(2),
        };
        let reactor = std::thread::spawn(move || {
            let (mut controllers, mut asked) = (0, Vec::new());
            while controllers < 3 {
                match mailbox.try_recv() {
                    Some(Message::Associations(_, answer)) => {
                        let hosts = (1..6).map(|cntlid| (cntlid, ControllerSlot(cntlid.into())));
                        answer.send(hosts.collect());
                    }
                    Some(Message::InspectController(_, _, answer)) => {
                        controllers += 1;
                        if controllers < 3 {
                            let view = ControllerView {
                                doorbells: DoorbellsView::Trapped,
                                admin: None,
                                queues: vec![1, 2],
                                priorities: Vec::new(),
                            };
                            answer.send(Some(view));
                        }
                    }
                    Some(Message::Residences(_, answer)) => {
                        let here = [(1, EngineId(0)), (2, EngineId(0))];
                        answer.send(here.to_vec());
                    }
                    Some(Message::InspectLane(_, _, _, commands, answer)) => {
                        asked.push(commands);
                        answer.send(None);
                    }
                    _ => std::thread::yield_now(),
                }
            }
            asked
        });
        let (found, left_out) = inspector.look_at_hosts(2048, 4, |_| true).unwrap();
        let found: Vec<u16> = found.iter().map(|(cntlid, _)| *cntlid).collect();
        assert_eq!((found, left_out), (vec![1, 2], 3));
        let asked = reactor.join().unwrap();
        // Of 4,096 each of the four hosts has 1,024, and each of its queues half of them.
        assert_eq!(asked.len(), 2 * 2 * TRIES);
        assert!(asked.iter().all(|commands| *commands == 512), "{asked:?}");
    }

    #[test]
    fn a_reactor_that_hangs_is_named_and_not_waited_for() {
        let (address, _mailbox) = Address::unread();
        let inspector = Inspector {
            reactors: vec![address],
            home: EngineId(0),
            slot: ControllerSlot(0),
            bound: Duration::from_millis(20),
        };
        // also with a full mailbox, of 256 messages
        for _ in 0..300 {
            let error = inspector.look(1).unwrap_err();
            assert_eq!(error, InspectError::NoAnswer(0));
            if inspector.reactors[0].try_send(Message::Stop).is_err() {
                break;
            }
            for _ in 0..64 {
                let _ = inspector.reactors[0].try_send(Message::Stop);
            }
        }
        assert!(InspectError::NoAnswer(3).to_string().contains("reactor 3"));
    }
}
