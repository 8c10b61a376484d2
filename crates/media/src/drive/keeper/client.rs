//! The keeper's record of a channel.

use std::sync::mpsc::Sender;

use driver::bus::Bus;
use memory::EventFd;

use super::News;

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
}
