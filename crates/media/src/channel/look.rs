//! Present properties of a channel's medium.

use super::{Channel, Kind};
use crate::look::Look;
use crate::zoned::ZonesLook;

impl Channel {
    /// The medium as it is now.
    #[must_use]
    pub fn look(&self) -> Look<'_> {
        match &self.kind {
            Kind::Timed(timed) => Look {
                timing: Some(timed.look()),
                ..timed.inner().look()
            },
            Kind::Zoned(zoned) => Look {
                zones: zoned.state_ref().map(ZonesLook::of),
                ..Look::default()
            },
            Kind::KeyValue(pairs) => Look {
                pairs: pairs.look(),
                ..Look::default()
            },
            Kind::Vendor(vendor) => vendor.below().look(),
            Kind::Null(_) | Kind::Scripted(_) | Kind::Ram(_) | Kind::File(_) | Kind::Drive(_) => {
                Look::default()
            }
        }
    }
}
