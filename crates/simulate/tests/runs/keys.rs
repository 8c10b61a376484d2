//! Drives with keys: what job files and traces come to there.

use simulate::trace;

use super::*;

const MIB: u64 = 1 << 20;

fn kvssd() -> Parameters {
    let preset = preset::preset("samsung-kvssd").unwrap();
    preset.parameters(SIZE, None).unwrap()
}

fn keyed(jobs: &str, virtual_ns: u64) -> Plan {
    let jobs = fio::parse_keyed(jobs, &[]).unwrap();
    Plan::new(Workload::Jobs(jobs), virtual_ns, 1)
}

fn traced(text: &str) -> Plan {
    Plan::new(Workload::Trace(trace::parse(text).unwrap()), 1000 * MS, 1)
}

fn succeeds(plan: &Plan) -> Ran {
    let ran = run_on(&kvssd(), SIZE, plan).unwrap();
    for job in &ran.jobs {
        assert_eq!((job.errors, &job.first_error), (0, &None), "{}", job.name);
    }
    ran
}

/// One at a time a page takes its latency: 56 us less the host's 9.87, and 154 less 6.61. A value
/// of 100 bytes is done sooner by what 3996 bytes take on one of ten units: 46,130 - 3996 /
/// 0.13958643712 = 17,502.6 ns. A delete goes without any: 16,786.2.
#[test]
fn a_job_file_stores_retrieves_and_deletes() {
    let jobs = "[store]\nrw=write\nbs=4k\nsize=400k\n[retrieve]\nstonewall\nrw=randread\nbs=4k\nsize=400k\n[delete]\nstonewall\nrw=randtrim\nbs=4k\nsize=400k\n[small]\nstonewall\nrw=write\nbs=100\nsize=1000\n[large]\nstonewall\nrw=read\nbs=2m\nnumber_ios=3\n[flush]\nstonewall\nrw=write\nbs=100\nsize=1000\nfsync=5\n";
    let ran = succeeds(&keyed(jobs, 1000 * MS));
    let times = |job, kind| {
        let latency = &of(&ran, job, kind).latency_ns;
        (latency.count(), latency.least(), latency.most())
    };
    assert_eq!(times(0, Kind::Store), (100, 46_130, 46_130));
    assert_eq!(times(1, Kind::Retrieve), (100, 147_390, 147_390));
    assert_eq!(times(2, Kind::Delete), (100, 16_787, 16_787));
    assert_eq!(times(3, Kind::Store), (10, 17_503, 17_503));
    assert_eq!(times(5, Kind::Flush), (1, 0, 0));
    assert_eq!(of(&ran, 0, Kind::Store).bytes, 400 << 10);
    assert_eq!(of(&ran, 2, Kind::Delete).bytes, 0);
    assert_eq!(of(&ran, 4, Kind::Retrieve).bytes, 6 * MIB);
    // The series has them among reads and writes.
    let bytes =
        |kind: usize| -> u64 { ran.points.iter().map(|point| point.kinds[kind].bytes).sum() };
    assert_eq!(bytes(0), (400 << 10) + 6 * MIB);
    assert_eq!(bytes(1), (400 << 10) + 2000);
    let report = serde_json::from_str::<serde_json::Value>(&json(&ran)).unwrap();
    let kind = |job: usize| &report["runs"][0]["jobs"][job]["kinds"][0];
    assert_eq!(
        (kind(0)["kind"].as_str(), kind(0)["block_size"].as_u64()),
        (Some("store"), Some(4096))
    );
    assert_eq!(
        (kind(2)["kind"].as_str(), kind(2)["block_size"].as_u64()),
        (Some("delete"), None)
    );
}

/// Ten units work at the same time, if keys are spread over them: at depth bandwidth is what
/// limits.
#[test]
fn keys_are_on_all_units() {
    for bs in ["512", "4k", "64k"] {
        let jobs = format!(
            "[a]\nrw=randrw\nnorandommap\nbs={bs}\nnumjobs=4\nioengine=libaio\niodepth=128\ntime_based\n"
        );
        let ran = succeeds(&keyed(&jobs, 200 * MS));
        let (read, written) = (of(&ran, 0, Kind::Retrieve), of(&ran, 0, Kind::Store));
        let rate = |commands: &Commands| commands.bytes * 5;
        // Stores are half of all, and the slower half: 1.3 GiB/s.
        let limit = 1_395_864_371;
        if bs == "64k" {
            assert!(
                (limit * 93 / 100..limit).contains(&rate(written)),
                "{}",
                rate(written)
            );
        }
        assert!(rate(read) > rate(written) * 9 / 10, "{bs}");
    }
}

