//! A value for each feature: the value to read back, the accepted values, and the defaults (Base
//! 2.1, 5.1.25; NVM 1.1, 4.1.3).
//!
//! Invariant: bits that are reserved, or stand for unsupported functions, are never kept. It does
//! NOT know which value is current and which is saved.

use nvme_spec::command::{GetFeaturesCdw10, SetFeaturesCdw10};
use nvme_spec::features::{
    Arbitration, AsynchronousEventConfiguration, EXTENDED_HOST_IDENTIFIER_SIZE, ErrorRecovery,
    FeatureId, HOST_IDENTIFIER_SIZE, HostBehaviorSupport, HostIdentifier, InterruptCoalescing,
    InterruptVectorConfiguration, KeepAliveTimer, NumberOfQueues, PowerManagement,
    TemperatureThreshold, ThresholdType, Timestamp, TimestampOrigin, VolatileWriteCache,
    WriteAtomicityNormal,
};
use nvme_spec::reservation::ReservationNotificationMask;
use nvme_spec::{NSID_ALL, Sqe, Status};
use port::time::Time;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::{FeatureAnswer, FeatureContext};
use crate::arbitration::RECOMMENDED_BURST;
use crate::config::MAX_IO_QUEUES;
use crate::controller::admin::attached::has_zones;
use crate::controller::admin::keep_alive::KEEP_ALIVE_UNIT_MS;

/// Words of one bit per interrupt vector: one of the admin queue, one per I/O queue pair.
pub(super) const VECTOR_WORDS: usize = (MAX_IO_QUEUES as usize + 1).div_ceil(32);
/// Stands for an over temperature threshold that was never set: it is WCTEMP (Base 2.1,
/// 5.1.25.1.3), which a drive behind a namespace may change.
const OVER_DEFAULT: u32 = u32::MAX;
/// Threshold Temperature Select: the composite temperature, and (of Set Features) all sensors.
const TMPSEL_COMPOSITE: u8 = 0;
const TMPSEL_ALL: u8 = 0b1111;
/// Copy Descriptor Formats that a host enables before it uses them: 2h (NVM 1.1, 3.3.2).
const COPY_FORMATS: u16 = 1 << 2;
/// I/O Command Set Combination Index of I/O Command Set Profile (Base 2.1, 5.1.25.1.17).
const IOCSCI: u32 = 0x1ff;

/// Values of the features of the controller, as they are kept in the state file.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct FeatureValues {
    /// Milliseconds of the timestamp when it was last set, or 0.
    pub timestamp_ms: u64,
    /// The reactor's time then, in nanoseconds.
    pub timestamp_at_ns: u64,
    /// Timestamp Origin.
    pub timestamp_origin: u32,
    /// Arbitration.
    pub arbitration: u32,
    /// Power Management.
    pub power_management: u32,
    /// Over temperature threshold of the composite temperature, in kelvins; FFFFFFFFh where no host
    /// has set one.
    pub over_temperature: u32,
    /// Under temperature threshold of the composite temperature, in kelvins.
    pub under_temperature: u32,
    /// Volatile Write Cache.
    pub write_cache: u32,
    /// Number of Queues, as allocated.
    pub number_of_queues: u32,
    /// Interrupt Coalescing.
    pub coalescing: u32,
    /// Coalescing Disable of each vector, a bit each.
    pub coalescing_disabled: [u32; VECTOR_WORDS],
    /// Write Atomicity Normal.
    pub write_atomicity: u32,
    /// Asynchronous Event Configuration.
    pub event_configuration: u32,
    /// Keep Alive Timeout, in milliseconds; 0 is none.
    pub keep_alive_ms: u32,
    /// The first bytes of Host Behavior Support: Advanced Command Retry, telemetry area 4, LBA
    /// format extension, dispersed namespaces.
    pub host_behavior: [u8; 4],
    /// Copy Descriptor Formats Enable, of Host Behavior Support.
    pub copy_formats: u32,
    /// Host Identifier; a short one fills the first eight bytes.
    pub host_identifier: [u8; EXTENDED_HOST_IDENTIFIER_SIZE],
    /// 1 where the Host Identifier has 16 bytes.
    pub host_identifier_extended: u32,
    /// 0.
    pub reserved: u32,
}

