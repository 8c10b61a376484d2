//! Controllers whose one namespace is a block device of this machine, by Linux's ublk driver.
//!
//! A device outlives the server where its drive does: after a death the kernel keeps its requests,
//! and the next server finds the device by its number or by the namespace's mark.

mod device;
mod keeper;

use anyhow::Context;
use api::config::{Backing, Controller};
use api::{Protocol, Refusal};
use engine::SubsystemSlot;
use reactor::message::Way;

use self::device::Wanted;
pub(super) use self::keeper::{Keeper, Leave};
use super::State;

impl State {
    /// Serves a controller whose host is the kernel. `id`: the number of its device, if it is
    /// chosen.
    pub(super) fn serve_over_ublk(
        &mut self,
        config: &Controller,
        id: Option<u32>,
        reactor: usize,
        subsystem: SubsystemSlot,
    ) -> anyhow::Result<()> {
        let wanted = Wanted {
            id,
            queues: config.queues,
            lasts: self.outlives(config),
        };
        let new = self.prepare(config, Way::Ublk, reactor, subsystem)?;
        self.add(config, reactor, new)?;
        let served = self.controllers.last().context("it was just added")?;
        let slot = served.slot;
        let devices = self.reactors[reactor].devices(slot);
        match Keeper::start(&config.name, devices, wanted) {
            Ok(keeper) => {
                if let Some(served) = self.controllers.last_mut() {
                    served.protocol = Some(Protocol::Ublk);
                    served.keeper = Some(keeper);
                }
                Ok(())
            }
            Err(error) => {
                self.controllers.pop();
                self.reactors[reactor].remove_controller(slot)?;
                Err(error)
            }
        }
    }

    /// Checks that a controller whose host is the kernel can get a namespace.
    pub(super) fn check_device(&self, name: &str, controller: &str) -> Result<(), Refusal> {
        self.check_single(
            (name, controller),
            "a block device has exactly one",
            "a controller of its own",
            |namespace, set| {
                let has_keys = !set.has_blocks();
                has_keys.then(|| {
                    format!("namespace `{namespace}` has keys and values, which a block device cannot express: serve it over NVMe")
                })
            },
        )
    }

    /// Ends all block devices, at the same time.
    pub(super) fn end_block_devices(&mut self, leave: Leave) -> anyhow::Result<()> {
        for keeper in self.controllers.iter().filter_map(|it| it.keeper.as_ref()) {
            keeper.ask(leave);
        }
        let keepers = self.controllers.iter_mut();
        let keepers: Vec<_> = keepers.filter_map(|it| it.keeper.take()).collect();
        let mut result = Ok(());
        for keeper in keepers {
            result = result.and(keeper.finish());
        }
        result
    }

    /// Deletes the block device of a controller that is being deleted, if it has one.
    pub(super) fn end_block_device(&mut self, at: usize) -> anyhow::Result<()> {
        match self.controllers[at].keeper.take() {
            Some(keeper) => {
                keeper.ask(Leave::Delete);
                keeper.finish()
            }
            None => Ok(()),
        }
    }

    /// Whether the media of a controller's namespaces outlive this process, however it ends.
    fn outlives(&self, config: &Controller) -> bool {
        let aim = self.aim();
        let mut named = aim
            .namespace
            .iter()
            .filter(|n| config.namespaces.contains(&n.name));
        named.all(|namespace| {
            let mut media = aim.media.iter();
            let medium = media.find(|medium| medium.name == namespace.media);
            medium.is_some_and(|medium| {
                matches!(medium.backing, Backing::File(_) | Backing::Drive(_))
            })
        })
    }
}