#[test]
fn a_place_is_the_same_key_for_all_jobs() {
    // FNV-1a of the sixteen digits of 4096, by the published definition.
    let by_hand = b"0000000000001000"
        .iter()
        .fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193)
        });
    assert_eq!(simulate::key_of(4096), by_hand);
    let hashes: std::collections::BTreeSet<u32> =
        (0..65_536).map(|n| simulate::key_of(n * 512)).collect();
    assert_eq!(hashes.len(), 65_536);
    for count in [2, 3, 4, 8, 10, 16, 32, 100] {
        let mut units = vec![0; count];
        for hash in &hashes {
            units[*hash as usize % count] += 1;
        }
        let even = 65_536 / count;
        let (least, most) = (units.iter().min().unwrap(), units.iter().max().unwrap());
        assert!(
            *least > even * 8 / 10 && *most < even * 12 / 10,
            "{count}: {least} to {most}"
        );
    }
}

#[test]
fn traces_have_commands_of_all_kinds() {
    let text = "nvmirage-trace 2\n0 KS 61 4096\n1000000 KR 61 4096 1\n2000000 KE 61 0\n2000000 KA 62 4096\n3000000 KL - 4096\n4000000 KD 61 0\n5000000 F 0 0\n6000000 KC KS:61:4096,KS:62:4096,KS:63:4096,KD:61:0 12288 3\n";
    let ran = succeeds(&traced(text));
    let time = |kind| {
        let latency = &of(&ran, 0, kind).latency_ns;
        assert_eq!(latency.count(), 1, "{kind:?}");
        latency.most()
    };
    assert_eq!(time(Kind::Store), 46_130);
    assert_eq!(time(Kind::Append), 46_130);
    assert_eq!(time(Kind::Retrieve), 147_390);
    assert_eq!(time(Kind::List), 147_390);
    // Exist takes the latency less what 4096 bytes take: 147,390 - 4096 / 0.27917287424 =
    // 132,718.1.
    assert_eq!(time(Kind::Exist), 132_719);
    assert_eq!(time(Kind::Delete), 16_787);
    assert_eq!(time(Kind::Flush), 0);
    // The hashes of "a", "b" and "c" leave 0, 7 and 8 by ten. The delete of "a" is behind its store
    // for what 4096 bytes take, and then takes as long as a store without those.
    assert_eq!(time(Kind::Compound), 46_130);
    assert_eq!(of(&ran, 0, Kind::Compound).bytes, 12_288);
    // With its parts in order it takes one store after another, and then the delete.
    let mut in_order = kvssd();
    in_order
        .set("compound", "in_order", Moment::Creation)
        .unwrap();
    let ran = run_on(&in_order, SIZE, &traced(text)).unwrap();
    let compound = of(&ran, 0, Kind::Compound).latency_ns.most();
    assert_eq!(compound, 3 * 46_130 + 16_787);
}

#[test]
fn what_a_drive_has_not_is_refused() {
    let refused = |parameters: &Parameters, plan: &Plan, says: &str| {
        let error = run_on(parameters, SIZE, plan).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    let kv = "drive of kind kv";
    refused(&kvssd(), &traced("nvmirage-trace 1\n0 R 0 4096\n"), kv);
    refused(&kvssd(), &traced("nvmirage-trace 2\n0 Z 0 4096\n"), kv);
    refused(&kvssd(), &plan("[a]\nrw=write\n", MS), kv);
    refused(
        &nvm(),
        &traced("nvmirage-trace 2\n0 KS 61 1\n"),
        "store, and a drive of kind nvm",
    );
    refused(
        &nvm(),
        &traced("nvmirage-trace 2\n0 ZO 0 4096\n"),
        "open, and a drive of kind nvm",
    );
    refused(&nvm(), &keyed("[a]\n", MS), "kind nvm");
    let large = "nvmirage-trace 2\n0 KS 61 2097153\n";
    refused(&kvssd(), &traced(large), "2097153 bytes");
}
