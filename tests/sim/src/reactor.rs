//! A reactor without a thread: the loop of the program's, cut into steps between which hosts and
//! other reactors act.
//!
//! A step is a turn with a look at the messages; or the second look before sleeping; or a wake-up.
//! The order within them is the program's.

use std::collections::VecDeque;

use controller::Interrupt;
use engine::{
    ControllerSlot, Engine, EngineId, Idle, Interrupts, Mail, Mode, MoveError, Moved, SubsystemSlot,
};
use nvme_spec::Status;
use port::Channel;
use port::time::Time;
use subsystem::OperatorRequest;

use crate::medium::Port;
use crate::random::Random;
use crate::seat::Seat;

const LOOK_BUSY_NS: u64 = 20_000;
const LOOK_IDLE_NS: u64 = 2_000;
const RECENTLY_NS: u64 = 10_000;
/// Time of a turn, and of each command of it.
const TURN_NS: u64 = 150;
const COMMAND_NS: u64 = 40;
/// Turns that find nothing come after longer and longer, up to this share of the time without work:
/// hosts see no difference.
const IDLE_TURN_SHARE: u64 = 32;
/// From what wakes a sleeper to its first turn.
const WAKE_NS: (u64, u64) = (2_000, 40_000);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Awake,
    /// It found nothing to do, and is about to look again and sleep.
    Drowsy {
        at_most_ns: u64,
    },
    Asleep,
}

/// Work of reactors.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    /// Turns.
    pub turns: u64,
    /// Sleeps.
    pub sleeps: u64,
    /// Second looks that found something.
    pub second_looks: u64,
}

/// Something that one reactor sends to another.
#[derive(Debug)]
pub enum Letter {
    /// From its engine.
    Mail(Mail),
    /// By which way interrupts reach the host of a controller.
    Lines(ControllerSlot, Option<u64>),
}

impl Letter {
    /// Lines for several.
    fn lines(slot: ControllerSlot, lines: Option<u64>) -> impl Fn(EngineId) -> (EngineId, Letter) {
        move |to| (to, Letter::Lines(slot, lines))
    }
}

/// An interrupt that a reactor has raised by itself for a controller of another one.
#[derive(Clone, Copy, Debug)]
pub struct Direct {
    /// Whose controller.
    pub home: EngineId,
    /// Which.
    pub controller: ControllerSlot,
    /// The vector.
    pub vector: u16,
    /// The way it went.
    pub lines: u64,
}

/// Delivers interrupts in a turn.
struct Raiser<'a> {
    seats: &'a mut [Seat],
    lines: &'a [(EngineId, ControllerSlot, u64)],
    direct: &'a mut Vec<Direct>,
}

impl Interrupts for Raiser<'_> {
    fn raise(&mut self, controller: ControllerSlot, interrupt: Interrupt) {
        let mut seats = self.seats.iter_mut();
        if let Interrupt::Vector(vector) = interrupt
            && let Some(seat) = seats.find(|seat| seat.slot == controller)
        {
            seat.wire.vectors |= 1 << vector;
        }
    }

    fn raise_for(&mut self, home: EngineId, controller: ControllerSlot, vector: u16) -> bool {
        let mut lines = self.lines.iter();
        let found = lines.find(|(id, slot, _)| (*id, *slot) == (home, controller));
        self.direct.extend(found.map(|(_, _, lines)| Direct {
            home,
            controller,
            vector,
            lines: *lines,
        }));
        found.is_some()
    }
}

/// A move that is not over.
#[derive(Clone, Copy, Debug)]
pub struct Asked {
    /// Whose queue.
    pub slot: ControllerSlot,
    /// Which.
    pub cqid: u16,
    /// Since when.
    pub since: u64,
}

/// A reactor.
#[derive(Debug)]
pub struct Reactor {
    /// Its engine.
    pub engine: Engine<Port>,
    /// How it waits.
    pub mode: Mode,
    /// Its controllers.
    pub seats: Vec<Seat>,
    /// When its next step is.
    pub due: u64,
    /// Its work so far.
    pub counts: Counts,
    /// Letters that others have sent.
    pub mailbox: VecDeque<(EngineId, Letter)>,
    /// Letters to be carried to others.
    pub letters: Vec<(EngineId, Letter)>,
    /// Interrupts that it has raised for others.
    pub direct: Vec<Direct>,
    /// Moves that are not over, and how many others ended well.
    pub asked: Vec<Asked>,
    /// As above.
    pub moved: u64,
    /// Answers of subsystems to the operator.
    pub answered: Vec<(u64, Result<u32, Status>)>,
    lines: Vec<(EngineId, ControllerSlot, u64)>,
    random: Random,
    state: State,
    next_look: u64,
    last_work: u64,
    idle_turn_ns: u64,
    in_transition: bool,
    /// Steps after which it is held up, as by the machine.
    pauses: u64,
}

