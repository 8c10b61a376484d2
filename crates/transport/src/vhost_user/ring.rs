//! A ring as the front end sets it up, and its queue while it runs.
//!
//! ```text
//! stopped --kick is set--> started (enabled or not) --GET_VRING_BASE or reset--> stopped
//! ```

use std::sync::Arc;

use memory::{DmaView, EventFd, Iova};
use vhost_user::{Features, VringAddr};

use super::kicks::Kicks;
use super::queue::{Queue, Record, RingFault, Setup};

/// Entries of a ring of whose size the front end has said nothing.
const NO_SIZE: u16 = 0;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Ring {
    pub(super) size: u16,
    pub(super) base: u32,
    pub(super) addresses: Option<VringAddr>,
    kick: Option<EventFd>,
    call: Option<EventFd>,
    err: Option<EventFd>,
    /// The front end has set its kick since it was stopped.
    is_started: bool,
    pub(super) is_enabled: bool,
    /// It takes no more requests, as the front end waits until it has none.
    pub(super) is_stopping: bool,
    /// The driver has broken a rule.
    is_broken: bool,
    /// Its memory was removed while it ran. It runs again after it was stopped.
    is_lost: bool,
    pub(super) queue: Option<Queue>,
    /// Requests that were taken and not given back.
    pub(super) in_flight: u32,
    /// Requests that queues before took again.
    resubmitted: u64,
}

impl Ring {
    /// Whether it has broken a rule since it was started.
    pub(super) fn is_broken(&self) -> bool {
        self.is_broken
    }

    /// Its queue, where requests are to be taken.
    #[inline]
    pub(super) fn active(&mut self) -> Option<&mut Queue> {
        let is_active = self.is_enabled && !self.is_stopping && !self.is_broken;
        self.queue.as_mut().filter(|_| is_active)
    }

    /// Whether it runs, and its driver has no way to notify.
    pub(super) fn is_polled(&self) -> bool {
        let is_active = self.is_enabled && !self.is_stopping && !self.is_broken;
        is_active && self.queue.is_some() && self.kick.is_none()
    }

    /// Starts with another kick, or with none: it is looked at without notifications then.
    ///
    /// # Errors
    /// The descriptor cannot be watched.
    pub(super) fn set_kick(&mut self, kick: Option<EventFd>, kicks: &Kicks) -> std::io::Result<()> {
        if let Some(kick) = &kick {
            kicks.add(kick)?;
        }
        self.forget_kick(kicks);
        self.kick = kick;
        self.is_started = true;
        Ok(())
    }

    fn forget_kick(&mut self, kicks: &Kicks) {
        if let Some(kick) = self.kick.take() {
            kicks.remove(&kick);
        }
    }

    pub(super) fn set_call(&mut self, call: Option<EventFd>) {
        self.call = call;
        // The driver may not know of requests that were given back before it could be called.
        self.call();
    }

    pub(super) fn set_err(&mut self, err: Option<EventFd>) {
        self.err = err;
    }

    /// Notifies the driver. True where there is a way.
    pub(super) fn call(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.signal().is_ok())
    }

    /// The front end says again how it is to run: a fault of what it said before is past.
    pub(super) fn forgive(&mut self) {
        self.is_broken &= self.queue.is_some() || self.is_lost;
    }

    /// The driver has broken a rule: it takes no more requests.
    pub(super) fn fail(&mut self) {
        if std::mem::replace(&mut self.is_broken, true) {
            return;
        }
        if let Some(err) = &self.err {
            // A counter at its limit is signalled already.
            let _ = err.signal();
        }
    }

    /// How its queue is made, where it is started and nothing is missing. `guest` has the address
    /// for the guest of an address of the front end.
    fn setup(
        &self,
        features: Features,
        guest: impl Fn(u64) -> Option<Iova>,
    ) -> Option<Result<Setup, RingFault>> {
        let addresses = self.addresses.as_ref()?;
        if !self.is_started || self.is_lost || self.queue.is_some() || self.size == NO_SIZE {
            return None;
        }
        let find = |address| guest(address).ok_or(RingFault::Unreachable);
        let setup = || {
            Ok(Setup {
                size: self.size,
                descriptors: find(addresses.descriptors)?,
                driver: find(addresses.available)?,
                device: find(addresses.used)?,
                base: self.base,
                is_packed: features.ring_packed(),
                has_event_idx: features.event_idx(),
                has_indirect: features.indirect_desc(),
            })
        };
        Some(setup())
    }

    /// Makes its queue, where it is started and nothing is missing.
    ///
    /// # Errors
    /// The ring cannot lie there, or the record is wrong: it is broken then.
    pub(super) fn start(
        &mut self,
        features: Features,
        view: &Arc<DmaView>,
        record: Option<Record>,
        guest: impl Fn(u64) -> Option<Iova>,
    ) -> Result<(), RingFault> {
        let Some(setup) = self.setup(features, guest) else {
            return Ok(());
        };
        let made = setup.and_then(|setup| Queue::new(view, &setup, record));
        match made {
            Ok(queue) => {
                self.queue = Some(queue);
                self.is_broken = false;
                Ok(())
            }
            Err(fault) => {
                self.fail();
                Err(fault)
            }
        }
    }

    /// Stops: nothing is in flight. The next entry to take.
    pub(super) fn stop(&mut self, kicks: &Kicks) -> u32 {
        self.forget_kick(kicks);
        self.end_queue();
        (self.is_started, self.is_stopping) = (false, false);
        (self.is_broken, self.is_lost) = (false, false);
        self.base
    }

    /// The memory in which it lies was removed: requests in flight are not given back.
    pub(super) fn lose(&mut self) {
        self.end_queue();
        self.is_lost = true;
        self.fail();
    }

    fn end_queue(&mut self) {
        if let Some(queue) = self.queue.take() {
            self.base = queue.base();
            self.resubmitted += queue.resubmitted();
        }
    }

    /// Requests of a former back end or connection that were taken again.
    pub(super) fn resubmitted(&self) -> u64 {
        let now = self.queue.as_ref().map_or(0, |queue| queue.resubmitted());
        self.resubmitted + now
    }
}
