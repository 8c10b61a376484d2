//! File formats of measurements.
//!
//! The keys of a file identify its format: the JSON of `nvmirage bench`, of `nvmirage kv bench`, of
//! `nvmirage simulate`, or of fio. Unusable points are skipped, with the reason.

use api::config::Size;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::samples::{Act, BLOCK_MAX, DEPTH_MAX, Keys, SUSTAINED, Sample, Writers};

/// Contents of a file.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) samples: Vec<Sample>,
    /// Points that are not usable, with the reasons.
    pub(crate) passed_over: Vec<String>,
}

/// Reads the JSON of a measurement.
///
/// # Errors
/// The text is in none of the formats.
pub(crate) fn read(text: &str) -> Result<Read, String> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| format!("it is no JSON: {error}"))?;
    let points = if value.get("fio version").is_some() {
        of_fio(&value)
    } else if value.get("runs").is_some() {
        of_simulate(value)
    } else if value.get("jobs").is_some() {
        of_bench(value)
    } else if value.get("put").is_some() {
        of_keys(value)
    } else {
        Err("it has neither \"jobs\" nor \"runs\"".to_owned())
    };
    let points = points.map_err(|why| {
        format!("{why}: give what nvmirage bench --json, nvmirage kv bench --json, nvmirage simulate --json or fio --output-format=json has printed")
    })?;
    let mut read = Read::default();
    for (name, point) in points {
        match point {
            Ok(sample) => read.samples.push(sample),
            Err(why) => read.passed_over.push(format!("{name}: {why}")),
        }
    }
    Ok(read)
}

/// The name of each job with its point, or the reason why it is not usable.
type Points = Result<Vec<(String, Result<Sample, String>)>, String>;

/// Properties of a point that every format has.
struct Asked<'a> {
    name: &'a str,
    /// Kind of the commands; the prefix `rand` marks random ones.
    rw: &'a str,
    block_bytes: u64,
    /// Commands in flight of each queue, and the number of queues.
    depth: u64,
    queues: u64,
    mean_ns: f64,
    errors: u64,
}

impl Asked<'_> {
    fn sample(&self) -> Result<Sample, String> {
        let (random, act) = match self.rw.strip_prefix("rand") {
            Some(act) => (true, act),
            None => (false, self.rw),
        };
        let act = Act::named(act);
        let act = act.ok_or_else(|| format!("{} is neither reads nor writes alone", self.rw))?;
        if self.errors > 0 {
            return Err(format!("{} commands failed", self.errors));
        }
        if !(self.mean_ns.is_finite() && self.mean_ns >= 1.0) {
            return Err("no command was measured".to_owned());
        }
        let within = |value: u64, most: u32| {
            let value = u32::try_from(value).ok();
            value.filter(|value| (1..=most).contains(value))
        };
        let depth = within(self.depth.saturating_mul(self.queues), DEPTH_MAX);
        let depth = depth.ok_or("its depth cannot be")?;
        let block_bytes = if act.is_bare() {
            0
        } else {
            within(self.block_bytes, BLOCK_MAX).ok_or("its block size cannot be")?
        };
        let writers = match (act, random) {
            (Act::Write, false) => u32::try_from(self.queues).unwrap_or(depth),
            _ => 1,
        };
        Ok(Sample {
            act,
            random,
            block_bytes,
            depth,
            writers: Writers {
                count: writers,
                apart: 0,
            },
            keys: Keys::Places,
            mean_ns: self.mean_ns,
            sustained: self.name.starts_with(SUSTAINED),
        })
    }
}

