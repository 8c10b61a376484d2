//! The zones of a medium, and their owner.

// Not a lock of the command path: it is taken when a channel is made and when it is dropped.
use std::io;
use std::path::Path;
#[expect(clippy::disallowed_types, reason = "taken once in a channel's life")]
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};

use nvme_spec::zoned::{DESCRIPTOR_EXTENSION_UNIT, ZoneState};
use port::set::{RandomAreas, Zoned};

use super::zones::{Geometry, Zones};
use super::{State, ZonedChannel, open};
use crate::error::MediumError;
use crate::file::{Direct, FileIo, FileMedium, FileStorage};
use crate::journal::{RecordSink, StateError};

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

/// The zones of a medium, whether or not a reactor has them.
#[derive(Debug)]
pub(crate) struct ZonedMedium {
    set: Arc<Zoned>,
    geometry: Geometry,
    deallocates: bool,
    #[expect(clippy::disallowed_types, reason = "taken once in a channel's life")]
    state: Mutex<Option<Box<State>>>,
    /// The file, for zones with a log.
    storage: Option<FileStorage>,
}

impl ZonedMedium {
    /// Creates empty zones over a medium of `size` bytes. `deallocates`: its Deallocate makes every
    /// byte read as zero at once.
    #[expect(clippy::disallowed_types, reason = "taken once in a channel's life")]
    pub(crate) fn new(spec: &ZoneSpec, size: u64, deallocates: bool) -> Result<Self, MediumError> {
        let (geometry, set) = spec.zones(size)?;
        let state = State::new(Zones::new(geometry), &set);
        Ok(ZonedMedium {
            set: Arc::new(set),
            geometry,
            deallocates,
            state: Mutex::new(Some(Box::new(state))),
            storage: None,
        })
    }

    /// Opens zones on a file, which is created if it does not exist; returns them with the file and
    /// its size.
    ///
    /// # Errors
    /// Those of files and zones, and [`MediumError::State`].
    #[expect(clippy::disallowed_types, reason = "taken once in a channel's life")]
    pub(crate) fn on_file(
        path: &Path,
        size: Option<u64>,
        (direct, io): (Direct, FileIo),
        spec: &ZoneSpec,
    ) -> Result<(FileMedium, Self, u64), MediumError> {
        let (file, kept) = open::open(path, size, direct, io, spec)?;
        let zoned = ZonedMedium {
            set: Arc::new(kept.set),
            geometry: kept.geometry,
            deallocates: false,
            state: Mutex::new(Some(Box::new(kept.state))),
            storage: Some(kept.storage),
        };
        Ok((file, zoned, kept.size))
    }

    /// Description of the zones for hosts.
    pub(crate) fn set(&self) -> Arc<Zoned> {
        Arc::clone(&self.set)
    }

    pub(crate) fn deallocates(&self) -> bool {
        self.deallocates
    }

    /// Short description for the log.
    pub(crate) fn describe(&self) -> String {
        let Geometry {
            zone_bytes,
            capacity,
            zones,
            ..
        } = self.geometry;
        format!("{zones} zones of {zone_bytes} bytes, {capacity} of them to write")
    }

    /// Creates a channel over that of the medium below; `slice` bytes of the log go there per turn.
    ///
    /// # Errors
    /// A channel exists; the system's.
    pub(crate) fn channel<C>(
        self: &Arc<Self>,
        below: C,
        (depth, slice): (u16, u32),
    ) -> io::Result<ZonedChannel<C>> {
        let mut place = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = place.take().ok_or_else(|| {
            io::Error::other(
                "a medium with zones is served by one reactor: give all controllers that use it the same `reactor`",
            )
        })?;
        if let (Some(storage), Some(keeper)) = (&self.storage, &mut state.keeper) {
            keeper.journal.set_slice(slice);
            if std::mem::take(&mut keeper.is_unswept) {
                open::sweep(&state.zones, storage)?;
            }
        }
        Ok(ZonedChannel::new(below, Arc::clone(self), state, depth))
    }

    /// Passes the written part of each non-empty zone to `tell`, if no channel has the zones: its
    /// number, the bytes up to the last written one, and whether it is full.
    pub(crate) fn written(&self, mut tell: impl FnMut(u32, u64, bool)) {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let zones = state.as_ref().map(|state| &state.zones);
        for number in 0..self.geometry.zones {
            let zone = zones.map(|zones| zones.get(number));
            if let Some(zone) = zone.filter(|zone| zone.state != ZoneState::EMPTY) {
                tell(number, zone.reached, zone.state == ZoneState::FULL);
            }
        }
    }

    /// Zone size, zone capacity, and size of a descriptor extension.
    pub(crate) fn record_shape(&self) -> [u64; 3] {
        let Geometry {
            zone_bytes,
            capacity,
            ..
        } = self.geometry;
        let extension = usize::from(self.set.extension_units) * DESCRIPTOR_EXTENSION_UNIT;
        [zone_bytes, capacity, extension as u64]
    }

    /// Passes the non-empty zones to `tell`; none while a channel has them.
    pub(crate) fn records(&self, tell: &mut RecordSink<'_>) -> io::Result<()> {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.as_ref().map_or(Ok(()), |state| state.records(tell))
    }

    /// Adds a zone, while no channel has them.
    pub(crate) fn take_record(&self, kind: u8, record: &[u8]) -> Result<(), StateError> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let state = state.as_mut();
        state.map_or(Ok(()), |state| state.replay(kind, record))
    }

    /// Makes the state of all zones durable, for a clean stop, while no channel has them.
    ///
    /// # Errors
    /// The system's.
    pub(crate) fn finish(&self) -> io::Result<()> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        match (state.as_mut(), &self.storage) {
            (Some(state), Some(storage)) => state.finish(storage),
            _ => Ok(()),
        }
    }

    /// Calls `does` with the zones; `None` if a channel has them.
    pub(crate) fn with_state<T>(&self, does: impl FnOnce(&mut State) -> T) -> Option<T> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.as_mut().map(|state| does(state))
    }

    /// Takes the zones back from a channel that has ended.
    pub(super) fn give_back(&self, state: Option<Box<State>>) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }
}
