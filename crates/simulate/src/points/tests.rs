use std::collections::BTreeSet;

use model::Parameters;
use model::preset::preset;

use super::*;

fn drive(name: &str) -> (Parameters, Points) {
    let preset = preset(name).unwrap();
    let parameters = preset.parameters(8 << 30, None).unwrap();
    let points = of(&parameters);
    let parameters = preset.parameters(points.size_bytes, None).unwrap();
    (parameters, points)
}

fn at<'p>(points: &'p Points, name: &str) -> &'p Measured {
    let mut all = points.measured.iter();
    all.find(|measured| measured.point.name() == name).unwrap()
}

#[test]
fn names_are_unique_and_reads_read_what_was_written() {
    for name in [
        "optane-p4800x",
        "samsung-970-pro",
        "zns-prototype",
        "samsung-kvssd",
    ] {
        let (_, points) = drive(name);
        let names: BTreeSet<String> = points.measured.iter().map(|m| m.point.name()).collect();
        assert_eq!(names.len(), points.measured.len());
        let mut written = BTreeSet::new();
        for command in points.prepare.workers.iter().flatten() {
            match *command {
                Command::Write { offset, len } => {
                    written.extend((offset..offset + u64::from(len)).step_by(4096));
                }
                Command::Store { key, .. } => assert!(written.insert(key)),
                _ => panic!("{command:?}"),
            }
        }
        for command in points
            .measured
            .iter()
            .flat_map(|m| m.program.workers.iter().flatten())
        {
            match *command {
                Command::Read { offset, len } => {
                    let mut pages = (offset..offset + u64::from(len)).step_by(4096);
                    assert!(pages.all(|page| written.contains(&page)), "{command:?}");
                }
                Command::Write { offset, .. } => assert!(!written.contains(&offset)),
                Command::Retrieve { key, .. } => assert!(written.contains(&key)),
                Command::Store { key, .. } | Command::StoreTogether { key, .. } => {
                    assert!(!written.contains(&key));
                }
                _ => panic!("{command:?}"),
            }
        }
    }
}

/// Timing models, exactly: one page alone takes L; at depth q the rate is min(q / L, 1 / cost).
#[test]
fn a_pipeline_takes_its_latency_alone_and_its_rate_at_depth() {
    let (parameters, points) = drive("optane-p4800x");
    let (_, alone) = measure(&parameters, &points, at(&points, "read 4096 qd1 x1"), 0).unwrap();
    assert_eq!((alone.mean_ns(), alone.count), (5390, 1024));
    // With a microsecond between, each takes as long.
    let (_, spaced) = measure(&parameters, &points, at(&points, "read 4096 qd1 x1"), 1000).unwrap();
    assert_eq!(spaced.mean_ns(), 5390);
    assert_eq!(spaced.elapsed_ns, alone.elapsed_ns + 1023 * 1000);
    // 32 / 550 K is 58.18 us.
    let (_, deep) = measure(&parameters, &points, at(&points, "read 4096 qd32 x1"), 0).unwrap();
    assert!(
        (57_800..58_190).contains(&deep.mean_ns()),
        "{}",
        deep.mean_ns()
    );
}

/// Eight stores of 4 KiB one by one under the published program's rules, on the drive that its
/// script sets: 8 x 46.13 us, and 66.7 us as one request of 32 KiB.
#[test]
fn compound_commands_by_the_published_rules() {
    let (mut parameters, _) = drive("samsung-kvssd");
    parameters
        .set("arithmetic", "code", model::Moment::Creation)
        .unwrap();
    let [single, together] = compound(&parameters).unwrap();
    // 2,934 ns for each page of 4 KiB, and 56 us - 9.87 us - that before the first: 43,196 ns.
    assert_eq!((single, together), (8 * 46_130, 43_196 + 8 * 2_934));
}

#[test]
fn zones_and_keys_run_to_their_ends() {
    for (name, point) in [
        ("zns-prototype", "write 196608 qd1 x2"),
        ("zns-prototype", "read 4096 qd1 x2"),
        ("samsung-kvssd", "retrieve 4096 qd32 x1"),
        ("samsung-970-pro", "write 262144 qd1 x1"),
    ] {
        let (parameters, points) = drive(name);
        let measured = at(&points, point);
        let (_, latencies) = measure(&parameters, &points, measured, 0).unwrap();
        let count: usize = measured.program.workers.iter().map(Vec::len).sum();
        assert_eq!(latencies.count, count as u64, "{name}: {point}");
    }
}

