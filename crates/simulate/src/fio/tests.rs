//! Each supported key, and rejected ones.

use super::*;
use crate::job::{Distribution, Extent};

fn one(lines: &str) -> Job {
    let mut jobs = parse(&format!("[job]\n{lines}"), &[]).unwrap();
    assert_eq!(jobs.len(), 1);
    jobs.remove(0)
}

fn refused(lines: &str) -> FioError {
    parse(&format!("[job]\n{lines}"), &[]).unwrap_err()
}

fn sized(size: u32) -> [Vec<(u32, u8)>; 3] {
    [(); 3].map(|()| vec![(size, 100)])
}

#[test]
fn without_keys_it_is_fios_default() {
    let job = one("");
    assert_eq!(job.name, "job");
    assert_eq!(
        (job.kinds.as_slice(), job.random),
        (&[Kind::Read][..], false)
    );
    assert_eq!((job.depth, job.workers, job.loops), (1, 1, 1));
    assert_eq!((&job.sizes, job.read_percent), (&sized(4096), 50));
}

#[test]
fn directions() {
    use Kind::{Read, Trim, Write};
    for (value, kinds, random) in [
        ("read", vec![Read], false),
        ("write", vec![Write], false),
        ("trim", vec![Trim], false),
        ("randread", vec![Read], true),
        ("randwrite", vec![Write], true),
        ("randtrim", vec![Trim], true),
        ("rw", vec![Read, Write], false),
        ("readwrite", vec![Read, Write], false),
        ("randrw", vec![Read, Write], true),
    ] {
        for key in ["rw", "readwrite"] {
            let job = one(&format!("{key}={value}"));
            assert_eq!((&job.kinds, job.random), (&kinds, random), "{value}");
        }
    }
    assert!(refused("rw=randread:8").why.contains("randread:8"));
}

#[test]
fn sizes_of_commands() {
    assert_eq!(one("bs=128k").sizes, sized(131_072));
    assert_eq!(one("blocksize=512").sizes, sized(512));
    let sizes = one("bs=4k,8k").sizes;
    assert_eq!(sizes.map(|size| size[0].0), [4096, 8192, 8192]);
    let sizes = one("bs=4k,8k,1m").sizes;
    assert_eq!(sizes.map(|size| size[0].0), [4096, 8192, 1 << 20]);
    let split = one("bssplit=4k/10:64k/90,8k").sizes;
    assert_eq!(split[0], [(4096, 10), (65_536, 90)]);
    assert_eq!(split[1], [(8192, 100)]);
    let rest = one("bssplit=4k/40:8k:16k/:32k").sizes;
    assert_eq!(
        rest[0],
        [(4096, 40), (8192, 20), (16_384, 20), (32_768, 20)]
    );
    let uneven = one("bssplit=4k:8k:16k").sizes;
    assert_eq!(uneven[0], [(4096, 34), (8192, 33), (16_384, 33)]);
    for wrong in [
        "bs=0",
        "bs=100",
        "bs=4x",
        "bs=",
        "bs",
        "bs=1k,2k,3k,4k",
        "bs=4g",
        "bs=-1",
    ] {
        assert!(refused(wrong).why.starts_with("bs: "), "{wrong}");
    }
    for wrong in ["bssplit=4k/60:8k/60", "bssplit=4k/60:8k/30", "bssplit=4k/x"] {
        assert!(refused(wrong).why.starts_with("bssplit: "), "{wrong}");
    }
    assert!(refused("bs=4m").why.contains("2097152 at most"));
    assert_eq!(one("rw=trim\nbs=1g").sizes, sized(1 << 30));
}

#[test]
fn depth_and_workers() {
    assert_eq!(
        (one("iodepth=32").depth, one("iodepth=32").capped),
        (1, Some(32))
    );
    assert_eq!(one("iodepth=1").capped, None);
    assert_eq!(one("iodepth=32\nioengine=libaio").depth, 32);
    assert_eq!(one("ioengine=psync\niodepth=32").depth, 1);
    assert_eq!(one("numjobs=64").workers, 64);
    for wrong in ["iodepth=0", "iodepth=4096", "numjobs=65", "ioengine=rados"] {
        refused(wrong);
    }
}

