//! Current state of zones, as the server reports it.

use nvme_spec::zoned::ZoneState;

use super::State;

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

impl<'a> ZonesLook<'a> {
    /// Those of this state.
    pub(crate) fn of(state: &'a State) -> Self {
        Self { state }
    }

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
