//! Description of the two dialects for the controller: their commands, the sizes of their data, and
//! their effects.
//!
//! Nothing here depends on the stored keys, except the utilization in Identify.

use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use nvme_spec::identify::IDENTIFY_SIZE;
use nvme_spec::key_value::{IdentifyKvNamespace, KEY_MAX, KvFormat, KvOpcode};
use nvme_spec::log::CommandEffects;
use nvme_spec::opcode::{Csi, NvmOpcode};
use nvme_spec::samsung::{
    INLINE_KEY_MAX, IteratorOption, RetrieveOption, SamsungCommand, SamsungOpcode, status,
};
use nvme_spec::{Sqe, Status};
use port::namespace::Namespace;
use port::set::{Access, Asked, CommandSet, Data};
use zerocopy::{FromZeros, IntoBytes};

use super::pairs::VALUE_MAX;
use super::space::UNIT;

/// Identify data of a medium.
#[derive(Debug)]
pub(super) struct StoreIdentity {
    /// Size in bytes.
    pub(super) size: u64,
    /// Maximum number of keys.
    pub(super) keys: u32,
    /// Bytes in use; written by the channel.
    pub(super) used: AtomicU64,
}

fn asks(access: Access, data: Data) -> Option<Asked> {
    Some(Asked { access, data })
}

fn from_host(len: u32) -> Data {
    match len {
        0 => Data::Nothing,
        len => Data::FromHost(len.into()),
    }
}

fn to_host(len: u32) -> Data {
    match len {
        0 => Data::Nothing,
        len => Data::ToHost(len.into()),
    }
}

/// Entry in the commands log page for a command with this access.
fn effects(access: Access) -> CommandEffects {
    CommandEffects::new()
        .with_csupp(true)
        .with_lbcc(access == Access::Changes)
}

/// The Key Value command set.
#[derive(Debug)]
pub(super) struct NvmeSet(pub(super) Arc<StoreIdentity>);

impl CommandSet for NvmeSet {
    fn csi(&self) -> Csi {
        Csi::KEY_VALUE
    }

    fn opcode_name(&self, opcode: u8) -> Option<&'static str> {
        Some(KvOpcode(opcode).name())
    }

    fn command(&self, sqe: &Sqe, _: &Namespace) -> Result<Option<Asked>, Status> {
        match KvOpcode(sqe.opcode) {
            KvOpcode::STORE => Ok(asks(Access::Changes, from_host(sqe.cdw10))),
            KvOpcode::RETRIEVE | KvOpcode::LIST => Ok(asks(Access::Reads, to_host(sqe.cdw10))),
            KvOpcode::DELETE => Ok(asks(Access::Changes, Data::Nothing)),
            KvOpcode::EXIST => Ok(asks(Access::Reads, Data::Nothing)),
            KvOpcode::FLUSH
            | KvOpcode::RESERVATION_REGISTER
            | KvOpcode::RESERVATION_REPORT
            | KvOpcode::RESERVATION_ACQUIRE
            | KvOpcode::RESERVATION_RELEASE => Ok(None),
            _ => Err(Status::INVALID_COMMAND_OPCODE),
        }
    }

    // The others report whether the key was there.
    fn repeats(&self, sqe: &Sqe) -> bool {
        matches!(
            KvOpcode(sqe.opcode),
            KvOpcode::RETRIEVE | KvOpcode::LIST | KvOpcode::EXIST
        )
    }

    fn is_noted(&self, sqe: &Sqe) -> bool {
        matches!(KvOpcode(sqe.opcode), KvOpcode::STORE | KvOpcode::DELETE)
    }

    fn effects(&self, opcode: u8) -> Option<CommandEffects> {
        match KvOpcode(opcode) {
            KvOpcode::STORE | KvOpcode::DELETE => Some(effects(Access::Changes)),
            KvOpcode::RETRIEVE
            | KvOpcode::LIST
            | KvOpcode::EXIST
            | KvOpcode::FLUSH
            | KvOpcode::RESERVATION_REGISTER
            | KvOpcode::RESERVATION_REPORT
            | KvOpcode::RESERVATION_ACQUIRE
            | KvOpcode::RESERVATION_RELEASE => Some(effects(Access::Reads)),
            _ => None,
        }
    }

    fn identify_namespace(&self, namespace: &Namespace) -> Box<[u8; IDENTIFY_SIZE]> {
        let mut id = IdentifyKvNamespace::new_zeroed();
        id.nsze = self.0.size;
        id.nuse = self.0.used.load(Relaxed);
        id.novg = UNIT as u32;
        (id.nguid, id.eui64) = (namespace.nguid, namespace.eui64);
        id.kvf[0] = KvFormat {
            kvkml: KEY_MAX as u16,
            kvvml: VALUE_MAX,
            kvmnk: self.0.keys,
            ..KvFormat::default()
        };
        let mut page = Box::new([0; IDENTIFY_SIZE]);
        page.copy_from_slice(id.as_bytes());
        page
    }

    fn has_blocks(&self) -> bool {
        false
    }
}

