//! A controller's doorbells: the pages, the host's doorbell buffers, and doorbells that come as
//! messages.
//!
//! A doorbell that comes as a message is stored in the place of a mapped one; its lane then gets a
//! turn. It does NOT check a value: the queues do.

use std::sync::Arc;

use memory::{Counter, DoorbellPages};
use port::ticket::OwnerKey;

use super::Controller;
use super::admin::error_log::LoggedError;
use super::admin::events::Event;
use super::watch::Watch;
use crate::config::{ConfigError, ControllerConfig};
use crate::lane::Registration;

#[derive(Debug)]
pub(crate) struct Doorbells {
    pub(crate) pages: Arc<DoorbellPages>,
    pub(crate) watch: Watch,
    /// The host's doorbell buffers, where it registered some.
    pub(crate) shadow: Option<Registration>,
    /// Registrations of doorbell buffers so far.
    pub(crate) registrations: u32,
    /// Completion queues whose doorbells were written by messages, one bit each.
    kicks: u128,
    /// Doorbells of I/O queues that came as messages.
    messages: Arc<Counter>,
    /// Register writes come as messages ([`Controller::expect_messages`]).
    pub(crate) by_messages: bool,
}

impl Doorbells {
    /// In these pages, of at most so many queue pairs.
    pub(super) fn new(pages: Arc<DoorbellPages>, pairs: usize) -> Self {
        Doorbells {
            watch: Watch::new(&pages, pairs),
            pages,
            shadow: None,
            registrations: 0,
            kicks: 0,
            messages: Arc::default(),
            by_messages: false,
        }
    }

    /// The lane of this completion queue needs a turn.
    pub(super) fn kick(&mut self, cqid: u16) {
        self.kicks |= 1 << cqid;
    }

    /// The queues are gone, and with them the registration of doorbell buffers.
    pub(super) fn forget(&mut self) {
        self.shadow = None;
        self.kicks = 0;
    }
}

/// A slot for each queue's tail and head.
pub(super) fn check_doorbells(
    config: &ControllerConfig,
    doorbells: &DoorbellPages,
) -> Result<(), ConfigError> {
    let (have, need) = (doorbells.len(), config.doorbell_slots() * size_of::<u32>());
    if have < need {
        return Err(ConfigError::Doorbells { have, need });
    }
    Ok(())
}

impl Controller {
    /// Doorbells by message: whole slots only.
    pub(super) fn write_doorbells(&mut self, offset: u64, data: &[u8]) {
        let skip = (offset.wrapping_neg() & 3) as usize;
        let values = data.get(skip..).unwrap_or(&[]).chunks_exact(4);
        for (slot, value) in (offset.div_ceil(4)..).zip(values) {
            let value = u32::from_le_bytes([value[0], value[1], value[2], value[3]]);
            self.ring_doorbell(slot, value);
        }
    }

    fn ring_doorbell(&mut self, slot: u64, value: u32) {
        // Before RDY there are no queues; a doorbell then has no defined effect.
        if self.admin.queue.is_none() {
            return;
        }
        let Ok(qid) = u16::try_from(slot / 2) else {
            return self.unknown_doorbell();
        };
        let is_head = slot % 2 == 1;
        let cqid = match (qid, is_head) {
            (0, _) => Some(0),
            (_, true) => self.queues.has_cq(qid).then_some(qid),
            (_, false) => self.queues.cqid_of_sq(qid),
        };
        let Some(cqid) = cqid else {
            return self.unknown_doorbell();
        };
        self.doorbells.pages.store(slot as usize, value);
        if is_head && self.function.config_space.has_pin() {
            self.interrupts.recheck();
        }
        if cqid != 0 {
            self.doorbells.messages.add(1);
            self.doorbells.kick(cqid);
        }
    }

    /// A doorbell of a queue that does not exist was written (Base 2.1, 5.1.2, Error status 00h).
    fn unknown_doorbell(&mut self) {
        self.error_event(Event::InvalidDoorbellRegister);
    }

    /// A value that cannot be was found in a doorbell of queue `qid`, which is frozen now.
    pub(crate) fn bad_doorbell(&mut self, qid: u16) {
        tracing::debug!(controller = self.config.name, qid, "invalid doorbell value");
        self.error_event(Event::InvalidDoorbellValue);
    }

    /// Logs and raises an error that belongs to no command.
    fn error_event(&mut self, event: Event) {
        self.logs.errors.add(LoggedError {
            status: nvme_spec::Status::INVALID_FIELD_IN_COMMAND,
            ..LoggedError::default()
        });
        self.raise(event);
    }

    /// Lanes whose doorbells were written by messages since the last call.
    pub fn take_kicks(&mut self) -> impl Iterator<Item = OwnerKey> {
        let kicks = std::mem::take(&mut self.doorbells.kicks);
        let queues = &self.queues;
        (1..=self.config.queues)
            .filter(move |cqid| kicks >> cqid & 1 == 1)
            .filter_map(|cqid| queues.lane_of_cq(cqid))
    }

    /// Replaces the doorbell pages: each host gets its own, so that a disconnected host that kept
    /// its mapping rings no other host's doorbells. Only while no host is attached: the controller
    /// is disabled and quiet.
    ///
    /// # Errors
    /// They are too small.
    ///
    /// # Panics
    /// If the controller is not quiet.
    pub fn set_doorbells(&mut self, doorbells: Arc<DoorbellPages>) -> Result<(), ConfigError> {
        assert!(self.is_quiet(), "queues still look at the old doorbells");
        check_doorbells(&self.config, &doorbells)?;
        self.watch_pages(&doorbells);
        self.doorbells.pages = doorbells;
        Ok(())
    }

    /// Doorbells of I/O queues that come as messages are counted there.
    pub fn count_doorbell_messages_in(&mut self, counter: Arc<Counter>) {
        self.doorbells.messages = counter;
    }
}
