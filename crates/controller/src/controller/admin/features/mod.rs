//! Features (Base 2.1, 4.4, 5.1.11 and 5.1.25): which exist, their scope, and their current,
//! default and saved values.
//!
//! After every Controller Level Reset a feature has its saved value, or its default if it is not
//! saveable or was never saved. Invariant: the saved value of a feature that is not saveable is its
//! default. Values that are only hints (arbitration, error recovery time) are kept and read back
//! here; the code that acts on them reads them from here.

mod saved;
mod unkept;
mod values;

use std::sync::Arc;

use nvme_spec::command::{GetFeaturesCdw10, SetFeaturesCdw10};
use nvme_spec::copy::CopyDescriptorFormats;
use nvme_spec::features::{
    Arbitration, AsynchronousEventConfiguration, EXTENDED_HOST_IDENTIFIER_SIZE, FeatureId,
    HostBehaviorSupport, InterruptCoalescing, NumberOfQueues, Select, SupportedCapabilities,
    Timestamp,
};
use nvme_spec::reservation::ReservationNotificationMask;
use nvme_spec::{NSID_ALL, Sqe, Status};
use port::namespace::NamespaceTable;
use port::time::Time;
use subsystem::SavedFeatures;
use unkept::Unkept;
pub use values::FeatureValues;
pub(crate) use values::Values;
use values::{host_identifier_len, keep_alive_rounded};

use super::attached::volatile_cache;

/// Values beside their own on which features depend.
#[derive(Clone, Debug)]
pub(crate) struct FeatureContext {
    /// I/O queue pairs offered.
    pub(crate) queues: u16,
    /// An I/O queue exists.
    pub(crate) queues_exist: bool,
    /// The namespaces that are attached.
    pub(crate) namespaces: Arc<NamespaceTable>,
    /// The controller is reached over a network.
    pub(crate) over_fabrics: bool,
    /// The highest namespace id that is valid.
    pub(crate) namespace_limit: u32,
    /// WCTEMP of Identify Controller, in kelvins.
    pub(crate) warning_temperature: u16,
    /// Now.
    pub(crate) now: Time,
}

/// The features of the controller and of its namespaces.
#[derive(Clone, Debug)]
pub(crate) struct Features {
    pub(crate) current: Values,
    saved: Values,
    /// The volatile write cache was turned off, to be saved when its media are flushed.
    saves_write_cache: bool,
    /// Values to be saved that are not on stable storage yet, oldest first.
    unkept: Vec<Unkept>,
}

/// The answer of Get Features.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FeatureAnswer {
    pub(crate) dw0: u32,
    /// Data for the host's buffer; empty for most.
    pub(crate) data: Vec<u8>,
}

/// Bytes of the data structure that Set Features transfers.
pub(crate) fn data_len(fid: FeatureId, cdw11: u32) -> usize {
    match fid {
        FeatureId::TIMESTAMP => size_of::<Timestamp>(),
        FeatureId::HOST_BEHAVIOR_SUPPORT => size_of::<HostBehaviorSupport>(),
        FeatureId::HOST_IDENTIFIER => host_identifier_len(cdw11.into()),
        _ => 0,
    }
}

/// Properties of a feature, whatever its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Traits {
    /// It is saveable. Some of the others would be wrong for the next host (its timestamp, its
    /// identifier, its capabilities), and the number of queues ends with the queues.
    pub(crate) saveable: bool,
    /// Each namespace has a value of its own.
    pub(crate) namespace_specific: bool,
    /// Set Features can change it.
    pub(crate) changeable: bool,
}

/// The supported features and their properties. Without a volatile write cache, its feature does
/// not exist (Base 2.1, 5.1.25.1.4). Over fabrics there are no interrupts, a host has the
/// identifier that it connected with, and nothing is kept for the next association.
pub(crate) fn traits(
    fid: FeatureId,
    namespaces: &NamespaceTable,
    over_fabrics: bool,
) -> Option<Traits> {
    let (saveable, namespace_specific) = match fid {
        FeatureId::VOLATILE_WRITE_CACHE if !volatile_cache(namespaces) => return None,
        FeatureId::INTERRUPT_COALESCING | FeatureId::INTERRUPT_VECTOR_CONFIGURATION
            if over_fabrics =>
        {
            return None;
        }
        FeatureId::ARBITRATION
        | FeatureId::POWER_MANAGEMENT
        | FeatureId::TEMPERATURE_THRESHOLD
        | FeatureId::VOLATILE_WRITE_CACHE
        | FeatureId::INTERRUPT_COALESCING
        | FeatureId::INTERRUPT_VECTOR_CONFIGURATION
        | FeatureId::WRITE_ATOMICITY_NORMAL
        | FeatureId::ASYNCHRONOUS_EVENT_CONFIGURATION => (true, false),
        FeatureId::ERROR_RECOVERY => (true, true),
        FeatureId::RESERVATION_NOTIFICATION_MASK | FeatureId::RESERVATION_PERSISTENCE => {
            (false, true)
        }
        FeatureId::NUMBER_OF_QUEUES
        | FeatureId::TIMESTAMP
        | FeatureId::KEEP_ALIVE_TIMER
        | FeatureId::HOST_BEHAVIOR_SUPPORT
        | FeatureId::IO_COMMAND_SET_PROFILE
        | FeatureId::HOST_IDENTIFIER => (false, false),
        _ => return None,
    };
    Some(Traits {
        saveable: saveable && !over_fabrics,
        namespace_specific,
        changeable: !(over_fabrics && fid == FeatureId::HOST_IDENTIFIER),
    })
}

