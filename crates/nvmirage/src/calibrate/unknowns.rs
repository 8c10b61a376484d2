//! What is looked for, by kind of drive, and where the search begins.

use model::{Direction as Way, InvalidParameter, Kind, Moment, Parameters, Value};

use super::{Direction, Sample, float, whole};

/// Something that is looked for: one parameter, or several that stay in proportion.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Unknown {
    pub(super) names: &'static [&'static str],
    /// Whose measurements say something of it.
    pub(super) direction: Option<Direction>,
    /// It is a limit, and where nothing reaches it there may be none.
    pub(super) limit: bool,
    /// Measurements of one size of commands do not tell it from another limit.
    pub(super) needs_sizes: bool,
    /// The sweep that it is measured by.
    pub(super) sweep: &'static str,
}

const fn of(direction: Direction, names: &'static [&'static str], sweep: &'static str) -> Unknown {
    Unknown {
        names,
        direction: Some(direction),
        limit: false,
        needs_sizes: false,
        sweep,
    }
}

const fn limit(
    direction: Direction,
    names: &'static [&'static str],
    sweep: &'static str,
) -> Unknown {
    Unknown {
        limit: true,
        ..of(direction, names, sweep)
    }
}

const fn bandwidth(direction: Direction, names: &'static [&'static str]) -> Unknown {
    Unknown {
        needs_sizes: true,
        ..limit(direction, names, SIZES)
    }
}

use Direction::{Read, Write};

/// The names of the sweeps, as `sweeps` has them.
pub(super) const ALONE: &str = "one at a time";
pub(super) const DEPTHS: &str = "depths";
pub(super) const SIZES: &str = "sizes";
pub(super) const DEEP: &str = "large and deep";
pub(super) const STEADY: &str = "sustained";

const NVM: &[Unknown] = &[
    of(Read, &["read_latency"], ALONE),
    limit(Read, &["read_rate"], DEPTHS),
    bandwidth(Read, &["read_bandwidth"]),
    of(Write, &["write_latency"], ALONE),
    limit(Write, &["write_rate"], DEPTHS),
    bandwidth(Write, &["write_bandwidth"]),
];

const FLASH: &[Unknown] = &[
    of(Read, &["firmware_read_4k"], ALONE),
    of(
        Read,
        &[
            "read_4k_cell0",
            "read_4k_cell1",
            "read_4k_cell2",
            "read_4k_cell3",
        ],
        DEPTHS,
    ),
    of(Read, &["firmware_read"], SIZES),
    of(
        Read,
        &["read_cell0", "read_cell1", "read_cell2", "read_cell3"],
        DEEP,
    ),
    of(Read, &["channel_bandwidth"], DEEP),
    Unknown {
        direction: None,
        ..of(Read, &["link_bandwidth"], DEEP)
    },
    of(Write, &["buffer_base"], ALONE),
    of(Write, &["buffer_per_page"], SIZES),
    of(Write, &["program"], DEEP),
];

/// What is looked for on a drive of a kind; `None` for one that this does not know.
pub(super) fn of_kind(kind: Kind) -> Option<&'static [Unknown]> {
    match kind {
        Kind::Nvm => Some(NVM),
        Kind::Flash => Some(FLASH),
        Kind::Kv | Kind::Zns => None,
    }
}

impl Unknown {
    /// Those of its parameters that a drive has.
    pub(super) fn present(&self, start: &Parameters) -> Vec<&'static str> {
        let names = self.names.iter().copied();
        names
            .filter(|name| start.get(name).is_ok_and(|value| value.raw > 0))
            .collect()
    }

    /// Sets it to `factor` of what it is in `start`.
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
}

/// Where the search for a drive of latency, bandwidth and rate begins: what was measured alone, and the most that was seen.
pub(super) fn start_of(way: &mut Way, samples: &[Sample], direction: Direction) {
    let own = || samples.iter().filter(|s| s.direction == direction);
    let Some(alone) = own().min_by_key(|s| (s.depth, s.block_bytes)) else {
        return;
    };
    let most = |value: &dyn Fn(&Sample) -> f64| own().map(value).fold(0.0, f64::max);
    way.latency_ns = whole(alone.mean_ns / f64::from(alone.depth)).max(1);
    way.rate_per_s = whole(most(&Sample::rate)).max(1);
    way.bandwidth_bytes_per_s = whole(most(&|s| s.rate() * f64::from(s.block_bytes))).max(1);
    // A command alone takes at least what it keeps the drive busy for.
    let least = 4096e9 / float(way.bandwidth_bytes_per_s);
    let least = least.max(1e9 / float(way.rate_per_s)).ceil();
    way.latency_ns = way.latency_ns.max(whole(least));
}
