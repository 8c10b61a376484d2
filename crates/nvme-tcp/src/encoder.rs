//! Events become bytes. Data and their digest are the caller's: it sends them from where they lie.

use arrayvec::ArrayVec;
use nvme_spec::tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, DIGEST_SIZE, DataHeader, Digests, IcReq, IcResp,
    MAX_TERM_REQ_SIZE, PduFlags, PduType, R2t, TermReq,
};
use nvme_spec::{Cqe, Sqe};
use zerocopy::{Immutable, IntoBytes};

use crate::Side;
use crate::agreement::Agreement;
use crate::digest::of_header;
use crate::fault::Fault;
use crate::header::alignment;
use crate::transfer::Piece;

/// The bytes of a PDU before its data: header, digest and padding.
#[derive(Clone, Debug)]
pub struct Head(ArrayVec<u8, MAX_TERM_REQ_SIZE>);

impl Head {
    fn new(bytes: &[u8]) -> Self {
        let mut head = Self(ArrayVec::new());
        head.add(bytes);
        head
    }

    /// Adds bytes.
    ///
    /// # Panics
    /// They are more than the longest head has.
    #[inline]
    fn add(&mut self, bytes: &[u8]) {
        self.0
            .try_extend_from_slice(bytes)
            .expect("no head is longer than a termination request");
    }
}

impl std::ops::Deref for Head {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.0
    }
}

/// Writes what a side sends when both have agreed.
#[derive(Clone, Copy, Debug)]
pub struct Encoder {
    agreement: Agreement,
    /// The common head of a response.
    response: CommonHeader,
    /// Those of the last data of a command, without and with SUCCESS, as if there were no data.
    last_c2h: [CommonHeader; 2],
}

impl Encoder {
    /// The encoder of a connection.
    pub fn new(agreement: Agreement) -> Self {
        let digests = agreement.digests;
        let last = |success| {
            let flags = PduFlags::new().with_last(true).with_success(success);
            let header = size_of::<DataHeader>();
            let pda_z = agreement.host_alignment_z;
            let one = common(digests, PduType::C2H_DATA, header, flags, pda_z, 1);
            CommonHeader {
                plen: one.plen - 1,
                ..one
            }
        };
        Self {
            agreement,
            response: without_data(digests, PduType::CAPSULE_RESP, size_of::<CapsuleResp>()),
            last_c2h: [false, true].map(last),
        }
    }

    /// Whether a [`DataDigest`](crate::DataDigest) stands behind data.
    #[inline]
    pub const fn data_digest(&self) -> bool {
        self.agreement.digests.data()
    }

    /// A command; `data` bytes follow in its capsule.
    #[inline]
    pub fn capsule(&self, sqe: &Sqe, data: u32) -> Head {
        let mut pdu = CapsuleCmd {
            sqe: *sqe,
            ..CapsuleCmd::default()
        };
        let pda_z = self.agreement.controller_alignment_z;
        let flags = PduFlags::new();
        let digests = self.agreement.digests;
        pdu.common = common(
            digests,
            PduType::CAPSULE_CMD,
            size_of_val(&pdu),
            flags,
            pda_z,
            data,
        );
        self.head(&pdu, pdu.common)
    }

    /// A completion.
    pub fn response(&self, cqe: &Cqe) -> Head {
        let mut head = Head(ArrayVec::new());
        self.put_response(cqe, |bytes| head.add(bytes));
        head
    }

    /// As [`Self::response`], in one or more pieces. One that is for a buffer moves no [`Head`].
    #[inline]
    pub fn put_response(&self, cqe: &Cqe, put: impl FnMut(&[u8])) {
        let pdu = CapsuleResp {
            common: self.response,
            cqe: *cqe,
        };
        self.put(&pdu, pdu.common, put);
    }

    /// Data to the controller: the bytes of `piece` follow.
    #[inline]
    pub fn h2c_data(&self, piece: &Piece) -> Head {
        let flags = PduFlags::new().with_last(piece.last);
        let pda_z = self.agreement.controller_alignment_z;
        let common = self.common(PduType::H2C_DATA, flags, pda_z, piece.len);
        self.head(&with_data(common, piece), common)
    }

    /// Data to the host: the bytes of `piece` follow. With `success`, which only the last piece of
    /// a command may have, they stand for its completion.
    pub fn c2h_data(&self, piece: &Piece, success: bool) -> Head {
        let mut head = Head(ArrayVec::new());
        self.put_c2h_data(piece, success, |bytes| head.add(bytes));
        head
    }

    /// As [`Self::c2h_data`], in one or more pieces.
    #[inline]
    pub fn put_c2h_data(&self, piece: &Piece, success: bool, put: impl FnMut(&[u8])) {
        let common = if piece.last {
            let last = self.last_c2h[usize::from(success)];
            let plen = last.plen.checked_add(piece.len).expect(SHORT);
            CommonHeader { plen, ..last }
        } else {
            let pda_z = self.agreement.host_alignment_z;
            self.common(PduType::C2H_DATA, PduFlags::new(), pda_z, piece.len)
        };
        self.put(&with_data(common, piece), common, put);
    }

