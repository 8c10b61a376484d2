//! The entrance of a block device of this machine: nothing listens. Its one host is the kernel,
//! which comes when the server has made the device.

use std::sync::Arc;

use controller::ControllerConfig;
use engine::SubsystemSlot;

use super::entrance::Roster;
use crate::answer::Answer;
use crate::presence::Presence;

/// Devices at the same time.
const DEVICES: usize = 1;

/// See the module.
#[derive(Debug)]
pub(crate) struct BlockDevice {
    roster: Roster,
    /// No device is taken until [`Self::open`].
    is_closed: bool,
}

impl BlockDevice {
    /// Without a device. `template`: the configuration of the device's controller.
    pub(crate) fn new(
        template: ControllerConfig,
        subsystem: SubsystemSlot,
        presence: Arc<Presence>,
    ) -> Self {
        Self {
            roster: Roster::new(template, subsystem, DEVICES, presence),
            is_closed: false,
        }
    }

    pub(crate) fn roster(&self) -> &Roster {
        &self.roster
    }

    pub(crate) fn roster_mut(&mut self) -> &mut Roster {
        &mut self.roster
    }

    /// Why no device can be taken. One can where there is none, and none that is leaving.
    pub(crate) fn refusal(&self) -> Option<&'static str> {
        if self.is_closed {
            Some("another process is about to take over")
        } else if self.roster.is_leaving() {
            Some("its controller is being removed")
        } else if !self.roster.associations().is_empty() || !self.roster.has_room(false) {
            Some("the device before it has not gone")
        } else {
            None
        }
    }

    /// Takes no device until [`Self::open`].
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
    }

    /// Takes one again.
    pub(crate) fn open(&mut self) {
        self.is_closed = false;
    }

    /// Begins the removal.
    pub(crate) fn remove(&mut self, answer: Answer<()>) {
        self.roster.remove(answer);
    }

    /// Reports the end of the removal.
    pub(crate) fn finish(self) {
        self.roster.finish();
    }
}
