//! Reports of drives behind namespaces, as hosts see them (Base 2.1, 5.1.12.1.3).

use std::sync::Arc;

use nvme_spec::log::{CriticalWarning, LogPageId, SmartLog};
use port::{ChannelId, DriveReport, ReportedPage};
use zerocopy::FromZeros;

use super::rig::*;

const INVALID_LOG_PAGE: u16 = 0x109;

fn log(change: impl FnOnce(&mut SmartLog)) -> SmartLog {
    let mut log = SmartLog::new_zeroed();
    log.composite_temperature.set(310);
    (log.available_spare, log.available_spare_threshold) = (90, 10);
    log.data_units_read.set(1 << 40);
    log.host_read_commands.set(1 << 40);
    log.power_cycles.set(1 << 40);
    change(&mut log);
    log
}

fn report(channel: u16, rig: &mut Rig, change: impl FnOnce(&mut DriveReport)) {
    let mut report = DriveReport {
        health: Some(log(|_| {})),
        ..DriveReport::default()
    };
    change(&mut report);
    let report = Arc::new(report);
    rig.controller
        .drive_reported(ChannelId(channel), Some(&report));
}

fn warn(rig: &mut Rig, channel: u16, bits: u8) {
    report(channel, rig, |report| {
        report.health = Some(log(|log| {
            log.critical_warning = CriticalWarning::from(bits)
        }));
    });
}

/// A rig with two namespaces, each on a drive.
fn rig() -> Rig {
    let mut namespaces = namespaces();
    namespaces.truncate(2);
    namespaces[0].channel = ChannelId(0);
    namespaces[1].channel = ChannelId(1);
    let mut rig = Rig::with_namespaces(config(), namespaces);
    rig.enable();
    rig
}

#[test]
fn the_page_is_the_drive_s_but_for_what_hosts_did() {
    let mut rig = rig();
    report(0, &mut rig, |report| {
        report.health = Some(log(|log| {
            log.percentage_used = 33;
            log.media_errors.set(7);
            (log.warning_temperature_time, log.critical_temperature_time) = (5, 6);
        }));
        (report.warning_temperature, report.critical_temperature) = (350, 0);
    });
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!(smart[0], 0);
    assert_eq!(u16_at(&smart, 1), 310);
    assert_eq!((smart[3], smart[4], smart[5]), (90, 10, 33));
    assert_eq!((u32_at(&smart, 192), u32_at(&smart, 196)), (5, 6));
    assert_eq!(u64_at(&smart, 160), 7, "media errors");
    // units, commands, power cycles: this controller's
    assert_eq!((u64_at(&smart, 32), u64_at(&smart, 64)), (0, 0));
    assert_eq!(u64_at(&smart, 112), 1);
    let identity = rig.identify(1, 0, 0).unwrap();
    assert_eq!((u16_at(&identity, 266), u16_at(&identity, 268)), (350, 353));
    // The over temperature threshold that no host has set is WCTEMP.
    assert_eq!(rig.get_feature(0x04, 0, 0).dw0, 350);
    // A drive that is gone says nothing more.
    rig.controller.drive_reported(ChannelId(0), None);
    assert_eq!(rig.get_feature(0x04, 0, 0).dw0, 343);
    let smart = rig.log(0x02, 0, 512).unwrap();
    assert_eq!((u16_at(&smart, 1), smart[3], smart[5]), (298, 100, 0));
}

#[test]
fn of_several_drives_the_worst_is_told_and_others_do_not_count() {
    let mut rig = rig();
    for (channel, temperature, spare, threshold, used, errors, warning) in [
        (0, 300, 50, 40, 10, 1, 0b0000_0100),
        (1, 0, 60, 55, 20, 2, 0b0011_0010),
        // No namespace of it is attached.
        (7, 400, 1, 99, 99, 99, 0xff),
    ] {
        report(channel, &mut rig, |report| {
            report.health = Some(log(|log| {
                log.composite_temperature.set(temperature);
                (log.available_spare, log.available_spare_threshold) = (spare, threshold);
                log.percentage_used = used;
                log.media_errors.set(errors);
                log.critical_warning = CriticalWarning::from(warning);
            }));
        });
    }
    let smart = rig.log(0x02, 0, 512).unwrap();
    // No host has the drive's own temperature threshold, and there is no persistent memory
    // region.
    assert_eq!(smart[0], 0b0001_0100);
    assert_eq!(u16_at(&smart, 1), 300);
    assert_eq!((smart[3], smart[4], smart[5]), (60, 55, 20));
    assert_eq!(u64_at(&smart, 160), 3);
}

