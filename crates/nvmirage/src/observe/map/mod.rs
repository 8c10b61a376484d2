//! Maps of media: the lines of a flash drive, the zones of a zoned medium. The response of `GET
//! /v1/media/{name}/map`.
//!
//! A [`Taking`] builds a map from several [`Look`]s, a bounded part at a time. Between them the
//! reactor serves its hosts, so lines and zones may change while the map is built. Totals are from
//! the last look, except valid pages, erases and bins, which are sums over the parts as they were
//! seen.
//!
//! A map has at most [`MOST_CELLS`] cells, whatever the size of the drive; each cell covers
//! consecutive lines or zones.

use std::borrow::Cow;

use media::{Look, ZoneLook, ZonesLook};
use model::{Flash, PartitionView, Writer};
use nvme_spec::zoned::ZoneState;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::model::{LinesSeen, ModelStatus, PairsStatus, ZonesStatus, zone_word};

/// Most cells of a map, and most zones listed in one response.
pub(crate) const MOST_CELLS: u32 = 4096;
/// Number of bins of lines by their share of valid pages.
const BINS: usize = 10;

/// Internal state of a medium.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct MediumMap {
    /// Name of the medium.
    pub(crate) name: String,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Time of this state, on the server's clock, in nanoseconds.
    pub(crate) time_ns: u64,
    /// Namespaces on the medium, in order of creation.
    pub(crate) namespaces: Vec<MapNamespace>,
    /// Status of the timing model, as in `/v1/stats`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) model: Option<ModelStatus>,
    /// Lines of conventional flash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) flash: Option<FlashMap>,
    /// Zones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) zones: Option<ZoneMap>,
    /// Keys and values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) pairs: Option<PairsStatus>,
}

/// Location of a namespace on its medium.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct MapNamespace {
    /// Name of the namespace.
    pub(crate) name: String,
    /// First byte on the medium.
    pub(crate) start_bytes: u64,
    /// Size in bytes.
    pub(crate) bytes: u64,
    /// Logical block size in bytes; absent for key-value namespaces.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) lba_size: Option<u32>,
}

/// Lines of a conventional flash drive.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FlashMap {
    /// Geometry.
    pub(crate) geometry: FlashGeometry,
    /// Foreground collection threshold: a host write collects a line in a partition with this many
    /// free lines or fewer.
    pub(crate) collect_below: u64,
    /// Background collection threshold: an idle drive collects in a partition with fewer free
    /// lines; 0 disables it.
    pub(crate) background_below: u64,
    /// Lines per cell; the last cell of a partition may have fewer.
    pub(crate) lines_per_cell: u32,
    /// Full lines by their share of valid pages: less than 10 %, less than 20 %, and so on.
    pub(crate) full_lines_by_valid: Vec<u64>,
    /// Partitions, each with an FTL of its own.
    pub(crate) partitions: Vec<FlashPartition>,
}

/// Geometry of a flash drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FlashGeometry {
    /// Independent FTLs.
    pub(crate) partitions: u32,
    /// Channels of all partitions.
    pub(crate) channels: u32,
    /// Dies of all partitions.
    pub(crate) dies: u32,
    /// Planes per die.
    pub(crate) planes: u32,
    /// Page size in bytes.
    pub(crate) page_bytes: u32,
    /// Wordline size in bytes; a wordline is programmed at once.
    pub(crate) wordline_bytes: u64,
    /// Pages per line: one block on every die of a partition.
    pub(crate) pages_per_line: u32,
    /// Lines per partition.
    pub(crate) lines_per_partition: u32,
    /// Pages visible to hosts, of all partitions.
    pub(crate) logical_pages: u64,
}

/// Lines of one FTL.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FlashPartition {
    /// Lines without a page.
    pub(crate) free_lines: u64,
    /// Full lines.
    pub(crate) full_lines: u64,
    /// Lines being written.
    pub(crate) open_lines: Vec<FlashOpenLine>,
    /// Pages written by hosts.
    pub(crate) host_pages: u64,
    /// Pages rewritten by collection.
    pub(crate) collected_pages: u64,
    /// Lines erased.
    pub(crate) erased_lines: u64,
    /// Lines in order.
    pub(crate) cells: LineCells,
}