#[test]
fn parts_of_the_drive() {
    let job = one("offset=1g\noffset_increment=10%\nsize=50%\nio_size=4m");
    assert_eq!(job.offset, Extent::Bytes(1 << 30));
    assert_eq!(job.offset_increment, Extent::Percent(10));
    assert_eq!(job.size, Some(Extent::Percent(50)));
    assert_eq!(job.io_size, Some(Extent::Bytes(4 << 20)));
    assert_eq!(one("number_ios=10").commands, Some(10));
    assert_eq!(one("loops=3").loops, 3);
    for wrong in ["size=101%", "size=4kx", "offset=x", "loops=0"] {
        refused(wrong);
    }
}

#[test]
fn times() {
    let job = one("runtime=10\ntime_based\nstartdelay=500ms\nthinktime=20\nthinktime_blocks=4");
    assert_eq!(job.runtime_ns, Some(10_000_000_000));
    assert!(job.time_based);
    assert_eq!(job.start_delay_ns, 500_000_000);
    assert_eq!((job.think_ns, job.think_commands), (20_000, 4));
    assert_eq!(one("runtime=2h").runtime_ns, Some(7_200_000_000_000));
    assert_eq!(one("thinktime=3ms").think_ns, 3_000_000);
    assert!(!one("time_based=0").time_based);
    for wrong in [
        "runtime=1w",
        "runtime=1.5s",
        "time_based=yes",
        "thinktime_blocks=0",
    ] {
        refused(wrong);
    }
}

#[test]
fn mixes_and_rates() {
    assert_eq!(one("rw=randrw\nrwmixread=70").read_percent, 70);
    assert_eq!(one("rw=randrw\nrwmixwrite=70").read_percent, 30);
    assert_eq!(one("rate_iops=5000").rates, [Some(Rate::Commands(5000)); 3]);
    let each = [Some(Rate::Commands(7)), None, Some(Rate::Commands(9))];
    assert_eq!(one("rw=randrw\nrate_iops=7,0,9").rates, each);
    let writes = [None, Some(Rate::Bytes(512_000)), Some(Rate::Bytes(512_000))];
    assert_eq!(one("rate=,500k").rates, writes);
    let reads = [Some(Rate::Bytes(1 << 20)), None, None];
    assert_eq!(one("rate=1m,").rates, reads);
    assert_eq!(one("rate_iops=0").rates, [None; 3]);
    assert_eq!(one("rate_process=poisson").arrivals, Arrivals::Poisson);
    assert_eq!(one("rate_process=linear").arrivals, Arrivals::Even);
    refused("rwmixread=101");
    refused("rate_iops=-1");
}

#[test]
fn randomness() {
    assert!(one("norandommap").forgets);
    assert_eq!(
        one("random_distribution=random").distribution,
        Distribution::Uniform
    );
    let zipf = |value: &str| one(&format!("random_distribution={value}")).distribution;
    assert_eq!(zipf("zipf"), Distribution::Zipf(1_100_000));
    assert_eq!(zipf("zipf:1.2"), Distribution::Zipf(1_200_000));
    assert_eq!(zipf("zipf:0.000001"), Distribution::Zipf(1));
    assert_eq!(one("randseed=7").seed, Some(7));
    assert_eq!(zipf("pareto"), Distribution::Pareto(200_000));
    assert_eq!(zipf("pareto:0.9"), Distribution::Pareto(900_000));
    assert_eq!(zipf("normal:12.5"), Distribution::Normal(125_000));
    assert_eq!(
        one("random_distribution=zipf:1.2:0.25").center,
        Some(250_000)
    );
    let zoned = |shares: &[(u8, u8)]| {
        let ranges = shares
            .iter()
            .map(|(share, part)| (*share, Extent::Percent(*part)));
        ranges.collect::<Vec<_>>()
    };
    let first = zoned(&[(60, 10), (40, 90)]);
    assert_eq!(
        zipf("zoned:60/10:40/90"),
        Distribution::Zoned([first.clone(), first.clone(), first.clone()])
    );
    let second = zoned(&[(100, 100)]);
    assert_eq!(
        zipf("zoned:60/10:40/90,100/100"),
        Distribution::Zoned([first, second.clone(), second])
    );
    let absolute = vec![(70, Extent::Bytes(20 << 30)), (30, Extent::Bytes(1 << 20))];
    assert_eq!(
        zipf("zoned_abs=70/20G:30/1m"),
        Distribution::Zoned([absolute.clone(), absolute.clone(), absolute])
    );
    for wrong in [
        "zipf:0",
        "zipf:6",
        "zipf:1.2.3",
        "zipf:",
        "zipf:1e1",
        "zipf:1.2:2",
        "pareto:1",
        "pareto:0",
        "normal",
        "normal:0",
        "normal:101",
        "zoned",
        "zoned:60/10:30/90",
        "zoned:60/10:40/80",
        "zoned_abs:100/10%",
        "gauss",
    ] {
        let error = refused(&format!("random_distribution={wrong}"));
        assert!(error.why.starts_with("random_distribution: "), "{wrong}");
    }
    let percent = |value: &str| one(&format!("percentage_random={value}")).random_percent;
    assert_eq!(percent("70"), [70; 3]);
    assert_eq!(percent("70,20"), [70, 20, 20]);
    refused("percentage_random=101");
}

