//! Zoned flash: dies, channels, link and buffer as of a conventional drive, without an FTL. A zone
//! is on a group of dies, wordline after wordline.
//!
//! Not included: the state and write pointer of a zone as hosts see them. The caller has checked
//! those; an invalid operation gets some time.

use crate::activity::{Activity, Server};
use crate::error::{ParameterError, zeros};
use crate::flash::{
    Buffer, Cells, Costs, DieShape, Dies, For, Link, Sense, Share, Waiting, give_back, postpone,
};
use crate::moving::Slot;
use crate::parameters::{Parameters, ZonesParameters};
use crate::pending::{At, Pending};
use crate::units::PAGE;
use crate::{Admission, Arithmetic, Due, Op, Timing, ZoneOp};

/// The model of a zoned drive.
#[derive(Debug)]
pub struct Zones {
    shape: Shape,
    costs: Costs,
    reset: u64,
    finish: u64,
    finish_writes: bool,
    open: u64,
    zones: Vec<Zone>,
    dies: Dies,
    link: Link,
    buffer: Buffer,
    /// Bytes of each pool of the buffer in partly filled wordlines.
    waiting: Vec<u64>,
    pending: Pending,
    stalls: u64,
}

/// Positions of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape {
    die: DieShape,
    dies: u64,
    dies_per_zone: u64,
    size: u64,
    capacity: u64,
    /// Wordlines of a zone.
    wordlines: u64,
    zones: u64,
    channels: u32,
    own_buffers: bool,
}

/// State of a zone since its reset.
#[derive(Clone, Copy, Debug, Default)]
struct Zone {
    /// Bytes written, from its start.
    fill: u64,
    /// Programmed wordlines, from its start.
    programmed: u64,
    /// Buffer bytes in its partly filled wordline.
    held: u64,
}

impl Shape {
    fn new(parameters: &ZonesParameters) -> Result<Self, ParameterError> {
        Parameters::Zones(parameters.clone()).check()?;
        let flash = &parameters.flash;
        Ok(Self {
            die: DieShape::new(flash),
            dies: u64::from(flash.channels) * u64::from(flash.dies_per_channel),
            dies_per_zone: u64::from(parameters.dies_per_zone),
            size: parameters.zone_size_bytes,
            capacity: parameters.zone_capacity_bytes,
            wordlines: parameters.zone_capacity_bytes / u64::from(flash.oneshot_bytes),
            zones: flash.size_bytes / parameters.zone_size_bytes,
            channels: flash.channels,
            own_buffers: parameters.zone_buffer_bytes > 0,
        })
    }

    fn oneshot(&self) -> u64 {
        u64::from(self.die.wordline) * PAGE
    }

    /// The die of wordline `wordline` of zone `zone`.
    fn die(&self, zone: usize, wordline: u64) -> usize {
        let first = zone as u64 * self.dies_per_zone;
        index((first + wordline % self.dies_per_zone) % self.dies)
    }

    /// Number of the first `wordlines` of a zone that are on its die `die`.
    fn on_die(&self, wordlines: u64, die: u64) -> u64 {
        (wordlines + self.dies_per_zone - 1 - die) / self.dies_per_zone
    }

    /// The zone of a byte of the drive, and the offset in it; `None` beyond the last.
    fn locate(&self, offset: u64) -> Option<(usize, u64)> {
        let zone = offset / self.size;
        (zone < self.zones).then(|| (index(zone), offset % self.size))
    }

    fn pool(&self, zone: usize) -> usize {
        if self.own_buffers { zone } else { 0 }
    }
}

/// Conversion of a number below 2^32.
fn index(small: u64) -> usize {
    usize::try_from(small).expect("dies and zones are few")
}

/// Conversion of a number below 2^32.
fn small(small: u64) -> u32 {
    u32::try_from(small).expect("dies and pages of a wordline are few")
}

impl Zones {
    /// Creates a drive at rest with empty zones.
    ///
    /// # Errors
    ///
    /// Those of [`Parameters::check`]; not enough memory for the zones.
    pub fn new(parameters: &ZonesParameters) -> Result<Self, ParameterError> {
        let shape = Shape::new(parameters)?;
        let flash = &parameters.flash;
        let hangs_on = (0..shape.dies).map(|die| small(die % u64::from(shape.channels)));
        let pools = if shape.own_buffers {
            index(shape.zones)
        } else {
            1
        };
        let mut zones = Self {
            shape,
            costs: Costs::new(flash),
            reset: 0,
            finish: 0,
            finish_writes: false,
            open: 0,
            zones: zeros(index(shape.zones))?,
            dies: Dies::new(flash, hangs_on.collect()),
            link: Link::new(flash),
            buffer: Buffer::new(0, pools)?,
            waiting: zeros(pools)?,
            pending: Pending::default(),
            stalls: 0,
        };
        zones.retune(parameters)?;
        Ok(zones)
    }

