//! Calibrations of known drives return their parameters.

mod keys;
mod zones;

use std::ops::ControlFlow;

use model::preset::preset;
use model::{Kind, Moment, Parameters};
use simulate::output::Run;
use simulate::{Plan, Workload, fio};

use super::findings::{Calibration, Finding, Given, Standing};
use super::result::calibrate;
use super::samples::{Keys, Writers};
use super::{Act, Sample, read};

/// Mean time of a command, for latency `l_ns`, bytes per second and commands per second: the closed
/// form of the model's definition.
fn closed_form(way: [f64; 3], len: u32, depth: u32) -> f64 {
    let [latency, bytes, rate] = way;
    let cost = |len: f64| (len / bytes).max(1.0 / rate) * 1e9;
    let alone = latency + cost(len.into()) - cost(4096.0);
    alone.max(f64::from(depth) * cost(len.into()))
}

const READ: [f64; 3] = [5390.0, 2.4e9, 550e3];
const WRITE: [f64; 3] = [7310.0, 2.0e9, 400e3];

fn points(act: Act, way: [f64; 3], sizes: &[u32], depths: &[u32]) -> Vec<Sample> {
    let all = sizes
        .iter()
        .flat_map(|size| depths.iter().map(move |depth| (*size, *depth)));
    all.map(|(block_bytes, depth)| Sample {
        act,
        random: true,
        block_bytes,
        depth,
        mean_ns: closed_form(way, block_bytes, depth),
        sustained: false,
        writers: Writers::ONE,
        keys: Keys::Places,
    })
    .collect()
}

fn all_points() -> Vec<Sample> {
    let sizes = [4096, 16 << 10, 64 << 10, 256 << 10];
    let depths = [1, 2, 4, 8, 32];
    let mut all = points(Act::Read, READ, &sizes, &depths);
    all.extend(points(Act::Write, WRITE, &sizes, &depths));
    all
}

fn found(samples: &[Sample], like: Option<Parameters>) -> Calibration {
    calibrate(&Given {
        samples,
        like,
        host_ns: 0,
        effort: 1,
    })
    .unwrap()
}

fn finding<'a>(found: &'a Calibration, name: &str) -> &'a Finding {
    let mut all = found.findings.iter();
    all.find(|finding| finding.names.contains(&name)).unwrap()
}

/// A parameter is known, and its interval holds `expected`.
fn holds(found: &Calibration, name: &str, expected: f64) {
    let finding = finding(found, name);
    let Standing::Known(factor) = finding.standing else {
        panic!("{name}: {finding:?}");
    };
    assert!(factor < 1.2, "{name}: {finding:?}");
    let at = finding.names.iter().position(|own| *own == name).unwrap();
    let known = &finding.known[at];
    let (low, high) = (
        known.low.unwrap().raw as f64,
        known.high.unwrap().raw as f64,
    );
    assert!(
        low <= expected && expected <= high,
        "{name}: {expected} {finding:?}"
    );
}

#[test]
fn a_drive_of_latency_bandwidth_and_rate_comes_back() {
    let found = found(&all_points(), None);
    for (name, expected) in [
        ("read_latency", READ[0]),
        ("read_bandwidth", READ[1]),
        ("read_rate", READ[2]),
        ("write_latency", WRITE[0]),
        ("write_bandwidth", WRITE[1]),
        ("write_rate", WRITE[2]),
    ] {
        holds(&found, name, expected);
    }
    assert!(found.held_out.len() >= 4, "{}", found.held_out.len());
    for point in found.held_out.iter().chain(&found.fitted) {
        assert!(point.error().abs() < 0.01, "{point:?}");
    }
}

#[test]
fn noise_widens_the_intervals_and_they_hold_what_is_true() {
    // errors of 2 % without a pattern, always the same
    let mut random = driver::workload::random::Random::new(7);
    let mut noisy = all_points();
    for sample in &mut noisy {
        let sum: u64 = (0..12).map(|_| random.below(1000)).sum();
        sample.mean_ns *= 1.0 + 0.02 * (sum as f64 / 1000.0 - 6.0);
    }
    let found = found(&noisy, None);
    assert!((0.01..0.04).contains(&found.noise), "{}", found.noise);
    holds(&found, "read_latency", READ[0]);
    holds(&found, "read_bandwidth", READ[1]);
    holds(&found, "read_rate", READ[2]);
    holds(&found, "write_latency", WRITE[0]);
    let Standing::Known(factor) = finding(&found, "read_latency").standing else {
        panic!("it is known");
    };
    assert!(factor > 1.003, "{factor}");
}

