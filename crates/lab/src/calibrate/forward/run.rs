//! One case on one drive, with a constant number of commands in flight.

use driver::workload::random::Random;
use model::{KvKind, KvOp, Model, Op, Parameters, ZoneOp, key_hash};
use simulate::in_flight::{Counted, InFlight};

use super::super::samples::{Keys, Writers};
use super::super::{Act, float};
use super::{Case, Effort, READ_FROM};

/// Writes that fill the buffer to its steady level, in multiples of its size, and their maximum
/// number.
const BUFFERS: u64 = 6;
const WARM_MAX: u64 = 20_000;
/// Maximum bytes of one case.
const WRITTEN_MAX: u64 = 1 << 30;
/// Minimum bytes of one case, so that the buffer's contents at its end do not matter.
const WRITTEN_MIN: u64 = 96 << 20;
/// Size of the key space.
const KEYS: u64 = 1 << 20;
/// Random page writes in steady state: warm-up, and counted ones.
const STEADY_WARM: u64 = 8_000;
const STEADY_COUNT: u64 = 40_000;

/// Targets of commands.
pub(super) enum Places {
    /// A number of places, anywhere on the drive, taken at random or in order.
    Blocks(u64),
    /// Zones, each with a number of places.
    Zones(Zones, u64),
    /// Zones, by writers that each go through their own in order.
    Writers(Zones, Vec<Writer>),
    /// To keys.
    Keys(Keys),
}

/// Zones of the simulated drive.
#[derive(Clone, Copy)]
pub(super) struct Zones {
    count: u64,
    size: u64,
    capacity: u64,
}

/// Position of a writer, and the number of zones from one of its zones to the next.
#[derive(Clone, Copy)]
pub(super) struct Writer {
    zone: u64,
    at: u64,
    step: u64,
}

impl Places {
    /// Targets of a case on a drive of `size` bytes.
    ///
    /// # Errors
    /// The drive has too few zones.
    pub(super) fn new(case: &Case, parameters: &Parameters, size: u64) -> Result<Self, String> {
        let len = u64::from(case.len.max(1));
        Ok(match parameters {
            Parameters::Kv(_) => Places::Keys(case.keys),
            Parameters::Zones(of) => {
                let zones = Zones {
                    count: size / of.zone_size_bytes,
                    size: of.zone_size_bytes,
                    capacity: of.zone_capacity_bytes,
                };
                match case.act {
                    Act::Write => Places::Writers(zones, zones.writers(case.writers, len)?),
                    _ => Places::Zones(zones, (zones.capacity / len).max(1)),
                }
            }
            Parameters::Flash(_) if case.act == Act::Read => {
                Places::Blocks((size.min(READ_FROM) / len).max(1))
            }
            _ => Places::Blocks((size / len).max(1)),
        })
    }
}

impl Zones {
    fn writers(self, writers: Writers, len: u64) -> Result<Vec<Writer>, String> {
        let Writers { count, apart } = writers;
        let (first, step) = match apart {
            0 => (1, u64::from(count)),
            apart => (u64::from(apart), 1),
        };
        if u64::from(count - 1) * first >= self.count || len > self.capacity {
            return Err(format!(
                "{count} writers of {len} bytes do not fit {} zones",
                self.count
            ));
        }
        let all = (0..u64::from(count)).map(|writer| Writer {
            zone: writer * first,
            at: 0,
            step,
        });
        Ok(all.collect())
    }
}

/// State of one case.
pub(super) struct Run {
    act: Act,
    random: Option<Random>,
    len: u32,
    depth: u32,
    places: Places,
    next: u64,
    warm: u64,
    count: u64,
}

