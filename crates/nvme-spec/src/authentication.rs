//! Messages of in-band authentication: DH-HMAC-CHAP (Base 2.1, 8.3.5).
//!
//! Each is the data of an Authentication Send or an Authentication Receive command. Structures here
//! are the parts of fixed length; challenges, responses and Diffie-Hellman values follow them.

use core::mem::offset_of;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

open_enum! {
    /// Authentication Type of a message.
    pub struct AuthType(u8) {
        COMMON = 0x00, "Common messages";
        DH_HMAC_CHAP = 0x01, "DH-HMAC-CHAP messages";
    }
}

open_enum! {
    /// Identifier of a message, within its type.
    pub struct AuthId(u8) {
        NEGOTIATE = 0x00, "AUTH_Negotiate";
        CHALLENGE = 0x01, "DH-HMAC-CHAP_Challenge";
        REPLY = 0x02, "DH-HMAC-CHAP_Reply";
        SUCCESS1 = 0x03, "DH-HMAC-CHAP_Success1";
        SUCCESS2 = 0x04, "DH-HMAC-CHAP_Success2";
        FAILURE2 = 0xf0, "AUTH_Failure2";
        FAILURE1 = 0xf1, "AUTH_Failure1";
    }
}

open_enum! {
    /// Hash function of an exchange.
    pub struct HashId(u8) {
        SHA_256 = 0x01, "SHA-256";
        SHA_384 = 0x02, "SHA-384";
        SHA_512 = 0x03, "SHA-512";
    }
}

open_enum! {
    /// Diffie-Hellman group of an exchange.
    pub struct DhGroupId(u8) {
        NULL = 0x00, "NULL";
        FFDHE2048 = 0x01, "ffdhe2048";
        FFDHE3072 = 0x02, "ffdhe3072";
        FFDHE4096 = 0x03, "ffdhe4096";
        FFDHE6144 = 0x04, "ffdhe6144";
        FFDHE8192 = 0x05, "ffdhe8192";
    }
}

open_enum! {
    /// Reason Code of a failure.
    pub struct ReasonCode(u8) {
        AUTHENTICATION_FAILURE = 0x01, "Authentication failure";
    }
}

open_enum! {
    /// Reason Code Explanation of a failure.
    pub struct Explanation(u8) {
        AUTHENTICATION_FAILED = 0x01, "Authentication failed";
        PROTOCOL_NOT_USABLE = 0x02, "Authentication protocol not usable";
        CONCATENATION_MISMATCH = 0x03, "Secure channel concatenation mismatch";
        HASH_NOT_USABLE = 0x04, "Hash function not usable";
        DH_GROUP_NOT_USABLE = 0x05, "DH group not usable";
        INCORRECT_PAYLOAD = 0x06, "Incorrect payload";
        INCORRECT_MESSAGE = 0x07, "Incorrect protocol message";
    }
}

open_enum! {
    /// Secure Channel Concatenation of an exchange.
    pub struct Concatenation(u8) {
        NONE = 0x00, "No secure channel";
        NEW_TLS_PSK = 0x02, "A new pre-shared key for TLS";
        REPLACE_TLS_PSK = 0x03, "Another pre-shared key for TLS";
    }
}

/// The head of every message, 6 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct AuthHeader {
    /// Authentication Type.
    pub auth_type: AuthType,
    /// Message.
    pub auth_id: AuthId,
    /// Reserved.
    pub reserved: [u8; 2],
    /// Transaction Identifier: the host's, the same in all messages of an exchange.
    pub t_id: u16,
}

/// AUTH_Negotiate, 8 bytes before its protocol descriptors.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Negotiate {
    /// Head.
    pub header: AuthHeader,
    /// Secure Channel Concatenation.
    pub sc_c: Concatenation,
    /// Number of Authentication Protocol Descriptors.
    pub napd: u8,
}

/// Bytes of the list of an Authentication Protocol Descriptor that are for each of its two parts.
pub const ID_LIST_HALF: usize = 30;