/// A value for each feature of the controller, and of each namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Values {
    pub(crate) controller: FeatureValues,
    /// Error Recovery by namespace id, from 1.
    pub(crate) error_recovery: Vec<u32>,
    /// Reservation Notification Mask by namespace id, from 1.
    pub(crate) reservation_masks: Vec<u32>,
}

impl Values {
    /// Every feature at its default.
    pub(super) fn new(context: &FeatureContext) -> Self {
        let queues_z = context.queues - 1;
        let mut values = FeatureValues::new_zeroed();
        values.timestamp_at_ns = context.now.0;
        values.arbitration = Arbitration::new().with_ab(RECOMMENDED_BURST).into();
        values.over_temperature = OVER_DEFAULT;
        values.write_cache = VolatileWriteCache::new().with_wce(true).into();
        values.number_of_queues = NumberOfQueues::new()
            .with_nsq_z(queues_z)
            .with_ncq_z(queues_z)
            .into();
        Values {
            controller: values,
            error_recovery: vec![0; context.namespace_limit as usize],
            reservation_masks: vec![0; context.namespace_limit as usize],
        }
    }

    /// Puts the values of namespaces that do not exist to their defaults; whether any was another.
    pub(super) fn forget_namespaces(&mut self, exists: impl Fn(u32) -> bool) -> bool {
        let mut changed = false;
        for of_namespaces in [&mut self.error_recovery, &mut self.reservation_masks] {
            for (nsid, value) in (1..).zip(of_namespaces) {
                if *value != 0 && !exists(nsid) {
                    (*value, changed) = (0, true);
                }
            }
        }
        changed
    }

    pub(super) fn write_cache_enabled(&self) -> bool {
        VolatileWriteCache::from(self.controller.write_cache).wce()
    }

    pub(super) fn set_write_cache(&mut self, enabled: bool) {
        self.controller.write_cache = VolatileWriteCache::new().with_wce(enabled).into();
    }

