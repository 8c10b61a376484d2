//! Features as they are kept over a restart of the program: plain values, read by the caller that
//! opens the record.
//!
//! An absent value was never saved: its feature starts at its default. Invalid contents of a record
//! (it was edited, or the controller has fewer queues or namespaces than before) are skipped when
//! it is restored.

use subsystem::SavedFeatures;

use super::values::{
    Values, arbitration, coalescing, error_recovery, event_configuration, power_management,
    write_atomicity,
};
use super::{FeatureContext, Features};
use crate::controller::admin::attached::has_zones;

impl Features {
    /// The values to keep: every saved value that is not its default.
    pub(crate) fn saved(&self, context: &FeatureContext) -> SavedFeatures {
        let default = Values::new(context).controller;
        let values = &self.saved.controller;
        let word = |value: u32, default: u32| (value != default).then_some(value);
        let kelvins = |value, default| word(value, default).map(|value| value as u16);
        let disabled =
            |iv: &u16| values.coalescing_disabled[usize::from(*iv) / 32] >> (*iv % 32) & 1 == 1;
        SavedFeatures {
            arbitration: word(values.arbitration, default.arbitration),
            power_management: word(values.power_management, default.power_management),
            over_temperature: kelvins(values.over_temperature, default.over_temperature),
            under_temperature: kelvins(values.under_temperature, default.under_temperature),
            error_recovery: (1..)
                .zip(self.saved.error_recovery.iter().copied())
                .filter(|(_, value)| *value != 0)
                .collect(),
            volatile_write_cache: word(values.write_cache, default.write_cache)
                .map(|_| self.saved.write_cache_enabled()),
            interrupt_coalescing: word(values.coalescing, default.coalescing),
            coalescing_disabled: (0..=context.queues).filter(disabled).collect(),
            write_atomicity: word(values.write_atomicity, default.write_atomicity),
            event_configuration: word(values.event_configuration, default.event_configuration),
        }
    }
}

impl Values {
    /// The defaults, overlaid with the kept values.
    pub(super) fn from_saved(saved: &SavedFeatures, context: &FeatureContext) -> Self {
        let SavedFeatures {
            arbitration: kept_arbitration,
            power_management: kept_power,
            over_temperature,
            under_temperature,
            error_recovery: kept_recovery,
            volatile_write_cache,
            interrupt_coalescing,
            coalescing_disabled,
            write_atomicity: kept_atomicity,
            event_configuration: kept_events,
        } = saved;
        let mut values = Values::new(context);
        let c = &mut values.controller;
        let take = |place: &mut u32, value: Option<u32>| *place = value.unwrap_or(*place);
        take(&mut c.arbitration, kept_arbitration.map(arbitration));
        let power = kept_power.and_then(|value| power_management(value).ok());
        take(&mut c.power_management, power);
        take(&mut c.over_temperature, over_temperature.map(u32::from));
        take(&mut c.under_temperature, under_temperature.map(u32::from));
        take(&mut c.coalescing, interrupt_coalescing.map(coalescing));
        take(&mut c.write_atomicity, kept_atomicity.map(write_atomicity));
        take(
            &mut c.event_configuration,
            kept_events.map(|events| {
                event_configuration(events, has_zones(&context.namespaces), context.over_fabrics)
            }),
        );
        if let Some(enabled) = volatile_write_cache {
            values.set_write_cache(*enabled);
        }
        for iv in coalescing_disabled
            .iter()
            .filter(|iv| **iv <= context.queues)
        {
            values.set_coalescing_disabled(*iv, true);
        }
        for (nsid, value) in kept_recovery {
            let place = (*nsid as usize).checked_sub(1);
            if let Some(place) = place.and_then(|index| values.error_recovery.get_mut(index)) {
                *place = error_recovery(*value);
            }
        }
        values
    }
}
