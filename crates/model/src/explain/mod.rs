//! Consequences of parameters: geometry, latencies of a single command, ceilings.
//!
//! Closed forms, in whole numbers. Latencies hold for a single command, ceilings for an unlimited
//! number of commands that spread evenly over the dies; the models cover the range in between.
//!
//! Not included: runs of a model, and collection. [`Ceiling`]s of writes apply to a drive that has
//! not begun to collect.

use crate::code::{Slots, effective};
use crate::parameter::{InvalidParameter, PAGE_BYTES, Shape};
use crate::{
    Arithmetic, Direction, FlashParameters, KvParameters, NvmParameters, Parameters,
    ZonesParameters,
};

#[cfg(test)]
mod tests;

const SECOND: u128 = 1_000_000_000;

/// All consequences.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// Geometry of lines and pages, of conventional flash.
    pub shape: Option<Shape>,
    /// Geometry of zones, of zoned flash.
    pub zones: Option<ZoneShape>,
    /// Latencies of single commands.
    pub latencies: Vec<Latency>,
    /// Upper limits of throughput.
    pub ceilings: Vec<Ceiling>,
}

/// Geometry of zones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ZoneShape {
    /// Number of zones.
    pub zones: u64,
    /// Total capacity of all zones in bytes.
    pub capacity_bytes: u64,
    /// Number of dies of the drive.
    pub dies: u64,
    /// Wordlines of one zone.
    pub wordlines: u64,
    /// Blocks that a reset of a full zone erases.
    pub blocks: u64,
}

/// Latency of a single command on an idle drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latency {
    /// Kind of the command.
    pub what: &'static str,
    /// Size of the command in bytes.
    pub bytes: u64,
    /// In the kind of flash page with the shortest latency.
    pub least_ns: u64,
    /// In the kind of flash page with the longest latency.
    pub most_ns: u64,
}

/// Size of a large command.
const LARGE_BYTES: u64 = 128 << 10;

/// Maximum throughput of a drive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ceiling {
    /// Kind of the commands.
    pub what: &'static str,
    /// Size of a command in bytes.
    pub bytes: u64,
    /// Commands per second; `None`: unlimited.
    pub per_s: Option<u64>,
    /// Bytes per second.
    pub bytes_per_s: Option<u64>,
    /// The limiting resource.
    pub limit: &'static str,
}

impl Parameters {
    /// Computes the consequences.
    ///
    /// # Errors
    /// The parameters are invalid.
    pub fn explain(&self) -> Result<Explanation, InvalidParameter> {
        self.check()?;
        Ok(match self {
            Parameters::Nvm(nvm) => explain_nvm(nvm),
            Parameters::Kv(kv) => explain_kv(kv),
            Parameters::Flash(flash) => Explanation {
                shape: Some(Shape::of(flash)?),
                zones: None,
                latencies: flash_latencies(flash),
                ceilings: flash_ceilings(flash, &["dies", "dies"]),
            },
            Parameters::Zones(zones) => explain_zones(zones),
        })
    }
}

fn explain_nvm(nvm: &NvmParameters) -> Explanation {
    Explanation {
        shape: None,
        zones: None,
        latencies: vec![
            alone("read", nvm.read.latency_ns),
            alone("write", nvm.write.latency_ns),
        ],
        ceilings: pipelines(
            [("read", &nvm.read), ("write", &nvm.write)],
            1,
            nvm.arithmetic,
        ),
    }
}

fn explain_kv(kv: &KvParameters) -> Explanation {
    let units = u64::from(kv.units);
    Explanation {
        shape: None,
        zones: None,
        latencies: vec![
            alone("retrieve", kv.read.latency_ns),
            alone("store", kv.write.latency_ns),
        ],
        ceilings: pipelines(
            [("retrieve", &kv.read), ("store", &kv.write)],
            units,
            kv.arithmetic,
        ),
    }
}

fn alone(what: &'static str, ns: u64) -> Latency {
    Latency {
        what,
        bytes: PAGE_BYTES,
        least_ns: ns,
        most_ns: ns,
    }
}

