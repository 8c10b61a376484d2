//! A controller that moves to another server: what it gives, and what it takes.
//!
//! Given is what a process that died leaves (`restore`): the state file, and the doorbells. A
//! process that died leaves its counters to the subsystem's record, and an old state file has no
//! room for the MSI-X table, so both are given, too. So are the saved values of features, which are
//! in the subsystem's record: they replace those of the controller that takes the state. The host's
//! memory and the bytes of media are not given: the host has the one, and both servers reach the
//! other.
//!
//! Invariants:
//! - Only a controller that has halted gives its state: no command is in any stage, so nothing is
//!   executed again.
//! - A stream is taken only by a controller that the host cannot tell from the one that gave it
//!   ([`Controller::appearance`]).
//! - Any bytes may be taken: a wrong stream is an error, and changes nothing.

mod features;
mod stream;

use std::sync::Arc;

use memory::{DmaView, DoorbellPages, OpenError, StateFile};
use subsystem::{HealthRecord, SavedFeatures, Subsystem};

pub use self::stream::MAX_STREAM_LEN;
use super::{Controller, Left, RestoreError};
use crate::config::ControllerConfig;
use crate::lane::LaneTable;

/// Bytes of a page of the state file.
const PAGE: usize = 4096;
/// Largest state file: its lanes' areas, with room for more.
const MAX_FILE_LEN: u64 = 2 * MAX_STREAM_LEN as u64;
/// Longest place of media, in bytes: few words for each.
const MAX_PLACE_LEN: usize = 4096;
/// Characters of a client's text in a log line.
const MAX_SHOWN: usize = 300;

