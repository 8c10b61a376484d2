//! Messages as bytes, and what is wrong with those of a peer.

use nvme_spec::authentication::{
    AuthHeader, AuthId, AuthType, Explanation, Failure, PROTOCOL_DH_HMAC_CHAP, ReasonCode,
};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Bytes of the longest message: a reply with SHA-512 and ffdhe8192.
pub const MESSAGE_MAX: usize = 16 + 2 * 64 + 1024;

/// Why an exchange has failed, as both sides tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.explanation().name())]
pub enum Failed {
    /// The peer does not know the secret, or this side has none that the peer asks for.
    Authentication,
    /// The peer offers no DH-HMAC-CHAP.
    Protocol,
    /// The peer wants a secure channel.
    Concatenation,
    /// No hash function of the peer's is known.
    Hash,
    /// No group of the peer's is known.
    Group,
    /// A field of a message is wrong.
    Payload,
    /// Another message was to come.
    Message,
}

impl Failed {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Authentication,
        Self::Protocol,
        Self::Concatenation,
        Self::Hash,
        Self::Group,
        Self::Payload,
        Self::Message,
    ];

    /// Its Reason Code Explanation.
    #[must_use]
    pub const fn explanation(self) -> Explanation {
        match self {
            Self::Authentication => Explanation::AUTHENTICATION_FAILED,
            Self::Protocol => Explanation::PROTOCOL_NOT_USABLE,
            Self::Concatenation => Explanation::CONCATENATION_MISMATCH,
            Self::Hash => Explanation::HASH_NOT_USABLE,
            Self::Group => Explanation::DH_GROUP_NOT_USABLE,
            Self::Payload => Explanation::INCORRECT_PAYLOAD,
            Self::Message => Explanation::INCORRECT_MESSAGE,
        }
    }

    /// The failure with this explanation; one that is not known stands for the first.
    #[must_use]
    pub fn of(explanation: Explanation) -> Self {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|failed| failed.explanation() == explanation);
        found.unwrap_or(Self::Authentication)
    }

    /// The message that tells the peer: AUTH_Failure1 of a controller, AUTH_Failure2 of a host.
    pub(crate) fn message(self, auth_id: AuthId, t_id: u16) -> Vec<u8> {
        let failure = Failure {
            header: header(auth_id, t_id),
            reason: ReasonCode::AUTHENTICATION_FAILURE,
            explanation: self.explanation(),
        };
        failure.as_bytes().to_vec()
    }
}

/// The head of a message.
pub(crate) fn header(auth_id: AuthId, t_id: u16) -> AuthHeader {
    let is_common = [AuthId::NEGOTIATE, AuthId::FAILURE1, AuthId::FAILURE2].contains(&auth_id);
    let auth_type = if is_common {
        AuthType::COMMON
    } else {
        AuthType::DH_HMAC_CHAP
    };
    AuthHeader {
        auth_type,
        auth_id,
        reserved: [0; 2],
        t_id,
    }
}

/// The message of a peer that is to be `auth_id` of this exchange: its part of fixed length, and
/// what follows.
pub(crate) fn expect<T>(bytes: &[u8], auth_id: AuthId, t_id: u16) -> Result<(T, &[u8]), Failed>
where
    T: FromBytes + Immutable + KnownLayout,
{
    let (head, _) = AuthHeader::read_from_prefix(bytes).map_err(|_| Failed::Payload)?;
    let expected = header(auth_id, t_id);
    if (head.auth_type, head.auth_id) != (expected.auth_type, auth_id) {
        return Err(Failed::Message);
    }
    if head.t_id != t_id {
        return Err(Failed::Payload);
    }
    T::read_from_prefix(bytes).map_err(|_| Failed::Payload)
}

/// The failure that a peer reports, if that is what it sends.
pub(crate) fn reported(bytes: &[u8], auth_id: AuthId) -> Option<Failed> {
    let (failure, _) = Failure::read_from_prefix(bytes).ok()?;
    let head = failure.header;
    ((head.auth_type, head.auth_id) == (AuthType::COMMON, auth_id))
        .then(|| Failed::of(failure.explanation))
}

/// Takes `len` bytes.
pub(crate) fn take<'a>(bytes: &mut &'a [u8], len: usize) -> Result<&'a [u8], Failed> {
    let (taken, rest) = bytes.split_at_checked(len).ok_or(Failed::Payload)?;
    *bytes = rest;
    Ok(taken)
}

const _: () = assert!(PROTOCOL_DH_HMAC_CHAP == 1);
