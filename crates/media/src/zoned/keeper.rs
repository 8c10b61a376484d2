//! Log records of a medium's zones on a file, and recovery of the zones from them.
//!
//! A changed zone is marked ([`Keeper::touch`]) and recorded with the next frame, in its state at
//! that time: any number of changes makes one record. Zones that have become full or empty are
//! recorded before those that have become active, so that the log, wherever it ends, never has more
//! active zones than allowed.
//!
//! A write counts when it has ended: while writes are in flight, a zone's write pointer in the log
//! is where the completed ones have moved it. After recovery open zones are closed, and empty if
//! nothing was written to them (ZNS 1.1, 2.1.1.3).

use std::io;

use nvme_spec::zoned::ZoneState;

use super::table::Ended;
use super::zones::{Zone, Zones};
use super::{Out, State};
use crate::journal::{Journal, RecordSink, StateError, Storage};

/// Kinds of records: a zone, and a zone's descriptor extension.
const ZONE: u8 = 1;
const EXTENSION: u8 = 2;
/// Size of a zone's record, and of the head of an extension's.
const ZONE_LEN: usize = 24;
const EXTENSION_HEAD: usize = 4;
/// Maximum log bytes of one zone's records, without its extension.
pub(super) const ZONE_IN_LOG: u64 = (4 + ZONE_LEN + 4 + EXTENSION_HEAD) as u64;
/// Bytes and zones of a checkpoint per step.
const CHECKPOINT_BYTES: usize = 16 << 10;
const CHECKPOINT_ZONES: u32 = 4096;

/// Changed zones recorded per step: a host may change all with one command. Few in tests, so that
/// tests cover several steps.
const RECORDED_AT_ONCE: usize = if cfg!(test) { 2 } else { 64 };

/// Parts of a zone to be recorded.
const CHANGED: u8 = 1;
const EXTENDED: u8 = 2;

#[derive(Debug)]
pub(super) struct Keeper {
    pub(super) journal: Journal,
    /// By zone, how far from its start completed writes, and hosts' commits, have moved its write
    /// pointer.
    ended: Vec<u64>,
    /// The same, where another process finds it.
    kept: Option<Ended>,
    /// By zone, the parts to be recorded.
    marks: Vec<u8>,
    changed: Vec<u32>,
    /// The next zone of the current checkpoint.
    cursor: Option<u32>,
    /// Whether bytes after write pointers may differ from zero: a channel ended during a reset.
    pub(super) is_unswept: bool,
}

impl Keeper {
    /// Creates the keeper of zones that came from this log.
    pub(super) fn new(journal: Journal, zones: &Zones) -> Self {
        let count = zones.geometry().zones;
        Keeper {
            journal,
            ended: (0..count).map(|zone| zones.get(zone).written).collect(),
            kept: None,
            marks: vec![0; count as usize],
            changed: Vec::with_capacity(count as usize),
            cursor: None,
            is_unswept: false,
        }
    }

    /// Continues from where the zones of another process were, and stores in `kept` how far
    /// completed writes get. `changed`: the zones that the log has otherwise, and whether their
    /// extensions are to be recorded.
    pub(super) fn go_on(
        &mut self,
        mut kept: Ended,
        zones: &Zones,
        changed: impl Iterator<Item = (u32, bool)>,
        is_new: bool,
    ) {
        for zone in 0..zones.geometry().zones {
            let written = zones.get(zone).written;
            let ended = if is_new {
                written
            } else {
                kept.get(zone).min(written)
            };
            self.ended[zone as usize] = ended;
            kept.set(zone, ended);
        }
        self.kept = Some(kept);
        for (zone, extended) in changed {
            self.mark(
                zone,
                if extended {
                    CHANGED | EXTENDED
                } else {
                    CHANGED
                },
            );
        }
    }

    /// The channel has ended, possibly during a reset.
    pub(super) fn detach(&mut self, erases: bool) {
        self.journal.detach();
        self.is_unswept |= erases;
    }

    /// Marks a changed zone.
    pub(super) fn touch(&mut self, zone: u32) {
        self.mark(zone, CHANGED);
    }

    /// Marks a changed descriptor extension.
    pub(super) fn touch_extension(&mut self, zone: u32) {
        self.mark(zone, CHANGED | EXTENDED);
    }

    /// A completed write or a commit has moved a zone's write pointer this far from its start.
    pub(super) fn moved(&mut self, zone: u32, to: u64) {
        self.set_ended(zone, to.max(self.ended(zone)));
        self.touch(zone);
    }

    fn set_ended(&mut self, zone: u32, to: u64) {
        self.ended[zone as usize] = to;
        if let Some(kept) = &mut self.kept {
            kept.set(zone, to);
        }
    }