#[test]
fn what_nothing_reaches_is_no_limit() {
    // With a rate of less than one command in 1.6 us, the time of 16 KiB at 10 GB/s, larger
    // commands would have been faster: their time is the latency, plus the drive time beyond that
    // of a page.
    let free = [10_000.0, 10e9, 1e12];
    let sizes = [4096, 8192, 16384];
    let mut all = points(Act::Read, free, &sizes, &[1, 2, 4]);
    all.extend(points(Act::Write, WRITE, &[4096, 65536], &[1, 8, 32]));
    let found = found(&all, None);
    holds(&found, "read_latency", 10_000.0);
    let rate = finding(&found, "read_rate");
    assert!(matches!(rate.standing, Standing::AtLeast(_)), "{rate:?}");
    assert_eq!(rate.known[0].value.to_string(), "none");
    let at_least = rate.known[0].low.unwrap().raw;
    assert!((600_000..2_440_000).contains(&at_least), "{at_least}");
}

#[test]
fn one_size_does_not_tell_bandwidth_from_rate() {
    let mut all = points(Act::Read, READ, &[4096], &[1, 2, 4, 8, 16, 32]);
    all.extend(points(Act::Write, WRITE, &[4096], &[1]));
    let found = found(&all, None);
    holds(&found, "read_latency", READ[0]);
    for name in [
        "read_rate",
        "read_bandwidth",
        "write_rate",
        "write_bandwidth",
    ] {
        let finding = finding(&found, name);
        assert!(
            !matches!(finding.standing, Standing::Known(_)),
            "{finding:?}"
        );
    }
    // the measurements are met all the same
    for point in &found.fitted {
        assert!(point.error().abs() < 0.01, "{point:?}");
    }
}

#[test]
fn too_little_says_what_is_missing() {
    let error = |samples: &[Sample]| {
        let given = Given {
            samples,
            like: None,
            host_ns: 0,
            effort: 1,
        };
        calibrate(&given).unwrap_err()
    };
    assert!(error(&[]).contains("nothing was measured of reads"));
    let reads = points(Act::Read, READ, &[4096], &[1, 8]);
    assert!(error(&reads).contains("nothing was measured of writes"));
    // values that were not measured come from a preset
    let like = preset("optane-p4800x")
        .unwrap()
        .parameters(1 << 30, None)
        .unwrap();
    let found = found(&reads, Some(like.clone()));
    assert_eq!(
        found.parameters.get("write_latency"),
        like.get("write_latency")
    );
    assert_eq!(
        finding(&found, "write_rate").standing,
        Standing::NotIdentifiable
    );
}

#[test]
fn what_a_host_adds_is_taken_out() {
    let mut all = all_points();
    for sample in &mut all {
        // before the drive is full, a command takes this much longer
        let cost = match sample.act {
            Act::Read => READ,
            _ => WRITE,
        };
        let most = closed_form([0.0, cost[1], cost[2]], sample.block_bytes, sample.depth);
        let alone = closed_form(cost, sample.block_bytes, 1);
        sample.mean_ns = (alone + 2000.0).max(most.max(sample.mean_ns));
    }
    let given = Given {
        samples: &all,
        like: None,
        host_ns: 2000,
        effort: 1,
    };
    let found = calibrate(&given).unwrap();
    holds(&found, "read_latency", READ[0]);
    holds(&found, "write_latency", WRITE[0]);
}

/// Each measurement has its own random sequence.
fn seed_of(jobs: &str) -> u64 {
    model::key_hash(jobs.as_bytes()).into()
}

/// Results of a job file on a drive in virtual time.
fn simulated(parameters: &Parameters, size: u64, jobs: &str, ms: u64) -> Vec<Sample> {
    let seed = seed_of(jobs);
    let jobs = fio::parse(jobs, &[("ioengine".to_owned(), "libaio".to_owned())]).unwrap();
    let initial = if jobs.iter().any(|job| job.name == "sustained") {
        model::Initial::Steady
    } else {
        model::Initial::Fresh
    };
    let plan = Plan {
        initial,
        ..Plan::new(Workload::Jobs(jobs), ms * 1_000_000, seed)
    };
    let mut go_on = |_| ControlFlow::Continue(());
    let ran = simulate::run(parameters, size, &plan, &mut go_on).unwrap();
    let document = serde_json::json!({ "runs": [Run::new(&ran, Vec::new())] });
    read(document.to_string().as_bytes()).unwrap().samples
}

