//! Discovery services of entrances, announced by multicast DNS (TP 8009): service
//! `_nvme-disc._tcp`, with the address of the entrance and the name of the discovery subsystem.
//!
//! A library answers queries, on a thread of its own that exists while there is something to
//! announce. It follows the addresses of the machine: an interface may vanish and come back. What
//! it cannot do is logged once, and hosts still find what they look for at its address.

use std::net::{IpAddr, SocketAddr};
use std::thread;
use std::time::Duration;

use anyhow::Context;
use mdns_sd::{DaemonEvent, IfKind, Receiver, ServiceDaemon, ServiceInfo};
use sha2::{Digest, Sha256};

/// Service of discovery controllers over TCP (TP 8009).
const SERVICE: &str = "_nvme-disc._tcp.local.";
/// Most bytes of an entrance's name in that of its service: a label has at most 63 (RFC 1035).
const MAX_NAME: usize = 40;
/// Time for the thread to send its farewell.
const FAREWELL: Duration = Duration::from_secs(1);

/// A discovery service to announce.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    /// Name of its entrance.
    pub(crate) entrance: String,
    /// Where hosts reach it. An unspecified address stands for those of the machine.
    pub(crate) address: SocketAddr,
    /// Name of the discovery subsystem.
    pub(crate) subnqn: String,
}

impl Service {
    fn info(&self) -> Result<ServiceInfo, mdns_sd::Error> {
        // No other service has the name: a machine may have several servers, each with a subsystem
        // of its own.
        let digest = Sha256::digest(format!("{} {}", self.subnqn, self.entrance));
        let unique: String = digest[..8]
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let name = &self.entrance[..self.entrance.len().min(MAX_NAME)];
        let ip = self.address.ip().to_canonical();
        let fixed = Some(ip).filter(|ip| !ip.is_unspecified());
        let info = ServiceInfo::new(
            SERVICE,
            &format!("{name}-{unique}"),
            // Not the machine's name: another program may announce that, with other addresses.
            &format!("nvmirage-{unique}.local."),
            fixed.as_slice(),
            self.address.port(),
            &[("p", "tcp"), ("nqn", self.subnqn.as_str())][..],
        )?;
        if fixed.is_some() {
            return Ok(info);
        }
        let mut info = info.enable_addr_auto();
        info.set_interfaces(vec![match ip {
            IpAddr::V4(_) => IfKind::IPv4,
            IpAddr::V6(_) => IfKind::All,
        }]);
        Ok(info)
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct Announcer {
    daemon: Option<ServiceDaemon>,
    /// What is announced, and the full name of each service.
    announced: Vec<(Service, String)>,
}

impl Announcer {
    /// Announces these services, and no others any more. Errors are logged: no drive depends on it.
    pub(crate) fn set(&mut self, services: &[Service]) {
        let announced = self.announced.iter().map(|(service, _)| service);
        if announced.eq(services) {
            return;
        }
        if let Err(error) = self.change(services) {
            tracing::error!("cannot announce discovery services by multicast DNS: {error:#}");
        }
    }

    fn change(&mut self, services: &[Service]) -> anyhow::Result<()> {
        let before = std::mem::take(&mut self.announced);
        let (kept, gone): (Vec<_>, Vec<_>) = before
            .into_iter()
            .partition(|(service, _)| services.contains(service));
        self.announced = kept;
        if services.is_empty() {
            return self.end();
        }
        let daemon = self.daemon()?.clone();
        for (_, name) in gone {
            // A service may come again with another address: the old one is gone before.
            let told = daemon.unregister(&name)?;
            let _ = told.recv_timeout(FAREWELL);
        }
        for service in services {
            if self.announced.iter().all(|(other, _)| other != service) {
                let info = service.info()?;
                let name = info.get_fullname().to_owned();
                daemon.register(info)?;
                self.announced.push((service.clone(), name));
            }
        }
        let at = |service: &Service| services.iter().position(|other| other == service);
        self.announced.sort_by_key(|(service, _)| at(service));
        Ok(())
    }

    fn daemon(&mut self) -> anyhow::Result<&ServiceDaemon> {
        if self.daemon.is_none() {
            let daemon = ServiceDaemon::new()?;
            let events = daemon.monitor()?;
            thread::Builder::new()
                .name("mdns-log".into())
                .spawn(move || log(&events))
                .context("cannot start a thread")?;
            self.daemon = Some(daemon);
        }
        self.daemon.as_ref().context("it was just started")
    }

    /// Says farewell for all services, and ends the threads.
    fn end(&mut self) -> anyhow::Result<()> {
        if let Some(daemon) = self.daemon.take() {
            let ended = daemon.shutdown()?;
            ended
                .recv_timeout(FAREWELL)
                .context("its thread does not end")?;
        }
        Ok(())
    }
}

impl std::fmt::Debug for Announcer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let services = self.announced.iter().map(|(service, _)| service);
        f.debug_list().entries(services).finish()
    }
}

/// Logs the first error, and what else operators look for.
fn log(events: &Receiver<DaemonEvent>) {
    let mut has_failed = false;
    for event in events {
        match event {
            DaemonEvent::Error(error) if !std::mem::replace(&mut has_failed, true) => {
                tracing::warn!("multicast DNS: {error}; further errors are not logged");
            }
            DaemonEvent::Announce(name, at) => tracing::debug!("announced {name} at {at}"),
            DaemonEvent::NameChange(change) => {
                tracing::warn!(
                    "{} is announced as {}: another service in the network has its name",
                    change.original,
                    change.new_name
                );
            }
            _ => {}
        }
    }
}
