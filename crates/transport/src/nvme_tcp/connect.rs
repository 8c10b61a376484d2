//! The Connect command (Base 2.1, 6.3): what of it can be judged without a controller.

use std::mem::offset_of;

use authentication::Concatenates;
use nvme_spec::discovery::WELL_KNOWN_DISCOVERY_NQN;
use nvme_spec::fabrics::{
    CNTLID_DYNAMIC, CONNECT_DATA_SIZE, CONNECT_KATO_OFFSET, CONNECT_QID_OFFSET,
    CONNECT_SQSIZE_OFFSET, ConnectAttributes, ConnectCdw10, ConnectCdw11, ConnectData, FabricsType,
    InvalidParameterDw0, text_of,
};
use nvme_spec::opcode::AdminOpcode;
use nvme_spec::sgl::{SglDescriptorSubType, SglDescriptorType};
use nvme_spec::{Sqe, Status};

use super::TargetConfig;
use super::peer::Peer;
use super::proof::Proof;

/// Entries of an admin queue at most.
pub(super) const ADMIN_DEPTH: u16 = 128;
/// Bytes of an NQN at most, without the zero behind it (Base 2.1, 4.7).
const NQN_MAX: usize = 223;

/// The host that connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Host {
    /// Host NQN.
    pub nqn: String,
    /// Host Identifier.
    pub id: [u8; 16],
}

/// Why a Connect command is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A field of the command, at this offset, is wrong.
    Command(u16),
    /// A field of the data, at this offset, is wrong.
    Data(u16),
    /// The identifier names no controller that has an admin queue of a host: its association may
    /// just have ended.
    Controller,
    /// The host may not use the subsystem.
    Host,
    /// The host has a key of TLS or has to make one, and comes without TLS.
    Plain,
    /// The key of TLS is another host's, or no host's any more.
    Peer,
    /// Another host has its Host Identifier now.
    Identifier,
    /// There is no controller for one more host now.
    Busy,
    /// Another status; the host may try again.
    Other(Status),
}

impl Refusal {
    /// A short name, for counters.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Command(_) | Self::Data(_) => "parameters",
            Self::Controller => "controller",
            Self::Host => "host",
            Self::Plain => "tls-required",
            Self::Peer => "tls-host",
            Self::Identifier => "identifier",
            Self::Busy => "busy",
            Self::Other(_) => "other",
        }
    }

    /// Status, Dword 0, and whether the host is not to try again.
    pub(super) fn answer(self) -> (Status, u32, bool) {
        let parameter = |ipo, iattr| {
            let dw0 = InvalidParameterDw0::new().with_ipo(ipo).with_iattr(iattr);
            (Status::CONNECT_INVALID_PARAMETERS, u32::from(dw0))
        };
        match self {
            Self::Command(offset) => {
                let (status, dw0) = parameter(offset, false);
                (status, dw0, true)
            }
            Self::Data(offset) => {
                let (status, dw0) = parameter(offset, true);
                (status, dw0, true)
            }
            Self::Controller => {
                let (status, dw0) = parameter(CNTLID_OFFSET, true);
                (status, dw0, false)
            }
            Self::Identifier => {
                let (status, dw0) = parameter(HOSTID_OFFSET, true);
                (status, dw0, false)
            }
            Self::Host | Self::Plain | Self::Peer => {
                let (_, dw0) = parameter(HOSTNQN_OFFSET, true);
                (Status::CONNECT_INVALID_HOST, dw0, true)
            }
            Self::Busy => (Status::CONNECT_CONTROLLER_BUSY, 0, false),
            Self::Other(status) => (status, 0, false),
        }
    }
}

/// Offset in bytes of CNTLID in the data.
pub(super) const CNTLID_OFFSET: u16 = offset_of!(ConnectData, cntlid) as u16;
/// Offset in bytes of HOSTID in the data.
pub(super) const HOSTID_OFFSET: u16 = offset_of!(ConnectData, hostid) as u16;
/// Offset in bytes of SUBNQN in the data.
pub(super) const SUBNQN_OFFSET: u16 = offset_of!(ConnectData, subnqn) as u16;
/// Offset in bytes of HOSTNQN in the data.
pub(super) const HOSTNQN_OFFSET: u16 = offset_of!(ConnectData, hostnqn) as u16;
/// Offset in bytes of QID in the command.
pub(super) const QID_OFFSET: u16 = CONNECT_QID_OFFSET;
/// Offset in bytes of SQSIZE in the command.
pub(super) const SQSIZE_OFFSET: u16 = CONNECT_SQSIZE_OFFSET;

/// A Connect command that is right in itself.
#[derive(Clone, Debug)]
pub(super) struct Connect {
    pub(super) cid: u16,
    pub(super) qid: u16,
    /// Entries of the queue.
    pub(super) entries: u16,
    pub(super) attributes: ConnectAttributes,
    pub(super) kato_ms: u32,
    pub(super) cntlid: u16,
    /// It is for the discovery subsystem.
    pub(super) is_discovery: bool,
    /// Its host comes through TLS with a key that it has made in an exchange: what that has proved.
    pub(super) generated: Option<Proof>,
    pub(super) host: Host,
}

