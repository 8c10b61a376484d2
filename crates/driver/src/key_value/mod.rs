//! Key-value drives on a queue pair: the Key Value command set (KV 1.1), and Samsung's commands.
//!
//! Commands to submit, and helpers that execute one and wait for it. Of Samsung's commands only
//! keys of 4 to 16 bytes are supported, which are in the command itself.

mod compound;

use memory::Buffer;
use nvme_spec::key_value::{self, KvCdw11, KvOpcode, StoreOptions};
use nvme_spec::samsung::{IteratorOption, SamsungCommand, SamsungOpcode, StoreOption};
use nvme_spec::{Cqe, Sqe};

pub use self::compound::Compound;
use crate::bus::Bus;
use crate::{DriverError, QueuePair};

/// The command set of a drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Dialect {
    /// The Key Value command set.
    Nvme,
    /// Samsung's commands.
    Samsung,
}

/// The keys that a store accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rule {
    /// Any.
    #[default]
    Any,
    /// Such as exist.
    MustExist,
    /// Such as do not exist.
    MustNotExist,
}

/// A namespace of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    /// Namespace Identifier.
    pub nsid: u32,
    /// Its command set.
    pub dialect: Dialect,
}

impl Keys {
    /// Bytes of the longest key that is known here.
    pub const KEY_MAX: usize = key_value::KEY_MAX;

    /// Store of a value of `len` bytes, without data pointers.
    ///
    /// # Errors
    /// [`DriverError::Unsupported`] for a key that no command can carry.
    pub fn store(&self, key: &[u8], len: u32, rule: Rule) -> Result<Sqe, DriverError> {
        let only_old = rule == Rule::MustExist;
        let only_new = rule == Rule::MustNotExist;
        match self.dialect {
            Dialect::Nvme => {
                let options = StoreOptions::new()
                    .with_must_exist(only_old)
                    .with_must_not_exist(only_new);
                self.nvme(KvOpcode::STORE, key, len, options.into())
            }
            Dialect::Samsung => {
                let option = StoreOption::new()
                    .with_update_only(only_old)
                    .with_idempotent(only_new);
                self.samsung(SamsungOpcode::STORE, key, len, option.into())
            }
        }
    }

    /// Retrieve of up to `room` bytes, without data pointers.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn retrieve(&self, key: &[u8], room: u32) -> Result<Sqe, DriverError> {
        match self.dialect {
            Dialect::Nvme => self.nvme(KvOpcode::RETRIEVE, key, room, 0),
            Dialect::Samsung => self.samsung(SamsungOpcode::RETRIEVE, key, room, 0),
        }
    }

    /// Delete.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn delete(&self, key: &[u8]) -> Result<Sqe, DriverError> {
        match self.dialect {
            Dialect::Nvme => self.nvme(KvOpcode::DELETE, key, 0, 0),
            Dialect::Samsung => self.samsung(SamsungOpcode::DELETE, key, 0, 0),
        }
    }

    /// Exist.
    ///
    /// # Errors
    /// As [`Self::store`].
    pub fn exist(&self, key: &[u8]) -> Result<Sqe, DriverError> {
        match self.dialect {
            Dialect::Nvme => self.nvme(KvOpcode::EXIST, key, 0, 0),
            Dialect::Samsung => self.samsung(SamsungOpcode::EXIST, key, 0, 0),
        }
    }

    fn nvme(
        &self,
        opcode: KvOpcode,
        key: &[u8],
        len: u32,
        options: u8,
    ) -> Result<Sqe, DriverError> {
        check_key(key, 1)?;
        let mut sqe = Sqe {
            opcode: opcode.0,
            nsid: self.nsid,
            cdw10: len,
            cdw11: KvCdw11::new().with_options(options).into(),
            ..Sqe::default()
        };
        key_value::set_key(&mut sqe, key);
        Ok(sqe)
    }

    fn samsung(
        &self,
        opcode: SamsungOpcode,
        key: &[u8],
        len: u32,
        option: u8,
    ) -> Result<Sqe, DriverError> {
        check_key(key, nvme_spec::samsung::KEY_MIN)?;
        let mut command = SamsungCommand {
            opcode,
            nsid: self.nsid,
            key_len_z: u8::try_from(key.len() - 1).expect("4 to 16 by the check"),
            option,
            ..SamsungCommand::default()
        };
        command.key[..key.len()].copy_from_slice(key);
        command.set_value_len(len);
        Ok(command.to_sqe())
    }
}

fn check_key(key: &[u8], least: usize) -> Result<(), DriverError> {
    if (least..=Keys::KEY_MAX).contains(&key.len()) {
        return Ok(());
    }
    Err(DriverError::Unsupported(format!(
        "a key must have {least} to {} bytes, not {}",
        Keys::KEY_MAX,
        key.len()
    )))
}

