//! Which hosts may connect, and what they prove.

use std::collections::BTreeMap;
use std::sync::Arc;

use authentication::{Concatenates, Parties, Secret, TlsIdentity, TlsKey};
use tls::Session;

use super::authentication::Powers;
use super::generated::{GeneratedKeys, Kept};
use super::peer::Peer;
use super::proof::Proof;

/// The secrets of a host.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The host proves that it knows this one.
    pub host: Arc<Secret>,
    /// The controller proves that it knows this one, where its host asks for that.
    pub controller: Option<Arc<Secret>>,
}

/// Rights and secrets of a host that may connect.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Secrets of DH-HMAC-CHAP: it proves that it knows its own.
    pub keys: Option<Keys>,
    /// Its key of TLS: it comes through TLS, and not otherwise.
    pub tls: Option<Arc<TlsKey>>,
    /// It makes a key of TLS in its exchange, and comes through TLS then, and not otherwise.
    pub must_concatenate: bool,
}

/// Hosts, and what their exchanges need.
#[derive(Debug)]
struct Hosts {
    by_nqn: BTreeMap<String, Allowed>,
    powers: Powers,
    generated: GeneratedKeys,
}

/// The hosts of an entrance, by their NQNs.
#[derive(Clone, Debug, Default)]
pub struct Access(Option<Arc<Hosts>>);

impl Access {
    /// Every host, without a proof.
    #[must_use]
    pub fn anyone() -> Self {
        Self(None)
    }

    /// These hosts only. Those with keys prove that they know them. Keys that they make are among
    /// `generated`.
    #[must_use]
    pub fn of(hosts: BTreeMap<String, Allowed>, powers: Powers, generated: GeneratedKeys) -> Self {
        Self(Some(Arc::new(Hosts {
            by_nqn: hosts,
            powers,
            generated,
        })))
    }

    /// The hosts that prove a secret, and their secrets.
    pub fn secrets(&self) -> impl Iterator<Item = (&str, &Arc<Secret>)> {
        let hosts = self.0.iter().flat_map(|hosts| &hosts.by_nqn);
        hosts.filter_map(|(nqn, host)| Some((nqn.as_str(), &host.keys.as_ref()?.host)))
    }

    fn allowed(&self, nqn: &str) -> Option<&Allowed> {
        self.0.as_ref()?.by_nqn.get(nqn)
    }

    /// The keys that hosts have made, where there are hosts.
    pub(super) fn generated(&self) -> Option<&GeneratedKeys> {
        Some(&self.0.as_ref()?.generated)
    }

    /// Whether a host that has proved so much, through TLS or not, may stay connected.
    #[must_use]
    pub fn keeps(&self, nqn: &str, proof: Proof, is_secured: bool) -> bool {
        let is_proved = |is_asked: bool| match proof {
            Proof::Unasked => !is_asked,
            Proof::Pending | Proof::Concatenated => false,
            Proof::Host | Proof::Both => true,
        };
        match (&self.0, self.allowed(nqn)) {
            (None, _) => is_proved(false),
            (Some(_), None) => false,
            (Some(_), Some(host)) => {
                let is_clear = host.tls.is_none() && !host.must_concatenate;
                is_proved(host.keys.is_some()) && (is_secured || is_clear)
            }
        }
    }

    /// Whether a host may connect.
    pub(super) fn admits(&self, nqn: &str) -> bool {
        self.0.is_none() || self.allowed(nqn).is_some()
    }

    /// The key of TLS of a host.
    pub(super) fn tls_key(&self, nqn: &str) -> Option<&TlsKey> {
        self.allowed(nqn)?.tls.as_deref()
    }

    /// The key of this name that a host has made: a host that may still make keys, by the secret
    /// that it has still.
    pub(super) fn find_generated(&self, identity: &TlsIdentity<'_>) -> Option<Arc<Kept>> {
        let host = self.allowed(identity.hostnqn())?;
        let keys = host.keys.as_ref().filter(|_| host.tls.is_none())?;
        self.generated()?.find(identity, &keys.host)
    }

    /// The peer at the other end of a session. `None`: the name of its key is none of a host's.
    pub(super) fn peer(&self, session: &Session) -> Option<Peer> {
        let identity = TlsIdentity::parse(session.identity())?;
        let generated = identity.is_generated().then(|| {
            // Of a key that is gone since the handshake only that is known.
            let kept = self.find_generated(&identity);
            kept.map_or(Proof::Host, |kept| kept.proof)
        });
        Some(Peer {
            hostnqn: identity.hostnqn().to_owned(),
            subnqn: identity.subnqn().to_owned(),
            generated,
        })
    }

    /// Whether a host comes through TLS with a key that it has made, or with its own one.
    pub(super) fn comes_through_tls(&self, nqn: &str, is_generated: bool) -> bool {
        self.allowed(nqn).is_some_and(|host| match host.tls {
            Some(_) => !is_generated,
            None => is_generated && host.keys.is_some(),
        })
    }

    /// Whether a host makes a key in the exchange of its admin queue, where that is in clear.
    pub(super) fn concatenates(&self, nqn: &str) -> Concatenates {
        match self.allowed(nqn) {
            Some(host) if host.tls.is_some() => Concatenates::Never,
            Some(host) if host.must_concatenate => Concatenates::Always,
            Some(_) => Concatenates::WhenAsked,
            None => Concatenates::Never,
        }
    }

    /// Proof that is asked of a host.
    pub(super) fn asks(&self, nqn: &str, subnqn: &str) -> Option<(Parties, &Powers)> {
        let keys = self.allowed(nqn)?.keys.as_ref()?;
        let powers = &self.0.as_ref()?.powers;
        let parties = Parties {
            hostnqn: nqn.to_owned(),
            subnqn: subnqn.to_owned(),
            host: keys.host.clone(),
            controller: keys.controller.clone(),
        };
        Some((parties, powers))
    }
}
