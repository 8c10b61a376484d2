//! Which hosts may connect, and what they prove.

use std::collections::BTreeMap;
use std::sync::Arc;

use authentication::{Parties, Secret};

use super::authentication::{Powers, Proof};

/// The secrets of a host.
#[derive(Clone, Debug)]
pub struct Keys {
    /// The host proves that it knows this one.
    pub host: Arc<Secret>,
    /// The controller proves that it knows this one, where its host asks for that.
    pub controller: Option<Arc<Secret>>,
}

/// The hosts of an entrance, by their NQNs.
#[derive(Clone, Debug, Default)]
pub struct Access(Option<(BTreeMap<String, Option<Keys>>, Powers)>);

impl Access {
    /// Every host, without a proof.
    #[must_use]
    pub fn anyone() -> Self {
        Self(None)
    }

    /// These hosts only. Those with keys prove that they know them.
    #[must_use]
    pub fn of(hosts: BTreeMap<String, Option<Keys>>, powers: Powers) -> Self {
        Self(Some((hosts, powers)))
    }

    /// Whether a host that has proved so much may stay connected.
    #[must_use]
    pub fn keeps(&self, nqn: &str, proof: Proof) -> bool {
        let asked = match &self.0 {
            None => false,
            Some((hosts, _)) => match hosts.get(nqn) {
                None => return false,
                Some(keys) => keys.is_some(),
            },
        };
        match proof {
            Proof::Unasked => !asked,
            Proof::Pending => false,
            Proof::Host | Proof::Both => true,
        }
    }

    /// Whether a host may connect.
    pub(super) fn admits(&self, nqn: &str) -> bool {
        match &self.0 {
            None => true,
            Some((hosts, _)) => hosts.contains_key(nqn),
        }
    }

    /// What a host is asked to prove.
    pub(super) fn asks(&self, nqn: &str, subnqn: &str) -> Option<(Parties, &Powers)> {
        let (hosts, powers) = self.0.as_ref()?;
        let keys = hosts.get(nqn)?.as_ref()?;
        let parties = Parties {
            hostnqn: nqn.to_owned(),
            subnqn: subnqn.to_owned(),
            host: keys.host.clone(),
            controller: keys.controller.clone(),
        };
        Some((parties, powers))
    }
}
