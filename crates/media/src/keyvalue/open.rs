//! Pairs in a file: its size, and recovery.

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::{MemfdFlags, ftruncate, memfd_create};

use super::log::{KEY_IN_LOG, Log, NUMBER};
use super::logged::LoggedPairs;
use super::numbers::Ends;
use super::records::replay;
use super::space::Space;
use super::{Dialect, KeyValue, default_keys};
use crate::error::MediumError;
use crate::file::{Direct, FileIo, FileMedium, FileStorage};
use crate::journal::{Journal, Kind, Layout, MISPLACED, SHAPE_WORDS, Shape, StateError};
use crate::size::Bytes;

/// Size of the largest frame of the log: the data of a command, and its keys.
const FRAME_LEN: u32 = 4 << 20 | 64 << 10;
/// Ratio of the log's size to that of all pairs in the log: a checkpoint is at most twice as long
/// as its contents, and while it is made the previous one still exists, and may have become as long
/// again.
const STATES: u64 = 5;
const FRAMES: u64 = 16;

/// The file of pairs that are kept.
#[derive(Debug)]
pub(super) struct OnFile {
    pub(super) medium: Arc<FileMedium>,
    pub(super) storage: FileStorage,
    /// The file itself, if it is memory that outlives the process.
    pub(super) memory: Option<OwnedFd>,
    /// Whether another process continues if this one dies.
    pub(super) outlives: bool,
}

/// Opens a file with pairs, or creates it; returns the pairs, and the maximum number of keys.
///
/// # Errors
/// [`MediumError::Memory`], those of files, and [`MediumError::State`].
pub(super) fn open(
    path: &Path,
    (size, keys): (u64, Option<u32>),
    dialect: Dialect,
    outlives: bool,
) -> Result<(KeyValue, u32, OnFile), MediumError> {
    let io = FileIo {
        register_memory: false,
        survives: outlives,
        ..FileIo::default()
    };
    if size > Space::MAX_BYTES {
        let source = io::ErrorKind::OutOfMemory.into();
        return Err(MediumError::Memory { size, source });
    }
    let new_keys = keys.unwrap_or_else(|| default_keys(size));
    let layout = layout(size, new_keys);
    let file = match FileMedium::open(path, None, Direct::Auto, io) {
        Err(MediumError::Missing { .. }) => {
            FileMedium::open(path, Some(layout.file_len()), Direct::Auto, io)?
        }
        file => file?,
    };
    let failed = |source: StateError| MediumError::State {
        path: path.into(),
        source,
    };
    let storage = file.storage().map_err(|error| failed(error.into()))?;
    let Some(storage) = storage else {
        return Err(MediumError::NotAFile {
            path: path.into(),
            what: "a block device, which has no room for the log of keys",
        });
    };
    let wanted = shape(size, new_keys, dialect);
    let superblock =
        Journal::find_or_create(&storage, file.size(), wanted, layout).map_err(failed)?;
    let keys = check(superblock.shape, wanted, keys).map_err(failed)?;
    // A log for that many keys is large, so the file must be, too.
    if superblock.layout != self::layout(size, keys) {
        return Err(failed(MISPLACED));
    }
    let mut pairs =
        LoggedPairs::new(size, keys).map_err(|source| MediumError::Memory { size, source })?;
    let mut ends = Ends::default();
    let journal = Journal::recover(&storage, superblock, true, |kind, record| match kind {
        NUMBER => ends.take(record),
        kind => replay(&mut pairs, kind, record),
    });
    let mut log = Log::new(journal.map_err(failed)?);
    if outlives {
        log.number(ends);
    }
    pairs.set_log(log);
    let on_file = OnFile {
        medium: Arc::new(file),
        storage,
        memory: None,
        outlives,
    };
    Ok((KeyValue::of(pairs, dialect), keys, on_file))
}

/// The same with a file in memory, which outlives the process: with `left`, if another process has
/// left it.
///
/// # Errors
/// As [`open`].
pub(super) fn open_memory(
    left: Option<OwnedFd>,
    (size, keys): (u64, Option<u32>),
    dialect: Dialect,
) -> Result<(KeyValue, u32, OnFile), MediumError> {
    let new = || -> io::Result<OwnedFd> {
        let file = memfd_create("nvmirage-keys", MemfdFlags::CLOEXEC)?;
        let keys = keys.unwrap_or_else(|| default_keys(size));
        ftruncate(&file, layout(size.min(Space::MAX_BYTES), keys).file_len())?;
        Ok(file)
    };
    let memory = left.map_or_else(new, Ok);
    let memory = memory.map_err(|source| MediumError::Memory { size, source })?;
    // An open file of its own, which has the lock.
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let (pairs, keys, mut file) = open(Path::new(&path), (size, keys), dialect, true)?;
    file.memory = Some(memory);
    Ok((pairs, keys, file))
}

pub(super) fn layout(size: u64, keys: u32) -> Layout {
    let state = size + u64::from(keys) * KEY_IN_LOG;
    let frame = u64::from(FRAME_LEN);
    Layout {
        ring: 0,
        ring_len: (STATES * state + FRAMES * frame).next_multiple_of(frame),
        frame_len: FRAME_LEN,
    }
}

fn shape(size: u64, keys: u32, dialect: Dialect) -> Shape {
    let mut words = [0; SHAPE_WORDS];
    words[0] = size;
    words[1] = keys.into();
    words[2] = match dialect {
        Dialect::Nvme => 0,
        Dialect::Samsung => 1,
    };
    Shape {
        kind: Kind::KeyValue,
        words,
    }
}

/// Compares the file's shape with the configured one; returns the maximum number of keys.
fn check(found: Shape, wanted: Shape, keys: Option<u32>) -> Result<u32, StateError> {
    let differs = |what, found: String, configured: String| {
        Err(StateError::Differs {
            what,
            found,
            configured,
        })
    };
    if found.kind != wanted.kind {
        return differs(
            "kind of state",
            found.kind.to_string(),
            wanted.kind.to_string(),
        );
    }
    let ([size, has, speaks, ..], [its_size, most, spoken, ..]) = (found.words, wanted.words);
    if size != its_size {
        return differs("size", Bytes(size).to_string(), Bytes(its_size).to_string());
    }
    if speaks != spoken {
        let name = |word| if word == 0 { "nvme" } else { "samsung" };
        return differs("dialect", name(speaks).to_owned(), name(spoken).to_owned());
    }
    if keys.is_some() && has != most {
        return differs("number of keys", has.to_string(), most.to_string());
    }
    u32::try_from(has).map_err(|_| StateError::Damaged("its number of keys cannot be"))
}
