//! Parser of fio's job files, for keys that have a meaning on a virtual clock.
//!
//! Every key is either supported, or known to have no effect here, or rejected by name with its
//! line: no key is ignored silently. [`KEYS`] lists the supported ones. Values have fio's forms and
//! defaults: sizes without a unit are bytes and `k`, `m`, `g`, `t` are powers of 1024; `runtime`
//! and `startdelay` without a unit are seconds, `thinktime` microseconds.
//!
//! Not included: variables, included files, replays of fio's own logs, and fio's random generators:
//! the same job file gives another order of the same kind.

mod values;

use values::{by_kind, bytes, choice, extent, flag, number, time_ns};

use crate::job::{Arrivals, Distribution, Job, Kind};

/// The most commands in flight of one worker: what a queue of 4096 entries holds.
const DEPTH_MAX: u64 = 4095;
/// Maximum size of a command with data.
pub(crate) const TRANSFER_MAX: u64 = 2 << 20;
/// Size of a command without `bs`.
const BLOCK_DEFAULT: u32 = 4096;
/// Maximum size of a command without data.
const TRIM_MAX: u64 = 1 << 31;

/// Supported keys, with their effects.
pub const KEYS: &[(&str, &str)] = &[
    (
        "rw, readwrite",
        "read, write, trim, randread, randwrite, randtrim, rw, readwrite, randrw",
    ),
    (
        "bs, blocksize",
        "bytes of a command; up to three with commas: reads, writes, trims",
    ),
    (
        "bssplit",
        "sizes with shares, as in 4k/70:64k/30; up to three with commas",
    ),
    ("iodepth", "commands in flight, 1 to 4095"),
    ("ioengine", "synchronous ones make iodepth 1"),
    ("numjobs", "workers, each with a queue pair"),
    (
        "offset, offset_increment",
        "where its part of the drive begins, in bytes or per cent",
    ),
    (
        "size",
        "how long its part is, and how much is done, in bytes or per cent",
    ),
    ("io_size", "how much is done, where that is not its size"),
    ("number_ios", "how many commands are done at most"),
    ("loops", "how often its size is done"),
    ("runtime", "how long it takes at most"),
    (
        "time_based",
        "goes on until runtime, or to the end of the simulation",
    ),
    ("startdelay", "how long after its group it begins"),
    (
        "rwmixread, rwmixwrite",
        "share of reads, of writes, in per cent",
    ),
    ("rate_iops", "commands per second of each worker, at most"),
    ("rate_process", "linear or poisson"),
    (
        "thinktime, thinktime_blocks",
        "pause after so many commands that are done",
    ),
    (
        "norandommap",
        "random places may come again before all have come",
    ),
    ("random_distribution", "random, zipf or zipf:THETA"),
    ("randseed", "a seed of its own instead of --seed"),
    ("fsync, fdatasync", "a flush after so many writes"),
    ("sync", "none, sync or dsync: writes are FUA"),
    (
        "stonewall, wait_for_previous",
        "begins when all sections before it are done",
    ),
    (
        "zonemode",
        "none, or zbd: writes to write pointers, and reads what was written",
    ),
    (
        "max_open_zones, job_max_open_zones",
        "zones that each worker writes to at a time",
    ),
];

/// Why a drive with keys rejects a value.
const NO_FUA: &str = "a key-value drive knows no FUA: leave it out, or write fsync=1";
const NO_ZONES: &str = "a key-value drive has no zones: leave it out";

/// Keys without effect here: they control fio itself.
pub const IGNORED: &[&str] = &[
    "allow_mounted_write",
    "cpus_allowed",
    "cpus_allowed_policy",
    "description",
    "directory",
    "disable_clat",
    "disable_lat",
    "disable_slat",
    "filename",
    "fixedbufs",
    "group_reporting",
    "gtod_reduce",
    "hipri",
    "invalidate",
    "log_avg_msec",
    "mem",
    "name",
    "percentile_list",
    "randrepeat",
    "refill_buffers",
    "registerfiles",
    "sqthread_poll",
    "thread",
    "write_bw_log",
    "write_iops_log",
    "write_lat_log",
    "zero_buffers",
];