fn parsed<T: serde::de::DeserializeOwned>(value: Value) -> Result<T, String> {
    serde_json::from_value(value).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
struct Mean {
    mean: f64,
}

fn of_bench(value: Value) -> Points {
    #[derive(Deserialize)]
    struct Document {
        jobs: Vec<Job>,
    }
    #[derive(Deserialize)]
    struct Job {
        name: String,
        rw: String,
        block_size: u64,
        queue_depth: u64,
        queues: u64,
        latency_ns: Mean,
        errors: u64,
    }
    let document: Document = parsed(value)?;
    let points = document.jobs.into_iter().map(|job| {
        let asked = Asked {
            name: &job.name,
            rw: &job.rw,
            block_bytes: job.block_size,
            depth: job.queue_depth,
            queues: job.queues,
            mean_ns: job.latency_ns.mean,
            errors: job.errors,
        };
        let sample = asked.sample();
        (job.name, sample)
    });
    Ok(points.collect())
}

fn of_keys(value: Value) -> Points {
    #[derive(Deserialize)]
    struct Document {
        value_size: u64,
        queue_depth: u64,
        compound: Option<u64>,
        put: Figure,
        get: Figure,
        del: Figure,
    }
    #[derive(Deserialize)]
    struct Figure {
        latency_ns_mean: f64,
    }
    let document: Document = parsed(value)?;
    let figures = [
        ("store", &document.put),
        ("retrieve", &document.get),
        ("delete", &document.del),
    ];
    let points = figures.into_iter().map(|(rw, figure)| {
        let asked = Asked {
            name: rw,
            rw,
            block_bytes: document.value_size,
            depth: document.queue_depth,
            queues: 1,
            mean_ns: figure.latency_ns_mean,
            errors: 0,
        };
        let sample = match (rw, document.compound) {
            ("store", Some(_)) => Err("each command stored several values".to_owned()),
            _ => asked.sample().map(|sample| Sample {
                keys: Keys::Bench,
                ..sample
            }),
        };
        (format!("{rw}s"), sample)
    });
    Ok(points.collect())
}

fn of_simulate(value: Value) -> Points {
    #[derive(Deserialize)]
    struct Document {
        runs: Vec<Run>,
    }
    #[derive(Deserialize)]
    struct Run {
        jobs: Vec<Job>,
    }
    #[derive(Deserialize)]
    struct Job {
        name: String,
        random: Option<bool>,
        queue_depth: Option<u64>,
        queues: Option<u64>,
        paced: Option<bool>,
        errors: u64,
        kinds: Vec<Commands>,
    }
    #[derive(Deserialize)]
    struct Commands {
        kind: String,
        block_size: Option<u64>,
        latency_ns: Mean,
    }
    fn sample(job: &Job, commands: &Commands) -> Result<Sample, String> {
        let (Some(depth), Some(queues)) = (job.queue_depth, job.queues) else {
            return Err("it is a trace".to_owned());
        };
        if job.paced == Some(true) {
            return Err("it waited between commands".to_owned());
        }
        let order = if job.random == Some(true) { "rand" } else { "" };
        let kind = &commands.kind;
        let act = Act::named(kind).ok_or_else(|| format!("{kind} tells nothing"))?;
        let block_bytes = if act.is_bare() {
            0
        } else {
            commands.block_size.ok_or("its commands differ in size")?
        };
        Asked {
            name: &job.name,
            rw: &format!("{order}{kind}"),
            block_bytes,
            depth,
            queues,
            mean_ns: commands.latency_ns.mean,
            errors: job.errors,
        }
        .sample()
    }
    let document: Document = parsed(value)?;
    let jobs = document.runs.into_iter().flat_map(|run| run.jobs);
    let points = jobs.flat_map(|job| {
        let several = || {
            let why = "it has commands of several kinds, or of none";
            vec![(job.name.clone(), Err(why.to_owned()))]
        };
        let alone = (job.queue_depth, job.queues) == (Some(1), Some(1));
        match job.kinds.as_slice() {
            [_] => {}
            // A zone is reset when it is written again. The two alternate, so they do not disturb
            // each other.
            [write, reset] if write.kind == "write" && reset.kind == "reset" && alone => {}
            _ => return several(),
        }
        let kinds = job.kinds.iter();
        kinds
            .map(|commands| (job.name.clone(), sample(&job, commands)))
            .collect()
    });
    Ok(points.collect())
}

fn of_fio(value: &Value) -> Points {
    let none = Map::new();
    let global = value.get("global options").and_then(Value::as_object);
    let global = global.unwrap_or(&none);
    let jobs = value.get("jobs").and_then(Value::as_array);
    let jobs = jobs.ok_or("fio's jobs are missing")?;
    let point = |job: &Value| {
        let name = job.get("jobname").and_then(Value::as_str);
        let name = name.unwrap_or_default().to_owned();
        let options = job.get("job options").and_then(Value::as_object);
        let options = options.unwrap_or(&none);
        let sample = of_fio_job(&name, job, options, global);
        (name, sample)
    };
    Ok(jobs.iter().map(point).collect())
}

fn of_fio_job(
    name: &str,
    job: &Value,
    options: &Map<String, Value>,
    global: &Map<String, Value>,
) -> Result<Sample, String> {
    let option = |names: &[&str]| {
        let all = [options, global].into_iter();
        let mut found = all.flat_map(|map| names.iter().filter_map(|name| map.get(*name)));
        found.next().and_then(Value::as_str)
    };
    let whole = |names: &[&str]| match option(names) {
        None => Ok(1),
        Some(text) => text
            .parse::<u64>()
            .map_err(|_| format!("{}={text} is no number", names[0])),
    };
    if ["rate", "rate_iops", "thinktime"]
        .iter()
        .any(|key| option(&[key]).is_some())
    {
        return Err("it waited between commands".to_owned());
    }
    let rw = option(&["rw", "readwrite"]).unwrap_or("read");
    let block = option(&["bs", "blocksize"]).unwrap_or("4k");
    let block_bytes = match block.parse::<u64>() {
        Ok(bytes) => bytes,
        Err(_) => {
            block
                .parse::<Size>()
                .map_err(|_| format!("bs={block} is not one size"))?
                .0
        }
    };
    let synchronous = option(&["ioengine"])
        .is_some_and(|engine| ["sync", "psync", "vsync", "pvsync", "pvsync2"].contains(&engine));
    let depth = if synchronous { 1 } else { whole(&["iodepth"])? };
    let zoned = option(&["zonemode"]) == Some("zbd");
    // Trimming a zone resets it.
    let (kind, rw) = match rw {
        "trim" | "randtrim" if zoned => ("trim", "reset"),
        rw if rw.ends_with("read") => ("read", rw),
        rw => ("write", rw),
    };
    let mean = job
        .get(kind)
        .and_then(|kind| kind.get("lat_ns")?.get("mean")?.as_f64());
    let queues = whole(&["numjobs"])?;
    let asked = Asked {
        name,
        rw,
        block_bytes,
        depth,
        queues,
        mean_ns: mean.unwrap_or(0.0),
        errors: job.get("error").and_then(Value::as_u64).unwrap_or(0),
    };
    let mut sample = asked.sample()?;
    if zoned && sample.act == Act::Write && queues > 1 {
        let zones = option(&["offset_increment"]).and_then(|text| text.strip_suffix('z'));
        let zones = zones.and_then(|zones| zones.parse().ok());
        sample.writers.apart = zones.filter(|zones| *zones > 0).ok_or(
            "its writers share zones, or nobody knows which: give each its own, such as --size=8z --offset_increment=8z",
        )?;
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_formats_are_read() {
        let bench = r#"{"target":"x","jobs":[{"name":"a","rw":"randread","block_size":4096,"queue_depth":8,
            "queues":2,"iops":1.0,"latency_ns":{"mean":10000.5,"p50":1},"errors":0}]}"#;
        let simulate = r#"{"runs":[{"jobs":[{"name":"sustained-4k","random":true,"queue_depth":32,"queues":1,"paced":false,
            "errors":0,"kinds":[{"kind":"write","block_size":4096,"latency_ns":{"mean":70000}}]}]}]}"#;
        let fio = r#"{"fio version":"fio-3.39","global options":{"bs":"128k","ioengine":"libaio"},"jobs":[{"jobname":"b","error":0,
            "job options":{"rw":"read","iodepth":"16","numjobs":"2"},"read":{"lat_ns":{"mean":123456.7}},"write":{"lat_ns":{"mean":0}}}]}"#;
        let one = |text: &str| {
            let read = read(text).unwrap();
            assert_eq!(read.passed_over, [""; 0]);
            read.samples[0].clone()
        };
        let first = one(bench);
        assert_eq!(first.title(), "4 KiB randread, QD 16");
        assert!((first.rate() - 16e9 / 10_000.5).abs() < 1e-3);
        let second = one(simulate);
        assert_eq!(second.title(), "4 KiB randwrite, QD 32, sustained");
        let third = one(fio);
        assert_eq!(third.title(), "128 KiB read, QD 32");
        assert!((third.mean_ns - 123_456.7).abs() < 1e-6);
    }

    #[test]
    fn what_is_of_no_use_says_why() {
        let fio = |options: &str, error: u32| {
            let text = format!(
                r#"{{"fio version":"3","jobs":[{{"jobname":"j","error":{error},"job options":{{{options}}},"read":{{"lat_ns":{{"mean":5}}}}}}]}}"#
            );
            let read = read(&text).unwrap();
            read.passed_over.first().cloned().unwrap_or_default()
        };
        assert_eq!(fio(r#""rw":"randread""#, 0), "");
        assert!(fio(r#""rw":"randrw""#, 0).contains("neither reads nor writes alone"));
        assert!(fio(r#""rw":"read","rate_iops":"5""#, 0).contains("waited"));
        assert!(fio(r#""rw":"read","bs":"4k,8k""#, 0).contains("not one size"));
        assert!(fio(r#""rw":"read","iodepth":"x""#, 0).contains("no number"));
        assert!(fio(r#""rw":"read","iodepth":"99999999""#, 0).contains("depth"));
        assert!(fio(r#""rw":"write""#, 0).contains("no command"));
        assert!(fio(r#""rw":"read""#, 5).contains("5 commands failed"));
        for wrong in ["", "{}", "[]", r#"{"jobs":[{}]}"#, r#"{"fio version":"3"}"#] {
            let error = read(wrong).unwrap_err();
            assert!(
                error.contains("JSON") || error.contains("give what"),
                "{error}"
            );
        }
    }
}