impl<B: Bus> QueuePair<B> {
    /// Stores the first `len` bytes of `buffer` under a key.
    ///
    /// # Errors
    /// As [`QueuePair::run`]; [`DriverError::Unsupported`] for a key that no command can carry, and
    /// for a buffer that is too small.
    pub fn kv_store(
        &mut self,
        keys: &Keys,
        key: &[u8],
        buffer: &Buffer,
        len: u32,
        rule: Rule,
    ) -> Result<Cqe, DriverError> {
        let sqe = keys.store(key, len, rule)?;
        self.run_with("Store", sqe, buffer, len)
    }

    /// Retrieves up to `room` bytes of a value into `buffer`; how large the whole value is.
    ///
    /// # Errors
    /// As [`Self::kv_store`].
    pub fn kv_retrieve(
        &mut self,
        keys: &Keys,
        key: &[u8],
        buffer: &Buffer,
        room: u32,
    ) -> Result<u32, DriverError> {
        let sqe = keys.retrieve(key, room)?;
        Ok(self.run_with("Retrieve", sqe, buffer, room)?.dw0)
    }

    /// Deletes a key.
    ///
    /// # Errors
    /// As [`Self::kv_store`].
    pub fn kv_delete(&mut self, keys: &Keys, key: &[u8]) -> Result<Cqe, DriverError> {
        self.run("Delete", keys.delete(key)?)
    }

    /// Succeeds where a key exists.
    ///
    /// # Errors
    /// As [`Self::kv_store`].
    pub fn kv_exist(&mut self, keys: &Keys, key: &[u8]) -> Result<Cqe, DriverError> {
        self.run("Exist", keys.exist(key)?)
    }

    /// Lists keys of the Key Value command set from `from` on, or from the first one where it is
    /// empty, into the first `room` bytes of `buffer`.
    ///
    /// # Errors
    /// As [`Self::kv_store`]; [`DriverError::Broken`] for a list that does not fit into the buffer.
    pub fn kv_list(
        &mut self,
        nsid: u32,
        from: &[u8],
        buffer: &Buffer,
        room: u32,
    ) -> Result<Vec<Vec<u8>>, DriverError> {
        if !from.is_empty() {
            check_key(from, 1)?;
        }
        let mut sqe = Sqe {
            opcode: KvOpcode::LIST.0,
            nsid,
            cdw10: room,
            ..Sqe::default()
        };
        key_value::set_key(&mut sqe, from);
        self.run_with("List", sqe, buffer, room)?;
        let mut bytes = vec![0; room as usize];
        buffer.read_into(0, &mut bytes);
        keys_of(&bytes, 2, key_value::list_entry_size)
    }

    /// Opens an iterator of a Samsung drive over the keys that begin with `prefix`, of 4 bytes at
    /// most; its handle.
    ///
    /// # Errors
    /// As [`Self::kv_store`].
    pub fn kv_open_iterator(&mut self, nsid: u32, prefix: &[u8]) -> Result<u8, DriverError> {
        if prefix.len() > 4 {
            return Err(DriverError::Unsupported(
                "an iterator's prefix has at most 4 bytes".to_owned(),
            ));
        }
        let mut command = SamsungCommand {
            opcode: SamsungOpcode::ITERATOR_REQUEST,
            nsid,
            option: IteratorOption::new()
                .with_open(true)
                .with_key_only(true)
                .into(),
            ..SamsungCommand::default()
        };
        command.key[..prefix.len()].copy_from_slice(prefix);
        command.key[4..4 + prefix.len()].fill(0xff);
        let cqe = self.run("Iterator request", command.to_sqe())?;
        u8::try_from(cqe.dw0).map_err(|_| {
            DriverError::Broken(format!(
                "it returned the invalid iterator handle {}",
                cqe.dw0
            ))
        })
    }

    /// Reads on: keys, and whether those were the last ones.
    ///
    /// # Errors
    /// As [`Self::kv_list`].
    pub fn kv_read_iterator(
        &mut self,
        nsid: u32,
        handle: u8,
        buffer: &Buffer,
        room: u32,
    ) -> Result<(Vec<Vec<u8>>, bool), DriverError> {
        let mut command = SamsungCommand {
            opcode: SamsungOpcode::ITERATOR_READ,
            nsid,
            key_len_z: handle,
            ..SamsungCommand::default()
        };
        command.set_value_len(room);
        let ended = match self.run_with("Iterator read", command.to_sqe(), buffer, room) {
            Ok(_) => false,
            Err(DriverError::Status { status, .. })
                if status == nvme_spec::samsung::status::ITERATOR_END =>
            {
                true
            }
            Err(error) => return Err(error),
        };
        let mut bytes = vec![0; room as usize];
        buffer.read_into(0, &mut bytes);
        let size = |len: usize| 4 + len.next_multiple_of(4);
        Ok((keys_of(&bytes, 4, size)?, ended))
    }

