//! Which hosts, clients and drives of a configuration need TLS.

use std::collections::BTreeMap;
use std::io;

use api::config::{Backing, Concatenation, Config, Controller, Host, Nbd};
use transport::nvme_tcp::{Channel, tls_available};

/// Hosts of a controller that come through TLS, each with the way to its key.
pub(super) fn channels(config: &Config, controller: &Controller) -> BTreeMap<String, Channel> {
    let channel = |host: &Host| match host.concatenation {
        _ if host.tls_key.is_some() => Some(Channel::Key),
        Concatenation::Required => Some(Channel::Concatenation),
        Concatenation::Allowed => None,
    };
    let hosts = config.known_hosts(controller);
    let channels = hosts.filter_map(|host| Some((host.nqn.clone(), channel(host)?)));
    channels.collect()
}

/// Whether this machine can serve the hosts and use the drives of a configuration that need TLS.
///
/// # Errors
/// It has no OpenSSL 3.
pub fn check_tls(config: &Config) -> io::Result<()> {
    let mut over_tcp = config.controller.iter();
    let is_secured = |controller: &Controller| {
        controller.tcp_address().is_some() && !channels(config, controller).is_empty()
    };
    let mut media = config.media.iter().map(|medium| &medium.backing);
    let is_remote = |backing: &Backing| matches!(backing, Backing::Drive(drive) if drive.tls_key.is_some() || drive.concat);
    let mut controllers = config.controller.iter();
    let over_nbd = controllers.any(|it| it.nbd.as_ref().is_some_and(Nbd::has_tls));
    if over_nbd || over_tcp.any(is_secured) || media.any(is_remote) {
        return tls_available();
    }
    Ok(())
}
