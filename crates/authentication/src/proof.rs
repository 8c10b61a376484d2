//! What each side proves that it knows (Base 2.1, 8.3.5.5.4 and 8.3.5.5.5).

use subtle::ConstantTimeEq as _;

use crate::hash::{Hash, Hashed};
use crate::secret::Secret;

/// What both sides know of an exchange, without the secrets.
pub(crate) struct Terms<'a> {
    pub(crate) hash: Hash,
    /// The value that Diffie-Hellman has given to both sides.
    pub(crate) shared: Option<&'a [u8]>,
    pub(crate) t_id: u16,
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

    fn answer(
        &self,
        secret: &Secret,
        challenge: &[u8],
        sequence: u32,
        role: &[u8],
        [own, other]: [&str; 2],
    ) -> Hashed {
        let augmented = self.shared.map(|shared| {
            let key = self.hash.of_bytes(shared);
            self.hash.keyed(&key, &[challenge])
        });
        let challenge = augmented.as_ref().map_or(challenge, |hashed| hashed);
        let key = secret.of_owner(own);
        // Secure channel concatenation is 0.
        let parts = [
            challenge,
            &sequence.to_le_bytes(),
            &self.t_id.to_le_bytes(),
            &[0],
            role,
            own.as_bytes(),
            &[0],
            other.as_bytes(),
        ];
        self.hash.keyed(&key, &parts)
    }
}

/// Whether two answers are the same, in a time that does not tell how much of them is.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}