impl Reactor {
    /// A reactor that is awake.
    #[must_use]
    pub fn new(engine: Engine<Port>, mode: Mode, random: Random, pauses: u64) -> Self {
        Reactor {
            engine,
            mode,
            seats: Vec::new(),
            due: 0,
            counts: Counts::default(),
            mailbox: VecDeque::new(),
            letters: Vec::new(),
            direct: Vec::new(),
            asked: Vec::new(),
            moved: 0,
            answered: Vec::new(),
            lines: Vec::new(),
            random,
            state: State::Awake,
            next_look: 0,
            last_work: 0,
            idle_turn_ns: TURN_NS,
            in_transition: false,
            pauses,
        }
    }

    /// It is another process's from now on, with this engine, whose first turn comes at `due`. The
    /// seats, which hosts see, stay. Returns what the process before had.
    pub fn begin_again(&mut self, engine: Engine<Port>, now: u64, due: u64) -> impl Sized + use<> {
        let engine = std::mem::replace(&mut self.engine, engine);
        let letters = (
            std::mem::take(&mut self.mailbox),
            std::mem::take(&mut self.letters),
        );
        self.due = due;
        self.direct.clear();
        self.asked.clear();
        self.answered.clear();
        self.lines.clear();
        self.state = State::Awake;
        self.next_look = 0;
        self.last_work = now;
        self.idle_turn_ns = TURN_NS;
        self.in_transition = false;
        (engine, letters)
    }

    /// Whether it sleeps.
    #[must_use]
    pub fn is_asleep(&self) -> bool {
        self.state == State::Asleep
    }

    /// Something became readable that it waits for while it sleeps.
    pub fn wake(&mut self, now: u64) {
        if self.state == State::Asleep {
            let latency = self.random.between(WAKE_NS.0, WAKE_NS.1);
            self.due = self.due.min(now + latency);
        } else {
            self.notice(now);
        }
    }

    /// Something was stored that a turn finds. A sleeper does not.
    pub fn notice(&mut self, now: u64) {
        if self.state == State::Awake {
            self.idle_turn_ns = TURN_NS;
            self.due = self.due.min(now + TURN_NS + self.random.below(TURN_NS));
        }
    }

    /// One step at `now`.
    pub fn step(&mut self, now: u64) {
        match self.state {
            State::Awake => self.turn(now),
            State::Drowsy { at_most_ns } => self.fall_asleep(now, at_most_ns),
            State::Asleep => self.wake_up(now),
        }
    }

    fn turn(&mut self, now: u64) {
        let raiser = Raiser {
            seats: &mut self.seats,
            lines: &self.lines,
            direct: &mut self.direct,
        };
        let turn = self.engine.turn(Time(now), raiser);
        self.counts.turns += 1;
        let mut worked = turn.worked;
        if self.engine.expects_mail() {
            worked |= self.exchange_mail();
        }
        if worked {
            self.last_work = now;
        }
        if now >= self.next_look {
            worked |= self.look_around(now);
            let busy = now - self.last_work < RECENTLY_NS && !self.in_transition;
            self.next_look = now + if busy { LOOK_BUSY_NS } else { LOOK_IDLE_NS };
        }
        let at_most_ns = if worked { None } else { self.may_sleep(now) };
        if let Some(at_most_ns) = at_most_ns {
            self.state = State::Drowsy { at_most_ns };
        }
        let cost = TURN_NS + COMMAND_NS * (u64::from(turn.commands) + turn.completions);
        self.due = now + cost + self.random.below(cost);
        if worked || at_most_ns.is_some() {
            self.idle_turn_ns = TURN_NS;
        } else {
            let idle_ns = now - self.last_work;
            self.idle_turn_ns = (self.idle_turn_ns * 2).min(idle_ns / IDLE_TURN_SHARE);
            self.due = self
                .due
                .max((now + self.idle_turn_ns).min(self.next_due(now)));
        }
        if self.pauses > 0 && self.random.once_in(self.pauses) {
            self.due += self.random.spread(10_000, 3_000_000);
        }
    }

    /// When the next request of a medium ends.
    fn next_due(&mut self, now: u64) -> u64 {
        let channels = self.engine.channels_mut().iter();
        let due = channels.filter_map(|(_, channel)| match channel {
            Port::Ram(ram) if !ram.keeps_time() && ram.in_flight() > 0 => Some(now),
            channel => channel.wakes_at(),
        });
        due.min().unwrap_or(u64::MAX)
    }

    fn may_sleep(&mut self, now: u64) -> Option<u64> {
        let time = Time(now);
        let channels = self.engine.channels_mut();
        let polled = channels.iter().any(|(_, channel)| channel.is_polled());
        if self.engine.spins(time) || self.in_transition || polled {
            return None;
        }
        let unwoken = self.engine.has_silent_guests() || self.seats.iter().any(Seat::is_unwoken);
        let deadline = self.seats.iter().filter_map(Seat::next_deadline).min();
        match self.engine.idle(time, unwoken, deadline) {
            Idle::Spin => None,
            Idle::Sleep { at_most_ns } => Some(at_most_ns),
        }
    }

