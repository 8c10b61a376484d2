//! Hosts, reactors and media, and who acts next.

use std::cell::RefCell;
use std::rc::Rc;

use engine::{EngineId, SubsystemSlot};
use port::ChannelId;
use subsystem::SubsystemConfig;

use crate::around::{Around, Bounds, Failure, Tally};
use crate::drive::Real;
use crate::host::{Host, Space};
use crate::ledger::{Ledger, Span};
use crate::medium::{Clock, Disk, Port, SimChannel};
use crate::operator::Operator;
use crate::random::Random;
use crate::reactor::{Direct, Letter, Reactor};
use crate::reservations::Reservations;
use crate::stamp;
use crate::zones::Zones;

/// Steps between checks of which open writes the media have ended.
const CHORES: u64 = 4096;
/// How long it may take until all is quiet.
const END_NS: u64 = 120_000_000_000;

/// A medium; every reactor has a channel of it.
#[derive(Debug)]
pub struct Medium {
    /// Identifier of its channels.
    pub channel: ChannelId,
    /// Its bytes.
    pub bytes: Bytes,
    /// Commands that a channel holds at most.
    pub depth: u16,
}

impl Medium {
    /// A channel of it.
    pub(crate) fn port(&self, clock: &Rc<Clock>) -> Port {
        match &self.bytes {
            Bytes::Simulated(disk) => Port::Sim(SimChannel::new(disk, clock)),
            Bytes::Real(real) => real.port(self.depth),
        }
    }

    /// Its bytes, unless it is a real one.
    pub(crate) fn disk(&self) -> Option<&Rc<RefCell<Disk>>> {
        match &self.bytes {
            Bytes::Simulated(disk) => Some(disk),
            Bytes::Real(_) => None,
        }
    }
}

/// The medium behind channels.
#[derive(Debug)]
pub enum Bytes {
    /// In virtual time.
    Simulated(Rc<RefCell<Disk>>),
    /// The program's memory.
    Real(Box<Real>),
}

/// A host and where its controller is.
#[derive(Debug)]
pub struct Attached {
    /// The host.
    pub host: Host,
    /// Which reactor.
    pub reactor: usize,
    /// Which of its seats.
    pub seat: usize,
}

/// All of a simulation.
#[derive(Debug)]
pub struct World {
    /// Hosts.
    pub hosts: Vec<Attached>,
    /// Reactors.
    pub reactors: Vec<Reactor>,
    /// Media.
    pub media: Vec<Medium>,
    /// Namespaces.
    pub spaces: Vec<Space>,
    /// Possible contents of blocks.
    pub ledger: Ledger,
    /// Possible reservations.
    pub reservations: Reservations,
    /// Possible zones of the one namespace that has some.
    pub zones: Zones,
    /// The time, for media.
    pub clock: Rc<Clock>,
    /// How long things may take.
    pub bounds: Bounds,
    /// Media fail.
    pub faults: bool,
    /// Events, counted.
    pub tally: Tally,
    /// Steps so far.
    pub steps: u64,
    /// Events are printed from this step on.
    pub trace_from: u64,
    /// Virtual time.
    pub now: u64,
    /// Nothing new begins.
    pub ending: bool,
    /// Chance of the world's own.
    pub random: Random,
    /// Letters between reactors.
    pub post: Post,
    /// Letters take up to this.
    pub post_ns: u64,
    /// Nanoseconds between moves of lanes: up to twice this.
    pub move_ns: u64,
    /// Present task of the operator.
    pub operator: Operator,
    /// The subsystems: their reactors and places, in the order of the media.
    pub subsystems: Vec<(usize, SubsystemSlot)>,
    /// For each namespace until when it may have been taken away.
    pub absent_until: Vec<u64>,
    /// Configurations of the subsystems.
    pub configs: Vec<SubsystemConfig>,
    /// The process dies now and then.
    pub kills: bool,
    /// When it died last; 0 for never.
    pub killed_at: u64,
    /// Commands of a process that died have yet to be executed again.
    pub replays: bool,
    /// As well, and copies may go on.
    pub copies: bool,
    /// Hosts do more than in the first simulations.
    pub more: bool,
}

