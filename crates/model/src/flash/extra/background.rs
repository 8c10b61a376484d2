//! Background collection of an idle drive, so that a burst of writes after a pause finds free
//! lines.

use crate::error::ParameterError;
use crate::flash::geometry::Geometry;
use crate::parameter::InvalidParameter;
use crate::parameters::FlashExtras;

/// Conditions of background collection.
#[derive(Clone, Copy, Debug)]
pub(in crate::flash) struct Background {
    /// A partition with fewer free lines is collected.
    pub(in crate::flash) below: usize,
    /// Idle time before it starts.
    pub(in crate::flash) idle: u64,
}

impl Background {
    /// From the parameters; `None` if it is off.
    ///
    /// # Errors
    ///
    /// More free lines than a full drive can have.
    pub(in crate::flash) fn new(
        geometry: &Geometry,
        extras: &FlashExtras,
    ) -> Result<Option<Self>, ParameterError> {
        // Two lines are open, and one is about to be emptied.
        let most = geometry.lines - geometry.logical.div_ceil(geometry.line) - 3;
        if extras.background_below > most {
            let refused = format!(
                "background_below = {}: when all its pages are written, a partition of this drive has {most} free lines at most",
                extras.background_below
            );
            return Err(InvalidParameter::Unfit(refused).into());
        }
        Ok((extras.background_below > 0).then_some(Self {
            below: extras.background_below as usize,
            idle: extras.background_idle_ns,
        }))
    }
}
