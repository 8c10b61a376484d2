//! TLS of an entrance: the keys of its hosts.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use authentication::{TlsIdentity, TlsPsk};
use nvme_spec::discovery::WELL_KNOWN_DISCOVERY_NQN;
use port::time::Time;
use tls::{Found, Lookup, Offer, Psk, Server};
use zeroize::Zeroizing;

use super::access::Access;
use super::generated::GeneratedKeys;
use crate::secure::{Handshake, HandshakePlace, Handshakes};

/// TLS of an entrance.
#[derive(Clone, Debug)]
pub struct Tls {
    server: Server,
    generated: Option<GeneratedKeys>,
    handshakes: Handshakes,
}

impl Tls {
    /// TLS with the keys of these hosts, for the subsystem and for the discovery subsystem.
    ///
    /// # Errors
    /// The system has no OpenSSL 3.
    pub fn new(
        access: &Access,
        subnqn: &str,
        discovery_nqn: &str,
        handshakes: Handshakes,
    ) -> io::Result<Self> {
        let access = access.clone();
        let generated = access.generated().cloned();
        let names = [subnqn, discovery_nqn, WELL_KNOWN_DISCOVERY_NQN].map(str::to_owned);
        let lookup = move |offer: &Offer<'_>| find(&access, &names, offer);
        let lookup: Lookup = Arc::new(lookup);
        Ok(Self {
            server: Server::new(lookup)?,
            generated,
            handshakes,
        })
    }

    /// A place for a handshake with this address, where there is one.
    pub(super) fn place(&self, address: IpAddr) -> Option<HandshakePlace> {
        self.handshakes.place(address.into())
    }

    /// Begins a handshake, by whose end old keys of hosts are not used any more.
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors.
    pub(super) fn begin(
        &self,
        socket: OwnedFd,
        place: HandshakePlace,
        now: Time,
    ) -> io::Result<Handshake> {
        if let Some(generated) = &self.generated {
            generated.begin(now);
        }
        self.handshakes.begin(&self.server, socket, place, now)
    }
}

/// The key of a host that this name is of, if the host has it.
fn find(access: &Access, names: &[String], offer: &Offer<'_>) -> Found {
    let identity = TlsIdentity::parse(offer.identity);
    let identity = identity.filter(|identity| names.iter().any(|name| name == identity.subnqn()));
    let Some(identity) = identity else {
        return Found::Nothing;
    };
    if identity.is_generated() {
        return match access.find_generated(&identity) {
            Some(kept) if kept.psk.binds(offer.hello, offer.binder) => {
                Found::Psk(key_of(&kept.psk))
            }
            Some(_) => Found::AnotherKey,
            None => Found::Nothing,
        };
    }
    let Some(key) = access.tls_key(identity.hostnqn()) else {
        return Found::Nothing;
    };
    let psks = key.psks(&identity);
    if psks.is_empty() {
        return Found::AnotherKey;
    }
    let bound = psks.iter().find(|psk| psk.binds(offer.hello, offer.binder));
    match bound {
        Some(psk) => Found::Psk(key_of(psk)),
        None => Found::AnotherKey,
    }
}

fn key_of(psk: &TlsPsk) -> Psk {
    Psk {
        key: Zeroizing::new(psk.bytes().to_vec()),
        is_sha384: psk.is_sha384(),
    }
}
