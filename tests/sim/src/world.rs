//! Hosts, reactors and media, and who acts next.

use std::cell::RefCell;
use std::rc::Rc;

use controller::port::ChannelId;

use crate::around::{Around, Bounds, Failure, Tally};
use crate::host::{Host, Space};
use crate::ledger::{Ledger, Span};
use crate::medium::{Clock, Disk, Port};
use crate::reactor::Reactor;
use crate::stamp;

/// Steps between looks at what nobody waits for.
const CHORES: u64 = 4096;
/// How long it may take until all is quiet.
const END_NS: u64 = 120_000_000_000;

/// A medium, and where its channels are.
#[derive(Debug)]
pub struct Medium {
    /// Reactor and channel.
    pub channels: Vec<(usize, ChannelId)>,
    /// Its bytes, unless it is a real one.
    pub disk: Option<Rc<RefCell<Disk>>>,
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
    /// What blocks may hold.
    pub ledger: Ledger,
    /// The time, for media.
    pub clock: Rc<Clock>,
    /// How long things may take.
    pub bounds: Bounds,
    /// Media fail.
    pub faults: bool,
    /// What happened.
    pub tally: Tally,
    /// Steps so far.
    pub steps: u64,
    /// Events are printed from this step on.
    pub trace_from: u64,
    /// Virtual time.
    pub now: u64,
    /// Nothing new begins.
    pub ending: bool,
}

#[derive(Clone, Copy)]
enum Actor {
    Host(usize),
    Reactor(usize),
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
        next
    }

    fn step(&mut self) -> Result<(), Failure> {
        let (due, actor) = self.next();
        self.now = self.now.max(due);
        self.steps += 1;
        match actor {
            Actor::Host(at) => self.step_host(at)?,
            Actor::Reactor(at) => self.step_reactor(at)?,
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
            bounds: self.bounds,
            tally: &mut self.tally,
            ending: self.ending,
            faults: self.faults,
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

    /// What media have done with for certain.
    fn settle(&mut self) {
        if !self.ledger.has_open() {
            return;
        }
        let reactors = &mut self.reactors;
        for (number, medium) in self.media.iter().enumerate() {
            let oldest = medium.channels.iter().map(|(reactor, id)| {
                let port = reactors[*reactor].engine.channels_mut().get(*id);
                port.map_or(u64::MAX, Port::oldest)
            });
            let oldest = oldest.min().unwrap_or(u64::MAX);
            self.ledger.settle(number, oldest);
        }
    }

    /// All hosts end what they have begun, and all tickets come back.
    fn end(&mut self) -> Result<(), Failure> {
        self.ending = true;
        for disk in self.media.iter().filter_map(|medium| medium.disk.as_ref()) {
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
        match self.ledger.has_open() {
            true => Err(Failure("something is open that nobody has".into())),
            false => Ok(()),
        }
    }

    fn is_quiet(&mut self) -> bool {
        let hosts = self.hosts.iter().all(|attached| attached.host.is_quiet());
        hosts
            && self.reactors.iter_mut().all(|reactor| {
                let mut channels = reactor.engine.channels_mut().iter();
                channels.all(|(_, port)| controller::port::Channel::in_flight(port) == 0)
            })
    }

    /// What the media hold in the end is what the hosts wrote last.
    fn check_media(&mut self) -> Result<(), Failure> {
        for space in &self.spaces {
            let Some(disk) = &self.media[space.medium].disk else {
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
