//! DH-HMAC-CHAP: the authentication of NVMe over Fabrics hosts and controllers (Base 2.1, 8.3.5);
//! and the pre-shared keys of TLS, by which they authenticate each other, too.
//!
//! Both sides know a secret of the host. Each proves that it does with a keyed hash of what the
//! other one has chosen at random; a Diffie-Hellman value that goes into the hash keeps one who
//! listens from trying secrets afterwards. The reading order is `hash`, [`Secret`], `group`,
//! `message`, `tls` (which needs only `hash`), `proof`, and the sides: [`ControllerSide`] and
//! [`HostSide`].
//!
//! Invariants:
//! - Nothing that a peer sends panics or allocates beyond [`MESSAGE_MAX`] bytes.
//! - A secret, and what is derived from it, has no text form and is cleared when it is dropped.
//! - Proofs are compared in constant time, and powers are computed in constant time.
//!
//! Not included: sockets, clocks, threads, a source of random numbers, and TLS. It makes a key of
//! TLS (secure channel concatenation), and keeps none.

#![forbid(unsafe_code)]
#![warn(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_lossless
)]

mod controller;
mod group;
mod hash;
mod host;
mod message;
mod primes;
mod proof;
mod secret;
mod tls;

use zeroize::Zeroize;

pub use self::controller::{Concatenates, ControllerSide, Next, Outcome, Work, Worked};
pub use self::group::Group;
pub use self::hash::Hash;
pub use self::host::HostSide;
pub use self::message::{Failed, MESSAGE_MAX};
pub use self::secret::{Secret, SecretError};
pub use self::tls::{Generated, TlsIdentity, TlsKey, TlsKeyError, TlsPsk};

/// Bytes of the longest private exponent.
const EXPONENT_MAX: usize = 100;

/// Random bytes of one exchange. One who knows them may pass for another.
pub struct Randomness {
    challenge: [u8; 64],
    exponent: [u8; EXPONENT_MAX],
    sequence: u32,
}

impl Randomness {
    /// Bytes that [`Self::new`] takes.
    pub const LEN: usize = 64 + EXPONENT_MAX + 4;

    /// Takes bytes that others cannot guess.
    #[must_use]
    pub fn new(bytes: &[u8; Self::LEN]) -> Self {
        let mut new = Self {
            challenge: [0; 64],
            exponent: [0; EXPONENT_MAX],
            sequence: 0,
        };
        let (challenge, rest) = bytes.split_at(64);
        let (exponent, sequence) = rest.split_at(EXPONENT_MAX);
        new.challenge.copy_from_slice(challenge);
        new.exponent.copy_from_slice(exponent);
        let mut word = [0; 4];
        word.copy_from_slice(sequence);
        // 0 stands for secure channel concatenation.
        new.sequence = u32::from_le_bytes(word).max(1);
        new
    }
}

impl Drop for Randomness {
    fn drop(&mut self) {
        self.challenge.zeroize();
        self.exponent.zeroize();
    }
}

impl std::fmt::Debug for Randomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Randomness")
    }
}

/// Both parties, and the secret that each side proves to know.
#[derive(Clone)]
pub struct Parties {
    /// Host NQN.
    pub hostnqn: String,
    /// NVM Subsystem NQN.
    pub subnqn: String,
    /// The host's secret.
    pub host: std::sync::Arc<Secret>,
    /// The controller's secret, where it can authenticate itself.
    pub controller: Option<std::sync::Arc<Secret>>,
}

impl std::fmt::Debug for Parties {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let both = self.controller.is_some();
        write!(f, "Parties({:?}, both ways: {both})", self.hostnqn)
    }
}

#[cfg(test)]
mod tests;
