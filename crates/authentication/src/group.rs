//! Diffie-Hellman groups of RFC 7919.

use crypto_bigint::modular::{BoxedMontyForm, BoxedMontyParams};
use crypto_bigint::{BoxedUint, Odd, Resize as _};
use nvme_spec::authentication::DhGroupId;
use zeroize::Zeroizing;

use crate::primes::{FFDHE2048, FFDHE3072, FFDHE4096, FFDHE6144, FFDHE8192};

/// A group that both sides may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// No Diffie-Hellman.
    Null,
    /// ffdhe2048.
    Ffdhe2048,
    /// ffdhe3072.
    Ffdhe3072,
    /// ffdhe4096.
    Ffdhe4096,
    /// ffdhe6144.
    Ffdhe6144,
    /// ffdhe8192.
    Ffdhe8192,
}

impl Group {
    /// All of them, in the order in which a controller prefers them: the smallest one with the
    /// strength of 128 bits first, and more before less. RFC 7919 rates ffdhe2048 at 103 bits.
    pub const ALL: [Self; 6] = [
        Self::Ffdhe3072,
        Self::Ffdhe4096,
        Self::Ffdhe6144,
        Self::Ffdhe8192,
        Self::Ffdhe2048,
        Self::Null,
    ];

    /// Its number.
    #[must_use]
    pub const fn id(self) -> DhGroupId {
        match self {
            Self::Null => DhGroupId::NULL,
            Self::Ffdhe2048 => DhGroupId::FFDHE2048,
            Self::Ffdhe3072 => DhGroupId::FFDHE3072,
            Self::Ffdhe4096 => DhGroupId::FFDHE4096,
            Self::Ffdhe6144 => DhGroupId::FFDHE6144,
            Self::Ffdhe8192 => DhGroupId::FFDHE8192,
        }
    }

    /// The group with this number.
    #[must_use]
    pub fn of(id: DhGroupId) -> Option<Self> {
        Self::ALL.into_iter().find(|group| group.id() == id)
    }

    /// The digits of the prime, its bits, and the bits of a private exponent: twice the least ones
    /// of RFC 7919, 5.2.
    fn numbers(self) -> Option<(&'static str, u16, u16)> {
        Some(match self {
            Self::Null => return None,
            Self::Ffdhe2048 => (FFDHE2048, 2048, 450),
            Self::Ffdhe3072 => (FFDHE3072, 3072, 550),
            Self::Ffdhe4096 => (FFDHE4096, 4096, 650),
            Self::Ffdhe6144 => (FFDHE6144, 6144, 750),
            Self::Ffdhe8192 => (FFDHE8192, 8192, 800),
        })
    }

    /// Bytes of a public value.
    pub(crate) fn len(self) -> u16 {
        self.numbers().map_or(0, |(_, bits, _)| bits / 8)
    }

    /// The value that goes to the peer.
    pub(crate) fn public(self, exponent: &[u8]) -> Vec<u8> {
        let two = [2];
        let value = self.power(&two, exponent);
        value.map_or_else(Vec::new, |value| value.to_vec())
    }

    /// The value that both sides have, by the peer's public one. `None`: that is none of the group.
    pub(crate) fn shared(self, peer: &[u8], exponent: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (prime, bits, _) = self.numbers()?;
        let bits = u32::from(bits);
        let least = BoxedUint::from(2u8).resize(bits);
        let value = BoxedUint::from_be_slice(peer, bits).ok()?;
        let prime = BoxedUint::from_be_hex(prime, bits).into_option()?;
        // 0, 1 and p - 1 have powers that are known.
        let most = prime.wrapping_sub(&least);
        if peer.len() != usize::from(self.len()) || value < least || value > most {
            return None;
        }
        self.power(peer, exponent)
    }

    fn power(self, base: &[u8], exponent: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let (prime, bits, private) = self.numbers()?;
        let (bits, private) = (u32::from(bits), u32::from(private).next_multiple_of(8));
        let prime = BoxedUint::from_be_hex(prime, bits).into_option()?;
        let params = BoxedMontyParams::new_vartime(Odd::new(prime).into_option()?);
        let base = BoxedUint::from_be_slice(base, bits).ok()?;
        let exponent = exponent.get(..private as usize / 8)?;
        let exponent = BoxedUint::from_be_slice(exponent, private).ok()?;
        let exponent = Zeroizing::new(exponent);
        let power = BoxedMontyForm::new(base, &params).pow(&exponent);
        Some(Zeroizing::new(power.retrieve().to_be_bytes().into_vec()))
    }
}
