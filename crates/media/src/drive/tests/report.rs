//! Health reports of a drive reach its channels through the keeper, and only through it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use nvme_spec::log::{CriticalWarning, LogPageId, SmartLog};
use port::{DriveReport, ReportedPage, Request};
use zerocopy::FromZeros;

use super::rig::{Host, Rig, Shape};
use crate::drive::ShownPage;

const READ: Request<'static> = Request::Read {
    offset: 0,
    len: 4096,
};

fn page(lid: u8, bytes: &[u8]) -> ReportedPage {
    ReportedPage {
        lid: LogPageId(lid),
        bytes: bytes.to_vec(),
    }
}

/// A warm and worn drive with vendor log pages.
fn worn() -> DriveReport {
    let mut log = SmartLog::new_zeroed();
    log.critical_warning = CriticalWarning::new().with_ndr(true);
    log.composite_temperature.set(311);
    (log.available_spare, log.available_spare_threshold) = (7, 9);
    log.percentage_used = 42;
    log.media_errors.set(5);
    DriveReport {
        health: Some(log),
        warning_temperature: 350,
        critical_temperature: 360,
        pages: vec![page(0xc0, &[3; 64]), page(0xca, &[4; 16])],
    }
}

fn shown(lid: u8, len: u16) -> ShownPage {
    ShownPage { lid, len }
}

#[test]
fn a_channel_knows_the_drive_s_health_and_the_pages_that_are_shown() {
    // The drive lacks 0xd0, and 0xca is not to be shown.
    let pages = vec![shown(0xd0, 512), shown(0xc0, 32)];
    let mut rig = Rig::saying(Shape::default(), worn(), pages);
    rig.tick(1);
    let report = rig.channel.report();
    let health = report.health.as_ref().unwrap();
    assert_eq!(health.composite_temperature.get(), 311);
    assert_eq!(health.available_spare, 7);
    assert_eq!(health.percentage_used, 42);
    assert_eq!(health.media_errors.get(), 5);
    assert_eq!(
        (report.warning_temperature, report.critical_temperature),
        (350, 360)
    );
    assert_eq!(report.pages, [page(0xc0, &[3; 32])]);
    // A later channel gets the report, too.
    let mut later = rig
        .drive
        .channel(8, rig.claims.claimant().unwrap())
        .unwrap();
    rig.tick(1);
    later.tend();
    assert_eq!(later.report().pages, report_pages(&rig));
}

fn report_pages(rig: &Rig) -> Vec<ReportedPage> {
    rig.channel.report().pages.clone()
}

#[test]
fn the_drive_is_asked_again_after_ten_seconds_and_not_before() {
    let host = Host::new();
    let mut rig = Rig::saying(Shape::default(), worn(), Vec::new());
    rig.tick(1);
    let first = rig.channel.report().clone();
    let read = |rig: &Rig| {
        let report = rig.channel.report();
        report.health.as_ref().unwrap().host_read_commands.get()
    };
    assert_eq!(read(&rig), 0);
    rig.run(&host, &READ, &[(0, 4096)]);
    let commands = rig.mood.commands.load(Ordering::Relaxed);
    rig.tick(38);
    assert!(Arc::ptr_eq(&first, rig.channel.report()));
    rig.tick(2);
    assert_eq!(read(&rig), u128::from(commands));
    // Without a change there is no new report.
    let second = rig.channel.report().clone();
    rig.tick(80);
    assert!(Arc::ptr_eq(&second, rig.channel.report()));
}
