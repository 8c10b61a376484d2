//! A controller's transport without a socket: what `transport` and the program do between a host's
//! messages and the controller, in virtual time and with the same bounds.

use std::collections::VecDeque;
use std::sync::Arc;

use controller::{Controller, ControllerConfig};
use engine::ControllerSlot;
use memory::{Access, DmaMap, DmaView, DoorbellPages, Iova, LostFlag};
use port::time::Time;

use crate::wire::{Answer, Message, Wire};

/// Time after which commands that hang are aborted for an unmap, and time after which the unmap is
/// answered in any case.
const ABANDON_NS: u64 = 4_000_000_000;
const ANSWER_NS: u64 = 4_500_000_000;
const REGIONS: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    Drained { epoch: u64, iova: u64 },
    Reset,
}

#[derive(Debug)]
struct Waiting {
    until: Until,
    since: Time,
    abandoned: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Host {
    None,
    Attached,
    Leaving,
}

/// A controller and what lies before it.
#[derive(Debug)]
pub struct Seat {
    /// Its place in the engine.
    pub slot: ControllerSlot,
    /// Which of the world's subsystems is the controller's.
    pub subsystem: usize,
    /// The controller's configuration.
    pub config: ControllerConfig,
    /// The doorbells of the last host.
    pub doorbells: Arc<DoorbellPages>,
    /// To and from its host.
    pub wire: Wire,
    host: Host,
    map: DmaMap,
    waiting: VecDeque<Waiting>,
    mapped_doorbells: bool,
    /// By which way interrupts reach the host, of all that there ever were; other reactors know of
    /// the second.
    lines: u64,
    lines_told: u64,
    /// An unmap or a reset was answered although it is not over.
    pub late: bool,
}

impl Seat {
    /// A seat without a host.
    #[must_use]
    pub fn new(
        slot: ControllerSlot,
        subsystem: usize,
        config: ControllerConfig,
        doorbells: Arc<DoorbellPages>,
        mapped_doorbells: bool,
    ) -> Self {
        Seat {
            slot,
            subsystem,
            config,
            doorbells,
            wire: Wire::default(),
            host: Host::None,
            map: DmaMap::new(REGIONS),
            waiting: VecDeque::new(),
            mapped_doorbells,
            lines: 0,
            lines_told: 0,
            late: false,
        }
    }

    /// The host's memory.
    #[must_use]
    pub fn view(&self) -> Arc<DmaView> {
        self.map.view()
    }

    /// Its process has died, and another one serves this controller. A reset that has no answer
    /// is asked for again.
    pub fn begin_again(&mut self, controller: &mut Controller) {
        self.lines_told = 0;
        if self.host != Host::None {
            controller.expect_messages();
        }
        if self
            .waiting
            .iter()
            .any(|waiting| waiting.until == Until::Reset)
        {
            controller.function_reset();
        }
        for waiting in &mut self.waiting {
            waiting.abandoned = false;
        }
    }

    /// Whether its host stores doorbells without waking anyone.
    #[must_use]
    pub fn is_unwoken(&self) -> bool {
        self.mapped_doorbells && self.host == Host::Attached
    }

    /// By which way interrupts reach the host; `None` without one.
    #[must_use]
    pub fn lines(&self) -> Option<u64> {
        (self.host == Host::Attached).then_some(self.lines)
    }

    /// Whether the lines have changed since the last call.
    pub fn have_lines_changed(&mut self) -> bool {
        std::mem::replace(&mut self.lines_told, self.lines) != self.lines
    }

    /// Whether it must be looked at without being woken.
    #[must_use]
    pub fn is_in_transition(&self) -> bool {
        match self.host {
            Host::None => false,
            Host::Attached => !self.waiting.is_empty(),
            Host::Leaving => true,
        }
    }

    /// When an answer is due.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Time> {
        let bound = |waiting: &Waiting| match waiting.until {
            Until::Drained { .. } if !waiting.abandoned => waiting.since + ABANDON_NS,
            _ => waiting.since + ANSWER_NS,
        };
        self.waiting.iter().map(bound).min()
    }

