//! Controllers whose one namespace is a block device of this machine, by Linux's ublk driver.
//!
//! A device outlives the server where its drive does: after a death the kernel keeps its requests,
//! and the next server finds the device by its number or by the namespace's mark.

mod device;
mod keeper;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::Context;
use api::config::{Backing, Config, Controller, Namespace};
use api::{Protocol, Refusal};
use engine::SubsystemSlot;
use reactor::message::Way;

use self::device::Wanted;
use self::keeper::Start;
pub(super) use self::keeper::{Keeper, Leave};
use super::{State, Supervisor};

/// How long requests of block devices may take before another process takes over.
const QUIET: Duration = Duration::from_millis(1500);

impl Supervisor {
    /// Has the requests of all block devices wait in the kernel for another process. The devices
    /// whose requests in flight the other process gets again, and why. The supervisor is not locked
    /// meanwhile.
    pub(super) fn quiesce_block_devices(&self) -> Vec<String> {
        let asked: Vec<_> = {
            let state = self.lock();
            let served = state.controllers.iter();
            let keepers = served.filter_map(|it| it.keeper.as_ref());
            keepers.map(|it| (it.view().disk, it.quiesce())).collect()
        };
        let until = Instant::now() + QUIET;
        let mut others = Vec::new();
        for (disk, outcome) in asked {
            let left = until.saturating_duration_since(Instant::now());
            let outcome = outcome.recv_timeout(left).unwrap_or_else(|_| {
                let bound = QUIET.as_millis();
                Err(format!("its requests are not complete within {bound} ms"))
            });
            if let (Err(why), Some(disk)) = (outcome, disk) {
                tracing::warn!("{disk} is not quiet for the upgrade: {why}");
                others.push(format!("{disk}: {why}"));
            }
        }
        others
    }
}

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
            // The keeper finds out which namespace it is.
            lasts: false,
        };
        let new = self.prepare(config, Way::Ublk, reactor, subsystem)?;
        self.add(config, reactor, new)?;
        let served = self.controllers.last().context("it was just added")?;
        let slot = served.slot;
        let devices = self.reactors[reactor].devices(slot);
        let start = Start {
            lasting: lasting(&self.aim()),
            // Where this process does not come to serve, the devices wait for the next one.
            is_quiet: self.is_continuing,
        };
        match Keeper::start(&config.name, devices, wanted, start) {
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

    /// Logs what each block device has had, before another process takes over.
    pub(super) fn log_block_devices(&self) {
        if self.controllers.iter().all(|it| it.keeper.is_none()) {
            return;
        }
        match self.network_counts() {
            Ok(all) => {
                let with_device = self.controllers.iter().filter(|it| it.keeper.is_some());
                for served in with_device {
                    let requests = all.get(&served.name).map_or(0, |it| it.ublk.requests);
                    tracing::info!(
                        controller = served.name,
                        "{requests} requests of the block device in this process"
                    );
                }
            }
            Err(error) => tracing::warn!("{error:#}"),
        }
    }

    /// Serves block devices again, which another process has not taken over.
    pub(super) fn resume_block_devices(&self) {
        for keeper in self.controllers.iter().filter_map(|it| it.keeper.as_ref()) {
            keeper.resume();
        }
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

    /// Has the next device of a controller outlive this process, or not, as the medium of its
    /// namespace does. The controller is about to get one.
    pub(super) fn prepare_device(&self, controller: &str) {
        let mut served = self.controllers.iter();
        let served = served.find(|served| served.name == controller);
        if let Some(keeper) = served.and_then(|served| served.keeper.as_ref()) {
            keeper.set_lasting(lasting(&self.aim()));
        }
    }
}

/// The namespaces whose media outlive the process, however it ends. One that is not configured
/// lies on a pool, and is none of them.
fn lasting(config: &Config) -> BTreeSet<String> {
    let lasts = |namespace: &&Namespace| {
        let mut media = config.media.iter();
        let medium = media.find(|medium| medium.name == namespace.media);
        medium.is_some_and(|it| matches!(it.backing, Backing::File(_) | Backing::Drive(_)))
    };
    let lasting = config.namespace.iter().filter(lasts);
    lasting.map(|namespace| namespace.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::lasting;

    #[test]
    fn a_device_outlives_the_server_only_where_its_medium_does() {
        let text = "[[media]]\nname = \"f\"\nkind = \"file\"\npath = \"/f\"\n[[media]]\nname = \"r\"\nkind = \"ram\"\nsize = \"64MiB\"\n[[namespace]]\nname = \"file\"\nmedia = \"f\"\n[[namespace]]\nname = \"ram\"\nmedia = \"r\"\n";
        let config = api::config::from_toml(text).unwrap();
        assert_eq!(lasting(&config).into_iter().collect::<Vec<_>>(), ["file"]);
    }
}
