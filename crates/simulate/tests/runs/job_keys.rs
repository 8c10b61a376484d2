//! Keys of job files, by what they do to a run.

use simulate::{JobTally, Kind, Plan, Ran};

use super::{MS, plan, try_run as run};

fn commands(job: &JobTally, kind: Kind) -> u64 {
    let place = Kind::ALL.iter().position(|other| *other == kind);
    job.kinds[place.unwrap()].latency_ns.count()
}

fn ran(jobs: &str, ms: u64) -> Ran {
    run(&plan(jobs, ms * MS)).unwrap()
}

/// A ramp is not measured, and prolongs the job (HOWTO, `ramp_time`).
#[test]
fn a_ramp_does_not_count() {
    let jobs =
        |ramp: &str| format!("[a]\nrw=randread\nnorandommap\nruntime=20ms\ntime_based\n{ramp}");
    let without = ran(&jobs(""), 1000);
    let with = ran(&jobs("ramp_time=30ms\n"), 1000);
    let counts = [&without, &with].map(|ran| commands(&ran.jobs[0], Kind::Read));
    assert!(counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
    assert!(with.commands > without.commands * 2);
    for run in [&without, &with] {
        assert!(
            run.runtime_ns[0].abs_diff(20 * MS) < 100_000,
            "{:?}",
            run.runtime_ns
        );
    }
    assert!(with.elapsed_ns.abs_diff(50 * MS) < 100_000);
}

/// Reads and writes have rates of their own, and a rate of bytes is one of commands of that size.
#[test]
fn each_direction_has_its_rate() {
    let of = |lines: &str| {
        let jobs =
            format!("[a]\nioengine=libaio\niodepth=8\nrw=randrw\nnorandommap\ntime_based\n{lines}");
        let ran = ran(&jobs, 1000);
        [Kind::Read, Kind::Write].map(|kind| commands(&ran.jobs[0], kind))
    };
    for (lines, expected) in [
        ("rate_iops=1000,250\n", [1000, 250]),
        ("rate_iops=800\n", [800, 800]),
        ("rate=8192k,1m\nbs=4k,8k\n", [2048, 128]),
        ("rate_iops=5,5\nrate=4m\n", [1024, 1024]),
    ] {
        for (seen, expected) in of(lines).into_iter().zip(expected) {
            assert!(seen.abs_diff(expected) <= 2, "{lines}: {seen} {expected}");
        }
    }
    // Only writes are limited: reads take the turns of those that are not due.
    let [reads, writes] = of("rate_iops=,100\n");
    assert!(
        writes.abs_diff(100) <= 2 && reads > 10_000,
        "{reads} {writes}"
    );
}

#[test]
fn the_last_command_is_a_flush() {
    let ran = ran(
        "[a]\nrw=randwrite\nnumber_ios=10\nend_fsync=1\n[b]\nrw=randread\nnumber_ios=10\nend_fsync\n[c]\nstonewall\nrw=write\nruntime=1ms\ntime_based\nend_fsync=1\n",
        1000,
    );
    let flushes = ran.jobs.iter().map(|job| commands(job, Kind::Flush));
    assert_eq!(flushes.collect::<Vec<_>>(), [1, 0, 1]);
    assert_eq!(commands(&ran.jobs[0], Kind::Write), 10);
}

/// The end of one job ends those of its reporting group, and of no other (HOWTO, `exitall`).
#[test]
fn the_end_of_one_ends_its_group() {
    let jobs = |key: &str, group: &str| {
        format!(
            "[a]\nrw=randread\nnumber_ios=100\n{key}\n[b]\nrw=randread\nnorandommap\ntime_based\n[c]\nrw=randread\nnorandommap\ntime_based\n{group}\n"
        )
    };
    let counts = |key: &str, group: &str| {
        let ran = ran(&jobs(key, group), 100);
        [1, 2].map(|number| commands(&ran.jobs[number], Kind::Read))
    };
    let [b, c] = counts("", "");
    assert!(b > 1000 && c > 1000, "{b} {c}");
    let [b, c] = counts("exitall", "");
    assert!(b < 150 && c < 150, "{b} {c}");
    let [b, c] = counts("exitall", "new_group");
    assert!(b < 150 && c > 1000, "{b} {c}");
}

/// A queue that drains to a mark before it is filled again has fewer in flight.
#[test]
fn a_batch_waits_for_its_completions() {
    let of = |lines: &str| {
        let jobs = format!(
            "[a]\nioengine=libaio\niodepth=8\nrw=randread\nnorandommap\ntime_based\n{lines}"
        );
        commands(&ran(&jobs, 100).jobs[0], Kind::Read)
    };
    let all = of("");
    assert_eq!(of("iodepth_batch_complete_min=1\n"), all);
    let drained = of("iodepth_low=0\n");
    assert!(drained < all, "{drained} {all}");
    assert_eq!(of("iodepth_batch_complete_min=8\n"), drained);
    // For one doorbell: the first of eight waits for the submission of the others.
    let cost = simulate::HostCost {
        submission_ns: 1000,
        completion_ns: 0,
    };
    let first = |lines: &str| {
        let jobs = format!("[a]\nioengine=libaio\niodepth=8\nrw=randread\nnumber_ios=8\n{lines}");
        let plan = Plan {
            cost,
            ..plan(&jobs, 100 * MS)
        };
        let ran = run(&plan).unwrap();
        ran.jobs[0].kinds[0].latency_ns.most()
    };
    let (each, together) = (first(""), first("iodepth_batch=8\n"));
    assert!(together >= each + 6000, "{each} {together}");
}

/// Of the commands that are not at random places each begins where the last one ended.
#[test]
fn shapes_of_places_are_run() {
    for lines in [
        "percentage_random=50",
        "random_distribution=pareto:0.2",
        "random_distribution=normal:10",
        "random_distribution=zipf:1.2:0.5",
        "random_distribution=zoned:60/10:40/90",
        "random_distribution=zoned_abs:60/1m:40/2m",
        "bsrange=4k-64k",
    ] {
        let jobs = format!("[a]\nrw=randrw\nsize=64m\nnumber_ios=1000\n{lines}\n");
        let ran = ran(&jobs, 10_000);
        let [reads, writes] = [Kind::Read, Kind::Write].map(|kind| commands(&ran.jobs[0], kind));
        assert_eq!(reads + writes, 1000, "{lines}");
        assert_eq!(ran.jobs[0].errors, 0, "{lines}");
    }
    let behind = plan(
        "[a]\nrw=randread\nsize=1m\nrandom_distribution=zoned_abs:60/4m:40/2m\n",
        MS,
    );
    let error = run(&behind).unwrap_err().to_string();
    assert!(error.contains("lies behind its part"), "{error}");
}
