//! The host at the other end of a connection through TLS.

use authentication::TlsIdentity;
use tls::Session;

/// Who is at the other end of a connection through TLS, by the name of the key that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) hostnqn: String,
    pub(super) subnqn: String,
    /// Both sides have made the key in an exchange.
    pub(super) is_generated: bool,
}

impl Peer {
    pub(super) fn of(session: &Session) -> Option<Self> {
        let identity = TlsIdentity::parse(session.identity())?;
        Some(Self {
            hostnqn: identity.hostnqn().to_owned(),
            subnqn: identity.subnqn().to_owned(),
            is_generated: identity.is_generated(),
        })
    }
}