    /// Changes the parameters. Commands in flight keep their times.
    ///
    /// # Errors
    ///
    /// Those of [`Zones::new`], and another shape; then nothing has changed.
    pub fn retune(&mut self, parameters: &ZonesParameters) -> Result<(), ParameterError> {
        if Shape::new(parameters)? != self.shape {
            return Err(ParameterError::Fixed { name: "geometry" });
        }
        let flash = &parameters.flash;
        if flash.arithmetic != self.link.arithmetic() {
            return Err(ParameterError::Fixed { name: "arithmetic" });
        }
        self.link.retune(flash);
        self.dies.retune(flash);
        self.costs = Costs::new(flash);
        self.buffer.retune(match parameters.zone_buffer_bytes {
            0 => flash.buffer_bytes,
            own => own,
        });
        self.reset = parameters.reset_ns;
        self.finish = parameters.finish_ns;
        self.finish_writes = parameters.finish_writes;
        self.open = parameters.open_ns;
        Ok(())
    }

    /// Sets how much of a zone was written before a drive at rest was created: up to `bytes` from
    /// its start, limited to its capacity. All of it is programmed and holds no buffer bytes.
    /// `is_full`: it was written to its end, or finished. A zone that does not exist is ignored.
    pub fn restore_fill(&mut self, zone: u32, bytes: u64, is_full: bool) {
        let (capacity, oneshot) = (self.shape.capacity, self.shape.oneshot());
        if let Some(zone) = self.zones.get_mut(zone as usize) {
            zone.fill = bytes.min(capacity);
            zone.programmed = if is_full && self.finish_writes {
                self.shape.wordlines
            } else {
                zone.fill / oneshot
            };
        }
    }

    /// Ends everything in flight, and restarts time: written data is programmed as far as wordlines
    /// are full, and the rest in the buffer is gone.
    pub fn rest(&mut self, parameters: &ZonesParameters) {
        self.dies.rest(&parameters.flash);
        self.link = Link::new(&parameters.flash);
        self.buffer.empty();
        self.waiting.fill(0);
        self.pending = Pending::default();
        for zone in &mut self.zones {
            zone.held = 0;
        }
    }

    /// Submissions without room in the buffer.
    pub fn stalls(&self) -> u64 {
        self.stalls
    }

    /// Activity of its dies, channels and link.
    pub fn activity(&self) -> Activity {
        let mut servers = self.dies.servers().to_vec();
        servers.push((Server::Link, 1));
        let mut busy = self.dies.busy().to_vec();
        busy.extend(self.link.busy());
        Activity { servers, busy }
    }

    /// Size of the write buffer in bytes, summed over zones with their own, and the taken part, at
    /// the time of the last call.
    pub fn buffer(&self) -> (u64, u64) {
        self.buffer.fill()
    }

    /// Taken bytes of the buffer, at the time of the last call: of `zone`'s, or of the shared one.
    pub fn buffer_used(&self, zone: u32) -> u64 {
        let pool = self.shape.pool(zone as usize);
        if pool < self.waiting.len() {
            self.buffer.used(pool)
        } else {
            0
        }
    }

    fn read(&mut self, now: u64, offset: u64, len: u32) -> u64 {
        let at = now.saturating_add(self.costs.before_read(len, PAGE));
        let end = offset.saturating_add(u64::from(len));
        let mut sensed = at;
        let mut from = offset;
        while from < end
            && let Some((zone, start)) = self.shape.locate(from)
        {
            let stop = (start.saturating_add(end - from)).min(self.shape.size);
            let written = stop.min(self.zones[zone].fill);
            let pages = start / PAGE..written.div_ceil(PAGE);
            sensed = sensed.max(self.sense(now, at, zone, pages));
            from += stop - start;
        }
        postpone(&mut self.dies, &mut self.pending, &mut self.buffer);
        self.link.send(now, sensed, len)
    }

    /// Senses pages of a zone, one flash page at a time; returns the time at which all have left
    /// their channels.
    fn sense(&mut self, now: u64, at: u64, zone: usize, pages: std::ops::Range<u64>) -> u64 {
        let shape = self.shape.die;
        let mut sensed = at;
        let mut page = pages.start;
        while page < pages.end {
            let flash_page = u64::from(shape.flash_page);
            let stop = ((page / flash_page + 1) * flash_page).min(pages.end);
            let wordline = page / u64::from(shape.wordline);
            let of_wordline = small(page % u64::from(shape.wordline));
            let sense = Sense {
                die: self.shape.die(zone, wordline),
                flash_page: shape.holding(wordline / self.shape.dies_per_zone, of_wordline),
                pages: small(stop - page), // at most a flash page
            };
            sensed = sensed.max(self.dies.sense_for_drive(now, at, sense, For::Read));
            page = stop;
        }
        sensed
    }