/// Judgement of a first command before its data are there: whether it can be a Connect.
///
/// # Errors
/// The status that it ends with.
pub(super) fn first(sqe: &Sqe, data: u32) -> Result<(), Status> {
    let is_connect =
        sqe.admin_opcode() == AdminOpcode::FABRICS && sqe.fabrics_type() == FabricsType::CONNECT;
    if !is_connect {
        return Err(Status::COMMAND_SEQUENCE_ERROR);
    }
    let sgl = sqe.sgl1();
    let kind = (sgl.identifier.descriptor_type(), sgl.identifier.sub_type());
    // Its data come in the capsule: there is no slot that an R2T could ask for data for.
    if kind != (SglDescriptorType::DATA_BLOCK, SglDescriptorSubType::OFFSET) || data == 0 {
        return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID);
    }
    if sgl.address != 0 {
        return Err(Status::SGL_OFFSET_INVALID);
    }
    if sgl.length != data || data as usize != CONNECT_DATA_SIZE {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    if ConnectCdw10::from(sqe.cdw10).recfmt() != 0 {
        return Err(Status::CONNECT_INCOMPATIBLE_FORMAT);
    }
    Ok(())
}

/// Judges a Connect command and its data. Through TLS it is for the host and the subsystem that
/// the key is for (TCP 1.1, 3.6.1).
///
/// # Errors
/// Why it is refused.
pub(super) fn judge(
    sqe: &Sqe,
    data: &ConnectData,
    config: &TargetConfig,
    peer: Option<&Peer>,
) -> Result<Connect, Refusal> {
    let (cdw10, cdw11) = (ConnectCdw10::from(sqe.cdw10), ConnectCdw11::from(sqe.cdw11));
    let (qid, sqsize_z) = (cdw10.qid(), cdw11.sqsize_z());
    let subnqn = name(&data.subnqn).ok_or(Refusal::Data(SUBNQN_OFFSET))?;
    let is_discovery = [WELL_KNOWN_DISCOVERY_NQN, &config.discovery_nqn].contains(&subnqn);
    if qid > if is_discovery { 0 } else { config.queues } {
        return Err(Refusal::Command(QID_OFFSET));
    }
    let depth = if qid == 0 {
        ADMIN_DEPTH
    } else {
        config.queue_depth
    };
    if sqsize_z == 0 || sqsize_z >= depth {
        return Err(Refusal::Command(SQSIZE_OFFSET));
    }
    if !is_discovery && subnqn != config.subnqn {
        return Err(Refusal::Data(SUBNQN_OFFSET));
    }
    // A host may have no name where any host may come: SPDK's programs have none by default.
    let nqn = text(&data.hostnqn).ok_or(Refusal::Data(HOSTNQN_OFFSET))?;
    if !is_discovery && !config.access.admits(nqn) {
        return Err(Refusal::Host);
    }
    let has_key = config.access.tls_key(nqn).is_some();
    let generated = peer.and_then(|peer| peer.generated);
    let must_concatenate = config.access.concatenates(nqn) == Concatenates::Always;
    match peer {
        Some(peer) if peer.hostnqn != nqn => return Err(Refusal::Peer),
        Some(peer) if peer.subnqn != subnqn => return Err(Refusal::Data(SUBNQN_OFFSET)),
        // Its key was taken from it after its handshake.
        Some(_) if !is_discovery && !config.access.comes_through_tls(nqn, generated.is_some()) => {
            return Err(Refusal::Peer);
        }
        None if !is_discovery && has_key => return Err(Refusal::Plain),
        // It makes its key on its admin queue.
        None if qid > 0 && must_concatenate => return Err(Refusal::Plain),
        Some(_) | None => {}
    }
    // The controllers of an entrance are dynamic.
    if (qid == 0) != (data.cntlid == CNTLID_DYNAMIC) {
        return Err(Refusal::Data(CNTLID_OFFSET));
    }
    Ok(Connect {
        cid: sqe.cid,
        qid,
        entries: sqsize_z + 1,
        attributes: cdw11.cattr(),
        kato_ms: sqe.cdw12,
        cntlid: data.cntlid,
        is_discovery,
        generated,
        host: Host {
            nqn: nqn.to_owned(),
            id: data.hostid,
        },
    })
}

const _: () = assert!(CONNECT_KATO_OFFSET == 48, "KATO is Dword 12");

/// An NQN of a field: not empty, and not too long.
pub(super) fn name(field: &[u8]) -> Option<&str> {
    text(field).filter(|name| !name.is_empty())
}

/// An NQN of a field, or nothing.
fn text(field: &[u8]) -> Option<&str> {
    text_of(field).filter(|name| name.len() <= NQN_MAX)
}
