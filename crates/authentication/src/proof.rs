//! Proofs of both sides that they know a secret (Base 2.1, 8.3.5.5.4 and 8.3.5.5.5).

use nvme_spec::authentication::Concatenation;

use crate::hash::{Hash, Hashed};
use crate::secret::Secret;
use crate::tls::Generated;

/// Values of an exchange that both sides know, without the secrets.
pub(crate) struct Terms<'a> {
    pub(crate) hash: Hash,
    /// The value that Diffie-Hellman has given to both sides.
    pub(crate) shared: Option<&'a [u8]>,
    pub(crate) t_id: u16,
    pub(crate) sc_c: Concatenation,
    pub(crate) hostnqn: &'a str,
    pub(crate) subnqn: &'a str,
}

impl Terms<'_> {
    /// The host's answer to a challenge.
    pub(crate) fn of_host(&self, secret: &Secret, challenge: &[u8], sequence: u32) -> Hashed {
        let names = [self.hostnqn, self.subnqn];
        self.answer(secret, challenge, sequence, b"HostHost", names)
    }

    /// The controller's answer to a challenge.
    pub(crate) fn of_controller(&self, secret: &Secret, challenge: &[u8], sequence: u32) -> Hashed {
        let names = [self.subnqn, self.hostnqn];
        self.answer(secret, challenge, sequence, b"Controller", names)
    }

    /// The key of the exchange, where it has a group.
    fn session_key(&self) -> Option<Hashed> {
        self.shared.map(|shared| self.hash.of_bytes(shared))
    }

    /// The key of TLS that both sides make of both challenges (Base 2.1, 8.3.5.5.9), where they
    /// have agreed to.
    pub(crate) fn generated(&self, asked: &[u8], answered: &[u8]) -> Option<Generated> {
        if self.sc_c != Concatenation::NEW_TLS_PSK {
            return None;
        }
        let psk = self.hash.keyed(&self.session_key()?, &[asked, answered]);
        Generated::new(self.hash, &psk, self.hostnqn, self.subnqn)
    }

    fn answer(
        &self,
        secret: &Secret,
        challenge: &[u8],
        sequence: u32,
        role: &[u8],
        [own, other]: [&str; 2],
    ) -> Hashed {
        let augmented = self.session_key();
        let augmented = augmented.map(|key| self.hash.keyed(&key, &[challenge]));
        let challenge = augmented.as_ref().map_or(challenge, |hashed| hashed);
        let key = secret.of_owner(own);
        let parts = [
            challenge,
            &sequence.to_le_bytes(),
            &self.t_id.to_le_bytes(),
            &[self.sc_c.0],
            role,
            own.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        self.hash.keyed(&key, &parts)
    }
}
