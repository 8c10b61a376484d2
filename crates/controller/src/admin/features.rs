//! Features (Base 2.1, 5.1.11 and 5.1.25): which exist, their values, and what a host may set.
//!
//! No value is saveable: each starts at its default after every Controller Level Reset. Values that only advise
//! (arbitration burst, coalescing, error recovery time) are kept and read back, and change nothing else.

use nvme_spec::command::{GetFeaturesCdw10, SetFeaturesCdw10};
use nvme_spec::features::{
    Arbitration, AsynchronousEventConfiguration, ErrorRecovery, FeatureId, HostBehaviorSupport,
    InterruptCoalescing, InterruptVectorConfiguration, NumberOfQueues, PowerManagement, Select,
    SupportedCapabilities, TemperatureThreshold, ThresholdType, Timestamp, TimestampOrigin,
    VolatileWriteCache, WriteAtomicityNormal,
};
use nvme_spec::{NSID_ALL, Sqe, Status};
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use crate::config::MAX_IO_QUEUES;
use crate::time::Time;

/// Words of one bit per interrupt vector: one of the admin queue, one per I/O queue pair.
const VECTOR_WORDS: usize = (MAX_IO_QUEUES as usize + 1).div_ceil(32);
/// Over temperature threshold by default: never reached.
const OVER_DEFAULT: u32 = 0xffff;
/// Threshold Temperature Select: the composite temperature, and (of Set Features) all sensors.
const TMPSEL_COMPOSITE: u8 = 0;
const TMPSEL_ALL: u8 = 0b1111;

/// Values of the features of the controller, as they are saved.
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
    /// Over temperature threshold of the composite temperature, in kelvins.
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
    /// The first four bytes of Host Behavior Support.
    pub host_behavior: [u8; 4],
}

/// What the features depend on beside their own values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FeatureContext {
    /// I/O queue pairs offered.
    pub(crate) queues: u16,
    /// An I/O queue exists.
    pub(crate) queues_exist: bool,
    /// Some namespace has a volatile write cache.
    pub(crate) volatile_cache: bool,
    /// The highest namespace id that is valid.
    pub(crate) namespace_limit: u32,
    /// Now.
    pub(crate) now: Time,
}

/// The features and, for each namespace id, those that are its own.
#[derive(Clone, Debug)]
pub(crate) struct Features {
    pub(crate) values: FeatureValues,
    /// Error Recovery by namespace id, from 1.
    pub(crate) error_recovery: Vec<u32>,
}

/// The answer of Get Features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeatureAnswer {
    pub(crate) dw0: u32,
    /// What goes to the host's buffer; empty for most.
    pub(crate) data: Vec<u8>,
}

/// Bytes of the data structure that a feature transfers.
pub(crate) fn data_len(fid: FeatureId) -> usize {
    match fid {
        FeatureId::TIMESTAMP => size_of::<Timestamp>(),
        FeatureId::HOST_BEHAVIOR_SUPPORT => size_of::<HostBehaviorSupport>(),
        _ => 0,
    }
}

fn is_namespace_specific(fid: FeatureId) -> bool {
    fid == FeatureId::ERROR_RECOVERY
}

/// Whether the feature exists here. Without a volatile write cache, its feature does not (Base 2.1, 5.1.25.1.4).
fn exists(fid: FeatureId, context: &FeatureContext) -> bool {
    match fid {
        FeatureId::VOLATILE_WRITE_CACHE => context.volatile_cache,
        FeatureId::ARBITRATION
        | FeatureId::POWER_MANAGEMENT
        | FeatureId::TEMPERATURE_THRESHOLD
        | FeatureId::ERROR_RECOVERY
        | FeatureId::NUMBER_OF_QUEUES
        | FeatureId::INTERRUPT_COALESCING
        | FeatureId::INTERRUPT_VECTOR_CONFIGURATION
        | FeatureId::WRITE_ATOMICITY_NORMAL
        | FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION
        | FeatureId::TIMESTAMP
        | FeatureId::HOST_BEHAVIOR_SUPPORT => true,
        _ => false,
    }
}

impl Features {
    /// Every feature at its default.
    pub(crate) fn new(context: &FeatureContext) -> Self {
        let queues_z = context.queues - 1;
        let mut values = FeatureValues::new_zeroed();
        values.timestamp_at_ns = context.now.0;
        values.over_temperature = OVER_DEFAULT;
        values.write_cache = VolatileWriteCache::new().with_wce(true).into();
        values.number_of_queues = NumberOfQueues::new()
            .with_nsq_z(queues_z)
            .with_ncq_z(queues_z)
            .into();
        Features {
            values,
            error_recovery: vec![0; context.namespace_limit as usize],
        }
    }

    /// I/O submission and completion queues that were allocated: the highest identifiers a host may create.
    pub(crate) fn allocated_queues(&self) -> (u16, u16) {
        let queues = NumberOfQueues::from(self.values.number_of_queues);
        (queues.nsq_z() + 1, queues.ncq_z() + 1)
    }