    /// Whether there are messages to read.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        !self.wire.messages.is_empty()
    }

    /// Reads its messages, at most so many, and sends what is due; whether anything was done.
    pub fn poll(&mut self, controller: &mut Controller, now: Time, most: usize) -> bool {
        let mut worked = self.answer(controller, now);
        if self.host == Host::Leaving {
            worked |= self.leave(controller);
        }
        for _ in 0..most {
            let resets = self.waiting.back().is_some_and(|w| w.until == Until::Reset);
            let waits = self.host != Host::Attached
                && (!controller.is_quiet() || self.host == Host::Leaving);
            if resets || waits {
                break;
            }
            let Some(message) = self.wire.messages.pop_front() else {
                controller.messages_read();
                break;
            };
            worked = true;
            self.serve(message, controller, now);
        }
        worked | self.answer(controller, now)
    }

    fn serve(&mut self, message: Message, controller: &mut Controller, now: Time) {
        match message {
            Message::Connect => {
                let slots = controller.config().doorbell_slots();
                let pages = DoorbellPages::new(slots).expect("memory for doorbells");
                let pages = Arc::new(pages);
                self.doorbells = pages.clone();
                let set = controller.set_doorbells(pages.clone());
                set.expect("as many as it needs");
                controller.expect_messages();
                self.host = Host::Attached;
                self.lines += 1;
                self.wire.answers.push_back(Answer::Connected(pages));
            }
            Message::Gone => {
                controller.function_reset();
                self.host = Host::Leaving;
                self.lines += 1;
                self.waiting.clear();
                self.wire.answers.clear();
                self.wire.vectors = 0;
            }
            Message::Write { offset, value, len } => {
                controller.bar_write(0, offset, &value.to_le_bytes()[..len]);
            }
            Message::ReadStatus => {
                let mut status = [0; 4];
                controller.bar_read(0, 0x1c, &mut status);
                let status = Answer::Status(u32::from_le_bytes(status));
                self.wire.answers.push_back(status);
            }
            Message::Map {
                iova,
                len,
                offset,
                mapping,
            } => {
                let backing = Some((mapping, offset));
                let mapped = self.map.map(Iova(iova), len, Access::READ_WRITE, backing);
                mapped.expect("hosts map nothing twice");
                self.publish(controller);
                self.wire.answers.push_back(Answer::Mapped { iova });
            }
            Message::Unmap { iova, len } => {
                let unmapped = self.map.unmap(Iova(iova), len);
                unmapped.expect("hosts unmap what they mapped");
                let epoch = self.publish(controller);
                self.wait(Until::Drained { epoch, iova }, now);
            }
            Message::NewLines => self.lines += 1,
            Message::Reset => {
                controller.function_reset();
                self.wait(Until::Reset, now);
            }
        }
    }

    fn wait(&mut self, until: Until, now: Time) {
        self.waiting.push_back(Waiting {
            until,
            since: now,
            abandoned: false,
        });
    }

    fn publish(&self, controller: &mut Controller) -> u64 {
        let view = self.map.view();
        let epoch = view.epoch();
        controller.set_view(view, LostFlag::default());
        epoch
    }

    fn answer(&mut self, controller: &mut Controller, now: Time) -> bool {
        let before = self.waiting.len();
        let Seat {
            waiting,
            wire,
            late,
            ..
        } = self;
        waiting.retain_mut(|waiting| {
            let waited = now.since(waiting.since);
            let over = waited >= ANSWER_NS;
            let answer = match waiting.until {
                Until::Drained { epoch, iova } => {
                    if waited >= ABANDON_NS && !waiting.abandoned {
                        waiting.abandoned = true;
                        controller.abandon(epoch);
                    }
                    let drained = controller.drained(epoch);
                    *late |= over && !drained;
                    (drained || over).then_some(Answer::Unmapped { iova })
                }
                Until::Reset => {
                    let quiet = controller.is_quiet();
                    *late |= over && !quiet;
                    (quiet || over).then_some(Answer::WasReset)
                }
            };
            let waits = answer.is_none();
            wire.answers.extend(answer);
            waits
        });
        self.waiting.len() < before
    }

    fn leave(&mut self, controller: &mut Controller) -> bool {
        if !controller.is_quiet() {
            return false;
        }
        self.map = DmaMap::new(REGIONS);
        controller.set_view(DmaView::empty(), LostFlag::default());
        self.host = Host::None;
        true
    }
}
