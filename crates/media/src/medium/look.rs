//! Properties of a medium while no channel has it.

use model::Model;

use super::Medium;
use crate::look::{Asked, Look, Stalls, TimingLook};
use crate::zoned::ZonesLook;

impl Medium {
    /// Looks at the medium while no channel has it: `None` where one has.
    pub fn look<T>(&self, looks: impl FnOnce(&Look<'_>) -> T) -> Option<T> {
        if !self.has_timing() {
            return self.look_below(None, looks);
        }
        let timing = |model: &Model| {
            let timing = TimingLook {
                model,
                asked: Asked::default(),
                stalls: Stalls::default(),
            };
            self.look_below(Some(timing), looks)
        };
        self.timing().at_rest(timing)?
    }

    /// The same, with what is known of its timing.
    fn look_below<T>(
        &self,
        timing: Option<TimingLook<'_>>,
        looks: impl FnOnce(&Look<'_>) -> T,
    ) -> Option<T> {
        let pairs = match self.key_value() {
            Some(medium) => Some(medium.look()?),
            None => None,
        };
        let look = |zones: Option<ZonesLook<'_>>| {
            looks(&Look {
                timing,
                zones,
                pairs,
            })
        };
        match self.zones() {
            Some(zoned) => zoned.with_state(|state| look(Some(ZonesLook::of(state)))),
            None => Some(look(None)),
        }
    }
}
