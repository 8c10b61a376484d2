//! Controllers that hosts reach over NVMe/TCP: their listening sockets, and the list of them that
//! hosts can ask for. Listening sockets of other protocols are made here, too.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::AsFd;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use api::config::{self, Controller, DISCOVERY_PORT};
use nvme_spec::tcp::Digests;
use reactor::message::{Listening, Way};
use rustix::net::{self, AddressFamily, SocketFlags, SocketType, sockopt};
use transport::nvme_tcp::{DiscoveryLog, Listed, Success, TargetConfig};

use super::State;
use super::channels::channels;
use super::controllers::Words;
use crate::reconcile::inventory::find;
use crate::survival::listener_name;

/// Name that the discovery subsystem's identity is derived from; no object has it.
pub(super) const DISCOVERY: &str = "/discovery";

/// Connections that wait for the reactor: more are tried again by their hosts.
const BACKLOG: i32 = 128;

/// A listening UNIX socket for many connections, for a reactor; and its file, which is to be kept
/// as long as the controller is served. A file that a dead process has left is replaced.
pub(super) fn unix_listener(
    config: &Controller,
    path: &Path,
) -> anyhow::Result<(UnixListener, vfio_user::Listener)> {
    let socket = vfio_user::Listener::bind(path)?;
    rustix::net::listen(&socket, BACKLOG).context("cannot listen")?;
    socket.open_to(config.socket_mode.bits())?;
    let shared = socket.as_fd().try_clone_to_owned();
    let shared = shared.context("cannot share the socket with its reactor")?;
    Ok((shared.into(), socket))
}

/// A list without subsystems. Generations of a later process are higher.
pub(super) fn no_subsystems() -> Arc<DiscoveryLog> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    Arc::new(DiscoveryLog {
        generation: since.map_or(0, |since| since.as_micros() as u64),
        subsystems: Vec::new(),
    })
}

