//! The operator: queues move between reactors, and namespaces are taken away from all hosts and
//! given back.

use engine::EngineId;
use nvme_spec::Status;
use subsystem::{ControllerSet, OperatorRequest};

use crate::around::Failure;
use crate::world::{Attached, World};

/// How long a move may take: a lane has a second to become empty.
const MOVE_NS: u64 = 1_500_000_000;

/// Present task of the operator.
#[derive(Debug, Default)]
pub struct Operator {
    /// When it acts next.
    pub due: u64,
    /// When it has begun something last, and how many commands had completed by then.
    acted: u64,
    commands: u64,
    change: Option<Change>,
    tokens: u64,
}

/// How far a namespace is that is taken away and given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Detaching,
    Away { until: u64 },
    Attaching,
}

#[derive(Clone, Copy, Debug)]
struct Change {
    /// Which of the world's namespaces.
    space: usize,
    stage: Stage,
    since: u64,
    token: u64,
}

impl Operator {
    /// Whether a namespace is taken away, or is being.
    #[must_use]
    pub fn changes(&self) -> bool {
        self.change.is_some()
    }
}

impl World {
    /// The operator moves a queue, or all queues to come, of some controller.
    pub(crate) fn operate(&mut self) -> Result<(), Failure> {
        let now = self.now;
        self.operator.due = now + 1 + self.random.below(2 * self.move_ns);
        for reactor in &self.reactors {
            if let Some(asked) = reactor.asked.iter().find(|a| now - a.since > MOVE_NS) {
                return Err(Failure(format!("at {now} ns: a stall: the move {asked:?}")));
            }
        }
        self.go_on_changing()?;
        // While nothing else happens the operator waits, too.
        let idle = self.tally.commands == self.operator.commands;
        if idle {
            let idle_ns = now - self.operator.acted;
            self.operator.due = now + 1 + idle_ns.max(self.move_ns);
        }
        if self.ending || idle {
            return Ok(());
        }
        self.operator.commands = self.tally.commands;
        self.operator.acted = now;
        if self.kills && self.random.once_in(8) {
            self.kill();
            return Ok(());
        }
        if self.random.once_in(16) {
            self.begin_change();
        }
        let host = self.random.index(self.hosts.len());
        let Attached { reactor, seat, .. } = self.hosts[host];
        let to = EngineId(self.random.index(self.reactors.len()) as u16);
        let cqid = self.random.between(1, 4) as u16;
        let reactor = &mut self.reactors[reactor];
        let slot = reactor.seats[seat].slot;
        if self.random.once_in(16) {
            reactor.engine.spread(slot, vec![to]);
        } else if reactor.ask_move(now, slot, cqid, to) {
            self.tally.moves += 1;
            if self.steps >= self.trace_from {
                println!("{now:>14} host {host}: queue {cqid} moves to {to:?}");
            }
        }
        Ok(())
    }

    /// A namespace is to be taken away, if none is.
    fn begin_change(&mut self) {
        if self.operator.change.is_none() {
            let space = self.random.index(self.spaces.len());
            self.tally.changes += 1;
            self.absent_until[space] = u64::MAX;
            self.change(space, Stage::Detaching);
        }
    }

    fn change(&mut self, at: usize, stage: Stage) {
        let (now, space) = (self.now, self.spaces[at]);
        let (nsid, controllers) = (space.nsid, ControllerSet::ALL);
        let request = match stage {
            Stage::Detaching => OperatorRequest::Detach { nsid, controllers },
            _ => OperatorRequest::Attach { nsid, controllers },
        };
        if self.steps >= self.trace_from {
            println!("{now:>14} operator: {request:?} of medium {}", space.medium);
        }
        self.operator.tokens += 1;
        let token = self.operator.tokens;
        self.operator.change = Some(Change {
            space: at,
            stage,
            since: now,
            token,
        });
        let (reactor, slot) = self.subsystems[space.medium];
        self.reactors[reactor].ask(now, slot, token, request);
    }

    /// Asks another process for what the dead one had not answered.
    pub(crate) fn change_again(&mut self) {
        if let Some(Change { space, stage, .. }) = self.operator.change
            && !matches!(stage, Stage::Away { .. })
        {
            self.change(space, stage);
        }
    }

    /// Gives a namespace back whose time has come.
    fn go_on_changing(&mut self) -> Result<(), Failure> {
        let now = self.now;
        match self.operator.change {
            Some(Change {
                space,
                stage: Stage::Away { until },
                ..
            }) if now >= until => {
                self.change(space, Stage::Attaching);
            }
            Some(change) if now - change.since > self.bounds.admin_ns => {
                return Err(Failure(format!("at {now} ns: a stall: {change:?}")));
            }
            _ => {}
        }
        Ok(())
    }

    /// A subsystem has answered.
    pub(crate) fn change_ended(
        &mut self,
        token: u64,
        result: Result<u32, Status>,
    ) -> Result<(), Failure> {
        let now = self.now;
        let change = self.operator.change.filter(|change| change.token == token);
        let Some(change) = change.filter(|_| result.is_ok()) else {
            let change = self.operator.change;
            return Err(Failure(format!(
                "at {now} ns: {change:?} ended with {result:?}"
            )));
        };
        self.operator.change = match change.stage {
            Stage::Detaching => Some(Change {
                stage: Stage::Away {
                    until: now + self.random.spread(1_000, 1_000_000),
                },
                since: now,
                ..change
            }),
            _ => {
                self.absent_until[change.space] = now;
                None
            }
        };
        Ok(())
    }
}
