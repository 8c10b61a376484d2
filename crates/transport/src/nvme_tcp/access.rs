//! Which hosts may connect, and what they prove.

use std::collections::BTreeMap;
use std::sync::Arc;

use authentication::{Parties, Secret, TlsKey};

use super::authentication::{Powers, Proof};

/// The secrets of a host.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The host proves that it knows this one.
    pub host: Arc<Secret>,
    /// The controller proves that it knows this one, where its host asks for that.
    pub controller: Option<Arc<Secret>>,
}

/// What a host that may connect has.
#[derive(Clone, Debug, Default)]
pub struct Allowed {
    /// Secrets of DH-HMAC-CHAP: it proves that it knows its own.
    pub keys: Option<Keys>,
    /// Its key of TLS: it comes through TLS, and not otherwise.
    pub tls: Option<Arc<TlsKey>>,
}

/// The hosts of an entrance, by their NQNs.
#[derive(Clone, Debug, Default)]
pub struct Access(Option<(Arc<BTreeMap<String, Allowed>>, Powers)>);

impl Access {
    /// Every host, without a proof.
    #[must_use]
    pub fn anyone() -> Self {
        Self(None)
    }

    /// These hosts only. Those with keys prove that they know them.
    #[must_use]
    pub fn of(hosts: BTreeMap<String, Allowed>, powers: Powers) -> Self {
        Self(Some((Arc::new(hosts), powers)))
    }

    fn allowed(&self, nqn: &str) -> Option<&Allowed> {
        let (hosts, _) = self.0.as_ref()?;
        hosts.get(nqn)
    }

    /// Whether a host that has proved so much, through TLS or not, may stay connected.
    #[must_use]
    pub fn keeps(&self, nqn: &str, proof: Proof, is_secured: bool) -> bool {
        let is_proved = |is_asked: bool| match proof {
            Proof::Unasked => !is_asked,
            Proof::Pending => false,
            Proof::Host | Proof::Both => true,
        };
        match (&self.0, self.allowed(nqn)) {
            (None, _) => is_proved(false),
            (Some(_), None) => false,
            (Some(_), Some(host)) => {
                is_proved(host.keys.is_some()) && (is_secured || host.tls.is_none())
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

    /// What a host is asked to prove.
    pub(super) fn asks(&self, nqn: &str, subnqn: &str) -> Option<(Parties, &Powers)> {
        let keys = self.allowed(nqn)?.keys.as_ref()?;
        let (_, powers) = self.0.as_ref()?;
        let parties = Parties {
            hostnqn: nqn.to_owned(),
            subnqn: subnqn.to_owned(),
            host: keys.host.clone(),
            controller: keys.controller.clone(),
        };
        Some((parties, powers))
    }
}
