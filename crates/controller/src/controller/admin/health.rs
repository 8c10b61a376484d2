//! SMART / Health Information (Base 2.1, 5.1.12.1.3), and the part that is kept over a restart of
//! the program.
//!
//! Counters cover the life of the controller: a process continues from the record of the previous
//! one, which is at most [`KEEP_INTERVAL_NS`] old if that process was killed. A page is built from
//! the counters each time.

use nvme_spec::log::{CriticalWarning, SmartLog};
use port::time::Time;
use subsystem::{HealthRecord, Subsystem};
use zerocopy::FromZeros;

use super::drives::{DriveHealth, Drives};
use super::temperature;
use crate::controller::Controller;

/// Thousands of 512 bytes: the unit of Data Units Read and Written.
const DATA_UNIT: u64 = 512_000;
const NS_PER_MINUTE: u64 = 60_000_000_000;
const NS_PER_HOUR: u64 = 60 * NS_PER_MINUTE;
/// Interval at which the counters are kept while no event requires it at once.
const KEEP_INTERVAL_NS: u64 = 10 * NS_PER_MINUTE;

/// The data of the page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    pub(crate) counted: HealthRecord,
    /// Over and under temperature thresholds, in kelvins.
    pub(crate) thresholds: (u16, u16),
    /// Reports of the drives behind its namespaces.
    pub(crate) drives: Option<DriveHealth>,
}

impl Health {
    /// The first byte of the page; also what Asynchronous Event Configuration masks.
    pub(crate) fn critical_warning(&self) -> CriticalWarning {
        let (over, under) = self.thresholds;
        let warning = self
            .drives
            .map_or(CriticalWarning::new(), |drives| drives.warning);
        warning.with_ttc(temperature::beyond(self.temperature(), over, under))
    }

    /// The composite temperature, in kelvins.
    fn temperature(&self) -> u16 {
        let told = self.drives.and_then(|drives| drives.temperature);
        told.unwrap_or(temperature::COMPOSITE)
    }

    /// The page: the drives' reports, and the traffic of this controller's hosts. Without a drive
    /// nothing wears, and the temperature never reaches WCTEMP: the times above it and CCTEMP are
    /// zero.
    pub(crate) fn page(&self) -> SmartLog {
        let counted = &self.counted;
        let mut log = SmartLog::new_zeroed();
        log.critical_warning = self.critical_warning();
        log.composite_temperature.set(self.temperature());
        (log.available_spare, log.available_spare_threshold) = (100, 10);
        let mut media_errors = u128::from(counted.media_errors);
        if let Some(drives) = &self.drives {
            (log.available_spare, log.available_spare_threshold) = drives.spare;
            log.percentage_used = drives.used;
            (log.warning_temperature_time, log.critical_temperature_time) = drives.warm;
            // The drive's count includes the errors of hosts here, except those of other media.
            media_errors = media_errors.max(drives.media_errors);
        }
        let units = |bytes: u64| u128::from(bytes.div_ceil(DATA_UNIT));
        log.data_units_read.set(units(counted.bytes_read));
        log.data_units_written.set(units(counted.bytes_written));
        log.host_read_commands.set(counted.read_commands.into());
        log.host_write_commands.set(counted.write_commands.into());
        log.controller_busy_time
            .set((counted.busy_ns / NS_PER_MINUTE).into());
        log.power_cycles.set(counted.power_cycles.into());
        log.power_on_hours
            .set((counted.powered_ns / NS_PER_HOUR).into());
        log.unsafe_shutdowns.set(counted.unsafe_shutdowns.into());
        log.media_errors.set(media_errors);
        log.error_log_entries.set(counted.error_log_entries.into());
        log
    }
}

/// Data of the health log beside the counters of lanes.
#[derive(Debug)]
pub(crate) struct HealthState {
    /// Counts of deleted lanes, and other counts.
    pub(crate) history: HealthRecord,
    /// The first turn was taken: the time since the last one counts.
    pub(crate) is_timed: bool,
    /// The record's usage state, and the time when it was written.
    kept: (bool, Time),
    /// Reports of the drives behind the namespaces.
    pub(crate) drives: Drives,
}

impl HealthState {
    /// That of a controller that is powered on, with this record.
    pub(crate) fn powered_on(record: &HealthRecord) -> Self {
        HealthState {
            history: record.powered_on(),
            is_timed: false,
            kept: (record.in_use, Time(0)),
            drives: Drives::default(),
        }
    }

    /// It was no power cycle: a process goes on with what another one served.
    pub(crate) fn continue_life(&mut self, record: &HealthRecord) {
        self.history = *record;
    }
}

impl Controller {
    /// Current data of the health log.
    pub(crate) fn health(&self) -> Health {
        let mut counted = self.health.history;
        for (_, cq) in self.queues.cqs() {
            cq.counters.add_to(&mut counted);
        }
        counted.error_log_entries = self.logs.errors.count();
        counted.in_use = self.is_in_use();
        let (warning, _) = self.health.drives.limits(&self.attached.table);
        Health {
            counted,
            thresholds: self.features.temperature_thresholds(warning),
            drives: self.health.drives.health(&self.attached.table),
        }
    }

    /// Has the counters kept: at once where a host came, shut down or went, else now and then.
    pub(crate) fn keep_health(&mut self, subsystem: &mut Subsystem) {
        let (in_use, kept_at) = self.health.kept;
        let is_due = self.now.since(kept_at) >= KEEP_INTERVAL_NS;
        if in_use == self.is_in_use() && !is_due {
            return;
        }
        self.health.kept = (self.is_in_use(), self.now);
        let health = self.health().counted;
        subsystem.update_controller(self.id(), |record| record.health = health);
    }
}
