//! Reports of drives behind namespaces, and the part that a controller's hosts see.
//!
//! A drive is queried by the reactor that has it, periodically and never because of a host's
//! command; its answers arrive here as [`DriveReport`]s. Of several drives a controller reports the
//! worst: the highest temperature, the least spare, any warning. A report counts while a namespace
//! on its drive is attached.
//!
//! It does NOT report the traffic of hosts: the controller counts their reads and writes
//! ([`super::health`]).

use std::collections::BTreeMap;
use std::sync::Arc;

use nvme_spec::log::{CriticalWarning, LogPageId};
use port::namespace::NamespaceTable;
use port::{ChannelId, DriveReport};

use super::events::Event;
use super::temperature;
use crate::controller::Controller;

/// The reports, by the channels of their drives.
#[derive(Clone, Debug, Default)]
pub(crate) struct Drives(BTreeMap<ChannelId, Arc<DriveReport>>);

/// SMART / Health Information of all drives together (Base 2.1, 5.1.12.1.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DriveHealth {
    /// Without the temperature's: that is a matter of a host's own thresholds.
    pub(crate) warning: CriticalWarning,
    /// In kelvins; `None` if no drive reports it.
    pub(crate) temperature: Option<u16>,
    /// In percent: the available spare, and its threshold.
    pub(crate) spare: (u8, u8),
    /// In per cent, 255 is 255 and more.
    pub(crate) used: u8,
    pub(crate) media_errors: u128,
    /// Minutes above WCTEMP and above CCTEMP.
    pub(crate) warm: (u32, u32),
}

impl Drives {
    fn of<'a>(
        &'a self,
        namespaces: &'a NamespaceTable,
    ) -> impl Iterator<Item = &'a Arc<DriveReport>> {
        let is_there = |channel| namespaces.iter().any(|n| n.channel == channel);
        let reports = self.0.iter();
        reports.filter_map(move |(channel, report)| is_there(*channel).then_some(report))
    }

    /// `None` if no drive has reported any.
    pub(crate) fn health(&self, namespaces: &NamespaceTable) -> Option<DriveHealth> {
        let logs = self.of(namespaces).filter_map(|r| r.health.as_ref());
        let all = logs.map(|log| {
            let temperature = log.composite_temperature.get();
            let warning = u8::from(log.critical_warning);
            DriveHealth {
                // There is no persistent memory region here.
                warning: CriticalWarning::from(warning & WARNINGS),
                temperature: (temperature != 0).then_some(temperature),
                spare: (log.available_spare, log.available_spare_threshold),
                used: log.percentage_used,
                media_errors: log.media_errors.get(),
                warm: (log.warning_temperature_time, log.critical_temperature_time),
            }
        });
        all.reduce(|a, b| {
            let left = |(spare, threshold): (u8, u8)| i16::from(spare) - i16::from(threshold);
            DriveHealth {
                warning: CriticalWarning::from(u8::from(a.warning) | u8::from(b.warning)),
                temperature: a.temperature.max(b.temperature),
                spare: if left(a.spare) <= left(b.spare) {
                    a.spare
                } else {
                    b.spare
                },
                used: a.used.max(b.used),
                media_errors: a.media_errors.saturating_add(b.media_errors),
                warm: (a.warm.0.max(b.warm.0), a.warm.1.max(b.warm.1)),
            }
        })
    }

    /// WCTEMP and CCTEMP: the lowest of all drives that report them, in kelvins.
    pub(crate) fn limits(&self, namespaces: &NamespaceTable) -> (u16, u16) {
        let lowest = |of: fn(&DriveReport) -> u16| {
            let all = self.of(namespaces).map(|report| of(report));
            all.filter(|kelvins| *kelvins != 0).min()
        };
        (
            lowest(|r| r.warning_temperature).unwrap_or(temperature::WARNING),
            lowest(|r| r.critical_temperature).unwrap_or(temperature::CRITICAL),
        )
    }

    /// A log page of a drive's own that its operator lets hosts read: where just one of the drives
    /// has it.
    pub(crate) fn page<'a>(
        &'a self,
        namespaces: &'a NamespaceTable,
        lid: LogPageId,
    ) -> Option<&'a [u8]> {
        let pages = self.of(namespaces).flat_map(|report| &report.pages);
        let mut found = pages.filter(|page| page.lid == lid);
        match (found.next(), found.next()) {
            (Some(page), None) => Some(&page.bytes),
            _ => None,
        }
    }
}

/// Available Spare, Degraded Reliability, Read-Only, Volatile Memory Backup.
const WARNINGS: u8 = 1 << 0 | 1 << 2 | 1 << 3 | 1 << 4;

impl Controller {
    /// Takes the current report of the drive behind a channel; `None`: the drive is gone.
    pub fn drive_reported(&mut self, channel: ChannelId, report: Option<&Arc<DriveReport>>) {
        let before = self.health().critical_warning();
        match report {
            Some(report) => drop(self.health.drives.0.insert(channel, report.clone())),
            None => drop(self.health.drives.0.remove(&channel)),
        }
        let now = self.health().critical_warning();
        let new = u8::from(now) & !u8::from(before);
        self.raise_warnings(CriticalWarning::from(new));
    }

    /// Raises an event for each kind of warning (Base 2.1, 5.1.2.1).
    pub(crate) fn raise_warnings(&mut self, warning: CriticalWarning) {
        if warning.ttc() {
            self.raise(Event::TemperatureThreshold);
        }
        if warning.ascbt() {
            self.raise(Event::SpareBelowThreshold);
        }
        if warning.ndr() || warning.amro() || warning.vmbf() {
            self.raise(Event::Reliability);
        }
    }
}
