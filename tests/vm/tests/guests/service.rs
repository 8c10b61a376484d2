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