#[test]
fn durability_and_order() {
    assert_eq!(one("fsync=8").flush_every, 8);
    assert_eq!(one("fdatasync=1").flush_every, 1);
    for (value, fua) in [
        ("none", false),
        ("0", false),
        ("sync", true),
        ("1", true),
        ("dsync", true),
    ] {
        assert_eq!(one(&format!("sync={value}")).fua, fua);
    }
    assert!(one("stonewall").after_others);
    assert!(one("wait_for_previous=1").after_others);
    one("direct=1\nbuffered=0\nzonemode=none");
    let zoned = one("zonemode=zbd\nmax_open_zones=14");
    assert_eq!((zoned.zoned, zoned.open_zones), (true, Some(14)));
    assert_eq!(one("job_max_open_zones=0").open_zones, None);
    for wrong in ["direct=0", "buffered=1", "zonemode=strided"] {
        refused(wrong);
    }
}

#[test]
fn what_fio_does_by_itself_is_passed_over() {
    for key in IGNORED {
        assert_eq!(one(&format!("{key}=1")), one(""), "{key}");
    }
}

#[test]
fn sections_have_what_global_ones_before_them_say() {
    let text = "; a comment\n[global]\nioengine=libaio\nbs=8k\niodepth=4\n\n[a]\nrw=write\n[global]\niodepth=9\n# another\n[b]\nbs=16k\n";
    let jobs = parse(text, &[]).unwrap();
    let all: Vec<_> = jobs
        .iter()
        .map(|job| (job.name.as_str(), job.depth, job.sizes[0][0].0))
        .collect();
    assert_eq!(all, [("a", 4, 8192), ("b", 9, 16_384)]);
    let overrides = [("iodepth".to_owned(), "2".to_owned())];
    let jobs = parse(text, &overrides).unwrap();
    assert!(jobs.iter().all(|job| job.depth == 2));
    let overrides = [("iodepth".to_owned(), "0".to_owned())];
    assert!(
        parse(text, &overrides)
            .unwrap_err()
            .why
            .starts_with("iodepth=0: ")
    );
}