/// Samsung's commands, as vendor specific commands of a namespace of the NVM command set. Its
/// blocks exist for hosts that expect some: they read as zero, and cannot be written.
#[derive(Debug)]
pub(super) struct SamsungSet;

impl CommandSet for SamsungSet {
    fn csi(&self) -> Csi {
        Csi::NVM
    }

    fn repeats(&self, sqe: &Sqe) -> bool {
        matches!(
            SamsungCommand::of(sqe).opcode,
            SamsungOpcode::RETRIEVE | SamsungOpcode::EXIST
        )
    }

    // A compound command has the results of its parts, which a number does not say, and iterators
    // end with the process.
    fn is_noted(&self, sqe: &Sqe) -> bool {
        matches!(
            SamsungCommand::of(sqe).opcode,
            SamsungOpcode::STORE | SamsungOpcode::APPEND | SamsungOpcode::DELETE
        )
    }

    fn command(&self, sqe: &Sqe, _: &Namespace) -> Result<Option<Asked>, Status> {
        let command = SamsungCommand::of(sqe);
        let len = || command.value_len().ok_or(status::INVALID_VALUE_SIZE);
        Ok(match command.opcode {
            SamsungOpcode::STORE | SamsungOpcode::APPEND | SamsungOpcode::BATCH => {
                asks(Access::Changes, from_host(len()?))
            }
            SamsungOpcode::RETRIEVE if RetrieveOption::from(command.option).only_size() => {
                asks(Access::Reads, Data::Nothing)
            }
            SamsungOpcode::RETRIEVE => asks(Access::Reads, to_host(len()?)),
            SamsungOpcode::EXIST => asks(Access::Reads, Data::Nothing),
            SamsungOpcode::DELETE => asks(Access::Changes, Data::Nothing),
            SamsungOpcode::ITERATOR_REQUEST => {
                let deletes = IteratorOption::from(command.option).delete();
                let access = if deletes {
                    Access::Changes
                } else {
                    Access::Reads
                };
                asks(access, Data::Nothing)
            }
            // It may delete, depending on how the iterator was opened, which is not known here.
            SamsungOpcode::ITERATOR_READ => asks(Access::Changes, to_host(len()?)),
            _ => match sqe.nvm_opcode() {
                NvmOpcode::COMPARE
                | NvmOpcode::WRITE_UNCORRECTABLE
                | NvmOpcode::WRITE_ZEROES
                | NvmOpcode::DATASET_MANAGEMENT
                | NvmOpcode::VERIFY
                | NvmOpcode::COPY => return Err(Status::INVALID_COMMAND_OPCODE),
                _ => None,
            },
        })
    }

    // The key is there if it is longer than its fields.
    fn names_memory(&self, sqe: &Sqe) -> bool {
        let command = SamsungCommand::of(sqe);
        let has_key = matches!(
            command.opcode,
            SamsungOpcode::STORE
                | SamsungOpcode::APPEND
                | SamsungOpcode::RETRIEVE
                | SamsungOpcode::DELETE
                | SamsungOpcode::EXIST
        );
        has_key && command.key_len() > INLINE_KEY_MAX
    }