/// Ceilings of small commands, which a rate limits, and of large ones, which bandwidth limits.
fn pipelines(
    directions: [(&'static str, &Direction); 2],
    units: u64,
    arithmetic: Arithmetic,
) -> Vec<Ceiling> {
    let sizes = [PAGE_BYTES, LARGE_BYTES];
    let at = sizes.into_iter().flat_map(|bytes| {
        directions.map(|(what, direction)| pipeline((what, bytes), direction, units, arithmetic))
    });
    at.collect()
}

fn pipeline(
    (what, bytes): (&'static str, u64),
    direction: &Direction,
    units: u64,
    arithmetic: Arithmetic,
) -> Ceiling {
    let bandwidth = direction.bandwidth_bytes_per_s;
    let mut limits = Vec::new();
    match arithmetic {
        Arithmetic::Exact => {
            if bandwidth != 0 {
                limits.push((bandwidth / bytes, "bandwidth"));
            }
            if direction.rate_per_s != 0 {
                limits.push((direction.rate_per_s, "rate"));
            }
        }
        // With these rules a command occupies its unit for its whole latency, and every key is on
        // the first unit.
        Arithmetic::Code => {
            let ns = u128::from(direction.latency_ns.max(1));
            limits.push((
                whole(SECOND / ns),
                "latency, which occupies the one unit in use",
            ));
        }
    }
    let least = limits.into_iter().min_by_key(|(per_s, _)| *per_s);
    let limit = match units {
        _ if arithmetic == Arithmetic::Code => least.map(|(_, limit)| limit),
        1 => least.map(|(_, limit)| limit),
        _ => least.map(|(_, limit)| match limit {
            "rate" => "rate, of all units",
            _ => "bandwidth, of all units",
        }),
    };
    Ceiling {
        what,
        bytes,
        per_s: least.map(|(per_s, _)| per_s),
        // Of commands of this size: a rate allows no more than its own share of the bandwidth.
        bytes_per_s: least.map(|(per_s, limit)| match limit {
            "bandwidth" => bandwidth,
            _ => per_s.saturating_mul(bytes),
        }),
        limit: limit.unwrap_or("nothing"),
    }
}

/// Duration of a transfer in nanoseconds, rounded up; 0 with unlimited bandwidth.
fn duration(bytes: u64, bytes_per_s: u64) -> u64 {
    match bytes_per_s {
        0 => 0,
        rate => whole((u128::from(bytes) * SECOND).div_ceil(u128::from(rate))),
    }
}

fn whole(value: u128) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}

/// Time on a channel, with the firmware's share.
fn transfer(flash: &FlashParameters, bytes: u64) -> u64 {
    let bandwidth = flash.channel_bandwidth_bytes_per_s;
    let firmware = flash.firmware_channel_transfer_ns;
    way(flash.arithmetic, bytes, bandwidth, firmware)
}

/// Time on the link.
fn link(flash: &FlashParameters, bytes: u64) -> u64 {
    way(flash.arithmetic, bytes, flash.link_bandwidth_bytes_per_s, 0)
}

/// Time on an idle link or channel.
fn way(arithmetic: Arithmetic, bytes: u64, bandwidth: u64, per_page_ns: u64) -> u64 {
    match arithmetic {
        Arithmetic::Exact => duration(bytes, bandwidth) + bytes.div_ceil(PAGE_BYTES) * per_page_ns,
        Arithmetic::Code => {
            let mut slots = Slots::default();
            slots.retune(bandwidth, per_page_ns);
            slots.reserve(0, 0, u32::try_from(bytes).unwrap_or(u32::MAX))
        }
    }
}

fn cells<'a>(flash: &FlashParameters, times: &'a [u64; 4]) -> &'a [u64] {
    &times[..usize::from(flash.cell_bits.clamp(1, 4))]
}

fn flash_latencies(flash: &FlashParameters) -> Vec<Latency> {
    let senses = cells(flash, &flash.read_4k_ns);
    let way = flash.firmware_read_4k_ns + transfer(flash, PAGE_BYTES) + link(flash, PAGE_BYTES);
    let map = match flash.extras.map_cache_pages {
        0 => 0,
        _ => flash.read_4k_ns[0] + transfer(flash, PAGE_BYTES),
    };
    let buffered = |bytes: u64| {
        let copied = bytes.div_ceil(PAGE_BYTES) * flash.buffer_per_page_ns;
        flash.buffer_base_ns + copied + link(flash, bytes)
    };
    let oneshot = u64::from(flash.oneshot_bytes);
    let programmed = |program| buffered(oneshot) + transfer(flash, oneshot) + program;
    let programs = [
        Some(flash.program_ns),
        cached_program(flash), // while the cache has room
    ];
    let programs = programs.iter().flatten().copied().map(programmed);
    let write = buffered(PAGE_BYTES);
    vec![
        Latency {
            what: "read",
            bytes: PAGE_BYTES,
            least_ns: way + senses.iter().min().copied().unwrap_or(0),
            most_ns: way + map + senses.iter().max().copied().unwrap_or(0),
        },
        alone("write", write),
        Latency {
            what: if flash.early_completion {
                "write of a wordline, FUA"
            } else {
                "write of a wordline"
            },
            bytes: oneshot,
            least_ns: programs.clone().min().unwrap_or(0),
            most_ns: programs.max().unwrap_or(0),
        },
    ]
}