/// Line being written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct FlashOpenLine {
    /// Writer: `host` or `collection`.
    pub(crate) writer: String,
    /// Number of the line in the partition.
    pub(crate) line: u32,
    /// Pages of the line that are written.
    pub(crate) taken_pages: u32,
}

/// Lines grouped into cells: each list has one entry per cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct LineCells {
    /// Lines without a page.
    pub(crate) free: Vec<u32>,
    /// Lines being written.
    pub(crate) open: Vec<u32>,
    /// Full lines.
    pub(crate) full: Vec<u32>,
    /// Valid pages.
    pub(crate) valid_pages: Vec<u64>,
    /// Sum of erases.
    pub(crate) erases: Vec<u64>,
    /// Erases of the least erased line.
    pub(crate) least_erases: Vec<u32>,
    /// Erases of the most erased line.
    pub(crate) most_erases: Vec<u32>,
}

/// Zones of a medium.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub(crate) struct ZoneMap {
    /// Summary of all zones.
    #[serde(flatten)]
    pub(crate) all: ZonesStatus,
    /// Zones per cell; the last cell may have fewer.
    pub(crate) zones_per_cell: u32,
    /// Zones in order.
    pub(crate) cells: ZoneCells,
    /// First zone of `list`.
    pub(crate) from: u32,
    /// Zones listed individually, as requested.
    pub(crate) list: Vec<ZoneEntry>,
}

/// Zones grouped into cells: each list has one entry per cell.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ZoneCells {
    /// Empty zones.
    pub(crate) empty: Vec<u32>,
    /// Zones open implicitly or explicitly.
    pub(crate) open: Vec<u32>,
    /// Closed zones.
    pub(crate) closed: Vec<u32>,
    /// Full zones.
    pub(crate) full: Vec<u32>,
    /// Read-only and offline zones.
    pub(crate) lost: Vec<u32>,
    /// Bytes written.
    pub(crate) written_bytes: Vec<u64>,
}

/// Zone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub(crate) struct ZoneEntry {
    /// Number of the zone on the medium.
    pub(crate) zone: u32,
    /// Zone state.
    pub(crate) state: Cow<'static, str>,
    /// First byte on the medium.
    pub(crate) start_bytes: u64,
    /// Writable bytes.
    pub(crate) capacity_bytes: u64,
    /// Bytes from its start to its write pointer; for a zone without one, the bytes written.
    pub(crate) written_bytes: u64,
    /// First logical block, in its namespace.
    #[serde(default)]
    pub(crate) start_lba: Option<u64>,
    /// Write pointer, in its namespace; absent for full, read-only and offline zones.
    #[serde(default)]
    pub(crate) write_pointer: Option<u64>,
    /// Namespace of the zone.
    #[serde(default)]
    pub(crate) namespace: Option<String>,
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
    pub(crate) fn place(&mut self, namespaces: &[MapNamespace]) {
        self.list.iter_mut().for_each(|zone| zone.place(namespaces));
    }
}

/// The parts of a medium's state to capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// Approximate number of cells of the map; `None`: totals only.
    pub(crate) cells: Option<u32>,
    /// Zones to list individually: the first, and how many.
    pub(crate) zones: (u32, u32),
}

/// The captured state of a medium.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken {
    pub(crate) model: Option<ModelStatus>,
    pub(crate) zones: Option<ZonesStatus>,
    pub(crate) pairs: Option<PairsStatus>,
    pub(crate) flash_map: Option<FlashMap>,
    pub(crate) zone_map: Option<ZoneMap>,
}

/// A capture in progress.
#[derive(Debug)]
pub(crate) struct Taking {
    wanted: Wanted,
    lines: LinesSeen,
    /// The next line: its partition, and its index there.
    line: (usize, u32),
    by_valid: [u64; BINS],
    line_cells: Vec<LineCells>,
    zone: u32,
    zone_cells: ZoneCells,
    list: Vec<ZoneEntry>,
}

impl Taking {
    pub(crate) fn new(wanted: Wanted) -> Self {
        Taking {
            wanted,
            lines: LinesSeen::default(),
            line: (0, 0),
            by_valid: [0; BINS],
            line_cells: Vec::new(),
            zone: 0,
            zone_cells: ZoneCells::default(),
            list: Vec::new(),
        }
    }