    fn opcode_name(&self, opcode: u8) -> Option<&'static str> {
        self.effects(opcode)?;
        Some(SamsungOpcode(opcode).name())
    }

    fn effects(&self, opcode: u8) -> Option<CommandEffects> {
        match SamsungOpcode(opcode) {
            SamsungOpcode::STORE
            | SamsungOpcode::APPEND
            | SamsungOpcode::BATCH
            | SamsungOpcode::DELETE
            | SamsungOpcode::ITERATOR_READ => Some(effects(Access::Changes)),
            SamsungOpcode::RETRIEVE | SamsungOpcode::EXIST | SamsungOpcode::ITERATOR_REQUEST => {
                Some(effects(Access::Reads))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use port::{ChannelId, MediumTraits};

    use super::*;

    pub(in super::super) fn namespace() -> Namespace {
        Namespace {
            nsid: 1,
            channel: ChannelId(0),
            start: 0,
            blocks: 0,
            lba_shift: 9,
            nguid: [7; 16],
            eui64: [8; 8],
            traits: MediumTraits::default(),
            restrictions: None,
            set: None,
        }
    }

    fn nvme() -> NvmeSet {
        NvmeSet(Arc::new(StoreIdentity {
            size: 0,
            keys: 0,
            used: AtomicU64::new(0),
        }))
    }

    /// A command with this opcode, size in Dword 10, and Dword 11.
    fn asked(
        set: &dyn CommandSet,
        opcode: u8,
        cdw10: u32,
        cdw11: u32,
    ) -> Result<Option<Asked>, Status> {
        let sqe = Sqe {
            opcode,
            cdw10,
            cdw11,
            ..Sqe::default()
        };
        set.command(&sqe, &namespace())
    }

    #[test]
    fn commands_of_the_key_value_set_have_their_data_and_effects() {
        use Access::{Changes, Reads};
        let set = nvme();
        let ok = |access, data| Ok(asks(access, data));
        assert_eq!(asked(&set, 0x01, 5, 3), ok(Changes, Data::FromHost(5)));
        assert_eq!(asked(&set, 0x01, 0, 3), ok(Changes, Data::Nothing));
        assert_eq!(
            asked(&set, 0x02, u32::MAX, 3),
            ok(Reads, Data::ToHost(0xffff_ffff))
        );
        assert_eq!(asked(&set, 0x06, 64, 0), ok(Reads, Data::ToHost(64)));
        assert_eq!(asked(&set, 0x10, 9, 3), ok(Changes, Data::Nothing));
        assert_eq!(asked(&set, 0x14, 9, 3), ok(Reads, Data::Nothing));
        for opcode in [0x00, 0x0d, 0x0e, 0x11, 0x15] {
            assert_eq!(asked(&set, opcode, 0, 0), Ok(None), "{opcode:#x}");
        }
        for opcode in 0..=255 {
            let known =
                [0x00, 0x01, 0x02, 0x06, 0x0d, 0x0e, 0x10, 0x11, 0x14, 0x15].contains(&opcode);
            let effects = set.effects(opcode);
            assert_eq!(effects.is_some(), known, "{opcode:#x}");
            assert!(known || asked(&set, opcode, 0, 0) == Err(Status::INVALID_COMMAND_OPCODE));
            let changes = effects.is_some_and(|effects| effects.lbcc());
            assert_eq!(changes, [0x01, 0x10].contains(&opcode), "{opcode:#x}");
        }
        assert!(!set.has_blocks() && set.csi() == Csi::KEY_VALUE);
    }

    #[test]
    fn keys_of_samsung_that_do_not_fit_the_command_are_elsewhere() {
        let names = |opcode, key_len_z| {
            let sqe = Sqe {
                opcode,
                cdw11: key_len_z,
                ..Sqe::default()
            };
            SamsungSet.names_memory(&sqe)
        };
        for opcode in [0x81, 0x83, 0x90, 0xa1, 0xb3] {
            assert!(!names(opcode, 15) && names(opcode, 16), "{opcode:#x}");
        }
        // Batch, iterators, and a read of blocks.
        for opcode in [0x85, 0xb1, 0xb2, 0x02] {
            assert!(!names(opcode, 254), "{opcode:#x}");
        }
    }

    #[test]
    fn commands_of_samsung_have_their_data_and_leave_the_others() {
        use Access::{Changes, Reads};
        let set = SamsungSet;
        let ok = |access, data| Ok(asks(access, data));
        // Dword 11: key size, option in bits 15:8, bytes to take off in bits 17:16.
        for opcode in [0x81, 0x83, 0x85] {
            let data = Data::FromHost(4093);
            assert_eq!(asked(&set, opcode, 1024, 3 << 16), ok(Changes, data));
            assert_eq!(asked(&set, opcode, 0, 1 << 16), Err(Status(0x301)));
        }
        assert_eq!(asked(&set, 0x90, 2, 0), ok(Reads, Data::ToHost(8)));
        assert_eq!(asked(&set, 0x90, 2, 2 << 8), ok(Reads, Data::Nothing));
        assert_eq!(asked(&set, 0xa1, 2, 0), ok(Changes, Data::Nothing));
        assert_eq!(asked(&set, 0xb1, 0, 5 << 8), ok(Reads, Data::Nothing));
        assert_eq!(asked(&set, 0xb1, 0, 0x11 << 8), ok(Changes, Data::Nothing));
        assert_eq!(asked(&set, 0xb2, 8, 0), ok(Changes, Data::ToHost(32)));
        assert_eq!(asked(&set, 0xb3, 8, 0), ok(Reads, Data::Nothing));
        for opcode in [0x00, 0x01, 0x02, 0x80, 0xa0, 0xff] {
            assert_eq!(asked(&set, opcode, 8, 0), Ok(None), "{opcode:#x}");
            assert!(set.effects(opcode).is_none());
        }
        for opcode in [0x04, 0x05, 0x08, 0x09, 0x0c, 0x19] {
            let refused = Err(Status::INVALID_COMMAND_OPCODE);
            assert_eq!(asked(&set, opcode, 0, 0), refused, "{opcode:#x}");
        }
        assert!(set.has_blocks() && set.csi() == Csi::NVM);
    }

    #[test]
    fn one_change_has_a_note_and_what_reads_or_does_several_has_none() {
        let noted = |set: &dyn CommandSet| -> Vec<u8> {
            let is_noted = |opcode: &u8| {
                set.is_noted(&Sqe {
                    opcode: *opcode,
                    ..Sqe::default()
                })
            };
            (0..=255).filter(is_noted).collect()
        };
        assert_eq!(noted(&nvme()), [0x01, 0x10]);
        assert_eq!(noted(&SamsungSet), [0x81, 0x83, 0xa1]);
    }
}
