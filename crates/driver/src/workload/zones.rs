//! Writes to zones: each zone is reset, written in order up to its capacity, and left for the next
//! one.
//!
//! [`Rw::Write`] keeps one command in flight in a zone, because a controller may process two in the
//! wrong order, and so needs a zone for each command in flight. [`Rw::Append`] has any number in
//! flight in a zone; the controller chooses their places.

use nvme_spec::zoned::ZoneState;

use super::traffic::{Kind, Op, Traffic};
use super::{Job, JobZones, Rw};
use crate::DriverError;
use crate::io::Namespace;

/// A zone of the job, in units of its block size.
#[derive(Clone, Copy, Debug)]
struct Place {
    start: u64,
    units: u64,
    /// Whether blocks remain that are no whole unit, so that writing does not fill it.
    has_rest: bool,
}

/// Resets every zone of a job.
pub(super) struct Resets {
    starts: std::vec::IntoIter<u64>,
}

impl Traffic for Resets {
    fn next(&mut self) -> Option<Op> {
        let kind = Kind::Reset;
        self.starts.next().map(|unit| Op { kind, unit })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is to be reset when nothing is in flight in it.
    Used,
    /// The command that resets or finishes it is in flight.
    Managed,
    /// It is written.
    Open,
}

/// A zone in use.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Index of the zone.
    zone: usize,
    state: State,
    /// Units submitted.
    submitted: u64,
    in_flight: u32,
    /// It is left before it is full.
    partial: bool,
}

/// The writes of a job.
pub(super) struct ZoneWriter {
    zones: Vec<Place>,
    /// Units from a zone to the next one.
    stride: u64,
    first: u64,
    open: Vec<Open>,
    /// Of each zone, its index in `open`.
    holders: Vec<Option<usize>>,
    /// The zone that is used next.
    next_zone: usize,
    /// The zone in use that gets the next command.
    turn: usize,
    append: bool,
}

/// The writes of a job in zones, and the resets before them; `None` for any other job.
///
/// # Errors
/// [`DriverError::Unsupported`] for a job that zones do not allow.
pub(super) fn of(
    job: &Job,
    namespace: &Namespace,
    in_flight: usize,
) -> Result<Option<(Resets, ZoneWriter)>, DriverError> {
    let unsupported = |why: String| Err(DriverError::Unsupported(why));
    let Some(zones) = &job.zones else {
        return match job.rw {
            Rw::Append => unsupported("the namespace has no zones to append to".to_owned()),
            _ => Ok(None),
        };
    };
    if !job.rw.writes() {
        return Ok(None);
    }
    if matches!(job.rw, Rw::RandWrite | Rw::RandRw) || job.verify {
        return unsupported(format!(
            "zones are written in order, so `{}` and verification are not possible: write or append",
            job.rw
        ));
    }
    let blocks = u64::from(job.block_size / namespace.block_len);
    if !zones.common.blocks.is_multiple_of(blocks) {
        return unsupported(format!(
            "zones of {} blocks are no multiple of {blocks} blocks of a command",
            zones.common.blocks
        ));
    }
    let append = job.rw == Rw::Append;
    let open = if append {
        usize::from(zones.open.max(1))
    } else {
        in_flight
    };
    let most = most_open(zones);
    let places = places(zones, blocks);
    if places.is_empty() {
        return unsupported("no zone of the range can be written".to_owned());
    }
    if open > most || open > places.len() {
        return unsupported(format!(
            "{open} zones are needed at a time, one for each command in flight, and {} can be open: use a lower queue depth, or append",
            most.min(places.len())
        ));
    }
    let starts: Vec<u64> = places.iter().map(|place| place.start).collect();
    let resets = Resets {
        starts: starts.into_iter(),
    };
    Ok(Some((
        resets,
        ZoneWriter::new(places, zones.common.blocks / blocks, open, append),
    )))
}

/// How many zones can be open at a time.
fn most_open(zones: &JobZones) -> usize {
    let limits = zones
        .common
        .max_open
        .into_iter()
        .chain(zones.common.max_active);
    let most = limits.min().unwrap_or(u64::MAX);
    usize::try_from(most).unwrap_or(usize::MAX)
}

