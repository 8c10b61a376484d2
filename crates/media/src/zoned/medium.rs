//! The zones of a medium, and their owner.

// Not a lock of the command path: it is taken when a channel is made and when it is dropped.
use std::io;
use std::os::fd::BorrowedFd;
use std::path::Path;
#[expect(clippy::disallowed_types, reason = "taken once in a channel's life")]
use std::sync::Mutex;
use std::sync::{Arc, PoisonError};

use memory::{StateFile, Store};
use nvme_spec::zoned::{DESCRIPTOR_EXTENSION_UNIT, ZoneState};
use port::set::Zoned;

use super::zones::{Geometry, Zones};
use super::{State, ZoneSpec, ZonedChannel, open};
use crate::error::MediumError;
use crate::file::{Direct, FileIo, FileMedium, FileStorage};
use crate::journal::{RecordSink, StateError};
use crate::kept::Kept;

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
    /// The memory with which another process continues.
    kept: Option<Arc<StateFile>>,
}

impl ZonedMedium {
    /// Creates empty zones over a medium of `size` bytes. `deallocates`: its Deallocate makes every
    /// byte read as zero at once.
    #[expect(clippy::disallowed_types, reason = "taken once in a channel's life")]
    pub(crate) fn new(
        (spec, kept): (&ZoneSpec, Kept),
        size: u64,
        deallocates: bool,
    ) -> Result<Self, MediumError> {
        let (geometry, set) = spec.zones(size)?;
        let mut state = State::new(Zones::new(geometry), &set);
        let kept = state.keep(kept)?;
        Ok(ZonedMedium {
            set: Arc::new(set),
            geometry,
            deallocates,
            state: Mutex::new(Some(Box::new(state))),
            storage: None,
            kept,
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
        (spec, kept): (&ZoneSpec, Kept),
    ) -> Result<(FileMedium, Self, u64), MediumError> {
        let (file, opened) = open::open(path, size, (direct, io), (spec, kept))?;
        let zoned = ZonedMedium {
            set: Arc::new(opened.set),
            geometry: opened.geometry,
            deallocates: false,
            state: Mutex::new(Some(Box::new(opened.state))),
            storage: Some(opened.storage),
            kept: opened.kept,
        };
        Ok((file, zoned, opened.size))
    }

    /// The file with which another process continues, if the zones outlive the process.
    pub(crate) fn kept(&self) -> Option<BorrowedFd<'_>> {
        self.kept.as_ref().map(|file| file.fd())
    }

    /// Zeroes all bytes after write pointers, which a process that died may have written. No effect
    /// on new memory.
    pub(crate) fn sweep(&self, store: &Store) {
        self.with_state(|state| state.sweep(store));
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
