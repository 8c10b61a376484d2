//! Exports of a controller over NBD: its namespaces, as clients name them.

use api::config::{Controller, NbdAddress};
use machine::nbd::{At, Credentials};

/// Where a controller listens, as client commands write it. `None`: a path that is not UTF-8, which
/// is in no URI.
pub fn at(address: &NbdAddress) -> Option<At<'_>> {
    match address {
        NbdAddress::Unix(path) => path.to_str().map(At::Unix),
        NbdAddress::Tcp(address) => Some(At::Tcp(*address)),
    }
}

/// Credentials for clients of a controller that come through TLS: certificates where the
/// server has one.
pub fn credentials(controller: &Controller) -> Option<Credentials> {
    let nbd = controller.nbd.as_ref()?;
    if nbd.tls_cert.is_some() {
        return Some(Credentials::Certificates);
    }
    nbd.tls_psk.as_ref().map(|_| Credentials::Key)
}

/// The exports of a controller: names of its namespaces. One that a host created has the name
/// `SUBSYSTEM:NSID` in the API and is the export `nsNSID`.
pub fn names(controller: &Controller) -> impl Iterator<Item = String> {
    let names = controller.namespaces.iter();
    names.map(|name| match name.rsplit_once(':') {
        Some((_, nsid)) => format!("ns{nsid}"),
        None => name.clone(),
    })
}
