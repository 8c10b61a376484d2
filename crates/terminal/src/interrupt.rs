//! Termination by signals: a flag that SIGINT, SIGTERM and SIGHUP set, for work that polls it.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::flag;

/// Exit status after a second signal: 128 plus SIGINT's number, as in shells.
const FORCED: i32 = 130;

/// The last signal that ended a command's work; 0 for none.
static LAST: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// Exit status of a command that a signal has ended early: 128 plus the signal's number, as in
/// shells; `None` if no signal has arrived.
#[must_use]
pub fn status() -> Option<u8> {
    match LAST.load(Ordering::Relaxed) {
        0 => None,
        signal => u8::try_from(128 + signal).ok(),
    }
}

/// Whether a signal has asked the program to end.
#[derive(Clone, Debug)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// Installs the handlers. A second signal ends the process at once, with status 130: nothing is
    /// flushed or cleaned up.
    ///
    /// # Errors
    /// The system has no room for a handler.
    pub fn install() -> io::Result<Self> {
        let set = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag clear, and sets it.
            flag::register_conditional_shutdown(signal, FORCED, set.clone())?;
            flag::register(signal, set.clone())?;
            let number = usize::try_from(signal).unwrap_or_default();
            flag::register_usize(signal, LAST.clone(), number)?;
        }
        Ok(Interrupt(set))
    }

    /// A flag that is already set, for tests.
    #[must_use]
    pub fn already_set() -> Self {
        Interrupt(Arc::new(AtomicBool::new(true)))
    }

    /// Whether a signal has arrived.
    #[must_use]
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
