//! Bytes of a connection become events, however they are cut.

use nvme_spec::tcp::{
    CapsuleCmd, CapsuleResp, CommonHeader, DIGEST_SIZE, DataHeader, FatalErrorStatus, IcReq,
    IcResp, MAX_HEADER_SIZE, PduType, R2t, TermReq,
};
use nvme_spec::{Cqe, Sqe};
use zerocopy::FromBytes;

use crate::Side;
use crate::agreement::Agreement;
use crate::digest::{DataDigest, of_header};
use crate::fault::Fault;
use crate::header::{Layout, Rules, alignment};

/// Meaning of the next bytes. A PDU with data is its head, then pieces of data, then their end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// A host's first PDU: answer it, and call [`Decoder::agree`].
    IcReq(IcReq),
    /// A controller's answer to ours: call [`Decoder::agree`].
    IcResp(IcResp),
    /// A command, and the number of bytes of data in its capsule.
    Capsule {
        /// The command.
        sqe: Sqe,
        /// Bytes of data that follow.
        data: u32,
    },
    /// A completion. Its phase is without meaning.
    Response(Cqe),
    /// Data from the host follow.
    H2cData(DataHeader),
    /// Data from the controller follow.
    C2hData(DataHeader),
    /// The controller asks for data.
    R2t(R2t),
    /// The peer ends the connection. Nothing comes after this.
    Terminated {
        /// Fatal Error Status.
        fes: FatalErrorStatus,
        /// Fatal Error Information: an offset in bytes, or a digest.
        fei: u32,
    },
    /// The next bytes of the data.
    Data(&'a [u8]),
    /// The data are complete.
    DataEnd {
        /// Whether their digest is right, or there is none. Data that are not intact fail their
        /// command with Transient Transport Error; the connection goes on (TCP 1.1, 3.5.2).
        intact: bool,
    },
}

/// Where a decoder is in a PDU.
#[derive(Clone, Copy, Debug)]
enum State {
    /// In the head; `Decoder::have` bytes of it are in `Decoder::head`.
    Head,
    /// In the data.
    Data {
        /// Bytes that are still to come.
        left: u32,
        /// The digest so far, where one follows.
        digest: Option<DataDigest>,
    },
    /// In the digest of the data, as in the head.
    Digest(DataDigest),
    /// After a termination request, or a fault.
    Ended,
}

/// The longest head: PDO is a byte.
const MAX_HEAD: usize = 256;

/// Reads what a peer sends. It holds a head that came in pieces, and no data.
#[derive(Debug)]
pub struct Decoder {
    rules: Rules,
    usual: Usual,
    state: State,
    head: [u8; MAX_HEAD],
    have: usize,
}

/// The PDU that a side gets most, which its first eight bytes tell: a command, or data from a
/// controller, both without digests.
#[derive(Clone, Copy, Debug)]
enum Usual {
    None,
    /// Without data in its capsule, or with some right behind its header.
    Command {
        with_data: bool,
    },
    Data,
}

/// Bytes of the header of a command.
const COMMAND_HEAD: u32 = 72;
const _: () = assert!(size_of::<CapsuleCmd>() == COMMAND_HEAD as usize);
/// PDU Type, HDGSTF, HLEN and PLEN of a common head that is one little-endian number.
const COMMAND_MASK: u64 = 0xffff_ffff_00ff_01ff;
const COMMAND: u64 =
    usual(PduType::CAPSULE_CMD, size_of::<CapsuleCmd>()) | (COMMAND_HEAD as u64) << 32;
/// PDU Type, HLEN and PDO of a command whose data stand right behind its header, as [`DATA`] has
/// those of data.
const WRITE: u64 =
    usual(PduType::CAPSULE_CMD, size_of::<CapsuleCmd>()) | (COMMAND_HEAD as u64) << 24;