    /// The words that Set Features of a feature that can be saved writes, and which bits of them.
    pub(super) fn words_of(&mut self, sqe: &Sqe) -> Vec<(&mut u32, u32)> {
        let values = &mut self.controller;
        let word = match SetFeaturesCdw10::from(sqe.cdw10).fid() {
            FeatureId::ARBITRATION => &mut values.arbitration,
            FeatureId::POWER_MANAGEMENT => &mut values.power_management,
            FeatureId::TEMPERATURE_THRESHOLD => {
                match TemperatureThreshold::from(sqe.cdw11).thsel() {
                    ThresholdType::OVER => &mut values.over_temperature,
                    _ => &mut values.under_temperature,
                }
            }
            FeatureId::ERROR_RECOVERY => {
                let named = |nsid: u32| [nsid, NSID_ALL].contains(&sqe.nsid);
                let words = (1..).zip(&mut self.error_recovery);
                let named = words.filter(|(nsid, _)| named(*nsid));
                return named.map(|(_, word)| (word, !0)).collect();
            }
            FeatureId::VOLATILE_WRITE_CACHE => &mut values.write_cache,
            FeatureId::INTERRUPT_COALESCING => &mut values.coalescing,
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                let iv = InterruptVectorConfiguration::from(sqe.cdw11).iv();
                let words = values.coalescing_disabled.get_mut(usize::from(iv) / 32);
                return words
                    .map(|word| (word, 1 << (iv % 32)))
                    .into_iter()
                    .collect();
            }
            FeatureId::WRITE_ATOMICITY_NORMAL => &mut values.write_atomicity,
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => &mut values.event_configuration,
            // The others cannot be saved.
            _ => return Vec::new(),
        };
        vec![(word, !0)]
    }

    /// The part of Dword 11 of Set Features that selects one of several values of a feature.
    pub(super) fn selector(sqe: &Sqe) -> u32 {
        match SetFeaturesCdw10::from(sqe.cdw10).fid() {
            FeatureId::TEMPERATURE_THRESHOLD => {
                TemperatureThreshold::from(sqe.cdw11).thsel().0.into()
            }
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                InterruptVectorConfiguration::from(sqe.cdw11).iv().into()
            }
            _ => 0,
        }
    }

    /// The result of Get Features.
    pub(super) fn get(&self, sqe: &Sqe, context: &FeatureContext) -> Result<FeatureAnswer, Status> {
        let fid = GetFeaturesCdw10::from(sqe.cdw10).fid();
        let values = &self.controller;
        let mut data = Vec::new();
        let dw0 = match fid {
            FeatureId::ARBITRATION => values.arbitration,
            FeatureId::POWER_MANAGEMENT => values.power_management,
            FeatureId::TEMPERATURE_THRESHOLD => {
                self.temperature_threshold(sqe.cdw11.into(), context)?
            }
            FeatureId::ERROR_RECOVERY if sqe.nsid == 0 => self.shared_error_recovery(context)?,
            FeatureId::ERROR_RECOVERY => self.error_recovery[sqe.nsid as usize - 1],
            FeatureId::RESERVATION_NOTIFICATION_MASK => {
                self.reservation_masks[sqe.nsid as usize - 1]
            }
            FeatureId::VOLATILE_WRITE_CACHE => values.write_cache,
            FeatureId::NUMBER_OF_QUEUES => values.number_of_queues,
            FeatureId::INTERRUPT_COALESCING => values.coalescing,
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                let iv = InterruptVectorConfiguration::from(sqe.cdw11).iv();
                let disabled =
                    values.coalescing_disabled[vector_word(iv, context)?] >> (iv % 32) & 1;
                InterruptVectorConfiguration::new()
                    .with_iv(iv)
                    .with_cd(disabled == 1)
                    .into()
            }
            FeatureId::WRITE_ATOMICITY_NORMAL => values.write_atomicity,
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => values.event_configuration,
            FeatureId::TIMESTAMP => {
                data.extend_from_slice(self.timestamp(context.now).as_bytes());
                0
            }
            FeatureId::KEEP_ALIVE_TIMER => values.keep_alive_ms,
            // There is one combination of command sets (Identify, CNS 1Ch), with all of them.
            FeatureId::IO_COMMAND_SET_PROFILE => 0,
            FeatureId::HOST_BEHAVIOR_SUPPORT => {
                data.extend_from_slice(self.host_behavior().as_bytes());
                0
            }
            FeatureId::HOST_IDENTIFIER => {
                let len = host_identifier_len(sqe.cdw11.into());
                data.extend_from_slice(&values.host_identifier[..len]);
                0
            }
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        };
        Ok(FeatureAnswer { dw0, data })
    }

    /// In kelvins, where WCTEMP is `warning`.
    pub(super) fn over_temperature(&self, warning: u16) -> u16 {
        u16::try_from(self.controller.over_temperature).unwrap_or(warning)
    }

    fn temperature_threshold(
        &self,
        asked: TemperatureThreshold,
        context: &FeatureContext,
    ) -> Result<u32, Status> {
        match (asked.tmpsel(), asked.thsel()) {
            (TMPSEL_COMPOSITE, ThresholdType::OVER) => {
                Ok(self.over_temperature(context.warning_temperature).into())
            }
            (TMPSEL_COMPOSITE, ThresholdType::UNDER) => Ok(self.controller.under_temperature),
            _ => Err(Status::INVALID_FIELD_IN_COMMAND),
        }
    }

    /// Milliseconds go on from the value that was set, or from the last reset (Base 2.1,
    /// 5.1.25.1.7).
    fn timestamp(&self, now: Time) -> Timestamp {
        let passed_ms = now.since(Time(self.controller.timestamp_at_ns)) / 1_000_000;
        let ms = self.controller.timestamp_ms.wrapping_add(passed_ms);
        Timestamp::new()
            .with_tstmp(ms & ((1 << 48) - 1))
            .with_to(TimestampOrigin(self.controller.timestamp_origin as u8))
    }

    /// Whether the host has set LBA Format Extension Enable (Base 2.1, 5.1.25.1.14).
    pub(crate) fn extended_formats(&self) -> bool {
        self.host_behavior().lbafee == 1
    }

    fn host_behavior(&self) -> HostBehaviorSupport {
        let mut support = HostBehaviorSupport::new_zeroed();
        let [acre, etdas, lbafee, hdisns] = self.controller.host_behavior;
        (support.acre, support.etdas) = (acre, etdas);
        (support.lbafee, support.hdisns) = (lbafee, hdisns);
        support.cdfe = self.controller.copy_formats as u16;
        support
    }

    /// Applies Set Features; `data` is of [`super::data_len`] bytes. Returns Dword 0.
    pub(super) fn set(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        context: &FeatureContext,
    ) -> Result<u32, Status> {
        let fid = SetFeaturesCdw10::from(sqe.cdw10).fid();
        let cdw11 = sqe.cdw11;
        let values = &mut self.controller;
        match fid {
            FeatureId::ARBITRATION => values.arbitration = arbitration(cdw11),
            FeatureId::POWER_MANAGEMENT => values.power_management = power_management(cdw11)?,
            FeatureId::TEMPERATURE_THRESHOLD => self.set_temperature_threshold(cdw11.into())?,
            FeatureId::ERROR_RECOVERY => self.set_error_recovery(sqe.nsid, cdw11, context)?,
            FeatureId::RESERVATION_NOTIFICATION_MASK => {
                self.set_reservation_mask(sqe.nsid, cdw11, context);
            }
            FeatureId::VOLATILE_WRITE_CACHE => {
                self.set_write_cache(VolatileWriteCache::from(cdw11).wce());
            }
            FeatureId::NUMBER_OF_QUEUES => return self.set_number_of_queues(cdw11.into(), context),
            FeatureId::INTERRUPT_COALESCING => values.coalescing = coalescing(cdw11),
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                let vector = InterruptVectorConfiguration::from(cdw11);
                vector_word(vector.iv(), context)?;
                self.set_coalescing_disabled(vector.iv(), vector.cd());
            }
            FeatureId::WRITE_ATOMICITY_NORMAL => values.write_atomicity = write_atomicity(cdw11),
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => {
                values.event_configuration = event_configuration(
                    cdw11,
                    has_zones(&context.namespaces),
                    context.over_fabrics,
                );
            }
            FeatureId::TIMESTAMP => self.set_timestamp(data, context.now)?,
            FeatureId::KEEP_ALIVE_TIMER => self.set_keep_alive(cdw11.into())?,
            FeatureId::IO_COMMAND_SET_PROFILE if cdw11 & IOCSCI == 0 => {}
            FeatureId::IO_COMMAND_SET_PROFILE => {
                return Err(Status::IO_COMMAND_SET_COMBINATION_REJECTED);
            }
            FeatureId::HOST_BEHAVIOR_SUPPORT => self.set_host_behavior(data)?,
            FeatureId::HOST_IDENTIFIER => self.set_host_identifier(data),
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        }
        Ok(0)
    }

    fn set_temperature_threshold(&mut self, wanted: TemperatureThreshold) -> Result<(), Status> {
        // There are no sensors, and TMPTHHA offers no hysteresis.
        if ![TMPSEL_COMPOSITE, TMPSEL_ALL].contains(&wanted.tmpsel()) || wanted.tmpthh() != 0 {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        match wanted.thsel() {
            ThresholdType::OVER => self.controller.over_temperature = wanted.tmpth().into(),
            ThresholdType::UNDER => self.controller.under_temperature = wanted.tmpth().into(),
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        }
        Ok(())
    }

    /// Error Recovery without a namespace. The feature is a namespace's (NVM 1.1, 4.1.3.2), and
    /// NSID 0 names none. The first revisions had one value for the controller, and SPDK's test
    /// suite for one still requests it that way: it gets the value that all attached namespaces
    /// share. If they have several, there is none to return.
    fn shared_error_recovery(&self, context: &FeatureContext) -> Result<u32, Status> {
        let attached = context.namespaces.iter();
        let mut values = attached.map(|n| self.error_recovery[n.nsid as usize - 1]);
        let first = values.next().unwrap_or_default();
        if values.all(|value| value == first) {
            Ok(first)
        } else {
            Err(Status::INVALID_NAMESPACE_OR_FORMAT)
        }
    }

    /// Of one namespace, or of each that is attached (Base 2.1, 4.4).
    fn set_error_recovery(
        &mut self,
        nsid: u32,
        cdw11: u32,
        context: &FeatureContext,
    ) -> Result<(), Status> {
        // No namespace supports the error for deallocated blocks (NSFEAT.DAE is 0; NVM 1.1,
        // 4.1.3.2).
        if ErrorRecovery::from(cdw11).dulbe() {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let value = error_recovery(cdw11);
        if nsid != NSID_ALL {
            self.error_recovery[nsid as usize - 1] = value;
            return Ok(());
        }
        for namespace in context.namespaces.iter() {
            self.error_recovery[namespace.nsid as usize - 1] = value;
        }
        Ok(())
    }

    /// Of one namespace, or of each that is attached (Base 2.1, 5.1.25.1.29).
    fn set_reservation_mask(&mut self, nsid: u32, cdw11: u32, context: &FeatureContext) {
        let known = ReservationNotificationMask::new()
            .with_regpre(true)
            .with_resrel(true)
            .with_respre(true);
        let value = cdw11 & u32::from(known);
        let attached = context.namespaces.iter().map(|n| n.nsid);
        for named in attached.filter(|attached| [*attached, NSID_ALL].contains(&nsid)) {
            self.reservation_masks[named as usize - 1] = value;
        }
    }

    /// Base 2.1, 5.1.25.2.1: once, before the first I/O queue is created; never more than was asked
    /// for.
    fn set_number_of_queues(
        &mut self,
        wanted: NumberOfQueues,
        context: &FeatureContext,
    ) -> Result<u32, Status> {
        if context.queues_exist {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if wanted.nsq_z() == 0xffff || wanted.ncq_z() == 0xffff {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let most_z = context.queues - 1;
        self.controller.number_of_queues = NumberOfQueues::new()
            .with_nsq_z(wanted.nsq_z().min(most_z))
            .with_ncq_z(wanted.ncq_z().min(most_z))
            .into();
        Ok(self.controller.number_of_queues)
    }

    /// Coalescing Disable of a vector that exists.
    pub(super) fn set_coalescing_disabled(&mut self, iv: u16, disabled: bool) {
        let word = &mut self.controller.coalescing_disabled[usize::from(iv) / 32];
        let bit = 1 << (iv % 32);
        *word = if disabled { *word | bit } else { *word & !bit };
    }

    fn set_timestamp(&mut self, data: &[u8], now: Time) -> Result<(), Status> {
        let timestamp = Timestamp::read_from_bytes(data).map_err(|_| Status::INTERNAL_ERROR)?;
        self.controller.timestamp_ms = timestamp.tstmp();
        self.controller.timestamp_at_ns = now.0;
        self.controller.timestamp_origin = TimestampOrigin::SET_FEATURES.0.into();
        Ok(())
    }

    /// The timeout is rounded up to the unit of KAS (Base 2.1, 5.1.25.1.8).
    fn set_keep_alive(&mut self, wanted: KeepAliveTimer) -> Result<(), Status> {
        let rounded = wanted.kato().checked_next_multiple_of(KEEP_ALIVE_UNIT_MS);
        self.controller.keep_alive_ms = rounded.ok_or(Status::KEEP_ALIVE_TIMEOUT_INVALID)?;
        Ok(())
    }

    fn set_host_behavior(&mut self, data: &[u8]) -> Result<(), Status> {
        let wanted =
            HostBehaviorSupport::ref_from_bytes(data).map_err(|_| Status::INTERNAL_ERROR)?;
        let switches = [wanted.acre, wanted.etdas, wanted.lbafee, wanted.hdisns];
        // Each is 0 or 1, and only formats that are supported can be enabled.
        if switches.iter().any(|s| *s > 1) || wanted.cdfe & !COPY_FORMATS != 0 {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.controller.host_behavior = switches;
        self.controller.copy_formats = wanted.cdfe.into();
        Ok(())
    }

    /// The Host Identifier as it was set, of 64 or 128 bits.
    pub(crate) fn host_identifier(&self) -> &[u8] {
        let extended = self.controller.host_identifier_extended != 0;
        let len = host_identifier_len(HostIdentifier::new().with_exhid(extended));
        &self.controller.host_identifier[..len]
    }

    pub(super) fn set_host_identifier(&mut self, data: &[u8]) {
        let identifier = &mut self.controller.host_identifier;
        identifier.fill(0);
        identifier[..data.len()].copy_from_slice(data);
        self.controller.host_identifier_extended = u32::from(data.len() == identifier.len());
    }
}

/// The Keep Alive Timeout of a Connect command, rounded up to the unit of KAS as far as that has a
/// number.
pub(super) fn keep_alive_rounded(ms: u32) -> u32 {
    let rounded = ms.checked_next_multiple_of(KEEP_ALIVE_UNIT_MS);
    rounded.unwrap_or(u32::MAX / KEEP_ALIVE_UNIT_MS * KEEP_ALIVE_UNIT_MS)
}

/// Bytes of the Host Identifier that Dword 11 speaks of (Base 2.1, 5.1.25.1.28).
pub(super) fn host_identifier_len(cdw11: HostIdentifier) -> usize {
    if cdw11.exhid() {
        EXTENDED_HOST_IDENTIFIER_SIZE
    } else {
        HOST_IDENTIFIER_SIZE
    }
}

/// Index of the word that holds the bit of a vector.
fn vector_word(iv: u16, context: &FeatureContext) -> Result<usize, Status> {
    // One vector per I/O queue pair and one for the admin queue.
    if iv > context.queues {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    Ok(usize::from(iv) / 32)
}

// Dword 11 of features whose value it is, without what is not kept.

pub(super) fn arbitration(cdw11: u32) -> u32 {
    let a = Arbitration::from(cdw11);
    Arbitration::new()
        .with_ab(a.ab())
        .with_lpw_z(a.lpw_z())
        .with_mpw_z(a.mpw_z())
        .with_hpw_z(a.hpw_z())
        .into()
}

pub(super) fn power_management(cdw11: u32) -> Result<u32, Status> {
    let power = PowerManagement::from(cdw11);
    // Power state 0 is the only one.
    if power.ps() != 0 {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    Ok(PowerManagement::new().with_wh(power.wh()).into())
}

pub(super) fn error_recovery(cdw11: u32) -> u32 {
    let tler = ErrorRecovery::from(cdw11).tler();
    ErrorRecovery::new().with_tler(tler).into()
}

pub(super) fn coalescing(cdw11: u32) -> u32 {
    let c = InterruptCoalescing::from(cdw11);
    InterruptCoalescing::new()
        .with_thr_z(c.thr_z())
        .with_time(c.time())
        .into()
}

pub(super) fn write_atomicity(cdw11: u32) -> u32 {
    let dn = WriteAtomicityNormal::from(cdw11).dn();
    WriteAtomicityNormal::new().with_dn(dn).into()
}

pub(super) fn event_configuration(cdw11: u32, zones: bool, over_fabrics: bool) -> u32 {
    let e = AsynchronousEventConfiguration::from(cdw11);
    AsynchronousEventConfiguration::new()
        .with_shcw(e.shcw())
        .with_nan(e.nan())
        .with_zdcn(e.zdcn() && zones)
        .with_anacn(e.anacn() && over_fabrics)
        .into()
}