/// Driver, controller, engine and medium add nothing, and the model is the oracle's: to the
/// nanosecond.
#[test]
fn all_points_take_what_the_oracle_says() {
    let mut wrong = Vec::new();
    for preset in model::preset::presets() {
        let name = preset.full_name();
        let (parameters, points) = drive(&name);
        let recorded = recorded(&name);
        assert_eq!(recorded.len(), points.measured.len(), "{name}");
        for measured in &points.measured {
            let point = measured.point.name();
            let (_, ours) = measure(&parameters, &points, measured, 0).unwrap();
            let ours = [ours.sum_ns, ours.count, ours.elapsed_ns];
            let oracle: [u64; 3] = recorded[&point].into();
            if ours != oracle {
                wrong.push(format!("{name}, {point}: {ours:?}, the oracle {oracle:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Filled in order, the drive is limited by programs of its dies, 2232 MiB/s. Overwritten at
/// random, its dies have time for 159 MiB/s besides collection if all four partitions are busy, and
/// for a quarter of that if commands all wait for one of them.
#[test]
fn throughput_falls_when_collection_sets_in() {
    let (parameters, _) = drive("samsung-970-pro");
    let points = collection(&parameters).unwrap();
    let parameters = preset("samsung-970-pro").unwrap();
    let parameters = parameters.parameters(points.size_bytes, None).unwrap();
    let measured = &points.measured[0];
    let (ran, _) = measure(&parameters, &points, measured, 0).unwrap();
    let course = Course::of(&measured.program, &ran, 100_000_000);
    let mib: Vec<u64> = course.bytes_per_s.iter().map(|b| b >> 20).collect();
    // 8 GiB of fill at that rate are 3.67 s.
    for full in &mib[1..36] {
        assert!((2150..2250).contains(full), "{mib:?}");
    }
    let late = &mib[mib.len() * 3 / 4..];
    let mean = late.iter().sum::<u64>() / late.len() as u64;
    assert!((159 / 4..159).contains(&mean), "{mib:?}");
    let moved: u64 = course.bytes_per_s.iter().map(|b| b / 10).sum();
    let all: u64 = measured.program.workers[0]
        .iter()
        .map(|c| u64::from(c.data_len()))
        .sum();
    // Except for the partial interval at the end.
    assert!(moved <= all && moved > all * 98 / 100, "{moved} {all}");
    assert!(collection(&drive("optane-p4800x").0).is_none());
}

/// A zone of the prototype is one die, which programs 192 KiB in 1.9 ms: 98 MiB/s at most, however
/// many append to it. As many zones are as many dies.
#[test]
fn one_zone_is_as_fast_as_its_die() {
    let (parameters, points) = drive("zns-prototype");
    let appends = one_zone(&parameters).unwrap();
    let mib_s = |points: &Points, at: &Measured| {
        let (_, all) = measure(&parameters, points, at, 0).unwrap();
        let bytes = all.count * u64::from(at.point.block_size);
        (bytes * 1_000_000_000 / all.elapsed_ns) >> 20
    };
    let one = appends.measured.first().unwrap();
    let many = appends.measured.last().unwrap();
    assert_eq!(many.point.workers, 16);
    assert!((75..98).contains(&mib_s(&appends, one)));
    assert!((85..98).contains(&mib_s(&appends, many)));
    let apart = at(&points, "write 196608 qd1 x16");
    assert!(mib_s(&points, apart) > 14 * mib_s(&appends, one));
}

/// Eight writers use eight dies all the time except for resets, of which each has two.
#[test]
fn writers_go_through_their_zones_in_turn() {
    let (parameters, _) = drive("zns-prototype");
    let points = zones_in_turn(&parameters).unwrap();
    let measured = &points.measured[0];
    for commands in &measured.program.workers {
        let resets = commands
            .iter()
            .filter(|c| matches!(c, Command::ResetZone { .. }));
        assert_eq!(resets.count(), 2);
    }
    let parameters = preset("zns-prototype").unwrap();
    let parameters = parameters.parameters(points.size_bytes, None).unwrap();
    let (ran, all) = measure(&parameters, &points, measured, 0).unwrap();
    let course = Course::of(&measured.program, &ran, 100_000_000);
    assert_eq!(
        course.bytes_per_s.len() as u64,
        all.elapsed_ns / 100_000_000
    );
    for bytes in &course.bytes_per_s {
        assert!((600..790).contains(&(bytes >> 20)), "{course:?}");
    }
}

/// A program that was ended early has done fewer commands of each worker than it has.
#[test]
fn a_course_counts_what_was_done_when_it_was() {
    let write = |len| Command::Write { offset: 0, len };
    let phase = Phase {
        depth: 1,
        workers: vec![
            vec![write(4096), write(8192)],
            vec![write(512), write(1024)],
        ],
    };
    let ran = driver::program::Ran {
        done_ns: vec![vec![500], vec![999, 3000]],
        ..Default::default()
    };
    let course = Course::of(&phase, &ran, 1000);
    // The last one is done as the last interval ends.
    assert_eq!(course.bytes_per_s, [4_608_000_000, 0, 0]);
}
