//! Commands as the controller gets them: as they came, with their data in private memory.
//!
//! Of the flags only those of fused operations are kept; there is no metadata.

use memory::HostMemory;
use nvme_spec::Sqe;
use nvme_spec::opcode::NvmOpcode;
use nvme_spec::sgl::{SglDescriptor, SglDescriptorType};
use nvme_spec::sqe::{CommandFlags, Psdt};
use port::namespace::NamespaceTable;

use super::commands::Command;
use super::judge::{ADMIN_DATA, blocks_len};
use super::rings::{BASE, PAGE};

/// Without a data pointer.
fn bare(command: &Command) -> Sqe {
    Sqe {
        flags: CommandFlags::new().with_fuse(command.sqe.flags.fuse()),
        mptr: 0,
        prp1: 0,
        prp2: 0,
        ..command.sqe
    }
}

/// An I/O command whose data lie at `at`.
///
/// A page of whole blocks goes the controller's short way. Beyond that one descriptor spares a
/// list, and has the controller compare the lengths.
pub(super) fn io(command: &Command, at: usize, namespaces: &NamespaceTable) -> Sqe {
    let mut sqe = bare(command);
    let (address, len) = (BASE + at as u64, command.data.len);
    let is_short = [NvmOpcode::READ, NvmOpcode::WRITE].contains(&sqe.nvm_opcode())
        && len as usize <= PAGE
        && blocks_len(&sqe, namespaces) == Some(len.into());
    if is_short {
        sqe.prp1 = address;
    } else {
        sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
        let data = if len > 0 { address } else { 0 };
        sqe.set_sgl1(SglDescriptor::new(SglDescriptorType::DATA_BLOCK, data, len));
    }
    sqe
}

/// An admin command whose data lie at `at`, on contiguous pages, with room for a PRP list at
/// `list`.
pub(super) fn admin(command: &Command, at: usize, list: usize, memory: &HostMemory) -> Sqe {
    const { assert!(ADMIN_DATA as usize / PAGE <= PAGE / size_of::<u64>()) };
    let mut sqe = bare(command);
    let (address, page) = (BASE + at as u64, PAGE as u64);
    let (second, end) = (address + page, address + u64::from(command.data.len));
    if command.data.len == 0 {
        return sqe;
    }
    sqe.prp1 = address;
    if second + page < end {
        let rest = (second..end).step_by(PAGE);
        for (at, address) in (list..).step_by(size_of::<u64>()).zip(rest) {
            memory.write(at, &address.to_le_bytes());
        }
        sqe.prp2 = BASE + list as u64;
    } else if second < end {
        sqe.prp2 = second;
    }
    sqe
}
