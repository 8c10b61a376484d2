//! What a medium is like now, for whoever shows it: its model, its zones, its pairs.
//!
//! A [`Look`] borrows all of it and copies nothing: whoever takes a long look (of a drive's lines,
//! of many zones) takes it in parts, a bounded one in each turn of the reactor that has the medium.
//!
//! It does NOT change anything, and no command knows of it.

use model::{Model, Op};
use nvme_spec::zoned::ZoneState;

use crate::channel::{Channel, Kind};
use crate::medium::Medium;
use crate::zoned::State;

/// A medium as it is now. Parts that it does not have are `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Look<'a> {
    /// What says when its commands are done, and what that was asked for.
    pub timing: Option<TimingLook<'a>>,
    /// Its zones.
    pub zones: Option<ZonesLook<'a>>,
    /// Its keys and values.
    pub pairs: Option<PairsLook>,
}

/// The time of a drive that a medium has.
#[derive(Clone, Copy, Debug)]
pub struct TimingLook<'a> {
    /// The drive.
    pub model: &'a Model,
    /// What it was asked for since it is served.
    pub asked: Asked,
    /// When it had no room.
    pub stalls: Stalls,
}

/// Operations that a model was asked for, by what they are. One command may be several: a Copy
/// reads and writes.
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
    /// What is done to zones apart from that.
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

/// Times in which a model took no more of something, as a buffer was full: from a command that
/// found no room until there was room for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stalls {
    /// How many.
    pub count: u64,
    /// How long they took together, in nanoseconds; one that goes on is not in it.
    pub time_ns: u64,
}

/// The zones of a medium.
#[derive(Clone, Copy, Debug)]
pub struct ZonesLook<'a> {
    state: &'a State,
}

/// Numbers of all zones together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZonesState {
    /// Zones.
    pub zones: u32,
    /// Bytes from one zone to the next.
    pub zone_bytes: u64,
    /// Bytes of a zone that can be written.
    pub capacity: u64,
    /// Zones that are open, and how many may be; 0: any number.
    pub open: u32,
    /// See there.
    pub max_open: u32,
    /// Zones that are open or closed, and how many may be; 0: any number.
    pub active: u32,
    /// See there.
    pub max_active: u32,
    /// Zones that have a random write area.
    pub random: u32,
    /// How many may have one, and bytes of one; 0: none.
    pub max_random: u32,
    /// See there.
    pub random_bytes: u32,
}

/// A zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneLook {
    /// Its state.
    pub state: ZoneState,
    /// Bytes from its start to its write pointer. Of a zone that is full, read only or offline:
    /// what was written.
    pub written: u64,
    /// First byte of it in the medium.
    pub start: u64,
}

impl ZonesLook<'_> {
    /// All of them together.
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

    /// How many zones are in a state.
    #[must_use]
    pub fn count(&self, state: ZoneState) -> u32 {
        self.state.zones.count(state)
    }

    /// One of them; `None` where there are fewer.
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
    /// Pairs, and how many there may be.
    pub pairs: u32,
    /// See there.
    pub max_pairs: u32,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Bytes that are taken: whole units, of values and of what keys have beyond 16 bytes.
    pub used_bytes: u64,
    /// Bytes that there are.
    pub bytes: u64,
    /// Bytes of a unit.
    pub unit_bytes: u64,
    /// Bytes that the entries of the index take, of those that were ever in use.
    pub index_bytes: u64,
}

impl Channel {
    /// The medium as it is now.
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
    /// Looks at the medium while no channel has it: `None` where one has.
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

    /// The same, with what is known of its timing.
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
