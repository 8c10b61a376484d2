//! Inspection of a controller's queues between two turns: [`crate::inspect`].

use nvme_spec::opcode::AdminOpcode;

use super::Controller;
use super::admin::{AdminQueue, Waiting};
use crate::config::DoorbellMode;
use crate::inspect::{
    self, CommandView, CompletionView, ControllerView, DoorbellsView, Look, Place, SubmissionView,
};

impl Controller {
    /// A snapshot of its queues; the lanes have the rest of the I/O queues' state
    /// ([`crate::lane::Lane::inspect`]).
    #[must_use]
    pub fn inspect(&self, look: Look) -> ControllerView {
        let doorbells = match self.config.doorbells {
            DoorbellMode::Mapped => DoorbellsView::Mapped,
            _ if self.doorbells.shadow.is_some() => DoorbellsView::Shadow,
            _ => DoorbellsView::Trapped,
        };
        let priorities = self.queues.priorities();
        let priorities = priorities.map(|(sqid, priority, _)| (sqid, priority));
        let lanes = self.queues.cqs().filter(|(_, cq)| cq.lane.is_some());
        ControllerView {
            doorbells,
            admin: self
                .admin
                .queue
                .as_ref()
                .map(|admin| self.inspect_admin(admin, look)),
            queues: lanes.map(|(cqid, _)| cqid).collect(),
            priorities: if self.is_arbitrating() {
                priorities.collect()
            } else {
                Vec::new()
            },
        }
    }

    fn inspect_admin(&self, admin: &AdminQueue, look: Look) -> CompletionView {
        let bells = admin.bells(&self.doorbells.pages);
        let AdminQueue { sq, cq, .. } = admin;
        let mut commands = self.admin_commands(look);
        let in_flight = commands.len() as u32;
        commands.truncate(look.commands);
        let waiting = sq.available();
        let room = look.commands - commands.len();
        commands.extend((0..waiting).take(room).map_while(|ahead| {
            let words = sq.glance(ahead, &[0])?;
            let sqe = nvme_spec::Sqe::from_words(words);
            let asked = (sqe.opcode, sqe.nsid);
            Some(inspect::admin_command(sqe.cid, asked, Place::Ring, None))
        }));
        CompletionView {
            cqid: 0,
            entries: cq.entries(),
            head: cq.head(),
            tail: cq.tail(),
            phase: cq.phase(),
            posted: cq.posted(),
            reserved: cq.reserved(),
            vector: Some(0),
            bell: cq.bell(bells),
            is_stopped: false,
            given_up: 0,
            submission_queues: vec![SubmissionView {
                sqid: 0,
                entries: sq.entries(),
                head: sq.head(),
                tail: sq.tail(),
                bell: sq.bell(bells),
                priority: None,
                is_ending: false,
                waiting,
                in_flight,
                commands,
            }],
        }
    }

    /// Those that wait for something, the oldest first, and then the requests for events.
    fn admin_commands(&self, look: Look) -> Vec<CommandView> {
        let waiting = self.admin.pending.iter().map(|command| {
            let place = match command.waiting {
                Waiting::DeleteSq { .. } | Waiting::DeleteCq { .. } | Waiting::Abort(_) => {
                    Place::Queue
                }
                Waiting::FlushCache => Place::Medium,
                Waiting::Operation => Place::Subsystem,
            };
            let age_ns = Some(look.now.since(command.since));
            let asked = self.admin.pending.asked(command.cid).map(|it| it.sqe);
            let of = asked.map_or_else(Default::default, |sqe| (sqe.opcode, sqe.nsid));
            inspect::admin_command(command.cid, of, place, age_ns)
        });
        let request = (AdminOpcode::ASYNCHRONOUS_EVENT_REQUEST.0, 0);
        let held = self.admin.events.held().iter();
        let requests = held.map(|cid| inspect::admin_command(*cid, request, Place::Event, None));
        waiting.chain(requests).collect()
    }
}
