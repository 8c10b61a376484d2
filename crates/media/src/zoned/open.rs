//! Zones on a file: their share of it, and recovery.

use std::path::Path;
use std::sync::Arc;

use memory::StateFile;
use port::set::Zoned;

use super::keeper::{Keeper, ZONE_IN_LOG};
use super::zones::{Geometry, Zones};
use super::{State, ZoneSpec};
use crate::error::MediumError;
use crate::file::{Direct, FileIo, FileMedium, FileStorage};
use crate::journal::{
    Journal, Kind, Layout, MISPLACED, SHAPE_WORDS, Shape, StateError, Storage, Superblock,
};
use crate::kept::Kept;
use crate::size::Bytes;

/// Bytes of the largest frame of the log.
const FRAME_LEN: u32 = 64 << 10;
/// Ratio of the log's size to that of all zones in the log: a checkpoint is at most twice as long
/// as its contents, and while it is made the previous one still exists, and may have become as long
/// again.
const STATES: u64 = 5;
const FRAMES: u64 = 16;

/// Zones of a file, and the file for blocking calls.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) state: State,
    pub(super) storage: FileStorage,
    /// Bytes of the zones.
    pub(super) size: u64,
    pub(super) geometry: Geometry,
    pub(super) set: Zoned,
    /// The memory with which another process continues.
    pub(super) kept: Option<Arc<StateFile>>,
}

/// Opens a file with zones, or creates it.
///
/// # Errors
/// Those of files and zones, and [`MediumError::State`].
pub(super) fn open(
    path: &Path,
    size: Option<u64>,
    (direct, io): (Direct, FileIo),
    (spec, kept): (&ZoneSpec, Kept),
) -> Result<(FileMedium, Opened), MediumError> {
    if let Some(size) = size {
        spec.check(size)?;
    }
    let file = match (FileMedium::open(path, None, direct, io), size) {
        (Err(MediumError::Missing { .. }), Some(size)) => {
            let len = layout(spec, size)?.file_len();
            FileMedium::open(path, Some(len), direct, io)?
        }
        (file, _) => file?,
    };
    let opened = take(&file, size, (spec, kept))?;
    Ok((file, opened))
}

fn layout(spec: &ZoneSpec, size: u64) -> Result<Layout, MediumError> {
    let (Geometry { zones, .. }, _) = spec.zones(size)?;
    let zone = ZONE_IN_LOG + u64::from(spec.descriptor_extension);
    let frame = u64::from(FRAME_LEN);
    let ring_len = (STATES * u64::from(zones) * zone + FRAMES * frame).next_multiple_of(frame);
    Ok(Layout {
        ring: size,
        ring_len,
        frame_len: FRAME_LEN,
    })
}

fn shape(spec: &ZoneSpec, size: u64) -> Shape {
    let mut words = [0; SHAPE_WORDS];
    words[0] = size;
    words[1] = spec.zone_size;
    words[2] = spec.zone_capacity;
    words[3] = spec.descriptor_extension.into();
    Shape {
        kind: Kind::Zoned,
        words,
    }
}

fn take(
    file: &FileMedium,
    size: Option<u64>,
    (spec, kept): (&ZoneSpec, Kept),
) -> Result<Opened, MediumError> {
    let path = file.path();
    let failed = |source: StateError| MediumError::State {
        path: path.into(),
        source,
    };
    let storage = file.storage().map_err(|error| failed(error.into()))?;
    let Some(storage) = storage else {
        let what = "over a device they would not be kept: they lie over null, ram or a file";
        return Err(MediumError::Zones { what });
    };
    let superblock = match size {
        Some(size) => Journal::find_or_create(
            &storage,
            file.size(),
            shape(spec, size),
            layout(spec, size)?,
        ),
        None => Superblock::read(&storage, file.size()),
    };
    let superblock = superblock.map_err(failed)?;
    check(superblock.shape, size, spec).map_err(failed)?;
    let size = superblock.shape.words[0];
    if superblock.layout != layout(spec, size)? {
        return Err(failed(MISPLACED));
    }
    let (geometry, set) = spec.zones(size)?;
    let mut state = State::new(Zones::new(geometry), &set);
    let journal = Journal::recover(&storage, superblock, false, |kind, record| {
        state.replay(kind, record)
    });
    let journal = journal.map_err(failed)?;
    state.keeper = Some(Keeper::new(journal, &state.zones));
    let kept = state.keep(kept)?;
    sweep(&state.zones, &storage).map_err(|error| failed(error.into()))?;
    // Reserves space so that a reset can be recorded on a full disk, and free space. If that fails
    // now, a reset may find no space.
    if let Err(error) = storage.allocate(superblock.layout.ring, superblock.layout.ring_len) {
        tracing::debug!(%error, "no space is set aside for the log of zones");
    }
    Ok(Opened {
        state,
        storage,
        size,
        geometry,
        set,
        kept,
    })
}

/// Compares the file's shape with the configured one.
fn check(found: Shape, size: Option<u64>, spec: &ZoneSpec) -> Result<(), StateError> {
    let differs = |what, found: String, configured: String| {
        Err(StateError::Differs {
            what,
            found,
            configured,
        })
    };
    if found.kind != Kind::Zoned {
        return differs(
            "kind of state",
            found.kind.to_string(),
            Kind::Zoned.to_string(),
        );
    }
    let configured = shape(spec, size.unwrap_or(found.words[0])).words;
    let names = ["size", "zone size", "zone capacity", "descriptor extension"];
    for ((what, found), configured) in names.into_iter().zip(found.words).zip(configured) {
        if found != configured {
            return differs(
                what,
                Bytes(found).to_string(),
                Bytes(configured).to_string(),
            );
        }
    }
    Ok(())
}

/// Zeroes all data after write pointers, durably, so that it does not come back before a later
/// write pointer.
///
/// # Errors
/// The system's.
pub(super) fn sweep(zones: &Zones, storage: &impl Storage) -> std::io::Result<()> {
    let Geometry {
        zone_bytes,
        zones: count,
        ..
    } = *zones.geometry();
    // The next byte that may differ from zero.
    let (mut next, mut cleared) = (0, false);
    let end = zone_bytes * u64::from(count);
    for zone in 0..count {
        let (from, to) = (
            zones.start(zone) + zones.get(zone).reached,
            zones.start(zone) + zone_bytes,
        );
        if next < from {
            match storage.find_data(from, end)? {
                Some(data) => next = data,
                None => break,
            }
        }
        if next < to {
            storage.clear(next.max(from), to - next.max(from))?;
            (next, cleared) = (to, true);
        }
    }
    if cleared { storage.sync() } else { Ok(()) }
}
