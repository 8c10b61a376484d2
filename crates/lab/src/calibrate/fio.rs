//! fio's JSON: what was asked, compared with what was done.
//!
//! The options of a job say what it should do. The results beside them say what it did: the bytes
//! and commands of each direction, the depths at which they were submitted (`iodepth_level`), and
//! the group that ran at the same time (`groupid`). A job whose options and results disagree is
//! skipped, with the reason. The meaning of options and results is that of fio's HOWTO.
//!
//! Not included: fio's text and its terse output, which lack the options.

use std::collections::BTreeSet;

use serde_json::{Map, Value};
use simulate::fio as jobs;

use super::float;
use super::points::{Asked, Points};
use super::samples::{Act, Sample};

type Options = Map<String, Value>;

/// Engines that submit one command at a time, whatever `iodepth` says.
const SYNCHRONOUS: [&str; 5] = ["sync", "psync", "vsync", "pvsync", "pvsync2"];
/// Engines that keep `iodepth` commands in flight.
const ASYNCHRONOUS: [&str; 7] = [
    "libaio",
    "io_uring",
    "io_uring_cmd",
    "posixaio",
    "xnvme",
    "libblkio",
    "libzbc",
];
/// Engines above a drive without a page cache, which need no `direct`.
const CACHELESS: [&str; 4] = ["io_uring_cmd", "xnvme", "libblkio", "libzbc"];

/// Options that make a job wait between commands; 0 is fio's "no limit".
const WAITS: [&str; 6] = [
    "rate",
    "rate_iops",
    "thinktime",
    "flow",
    "latency_target",
    "start_inflight",
];
/// Options that change the number in flight, with the values at which they do not.
const DEPTHS: [(&str, &[&str]); 5] = [
    ("iodepth_batch_complete_min", &["0", "1"]),
    ("iodepth_batch_complete", &["0", "1"]),
    ("iodepth_batch", &["1"]),
    ("iodepth_batch_submit", &["1"]),
    ("serialize_overlap", &["0"]),
];
/// Options that change what commands do, with the values at which they do not.
const OTHERWISE: [(&str, &[&str]); 9] = [
    ("percentage_random", &["100"]),
    ("random_distribution", &["random"]),
    ("zonemode", &["none", "zbd"]),
    ("verify", &["0", "none"]),
    ("fsync", &["0"]),
    ("fdatasync", &["0"]),
    ("sync", &["0", "none"]),
    ("unified_rw_reporting", &["0", "none"]),
    ("replay_redirect", &[""]),
];
/// Options that mix sizes.
const MIXES: [&str; 4] = ["bssplit", "bsrange", "blocksize_range", "bs_unaligned"];

/// Share of commands, in per cent, that must have been submitted at the depth that was asked for.
const DEPTH_SHARE: f64 = 50.0;
/// Deviation of the mean size from the size that was asked for.
const SIZE_SHARE: f64 = 0.01;
/// Least and most commands in flight by Little's law, as fractions of those asked for. fio's own
/// time between commands makes them fewer.
const FLIGHT: (f64, f64) = (0.5, 1.15);

/// A job of a document.
struct Job<'a> {
    name: &'a str,
    group: u64,
    options: Option<&'a Options>,
    global: &'a Options,
    value: &'a Value,
}

/// Reads the jobs of a document.
pub(super) fn points(value: &Value) -> Points {
    let none = Map::new();
    let global = value.get("global options").and_then(Value::as_object);
    let global = global.unwrap_or(&none);
    let all = ["jobs", "client_stats"].into_iter();
    let mut all = all.filter_map(|key| value.get(key)?.as_array());
    let all = all.next().ok_or("fio's jobs are missing")?;
    let named = all.iter().map(|job| Job {
        name: job.get("jobname").and_then(Value::as_str).unwrap_or(""),
        group: job.get("groupid").and_then(Value::as_u64).unwrap_or(0),
        options: job.get("job options").and_then(Value::as_object),
        global,
        value: job,
    });
    // The sum over all hosts stands behind them.
    let jobs: Vec<Job<'_>> = named.filter(|job| job.name != "All clients").collect();
    one_drive(&jobs)?;
    let mut points = Vec::new();
    let mut at = 0;
    while let Some(first) = jobs.get(at) {
        let same = jobs[at..].iter().take_while(|job| job.is_clone_of(first));
        let clones = &jobs[at..at + same.count()];
        at += clones.len();
        let sample = match first.beside(&jobs) {
            Some(why) => Err(why),
            None => first.sample(clones),
        };
        points.push((first.name.to_owned(), sample));
    }
    Ok(points)
}

