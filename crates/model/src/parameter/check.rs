//! Checks of the consistency of parameters.

use super::shape::{size, unfit};
use super::{InvalidParameter, PAGE_BYTES, Shape};
use crate::units::is_counted;
use crate::{
    Arithmetic, Direction, FlashParameters, KvParameters, NvmParameters, Parameters,
    ZonesParameters,
};

/// Most bytes of a drive: NVMe counts them with 64 bits, files with 63.
const MAX_SIZE: u64 = i64::MAX as u64;
/// Most dies of a drive.
const MAX_DIES: u64 = 65_536;

impl Parameters {
    /// Whether a model can be made of them.
    ///
    /// # Errors
    /// What does not fit, and what to write.
    pub fn check(&self) -> Result<(), InvalidParameter> {
        for parameter in self.kind().parameters() {
            let value = parameter.get(self);
            if !(parameter.min..=parameter.max).contains(&value.raw) {
                return Err(InvalidParameter::Range {
                    name: parameter.name,
                    kind: self.kind(),
                    value,
                });
            }
        }
        match self {
            Parameters::Nvm(nvm) => check_nvm(nvm),
            Parameters::Kv(kv) => check_kv(kv),
            Parameters::Flash(flash) => check_flash(flash),
            Parameters::Zones(zones) => check_zones(zones),
        }
    }
}

fn check_nvm(nvm: &NvmParameters) -> Result<(), InvalidParameter> {
    check_direction("read", &nvm.read, 1, nvm.arithmetic)?;
    check_direction("write", &nvm.write, 1, nvm.arithmetic)
}

fn check_kv(kv: &KvParameters) -> Result<(), InvalidParameter> {
    let units = u64::from(kv.units);
    check_direction("read", &kv.read, units, kv.arithmetic)?;
    check_direction("write", &kv.write, units, kv.arithmetic)
}

/// A page is not done before its unit is free for the next one: `L >= cost(4096)`, as exact
/// fractions.
fn check_direction(
    name: &str,
    direction: &Direction,
    units: u64,
    arithmetic: Arithmetic,
) -> Result<(), InvalidParameter> {
    if arithmetic == Arithmetic::Code {
        // There a command takes its unit for all of its latency.
        return Ok(());
    }
    let latency = u128::from(direction.latency_ns);
    let least = |bytes: u64, per_second: u64| {
        let ns = u128::from(bytes) * 1_000_000_000 * u128::from(units);
        if per_second == 0 || latency * u128::from(per_second) >= ns {
            return None;
        }
        Some(ns.div_ceil(u128::from(per_second)))
    };
    let bandwidth = least(PAGE_BYTES, direction.bandwidth_bytes_per_s);
    let rate = least(1, direction.rate_per_s);
    let needed = [bandwidth, rate].into_iter().flatten().max();
    match needed {
        None => Ok(()),
        Some(needed) => Err(unfit(format!(
            "{name}_latency = \"{latency}ns\" is shorter than the {needed}ns that {name}_bandwidth and {name}_rate leave for 4 KiB: raise them, or the latency"
        ))),
    }
}

/// The published program counts what goes through a link or channel in small numbers.
fn check_counted(flash: &FlashParameters) -> Result<(), InvalidParameter> {
    if flash.arithmetic == Arithmetic::Exact {
        return Ok(());
    }
    for (name, bandwidth) in [
        ("channel_bandwidth", flash.channel_bandwidth_bytes_per_s),
        ("link_bandwidth", flash.link_bandwidth_bytes_per_s),
    ] {
        if !is_counted(bandwidth) {
            return Err(unfit(format!(
                "{name} = \"{bandwidth}B/s\": with arithmetic = \"code\" write 32MB/s to 7782MiB/s, or none: the published program cannot count with others"
            )));
        }
    }
    Ok(())
}

fn check_flash(flash: &FlashParameters) -> Result<(), InvalidParameter> {
    check_counted(flash)?;
    check_dies(flash)?;
    if !flash.channels.is_multiple_of(flash.partitions) {
        return Err(unfit(format!(
            "channels = {} is no multiple of partitions = {}: each partition has channels of its own",
            flash.channels, flash.partitions
        )));
    }
    let least = u64::from(flash.partitions) * u64::from(flash.oneshot_bytes);
    if flash.buffer_bytes < least {
        return Err(unfit(format!(
            "buffer = \"{}\" does not hold one oneshot for each partition: write at least {}",
            size(flash.buffer_bytes),
            size(least)
        )));
    }
    check_slc_cache(flash)?;
    Shape::of(flash).map(|_| ())
}

