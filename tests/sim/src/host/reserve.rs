//! Reservation commands: how they are made, and what must come of them.

use super::Host;
use super::io::{INVALID_FIELD, SUCCESS};
use super::queue::{Command, Completion, Kind};
use crate::around::{Around, Failure};
use crate::ledger::Span;
use crate::reservations::{Act, CONFLICT, Ended, Report};

/// Bytes of a report: its header, and entries of this size (Base 2.1, figure 583).
const REPORT_LEN: usize = 1024;
const HEADER_LEN: usize = 24;
const ENTRY_LEN: usize = 24;
/// Number of keys that a host chooses from.
const KEYS: u64 = 4;

impl Host {
    /// Its identifier, for reservations.
    pub(super) fn identifier(&self) -> u64 {
        self.id as u64 + 1
    }

    /// Puts a reservation command into a queue; false where another one of the namespace is in
    /// flight, or there is no memory for it.
    pub(super) fn put_reservation(&mut self, at: usize, around: &mut Around<'_>) -> bool {
        let space = self.random.index(self.spaces.len());
        let number = self.spaces[space].space;
        if around.reservations.is_busy(number) {
            return false;
        }
        let (own, others, held) = around.reservations.look(number, self.id);
        let fresh = KEYS * self.identifier() + self.random.below(KEYS);
        let key = match own {
            Some(own) if !self.random.once_in(16) => own,
            _ => fresh,
        };
        let rtype = self.random.between(1, 6) as u8;
        let registers = own.is_none() && !self.random.once_in(4);
        let act = match self.random.below(16) {
            _ if registers => Act::Register(fresh),
            0 => Act::Register(fresh),
            1 => Act::Unregister(key),
            2 => Act::Replace(key, fresh),
            3..6 => Act::Acquire(key, rtype),
            6..8 if !others.is_empty() && !self.random.once_in(4) => {
                Act::Preempt(key, self.random.pick(&others), rtype)
            }
            6..8 => Act::Preempt(key, 0, rtype),
            8..11 => Act::Release(key, held.unwrap_or(rtype)),
            11..13 => Act::Clear(key),
            _ => Act::Report,
        };
        let len = match act {
            Act::Report => REPORT_LEN,
            Act::Release(..) | Act::Clear(_) => 8,
            _ => 16,
        };
        let span = Span {
            space: number,
            lba: 0,
            count: 0,
        };
        let put = self.submit(at, (Kind::Reserve(act), space), span, len, around);
        if put {
            around.reservations.begin(number, self.id, act, around.now);
        }
        put
    }

    /// The keys of a command (figures 573 to 581).
    pub(super) fn fill_keys(act: Act, data: &mut Vec<u8>) {
        data.clear();
        let keys = match act {
            Act::Register(key) => vec![0, key],
            Act::Unregister(key) | Act::Acquire(key, _) => vec![key, 0],
            Act::Replace(key, other) | Act::Preempt(key, other, _) => vec![key, other],
            Act::Release(key, _) | Act::Clear(key) => vec![key],
            Act::Report => Vec::new(),
        };
        data.extend(keys.iter().flat_map(|key| key.to_le_bytes()));
    }

    /// Opcode and dword 10 of a command.
    pub(super) fn reservation_words(act: Act) -> (u64, u64) {
        let typed = |action: u64, rtype: u8| action | u64::from(rtype) << 8;
        match act {
            Act::Register(_) => (0x0d, 0),
            Act::Unregister(_) => (0x0d, 1),
            Act::Replace(..) => (0x0d, 2),
            Act::Acquire(_, rtype) => (0x11, typed(0, rtype)),
            Act::Preempt(_, _, rtype) => (0x11, typed(1, rtype)),
            Act::Release(_, rtype) => (0x15, typed(0, rtype)),
            Act::Clear(_) => (0x15, 1),
            // Number of Dwords, 0's based.
            Act::Report => (0x0e, REPORT_LEN as u64 / 4 - 1),
        }
    }

    /// A reservation command has completed.
    pub(super) fn judge_reservation(
        &mut self,
        act: Act,
        command: &Command,
        completion: Completion,
        around: &mut Around<'_>,
    ) -> Result<(), Failure> {
        let status = completion.status;
        let number = command.span.space;
        let absent = command.since <= around.absent_until[usize::from(number)];
        let ended = match &command.pages {
            Some(_) if status == SUCCESS && act == Act::Report && command.lost => Ended::Unknown,
            Some(pages) if status == SUCCESS && act == Act::Report => {
                let mut data = std::mem::take(&mut self.scratch);
                data.resize(REPORT_LEN, 0);
                self.ram.gather(pages, &mut data);
                let report = reported(&data);
                self.scratch = data;
                Ended::Reported(report)
            }
            _ if [SUCCESS, CONFLICT].contains(&status) => Ended::With(status),
            _ if status == INVALID_FIELD && !absent => Ended::With(status),
            _ if super::io::may_fail(command, status, around) => {
                around.tally.errors += 1;
                Ended::Unknown
            }
            _ => return self.fail(around, format!("{command:?} ended with {completion:?}")),
        };
        let (now, id) = (around.now, self.id);
        let judged = around.reservations.end(number, id, act, &ended, now);
        judged.or_else(|what| self.fail(around, format!("{command:?}: {what}")))
    }

    /// Whether reservations let a command end so.
    pub(super) fn check_access(
        &self,
        command: &Command,
        status: u16,
        around: &Around<'_>,
    ) -> Result<(), Failure> {
        let may = |span: &Span, writes: bool| {
            let reservations = &around.reservations;
            reservations.may(span.space, self.id, writes, command.since)
        };
        let writes = command.kind.writes() || command.kind == Kind::Flush;
        let own = may(&command.span, writes);
        let (succeeds, fails) = command.sources.iter().fold(own, |so_far, source| {
            let one = may(source, false);
            (so_far.0 && one.0, so_far.1 || one.1)
        });
        let is_wrong = match status {
            SUCCESS => !succeeds,
            CONFLICT => !fails,
            _ => false,
        };
        if is_wrong {
            let what = format!("reservations do not let {command:?} end with {status:#x}");
            return self.fail(around, what);
        }
        Ok(())
    }
}

/// Content of a report (Base 2.1, 7.8).
fn reported(report: &[u8]) -> Report {
    let word = |at: usize| {
        let bytes = report[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("8 bytes"))
    };
    let count = usize::from(report[5]) | usize::from(report[6]) << 8;
    let entries = report[HEADER_LEN..].chunks_exact(ENTRY_LEN).take(count);
    let entries = (HEADER_LEN..).step_by(ENTRY_LEN).zip(entries);
    let registrants = entries.map(|(at, entry)| {
        let host = (word(at + 8) as usize).wrapping_sub(1);
        (host, word(at + 16), entry[2] & 1 == 1)
    });
    let mut registrants: Vec<_> = registrants.collect();
    registrants.sort_unstable();
    Report {
        rtype: report[4],
        registrants,
    }
}