/// The zones that can be written, with at least one unit each.
fn places(zones: &JobZones, blocks: u64) -> Vec<Place> {
    let usable = zones.zones.iter().filter(|zone| {
        !matches!(zone.state, ZoneState::READ_ONLY | ZoneState::OFFLINE) && zone.capacity >= blocks
    });
    let place = usable.map(|zone| Place {
        start: zone.start / blocks,
        units: zone.capacity / blocks,
        has_rest: !zone.capacity.is_multiple_of(blocks),
    });
    place.collect()
}

impl ZoneWriter {
    fn new(zones: Vec<Place>, stride: u64, open: usize, append: bool) -> Self {
        let first = zones.first().map_or(0, |zone| zone.start);
        let last = zones.last().map_or(0, |zone| zone.start);
        let numbers = usize::try_from((last - first) / stride + 1).unwrap_or(usize::MAX);
        let mut holders = vec![None; numbers];
        let index = |zone: &Place| usize::try_from((zone.start - first) / stride).unwrap_or(0);
        for (holder, zone) in zones.iter().take(open).enumerate() {
            holders[index(zone)] = Some(holder);
        }
        let open = (0..open).map(|zone| Open {
            zone,
            // reset before the measurement
            state: State::Open,
            submitted: 0,
            in_flight: 0,
            partial: false,
        });
        let open: Vec<Open> = open.collect();
        ZoneWriter {
            next_zone: open.len() % zones.len(),
            zones,
            stride,
            first,
            open,
            holders,
            turn: 0,
            append,
        }
    }

    fn number(&self, start: u64) -> usize {
        usize::try_from((start - self.first) / self.stride).unwrap_or(usize::MAX)
    }

    /// Replaces a zone by the next one that is not in use.
    fn advance(&mut self, holder: usize) {
        let before = self.open[holder].zone;
        let number = self.number(self.zones[before].start);
        self.holders[number] = None;
        let mut zone = self.next_zone;
        while self.holders[self.number(self.zones[zone].start)].is_some() {
            zone = (zone + 1) % self.zones.len();
        }
        self.next_zone = (zone + 1) % self.zones.len();
        let number = self.number(self.zones[zone].start);
        self.holders[number] = Some(holder);
        self.open[holder] = Open {
            zone,
            state: State::Used,
            submitted: 0,
            in_flight: 0,
            partial: false,
        };
    }

    /// The next command in a zone, if there can be one now.
    fn next_in(&mut self, holder: usize) -> Option<Op> {
        let is_done = |one: &Open, zone: &Place| one.partial || one.submitted == zone.units;
        let one = self.open[holder];
        let zone = self.zones[one.zone];
        if one.state == State::Open && is_done(&one, &zone) && one.in_flight == 0 {
            if one.partial || zone.has_rest {
                self.open[holder].state = State::Managed;
                self.open[holder].in_flight = 1;
                return Some(Op {
                    kind: Kind::Finish,
                    unit: zone.start,
                });
            }
            self.advance(holder);
        }
        let zone = self.zones[self.open[holder].zone];
        let append = self.append;
        let one = &mut self.open[holder];
        match one.state {
            State::Used => {
                one.state = State::Managed;
                one.in_flight = 1;
                Some(Op {
                    kind: Kind::Reset,
                    unit: zone.start,
                })
            }
            State::Open if !is_done(one, &zone) && (append || one.in_flight == 0) => {
                let unit = zone.start + one.submitted;
                one.submitted += 1;
                one.in_flight += 1;
                Some(if append {
                    Op {
                        kind: Kind::Append,
                        unit: zone.start,
                    }
                } else {
                    Op {
                        kind: Kind::Write,
                        unit,
                    }
                })
            }
            State::Open | State::Managed => None,
        }
    }
}

