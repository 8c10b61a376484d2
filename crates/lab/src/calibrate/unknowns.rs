//! Unknowns of the fit, by kind of drive, and their parameters.

use model::{InvalidParameter, Kind, Moment, Parameters, Value};

use super::{Act, float, whole};

/// An unknown: one parameter, or several in fixed proportion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unknown {
    pub(super) names: &'static [&'static str],
    /// Kinds of commands whose measurements depend on it.
    pub(super) acts: &'static [Act],
    /// Whether it is a limit, which may not exist if no measurement reaches it.
    pub(super) limit: bool,
    /// Whether measurements of a single size cannot tell it from another limit.
    pub(super) needs_sizes: bool,
    /// The sweep that identifies it.
    pub(super) sweep: &'static str,
}

type Names = &'static [&'static str];

const fn of(acts: &'static [Act], names: Names, sweep: &'static str) -> Unknown {
    Unknown {
        names,
        acts,
        limit: false,
        needs_sizes: false,
        sweep,
    }
}

const fn limit(acts: &'static [Act], names: Names, sweep: &'static str) -> Unknown {
    Unknown {
        limit: true,
        ..of(acts, names, sweep)
    }
}

const fn bandwidth(acts: &'static [Act], names: Names) -> Unknown {
    Unknown {
        needs_sizes: true,
        ..limit(acts, names, SIZES)
    }
}

/// Parameters that no known measurement identifies.
const fn never(names: Names) -> Unknown {
    of(&[], names, NONE)
}

const READ: &[Act] = &[Act::Read];
const WRITE: &[Act] = &[Act::Write];
const EITHER: &[Act] = &[Act::Read, Act::Write];
const RETRIEVE: &[Act] = &[Act::Retrieve];
const STORE: &[Act] = &[Act::Store];

/// Names of the sweeps, as in `sweeps`.
pub(super) const ALONE: &str = "one at a time";
pub(super) const DEPTHS: &str = "depths";
pub(super) const SIZES: &str = "sizes";
pub(super) const DEEP: &str = "large and deep";
pub(super) const STEADY: &str = "sustained";
pub(super) const WRITERS: &str = "writers";
pub(super) const RESETS: &str = "resets";
const NONE: &str = "no sweep";

const NVM: &[Unknown] = &[
    of(READ, &["read_latency"], ALONE),
    limit(READ, &["read_rate"], DEPTHS),
    bandwidth(READ, &["read_bandwidth"]),
    of(WRITE, &["write_latency"], ALONE),
    limit(WRITE, &["write_rate"], DEPTHS),
    bandwidth(WRITE, &["write_bandwidth"]),
];

/// Units are searched separately, because they are whole and few.
const KV: &[Unknown] = &[
    of(RETRIEVE, &["read_latency"], ALONE),
    limit(RETRIEVE, &["read_rate"], DEPTHS),
    bandwidth(RETRIEVE, &["read_bandwidth"]),
    of(STORE, &["write_latency"], ALONE),
    limit(STORE, &["write_rate"], DEPTHS),
    bandwidth(STORE, &["write_bandwidth"]),
    of(&[Act::Delete], &["delete_latency"], ALONE),
    never(&["exist_latency"]),
    never(&["list_latency"]),
];

const READ_4K_CELLS: Names = &[
    "read_4k_cell0",
    "read_4k_cell1",
    "read_4k_cell2",
    "read_4k_cell3",
];
const READ_CELLS: Names = &["read_cell0", "read_cell1", "read_cell2", "read_cell3"];

const FLASH: &[Unknown] = &[
    of(READ, &["firmware_read_4k"], ALONE),
    of(READ, READ_4K_CELLS, DEPTHS),
    of(READ, &["firmware_read"], SIZES),
    of(READ, READ_CELLS, DEEP),
    of(READ, &["channel_bandwidth"], DEEP),
    of(EITHER, &["link_bandwidth"], DEEP),
    of(WRITE, &["buffer_base"], ALONE),
    of(WRITE, &["buffer_per_page"], SIZES),
    of(WRITE, &["program"], DEEP),
    never(&["firmware_channel_transfer"]),
    never(&["erase"]),
    never(&["buffer"]),
];

const ZONES: &[Unknown] = &[
    of(READ, &["firmware_read_4k"], ALONE),
    of(READ, READ_4K_CELLS, DEPTHS),
    of(READ, &["firmware_read"], SIZES),
    of(READ, READ_CELLS, DEEP),
    of(EITHER, &["channel_bandwidth"], DEEP),
    of(EITHER, &["link_bandwidth"], DEEP),
    of(WRITE, &["buffer_base"], ALONE),
    of(WRITE, &["buffer_per_page"], SIZES),
    of(WRITE, &["program"], WRITERS),
    of(&[Act::Reset], &["erase"], RESETS),
    never(&["firmware_channel_transfer"]),
    never(&["buffer"]),
    never(&["zone_buffer"]),
    never(&["reset"]),
    never(&["finish"]),
    never(&["open"]),
];

/// The unknowns of a kind of drive.
pub(super) fn of_kind(kind: Kind) -> &'static [Unknown] {
    match kind {
        Kind::Nvm => NVM,
        Kind::Kv => KV,
        Kind::Flash => FLASH,
        Kind::Zns => ZONES,
    }
}

impl Unknown {
    /// Those parameters of the unknown that the drive has.
    pub(super) fn present(&self, start: &Parameters) -> Vec<&'static str> {
        let names = self.names.iter().copied();
        names
            .filter(|name| start.get(name).is_ok_and(|value| value.raw > 0))
            .collect()
    }

    /// Sets the unknown to `factor` times its value in `start`.
    pub(super) fn scale(
        &self,
        start: &Parameters,
        factor: f64,
        parameters: &mut Parameters,
    ) -> Result<(), InvalidParameter> {
        for name in self.present(start) {
            let parameter = start.kind().parameter(name)?;
            let scaled = whole(float(parameter.get(start).raw) * factor);
            let raw = scaled.clamp(parameter.min.max(1), parameter.max);
            let unit = parameter.unit;
            parameters.set(name, &Value { unit, raw }.to_string(), Moment::Creation)?;
        }
        Ok(())
    }

    /// Removes the limit.
    pub(super) fn lift(&self, parameters: &mut Parameters) -> Result<(), InvalidParameter> {
        let mut names = self.names.iter();
        names.try_for_each(|name| parameters.set(name, "none", Moment::Creation))
    }
}
