//! Get LBA Status (NVM 1.1, 4.2.1): the blocks that Write Uncorrectable has marked. No other blocks
//! are known to be unreadable, so a scan returns the tracked ones.

use nvme_spec::command::slba;
use nvme_spec::lba_status::{
    CompletionCondition, GetLbaStatusCdw12, GetLbaStatusCdw13, LbaRangeStatus, LbaStatus,
    LbaStatusAction, LbaStatusDescriptor, LbaStatusListHeader,
};
use nvme_spec::{Sqe, Status};
use port::BlockRanges;
use port::namespace::Namespace;
use zerocopy::IntoBytes;

use super::Reply;
use crate::controller::Controller;

/// The most blocks of one descriptor, whose count is 0's based.
const DESCRIPTOR_BLOCKS: u64 = 1 << 32;

impl Controller {
    /// Get LBA Status.
    pub(super) fn get_lba_status(&mut self, sqe: &Sqe) -> Result<Reply, Status> {
        let cdw13 = GetLbaStatusCdw13::from(sqe.cdw13);
        // Allocated blocks are not reported (AOCS.RALBAS is 0).
        if ![LbaStatusAction::SCAN, LbaStatusAction::TRACKED].contains(&cdw13.atype()) {
            return Err(Status::INVALID_FIELD_IN_COMMAND);
        }
        if sqe.nsid == 0 || sqe.nsid > self.attached.limit {
            return Err(Status::INVALID_NAMESPACE_OR_FORMAT);
        }
        let namespace = self.attached.table.get(sqe.nsid);
        let namespace = namespace.ok_or(Status::INVALID_FIELD_IN_COMMAND)?;
        let range = asked_range(namespace, slba(sqe), cdw13.rl())?;
        let restrictions = namespace.restrictions.as_deref();
        if let Some(status) = restrictions.and_then(|r| r.all) {
            return Err(status);
        }
        let bytes = (u64::from(GetLbaStatusCdw12::from(sqe.cdw12).mndw_z()) + 1) * 4;
        let room = bytes.min(self.config.max_transfer.into()) as usize;
        let none = BlockRanges::default();
        let list = list(
            restrictions.map_or(&none, |r| &r.uncorrectable),
            range,
            room,
        );
        self.send(sqe, &list)?;
        Ok(Reply::Done(0))
    }
}

/// The first block asked for, and the one behind the last; a length of 0 is up to the end.
fn asked_range(namespace: &Namespace, first: u64, len: u16) -> Result<(u64, u64), Status> {
    let end = match len {
        0 => Some(namespace.blocks),
        len => first.checked_add(len.into()),
    };
    match end {
        Some(end) if first < namespace.blocks && end <= namespace.blocks => Ok((first, end)),
        _ => Err(Status::LBA_OUT_OF_RANGE),
    }
}

/// The list of descriptors, of at most `room` bytes.
fn list(marked: &BlockRanges, (first, end): (u64, u64), room: usize) -> Vec<u8> {
    let most =
        room.saturating_sub(size_of::<LbaStatusListHeader>()) / size_of::<LbaStatusDescriptor>();
    let mut descriptors = Vec::new();
    let mut condition = CompletionCondition::COMPLETE;
    'ranges: for (start, count) in marked.iter() {
        let (mut from, to) = (start.max(first), (start + count).min(end));
        while from < to {
            if descriptors.len() == most {
                condition = CompletionCondition::INCOMPLETE;
                break 'ranges;
            }
            let blocks = (to - from).min(DESCRIPTOR_BLOCKS);
            descriptors.push(LbaStatusDescriptor {
                dslba: from,
                nlb_z: (blocks - 1) as u32,
                stas: LbaStatus::new().with_lbars(LbaRangeStatus::WRITTEN_UNCORRECTABLE),
                ..LbaStatusDescriptor::default()
            });
            from += blocks;
        }
    }
    let header = LbaStatusListHeader {
        nlsd: descriptors.len() as u32,
        cmpc: condition,
        reserved_5: [0; 3],
    };
    let mut list = header.as_bytes().to_vec();
    list.extend_from_slice(descriptors.as_bytes());
    list.truncate(room);
    list
}

#[cfg(test)]
mod tests {
    use port::BlockRanges;

    use super::list;

    fn marked(ranges: &[(u64, u64)]) -> BlockRanges {
        let mut marked = BlockRanges::default();
        for (first, count) in ranges {
            marked.insert(*first, *count).unwrap();
        }
        marked
    }

    /// Number of descriptors, completion condition, and each one's first block and 0's based count.
    fn told(list: &[u8]) -> (u32, u8, Vec<(u64, u32)>) {
        let u32_at = |at: usize| u32::from_le_bytes(list[at..at + 4].try_into().unwrap());
        let u64_at = |at: usize| u64::from_le_bytes(list[at..at + 8].try_into().unwrap());
        let descriptors = (8..list.len()).step_by(16);
        let descriptors = descriptors.map(|at| {
            // Written by Write Uncorrectable, in the byte after the reserved one.
            assert_eq!(list[at + 12..at + 16], [0, 0b011, 0, 0]);
            (u64_at(at), u32_at(at + 8))
        });
        (u32_at(0), list[4], descriptors.collect())
    }

    #[test]
    fn ranges_are_cut_to_what_was_asked() {
        let marked = marked(&[(10, 5), (20, 1), (30, 10)]);
        let all = vec![(10, 4), (20, 0), (30, 9)];
        assert_eq!(told(&list(&marked, (0, 100), 4096)), (3, 2, all));
        let some = vec![(12, 2), (20, 0), (30, 0)];
        assert_eq!(told(&list(&marked, (12, 31), 4096)), (3, 2, some));
        assert_eq!(told(&list(&marked, (15, 20), 4096)), (0, 2, vec![]));
    }

    #[test]
    fn a_list_that_does_not_fit_says_so() {
        let marked = marked(&[(10, 5), (20, 1), (30, 10)]);
        for (room, fit) in [(8, 0), (23, 0), (24, 1), (40, 2), (52, 2)] {
            let (count, condition, descriptors) = told(&list(&marked, (0, 100), room));
            assert_eq!((count, condition), (fit, 1), "{room} bytes");
            assert_eq!(descriptors.len(), fit as usize);
        }
        assert_eq!(list(&marked, (0, 100), 4), [0, 0, 0, 0]);
        assert_eq!(told(&list(&marked, (0, 100), 56)).1, 2);
    }

    #[test]
    fn a_range_that_is_too_long_for_one_descriptor_is_several() {
        let marked = marked(&[(0, (1 << 33) + 1)]);
        let (count, condition, descriptors) = told(&list(&marked, (0, 1 << 40), 4096));
        assert_eq!((count, condition), (3, 2));
        assert_eq!(
            descriptors,
            [(0, u32::MAX), (1 << 32, u32::MAX), (1 << 33, 0)]
        );
    }
}
