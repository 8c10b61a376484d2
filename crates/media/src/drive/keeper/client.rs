//! A channel of a drive, as its keeper knows it.

use std::sync::mpsc::Sender;

use driver::bus::Bus;
use memory::EventFd;

use super::News;

/// A channel, as the keeper knows it.
pub(super) struct Client<B: Bus> {
    pub(super) channel: u32,
    pub(super) depth: u16,
    pub(super) news: Sender<News<B>>,
    pub(super) wake: EventFd,
    /// It has a queue pair of the device as it is now.
    pub(super) is_served: bool,
    /// The interrupt's vector of that.
    pub(super) vector: Option<u16>,
    /// It has asked for interrupts.
    pub(super) sleeps: bool,
}

impl<B: Bus> Client<B> {
    pub(super) fn tell(&self, news: News<B>) {
        // A channel that is gone has said so, or will.
        let _ = self.news.send(news);
        // A counter that is full is signalled already.
        let _ = self.wake.signal();
    }
}
