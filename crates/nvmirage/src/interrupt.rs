//! Termination by signals: a flag that SIGINT, SIGTERM and SIGHUP set, for work that polls it. A
//! server reloads its configuration on SIGHUP instead.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status after a second signal: 128 plus SIGINT's number, as in shells.
const FORCED: i32 = 130;

/// Whether a signal has asked the program to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handlers. A second signal ends the process at once.
    pub(crate) fn install() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // registered here and not in the thread, so that no signal after the return is lost
        let mut signals = {
            let _guard = runtime.enter();
            Signals::new()?
        };
        let set = flag.clone();
        std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                runtime.block_on(async {
                    signals.recv().await;
                    set.store(true, Ordering::Relaxed);
                    signals.recv().await;
                    std::process::exit(FORCED);
                });
            })?;
        Ok(Interrupt(flag))
    }

    /// A flag that is already set.
    #[cfg(test)]
    pub(crate) fn already_set() -> Self {
        Interrupt(Arc::new(AtomicBool::new(true)))
    }

    /// Whether a signal has arrived.
    pub(crate) fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The signals that ask a process to end.
#[derive(Debug)]
pub(crate) struct Signals {
    interrupt: Signal,
    terminate: Signal,
    hang_up: Signal,
}

/// The request of a signal to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
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
    pub(crate) async fn of_server(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Interrupt,
            _ = self.terminate.recv() => Asked::End("SIGTERM"),
            _ = self.hang_up.recv() => Asked::Reload,
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