    /// How far completed writes have moved a zone's write pointer from its start.
    pub(super) fn ended(&self, zone: u32) -> u64 {
        self.ended[zone as usize]
    }

    /// Restores a zone after a failed reset.
    pub(super) fn put_back(&mut self, zone: u32, ended: u64) {
        self.set_ended(zone, ended);
        self.touch(zone);
    }

    /// Resets a zone.
    pub(super) fn reset(&mut self, zone: u32) {
        self.set_ended(zone, 0);
        self.touch(zone);
    }

    fn mark(&mut self, zone: u32, mark: u8) {
        let marks = &mut self.marks[zone as usize];
        if *marks == 0 {
            self.changed.push(zone);
        }
        *marks |= mark;
    }

    /// Whether all changes are recorded and written.
    pub(super) fn is_clean(&self) -> bool {
        self.changed.is_empty() && self.journal.is_settled()
    }

    /// Whether it has work that waits for no request.
    pub(super) fn is_due(&self) -> bool {
        let idle = self.journal.in_flight() == 0 && self.journal.stalled().is_none();
        idle && (!self.is_clean() || self.cursor.is_some())
    }
}

impl State {
    /// Records changes. Returns false if that is too much for one turn, or the log has too little
    /// room.
    pub(super) fn record(&mut self, out: &[Out]) -> bool {
        let Some(mut keeper) = self.keeper.take() else {
            return true;
        };
        let mut changed = std::mem::take(&mut keeper.changed);
        let count = changed.len();
        let mut left = RECORDED_AT_ONCE;
        for active in [false, true] {
            let mut waits = false;
            changed.retain(|zone| {
                let recorded = self.recorded(&keeper, *zone, out);
                let its_turn = (recorded.state == ZoneState::CLOSED) == active;
                waits |= its_turn && left == 0;
                let done = its_turn && !waits && self.append(&mut keeper, *zone, recorded);
                left -= usize::from(done);
                waits |= its_turn && !done;
                !done
            });
            if waits {
                break;
            }
        }
        let all = changed.is_empty();
        let count = count - changed.len();
        keeper.changed = changed;
        if keeper.journal.is_long() && keeper.cursor.is_none() {
            keeper.journal.begin_checkpoint();
            keeper.cursor = Some(0);
        }
        let bytes = (2 * count * ZONE_IN_LOG as usize).max(CHECKPOINT_BYTES);
        self.checkpoint(&mut keeper, bytes, out);
        self.keeper = Some(keeper);
        all
    }

    /// The state of a zone to be recorded.
    fn recorded(&self, keeper: &Keeper, number: u32, out: &[Out]) -> Zone {
        let zone = if out.iter().any(|out| out.what.is_write_to(number)) {
            self.zones.up_to(number, keeper.ended[number as usize])
        } else {
            self.zones.get(number)
        };
        zone.after_restart()
    }

    /// Appends a zone's records. Returns false if the log has no room.
    fn append(&self, keeper: &mut Keeper, number: u32, zone: Zone) -> bool {
        let marks = keeper.marks[number as usize];
        let extends = marks & EXTENDED != 0 && zone.extended;
        let extension = if extends {
            self.extension_of(number)
        } else {
            &[]
        };
        let Keeper { journal, .. } = keeper;
        let done = append(journal, number, zone, extension);
        if done {
            keeper.marks[number as usize] = 0;
        }
        done
    }

    /// Records all changes and makes them durable, with blocking calls.
    pub(super) fn finish(&mut self, storage: &impl Storage) -> io::Result<()> {
        loop {
            let all = self.record(&[]);
            let Some(keeper) = &mut self.keeper else {
                return Ok(());
            };
            let written = !keeper.journal.is_settled();
            keeper.journal.finish(storage)?;
            match (all, written) {
                (true, _) => return Ok(()),
                (false, true) => {}
                (false, false) => return Err(io::ErrorKind::StorageFull.into()),
            }
        }
    }

    fn extension_of(&self, zone: u32) -> &[u8] {
        let at = zone as usize * self.extension_bytes;
        &self.extensions[at..at + self.extension_bytes]
    }

