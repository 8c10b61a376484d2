//! Commands that send media several requests one after another: Verify and Copy.
//!
//! Such a command leaves its submission queue when it is fetched and continues from turn to turn:
//! each turn issues its next step, and the step's end ([`Queues::stepped`]) makes it due again. At
//! most [`super::plan::MOST`] run at a time; the others wait ([`super::steps`]).
//!
//! Invariants:
//! - Between two steps a command holds no ticket and no address of the host, and every step looks
//!   up its namespace again: it delays neither an unmap nor a change of namespaces.
//! - The host's memory is read when the command begins (Copy's ranges) and never again.
//! - A command that was aborted in the middle of a step keeps its memory until the medium has
//!   released it. It posts nothing, and takes no further step.
//!
//! It does NOT know the steps of a command: [`super::plan`] does.

use arrayvec::ArrayVec;
use memory::Segment;
use nvme_spec::Status;
use port::Channel;

use super::issue::Issuer;
use super::outcome::Asked;
use super::plan::{Ask, Data, Room, VERIFY_BYTES};
use super::queues::Queues;
use super::steps::{At, Going, Steps};
use super::{LaneTurn, admission};
use crate::gate::Gate;
use crate::state::{CommandState, SlotState};

/// Steps asked for in one turn: enough to share its cost, few enough that a medium which copies at
/// once, 128 KiB a step, holds up the other lanes for no longer than a batch of large reads does.
const STEPS_PER_TURN: u32 = 16;

/// Pieces of the sink for one step of Verify.
const PIECES: usize = 16;

/// Progress of a command in a turn.
enum Came {
    /// A medium is at its step.
    Step,
    /// The channel was full.
    Full,
    /// The turn's steps are used up.
    Spent,
    Ended(Status),
}

impl Queues {
    /// A command that takes several steps was fetched: a turn begins it.
    #[cold]
    pub(super) fn begin_steps(&mut self, index: u16) {
        let slots = self.slots.len();
        let steps = self.steps.get_or_insert_with(|| Steps::new(slots));
        steps.waiting.push_back(index);
    }

    /// Asks for the next step of every command that is between two, and begins those that wait.
    #[cold]
    pub(super) fn advance_steps<C: Channel, G: Gate>(
        &mut self,
        issuer: &mut Issuer<'_, C, G>,
        turn: &mut LaneTurn,
    ) {
        let Some(mut steps) = self.steps.take() else {
            return;
        };
        let mut left = STEPS_PER_TURN;
        let mut at = 0;
        while at < steps.going.len() || self.begin_next(&mut steps, issuer) {
            if !steps.going[at].is_with_us() {
                at += 1;
                continue;
            }
            match self.go_on(&mut steps.going[at], issuer, &mut left) {
                Came::Step => at += 1,
                Came::Full => {
                    turn.pending += 1;
                    at += 1;
                }
                Came::Spent => {
                    turn.pending += 1;
                    break;
                }
                Came::Ended(status) => {
                    let slot = steps.going[at].slot;
                    steps.end(at);
                    self.finish(slot, status);
                }
            }
        }
        turn.steps += STEPS_PER_TURN - left;
        self.steps = Some(steps);
    }

    /// Begins the first command that waits, if there is room for it. Those that cannot be begun end
    /// here.
    fn begin_next<C: Channel, G: Gate>(
        &mut self,
        steps: &mut Steps,
        issuer: &mut Issuer<'_, C, G>,
    ) -> bool {
        while !steps.going.is_full()
            && let Some(index) = steps.waiting.pop_front()
        {
            let slot = self.slots.slot(index);
            let sqe = slot.sqe();
            match issuer.plan(slot, &sqe, &mut steps.spare) {
                Ok((plan, room)) => {
                    steps.going.push(Going {
                        slot: index,
                        at: At::Between,
                        plan,
                        room,
                    });
                    return true;
                }
                Err(status) => self.finish(index, status),
            }
        }
        false
    }

