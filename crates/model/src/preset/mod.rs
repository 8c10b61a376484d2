//! Presets: the parameters of existing drives, every value with its source.
//!
//! The name is `name` or `name@variant`. If the values of a paper and of its published program
//! differ, both are variants, and the bare name means one of them. A value is stored as text, so
//! that its unit is visible, and parsed with the table of parameters.
//!
//! Invariants: a preset gives every parameter of its kind once, each with a source, except
//! mechanisms that are off unless a parameter enables them, which are off. An unpublished value is
//! marked as assumed.
//!
//! Not included: any claim that a model with these values is the drive. The published figures of
//! the drive are listed with them.

mod given;
mod intel_p3600;
mod optane_p4800x;
mod samsung_970_pro;
mod samsung_kvssd;
mod wd_zn540;
mod zns_prototype;

#[cfg(test)]
mod tests;

use crate::parameter::Parameter;
use crate::{
    Arithmetic, CollectionPolicy, CompoundRule, Direction, FlashExtras, FlashParameters,
    InvalidParameter, Kind, KvParameters, Moment, NvmParameters, Parameters, Unit, ZonesParameters,
};

/// Time that Linux took for a read on the machine of NVMeVirt's authors: their script subtracts it
/// from the latency that was measured there.
pub const LINUX_READ_NS: u64 = 6_610;
/// The same for a write.
pub const LINUX_WRITE_NS: u64 = 9_870;

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The NVMeVirt paper (USENIX FAST 2023).
    Paper(&'static str),
    /// The program published with it (github.com/snu-csl/nvmevirt).
    Code(&'static str),
    /// A data sheet or another document of who makes such drives or chips.
    Sheet(&'static str),
    /// A measurement of the drive that somebody else published.
    Measured(&'static str),
    /// Follows from other values.
    Derived(&'static str),
    /// Not published: the value that is used instead.
    Assumed(&'static str),
}

impl Source {
    /// One word for what it is.
    pub fn word(self) -> &'static str {
        match self {
            Source::Paper(_) => "paper",
            Source::Code(_) => "code",
            Source::Sheet(_) => "sheet",
            Source::Measured(_) => "measured",
            Source::Derived(_) => "derived",
            Source::Assumed(_) => "assumed",
        }
    }

    /// Where exactly.
    pub fn text(self) -> &'static str {
        match self {
            Source::Paper(text)
            | Source::Code(text)
            | Source::Sheet(text)
            | Source::Measured(text)
            | Source::Derived(text)
            | Source::Assumed(text) => text,
        }
    }
}

/// A value and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sourced {
    /// The parameter.
    pub name: &'static str,
    /// The value as it was published, with its unit.
    pub value: &'static str,
    /// Where.
    pub source: Source,
    /// Nanoseconds of it that are the host's, where it was measured above a host's software.
    pub host_ns: u64,
}

/// A value without a host's share.
const fn v(name: &'static str, value: &'static str, source: Source) -> Sourced {
    Sourced {
        name,
        value,
        source,
        host_ns: 0,
    }
}

/// A latency of which `host_ns` are the host's.
const fn above_linux(
    name: &'static str,
    value: &'static str,
    host_ns: u64,
    source: Source,
) -> Sourced {
    Sourced {
        name,
        value,
        source,
        host_ns,
    }
}

/// A figure of the real drive, for comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Published {
    /// The measured quantity.
    pub what: &'static str,
    /// The figure with its unit.
    pub figure: &'static str,
    /// Where.
    pub source: Source,
}

const fn published(what: &'static str, figure: &'static str, source: Source) -> Published {
    Published {
        what,
        figure,
        source,
    }
}

/// A drive that exists.
#[derive(Debug)]
pub struct Preset {
    /// `samsung-970-pro`.
    pub name: &'static str,
    /// Text after the `@`; empty where there is one only.
    pub variant: &'static str,
    /// The bare name means this variant.
    pub is_default: bool,
    /// Description in one line.
    pub about: &'static str,
    /// Its model.
    pub kind: Kind,
    /// Size of the real drive.
    pub size_bytes: u64,
    /// Where that is from.
    pub size_source: Source,
    /// Its values.
    pub values: &'static [&'static [Sourced]],
    /// Published figures of the drive.
    pub published: &'static [Published],
}

/// Where a latency was measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum MeasuredBy {
    /// At the device: no time of a host is in it.
    #[default]
    Device,
    /// By Linux above the device, on a machine such as NVMeVirt's authors': [`LINUX_READ_NS`],
    /// [`LINUX_WRITE_NS`] are in it.
    Linux,
}

impl MeasuredBy {
    /// The host's share of a parameter, in nanoseconds; `None` for one that a host cannot have
    /// measured.
    pub fn host_ns(self, name: &str) -> Option<u64> {
        let linux = match name {
            "read_latency" => LINUX_READ_NS,
            "write_latency" => LINUX_WRITE_NS,
            _ => return None,
        };
        Some(match self {
            MeasuredBy::Device => 0,
            MeasuredBy::Linux => linux,
        })
    }
}

/// All presets, by name; the default variant of each stands first.
pub fn presets() -> impl Iterator<Item = &'static Preset> {
    [
        optane_p4800x::PRESETS,
        samsung_970_pro::PRESETS,
        intel_p3600::PRESETS,
        zns_prototype::PRESETS,
        wd_zn540::PRESETS,
        samsung_kvssd::PRESETS,
    ]
    .into_iter()
    .flatten()
}