    /// The effect of a write on its zone; `None` beyond the last zone.
    fn moves(&self, offset: u64, len: u32) -> Option<Move> {
        let (zone, start) = self.shape.locate(offset)?;
        let from = self.zones[zone].fill;
        let to = start
            .saturating_add(u64::from(len))
            .min(self.shape.capacity)
            .max(from);
        let new = (to - from).min(u64::from(len));
        let pool = self.shape.pool(zone);
        // Limited, so that it need not wait for bytes in partly filled wordlines.
        let most = self.buffer.size().saturating_sub(self.waiting[pool]);
        Some(Move {
            zone,
            pool,
            from,
            to,
            new,
            need: new.min(most),
        })
    }

    fn write(&mut self, now: u64, offset: u64, len: u32, fua: bool) -> Option<At> {
        self.buffer.settle(now);
        let moves = self.moves(offset, len);
        if let Some(moves) = &moves
            && !self.buffer.take(moves.pool, moves.need)
        {
            self.stalls += 1;
            return None;
        }
        let copied = now.saturating_add(self.costs.before_write(len));
        let fetched = self.link.fetch(now, copied, len);
        let slot = self.slot(self.costs.waits_for_programs(fua));
        let programmed = moves.map_or(0, |moves| self.fill(now, fetched, &moves, slot));
        let at = self.costs.write_done(fua, fetched, programmed);
        Some(At { at, slot })
    }

    /// A slot for a command that waits for dies, if their work may end later than expected.
    fn slot(&mut self, waits: bool) -> Option<Slot> {
        let moves = waits && self.dies.are_suspended();
        moves.then(|| self.pending.reserve())
    }

    /// Makes a command wait for a die's last operation.
    fn wait(&mut self, die: usize, slot: Option<Slot>) {
        if let Some(slot) = slot {
            self.dies.wait(die, Waiting::Command(slot));
        }
    }

    /// Advances the fill of a zone, and programs full wordlines; returns their latest end.
    fn fill(&mut self, now: u64, fetched: u64, moves: &Move, slot: Option<Slot>) -> u64 {
        let oneshot = self.shape.oneshot();
        let zone = &mut self.zones[moves.zone];
        let mut share = Share::of(moves.need);
        let brought = moves.to - moves.new;
        let mut programmed = 0;
        let mut at = moves.from;
        while at < moves.to {
            let wordline = at / oneshot;
            let full = (wordline + 1) * oneshot;
            let stop = full.min(moves.to);
            let bytes = share.next(stop.saturating_sub(at.max(brought)));
            zone.held += bytes;
            self.waiting[moves.pool] += bytes;
            if stop == full {
                let die = self.shape.die(moves.zone, wordline);
                let end = self.dies.program(now, fetched, die, Cells::Proper);
                programmed = end.max(programmed);
                let held = std::mem::take(&mut zone.held);
                self.waiting[moves.pool] -= held;
                let bytes = (moves.pool, held);
                give_back(&mut self.buffer, &mut self.dies, die, end, bytes);
                if let Some(slot) = slot {
                    self.dies.wait(die, Waiting::Command(slot));
                }
                zone.programmed = zone.programmed.max(wordline + 1);
            }
            at = stop;
        }
        zone.fill = moves.to;
        programmed
    }

    /// Drops the zone's buffer bytes in its partly filled wordline; returns their number.
    fn drop_buffered(&mut self, zone: usize) -> u64 {
        let held = std::mem::take(&mut self.zones[zone].held);
        self.waiting[self.shape.pool(zone)] -= held;
        held
    }

    fn zone_op(&mut self, now: u64, op: ZoneOp) -> At {
        let (ZoneOp::Reset { zone }
        | ZoneOp::Finish { zone }
        | ZoneOp::Open { zone }
        | ZoneOp::Close { zone }) = op;
        let zone = zone as usize;
        match op {
            _ if zone >= self.zones.len() => now.into(),
            // The published program has no time for these.
            _ if self.link.arithmetic() == Arithmetic::Code => {
                self.zone_op_in_no_time(now, zone, op).into()
            }
            ZoneOp::Reset { .. } => self.reset(now, zone),
            ZoneOp::Finish { .. } => self.finish(now, zone),
            ZoneOp::Open { .. } => now.saturating_add(self.open).into(),
            ZoneOp::Close { .. } => now.into(),
        }
    }

