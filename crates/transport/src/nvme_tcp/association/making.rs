//! I/O queues of an association are made and deleted, one step at a time.

use nvme_spec::{Cqe, Status};
use port::time::Time;

use super::{Association, Io, place};
use crate::host::{Step, command};
use crate::nvme_tcp::connect::{QID_OFFSET, Refusal, SQSIZE_OFFSET};
use crate::nvme_tcp::newcomer::Arrival;
use crate::nvme_tcp::queue::Queue;

impl Association {
    /// Begins to make the queue of an arrival, whose identifier is free.
    pub(super) fn make(&mut self, arrival: Arrival, now: Time) {
        self.changes += 1;
        let Arrival {
            connection,
            connect,
            exchange,
            ..
        } = arrival;
        // The memory has room for every queue that the controller may have.
        let queue = Queue::new(
            connection,
            &connect,
            exchange,
            &self.memory,
            &self.large,
            &self.config,
        );
        match queue {
            Some(queue) => {
                self.io[place(connect.qid)] = Some(Io::Making(Box::new(queue), Step::CreateCq));
                self.note_used();
            }
            None => tracing::debug!(target = self.config.name, ?now, "no memory for a queue"),
        }
    }

    /// Looks which queues are there.
    pub(super) fn note_used(&mut self) {
        let last = self.io.iter().rposition(Option::is_some);
        self.used = last.map_or(0, |last| last + 1);
    }

    /// Looks again at arrivals whose queue identifier was in use.
    pub(super) fn retry(&mut self, now: Time) -> bool {
        let mut worked = false;
        let mut at = 0;
        while let Some((arrival, until)) = self.waiting.get(at) {
            let free = self.io[place(arrival.qid())].is_none();
            if !free && self.ready && now < *until {
                at += 1;
                continue;
            }
            let (arrival, _) = self.waiting.remove(at);
            worked = true;
            if free && self.ready {
                self.make(arrival, now);
            } else {
                let refusal = Refusal::Other(Status::COMMAND_SEQUENCE_ERROR);
                self.leave(arrival.refuse(refusal, now));
            }
        }
        worked
    }

    /// Refuses the queues that are being made: the controller does not serve commands any more. It
    /// may know a part of them until it is reset.
    pub(super) fn refuse_making(&mut self, now: Time) {
        for qid in 1..=self.config.queues {
            let io = &mut self.io[place(qid)];
            let (queue, step) = match io.take() {
                Some(Io::Making(queue, step)) => (queue, step),
                other => {
                    *io = other;
                    continue;
                }
            };
            // The completion of this command is another step's no more.
            self.own = self.own.filter(|own| *own != qid);
            let step = match step {
                Step::CreateCq => Step::DeleteCq,
                _ => Step::DeleteSq,
            };
            let refusal = Refusal::Other(Status::COMMAND_SEQUENCE_ERROR);
            let (farewell, remains) = queue.refuse_connect(refusal, now);
            self.io[place(qid)] = Some(Io::Ending(Box::new(remains), step));
            self.leave(farewell);
        }
    }

    /// Stores the next command of the association's own.
    pub(super) fn submit_own(&mut self) -> bool {
        if !self.ready || self.own.is_some() {
            return false;
        }
        for (qid, io) in (1u16..).zip(&self.io[..self.used]) {
            let sqe = match io {
                Some(Io::Making(queue, step)) => {
                    let (sq, cq) = queue.rings.addresses();
                    let entries_z = (queue.rings.entries() - 1) as u16;
                    command(*step, qid, entries_z, (sq, cq))
                }
                Some(Io::Ending(_, step)) => command(*step, qid, 0, (0, 0)),
                _ => continue,
            };
            self.admin.store_own(sqe);
            self.own = Some(qid);
            return true;
        }
        false
    }

    /// The command of the association's own has completed.
    pub(super) fn own_completed(&mut self, cqe: &Cqe, now: Time) {
        let Some(qid) = self.own.take() else {
            return;
        };
        let status = cqe.status.status();
        let at = place(qid);
        self.io[at] = match self.io[at].take() {
            Some(Io::Making(queue, step)) if !status.is_success() => {
                // The completion queue of a submission queue that is not there goes again.
                let keeps = (step == Step::CreateSq).then_some(Step::DeleteCq);
                let refusal = match status {
                    Status::INVALID_QUEUE_IDENTIFIER => Refusal::Command(QID_OFFSET),
                    Status::INVALID_QUEUE_SIZE => Refusal::Command(SQSIZE_OFFSET),
                    status => Refusal::Other(status),
                };
                let (farewell, remains) = queue.refuse_connect(refusal, now);
                self.leave(farewell);
                match keeps {
                    Some(step) => Some(Io::Ending(Box::new(remains), step)),
                    None => {
                        self.end_remains(remains, false);
                        None
                    }
                }
            }
            Some(Io::Making(queue, Step::CreateCq)) => Some(Io::Making(queue, Step::CreateSq)),
            Some(Io::Making(mut queue, _)) => {
                queue.accept(self.cntlid);
                self.changes += 1;
                self.openings += 1;
                Some(Io::Open(queue))
            }
            // Without its submission queue the completion queue can go, whatever the status is.
            Some(Io::Ending(remains, Step::DeleteSq)) => Some(Io::Ending(remains, Step::DeleteCq)),
            Some(Io::Ending(remains, _)) => {
                self.end_remains(*remains, false);
                None
            }
            other => other,
        };
        self.note_used();
    }
}
