//! The host's side of an exchange: what it sends, and what it makes of each answer. A power is
//! computed at once, as a host waits for its target anyhow.

use nvme_spec::authentication::{
    AuthId, Challenge, Concatenation, DhGroupId, HashId, ID_LIST_HALF, Negotiate,
    PROTOCOL_DH_HMAC_CHAP, ProtocolDescriptor, Reply, Success1, Success2,
};
use zerocopy::IntoBytes;

use crate::group::Group;
use crate::hash::{Hash, Hashed, same};
use crate::message::{Failed, expect, header, reported, take};
use crate::proof::Terms;
use crate::tls::Generated;
use crate::{Parties, Randomness};

/// See the module.
#[derive(Debug)]
pub struct HostSide {
    parties: Parties,
    random: Randomness,
    t_id: u16,
    hashes: Vec<Hash>,
    groups: Vec<Group>,
    /// The proof that the controller owes, and its length.
    owed: Option<Hashed>,
    hl: u8,
    sc_c: Concatenation,
    generated: Option<Generated>,
    is_over: bool,
}

impl HostSide {
    /// A side that offers these hash functions and groups.
    #[must_use]
    pub fn new(
        parties: Parties,
        random: Randomness,
        t_id: u16,
        hashes: &[Hash],
        groups: &[Group],
    ) -> Self {
        Self {
            parties,
            random,
            t_id,
            hashes: hashes.to_vec(),
            groups: groups.to_vec(),
            owed: None,
            hl: 0,
            sc_c: Concatenation::NONE,
            generated: None,
            is_over: false,
        }
    }

    /// This side, which makes a key of TLS with the controller (secure channel concatenation): it
    /// offers only what has one.
    #[must_use]
    pub fn concatenating(mut self) -> Self {
        self.sc_c = Concatenation::NEW_TLS_PSK;
        self.hashes.retain(|hash| Hash::OF_TLS.contains(hash));
        self.groups.retain(|group| *group != Group::Null);
        self
    }

    /// The key that both sides have made, once, when the exchange has succeeded.
    pub fn take_generated(&mut self) -> Option<Generated> {
        self.generated.take_if(|_| self.is_over)
    }

    /// AUTH_Negotiate.
    #[must_use]
    pub fn negotiate(&self) -> Vec<u8> {
        let head = Negotiate {
            header: header(AuthId::NEGOTIATE, self.t_id),
            sc_c: self.sc_c,
            napd: 1,
        };
        let mut offer = ProtocolDescriptor {
            auth_id: PROTOCOL_DH_HMAC_CHAP,
            reserved: 0,
            halen: 0,
            dhlen: 0,
            hashes: [HashId(0); ID_LIST_HALF],
            groups: [DhGroupId(0); ID_LIST_HALF],
        };
        for (to, hash) in offer.hashes.iter_mut().zip(&self.hashes) {
            *to = hash.id();
            offer.halen += 1;
        }
        for (to, group) in offer.groups.iter_mut().zip(&self.groups) {
            *to = group.id();
            offer.dhlen += 1;
        }
        [head.as_bytes(), offer.as_bytes()].concat()
    }

    /// Takes the answer to [`Self::negotiate`], and makes the reply.
    ///
    /// # Errors
    /// The controller reports a failure, or its message is wrong: see [`Self::failure`].
    pub fn reply(&mut self, message: &[u8]) -> Result<Vec<u8>, Failed> {
        if let Some(failed) = reported(message, AuthId::FAILURE1) {
            return Err(failed);
        }
        let (challenge, mut rest) = expect::<Challenge>(message, AuthId::CHALLENGE, self.t_id)?;
        let hash = Hash::of(challenge.hash_id).filter(|hash| self.hashes.contains(hash));
        let hash = hash.ok_or(Failed::Hash)?;
        let group = Group::of(challenge.dhg_id).filter(|group| self.groups.contains(group));
        let group = group.ok_or(Failed::Group)?;
        if (challenge.hl, challenge.dhvlen) != (hash.len(), group.len()) || challenge.seqnum == 0 {
            return Err(Failed::Payload);
        }
        self.hl = hash.len();
        let asked = take(&mut rest, self.hl.into())?;
        let peer = take(&mut rest, group.len().into())?;
        let (value, shared) = match group {
            Group::Null => (Vec::new(), None),
            _ => {
                let exponent = &self.random.exponent;
                let shared = group.shared(peer, exponent).ok_or(Failed::Payload)?;
                (group.public(exponent), Some(shared))
            }
        };
        let terms = Terms {
            hash,
            shared: shared.as_ref().map(|shared| &shared[..]),
            t_id: self.t_id,
            sc_c: self.sc_c,
            hostnqn: &self.parties.hostnqn,
            subnqn: &self.parties.subnqn,
        };
        let response = terms.of_host(&self.parties.host, asked, challenge.seqnum);
        let mut own = vec![0; self.hl.into()];
        let mut sequence = 0;
        let has_key = self.sc_c != Concatenation::NONE;
        if has_key || self.parties.controller.is_some() {
            own.copy_from_slice(&self.random.challenge[..self.hl.into()]);
        }
        self.generated = terms.generated(asked, &own);
        if has_key && self.generated.is_none() {
            return Err(Failed::Concatenation);
        }
        if let Some(secret) = &self.parties.controller {
            sequence = self.random.sequence;
            self.owed = Some(terms.of_controller(secret, &own, sequence));
        }
        let head = Reply {
            header: header(AuthId::REPLY, self.t_id),
            hl: self.hl,
            // With the Sequence Number 0 the challenge is only for the key.
            cvalid: (has_key || self.owed.is_some()).into(),
            dhvlen: group.len(),
            seqnum: sequence,
            ..Reply::default()
        };
        Ok([head.as_bytes(), &response, &own, &value].concat())
    }

    /// Takes the answer to [`Self::reply`], and makes the last message, if there is one.
    ///
    /// # Errors
    /// As for the reply; the controller does not know its secret.
    pub fn finish(&mut self, message: &[u8]) -> Result<Option<Vec<u8>>, Failed> {
        if let Some(failed) = reported(message, AuthId::FAILURE1) {
            return Err(failed);
        }
        let (success, mut rest) = expect::<Success1>(message, AuthId::SUCCESS1, self.t_id)?;
        let Some(owed) = &self.owed else {
            self.is_over = true;
            return Ok(None);
        };
        if success.hl != self.hl || success.rvalid != 1 {
            return Err(Failed::Payload);
        }
        if !same(owed, take(&mut rest, self.hl.into())?) {
            return Err(Failed::Authentication);
        }
        self.is_over = true;
        let success = Success2 {
            header: header(AuthId::SUCCESS2, self.t_id),
            ..Success2::default()
        };
        Ok(Some(success.as_bytes().to_vec()))
    }

    /// The host's name.
    #[must_use]
    pub fn host_nqn(&self) -> &str {
        &self.parties.hostnqn
    }

    /// AUTH_Failure2, after an error of this side's.
    #[must_use]
    pub fn failure(&self, failed: Failed) -> Vec<u8> {
        failed.message(AuthId::FAILURE2, self.t_id)
    }
}