/// Why a controller's state cannot be given or taken.
#[derive(Debug, thiserror::Error)]
pub enum MigrateError {
    /// It still serves.
    #[error("commands are in flight: stop the device first")]
    Busy,
    /// More bytes than any state has.
    #[error("the state has more than {MAX_STREAM_LEN} bytes")]
    TooLong,
    /// Its end is missing.
    #[error("the end of the state is missing: write all of it")]
    Truncated,
    /// It does not begin as a state does.
    #[error("these bytes are not the state of a controller of nvmirage")]
    Magic,
    /// Another version.
    #[error(
        "the state has version {found}, and this program takes {} to {}: migrate to the newer program",
        stream::OLDEST,
        stream::VERSION
    )]
    Version {
        /// The version that it has.
        found: u32,
    },
    /// It is not as it was sent.
    #[error("the state is damaged: {0}")]
    Damaged(&'static str),
    /// It is of a controller that the host can tell from this one.
    #[error(
        "the state is of another drive: it has {theirs}, and this controller has {ours}: configure both servers alike"
    )]
    Other {
        /// Value of the other one, or the statement that it has nothing more.
        theirs: String,
        /// Value of this one.
        ours: String,
    },
    /// Another server has the media, and so the state.
    #[error("another server has the controller's medium, and the state: ask that one")]
    Elsewhere,
    /// The locks of the media cannot be had, or they cannot be made durable.
    #[error("its medium: {0}")]
    Media(String),
    /// The target has other media.
    #[error("the state is of another medium: {0}")]
    OtherMedia(String),
    /// They were not made durable in time.
    #[error("its medium is not durable within 4.5 s of the request: try again")]
    NotDurable,
    /// The subsystem has something that does not move.
    #[error("subsystem: {0}, which does not move with a controller")]
    Kept(String),
    /// The state file cannot be read or made.
    #[error(transparent)]
    File(#[from] OpenError),
    /// The state contradicts itself, or its queues are not in the host's memory.
    #[error(transparent)]
    Restore(#[from] RestoreError),
}

/// The state of a controller of another server, checked as far as that needs no controller.
#[derive(Debug)]
pub struct Moved {
    file: Arc<StateFile>,
    doorbells: Vec<u32>,
    msix: Vec<u8>,
    health: HealthRecord,
    place: String,
    features: SavedFeatures,
}

impl Moved {
    /// Where the media are that the state belongs to, as the server that gave it has said.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// Reads a stream, for a controller with this appearance.
    ///
    /// # Errors
    /// [`MigrateError`].
    pub fn read(stream: &[u8], appearance: &str) -> Result<Self, MigrateError> {
        let [theirs, file, doorbells, msix, health, place, features] = stream::read(stream)?;
        compare(theirs, appearance)?;
        let (doorbells, rest) = doorbells.as_chunks();
        if !rest.is_empty() {
            return Err(MigrateError::Damaged("a doorbell is not whole"));
        }
        Ok(Self {
            file: read_file(file)?,
            doorbells: doorbells
                .iter()
                .map(|four| u32::from_le_bytes(*four))
                .collect(),
            msix: msix.to_vec(),
            health: read_health(health)?,
            place: read_place(place)?,
            features: features::read(features)?,
        })
    }
}

impl Controller {
    /// Properties of the controller and its namespaces that a host can see and may rely on, one a
    /// line. The firmware's revision is not among them: a drive may move to another version.
    #[must_use]
    pub fn appearance(&self) -> String {
        use std::fmt::Write as _;

        let ControllerConfig {
            name: _,
            vendor_id,
            device_id,
            serial,
            model_number,
            firmware_revision: _,
            subnqn,
            queues,
            queue_depth,
            max_transfer,
            doorbells,
            msix,
            intx,
            // Only PCI functions move.
            interface: _,
        } = &self.config;
        let mut lines = format!(
            "subnqn {subnqn}\nserial {serial}\nmodel {model_number}\ncontroller id {}\nvendor \
             {vendor_id:#06x}\ndevice {device_id:#06x}\nqueues {queues}\nqueue_depth \
             {queue_depth}\nmax_transfer {max_transfer}\ndoorbells {doorbells:?}\nmsix \
             {msix}\nintx {intx}\n",
            self.id.0
        );
        for namespace in self.attached.table.iter() {
            let n = namespace;
            let named = writeln!(
                lines,
                "namespace {} of {} blocks of {} bytes, nguid {:032x}, eui64 {:016x}, set {:?}",
                n.nsid,
                n.blocks,
                1_u64 << n.lba_shift,
                u128::from_be_bytes(n.nguid),
                u64::from_be_bytes(n.eui64),
                n.csi(),
            );
            named.expect("a string takes everything");
        }
        lines
    }

    /// The state of a controller that has halted, for one on another server. `place` says where its
    /// media are, in the server's words.
    ///
    /// # Errors
    /// [`MigrateError::Busy`]; the system's.
    pub fn give(&mut self, place: &str) -> Result<Vec<u8>, MigrateError> {
        if !self.has_halted() {
            return Err(MigrateError::Busy);
        }
        self.save();
        let file = write_file(self.saved.file())?;
        let slots = 0..self.config.doorbell_slots();
        let doorbells = slots.map(|slot| self.doorbells.pages.load(slot).to_le_bytes());
        let sections = [
            self.appearance().into_bytes(),
            file,
            doorbells.flatten().collect(),
            self.function.msix.table().to_vec(),
            write_health(self.health().counted),
            place.as_bytes().to_vec(),
            features::write(&self.features.saved(&self.feature_context())),
        ];
        let stream = stream::write(&sections);
        if stream.len() > MAX_STREAM_LEN {
            return Err(MigrateError::TooLong);
        }
        Ok(stream)
    }

    /// A controller with the state of one on another server, in the place of a former one, which
    /// has left the subsystem. It is halted. The host rings in `doorbells` from now on.
    ///
    /// # Errors
    /// [`MigrateError`]. Neither `subsystem` nor `lanes` has the controller then.
    pub fn take(
        config: ControllerConfig,
        moved: Moved,
        doorbells: Arc<DoorbellPages>,
        view: Arc<DmaView>,
        subsystem: &mut Subsystem,
        lanes: &mut impl LaneTable,
    ) -> Result<Self, MigrateError> {
        let Moved {
            file,
            doorbells: rung,
            msix,
            health,
            place: _,
            features,
        } = moved;
        let slots = config.doorbell_slots();
        if rung.len() != slots || doorbells.slots() < slots {
            return Err(MigrateError::Damaged("it has another number of doorbells"));
        }
        if msix.len() != usize::from(config.msix_vectors()) * 16 {
            return Err(MigrateError::Damaged("it has another number of vectors"));
        }
        for (slot, value) in rung.into_iter().enumerate() {
            doorbells.store(slot, value);
        }
        let left = Left {
            file,
            doorbells,
            view,
            crashed: false,
        };
        let before = subsystem.save_features(&config.name, features);
        let name = config.name.clone();
        let restored = Self::restore(config, left, subsystem, lanes);
        let mut controller = restored.inspect_err(|_| {
            // The host finds the controller as it was.
            if let Some(before) = before {
                subsystem.save_features(&name, before);
            }
        })?;
        controller.health.continue_life(&health);
        controller.function.msix.restore(&msix);
        controller.bus.moved = true;
        controller.halt(true);
        Ok(controller)
    }
}

fn read_place(place: &[u8]) -> Result<String, MigrateError> {
    let wrong = MigrateError::Damaged("the place of its media is no short text");
    match str::from_utf8(place) {
        Ok(place) if place.len() <= MAX_PLACE_LEN => Ok(place.to_owned()),
        _ => Err(wrong),
    }
}

/// Text of a client for a log line: of bounded length, and without control characters.
fn shown(text: &str) -> String {
    let start = text.chars().take(MAX_SHOWN);
    start.flat_map(char::escape_debug).collect()
}

/// Finds the first property that two controllers do not share.
fn compare(theirs: &[u8], ours: &str) -> Result<(), MigrateError> {
    let theirs = std::str::from_utf8(theirs);
    let theirs = theirs.map_err(|_| MigrateError::Damaged("its first section is no text"))?;
    if theirs == ours {
        return Ok(());
    }
    let (mut left, mut right) = (theirs.lines(), ours.lines());
    loop {
        let (theirs, ours) = (left.next(), right.next());
        if theirs != ours || theirs.is_none() {
            let shown = |line: Option<&str>| shown(line.unwrap_or("no other namespace"));
            return Err(MigrateError::Other {
                theirs: shown(theirs),
                ours: shown(ours),
            });
        }
    }
}

/// The length of the file, and each page that is not all zero, after its offset.
fn write_file(file: &StateFile) -> Result<Vec<u8>, MigrateError> {
    let pages = file.pages().map_err(OpenError::from)?;
    let mut bytes = Vec::with_capacity(8 + pages.len() * (8 + PAGE));
    bytes.extend((file.file_len() as u64).to_le_bytes());
    for (offset, page) in pages {
        bytes.extend(offset.to_le_bytes());
        bytes.extend(page);
    }
    Ok(bytes)
}

fn read_file(bytes: &[u8]) -> Result<Arc<StateFile>, MigrateError> {
    let Some((len, pages)) = bytes.split_first_chunk() else {
        return Err(MigrateError::Damaged("it has no state file"));
    };
    let len = u64::from_le_bytes(*len);
    if len > MAX_FILE_LEN || !pages.len().is_multiple_of(8 + PAGE) {
        return Err(MigrateError::Damaged("its state file has an odd length"));
    }
    let pages = pages.chunks_exact(8 + PAGE).map(|bytes| {
        let (offset, page) = bytes.split_at(8);
        let offset = offset.try_into().expect("eight bytes");
        (u64::from_le_bytes(offset), page)
    });
    Ok(StateFile::from_pages("nvmirage-moved", len, pages)?)
}

fn write_health(mut health: HealthRecord) -> Vec<u8> {
    let counters = health.counters().into_iter();
    counters.flat_map(|counter| counter.to_le_bytes()).collect()
}

fn read_health(bytes: &[u8]) -> Result<HealthRecord, MigrateError> {
    let mut health = HealthRecord::default();
    let counters = health.counters();
    let (words, rest) = bytes.as_chunks::<8>();
    if words.len() != counters.len() || !rest.is_empty() {
        return Err(MigrateError::Damaged("its counters have another length"));
    }
    for (counter, word) in counters.into_iter().zip(words) {
        *counter = u64::from_le_bytes(*word);
    }
    Ok(health)
}
