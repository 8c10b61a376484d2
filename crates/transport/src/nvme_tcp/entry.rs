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
use super::judge::{ADMIN_DATA, BESIDE, Data, Gate, IN_CAPSULE, Limits, blocks_len};
use crate::host::{BASE, PAGE};

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

/// A read or write of whole blocks, at most a page, that the controller may have as it came, with
/// `in_capsule` bytes of data in its capsule and data in the small slot at `at`: its data and its
/// entry, as [`judge`](super::judge::judge) and [`io`] have them. `None`: another command, or there
/// is something to judge.
#[inline]
pub(super) fn plain(
    sqe: &Sqe,
    in_capsule: u32,
    at: usize,
    limits: &Limits<'_>,
) -> Option<(Data, Sqe)> {
    let sgl = sqe.sgl1();
    let to_host = sqe.nvm_opcode() == NvmOpcode::READ;
    let is_plain = if to_host {
        sgl.identifier == BESIDE && in_capsule == 0
    } else {
        sqe.nvm_opcode() == NvmOpcode::WRITE
            && sgl.identifier == IN_CAPSULE
            && (sgl.address, sgl.length) == (0, in_capsule)
    };
    if !is_plain || sqe.flags != PLAIN || !limits.ready || limits.gate == Gate::Closed {
        return None;
    }
    let namespace = limits.namespaces?.get(sqe.nsid)?;
    let blocks = u64::from(sqe.cdw12 & 0xffff) + 1;
    let most = limits.small.min(limits.max_transfer).min(PAGE as u32);
    let is_whole = sgl.length <= most && blocks << namespace.lba_shift == u64::from(sgl.length);
    if !is_whole || namespace.set.is_some() {
        return None;
    }
    let data = Data {
        len: sgl.length,
        to_host,
    };
    let entry = Sqe {
        flags: CommandFlags::new(),
        mptr: 0,
        prp1: BASE + at as u64,
        prp2: 0,
        ..*sqe
    };
    Some((data, entry))
}

/// Of a command that is no half of a pair.
const PLAIN: CommandFlags = CommandFlags::new().with_psdt(Psdt::SGL_METADATA_BUFFER);

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

#[cfg(test)]
mod tests {
    use nvme_spec::sgl::SglDescriptorSubType;
    use nvme_spec::sqe::Fuse;

    use super::*;
    use crate::nvme_tcp::commands::Commands;
    use crate::nvme_tcp::judge::tests::table;
    use crate::nvme_tcp::judge::{fills, judge};

    /// A read of 8 blocks of 512 bytes, with `len` bytes beside its capsule.
    fn read(len: u32) -> Sqe {
        let mut sqe = Sqe {
            opcode: NvmOpcode::READ.0,
            flags: CommandFlags::new().with_psdt(Psdt::SGL_METADATA_BUFFER),
            cid: 9,
            nsid: 1,
            cdw2: 2,
            mptr: 77,
            cdw12: 7,
            cdw14: 5,
            ..Sqe::default()
        };
        sqe.set_sgl1(SglDescriptor {
            address: 123,
            identifier: BESIDE,
            ..SglDescriptor::new(SglDescriptorType::DATA_BLOCK, 0, len)
        });
        sqe
    }

    /// A write of the same blocks, with `len` bytes in its capsule.
    fn write(len: u32) -> Sqe {
        let mut sqe = Sqe {
            opcode: NvmOpcode::WRITE.0,
            ..read(len)
        };
        sqe.set_sgl1(SglDescriptor {
            identifier: IN_CAPSULE,
            ..SglDescriptor::new(SglDescriptorType::DATA_BLOCK, 0, len)
        });
        sqe
    }

    /// Each command differs in one field or two from a plain one, and so do the limits.
    #[test]
    fn a_plain_command_is_judged_and_stored_as_others_are() {
        let table = table();
        let limits = Limits {
            max_transfer: 16384,
            small: 8192,
            namespaces: Some(&table),
            ready: true,
            gate: Gate::None,
        };
        let changes: [fn(&mut Sqe, &mut Limits<'_>); 21] = [
            |_, _| {},
            |sqe, _| sqe.cdw12 |= 1 << 30,
            |sqe, _| sqe.cdw12 = 0,
            |sqe, _| sqe.cdw12 = 15,
            |sqe, _| sqe.nsid = 2,
            |sqe, _| sqe.nsid = 3,
            |sqe, _| sqe.opcode ^= NvmOpcode::WRITE.0 ^ NvmOpcode::READ.0,
            |sqe, _| sqe.prp1 ^= 1,
            |sqe, _| sqe.opcode = NvmOpcode::COMPARE.0,
            |sqe, _| sqe.flags.set_psdt(Psdt::SGL_METADATA_SGL),
            |sqe, _| sqe.flags.set_psdt(Psdt::PRP),
            |sqe, _| sqe.flags.set_fuse(Fuse::FIRST),
            |sqe, _| sqe.prp2 &= u64::from(u32::MAX),
            |sqe, _| {
                let kind = BESIDE.with_sub_type(SglDescriptorSubType::OFFSET);
                sqe.set_sgl1(SglDescriptor {
                    identifier: kind,
                    ..sqe.sgl1()
                });
            },
            |sqe, _| sqe.set_sgl1(SglDescriptor::default()),
            |_, limits| limits.ready = false,
            |_, limits| limits.gate = Gate::Closed,
            |_, limits| limits.gate = Gate::Passed,
            |_, limits| limits.max_transfer = 2048,
            |_, limits| limits.small = 2048,
            |_, limits| limits.namespaces = None,
        ];
        let lens = [0, 512, 4096, 8192];
        let commands = lens.map(|len| [(read(len), 0), (read(len), len), (write(len), len)]);
        let (at, mut plain) = (3 * PAGE, Vec::new());
        for (as_it_is, in_capsule) in commands.as_flattened() {
            for (first, change) in changes.iter().enumerate() {
                for (second, other) in changes.iter().enumerate() {
                    let (mut sqe, mut limits) = (*as_it_is, limits);
                    change(&mut sqe, &mut limits);
                    other(&mut sqe, &mut limits);
                    let Some((data, entry)) = super::plain(&sqe, *in_capsule, at, &limits) else {
                        continue;
                    };
                    plain.push((data.to_host, data.len, first, second));
                    assert_eq!(judge(&sqe, *in_capsule, &limits), Ok(data));
                    let mut commands = Commands::new(1);
                    let index = commands.take(&sqe).unwrap();
                    let command = commands.get_mut(index);
                    command.data = data;
                    assert_eq!(entry, io(command, at, &table), "{sqe:?}");
                    let fills = fills(&sqe, data.len, &table);
                    assert!(!data.to_host || fills, "others see its small slot");
                    assert!(data.len <= limits.small);
                }
            }
        }
        // As they are, with FUA, or one block, or of a host that has proved itself; what is longer
        // than a page is not.
        for to_host in [false, true] {
            for (len, first, second) in [(4096, 0, 0), (4096, 0, 1), (512, 0, 2), (4096, 17, 1)] {
                let usual = (to_host, len, first, second);
                assert!(plain.contains(&usual), "{usual:?} of {plain:?}");
            }
        }
        assert!(plain.iter().all(|(_, len, _, _)| [512, 4096].contains(len)));
    }
}
