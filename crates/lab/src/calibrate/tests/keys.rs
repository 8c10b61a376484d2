//! Drives with keys.

use super::*;

const SIZE: u64 = 1 << 40;

fn kvssd(changes: &[(&str, &str)]) -> Parameters {
    let like = preset("samsung-kvssd").unwrap();
    let mut drive = like.parameters(SIZE, None).unwrap();
    for (name, value) in changes {
        drive.set(name, value, Moment::Creation).unwrap();
    }
    drive.check().unwrap();
    drive
}

fn keyed(truth: &Parameters, jobs: &str) -> Vec<Sample> {
    let seed = seed_of(jobs);
    let jobs = fio::parse_keyed(jobs, &[("ioengine".to_owned(), "libaio".to_owned())]).unwrap();
    let plan = Plan::new(Workload::Jobs(jobs), 1_000_000_000, seed);
    let mut go_on = |_| ControlFlow::Continue(());
    let ran = simulate::run(truth, SIZE, &plan, &mut go_on).unwrap();
    let document = serde_json::json!({ "runs": [Run::new(&ran, Vec::new())] });
    read(document.to_string().as_bytes()).unwrap().samples
}

fn sweeps(truth: &Parameters) -> Vec<Sample> {
    let mut samples = Vec::new();
    let of_all = [
        (4096, &[1, 2, 4, 8, 16, 32, 64, 128][..]),
        (512, &[1, 64]),
        (16 << 10, &[1]),
        (64 << 10, &[1]),
        (128 << 10, &[8, 32]),
        (256 << 10, &[1]),
    ];
    for rw in ["randread", "randwrite"] {
        for (bs, depths) in of_all {
            for depth in depths {
                let jobs =
                    format!("[a]\nrw={rw}\nnorandommap\ntime_based\nbs={bs}\niodepth={depth}\n");
                samples.extend(keyed(truth, &jobs));
            }
        }
    }
    samples.extend(keyed(truth, "[a]\nrw=randtrim\nnorandommap\ntime_based\n"));
    samples
}

/// Only a part of these run at each commit (CONTRIBUTING.md).
mod slow {
    use super::*;

    #[test]
    fn a_drive_of_units_comes_back() {
        let truth = kvssd(&[
            ("units", "6"),
            ("read_latency", "120us"),
            ("read_bandwidth", "2GB/s"),
            ("read_rate", "200K/s"),
            ("write_latency", "70us"),
            ("write_bandwidth", "1GB/s"),
            ("write_rate", "90K/s"),
            ("delete_latency", "80us"),
        ]);
        let samples = sweeps(&truth);
        let found = found(&samples, None);
        assert!(found.noise < 0.02, "{}", found.noise);
        assert!(!found.held_out.is_empty());
        for point in found.held_out.iter().chain(&found.fitted) {
            assert!(point.error().abs() < 0.03, "{point:?}");
        }
        let units = finding(&found, "units");
        assert_eq!(units.known[0].value.raw, 6, "{units:?}");
        assert!(matches!(units.standing, Standing::Known(_)), "{units:?}");
        assert_eq!(found.parameters.get("units").unwrap().raw, 6);
        holds(&found, "read_latency", 120_000.0);
        holds(&found, "read_bandwidth", 2e9);
        holds(&found, "read_rate", 200e3);
        holds(&found, "write_latency", 70_000.0);
        holds(&found, "write_bandwidth", 1e9);
        holds(&found, "write_rate", 90e3);
        holds(&found, "delete_latency", 80_000.0);
        let list = finding(&found, "list_latency");
        assert_eq!(list.standing, Standing::NotIdentifiable);
    }

    #[test]
    fn one_at_a_time_does_not_tell_units() {
        let mut samples = sweeps(&kvssd(&[]));
        samples.retain(|sample| sample.depth == 1);
        let found = found(&samples, Some(kvssd(&[])));
        let units = finding(&found, "units");
        assert!(!matches!(units.standing, Standing::Known(_)), "{units:?}");
        assert_eq!(found.parameters.get("units").unwrap().raw, 10);
        holds(&found, "read_latency", 147_390.0);
        let error = calibrate(&Given {
            samples: &samples[..1],
            like: None,
            host_ns: 0,
            effort: 1,
        });
        assert!(
            error
                .unwrap_err()
                .contains("nothing was measured of stores")
        );
    }
}
