//! The signals that end a server, or make it reload its configuration.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// The signals that ask a process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// The request of a signal to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SignalRequest {
    /// Stop, even with hosts attached; with the name of the signal.
    End(&'static str),
    /// Stop, by SIGINT: Ctrl-C on a terminal.
    Interrupt,
    /// Reload the configuration.
    Reload,
}

impl Signals {
    /// Installs the handlers. Must be called inside of a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next request to a server.
    pub(crate) async fn of_server(&mut self) -> SignalRequest {
        tokio::select! {
            _ = self.interrupt.recv() => SignalRequest::Interrupt,
            _ = self.terminate.recv() => SignalRequest::End("SIGTERM"),
            _ = self.hang_up.recv() => SignalRequest::Reload,
        }
    }

    /// Waits for the next signal, and returns its name.
    pub(crate) async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}
