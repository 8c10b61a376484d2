//! Commands to zones: how they are made, and what must come of them.

use super::Host;
use super::io::SUCCESS;
use super::queue::{Command, Completion, Kind};
use crate::around::{Around, Failure};
use crate::ledger::Span;
use crate::stamp::{self, Found, Place};
use crate::zones::{Act, Ended, State, Task};

/// Blocks of a command at most.
const MOST: u32 = 4;
/// Bytes of a report of one zone (ZNS 1.1, 3.4.2.2): a header, and a descriptor.
const REPORT_LEN: usize = 128;

impl Host {
    /// Puts a command to a zone into a queue; false where there is none, or no memory for it.
    pub(super) fn put_to_zone(&mut self, at: usize, around: &mut Around<'_>) -> bool {
        let write = around.ledger.next_write();
        let chosen = around.zones.choose(&mut self.random, MOST, write);
        let Some(task) = chosen else { return false };
        let start = around.zones.start(task.zone);
        let shift = self.spaces[0].shift;
        let (into, count, len) = match task.act {
            Act::Write { at, count, write } => {
                let len = if write == 0 { 0 } else { count << shift };
                (at, count, len)
            }
            Act::Append { count, .. } => (0, count, count << shift),
            Act::Read { at, count } => (at, count, count << shift),
            Act::Send(_) => (0, 0, 0),
            Act::Report => (0, 0, REPORT_LEN as u32),
        };
        let span = Span {
            space: self.spaces[0].space,
            lba: start + into,
            count,
        };
        let put = self.submit(at, (Kind::Zone(task), 0), span, len as usize, around);
        if put {
            around.zones.begin(task);
        }
        put
    }

    /// The data of a command to a zone, to `data`.
    pub(super) fn fill_zone(&self, task: Task, span: Span, data: &mut Vec<u8>) {
        let size = 1 << self.spaces[0].shift;
        data.clear();
        let (Act::Write { write, .. } | Act::Append { write, .. }) = task.act else {
            return;
        };
        if write == 0 {
            return;
        }
        data.resize(span.count as usize * size, 0);
        let space = span.space;
        for (lba, block) in (span.lba..).zip(data.chunks_exact_mut(size)) {
            stamp::fill(block, Place { space, lba }, write);
        }
    }

    /// Dwords 10 and 11, and 12 and 13, of a command to a zone (ZNS 1.1, 3.4).
    pub(super) fn zone_words(task: Task, span: Span) -> (u64, u64) {
        let words = match task.act {
            Act::Send(action) => (action as u64) << 32,
            // Number of Dwords, 0's based; Partial Report.
            Act::Report => (REPORT_LEN as u64 / 4 - 1) | (1 << 48),
            _ => u64::from(span.count) - 1,
        };
        (span.lba, words)
    }

    /// A command to a zone has completed.
    pub(super) fn judge_zone(
        &mut self,
        task: Task,
        command: &Command,
        completion: Completion,
        around: &mut Around<'_>,
    ) -> Result<(), Failure> {
        debug_assert_eq!(completion.status, SUCCESS);
        let reads = matches!(task.act, Act::Read { .. } | Act::Report);
        let ended = match &command.pages {
            Some(_) if reads && command.lost => around.zones.end(task, Ended::Unknown),
            Some(pages) if reads => {
                let mut data = std::mem::take(&mut self.scratch);
                let size = 1 << self.spaces[0].shift;
                let len = match task.act {
                    Act::Report => REPORT_LEN,
                    _ => command.span.count as usize * size,
                };
                data.resize(len, 0);
                self.ram.gather(pages, &mut data);
                let ended = match task.act {
                    Act::Report => reported(&data, command.span.lba)
                        .and_then(|(state, at)| around.zones.end(task, Ended::Reported(state, at))),
                    _ => {
                        let Span { space, lba, .. } = command.span;
                        let blocks = (lba..).zip(data.chunks_exact(size));
                        let looked = blocks.map(|(lba, block)| {
                            let place = Place { space, lba };
                            stamp::look(block, place)
                        });
                        let found: Vec<Found> = looked.collect();
                        around.zones.end(task, Ended::Read(&found))
                    }
                };
                self.scratch = data;
                ended
            }
            _ => {
                let result = completion.result;
                around.zones.end(task, Ended::Well { result })
            }
        };
        ended.or_else(|what| self.fail(around, format!("{command:?}: {what}")))
    }
}

/// State and write pointer of the zone that begins at `start`, in a report.
fn reported(report: &[u8], start: u64) -> Result<(State, u64), String> {
    let word = |at: usize| {
        let bytes = report[at..at + 8].try_into();
        u64::from_le_bytes(bytes.expect("8 bytes"))
    };
    if word(0) != 1 || word(64 + 16) != start {
        return Err(format!("{} zones, from {}", word(0), word(64 + 16)));
    }
    // Zone State, in the upper half of byte 1.
    let state = match report[64 + 1] >> 4 {
        0x1 => State::Empty,
        0x2 => State::Implicit,
        0x3 => State::Explicit,
        0x4 => State::Closed,
        0xe => State::Full,
        other => return Err(format!("state {other:#x}")),
    };
    Ok((state, word(64 + 24)))
}
