//! The keeper's record of a channel.

use std::sync::mpsc::Sender;

use driver::bus::Bus;
use driver::{Device, DriverError};
use memory::EventFd;

use super::relays::{Made, Relays};
use crate::drive::message::News;
use crate::drive::queue::{BOUNCE_BYTES, BOUNCES, Queue};

/// A channel as the keeper knows it.
pub(super) struct Client<B: Bus> {
    pub(super) channel: u32,
    pub(super) depth: u16,
    pub(super) news: Sender<News<B>>,
    pub(super) wake: EventFd,
    /// Whether it has a queue pair of the current device.
    pub(super) is_served: bool,
    /// Interrupt vector of that queue pair.
    pub(super) vector: Option<u16>,
    /// Whether it has requested interrupts.
    pub(super) sleeps: bool,
}

impl<B: Bus> Client<B> {
    pub(super) fn tell(&self, news: News<B>) {
        // A channel that has ended has sent a job, or will.
        let _ = self.news.send(news);
        // A full counter is signalled already.
        let _ = self.wake.signal();
    }

    /// A queue pair for it, with the memory that its commands may use.
    pub(super) fn make_queue(
        &self,
        device: &mut Device<B>,
        relays: &mut Relays<B>,
    ) -> Result<Queue<B>, DriverError> {
        let bounce = (0..BOUNCES).map(|_| device.alloc(BOUNCE_BYTES as usize));
        let bounce = bounce.collect::<Result<Vec<_>, _>>()?;
        let zeros = device.alloc(4096)?;
        let depth = self.depth.min(device.depth_max());
        let Made { pair, wakes, bell } =
            relays.make_pair(device, (self.channel, &self.wake), depth)?;
        Ok(Queue {
            pair,
            bounce,
            zeros,
            wakes,
            bell,
        })
    }
}