/// Authentication Protocol Descriptor, 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ProtocolDescriptor {
    /// Authentication Protocol Identifier: 01h is DH-HMAC-CHAP.
    pub auth_id: u8,
    /// Reserved.
    pub reserved: u8,
    /// Number of hash functions.
    pub halen: u8,
    /// Number of DH groups.
    pub dhlen: u8,
    /// Hash functions.
    pub hashes: [HashId; ID_LIST_HALF],
    /// DH groups.
    pub groups: [DhGroupId; ID_LIST_HALF],
}

/// Authentication Protocol Identifier of DH-HMAC-CHAP.
pub const PROTOCOL_DH_HMAC_CHAP: u8 = 0x01;

/// DH-HMAC-CHAP_Challenge, 16 bytes before the challenge and the DH value.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Challenge {
    /// Head.
    pub header: AuthHeader,
    /// Hash Length: bytes of the challenge.
    pub hl: u8,
    /// Reserved.
    pub reserved_7: u8,
    /// Hash function.
    pub hash_id: HashId,
    /// DH group.
    pub dhg_id: DhGroupId,
    /// Bytes of the DH value; 0 with the group NULL.
    pub dhvlen: u16,
    /// Sequence Number.
    pub seqnum: u32,
}

/// DH-HMAC-CHAP_Reply, 16 bytes before the response, the challenge to the controller and the DH
/// value.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Reply {
    /// Head.
    pub header: AuthHeader,
    /// Hash Length: bytes of the response, and of the challenge, which is there in any case.
    pub hl: u8,
    /// Reserved.
    pub reserved_7: u8,
    /// Challenge Valid: the controller is to authenticate itself.
    pub cvalid: u8,
    /// Reserved.
    pub reserved_9: u8,
    /// Bytes of the DH value; 0 with the group NULL.
    pub dhvlen: u16,
    /// Sequence Number.
    pub seqnum: u32,
}

/// DH-HMAC-CHAP_Success1, 16 bytes before the response.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Success1 {
    /// Head.
    pub header: AuthHeader,
    /// Hash Length: bytes of the response.
    pub hl: u8,
    /// Reserved.
    pub reserved_7: u8,
    /// Response Valid: the controller authenticates itself.
    pub rvalid: u8,
    /// Reserved.
    pub reserved_9: [u8; 7],
}

/// DH-HMAC-CHAP_Success2, 16 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Success2 {
    /// Head.
    pub header: AuthHeader,
    /// Reserved.
    pub reserved: [u8; 10],
}

/// AUTH_Failure1 or AUTH_Failure2, 8 bytes.
#[repr(C)]
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout,
)]
pub struct Failure {
    /// Head.
    pub header: AuthHeader,
    /// Reason Code.
    pub reason: ReasonCode,
    /// Reason Code Explanation.
    pub explanation: Explanation,
}

const _: () = assert!(size_of::<AuthHeader>() == 6 && size_of::<Negotiate>() == 8);
const _: () = assert!(size_of::<ProtocolDescriptor>() == 64 && size_of::<Failure>() == 8);
const _: () = assert!(size_of::<Challenge>() == 16 && offset_of!(Challenge, dhvlen) == 10);
const _: () = assert!(size_of::<Reply>() == 16 && offset_of!(Reply, seqnum) == 12);
const _: () = assert!(size_of::<Success1>() == 16 && size_of::<Success2>() == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_that_linux_has_sent_read_as_their_fields() {
        // Recorded: the first bytes of AUTH_Negotiate and DH-HMAC-CHAP_Reply of Linux 7.3.
        let bytes = [0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 3, 6, 1, 2, 3];
        let negotiate = Negotiate::read_from_bytes(&bytes[..8]).unwrap();
        assert_eq!((negotiate.sc_c, negotiate.napd), (Concatenation::NONE, 1));
        assert_eq!(negotiate.header.auth_id, AuthId::NEGOTIATE);
        let bytes = [1, 2, 0, 0, 0, 0, 32, 0, 1, 0, 0, 1, 0xe5, 0xa1, 0x87, 0x7d];
        let reply = Reply::read_from_bytes(&bytes).unwrap();
        assert_eq!(reply.header.auth_type, AuthType::DH_HMAC_CHAP);
        assert_eq!(reply.header.auth_id, AuthId::REPLY);
        assert_eq!((reply.hl, reply.cvalid, reply.dhvlen), (32, 1, 256));
        assert_eq!(reply.seqnum, 0x7d87_a1e5);
    }
}
