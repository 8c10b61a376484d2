//! The back end's own messages: that the configuration space has changed.

use std::os::fd::OwnedFd;

use port::time::Time;
use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use vhost_user::BackendRequest;

/// How soon it is tried again, where the front end has not read the last message.
const RETRY_NS: u64 = 100_000_000;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct News {
    channel: Option<OwnedFd>,
    /// The configuration space has changed, and the front end does not know.
    has_changed: bool,
    retries_at: Option<Time>,
}

impl News {
    /// The front end takes them there. It may have read the configuration space before the last
    /// change, so that it hears of that, too.
    pub(super) fn set_channel(&mut self, channel: OwnedFd) {
        self.channel = Some(channel);
        self.retries_at = None;
    }

    /// The configuration space has changed, or the device needs a reset.
    pub(super) fn config_changed(&mut self) {
        self.has_changed = true;
    }

    /// Sends what is to be sent.
    pub(super) fn send(&mut self, now: Time) {
        let Some(channel) = self.channel.as_ref().filter(|_| self.has_changed) else {
            return;
        };
        let message = BackendRequest::CONFIG_CHANGE_MSG.header(0);
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match send(channel, &message, flags) {
            Err(Errno::AGAIN | Errno::INTR) => self.retries_at = Some(now + RETRY_NS),
            // A front end that has closed it takes none.
            Err(_) => (self.channel, self.retries_at) = (None, None),
            // Twelve bytes go at once or not at all.
            Ok(_) => (self.has_changed, self.retries_at) = (false, None),
        }
    }

    /// When it is tried again.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.retries_at
    }
}
