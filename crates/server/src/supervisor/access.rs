//! Which hosts may connect to a controller over NVMe/TCP, and their secrets, which are read when
//! the controller is served. No secret is kept elsewhere, shown or saved.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::Context;
use api::config::{self, Controller};
use authentication::Secret;
use engine::ControllerSlot;
use transport::nvme_tcp::{Access, Job, Keys, Powers, powers};

use super::State;

/// The secret of a file.
fn secret(path: &Path) -> anyhow::Result<Arc<Secret>> {
    let text = machine::secret::read(path)?;
    let secret = Secret::read(&text).with_context(|| format!("the secret {}", path.display()))?;
    Ok(Arc::new(secret))
}

fn keys(host: &config::Host) -> anyhow::Result<Option<Keys>> {
    let Some(path) = &host.dhchap_key else {
        return Ok(None);
    };
    let controller = host.dhchap_ctrl_key.as_deref().map(secret).transpose()?;
    Ok(Some(Keys {
        host: secret(path)?,
        controller,
    }))
}

impl State {
    /// Hosts that may connect to a controller.
    pub(super) fn access(&mut self, controller: &Controller) -> anyhow::Result<Access> {
        let Some(allowed) = self.config.allowed_hosts(controller) else {
            return Ok(Access::anyone());
        };
        let mut hosts = BTreeMap::new();
        for nqn in allowed {
            let keys = match self.config.host_of(nqn) {
                Some(host) => keys(host).with_context(|| format!("host {nqn}"))?,
                None => None,
            };
            hosts.insert(nqn.to_owned(), keys);
        }
        Ok(Access::of(hosts, self.powers()?))
    }

    /// Has these hosts be those of the configuration: controllers admit them from now on, with the
    /// secrets that their files have now. Connected hosts that are allowed no longer, or have to
    /// prove a secret which they have not proved, are disconnected.
    ///
    /// # Errors
    /// Nothing is changed where a secret cannot be read.
    pub(super) fn allow(&mut self, hosts: &[config::Host]) -> anyhow::Result<()> {
        let before = std::mem::replace(&mut self.config.host, hosts.to_vec());
        let accesses = self.accesses();
        if accesses.is_err() {
            self.config.host = before;
        }
        for (reactor, slot, access) in accesses? {
            self.reactors[reactor].set_access(slot, access)?;
        }
        Ok(())
    }

    /// The hosts of each controller that is served over NVMe/TCP: its reactor, and its slot there.
    fn accesses(&mut self) -> anyhow::Result<Vec<(usize, ControllerSlot, Access)>> {
        let controllers = self.config.controller.clone();
        let over_tcp = controllers
            .iter()
            .filter(|controller| controller.tcp_address().is_some());
        let mut accesses = Vec::new();
        for controller in over_tcp {
            let mut served = self.controllers.iter();
            let Some(served) = served.find(|served| served.name == controller.name) else {
                continue;
            };
            let (reactor, slot) = (served.reactor, served.slot);
            let access = self.access(controller);
            let access = access.with_context(|| format!("controller {}", controller.name))?;
            accesses.push((reactor, slot, access));
        }
        Ok(accesses)
    }

    /// The NQNs of hosts that a namespace is visible to over a network.
    pub(super) fn visible_to(&self, namespace: &config::Namespace) -> Option<Arc<[String]>> {
        let hosts = namespace.hosts.as_ref()?;
        let nqn = |text: &String| self.config.nqn_of(text).to_owned();
        Some(hosts.iter().map(nqn).collect())
    }

    /// The thread that computes powers: it ends when all that may need it have.
    fn powers(&mut self) -> anyhow::Result<Powers> {
        if let Some(powers) = &self.powers {
            return Ok(powers.clone());
        }
        let (new, jobs) = powers();
        thread::Builder::new()
            .name("authenticate".into())
            .spawn(move || jobs.iter().for_each(Job::run))
            .context("cannot start a thread")?;
        Ok(self.powers.insert(new).clone())
    }
}
