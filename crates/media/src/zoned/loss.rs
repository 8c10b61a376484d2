//! Zones that a drive gives up by itself (ZNS 1.1, 2.1.1.3): what hosts meet when flash wears out,
//! brought about by an operator.
//!
//! A zone that is read only keeps what was written and takes no more; one that is offline is gone
//! with its data. There is no way back. It is recorded as any change of a zone is, and has no part
//! in what is under way: a write that the medium below has taken ends as it ends.
//!
//! It does NOT tell hosts: that is the controllers', which are told by whoever asks for it here.

use nvme_spec::zoned::ZoneState;

use super::{State, ZonedChannel, ZonedMedium};

/// What becomes of a zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZoneLoss {
    /// It can be read and no longer written (ZSRO).
    ReadOnly,
    /// It can be neither read nor written (ZSO).
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

/// Why a zone cannot be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ZoneLossError {
    /// The medium has none.
    #[error("it has no zones")]
    NoZones,
    /// A channel has them.
    #[error("its zones are with the reactor that serves it")]
    Served,
    /// It has fewer.
    #[error("it has {zones} zones: name one of 0 to {}", zones - 1)]
    NoSuchZone {
        /// How many.
        zones: u32,
    },
    /// It was given up before.
    #[error("zone {zone} is {is} already, and there is no way back")]
    Gone {
        /// Its number.
        zone: u32,
        /// What it is.
        is: &'static str,
    },
}

impl State {
    /// Gives a zone up; its first byte in the medium.
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
    /// Gives a zone up; its first byte in the medium.
    pub(crate) fn lose(&mut self, zone: u32, to: ZoneLoss) -> Result<u64, ZoneLossError> {
        self.state().lose(zone, to)
    }
}

impl ZonedMedium {
    /// Gives a zone up while no channel has the zones; its first byte in the medium.
    pub(crate) fn lose(&self, zone: u32, to: ZoneLoss) -> Result<u64, ZoneLossError> {
        self.with_state(|state| state.lose(zone, to))
            .unwrap_or(Err(ZoneLossError::Served))
    }
}