#[derive(Clone, Copy)]
enum Actor {
    Host(usize),
    Reactor(usize),
    Letter,
    Operator,
}

/// A letter on its way.
#[derive(Debug)]
struct OnTheWay {
    at: u64,
    from: usize,
    to: usize,
    letter: Letter,
}

/// Letters on their way between reactors: in order from one to another, and as long as it likes.
#[derive(Debug, Default)]
pub struct Post {
    /// By the time of its arrival, the next last.
    letters: Vec<OnTheWay>,
}

impl Post {
    fn next(&self) -> Option<u64> {
        self.letters.last().map(|letter| letter.at)
    }

    fn send(&mut self, letter: OnTheWay) {
        let (from, to) = (letter.from, letter.to);
        let mut before = self.letters.iter();
        // The latest one of the same pair comes first in the list.
        let before = before.find(|other| (other.from, other.to) == (from, to));
        let at = letter.at.max(before.map_or(0, |before| before.at));
        let place = self.letters.partition_point(|other| other.at > at);
        self.letters.insert(place, OnTheWay { at, ..letter });
    }
}

impl World {
    /// Runs until so many commands have completed, and then until all is quiet.
    ///
    /// # Errors
    /// What must not be.
    pub fn run(&mut self, commands: u64) -> Result<(), Failure> {
        while self.tally.commands < commands {
            self.step()?;
        }
        self.end()?;
        self.check_media()
    }

    fn next(&self) -> (u64, Actor) {
        let mut next = (u64::MAX, Actor::Host(0));
        for (at, attached) in self.hosts.iter().enumerate() {
            if attached.host.due < next.0 {
                next = (attached.host.due, Actor::Host(at));
            }
        }
        for (at, reactor) in self.reactors.iter().enumerate() {
            if reactor.due < next.0 {
                next = (reactor.due, Actor::Reactor(at));
            }
        }
        if let Some(at) = self.post.next().filter(|at| *at <= next.0) {
            next = (at, Actor::Letter);
        }
        if self.operator.due < next.0 {
            next = (self.operator.due, Actor::Operator);
        }
        next
    }

    fn step(&mut self) -> Result<(), Failure> {
        let (due, actor) = self.next();
        self.now = self.now.max(due);
        self.steps += 1;
        match actor {
            Actor::Host(at) => self.step_host(at)?,
            Actor::Reactor(at) => self.step_reactor(at)?,
            Actor::Letter => self.hand_over(),
            Actor::Operator => self.operate()?,
        }
        if self.steps.is_multiple_of(CHORES) {
            self.settle();
        }
        Ok(())
    }

    fn step_host(&mut self, at: usize) -> Result<(), Failure> {
        let Attached {
            host,
            reactor,
            seat,
        } = &mut self.hosts[at];
        let reactor = &mut self.reactors[*reactor];
        let wire = &mut reactor.seats[*seat].wire;
        let mut around = Around {
            now: self.now,
            wire,
            ledger: &mut self.ledger,
            zones: &mut self.zones,
            reservations: &mut self.reservations,
            bounds: self.bounds,
            tally: &mut self.tally,
            ending: self.ending,
            faults: self.faults,
            killed_at: self.killed_at,
            absent_until: &self.absent_until,
            traced: self.steps >= self.trace_from,
        };
        host.step(&mut around)?;
        let (wakes, stored) = (wire.wakes, wire.stored);
        (wire.wakes, wire.stored) = (false, false);
        if wakes {
            reactor.wake(self.now);
        } else if stored {
            reactor.notice(self.now);
        }
        Ok(())
    }

