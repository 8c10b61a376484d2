//! Groups, delays, ends, the warm-up, series, traces, and the same from the same seed.

use simulate::trace;

use super::*;

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_others() {
    let jobs = "[a]\nrw=randrw\nbssplit=4k/60:16k/40\nioengine=libaio\niodepth=8\nrandom_distribution=zipf:1.2\ntime_based\nnumjobs=2\n[b]\nrw=randread\nrate_iops=20000\nrate_process=poisson\ntime_based\n";
    let mut plan = plan(jobs, 20 * MS);
    let first = json(&run(&plan));
    assert_eq!(json(&run(&plan)), first);
    plan.seed = 2;
    assert_ne!(json(&run(&plan)), first);
}

#[test]
fn groups_follow_each_other_and_delays_count_from_their_start() {
    let jobs = "[fill]\nrw=write\nbs=4k\nsize=400k\n[read]\nstonewall\nrw=read\nsize=40k\nstartdelay=1ms\n";
    let ran = run(&plan(jobs, 100 * MS));
    // A hundred writes of 20 us, a pause of 1 ms, and ten reads of 10 us.
    assert_eq!(of(&ran, 0, Kind::Write).latency_ns.count(), 100);
    assert_eq!(of(&ran, 1, Kind::Read).latency_ns.count(), 10);
    assert_eq!(ran.elapsed_ns, 2 * MS + MS + 100_000);
    assert_eq!(ran.runtime_ns, [2 * MS, MS + 100_000]);
    assert!(!ran.stopped);
}

#[test]
fn a_runtime_ends_a_job_and_the_plan_ends_all() {
    let jobs = "[a]\nrw=randread\nruntime=3ms\ntime_based\n[b]\nrw=randread\ntime_based\n";
    let ran = run(&plan(jobs, 10 * MS));
    assert_eq!(of(&ran, 0, Kind::Read).latency_ns.count(), 300);
    // Its first one was behind the other job's.
    assert_eq!(of(&ran, 1, Kind::Read).latency_ns.count(), 999);
    assert_eq!(ran.runtime_ns, [3 * MS, 10 * MS]);
}

#[test]
fn a_warm_up_is_in_the_series_and_nowhere_else() {
    let mut plan = plan("[a]\nrw=randread\ntime_based\n", 10 * MS);
    plan.warmup_ns = 4 * MS;
    plan.interval_ns = MS;
    let ran = run(&plan);
    assert_eq!(ran.elapsed_ns, 6 * MS);
    // The one that ends as measuring begins counts.
    assert_eq!(of(&ran, 0, Kind::Read).latency_ns.count(), 601);
    assert_eq!(ran.points.len(), 10);
    let counts: Vec<_> = ran.points.iter().map(|p| p.kinds[0].commands).collect();
    assert_eq!(counts, [99, 100, 100, 100, 100, 100, 100, 100, 100, 100]);
    assert_eq!(ran.points[9].end_ns, 10 * MS);
    assert_eq!(ran.points[9].kinds[0].max_ns, 10_000);
}

#[test]
fn a_short_last_interval_has_its_own_length() {
    let mut plan = plan("[a]\nrw=read\nsize=100k\n", 10 * MS);
    plan.interval_ns = 100_000;
    let ran = run(&plan);
    let lens: Vec<_> = ran.points.iter().map(|p| (p.end_ns, p.len_ns)).collect();
    assert_eq!(
        lens,
        [(100_000, 100_000), (200_000, 100_000), (250_000, 50_000)]
    );
}

#[test]
fn a_trace_arrives_when_it_did_and_waits_for_room() {
    let text = "nvmirage-trace 1\n5000 R 0 4096\n5000 R 0 4096 1\n5100 R 8192 512\n205000 WF 0 4096\n305000 D 0 1048576\n405000 F 0 0\n";
    let workload = Workload::Trace(trace::parse(text).unwrap());
    let mut plan = Plan::new(workload, 10 * MS, 1);
    let ran = run(&plan);
    // Three reads, each 2,500 ns of the pipeline after the one before.
    let reads = &of(&ran, 0, Kind::Read).latency_ns;
    assert_eq!(
        (reads.count(), reads.least(), reads.most()),
        (3, 10_000, 14_900)
    );
    assert_eq!(of(&ran, 0, Kind::Write).latency_ns.most(), 20_000);
    assert_eq!(of(&ran, 0, Kind::Trim).latency_ns.count(), 1);
    assert_eq!(of(&ran, 0, Kind::Flush).latency_ns.count(), 1);
    assert_eq!(ran.jobs[0].errors, 0);
    // With one in flight of each queue the second of the first queue waits in the host, and that
    // counts.
    plan.trace_depth = 1;
    let ran = run(&plan);
    assert_eq!(of(&ran, 0, Kind::Read).latency_ns.most(), 19_900);
}

#[test]
fn arrivals_beyond_the_end_wrap_or_are_refused() {
    let text = format!(
        "nvmirage-trace 1\n0 R {} 4096\n1 R {} 8192\n",
        SIZE,
        2 * SIZE - 4096
    );
    let workload = Workload::Trace(trace::parse(&text).unwrap());
    let mut plan = Plan::new(workload, MS, 1);
    let error = try_run(&plan).unwrap_err().to_string();
    assert!(error.contains("--wrap"), "{error}");
    plan.wrap = true;
    let ran = run(&plan);
    assert_eq!(of(&ran, 0, Kind::Read).latency_ns.count(), 2);
    assert_eq!(ran.jobs[0].errors, 0);
}

