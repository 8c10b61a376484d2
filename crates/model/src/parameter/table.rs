//! The table of every parameter of each kind of model.

use super::{Change, InvalidParameter, Kind, Unit, Value};
use crate::{
    Arithmetic, CollectionPolicy, CompoundRule, FlashParameters, KvParameters, NvmParameters,
    Parameters, ZonesParameters,
};

/// One parameter.
#[derive(Debug)]
pub struct Parameter {
    /// Its name.
    pub name: &'static str,
    /// The part of a drive that it is of, in words.
    pub group: &'static str,
    /// Unit of its number.
    pub unit: Unit,
    /// Least value.
    pub min: u64,
    /// Greatest value.
    pub max: u64,
    /// When it may change.
    pub change: Change,
    /// Its effect, in a few words.
    pub about: &'static str,
    place: Place,
}

/// Where it is kept.
#[derive(Debug)]
enum Place {
    Nvm(
        fn(&NvmParameters) -> &dyn Field,
        fn(&mut NvmParameters) -> &mut dyn Field,
    ),
    Kv(
        fn(&KvParameters) -> &dyn Field,
        fn(&mut KvParameters) -> &mut dyn Field,
    ),
    Flash(
        fn(&FlashParameters) -> &dyn Field,
        fn(&mut FlashParameters) -> &mut dyn Field,
    ),
    Zones(
        fn(&ZonesParameters) -> &dyn Field,
        fn(&mut ZonesParameters) -> &mut dyn Field,
    ),
}

/// A field of a parameter struct, as a number. `put` is only given what the range of its parameter
/// allows.
trait Field {
    fn get(&self) -> u64;
    fn put(&mut self, raw: u64);
}

macro_rules! whole_numbers {
    ($($type:ty),+) => {$(
        impl Field for $type {
            fn get(&self) -> u64 {
                u64::from(*self)
            }

            fn put(&mut self, raw: u64) {
                *self = <$type>::try_from(raw).unwrap_or(<$type>::MAX);
            }
        }
    )+};
}

whole_numbers!(u8, u32, u64);

impl Field for bool {
    fn get(&self) -> u64 {
        u64::from(*self)
    }

    fn put(&mut self, raw: u64) {
        *self = raw != 0;
    }
}

macro_rules! words {
    ($($type:ident, $list:ident: $($word:literal => $variant:ident),+;)+) => {$(
        const $list: &[&str] = &[$($word),+];

        impl Field for $type {
            fn get(&self) -> u64 {
                let word = match self { $($type::$variant => $word),+ };
                $list.iter().zip(0..).find(|(w, _)| **w == word).map_or(0, |(_, index)| index)
            }

            fn put(&mut self, raw: u64) {
                let all = [$($type::$variant),+];
                let found = all.into_iter().zip(0..).find(|(_, index)| *index == raw);
                *self = found.map_or(*self, |(variant, _)| variant);
            }
        }
    )+};
}

words! {
    Arithmetic, ARITHMETIC: "exact" => Exact, "code" => Code;
    CompoundRule, COMPOUND: "together" => Together, "in_order" => InOrder;
}

const POLICY: &[&str] = CollectionPolicy::WORDS;
const MAX_POLICY: u64 = POLICY.len() as u64 - 1;

impl Field for CollectionPolicy {
    fn get(&self) -> u64 {
        let all = CollectionPolicy::ALL.iter().zip(0..);
        all.filter(|(policy, _)| *policy == self)
            .map(|(_, index)| index)
            .sum()
    }

    fn put(&mut self, raw: u64) {
        let found = CollectionPolicy::ALL.iter().zip(0..);
        let mut found = found.filter(|(_, index)| *index == raw);
        *self = found.next().map_or(*self, |(policy, _)| *policy);
    }
}

impl Parameter {
    /// Its value in parameters of its kind; 0 in those of another.
    pub fn get(&self, from: &Parameters) -> Value {
        let raw = match (&self.place, from) {
            (Place::Nvm(get, _), Parameters::Nvm(p)) => get(p).get(),
            (Place::Kv(get, _), Parameters::Kv(p)) => get(p).get(),
            (Place::Flash(get, _), Parameters::Flash(p)) => get(p).get(),
            (Place::Flash(get, _), Parameters::Zones(p)) => get(&p.flash).get(),
            (Place::Zones(get, _), Parameters::Zones(p)) => get(p).get(),
            _ => 0,
        };
        Value {
            unit: self.unit,
            raw,
        }
    }

