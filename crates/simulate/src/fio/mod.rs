//! Parser of fio's job files, for keys that have a meaning on a virtual clock.
//!
//! Every key is either supported, or known to have no effect here, or rejected by name with its
//! line, all of them at once: no key is ignored silently. [`KEYS`] lists the supported ones. Values
//! have the forms, defaults and meanings of fio's HOWTO: sizes without a unit are bytes and `k`,
//! `m`, `g`, `t` are powers of 1024; `runtime`, `ramp_time` and `startdelay` without a unit are
//! seconds, `thinktime` microseconds; without `ioengine` a job submits one command at a time.
//!
//! `filename` and `directory` say where, and a simulation has one drive: sections of several files
//! are rejected unless one is chosen.
//!
//! Not included: variables, included files, replays of fio's own logs, and fio's random generators:
//! the same job file gives another order of the same kind.

mod distribution;
mod keys;
mod values;

use std::collections::BTreeSet;
use std::fmt;

pub use keys::{IGNORED, KEYS};
use values::{by_kind, bytes, choice, extent, flag, number, time_ns};

use crate::job::{Arrivals, Job, Kind, Rate};

/// The most commands in flight of one worker: what a queue of 4096 entries holds.
const DEPTH_MAX: u64 = 4095;
/// Maximum size of a command with data.
pub(crate) const TRANSFER_MAX: u64 = 2 << 20;
/// Size of a command without `bs`.
const BLOCK_DEFAULT: u32 = 4096;
/// Maximum size of a command without data.
const TRIM_MAX: u64 = 1 << 31;

/// fio's default engine.
const ENGINE_DEFAULT: &str = "psync";

/// Why a drive with keys rejects a value.
const NO_FUA: &str = "a key-value drive knows no FUA: leave it out, or write fsync=1";
const NO_ZONES: &str = "a key-value drive has no zones: leave it out";

/// Error in a job file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FioError {
    /// Line number, from 1; 0 for a value that is not from the file.
    pub line: usize,
    /// The error and its remedy.
    pub why: String,
    /// Errors in later lines.
    pub more: Vec<(usize, String)>,
}

impl fmt::Display for FioError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // a value of the command line is in no line
        if self.line > 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.why)?;
        for (line, why) in &self.more {
            write!(f, "\nline {line}: {why}")?;
        }
        let mut all = self.more.iter().map(|(_, why)| why).chain([&self.why]);
        if all.any(|why| why.ends_with(UNSUPPORTED)) {
            let names = KEYS.iter().flat_map(|(names, _)| names.split(", "));
            let names: Vec<&str> = names.collect();
            write!(f, "\nsupported keys: {}", names.join(", "))?;
        }
        Ok(())
    }
}

fn wrong(line: usize, why: String) -> FioError {
    let more = Vec::new();
    FioError { line, why, more }
}

const UNSUPPORTED: &str = "is not supported";

/// A section being parsed.
#[derive(Clone, Debug)]
struct Section {
    job: Job,
    engine: String,
    directory: Option<String>,
    filename: Option<String>,
    low: Option<u16>,
    complete: u16,
    rates: [[Option<u64>; 3]; 2],
    line: usize,
}

impl Section {
    fn new(keyed: bool) -> Self {
        Self {
            job: Job {
                keyed,
                ..Job::default()
            },
            engine: ENGINE_DEFAULT.to_owned(),
            directory: None,
            filename: None,
            low: None,
            complete: 1,
            rates: [[None; 3]; 2],
            line: 0,
        }
    }
}

/// Parameters with which a job file is read.
#[derive(Clone, Copy, Debug, Default)]
pub struct With<'a> {
    /// Keys and values that replace those of every section.
    pub overrides: &'a [(String, String)],
    /// The drive has keys ([`Job::keyed`]): values have any size, and keys that such a drive does
    /// not support are rejected.
    pub keyed: bool,
    /// The file whose sections are meant, if there are several.
    pub file: Option<&'a str>,
}

/// Parses a job file for a drive of blocks. `overrides` are keys and values that replace those of
/// every section.
///
/// # Errors
/// The first line that is rejected.
pub fn parse(text: &str, overrides: &[(String, String)]) -> Result<Vec<Job>, FioError> {
    parse_with(
        text,
        &With {
            overrides,
            ..With::default()
        },
    )
}

/// The same for a drive with keys ([`Job::keyed`]). Values have any size; keys that such a drive
/// does not support are rejected.
///
/// # Errors
/// The first line that is rejected.
pub fn parse_keyed(text: &str, overrides: &[(String, String)]) -> Result<Vec<Job>, FioError> {
    let keyed = true;
    parse_with(
        text,
        &With {
            overrides,
            keyed,
            file: None,
        },
    )
}

