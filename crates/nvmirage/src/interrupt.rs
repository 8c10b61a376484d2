//! Being told to end: a flag that SIGINT, SIGTERM and SIGHUP set, for work that looks at it now and
//! then. To a server SIGHUP says something else: to read its configuration again.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Exit status after a second signal: 128 and SIGINT's number, as shells have it.
const FORCED: i32 = 130;

/// Whether somebody wants the program to end.
#[derive(Clone, Debug)]
pub(crate) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Takes over the signals. A second one ends the process where it stands.
    pub(crate) fn install() -> io::Result<Self> {
        let flag = Arc::new(AtomicBool::new(false));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        // here and not in the thread: a signal that comes after this returns is not lost
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

    /// One that has come.
    #[cfg(test)]
    pub(crate) fn already_set() -> Self {
        Interrupt(Arc::new(AtomicBool::new(true)))
    }

    /// Whether a signal has come.
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

/// What a signal asks a server for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To end, whoever uses it; by this one.
    End(&'static str),
    /// To end, by SIGINT: Ctrl-C, where it has a terminal.
    Interrupt,
    /// To read its configuration again.
    Reload,
}

impl Signals {
    /// Takes them over. Call it inside of a tokio runtime.
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Signals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// Waits for the next one that asks a server for something.
    pub(crate) async fn of_server(&mut self) -> Asked {
        tokio::select! {
            _ = self.interrupt.recv() => Asked::Interrupt,
            _ = self.terminate.recv() => Asked::End("SIGTERM"),
            _ = self.hang_up.recv() => Asked::Reload,
        }
    }

    /// Waits for the next one and names it.
    pub(crate) async fn recv(&mut self) -> &'static str {
        tokio::select! {
            _ = self.interrupt.recv() => "SIGINT",
            _ = self.terminate.recv() => "SIGTERM",
            _ = self.hang_up.recv() => "SIGHUP",
        }
    }
}