    /// Closes an iterator.
    ///
    /// # Errors
    /// As [`Self::kv_store`].
    pub fn kv_close_iterator(&mut self, nsid: u32, handle: u8) -> Result<Cqe, DriverError> {
        let command = SamsungCommand {
            opcode: SamsungOpcode::ITERATOR_REQUEST,
            nsid,
            key_len_z: handle,
            option: IteratorOption::new().with_close(true).into(),
            ..SamsungCommand::default()
        };
        self.run("Iterator request", command.to_sqe())
    }

    /// Does a command whose data are the first `len` bytes of `buffer`.
    ///
    /// # Errors
    /// As [`Self::kv_store`].
    pub fn run_with(
        &mut self,
        name: &'static str,
        mut sqe: Sqe,
        buffer: &Buffer,
        len: u32,
    ) -> Result<Cqe, DriverError> {
        let wide = len as usize;
        if wide > buffer.len() {
            return Err(DriverError::Unsupported(format!(
                "{name} of {len} bytes does not fit in a buffer of {}",
                buffer.len()
            )));
        }
        if len > 0 {
            self.set_data(&mut sqe, buffer, wide)?;
        }
        self.run(name, sqe)
    }
}

/// Keys of a list: a count of 4 bytes, then for each its size in `head` bytes, the key, and what
/// pads the entry to `size_of` it.
fn keys_of(
    bytes: &[u8],
    head: usize,
    size_of: impl Fn(usize) -> usize,
) -> Result<Vec<Vec<u8>>, DriverError> {
    let number = |bytes: &[u8]| {
        let mut word = [0; 4];
        word[..bytes.len()].copy_from_slice(bytes);
        u32::from_le_bytes(word) as usize
    };
    let broken = || DriverError::Broken("its list of keys is longer than the buffer".to_owned());
    let (count, mut rest) = bytes.split_at_checked(4).ok_or_else(broken)?;
    let mut keys = Vec::new();
    for _ in 0..number(count) {
        let len = number(rest.get(..head).ok_or_else(broken)?);
        let key = rest.get(head..).and_then(|rest| rest.get(..len));
        keys.push(key.ok_or_else(broken)?.to_vec());
        rest = rest.get(size_of(len)..).ok_or_else(broken)?;
    }
    Ok(keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_have_their_bytes() {
        let mut keys = Keys {
            nsid: 3,
            dialect: Dialect::Nvme,
        };
        let sqe = keys.store(b"hello", 4096, Rule::MustNotExist).unwrap();
        assert_eq!((sqe.opcode, sqe.nsid, sqe.cdw10), (0x01, 3, 4096));
        assert_eq!(sqe.cdw11, 0x0205);
        assert_eq!((sqe.cdw2, sqe.cdw3), (0x6c6c_6568, 0x6f));
        assert_eq!(keys.retrieve(b"k", 7).unwrap().opcode, 0x02);
        assert_eq!(keys.delete(b"k").unwrap().opcode, 0x10);
        assert_eq!(keys.exist(b"k").unwrap().opcode, 0x14);
        assert!(keys.exist(b"").is_err() && keys.exist(&[0; 17]).is_err());
        keys.dialect = Dialect::Samsung;
        let sqe = keys.store(b"hello", 5, Rule::MustExist).unwrap();
        assert_eq!((sqe.opcode, sqe.cdw10), (0x81, 2));
        // Length less one, option, bytes too many.
        assert_eq!(sqe.cdw11, 0x0003_0804);
        assert_eq!((sqe.cdw12, sqe.cdw13), (0x6c6c_6568, 0x6f));
        assert_eq!(keys.delete(b"four").unwrap().opcode, 0xa1);
        assert_eq!(keys.exist(b"four").unwrap().opcode, 0xb3);
        assert!(keys.exist(b"abc").is_err());
    }

    #[test]
    fn typed_lists_decode_and_wrong_ones_are_refused() {
        let list = [
            2, 0, 0, 0, 1, 0, b'a', 0, 4, 0, b'b', b'c', b'd', b'e', 0, 0, 9,
        ];
        let entry = key_value::list_entry_size;
        let keys = keys_of(&list, 2, entry).unwrap();
        assert_eq!(keys, [b"a".to_vec(), b"bcde".to_vec()]);
        assert!(keys_of(&list[..15], 2, entry).is_err());
        assert!(keys_of(&[255; 64], 2, entry).is_err());
        assert!(keys_of(&[255; 64], 4, |len| len.saturating_add(4)).is_err());
        assert!(keys_of(&[0; 3], 2, entry).is_err());
    }
}
