//! Status of timing models, zones, and key-value pairs.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Timing model of a medium, with counters since the medium was opened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct ModelStatus {
    /// Kind of the model: `flash`, `zns`, `nvm` or `kv`.
    pub kind: String,
    /// Operations requested.
    pub commands: AskedStatus,
    /// Periods in which the model accepted no writes because its buffer was full.
    pub stalls: StallStatus,
    /// Servers, by kind.
    pub servers: Vec<ServerStatus>,
    /// Work of the servers, in the same order.
    pub busy: Vec<BusyStatus>,
    /// Write buffer, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub buffer: Option<BufferStatus>,
    /// Counters of conventional flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashStatus>,
}

/// Operations requested of a model. One command may be several, such as Copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AskedStatus {
    /// Reads and compares.
    pub read: u64,
    /// Writes and zone appends.
    pub write: u64,
    /// Deallocations and Write Zeroes.
    pub deallocate: u64,
    /// Flushes.
    pub flush: u64,
    /// Other zone operations.
    pub zone: u64,
    /// Key operations.
    pub key: u64,
}

/// Periods without room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct StallStatus {
    /// Number of periods that began.
    pub count: u64,
    /// Duration of the periods that ended, in nanoseconds.
    pub time_ns: u64,
}

/// Servers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServerStatus {
    /// Kind: `die`, `channel`, `link`, `pipeline` or `unit`.
    pub server: String,
    /// Number of servers.
    pub count: u64,
}

/// One type of work of the servers of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BusyStatus {
    /// Kind of the servers.
    pub server: String,
    /// Type of work: `sense`, `program`, `erase`, `transfer`, `to_host`, `from_host`, `read` or
    /// `write`.
    pub work: String,
    /// Number of operations.
    pub operations: u64,
    /// Busy time summed over the servers, in nanoseconds. Operations count when they are requested,
    /// so this runs ahead by the work that is queued.
    pub busy_ns: u64,
}

/// Write buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct BufferStatus {
    /// Size in bytes; where each zone has its own buffer, the sum.
    pub bytes: u64,
    /// Bytes in use.
    pub used_bytes: u64,
}

/// Counters of conventional flash, summed over all partitions. Pages have 4096 bytes. Counts of
/// pages and erases are saved with the drive's state.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlashStatus {
    /// Pages written by hosts.
    pub host_pages: u64,
    /// Pages rewritten by collection.
    pub collected_pages: u64,
    /// Lines collected since the server started.
    pub collections: CollectionStatus,
    /// Lines erased.
    pub erased_lines: u64,
    /// Lines by their current state.
    pub lines: LineStatus,
    /// Erases per line.
    pub wear: WearStatus,
    /// Valid pages.
    pub valid_pages: u64,
    /// Cache of single-bit cells, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slc: Option<SlcStatus>,
    /// Map pages that were not in memory.
    pub map_misses: u64,
    /// Reads since the server started that touched a page without data, which costs no sense.
    #[serde(default)]
    pub unmapped_reads: u64,
}

/// Collected lines, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CollectionStatus {
    /// Host writes that waited for the collection.
    pub foreground: u64,
    /// Idle time.
    pub background: u64,
}

/// Lines of all partitions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LineStatus {
    /// Lines without a page.
    pub free: u64,
    /// Lines being written.
    pub open: u64,
    /// Full lines.
    pub full: u64,
    /// All lines.
    pub all: u64,
    /// Free lines of the partition with the fewest.
    pub fewest_free: u64,
}

/// Erases per line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WearStatus {
    /// Erases of the least erased line.
    pub least: u64,
    /// Mean of all lines.
    pub mean: f64,
    /// Erases of the most erased line.
    pub most: u64,
}

/// Cache of single-bit cells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlcStatus {
    /// Pages reserved for the cache.
    pub pages: u64,
    /// Pages in the cache.
    pub used_pages: u64,
    /// Pages folded out of the cache since the server started.
    pub folded_pages: u64,
}

/// Zones of a medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ZonesStatus {
    /// Number of zones.
    pub zones: u32,
    /// Distance between zone starts, in bytes.
    pub zone_bytes: u64,
    /// Writable bytes per zone.
    pub capacity_bytes: u64,
    /// Open zones.
    pub open: u32,
    /// Maximum number of open zones; 0: unlimited.
    pub max_open: u32,
    /// Active zones: open or closed.
    pub active: u32,
    /// Maximum number of active zones; 0: unlimited.
    pub max_active: u32,
    /// Random write areas, if zones can have them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub random_areas: Option<RandomAreaStatus>,
    /// Zones by state.
    pub states: BTreeMap<String, u32>,
}

/// Random write areas of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RandomAreaStatus {
    /// Zones with a random write area.
    pub used: u32,
    /// Maximum number of such zones.
    pub most: u32,
    /// Size of a random write area in bytes.
    pub bytes: u32,
}

/// Keys and values of a medium.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PairsStatus {
    /// Number of pairs.
    pub pairs: u64,
    /// Maximum number of pairs.
    pub most_pairs: u64,
    /// Bytes of all keys.
    pub key_bytes: u64,
    /// Bytes of all values.
    pub value_bytes: u64,
    /// Bytes in use by values and the tails of long keys, in whole units.
    pub used_bytes: u64,
    /// Bytes free.
    pub free_bytes: u64,
    /// Unit of allocation, in bytes.
    pub unit_bytes: u64,
    /// Memory of the index, in bytes.
    pub index_bytes: u64,
}
