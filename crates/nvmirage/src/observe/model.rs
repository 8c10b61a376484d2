//! What is counted of media: of the model that says when a medium's commands are done, of its zones, of its pairs.

use std::collections::BTreeMap;

use media::{Asked, PairsLook, Stalls, TimingLook, ZonesLook};
use model::{Flash, Model};
use nvme_spec::zoned::ZoneState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The drive whose time a medium has, and what it has done since it is served.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ModelStatus {
    /// `flash`, `zns`, `nvm` or `kv`.
    pub(crate) kind: String,
    /// Operations that it was asked for.
    pub(crate) commands: AskedStatus,
    /// Times in which it took no more writes, as its buffer was full.
    pub(crate) stalls: StallStatus,
    /// Its servers, by kind.
    pub(crate) servers: Vec<ServerStatus>,
    /// What these did, in the order of the servers.
    pub(crate) busy: Vec<BusyStatus>,
    /// Its write buffer, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) buffer: Option<BufferStatus>,
    /// Of conventional flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flash: Option<FlashStatus>,
}

/// Operations that a model was asked for. A command may be several, as Copy is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AskedStatus {
    /// Reads and compares.
    pub(crate) read: u64,
    /// Writes, and appends to zones.
    pub(crate) write: u64,
    /// Deallocations and Write Zeroes.
    pub(crate) deallocate: u64,
    /// Flushes.
    pub(crate) flush: u64,
    /// What is done to zones apart from that.
    pub(crate) zone: u64,
    /// Operations on keys.
    pub(crate) key: u64,
}

/// Times without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StallStatus {
    /// How many began.
    pub(crate) count: u64,
    /// Nanoseconds of those that have ended.
    pub(crate) time_ns: u64,
}

/// Servers of a kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServerStatus {
    /// `die`, `channel`, `link`, `pipeline` or `unit`.
    pub(crate) server: String,
    /// How many there are.
    pub(crate) count: u64,
}

/// What servers of a kind did of one work.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct BusyStatus {
    /// Which.
    pub(crate) server: String,
    /// `sense`, `program`, `erase`, `transfer`, `to_host`, `from_host`, `read` or `write`.
    pub(crate) work: String,
    /// How often.
    pub(crate) operations: u64,
    /// Nanoseconds of all of them together. They count when they are asked for, and so run ahead by what is queued.
    pub(crate) busy_ns: u64,
}

/// A write buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct BufferStatus {
    /// Its bytes; of all zones together where each has its own.
    pub(crate) bytes: u64,
    /// Those that are taken.
    pub(crate) used_bytes: u64,
}

/// What is counted of conventional flash, all partitions together. Pages are of 4096 bytes. Pages and erases are kept with the drive's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FlashStatus {
    /// Pages that hosts wrote.
    pub(crate) host_pages: u64,
    /// Pages that collection wrote again.
    pub(crate) collected_pages: u64,
    /// Lines that were collected since the server started.
    pub(crate) collections: CollectionStatus,
    /// Lines that were erased.
    pub(crate) erased_lines: u64,
    /// Lines now.
    pub(crate) lines: LineStatus,
    /// How often lines were erased.
    pub(crate) wear: WearStatus,
    /// Pages that hold something.
    pub(crate) valid_pages: u64,
    /// The cache of single-bit cells, where it has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slc: Option<SlcStatus>,
    /// Pages of the map that were not in memory.
    pub(crate) map_misses: u64,
}

/// Why lines were collected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct CollectionStatus {
    /// A host wrote, and its command waited for what that asked of the dies.
    pub(crate) foreground: u64,
    /// Nobody asked for anything.
    pub(crate) background: u64,
}

/// Lines of all partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LineStatus {
    /// Lines without a page.
    pub(crate) free: u64,
    /// Lines that are being written.
    pub(crate) open: u64,
    /// Lines that are full.
    pub(crate) full: u64,
    /// All.
    pub(crate) all: u64,
    /// Free lines of the partition that has the fewest.
    pub(crate) fewest_free: u64,
}

/// Erases of lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WearStatus {
    /// Of the line that was erased least.
    pub(crate) least: u64,
    /// Mean of all lines.
    pub(crate) mean: f64,
    /// Of the line that was erased most.
    pub(crate) most: u64,
}

/// A cache of single-bit cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SlcStatus {
    /// Pages that it takes.
    pub(crate) pages: u64,
    /// Pages of wordlines that are in it.
    pub(crate) used_pages: u64,
    /// Pages of wordlines that were folded out of it since the server started.
    pub(crate) folded_pages: u64,
}

/// Zones of a medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ZonesStatus {
    /// How many.
    pub(crate) zones: u32,
    /// Bytes from one to the next.
    pub(crate) zone_bytes: u64,
    /// Bytes of one that can be written.
    pub(crate) capacity_bytes: u64,
    /// Zones that are open, and how many may be; 0: any number.
    pub(crate) open: u32,
    /// See there.
    pub(crate) max_open: u32,
    /// Zones that are open or closed, and how many may be; 0: any number.
    pub(crate) active: u32,
    /// See there.
    pub(crate) max_active: u32,
    /// Random write areas, where zones can have some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) random_areas: Option<RandomAreaStatus>,
    /// Zones by their state.
    pub(crate) states: BTreeMap<String, u32>,
}

/// Random write areas of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RandomAreaStatus {
    /// Zones that have one.
    pub(crate) used: u32,
    /// Zones that may.
    pub(crate) most: u32,
    /// Bytes of one.
    pub(crate) bytes: u32,
}

