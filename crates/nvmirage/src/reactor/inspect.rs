//! Looking at the queues of a controller, wherever they live ([`controller::inspect`]).
//!
//! Each completion queue is a question of its own to the reactor that it lives on: no reactor is
//! held up for longer than one of them takes, and what is said of one is of one moment. All of it
//! together has [`BOUND`]. A queue that moves meanwhile is looked for again, and one that is under
//! way is told as that.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use controller::inspect::{CompletionView, ControllerView};
use engine::{ControllerSlot, EngineId};

use super::handle::{Address, Answer, Message, ReactorHandle};

/// How long all reactors together may take to answer.
const BOUND: Duration = Duration::from_secs(2);
/// How often a queue is looked for that is not where it was said to be.
const TRIES: usize = 3;

/// Why nothing can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum InspectError {
    /// A reactor hangs, or is too busy.
    #[error(
        "reactor {0} did not respond within 2 s: it is stalled or overloaded; retry, and check its load with `nvmirage ls`"
    )]
    NoAnswer(u16),
    /// It was deleted meanwhile.
    #[error("the controller was deleted meanwhile")]
    Gone,
}

/// A completion queue and where it lives; of one that is on its way to another reactor no more is
/// known.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    pub(crate) cqid: u16,
    pub(crate) reactor: usize,
    pub(crate) view: Option<CompletionView>,
}

/// What there is of a controller.
#[derive(Clone, Debug)]
pub(crate) struct Inspection {
    pub(crate) controller: ControllerView,
    /// Its own reactor.
    pub(crate) home: usize,
    pub(crate) queues: Vec<Found>,
}

/// Asks the reactors of a controller, from any thread.
#[derive(Debug)]
pub(crate) struct Inspector {
    reactors: Vec<Address>,
    home: EngineId,
    slot: ControllerSlot,
    bound: Duration,
}

impl Inspector {
    /// For a controller of the reactor `home` of these.
    pub(crate) fn new(reactors: &[ReactorHandle], home: usize, slot: ControllerSlot) -> Self {
        Inspector {
            reactors: reactors.iter().map(ReactorHandle::address).collect(),
            home: EngineId(home as u16),
            slot,
            bound: BOUND,
        }
    }

    /// Looks, and shows at most so many commands of each submission queue.
    ///
    /// # Errors
    /// A reactor does not answer in time, or the controller is gone.
    pub(crate) fn look(&self, commands: usize) -> Result<Inspection, InspectError> {
        let deadline = Instant::now() + self.bound;
        let (home, slot) = (self.home, self.slot);
        let message = |answer| Message::InspectController(slot, commands, answer);
        let controller = self.ask(home, deadline, message)?;
        let controller = controller.ok_or(InspectError::Gone)?;
        let mut residences = self.residences(deadline)?;
        let mut queues = Vec::new();
        for &cqid in &controller.queues {
            let mut view = None;
            for again in 0..TRIES {
                if again > 0 {
                    residences = self.residences(deadline)?;
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
            // one that nobody knows any more was deleted
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

    fn residences(&self, deadline: Instant) -> Result<Vec<(u16, EngineId)>, InspectError> {
        let message = |answer| Message::Residences(self.slot, answer);
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
        let (answer, answered) = mpsc::sync_channel(1);
        let told = address.tell_until(deadline, message(answer));
        told.map_err(|_| late)?;
        let left = deadline.saturating_duration_since(Instant::now());
        answered.recv_timeout(left).map_err(|_| late)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reactor_that_hangs_is_named_and_not_waited_for() {
        let (address, _mailbox) = Address::of_nobody();
        let inspector = Inspector {
            reactors: vec![address],
            home: EngineId(0),
            slot: ControllerSlot(0),
            bound: Duration::from_millis(20),
        };
        // also when its mailbox is full, which takes 256
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