/// Error in a job file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct FioError {
    /// Line number, from 1; 0 for a value that is not from the file.
    pub line: usize,
    /// The error and its remedy.
    pub why: String,
}

/// A section being parsed.
#[derive(Clone, Debug, Default)]
struct Section {
    job: Job,
    synchronous: bool,
    line: usize,
}

/// Parses a job file for a drive of blocks. `overrides` are keys and values that replace those of
/// every section.
///
/// # Errors
/// The first line that is rejected.
pub fn parse(text: &str, overrides: &[(String, String)]) -> Result<Vec<Job>, FioError> {
    read(text, overrides, Section::default())
}

/// The same for a drive with keys ([`Job::keyed`]). Values have any size; keys that such a drive
/// does not support are rejected.
///
/// # Errors
/// The first line that is rejected.
pub fn parse_keyed(text: &str, overrides: &[(String, String)]) -> Result<Vec<Job>, FioError> {
    let mut section = Section::default();
    section.job.keyed = true;
    read(text, overrides, section)
}

/// Parses sections with `global` as their defaults.
fn read(
    text: &str,
    overrides: &[(String, String)],
    mut global: Section,
) -> Result<Vec<Job>, FioError> {
    let mut done = Vec::new();
    let mut current: Option<Section> = None;
    let mut in_global = false;
    for (line, content) in (1..).zip(text.lines()) {
        let content = content.trim();
        if content.is_empty() || content.starts_with(['#', ';']) {
            continue;
        }
        if let Some(name) = content.strip_prefix('[') {
            let name = name.strip_suffix(']').ok_or_else(|| FioError {
                line,
                why: format!("`{content}` begins a section and does not end with ]"),
            })?;
            done.extend(current.take());
            in_global = name == "global";
            if !in_global {
                let mut section = global.clone();
                section.job.name = name.to_owned();
                section.line = line;
                current = Some(section);
            }
            continue;
        }
        let (key, value) = match content.split_once('=') {
            Some((key, value)) => (key.trim(), Some(value.trim())),
            None => (content, None),
        };
        let section = match (&mut current, in_global) {
            (_, true) => &mut global,
            (Some(section), false) => section,
            (None, false) => {
                return Err(FioError {
                    line,
                    why: format!(
                        "`{content}` stands before the first section: begin with [global] or [name]"
                    ),
                });
            }
        };
        let set = section.set(key, value);
        set.map_err(|why| FioError {
            line,
            why: format!("{key}: {why}"),
        })?;
    }
    done.extend(current);
    if done.is_empty() {
        return Err(FioError {
            line: text.lines().count().max(1),
            why: "there is no section but [global]: add one, as in [job]".into(),
        });
    }
    done.into_iter()
        .map(|section| section.finish(overrides))
        .collect()
}

/// Sizes of reads, writes and trims, as `bs` gives them.
///
/// # Errors
/// The value has another form.
pub fn sizes(value: &str) -> Result<[u64; 3], String> {
    by_kind(value, &u64::from(BLOCK_DEFAULT), bytes)
}

/// All commands of one size.
fn whole(size: u32) -> Vec<(u32, u8)> {
    vec![(size, 100)]
}

/// Whether a job file may contain a key.
#[must_use]
pub fn is_key(key: &str) -> bool {
    let mut taken = KEYS.iter().flat_map(|(names, _)| names.split(", "));
    taken.any(|name| name == key)
}

impl Section {
    fn set(&mut self, key: &str, value: Option<&str>) -> Result<(), String> {
        if IGNORED.contains(&key) {
            return Ok(());
        }
        if value.is_some_and(|value| value.contains('$')) {
            return Err("variables are not expanded: write the value".into());
        }
        // Switches need no value.
        match key {
            "time_based" => self.job.time_based = flag(value)?,
            "norandommap" => self.job.forgets = flag(value)?,
            "stonewall" | "wait_for_previous" => self.job.after_others = flag(value)?,
            "direct" => must(flag(value)?, "there is no page cache here: write direct=1")?,
            "buffered" => must(
                !flag(value)?,
                "there is no page cache here: write buffered=0",
            )?,
            _ => {
                let needed = || format!("has no value: write {key}=…");
                self.set_value(key, value.ok_or_else(needed)?)?;
            }
        }
        Ok(())
    }