/// A model is of one drive.
fn one_drive(jobs: &[Job<'_>]) -> Result<(), String> {
    let files = jobs.iter().filter_map(|job| job.option(&["filename"]));
    let files: BTreeSet<&str> = files.filter(|file| file.starts_with("/dev/")).collect();
    match files.len() {
        0 | 1 => Ok(()),
        _ => {
            let files: Vec<&str> = files.into_iter().collect();
            Err(format!(
                "its jobs measured several drives ({}): keep the jobs of one, as with jq 'del(.jobs[] | select(.\"job options\".filename == \"{}\"))'",
                files.join(", "),
                files[1]
            ))
        }
    }
}

impl Job<'_> {
    fn option(&self, names: &[&str]) -> Option<&str> {
        let all = [self.options, Some(self.global)].into_iter().flatten();
        let mut found = all.flat_map(|map| names.iter().filter_map(|name| map.get(*name)));
        found.next().and_then(Value::as_str)
    }

    /// A switch: fio writes it with 1 or without a value.
    fn is_on(&self, name: &str) -> bool {
        self.option(&[name])
            .is_some_and(|value| !["0", "none"].contains(&value))
    }

    fn whole(&self, names: &[&str]) -> Result<u64, String> {
        match self.option(names) {
            None => Ok(1),
            Some(text) => text
                .parse::<u64>()
                .map_err(|_| format!("{}={text} is no number", names[0])),
        }
    }

    /// Whether both are threads of one section, which `numjobs` started.
    fn is_clone_of(&self, first: &Job<'_>) -> bool {
        (self.name, self.group, self.options) == (first.name, first.group, first.options)
    }

    /// Why another section may have run at the same time: it is of the same group, or begins one
    /// without waiting (`new_group`). fio begins a group at `stonewall` and at `new_group`.
    fn beside(&self, jobs: &[Job<'_>]) -> Option<String> {
        let same = |job: &&Job<'_>| job.group == self.group && !job.is_clone_of(self);
        if let Some(other) = jobs.iter().find(same) {
            return Some(format!(
                "it ran at the same time as {}: both are of group {}; put stonewall into each section",
                other.name, self.group
            ));
        }
        let hosts = jobs.iter().filter_map(|job| job.value.get("hostname"));
        let hosts: BTreeSet<&str> = hosts.filter_map(Value::as_str).collect();
        if hosts.len() > 1 {
            return Some(format!("{} hosts ran at the same time", hosts.len()));
        }
        let mut groups = jobs.windows(2).filter(|pair| {
            let [before, job] = pair else { return false };
            let begins = job.group != before.group;
            let concerned = [before.group, job.group].contains(&self.group);
            begins && concerned && job.is_on("new_group") && !job.waits_for_others()
        });
        groups.next().map(|pair| {
            format!(
                "{} and {} ran at the same time: new_group does not wait, stonewall does",
                pair[0].name, pair[1].name
            )
        })
    }

    fn waits_for_others(&self) -> bool {
        self.is_on("stonewall") || self.is_on("wait_for_previous") || self.is_on("wait_for")
    }

    /// The point of this job, and of its further threads.
    fn sample(&self, clones: &[Job<'_>]) -> Result<Sample, String> {
        if self.options.is_none() {
            return Err(
                "it does not have its options: fio 3 writes them as \"job options\"".to_owned(),
            );
        }
        self.is_as_assumed()?;
        let zoned = self.option(&["zonemode"]) == Some("zbd");
        let (kind, rw) = self.direction(zoned)?;
        let queues = self.whole(&["numjobs"])?;
        if clones.len() > 1 && u64::try_from(clones.len()) != Ok(queues) {
            return Err(format!(
                "it has {} results, and numjobs={queues}",
                clones.len()
            ));
        }
        let block_bytes = self.block(kind)?;
        let depth = self.depth()?;
        let mut done = Done::default();
        for job in clones {
            let error = job.value.get("error").and_then(Value::as_i64);
            if let Some(error) = error.filter(|error| *error != 0) {
                return Err(format!("it ended with error {error}"));
            }
            done.add(job, kind)?;
        }
        let measured = done.mean_ns > 0.0;
        if done.commands > 0 && !measured {
            return Err(
                "its latencies were not measured: leave out gtod_reduce and disable_lat".to_owned(),
            );
        }
        let asked = Asked {
            name: self.name,
            rw,
            block_bytes,
            depth,
            queues,
            mean_ns: done.mean_ns,
            errors: 0,
        };
        let mut sample = asked.sample()?;
        done.agrees(self, block_bytes, depth.saturating_mul(queues))?;
        if zoned && sample.act == Act::Write && queues > 1 {
            let zones = self.option(&["offset_increment"]);
            let zones = zones.and_then(|text| text.strip_suffix('z')?.parse().ok());
            sample.writers.apart = zones.filter(|zones| *zones > 0).ok_or(
                "its writers may share zones: give each its own, such as --size=8z --offset_increment=8z",
            )?;
        }
        Ok(sample)
    }

    /// Rejects options under which commands are not what a point assumes.
    fn is_as_assumed(&self) -> Result<(), String> {
        let limits = |text: &str| text.split(',').any(|part| !["", "0"].contains(&part));
        for key in WAITS {
            if let Some(value) = self.option(&[key]).filter(|value| limits(value)) {
                return Err(format!("it waited between commands: {key}={value}"));
            }
        }
        for key in MIXES {
            if let Some(value) = self.option(&[key]) {
                return Err(format!("its commands differ in size: {key}={value}"));
            }
        }
        for (key, same) in DEPTHS {
            let value = self.option(&[key]);
            if let Some(value) = value.filter(|value| !same.contains(value)) {
                return Err(format!("its depth varied: {key}={value}"));
            }
        }
        for (key, same) in OTHERWISE {
            let value = self.option(&[key]);
            if let Some(value) = value.filter(|value| !same.contains(value)) {
                return Err(format!("{key}={value} is not among what a fit can tell"));
            }
        }
        let low = self.option(&["iodepth_low"]);
        if let Some(low) = low.filter(|low| Some(*low) != self.option(&["iodepth"])) {
            return Err(format!("its depth varied: iodepth_low={low}"));
        }
        let engine = self.engine();
        let cacheless = CACHELESS.contains(&engine) || engine.starts_with("external:");
        let direct = self.is_on("direct") || self.option(&["buffered"]) == Some("0");
        if !direct && !cacheless {
            return Err("it measured the page cache: add direct=1".to_owned());
        }
        Ok(())
    }

    /// fio's default is psync.
    fn engine(&self) -> &str {
        self.option(&["ioengine"]).unwrap_or("psync")
    }

    /// The key of its results, and the kind of its commands.
    fn direction(&self, zoned: bool) -> Result<(&'static str, &str), String> {
        let rw = self.option(&["rw", "readwrite"]).unwrap_or("read");
        Ok(match rw {
            "read" | "randread" => ("read", rw),
            "write" | "randwrite" => ("write", rw),
            // Trimming a zone resets it.
            "trim" | "randtrim" if zoned => ("trim", "reset"),
            _ => return Err(format!("rw={rw} is neither reads nor writes alone")),
        })
    }

    /// The size of its commands of one kind.
    fn block(&self, kind: &str) -> Result<u64, String> {
        let text = self.option(&["bs", "blocksize"]).unwrap_or("4k");
        let at = match kind {
            "read" => 0,
            "write" => 1,
            _ => 2,
        };
        let sizes = jobs::sizes(text).map_err(|why| format!("bs={text}: {why}"))?;
        Ok(sizes[at])
    }

    /// Commands in flight of each thread.
    fn depth(&self) -> Result<u64, String> {
        let engine = self.engine();
        let name = engine.strip_prefix("external:").unwrap_or(engine);
        if SYNCHRONOUS.contains(&engine) {
            return Ok(1);
        }
        if !ASYNCHRONOUS.contains(&engine) && name == engine {
            return Err(format!(
                "ioengine={engine} does not measure a drive: use libaio or io_uring"
            ));
        }
        self.whole(&["iodepth"])
    }
}

/// Results of a job, all of its threads together.
#[derive(Debug, Default)]
struct Done {
    commands: u64,
    bytes: u64,
    mean_ns: f64,
    /// Commands per second, if reported.
    per_s: f64,
    /// Commands of other directions.
    others: u64,
    /// Share of commands by depth, if reported: the least depth of each class, and per cent.
    depths: Vec<(u64, f64)>,
}

impl Done {
    fn add(&mut self, job: &Job<'_>, kind: &str) -> Result<(), String> {
        let count = |kind: &str, key: &str| job.value.get(kind)?.get(key)?.as_u64();
        let mean = |key: &str| job.value.get(kind)?.get(key)?.get("mean")?.as_f64();
        // fio 2 counted microseconds and KiB.
        let (mean_ns, unit) = match (mean("lat_ns"), mean("lat")) {
            (Some(ns), _) => (ns, 1),
            (None, Some(us)) => (us * 1e3, 1024),
            (None, None) => (0.0, 1),
        };
        let commands = count(kind, "total_ios").unwrap_or(0);
        let before = float(self.commands) * self.mean_ns;
        self.commands += commands;
        self.bytes += count(kind, "io_bytes").unwrap_or(0).saturating_mul(unit);
        self.mean_ns = match self.commands {
            0 => mean_ns,
            all => (before + float(commands) * mean_ns) / float(all),
        };
        let per_s = job
            .value
            .get(kind)
            .and_then(|kind| kind.get("iops")?.as_f64());
        self.per_s += per_s.unwrap_or(0.0);
        for other in ["read", "write", "trim"] {
            if other != kind {
                self.others += count(other, "total_ios").unwrap_or(0);
            }
        }
        let levels = job.value.get("iodepth_level").and_then(Value::as_object);
        let levels = levels.into_iter().flatten().filter_map(|(key, share)| {
            let least = key.trim_start_matches(">=").parse().ok()?;
            Some((least, share.as_f64()?))
        });
        self.depths.extend(levels);
        Ok(())
    }

    /// Compares with what was asked; `flight` is the number in flight of all threads.
    fn agrees(&self, job: &Job<'_>, block_bytes: u64, flight: u64) -> Result<(), String> {
        if self.others > 0 {
            return Err(format!(
                "it also has {} commands of another kind: sections were merged by group_reporting",
                self.others
            ));
        }
        if self.commands > 0 && self.bytes > 0 {
            let mean = float(self.bytes) / float(self.commands);
            if (mean / float(block_bytes) - 1.0).abs() > SIZE_SHARE {
                return Err(format!(
                    "its commands have {mean:.0} bytes on the average, and bs says {block_bytes}"
                ));
            }
        }
        let depth = job.depth()?;
        let class = match depth {
            64.. => 64,
            depth => 1 << depth.max(1).ilog2(),
        };
        let threads = float(job.whole(&["numjobs"])?.max(1));
        let sum: f64 = self.depths.iter().map(|(_, share)| share).sum();
        let own = self.depths.iter().filter(|(least, _)| *least == class);
        let own: f64 = own.map(|(_, share)| share).sum();
        // Each thread has its own hundred per cent, or one result stands for all of them.
        if sum > 0.0 && own / sum * 100.0 < DEPTH_SHARE {
            let most = self.depths.iter().max_by(|a, b| a.1.total_cmp(&b.1));
            let most = most.map_or(0, |(least, _)| *least);
            return Err(format!(
                "most of its commands had {most} in flight, and iodepth says {depth}"
            ));
        }
        if self.per_s > 0.0 && self.mean_ns > 0.0 {
            let seen = self.per_s * self.mean_ns / 1e9;
            let share = seen / float(flight.max(1));
            if share > FLIGHT.1 || share < FLIGHT.0 {
                return Err(format!(
                    "{seen:.1} commands were in flight on the average (rate times latency), and its options say {flight} in {threads} threads"
                ));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::formats::read;

    macro_rules! input {
        ($name:literal) => {
            include_bytes!(concat!("tests/inputs/", $name))
        };
    }

    /// Titles and means of the points, and the reasons of the others.
    fn told(bytes: &[u8]) -> (Vec<String>, Vec<String>) {
        let read = read(bytes).unwrap();
        let title = |sample: &super::Sample| format!("{} {}", sample.title(), sample.mean_ns);
        (read.samples.iter().map(title).collect(), read.passed_over)
    }

    #[test]
    fn the_engine_decides_the_depth() {
        let (points, passed_over) = told(input!("default-engine.json"));
        let read = "4 KiB randread, QD 1 80000";
        assert_eq!(points, [read, read, read, "4 KiB randwrite, QD 1 20000"]);
        assert_eq!(passed_over, [""; 0]);
        // Named as asynchronous, but submitted one by one.
        let text = String::from_utf8(input!("default-engine.json").to_vec()).unwrap();
        let text = text.replacen("\"direct\"", "\"ioengine\": \"libaio\", \"direct\"", 1);
        let (points, passed_over) = told(text.as_bytes());
        assert_eq!(points.len(), 2);
        assert!(passed_over[1].contains("1 in flight, and iodepth says 32"));
        let text = text.replace("libaio", "mmap");
        assert!(told(text.as_bytes()).1[0].contains("ioengine=mmap"));
    }

    #[test]
    fn what_ran_beside_is_not_alone() {
        let (points, passed_over) = told(input!("at-once.json"));
        assert_eq!(points, [""; 0]);
        assert!(passed_over[0].contains("r: it ran at the same time as w"));
        assert!(passed_over[1].contains("w: it ran at the same time as r"));
        let text = String::from_utf8(input!("good.json").to_vec()).unwrap();
        let grouped = text.replacen(
            "\"rw\": \"randwrite\"",
            "\"rw\": \"randwrite\", \"new_group\": \"1\"",
            1,
        );
        let (points, passed_over) = told(grouped.as_bytes());
        assert_eq!((points.len(), passed_over.len()), (0, 2));
        let walled = grouped.replace("\"new_group\"", "\"stonewall\": \"1\", \"new_group\"");
        assert_eq!(told(walled.as_bytes()).0.len(), 2);
    }

    #[test]
    fn sizes_are_those_that_were_done() {
        let (points, passed_over) = told(input!("bssplit.json"));
        assert_eq!(points, ["4 KiB randwrite, QD 1 20000"]);
        assert!(passed_over[0].contains("bssplit=4k/50:64k/50"));
        // Merged sections, of which the options are those of the first.
        let text = String::from_utf8(input!("bssplit.json").to_vec()).unwrap();
        let merged = text.replace("\"bssplit\": \"4k/50:64k/50\"", "\"bs\": \"4kb\"");
        let (_, passed_over) = told(merged.as_bytes());
        assert!(passed_over[0].contains("34816 bytes on the average, and bs says 4096"));
        let good = String::from_utf8(input!("good.json").to_vec()).unwrap();
        for same in ["4kb", "4096", "4K", "0x1000", "4k,8k,64k", "4k,"] {
            let text = good.replacen("\"bs\": \"4k\"", &format!("\"bs\": \"{same}\""), 1);
            assert_eq!(told(text.as_bytes()).0[0], "4 KiB randread, QD 1 80000");
        }
    }

    #[test]
    fn reasons_are_those_that_were_found() {
        for (bytes, reason) in [
            (&input!("buffered.json")[..], "page cache"),
            (
                &input!("no-latency.json")[..],
                "latencies were not measured",
            ),
            (&input!("fio-2.json")[..], "at the same time"),
            (&input!("client-server.json")[..], "page cache"),
        ] {
            let (points, passed_over) = told(bytes);
            assert_eq!(points, [""; 0], "{reason}");
            assert!(passed_over[0].contains(reason), "{passed_over:?}");
        }
        let good = String::from_utf8(input!("good.json").to_vec()).unwrap();
        let with = |option: &str| {
            let text = good.replacen("\"bs\": \"4k\"", &format!("\"bs\": \"4k\", {option}"), 1);
            told(text.as_bytes()).1.first().cloned().unwrap_or_default()
        };
        for same in [
            r#""rate_iops": "0""#,
            r#""thinktime": "0""#,
            r#""rate": "0,0""#,
            r#""percentage_random": "100""#,
            r#""iodepth_batch_complete_min": "1""#,
            r#""stonewall": """#,
        ] {
            assert_eq!(with(same), "", "{same}");
        }
        for (option, reason) in [
            (r#""rate_iops": "500""#, "rate_iops=500"),
            (r#""rate": ",1m""#, "rate=,1m"),
            (r#""thinktime": "10""#, "thinktime=10"),
            (r#""flow": "2""#, "flow=2"),
            (r#""latency_target": "10ms""#, "latency_target=10ms"),
            (r#""percentage_random": "50""#, "percentage_random=50"),
            (r#""iodepth_batch_complete_min": "4""#, "its depth varied"),
            (r#""verify": "crc32c""#, "verify=crc32c"),
            (r#""random_distribution": "zipf:1.1""#, "zipf:1.1"),
            (r#""ioengine": "libpmem""#, "libpmem"),
            (r#""numjobs": "x""#, "no number"),
        ] {
            assert!(with(option).contains(reason), "{option}: {}", with(option));
        }
        let mixed = good.replacen("\"total_ios\": 0", "\"total_ios\": 7", 1);
        assert!(told(mixed.as_bytes()).1[0].contains("7 commands of another kind"));
        let each_nth = good.replacen("\"randread\"", "\"randread:8\"", 1);
        assert!(told(each_nth.as_bytes()).1[0].contains("randread:8"));
        let failed = good.replacen("\"error\": 0", "\"error\": 5", 1);
        assert!(told(failed.as_bytes()).1[0].contains("error 5"));
    }

    /// Little's law: commands in flight are rate times latency.
    #[test]
    fn a_rate_that_does_not_match_the_latency_is_noticed() {
        let good = String::from_utf8(input!("good.json").to_vec()).unwrap();
        let with = |iops: &str| {
            let text = good.replacen(
                "\"total_ios\"",
                &format!("\"iops\": {iops}, \"total_ios\""),
                1,
            );
            told(text.as_bytes()).1.first().cloned().unwrap_or_default()
        };
        // 80 us one at a time are 12500 a second.
        assert_eq!(with("12100.5"), "");
        assert!(with("25000.0").contains("2.0 commands were in flight"));
        assert!(with("2500.0").contains("0.2 commands were in flight"));
    }

    #[test]
    fn threads_of_a_section_are_one_point() {
        let job = |mean: u32, ios: u32| {
            format!(
                r#"{{"jobname":"r","groupid":0,"error":0,"job options":{{"rw":"randread","iodepth":"4","numjobs":"2"}},"read":{{"io_bytes":{},"total_ios":{ios},"lat_ns":{{"mean":{mean}}}}}}}"#,
                ios * 4096
            )
        };
        let document = |jobs: &[String]| {
            let text = format!(
                r#"{{"fio version":"fio-3.33","global options":{{"direct":"1","ioengine":"io_uring"}},"jobs":[{}]}}"#,
                jobs.join(",")
            );
            told(text.as_bytes())
        };
        // (100 * 1000 + 300 * 3000) / 4000
        let (points, _) = document(&[job(100, 1000), job(300, 3000)]);
        assert_eq!(points, ["4 KiB randread, QD 8 250"]);
        assert_eq!(document(&[job(100, 1000)]).0, ["4 KiB randread, QD 8 100"]);
        let three = [job(100, 1), job(100, 1), job(100, 1)];
        assert!(document(&three).1[0].contains("3 results, and numjobs=2"));
        let two = job(100, 1).replace("\"rw\"", "\"filename\":\"/dev/nvme1n1\",\"rw\"");
        let one = two.replace("nvme1", "nvme0").replace(":0,", ":1,");
        let text = format!(r#"{{"fio version":"3","jobs":[{one},{two}]}}"#);
        let error = read(text.as_bytes()).unwrap_err();
        assert!(error.contains("/dev/nvme0n1, /dev/nvme1n1"), "{error}");
    }
}