fn check_slc_cache(flash: &FlashParameters) -> Result<(), InvalidParameter> {
    let cache = flash.extras.slc_cache_bytes;
    let least = u64::from(flash.partitions) * u64::from(flash.oneshot_bytes);
    if (1..least).contains(&cache) {
        return Err(unfit(format!(
            "slc_cache = \"{}\" does not hold one oneshot for each partition: write at least {}, or 0B for none",
            size(cache),
            size(least)
        )));
    }
    if cache > 0 && flash.extras.slc_program_ns == 0 {
        return Err(unfit(format!(
            "slc_cache = \"{}\" with slc_program = \"0ns\" would program in no time: give slc_program, the program time of a wordline in the cache",
            size(cache)
        )));
    }
    Ok(())
}

/// Checks that zones need, too.
fn check_dies(flash: &FlashParameters) -> Result<(), InvalidParameter> {
    if !(PAGE_BYTES..=MAX_SIZE).contains(&flash.size_bytes) {
        return Err(unfit(format!(
            "a drive of {}: write 4KiB to 8 EiB",
            size(flash.size_bytes)
        )));
    }
    let (page, oneshot) = (flash.flash_page_bytes, flash.oneshot_bytes);
    multiple("flash_page", page.into(), "4KiB", PAGE_BYTES)?;
    multiple("oneshot", oneshot.into(), "flash_page", page.into())?;
    multiple("block", flash.block_bytes, "oneshot", oneshot.into())?;
    let planes = flash.extras.planes;
    if planes != 1 {
        let of_all = u64::from(planes) * u64::from(page);
        multiple("oneshot", oneshot.into(), "planes times flash_page", of_all)?;
    }
    let dies = u64::from(flash.channels) * u64::from(flash.dies_per_channel);
    if dies > MAX_DIES {
        return Err(unfit(format!(
            "channels = {} with dies_per_channel = {}: a drive has at most {MAX_DIES} dies",
            flash.channels, flash.dies_per_channel
        )));
    }
    Ok(())
}

fn multiple(name: &str, value: u64, of: &str, unit: u64) -> Result<(), InvalidParameter> {
    if unit != 0 && value.is_multiple_of(unit) {
        return Ok(());
    }
    let shown = size(value);
    let of = match of {
        "4KiB" => of.to_owned(),
        other => format!("{other}, {}", size(unit)),
    };
    Err(unfit(format!(
        "{name} = \"{shown}\": write a multiple of {of}"
    )))
}

fn check_zones(zones: &ZonesParameters) -> Result<(), InvalidParameter> {
    let flash = &zones.flash;
    check_counted(flash)?;
    check_dies(flash)?;
    let (zone, capacity) = (zones.zone_size_bytes, zones.zone_capacity_bytes);
    let dies = u64::from(flash.channels) * u64::from(flash.dies_per_channel);
    if capacity > zone {
        return Err(unfit(format!(
            "zone_capacity = \"{}\" is more than zone_size = \"{}\"",
            size(capacity),
            size(zone)
        )));
    }
    multiple("zone_size", zone, "4KiB", PAGE_BYTES)?;
    multiple(
        "zone_capacity",
        capacity,
        "oneshot",
        flash.oneshot_bytes.into(),
    )?;
    if u64::from(zones.dies_per_zone) > dies {
        return Err(unfit(format!(
            "dies_per_zone = {}: the drive has {dies} dies",
            zones.dies_per_zone
        )));
    }
    if flash.size_bytes < zone || !flash.size_bytes.is_multiple_of(zone) {
        return Err(unfit(format!(
            "a drive of {} is no whole number of zones: write a multiple of zone_size, {}",
            size(flash.size_bytes),
            size(zone)
        )));
    }
    if flash.size_bytes / zone > u64::from(u32::MAX) {
        return Err(unfit(format!(
            "a drive of {} has more zones than can be counted: raise zone_size",
            size(flash.size_bytes)
        )));
    }
    // A wordline is filled before its bytes come back.
    let (name, buffer) = match zones.zone_buffer_bytes {
        0 => ("buffer", flash.buffer_bytes),
        own => ("zone_buffer", own),
    };
    if buffer < u64::from(flash.oneshot_bytes) {
        return Err(unfit(format!(
            "{name} = \"{}\" does not hold one oneshot: write at least {}",
            size(buffer),
            size(flash.oneshot_bytes.into())
        )));
    }
    Ok(())
}