    fn set_value(&mut self, key: &str, value: &str) -> Result<(), String> {
        let job = &mut self.job;
        match key {
            "rw" | "readwrite" => (job.kinds, job.random) = direction(value)?,
            "bs" | "blocksize" => {
                let keyed = job.keyed;
                let one = |value: &str| Ok(vec![(size_of_command(value, keyed)?, 100)]);
                job.sizes = by_kind(value, &whole(BLOCK_DEFAULT), one)?;
            }
            "bssplit" => {
                let keyed = job.keyed;
                let one = |value: &str| split(value, keyed);
                job.sizes = by_kind(value, &whole(BLOCK_DEFAULT), one)?;
            }
            "iodepth" => job.depth = number(value, 1, DEPTH_MAX)? as u16,
            "ioengine" => self.synchronous = is_synchronous(value)?,
            "numjobs" => job.workers = number(value, 1, 64)? as u16,
            "offset" => job.offset = extent(value)?,
            "offset_increment" => job.offset_increment = extent(value)?,
            "size" => job.size = Some(extent(value)?),
            "io_size" => job.io_size = Some(extent(value)?),
            "number_ios" => job.commands = Some(number(value, 1, u64::MAX)?),
            "loops" => job.loops = number(value, 1, u64::MAX)?,
            "runtime" => job.runtime_ns = Some(time_ns(value, 1_000_000_000)?),
            "startdelay" => job.start_delay_ns = time_ns(value, 1_000_000_000)?,
            "rwmixread" => job.read_percent = number(value, 0, 100)? as u8,
            "rwmixwrite" => job.read_percent = 100 - number(value, 0, 100)? as u8,
            "rate_iops" => job.rate = Some(number(value, 1, 1_000_000_000)?),
            "rate_process" => {
                let all = [("linear", Arrivals::Even), ("poisson", Arrivals::Poisson)];
                job.arrivals = choice(value, &all)?;
            }
            "thinktime" => job.think_ns = time_ns(value, 1_000)?,
            "thinktime_blocks" => job.think_commands = number(value, 1, u64::MAX)?,
            "random_distribution" => job.distribution = distribution(value)?,
            "randseed" => job.seed = Some(number(value, 0, u64::MAX)?),
            "fsync" | "fdatasync" => job.flush_every = number(value, 0, u64::MAX)?,
            "sync" => {
                let all = [
                    ("none", false),
                    ("0", false),
                    ("sync", true),
                    ("1", true),
                    ("dsync", true),
                ];
                job.fua = choice(value, &all)?;
                must(!(job.fua && job.keyed), NO_FUA)?;
            }
            "zonemode" => {
                job.zoned = choice(value, &[("none", false), ("zbd", true)])?;
                must(!(job.zoned && job.keyed), NO_ZONES)?;
            }
            "max_open_zones" | "job_max_open_zones" => {
                let zones = number(value, 0, u64::from(u32::MAX))? as u32;
                job.open_zones = (zones > 0).then_some(zones);
                must(zones == 0 || !job.keyed, NO_ZONES)?;
            }
            _ => return Err(unknown()),
        }
        Ok(())
    }

    fn finish(mut self, overrides: &[(String, String)]) -> Result<Job, FioError> {
        let line = self.line;
        let wrong = |line, why| FioError { line, why };
        for (key, value) in overrides {
            let set = self.set(key, Some(value));
            set.map_err(|why| wrong(0, format!("{key}={value}: {why}")))?;
        }
        let mut job = self.job;
        if self.synchronous {
            job.depth = 1;
        }
        let name = &job.name;
        if job.rate.is_some() && job.kinds.len() > 1 {
            return Err(wrong(
                line,
                format!(
                    "[{name}]: rate_iops is of reads or of writes: make two sections, one of each"
                ),
            ));
        }
        if u64::from(job.largest()) > TRANSFER_MAX {
            return Err(wrong(
                line,
                format!(
                    "[{name}]: a command of {} bytes: the drive takes {TRANSFER_MAX} at most",
                    job.largest()
                ),
            ));
        }
        Ok(job)
    }
}

