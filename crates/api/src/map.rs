//! Maps of media: lines of flash and zones. The response of `GET /v1/media/{name}/map`.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::model_status::{ModelStatus, PairsStatus, ZonesStatus};

/// Most cells of a map, and most zones listed in one response.
pub const MOST_CELLS: u32 = 4096;

/// Internal state of a medium.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct MediumMap {
    /// Name of the medium.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// Time of this state, on the server's clock, in nanoseconds.
    pub time_ns: u64,
    /// Namespaces on the medium, in order of creation.
    pub namespaces: Vec<MapNamespace>,
    /// Status of the timing model, as in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelStatus>,
    /// Lines of conventional flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flash: Option<FlashMap>,
    /// Zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zones: Option<ZoneMap>,
    /// Keys and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pairs: Option<PairsStatus>,
}

/// Location of a namespace on its medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct MapNamespace {
    /// Name of the namespace.
    pub name: String,
    /// First byte on the medium.
    pub start_bytes: u64,
    /// Size in bytes.
    pub bytes: u64,
    /// Logical block size in bytes; absent for key-value namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lba_size: Option<u32>,
}

/// Lines of a conventional flash drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlashMap {
    /// Geometry.
    pub geometry: FlashGeometry,
    /// Foreground collection threshold: a host write collects a line in a partition with this many
    /// free lines or fewer.
    pub collect_below: u64,
    /// Background collection threshold: an idle drive collects in a partition with fewer free
    /// lines; 0 disables it.
    pub background_below: u64,
    /// Lines per cell; the last cell of a partition may have fewer.
    pub lines_per_cell: u32,
    /// Full lines by their share of valid pages: less than 10 %, less than 20 %, and so on.
    pub full_lines_by_valid: Vec<u64>,
    /// Partitions, each with an FTL of its own.
    pub partitions: Vec<FlashPartition>,
}

/// Geometry of a flash drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlashGeometry {
    /// Independent FTLs.
    pub partitions: u32,
    /// Channels of all partitions.
    pub channels: u32,
    /// Dies of all partitions.
    pub dies: u32,
    /// Planes per die.
    pub planes: u32,
    /// Page size in bytes.
    pub page_bytes: u32,
    /// Wordline size in bytes; a wordline is programmed at once.
    pub wordline_bytes: u64,
    /// Pages per line: one block on every die of a partition.
    pub pages_per_line: u32,
    /// Lines per partition.
    pub lines_per_partition: u32,
    /// Pages visible to hosts, of all partitions.
    pub logical_pages: u64,
}

/// Lines of one FTL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct FlashPartition {
    /// Lines without a page.
    pub free_lines: u64,
    /// Full lines.
    pub full_lines: u64,
    /// Lines being written.
    pub open_lines: Vec<FlashOpenLine>,
    /// Pages written by hosts.
    pub host_pages: u64,
    /// Pages rewritten by collection.
    pub collected_pages: u64,
    /// Lines erased.
    pub erased_lines: u64,
    /// Lines in order.
    pub cells: LineCells,
}

/// Line being written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FlashOpenLine {
    /// Writer: `host` or `collection`.
    pub writer: String,
    /// Number of the line in the partition.
    pub line: u32,
    /// Pages of the line that are written.
    pub taken_pages: u32,
}

/// Lines grouped into cells: each list has one entry per cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LineCells {
    /// Lines without a page.
    pub free: Vec<u32>,
    /// Lines being written.
    pub open: Vec<u32>,
    /// Full lines.
    pub full: Vec<u32>,
    /// Valid pages.
    pub valid_pages: Vec<u64>,
    /// Sum of erases.
    pub erases: Vec<u64>,
    /// Erases of the least erased line.
    pub least_erases: Vec<u32>,
    /// Erases of the most erased line.
    pub most_erases: Vec<u32>,
}

/// Zones of a medium.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct ZoneMap {
    /// Summary of all zones.
    #[serde(flatten)]
    pub all: ZonesStatus,
    /// Zones per cell; the last cell may have fewer.
    pub zones_per_cell: u32,
    /// Zones in order.
    pub cells: ZoneCells,
    /// First zone of `list`.
    pub from: u32,
    /// Zones listed individually, as requested.
    pub list: Vec<ZoneEntry>,
}

/// Zones grouped into cells: each list has one entry per cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ZoneCells {
    /// Empty zones.
    pub empty: Vec<u32>,
    /// Zones open implicitly or explicitly.
    pub open: Vec<u32>,
    /// Closed zones.
    pub closed: Vec<u32>,
    /// Full zones.
    pub full: Vec<u32>,
    /// Read-only and offline zones.
    pub lost: Vec<u32>,
    /// Bytes written.
    pub written_bytes: Vec<u64>,
}

/// Zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ZoneEntry {
    /// Number of the zone on the medium.
    pub zone: u32,
    /// Zone state.
    pub state: Cow<'static, str>,
    /// First byte on the medium.
    pub start_bytes: u64,
    /// Writable bytes.
    pub capacity_bytes: u64,
    /// Bytes from its start to its write pointer; for a zone without one, the bytes written.
    pub written_bytes: u64,
    /// First logical block, in its namespace.
    #[serde(default)]
    pub start_lba: Option<u64>,
    /// Write pointer, in its namespace; absent for full, read-only and offline zones.
    #[serde(default)]
    pub write_pointer: Option<u64>,
    /// Namespace of the zone.
    #[serde(default)]
    pub namespace: Option<String>,
}

impl ZoneEntry {
    /// Sets its location within its namespace.
    fn place(&mut self, namespaces: &[MapNamespace]) {
        let at = self.start_bytes;
        let mut all = namespaces.iter();
        let found = all.find(|n| (n.start_bytes..n.start_bytes + n.bytes).contains(&at));
        let Some((its, lba)) = found.and_then(|n| Some((n, u64::from(n.lba_size?)))) else {
            return;
        };
        let start = (at - its.start_bytes) / lba;
        self.namespace = Some(its.name.clone());
        self.start_lba = Some(start);
        let has_pointer = !matches!(&*self.state, "full" | "read-only" | "offline");
        self.write_pointer = has_pointer.then_some(start + self.written_bytes / lba);
    }
}

impl ZoneMap {
    /// Sets the locations of the zones within their namespaces.
    pub fn place(&mut self, namespaces: &[MapNamespace]) {
        self.list.iter_mut().for_each(|zone| zone.place(namespaces));
    }
}
