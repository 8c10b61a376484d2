//! Which hosts may connect to a controller over NVMe/TCP, and their secrets, which are read when
//! the controller is served; and the host that this server is to drives of others. No secret is
//! kept elsewhere, shown or saved.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::thread;

use anyhow::Context;
use api::config::{self, Concatenation, Controller};
use authentication::{Secret, TlsKey};
use driver::bus::nvme_tcp::Identity;
use engine::ControllerSlot;
use transport::nvme_tcp::{Access, Allowed, Job, Keys, Powers, Tls, powers, tls_available};
use transport::secure::{Handshakes, handshakes};

use super::State;
use super::channels::channels;
use super::controllers::Words;
use super::network::DISCOVERY;

/// The secret of a file.
fn secret(path: &Path) -> anyhow::Result<Secret> {
    let text = machine::secret::read(path)?;
    Secret::read(&text).with_context(|| format!("the secret {}", path.display()))
}

/// The host that this server is to a drive over NVMe/TCP; `None`: that of the process.
pub(super) fn host_of(drive: &config::DriveMedium) -> anyhow::Result<Option<Arc<Identity>>> {
    let (header, data) = (drive.header_digest, drive.data_digest);
    if drive.hostnqn.is_none() && !header && !data {
        return Ok(None);
    }
    let key = drive.dhchap_key.as_deref().map(secret).transpose()?;
    let controller = drive.dhchap_ctrl_key.as_deref().map(secret).transpose()?;
    let identity = Identity::new(drive.hostnqn.as_deref(), key, controller);
    let mut identity = identity.map_err(anyhow::Error::msg)?;
    if let Some(path) = &drive.tls_key {
        identity = identity.with_tls(tls_key(path)?);
    }
    if drive.concat {
        identity = identity.with_concatenation().map_err(anyhow::Error::msg)?;
    }
    Ok(Some(Arc::new(identity.with_digests(header, data))))
}

/// The key of TLS of a file.
fn tls_key(path: &Path) -> anyhow::Result<TlsKey> {
    let text = machine::secret::read(path)?;
    TlsKey::read(&text).with_context(|| format!("the key {}", path.display()))
}

fn of_host(host: &config::Host) -> anyhow::Result<Allowed> {
    Ok(Allowed {
        keys: keys(host)?,
        tls: host
            .tls_key
            .as_deref()
            .map(tls_key)
            .transpose()?
            .map(Arc::new),
        must_concatenate: host.concatenation == Concatenation::Required,
    })
}

fn keys(host: &config::Host) -> anyhow::Result<Option<Keys>> {
    let Some(path) = &host.dhchap_key else {
        return Ok(None);
    };
    let controller = host.dhchap_ctrl_key.as_deref().map(secret).transpose()?;
    Ok(Some(Keys {
        host: Arc::new(secret(path)?),
        controller: controller.map(Arc::new),
    }))
}

/// The hosts of a controller that is served over NVMe/TCP, and where that is.
struct Admission {
    reactor: usize,
    slot: ControllerSlot,
    access: Access,
    tls: Option<Tls>,
}

impl State {
    /// Hosts that may connect to a controller.
    fn access(&mut self, controller: &Controller) -> anyhow::Result<Access> {
        let Some(allowed) = self.config.allowed_hosts(controller) else {
            return Ok(Access::anyone());
        };
        let mut hosts = BTreeMap::new();
        for (nqn, host) in allowed {
            let allowed = match host {
                Some(host) => of_host(host).with_context(|| format!("host {nqn}"))?,
                None => Allowed::default(),
            };
            hosts.insert(nqn.to_owned(), allowed);
        }
        Ok(Access::of(hosts, self.powers()?, self.generated.clone()))
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
        let accesses = accesses?;
        let secrets = accesses.iter().flat_map(|one| one.access.secrets());
        let secrets = secrets.map(|(nqn, secret)| (nqn.to_owned(), secret.clone()));
        self.generated.retain(&secrets.collect());
        for one in accesses {
            self.reactors[one.reactor].set_access(one.slot, one.access, one.tls)?;
        }
        self.list_all_again()
    }

    /// The hosts of each controller that is served over NVMe/TCP.
    fn accesses(&mut self) -> anyhow::Result<Vec<Admission>> {
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
            let admission = self.admission(controller);
            let admission = admission.with_context(|| format!("controller {}", controller.name));
            let (access, tls) = admission?;
            accesses.push(Admission {
                reactor,
                slot,
                access,
                tls,
            });
        }
        Ok(accesses)
    }

    /// The hosts of a controller, and TLS of those with keys.
    pub(super) fn admission(
        &mut self,
        controller: &Controller,
    ) -> anyhow::Result<(Access, Option<Tls>)> {
        let access = self.access(controller)?;
        let Words { subnqn, .. } = self.words(&self.aim(), controller.subsystem())?;
        let discovery_nqn = self.identities()?.subnqn(DISCOVERY);
        let tls = self.tls(controller, &access, [&subnqn, &discovery_nqn])?;
        Ok((access, tls))
    }

    /// TLS of a controller, where a host that may connect to it has a key or may make one. Where it
    /// only may, a system without OpenSSL has none.
    fn tls(
        &mut self,
        controller: &Controller,
        access: &Access,
        names: [&str; 2],
    ) -> anyhow::Result<Option<Tls>> {
        let is_needed = !channels(&self.config, controller).is_empty();
        let may_have = |host: &config::Host| host.dhchap_key.is_some();
        if !is_needed && !self.config.known_hosts(controller).any(may_have) {
            return Ok(None);
        }
        let [subnqn, discovery_nqn] = names;
        let handshakes = self.handshakes()?;
        match Tls::new(access, subnqn, discovery_nqn, handshakes) {
            Ok(tls) => Ok(Some(tls)),
            Err(error) if is_needed => Err(error).context("tls_key, or concatenation"),
            Err(error) => {
                let name = &controller.name;
                // Hosts that do not ask for a key are served, whatever is wrong with the library.
                if tls_available().is_err() {
                    tracing::info!(
                        controller = name,
                        "no secure channel concatenation: {error}"
                    );
                } else {
                    tracing::warn!(
                        controller = name,
                        "no secure channel concatenation: {error}"
                    );
                }
                Ok(None)
            }
        }
    }

    /// The thread that does handshakes: it ends when all that may need it have.
    pub(super) fn handshakes(&mut self) -> anyhow::Result<Handshakes> {
        if let Some(handshakes) = &self.handshakes {
            return Ok(handshakes.clone());
        }
        let (new, handshaker) = handshakes()?;
        thread::Builder::new()
            .name("handshake".into())
            .spawn(move || handshaker.run())
            .context("cannot start a thread")?;
        Ok(self.handshakes.insert(new).clone())
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
