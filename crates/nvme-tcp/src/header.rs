//! The head of a PDU: the bytes that follow it, and whether they may.

use nvme_spec::tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, DIGEST_SIZE, DataHeader, IcReq, MAX_TERM_REQ_SIZE,
    PduType, R2t, TermReq,
};

use crate::Side;
use crate::agreement::Agreement;
use crate::fault::Fault;

/// The parts of a PDU, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    /// Header without its digest (HLEN).
    pub(crate) header: usize,
    /// Header with its digest and the padding after it: where the data begin.
    pub(crate) head: usize,
    /// Data without their digest.
    pub(crate) data: u32,
    /// A digest follows the header.
    pub(crate) header_digest: bool,
    /// A digest follows the data.
    pub(crate) data_digest: bool,
}

/// Whether a PDU has data.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Data {
    Never,
    Maybe,
    Always,
}

/// State of a receiver when a head arrives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    pub(crate) side: Side,
    /// `None` before the first PDU of the peer has been answered.
    pub(crate) agreement: Option<Agreement>,
    /// Bytes of data at most: in a command capsule for a controller, in a C2HData for a host.
    pub(crate) max_data: u32,
}

impl Rules {
    /// Judges the first eight bytes of a PDU.
    ///
    /// # Errors
    /// The PDU ends the connection.
    #[inline]
    pub(crate) fn layout(&self, common: &CommonHeader) -> Result<Layout, Fault> {
        let pdu_type = common.pdu_type;
        let (header, data) = match (self.side, pdu_type) {
            (Side::Controller, PduType::IC_REQ) | (Side::Host, PduType::IC_RESP) => {
                (size_of::<IcReq>(), Data::Never)
            }
            (Side::Controller, PduType::H2C_TERM_REQ) | (Side::Host, PduType::C2H_TERM_REQ) => {
                (size_of::<TermReq>(), Data::Maybe)
            }
            (Side::Controller, PduType::CAPSULE_CMD) => (size_of::<CapsuleCmd>(), Data::Maybe),
            (Side::Controller, PduType::H2C_DATA) | (Side::Host, PduType::C2H_DATA) => {
                (size_of::<DataHeader>(), Data::Always)
            }
            (Side::Host, PduType::CAPSULE_RESP) => (size_of::<CapsuleResp>(), Data::Never),
            (Side::Host, PduType::R2T) => (size_of::<R2t>(), Data::Never),
            _ => return Err(Fault::Type(pdu_type)),
        };
        if usize::from(common.hlen) != header {
            return Err(Fault::HeaderLength {
                pdu_type,
                hlen: common.hlen,
            });
        }
        let length = Fault::Length {
            pdu_type,
            plen: common.plen,
        };
        let Some(agreement) = self.agreement else {
            return match pdu_type {
                PduType::IC_REQ | PduType::IC_RESP => without_data(header, common, length),
                PduType::H2C_TERM_REQ | PduType::C2H_TERM_REQ => termination(common, length),
                _ => Err(Fault::Sequence(pdu_type)),
            };
        };
        match pdu_type {
            PduType::IC_REQ | PduType::IC_RESP => return Err(Fault::Sequence(pdu_type)),
            PduType::H2C_TERM_REQ | PduType::C2H_TERM_REQ => return termination(common, length),
            _ => {}
        }
        self.of_agreed(&agreement, common, header, data)
    }

    /// A PDU that may have digests and data.
    #[inline]
    fn of_agreed(
        &self,
        agreement: &Agreement,
        common: &CommonHeader,
        header: usize,
        data: Data,
    ) -> Result<Layout, Fault> {
        let pdu_type = common.pdu_type;
        let length = Fault::Length {
            pdu_type,
            plen: common.plen,
        };
        let flags = Fault::Flags {
            pdu_type,
            flags: common.flags.into(),
        };
        let header_digest = agreement.digests.header();
        if common.flags.hdgst() != header_digest {
            return Err(flags);
        }
        if common.flags.success() && !common.flags.last() && pdu_type == PduType::C2H_DATA {
            return Err(flags);
        }
        let after = header + if header_digest { DIGEST_SIZE } else { 0 };
        // Lengths are compared in 64 bits, so that no sum wraps.
        let beyond = u64::from(common.plen)
            .checked_sub(after as u64)
            .ok_or(length)?;
        if data == Data::Never && beyond > 0 {
            return Err(length);
        }
        if beyond == 0 && data != Data::Always {
            return Ok(Layout {
                header,
                head: after,
                data: 0,
                header_digest,
                data_digest: false,
            });
        }
        let data_digest = agreement.digests.data();
        if common.flags.ddgst() != data_digest {
            return Err(flags);
        }
        let (alignment_z, max_data) = match (self.side, pdu_type) {
            (Side::Host, _) => (agreement.host_alignment_z, self.max_data),
            (Side::Controller, PduType::H2C_DATA) => {
                (agreement.controller_alignment_z, agreement.max_h2c_data)
            }
            (Side::Controller, _) => (agreement.controller_alignment_z, self.max_data),
        };
        let head = usize::from(common.pdo);
        if head < after || !head.is_multiple_of(alignment(alignment_z)) {
            return Err(Fault::DataOffset {
                pdu_type,
                pdo: common.pdo,
            });
        }
        let rest = head as u64 + if data_digest { DIGEST_SIZE as u64 } else { 0 };
        let data = u64::from(common.plen).checked_sub(rest).ok_or(length)?;
        let data = u32::try_from(data).map_err(|_| length)?;
        if data == 0 {
            return Err(Fault::NoData(pdu_type));
        }
        if data > max_data {
            return Err(Fault::DataTooLong {
                pdu_type,
                limit: max_data,
            });
        }
        Ok(Layout {
            header,
            head,
            data,
            header_digest,
            data_digest,
        })
    }
}

/// Bytes of an alignment that is given in units of 4 bytes, 0's based.
pub(crate) const fn alignment(pda_z: u8) -> usize {
    (pda_z as usize + 1) * 4
}

/// An ICReq or ICResp: a header, and nothing else.
fn without_data(header: usize, common: &CommonHeader, length: Fault) -> Result<Layout, Fault> {
    if u64::from(common.plen) != header as u64 {
        return Err(length);
    }
    Ok(Layout {
        header,
        head: header,
        data: 0,
        header_digest: false,
        data_digest: false,
    })
}

/// A termination request: it has no digests, and the header that it is about directly behind its
/// own.
fn termination(common: &CommonHeader, length: Fault) -> Result<Layout, Fault> {
    let header = size_of::<TermReq>();
    let data = u64::from(common.plen)
        .checked_sub(header as u64)
        .filter(|data| *data <= (MAX_TERM_REQ_SIZE - header) as u64)
        .and_then(|data| u32::try_from(data).ok())
        .ok_or(length)?;
    Ok(Layout {
        header,
        head: header,
        data,
        header_digest: false,
        data_digest: false,
    })
}
