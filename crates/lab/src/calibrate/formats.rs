//! File formats of measurements.
//!
//! The keys of a file identify its format: the JSON of `nvmirage bench`, of `nvmirage kv bench`, of
//! `nvmirage simulate`, or of fio ([`super::fio`]). Text before and behind the JSON is skipped:
//! fio writes notes there, and with `--output-format=normal,json` its other output. Unusable points
//! are skipped, with the reason.

use serde::Deserialize;
use serde_json::Value;

use super::fio;
use super::points::{Asked, Points};
use super::samples::{Act, Keys, Sample};

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
/// The bytes are in none of the formats.
pub(crate) fn read(bytes: &[u8]) -> Result<Read, String> {
    let text = decoded(bytes)?;
    let mut read = Read::default();
    for value in documents(&text)? {
        let points = if value.get("fio version").is_some() {
            fio::points(&value)
        } else if value.get("runs").is_some() {
            of_simulate(value)
        } else if value.get("value_size").is_some() {
            of_keys(value)
        } else if value.get("jobs").is_some() {
            of_bench(value)
        } else {
            Err("it has neither \"jobs\" nor \"runs\"".to_owned())
        };
        let points = points.map_err(|why| format!("{why}: {GIVE}"))?;
        for (name, point) in points {
            match point {
                Ok(sample) => read.samples.push(sample),
                Err(why) => read.passed_over.push(format!("{name}: {why}")),
            }
        }
    }
    Ok(read)
}

const GIVE: &str = "give what nvmirage bench --json, nvmirage kv bench --json, nvmirage simulate --json or fio --output-format=json has printed";

/// The text of a file, without a byte order mark.
fn decoded(bytes: &[u8]) -> Result<String, String> {
    let wide = |from: fn([u8; 2]) -> u16| {
        let (units, rest) = bytes[2..].as_chunks::<2>();
        let units: Vec<u16> = units.iter().map(|unit| from(*unit)).collect();
        let text = String::from_utf16(&units).ok().filter(|_| rest.is_empty());
        text.ok_or_else(|| "it begins like UTF-16 and is not: save it as UTF-8".to_owned())
    };
    match bytes {
        [0xff, 0xfe, ..] => wide(u16::from_le_bytes),
        [0xfe, 0xff, ..] => wide(u16::from_be_bytes),
        [0x1f, 0x8b, ..] => Err("it is compressed by gzip: unpack it".to_owned()),
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Err("it is compressed by zstd: unpack it".to_owned()),
        _ => {
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            let text = str::from_utf8(bytes);
            let text = text.map_err(|error| {
                format!(
                    "it is not UTF-8 from byte {} on: {GIVE}",
                    error.valid_up_to()
                )
            });
            text.map(str::to_owned)
        }
    }
}

/// The JSON documents of a text. Each begins a line.
fn documents(text: &str) -> Result<Vec<Value>, String> {
    let mut all: Vec<Value> = Vec::new();
    let mut rest = text;
    let mut wrong = None;
    while let Some(begin) = line_that_begins_with(rest, '{') {
        let mut stream = serde_json::Deserializer::from_str(&rest[begin..]).into_iter::<Value>();
        match stream.next() {
            Some(Ok(value)) => {
                put(&mut all, value);
                rest = &rest[begin + stream.byte_offset()..];
            }
            Some(Err(error)) => {
                let before = text.len() - rest.len() + begin;
                let line = text[..before].lines().count() + error.line();
                wrong.get_or_insert_with(|| format!("its JSON is broken in line {line}: {error}"));
                // A line of text may begin like JSON.
                rest = &rest[begin + 1..];
            }
            None => break,
        }
    }
    match (all.is_empty(), wrong) {
        (false, None) => Ok(all),
        // Something that was cut off is not what remains of it.
        (_, Some(why)) => Err(why),
        (true, None) => Err(match text.trim_start() {
            text if text.contains("(groupid=") => {
                format!("it is fio's text, which lacks the options: {GIVE}")
            }
            text if text.starts_with(|c: char| c.is_ascii_digit()) && text.contains(";fio-") => {
                format!("it is fio's terse output, which lacks the options: {GIVE}")
            }
            _ => format!("it has no JSON: {GIVE}"),
        }),
    }
}

/// Where the first line begins whose first character is `wanted`.
fn line_that_begins_with(text: &str, wanted: char) -> Option<usize> {
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let blank = line.len() - line.trim_start().len();
        if line[blank..].starts_with(wanted) {
            return Some(at + blank);
        }
        at += line.len();
    }
    None
}