impl Traffic for ZoneWriter {
    #[inline]
    fn next(&mut self) -> Option<Op> {
        for _ in 0..self.open.len() {
            let holder = self.turn;
            self.turn = (holder + 1) % self.open.len();
            let op = self.next_in(holder);
            if op.is_some() {
                return op;
            }
        }
        None
    }

    fn finish(&mut self, op: Op, ok: bool, _buffer: &memory::Buffer, _at: usize) {
        let number = self.number(op.unit);
        let Some(holder) = self.holders.get(number).copied().flatten() else {
            return;
        };
        let one = &mut self.open[holder];
        one.in_flight -= 1;
        match op.kind {
            Kind::Reset if ok => one.state = State::Open,
            Kind::Reset | Kind::Finish => self.advance(holder),
            Kind::Read | Kind::Write | Kind::Append => one.partial |= !ok,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(start: u64, units: u64, has_rest: bool) -> Place {
        Place {
            start,
            units,
            has_rest,
        }
    }

    /// Takes commands until there is none, and then completes them in the opposite order.
    fn batch(writer: &mut ZoneWriter, most: usize) -> Vec<Op> {
        let memory = memory::HostMemory::new(1 << 16).unwrap();
        let buffer = memory.alloc(4096, 4096).unwrap();
        let mut all = Vec::new();
        while all.len() < most
            && let Some(op) = writer.next()
        {
            all.push(op);
        }
        for op in all.iter().rev() {
            writer.finish(*op, true, &buffer, 0);
        }
        all
    }

    fn op(kind: Kind, unit: u64) -> Op {
        Op { kind, unit }
    }

    #[test]
    fn writes_have_one_command_in_a_zone_and_full_zones_are_left() {
        let zones = vec![place(0, 2, false), place(8, 2, false), place(16, 2, true)];
        let mut writer = ZoneWriter::new(zones, 8, 2, false);
        use Kind::{Finish, Reset, Write};
        assert_eq!(batch(&mut writer, 9), [op(Write, 0), op(Write, 8)]);
        assert_eq!(batch(&mut writer, 9), [op(Write, 1), op(Write, 9)]);
        // both are full: one goes to the third zone, the other one returns to the first
        assert_eq!(batch(&mut writer, 9), [op(Reset, 16), op(Reset, 0)]);
        assert_eq!(batch(&mut writer, 9), [op(Write, 16), op(Write, 0)]);
        assert_eq!(batch(&mut writer, 9), [op(Write, 17), op(Write, 1)]);
        // the third zone has blocks that are no unit, and would stay active
        assert_eq!(batch(&mut writer, 9), [op(Finish, 16), op(Reset, 8)]);
        assert_eq!(batch(&mut writer, 9), [op(Reset, 16), op(Write, 8)]);
    }

    #[test]
    fn appends_share_a_zone_and_name_its_start() {
        let zones = vec![place(0, 3, false), place(8, 3, false)];
        let mut writer = ZoneWriter::new(zones, 8, 1, true);
        use Kind::{Append, Reset};
        assert_eq!(batch(&mut writer, 2), [op(Append, 0); 2]);
        assert_eq!(batch(&mut writer, 9), [op(Append, 0)]);
        assert_eq!(batch(&mut writer, 9), [op(Reset, 8)]);
        assert_eq!(batch(&mut writer, 9), [op(Append, 8); 3]);
        assert_eq!(batch(&mut writer, 9), [op(Reset, 0)]);
    }

    #[test]
    fn a_zone_that_fails_is_finished_and_left() {
        let zones = vec![place(0, 3, false), place(8, 3, false)];
        let mut writer = ZoneWriter::new(zones, 8, 1, false);
        let memory = memory::HostMemory::new(1 << 16).unwrap();
        let buffer = memory.alloc(4096, 4096).unwrap();
        let first = writer.next().unwrap();
        writer.finish(first, false, &buffer, 0);
        let next: Vec<Kind> = (0..3)
            .map(|_| {
                let op = writer.next().unwrap();
                writer.finish(op, true, &buffer, 0);
                op.kind
            })
            .collect();
        assert_eq!(next, [Kind::Finish, Kind::Reset, Kind::Write]);
    }
}