#[test]
fn what_is_not_taken_is_refused_by_name_and_line() {
    for key in [
        "verify",
        "filesize",
        "blockalign",
        "include",
        "exec_prerun",
        "read_iolog",
        "unlink",
        "write_hint",
        "latency_target",
        "zonesize",
        "nrfiles",
    ] {
        let error = parse(&format!("[global]\nbs=4k\n[x]\n{key}=1\n"), &[]).unwrap_err();
        assert_eq!(error.line, 4);
        assert!(
            error.why.starts_with(&format!("{key}: is not supported")),
            "{error}"
        );
        let alone = parse(&format!("[x]\n{key}\n"), &[]).unwrap_err();
        assert!(alone.why.ends_with("is not supported"), "{alone}");
        assert!(error.to_string().contains("supported keys: rw,"), "{error}");
        assert!(!is_key(key));
    }
    for (names, _) in KEYS {
        assert!(names.split(", ").all(is_key));
    }
    for (text, line, word) in [
        ("bs=4k\n", 1, "before the first section"),
        ("[a\n", 1, "does not end"),
        ("[global]\nbs=4k\n", 2, "no section"),
        ("", 1, "no section"),
        ("[a]\nbs=$SIZE\n", 2, "not expanded"),
        ("[a]\niodepth\n", 2, "has no value"),
    ] {
        let error = parse(text, &[]).unwrap_err();
        assert_eq!(error.line, line, "{text}");
        assert!(error.why.contains(word), "{error}");
    }
}

#[test]
fn for_a_drive_with_keys() {
    let one = |lines: &str| parse_keyed(&format!("[global]\n[job]\n{lines}"), &[]);
    let job = one("rw=randrw\nbs=100,1000\nzonemode=none\nsync=none\nmax_open_zones=0\n");
    let job = job.unwrap().remove(0);
    assert!(job.keyed && job.random);
    assert_eq!(job.sizes.map(|size| size[0].0), [100, 1000, 1000]);
    let job = one("bssplit=1/50:2m/50\n").unwrap().remove(0);
    assert_eq!(job.sizes[0], [(1, 50), (2 << 20, 50)]);
    for (line, word) in [
        ("bs=0", "write 1 to 2097152"),
        ("bs=2097153", "write 1 to 2097152"),
        ("bssplit=4k/50:3m/50", "write 1 to 2097152"),
        ("sync=dsync", "no FUA"),
        ("zonemode=zbd", "no zones"),
        ("max_open_zones=3", "no zones"),
    ] {
        let error = one(line).unwrap_err();
        assert!(error.line == 3 && error.why.contains(word), "{error}");
    }
    // Blocks are whole sectors.
    assert!(refused("bs=100").why.contains("a multiple of 512"));
    let swept = [("bs".to_owned(), "1000".to_owned())];
    assert_eq!(
        parse_keyed("[a]\n", &swept).unwrap()[0].sizes[0],
        [(1000, 100)]
    );
}

/// Inputs as users have them, with what fio makes of them.
#[test]
fn job_files_as_users_have_them() {
    let read = |text: &str| parse(text, &[]);
    let only = |text: &str| {
        let mut jobs = read(text).unwrap();
        assert_eq!(jobs.len(), 1);
        jobs.remove(0)
    };
    let default = only(include_str!("inputs/default-engine.fio"));
    assert_eq!((default.depth, default.capped), (1, Some(32)));
    assert!(notes(&[default])[0].contains("iodepth=32 is 1"));
    let commented = only(include_str!("inputs/comment-behind.fio"));
    assert_eq!(
        (commented.sizes, commented.size),
        (sized(4096), Some(Extent::Bytes(1 << 30)))
    );
    let passthrough = only(include_str!("inputs/passthrough.fio"));
    assert_eq!(
        (passthrough.depth, passthrough.ramp_ns),
        (16, 5_000_000_000)
    );
    let left_out = only(include_str!("inputs/sizes-left-out.fio"));
    assert_eq!(left_out.sizes.map(|size| size[0].0), [4096, 8192, 8192]);
    assert!(only(include_str!("inputs/switch-alone.fio")).exit_all);
    let units = only(include_str!("inputs/units-kb-mb.fio"));
    assert_eq!(
        (units.sizes, units.size),
        (sized(4096), Some(Extent::Bytes(128 << 20)))
    );
    let zones = only(include_str!("inputs/zones-as-unit.fio"));
    assert_eq!(
        (zones.size, zones.offset_increment),
        (Some(Extent::Zones(8)), Extent::Zones(8))
    );
    let on_zones = zones.on_zones(Some(1 << 20)).unwrap();
    assert_eq!(on_zones.size, Some(Extent::Bytes(8 << 20)));
    assert!(
        zones
            .on_zones(None)
            .unwrap_err()
            .to_string()
            .contains("kind zns")
    );
    let refused = read(include_str!("inputs/zonesize.fio")).unwrap_err();
    assert_eq!((refused.line, refused.more.len()), (10, 1), "{refused}");
    assert!(
        refused
            .to_string()
            .contains("line 12: zone_reset_threshold: is not supported")
    );
}

