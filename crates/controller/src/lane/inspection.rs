//! Inspection of a lane between two turns: [`crate::inspect`].
//!
//! Its cost is bounded by the lane's slots, and by the number of commands requested.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use nvme_spec::Sqe;
use nvme_spec::sqe::Fuse;
use port::namespace::NamespaceTable;
use port::{Channel, Channels};

use super::Lane;
use super::member::Member;
use super::queues::Queues;
use crate::inspect::{self, CommandView, CompletionView, Look, Place, SubmissionView};
use crate::state::{CommandState, MAX_SQS, SlotState};

/// Maximum number of commands of a lane that are shown, of all its submission queues together.
const MOST_SHOWN: usize = 2048;

/// As many commands of each of so many submission queues as are asked for, and as fit a look.
fn share(asked: usize, queues: usize) -> usize {
    asked.min(MOST_SHOWN / queues.max(1))
}

/// The words of an entry with its request: opcode, identifier and namespace, and Dwords 10 to 13.
const SHOWN_WORDS: [usize; 3] = [0, 5, 6];

/// The oldest commands of a submission queue: how many were fetched since each, and its slot.
#[derive(Clone, Debug, Default)]
struct Oldest(BinaryHeap<Reverse<(u32, u16)>>);

impl Oldest {
    /// Keeps a command, or forgets the youngest where there are `most`.
    fn offer(&mut self, behind: u32, index: u16, most: usize) {
        self.0.push(Reverse((behind, index)));
        if self.0.len() > most {
            self.0.pop();
        }
    }

    /// Their slots, the oldest first.
    fn slots(self) -> impl Iterator<Item = u16> {
        // ascending in what is reversed
        self.0
            .into_sorted_vec()
            .into_iter()
            .map(|Reverse((_, index))| index)
    }
}

impl Lane {
    /// A snapshot of its queues. Call it between two turns: then it is of one moment.
    #[must_use]
    pub fn inspect<C: Channel>(&self, channels: &Channels<C>, look: Look) -> CompletionView {
        let queues = &self.queues;
        let cq = &queues.cq;
        let look = Look {
            commands: share(look.commands, queues.sqs.iter().flatten().count()),
            ..look
        };
        let viewer = Viewer {
            queues,
            namespaces: &self.namespaces,
            channels,
            look,
            steps: queues.steps.as_ref().map_or(Vec::new(), |steps| {
                let mut all: Vec<u16> = steps.slots().collect();
                all.sort_unstable();
                all
            }),
        };
        let oldest = viewer.oldest();
        let members = queues.sqs.iter().zip(oldest);
        let submission_queues: Vec<_> = members
            .filter_map(|(member, oldest)| Some(viewer.submission(member.as_ref()?, oldest)))
            .collect();
        let in_flight: u32 = submission_queues.iter().map(|sq| sq.in_flight).sum();
        let used = queues.slots.len() as u32 - queues.slots.free();
        CompletionView {
            cqid: cq.id(),
            entries: cq.entries(),
            head: cq.head(),
            tail: cq.tail(),
            phase: cq.phase(),
            posted: cq.posted(),
            reserved: cq.reserved(),
            vector: queues.unannounced.vector(),
            bell: cq.bell(queues.doorbells.bells()),
            is_stopped: !queues.service.is_serving(),
            given_up: used.saturating_sub(in_flight),
            submission_queues,
        }
    }
}

struct Viewer<'l, C> {
    queues: &'l Queues,
    namespaces: &'l NamespaceTable,
    channels: &'l Channels<C>,
    look: Look,
    /// Slots of commands that take several steps, in order.
    steps: Vec<u16>,
}

