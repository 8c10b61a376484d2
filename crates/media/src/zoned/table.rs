//! Zones in memory that outlives the process: another process continues with them.
//!
//! Each zone has two copies, of which the one with the higher number is current. A change is
//! written to the other copy, and its number last, so that a process may die between any two stores
//! and the zone is as it was before the change or after it. Changes of several zones are several
//! changes.
//!
//! Nothing in the memory is trusted: a zone that cannot be is an error.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use memory::{Area, StateFile, ordered};
use nvme_spec::zoned::{DESCRIPTOR_EXTENSION_UNIT, ZoneState};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::zone::{Geometry, Zone};
use crate::kept::KeptError;

/// Version of the layouts below.
const FORMAT_VERSION: u32 = 1;
/// Areas: zones, the ends of completed writes, and descriptor extensions.
const ZONES: usize = 0;
const ENDED: usize = 1;
const EXTENSIONS: usize = 2;

/// The zones' shape.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Head {
    zone_bytes: u64,
    capacity: u64,
    zones: u64,
    extension_bytes: u64,
}

/// One of two copies of a zone.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Copy {
    written: u64,
    reached: u64,
    /// Changes of the zone, modulo 2^32.
    number: u32,
    state: u8,
    flags: u8,
    reserved: u16,
}

/// A zone. 48 bytes, all zero for one that was never changed.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
struct Record {
    copies: [Copy; 2],
}

const EXTENDED: u8 = 1;
const RANDOM: u8 = 2;

impl Record {
    /// The current copy.
    fn current(&self) -> usize {
        let [first, second] = self.copies;
        usize::from(second.number.wrapping_sub(first.number) as i32 > 0)
    }

    fn zone(&self, geometry: &Geometry) -> Option<Zone> {
        let copy = self.copies[self.current()];
        if copy.number == 0 {
            return Some(Zone::EMPTY);
        }
        let zone = Zone {
            state: ZoneState(copy.state),
            written: copy.written,
            reached: copy.reached,
            extended: copy.flags & EXTENDED != 0,
            random: copy.flags & RANDOM != 0,
        };
        (copy.flags <= (EXTENDED | RANDOM) && zone.is_possible(geometry)).then_some(zone)
    }

    fn store(&mut self, zone: Zone) {
        let current = self.current();
        let number = self.copies[current].number.wrapping_add(1);
        let copy = &mut self.copies[1 - current];
        copy.written = zone.written;
        copy.reached = zone.reached;
        copy.state = zone.state.0;
        copy.flags = if zone.extended { EXTENDED } else { 0 };
        if zone.random {
            copy.flags |= RANDOM;
        }
        ordered();
        // 0 is that of a zone that was never changed.
        copy.number = if number == 0 { 1 } else { number };
        ordered();
    }
}

/// The memory of zones, before its parts go to those who change them.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) table: Table,
    pub(super) ended: Ended,
    pub(super) extensions: Extensions,
    pub(super) file: Arc<StateFile>,
}

impl Kept {
    /// Creates the memory of empty zones.
    ///
    /// # Errors
    /// The system's.
    pub(super) fn create(geometry: &Geometry, extension_bytes: usize) -> Result<Self, KeptError> {
        let zones = geometry.zones as usize;
        let areas = [
            size_of::<Head>().next_multiple_of(64) + zones * size_of::<Record>(),
            64 + zones * size_of::<u64>(),
            64 + zones * extension_bytes,
        ];
        let file = StateFile::create("zones", FORMAT_VERSION, &areas)?;
        let mut kept = Self::of(file, geometry, extension_bytes)?;
        *kept.table.area.parts().0 = head_of(geometry, extension_bytes);
        Ok(kept)
    }

    /// The memory that another process had.
    ///
    /// # Errors
    /// See [`KeptError`].
    pub(super) fn adopt(
        file: OwnedFd,
        geometry: &Geometry,
        extension_bytes: usize,
    ) -> Result<Self, KeptError> {
        let file = StateFile::open(file)?;
        let found = file.format_version();
        if found != FORMAT_VERSION {
            return Err(KeptError::Version {
                found,
                read: FORMAT_VERSION,
            });
        }
        let kept = Self::of(file, geometry, extension_bytes)?;
        if *kept.table.area.head() != head_of(geometry, extension_bytes) {
            return Err(KeptError::Differs);
        }
        Ok(kept)
    }