    /// Continues a checkpoint.
    fn checkpoint(&self, keeper: &mut Keeper, bytes: usize, out: &[Out]) {
        let Some(mut next) = keeper.cursor else {
            return;
        };
        let zones = self.zones.geometry().zones;
        let last = zones.min(next.saturating_add(CHECKPOINT_ZONES));
        let mut left = bytes;
        while next < last && left > 0 {
            let zone = self.recorded(keeper, next, out);
            if zone.state != ZoneState::EMPTY {
                let extends = zone.extended;
                let extension = if extends {
                    self.extension_of(next)
                } else {
                    &[]
                };
                if !append(&mut keeper.journal, next, zone, extension) {
                    break;
                }
                left = left.saturating_sub(ZONE_IN_LOG as usize + extension.len());
            }
            next += 1;
        }
        keeper.cursor = Some(next);
        if next == zones {
            keeper.cursor = None;
            keeper.journal.end_checkpoint();
        }
    }

    /// Passes the non-empty zones to `tell`, as they are after a restart.
    pub(super) fn records(&self, tell: &mut RecordSink<'_>) -> io::Result<()> {
        for number in 0..self.zones.geometry().zones {
            let zone = self.zones.get(number).after_restart();
            if zone.state == ZoneState::EMPTY {
                continue;
            }
            if zone.extended {
                let extension = self.extension_of(number);
                tell(EXTENSION, &[&number.to_le_bytes(), extension].concat())?;
            }
            tell(ZONE, &zone_record(number, zone))?;
        }
        Ok(())
    }

    /// Applies a record of the log.
    pub(super) fn replay(&mut self, kind: u8, record: &[u8]) -> Result<(), StateError> {
        const STRANGE: StateError = StateError::Damaged("its log names a zone that cannot be");
        let (zone, rest) = record.split_first_chunk().ok_or(STRANGE)?;
        let zone = u32::from_le_bytes(*zone);
        if zone >= self.zones.geometry().zones {
            return Err(STRANGE);
        }
        match kind {
            ZONE => {
                let state = of_bytes(rest, self.zones.geometry().capacity).ok_or(STRANGE)?;
                self.zones.restore(zone, state);
                Ok(())
            }
            EXTENSION if rest.len() == self.extension_bytes => {
                let at = zone as usize * self.extension_bytes;
                self.extensions[at..at + rest.len()].copy_from_slice(rest);
                if let Some(kept) = &mut self.kept_extensions {
                    kept.store(at, rest);
                }
                Ok(())
            }
            _ => Err(STRANGE),
        }
    }
}

/// Appends a zone, preceded by its extension if one is given. Returns false if there is no room.
fn append(journal: &mut Journal, number: u32, zone: Zone, extension: &[u8]) -> bool {
    let extension_len = EXTENSION_HEAD + extension.len();
    if !extension.is_empty() {
        if !journal.has_room(extension_len) {
            return false;
        }
        journal.append(EXTENSION, extension_len, |record| {
            record.put(&number.to_le_bytes());
            record.put(extension);
        });
    }
    if !journal.has_room(ZONE_LEN) {
        return false;
    }
    let record = zone_record(number, zone);
    journal.append(ZONE, ZONE_LEN, |to| to.put(&record));
    true
}

/// Record of a zone, starting with its number.
fn zone_record(number: u32, zone: Zone) -> [u8; ZONE_LEN] {
    let flags = u8::from(zone.extended) | u8::from(zone.random) << 1;
    let mut record = [0; ZONE_LEN];
    record[..4].copy_from_slice(&number.to_le_bytes());
    record[4..6].copy_from_slice(&[zone.state.0, flags]);
    record[8..16].copy_from_slice(&zone.written.to_le_bytes());
    record[16..].copy_from_slice(&zone.reached.to_le_bytes());
    record
}

/// Decodes a zone from its record, without the number; `None` if it is invalid.
fn of_bytes(bytes: &[u8], capacity: u64) -> Option<Zone> {
    let (head, bytes) = bytes.split_first_chunk::<4>()?;
    let (written, reached) = bytes.split_first_chunk()?;
    let written = u64::from_le_bytes(*written);
    let reached = u64::from_le_bytes(reached.try_into().ok()?);
    let state = ZoneState(head[0]);
    let is_state = matches!(
        state,
        ZoneState::EMPTY
            | ZoneState::CLOSED
            | ZoneState::FULL
            | ZoneState::READ_ONLY
            | ZoneState::OFFLINE
    );
    let zone = Zone {
        state,
        written,
        reached,
        extended: head[1] & 1 != 0,
        random: head[1] & 2 != 0,
    };
    let is_whole = [written, reached].iter().all(|at| at.is_multiple_of(512));
    let is_possible = is_state && head[1] < 4 && is_whole && written <= reached;
    // Only an active zone has a random write area, and an empty zone has no data.
    let has_area = !zone.random || state == ZoneState::CLOSED;
    let is_empty = state != ZoneState::EMPTY || zone == Zone::EMPTY;
    (is_possible && reached <= capacity && has_area && is_empty).then_some(zone)
}