/// Keys and values of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PairsStatus {
    /// Pairs.
    pub(crate) pairs: u64,
    /// How many there may be.
    pub(crate) most_pairs: u64,
    /// Bytes of all keys.
    pub(crate) key_bytes: u64,
    /// Bytes of all values.
    pub(crate) value_bytes: u64,
    /// Bytes that values and the ends of long keys take, in whole units.
    pub(crate) used_bytes: u64,
    /// Bytes that are free.
    pub(crate) free_bytes: u64,
    /// Bytes of a unit.
    pub(crate) unit_bytes: u64,
    /// Bytes of memory that entries of the index take.
    pub(crate) index_bytes: u64,
}

/// What lines were found to be like, one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinesSeen {
    pub(super) least: Option<u32>,
    pub(super) most: u32,
    pub(super) valid: u64,
}

/// The states of zones, with their words (ZNS 1.1, figure 34).
pub(super) const ZONE_STATES: [(ZoneState, &str); 7] = [
    (ZoneState::EMPTY, "empty"),
    (ZoneState::IMPLICITLY_OPENED, "implicitly-opened"),
    (ZoneState::EXPLICITLY_OPENED, "explicitly-opened"),
    (ZoneState::CLOSED, "closed"),
    (ZoneState::FULL, "full"),
    (ZoneState::READ_ONLY, "read-only"),
    (ZoneState::OFFLINE, "offline"),
];

/// The word of a zone's state.
pub(super) fn zone_word(state: ZoneState) -> &'static str {
    let mut states = ZONE_STATES.iter();
    let found = states.find(|(its, _)| *its == state);
    found.map_or("reserved", |(_, word)| word)
}

impl ModelStatus {
    /// Of a drive whose lines were seen.
    pub(super) fn of(look: &TimingLook<'_>, lines: &LinesSeen) -> Self {
        let TimingLook {
            model,
            asked,
            stalls,
        } = *look;
        let activity = model.activity();
        let servers = activity.servers.iter().map(|(server, count)| ServerStatus {
            server: server.word().to_owned(),
            count: *count,
        });
        let busy = activity.busy.iter().map(|busy| BusyStatus {
            server: busy.server.word().to_owned(),
            work: busy.work.word().to_owned(),
            operations: busy.operations,
            busy_ns: busy.busy_ns,
        });
        ModelStatus {
            kind: model.kind().name().to_owned(),
            commands: asked.into(),
            stalls: stalls.into(),
            servers: servers.collect(),
            busy: busy.collect(),
            buffer: Model::buffer(model)
                .map(|(bytes, used_bytes)| BufferStatus { bytes, used_bytes }),
            flash: model.flash().map(|flash| FlashStatus::of(flash, lines)),
        }
    }
}

impl From<Asked> for AskedStatus {
    fn from(asked: Asked) -> Self {
        let Asked {
            reads,
            writes,
            deallocations,
            flushes,
            zone_actions,
            keys,
        } = asked;
        AskedStatus {
            read: reads,
            write: writes,
            deallocate: deallocations,
            flush: flushes,
            zone: zone_actions,
            key: keys,
        }
    }
}

impl From<Stalls> for StallStatus {
    fn from(Stalls { count, time_ns }: Stalls) -> Self {
        StallStatus { count, time_ns }
    }
}

impl FlashStatus {
    fn of(flash: &Flash, seen: &LinesSeen) -> Self {
        let counters = flash.counters();
        let collections = flash.collections();
        let mut lines = LineStatus {
            fewest_free: flash.free_lines() as u64,
            ..LineStatus::default()
        };
        for partition in flash.partitions() {
            lines.free += partition.lines.free() as u64;
            lines.open += partition.open.iter().flatten().count() as u64;
            lines.full += partition.full() as u64;
            lines.all += partition.lines.all().len() as u64;
        }
        FlashStatus {
            host_pages: counters.host_pages,
            collected_pages: counters.collected_pages,
            collections: CollectionStatus {
                foreground: collections.foreground,
                background: collections.background,
            },
            erased_lines: counters.erased_lines,
            lines,
            wear: WearStatus {
                least: seen.least.unwrap_or_default().into(),
                mean: counters.erased_lines as f64 / lines.all.max(1) as f64,
                most: seen.most.into(),
            },
            valid_pages: seen.valid,
            slc: flash.slc().map(|slc| SlcStatus {
                pages: slc.pages,
                used_pages: slc.used_pages,
                folded_pages: counters.folded_pages,
            }),
            map_misses: counters.map_misses,
        }
    }
}

impl ZonesStatus {
    pub(super) fn of(look: &ZonesLook<'_>) -> Self {
        let all = look.all();
        let states = ZONE_STATES.iter();
        ZonesStatus {
            zones: all.zones,
            zone_bytes: all.zone_bytes,
            capacity_bytes: all.capacity,
            open: all.open,
            max_open: all.max_open,
            active: all.active,
            max_active: all.max_active,
            random_areas: (all.max_random > 0).then_some(RandomAreaStatus {
                used: all.random,
                most: all.max_random,
                bytes: all.random_bytes,
            }),
            states: states
                .map(|(state, word)| ((*word).to_owned(), look.count(*state)))
                .collect(),
        }
    }
}

impl From<PairsLook> for PairsStatus {
    fn from(look: PairsLook) -> Self {
        PairsStatus {
            pairs: look.pairs.into(),
            most_pairs: look.max_pairs.into(),
            key_bytes: look.key_bytes,
            value_bytes: look.value_bytes,
            used_bytes: look.used_bytes,
            free_bytes: look.bytes - look.used_bytes,
            unit_bytes: look.unit_bytes,
            index_bytes: look.index_bytes,
        }
    }
}
