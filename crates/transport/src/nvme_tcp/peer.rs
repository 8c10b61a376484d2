//! The host at the other end of a connection through TLS.

use super::proof::Proof;

/// Host at the other end of a connection through TLS, by the name of the key that was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) hostnqn: String,
    pub(super) subnqn: String,
    /// Both sides have made the key in an exchange: what that has proved.
    pub(super) generated: Option<Proof>,
}
