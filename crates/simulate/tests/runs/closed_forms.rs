//! Figures of a pipeline that can be worked out by hand: latency at depth 1, rates at any depth.

use super::*;

fn reads(depth: u32, virtual_ns: u64) -> Ran {
    let jobs =
        format!("[job]\nrw=randread\nnorandommap\nioengine=libaio\niodepth={depth}\ntime_based\n");
    run(&plan(&jobs, virtual_ns))
}

#[test]
fn one_at_a_time_takes_the_latency_and_nothing_else() {
    let ran = reads(1, 100 * MS);
    let reads = of(&ran, 0, Kind::Read);
    assert_eq!(reads.latency_ns.least(), 10_000);
    assert_eq!(reads.latency_ns.most(), 10_000);
    assert_eq!(reads.latency_ns.percentile(50, 100), 10_000);
    // The one that ends at the very end counts.
    assert_eq!(reads.latency_ns.count(), 10_000);
    assert_eq!(reads.bytes, 10_000 * 4096);
    assert_eq!(ran.elapsed_ns, 100 * MS);
    assert_eq!(ran.jobs[0].errors, 0);
}

#[test]
fn the_rate_is_the_depth_over_the_latency_up_to_the_ceiling() {
    for depth in [1u64, 2, 3, 4, 5, 32, 4095] {
        let count = of(&reads(depth as u32, 100 * MS), 0, Kind::Read)
            .latency_ns
            .count();
        // A command costs 2,500 ns of the pipeline: each one begins so much later than the one
        // before it, and then takes 10,000 again and again. The first of a full pipeline is done
        // after 10,000.
        let expected = match depth {
            1..=4 => (0..depth).map(|at| (100 * MS - at * 2_500) / 10_000).sum(),
            _ => (100 * MS - 10_000) / 2_500 + 1,
        };
        assert_eq!(count, expected, "depth {depth}");
    }
}

#[test]
fn large_writes_are_bound_by_bandwidth() {
    let jobs = "[job]\nrw=write\nbs=1m\nioengine=libaio\niodepth=8\ntime_based\n";
    let ran = run(&plan(jobs, 1000 * MS));
    let bytes = of(&ran, 0, Kind::Write).bytes;
    // 1 GB in a second, except for the first one's way and what is in the pipeline.
    assert!((998_000_000..=1_000_000_000).contains(&bytes), "{bytes}");
}

#[test]
fn hosts_that_take_time_add_it() {
    let mut plan = plan("[job]\nrw=randread\ntime_based\n", 100 * MS);
    plan.cost = simulate::HostCost {
        submission_ns: 1_500,
        completion_ns: 1_000,
    };
    let ran = run(&plan);
    let reads = of(&ran, 0, Kind::Read);
    assert_eq!(reads.latency_ns.least(), 12_500);
    assert_eq!(reads.latency_ns.most(), 12_500);
    assert_eq!(reads.latency_ns.count(), 8_000);
    // A thread does one thing at a time: 2,500 ns for each command.
    plan.workload = Workload::Jobs(
        fio::parse(
            "[job]\nrw=randread\nioengine=libaio\niodepth=32\ntime_based\n",
            &[],
        )
        .unwrap(),
    );
    let count = of(&run(&plan), 0, Kind::Read).latency_ns.count();
    assert!((39_980..=40_000).contains(&count), "{count}");
}

#[test]
fn a_rate_is_kept() {
    let jobs = "[job]\nrw=randread\nioengine=libaio\niodepth=32\nrate_iops=3000\ntime_based\n";
    let ran = run(&plan(jobs, 1000 * MS));
    // At 0, 333334, ...: the 3000th is due in time.
    assert_eq!(of(&ran, 0, Kind::Read).latency_ns.count(), 3000);
    let jobs = format!("{jobs}rate_process=poisson\n");
    let ran = run(&plan(&jobs, 1000 * MS));
    let count = of(&ran, 0, Kind::Read).latency_ns.count();
    assert!((2800..3200).contains(&count) && count != 3000, "{count}");
}

#[test]
fn a_pause_follows_completions() {
    let jobs = "[job]\nrw=randread\nthinktime=90\ntime_based\n";
    let ran = run(&plan(jobs, 10 * MS));
    assert_eq!(of(&ran, 0, Kind::Read).latency_ns.count(), 100);
    let jobs = "[job]\nrw=randread\nthinktime=80\nthinktime_blocks=2\ntime_based\n";
    let ran = run(&plan(jobs, 10 * MS));
    assert_eq!(of(&ran, 0, Kind::Read).latency_ns.count(), 200);
}

#[test]
fn a_pause_longer_than_a_lane_stays_hot_delays_nothing() {
    // Beside a busy queue, an idle one is not looked at in every turn.
    let jobs = "[busy]\nrw=randread\ntime_based\n[rare]\nrw=randread\nthinktime=5000\ntime_based\n";
    let ran = run(&plan(jobs, 100 * MS));
    let rare = of(&ran, 1, Kind::Read);
    assert_eq!(rare.latency_ns.count(), 20);
    assert!(
        rare.latency_ns.most() <= 12_500,
        "{}",
        rare.latency_ns.most()
    );
}
