//! Entries of the submission queue whose data lie in the guest's memory.

use arrayvec::ArrayVec;
use memory::HostMemory;
use nvme_spec::Sqe;
use nvme_spec::sgl::{SGL_DESCRIPTOR_SIZE, SglDescriptor, SglDescriptorType};
use nvme_spec::sqe::Psdt;
use zerocopy::IntoBytes as _;

use super::queue::MAX_PIECES;
use super::request::Data;
use crate::host::{BASE, PAGE};

const _: () = assert!(MAX_PIECES * SGL_DESCRIPTOR_SIZE as usize <= PAGE);

/// The command with data in the guest's memory: two PRP entries where they can describe one piece,
/// which is the controller's short way. Otherwise each piece has a descriptor, in a list at
/// `list_at` of the private memory, which has a page there.
pub(super) fn with_data(mut sqe: Sqe, data: &Data<'_>, memory: &HostMemory, list_at: usize) -> Sqe {
    let mut pieces = data.iter();
    let first = pieces.next();
    if let (Some((at, len)), None) = (first, pieces.next()) {
        if let Some((prp1, prp2)) = prps(at, len) {
            (sqe.prp1, sqe.prp2) = (prp1, prp2);
            return sqe;
        }
        sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
        sqe.set_sgl1(SglDescriptor::new(SglDescriptorType::DATA_BLOCK, at, len));
        return sqe;
    }
    let block = |(at, len)| SglDescriptor::new(SglDescriptorType::DATA_BLOCK, at, len);
    let list: ArrayVec<SglDescriptor, MAX_PIECES> = data.iter().map(block).collect();
    memory.write(list_at, list.as_bytes());
    sqe.flags.set_psdt(Psdt::SGL_METADATA_BUFFER);
    let len = list.len() as u32 * SGL_DESCRIPTOR_SIZE;
    let at = BASE + list_at as u64;
    sqe.set_sgl1(SglDescriptor::new(SglDescriptorType::LAST_SEGMENT, at, len));
    sqe
}

/// The two PRP entries for a piece, where they can describe it.
#[inline]
pub(super) fn prps(at: u64, len: u32) -> Option<(u64, u64)> {
    let page = PAGE as u64;
    let (len, in_first) = (u64::from(len), page - at % page);
    if !at.is_multiple_of(4) || len > in_first + page {
        return None;
    }
    let second = if len > in_first { at + in_first } else { 0 };
    Some((at, second))
}