impl Features {
    /// Every feature at its saved value, or at its default.
    pub(crate) fn new(saved: &SavedFeatures, context: &FeatureContext) -> Self {
        let saved = Values::from_saved(saved, context);
        Features {
            current: saved.clone(),
            saved,
            saves_write_cache: false,
            unkept: Vec::new(),
        }
    }

    /// A Controller Level Reset: current values are the saved ones again.
    pub(crate) fn reset(&mut self, now: Time) {
        self.current = self.saved.clone();
        self.current.controller.timestamp_at_ns = now.0;
        self.saves_write_cache = false;
        self.unkept.clear();
    }

    pub(crate) fn arbitration(&self) -> Arbitration {
        self.current.controller.arbitration.into()
    }

    /// Formats of Copy's ranges that the host has enabled (Base 2.1, 5.1.25.1.14).
    pub(crate) fn copy_formats(&self) -> CopyDescriptorFormats {
        (self.current.controller.copy_formats as u16).into()
    }

    /// Removes the values of deleted namespaces: a later namespace with such an identifier is
    /// another. Returns whether there is something new to keep.
    pub(crate) fn forget_namespaces(&mut self, exists: impl Fn(u32) -> bool) -> bool {
        self.current.forget_namespaces(&exists);
        self.saved.forget_namespaces(&exists)
    }

    /// I/O submission and completion queues that were allocated: the highest identifiers a host may
    /// create.
    pub(crate) fn allocated_queues(&self) -> (u16, u16) {
        let queues = NumberOfQueues::from(self.current.controller.number_of_queues);
        (queues.nsq_z() + 1, queues.ncq_z() + 1)
    }

    pub(crate) fn write_cache_enabled(&self) -> bool {
        self.current.write_cache_enabled()
    }

    /// The flush after disabling the write cache has ended. If it failed, the cached data is not
    /// safe: the cache stays enabled, and nothing is saved. Returns whether there is something new
    /// to keep.
    pub(crate) fn write_cache_flushed(&mut self, safe: bool) -> bool {
        let saves = std::mem::take(&mut self.saves_write_cache);
        match safe {
            true if saves => self.saved.set_write_cache(false),
            true => (),
            false => self.current.set_write_cache(true),
        }
        safe && saves
    }

    /// Over and under temperature thresholds, in kelvins; WCTEMP is the default of the first.
    pub(crate) fn temperature_thresholds(&self, warning: u16) -> (u16, u16) {
        let over = self.current.over_temperature(warning);
        (over, self.current.controller.under_temperature as u16)
    }

    pub(crate) fn interrupt_coalescing(&self) -> InterruptCoalescing {
        self.current.controller.coalescing.into()
    }

    /// Whether interrupts of this vector are never coalesced.
    pub(crate) fn coalescing_disabled(&self, vector: u16) -> bool {
        let words = &self.current.controller.coalescing_disabled;
        let word = words.get(usize::from(vector) / 32);
        word.is_none_or(|word| word >> (vector % 32) & 1 == 1)
    }

    pub(crate) fn event_configuration(&self) -> AsynchronousEventConfiguration {
        self.current.controller.event_configuration.into()
    }

    /// The reservation notifications of a namespace that the host has masked.
    pub(crate) fn reservation_mask(&self, nsid: u32) -> ReservationNotificationMask {
        let masks = &self.current.reservation_masks;
        let mask = nsid
            .checked_sub(1)
            .and_then(|index| masks.get(index as usize));
        mask.copied().unwrap_or_default().into()
    }

    /// A host has connected with this identifier and Keep Alive Timeout.
    pub(crate) fn connected(&mut self, host_id: &[u8; 16], keep_alive_ms: u32) {
        self.current.set_host_identifier(host_id);
        self.current.controller.keep_alive_ms = keep_alive_rounded(keep_alive_ms);
    }