    /// A request for the data of `piece`.
    pub fn r2t(&self, piece: &Piece) -> Head {
        let mut pdu = R2t {
            cccid: piece.cccid,
            ttag: piece.ttag,
            r2to: piece.offset,
            r2tl: piece.len,
            ..R2t::default()
        };
        pdu.common = without_data(self.agreement.digests, PduType::R2T, size_of_val(&pdu));
        self.head(&pdu, pdu.common)
    }

    /// The common head of data.
    #[inline]
    fn common(&self, pdu_type: PduType, flags: PduFlags, pda_z: u8, len: u32) -> CommonHeader {
        let header = size_of::<DataHeader>();
        common(self.agreement.digests, pdu_type, header, flags, pda_z, len)
    }

    #[inline]
    fn head<T: IntoBytes + Immutable>(&self, pdu: &T, common: CommonHeader) -> Head {
        let mut head = Head(ArrayVec::new());
        self.put(pdu, common, |bytes| head.add(bytes));
        head
    }

    /// The header, its digest and its padding.
    #[inline]
    fn put<T: IntoBytes + Immutable>(
        &self,
        pdu: &T,
        common: CommonHeader,
        mut put: impl FnMut(&[u8]),
    ) {
        let header = pdu.as_bytes();
        put(header);
        let mut len = header.len();
        if self.agreement.digests.header() {
            let digest = of_header(header);
            put(&digest);
            len += digest.len();
        }
        for _ in len..usize::from(common.pdo) {
            put(&[0]);
        }
    }
}

#[inline]
fn with_data(common: CommonHeader, piece: &Piece) -> DataHeader {
    DataHeader {
        common,
        cccid: piece.cccid,
        ttag: piece.ttag,
        datao: piece.offset,
        datal: piece.len,
        ..DataHeader::default()
    }
}

/// Why no length of a PDU is beyond its field.
const SHORT: &str = "data are limited far below 4 GiB";

/// The common head of a PDU with `data` bytes of data.
///
/// # Panics
/// The PDU would be longer than 4 GiB: its caller has a limit far below.
#[inline]
fn common(
    digests: Digests,
    pdu_type: PduType,
    header: usize,
    flags: PduFlags,
    pda_z: u8,
    data: u32,
) -> CommonHeader {
    let after = header + if digests.header() { DIGEST_SIZE } else { 0 };
    let flags = flags.with_hdgst(digests.header());
    let mut common = CommonHeader {
        pdu_type,
        flags,
        hlen: u8::try_from(header).expect("the longest header has 128 bytes"),
        pdo: 0,
        plen: u32::try_from(after).expect("the longest header has 128 bytes"),
    };
    if data > 0 {
        let head = after.next_multiple_of(alignment(pda_z));
        common.pdo = u8::try_from(head).expect("a header of 76 bytes ends at most at 128");
        common.flags.set_ddgst(digests.data());
        let digest = if digests.data() { DIGEST_SIZE } else { 0 };
        common.plen = u32::try_from(head + digest)
            .ok()
            .and_then(|rest| rest.checked_add(data))
            .expect(SHORT);
    }
    common
}

fn without_data(digests: Digests, pdu_type: PduType, header: usize) -> CommonHeader {
    common(digests, pdu_type, header, PduFlags::new(), 0, 0)
}

impl From<&IcReq> for Head {
    fn from(request: &IcReq) -> Self {
        Self::new(request.as_bytes())
    }
}

impl From<&IcResp> for Head {
    fn from(response: &IcResp) -> Self {
        Self::new(response.as_bytes())
    }
}

impl Fault {
    /// The termination request that `side` sends for this fault, with the header that it is about:
    /// [`Decoder::at_fault`](crate::Decoder::at_fault), of which 128 bytes are taken at most.
    pub fn termination(self, side: Side, header: &[u8]) -> Head {
        let (fes, fei) = self.status();
        let pdu_type = match side {
            Side::Host => PduType::H2C_TERM_REQ,
            Side::Controller => PduType::C2H_TERM_REQ,
        };
        let own = size_of::<TermReq>();
        let len = header.len().min(MAX_TERM_REQ_SIZE - own);
        let pdu = TermReq {
            common: CommonHeader {
                pdu_type,
                flags: PduFlags::new(),
                hlen: u8::try_from(own).expect("the header has 24 bytes"),
                pdo: 0,
                plen: u32::try_from(own + len).expect("the request has at most 152 bytes"),
            },
            fes,
            fei: fei.into(),
            reserved: [0; 10],
        };
        let mut head = Head::new(pdu.as_bytes());
        head.add(&header[..len]);
        head
    }
}
