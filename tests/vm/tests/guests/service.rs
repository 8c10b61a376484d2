//! The Debian package in a guest with a real service manager: installed, started, confined,
//! watched, replaced, and purged.

use std::time::Duration;

use guest_rig::{Boot, Guest, Options, Rig, server};

use crate::served::text;

/// Boot, installation and a watchdog that is waited for, on an emulated processor.
const BOUND: Duration = Duration::from_secs(300);

#[test]
fn a_package_is_a_service_of_systemd() {
    let rig = Rig::locate().unwrap();
    let options = Options {
        boot: Boot::Systemd,
        job: Some(include_str!("jobs/service.sh").to_owned()),
        memory_mib: 1536,
        files: vec![server::package().unwrap()],
        ..Options::default()
    };
    let report = Guest::boot(&rig, &options).unwrap().finish(BOUND).unwrap();
    println!("{}", text(&report, "exposure"));
}

/// The blocks of a kind in the section of the how-to for disks of ublk about the service.
fn block_of_how_to(kind: &str) -> String {
    let page = include_str!("../../../../book/src/howto/ublk.md");
    let (_, section) = page.split_once("\n## As a service\n").expect("a section");
    let (_, block) = section
        .split_once(&format!("```{kind}\n"))
        .expect("a block");
    let (block, _) = block.split_once("```").expect("it ends");
    block.to_owned()
}

#[test]
fn a_service_has_disks_of_ublk() {
    let rig = Rig::locate().unwrap();
    let (rule, unit) = (block_of_how_to("text"), block_of_how_to("ini"));
    let job = include_str!("jobs/service_ublk.sh");
    let options = Options {
        boot: Boot::Systemd,
        job: Some(format!("RULE='{rule}'\nUNIT='{unit}'\n{job}")),
        memory_mib: 1536,
        files: vec![server::package().unwrap()],
        ..Options::default()
    };
    Guest::boot(&rig, &options).unwrap().finish(BOUND).unwrap();
}
