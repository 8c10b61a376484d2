//! The reactors that serve the queues of a controller, and moves of queues between them.

use std::collections::BTreeSet;

use api::config::reactors_in_words;
use api::{Protocol, Refusal};
use engine::{ControllerSlot, MoveError};
use reactor::message::Movable;

use super::State;

impl State {
    /// The reactors that serve queues of a subsystem's controllers, beside the subsystem's own.
    pub(super) fn reactors_of(&self, subsystem: &str) -> BTreeSet<usize> {
        let configs = self.config.controllers_of(subsystem);
        let mut all: BTreeSet<usize> = BTreeSet::new();
        for config in configs {
            all.extend(&config.reactors);
            let mut served = self.controllers.iter();
            if let Some(served) = served.find(|c| c.name == config.name) {
                all.extend(&served.visited);
            }
        }
        all
    }

    /// Opens the media of a running subsystem on a reactor, so that the reactor can serve queues of
    /// it.
    pub(super) fn open_media_on(&self, subsystem: &str, reactor: usize) -> anyhow::Result<()> {
        let Some(live) = self.live(subsystem) else {
            return Ok(());
        };
        let view = self.view(live)?;
        let used = view.namespaces.iter().map(|n| &n.medium);
        for medium in used.chain(&live.pool).collect::<BTreeSet<_>>() {
            self.open_on(medium, reactor)?;
        }
        Ok(())
    }

    /// Moves one queue of a controller; or all of them, and the queues that hosts create from now
    /// on.
    pub(super) fn move_queues(
        &mut self,
        name: &str,
        reactors: &[usize],
        queue: Option<u16>,
    ) -> Result<(), Refusal> {
        let at = self.controllers.iter().position(|c| c.name == name);
        let at = at.ok_or_else(|| Refusal::not_found("controller", name))?;
        let (home, slot) = (self.controllers[at].reactor, self.controllers[at].slot);
        let count = self.reactors.len();
        if let Some(reactor) = reactors.iter().find(|reactor| **reactor >= count) {
            return Err(Refusal::invalid(format!(
                "there is no reactor {reactor}: {}",
                reactors_in_words(count)
            )));
        }
        if (1..reactors.len()).any(|at| reactors[..at].contains(&reactors[at])) {
            return Err(Refusal::invalid(
                "a reactor is listed twice: list each once",
            ));
        }
        let mut configs = self.config.controller.iter();
        let config = configs.find(|c| c.name == name);
        let protocol = self.controllers[at].protocol;
        let has_many_hosts = protocol.is_some();
        if has_many_hosts && queue.is_some() {
            return Err(Refusal::conflict(format!(
                "controller {name}: the queues of its hosts move together: leave the queue out"
            )));
        }
        let stays = match protocol {
            Some(Protocol::Nbd) => Some("NBD clients are"),
            Some(Protocol::VhostUserBlk) => Some("vhost-user-blk front end is"),
            Some(Protocol::Ublk) => Some("block device is"),
            Some(Protocol::NvmeTcp) | None => None,
        };
        if let Some(hosts_are) = stays {
            return Err(Refusal::conflict(format!(
                "controller {name}: its {hosts_are} served by its reactor, and hosts of this kind do not move: write another `reactor` for the controller, and create it again"
            )));
        }
        let subsystem = config.map(|c| c.subsystem());
        let subsystem = subsystem.unwrap_or(name).to_owned();
        let failed = |error: anyhow::Error| Refusal::failed(&error);
        for reactor in reactors {
            self.open_media_on(&subsystem, *reactor).map_err(failed)?;
        }
        self.controllers[at].visited.extend(reactors);
        let movable = |of: ControllerSlot, cqid| Movable {
            controller: slot,
            slot: of,
            cqid,
        };
        let moves = match (queue, reactors) {
            (Some(cqid), &[to]) => vec![(movable(slot, cqid), to)],
            (Some(_), _) => {
                return Err(Refusal::invalid(
                    "a single queue moves to a single reactor: name one",
                ));
            }
            (None, []) => return Err(Refusal::invalid("name the reactors to move to")),
            (None, reactors) => {
                self.reactors[home].spread(slot, reactors).map_err(failed)?;
                let mut configs = self.config.controller.iter_mut();
                if let Some(config) = configs.find(|c| c.name == name) {
                    config.reactors = reactors.to_vec();
                }
                let reactor = &self.reactors[home];
                let mut slots = vec![slot];
                if has_many_hosts {
                    let hosts = reactor.associations(slot).map_err(failed)?;
                    slots.extend(hosts.iter().map(|(_, slot)| *slot));
                }
                let to = |queue: u16| reactors[usize::from(queue - 1) % reactors.len()];
                let mut moves = Vec::new();
                for slot in slots {
                    let all = reactor.residences(slot).map_err(failed)?;
                    moves.extend(
                        all.iter()
                            .map(|(cqid, _)| (movable(slot, *cqid), to(*cqid))),
                    );
                }
                moves
            }
        };
        let (all, mut left) = (moves.len(), 0);
        for (movable, to) in moves {
            let moved = self.reactors[home].move_queue(movable, to);
            match moved.map_err(failed)? {
                // Hosts come and go meanwhile.
                Err(MoveError::NoQueue(_) | MoveError::Gone(_)) if has_many_hosts => {}
                // The other ones move all the same.
                Err(MoveError::Moving(_) | MoveError::Busy(_)) if queue.is_none() => left += 1,
                moved => moved.map_err(|error| Refusal::conflict(error.to_string()))?,
            }
        }
        if left > 0 {
            return Err(Refusal::conflict(format!(
                "{left} of {all} queues were not moved: they were on their way already, or their commands did not complete in time: move them again, and check whether their media hang if that fails"
            )));
        }
        Ok(())
    }
}