#[test]
fn sections_of_several_drives() {
    let text = include_str!("inputs/two-drives.fio");
    let error = parse(text, &[]).unwrap_err();
    assert_eq!(error.line, 10);
    for word in ["/dev/nvme0n1, /dev/nvme1n1", "--device /dev/nvme0n1"] {
        assert!(error.why.contains(word), "{error}");
    }
    let of = |file| {
        parse_with(
            text,
            &With {
                file: Some(file),
                ..With::default()
            },
        )
    };
    let jobs = of("/dev/nvme1n1").unwrap();
    assert_eq!(jobs.len(), 1);
    assert_eq!(jobs[0].name, "second");
    assert!(
        of("/dev/sda")
            .unwrap_err()
            .why
            .contains("have /dev/nvme0n1")
    );
    for (text, word) in [
        ("[a]\nfilename=/dev/a:/dev/b\n", "a section for each"),
        ("[a]\nfilename=/dev/a\n[b]\n", "no filename"),
        ("[a]\ndirectory=/x\n[b]\ndirectory=/y\n", "/x, /y"),
    ] {
        let error = parse(text, &[]).unwrap_err();
        assert!(error.why.contains(word), "{error}");
    }
    let same = "[global]\nfilename=/dev/a\n[a]\n[b]\n";
    assert_eq!(parse(same, &[]).unwrap().len(), 2);
}

#[test]
fn depths_in_batches() {
    let with = |lines: &str| one(&format!("ioengine=libaio\niodepth=16\n{lines}"));
    assert_eq!(with("").refill_at, None);
    assert_eq!(with("iodepth_batch_complete_min=1").refill_at, None);
    assert_eq!(with("iodepth_batch_complete=4").refill_at, Some(12));
    assert_eq!(with("iodepth_batch_complete_min=64").refill_at, Some(0));
    assert_eq!(with("iodepth_low=4").refill_at, Some(4));
    assert_eq!(with("iodepth_batch=8").batch, 8);
    assert_eq!(with("iodepth_batch_submit=0").batch, u16::MAX);
    let swept = [("iodepth".to_owned(), "4".to_owned())];
    let error = parse("[a]\n", &swept).unwrap_err();
    assert!(
        error
            .why
            .contains("one command at a time with ioengine=psync"),
        "{error}"
    );
}

#[test]
fn ranges_of_sizes() {
    let sizes = one("bsrange=4k-16k,512-1k").sizes;
    assert_eq!(sizes[0], [(4096, 1), (8192, 1), (12_288, 1), (16_384, 1)]);
    assert_eq!(sizes[1], [(512, 1), (1024, 1)]);
    assert_eq!(sizes[2], sizes[1]);
    for wrong in [
        "bsrange=4k",
        "bsrange=8k-4k",
        "bsrange=4k-4m",
        "bsrange=0-4k",
    ] {
        assert!(refused(wrong).why.starts_with("bsrange: "), "{wrong}");
    }
}

/// With fio's default base of 1024, `ki` are thousands.
#[test]
fn units_of_sizes() {
    for (text, bytes) in [
        ("4k", 4096),
        ("4K", 4096),
        ("4kb", 4096),
        ("0x1000", 4096),
        ("1mb", 1 << 20),
        ("2kib", 2000),
        ("1P", 1 << 50),
    ] {
        assert_eq!(sizes(text), Ok([bytes; 3]), "{text}");
    }
    assert_eq!(sizes("8k,32k,"), Ok([8192, 32_768, 4096]));
    assert_eq!(sizes(",8k,"), Ok([4096, 8192, 4096]));
    for wrong in ["", "k", "4kk", "4 k", "0x", "-4"] {
        assert!(sizes(wrong).is_err(), "{wrong}");
    }
}
