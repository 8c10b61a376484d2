//! Pre-shared keys of TLS 1.3 (TCP 1.1, 3.6.1): a key as its owner configures it, the keys that are
//! derived from it for one host and one subsystem, and the names by which TLS finds them.
//!
//! ```text
//! configured --host NQN--> retained --host NQN, subsystem NQN--> key of TLS
//! DH-HMAC-CHAP -----------> generated ---------------------------> key of TLS
//! ```
//!
//! Releases of libnvme before 1.16 derive both with another label than RFC 8446 has. Their hosts
//! use the same names, so [`TlsKey::psks`] returns both keys: [`TlsPsk::binds`] finds the one that
//! the host has.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

use crate::hash::{Hash, Hashed, same};

/// Bytes of the CRC behind a key.
const CRC: usize = 4;
/// Bytes of the longest name of a key: two NQNs, a digest, and what is between them.
const IDENTITY_MAX: usize = 8 + 1 + 223 + 1 + 223 + 1 + 64;

/// Fault in the text of a key. The text is not shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TlsKeyError {
    /// Not of that form.
    #[error("it is not of the form NVMeTLSkey-1:0h:BASE64: that `nvme gen-tls-key` prints")]
    Form,
    /// The hash has another number.
    #[error("its hash is not one of 00, 01 and 02")]
    Hash,
    /// It has another length.
    #[error("it does not have a CRC and 32 bytes (hash 00 or 01) or 48 bytes (00 or 02)")]
    Length,
    /// The CRC is another one.
    #[error("its CRC is wrong: copy the whole line again")]
    Crc,
}

/// How keys are derived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Derivation {
    /// HKDF-Expand-Label of RFC 8446.
    Rfc8446,
    /// libnvme before 1.16: the length in the other byte order, and none of label and context.
    Libnvme,
}

/// A configured key. It has no text form, and is cleared when it is dropped.
pub struct TlsKey {
    key: Zeroizing<Vec<u8>>,
    /// By which the retained key is derived; `None`: it is the configured one.
    transform: Option<Hash>,
    /// That of the cipher suite, by the length of the key.
    hash: Hash,
}

impl TlsKey {
    /// Reads the interchange form, with white space around it.
    ///
    /// # Errors
    /// It is not one.
    pub fn read(text: &str) -> Result<Self, TlsKeyError> {
        let rest = text.trim().strip_prefix("NVMeTLSkey-1:");
        let (number, rest) = rest
            .and_then(|rest| rest.split_once(':'))
            .ok_or(TlsKeyError::Form)?;
        let coded = rest.strip_suffix(':').ok_or(TlsKeyError::Form)?;
        let transform = match number {
            "00" => None,
            "01" => Some(Hash::Sha256),
            "02" => Some(Hash::Sha384),
            _ => return Err(TlsKeyError::Hash),
        };
        let bytes = STANDARD.decode(coded).map_err(|_| TlsKeyError::Form)?;
        let bytes = Zeroizing::new(bytes);
        let hash = match bytes.len().saturating_sub(CRC) {
            32 => Hash::Sha256,
            48 => Hash::Sha384,
            _ => return Err(TlsKeyError::Length),
        };
        if transform.is_some_and(|transform| transform != hash) {
            return Err(TlsKeyError::Length);
        }
        let (key, crc) = bytes.split_at(bytes.len() - CRC);
        if crc32fast::hash(key).to_le_bytes() != crc {
            return Err(TlsKeyError::Crc);
        }
        Ok(Self {
            key: Zeroizing::new(key.to_vec()),
            transform,
            hash,
        })
    }

    /// The keys that a host may mean by this name: none, if it is not a name of this key.
    #[must_use]
    pub fn psks(&self, identity: &TlsIdentity<'_>) -> Vec<TlsPsk> {
        let derivations = [Derivation::Rfc8446, Derivation::Libnvme];
        let derived = derivations.into_iter().filter_map(|derivation| {
            let (name, psk) = self.derive(identity, derivation)?;
            (name == identity.name).then_some(psk)
        });
        derived.collect()
    }

    /// The name of this key between a host and a subsystem, and the key of TLS.
    #[must_use]
    pub fn of(&self, hostnqn: &str, subnqn: &str) -> Option<(String, TlsPsk)> {
        let identity = TlsIdentity {
            name: "",
            version: Version::One,
            is_generated: false,
            hostnqn,
            subnqn,
        };
        self.derive(&identity, Derivation::Rfc8446)
    }

    fn derive(
        &self,
        identity: &TlsIdentity<'_>,
        derivation: Derivation,
    ) -> Option<(String, TlsPsk)> {
        let (hostnqn, subnqn) = (identity.hostnqn, identity.subnqn);
        let retained = match self.transform {
            None => self.key.clone(),
            Some(hash) => derived(derivation, hash, &self.key, b"HostNQN", hostnqn.as_bytes())?,
        };
        let (name, context) = match identity.version {
            Version::Zero => {
                let name = format!("NVMe0R{} {hostnqn} {subnqn}", number(self.hash));
                (name.clone(), name)
            }
            Version::One => named(self.hash, 'R', &retained, [hostnqn, subnqn]),
        };
        let label = b"nvme-tls-psk";
        let key = derived(derivation, self.hash, &retained, label, context.as_bytes())?;
        let hash = self.hash;
        Some((name, TlsPsk { key, hash }))
    }
}

impl std::fmt::Debug for TlsKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsKey")
    }
}

/// The number of a hash function in names.
fn number(hash: Hash) -> &'static str {
    match hash {
        Hash::Sha256 => "01",
        _ => "02",
    }
}

