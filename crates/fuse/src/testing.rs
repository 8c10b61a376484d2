//! A panic of a thread of a mount, at the request of a test.

use std::sync::{Mutex, PoisonError};
use std::thread;

/// Start of the name of the thread that must panic next.
static STRUCK: Mutex<Option<String>> = Mutex::new(None);

/// Makes the next thread of a mount panic whose name begins like this.
pub fn set_struck(thread: &str) {
    *STRUCK.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread.to_owned());
}

/// Whether a thread is still to panic.
pub fn is_struck() -> bool {
    STRUCK
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .is_some()
}

/// Panics once, in the thread that a test has chosen.
pub(crate) fn strike() {
    let mut struck = STRUCK.lock().unwrap_or_else(PoisonError::into_inner);
    let current = thread::current();
    let name = current.name().unwrap_or_default();
    if struck
        .as_deref()
        .is_some_and(|thread| name.starts_with(thread))
    {
        *struck = None;
        drop(struck);
        panic!("as the test wants");
    }
}