    pub(crate) fn write_cache_enabled(&self) -> bool {
        VolatileWriteCache::from(self.values.write_cache).wce()
    }

    pub(crate) fn set_write_cache(&mut self, enabled: bool) {
        self.values.write_cache = VolatileWriteCache::new().with_wce(enabled).into();
    }

    /// Over and under temperature thresholds, in kelvins.
    pub(crate) fn temperature_thresholds(&self) -> (u16, u16) {
        (
            self.values.over_temperature as u16,
            self.values.under_temperature as u16,
        )
    }

    pub(crate) fn event_configuration(&self) -> AsynchronousEventConfiguration {
        self.values.event_configuration.into()
    }

    /// Get Features.
    pub(crate) fn get(&self, sqe: &Sqe, context: &FeatureContext) -> Result<FeatureAnswer, Status> {
        let cdw10 = GetFeaturesCdw10::from(sqe.cdw10);
        let fid = cdw10.fid();
        if !exists(fid, context) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        if is_namespace_specific(fid) && !(1..=context.namespace_limit).contains(&sqe.nsid) {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
        }
        match cdw10.sel() {
            Select::CURRENT => self.value(fid, sqe, context),
            // What cannot be saved has its default as its saved value (Base 2.1, 5.1.11).
            Select::DEFAULT | Select::SAVED => Features::new(context).value(fid, sqe, context),
            Select::SUPPORTED_CAPABILITIES => Ok(FeatureAnswer {
                dw0: SupportedCapabilities::new()
                    .with_changeable(true)
                    .with_namespace_specific(is_namespace_specific(fid))
                    .into(),
                data: Vec::new(),
            }),
            _ => Err(Status::INVALID_FIELD_IN_COMMAND),
        }
    }

    fn value(
        &self,
        fid: FeatureId,
        sqe: &Sqe,
        context: &FeatureContext,
    ) -> Result<FeatureAnswer, Status> {
        let values = &self.values;
        let mut data = Vec::new();
        let dw0 = match fid {
            FeatureId::ARBITRATION => values.arbitration,
            FeatureId::POWER_MANAGEMENT => values.power_management,
            FeatureId::TEMPERATURE_THRESHOLD => self.temperature_threshold(sqe.cdw11.into())?,
            FeatureId::ERROR_RECOVERY => self.error_recovery[sqe.nsid as usize - 1],
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
            FeatureId::HOST_BEHAVIOR_SUPPORT => {
                data.extend_from_slice(&values.host_behavior);
                data.resize(size_of::<HostBehaviorSupport>(), 0);
                0
            }
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        };
        Ok(FeatureAnswer { dw0, data })
    }

    fn temperature_threshold(&self, asked: TemperatureThreshold) -> Result<u32, Status> {
        let (over, under) = self.temperature_thresholds();
        match (asked.tmpsel(), asked.thsel()) {
            (TMPSEL_COMPOSITE, ThresholdType::OVER) => Ok(over.into()),
            (TMPSEL_COMPOSITE, ThresholdType::UNDER) => Ok(under.into()),
            _ => Err(Status::INVALID_FIELD_IN_COMMAND),
        }
    }

    /// Milliseconds go on from the value that was set, or from the last reset (Base 2.1, 5.1.25.1.7).
    fn timestamp(&self, now: Time) -> Timestamp {
        let passed_ms = now.since(Time(self.values.timestamp_at_ns)) / 1_000_000;
        Timestamp::new()
            .with_tstmp(self.values.timestamp_ms.wrapping_add(passed_ms) & ((1 << 48) - 1))
            .with_to(TimestampOrigin(self.values.timestamp_origin as u8))
    }

