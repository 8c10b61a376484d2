//! The very bytes: the same on every machine, in every version that does not mean to change them.

use simulate::trace;

use super::*;

fn hash(text: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn nvm() {
    let jobs = "[a]\nrw=randrw\nbssplit=4k/60:16k/40\nioengine=libaio\niodepth=8\nrandom_distribution=zipf:1.2\ntime_based\nnumjobs=2\n[b]\nrw=randread\nrate_iops=20000\nrate_process=poisson\ntime_based\n[c]\nrw=trim\nbs=64k\nthinktime=100\ntime_based\n";
    let text = json(&run(&plan(jobs, 20 * MS)));
    assert_eq!(
        hash(&text),
        "63fb53737e97739c53fc8654a9a1f2b2441119b46f9a513c93ba0f8ef69d4925"
    );
}

#[test]
fn zones() {
    let jobs = "[w]\nzonemode=zbd\nrw=randwrite\nbs=64k\nmax_open_zones=3\nnumjobs=2\nioengine=libaio\niodepth=4\nio_size=512m\n[mix]\nstonewall\nzonemode=zbd\nrw=randrw\nnumjobs=3\nioengine=libaio\niodepth=8\nio_size=8m\n";
    let preset = preset::preset("zns-prototype@code").unwrap();
    let parameters = preset.parameters(512 << 20, None).unwrap();
    let ran = run_on(&parameters, 512 << 20, &plan(jobs, 60_000 * MS)).unwrap();
    assert_eq!(
        hash(&json(&ran)),
        "7e5b73540c54540dcf7d008d95000d7a7c5c72348c4708e16f79a4bc6696b49a"
    );
}

#[test]
fn a_prepared_drive() {
    let jobs = "[w]\nrw=randwrite\nnorandommap\nioengine=libaio\niodepth=16\nio_size=64m\n";
    let prepared = Plan {
        initial: model::Initial::Steady,
        ..plan(jobs, 10_000 * MS)
    };
    let ran = run_on(&super::flash(), FLASH_SIZE, &prepared).unwrap();
    assert_eq!(
        hash(&json(&ran)),
        "f176e474498eaf441f0a20f2ecd74107ec0a6aee4b5f290d7a72ccbbdff23ccc"
    );
}

#[test]
fn flash_with_collection() {
    let jobs = "[fill]\nrw=write\nbs=1m\nioengine=libaio\niodepth=4\n[write]\nstonewall\nrw=randwrite\nnorandommap\nioengine=libaio\niodepth=32\nio_size=300m\n[mix]\nstonewall\nrw=randrw\nrwmixread=70\nnumjobs=3\nioengine=libaio\niodepth=8\nio_size=8m\nfsync=100\n[trim]\nstonewall\nrw=trim\nbs=64k\nio_size=16m\n";
    let ran = run_on(&super::flash(), FLASH_SIZE, &plan(jobs, 60_000 * MS)).unwrap();
    assert_eq!(
        hash(&json(&ran)),
        "f8b73679d379d15a83204057b910fa96724b96b267e57f56bccc9d848c5f2ed5"
    );
}

#[test]
fn keys() {
    let jobs = "[fill]\nrw=write\nbs=4k\nsize=8m\nioengine=libaio\niodepth=8\n[mix]\nstonewall\nrw=randrw\nbssplit=100/30:4k/50:64k/20\nrandom_distribution=zipf:1.1\nsize=64m\nnumjobs=3\nioengine=libaio\niodepth=16\nio_size=16m\n[rate]\nrw=randread\nbs=1000\nrate_iops=20000\nrate_process=poisson\nsize=1m\n[delete]\nstonewall\nrw=randtrim\nbs=4k\nsize=8m\nioengine=libaio\niodepth=32\nfsync=10\n";
    let preset = preset::preset("samsung-kvssd").unwrap();
    let parameters = preset.parameters(SIZE, None).unwrap();
    let jobs = fio::parse_keyed(jobs, &[]).unwrap();
    let plan = Plan::new(Workload::Jobs(jobs), 60_000 * MS, 1);
    let ran = run_on(&parameters, SIZE, &plan).unwrap();
    assert_eq!(
        hash(&json(&ran)),
        "a6cebaad3df52648da75f49877e5f3d248f6a7e69bb56f4a86ef11e862c0fb79"
    );
}

/// Zones and keys as a trace has them, written in this format and read again.
#[test]
fn a_trace_of_zones_and_one_of_keys() {
    let zone = 64 << 20;
    let mut zones = String::from("nvmirage-trace 2\n");
    let mut keys = zones.clone();
    for n in 0..4000_u64 {
        let (at, number) = (n * 9_000, n % 3);
        let start = number * zone;
        let fill = n / 3 % 512 * 65_536;
        zones.push_str(&match fill {
            0 => format!("{at} Z {start} {zone} {number}\n{at} ZO {start} {zone} {number}\n"),
            _ if n % 7 == 0 => format!("{at} R {start} 4096 {number}\n"),
            _ => String::new(),
        });
        zones.push_str(&format!("{at} W {} 65536 {number}\n", start + fill));
        let key = format!("{:04x}", n % 997);
        keys.push_str(&match n % 5 {
            0 => format!("{at} KC KS:{key}:4096,KD:00{key}:0,KS:01{key}:100 4196 {number}\n"),
            1 => format!("{at} KR {key} {} {number}\n", n * 10),
            2 => format!("{at} KL - 4096\n"),
            _ => format!("{at} KS {key} {} {number}\n", n * 7),
        });
    }
    let zns = preset::preset("zns-prototype@code").unwrap();
    let kvssd = preset::preset("samsung-kvssd").unwrap();
    let mut hashes = Vec::new();
    for (preset, text) in [(zns, zones), (kvssd, keys)] {
        let parameters = preset.parameters(1 << 30, None).unwrap();
        let trace = trace::parse(&text).unwrap();
        let mut written = Vec::new();
        trace::write(&mut written, &trace.arrivals, &trace.compounds).unwrap();
        let again = trace::parse(str::from_utf8(&written).unwrap()).unwrap();
        let plan = Plan::new(Workload::Trace(again), 60_000 * MS, 1);
        let ran = run_on(&parameters, 1 << 30, &plan).unwrap();
        assert_eq!((ran.jobs[0].errors, &ran.jobs[0].first_error), (0, &None));
        hashes.push(hash(&json(&ran)));
    }
    assert_eq!(
        hashes,
        [
            "a79bc477e5244d640c4b626af11e6f5078923d30638bdbc39ed3e290bd2a6cb0",
            "bc97674f066f87a62056435304c7aff4cb5d8924a760b7bb2ed96b36a4e6fa34"
        ]
    );
}