/// The preset of a name, bare or with its variant.
pub fn preset(name: &str) -> Option<&'static Preset> {
    presets().find(|preset| match name.split_once('@') {
        None => preset.name == name && preset.is_default,
        Some((bare, variant)) => {
            preset.name == bare && preset.variant == variant && !variant.is_empty()
        }
    })
}

impl Preset {
    /// Its name with its variant.
    pub fn full_name(&self) -> String {
        match self.variant {
            "" => self.name.to_owned(),
            variant => format!("{}@{variant}", self.name),
        }
    }

    /// Its values, in the order of the table of parameters.
    pub fn values(&self) -> impl Iterator<Item = Sourced> {
        let all = self.values;
        self.kind.parameters().map(move |parameter| {
            let mut all = all.iter().copied().flatten();
            let given = all.find(|v| v.name == parameter.name);
            given.copied().unwrap_or_else(|| off(parameter))
        })
    }

    /// The parameters of such a drive of `size_bytes`. Its pages per block and its dies are the
    /// real drive's; the blocks of a die follow from the size. `measured_by` says what its read and
    /// write latencies hold; `None`: what their source says of them.
    ///
    /// Whether such a size can be is not looked at: that is [`Parameters::check`].
    ///
    /// # Errors
    /// The host's share is all of a latency.
    pub fn parameters(
        &self,
        size_bytes: u64,
        measured_by: Option<MeasuredBy>,
    ) -> Result<Parameters, InvalidParameter> {
        let mut parameters = blank(self.kind, size_bytes);
        for value in self.values() {
            parameters.set(value.name, value.value, Moment::Creation)?;
            let own = value.host_ns;
            let asked = measured_by.and_then(|by| by.host_ns(value.name));
            parameters.subtract_host(value.name, asked.unwrap_or(own))?;
        }
        Ok(parameters)
    }
}

impl Parameters {
    /// Takes a host's share out of a latency.
    ///
    /// # Errors
    /// Nothing would be left of it.
    pub fn subtract_host(&mut self, name: &str, host_ns: u64) -> Result<(), InvalidParameter> {
        if host_ns == 0 {
            return Ok(());
        }
        let value = self.get(name)?;
        match value.raw.checked_sub(host_ns) {
            Some(device @ 1..) => self.set(name, &format!("{device}ns"), Moment::Creation),
            _ => Err(InvalidParameter::Unfit(format!(
                "{name} = \"{value}\" was measured by Linux, which itself took {host_ns}ns of it: nothing is left for the drive; write more, or as_measured_by = \"device\""
            ))),
        }
    }
}

/// The value of a mechanism that is off.
fn off(parameter: &Parameter) -> Sourced {
    let value = match parameter.unit {
        Unit::Time => "0ns",
        Unit::Bandwidth | Unit::Rate => "none",
        Unit::Size => "0B",
        Unit::Count if parameter.min == 1 => "1",
        Unit::Count => "0",
        Unit::Percent => "0%",
        Unit::Flag => "false",
        Unit::Word(words) => words.first().copied().unwrap_or_default(),
    };
    v(
        parameter.name,
        value,
        Source::Assumed("off unless it is asked for"),
    )
}

/// Parameters of a kind before any is given.
fn blank(kind: Kind, size_bytes: u64) -> Parameters {
    let direction = Direction {
        latency_ns: 0,
        bandwidth_bytes_per_s: 0,
        rate_per_s: 0,
    };
    let arithmetic = Arithmetic::Exact;
    let flash = FlashParameters {
        arithmetic,
        size_bytes,
        partitions: 1,
        channels: 1,
        dies_per_channel: 1,
        flash_page_bytes: 4096,
        oneshot_bytes: 4096,
        block_bytes: 4096,
        cell_bits: 1,
        overprovisioning_permille: 0,
        read_4k_ns: [0; 4],
        read_ns: [0; 4],
        program_ns: 0,
        erase_ns: 0,
        channel_bandwidth_bytes_per_s: 0,
        max_channel_transfer_bytes: 4096,
        firmware_channel_transfer_ns: 0,
        link_bandwidth_bytes_per_s: 0,
        firmware_read_4k_ns: 0,
        firmware_read_ns: 0,
        buffer_bytes: 0,
        buffer_base_ns: 0,
        buffer_per_page_ns: 0,
        early_completion: false,
        deallocate_ns: 0,
        collect_below: 2,
        policy: CollectionPolicy::Greedy,
        extras: FlashExtras::default(),
    };
    match kind {
        Kind::Nvm => Parameters::Nvm(NvmParameters {
            arithmetic,
            read: direction,
            write: direction,
        }),
        Kind::Kv => Parameters::Kv(KvParameters {
            arithmetic,
            units: 1,
            read: direction,
            write: direction,
            delete_latency_ns: 0,
            exist_latency_ns: 0,
            list_latency_ns: 0,
            compound: CompoundRule::Together,
        }),
        Kind::Flash => Parameters::Flash(flash),
        Kind::Zns => Parameters::Zones(ZonesParameters {
            flash,
            zone_size_bytes: 4096,
            zone_capacity_bytes: 4096,
            dies_per_zone: 1,
            zone_buffer_bytes: 0,
            reset_ns: 0,
            finish_ns: 0,
            finish_writes: true,
            open_ns: 0,
        }),
    }
}
