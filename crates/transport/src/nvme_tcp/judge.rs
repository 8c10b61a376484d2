//! Whether a command may go to the controller, as far as its transport is concerned: its data
//! pointer, their length and their direction (Base 2.1, 4.3.2 and 6.2; TCP 1.1, 3.3.2).

use nvme_spec::command::get_log_page_numd_z;
use nvme_spec::fabrics::{AuthenticationCdw10, FabricsType, SECP_NVME};
use nvme_spec::lba_status::GetLbaStatusCdw12;
use nvme_spec::opcode::{AdminOpcode, Csi, DataTransfer, NvmOpcode};
use nvme_spec::sgl::{SglDescriptorSubType, SglDescriptorType, SglIdentifier};
use nvme_spec::sqe::{Fuse, Psdt};
use nvme_spec::zoned::ZonedOpcode;
use nvme_spec::{Sqe, Status};
use port::namespace::{Namespace, NamespaceTable};
use port::set::Data as Moves;

/// The descriptor of data that travel beside the capsule (TCP 1.1, 3.3.2.1).
pub(super) const BESIDE: SglIdentifier = SglIdentifier::new()
    .with_descriptor_type(SglDescriptorType::TRANSPORT_DATA_BLOCK)
    .with_sub_type(SglDescriptorSubType(0xa));
/// That of data in the capsule.
pub(super) const IN_CAPSULE: SglIdentifier = SglIdentifier::new()
    .with_descriptor_type(SglDescriptorType::DATA_BLOCK)
    .with_sub_type(SglDescriptorSubType::OFFSET);

/// Bytes of data of an admin command at most, as far as a controller allows them.
pub(super) const ADMIN_DATA: u32 = 1 << 20;
/// Bytes of data of an admin command at most where its length is not a field of it.
const ADMIN_PAGE: u32 = 4096;

/// Parameters by which a queue judges.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits<'a> {
    /// Bytes that a command may move.
    pub(super) max_transfer: u32,
    /// Bytes of a small slot, which is what each half of a fused pair may have.
    pub(super) small: u32,
    /// Of an I/O queue, the namespaces; of an admin queue, nothing.
    pub(super) namespaces: Option<&'a NamespaceTable>,
    /// The controller serves commands.
    pub(super) ready: bool,
    /// Whether the host has proved on this queue who it is.
    pub(super) gate: Gate,
}

/// Whether a host has proved who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gate {
    /// It does not have to.
    None,
    /// Not yet: nothing but its authentication is served.
    Closed,
    /// It has.
    Passed,
}

/// A command's data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Data {
    /// Bytes; 0 is none.
    pub(super) len: u32,
    /// They go to the host.
    pub(super) to_host: bool,
}

