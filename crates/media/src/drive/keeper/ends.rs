//! The ends of queue pairs, and the keeper's own ones, which are short.
//!
//! Invariant: when a queue pair has ended, no command of it is at the drive any more, or the drive
//! is lost. Deleting a queue ends its commands. Over a network it only closes a connection, and the
//! target may still execute what it has received: a queue with commands in flight ends by a reset
//! of the controller there, over the Admin Queue.

use driver::bus::Bus;
use driver::{Device, DriverError, QueuePair};

use super::super::{SLOW_TIMEOUT, erase};
use super::Keeper;
use crate::drive::queue::Queue;

impl<B: Bus> Keeper<B> {
    /// Deletes the queue pair of a channel.
    pub(super) fn delete(&mut self, queue: Queue<B>) {
        let Queue {
            pair,
            bounce,
            zeros,
            wakes: _,
            bell: _,
        } = queue;
        self.end_pair(pair);
        // Freed only now: the drive may have written there.
        drop((bounce, zeros));
    }

    /// Deletes a queue pair. If the drive does not do that, it is reset; if the reset fails, it is
    /// lost.
    fn end_pair(&mut self, pair: QueuePair<B>) {
        if !self.is_in_order() {
            return;
        }
        let Some(device) = &mut self.device else {
            return;
        };
        let goes_on = device.bus().deletes_near() && pair.in_flight() > 0;
        // Those of a queue pair from before a reset have ended with it.
        if goes_on && pair.is_current() {
            return self.reset("its target may still execute commands that were not answered");
        }
        match device.delete_queue_pair(pair) {
            Ok(()) => {}
            Err(DriverError::Gone) => self.lose("its server is gone"),
            Err(error) => self.reset(&error.to_string()),
        }
    }

    /// Executes commands in a queue pair of the keeper's own.
    fn in_own_pair(
        &mut self,
        work: impl FnOnce(&Device<B>, &mut QueuePair<B>) -> Result<(), DriverError>,
    ) -> Result<(), String> {
        let device = self.device.as_mut().ok_or("the drive is lost")?;
        let mut pair = device
            .create_queue_pair(1, false)
            .map_err(|error| error.to_string())?;
        pair.set_timeout(SLOW_TIMEOUT);
        let worked = work(device, &mut pair);
        self.end_pair(pair);
        worked.map_err(|error| error.to_string())
    }

    /// Zeroes whole blocks.
    pub(in crate::drive) fn erase(&mut self, offset: u64, len: u64) -> Result<(), String> {
        let facts = self.facts.clone();
        self.in_own_pair(|device, pair| erase::erase(device, pair, &facts, offset, len))
    }

    /// Flushes what has completed.
    pub(super) fn flush(&mut self) -> Result<(), String> {
        let facts = self.facts.clone();
        if !facts.volatile_cache {
            let there = self.device.as_ref().map(drop);
            return there.ok_or_else(|| "the drive is lost".to_owned());
        }
        self.in_own_pair(|_, pair| pair.flush(facts.nsid).map(drop))
    }
}