    /// Captures a medium at once; no host waits for it.
    pub(crate) fn take(wanted: Wanted, look: &Look<'_>) -> Taken {
        let mut taking = Taking::new(wanted);
        loop {
            if let Some(taken) = taking.go_on(look, &mut u32::MAX.clone()) {
                return taken;
            }
        }
    }

    /// Captures up to `most` more lines and zones, and subtracts them from it. Returns the result
    /// once it is complete.
    pub(crate) fn go_on(&mut self, look: &Look<'_>, most: &mut u32) -> Option<Taken> {
        let flash = look.timing.as_ref().and_then(|timing| timing.model.flash());
        let lines_done = flash.is_none_or(|flash| self.take_lines(flash, most));
        let zones_done = look
            .zones
            .as_ref()
            .is_none_or(|zones| self.take_zones(zones, most));
        (lines_done && zones_done).then(|| self.end(look))
    }

    /// Captures lines; whether all are done.
    fn take_lines(&mut self, flash: &Flash, most: &mut u32) -> bool {
        let cell = self.wanted.cells.map(|cells| lines_per_cell(flash, cells));
        for partition in flash.partitions().skip(self.line.0) {
            if let Some(cell) = cell
                && self.line_cells.len() == self.line.0
            {
                let cells = partition.lines.all().end.div_ceil(cell);
                self.line_cells.push(LineCells::new(cells as usize));
            }
            let all = partition.lines.all();
            while self.line.1 < all.end {
                if *most == 0 {
                    return false;
                }
                *most -= 1;
                self.take_line(&partition, cell);
                self.line.1 += 1;
            }
            self.line = (self.line.0 + 1, 0);
        }
        true
    }

    fn take_line(&mut self, partition: &PartitionView<'_>, cell: Option<u32>) {
        let (at, line) = self.line;
        let lines = partition.lines;
        let (valid, erases) = (lines.valid(line), lines.erases(line));
        let seen = &mut self.lines;
        seen.least = Some(seen.least.map_or(erases, |least| least.min(erases)));
        seen.most = seen.most.max(erases);
        seen.valid += u64::from(valid);
        let full = lines.is_full(line);
        if full {
            let bin = valid as usize * BINS / lines.pages() as usize;
            self.by_valid[bin.min(BINS - 1)] += 1;
        }
        let Some(cells) = cell.zip(self.line_cells.get_mut(at)) else {
            return;
        };
        let (cell, cells) = ((line / cells.0) as usize, cells.1);
        let open = partition.open.iter().flatten().any(|o| o.line == line);
        cells.full[cell] += u32::from(full);
        cells.open[cell] += u32::from(open);
        cells.free[cell] += u32::from(!full && !open);
        cells.valid_pages[cell] += u64::from(valid);
        cells.erases[cell] += u64::from(erases);
        cells.least_erases[cell] = cells.least_erases[cell].min(erases);
        cells.most_erases[cell] = cells.most_erases[cell].max(erases);
    }

    /// Captures zones; whether all that were requested are done.
    fn take_zones(&mut self, zones: &ZonesLook<'_>, most: &mut u32) -> bool {
        let Some(cells) = self.wanted.cells else {
            return true;
        };
        let all = zones.all();
        let per_cell = zones_per_cell(all.zones, cells);
        if self.zone == 0 {
            let cells = all.zones.div_ceil(per_cell);
            self.zone_cells = ZoneCells::new(cells as usize);
        }
        while let Some(zone) = zones.get(self.zone) {
            if *most == 0 {
                return false;
            }
            *most -= 1;
            self.zone_cells
                .count((self.zone / per_cell) as usize, &zone);
            let (from, count) = self.wanted.zones;
            if self.zone >= from && self.zone - from < count {
                self.list.push(ZoneEntry {
                    zone: self.zone,
                    state: zone_word(zone.state).into(),
                    start_bytes: zone.start,
                    capacity_bytes: all.capacity,
                    written_bytes: zone.written,
                    start_lba: None,
                    write_pointer: None,
                    namespace: None,
                });
            }
            self.zone += 1;
        }
        true
    }