#[test]
fn a_warning_that_a_drive_begins_to_give_is_an_event_where_it_is_asked_for() {
    let mut rig = rig();
    // Asynchronous Event Configuration: every critical warning
    rig.set_feature(0x0b, 0x1f);
    let expect = |rig: &mut Rig, warning: u8, dw0: u32| {
        rig.async_event();
        rig.turns(2);
        assert!(rig.peek().is_none());
        warn(rig, 0, warning);
        rig.turns(2);
        assert_eq!(rig.reap().map(|cqe| cqe.dw0), Some(dw0), "{warning:#b}");
        rig.log(0x02, 0, 512).unwrap();
        // It is reported once, for as long as it lasts.
        warn(rig, 0, warning);
        rig.turns(2);
        assert!(rig.peek().is_none());
    };
    // SMART / health (1): spare below threshold (2), reliability (0)
    expect(&mut rig, 1 << 0, 0x0002_0201);
    rig.async_event();
    rig.turns(2);
    warn(&mut rig, 0, 1 << 0 | 1 << 3);
    rig.turns(2);
    assert_eq!(rig.reap().map(|cqe| cqe.dw0), Some(0x0002_0001));
    rig.log(0x02, 0, 512).unwrap();
    // Over temperature threshold of the composite temperature: what a drive says counts.
    rig.set_feature(0x04, 320);
    rig.async_event();
    rig.turns(2);
    assert!(rig.peek().is_none());
    report(1, &mut rig, |report| {
        report.health = Some(log(|log| log.composite_temperature.set(320)));
    });
    rig.turns(2);
    assert_eq!(rig.reap().map(|cqe| cqe.dw0), Some(0x0002_0101));
    // The host no longer has a request for it.
    rig.log(0x02, 0, 512).unwrap();
    rig.set_feature(0x0b, 0);
    rig.async_event();
    warn(&mut rig, 0, 1 << 4 | 1 << 2);
    rig.turns(2);
    assert!(rig.peek().is_none());
}

#[test]
fn log_pages_of_a_drive_are_read_where_it_shows_them() {
    let mut rig = rig();
    assert_eq!(rig.log(0xc0, 0, 16), Err(INVALID_LOG_PAGE));
    let page = |lid: u8, byte: u8| ReportedPage {
        lid: LogPageId(lid),
        bytes: vec![byte; 32],
    };
    report(0, &mut rig, |report| {
        // A drive has no say about the pages of controllers here.
        report.pages = vec![page(0xc0, 5), page(0xc2, 6), page(0x02, 9), page(0xc1, 9)];
    });
    report(1, &mut rig, |report| report.pages = vec![page(0xc2, 7)]);
    assert_eq!(rig.log(0xc0, 0, 32), Ok(vec![5; 32]));
    // Past its end there are zeros; further off there is nothing (Base 2.1, 5.1.12).
    assert_eq!(rig.log(0xc0, 28, 8), Ok(vec![5, 5, 5, 5, 0, 0, 0, 0]));
    assert!(rig.log(0xc0, 36, 4).is_err());
    assert_eq!(rig.log(0xc3, 0, 16), Err(INVALID_LOG_PAGE));
    assert_eq!(
        rig.log(0xc2, 0, 16),
        Err(INVALID_LOG_PAGE),
        "whose would it be?"
    );
    assert_eq!(u16_at(&rig.log(0x02, 0, 512).unwrap(), 1), 310);
    assert_eq!(u64_at(&rig.log(0xc1, 0, 80).unwrap(), 0), 3);
    // Supported Log Pages tells the same.
    let supported = rig.log(0x00, 0, 1024).unwrap();
    let is_there = |lid: usize| u32_at(&supported, 4 * lid) & 1 == 1;
    assert!(is_there(0xc0) && is_there(0x02));
    assert!(!is_there(0xc2) && !is_there(0xc3));
}
