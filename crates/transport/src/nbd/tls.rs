//! TLS of an entrance: its certificate, and the keys of its users.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use port::time::Time;
use tls::{Certificate, Found, Lookup, Offer, Psk, Server};

use super::users::Users;
use crate::secure::{Handshake, HandshakePlace, Handshakes, Origin};

/// See the module.
#[derive(Debug)]
pub struct Tls {
    server: Server,
    handshakes: Handshakes,
}

impl Tls {
    /// TLS by a certificate, by the keys of users, or by both.
    ///
    /// # Errors
    /// The system has no OpenSSL 3, or the certificate is none. There is neither.
    pub fn new(
        certificate: Option<&Certificate<'_>>,
        users: Option<Users>,
        handshakes: Handshakes,
    ) -> io::Result<Self> {
        let lookup = users.map(|users| {
            let lookup = move |offer: &Offer<'_>| find(&users, offer);
            Arc::new(lookup) as Lookup
        });
        let server = match (certificate, lookup) {
            (Some(certificate), lookup) => Server::with_certificate(certificate, lookup)?,
            (None, Some(lookup)) => Server::new(lookup)?,
            (None, None) => return Err(io::Error::other("no certificate and no keys")),
        };
        Ok(Self { server, handshakes })
    }

    /// A place for a handshake with this origin, where there is one.
    pub(super) fn place(&self, from: Origin) -> Option<HandshakePlace> {
        self.handshakes.place(from)
    }

    /// Begins a handshake.
    ///
    /// # Errors
    /// There is no memory, or there are no more descriptors.
    pub(super) fn begin(
        &self,
        socket: OwnedFd,
        place: HandshakePlace,
        now: Time,
    ) -> io::Result<Handshake> {
        self.handshakes.begin(&self.server, socket, place, now)
    }
}

/// The key of a user. GnuTLS uses keys from outside with SHA-256.
fn find(users: &Users, offer: &Offer<'_>) -> Found {
    match users.key(offer.identity) {
        Some(key) => Found::Psk(Psk {
            key: key.clone(),
            is_sha384: false,
        }),
        None => Found::Nothing,
    }
}