/// The name of version 1 of a key of this kind between a host and a subsystem, and the context of
/// the key of TLS.
fn named(hash: Hash, kind: char, key: &[u8], [hostnqn, subnqn]: [&str; 2]) -> (String, String) {
    let number = number(hash);
    let parts = [hostnqn, " ", subnqn, " NVMe-over-Fabrics"].map(str::as_bytes);
    let digest = STANDARD.encode(&hash.keyed(key, &parts)[..]);
    let name = format!("NVMe1{kind}{number} {hostnqn} {subnqn} {digest}");
    (name, format!("{number} {digest}"))
}

/// A key that both sides have made by DH-HMAC-CHAP, and its name.
#[derive(Debug)]
pub struct Generated {
    /// The name by which TLS finds it.
    pub name: String,
    /// The key of TLS.
    pub psk: TlsPsk,
}

impl Generated {
    /// Of a generated key between a host and a subsystem. `None`: no cipher suite has the hash
    /// function.
    pub(crate) fn new(hash: Hash, key: &[u8], hostnqn: &str, subnqn: &str) -> Option<Self> {
        if !Hash::OF_TLS.contains(&hash) {
            return None;
        }
        let (name, context) = named(hash, 'G', key, [hostnqn, subnqn]);
        let (label, context) = (b"nvme-tls-psk", context.as_bytes());
        let key = derived(Derivation::Rfc8446, hash, key, label, context)?;
        let psk = TlsPsk { key, hash };
        Some(Self { name, psk })
    }
}

/// The form of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Version {
    /// Of the NQNs.
    Zero,
    /// Of the NQNs, and a digest by which one sees another key.
    One,
}

/// The name of a key: who uses it with which subsystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TlsIdentity<'a> {
    name: &'a str,
    version: Version,
    is_generated: bool,
    hostnqn: &'a str,
    subnqn: &'a str,
}

impl<'a> TlsIdentity<'a> {
    /// Reads a name of version 0 or 1. `None`: it is none.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() > IDENTITY_MAX {
            return None;
        }
        let name = str::from_utf8(bytes).ok()?;
        let mut parts = name.split(' ');
        let (version, is_generated) = match parts.next()? {
            "NVMe0R01" | "NVMe0R02" => (Version::Zero, false),
            "NVMe1R01" | "NVMe1R02" => (Version::One, false),
            "NVMe1G01" | "NVMe1G02" => (Version::One, true),
            _ => return None,
        };
        Some(Self {
            name,
            version,
            is_generated,
            hostnqn: parts.next()?,
            subnqn: parts.next()?,
        })
    }

    /// The whole name.
    #[must_use]
    pub fn name(&self) -> &'a str {
        self.name
    }

    /// Whether both sides have made the key, by DH-HMAC-CHAP.
    #[must_use]
    pub fn is_generated(&self) -> bool {
        self.is_generated
    }

    /// Host NQN.
    #[must_use]
    pub fn hostnqn(&self) -> &'a str {
        self.hostnqn
    }

    /// NVM Subsystem NQN.
    #[must_use]
    pub fn subnqn(&self) -> &'a str {
        self.subnqn
    }
}

/// A key of TLS 1.3, and the hash function that it is for.
pub struct TlsPsk {
    key: Hashed,
    hash: Hash,
}

impl TlsPsk {
    /// Its bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.key
    }

    /// Whether it is for SHA-384, and otherwise for SHA-256.
    #[must_use]
    pub fn is_sha384(&self) -> bool {
        self.hash == Hash::Sha384
    }

    /// Whether one who has this key made the binder of a first ClientHello whose bytes are these
    /// up to the list of binders (RFC 8446, 4.2.11.2).
    #[must_use]
    pub fn binds(&self, hello: &[u8], binder: &[u8]) -> bool {
        let (hash, len) = (self.hash, self.hash.len());
        let early = hash.keyed(&vec![0; len.into()], &[&self.key]);
        let nothing = hash.of_bytes(&[]);
        let made = expand_label(hash, &early, b"ext binder", &nothing)
            .and_then(|binder| expand_label(hash, &binder, b"finished", &[]))
            .map(|finished| hash.keyed(&finished, &[&hash.of_bytes(hello)]));
        made.is_some_and(|made| same(&made, binder))
    }
}

impl std::fmt::Debug for TlsPsk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsPsk")
    }
}

/// HKDF-Extract of a key without salt, and the expansion of what it gives.
fn derived(
    derivation: Derivation,
    hash: Hash,
    key: &[u8],
    label: &[u8],
    context: &[u8],
) -> Option<Hashed> {
    let secret = hash.keyed(&vec![0; hash.len().into()], &[key]);
    match derivation {
        Derivation::Rfc8446 => expand_label(hash, &secret, label, context),
        Derivation::Libnvme => {
            let info = [&[hash.len(), 0], &b"tls13 "[..], label, context];
            Some(expand(hash, &secret, &info))
        }
    }
}

/// HKDF-Expand-Label (RFC 8446, 7.1) to as many bytes as the hash function makes. `None`: the
/// context is too long for its length field.
fn expand_label(hash: Hash, secret: &[u8], label: &[u8], context: &[u8]) -> Option<Hashed> {
    let prefix = b"tls13 ";
    let label_len = u8::try_from(prefix.len() + label.len()).ok()?;
    let context_len = u8::try_from(context.len()).ok()?;
    let head = [0, hash.len(), label_len];
    let info: [&[u8]; 5] = [&head, prefix, label, &[context_len], context];
    Some(expand(hash, secret, &info))
}

/// HKDF-Expand (RFC 5869) to as many bytes as the hash function makes: one block.
fn expand(hash: Hash, secret: &[u8], info: &[&[u8]]) -> Hashed {
    let parts: Vec<&[u8]> = info.iter().copied().chain([&[1][..]]).collect();
    hash.keyed(secret, &parts)
}

#[cfg(test)]
mod tests;