    /// Reads a value for it.
    ///
    /// # Errors
    /// The text says nothing, or a value out of its range.
    pub fn parse(&self, kind: Kind, text: &str) -> Result<Value, InvalidParameter> {
        let value = self.unit.parse(text);
        let value = value.map_err(|why| InvalidParameter::Text {
            name: self.name,
            text: text.to_owned(),
            why,
        })?;
        if !(self.min..=self.max).contains(&value.raw) {
            return Err(InvalidParameter::Range {
                name: self.name,
                kind,
                value,
            });
        }
        Ok(value)
    }

    /// Its range in words: `1 to 64`, `0ns to 10s`.
    pub fn range(&self) -> String {
        let shown = |raw| {
            Value {
                unit: self.unit,
                raw,
            }
            .to_string()
        };
        match self.unit {
            Unit::Flag | Unit::Word(_) => self.unit.name(),
            Unit::Bandwidth | Unit::Rate if self.min == 0 => {
                format!("none, or at most {}", shown(self.max))
            }
            _ => format!("{} to {}", shown(self.min), shown(self.max)),
        }
    }

    /// Whether it belongs to a mechanism that is off unless it is asked for: no preset has it.
    pub fn is_extra(&self) -> bool {
        let mut extras = EXTRAS.iter().copied().flatten();
        extras.any(|extra| extra.name == self.name)
    }

    pub(super) fn put(&self, to: &mut Parameters, value: Value) {
        let field = match (&self.place, to) {
            (Place::Nvm(_, field), Parameters::Nvm(p)) => field(p),
            (Place::Kv(_, field), Parameters::Kv(p)) => field(p),
            (Place::Flash(_, field), Parameters::Flash(p)) => field(p),
            (Place::Flash(_, field), Parameters::Zones(p)) => field(&mut p.flash),
            (Place::Zones(_, field), Parameters::Zones(p)) => field(p),
            _ => return,
        };
        field.put(value.raw);
    }
}

/// The parameters of a kind. Those of zones are those of the flash that they lie on, and their own.
pub(super) fn of(kind: Kind) -> impl Iterator<Item = &'static Parameter> {
    let tables = match kind {
        Kind::Nvm => OF_NVM,
        Kind::Kv => OF_KV,
        Kind::Flash => OF_FLASH,
        Kind::Zns => OF_ZONES,
    };
    tables.iter().copied().flatten()
}

const OF_NVM: &[&[Parameter]] = &[NVM];
const OF_KV: &[&[Parameter]] = &[KV];
const OF_FLASH: &[&[Parameter]] = &[
    GEOMETRY, CELLS, LINKS, BUFFER, FTL, CHANCE, BACKGROUND, DIES, CACHES,
];
const OF_ZONES: &[&[Parameter]] = &[GEOMETRY, CELLS, LINKS, BUFFER, ZONES, CHANCE, DIES];

/// Mechanisms that are off unless they are asked for.
const EXTRAS: &[&[Parameter]] = &[CHANCE, BACKGROUND, DIES, CACHES];

/// Longest time of one step: an hour of virtual time is simulated, and a command does not outlast
/// it.
const MAX_NS: u64 = 10_000_000_000;
/// More than any link that is planned.
const MAX_BANDWIDTH: u64 = 1 << 40;
const MAX_RATE: u64 = 1_000_000_000;

macro_rules! table {
    ($place:ident, $list:ident, $group:literal, $($name:literal $unit:ident $([$words:ident])? $min:literal..=$max:tt $change:ident ($($path:tt)+) $about:literal;)+) => {
        static $list: &[Parameter] = &[$(Parameter {
            name: $name,
            group: $group,
            unit: Unit::$unit $(($words))?,
            min: $min,
            max: $max,
            change: Change::$change,
            about: $about,
            place: Place::$place(|p| &p.$($path)+, |p| &mut p.$($path)+),
        }),+];
    };
}

table! { Nvm, NVM, "device",
    "arithmetic" Word[ARITHMETIC] 0..=1 Fixed (arithmetic) "calculation rules: exact, or code (those of the published program)";
    "read_latency" Time 1..=MAX_NS Live (read.latency_ns) "latency of a single 4 KiB read";
    "read_bandwidth" Bandwidth 0..=MAX_BANDWIDTH Live (read.bandwidth_bytes_per_s) "total read bandwidth";
    "read_rate" Rate 0..=MAX_RATE Live (read.rate_per_s) "maximum reads per second";
    "write_latency" Time 1..=MAX_NS Live (write.latency_ns) "latency of a single 4 KiB write";
    "write_bandwidth" Bandwidth 0..=MAX_BANDWIDTH Live (write.bandwidth_bytes_per_s) "total write bandwidth";
    "write_rate" Rate 0..=MAX_RATE Live (write.rate_per_s) "maximum writes per second";
}

