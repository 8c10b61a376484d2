//! Ends of a queue: of its commands, of its connection, and by time.

use port::time::Time;

use super::{Queue, Sink};
use crate::nvme_tcp::commands::{Place, State};
use crate::nvme_tcp::connection::{Connection, End};
use crate::nvme_tcp::remains::Remains;

/// How long the data that an R2T asks for may take.
const DATA_NS: u64 = 30_000_000_000;
/// How long a host may leave what it is sent unread.
const READ_NS: u64 = 30_000_000_000;

impl Queue {
    /// Forgets the commands that are not answered: the controller was reset, and will complete none
    /// of them. Data that an R2T has asked for may still come.
    pub(in crate::nvme_tcp) fn forget(&mut self) {
        self.slots.forget();
        for index in 0..self.entries {
            let state = self.commands.get(index).state;
            const KEPT: [State; 4] = [State::Free, State::Answered, State::Fabrics, State::Lost];
            if KEPT.contains(&state) || self.commands.forget(index) {
                continue;
            }
            if let Place::Large(slot) = self.commands.release(index) {
                self.slots.give_back(slot);
            }
        }
        let waits = |index: &u16| self.commands.get(*index).forgotten;
        self.receiving = self.receiving.filter(waits);
        self.sink = match self.receiving {
            Some(_) => self.sink,
            None => Sink::Nowhere,
        };
        self.first = None;
        self.ready.clear();
        self.awaited = 0;
    }

    /// The queue is over for its host: its connection, and what the controller may still use.
    pub(in crate::nvme_tcp) fn part(mut self) -> (Connection, Remains) {
        self.counts.note(&self.connection);
        self.slots.forget();
        for cid in self.rings.take_back() {
            if let Some(index) = self.commands.completed(cid) {
                self.commands.release(index);
            }
        }
        for index in 0..self.entries {
            let state = self.commands.get(index).state;
            if ![State::Free, State::Stored, State::Lost].contains(&state)
                && let Place::Large(slot) = self.commands.release(index)
            {
                self.slots.give_back(slot);
            }
        }
        let remains = Remains {
            rings: self.rings,
            region: self.region,
            commands: self.commands,
            slots: self.slots,
            counts: self.counts,
        };
        (self.connection, remains)
    }

    /// Whether something of it has a bound.
    pub(in crate::nvme_tcp) fn has_deadline(&self) -> bool {
        self.awaited > 0 || self.connection.is_blocked()
    }

    /// Looks for what has taken too long: each command, so not often.
    pub(in crate::nvme_tcp) fn check(&self, now: Time) -> Result<(), End> {
        let late = |since: Time, bound| now.since(since) >= bound;
        if self
            .connection
            .blocked_since()
            .is_some_and(|since| late(since, READ_NS))
        {
            return Err(End::DoesNotRead);
        }
        let mut taken = self.commands.taken();
        let is_late = self.awaited > 0
            && taken.any(|(_, command)| {
                let waits = matches!(command.state, State::Data(_)) && !command.forgotten;
                waits && late(command.since, DATA_NS)
            });
        if is_late { Err(End::SlowData) } else { Ok(()) }
    }
}