    fn fall_asleep(&mut self, now: u64, at_most_ns: u64) {
        let channels = self.engine.channels_mut();
        let due = channels.iter_mut().any(|(_, channel)| channel.is_due(now));
        let nothing_came = !due && self.engine.arm();
        let news = self.has_answers();
        let nothing_came = nothing_came && self.mailbox.is_empty() && !news;
        if nothing_came && !self.seats.iter().any(Seat::is_readable) {
            self.counts.sleeps += 1;
            self.state = State::Asleep;
            let latency = self.random.between(WAKE_NS.0, WAKE_NS.1);
            let woken = self.next_due(now).saturating_add(latency);
            self.due = (now + at_most_ns).min(woken);
        } else {
            self.counts.second_looks += 1;
            self.wake_up(now);
        }
    }

    fn has_answers(&mut self) -> bool {
        let mut subsystems = self.engine.subsystems_mut();
        subsystems.any(|(_, subsystem)| subsystem.has_operator_answer())
    }

    fn wake_up(&mut self, now: u64) {
        self.state = State::Awake;
        self.next_look = 0;
        self.look_around(now);
        self.due = now + TURN_NS + self.random.below(TURN_NS);
    }

    /// One look at messages; true when something was done.
    fn look_around(&mut self, now: u64) -> bool {
        let mut worked = self.take_letters();
        for (_, channel) in self.engine.channels_mut().iter_mut() {
            channel.tend();
        }
        self.in_transition = false;
        if self.engine.take_subsystem_news() {
            for (_, subsystem) in self.engine.subsystems_mut() {
                let answers = std::iter::from_fn(|| subsystem.take_operator_answer());
                self.answered.extend(answers);
            }
        }
        let wanted = self.engine.take_messages_wanted();
        for seat in &mut self.seats {
            let is_wanted = wanted.contains(&seat.slot);
            if !seat.is_readable() && !seat.is_in_transition() && !is_wanted {
                continue;
            }
            if let Some(controller) = self.engine.controller_mut(seat.slot) {
                let most = self.random.between(1, 64) as usize;
                worked |= seat.poll(controller, Time(now), most);
            }
            self.in_transition |= seat.is_in_transition();
            if seat.have_lines_changed() {
                let lines = Letter::lines(seat.slot, seat.lines());
                let to = self.engine.hosts_of(seat.slot).into_iter();
                self.letters.extend(to.map(lines));
            }
        }
        self.carry_mail();
        worked
    }

    fn take_letters(&mut self) -> bool {
        let any = !self.mailbox.is_empty();
        while let Some((from, letter)) = self.mailbox.pop_front() {
            match letter {
                Letter::Mail(mail) => self.engine.deliver(from, mail),
                Letter::Lines(controller, lines) => {
                    self.lines
                        .retain(|(id, slot, _)| (*id, *slot) != (from, controller));
                    self.lines
                        .extend(lines.map(|lines| (from, controller, lines)));
                    self.engine.post_again(from, controller);
                }
            }
        }
        self.carry_mail();
        any
    }

    fn exchange_mail(&mut self) -> bool {
        let any = self.take_letters();
        while let Some(moved) = self.engine.take_moved() {
            let Moved {
                controller,
                cqid,
                result,
            } = moved;
            let mut asked = self.asked.iter();
            let asked = asked.position(|m| (m.slot, m.cqid) == (controller, cqid));
            self.asked
                .swap_remove(asked.expect("a move ends that was asked for"));
            self.moved += u64::from(result.is_ok());
        }
        any
    }

    fn carry_mail(&mut self) {
        while let Some((to, mail)) = self.engine.take_mail() {
            let arrives = mail.brings_lane_of();
            self.letters.push((to, Letter::Mail(mail)));
            let seat = arrives.and_then(|slot| self.seats.iter().find(|seat| seat.slot == slot));
            let lines = seat.map(|seat| Letter::Lines(seat.slot, seat.lines()));
            self.letters.extend(lines.map(|lines| (to, lines)));
        }
    }

    /// Asks a subsystem for a change, as an operator does.
    pub fn ask(&mut self, now: u64, slot: SubsystemSlot, token: u64, request: OperatorRequest) {
        let subsystem = self.engine.subsystem_mut(slot).expect("it is there");
        subsystem.request(token, request);
        // It comes by the mailbox.
        self.wake(now);
    }

    /// Asks for a move, as an operator does; whether it is one.
    pub fn ask_move(&mut self, now: u64, slot: ControllerSlot, cqid: u16, to: EngineId) -> bool {
        let moves = match self.engine.move_lane(slot, cqid, to, Time(now)) {
            Ok(moves) => moves,
            Err(MoveError::NoQueue(_) | MoveError::Moving(_) | MoveError::MustStay(_)) => false,
            Err(error) => panic!("a move does not end before it begins: {error}"),
        };
        if moves {
            self.asked.push(Asked {
                slot,
                cqid,
                since: now,
            });
            // It comes by the mailbox.
            self.wake(now);
        }
        moves
    }
}
