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

use api::{
    FlashGeometry, FlashMap, FlashOpenLine, FlashPartition, LineCells, MOST_CELLS, ModelStatus,
    PairsStatus, ZoneCells, ZoneEntry, ZoneMap, ZonesStatus,
};
use media::{Look, ZoneLook, ZonesLook};
use model::{Flash, PartitionView, Writer};
use nvme_spec::zoned::ZoneState;

use self::status::{LinesSeen, zone_word};

mod status;

/// Number of bins of lines by their share of valid pages.
const BINS: usize = 10;

/// The parts of a medium's state to capture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Approximate number of cells of the map; `None`: totals only.
    pub cells: Option<u32>,
    /// Zones to list individually: the first, and how many.
    pub zones: (u32, u32),
}

/// The captured state of a medium.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// Counters of the timing model.
    pub model: Option<ModelStatus>,
    /// Totals of the zones.
    pub zones: Option<ZonesStatus>,
    /// Totals of keys and values.
    pub pairs: Option<PairsStatus>,
    /// Lines of a flash drive.
    pub flash_map: Option<FlashMap>,
    /// Zones.
    pub zone_map: Option<ZoneMap>,
}

/// A capture in progress.
#[derive(Debug)]
pub struct Taking {
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
    /// Begins a capture.
    pub fn new(wanted: Wanted) -> Self {
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
    pub fn take(wanted: Wanted, look: &Look<'_>) -> Taken {
        let mut taking = Taking::new(wanted);
        loop {
            if let Some(taken) = taking.go_on(look, &mut u32::MAX.clone()) {
                return taken;
            }
        }
    }

    /// Captures up to `most` more lines and zones, and subtracts them from it. Returns the result
    /// once it is complete.
    pub fn go_on(&mut self, look: &Look<'_>, most: &mut u32) -> Option<Taken> {
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
                self.line_cells.push(line_cells(cells as usize));
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
            self.zone_cells = zone_cells(cells as usize);
        }
        while let Some(zone) = zones.get(self.zone) {
            if *most == 0 {
                return false;
            }
            *most -= 1;
            let cell = (self.zone / per_cell) as usize;
            count_zone(&mut self.zone_cells, cell, &zone);
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
        let status = zones.map(status::zones);
        let cells = self.wanted.cells;
        Taken {
            model: look.timing.as_ref().map(|t| status::model(t, &self.lines)),
            pairs: look.pairs.map(status::pairs),
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

fn line_cells(cells: usize) -> LineCells {
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

fn zone_cells(cells: usize) -> ZoneCells {
    ZoneCells {
        empty: vec![0; cells],
        open: vec![0; cells],
        closed: vec![0; cells],
        full: vec![0; cells],
        lost: vec![0; cells],
        written_bytes: vec![0; cells],
    }
}

fn count_zone(cells: &mut ZoneCells, cell: usize, zone: &ZoneLook) {
    let of_state = match zone.state {
        ZoneState::EMPTY => &mut cells.empty,
        ZoneState::IMPLICITLY_OPENED | ZoneState::EXPLICITLY_OPENED => &mut cells.open,
        ZoneState::CLOSED => &mut cells.closed,
        ZoneState::FULL => &mut cells.full,
        _ => &mut cells.lost,
    };
    of_state[cell] += 1;
    cells.written_bytes[cell] += zone.written;
}

#[cfg(test)]
mod tests;
