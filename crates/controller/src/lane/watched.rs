//! Sampling of a lane's commands ([`crate::flight`]): which ones, and their times.
//!
//! Invariants:
//! - With sampling off, the only cost is one test per doorbell check and per batch.
//! - With sampling on, only the sampled commands cost more: a batch is split at them, and they take
//!   the general path.
//! - A sampled command is treated like any other: it may wait, be aborted, or end with its queue. A
//!   command that finds no room is not sampled.

use nvme_spec::Status;
use port::Channel;

use super::issue::{COPIED_PER_TURN, Issuer};
use super::outcome::Went;
use super::queues::Queues;
use super::watch::{Handed, span};
use crate::command;
use crate::flight::{FlightRecord, Stage};
use crate::gate::Gate;

impl Queues {
    /// `available` commands can be fetched.
    #[inline]
    pub(super) fn look_for_watched(&mut self, position: usize, available: u32) {
        if available > 0
            && let (Some(watch), Some(member)) = (&mut self.watch, &self.sqs[position])
        {
            watch.look(position, member, available);
        }
    }

    /// Fetches `count` commands, or up to one that has to wait, where some are watched.
    pub(super) fn fetch_some_watched<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        count: u32,
        issuer: &mut Issuer<'_, C, G>,
    ) -> Went {
        match self.before_watched(position) {
            before if before >= count => self.fetch(position, count, issuer),
            _ => self.fetch_watched(position, count, issuer),
        }
    }

    #[inline]
    fn before_watched(&mut self, position: usize) -> u32 {
        match (&mut self.watch, &self.sqs[position]) {
            (Some(watch), Some(member)) => watch.before(position, member),
            _ => u32::MAX,
        }
    }

    /// The same where one of them is among those.
    #[cold]
    fn fetch_watched<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        count: u32,
        issuer: &mut Issuer<'_, C, G>,
    ) -> Went {
        let mut left = count;
        while left > 0 && issuer.copied < COPIED_PER_TURN {
            let before = self.before_watched(position).min(left);
            let went = if before > 0 {
                let available = self.available(position);
                let went = self.fetch(position, before, issuer);
                let fetched = available - self.available(position);
                left = left.saturating_sub(fetched);
                if fetched < before {
                    return went;
                }
                went
            } else {
                left -= 1;
                self.fetch_one_watched(position, issuer)
            };
            match went {
                _ if !self.service.is_serving() => return Went::NoPlace,
                Went::On => {}
                Went::Held if issuer.namespaces.len() > 1 => {}
                Went::Two => {}
                wait => return wait,
            }
            left = left.min(self.available(position)).min(self.room(position));
        }
        Went::On
    }

    fn fetch_one_watched<C: Channel, G: Gate>(
        &mut self,
        position: usize,
        issuer: &mut Issuer<'_, C, G>,
    ) -> Went {
        let Some((index, sqe)) = self.fetch_one(position) else {
            return Went::NoPlace;
        };
        if let (Some(watch), Some(member)) = (&mut self.watch, &self.sqs[position])
            && let Some(at) = watch.open(position, member)
        {
            self.slots.slot(index).marks.set_sample(Some(at));
        }
        self.issue(index, position, &sqe, issuer)
    }

    /// The turn of a watched command has come: from now on its channel's times are noted.
    #[cold]
    pub(super) fn note_passed<C, G>(&mut self, index: u16, issuer: &mut Issuer<'_, C, G>) {
        let marks = self.slots.get(index).marks;
        let (Some(at), Some(watch)) = (marks.sample(), &mut self.watch) else {
            return;
        };
        let clock = watch.clock();
        let now = clock();
        let namespace = issuer.namespaces.get(self.slots.get(index).nsid());
        if let Some(open) = watch.get(at)
            && open.handed.is_none()
        {
            if let Some(namespace) = namespace {
                open.csi = namespace.csi();
                open.lba_shift = namespace.lba_shift;
            }
            open.passed = now;
            (issuer.handed, issuer.range) = (None, None);
            issuer.clock = Some(clock);
        }
    }

    /// A watched command was handed to a channel, or refused before.
    #[cold]
    pub(super) fn note_handed<C, G>(&mut self, index: u16, issuer: &mut Issuer<'_, C, G>) {
        issuer.clock = None;
        let (handed, range) = (issuer.handed.take(), issuer.range.take());
        let marks = self.slots.get(index).marks;
        if let (Some(at), Some(watch)) = (marks.sample(), &mut self.watch)
            && let Some(open) = watch.get(at)
        {
            open.range = range.or(open.range);
            if let Some(handed) = handed {
                open.handed.get_or_insert(handed);
            }
        }
    }

    /// A watched command completes with `status`.
    #[cold]
    pub(super) fn note_end(&mut self, index: u16, status: Status) {
        let slot = self.slots.slot(index);
        let marks = std::mem::take(&mut slot.marks);
        let (Some(at), Some(watch)) = (marks.sample(), &mut self.watch) else {
            return;
        };
        let Some(open) = watch.close(at) else {
            return;
        };
        let now = watch.clock()();
        let mut stages = [0; Stage::ALL.len()];
        stages[Stage::Ring as usize] = span(open.seen, open.fetched);
        stages[Stage::Fairness as usize] = span(open.fetched, open.passed);
        // One that was refused went to no channel; one of several steps went there in ways that are
        // not looked at.
        let begun = if status.is_success() {
            open.passed
        } else {
            now
        };
        let handed = open.handed.unwrap_or(Handed {
            begun,
            ended: now,
            timed: false,
        });
        stages[Stage::Translation as usize] = span(open.passed, handed.begun);
        let done = if handed.timed { handed.ended } else { now };
        stages[Stage::Medium as usize] = span(handed.begun, done);
        stages[Stage::Model as usize] = span(done, now);
        let sqe = slot.sqe();
        let named = command::named(&sqe, open.csi);
        let (slba, blocks) = open.range.unwrap_or((named.slba, named.blocks));
        let record = FlightRecord {
            begun: open.seen,
            stages,
            sqid: slot.sqid(),
            cid: slot.cid(),
            opcode: sqe.opcode,
            fua: named.fua,
            status,
            nsid: sqe.nsid,
            csi: open.csi,
            lba_shift: open.lba_shift,
            slba,
            blocks,
            detail: named.detail,
            key: named.key,
            bytes: slot.bytes,
            depth: open.depth,
        };
        watch.post(record, now);
    }
}