/// A socket that listens at an address: for all addresses of IPv6, at those of IPv4 as well, also
/// where the system's default is another one (`net.ipv6.bindv6only`).
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let family = if address.is_ipv6() {
        AddressFamily::INET6
    } else {
        AddressFamily::INET
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = net::socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() && address.ip().is_unspecified() {
        sockopt::set_ipv6_v6only(&socket, false)?;
    }
    net::bind(&socket, &address)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

impl State {
    /// A listening socket for hosts over NVMe/TCP.
    pub(super) fn listening(
        &mut self,
        config: &Controller,
        address: SocketAddr,
    ) -> anyhow::Result<Way> {
        let listener = self.listener(config, address)?;
        let tcp = config.tcp.clone().unwrap_or_default();
        let (access, tls) = self.admission(config)?;
        let Words { subnqn, .. } = self.words(&self.aim(), config.subsystem())?;
        let discovery_nqn = self.identities()?.subnqn(DISCOVERY);
        let max_transfer = u32::try_from(config.max_transfer.0).context("max_transfer")?;
        let target = TargetConfig {
            name: config.name.clone(),
            subnqn,
            access,
            tls,
            discovery_nqn,
            queues: config.queues,
            queue_depth: config.queue_depth,
            max_transfer,
            in_capsule: u32::try_from(tcp.in_capsule_data.0).context("in_capsule_data")?,
            digests: Digests::new()
                .with_header(tcp.header_digest)
                .with_data(tcp.data_digest),
            success: match tcp.success {
                config::Success::Specified => Success::AsSpecified,
                config::Success::Always => Success::Always,
            },
            slots: tcp.memory.0,
        };
        Ok(Way::NvmeTcp(Listening {
            listener,
            config: Arc::new(target),
            hosts: tcp.hosts.into(),
        }))
    }

    /// The socket that a former process has listened with, or a new one. A holder keeps it: the
    /// port is never free while processes follow each other, and hosts that connect meanwhile wait.
    pub(super) fn listener(
        &self,
        config: &Controller,
        address: SocketAddr,
    ) -> anyhow::Result<TcpListener> {
        let name = listener_name(&config.name);
        if let Some(holder) = self.holder.as_ref().filter(|_| self.is_continuing)
            && let Some(kept) = holder.fetch(&name)?
        {
            let kept = TcpListener::from(kept);
            if kept.local_addr().is_ok_and(|at| at == address) {
                return Ok(kept);
            }
        }
        let listener =
            listen(address).with_context(|| format!("cannot listen on {}", config.listen))?;
        if let Some(holder) = &self.holder {
            holder.keep(&name, listener.as_fd())?;
        }
        Ok(listener)
    }

    /// Has the holder, if there is one, close the listening socket of a controller.
    pub(super) fn forget_listener(&self, controller: &str) {
        if let Some(holder) = &self.holder
            && let Err(error) = holder.forget(&listener_name(controller))
        {
            tracing::error!(
                controller,
                "its port stays in use until the server ends: {error}"
            );
        }
    }

    /// Entry of a controller over NVMe/TCP in discovery log pages.
    pub(super) fn listed(&self, config: &Controller, subnqn: String) -> Option<Listed> {
        let address = config.tcp_address()?;
        let allowed = self.config.allowed_hosts(config);
        let allowed = allowed.map(|all| all.into_iter().map(|(nqn, _)| nqn.to_owned()).collect());
        let advertised = config.advertise.map(|at| at.or_port(address.port()));
        let referrals = config.referrals.iter();
        Some(Listed {
            advertised,
            referrals: referrals.map(|at| at.or_port(DISCOVERY_PORT)).collect(),
            allowed: allowed.map(Arc::new),
            secured: Arc::new(channels(&self.config, config)),
            ..Listed::new(config.name.clone(), subnqn, address)
        })
    }

    /// The same again for all controllers, after a change of hosts.
    pub(super) fn list_all_again(&mut self) -> anyhow::Result<()> {
        for at in 0..self.controllers.len() {
            self.list(at);
        }
        self.tell_discovery()
    }

    /// The same again for a served controller, after a change of its keys.
    pub(super) fn list_again(&mut self, at: usize) -> anyhow::Result<()> {
        if self.list(at) {
            self.tell_discovery()?;
        }
        Ok(())
    }

    /// Whether the served controller is over NVMe/TCP: logs then have what is configured now.
    fn list(&mut self, at: usize) -> bool {
        let served = &self.controllers[at];
        let configured = find(&self.config.controller, &served.name);
        let (Some(configured), Some(listed)) = (configured, &served.listed) else {
            return false;
        };
        let listed = self.listed(configured, listed.subnqn.clone());
        self.controllers[at].listed = listed;
        true
    }

    /// Tells the reactors which subsystems hosts can reach over NVMe/TCP, if that has changed.
    pub(super) fn tell_discovery(&mut self) -> anyhow::Result<()> {
        let listed = self
            .controllers
            .iter()
            .filter_map(|served| served.listed.clone());
        let subsystems: Vec<Listed> = listed.collect();
        if subsystems == self.discovery.subsystems {
            return Ok(());
        }
        self.discovery = Arc::new(DiscoveryLog {
            generation: self.discovery.generation + 1,
            subsystems,
        });
        let reactors = self.reactors.iter();
        let told = reactors.map(|reactor| reactor.set_discovery(self.discovery.clone()));
        // Each of them has it, also where another one has ended.
        told.fold(Ok(()), anyhow::Result::and)
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;

    use super::*;

    #[test]
    fn a_socket_for_all_addresses_takes_those_of_ipv4() {
        for all in ["[::]:0", "0.0.0.0:0"] {
            let listener = listen(all.parse().unwrap()).unwrap();
            let port = listener.local_addr().unwrap().port();
            assert!(TcpStream::connect(("127.0.0.1", port)).is_ok(), "{all}");
        }
    }
}