table! { Kv, KV, "device",
    "arithmetic" Word[ARITHMETIC] 0..=1 Fixed (arithmetic) "calculation rules: exact, or code (those of the published program)";
    "units" Count 1..=1024 Reset (units) "units that work in parallel; a key is always on the same unit";
    "read_latency" Time 1..=MAX_NS Live (read.latency_ns) "latency of a single 4 KiB retrieve";
    "read_bandwidth" Bandwidth 0..=MAX_BANDWIDTH Live (read.bandwidth_bytes_per_s) "total retrieve bandwidth, divided among the units";
    "read_rate" Rate 0..=MAX_RATE Live (read.rate_per_s) "maximum retrieves per second, divided among the units";
    "write_latency" Time 1..=MAX_NS Live (write.latency_ns) "latency of a single 4 KiB store";
    "write_bandwidth" Bandwidth 0..=MAX_BANDWIDTH Live (write.bandwidth_bytes_per_s) "total store bandwidth, divided among the units";
    "write_rate" Rate 0..=MAX_RATE Live (write.rate_per_s) "maximum stores per second, divided among the units";
    "delete_latency" Time 0..=MAX_NS Live (delete_latency_ns) "latency of a delete";
    "exist_latency" Time 0..=MAX_NS Live (exist_latency_ns) "latency of an exist";
    "list_latency" Time 0..=MAX_NS Live (list_latency_ns) "latency of a list, or of an iterator step";
    "compound" Word[COMPOUND] 0..=1 Live (compound) "start of the parts of a compound command";
}

table! { Flash, GEOMETRY, "geometry",
    "arithmetic" Word[ARITHMETIC] 0..=1 Fixed (arithmetic) "calculation rules: exact, or code (those of the published program)";
    "channels" Count 1..=1024 Fixed (channels) "channels between controller and dies";
    "dies_per_channel" Count 1..=1024 Fixed (dies_per_channel) "dies per channel";
    "flash_page" Size 4096..=16_777_216 Fixed (flash_page_bytes) "size of one sense, a multiple of 4KiB";
    "oneshot" Size 4096..=67_108_864 Fixed (oneshot_bytes) "size of one program on a die, a multiple of flash_page";
    "block" Size 4096..=1_099_511_627_776 Fixed (block_bytes) "block size of a die, a multiple of oneshot";
    "cell_bits" Count 1..=4 Fixed (cell_bits) "bits per cell, which is the number of flash page types";
}

table! { Flash, CELLS, "cell times",
    "read_4k_cell0" Time 0..=MAX_NS Live (read_4k_ns[0]) "sense time of 4 KiB in the first type of flash page (LSB)";
    "read_4k_cell1" Time 0..=MAX_NS Live (read_4k_ns[1]) "sense time of 4 KiB in the second type (MSB); cell_bits 2 or more";
    "read_4k_cell2" Time 0..=MAX_NS Live (read_4k_ns[2]) "sense time of 4 KiB in the third type (CSB); cell_bits 3 or more";
    "read_4k_cell3" Time 0..=MAX_NS Live (read_4k_ns[3]) "sense time of 4 KiB in the fourth type; cell_bits 4";
    "read_cell0" Time 0..=MAX_NS Live (read_ns[0]) "sense time of more than 4 KiB in the first type of flash page";
    "read_cell1" Time 0..=MAX_NS Live (read_ns[1]) "sense time of more than 4 KiB in the second type; cell_bits 2 or more";
    "read_cell2" Time 0..=MAX_NS Live (read_ns[2]) "sense time of more than 4 KiB in the third type; cell_bits 3 or more";
    "read_cell3" Time 0..=MAX_NS Live (read_ns[3]) "sense time of more than 4 KiB in the fourth type; cell_bits 4";
    "program" Time 0..=MAX_NS Live (program_ns) "program time of a wordline";
    "erase" Time 0..=MAX_NS Live (erase_ns) "erase time of a block";
}

table! { Flash, LINKS, "channels and host link",
    "channel_bandwidth" Bandwidth 0..=MAX_BANDWIDTH Live (channel_bandwidth_bytes_per_s) "bandwidth of each channel";
    "max_channel_transfer" Size 4096..=67_108_864 Live (max_channel_transfer_bytes) "maximum bytes of one transfer from a die";
    "firmware_channel_transfer" Time 0..=MAX_NS Live (firmware_channel_transfer_ns) "firmware time for each 4 KiB over a channel";
    "link_bandwidth" Bandwidth 0..=MAX_BANDWIDTH Live (link_bandwidth_bytes_per_s) "bandwidth of the host link, in each direction";
}

