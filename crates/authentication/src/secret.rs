//! Secrets in their text form, `DHHC-1:0h:BASE64:` (Base 2.1, 8.3.5.5.7): the bytes and their CRC,
//! and the hash function by which they are bound to the name of their owner.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::hash::{Hash, Hashed, same};

/// Bytes that a secret may have.
const LENGTHS: [usize; 3] = [32, 48, 64];
/// Bytes of the CRC behind them.
const CRC: usize = 4;

/// Fault in the text of a secret. The text is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SecretError {
    /// Not of that form.
    #[error("it is not of the form DHHC-1:0h:BASE64: that `nvme gen-dhchap-key` prints")]
    Form,
    /// The hash has another number.
    #[error("its hash is not one of 00, 01, 02 and 03")]
    Hash,
    /// It has another length.
    #[error("it does not have 32, 48 or 64 bytes and a CRC")]
    Length,
    /// The CRC is another one.
    #[error("its CRC is wrong: copy the whole line again")]
    Crc,
}

/// A secret. It has no text form, and is cleared when it is dropped.
pub struct Secret {
    key: Zeroizing<Vec<u8>>,
    transform: Option<Hash>,
}

impl Secret {
    /// Reads the text form, with white space around it.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(text: &str) -> Result<Self, SecretError> {
        let rest = text.trim().strip_prefix("DHHC-1:");
        let (hash, rest) = rest
            .and_then(|rest| rest.split_once(':'))
            .ok_or(SecretError::Form)?;
        let coded = rest.strip_suffix(':').ok_or(SecretError::Form)?;
        let transform = match hash {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            "03" => Some(Hash::Sha512),
            _ => return Err(SecretError::Hash),
        };
        let bytes = STANDARD.decode(coded).map_err(|_| SecretError::Form)?;
        let bytes = Zeroizing::new(bytes);
        let len = bytes.len().saturating_sub(CRC);
        if !LENGTHS.contains(&len) {
            return Err(SecretError::Length);
        }
        let (key, crc) = bytes.split_at(len);
        if crc32fast::hash(key).to_le_bytes() != crc {
            return Err(SecretError::Crc);
        }
        let key = Zeroizing::new(key.to_vec());
        Ok(Self { key, transform })
    }

    /// Whether both are the same, in a time that does not tell how much of them is.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self.transform == other.transform && same(&self.key, &other.key)
    }

    /// The key of the owner with this NQN.
    pub(crate) fn of_owner(&self, nqn: &str) -> Hashed {
        match self.transform {
            None => self.key.clone(),
            Some(hash) => hash.keyed(&self.key, &[nqn.as_bytes(), b"NVMe-over-Fabrics"]),
        }
    }
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Secret")
    }
}
