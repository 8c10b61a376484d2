//! A zone, and the shape of a medium's zones: in bytes of the medium, without transitions.

use nvme_spec::zoned::ZoneState;
use port::set::RandomAreas;

/// Parameters of a medium's zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Geometry {
    /// Zone size: bytes from one zone to the next.
    pub(crate) zone_bytes: u64,
    /// Zone capacity: writable bytes of a zone, from its start.
    pub(crate) capacity: u64,
    /// Number of zones.
    pub(crate) zones: u32,
    /// Maximum number of open zones; 0: unlimited.
    pub(crate) max_open: u32,
    /// Maximum number of active zones (open or closed); 0: unlimited.
    pub(crate) max_active: u32,
    /// Random write areas (ZRWA), if supported.
    pub(crate) random: Option<RandomAreas>,
}

impl Geometry {
    /// Size of a zone's random write area in bytes.
    pub(super) fn random_bytes(&self) -> u64 {
        self.random.map_or(0, |random| random.bytes.into())
    }

    /// Granularity of write pointers of zones with a random write area.
    pub(super) fn granularity(&self) -> u64 {
        self.random
            .map_or(1, |random| random.granularity.max(1).into())
    }
}

/// A zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Zone {
    pub(crate) state: ZoneState,
    /// Bytes from its start to its write pointer; for a full, read-only or offline zone, the bytes
    /// written.
    pub(crate) written: u64,
    /// Bytes from its start to the end of the last byte ever written: after its write pointer if it
    /// has or had a random write area.
    pub(crate) reached: u64,
    /// Whether its descriptor extension is valid.
    pub(crate) extended: bool,
    /// Whether it has a random write area.
    pub(crate) random: bool,
}

impl Zone {
    pub(crate) const EMPTY: Zone = Zone {
        state: ZoneState::EMPTY,
        written: 0,
        reached: 0,
        extended: false,
        random: false,
    };

    /// Whether a zone can be so, in bytes.
    pub(super) fn is_possible(&self, geometry: &Geometry) -> bool {
        let is_state = is_active(self.state)
            || matches!(
                self.state,
                ZoneState::EMPTY | ZoneState::FULL | ZoneState::READ_ONLY | ZoneState::OFFLINE
            );
        let is_whole = [self.written, self.reached]
            .iter()
            .all(|at| at.is_multiple_of(512));
        let is_inside = self.written <= self.reached && self.reached <= geometry.capacity;
        // Only an active zone has a random write area, and an empty zone has no data.
        let has_area = !self.random || is_active(self.state);
        let is_empty = self.state != ZoneState::EMPTY || *self == Zone::EMPTY;
        is_state && is_whole && is_inside && has_area && is_empty
    }

    /// Its state after a power cycle: an open zone is closed, and empty if nothing was written to
    /// it and it has no descriptor extension (ZNS 1.1, 2.1.1.3).
    pub(crate) fn after_restart(self) -> Zone {
        match is_active(self.state) {
            true if self.reached == 0 && !self.extended => Zone::EMPTY,
            true => Zone {
                state: ZoneState::CLOSED,
                ..self
            },
            false => self,
        }
    }
}

pub(super) fn is_open(state: ZoneState) -> bool {
    state == ZoneState::IMPLICITLY_OPENED || state == ZoneState::EXPLICITLY_OPENED
}

pub(super) fn is_active(state: ZoneState) -> bool {
    is_open(state) || state == ZoneState::CLOSED
}
