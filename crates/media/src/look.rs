//! Read access to a medium's current state for display: its model, its zones, its pairs.
//!
//! A [`Look`] borrows everything and copies nothing. Long reports (of a drive's lines, or of many
//! zones) are taken in parts, a bounded one in each turn of the reactor that has the medium.
//!
//! It changes nothing, and commands are unaffected.

use model::{Model, Op};
use nvme_spec::zoned::ZoneState;

use crate::channel::{Channel, Kind};
use crate::medium::Medium;
use crate::zoned::State;

/// Current state of a medium. Missing parts are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look<'a> {
    /// Its timing model, with counters of the operations.
    pub timing: Option<TimingLook<'a>>,
    /// Its zones.
    pub zones: Option<ZonesLook<'a>>,
    /// Its keys and values.
    pub pairs: Option<PairsLook>,
}

/// Timing of a medium.
#[derive(Clone, Copy, Debug)]
pub struct TimingLook<'a> {
    /// The model of the drive.
    pub model: &'a Model,
    /// Operations since the medium is served.
    pub asked: Asked,
    /// Times without room in the model.
    pub stalls: Stalls,
}

/// Operations submitted to a model, by kind. One command may be several: a Copy reads and writes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Asked {
    /// Reads and compares.
    pub reads: u64,
    /// Writes, and appends to zones.
    pub writes: u64,
    /// Deallocations and Write Zeroes, by their parts.
    pub deallocations: u64,
    /// Flushes.
    pub flushes: u64,
    /// Other zone operations.
    pub zone_actions: u64,
    /// Operations on keys; a compound command is one.
    pub keys: u64,
}

impl Asked {
    #[inline]
    pub(crate) fn count(&mut self, op: &Op<'_>) {
        let count = match op {
            Op::Read { .. } => &mut self.reads,
            Op::Write { .. } => &mut self.writes,
            Op::Deallocate { .. } => &mut self.deallocations,
            Op::Flush => &mut self.flushes,
            Op::Zone(_) => &mut self.zone_actions,
            Op::Kv(_) | Op::Compound(_) => &mut self.keys,
        };
        *count += 1;
    }
}

/// Periods in which a model accepted no more of something, for example because a buffer was full:
/// from a command that found no room until there was room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// Number of periods.
    pub count: u64,
    /// Their total duration, in nanoseconds, without a period in progress.
    pub time_ns: u64,
}

/// The zones of a medium.
#[derive(Clone, Copy, Debug)]
pub struct ZonesLook<'a> {
    state: &'a State,
}

/// Totals of all zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonesState {
    /// Number of zones.
    pub zones: u32,
    /// Zone size: bytes from one zone to the next.
    pub zone_bytes: u64,
    /// Zone capacity: writable bytes of a zone.
    pub capacity: u64,
    /// Open zones.
    pub open: u32,
    /// Maximum number of open zones; 0: unlimited.
    pub max_open: u32,
    /// Active zones, which are open or closed.
    pub active: u32,
    /// Maximum number of active zones; 0: unlimited.
    pub max_active: u32,
    /// Zones with a random write area.
    pub random: u32,
    /// Maximum number of random write areas; 0: none.
    pub max_random: u32,
    /// Size of a random write area in bytes; 0: none.
    pub random_bytes: u32,
}

/// A zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLook {
    /// Its state.
    pub state: ZoneState,
    /// Bytes from its start to its write pointer; for a full, read-only or offline zone, the bytes
    /// written.
    pub written: u64,
    /// Its first byte in the medium.
    pub start: u64,
}

impl ZonesLook<'_> {
    /// Totals of all zones.
    #[must_use]
    pub fn all(&self) -> ZonesState {
        let zones = &self.state.zones;
        let geometry = zones.geometry();
        let (open, active, random) = zones.used();
        ZonesState {
            zones: geometry.zones,
            zone_bytes: geometry.zone_bytes,
            capacity: geometry.capacity,
            open,
            max_open: geometry.max_open,
            active,
            max_active: geometry.max_active,
            random,
            max_random: geometry.random.map_or(0, |random| random.zones),
            random_bytes: geometry.random.map_or(0, |random| random.bytes),
        }
    }

    /// Number of zones in a state.
    #[must_use]
    pub fn count(&self, state: ZoneState) -> u32 {
        self.state.zones.count(state)
    }

    /// State of one zone; `None` if it does not exist.
    #[must_use]
    pub fn get(&self, zone: u32) -> Option<ZoneLook> {
        let zones = &self.state.zones;
        (zone < zones.geometry().zones).then(|| {
            let its = zones.get(zone);
            ZoneLook {
                state: its.state,
                written: its.written,
                start: zones.start(zone),
            }
        })
    }
}

/// The keys and values of a medium.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PairsLook {
    /// Number of pairs.
    pub pairs: u32,
    /// Maximum number of pairs.
    pub max_pairs: u32,
    /// Total size of all keys in bytes.
    pub key_bytes: u64,
    /// Total size of all values in bytes.
    pub value_bytes: u64,
    /// Bytes in use: whole units, for values and the parts of keys beyond 16 bytes.
    pub used_bytes: u64,
    /// Total bytes.
    pub bytes: u64,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Memory of the index entries that were ever in use.
    pub index_bytes: u64,
}

impl Channel {
    /// Current state of the medium.
    #[must_use]
    pub fn look(&self) -> Look<'_> {
        match &self.0 {
            Kind::Timed(timed) => Look {
                timing: Some(timed.look()),
                ..timed.inner().look()
            },
            Kind::Zoned(zoned) => Look {
                zones: zoned.state_ref().map(|state| ZonesLook { state }),
                ..Look::default()
            },
            Kind::KeyValue(pairs) => Look {
                pairs: pairs.look(),
                ..Look::default()
            },
            Kind::Null(_) | Kind::Told(_) | Kind::Ram(_) | Kind::File(_) | Kind::Drive(_) => {
                Look::default()
            }
        }
    }
}

impl Medium {
    /// Passes the medium's state to `looks` while no channel has it; `None` if one has.
    pub fn look<T>(&self, looks: impl FnOnce(&Look<'_>) -> T) -> Option<T> {
        if !self.has_timing() {
            return self.look_below(None, looks);
        }
        let timing = |model: &Model| {
            let timing = TimingLook {
                model,
                asked: Asked::default(),
                stalls: Stalls::default(),
            };
            self.look_below(Some(timing), looks)
        };
        self.timing().at_rest(timing)?
    }

    /// The same, with the state of its timing.
    fn look_below<T>(
        &self,
        timing: Option<TimingLook<'_>>,
        looks: impl FnOnce(&Look<'_>) -> T,
    ) -> Option<T> {
        let pairs = match self.key_value() {
            Some(medium) => Some(medium.look()?),
            None => None,
        };
        let look = |zones: Option<ZonesLook<'_>>| {
            looks(&Look {
                timing,
                zones,
                pairs,
            })
        };
        match self.zones() {
            Some(zoned) => zoned.with_state(|state| look(Some(ZonesLook { state }))),
            None => Some(look(None)),
        }
    }
}