/// Parses a job file.
///
/// # Errors
/// All lines that are rejected.
pub fn parse_with(text: &str, with: &With<'_>) -> Result<Vec<Job>, FioError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let (sections, mut errors) = sections(text, with.keyed);
    if errors.is_empty() && sections.is_empty() {
        errors.push((
            text.lines().count().max(1),
            "there is no section but [global]: add one, as in [job]".into(),
        ));
    }
    let mut jobs = Vec::new();
    if errors.is_empty() {
        for section in sections {
            let line = section.line;
            match section.finish(with.overrides) {
                Ok(job) => jobs.push((line, job)),
                Err(error) => return Err(error),
            }
        }
        if let Err(error) = choose(&mut jobs, with.file) {
            errors.push(error);
        }
    }
    let mut errors = errors.into_iter();
    match errors.next() {
        None => Ok(jobs.into_iter().map(|(_, job)| job).collect()),
        Some((line, why)) => Err(FioError {
            line,
            why,
            more: errors.collect(),
        }),
    }
}

/// Keeps the sections of one file.
fn choose(jobs: &mut Vec<(usize, Job)>, chosen: Option<&str>) -> Result<(), (usize, String)> {
    let shown = |job: &Job| job.file.clone().unwrap_or_else(|| "no filename".to_owned());
    let files: BTreeSet<String> = jobs.iter().map(|(_, job)| shown(job)).collect();
    let all: Vec<String> = files.into_iter().collect();
    if let Some(chosen) = chosen {
        jobs.retain(|(_, job)| job.file.as_deref() == Some(chosen));
        if jobs.is_empty() {
            let all = all.join(", ");
            let why = format!("no section has filename={chosen}: the sections have {all}");
            return Err((1, why));
        }
        return Ok(());
    }
    for (line, job) in jobs.iter() {
        if job.file.as_ref().is_some_and(|file| file.contains(':')) {
            return Err((
                *line,
                format!(
                    "[{}]: filename={}: a simulation has one drive: write a section for each, and choose one with --device",
                    job.name,
                    shown(job)
                ),
            ));
        }
    }
    let first = jobs.first().map(|(_, job)| shown(job));
    let other = jobs.iter().find(|(_, job)| Some(shown(job)) != first);
    match other {
        None => Ok(()),
        Some((line, job)) => Err((
            *line,
            format!(
                "[{}]: the sections are for several drives ({}), and a simulation has one: choose one with --device {}",
                job.name,
                all.join(", "),
                all.iter()
                    .find(|file| *file != "no filename")
                    .unwrap_or(&all[0])
            ),
        )),
    }
}

/// A line without its comment: fio cuts it off at the first `;` or `#`.
fn without_comment(line: &str) -> &str {
    let end = line.find([';', '#']).unwrap_or(line.len());
    line[..end].trim()
}

/// All sections, and the errors in them.
fn sections(text: &str, keyed: bool) -> (Vec<Section>, Vec<(usize, String)>) {
    let mut global = Section::new(keyed);
    let mut errors = Vec::new();
    let mut done = Vec::new();
    let mut current: Option<Section> = None;
    let mut in_global = false;
    for (line, content) in (1..).zip(text.lines()) {
        let content = without_comment(content);
        if content.is_empty() {
            continue;
        }
        if let Some(name) = content.strip_prefix('[') {
            let Some(name) = name.strip_suffix(']') else {
                let why = format!("`{content}` begins a section and does not end with ]");
                errors.push((line, why));
                continue;
            };
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
                let why = format!(
                    "`{content}` stands before the first section: begin with [global] or [name]"
                );
                errors.push((line, why));
                break;
            }
        };
        if let Err(why) = section.set(key, value) {
            errors.push((line, format!("{key}: {why}")));
        }
    }
    done.extend(current);
    (done, errors)
}