/// Adds a document. With `--status-interval` fio writes all of it again each time: the last one is
/// the result.
fn put(all: &mut Vec<Value>, value: Value) {
    let jobs = |value: &Value| {
        let jobs = value.get("jobs")?.as_array()?.iter();
        let of = |job: &Value| {
            let done =
                ["read", "write", "trim"].map(|kind| job.get(kind)?.get("total_ios")?.as_u64());
            let named = ["jobname", "groupid", "job options"].map(|key| job.get(key).cloned());
            (named, done)
        };
        value.get("fio version")?;
        Some(jobs.map(of).collect::<Vec<_>>())
    };
    let goes_on = all.last().and_then(jobs).zip(jobs(&value));
    let goes_on = goes_on.is_some_and(|(before, after)| {
        before.len() == after.len()
            && before
                .iter()
                .zip(&after)
                .all(|(before, after)| before.0 == after.0 && before.1 <= after.1)
    });
    if goes_on {
        all.pop();
    }
    all.push(value);
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
        #[serde(default)]
        jobs: Vec<Job>,
        // as version 0.1.0 printed them
        put: Option<Figure>,
        get: Option<Figure>,
        del: Option<Figure>,
    }
    #[derive(Deserialize)]
    struct Job {
        name: String,
        latency_ns: Mean,
    }
    #[derive(Deserialize)]
    struct Figure {
        latency_ns_mean: f64,
    }
    let document: Document = parsed(value)?;
    if document.jobs.is_empty() && document.put.is_none() {
        return Err("it has no \"jobs\"".to_owned());
    }
    let of_before = [
        ("store", document.put),
        ("retrieve", document.get),
        ("delete", document.del),
    ];
    let of_before = of_before
        .into_iter()
        .filter_map(|(rw, figure)| Some((rw.to_owned(), figure?.latency_ns_mean)));
    let jobs = document.jobs.into_iter();
    let figures = jobs.map(|job| (job.name, job.latency_ns.mean));
    let points = figures.chain(of_before).map(|(rw, mean_ns)| {
        let asked = Asked {
            name: &rw,
            rw: &rw,
            block_bytes: document.value_size,
            depth: document.queue_depth,
            queues: 1,
            mean_ns,
            errors: 0,
        };
        let sample = match (rw.as_str(), document.compound) {
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
        let act = Act::named(kind).ok_or_else(|| format!("{kind} determines no parameter"))?;
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

#[cfg(test)]
mod tests {
    use super::*;

    const FIO: &str = r#"{"fio version":"fio-3.39","global options":{"bs":"128k","ioengine":"libaio","direct":"1"},"jobs":[{"jobname":"b","error":0,
            "job options":{"rw":"read","iodepth":"16","numjobs":"2"},"read":{"lat_ns":{"mean":123456.7}},"write":{"lat_ns":{"mean":0}}}]}"#;

    fn one(bytes: &[u8]) -> Sample {
        let read = read(bytes).unwrap();
        assert_eq!(read.passed_over, [""; 0]);
        assert_eq!(read.samples.len(), 1);
        read.samples[0].clone()
    }

    #[test]
    fn three_formats_are_read() {
        let bench = r#"{"target":"x","jobs":[{"name":"a","rw":"randread","block_size":4096,"queue_depth":8,
            "queues":2,"iops":1.0,"latency_ns":{"mean":10000.5,"p50":1},"errors":0}]}"#;
        let simulate = r#"{"runs":[{"jobs":[{"name":"sustained-4k","random":true,"queue_depth":32,"queues":1,"paced":false,
            "errors":0,"kinds":[{"kind":"write","block_size":4096,"latency_ns":{"mean":70000}}]}]}]}"#;
        let first = one(bench.as_bytes());
        assert_eq!(first.title(), "4 KiB randread, QD 16");
        assert!((first.rate() - 16e9 / 10_000.5).abs() < 1e-3);
        let second = one(simulate.as_bytes());
        assert_eq!(second.title(), "4 KiB randwrite, QD 32, sustained");
        let third = one(FIO.as_bytes());
        assert_eq!(third.title(), "128 KiB read, QD 32");
        assert!((third.mean_ns - 123_456.7).abs() < 1e-6);
    }

    #[test]
    fn text_around_the_json_is_skipped() {
        let expected = one(FIO.as_bytes());
        for (before, behind) in [
            ("note: queue depth will be capped at 1\n", ""),
            ("fio: pid=4711, err=5/file:engine.c:1\n\n", "\n"),
            (
                "",
                "\nb: (groupid=0, jobs=2): err= 0: pid=1: Sat Jun 24\n  read: IOPS=1\n",
            ),
            ("fio-3.39\r\n", "\r\nRun status group 0 (all jobs):\r\n"),
        ] {
            let text = format!("{before}{FIO}{behind}");
            assert_eq!(one(text.as_bytes()), expected, "{before}");
            let marked = format!("\u{feff}{text}");
            assert_eq!(one(marked.as_bytes()), expected, "{before}");
            let units: Vec<u16> = marked.encode_utf16().collect();
            let little: Vec<u8> = units.iter().flat_map(|unit| unit.to_le_bytes()).collect();
            assert_eq!(one(&little), expected, "{before}");
            let big: Vec<u8> = units.iter().flat_map(|unit| unit.to_be_bytes()).collect();
            assert_eq!(one(&big), expected, "{before}");
        }
        for input in [
            &include_bytes!("tests/inputs/note-before.json")[..],
            include_bytes!("tests/inputs/error-before.json"),
            include_bytes!("tests/inputs/good.json"),
        ] {
            let read = read(input).unwrap();
            let means: Vec<f64> = read.samples.iter().map(|sample| sample.mean_ns).collect();
            assert_eq!(means, [80_000.0, 20_000.0]);
        }
    }

    /// With `--status-interval` the last document has everything; files that were appended to each
    /// other have a document for each run.
    #[test]
    fn several_documents() {
        let of = |depth: u32, ios: u32, mean: u32| {
            format!(
                r#"{{"fio version":"3","global options":{{"direct":"1","ioengine":"libaio"}},"jobs":[{{"jobname":"a","job options":{{"iodepth":"{depth}"}},"read":{{"total_ios":{ios},"lat_ns":{{"mean":{mean}}}}}}}]}}"#
            )
        };
        let means = |text: String| -> Vec<f64> {
            let read = read(text.as_bytes()).unwrap();
            read.samples.iter().map(|sample| sample.mean_ns).collect()
        };
        assert_eq!(
            means(format!("{}\n{}", of(1, 10, 50), of(1, 20, 60))),
            [60.0]
        );
        assert_eq!(
            means(format!("{}\n{}", of(1, 10, 50), of(4, 20, 60))),
            [50.0, 60.0]
        );
        assert_eq!(
            means(format!("{}\n{}", of(1, 30, 50), of(1, 20, 60))),
            [50.0, 60.0]
        );
    }

    #[test]
    fn what_is_of_no_use_says_why() {
        let fio = |options: &str, error: u32| {
            let text = format!(
                r#"{{"fio version":"3","global options":{{"direct":"1","ioengine":"libaio"}},"jobs":[{{"jobname":"j","error":{error},"job options":{{{options}}},"read":{{"lat_ns":{{"mean":5}}}}}}]}}"#
            );
            let read = read(text.as_bytes()).unwrap();
            read.passed_over.first().cloned().unwrap_or_default()
        };
        assert_eq!(fio(r#""rw":"randread""#, 0), "");
        assert!(fio(r#""rw":"randrw""#, 0).contains("neither reads nor writes alone"));
        assert!(fio(r#""rw":"read","rate_iops":"5""#, 0).contains("waited"));
        assert!(fio(r#""rw":"read","bs":"4q""#, 0).contains("bs=4q"));
        assert!(fio(r#""rw":"read","iodepth":"x""#, 0).contains("no number"));
        assert!(fio(r#""rw":"read","iodepth":"99999999""#, 0).contains("depth"));
        assert!(fio(r#""rw":"write""#, 0).contains("no command"));
        assert!(fio(r#""rw":"read""#, 5).contains("error 5"));
        for wrong in ["", "{}", "[]", r#"{"jobs":[{}]}"#, r#"{"fio version":"3"}"#] {
            let error = read(wrong.as_bytes()).unwrap_err();
            assert!(
                error.contains("JSON") || error.contains("give what"),
                "{error}"
            );
        }
        for (wrong, word) in [
            (
                &b"r: (groupid=0, jobs=1): err= 0: pid=1\n"[..],
                "fio's text",
            ),
            (b"3;fio-3.33;r;0;0;1", "terse output"),
            (b"\x1f\x8b\x08", "gzip"),
            (b"\xff\xfe{", "UTF-16"),
            (b"{\"jobs\": \xe4}", "not UTF-8 from byte 9"),
            (b"note\n{\n\"jobs\": [", "broken in line 3"),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(word), "{error}");
        }
    }
}
