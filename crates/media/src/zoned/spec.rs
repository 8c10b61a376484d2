//! Parameters of a medium's zones, and their rules.
//!
//! [`ZoneSpec::check`] rejects parameters that the Zoned Namespace command set or the state machine
//! does not support, and names the violated rule.
//!
//! Not included: the state of zones ([`super::zones`]).

use port::set::{RandomAreas, Zoned};

use super::zones::Geometry;
use crate::error::MediumError;

/// Zone sizes and capacities are multiples of this: the largest logical block.
const UNIT: u64 = 4096;

/// Parameters of a medium's zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneSpec {
    /// Zone size: bytes from one zone to the next, a multiple of 4096.
    pub zone_size: u64,
    /// Zone capacity: writable bytes of a zone, a multiple of 4096, at most the zone size.
    pub zone_capacity: u64,
    /// Maximum number of open zones; 0: unlimited.
    pub max_open: u32,
    /// Maximum number of active zones, at least that of open ones; 0: unlimited.
    pub max_active: u32,
    /// Size of a zone's descriptor extension in bytes: a multiple of 64, at most 16,320; 0: none.
    pub descriptor_extension: u32,
    /// Maximum size of a Zone Append in bytes: a power of two of at least 4096; 0: the maximum data
    /// transfer size.
    pub append_limit: u32,
    /// Random write areas (ZRWA) of zones, if supported.
    pub random: Option<RandomAreas>,
}

impl ZoneSpec {
    /// Checks the zones for a medium of `size` bytes.
    ///
    /// # Errors
    /// The violated rule.
    pub fn check(&self, size: u64) -> Result<(), MediumError> {
        self.zones(size).map(drop)
    }

    pub(super) fn zones(&self, size: u64) -> Result<(Geometry, Zoned), MediumError> {
        let refused = |what: &'static str| Err(MediumError::Zones { what });
        if self.zone_size == 0 || !self.zone_size.is_multiple_of(UNIT) {
            return refused("the zone size must be a positive multiple of 4096 bytes");
        }
        if self.zone_capacity == 0 || !self.zone_capacity.is_multiple_of(UNIT) {
            return refused("the zone capacity must be a positive multiple of 4096 bytes");
        }
        if self.zone_capacity > self.zone_size {
            return refused("the capacity of a zone must not exceed its size");
        }
        if !size.is_multiple_of(self.zone_size) {
            return refused("the size of the medium must be a multiple of the zone size");
        }
        let zones = u32::try_from(size / self.zone_size).ok();
        let Some(zones) = zones.filter(|zones| *zones < u32::MAX) else {
            return refused("there are at most 2^32 - 2 zones: make them larger");
        };
        if self.max_active > 0 && (self.max_open == 0 || self.max_open > self.max_active) {
            return refused("at most as many zones may be open as may be active");
        }
        let units = self.descriptor_extension / 64;
        let Some(extension_units) = u8::try_from(units)
            .ok()
            .filter(|_| self.descriptor_extension.is_multiple_of(64))
        else {
            return refused("a descriptor extension must be a multiple of 64 bytes, at most 16320");
        };
        let limit = self.append_limit;
        if limit > 0 && (!limit.is_power_of_two() || u64::from(limit) <= UNIT) {
            return refused("the append limit must be a power of two above 4096 bytes");
        }
        if let Some(what) = self.random.and_then(|areas| self.why_not(areas)) {
            return refused(what);
        }
        // No more than there are zones.
        let random = self.random.map(|areas| RandomAreas {
            zones: areas.zones.min(zones),
            ..areas
        });
        let set = Zoned {
            zone_bytes: self.zone_size,
            max_active: self.max_active,
            max_open: self.max_open,
            extension_units,
            zasl: limit.checked_ilog2().map_or(0, |log| (log - 12) as u8),
            random,
        };
        let geometry = Geometry {
            zone_bytes: self.zone_size,
            capacity: self.zone_capacity,
            zones,
            max_open: self.max_open,
            max_active: self.max_active,
            random,
        };
        Ok((geometry, set))
    }

    /// Why these random write areas are invalid.
    fn why_not(&self, areas: RandomAreas) -> Option<&'static str> {
        let RandomAreas {
            bytes,
            granularity,
            zones,
        } = areas;
        let (size, step) = (u64::from(bytes), u64::from(granularity));
        if step == 0 || !step.is_multiple_of(UNIT) || size == 0 || !size.is_multiple_of(step) {
            return Some(
                "a random write area is a multiple of its granularity, and that one of 4096 bytes",
            );
        }
        // Both are reported as 16-bit counts of logical blocks, of 512 bytes or more.
        if size >> 9 > u16::MAX.into() {
            return Some("a random write area is smaller than 32 MiB");
        }
        if size > self.zone_capacity || !self.zone_capacity.is_multiple_of(step) {
            return Some(
                "the capacity of a zone holds a random write area, and is a multiple of its granularity",
            );
        }
        if zones == 0 || (self.max_active > 0 && zones > self.max_active) {
            return Some(
                "at least one zone may have a random write area, and as many as may be active",
            );
        }
        None
    }
}