    /// Asks for steps until a medium takes its time, or refuses, or the command has ended.
    fn go_on<C: Channel, G: Gate>(
        &mut self,
        going: &mut Going,
        issuer: &mut Issuer<'_, C, G>,
        left: &mut u32,
    ) -> Came {
        going.at = At::Between;
        loop {
            if *left == 0 {
                return Came::Spent;
            }
            let ask = match going.plan.next(issuer, going.room.as_ref()) {
                Ok(ask) => ask,
                Err(status) => return Came::Ended(status),
            };
            let slot = self.slots.slot(going.slot);
            let nsid = slot.nsid();
            let passed = if G::HOLDS {
                issuer.may_pass(nsid)
            } else {
                Ok(None)
            };
            let Ok(flow) = passed else {
                going.at = At::Full;
                return Came::Full;
            };
            let asked = issuer.ask(going.slot, slot, &ask, going.room.as_ref());
            let bytes = ask.data.len();
            if let Ok(asked) = &asked {
                admission::report(&mut issuer.gate, flow, slot, bytes, asked);
            }
            match asked {
                Ok(Asked::Pending) => {
                    slot.set_state(CommandState::STEPPING);
                    going.at = At::Step;
                    self.count_issued(going.slot);
                    *left -= 1;
                    return Came::Step;
                }
                Ok(Asked::Full) => {
                    going.at = At::Full;
                    return Came::Full;
                }
                Ok(Asked::Done(status)) if status.is_success() => {
                    *left -= 1;
                    if going.plan.took(slot) {
                        return Came::Ended(status);
                    }
                }
                Ok(Asked::Done(status)) | Err(status) => return Came::Ended(status),
            }
        }
    }

    /// A medium has ended a command's step with `status`.
    #[cold]
    pub(super) fn stepped(&mut self, index: u16, status: Status) {
        let slot = self.slots.slot(index);
        slot.set_state(CommandState::FETCHED);
        let position = usize::from(slot.sqid()) - 1;
        let removing = matches!(&self.sqs[position], Some(member) if member.removing);
        let status = if !self.service.is_serving() {
            Status::COMMAND_ABORT_REQUESTED
        } else if removing {
            Status::ABORTED_SQ_DELETION
        } else {
            status
        };
        let steps = self.steps.as_mut();
        let found = steps.and_then(|steps| Some((steps.find(index, At::Step)?, steps)));
        let Some((at, steps)) = found else {
            debug_assert!(false, "a command in a step is one that goes on");
            return;
        };
        let going = &mut steps.going[at];
        if status.is_success() && !going.plan.took(self.slots.slot(index)) {
            going.at = At::Between;
            return;
        }
        steps.end(at);
        self.finish(index, status);
    }

    /// The command in a slot was aborted while a medium executed its step.
    #[cold]
    pub(super) fn give_up_step(&mut self, index: u16) {
        if let Some(steps) = &mut self.steps
            && let Some(at) = steps.find(index, At::Step)
        {
            steps.going[at].at = At::GivenUp;
        }
    }

    /// The last ticket of an aborted command has come back.
    #[cold]
    pub(super) fn forget_step(&mut self, index: u16) {
        if let Some(steps) = &mut self.steps
            && let Some(at) = steps.find(index, At::GivenUp)
        {
            steps.end(at);
        }
    }

    /// Completes every command with `status` that is `chosen` and with no medium: it waits, or is
    /// between two steps.
    #[cold]
    pub(super) fn drop_steps(&mut self, status: Status, chosen: impl Fn(&SlotState) -> bool) {
        while let Some(index) = self.take_step(&chosen) {
            self.finish(index, status);
        }
    }

    /// Takes one of them out, which the caller completes.
    #[cold]
    pub(super) fn take_step(&mut self, chosen: impl Fn(&SlotState) -> bool) -> Option<u16> {
        let steps = self.steps.as_mut()?;
        let is_chosen = |index: u16| chosen(self.slots.get(index));
        if let Some(at) = steps.waiting.iter().position(|index| is_chosen(*index)) {
            return steps.waiting.remove(at);
        }
        let mut going = steps.going.iter();
        let at = going.position(|going| going.is_with_us() && is_chosen(going.slot))?;
        let slot = steps.going[at].slot;
        steps.end(at);
        Some(slot)
    }
}

impl<C: Channel, G: Gate> Issuer<'_, C, G> {
    /// Asks a medium for a command's step.
    fn ask(
        &mut self,
        index: u16,
        slot: &mut SlotState,
        ask: &Ask,
        room: Option<&Room>,
    ) -> Result<Asked, Status> {
        let Ask {
            channel,
            request,
            data,
        } = ask;
        let mut pieces = ArrayVec::<Segment<'_>, PIECES>::new();
        let mut view = self.view;
        match (*data, room) {
            (Data::Nothing, _) => {}
            (Data::Discarded(len), _) => {
                const { assert!(VERIFY_BYTES as usize <= PIECES * (64 << 10)) };
                let mut left = len;
                while left > 0 {
                    let piece = Segment::sink(left);
                    left -= piece.len();
                    pieces.push(piece);
                }
            }
            (Data::Carried(len, need), Some(room)) => {
                view = room.scratch.view();
                pieces.push(room.scratch.segment(len, need));
            }
            (Data::Carried(..), None) => return Err(Status::INTERNAL_ERROR),
        }
        self.add_with(index, slot, *channel, request, (&pieces, view))
    }
}
