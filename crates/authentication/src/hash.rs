//! Hash functions, and the keyed hash (RFC 2104) with each.

use hmac::{Hmac, KeyInit, Mac};
use nvme_spec::authentication::HashId;
use sha2::{Digest, Sha256, Sha384, Sha512};
use subtle::ConstantTimeEq as _;
use zeroize::Zeroizing;

/// Bytes that a hash function made.
pub(crate) type Hashed = Zeroizing<Vec<u8>>;

/// Whether two values are the same, in a time that does not tell how much of them is.
pub(crate) fn same(one: &[u8], other: &[u8]) -> bool {
    one.ct_eq(other).into()
}

/// A hash function that both sides may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hash {
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

impl Hash {
    /// All of them, the strongest first: the order in which a controller prefers them.
    pub const ALL: [Self; 3] = [Self::Sha512, Self::Sha384, Self::Sha256];

    /// Those of cipher suites, for keys of TLS, in a controller's order: hosts of today have
    /// libraries whose keys are for SHA-256 only.
    pub(crate) const OF_TLS: [Self; 2] = [Self::Sha256, Self::Sha384];

    /// Its number.
    #[must_use]
    pub const fn id(self) -> HashId {
        match self {
            Self::Sha256 => HashId::SHA_256,
            Self::Sha384 => HashId::SHA_384,
            Self::Sha512 => HashId::SHA_512,
        }
    }

    /// The function with this number.
    #[must_use]
    pub fn of(id: HashId) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.id() == id)
    }

    /// Bytes that it makes.
    #[must_use]
    pub(crate) const fn len(self) -> u8 {
        match self {
            Self::Sha256 => 32,
            Self::Sha384 => 48,
            Self::Sha512 => 64,
        }
    }

    pub(crate) fn of_bytes(self, bytes: &[u8]) -> Hashed {
        Zeroizing::new(match self {
            Self::Sha256 => Sha256::digest(bytes).to_vec(),
            Self::Sha384 => Sha384::digest(bytes).to_vec(),
            Self::Sha512 => Sha512::digest(bytes).to_vec(),
        })
    }

    /// The keyed hash of these parts, one behind the other.
    pub(crate) fn keyed(self, key: &[u8], parts: &[&[u8]]) -> Hashed {
        fn with<M: Mac + KeyInit>(key: &[u8], parts: &[&[u8]]) -> Hashed {
            let mut mac = <M as KeyInit>::new_from_slice(key).expect("a key of any length");
            for part in parts {
                mac.update(part);
            }
            Zeroizing::new(mac.finalize().into_bytes().to_vec())
        }
        match self {
            Self::Sha256 => with::<Hmac<Sha256>>(key, parts),
            Self::Sha384 => with::<Hmac<Sha384>>(key, parts),
            Self::Sha512 => with::<Hmac<Sha512>>(key, parts),
        }
    }
}
