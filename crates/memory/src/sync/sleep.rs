//! Sleep without a lost wake-up.
//!
//! An idle reactor announces that it sleeps, checks for work again, and only then waits for its
//! descriptors. A thread that gives it work first publishes the work, then rings. This closes a
//! race: the sleeper stores "sleeping" and loads the work; the other side stores the work and loads
//! "sleeping". Without a full fence between store and load on both sides, each load may run before
//! the other's store is visible, and both would miss.

use crate::sync::atomics::{AtomicBool, Ordering};
use crate::sync::order::full_fence;

/// The sleep state of a reactor, shared with the threads that give it work.
#[derive(Debug)]
pub struct Bell {
    sleeping: AtomicBool,
}

impl Default for Bell {
    fn default() -> Self {
        Bell::new()
    }
}

impl Bell {
    /// A bell of a reactor that is awake.
    #[must_use]
    pub fn new() -> Self {
        Bell {
            sleeping: AtomicBool::new(false),
        }
    }

    /// The sleeper's side: from now on it must be woken. It looks at everything once more after
    /// this call and waits only if it found nothing.
    pub fn announce(&self) {
        self.sleeping.store(true, Ordering::Relaxed);
        // between our store of `sleeping` and our second look at the work
        full_fence();
    }

    /// The sleeper's side: it is awake.
    pub fn awake(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }

    /// For the other side, after it has published work: whether it must wake the sleeper by its
    /// descriptor. Returns true to only one of several callers per sleep.
    #[must_use]
    pub fn ring(&self) -> bool {
        // between our store of the work and our load of `sleeping`
        full_fence();
        self.sleeping.load(Ordering::Relaxed) && self.sleeping.swap(false, Ordering::Relaxed)
    }
}
