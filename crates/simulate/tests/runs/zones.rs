//! Drives with zones, and drives that were overwritten for long.

use super::*;

const ZONE: u64 = 32 << 20;
const ZONES: u64 = 16;

/// Sixteen zones of 32 MiB.
fn zoned() -> Parameters {
    let preset = preset::preset("zns-prototype@code").unwrap();
    let parameters = preset.parameters(ZONES * ZONE, None).unwrap();
    assert_eq!(parameters.get("zone_size").unwrap().raw, ZONE);
    assert_eq!(parameters.get("zone_capacity").unwrap().raw, ZONE);
    parameters
}

fn on_zones(jobs: &str) -> Result<Ran, Error> {
    run_on(&zoned(), ZONES * ZONE, &plan(jobs, 600_000 * MS))
}

fn succeeded(ran: &Ran) {
    for job in &ran.jobs {
        assert_eq!((job.errors, &job.first_error), (0, &None), "{}", job.name);
    }
}

#[test]
fn zones_are_written_in_order_and_reset_when_they_are_written_again() {
    // each of two workers has four of eight zones, and writes eight zones' bytes
    let jobs = "[w]\nzonemode=zbd\nrw=write\nbs=128k\nsize=256m\nnumjobs=2\nioengine=libaio\niodepth=4\n[r]\nstonewall\nzonemode=zbd\nrw=read\nbs=64k\nio_size=64m\n";
    let ran = on_zones(jobs).unwrap();
    succeeded(&ran);
    assert_eq!(of(&ran, 0, Kind::Write).bytes, 512 << 20);
    assert_eq!(of(&ran, 0, Kind::Reset).latency_ns.count(), 8);
    assert_eq!(of(&ran, 1, Kind::Read).bytes, 64 << 20);
}

#[test]
fn random_writes_go_to_open_zones_and_random_reads_to_what_was_written() {
    let jobs = "[w]\nzonemode=zbd\nrw=randwrite\nbs=128k\nmax_open_zones=3\nioengine=libaio\niodepth=8\nio_size=1g\n[mix]\nstonewall\nzonemode=zbd\nrw=randrw\nbssplit=4k/50:64k/50\nnumjobs=4\nioengine=libaio\niodepth=4\nio_size=32m\n[r]\nstonewall\nzonemode=zbd\nrw=randread\nioengine=libaio\niodepth=16\nio_size=4m\n";
    let ran = on_zones(jobs).unwrap();
    succeeded(&ran);
    let written = of(&ran, 0, Kind::Write).bytes;
    assert_eq!(written, 1 << 30);
    // 32 zones' bytes and up to 2 zones begun, into 16 zones that need no reset at first, if they
    // are come to
    let resets = of(&ran, 0, Kind::Reset).latency_ns.count();
    assert!((16..=33).contains(&resets), "{resets}");
    assert!(of(&ran, 1, Kind::Read).bytes > 0);
    assert_eq!(of(&ran, 2, Kind::Read).bytes, 4 << 20);
}

#[test]
fn nothing_is_read_from_zones_that_are_empty() {
    let ran = on_zones("[r]\nzonemode=zbd\nrw=randread\n").unwrap();
    assert_eq!(ran.commands, 0);
}

#[test]
fn jobs_that_do_not_go_with_zones_are_refused() {
    let refused = |jobs: &str, says: &str| {
        let error = on_zones(jobs).unwrap_err().to_string();
        assert!(error.contains(says), "{error}");
    };
    refused("[w]\nrw=randwrite\n", "write zonemode=zbd");
    refused("[t]\nzonemode=zbd\nrw=trim\n", "not deallocated");
    refused("[w]\nzonemode=zbd\nrw=write\noffset=4k\n", "begins at 4096");
    refused(
        "[w]\nzonemode=zbd\nrw=write\nsize=64m\nnumjobs=3\n",
        "2 zones are too few for 3",
    );
    let two = "[a]\nzonemode=zbd\nrw=write\nsize=64m\n[b]\nzonemode=zbd\nrw=write\noffset=32m\nsize=64m\n";
    refused(two, "zones that [a] writes to");
    let after = two.replace("[b]\n", "[b]\nstonewall\n");
    succeeded(&on_zones(&after).unwrap());
    let on_flash = plan("[w]\nzonemode=zbd\nrw=write\n", MS);
    let error = run_on(&super::flash(), FLASH_SIZE, &on_flash).unwrap_err();
    assert!(
        error.to_string().contains("a preset of kind zns"),
        "{error}"
    );
}

