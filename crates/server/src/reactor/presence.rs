//! Whether a controller has a host, and the host's process: written by the reactor, read by any
//! thread.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::sockopt::socket_peercred;

/// See the module. A single word, so that a reader never combines two hosts.
#[derive(Debug, Default)]
pub(crate) struct Presence(AtomicU64);

/// Bit that says that a host is attached.
const THERE: u64 = 1;

impl Presence {
    /// A host has attached over that socket.
    pub(super) fn enter(&self, socket: BorrowedFd<'_>) {
        // the kernel reports no process for a host in another PID namespace
        let process = socket_peercred(socket).ok();
        let process = process.and_then(|it| u32::try_from(it.pid.as_raw_nonzero().get()).ok());
        let process = u64::from(process.unwrap_or_default());
        self.0.store((process << 1) | THERE, Ordering::Relaxed);
    }

    /// The host has left.
    pub(super) fn leave(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether a host is attached.
    pub(crate) fn is_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) & THERE != 0
    }

    /// The host's process, where known.
    pub(crate) fn process(&self) -> Option<u32> {
        let process = self.0.load(Ordering::Relaxed) >> 1;
        u32::try_from(process).ok().filter(|process| *process != 0)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_host_has_the_process_of_its_socket() {
        let (one, _other) = UnixStream::pair().unwrap();
        let presence = Presence::default();
        assert!(!presence.is_there());
        presence.enter(one.as_fd());
        assert!(presence.is_there());
        assert_eq!(presence.process(), Some(std::process::id()));
        presence.leave();
        assert!(!presence.is_there());
        assert_eq!(presence.process(), None);
    }
}
