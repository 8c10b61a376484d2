//! Whether a controller has a host, and the host's process: written by the reactor, read by any
//! thread.

use std::sync::atomic::{AtomicU64, Ordering};

/// Called with the name of a controller, and whether it has a host now. It must not wait.
pub type Announce = fn(controller: &str, is_there: bool);

/// See the module.
#[derive(Debug)]
pub struct Presence {
    /// A single word, so that a reader never combines two hosts.
    host: AtomicU64,
    announce: Announce,
}

/// Bit that says that a host is attached.
const THERE: u64 = 1;

impl Presence {
    /// No host; changes are announced.
    pub fn new(announce: Announce) -> Self {
        Presence {
            host: AtomicU64::new(0),
            announce,
        }
    }

    /// A host of the controller has attached; its process, where known.
    pub(crate) fn enter(&self, controller: &str, process: Option<u32>) {
        let process = u64::from(process.unwrap_or_default());
        self.host.store((process << 1) | THERE, Ordering::Relaxed);
        (self.announce)(controller, true);
    }

    /// The controller's host has left.
    pub(crate) fn leave(&self, controller: &str) {
        self.host.store(0, Ordering::Relaxed);
        (self.announce)(controller, false);
    }

    /// Whether a host is attached.
    pub fn is_there(&self) -> bool {
        self.host.load(Ordering::Relaxed) & THERE != 0
    }

    /// The host's process, where known.
    pub fn process(&self) -> Option<u32> {
        let process = self.host.load(Ordering::Relaxed) >> 1;
        u32::try_from(process).ok().filter(|process| *process != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_there_has_its_process() {
        static ANNOUNCED: AtomicU64 = AtomicU64::new(0);
        let presence = Presence::new(|controller, is_there| {
            assert_eq!(controller, "c");
            ANNOUNCED.fetch_add(if is_there { 1 } else { 256 }, Ordering::Relaxed);
        });
        assert!(!presence.is_there());
        presence.enter("c", Some(7));
        assert!(presence.is_there());
        assert_eq!(presence.process(), Some(7));
        assert_eq!(ANNOUNCED.load(Ordering::Relaxed), 1);
        presence.leave("c");
        assert_eq!(ANNOUNCED.load(Ordering::Relaxed), 257);
        assert!(!presence.is_there());
        assert_eq!(presence.process(), None);
    }
}