impl Run {
    pub(super) fn new(
        case: &Case,
        places: Places,
        effort: Effort,
        parameters: &Parameters,
    ) -> Self {
        let depth = u64::from(case.depth);
        let len = u64::from(case.len.max(1));
        let writers = u64::from(case.writers.count);
        let buffer = match parameters {
            Parameters::Flash(flash) => flash.buffer_bytes,
            Parameters::Zones(zones) if zones.zone_buffer_bytes > 0 => {
                zones.zone_buffer_bytes * writers
            }
            Parameters::Zones(zones) => zones.flash.buffer_bytes,
            Parameters::Nvm(_) | Parameters::Kv(_) => 0,
        };
        let count = effort.commands + effort.per_depth * depth;
        let (warm, count) = match (case.act, buffer) {
            (Act::Reset, _) => (0, 1),
            // The writes of a case must not start collection.
            (Act::Write, 1..) => {
                let warm = (BUFFERS * buffer / len).min(WARM_MAX) + 4 * depth;
                let most = (WRITTEN_MAX / len).max(2);
                let count = count.max(WRITTEN_MIN / len);
                (warm.min(most / 2), count.min(most / 2))
            }
            _ => (4 * depth, count),
        };
        Run {
            act: case.act,
            // Each case has its own random sequence, so that errors of cases are independent.
            random: case
                .random
                .then(|| Random::new(len << 32 | depth << 8 | case.act as u64)),
            len: case.len,
            depth: case.depth,
            places,
            next: 0,
            warm,
            count,
        }
    }

    /// Random page writes over the whole drive in steady state.
    pub(super) fn steady(bytes: u64, depth: u32, seed: u64) -> Self {
        Run {
            act: Act::Write,
            random: Some(Random::new(seed)),
            len: 4096,
            depth,
            places: Places::Blocks(bytes / 4096),
            next: 0,
            warm: STEADY_WARM,
            count: STEADY_COUNT,
        }
    }

    /// One of `count`, at random or in order.
    fn pick(&mut self, count: u64) -> u64 {
        self.next += 1;
        match &mut self.random {
            Some(random) => random.below(count),
            None => (self.next - 1) % count,
        }
    }

    fn offset(&mut self, flow: usize) -> Result<u64, String> {
        let len = u64::from(self.len);
        match &mut self.places {
            Places::Writers(zones, writers) => {
                let writer = &mut writers[flow];
                if writer.at + len > zones.capacity {
                    (writer.zone, writer.at) = (writer.zone + writer.step, 0);
                }
                if writer.zone >= zones.count {
                    return Err("there are too few zones for what is written".to_owned());
                }
                writer.at += len;
                Ok(writer.zone * zones.size + writer.at - len)
            }
            Places::Zones(zones, each) => {
                let (zones, each) = (*zones, *each);
                let place = self.pick(zones.count * each);
                Ok(place / each * zones.size + place % each * len)
            }
            Places::Blocks(count) => {
                let count = *count;
                Ok(self.pick(count) * len)
            }
            Places::Keys(_) => Ok(0),
        }
    }

    fn hash(&mut self) -> u32 {
        match self.places {
            Places::Keys(Keys::Bench) => {
                let number = self.pick(u64::from(u32::MAX));
                key_hash(load::keys::bench_key(number).as_bytes())
            }
            _ => {
                let place = self.pick(KEYS);
                simulate::key_of(place * u64::from(self.len.max(1)))
            }
        }
    }

    /// The next command of a flow.
    fn op(&mut self, flow: usize) -> Result<Op<'static>, String> {
        let len = self.len;
        let kind = match self.act {
            Act::Reset => return Ok(Op::Zone(ZoneOp::Reset { zone: 0 })),
            Act::Read => {
                let offset = self.offset(flow)?;
                return Ok(Op::Read { offset, len });
            }
            Act::Write => {
                let offset = self.offset(flow)?;
                return Ok(Op::Write {
                    offset,
                    len,
                    fua: false,
                });
            }
            Act::Retrieve => KvKind::Retrieve,
            Act::Store => KvKind::Store,
            Act::Delete => KvKind::Delete,
        };
        let hash = self.hash();
        Ok(Op::Kv(KvOp { kind, hash, len }))
    }

    /// The mean time of the counted commands, and the end time.
    pub(super) fn on(
        mut self,
        model: &mut Model,
        start: u64,
        host_ns: u64,
    ) -> Result<(f64, u64), String> {
        let load = InFlight {
            // Each writer stalls by itself.
            flows: match &self.places {
                Places::Writers(_, writers) => writers.len(),
                _ => 1,
            },
            depth: self.depth,
            host_ns,
            warm: self.warm,
            count: self.count,
        };
        let Counted { ns, commands, end } =
            load.run(model, start, &mut |flow: usize| self.op(flow))?;
        // The number in flight is constant, so the mean time follows from the rate.
        let mean = float(ns) * f64::from(self.depth) / float(commands);
        Ok((mean, end))
    }
}
