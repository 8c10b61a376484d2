//! Block devices of this machine: which namespace one gets, and its controller.

use std::io::ErrorKind;

use engine::ControllerSlot;
use port::time::Time;
use transport::nvme_tcp::Proof;
use transport::ublk::{self, Disk, End, Session, disk};

use super::Reactor;
use crate::hosted::Hosted;
use crate::hosted::block_device::BlockDevice;
use crate::hosted::link::Link;
use crate::message::NewDevice;
use crate::presence::HostView;

/// Its name in the log.
const DEVICE: &str = "a block device";

impl Reactor {
    fn block_device_mut(&mut self, index: usize) -> Option<&mut BlockDevice> {
        let hosted = self.hosted.get_mut(index).and_then(Option::as_mut);
        hosted.and_then(Hosted::block_device_mut)
    }

    /// The only namespace of an entrance that a block device can have, with its name, or how many
    /// there are.
    pub(super) fn only_block_namespace(&mut self, index: usize) -> Result<(String, Disk), usize> {
        let entrance = self.engine.peek_controller(ControllerSlot(index));
        let entrance = entrance.map(|entrance| entrance.id()).ok_or(0_usize)?;
        let hosted = self.hosted.get(index).and_then(Option::as_ref);
        let roster = hosted.and_then(Hosted::roster).ok_or(0_usize)?;
        let subsystem = self.engine.subsystem_mut(roster.subsystem());
        let named = subsystem.ok_or(0_usize)?.named(entrance).into_iter();
        let mut disks: Vec<_> = named
            .filter_map(|(name, namespace)| Some((name, disk(&namespace)?)))
            .collect();
        match disks.len() {
            1 => disks.pop().ok_or(0),
            count => Err(count),
        }
    }

    /// Serves a device that was opened: it gets a controller. Where it gets none, its file closes.
    ///
    /// # Errors
    /// What it lacks.
    pub(super) fn attach_device(
        &mut self,
        slot: ControllerSlot,
        new: NewDevice,
    ) -> Result<(), String> {
        let (index, now) = (slot.0, self.clock.now());
        let attached = self.try_attach_device(index, new, now);
        if let Err(why) = &attached {
            self.tell_of_lack(index, DEVICE, why, now);
            if let Some(roster) = self.roster_mut(index) {
                roster.counts_mut().refuse(End::Controller.name());
            }
        }
        attached
    }

    fn try_attach_device(&mut self, index: usize, new: NewDevice, now: Time) -> Result<(), String> {
        let NewDevice {
            device,
            name,
            disk,
            news,
        } = new;
        let entrance = self.block_device_mut(index);
        let entrance = entrance.ok_or("the controller has no block device")?;
        if let Some(refusal) = entrance.refusal() {
            return Err(refusal.to_owned());
        }
        let made = self.make_controller(index);
        let slot = made.map_err(|error| format!("no controller: {error:#}"))?;
        let controller = self.engine.controller_mut(slot);
        let controller = controller.ok_or("no controller: it is gone")?;
        let host = HostView {
            cntlid: controller.id().0,
            nqn: String::new(),
            export: Some(name),
            address: None,
            proof: Proof::default(),
            is_secured: false,
            io_queues: ublk::QUEUES,
            keep_alive_ms: 0,
            connected: now,
        };
        match Session::new(device, disk, news, controller, now) {
            Ok(session) => {
                self.attach(index, slot, Link::Ublk(Box::new(session)), host, now);
                Ok(())
            }
            Err(error) => {
                self.engine.remove_controller(slot);
                if error.kind() == ErrorKind::InvalidInput {
                    return Err(format!("{error}; delete the device and add it again"));
                }
                Err(format!(
                    "no memory or io_uring for its requests: {error}; raise the limits of memory and of open files"
                ))
            }
        }
    }
}

#[cfg(test)]
mod tests;
