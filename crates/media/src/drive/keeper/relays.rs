//! The keeper's records of relays: which relay has which half of a queue pair, and which queue
//! pairs wait for halves to come back.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use driver::bus::Bus;
use driver::{Device, DriverError, QueuePair};
use memory::{Bell, EventFd, ViewPins};

use super::Keeper;
use crate::drive::message::{Duty, Load, News, Order, Sleeper};
use crate::drive::queue::{Queue, Wakes};

/// A relay as the keeper knows it.
pub(super) struct RelayClient<B: Bus> {
    duty: Duty,
    orders: Sender<Order<B>>,
    its: Sleeper,
}

impl<B: Bus> RelayClient<B> {
    fn tell(&self, order: Order<B>) {
        // A relay that has ended has sent a job, or will.
        let _ = self.orders.send(order);
        let _ = self.its.wake.signal();
    }
}

/// A new queue pair for a channel.
pub(super) struct Made<B: Bus> {
    pub(super) pair: QueuePair<B>,
    pub(super) wakes: Wakes,
    pub(super) bell: Option<Arc<Bell>>,
}

/// A queue pair to delete after its halves have come back.
struct Leaving<B: Bus> {
    channel: u32,
    queue: Queue<B>,
    /// Pinned memory, kept until the queue is gone; `None` if the channel stays and gets another
    /// queue pair.
    pins: Option<ViewPins>,
}

/// The relays of a drive.
pub(super) struct Relays<B: Bus> {
    all: Vec<RelayClient<B>>,
    /// Halves that relays have: the channel and the relay's duty.
    out: Vec<(u32, Duty)>,
    leaving: Vec<Leaving<B>>,
}

impl<B: Bus> Default for Relays<B> {
    fn default() -> Self {
        Relays {
            all: Vec::new(),
            out: Vec::new(),
            leaving: Vec::new(),
        }
    }
}

impl<B: Bus> Relays<B> {
    fn of(&self, duty: Duty) -> Option<&RelayClient<B>> {
        self.all.iter().find(|relay| relay.duty == duty)
    }

    /// Whether a relay has a half of the channel's queue pair.
    fn has(&self, channel: u32) -> bool {
        self.out.iter().any(|(of, _)| *of == channel)
    }

    /// Whether a queue pair waits to be deleted: until then the drive may have no other to grant.
    pub(super) fn is_parting(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The relay that the channel's interrupt wakes; `None` if it wakes the channel.
    pub(super) fn sleeper(&self, channel: u32) -> Option<&Sleeper> {
        let is_out = self.out.contains(&(channel, Duty::Entries));
        let relay = self.of(Duty::Entries).filter(|_| is_out);
        relay.map(|relay| &relay.its)
    }

    /// Notifies the relay that brings a channel's completions whether the drive's interrupt wakes
    /// it.
    pub(super) fn tell_wakes(&self, channel: u32, wakes: Wakes) {
        if let Some(relay) = self.of(Duty::Entries) {
            relay.tell(Order::Wakes { channel, wakes });
        }
    }

    /// Creates a queue pair for a channel with this wake-up: whole without relays, otherwise
    /// without the halves that relays get.
    pub(super) fn make_pair(
        &mut self,
        device: &mut Device<B>,
        (channel, wake): (u32, &EventFd),
        depth: u16,
    ) -> Result<Made<B>, DriverError> {
        let wakes = |pair: &QueuePair<B>| match pair.interrupt_vector() {
            Some(_) => Wakes::Can,
            None => Wakes::Cannot,
        };
        let Some(entries) = self.of(Duty::Entries) else {
            let pair = device.create_quiet_queue_pair(depth)?;
            let wakes = wakes(&pair);
            return Ok(Made {
                pair,
                wakes,
                bell: None,
            });
        };
        let (pair, mut carrier) = device.create_carried_queue_pair(depth)?;
        let bell = Arc::new(Bell::new());
        let reader = Sleeper {
            bell: bell.clone(),
            wake: wake.clone(),
        };
        let mut readers = vec![reader];
        if let Some(heads) = self.of(Duty::Heads) {
            readers.push(heads.its.clone());
            let load = Load::Heads(carrier.split_heads());
            heads.tell(Order::Take { channel, load });
        }
        let wakes = wakes(&pair);
        let load = Load::Entries {
            carrier,
            readers,
            wakes,
        };
        entries.tell(Order::Take { channel, load });
        let out = self.all.iter().map(|relay| (channel, relay.duty));
        self.out.extend(out);
        // The relay that brings the completions wakes the channel.
        Ok(Made {
            pair,
            wakes: Wakes::Does,
            bell: Some(bell),
        })
    }
}

impl<B: Bus> Keeper<B> {
    /// Registers a relay: new queue pairs of channels are split with it.
    pub(super) fn open_relay(&mut self, duty: Duty, orders: Sender<Order<B>>, its: Sleeper) {
        self.relays.all.push(RelayClient { duty, orders, its });
    }

    /// Removes a relay, which has dropped its halves.
    pub(super) fn close_relay(&mut self, duty: Duty) {
        self.relays.all.retain(|relay| relay.duty != duty);
        let its = self.relays.out.extract_if(.., |(_, of)| *of == duty);
        let channels: Vec<u32> = its.map(|(channel, _)| channel).collect();
        for channel in channels {
            self.came_back(channel);
        }
    }

    /// Records that a relay has dropped its half of a channel's queue pair.
    pub(super) fn returned(&mut self, channel: u32, duty: Duty) {
        self.relays.out.retain(|out| *out != (channel, duty));
        self.came_back(channel);
    }

    fn came_back(&mut self, channel: u32) {
        let mut leaving = self.relays.leaving.iter();
        match leaving.position(|leaving| leaving.channel == channel) {
            Some(_) if self.relays.has(channel) => {}
            Some(at) => {
                let leaving = self.relays.leaving.swap_remove(at);
                self.end(leaving);
            }
            // No relay brings the completions of that queue pair any more.
            None => {
                let mut clients = self.clients.iter();
                if let Some(client) = clients.find(|client| client.channel == channel) {
                    client.tell(News::Ended);
                }
            }
        }
    }

    /// Deletes a queue pair that its channel gave back, as soon as no relay has a half of it.
    pub(super) fn part_with(&mut self, channel: u32, queue: Queue<B>, pins: Option<ViewPins>) {
        let leaving = Leaving {
            channel,
            queue,
            pins,
        };
        if !self.relays.has(channel) {
            return self.end(leaving);
        }
        for (_, duty) in self.relays.out.iter().filter(|(of, _)| *of == channel) {
            if let Some(relay) = self.relays.of(*duty) {
                relay.tell(Order::Drop { channel });
            }
        }
        self.relays.leaving.push(leaving);
    }

    fn end(&mut self, leaving: Leaving<B>) {
        let Leaving {
            channel,
            queue,
            pins,
        } = leaving;
        self.delete(queue);
        let mut clients = self.clients.iter_mut().filter(|_| pins.is_none());
        if let Some(client) = clients.find(|client| client.channel == channel) {
            client.is_served = false;
            client.tell(News::Over);
        }
        self.serve();
    }
}
