//! Requests to a block device's reactor from the thread that looks after the device.

use anyhow::{Context, anyhow};
use engine::ControllerSlot;
use transport::ublk::Disk;

use crate::answer::{Answer, answer};
use crate::message::{ANSWER_TIMEOUT, Address, Message, NewDevice};

/// See the module. It works from any thread.
#[derive(Clone, Debug)]
pub struct Devices {
    address: Address,
    slot: ControllerSlot,
}

impl Devices {
    pub(crate) fn new(address: Address, slot: ControllerSlot) -> Self {
        Self { address, slot }
    }

    /// The only namespace that the device of the controller can have, with its name, or how many
    /// there are.
    ///
    /// # Errors
    /// The reactor does not answer.
    pub fn only_namespace(&self) -> anyhow::Result<Result<(String, Disk), usize>> {
        self.ask(|answer| Message::OnlyNamespace(self.slot, answer))
    }

    /// Serves a device.
    ///
    /// # Errors
    /// What it lacks.
    pub fn attach(&self, new: NewDevice) -> anyhow::Result<()> {
        let new = Box::new(new);
        let attached = self.ask(|answer| Message::AttachDevice(self.slot, new, answer))?;
        attached.map_err(anyhow::Error::msg)
    }

    fn ask<T>(&self, message: impl FnOnce(Answer<T>) -> Message) -> anyhow::Result<T> {
        let (answer, answered) = answer();
        let sent = self.address.tell(message(answer));
        sent.map_err(|_| anyhow!("the reactor does not take messages"))?;
        answered
            .within(ANSWER_TIMEOUT)
            .context("the reactor did not respond within 10 s")
    }
}