impl<C: Channel> Viewer<'_, C> {
    /// The oldest commands of every submission queue, by its position.
    fn oldest(&self) -> Vec<Oldest> {
        let mut oldest = vec![Oldest::default(); MAX_SQS];
        let members = self.queues.sqs.iter().flatten();
        let mut left: u32 = members.map(|member| member.outstanding).sum();
        if self.look.commands == 0 {
            return oldest;
        }
        for (index, slot) in self.queues.slots.iter() {
            if left == 0 {
                break;
            }
            if matches!(slot.state(), CommandState::FREE | CommandState::ZOMBIE) {
                continue;
            }
            let position = usize::from(slot.sqid()).wrapping_sub(1);
            if let Some(Some(member)) = self.queues.sqs.get(position) {
                left -= 1;
                let behind = member.sq.fetched().wrapping_sub(slot.number());
                oldest[position].offer(behind, index, self.look.commands);
            }
        }
        oldest
    }

    fn submission(&self, member: &Member, oldest: Oldest) -> SubmissionView {
        let sq = &member.sq;
        let mut commands: Vec<_> = oldest
            .slots()
            .map(|index| self.fetched(index, self.queues.slots.get(index), member))
            .collect();
        let room = self.look.commands.saturating_sub(commands.len());
        let waiting = sq.available();
        commands.extend((0..waiting).take(room).map_while(|ahead| {
            let words = sq.glance(ahead, &SHOWN_WORDS)?;
            let sqe = Sqe::from_words(words);
            Some(self.show(&sqe, 0, Place::Ring, None))
        }));
        SubmissionView {
            sqid: sq.id(),
            entries: sq.entries(),
            head: sq.head(),
            tail: sq.tail(),
            bell: sq.bell(self.queues.doorbells.bells()),
            priority: None,
            is_ending: member.removing,
            waiting,
            in_flight: member.outstanding,
            commands,
        }
    }

    fn show(&self, sqe: &Sqe, moved: u32, place: Place, age_ns: Option<u64>) -> CommandView {
        inspect::io_command(sqe, self.namespaces, moved, place, age_ns)
    }

    fn fetched(&self, index: u16, slot: &SlotState, member: &Member) -> CommandView {
        let sqe = slot.sqe();
        let age_ns = inspect::since_tick(slot.tick(), self.look.now);
        let place = self.place(index, slot, &sqe, member);
        self.show(&sqe, slot.bytes, place, Some(age_ns))
    }

    fn place(&self, index: u16, slot: &SlotState, sqe: &Sqe, member: &Member) -> Place {
        if self.steps.binary_search(&index).is_ok() {
            return Place::Steps;
        }
        let is_fused = sqe.flags.fuse() != Fuse::NORMAL;
        // at the head of its queue, itself or with the first of its pair
        let waits = member.waiting.is_some_and(|head| {
            head == index || self.queues.slots.get(head).partner.get() == Some(index)
        });
        match slot.state() {
            CommandState::FETCHED if is_fused && waits => Place::Pair,
            CommandState::FETCHED if waits => Place::Channel,
            CommandState::FETCHED if !is_fused => Place::Fairness,
            _ if slot.counted.in_subsystem() => Place::Subsystem,
            _ if self.keeps_time(sqe.nsid) => Place::Model,
            _ => Place::Medium,
        }
    }

    /// Whether the medium of a namespace has a timing model, or, for all namespaces, any medium.
    fn keeps_time(&self, nsid: u32) -> bool {
        let keeps = |namespace: &port::namespace::Namespace| {
            let channel = self.channels.get(namespace.channel);
            channel.is_some_and(C::keeps_time)
        };
        if inspect::is_for_all(nsid) {
            self.namespaces.iter().any(keeps)
        } else {
            self.namespaces.get(nsid).is_some_and(keeps)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::share;

    #[test]
    fn a_look_is_bounded_however_many_queues_there_are() {
        for (asked, queues, each) in [
            (64, 1, 64),
            (1024, 1, 1024),
            (1024, 2, 1024),
            (1024, 64, 32),
            (0, 3, 0),
            (5, 0, 5),
        ] {
            assert_eq!(share(asked, queues), each, "{asked} of {queues}");
        }
    }
}