    /// Combines all parts.
    fn end(&mut self, look: &Look<'_>) -> Taken {
        let flash = look.timing.as_ref().and_then(|timing| timing.model.flash());
        let zones = look.zones.as_ref();
        let status = zones.map(ZonesStatus::of);
        let cells = self.wanted.cells;
        Taken {
            model: look
                .timing
                .as_ref()
                .map(|t| ModelStatus::of(t, &self.lines)),
            pairs: look.pairs.map(Into::into),
            flash_map: flash
                .zip(cells)
                .map(|(flash, cells)| self.flash_map(flash, cells)),
            zone_map: status.clone().zip(cells).map(|(all, cells)| ZoneMap {
                zones_per_cell: zones_per_cell(all.zones, cells),
                all,
                cells: std::mem::take(&mut self.zone_cells),
                from: self.wanted.zones.0,
                list: std::mem::take(&mut self.list),
            }),
            zones: status,
        }
    }

    fn flash_map(&mut self, flash: &Flash, cells: u32) -> FlashMap {
        let shape = flash.geometry();
        let (collect_below, background_below) = flash.thresholds();
        let mut line_cells = std::mem::take(&mut self.line_cells).into_iter();
        let partition = |partition: PartitionView<'_>| FlashPartition {
            free_lines: partition.lines.free() as u64,
            full_lines: partition.full() as u64,
            open_lines: open_lines(&partition),
            host_pages: partition.host_pages,
            collected_pages: partition.collected_pages,
            erased_lines: partition.lines.erased(),
            cells: line_cells.next().unwrap_or_default(),
        };
        FlashMap {
            geometry: FlashGeometry {
                partitions: shape.partitions,
                channels: shape.channels * shape.partitions,
                dies: shape.dies * shape.partitions,
                planes: shape.die.planes,
                page_bytes: model::parameter::PAGE_BYTES as u32,
                wordline_bytes: u64::from(shape.die.wordline) * model::parameter::PAGE_BYTES,
                pages_per_line: shape.line,
                lines_per_partition: shape.lines,
                logical_pages: shape.pages(),
            },
            collect_below: collect_below.into(),
            background_below: background_below as u64,
            lines_per_cell: lines_per_cell(flash, cells),
            full_lines_by_valid: self.by_valid.to_vec(),
            partitions: flash.partitions().map(partition).collect(),
        }
    }
}

fn open_lines(partition: &PartitionView<'_>) -> Vec<FlashOpenLine> {
    let open = partition.open.iter().flatten();
    open.map(|open| FlashOpenLine {
        writer: match open.writer {
            Writer::Host => "host".to_owned(),
            Writer::Collection => "collection".to_owned(),
        },
        line: open.line,
        taken_pages: open.taken,
    })
    .collect()
}

/// Lines per cell, for about `cells` cells over all partitions.
fn lines_per_cell(flash: &Flash, cells: u32) -> u32 {
    let shape = flash.geometry();
    let each = (cells.min(MOST_CELLS) / shape.partitions).max(1);
    shape.lines.div_ceil(each).max(1)
}

fn zones_per_cell(zones: u32, cells: u32) -> u32 {
    zones.div_ceil(cells.clamp(1, MOST_CELLS)).max(1)
}

impl LineCells {
    fn new(cells: usize) -> Self {
        LineCells {
            free: vec![0; cells],
            open: vec![0; cells],
            full: vec![0; cells],
            valid_pages: vec![0; cells],
            erases: vec![0; cells],
            least_erases: vec![u32::MAX; cells],
            most_erases: vec![0; cells],
        }
    }
}

impl ZoneCells {
    fn new(cells: usize) -> Self {
        ZoneCells {
            empty: vec![0; cells],
            open: vec![0; cells],
            closed: vec![0; cells],
            full: vec![0; cells],
            lost: vec![0; cells],
            written_bytes: vec![0; cells],
        }
    }

    fn count(&mut self, cell: usize, zone: &ZoneLook) {
        let of_state = match zone.state {
            ZoneState::EMPTY => &mut self.empty,
            ZoneState::IMPLICITLY_OPENED | ZoneState::EXPLICITLY_OPENED => &mut self.open,
            ZoneState::CLOSED => &mut self.closed,
            ZoneState::FULL => &mut self.full,
            _ => &mut self.lost,
        };
        of_state[cell] += 1;
        self.written_bytes[cell] += zone.written;
    }
}

#[cfg(test)]
mod tests;
