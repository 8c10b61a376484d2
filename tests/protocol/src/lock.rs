//! The lock of one medium that controllers have in turn, as those of two servers do.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use transport::vfio_user::Custody;

/// No controller has it.
const FREE: usize = usize::MAX;

/// The lock, and what becomes of the medium's durability.
#[derive(Debug)]
pub struct Lock {
    holder: Arc<AtomicUsize>,
    hangs: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
    others: Arc<AtomicBool>,
}

impl Default for Lock {
    fn default() -> Self {
        Self {
            holder: Arc::new(AtomicUsize::new(FREE)),
            hangs: Arc::default(),
            fails: Arc::default(),
            others: Arc::default(),
        }
    }
}

impl Lock {
    /// Has the medium not become durable.
    pub fn hang(&self, hangs: bool) {
        self.hangs.store(hangs, Ordering::Relaxed);
    }

    /// Has it fail to.
    pub fn fail(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    /// Has each controller believe that it has another medium.
    pub fn differ(&self, others: bool) {
        self.others.store(others, Ordering::Relaxed);
    }

    /// The controller that has it.
    #[must_use]
    pub fn holder(&self) -> Option<usize> {
        let holder = self.holder.load(Ordering::Relaxed);
        (holder != FREE).then_some(holder)
    }

    /// The lock, for one of the controllers.
    pub(crate) fn of(&self, controller: usize) -> Arc<dyn Custody> {
        Arc::new(Turns {
            holder: self.holder.clone(),
            hangs: self.hangs.clone(),
            fails: self.fails.clone(),
            others: self.others.clone(),
            controller,
        })
    }
}

#[derive(Debug)]
struct Turns {
    holder: Arc<AtomicUsize>,
    hangs: Arc<AtomicBool>,
    fails: Arc<AtomicBool>,
    others: Arc<AtomicBool>,
    controller: usize,
}

impl Custody for Turns {
    fn is_here(&self) -> bool {
        self.holder.load(Ordering::Relaxed) == self.controller
    }

    fn place(&self) -> String {
        "here".to_owned()
    }

    fn compare(&self, place: &str) -> Result<(), String> {
        if place == "here" && !self.others.load(Ordering::Relaxed) {
            Ok(())
        } else {
            Err("it is another one".to_owned())
        }
    }

    fn begin_sync(&self) {}

    fn synced(&self) -> Option<Result<(), String>> {
        if self.hangs.load(Ordering::Relaxed) {
            return None;
        }
        if self.fails.load(Ordering::Relaxed) {
            return Some(Err("what was written is lost".to_owned()));
        }
        Some(Ok(()))
    }

    fn release(&self) {
        if self.is_here() {
            self.holder.store(FREE, Ordering::Relaxed);
        }
    }

    fn claim(&self) -> Result<(), String> {
        let holder = self.holder.load(Ordering::Relaxed);
        if ![FREE, self.controller].contains(&holder) {
            return Err("another server has it".to_owned());
        }
        self.holder.store(self.controller, Ordering::Relaxed);
        Ok(())
    }
}