#[test]
fn a_prepared_drive_collects_from_the_first_write_on() {
    let jobs = "[w]\nrw=randwrite\nnorandommap\nioengine=libaio\niodepth=32\nio_size=16m\n";
    let fresh = plan(jobs, 10_000 * MS);
    let prepared = Plan {
        initial: model::Initial::Steady,
        ..fresh.clone()
    };
    let run = |plan: &Plan| run_on(&super::flash(), FLASH_SIZE, plan).unwrap();
    let (before, after) = (run(&fresh), run(&prepared));
    assert_eq!(before.drive.amplification_thousandths(), 1000);
    assert!(
        after.drive.amplification_thousandths() > 2000,
        "{:?}",
        after.drive
    );
    for ran in [&before, &after] {
        assert_eq!(ran.drive.pages_written, 4096);
        // also in the series, from the start on
        let pages: u64 = ran
            .points
            .iter()
            .map(|point| point.drive.pages_written)
            .sum();
        assert_eq!(pages, 4096);
    }
    assert!(after.elapsed_ns > before.elapsed_ns);
    assert_eq!(json(&run(&prepared)), json(&after));
    let refused = run_on(
        &zoned(),
        ZONES * ZONE,
        &Plan {
            initial: model::Initial::Steady,
            ..plan("[r]\n", MS)
        },
    );
    assert!(refused.unwrap_err().to_string().contains("of kind zns"));
}

/// A state that was written before is the same drive as one that is prepared now.
#[test]
fn a_drive_begins_with_a_state() {
    let jobs = "[w]\nrw=randwrite\nnorandommap\nioengine=libaio\niodepth=32\nio_size=16m\n";
    let fresh = plan(jobs, 10_000 * MS);
    let parameters = super::flash();
    let model::Parameters::Flash(flash) = &parameters else {
        panic!("it is of flash");
    };
    let mut drive = model::Flash::new(flash).unwrap();
    drive.precondition(fresh.seed);
    let mut state = Vec::new();
    drive.save(&mut state);
    let with = |state: Vec<u8>| Plan {
        state: Some(state.into()),
        ..fresh.clone()
    };
    let prepared = Plan {
        initial: model::Initial::Steady,
        ..fresh.clone()
    };
    let run = |plan: &Plan| run_on(&parameters, FLASH_SIZE, plan);
    let ran = json(&run(&with(state.clone())).unwrap());
    assert_eq!(ran, json(&run(&prepared).unwrap()));
    assert_ne!(ran, json(&run(&fresh).unwrap()));
    let error = |plan: &Plan| run(plan).unwrap_err().to_string();
    assert!(error(&with(b"bytes".to_vec())).contains("not a state"));
    let half = model::Parameters::Flash(model::FlashParameters {
        size_bytes: FLASH_SIZE / 2,
        ..flash.clone()
    });
    let other = run_on(&half, FLASH_SIZE / 2, &with(state.clone()));
    let other = other.unwrap_err().to_string();
    assert!(other.contains("from another drive"), "{other}");
    let stateless = run_on(&zoned(), ZONES * ZONE, &with(state));
    let stateless = stateless.unwrap_err().to_string();
    assert!(
        stateless.contains("only models of kind flash"),
        "{stateless}"
    );
}