/// Bytes before the data of a PDU with data and without digests.
const DATA_HEAD: u32 = 24;
const _: () = assert!(size_of::<DataHeader>() == DATA_HEAD as usize);
/// PDU Type, HDGSTF, DDGSTF, HLEN and PDO.
const DATA_MASK: u64 = 0xffff_03ff;
const DATA: u64 =
    usual(PduType::C2H_DATA, size_of::<DataHeader>()) | (size_of::<DataHeader>() as u64) << 24;

const fn usual(pdu_type: PduType, header: usize) -> u64 {
    pdu_type.0 as u64 | (header as u64) << 16
}

impl Usual {
    /// That of a side. Digests and unusual alignments need the rules.
    fn of(side: Side, agreement: &Agreement) -> Self {
        let digests = agreement.digests;
        let is_aligned = |header: usize, pda_z| header.is_multiple_of(alignment(pda_z));
        // PDUs with data, too, where they stand right behind the header and nothing behind them.
        let with_data = !digests.data()
            && match side {
                Side::Controller => {
                    is_aligned(size_of::<CapsuleCmd>(), agreement.controller_alignment_z)
                }
                Side::Host => is_aligned(size_of::<DataHeader>(), agreement.host_alignment_z),
            };
        match side {
            Side::Controller if !digests.header() => Self::Command { with_data },
            Side::Host if !digests.header() && with_data => Self::Data,
            _ => Self::None,
        }
    }
}

impl Decoder {
    /// A decoder for one side. `max_data` is the maximum number of bytes of data: in a command
    /// capsule for a controller, in a C2HData for a host.
    pub const fn new(side: Side, max_data: u32) -> Self {
        Self {
            rules: Rules {
                side,
                agreement: None,
                max_data,
            },
            usual: Usual::None,
            state: State::Head,
            head: [0; MAX_HEAD],
            have: 0,
        }
    }

    /// Goes on after the first PDUs of both sides.
    pub fn agree(&mut self, agreement: Agreement) {
        self.rules.agreement = Some(agreement);
        self.usual = Usual::of(self.rules.side, &agreement);
    }

    /// Changes the maximum number of bytes of data: a queue's limit is known only after Connect.
    pub const fn set_max_data(&mut self, max_data: u32) {
        self.rules.max_data = max_data;
    }

    /// Bytes of data that come next, which a caller may receive where it wants them and then tell
    /// [`Decoder::received`].
    #[inline]
    pub const fn data_left(&self) -> u32 {
        match self.state {
            State::Data { left, .. } => left,
            _ => 0,
        }
    }

    /// Takes data that the caller has received beside this decoder: at most [`Decoder::data_left`]
    /// bytes.
    ///
    /// # Panics
    /// The caller has received more.
    #[inline]
    pub fn received(&mut self, piece: &[u8]) {
        let State::Data { left, digest } = &mut self.state else {
            assert!(piece.is_empty(), "no data were to come");
            return;
        };
        *left = u32::try_from(piece.len())
            .ok()
            .and_then(|len| left.checked_sub(len))
            .expect("a caller receives no more than the data that are left");
        if let Some(digest) = digest {
            digest.add(piece);
        }
    }

    /// As [`Decoder::received`], of `len` bytes that the caller does not show: where no digest of
    /// them follows.
    ///
    /// # Panics
    /// The caller has received more, or a digest follows.
    pub fn received_unseen(&mut self, len: u32) {
        let State::Data { left, digest: None } = &mut self.state else {
            panic!("data with a digest are shown");
        };
        *left = left
            .checked_sub(len)
            .expect("a caller receives no more than the data that are left");
    }

    /// The header of the PDU at fault, as far as it came, after [`Decoder::step`] has returned a
    /// fault: a termination request carries it.
    pub fn at_fault(&self) -> &[u8] {
        &self.head[..self.have.min(MAX_HEADER_SIZE)]
    }

    /// The next event of `bytes`, which is left with what stands behind it. `None` takes all of
    /// them, and more are needed.
    ///
    /// # Errors
    /// The peer has broken a rule. The connection ends; more bytes are ignored.
    #[inline]
    pub fn step<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fault> {
        if let State::Head = self.state
            && self.have == 0
            && let Some(event) = self.usual(bytes)
        {
            return Ok(Some(event));
        }
        self.other(bytes)
    }

