//! Pairs as records of the log: all of them, and their recovery.
//!
//! A record is applied like a command: pairs with a log append it there, so that records that come
//! from another medium persist. During recovery the pairs have no log yet.

use std::io;

use memory::Store;

use super::data::Source;
use super::index::KEY_MAX;
use super::log::{APPEND, CLEAR, DELETE, PUT};
use super::logged::LoggedPairs;
use super::pairs::{Pairs, Rule, VALUE_MAX};
use crate::journal::{RecordSink, StateError};

/// Passes all pairs to `tell`, in the order of their keys.
pub(super) fn records(pairs: &Pairs, tell: &mut RecordSink<'_>) -> io::Result<()> {
    let mut buffer = [0; KEY_MAX];
    let mut record = Vec::new();
    let mut next = pairs.after_key(&[]);
    while let Some(slot) = next {
        let key = pairs.key(slot, &mut buffer);
        record.clear();
        record.push(key.len() as u8);
        record.extend_from_slice(key);
        pairs.for_pieces(slot, 0, pairs.value_len(slot), |store, at, len| {
            let from = record.len();
            record.resize(from + len as usize, 0);
            store.read_bytes(at, &mut record[from..]);
        });
        tell(PUT, &record)?;
        next = pairs.after_key(key);
    }
    Ok(())
}

/// Bytes of a record, one after another.
struct Bytes<'r>(&'r [u8]);

impl Source for Bytes<'_> {
    fn take_into(&mut self, store: &Store, at: u64, len: u32) {
        let (now, later) = self.0.split_at(len as usize);
        store.write_bytes(at, now);
        self.0 = later;
    }
}

/// Applies a record of the log.
pub(super) fn replay(pairs: &mut LoggedPairs, kind: u8, record: &[u8]) -> Result<(), StateError> {
    const STRANGE: StateError = StateError::Damaged("its log has a pair that cannot be");
    if kind == CLEAR {
        pairs.clear();
        return Ok(());
    }
    let (len, rest) = record.split_first().ok_or(STRANGE)?;
    let (key, value) = rest.split_at_checked(usize::from(*len)).ok_or(STRANGE)?;
    if key.is_empty() || value.len() > VALUE_MAX as usize {
        return Err(STRANGE);
    }
    let len = value.len() as u32;
    let done = match kind {
        PUT => pairs.store(key, Rule::Any, len, &mut Bytes(value)),
        APPEND if pairs.read().size_of(key).is_none() => Ok(()),
        APPEND => pairs
            .append(key, Rule::Any, len, &mut Bytes(value))
            .map(drop),
        // It may not exist yet, or not any more.
        DELETE => pairs.delete(key).or(Ok(())),
        _ => return Err(STRANGE),
    };
    done.map_err(|_| StateError::Damaged("its log has more pairs than it has room for"))
}
