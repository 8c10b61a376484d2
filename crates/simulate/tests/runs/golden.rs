//! The very bytes: the same on every machine, in every version that does not mean to change them.

use super::*;

fn hash(text: &str) -> String {
    use sha2::{Digest, Sha256};
    let digest = Sha256::digest(text.as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn nvm() {
    let jobs = "[a]\nrw=randrw\nbssplit=4k/60:16k/40\niodepth=8\nrandom_distribution=zipf:1.2\ntime_based\nnumjobs=2\n[b]\nrw=randread\nrate_iops=20000\nrate_process=poisson\ntime_based\n[c]\nrw=trim\nbs=64k\nthinktime=100\ntime_based\n";
    let text = json(&run(&plan(jobs, 20 * MS)));
    assert_eq!(
        hash(&text),
        "63fb53737e97739c53fc8654a9a1f2b2441119b46f9a513c93ba0f8ef69d4925"
    );
}

#[test]
fn zones() {
    let jobs = "[w]\nzonemode=zbd\nrw=randwrite\nbs=64k\nmax_open_zones=3\nnumjobs=2\niodepth=4\nio_size=512m\n[mix]\nstonewall\nzonemode=zbd\nrw=randrw\nnumjobs=3\niodepth=8\nio_size=8m\n";
    let preset = preset::preset("zns-prototype@code").unwrap();
    let parameters = preset.parameters(512 << 20, None).unwrap();
    let ran = run_on(&parameters, 512 << 20, &plan(jobs, 60_000 * MS)).unwrap();
    assert_eq!(
        hash(&json(&ran)),
        "027efb912c280e92612a67d73dc63930c3fba506c9291a8a557a947cce763ddf"
    );
}

#[test]
fn a_prepared_drive() {
    let jobs = "[w]\nrw=randwrite\nnorandommap\niodepth=16\nio_size=64m\n";
    let prepared = Plan {
        prepared: true,
        ..plan(jobs, 10_000 * MS)
    };
    let ran = run_on(&super::flash(), FLASH_SIZE, &prepared).unwrap();
    assert_eq!(
        hash(&json(&ran)),
        "461d930391ce244d6f707606d205273281f1175dcdb5747551b103c2c45063a4"
    );
}

#[test]
fn flash_with_collection() {
    let jobs = "[fill]\nrw=write\nbs=1m\niodepth=4\n[write]\nstonewall\nrw=randwrite\nnorandommap\niodepth=32\nio_size=300m\n[mix]\nstonewall\nrw=randrw\nrwmixread=70\nnumjobs=3\niodepth=8\nio_size=8m\nfsync=100\n[trim]\nstonewall\nrw=trim\nbs=64k\nio_size=16m\n";
    let ran = run_on(&super::flash(), FLASH_SIZE, &plan(jobs, 60_000 * MS)).unwrap();
    assert_eq!(
        hash(&json(&ran)),
        "58169ebeb0cfa38db29fbc9115afbd96b1bac83b8f92d14de469a67640db8576"
    );
}
