//! Faults of a peer, and their form in a termination request.

use nvme_spec::tcp::{FatalErrorStatus, PduType};

/// A fault that ends a connection (TCP 1.1, 3.5.1: fatal transport errors). The names of variants
/// and [`Fault::name`] label counters, so they stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// An unknown PDU, or one that only the other side may send.
    #[error("a PDU of type {:#04x} ({}) is none that this side receives", .0.0, .0.name())]
    Type(PduType),
    /// A PDU before the first one of its side, or a second first one.
    #[error("{} is out of sequence", .0.name())]
    Sequence(PduType),
    /// HLEN is not the one of the type.
    #[error("{} has HLEN {hlen}, which is not the length of its header", .pdu_type.name())]
    HeaderLength {
        /// Type of the PDU.
        pdu_type: PduType,
        /// HLEN that came, in bytes.
        hlen: u8,
    },
    /// A digest is missing that was agreed on, one is there that was not, or SUCCESS stands without
    /// LAST_PDU.
    #[error("{} has FLAGS {flags:#04x}, which is not what the connection agreed on", .pdu_type.name())]
    Flags {
        /// Type of the PDU.
        pdu_type: PduType,
        /// FLAGS that came.
        flags: u8,
    },
    /// PDO lies in the header or its digest, or is not aligned as agreed.
    #[error("{} has PDO {pdo}, which lies in its header or is not aligned", .pdu_type.name())]
    DataOffset {
        /// Type of the PDU.
        pdu_type: PduType,
        /// PDO that came, in bytes.
        pdo: u8,
    },
    /// PLEN is not the sum of its parts.
    #[error("{} has PLEN {plen}, which is not the sum of its parts", .pdu_type.name())]
    Length {
        /// Type of the PDU.
        pdu_type: PduType,
        /// PLEN that came, in bytes.
        plen: u32,
    },
    /// More data than the receiver has said that it takes.
    #[error("{} has more than {limit} bytes of data", .pdu_type.name())]
    DataTooLong {
        /// Type of the PDU.
        pdu_type: PduType,
        /// The limit, in bytes.
        limit: u32,
    },
    /// DATAL or R2TL is 0.
    #[error("{} is about no data", .0.name())]
    NoData(PduType),
    /// The header's digest is another one.
    #[error("the digest of a header is {received:#010x}, and not that of the header")]
    HeaderDigest {
        /// The digest that came.
        received: u32,
    },
    /// PFV is not 0.
    #[error("PFV {0} is not known: 0 is")]
    FormatVersion(u16),
    /// HPDA or CPDA is above 31.
    #[error("an alignment of {0} is above 31 (128 bytes)")]
    Alignment(u8),
    /// An ICResp that switches a digest on that was not asked for, or leaves one out that was.
    #[error("the controller's DGST {answered:#04x} is not the {asked:#04x} that was asked for")]
    Digests {
        /// DGST of the ICReq.
        asked: u8,
        /// DGST of the ICResp.
        answered: u8,
    },
    /// MAXH2CDATA is below 4096, or no multiple of 4.
    #[error("MAXH2CDATA {0} is below 4096 or no multiple of 4")]
    MaxH2cData(u32),
    /// A transfer tag that no R2T in flight has.
    #[error("no R2T in flight has the transfer tag {0:#06x}")]
    TransferTag(u16),
    /// A command identifier that is not the transfer's.
    #[error("the data is of command {received:#06x}, and its transfer is of {expected:#06x}")]
    CommandId {
        /// CCCID that came.
        received: u16,
        /// The transfer's.
        expected: u16,
    },
    /// Data that does not begin where the last one ended, or goes beyond the transfer's end.
    #[error("data at {offset} with {len} bytes, and {expected} to {end} were to come")]
    Range {
        /// DATAO or R2TO that came, in bytes.
        offset: u32,
        /// DATAL or R2TL that came, in bytes.
        len: u32,
        /// The offset that was to come, in bytes.
        expected: u32,
        /// End of the transfer, in bytes.
        end: u32,
    },
    /// LAST_PDU before the end of the transfer, or none at its end.
    #[error("LAST_PDU does not stand where the transfer ends")]
    Last,
}

impl Fault {
    /// Fatal Error Status and Fatal Error Information of a termination request (TCP 1.1, 3.6.2.3):
    /// the offset in bytes of the field, or the digest that came.
    pub const fn status(self) -> (FatalErrorStatus, u32) {
        use FatalErrorStatus as Fes;
        match self {
            Self::Type(_) => (Fes::INVALID_PDU_HEADER_FIELD, 0),
            Self::Sequence(_) => (Fes::PDU_SEQUENCE_ERROR, 0),
            Self::HeaderLength { .. } => (Fes::INVALID_PDU_HEADER_FIELD, 2),
            Self::Flags { .. } | Self::Last => (Fes::INVALID_PDU_HEADER_FIELD, 1),
            Self::DataOffset { .. } => (Fes::INVALID_PDU_HEADER_FIELD, 3),
            Self::Length { .. } => (Fes::INVALID_PDU_HEADER_FIELD, 4),
            Self::DataTooLong { .. } => (Fes::DATA_TRANSFER_LIMIT_EXCEEDED, 0),
            Self::NoData(_) => (Fes::INVALID_PDU_HEADER_FIELD, 16),
            Self::HeaderDigest { received } => (Fes::HEADER_DIGEST_ERROR, received),
            Self::FormatVersion(_) => (Fes::UNSUPPORTED_PARAMETER, 8),
            Self::Alignment(_) | Self::TransferTag(_) => (Fes::INVALID_PDU_HEADER_FIELD, 10),
            Self::Digests { .. } => (Fes::INVALID_PDU_HEADER_FIELD, 11),
            Self::MaxH2cData(_) => (Fes::INVALID_PDU_HEADER_FIELD, 12),
            Self::CommandId { .. } => (Fes::INVALID_PDU_HEADER_FIELD, 8),
            Self::Range { .. } => (Fes::DATA_TRANSFER_OUT_OF_RANGE, 0),
        }
    }

    /// A short name, for counters.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Type(_) => "type",
            Self::Sequence(_) => "sequence",
            Self::HeaderLength { .. } => "header-length",
            Self::Flags { .. } => "flags",
            Self::DataOffset { .. } => "data-offset",
            Self::Length { .. } => "length",
            Self::DataTooLong { .. } => "data-too-long",
            Self::NoData(_) => "no-data",
            Self::HeaderDigest { .. } => "header-digest",
            Self::FormatVersion(_) => "format-version",
            Self::Alignment(_) => "alignment",
            Self::Digests { .. } => "digests",
            Self::MaxH2cData(_) => "max-h2c-data",
            Self::TransferTag(_) => "transfer-tag",
            Self::CommandId { .. } => "command-id",
            Self::Range { .. } => "range",
            Self::Last => "last",
        }
    }
}