    /// Whether Set Features may go on to its data and value: the feature exists, is not to be saved, and NSID fits
    /// its scope (Base 2.1, 5.1.25).
    pub(crate) fn check_set(sqe: &Sqe, context: &FeatureContext) -> Result<FeatureId, Status> {
        let cdw10 = SetFeaturesCdw10::from(sqe.cdw10);
        let fid = cdw10.fid();
        if !exists(fid, context) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        if cdw10.sv() {
            return Err(Status::FEATURE_IDENTIFIER_NOT_SAVEABLE);
        }
        let named = (1..=context.namespace_limit).contains(&sqe.nsid);
        match (sqe.nsid, is_namespace_specific(fid)) {
            (NSID_ALL, _) | (0, false) => Ok(fid),
            _ if !named => Err(Status::INVALID_NAMESPACE_OR_FORMAT),
            (_, true) => Ok(fid),
            (_, false) => Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC),
        }
    }

    /// Set Features, after [`Features::check_set`]; `data` is [`data_len`] bytes from the host. Returns Dword 0.
    pub(crate) fn set(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        context: &FeatureContext,
    ) -> Result<u32, Status> {
        let fid = SetFeaturesCdw10::from(sqe.cdw10).fid();
        let cdw11 = sqe.cdw11;
        let values = &mut self.values;
        match fid {
            FeatureId::ARBITRATION => {
                let a = Arbitration::from(cdw11);
                values.arbitration = Arbitration::new()
                    .with_ab(a.ab())
                    .with_lpw_z(a.lpw_z())
                    .with_mpw_z(a.mpw_z())
                    .with_hpw_z(a.hpw_z())
                    .into();
            }
            FeatureId::POWER_MANAGEMENT => {
                let power = PowerManagement::from(cdw11);
                // Power state 0 is the only one.
                if power.ps() != 0 {
                    return Err(Status::INVALID_FIELD_IN_COMMAND);
                }
                values.power_management = PowerManagement::new().with_wh(power.wh()).into();
            }
            FeatureId::TEMPERATURE_THRESHOLD => self.set_temperature_threshold(cdw11.into())?,
            FeatureId::ERROR_RECOVERY => self.set_error_recovery(sqe.nsid, cdw11.into())?,
            FeatureId::VOLATILE_WRITE_CACHE => {
                self.set_write_cache(VolatileWriteCache::from(cdw11).wce());
            }
            FeatureId::NUMBER_OF_QUEUES => return self.set_number_of_queues(cdw11.into(), context),
            FeatureId::INTERRUPT_COALESCING => {
                let c = InterruptCoalescing::from(cdw11);
                values.coalescing = InterruptCoalescing::new()
                    .with_thr_z(c.thr_z())
                    .with_time(c.time())
                    .into();
            }
            FeatureId::INTERRUPT_VECTOR_CONFIGURATION => {
                let vector = InterruptVectorConfiguration::from(cdw11);
                let word = &mut values.coalescing_disabled[vector_word(vector.iv(), context)?];
                let bit = 1 << (vector.iv() % 32);
                *word = if vector.cd() {
                    *word | bit
                } else {
                    *word & !bit
                };
            }
            FeatureId::WRITE_ATOMICITY_NORMAL => {
                let dn = WriteAtomicityNormal::from(cdw11).dn();
                values.write_atomicity = WriteAtomicityNormal::new().with_dn(dn).into();
            }
            FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => {
                let e = AsynchronousEventConfiguration::from(cdw11);
                values.event_configuration = AsynchronousEventConfiguration::new()
                    .with_shcw(e.shcw())
                    .with_nan(e.nan())
                    .into();
            }
            FeatureId::TIMESTAMP => self.set_timestamp(data, context.now)?,
            FeatureId::HOST_BEHAVIOR_SUPPORT => self.set_host_behavior(data)?,
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
            ThresholdType::OVER => self.values.over_temperature = wanted.tmpth().into(),
            ThresholdType::UNDER => self.values.under_temperature = wanted.tmpth().into(),
            _ => return Err(Status::INVALID_FIELD_IN_COMMAND),
        }
        Ok(())
    }

    fn set_error_recovery(&mut self, nsid: u32, wanted: ErrorRecovery) -> Result<(), Status> {
        // No namespace supports the error for deallocated blocks (NSFEAT.DAE is 0; NVM 1.1, 4.1.3.2).
        if wanted.dulbe() {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        let value = ErrorRecovery::new().with_tler(wanted.tler()).into();
        match nsid {
            NSID_ALL => self.error_recovery.fill(value),
            _ => self.error_recovery[nsid as usize - 1] = value,
        }
        Ok(())
    }

    /// Base 2.1, 5.1.25.2.1: once, before the first I/O queue is created; never more than was asked for.
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
        self.values.number_of_queues = NumberOfQueues::new()
            .with_nsq_z(wanted.nsq_z().min(most_z))
            .with_ncq_z(wanted.ncq_z().min(most_z))
            .into();
        Ok(self.values.number_of_queues)
    }

    fn set_timestamp(&mut self, data: &[u8], now: Time) -> Result<(), Status> {
        let timestamp = Timestamp::read_from_bytes(data).map_err(|_| Status::INTERNAL_ERROR)?;
        self.values.timestamp_ms = timestamp.tstmp();
        self.values.timestamp_at_ns = now.0;
        self.values.timestamp_origin = TimestampOrigin::SET_FEATURES.0.into();
        Ok(())
    }

    fn set_host_behavior(&mut self, data: &[u8]) -> Result<(), Status> {
        let wanted =
            HostBehaviorSupport::ref_from_bytes(data).map_err(|_| Status::INTERNAL_ERROR)?;
        let switches = [wanted.acre, wanted.etdas, wanted.lbafee, wanted.hdisns];
        // Each is 0 or 1; Copy is not supported, and so no format of its descriptors can be enabled.
        if switches.iter().any(|s| *s > 1) || wanted.cdfe != 0 {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        self.values.host_behavior = switches;
        Ok(())
    }
}

/// Which word holds the bit of a vector.
fn vector_word(iv: u16, context: &FeatureContext) -> Result<usize, Status> {
    // One vector per I/O queue pair and one for the admin queue.
    if iv > context.queues {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    Ok(usize::from(iv) / 32)
}