/// Program time of a wordline into single-bit cells, if there is a cache of them.
fn cached_program(flash: &FlashParameters) -> Option<u64> {
    (flash.extras.slc_cache_bytes > 0).then_some(flash.extras.slc_program_ns)
}

/// Ceilings of page reads, of large reads, and of writes, without collection.
fn flash_ceilings(flash: &FlashParameters, die_words: &[&'static str; 2]) -> Vec<Ceiling> {
    let dies = u64::from(flash.channels) * u64::from(flash.dies_per_channel);
    let page = u64::from(flash.flash_page_bytes);
    let oneshot = u64::from(flash.oneshot_bytes);
    let mean = |times: &[u64; 4]| {
        let times = cells(flash, times);
        let sum: u128 = times.iter().copied().map(u128::from).sum();
        whole(sum / times.len().max(1) as u128)
    };
    let ceiling = |what, bytes: u64, (dies, die_ns): (u64, u64), in_one: u64, word| {
        // One operation of a die, or of a part of it that works independently, handles `in_one`
        // bytes.
        let per_s = |of: u64, ns: u64| match ns {
            0 => u128::MAX,
            ns => u128::from(of) * u128::from(in_one) * SECOND / u128::from(ns),
        };
        let channel_ns = transfer(flash, in_one);
        let link = match (flash.link_bandwidth_bytes_per_s, flash.arithmetic) {
            (0, _) => u128::MAX,
            (bandwidth, Arithmetic::Exact) => u128::from(bandwidth),
            (bandwidth, Arithmetic::Code) => u128::from(effective(bandwidth)),
        };
        let limits = [
            (per_s(dies, die_ns + channel_ns), word),
            (per_s(u64::from(flash.channels), channel_ns), "channels"),
            (link, "link"),
        ];
        let (bytes_per_s, limit) = limits
            .into_iter()
            .min_by_key(|(bytes_per_s, _)| *bytes_per_s)
            .unwrap_or((u128::MAX, word));
        let limited = bytes_per_s != u128::MAX;
        Ceiling {
            what,
            bytes,
            per_s: limited.then(|| whole(bytes_per_s / u128::from(bytes))),
            bytes_per_s: limited.then(|| whole(bytes_per_s)),
            limit: if limited { limit } else { "nothing" },
        }
    };
    let (sense, sense_all) = (mean(&flash.read_4k_ns), mean(&flash.read_ns));
    let planes = dies * u64::from(flash.extras.planes);
    let [reading, writing] = *die_words;
    let write = |what, program| ceiling(what, PAGE_BYTES, (dies, program), oneshot, writing);
    let (random, sequential) = ((planes, sense), (planes, sense_all));
    let mut ceilings = vec![
        ceiling("random read", PAGE_BYTES, random, PAGE_BYTES, reading),
        ceiling("sequential read", page, sequential, page, reading),
        write("write, before collection", flash.program_ns),
    ];
    let cached = cached_program(flash);
    ceilings.extend(cached.map(|program| write("write, to single-bit cells", program)));
    ceilings
}

fn explain_zones(zones: &ZonesParameters) -> Explanation {
    let flash = &zones.flash;
    let count = flash.size_bytes / zones.zone_size_bytes.max(1);
    let oneshot = u64::from(flash.oneshot_bytes);
    let dies_per_zone = u64::from(zones.dies_per_zone);
    let wordlines = zones.zone_capacity_bytes / oneshot;
    let share = wordlines.div_ceil(dies_per_zone) * oneshot;
    let mut ceilings = flash_ceilings(flash, &["dies", "dies"]);
    for ceiling in &mut ceilings {
        if ceiling.what.starts_with("write") {
            ceiling.what = "write, to many zones";
        }
    }
    // Ceiling of a single zone: its own dies and their channels.
    let own_dies = FlashParameters {
        channels: u32::try_from(dies_per_zone.min(flash.channels.into())).unwrap_or(1),
        dies_per_channel: u32::try_from(dies_per_zone.div_ceil(flash.channels.into())).unwrap_or(1),
        ..flash.clone()
    };
    let one = flash_ceilings(&own_dies, &["its dies", "its dies"]);
    ceilings.extend(
        one.into_iter()
            .filter(|c| c.what.starts_with("write"))
            .map(|ceiling| Ceiling {
                what: "write, to one zone",
                ..ceiling
            }),
    );
    Explanation {
        shape: None,
        zones: Some(ZoneShape {
            zones: count,
            capacity_bytes: count.saturating_mul(zones.zone_capacity_bytes),
            dies: u64::from(flash.channels) * u64::from(flash.dies_per_channel),
            wordlines,
            blocks: dies_per_zone.min(wordlines) * share.div_ceil(flash.block_bytes.max(1)),
        }),
        latencies: flash_latencies(flash),
        ceilings,
    }
}