    /// Keep Alive Timeout in milliseconds; 0 is none.
    pub(crate) fn keep_alive_ms(&self) -> u32 {
        self.current.controller.keep_alive_ms
    }

    /// Get Features.
    pub(crate) fn get(&self, sqe: &Sqe, context: &FeatureContext) -> Result<FeatureAnswer, Status> {
        let cdw10 = GetFeaturesCdw10::from(sqe.cdw10);
        let traits = traits(cdw10.fid(), &context.namespaces, context.over_fabrics);
        let traits = traits.ok_or(Status::INVALID_FIELD_IN_COMMAND)?;
        if cdw10.fid() == FeatureId::ERROR_RECOVERY && sqe.nsid == 0 {
            // See `Values::shared_error_recovery`.
        } else if traits.namespace_specific {
            check_attached(sqe.nsid, context)?;
        } else if sqe.nsid != NSID_ALL && sqe.nsid > context.namespace_limit {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
        }
        // Hosts over fabrics have identifiers of 128 bits alone.
        let short = cdw10.fid() == FeatureId::HOST_IDENTIFIER
            && host_identifier_len(sqe.cdw11.into()) != EXTENDED_HOST_IDENTIFIER_SIZE;
        if context.over_fabrics && short && cdw10.sel() != Select::SUPPORTED_CAPABILITIES {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        match cdw10.sel() {
            Select::CURRENT => self.current.get(sqe, context),
            Select::DEFAULT => Values::new(context).get(sqe, context),
            Select::SAVED => self.saved.get(sqe, context),
            Select::SUPPORTED_CAPABILITIES => Ok(FeatureAnswer {
                dw0: SupportedCapabilities::new()
                    .with_saveable(traits.saveable)
                    .with_namespace_specific(traits.namespace_specific)
                    .with_changeable(traits.changeable)
                    .into(),
                data: Vec::new(),
            }),
            _ => Err(Status::INVALID_FIELD_IN_COMMAND),
        }
    }

    /// Checks Set Features before its data and value: the feature exists, is saveable if that is
    /// requested, and NSID fits its scope (Base 2.1, 4.4 and 5.1.25).
    pub(crate) fn check_set(sqe: &Sqe, context: &FeatureContext) -> Result<FeatureId, Status> {
        let cdw10 = SetFeaturesCdw10::from(sqe.cdw10);
        let fid = cdw10.fid();
        let traits = traits(fid, &context.namespaces, context.over_fabrics);
        let traits = traits.ok_or(Status::INVALID_FIELD_IN_COMMAND)?;
        if !traits.changeable {
            return Err(Status::COMMAND_SEQUENCE_ERROR);
        }
        if cdw10.sv() && !traits.saveable {
            return Err(Status::FEATURE_IDENTIFIER_NOT_SAVEABLE);
        }
        match (sqe.nsid, traits.namespace_specific) {
            (NSID_ALL, _) | (0, false) => Ok(fid),
            (nsid, true) => check_attached(nsid, context).map(|()| fid),
            (nsid, false) if nsid > context.namespace_limit => {
                Err(Status::INVALID_NAMESPACE_OR_FORMAT)
            }
            (_, false) => Err(Status::FEATURE_NOT_NAMESPACE_SPECIFIC),
        }
    }

    /// Set Features, after [`Features::check_set`]; `data` is [`data_len`] bytes from the host.
    /// Returns Dword 0.
    pub(crate) fn set(
        &mut self,
        sqe: &Sqe,
        data: &[u8],
        context: &FeatureContext,
    ) -> Result<u32, Status> {
        let cached = self.current.write_cache_enabled();
        let saves = SetFeaturesCdw10::from(sqe.cdw10).sv();
        let before = saves.then(|| Unkept::before(sqe, &mut self.current, &mut self.saved));
        let dw0 = self.current.set(sqe, data, context)?;
        if let Some(before) = before {
            if cached && !self.current.write_cache_enabled() {
                self.saves_write_cache = true;
            } else {
                self.saved.set(sqe, data, context)?;
            }
            self.unkept.push(before.done(&mut self.current));
        }
        Ok(dw0)
    }
}

/// The value of a namespace is that of one that is attached (Base 2.1, 3.2.1.5 and 4.4).
pub(crate) fn check_attached(nsid: u32, context: &FeatureContext) -> Result<(), Status> {
    if nsid == 0 || nsid > context.namespace_limit {
        return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
    }
    match context.namespaces.get(nsid) {
        Some(_) => Ok(()),
        None => Err(Status::INVALID_FIELD_IN_COMMAND),
    }
}
