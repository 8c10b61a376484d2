//! Loss of zones, as by worn-out flash (ZNS 1.1, 2.1.1.3), triggered by an operator.
//!
//! A read-only zone keeps its data and accepts no more; an offline zone has lost its data. There is
//! no way back. The loss is recorded like any change of a zone, and does not affect commands in
//! flight: a write that the medium below has accepted ends normally.
//!
//! Not included: notification of hosts. The caller must notify the controllers.

use nvme_spec::zoned::ZoneState;

use super::{State, ZonedChannel, ZonedMedium};

/// New state of a lost zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneLoss {
    /// Readable but not writable (ZSRO).
    ReadOnly,
    /// Neither readable nor writable (ZSO).
    Offline,
}

impl ZoneLoss {
    fn state(self) -> ZoneState {
        match self {
            ZoneLoss::ReadOnly => ZoneState::READ_ONLY,
            ZoneLoss::Offline => ZoneState::OFFLINE,
        }
    }
}

/// Why a zone cannot be lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneLossError {
    /// The medium has no zones.
    #[error("it has no zones")]
    NoZones,
    /// A channel has the zones.
    #[error("its zones are with the reactor that serves it")]
    Served,
    /// The zone does not exist.
    #[error("it has {zones} zones: name one of 0 to {}", zones - 1)]
    NoSuchZone {
        /// Number of zones.
        zones: u32,
    },
    /// The zone was lost before.
    #[error("zone {zone} is {is} already, and there is no way back")]
    Gone {
        /// Number of the zone.
        zone: u32,
        /// Its state.
        is: &'static str,
    },
}

impl State {
    /// Makes a zone read-only or offline; returns its first byte in the medium.
    fn lose(&mut self, zone: u32, to: ZoneLoss) -> Result<u64, ZoneLossError> {
        let zones = self.zones.geometry().zones;
        if zone >= zones {
            return Err(ZoneLossError::NoSuchZone { zones });
        }
        if !self.zones.give_up(zone, to.state()) {
            let is = match self.zones.get(zone).state {
                ZoneState::OFFLINE => "offline",
                _ => "read only",
            };
            return Err(ZoneLossError::Gone { zone, is });
        }
        if let Some(keeper) = &mut self.keeper {
            keeper.touch(zone);
        }
        Ok(self.zones.start(zone))
    }
}

impl<C> ZonedChannel<C> {
    /// Makes a zone read-only or offline; returns its first byte in the medium.
    pub(crate) fn lose(&mut self, zone: u32, to: ZoneLoss) -> Result<u64, ZoneLossError> {
        self.state().lose(zone, to)
    }
}

impl ZonedMedium {
    /// Makes a zone read-only or offline while no channel has the zones; returns its first byte in
    /// the medium.
    pub(crate) fn lose(&self, zone: u32, to: ZoneLoss) -> Result<u64, ZoneLossError> {
        self.with_state(|state| state.lose(zone, to))
            .unwrap_or(Err(ZoneLossError::Served))
    }
}
