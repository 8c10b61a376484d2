//! Status of timing models, zones, and key-value pairs.

use std::collections::BTreeMap;

use media::{Asked, PairsLook, Stalls, TimingLook, ZonesLook};
use model::{Flash, Model};
use nvme_spec::zoned::ZoneState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Timing model of a medium, with counters since the medium was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ModelStatus {
    /// Kind of the model: `flash`, `zns`, `nvm` or `kv`.
    pub(crate) kind: String,
    /// Operations requested.
    pub(crate) commands: AskedStatus,
    /// Periods in which the model accepted no writes because its buffer was full.
    pub(crate) stalls: StallStatus,
    /// Servers, by kind.
    pub(crate) servers: Vec<ServerStatus>,
    /// Work of the servers, in the same order.
    pub(crate) busy: Vec<BusyStatus>,
    /// Write buffer, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) buffer: Option<BufferStatus>,
    /// Counters of conventional flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flash: Option<FlashStatus>,
}

/// Operations requested of a model. One command may be several, such as Copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct AskedStatus {
    /// Reads and compares.
    pub(crate) read: u64,
    /// Writes and zone appends.
    pub(crate) write: u64,
    /// Deallocations and Write Zeroes.
    pub(crate) deallocate: u64,
    /// Flushes.
    pub(crate) flush: u64,
    /// Other zone operations.
    pub(crate) zone: u64,
    /// Key operations.
    pub(crate) key: u64,
}

/// Periods without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct StallStatus {
    /// Number of periods that began.
    pub(crate) count: u64,
    /// Duration of the periods that ended, in nanoseconds.
    pub(crate) time_ns: u64,
}

/// Servers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ServerStatus {
    /// Kind: `die`, `channel`, `link`, `pipeline` or `unit`.
    pub(crate) server: String,
    /// Number of servers.
    pub(crate) count: u64,
}

/// One type of work of the servers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct BusyStatus {
    /// Kind of the servers.
    pub(crate) server: String,
    /// Type of work: `sense`, `program`, `erase`, `transfer`, `to_host`, `from_host`, `read` or
    /// `write`.
    pub(crate) work: String,
    /// Number of operations.
    pub(crate) operations: u64,
    /// Busy time summed over the servers, in nanoseconds. Operations count when they are requested,
    /// so this runs ahead by the work that is queued.
    pub(crate) busy_ns: u64,
}

/// Write buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct BufferStatus {
    /// Size in bytes; where each zone has its own buffer, the sum.
    pub(crate) bytes: u64,
    /// Bytes in use.
    pub(crate) used_bytes: u64,
}

/// Counters of conventional flash, summed over all partitions. Pages have 4096 bytes. Counts of
/// pages and erases are saved with the drive's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FlashStatus {
    /// Pages written by hosts.
    pub(crate) host_pages: u64,
    /// Pages rewritten by collection.
    pub(crate) collected_pages: u64,
    /// Lines collected since the server started.
    pub(crate) collections: CollectionStatus,
    /// Lines erased.
    pub(crate) erased_lines: u64,
    /// Lines by their current state.
    pub(crate) lines: LineStatus,
    /// Erases per line.
    pub(crate) wear: WearStatus,
    /// Valid pages.
    pub(crate) valid_pages: u64,
    /// Cache of single-bit cells, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slc: Option<SlcStatus>,
    /// Map pages that were not in memory.
    pub(crate) map_misses: u64,
}

/// Collected lines, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct CollectionStatus {
    /// Host writes that waited for the collection.
    pub(crate) foreground: u64,
    /// Idle time.
    pub(crate) background: u64,
}

/// Lines of all partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LineStatus {
    /// Lines without a page.
    pub(crate) free: u64,
    /// Lines being written.
    pub(crate) open: u64,
    /// Full lines.
    pub(crate) full: u64,
    /// All lines.
    pub(crate) all: u64,
    /// Free lines of the partition with the fewest.
    pub(crate) fewest_free: u64,
}

/// Erases per line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct WearStatus {
    /// Erases of the least erased line.
    pub(crate) least: u64,
    /// Mean of all lines.
    pub(crate) mean: f64,
    /// Erases of the most erased line.
    pub(crate) most: u64,
}

/// Cache of single-bit cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct SlcStatus {
    /// Pages reserved for the cache.
    pub(crate) pages: u64,
    /// Pages in the cache.
    pub(crate) used_pages: u64,
    /// Pages folded out of the cache since the server started.
    pub(crate) folded_pages: u64,
}

/// Zones of a medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ZonesStatus {
    /// Number of zones.
    pub(crate) zones: u32,
    /// Distance between zone starts, in bytes.
    pub(crate) zone_bytes: u64,
    /// Writable bytes per zone.
    pub(crate) capacity_bytes: u64,
    /// Open zones.
    pub(crate) open: u32,
    /// Maximum number of open zones; 0: unlimited.
    pub(crate) max_open: u32,
    /// Active zones: open or closed.
    pub(crate) active: u32,
    /// Maximum number of active zones; 0: unlimited.
    pub(crate) max_active: u32,
    /// Random write areas, if zones can have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) random_areas: Option<RandomAreaStatus>,
    /// Zones by state.
    pub(crate) states: BTreeMap<String, u32>,
}

/// Random write areas of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct RandomAreaStatus {
    /// Zones with a random write area.
    pub(crate) used: u32,
    /// Maximum number of such zones.
    pub(crate) most: u32,
    /// Size of a random write area in bytes.
    pub(crate) bytes: u32,
}

/// Keys and values of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct PairsStatus {
    /// Number of pairs.
    pub(crate) pairs: u64,
    /// Maximum number of pairs.
    pub(crate) most_pairs: u64,
    /// Bytes of all keys.
    pub(crate) key_bytes: u64,
    /// Bytes of all values.
    pub(crate) value_bytes: u64,
    /// Bytes in use by values and the tails of long keys, in whole units.
    pub(crate) used_bytes: u64,
    /// Bytes free.
    pub(crate) free_bytes: u64,
    /// Unit of allocation, in bytes.
    pub(crate) unit_bytes: u64,
    /// Memory of the index, in bytes.
    pub(crate) index_bytes: u64,
}

/// Sums over the lines of a drive, collected line by line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LinesSeen {
    pub(super) least: Option<u32>,
    pub(super) most: u32,
    pub(super) valid: u64,
}

/// Names of zone states (ZNS 1.1, figure 34).
pub(super) const ZONE_STATES: [(ZoneState, &str); 7] = [
    (ZoneState::EMPTY, "empty"),
    (ZoneState::IMPLICITLY_OPENED, "implicitly-opened"),
    (ZoneState::EXPLICITLY_OPENED, "explicitly-opened"),
    (ZoneState::CLOSED, "closed"),
    (ZoneState::FULL, "full"),
    (ZoneState::READ_ONLY, "read-only"),
    (ZoneState::OFFLINE, "offline"),
];

/// The name of a zone state.
pub(super) fn zone_word(state: ZoneState) -> &'static str {
    let mut states = ZONE_STATES.iter();
    let found = states.find(|(its, _)| *its == state);
    found.map_or("reserved", |(_, word)| word)
}

impl ModelStatus {
    /// Status of a model, given the sums over its lines.
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