    /// As [`Decoder::step`], whatever comes.
    #[inline(never)]
    fn other<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fault> {
        match self.state {
            State::Head => {
                let event = self.head(bytes);
                if event.is_err() {
                    self.state = State::Ended;
                }
                event
            }
            State::Data { left: 0, digest } => match digest {
                Some(digest) => {
                    self.state = State::Digest(digest);
                    Ok(self.digest(digest, bytes))
                }
                None => {
                    self.state = State::Head;
                    Ok(Some(Event::DataEnd { intact: true }))
                }
            },
            State::Data { left, .. } => {
                let len = bytes.len().min(left as usize);
                let (piece, rest) = bytes.split_at(len);
                *bytes = rest;
                self.received(piece);
                Ok((len > 0).then_some(Event::Data(piece)))
            }
            State::Digest(digest) => Ok(self.digest(digest, bytes)),
            State::Ended => {
                *bytes = &[];
                Ok(None)
            }
        }
    }

    /// A PDU of the usual kind whose head is in `bytes`. Another one, or one at fault, is judged by
    /// the rules.
    #[inline]
    fn usual<'a>(&mut self, bytes: &mut &'a [u8]) -> Option<Event<'a>> {
        let common = u64::from_le_bytes(*bytes.first_chunk()?);
        match self.usual {
            Usual::Command { .. } if common & COMMAND_MASK == COMMAND => {
                let (pdu, rest) = bytes.split_first_chunk::<{ size_of::<CapsuleCmd>() }>()?;
                *bytes = rest;
                let sqe = read::<Sqe>(&pdu[size_of::<CommonHeader>()..]);
                Some(Event::Capsule { sqe, data: 0 })
            }
            Usual::Command { with_data: true } if common & DATA_MASK == WRITE => {
                let (pdu, rest) = bytes.split_first_chunk::<{ size_of::<CapsuleCmd>() }>()?;
                let left = ((common >> 32) as u32).checked_sub(COMMAND_HEAD)?;
                if left == 0 || left > self.rules.max_data {
                    return None;
                }
                *bytes = rest;
                self.state = State::Data { left, digest: None };
                let sqe = read::<Sqe>(&pdu[size_of::<CommonHeader>()..]);
                Some(Event::Capsule { sqe, data: left })
            }
            Usual::Data if common & DATA_MASK == DATA => {
                let (pdu, rest) = bytes.split_first_chunk::<{ size_of::<DataHeader>() }>()?;
                let header = read::<DataHeader>(pdu);
                let left = header.common.plen.checked_sub(DATA_HEAD)?;
                let flags = header.common.flags;
                let is_right = left > 0 && left <= self.rules.max_data && header.datal == left;
                if !is_right || flags.success() && !flags.last() {
                    return None;
                }
                *bytes = rest;
                self.state = State::Data { left, digest: None };
                Some(Event::C2hData(header))
            }
            _ => None,
        }
    }

    /// A head, in place if `bytes` has all of it.
    #[inline]
    fn head<'a>(&mut self, bytes: &mut &'a [u8]) -> Result<Option<Event<'a>>, Fault> {
        if self.have == 0
            && let Ok((common, _)) = CommonHeader::read_from_prefix(bytes)
        {
            let layout = self.rules.layout(&common);
            if let Ok(layout) = layout
                && let Some((head, rest)) = bytes.split_at_checked(layout.head)
            {
                let event = self.pdu(&layout, head)?;
                *bytes = rest;
                return Ok(Some(event));
            }
        }
        if !self.fill(bytes, size_of::<CommonHeader>()) {
            return Ok(None);
        }
        let (common, _) = CommonHeader::read_from_prefix(&self.head).expect("the head is longer");
        let layout = self.rules.layout(&common)?;
        if !self.fill(bytes, layout.head) {
            return Ok(None);
        }
        let head = self.head;
        let event = self.pdu(&layout, &head[..layout.head])?;
        self.have = 0;
        Ok(Some(event))
    }

    /// Takes bytes into `self.head` until it has `wanted`, and says whether it has.
    fn fill(&mut self, bytes: &mut &[u8], wanted: usize) -> bool {
        let len = wanted.saturating_sub(self.have).min(bytes.len());
        let (piece, rest) = bytes.split_at(len);
        self.head[self.have..self.have + len].copy_from_slice(piece);
        self.have += len;
        *bytes = rest;
        self.have >= wanted
    }

    /// The event of a PDU whose head is complete.
    #[inline]
    fn pdu<'a>(&mut self, layout: &Layout, head: &[u8]) -> Result<Event<'a>, Fault> {
        let event = self.judge(layout, head);
        match event {
            Err(_) => {
                self.have = layout.header;
                self.head[..layout.header].copy_from_slice(&head[..layout.header]);
            }
            Ok(Event::Terminated { .. }) => self.state = State::Ended,
            Ok(_) if layout.data > 0 => {
                self.state = State::Data {
                    left: layout.data,
                    digest: layout.data_digest.then(DataDigest::default),
                };
            }
            Ok(_) => {}
        }
        event
    }

    #[inline]
    fn judge<'a>(&self, layout: &Layout, head: &[u8]) -> Result<Event<'a>, Fault> {
        let (header, after) = head.split_at(layout.header);
        if layout.header_digest {
            let (received, _) = after
                .split_first_chunk()
                .expect("a layout has room for the digest");
            if *received != of_header(header) {
                return Err(Fault::HeaderDigest {
                    received: u32::from_le_bytes(*received),
                });
            }
        }
        Ok(match CommonHeader::read_from_prefix(header) {
            Ok((common, _)) => match common.pdu_type {
                PduType::IC_REQ => Event::IcReq(read::<IcReq>(header)),
                PduType::IC_RESP => Event::IcResp(read::<IcResp>(header)),
                PduType::CAPSULE_CMD => Event::Capsule {
                    sqe: read::<CapsuleCmd>(header).sqe,
                    data: layout.data,
                },
                PduType::CAPSULE_RESP => Event::Response(read::<CapsuleResp>(header).cqe),
                PduType::H2C_DATA => Event::H2cData(data_header(layout, header)?),
                PduType::C2H_DATA => Event::C2hData(data_header(layout, header)?),
                PduType::R2T => {
                    let r2t = read::<R2t>(header);
                    if r2t.r2tl == 0 {
                        return Err(Fault::NoData(PduType::R2T));
                    }
                    Event::R2t(r2t)
                }
                _ => {
                    let term = read::<TermReq>(header);
                    Event::Terminated {
                        fes: term.fes,
                        fei: term.fei.get(),
                    }
                }
            },
            Err(_) => unreachable!("a layout's header is longer than its common head"),
        })
    }

    /// The digest of the data, when it is complete.
    fn digest<'a>(&mut self, digest: DataDigest, bytes: &mut &'a [u8]) -> Option<Event<'a>> {
        if !self.fill(bytes, DIGEST_SIZE) {
            return None;
        }
        self.have = 0;
        self.state = State::Head;
        Some(Event::DataEnd {
            intact: self.head[..DIGEST_SIZE] == digest.bytes(),
        })
    }
}

/// The structure at the start of a header that is at least as long.
#[inline]
fn read<T: FromBytes>(header: &[u8]) -> T {
    let (value, _) = T::read_from_prefix(header)
        .map_err(|_| ())
        .expect("a layout's header has the length of its type");
    value
}

/// The header of data, whose DATAL is what PLEN leaves for them.
#[inline]
fn data_header(layout: &Layout, header: &[u8]) -> Result<DataHeader, Fault> {
    let header = read::<DataHeader>(header);
    if header.datal != layout.data {
        return Err(Fault::Length {
            pdu_type: header.common.pdu_type,
            plen: header.common.plen,
        });
    }
    Ok(header)
}

#[cfg(test)]
mod tests;