    fn step_reactor(&mut self, at: usize) -> Result<(), Failure> {
        self.clock.now_ns.set(self.now);
        self.clock.moment.set(self.ledger.now());
        let reactor = &mut self.reactors[at];
        reactor.step(self.now);
        for (to, letter) in reactor.letters.drain(..) {
            if self.steps >= self.trace_from {
                println!("{:>14} reactor {at} to {to:?}: {letter:?}", self.now);
            }
            self.post.send(OnTheWay {
                at: self.now + self.random.below(self.post_ns),
                from: at,
                to: to.0.into(),
                letter,
            });
        }
        let answered = std::mem::take(&mut reactor.answered);
        for direct in std::mem::take(&mut reactor.direct) {
            self.raise(direct);
        }
        for (token, result) in answered {
            self.change_ended(token, result)?;
        }
        if self.replays {
            self.release();
        }
        let reactor = &mut self.reactors[at];
        for attached in &mut self.hosts {
            if attached.reactor == at && reactor.seats[attached.seat].wire.has_news() {
                attached.host.notice(self.now);
            }
        }
        if reactor.seats.iter().any(|seat| seat.late) {
            return Err(Failure(format!(
                "at {} ns: an unmap or a reset was answered and is not over",
                self.now
            )));
        }
        Ok(())
    }

    fn hand_over(&mut self) {
        if let Some(OnTheWay {
            from, to, letter, ..
        }) = self.post.letters.pop()
        {
            let reactor = &mut self.reactors[to];
            reactor.mailbox.push_back((EngineId(from as u16), letter));
            reactor.wake(self.now);
        }
    }

    /// An interrupt that another reactor has raised: it is lost if the lines have changed.
    fn raise(&mut self, direct: Direct) {
        let home = usize::from(direct.home.0);
        let seats = self.reactors[home].seats.iter_mut().enumerate();
        let seat = seats
            .filter(|(_, seat)| seat.lines() == Some(direct.lines))
            .find(|(_, seat)| seat.slot == direct.controller);
        if let Some((at, seat)) = seat {
            seat.wire.vectors |= 1 << direct.vector;
            let mut hosts = self.hosts.iter_mut();
            let host = hosts.find(|host| (host.reactor, host.seat) == (home, at));
            host.expect("each seat has one").host.notice(self.now);
        }
    }

    /// Settles the requests that media have done with for certain.
    fn settle(&mut self) {
        if !self.ledger.has_open() || self.replays {
            return;
        }
        for (number, medium) in self.media.iter().enumerate() {
            let oldest = self.reactors.iter_mut().map(|reactor| {
                let port = reactor.engine.channels_mut().get(medium.channel);
                port.map_or(u64::MAX, Port::oldest)
            });
            let oldest = oldest.min().unwrap_or(u64::MAX);
            self.ledger.settle(number, oldest);
        }
    }

    /// All hosts end what they have begun, and all tickets come back.
    fn end(&mut self) -> Result<(), Failure> {
        self.ending = true;
        for disk in self.media.iter().filter_map(Medium::disk) {
            disk.borrow_mut().calm = true;
        }
        let until = self.now + END_NS;
        while !self.is_quiet() {
            if self.now > until {
                return Err(Failure(format!("at {} ns: it does not end", self.now)));
            }
            self.step()?;
        }
        self.settle();
        if self.ledger.has_open() {
            Err(Failure("something is open that nobody has".into()))
        } else {
            Ok(())
        }
    }

    fn is_quiet(&mut self) -> bool {
        let hosts = self.hosts.iter().all(|attached| attached.host.is_quiet());
        hosts
            && !self.replays
            && !self.operator.changes()
            && self.reactors.iter_mut().all(|reactor| {
                let mut channels = reactor.engine.channels_mut().iter();
                channels.all(|(_, port)| port::Channel::in_flight(port) == 0)
            })
    }

    /// In the end the media hold the data that the hosts wrote last.
    fn check_media(&mut self) -> Result<(), Failure> {
        for space in &self.spaces {
            let Some(disk) = self.media[space.medium].disk() else {
                continue;
            };
            let disk = disk.borrow();
            for lba in 0..space.blocks {
                let span = Span {
                    space: space.space,
                    lba,
                    count: 1,
                };
                let submitted = self.ledger.begin_read(span);
                let at = space.start + (lba << space.shift);
                let looked = self.ledger.end_read(span, submitted, |_, place| {
                    stamp::look(disk.bytes(at, 1 << space.shift), place)
                });
                looked.map_err(|wrong| Failure(format!("in the end, {wrong}")))?;
            }
        }
        Ok(())
    }
}