fn must(holds: bool, why: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why.to_owned()) }
}

fn unknown() -> String {
    let names = KEYS.iter().flat_map(|(names, _)| names.split(", "));
    let all: Vec<_> = names.collect();
    format!("is not taken here; these keys are: {}", all.join(", "))
}

fn direction(value: &str) -> Result<(Vec<Kind>, bool), String> {
    use Kind::{Read, Trim, Write};
    let all = [
        ("read", (vec![Read], false)),
        ("write", (vec![Write], false)),
        ("trim", (vec![Trim], false)),
        ("randread", (vec![Read], true)),
        ("randwrite", (vec![Write], true)),
        ("randtrim", (vec![Trim], true)),
        ("rw", (vec![Read, Write], false)),
        ("readwrite", (vec![Read, Write], false)),
        ("randrw", (vec![Read, Write], true)),
    ];
    choice(value, &all)
}

fn is_synchronous(value: &str) -> Result<bool, String> {
    const NAMES: [(&str, bool); 10] = [
        ("libaio", false),
        ("io_uring", false),
        ("io_uring_cmd", false),
        ("posixaio", false),
        ("null", false),
        ("sync", true),
        ("psync", true),
        ("vsync", true),
        ("pvsync", true),
        ("pvsync2", true),
    ];
    choice(value, &NAMES)
}

fn distribution(value: &str) -> Result<Distribution, String> {
    match value.split_once(':') {
        None if value == "random" => Ok(Distribution::Uniform),
        None if value == "zipf" => Ok(Distribution::Zipf(1_100_000)),
        Some(("zipf", theta)) => values::millionths(theta).map(Distribution::Zipf),
        _ => Err(format!(
            "`{value}` is none of random, zipf and zipf:THETA: others are not taken"
        )),
    }
}

/// Block sizes are multiples of 512 bytes, value sizes any number.
fn size_of_command(value: &str, keyed: bool) -> Result<u32, String> {
    let size = bytes(value)?;
    if keyed && (1..=TRANSFER_MAX).contains(&size) {
        return Ok(size as u32);
    }
    if keyed {
        return Err(format!(
            "a value of {size} bytes cannot be: write 1 to {TRANSFER_MAX}"
        ));
    }
    if size == 0 || !size.is_multiple_of(512) || size > TRIM_MAX {
        return Err(format!(
            "a command of {size} bytes cannot be: write a multiple of 512"
        ));
    }
    u32::try_from(size).map_err(|_| "too large".into())
}

/// `4k/70:64k/30`; entries without a share divide the rest.
fn split(value: &str, keyed: bool) -> Result<Vec<(u32, u8)>, String> {
    let mut parts: Vec<(u32, Option<u64>)> = Vec::new();
    for part in value.split(':') {
        let (size, percent) = match part.split_once('/') {
            Some((size, "")) => (size, None),
            Some((size, percent)) => (size, Some(number(percent, 0, 100)?)),
            None => (part, None),
        };
        parts.push((size_of_command(size, keyed)?, percent));
    }
    let given: u64 = parts.iter().filter_map(|(_, percent)| *percent).sum();
    let open = parts
        .iter()
        .filter(|(_, percent)| percent.is_none())
        .count() as u64;
    let left = 100u64.checked_sub(given);
    let left = left.ok_or_else(|| format!("`{value}`: shares of {given} % in all"))?;
    if open == 0 && left > 0 {
        return Err(format!("`{value}`: shares of {given} % in all, not 100"));
    }
    let mut number_of_open = 0;
    let shares = parts.into_iter().map(|(size, percent)| {
        let percent = percent.unwrap_or_else(|| {
            number_of_open += 1;
            // The first ones get the remainder of the division.
            left / open + u64::from(number_of_open <= left % open)
        });
        (size, percent as u8)
    });
    Ok(shares.collect())
}

#[cfg(test)]
mod tests;
