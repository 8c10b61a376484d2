//! The end of the program's process at any step, and what goes on from what it left: the state
//! files, the hosts' messages that were not read, their memory maps, their doorbells, and the
//! media.
//!
//! Requests of the dead process land before another one goes on, or never: a medium is fenced. A
//! drive whose time a medium has begins as a new one.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use controller::controller::Left;
use engine::{Engine, EngineId};
use memory::{LostFlag, StateFile};
use port::time::Time;
use subsystem::{Subsystem, SubsystemConfig};

use crate::medium::Port;
use crate::reactor::Reactor;
use crate::world::{Bytes, World};

/// From the death to the first turn of what goes on.
const PAUSE_NS: (u64, u64) = (100_000, 20_000_000);

/// Something of the process that dies. Its tickets never come back, which is no error of a thread
/// that unwinds.
fn end(of_process: impl Sized) {
    let unwound = catch_unwind(AssertUnwindSafe(move || {
        let _dropped = of_process;
        resume_unwind(Box::new(()))
    }));
    let Err(_) = unwound;
}

impl World {
    /// The process dies, and another one goes on.
    pub(crate) fn kill(&mut self) {
        self.tally.kills += 1;
        self.killed_at = self.now;
        let writes = self.hosts.iter().flat_map(|host| host.host.writes_out());
        let writes: Vec<_> = writes.collect();
        self.ledger.repeat(&writes);
        (self.replays, self.copies) = (true, false);
        if self.steps >= self.trace_from {
            println!("{:>14} the process dies", self.now);
        }
        end(std::mem::take(&mut self.post));
        let due = self.now + self.random.between(PAUSE_NS.0, PAUSE_NS.1);
        let configs: Vec<_> = (0..self.subsystems.len())
            .map(|at| self.left_of(at))
            .collect();
        let mut controllers = Vec::new();
        // A request that has not been done in memory is never done.
        for medium in &mut self.media {
            if let Bytes::Real(real) = &mut medium.bytes {
                real.again();
            }
        }
        for (number, reactor) in self.reactors.iter_mut().enumerate() {
            let mut files = Vec::new();
            for seat in &reactor.seats {
                let controller = reactor.engine.controller_mut(seat.slot);
                let controller = controller.expect("a seat has one");
                let fd = controller.state().fd().try_clone_to_owned();
                files.push(fd.expect("a descriptor"));
            }
            for medium in &self.media {
                if let Some(Port::Sim(channel)) =
                    reactor.engine.channels_mut().get_mut(medium.channel)
                {
                    channel.die();
                }
            }
            let mut engine = Engine::new(reactor.mode, Time(self.now));
            engine.set_id(EngineId(number as u16));
            for medium in &self.media {
                let port = medium.port(&self.clock);
                let added = engine.add_channel(medium.channel, port, medium.depth.into());
                assert!(added.is_ok(), "each medium has its own id");
            }
            end(reactor.begin_again(engine, self.now, due));
            controllers.push(files);
        }
        for ((reactor, slot), config) in self.subsystems.iter_mut().zip(configs) {
            let subsystem = Subsystem::new(config).expect("a subsystem");
            *slot = self.reactors[*reactor].engine.add_subsystem(subsystem);
        }
        for (reactor, files) in self.reactors.iter_mut().zip(controllers) {
            let Reactor { engine, seats, .. } = reactor;
            for (seat, file) in seats.iter_mut().zip(files) {
                let (_, subsystem) = self.subsystems[seat.subsystem];
                let file = StateFile::open(file).expect("it was made by us");
                let left = Left {
                    file,
                    doorbells: seat.doorbells.clone(),
                    view: seat.view(),
                    crashed: false,
                };
                let config = seat.config.clone();
                let slot = engine.restore_controller(config, left, subsystem);
                let slot = slot.expect("nothing is damaged").expect("a subsystem");
                seat.slot = slot;
                let controller = engine.controller_mut(slot).expect("it was just added");
                controller.set_view(seat.view(), LostFlag::default());
                seat.begin_again(controller);
            }
        }
        self.change_again();
    }

    /// Content of the record of a subsystem when the process dies.
    fn left_of(&mut self, number: usize) -> SubsystemConfig {
        let (reactor, slot) = self.subsystems[number];
        let subsystem = self.reactors[reactor].engine.subsystem_mut(slot);
        let subsystem = subsystem.expect("it is there");
        let record = subsystem.record();
        let of_reservations = record.reservations.into_iter().flat_map(|it| it.answers);
        SubsystemConfig {
            namespaces: subsystem.directory().iter().cloned().collect(),
            controllers: record.controllers,
            answers: record.answers.into_iter().chain(of_reservations).collect(),
            // Far more names than the commands of a process.
            process: self.tally.kills << 48,
            ..self.configs[number].clone()
        }
    }

    /// Lets all controllers fetch commands, when all have executed again what had to be.
    pub(crate) fn release(&mut self) {
        let has_replayed = |reactor: &mut Reactor| {
            let Reactor { engine, seats, .. } = reactor;
            let mut seats = seats.iter();
            seats.all(|seat| {
                let controller = engine.controller_mut(seat.slot);
                controller.is_some_and(|controller| controller.has_replayed())
            })
        };
        if !self.reactors.iter_mut().all(has_replayed) {
            return;
        }
        if !std::mem::replace(&mut self.copies, true) {
            for Reactor { engine, seats, .. } in &mut self.reactors {
                seats
                    .iter()
                    .for_each(|seat| engine.release_copies(seat.slot));
            }
            if !self.reactors.iter_mut().all(has_replayed) {
                let now = self.now;
                self.reactors
                    .iter_mut()
                    .for_each(|reactor| reactor.wake(now));
                return;
            }
        }
        self.replays = false;
        self.ledger.repeated();
        for reactor in &mut self.reactors {
            for seat in &reactor.seats {
                reactor.engine.release_controller(seat.slot);
            }
            reactor.wake(self.now);
        }
    }
}