/// Only a part of these run at each commit (CONTRIBUTING.md).
mod slow {
    use super::*;

    #[test]
    fn the_space_beyond_what_hosts_see_comes_back_from_steady_state() {
        let size = 8 << 30;
        let like = preset("samsung-970-pro").unwrap();
        let like = like.parameters(size, None).unwrap();
        let mut truth = like.clone();
        truth
            .set("overprovisioning", "15%", Moment::Creation)
            .unwrap();
        let writes = "rw=randwrite\nnorandommap\ntime_based\niodepth=32\n";
        let mut samples = simulated(&truth, size, &format!("[sustained]\n{writes}"), 48_000);
        samples.extend(simulated(&truth, size, &format!("[w]\n{writes}"), 100));
        let found = found(&samples, Some(like));
        let finding = finding(&found, "overprovisioning");
        assert!(
            matches!(finding.standing, Standing::Known(_)),
            "{finding:?}"
        );
        let [known] = finding.known.as_slice() else {
            panic!("{finding:?}");
        };
        let (low, high) = (known.low.unwrap().raw, known.high.unwrap().raw);
        assert!(low <= 150 && 150 <= high, "{finding:?}");
        assert!(low >= 115 && high <= 190, "{finding:?}");
        assert!((141..=159).contains(&known.value.raw), "{finding:?}");
        assert!(
            found.sustained[0].error().abs() < 0.12,
            "{:?}",
            found.sustained
        );
        assert_eq!(
            found.parameters.get("overprovisioning").unwrap(),
            known.value
        );
    }

    #[test]
    fn the_times_of_flash_come_back() {
        let size = 8 << 30;
        let like = preset("samsung-970-pro")
            .unwrap()
            .parameters(size, None)
            .unwrap();
        let mut truth = like.clone();
        for (name, value) in [
            ("firmware_read_4k", "12us"),
            ("read_4k_cell0", "35us"),
            ("read_4k_cell1", "49116ns"), // in the proportion of the preset
            ("program", "250us"),
            ("buffer_base", "6us"),
            ("link_bandwidth", "3GB/s"),
        ] {
            truth.set(name, value, Moment::Creation).unwrap();
        }
        assert_eq!(truth.kind(), Kind::Flash);
        let mut samples = Vec::new();
        let fill = "[global]\nsize=512m\nruntime=1s\n[fill]\nrw=write\nbs=1m\n";
        let of_reads = [
            (4, &[1, 2, 4, 8, 16, 32, 64, 128][..]),
            (16, &[1]),
            (64, &[1]),
            (256, &[1]),
            (1024, &[1]),
            (128, &[8, 32]),
        ];
        for (size, depths) in of_reads {
            for depth in depths {
                let jobs = format!(
                    "{fill}[r]\nstonewall\nrw=randread\nnorandommap\ntime_based\nruntime=200ms\nbs={size}k\niodepth={depth}\n"
                );
                let read = simulated(&truth, 8 << 30, &jobs, 5000);
                samples.push(read[1].clone());
            }
        }
        let of_writes = [
            (4, 1),
            (4, 8),
            (4, 32),
            (16, 1),
            (64, 1),
            (256, 1),
            (1024, 1),
            (128, 8),
            (128, 32),
        ];
        for (size, depth) in of_writes {
            let jobs = format!(
                "[w]\nrw=randwrite\nnorandommap\ntime_based\nruntime=200ms\nbs={size}k\niodepth={depth}\n"
            );
            samples.extend(simulated(&truth, 8 << 30, &jobs, 200));
        }
        let found = found(&samples, Some(like));
        assert!(found.noise < 0.01, "{}", found.noise);
        assert!(!found.held_out.is_empty());
        for point in found.held_out.iter().chain(&found.fitted) {
            assert!(point.error().abs() < 0.02, "{point:?}");
        }
        holds(&found, "firmware_read_4k", 12_000.0);
        holds(&found, "read_4k_cell0", 35_000.0);
        holds(&found, "program", 250_000.0);
        holds(&found, "buffer_base", 6_000.0);
        holds(&found, "link_bandwidth", 3e9);
    }
}
