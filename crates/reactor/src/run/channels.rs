//! The channels of a reactor to media.

use std::io;
use std::sync::Arc;

use media::Medium;
use port::ChannelId;

use super::Reactor;
use crate::nodes::Nodes;
use crate::poller::Source;

/// Most commands in flight in a channel.
const CHANNEL_DEPTH: u16 = media::MAX_DEPTH;

impl Reactor {
    pub(super) fn open_channel(&mut self, medium: Arc<Medium>, id: ChannelId) -> io::Result<()> {
        if self.channels.iter().any(|(_, open)| *open == id) {
            return Ok(());
        }
        if let Some(node) = Nodes::of_machine().of_this_thread()
            && let Err(error) = medium.prefer_node(node)
        {
            tracing::debug!("memory of node {node} cannot be had: {error}");
        }
        let mut channel = medium.channel(CHANNEL_DEPTH)?;
        let clock = self.clock.clone();
        channel.set_clock(move || {
            memory::loads_done();
            clock.now()
        });
        if let Some(fd) = channel.wait_fd() {
            self.poller.add(fd, Source::Channel)?;
        }
        match self.engine.add_channel(id, channel, CHANNEL_DEPTH.into()) {
            Ok(()) => {
                self.channels.push((medium, id));
                Ok(())
            }
            Err(_) => Err(io::Error::other("a channel is open under this id")),
        }
    }

    pub(super) fn close_channel(&mut self, medium: &Arc<Medium>) {
        let Some(at) = self
            .channels
            .iter()
            .position(|(m, _)| Arc::ptr_eq(m, medium))
        else {
            return;
        };
        let (_, id) = self.channels.swap_remove(at);
        self.looks.forget(id);
        if let Some(channel) = self.engine.remove_channel(id)
            && let Some(fd) = channel.wait_fd()
            && let Err(error) = self.poller.remove(fd)
        {
            tracing::error!("a reactor cannot forget a channel: {error}");
        }
    }
}
