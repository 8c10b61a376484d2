//! The data of Samsung's compound command: up to eight stores and deletes in one command.

use nvme_spec::Sqe;
use nvme_spec::samsung::{
    BATCH_ALIGNMENT, BATCH_HEAD_SIZE, BatchHead, KEY_MAX, KEY_MIN, SUB_COMMANDS_MAX,
    SamsungCommand, SamsungOpcode, StoreOption, SubCommand,
};
use zerocopy::{FromZeros, IntoBytes};

use super::{Keys, Rule};
use crate::DriverError;

/// Sub-commands, one behind the other.
#[derive(Clone, Debug)]
pub struct Compound {
    head: BatchHead,
    count: usize,
    /// The bytes after the head.
    parts: Vec<u8>,
}

impl Default for Compound {
    fn default() -> Self {
        Compound {
            head: BatchHead::new_zeroed(),
            count: 0,
            parts: Vec::new(),
        }
    }
}

impl Compound {
    /// Most sub-commands.
    pub const MAX: usize = SUB_COMMANDS_MAX;

    /// Adds a store of a value under a key of 4 to 255 bytes.
    ///
    /// # Errors
    /// [`DriverError::Unsupported`] where there are eight, and for a key or a value that none can
    /// carry.
    pub fn store(&mut self, key: &[u8], value: &[u8], rule: Rule) -> Result<(), DriverError> {
        let option = StoreOption::new()
            .with_update_only(rule == Rule::MustExist)
            .with_idempotent(rule == Rule::MustNotExist);
        self.add(SamsungOpcode::STORE, key, value, option.into())
    }

    /// Adds a delete of a key.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn delete(&mut self, key: &[u8]) -> Result<(), DriverError> {
        self.add(SamsungOpcode::DELETE_SUB, key, &[], 0)
    }

    fn add(
        &mut self,
        opcode: SamsungOpcode,
        key: &[u8],
        value: &[u8],
        option: u8,
    ) -> Result<(), DriverError> {
        let unsupported = |why: &str| Err(DriverError::Unsupported(why.to_owned()));
        if !(KEY_MIN..=KEY_MAX).contains(&key.len()) {
            return unsupported("a key of a compound command has 4 to 255 bytes");
        }
        let (Ok(key_len), Ok(value_len)) = (u8::try_from(key.len()), u32::try_from(value.len()))
        else {
            return unsupported("a value must be smaller than 4 GiB");
        };
        let Some(sub) = self.head.sub.get_mut(self.count) else {
            return unsupported("a compound command has at most eight sub-commands");
        };
        *sub = SubCommand {
            opcode,
            key_len,
            value_len,
            option,
            ..SubCommand::default()
        };
        self.count += 1;
        // The head of a sub-command says nothing.
        for part in [&[0; BATCH_ALIGNMENT][..], key, value] {
            self.parts.extend_from_slice(part);
            let padded = self.parts.len().next_multiple_of(BATCH_ALIGNMENT);
            self.parts.resize(padded, 0);
        }
        Ok(())
    }

    /// Sub-commands there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Its data.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(BATCH_HEAD_SIZE + self.parts.len());
        bytes.extend_from_slice(self.head.as_bytes());
        bytes.extend_from_slice(&self.parts);
        bytes
    }
}

impl Keys {
    /// A compound command, without data pointers: its data are [`Compound::bytes`].
    #[must_use]
    pub fn compound(&self, compound: &Compound) -> Sqe {
        let len = BATCH_HEAD_SIZE + compound.parts.len();
        let mut command = SamsungCommand {
            opcode: SamsungOpcode::BATCH,
            nsid: self.nsid,
            sub_commands: u8::try_from(compound.count).expect("eight at most"),
            ..SamsungCommand::default()
        };
        // More than that moves no command.
        command.set_value_len(u32::try_from(len).unwrap_or(u32::MAX - 3));
        command.to_sqe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key_value::Dialect;

    #[test]
    fn parts_lie_where_they_were_published() {
        let mut compound = Compound::default();
        compound
            .store(b"first", &[7; 65], Rule::MustNotExist)
            .unwrap();
        compound.delete(b"second").unwrap();
        let bytes = compound.bytes();
        // A head; of the store 64 bytes, the key in 64, the value in 128; of the delete 64 and 64.
        assert_eq!(bytes.len(), 512 + 64 + 64 + 128 + 64 + 64);
        assert_eq!(bytes[..12], [0x81, 5, 0, 0, 65, 0, 0, 0, 2, 0, 0, 0]);
        assert_eq!(bytes[16..24], [0xa0, 6, 0, 0, 0, 0, 0, 0]);
        assert!(bytes[32..576].iter().all(|byte| *byte == 0));
        assert_eq!(&bytes[576..582], b"first\0");
        assert_eq!((bytes[640], bytes[704], bytes[705]), (7, 7, 0));
        assert_eq!(&bytes[832..838], b"second");
        let keys = Keys {
            nsid: 2,
            dialect: Dialect::Samsung,
        };
        let sqe = keys.compound(&compound);
        assert_eq!((sqe.opcode, sqe.nsid, sqe.cdw10), (0x85, 2, 896 / 4));
        assert_eq!(sqe.cdw11, 2 << 24);
    }

    #[test]
    fn eight_are_the_most() {
        let mut compound = Compound::default();
        assert!(compound.delete(b"abc").is_err() && compound.delete(&[0; 256]).is_err());
        for _ in 0..Compound::MAX {
            compound.delete(&[1; 255]).unwrap();
        }
        assert!(compound.delete(b"four").is_err());
        assert_eq!(compound.count(), 8);
    }
}