    fn zone_op_in_no_time(&mut self, now: u64, zone: usize, op: ZoneOp) -> u64 {
        if let ZoneOp::Reset { .. } | ZoneOp::Finish { .. } = op {
            let held = self.drop_buffered(zone);
            self.buffer.drop_now(self.shape.pool(zone), held);
        }
        if let ZoneOp::Reset { .. } = op {
            self.zones[zone] = Zone::default();
        }
        now
    }

    fn reset(&mut self, now: u64, zone: usize) -> At {
        let held = self.drop_buffered(zone);
        self.buffer.drop_now(self.shape.pool(zone), held);
        let programmed = std::mem::take(&mut self.zones[zone]).programmed;
        let slot = self.slot(true);
        let mut done = now.saturating_add(self.reset);
        for die in 0..self.shape.dies_per_zone.min(programmed) {
            let wordlines = self.shape.on_die(programmed, die);
            let blocks = wordlines.div_ceil(u64::from(self.shape.die.rows));
            let die = self.shape.die(zone, die);
            done = done.max(self.dies.erase(now, die, blocks));
            self.wait(die, slot);
        }
        At { at: done, slot }
    }

    fn finish(&mut self, now: u64, zone: usize) -> At {
        let pool = self.shape.pool(zone);
        let held = self.drop_buffered(zone);
        let mut done = now.saturating_add(self.finish);
        if !self.finish_writes {
            self.buffer.drop_now(pool, held);
            return done.into();
        }
        let slot = self.slot(true);
        let first = self.zones[zone].programmed;
        let mut held_by_first = Some(held);
        // The first of them comes first on its die; on the other dies the order does not matter.
        for wordline in first..self.shape.wordlines.min(first + self.shape.dies_per_zone) {
            let die = wordline % self.shape.dies_per_zone;
            let on_die =
                self.shape.on_die(self.shape.wordlines, die) - self.shape.on_die(first, die);
            let die = self.shape.die(zone, die);
            let mut end = self.dies.fill(now, die, 1);
            if let Some(held) = held_by_first.take() {
                give_back(&mut self.buffer, &mut self.dies, die, end, (pool, held));
            }
            if on_die > 1 {
                end = self.dies.fill(now, die, on_die - 1);
            }
            self.wait(die, slot);
            done = done.max(end);
        }
        if let Some(held) = held_by_first {
            // Written after another finish, which the zone states rule out.
            self.buffer.drop_now(pool, held);
        }
        self.zones[zone].programmed = self.shape.wordlines;
        At { at: done, slot }
    }
}

/// The effect of a write on the fill of its zone.
#[derive(Clone, Copy, Debug)]
struct Move {
    zone: usize,
    pool: usize,
    from: u64,
    to: u64,
    /// Bytes of the write in that wordline, the last ones.
    new: u64,
    /// Buffer bytes of the write.
    need: u64,
}

impl Zones {
    /// See [`Model::release_early`](crate::Model::release_early).
    pub(crate) fn release_early(&mut self, ns: u64) {
        self.pending.set_early(ns);
    }
}

impl Timing for Zones {
    fn submit(&mut self, now: u64, id: u64, op: &Op<'_>) -> Admission {
        let now = self.pending.at(now);
        let at = match *op {
            Op::Read { offset, len } => self.read(now, offset, len).into(),
            Op::Write { offset, len, fua } => match self.write(now, offset, len, fua) {
                Some(at) => at,
                None => return Admission::Stall,
            },
            Op::Deallocate { .. } => now.saturating_add(self.costs.deallocate).into(),
            Op::Flush => now.max(self.dies.all_free()).into(),
            Op::Zone(op) => self.zone_op(now, op),
            Op::Kv(_) | Op::Compound(_) => now.into(),
        };
        self.pending.push_at(at, id);
        Admission::Accepted
    }

    fn has_room(&self, op: &Op<'_>) -> bool {
        match *op {
            Op::Write { offset, len, .. } => self
                .moves(offset, len)
                .is_none_or(|moves| self.buffer.has(moves.pool, moves.need)),
            _ => true,
        }
    }

    fn next_event(&self) -> Option<u64> {
        let room = self.buffer.next();
        let done = self.pending.next();
        room.into_iter().chain(done).min()
    }

    fn advance(&mut self, now: u64, done: &mut Vec<Due>) {
        let now = self.pending.at(now);
        self.buffer.settle(now);
        self.pending.reap(now, done);
    }
}

#[cfg(test)]
mod tests;
