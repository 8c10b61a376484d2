//! Drives with zones.

use super::*;

/// A prototype of 4 channels with 4 dies each, and smaller zones, so that all dies are written
/// soon.
fn prototype(changes: &[(&str, &str)]) -> (Parameters, u64) {
    let zone = 16 << 20;
    let size = 64 * zone;
    let like = preset("zns-prototype").unwrap();
    let mut drive = like.parameters(32 << 30, None).unwrap();
    let shape = [
        ("channels", "4"),
        ("dies_per_channel", "4"),
        ("zone_size", "16MiB"),
        ("zone_capacity", "12MiB"),
        ("block", "12MiB"),
        ("buffer_base", "1us"),
        ("buffer_per_page", "100ns"),
    ];
    for (name, value) in shape.iter().chain(changes) {
        drive.set(name, value, Moment::Creation).unwrap();
    }
    if let Parameters::Zones(zones) = &mut drive {
        zones.flash.size_bytes = size;
    }
    drive.check().unwrap();
    (drive, size)
}

fn reads(truth: &Parameters, size: u64, samples: &mut Vec<Sample>) {
    let fill =
        "[global]\nzonemode=zbd\n[fill]\nio_size=48m\nrw=write\nbs=192k\niodepth=1\nnumjobs=16\n";
    let of_reads = [
        (4, &[1, 2, 4, 8, 16, 32, 64][..]),
        (16, &[1]),
        (64, &[1]),
        (256, &[1]),
        (1024, &[1]),
        (128, &[2, 4, 8, 16, 32, 64]),
    ];
    for (bs, depths) in of_reads {
        for depth in depths {
            let jobs = format!(
                "{fill}[r]\nstonewall\nrw=randread\nnorandommap\ntime_based\nruntime=1s\nbs={bs}k\niodepth={depth}\n"
            );
            let read = simulated(truth, size, &jobs, 5000);
            assert_eq!(read.len(), 2, "{read:?}");
            samples.push(read[1].clone());
        }
    }
}

fn writes(truth: &Parameters, size: u64, samples: &mut Vec<Sample>) {
    let of_writes = [
        (4, &[1][..]),
        (16, &[1]),
        (64, &[1]),
        (192, &[1, 2, 4, 8, 16]),
        (768, &[1]),
    ];
    for (bs, writers) in of_writes {
        for writers in writers {
            let jobs = format!(
                "[w]\nzonemode=zbd\nrw=write\nio_size=24m\nbs={bs}k\niodepth=1\nnumjobs={writers}\n"
            );
            samples.extend(simulated(truth, size, &jobs, 10_000));
        }
    }
}

/// One writer that returns to its zones and resets them.
fn resets(truth: &Parameters, size: u64) -> Vec<Sample> {
    let jobs = "[w]\nzonemode=zbd\nrw=write\nbs=192k\nsize=64m\ntime_based\nruntime=4s\n";
    let both = simulated(truth, size, jobs, 4000);
    assert_eq!(both.len(), 2, "{both:?}");
    both
}

#[test]
fn what_says_nothing_of_zones_is_passed_over() {
    let (truth, size) = prototype(&[("program", "1500us")]);
    let mut samples = Vec::new();
    writes(&truth, size, &mut samples);
    let random = Sample {
        random: true,
        ..samples[0].clone()
    };
    let sustained = Sample {
        sustained: true,
        ..samples[0].clone()
    };
    let store = Sample {
        act: Act::Store,
        ..samples[0].clone()
    };
    samples.extend([random, sustained, store]);
    let found = found(&samples, Some(prototype(&[]).0));
    let why = found.passed_over.join("\n");
    for says in [
        "which zones it wrote to is not known",
        "no steady state",
        "a drive of kind zns knows no store",
    ] {
        assert!(why.contains(says), "{why}");
    }
    // nothing was reset or read
    for name in ["erase", "firmware_read_4k", "read_cell0"] {
        let finding = finding(&found, name);
        assert_eq!(finding.standing, Standing::NotIdentifiable, "{finding:?}");
    }
    // more writers than zones
    let many = Sample {
        writers: Writers {
            count: 65,
            apart: 1,
        },
        depth: 65,
        ..samples[0].clone()
    };
    let given = Given {
        samples: &[many],
        like: Some(truth),
        host_ns: 0,
        effort: 1,
    };
    assert!(calibrate(&given).is_err());
}

mod slow {
    use super::*;

    #[test]
    fn the_times_of_zones_come_back() {
        let truth = [
            ("firmware_read_4k", "20us"),
            ("read_4k_cell0", "31us"),
            ("read_4k_cell1", "31us"),
            ("read_4k_cell2", "31us"),
            ("program", "1500us"),
            ("buffer_base", "3us"),
            ("buffer_per_page", "150ns"),
            ("link_bandwidth", "2.8GB/s"),
            ("erase", "3ms"),
        ];
        let ((truth, size), (like, _)) = (prototype(&truth), prototype(&[]));
        let mut samples = resets(&truth, size);
        reads(&truth, size, &mut samples);
        writes(&truth, size, &mut samples);
        let found = found(&samples, Some(like));
        assert!(found.noise < 0.01, "{}", found.noise);
        assert!(!found.held_out.is_empty());
        for point in found.held_out.iter().chain(&found.fitted) {
            assert!(point.error().abs() < 0.02, "{point:?}");
        }
        holds(&found, "firmware_read_4k", 20_000.0);
        holds(&found, "read_4k_cell0", 31_000.0);
        holds(&found, "program", 1_500_000.0);
        holds(&found, "buffer_base", 3_000.0);
        holds(&found, "link_bandwidth", 2.8e9);
        holds(&found, "erase", 3_000_000.0);
        for name in ["buffer", "firmware_channel_transfer"] {
            let standing = finding(&found, name).standing;
            assert_eq!(standing, Standing::NotIdentifiable, "{name}");
        }
        // A command waits for programs, so that 150 ns per page do not show.
        let per_page = finding(&found, "buffer_per_page").standing;
        assert!(!matches!(per_page, Standing::Known(_)), "{per_page:?}");
        assert_eq!(found.passed_over, [""; 0]);
    }
}
