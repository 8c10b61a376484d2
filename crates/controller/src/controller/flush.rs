//! Flushes by the controller itself: one of each medium with a volatile cache, at a shutdown and
//! when a host disables the cache. Bounded in time; it does not know who waits for it.

use std::sync::Arc;

use memory::DmaView;
use nvme_spec::Status;
use port::namespace::NamespaceTable;
use port::ticket::{OwnerKey, Ticket};
use port::time::Time;
use port::{Added, Cause, Channel, ChannelId, Channels, Outcome, Request};
use subsystem::Subsystem;

use super::Controller;
use super::admin::{Reply, Waiting};
use crate::lane::{LaneCommand, LaneTable};

/// Media being flushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Flush {
    /// Carried by its tickets: those of an earlier flush are none of its.
    generation: u16,
    pub(super) deadline: Time,
    /// Channels that had no room yet.
    to_add: Vec<ChannelId>,
    /// Tickets out.
    out: u32,
    failed: bool,
}

/// The flushes of a controller.
#[derive(Debug, Default)]
pub(super) struct Flushes {
    /// Media being flushed because the host turned the volatile write cache off.
    pub(super) of_cache: Option<Flush>,
    /// Counts flushes, so that a ticket of an earlier one is recognised.
    generation: u16,
}

impl Flushes {
    /// A flush of every medium with a volatile cache, which begins.
    pub(super) fn begin(&mut self, namespaces: &NamespaceTable, deadline: Time) -> Flush {
        self.generation = self.generation.wrapping_add(1);
        Flush::new(namespaces, self.generation, deadline)
    }
}

/// Result of a flush.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flushed {
    /// Everything that was written is on non-volatile media.
    Safe,
    /// A medium failed, or did not answer in time.
    Failed,
}

impl Flush {
    fn new(namespaces: &NamespaceTable, generation: u16, deadline: Time) -> Self {
        let volatile = namespaces.iter().filter(|n| n.traits.volatile_cache);
        let mut to_add: Vec<ChannelId> = volatile.map(|n| n.channel).collect();
        to_add.sort_unstable();
        to_add.dedup();
        Flush {
            generation,
            deadline,
            to_add,
            out: 0,
            failed: false,
        }
    }

    /// Adds as many requests as have room; returns whether it added any.
    pub(super) fn add<C: Channel>(
        &mut self,
        key: OwnerKey,
        view: &Arc<DmaView>,
        channels: &mut Channels<C>,
    ) -> bool {
        let waiting = self.to_add.len();
        for id in std::mem::take(&mut self.to_add) {
            let Some(channel) = channels.get_mut(id) else {
                self.failed = true;
                continue;
            };
            let ticket = Ticket::issue(key, id.0, self.generation);
            match channel.add(ticket, &Request::Flush, &[], view) {
                Added::Pending => {
                    self.out += 1;
                    channel.submit();
                }
                Added::Done(ticket, outcome) => {
                    ticket.fulfil();
                    self.failed |= outcome.cause != Cause::None;
                }
                Added::Full(ticket) => {
                    ticket.fulfil();
                    self.to_add.push(id);
                }
            }
        }
        self.to_add.len() != waiting
    }

    /// A ticket of this generation came back.
    pub(super) fn complete(&mut self, generation: u16, outcome: Outcome) {
        if generation == self.generation {
            self.out = self.out.saturating_sub(1);
            self.failed |= outcome.cause != Cause::None;
        }
    }

    /// Whether it ended before its deadline.
    pub(super) fn is_done(&self) -> bool {
        self.to_add.is_empty() && self.out == 0
    }

    /// Its result; `None` while it runs.
    pub(super) fn ended(&self, now: Time) -> Option<Flushed> {
        match self.is_done() {
            true if self.failed => Some(Flushed::Failed),
            true => Some(Flushed::Safe),
            false => (now >= self.deadline).then_some(Flushed::Failed),
        }
    }
}

impl Controller {
    /// Whether the volatile write cache was disabled and its media are being flushed.
    pub(crate) fn is_flushing_cache(&self) -> bool {
        self.flushes.of_cache.is_some()
    }

    /// The host has enabled or disabled the volatile write cache (Base 2.1, 5.1.25.1.4). Disabled:
    /// from now on lanes complete writes when they are on non-volatile media, and the command
    /// completes when all earlier writes are there too.
    pub(crate) fn write_cache_changed(&mut self, cid: u16, lanes: &mut impl LaneTable) -> Reply {
        let enabled = self.features.write_cache_enabled();
        self.news.count();
        self.tell_lanes(lanes, || LaneCommand::WriteThrough(!enabled));
        if enabled {
            return Reply::Done(0);
        }
        self.flushes.of_cache = Some(self.begin_flush());
        self.admin.pending.add(cid, Waiting::FlushCache, self.now);
        Reply::Waits
    }

    /// Restores the volatile write cache to its state before a failed command. If that is disabled,
    /// later writes are flushed, and no command waits for it.
    pub(crate) fn write_cache_restored(&mut self, lanes: &mut impl LaneTable) {
        let enabled = self.features.write_cache_enabled();
        self.news.count();
        self.tell_lanes(lanes, || LaneCommand::WriteThrough(!enabled));
        if !enabled {
            self.flushes.of_cache = Some(self.begin_flush());
        }
    }

    /// Moves the flush on that follows from turning the cache off.
    pub(super) fn advance_cache_flush<C: Channel>(
        &mut self,
        channels: &mut Channels<C>,
        lanes: &mut impl LaneTable,
        subsystem: &mut Subsystem,
    ) -> bool {
        let Some(mut flush) = self.flushes.of_cache.take() else {
            return false;
        };
        let added = flush.add(self.key, &self.view, channels);
        let Some(flushed) = flush.ended(self.now) else {
            self.flushes.of_cache = Some(flush);
            return added;
        };
        let to_keep = self.features.write_cache_flushed(flushed == Flushed::Safe);
        if flushed == Flushed::Failed {
            self.tell_lanes(lanes, || LaneCommand::WriteThrough(false));
        }
        let Some(by) = self.admin.pending.take(Waiting::FlushCache) else {
            return true;
        };
        match flushed {
            Flushed::Safe if to_keep => {
                self.keep_features(by, subsystem);
            }
            Flushed::Safe => self.complete_admin(by, Ok(0)),
            Flushed::Failed => {
                self.features.kept(by);
                self.complete_admin(by, Err(Status::INTERNAL_ERROR));
            }
        }
        true
    }
}