/// Judges a command with `in_capsule` bytes of data in its capsule.
///
/// # Errors
/// The status that it ends with.
pub(super) fn judge(sqe: &Sqe, in_capsule: u32, limits: &Limits<'_>) -> Result<Data, Status> {
    let is_fabrics = sqe.admin_opcode() == AdminOpcode::FABRICS;
    if limits.gate == Gate::Closed && !(is_fabrics && AUTHENTICATION.contains(&sqe.fabrics_type()))
    {
        return Err(Status::AUTHENTICATION_REQUIRED);
    }
    if is_fabrics {
        return fabrics(sqe, in_capsule, limits);
    }
    let is_admin = limits.namespaces.is_none();
    if is_admin && OWN.contains(&sqe.admin_opcode()) {
        return Err(Status::INVALID_COMMAND_OPCODE);
    }
    if !limits.ready {
        return Err(Status::COMMAND_SEQUENCE_ERROR);
    }
    let namespace = limits.namespaces.and_then(|all| all.get(sqe.nsid));
    let data = data(sqe, direction(sqe, namespace)?, in_capsule)?;
    if data.len > limits.max_transfer {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    match limits.namespaces {
        None => admin(sqe, data.len)?,
        Some(_) => {
            if sqe.flags.fuse() != Fuse::NORMAL && data.len > limits.small {
                return Err(Status::INVALID_FIELD_IN_COMMAND);
            }
            let blocks_len = namespace.and_then(|namespace| blocks_len_in(namespace, sqe));
            if blocks_len.is_some_and(|len| len != u64::from(data.len)) {
                return Err(Status::DATA_SGL_LENGTH_INVALID);
            }
        }
    }
    Ok(data)
}

/// Admin commands that are the transport's own: queues are made by Connect, and doorbells are not
/// the host's.
const OWN: [AdminOpcode; 5] = [
    AdminOpcode::DELETE_IO_SUBMISSION_QUEUE,
    AdminOpcode::CREATE_IO_SUBMISSION_QUEUE,
    AdminOpcode::DELETE_IO_COMPLETION_QUEUE,
    AdminOpcode::CREATE_IO_COMPLETION_QUEUE,
    AdminOpcode::DOORBELL_BUFFER_CONFIG,
];

/// Fabrics commands that a host may send before it has proved who it is.
const AUTHENTICATION: [FabricsType; 3] = [
    FabricsType::AUTHENTICATION_SEND,
    FabricsType::AUTHENTICATION_RECEIVE,
    FabricsType::DISCONNECT,
];

/// Bytes of the data of Authentication Send and Authentication Receive at most. Linux has buffers
/// of this size.
pub(super) const AUTHENTICATION_DATA: u32 = 4096;

/// Fabrics commands: properties on the admin queue, authentication on every queue, and nothing else
/// after Connect.
fn fabrics(sqe: &Sqe, in_capsule: u32, limits: &Limits<'_>) -> Result<Data, Status> {
    let is_admin = limits.namespaces.is_none();
    match sqe.fabrics_type() {
        FabricsType::CONNECT => Err(Status::COMMAND_SEQUENCE_ERROR),
        FabricsType::PROPERTY_GET | FabricsType::PROPERTY_SET if is_admin => {
            if in_capsule > 0 {
                return Err(Status::INVALID_FIELD_IN_COMMAND);
            }
            Ok(Data::default())
        }
        FabricsType::AUTHENTICATION_SEND | FabricsType::AUTHENTICATION_RECEIVE
            if limits.gate != Gate::None =>
        {
            if limits.gate == Gate::Passed {
                // It is proved once on each queue: another secret is another association's.
                return Err(Status::COMMAND_SEQUENCE_ERROR);
            }
            authentication(sqe, in_capsule)
        }
        _ => Err(Status::INVALID_COMMAND_OPCODE),
    }
}

/// The direction of a command's data: that of its opcode, unless its command set knows another.
#[inline]
fn direction(sqe: &Sqe, namespace: Option<&Namespace>) -> Result<DataTransfer, Status> {
    let by_opcode = DataTransfer::of_opcode(sqe.opcode);
    let Some((namespace, set)) = namespace.and_then(|of| Some((of, of.set.as_ref()?))) else {
        return Ok(by_opcode);
    };
    if set.names_memory(sqe) {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    let is_both = by_opcode == DataTransfer::Bidirectional;
    match set.command(sqe, namespace) {
        Ok(Some(asked)) => Ok(match asked.data {
            Moves::FromHost(_) => DataTransfer::HostToController,
            Moves::ToHost(_) => DataTransfer::ControllerToHost,
            Moves::Nothing if is_both => DataTransfer::None,
            Moves::Nothing => by_opcode,
        }),
        Err(status) if is_both => Err(status),
        // The controller says what is wrong.
        Ok(None) | Err(_) => Ok(by_opcode),
    }
}

/// Authentication Send and Authentication Receive (Base 2.1, 6.1 and 6.2).
fn authentication(sqe: &Sqe, in_capsule: u32) -> Result<Data, Status> {
    let cdw10 = AuthenticationCdw10::from(sqe.cdw10);
    // A half of a pair would outlive its answer here.
    let is_fused = sqe.flags.fuse() != Fuse::NORMAL;
    if is_fused || (cdw10.secp(), cdw10.spsp0(), cdw10.spsp1()) != (SECP_NVME, 1, 1) {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    // Their direction is in their type, as that of other commands is in their opcode.
    let direction = DataTransfer::of_opcode(sqe.fabrics_type().0);
    let data = data(sqe, direction, in_capsule)?;
    if data.len != sqe.cdw11 {
        return Err(Status::DATA_SGL_LENGTH_INVALID);
    }
    if data.len == 0 || data.len > AUTHENTICATION_DATA {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    Ok(data)
}

/// The data that a descriptor names.
fn data(sqe: &Sqe, direction: DataTransfer, in_capsule: u32) -> Result<Data, Status> {
    if ![Psdt::SGL_METADATA_BUFFER, Psdt::SGL_METADATA_SGL].contains(&sqe.flags.psdt()) {
        return Err(Status::INVALID_FIELD_IN_COMMAND);
    }
    let sgl = sqe.sgl1();
    let kind = sgl.identifier;
    if in_capsule > 0 {
        if kind != IN_CAPSULE || direction != DataTransfer::HostToController {
            return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID);
        }
        // ICDOFF is 0.
        if sgl.address != 0 {
            return Err(Status::SGL_OFFSET_INVALID);
        }
        if sgl.length != in_capsule {
            return Err(Status::DATA_SGL_LENGTH_INVALID);
        }
    } else if kind != BESIDE && !(kind == IN_CAPSULE && (sgl.address, sgl.length) == (0, 0)) {
        // SPDK's initiator names a capsule without data for commands that have none.
        return Err(Status::SGL_DESCRIPTOR_TYPE_INVALID);
    }
    let to_host = match direction {
        DataTransfer::None if sgl.length > 0 => return Err(Status::DATA_SGL_LENGTH_INVALID),
        DataTransfer::None | DataTransfer::HostToController => false,
        DataTransfer::ControllerToHost => true,
        DataTransfer::Bidirectional => return Err(Status::INVALID_COMMAND_OPCODE),
    };
    Ok(Data {
        len: sgl.length,
        to_host,
    })
}

/// Data of an admin command. A controller moves as much as the command says, to PRPs that are made
/// for the length of the descriptor: both are the same.
fn admin(sqe: &Sqe, len: u32) -> Result<(), Status> {
    let own = match sqe.admin_opcode() {
        AdminOpcode::IDENTIFY => Some(4096),
        AdminOpcode::GET_LOG_PAGE => Some((u64::from(get_log_page_numd_z(sqe)) + 1) * 4),
        AdminOpcode::GET_LBA_STATUS => {
            Some((u64::from(GetLbaStatusCdw12::from(sqe.cdw12).mndw_z()) + 1) * 4)
        }
        // Never more than a page; what does not fit into it has no PRP.
        _ => None,
    };
    match own {
        Some(own) if own != u64::from(len) => Err(Status::DATA_SGL_LENGTH_INVALID),
        Some(_) if len > ADMIN_DATA => Err(Status::INVALID_FIELD_IN_COMMAND),
        None if len > ADMIN_PAGE => Err(Status::DATA_SGL_LENGTH_INVALID),
        _ => Ok(()),
    }
}

/// Whether a command that succeeds surely writes all of its `len` bytes to the host.
pub(super) fn fills(sqe: &Sqe, len: u32, namespaces: &NamespaceTable) -> bool {
    sqe.nvm_opcode() == NvmOpcode::READ && blocks_len(sqe, namespaces) == Some(len.into())
}

/// Bytes of the blocks that an I/O command moves, where its fields give their number. The
/// controller checks other commands against their descriptor; Linux sends a page for one range of
/// Dataset Management.
pub(super) fn blocks_len(sqe: &Sqe, namespaces: &NamespaceTable) -> Option<u64> {
    blocks_len_in(namespaces.get(sqe.nsid)?, sqe)
}

#[inline]
fn blocks_len_in(namespace: &Namespace, sqe: &Sqe) -> Option<u64> {
    const APPEND: u8 = ZonedOpcode::ZONE_APPEND.0;
    let moves = match sqe.nvm_opcode() {
        NvmOpcode::READ | NvmOpcode::WRITE | NvmOpcode::COMPARE => namespace.has_blocks(),
        NvmOpcode(APPEND) => namespace.csi() == Csi::ZONED_NAMESPACE,
        _ => false,
    };
    let count = u64::from(sqe.cdw12 & 0xffff) + 1;
    moves.then(|| count << namespace.lba_shift)
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::Arc;

    use nvme_spec::log::CommandEffects;
    use port::set::{Access, Asked, CommandSet};
    use port::{ChannelId, MediumTraits};

    use super::*;

    /// Commands whose opcodes do not say which way their data go.
    const APPEND: u8 = 0x83;
    const EXIST: u8 = 0xb3;
    const RETRIEVE: u8 = 0x90;

    #[derive(Debug)]
    struct Keys;

    impl CommandSet for Keys {
        fn csi(&self) -> Csi {
            Csi::KEY_VALUE
        }

        fn command(&self, sqe: &Sqe, _: &Namespace) -> Result<Option<Asked>, Status> {
            let data = match sqe.opcode {
                APPEND => Moves::FromHost(64),
                RETRIEVE => Moves::ToHost(64),
                EXIST => Moves::Nothing,
                _ => return Ok(None),
            };
            let access = Access::Changes;
            Ok(Some(Asked { access, data }))
        }

        fn names_memory(&self, sqe: &Sqe) -> bool {
            sqe.cdw11 == 17
        }

        fn effects(&self, _: u8) -> Option<CommandEffects> {
            None
        }

        fn has_blocks(&self) -> bool {
            false
        }
    }

    /// A namespace of blocks, and one of keys.
    pub(in crate::nvme_tcp) fn table() -> NamespaceTable {
        let namespace = |nsid, set| Namespace {
            nsid,
            channel: ChannelId(0),
            start: 0,
            blocks: 100,
            lba_shift: 9,
            nguid: [0; 16],
            eui64: [0; 8],
            traits: MediumTraits::default(),
            restrictions: None,
            set,
        };
        let keys: Arc<dyn CommandSet> = Arc::new(Keys);
        NamespaceTable::from(vec![namespace(1, None), namespace(2, Some(keys))])
    }

    #[test]
    fn a_command_set_says_which_way_data_go_where_an_opcode_does_not() {
        let table = table();
        let of = |opcode, nsid, cdw11| {
            let sqe = Sqe {
                opcode,
                nsid,
                cdw11,
                ..Sqe::default()
            };
            direction(&sqe, table.get(sqe.nsid))
        };
        assert_eq!(of(APPEND, 2, 0), Ok(DataTransfer::HostToController));
        assert_eq!(of(RETRIEVE, 2, 0), Ok(DataTransfer::ControllerToHost));
        assert_eq!(of(EXIST, 2, 0), Ok(DataTransfer::None));
        assert_eq!(of(APPEND, 2, 17), Err(Status::INVALID_FIELD_IN_COMMAND));
        // Where there is no such set, the opcode's bits count.
        assert_eq!(of(APPEND, 1, 17), Ok(DataTransfer::Bidirectional));
        assert_eq!(of(RETRIEVE, 1, 0), Ok(DataTransfer::None));
        assert_eq!(
            of(NvmOpcode::READ.0, 2, 0),
            Ok(DataTransfer::ControllerToHost)
        );
    }

    #[test]
    fn a_read_of_blocks_fills_its_data_and_a_retrieve_may_not() {
        let table = table();
        let command = |opcode: NvmOpcode, nsid| Sqe {
            opcode: opcode.0,
            nsid,
            cdw12: 7,
            ..Sqe::default()
        };
        assert!(fills(&command(NvmOpcode::READ, 1), 4096, &table));
        // The opcode of Retrieve, no such namespace, and another command of blocks.
        assert!(!fills(&command(NvmOpcode::READ, 2), 4096, &table));
        assert!(!fills(&command(NvmOpcode::READ, 3), 4096, &table));
        assert!(!fills(&command(NvmOpcode::READ, 1), 8192, &table));
        assert!(!fills(&command(NvmOpcode::COMPARE, 1), 4096, &table));
    }
}