table! { Flash, BUFFER, "firmware and write buffer",
    "firmware_read_4k" Time 0..=MAX_NS Live (firmware_read_4k_ns) "firmware time before the senses of a read of up to 4 KiB per partition";
    "firmware_read" Time 0..=MAX_NS Live (firmware_read_ns) "firmware time before the senses of a larger read";
    "buffer" Size 0..=1_099_511_627_776 Reset (buffer_bytes) "size of the drive's write buffer";
    "buffer_base" Time 0..=MAX_NS Live (buffer_base_ns) "firmware time before the data of a write is fetched";
    "buffer_per_page" Time 0..=MAX_NS Live (buffer_per_page_ns) "firmware time for each 4 KiB of a write";
    "early_completion" Flag 0..=1 Live (early_completion) "complete writes without FUA when they are in the buffer";
}

table! { Flash, FTL, "translation and collection",
    "partitions" Count 1..=256 Fixed (partitions) "independent translation layers; channels is a multiple of their number";
    "overprovisioning" Percent 0..=10_000 Fixed (overprovisioning_permille) "overprovisioning: space beyond the size visible to hosts";
    "deallocate" Time 0..=MAX_NS Live (deallocate_ns) "latency of a deallocate or write zeroes";
    "collect_below" Count 2..=1024 Live (collect_below) "foreground collection threshold: free lines of a partition at which a line is collected";
    "policy" Word[POLICY] 0..=MAX_POLICY Live (policy) "selection of the line to collect";
}

table! { Flash, CHANCE, "random variation",
    "seed" Count 0..=9_007_199_254_740_992 Live (extras.seed) "seed of random numbers";
    "read_jitter" Percent 0..=2000 Live (extras.read_jitter_permille) "sigma of the lognormal distribution of sense times; 0%: constant";
    "program_jitter" Percent 0..=2000 Live (extras.program_jitter_permille) "sigma of the lognormal distribution of program times; 0%: constant";
    "erase_jitter" Percent 0..=2000 Live (extras.erase_jitter_permille) "sigma of the lognormal distribution of erase times; 0%: constant";
    "read_retry_per_million" Count 0..=1_000_000 Live (extras.read_retry_ppm) "senses per million that are repeated; 0: none";
}

table! { Flash, BACKGROUND, "background collection",
    "background_below" Count 0..=1_048_576 Live (extras.background_below) "background collection threshold: an idle drive collects in partitions with fewer free lines; 0: never";
    "background_idle" Time 0..=MAX_NS Live (extras.background_idle_ns) "time without a command after which the drive is idle";
}

table! { Flash, DIES, "planes and suspension",
    "planes" Count 1..=64 Fixed (extras.planes) "planes of a die, which sense independently; oneshot is a multiple of planes times flash_page";
    "suspend_limit" Count 0..=1_000_000 Live (extras.suspend_limit) "maximum suspensions of one program or erase for reads; 0: never";
    "suspend" Time 0..=MAX_NS Live (extras.suspend_ns) "suspend time before the sense of the read";
    "resume" Time 0..=MAX_NS Live (extras.resume_ns) "resume time after the last sense";
}

table! { Flash, CACHES, "caches",
    "slc_cache" Size 0..=1_125_899_906_842_624 Live (extras.slc_cache_bytes) "size of the cache of single-bit cells for host writes; 0B: none";
    "slc_program" Time 0..=MAX_NS Live (extras.slc_program_ns) "program time of a wordline in the cache";
    "slc_read" Time 0..=MAX_NS Live (extras.slc_read_ns) "sense time of a wordline that is folded out of the cache";
    "slc_idle" Time 0..=MAX_NS Live (extras.slc_idle_ns) "time without a command after which the cache is folded";
    "map_cache_pages" Count 0..=1_048_576 Live (extras.map_cache_pages) "map pages, each for 4 MiB, that a partition keeps in memory; 0: all";
}

table! { Zones, ZONES, "zones",
    "zone_size" Size 4096..=1_099_511_627_776 Fixed (zone_size_bytes) "distance between zone starts";
    "zone_capacity" Size 4096..=1_099_511_627_776 Fixed (zone_capacity_bytes) "writable bytes of a zone";
    "dies_per_zone" Count 1..=1_048_576 Fixed (dies_per_zone) "dies per zone";
    "zone_buffer" Size 0..=1_099_511_627_776 Reset (zone_buffer_bytes) "size of each zone's write buffer; 0B: all zones share buffer";
    "reset" Time 0..=MAX_NS Live (reset_ns) "minimum latency of a zone reset";
    "finish" Time 0..=MAX_NS Live (finish_ns) "minimum latency of a finish";
    "finish_writes" Flag 0..=1 Live (finish_writes) "program the unwritten part of a zone at a finish";
    "open" Time 0..=MAX_NS Live (open_ns) "latency of an explicit open";
}