/// Notes on jobs that do not do what they seem to.
#[must_use]
pub fn notes(jobs: &[Job]) -> Vec<String> {
    let note = |job: &Job| {
        let asked = job.capped?;
        Some(format!(
            "[{}]: its engine submits one command at a time, so iodepth={asked} is 1: write ioengine=libaio for more",
            job.name
        ))
    };
    jobs.iter().filter_map(note).collect()
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

/// Whether a text looks like a job file: it begins with a section or a key, behind comments.
#[must_use]
pub fn is_job_file(text: &str) -> bool {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let mut lines = text.lines().map(without_comment);
    let first = lines.find(|line| !line.is_empty()).unwrap_or_default();
    let key = first.split('=').next().unwrap_or_default().trim();
    let is_section = first.starts_with('[') && !first.starts_with("[{");
    is_section || is_key(key) || IGNORED.contains(&key)
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
            "end_fsync" => self.job.flush_at_end = flag(value)?,
            "exitall" => self.job.exit_all = flag(value)?,
            "new_group" => self.job.new_group = flag(value)?,
            "direct" => must(flag(value)?, "there is no page cache here: write direct=1")?,
            "buffered" => must(
                !flag(value)?,
                "there is no page cache here: write buffered=0",
            )?,
            _ if !is_key(key) => return Err(UNSUPPORTED.to_owned()),
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
            "ioengine" => {
                is_synchronous(value)?;
                value.clone_into(&mut self.engine);
            }
            "iodepth_low" => self.low = Some(number(value, 0, DEPTH_MAX)? as u16),
            "iodepth_batch_complete_min" | "iodepth_batch_complete" => {
                self.complete = number(value, 0, DEPTH_MAX)? as u16;
            }
            // 0 is the depth.
            "iodepth_batch" | "iodepth_batch_submit" => {
                job.batch = match number(value, 0, DEPTH_MAX)? as u16 {
                    0 => u16::MAX,
                    batch => batch,
                };
            }
            "bsrange" | "blocksize_range" => {
                let keyed = job.keyed;
                let one = |value: &str| range(value, keyed);
                job.sizes = by_kind(value, &whole(BLOCK_DEFAULT), one)?;
            }
            "filename" => self.filename = Some(value.to_owned()),
            "directory" => self.directory = Some(value.trim_end_matches('/').to_owned()),
            "ramp_time" => job.ramp_ns = time_ns(value, 1_000_000_000)?,
            "exit_what" => choice(value, &[("group", ())])?,
            "percentage_random" => {
                let one = |value: &str| Ok(number(value, 0, 100)? as u8);
                job.random_percent = by_kind(value, &100, one)?;
            }
            "rate" => self.rates[0] = rates(value, bytes)?,
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
            "rate_iops" => {
                self.rates[1] = rates(value, |value| number(value, 0, 1_000_000_000))?;
            }
            "rate_process" => {
                let all = [("linear", Arrivals::Even), ("poisson", Arrivals::Poisson)];
                job.arrivals = choice(value, &all)?;
            }
            "thinktime" => job.think_ns = time_ns(value, 1_000)?,
            "thinktime_blocks" => job.think_commands = number(value, 1, u64::MAX)?,
            "random_distribution" => {
                (job.distribution, job.center) = distribution::parse(value)?;
            }
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
            _ => return Err(UNSUPPORTED.to_owned()),
        }
        Ok(())
    }

    fn finish(mut self, overrides: &[(String, String)]) -> Result<Job, FioError> {
        let line = self.line;
        for (key, value) in overrides {
            let set = self.set(key, Some(value));
            set.map_err(|why| wrong(0, format!("{key}={value}: {why}")))?;
        }
        let mut job = self.job;
        if is_synchronous(&self.engine).map_err(|why| wrong(line, why))? && job.depth > 1 {
            if overrides.iter().any(|(key, _)| key == "iodepth") {
                return Err(wrong(
                    0,
                    format!(
                        "iodepth={}: [{}] submits one command at a time with ioengine={}: write ioengine=libaio",
                        job.depth, job.name, self.engine
                    ),
                ));
            }
            job.capped = Some(job.depth);
            job.depth = 1;
        }
        // fio limits the batch to the depth.
        let drained = job.depth - self.complete.clamp(1, job.depth);
        let low = self.low.map_or(drained, |low| low.min(drained));
        job.refill_at = (low + 1 < job.depth).then_some(low);
        // fio ignores rate_iops where there is a rate.
        let [by_bytes, by_commands] = self.rates;
        job.rates = [0, 1, 2].map(|kind| {
            let bytes = by_bytes[kind].map(Rate::Bytes);
            bytes.or(by_commands[kind].map(Rate::Commands))
        });
        job.file = match (self.directory, self.filename) {
            (None, file) => file,
            (Some(directory), Some(file)) => Some(format!("{directory}/{file}")),
            (Some(directory), None) => Some(directory),
        };
        let name = &job.name;
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

/// Rates of each kind of command; 0 and an empty part are none.
fn rates(
    value: &str,
    each: impl Fn(&str) -> Result<u64, String>,
) -> Result<[Option<u64>; 3], String> {
    by_kind(value, &None, |value| {
        Ok(Some(each(value)?).filter(|rate| *rate > 0))
    })
}

/// Sizes from the least to the most, all with the same share.
fn range(value: &str, keyed: bool) -> Result<Vec<(u32, u8)>, String> {
    let (least, most) = value
        .split_once('-')
        .ok_or_else(|| format!("`{value}` is no range: write it as in 4k-64k"))?;
    let (least, most) = (
        size_of_command(least, keyed)?,
        size_of_command(most, keyed)?,
    );
    if least > most || u64::from(most) > TRANSFER_MAX {
        return Err(format!(
            "`{value}`: write the least size first, up to {TRANSFER_MAX}"
        ));
    }
    let sizes = (1..=most / least).map(|times| (least * times, 1));
    Ok(sizes.collect())
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