    fn of(
        file: Arc<StateFile>,
        geometry: &Geometry,
        extension_bytes: usize,
    ) -> Result<Self, KeptError> {
        let zones = geometry.zones as usize;
        let units = zones * extension_bytes / DESCRIPTOR_EXTENSION_UNIT;
        Ok(Kept {
            table: Table {
                area: file.adopt(ZONES, zones)?,
            },
            ended: Ended {
                area: file.adopt(ENDED, zones)?,
            },
            extensions: Extensions {
                area: file.adopt(EXTENSIONS, units)?,
            },
            file,
        })
    }
}

fn head_of(geometry: &Geometry, extension_bytes: usize) -> Head {
    Head {
        zone_bytes: geometry.zone_bytes,
        capacity: geometry.capacity,
        zones: geometry.zones.into(),
        extension_bytes: extension_bytes as u64,
    }
}

/// Zones.
#[derive(Debug)]
pub(super) struct Table {
    area: Area<Head, Record>,
}

impl Table {
    /// All zones, in their order.
    ///
    /// # Errors
    /// [`KeptError::Damaged`].
    pub(super) fn zones(&self, geometry: &Geometry) -> Result<Vec<Zone>, KeptError> {
        let records = (0..).zip(self.area.slots());
        let zone = |(zone, record): (u32, &Record)| {
            let found = record.zone(geometry);
            found.ok_or(KeptError::Damaged { zone })
        };
        records.map(zone).collect()
    }

    /// Stores a zone.
    #[inline]
    pub(super) fn store(&mut self, at: u32, zone: Zone) {
        self.area.parts().1[at as usize].store(zone);
    }
}

/// By zone, how far from its start completed writes have moved its write pointer.
#[derive(Debug)]
pub(super) struct Ended {
    area: Area<u64, u64>,
}

impl Ended {
    pub(super) fn get(&self, zone: u32) -> u64 {
        self.area.slots()[zone as usize]
    }

    pub(super) fn set(&mut self, zone: u32, to: u64) {
        self.area.parts().1[zone as usize] = to;
    }
}

/// Descriptor extensions.
#[derive(Debug)]
pub(super) struct Extensions {
    area: Area<u64, [u8; DESCRIPTOR_EXTENSION_UNIT]>,
}

impl Extensions {
    /// The bytes of all zones.
    pub(super) fn bytes(&self) -> &[u8] {
        self.area.slots().as_flattened()
    }

    /// Stores the bytes from `at` on.
    pub(super) fn store(&mut self, at: usize, bytes: &[u8]) {
        let all = self.area.parts().1.as_flattened_mut();
        all[at..at + bytes.len()].copy_from_slice(bytes);
    }
}

#[cfg(test)]
mod tests {
    use memory::own::crash::{self, Death};

    use super::*;

    const GEOMETRY: Geometry = Geometry {
        zone_bytes: 8192,
        capacity: 8192,
        zones: 2,
        max_open: 0,
        max_active: 0,
        random: None,
    };

    fn zone(written: u64) -> Zone {
        Zone {
            state: ZoneState::IMPLICITLY_OPENED,
            written,
            reached: written,
            ..Zone::EMPTY
        }
    }

    #[test]
    fn a_zone_is_as_before_a_change_or_as_after_it() {
        let mut kept = Kept::create(&GEOMETRY, 0).expect("created");
        for written in [512, 1024, 1536] {
            let before = kept.table.zones(&GEOMETRY).expect("possible")[1];
            let died = crash::run(0, || kept.table.store(1, zone(written)));
            assert_eq!(died, Err(Death));
            assert_eq!(kept.table.zones(&GEOMETRY).expect("possible")[1], before);
            let died = crash::run(1, || kept.table.store(1, zone(written)));
            assert_eq!(died, Err(Death));
            let after = kept.table.zones(&GEOMETRY).expect("possible");
            assert_eq!(after, [Zone::EMPTY, zone(written)]);
        }
    }

    #[test]
    fn numbers_of_changes_wrap() {
        let mut kept = Kept::create(&GEOMETRY, 0).expect("created");
        kept.table.area.parts().1[0].copies[1].number = u32::MAX - 2;
        for written in [512, 1024, 1536, 2048, 2560, 3072] {
            kept.table.store(0, zone(written));
            let zones = kept.table.zones(&GEOMETRY).expect("possible");
            assert_eq!(zones[0], zone(written));
        }
    }
}