#[test]
fn every_size_reaches_the_drive_whole() {
    for size in ["512", "4k", "8k", "12k", "64k", "2m"] {
        let jobs =
            format!("[a]\nrw=randrw\nbs={size}\nioengine=libaio\niodepth=4\nnumber_ios=50\n");
        let ran = run(&plan(&jobs, 1000 * MS));
        assert_eq!(
            ran.jobs[0].errors, 0,
            "{size}: {:?}",
            ran.jobs[0].first_error
        );
        assert_eq!(ran.commands, 50, "{size}");
    }
}

#[test]
fn flushes_and_trims_are_commands() {
    let jobs = "[a]\nrw=randwrite\nfsync=4\nnumber_ios=40\nsync=dsync\n[b]\nrw=randtrim\nbs=1m\nnumber_ios=7\nioengine=libaio\niodepth=3\n";
    let ran = run(&plan(jobs, 1000 * MS));
    assert_eq!(of(&ran, 0, Kind::Write).latency_ns.count(), 40);
    assert_eq!(of(&ran, 0, Kind::Flush).latency_ns.count(), 9);
    assert_eq!(of(&ran, 1, Kind::Trim).bytes, 7 << 20);
    assert!(ran.jobs.iter().all(|job| job.errors == 0));
}

#[test]
fn who_watches_may_end_it() {
    let plan = plan(
        "[a]\nrw=randread\nioengine=libaio\niodepth=32\ntime_based\n",
        3_600_000 * MS,
    );
    let mut reports = 0;
    let ran = simulate::run(&nvm(), SIZE, &plan, &mut |progress| {
        reports += 1;
        assert!(progress.commands > 0);
        ControlFlow::Break(())
    });
    let ran = ran.unwrap();
    assert!(ran.stopped && reports == 1);
    assert!(ran.elapsed_ns < 1000 * MS);
}

#[test]
fn more_workers_than_queues_are_refused() {
    let jobs = "[a]\nnumjobs=60\n[b]\nnumjobs=5\n";
    let error = try_run(&plan(jobs, MS)).unwrap_err().to_string();
    assert!(
        error.contains("65 workers") && error.contains("numjobs"),
        "{error}"
    );
    let ran = run(&plan(
        "[a]\nrw=randread\nnumjobs=64\nnumber_ios=2\n",
        10 * MS,
    ));
    assert_eq!(of(&ran, 0, Kind::Read).latency_ns.count(), 128);
}

#[test]
fn a_full_buffer_holds_commands_up_and_loses_none() {
    let jobs = "[fill]\nrw=write\nbs=1m\nioengine=libaio\niodepth=8\n[a]\nstonewall\nrw=randwrite\nnorandommap\nioengine=libaio\niodepth=64\nnumjobs=2\nio_size=150m\n[r]\nrw=randread\nio_size=10m\n";
    let ran = run_on(&flash(), FLASH_SIZE, &plan(jobs, 600_000 * MS)).unwrap();
    assert_eq!(of(&ran, 0, Kind::Write).bytes, FLASH_SIZE);
    assert_eq!(of(&ran, 1, Kind::Write).bytes, 300 << 20);
    assert_eq!(of(&ran, 2, Kind::Read).bytes, 10 << 20);
    assert_eq!(ran.jobs.iter().map(|job| job.errors).sum::<u64>(), 0);
    // The drive counts the hosts' writes, and a full drive collects.
    assert_eq!(ran.drive.pages_written, (FLASH_SIZE + (300 << 20)) / 4096);
    assert!(ran.drive.pages_collected > 10_000 && ran.drive.lines_collected > 0);
    // The series adds up to the same.
    let sums = ran
        .points
        .iter()
        .fold([0; 3], |[written, collected, reads], point| {
            [
                written + point.drive.pages_written,
                collected + point.drive.pages_collected,
                reads + point.kinds[0].bytes,
            ]
        });
    assert_eq!(
        sums,
        [ran.drive.pages_written, ran.drive.pages_collected, 10 << 20]
    );
    assert!(ran.drive.amplification_thousandths() > 1100);
    // A queue that the drive has no room for is fetched no further: commands take longer than in an
    // empty buffer.
    assert!(of(&ran, 1, Kind::Write).latency_ns.percentile(50, 100) > 100_000);
}

#[test]
fn what_finds_no_place_on_the_drive_goes_on_as_soon_as_there_is_one() {
    // Nothing limits it but how many commands the drive holds: 4096, which are done at the same
    // time, and no host submits anything then.
    let direction = Direction {
        latency_ns: 10_000,
        bandwidth_bytes_per_s: 0,
        rate_per_s: 0,
    };
    let parameters = Parameters::Nvm(NvmParameters {
        arithmetic: Arithmetic::Exact,
        read: direction,
        write: direction,
    });
    let jobs = "[a]\nrw=randread\nnumjobs=2\nioengine=libaio\niodepth=4095\nnumber_ios=4095\n";
    let ran = run_on(&parameters, SIZE, &plan(jobs, 10 * MS)).unwrap();
    let reads = &of(&ran, 0, Kind::Read).latency_ns;
    assert_eq!(reads.count(), 2 * 4095);
    assert_eq!((reads.least(), reads.most()), (10_000, 20_000));
    assert_eq!(reads.mean(), (4096 * 10_000 + 4094 * 20_000) / 8190);
}
